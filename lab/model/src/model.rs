//! The world as a stateright model: what may happen next, and what it leads to.

use crate::client::Turn;
use crate::config::{BYTES, Op, Part};
use crate::rule::{Broken, Found, Rule};
use crate::server;
use crate::state::{Node, State, Step, Thread};
use crate::world::World;
use stateright::{Model, Property};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The way of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From client to server.
    Up,
    /// From server to client.
    Down,
}

/// Something that may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A message arrives: the first of its connection, or with swaps a later one.
    Deliver {
        /// Which connections.
        link: u8,
        /// Which way.
        way: Way,
        /// Control, callback, bulk.
        channel: u8,
        /// Place in the queue.
        at: u8,
    },
    /// A thread calls its next operation.
    Start {
        /// Of which node.
        node: u8,
        /// Which.
        thread: u8,
    },
    /// A thread that waits for nobody goes on.
    Run {
        /// Of which node.
        node: u8,
        /// Which.
        thread: u8,
    },
    /// The flush thread takes what is waited for.
    Take {
        /// Of which node.
        node: u8,
        /// From which stripe.
        stripe: u8,
    },
    /// The flush thread takes anything.
    Flush {
        /// Of which node.
        node: u8,
        /// From which stripe.
        stripe: u8,
    },
    /// The device ends a task.
    End {
        /// At which shard.
        shard: u8,
        /// Which.
        task: u64,
    },
    /// A shard trims.
    Trim {
        /// Which.
        shard: u8,
    },
    /// A client gives back an unused lock.
    Shrink {
        /// Which.
        node: u8,
        /// Of which stripe.
        stripe: u8,
    },
    /// A client crashes.
    Crash {
        /// Which.
        node: u8,
    },
    /// A client finds its connections gone and comes back.
    Lose {
        /// Which.
        node: u8,
    },
    /// A server finds the connections of a client gone: eviction.
    Part {
        /// Which connections.
        link: u8,
    },
}

impl World {
    fn take(&self, state: &mut State, action: Action) -> Found {
        match action {
            Action::Deliver { link, way: Way::Up, channel, at } => {
                server::deliver(self, state, usize::from(link), channel, at)
            }
            Action::Deliver { link, way: Way::Down, channel, .. } => {
                let node = self.node_of(self.ends(usize::from(link)).0);
                Turn::new(self, state, node).deliver(usize::from(link), channel)
            }
            Action::Start { node, thread } => {
                Turn::new(self, state, usize::from(node)).act(|turn| turn.start(usize::from(thread)))
            }
            Action::Run { node, thread } => {
                Turn::new(self, state, usize::from(node)).act(|turn| turn.run(usize::from(thread)))
            }
            Action::Take { node, stripe } => {
                Turn::new(self, state, usize::from(node)).act(|turn| turn.take(stripe, true))
            }
            Action::Flush { node, stripe } => {
                Turn::new(self, state, usize::from(node)).act(|turn| turn.take(stripe, false))
            }
            Action::Shrink { node, stripe } => {
                Turn::new(self, state, usize::from(node)).act(|turn| turn.shrink(stripe))
            }
            Action::Crash { node } => Turn::new(self, state, usize::from(node)).crash(),
            Action::Lose { node } => Turn::new(self, state, usize::from(node)).lose(),
            Action::End { shard, task } => server::end(self, state, shard, task),
            Action::Trim { shard } => server::trim(self, state, shard),
            Action::Part { link } => server::part(self, state, usize::from(link)),
        }
    }

    /// What will happen some time, unless something else happens first.
    fn certain(&self, state: &State, actions: &mut Vec<Action>) {
        for (link, l) in (0..).zip(&state.links) {
            for channel in 0..3_u8 {
                let up = &l.up[usize::from(channel)];
                let any = self.config.options.swaps && channel == 1;
                let places = if any { up.len() } else { up.len().min(1) };
                let places = u8::try_from(places).expect("short queues");
                actions.extend((0..places).map(|at| Action::Deliver { link, way: Way::Up, channel, at }));
                if !l.down[usize::from(channel)].is_empty() {
                    actions.push(Action::Deliver { link, way: Way::Down, channel, at: 0 });
                }
            }
            if l.open && l.cut {
                actions.push(Action::Part { link });
            }
        }
        for (shard, server) in (0..).zip(&state.servers) {
            actions.extend(server.tasks.keys().map(|task| Action::End { shard, task: *task }));
        }
        for (node, n) in (0..).zip(&state.nodes).filter(|(_, n)| n.incarnation.is_some()) {
            for (thread, t) in (0..).zip(&n.threads) {
                match &t.step {
                    Step::Idle if self.may_start(n, usize::from(node), usize::from(thread)) => {
                        actions.push(Action::Start { node, thread });
                    }
                    Step::Filled { .. } | Step::Copied { .. } => actions.push(Action::Run { node, thread }),
                    Step::Idle
                    | Step::Locking { .. }
                    | Step::Looking { .. }
                    | Step::Fetching { .. }
                    | Step::Measuring { .. }
                    | Step::Glimpsing { .. }
                    | Step::Cutting
                    | Step::Flushing { .. }
                    | Step::Syncing { .. } => {}
                }
            }
            for (stripe, cached) in (0..).zip(&n.stripes) {
                if cached.rules.wants_flush() {
                    actions.push(Action::Take { node, stripe });
                }
                if cached.rules.wants_flush_soon() && !self.config.options.flushes {
                    actions.push(Action::Flush { node, stripe });
                }
            }
        }
    }

    /// What may also happen, or not.
    fn possible(&self, state: &State, actions: &mut Vec<Action>) {
        let options = &self.config.options;
        for (shard, server) in (0..).zip(&state.servers) {
            if options.trims && server.shard.next_look_ns() == Some(0) {
                actions.push(Action::Trim { shard });
            }
        }
        for (node, n) in (0..).zip(&state.nodes).filter(|(_, n)| n.incarnation.is_some()) {
            for (stripe, cached) in (0..).zip(&n.stripes) {
                if options.flushes && cached.rules.cache().dirty_bytes() > 0 {
                    actions.push(Action::Flush { node, stripe });
                }
                if n.shrinks > 0 && cached.rules.locks().is_some_and(|locks| locks.count() > 0) {
                    actions.push(Action::Shrink { node, stripe });
                }
            }
            if options.crashes == Some(node) && !self.has_returned(n, usize::from(node)) {
                actions.push(Action::Crash { node });
            }
            if options.loses == Some(node) && !n.has_lost {
                actions.push(Action::Lose { node });
            }
        }
    }

    /// Whether a thread has something to call that no other thread of its process stands against.
    fn may_start(&self, n: &Node, node: usize, thread: usize) -> bool {
        let script = self.config.nodes[node][thread];
        let Some(op) = script.get(usize::from(n.threads[thread].next)) else { return false };
        let others =
            n.threads.iter().enumerate().filter(|(other, t)| *other != thread && t.step != Step::Idle);
        others
            .into_iter()
            .all(|(other, t)| !conflict(*op, self.config.nodes[node][other][usize::from(t.next)]))
    }

    fn has_returned(&self, n: &Node, node: usize) -> bool {
        let ended = |(thread, script): (&Thread, &&[Op])| {
            thread.step == Step::Idle && usize::from(thread.next) == script.len()
        };
        n.incarnation.is_none() || n.threads.iter().zip(self.config.nodes[node]).all(ended)
    }

    fn at_rest(&self, state: &State) -> Option<Broken> {
        for (node, n) in state.nodes.iter().enumerate() {
            if !self.has_returned(n, node) {
                let steps: Vec<&Step> = n.threads.iter().map(|thread| &thread.step).collect();
                let what = format!("nothing can happen any more, and c{node} has not returned: {steps:?}");
                return Some(Broken { rule: Rule::I8, what });
            }
        }
        for stripe in 0..self.config.stripes {
            let stored = &state.servers[usize::from(self.shard_of(stripe))].stripes[usize::from(stripe)];
            for byte in 0..BYTES {
                let Some(newest) = state.ghost.newest(self, stripe, byte) else { continue };
                let info = self.op(newest);
                let content = if info.op.cuts() { 0 } else { newest };
                let cached = &state.nodes[info.node];
                let cached = cached.incarnation.is_some().then(|| &cached.stripes[usize::from(stripe)]);
                if stored.live[byte] != content && cached.is_none_or(|cached| cached.pages[byte] != content) {
                    let what = format!("byte {byte} of {} on stripe {stripe} is nowhere", self.title(newest));
                    return Some(Broken { rule: Rule::I9, what });
                }
            }
        }
        None
    }

    /// What is wrong with a state in which nothing certain can happen any more; `None` if something can.
    fn at_rest_or_busy(&self, state: &State) -> Option<Broken> {
        let busy = state.links.iter().any(|l| l.up.iter().chain(&l.down).any(|queue| !queue.is_empty()));
        if busy || state.servers.iter().any(|server| !server.tasks.is_empty()) {
            return None;
        }
        let mut certain = Vec::new();
        self.certain(state, &mut certain);
        if certain.is_empty() { self.at_rest(state) } else { None }
    }
}

/// Whether two operations of one process exclude each other (the range lock of the client).
fn conflict(a: Op, b: Op) -> bool {
    let parts = |op: Op| match op {
        Op::Append { .. } => op.parts().into_iter().map(|part| Part { start: 0, ..part }).collect(),
        Op::Write(_) | Op::Read(_) | Op::Truncate { .. } | Op::Size { .. } | Op::Sync => op.parts(),
    };
    (a.writes() || b.writes())
        && parts(a)
            .iter()
            .any(|a| parts(b).iter().any(|b| a.stripe == b.stripe && a.start < b.end && b.start < a.end))
}

macro_rules! properties {
    ($($rule:ident),* $(,)?) => {
        vec![$(Property::always(Rule::$rule.about(), |_: &World, state: &State| {
            state.broken.as_ref().is_none_or(|broken| broken.rule != Rule::$rule)
        })),*]
    };
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.initial()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.broken.is_none() {
            self.certain(state, actions);
            self.possible(state, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let result = catch_unwind(AssertUnwindSafe(|| self.take(&mut state, action)));
        match result {
            Ok(Ok(())) => {
                if self.is_sized() {
                    Arc::make_mut(&mut state.ghost).note_lengths(self);
                }
                state.broken = self.at_rest_or_busy(&state);
            }
            Ok(Err(broken)) => state.broken = Some(broken),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| String::from(*text)));
                let what = text.unwrap_or_else(|| String::from("a panic without words"));
                state = last.clone();
                state.broken = Some(Broken { rule: Rule::Panic, what });
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<World>> {
        properties!(I1, I2, I3, I4, I5, I5Whole, I7, I8, I9, Panic, Protocol)
    }
}
