//! Which calls came before which: a directed graph that must not have a cycle.

use super::Rule;
use super::Violation;
use crate::history::{History, OpId};
use ccpfs_types::Extent;
use std::collections::VecDeque;

/// Why one call comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// It had returned before the other was invoked.
    Returned,
    /// The other wrote over its bytes.
    Overwritten(Extent),
    /// The other read, or could have read, its bytes.
    Seen(Extent),
    /// It read these bytes before the other wrote them.
    NotSeenYet(Extent),
    /// It found the file to end before the bytes of the other.
    EndedBefore(u64),
    /// One of both is an append: it needs the size that the other leaves.
    Append,
}

/// An edge between nodes: calls first, then points in time.
#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    why: Why,
}

/// The graph of a history.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    calls: u32,
    nodes: u32,
    edges: Vec<Edge>,
    /// After [`Graph::close`]: where the edges of each node begin.
    first: Vec<u32>,
}

fn index(value: usize) -> u32 {
    u32::try_from(value).expect("histories are far smaller")
}

impl Graph {
    /// A graph with the edges of real time: a call that has returned with success comes before those invoked later.
    #[must_use]
    pub fn of_real_time(history: &History) -> Graph {
        let calls = index(history.operations.len());
        let mut graph = Graph { calls, nodes: calls, edges: Vec::new(), first: Vec::new() };
        // What failed may still take effect after it has returned.
        let mut returns: Vec<(u64, u32)> = history
            .operations
            .iter()
            .filter(|operation| operation.succeeded())
            .filter_map(|operation| Some((operation.returned?.step, operation.id.0)))
            .collect();
        returns.sort_unstable();
        graph.nodes += index(returns.len());
        for (at, (_, call)) in returns.iter().enumerate() {
            let point = calls + index(at);
            graph.add(*call, point, Why::Returned);
            if at + 1 < returns.len() {
                graph.add(point, point + 1, Why::Returned);
            }
        }
        for operation in &history.operations {
            let before = returns.partition_point(|(step, _)| *step < operation.invoked.step);
            if let Some(last) = before.checked_sub(1) {
                graph.add(calls + index(last), operation.id.0, Why::Returned);
            }
        }
        graph
    }

    fn add(&mut self, from: u32, to: u32, why: Why) {
        self.edges.push(Edge { from, to, why });
    }

    /// `before` comes before `after`.
    pub fn put(&mut self, before: OpId, after: OpId, why: Why) {
        if before != after {
            self.add(before.0, after.0, why);
        }
    }

    /// Number of edges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether nothing is ordered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// Sorts the edges by where they begin.
    fn close(&mut self) {
        let nodes = self.nodes as usize;
        let mut first = vec![0_u32; nodes + 2];
        for edge in &self.edges {
            first[edge.from as usize + 2] += 1;
        }
        for at in 2..first.len() {
            first[at] += first[at - 1];
        }
        let mut sorted = self.edges.clone();
        for edge in &self.edges {
            let slot = &mut first[edge.from as usize + 1];
            sorted[*slot as usize] = *edge;
            *slot += 1;
        }
        first.pop();
        self.edges = sorted;
        self.first = first;
    }

    fn edges_of(&self, node: u32) -> &[Edge] {
        let (from, to) = (self.first[node as usize], self.first[node as usize + 1]);
        &self.edges[from as usize..to as usize]
    }

    /// All calls in an order that every edge agrees with.
    ///
    /// # Errors
    /// A violation that names a cycle, if there is one.
    pub fn in_order(&mut self, history: &History) -> Result<Vec<OpId>, Violation> {
        self.close();
        let nodes = self.nodes as usize;
        let mut blockers = vec![0_u32; nodes];
        for edge in &self.edges {
            blockers[edge.to as usize] += 1;
        }
        let mut ready: VecDeque<u32> = (0..self.nodes).filter(|node| blockers[*node as usize] == 0).collect();
        let mut order = Vec::with_capacity(self.calls as usize);
        let mut done = 0;
        while let Some(node) = ready.pop_front() {
            done += 1;
            if node < self.calls {
                order.push(OpId(node));
            }
            for edge in self.edges_of(node) {
                let left = &mut blockers[edge.to as usize];
                *left -= 1;
                if *left == 0 {
                    ready.push_back(edge.to);
                }
            }
        }
        if done == nodes { Ok(order) } else { Err(self.name_cycle(history, &blockers)) }
    }

    /// Whether a path leads from one call to another. Only after [`Graph::in_order`].
    #[must_use]
    pub fn leads_to(&self, from: OpId, to: OpId) -> bool {
        let mut seen = vec![false; self.nodes as usize];
        let mut stack = vec![from.0];
        while let Some(node) = stack.pop() {
            if node == to.0 {
                return true;
            }
            for edge in self.edges_of(node) {
                if !std::mem::replace(&mut seen[edge.to as usize], true) {
                    stack.push(edge.to);
                }
            }
        }
        false
    }

    /// The shortest cycle through any call that could not be ordered.
    fn name_cycle(&self, history: &History, blockers: &[u32]) -> Violation {
        let stuck = (0..self.calls).filter(|node| blockers[*node as usize] > 0);
        let cycle = stuck
            .filter_map(|node| self.cycle_through(node))
            .min_by_key(|cycle| cycle.iter().filter(|edge| edge.from < self.calls).count())
            .expect("what cannot be ordered is on a cycle or behind one");
        let mut operations = Vec::new();
        let mut lines = String::new();
        for (at, edge) in cycle.iter().enumerate() {
            if edge.from >= self.calls {
                continue;
            }
            let next = cycle[at..].iter().map(|e| e.to).find(|to| *to < self.calls);
            let next = next.unwrap_or(cycle[0].from);
            let (before, after) = (OpId(edge.from), OpId(next));
            operations.push(before);
            let (before, after) = (history.operation(before), history.operation(after));
            lines.push_str(&format!("\n  {before}\n    {}", edge.why.words(after.id)));
        }
        let what = format!("no order of these calls explains what they saw:{lines}");
        Violation::new(Rule::Order, &operations, what)
    }

    fn cycle_through(&self, start: u32) -> Option<Vec<Edge>> {
        let mut came: Vec<Option<Edge>> = vec![None; self.nodes as usize];
        let mut queue = VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            for edge in self.edges_of(node) {
                if edge.to == start {
                    let mut path = vec![*edge];
                    let mut at = node;
                    while at != start {
                        let edge = came[at as usize].expect("reached from the start");
                        path.push(edge);
                        at = edge.from;
                    }
                    path.reverse();
                    return Some(path);
                }
                let place = &mut came[edge.to as usize];
                if place.is_none() {
                    *place = Some(*edge);
                    queue.push_back(edge.to);
                }
            }
        }
        None
    }
}

impl Why {
    fn words(self, next: OpId) -> String {
        match self {
            Why::Returned => format!("had returned before {next} was invoked"),
            Why::Overwritten(extent) => {
                format!("wrote {extent} before {next}, by the numbers of their locks")
            }
            Why::Seen(extent) => format!("wrote {extent} before {next} read it"),
            Why::NotSeenYet(extent) => format!("read {extent} before {next} wrote it"),
            Why::EndedBefore(size) => format!("found the file to end at {size}, which {next} lengthened"),
            Why::Append => format!("was in the file before {next}, and one of them appends"),
        }
    }
}
