//! I5: every byte that a read saw is the newest by the numbers of the locks, and all calls fit into one order.
//!
//! The order of the writes of a byte is known from inside: the sequence number of the lock, then the step. So each read
//! can be judged by itself, and whole calls by a graph: who wrote before whom, who saw whom, who did not see whom yet, who had
//! returned before whom was invoked. A cycle in it means that some call was torn, or came too late.

use super::durability::{Fate, Losses};
use super::graph::{Graph, Why};
use super::segments::{self, Access, Deed, Segment};
use super::{Gaps, Rule, Violation};
use crate::history::{Call, History, OpId, Tag};

/// What is known of a history after its bytes were looked at.
#[derive(Clone, Debug)]
pub struct Analysis {
    /// Who comes before whom.
    pub graph: Graph,
    /// The segments of all files.
    pub segments: Vec<Segment>,
    /// What the documents admit.
    pub gaps: Gaps,
}

/// Checks the bytes of a whole run and collects what they say about the order of its calls.
///
/// # Errors
/// The first byte that nobody can explain.
//= protocol.md#I5
pub fn analyse(history: &History) -> Result<Analysis, Violation> {
    check_shape(history)?;
    let losses = Losses::of(history);
    let mut analysis =
        Analysis { graph: Graph::of_real_time(history), segments: Vec::new(), gaps: Gaps::default() };
    let mut story = Story { survivors: Vec::new(), standing: Vec::new() };
    for file in 0..history.files.len() {
        let file = u32::try_from(file).expect("runs have few files");
        for segment in segments::of_file(history, file)? {
            story.tell(history, &losses, &segment, &mut analysis.gaps)?;
            connect(&mut analysis.graph, &segment, &story.survivors);
            analysis.segments.push(segment);
        }
    }
    order_appends(history, &mut analysis.graph);
    Ok(analysis)
}

/// Calls are numbered by their index, and returned after they were invoked.
fn check_shape(history: &History) -> Result<(), Violation> {
    for (at, operation) in history.operations.iter().enumerate() {
        let sane = operation.id.0 as usize == at
            && operation.returned.is_none_or(|returned| returned.step > operation.invoked.step)
            && operation.returned.is_some() == operation.outcome.is_some()
            && (operation.call.file() as usize) < history.files.len();
        if !sane {
            let what = format!("{operation} is number {at} and is told wrongly: {operation:?}");
            return Err(Violation::new(Rule::Laboratory, &[operation.id], what));
        }
    }
    Ok(())
}

/// Whether a part of a call ran when its session had ended already at the server, or ended before the call did.
fn is_cut_off(history: &History, access: &Access) -> bool {
    let Some(ended) = history.session(&access.used).ended else { return false };
    if access.deed.changes() {
        return ended.step < access.used.order;
    }
    history.operation(access.call).returned.is_none_or(|returned| ended.step < returned.step)
}

/// Whether a call failed before it took effect on a stripe: what it had copied into pages that were just being flushed may be
/// anywhere.
fn is_half_done(history: &History, segment: &Segment, call: OpId) -> bool {
    history.operations.get(call.0 as usize).is_some_and(|call| {
        !call.succeeded()
            && call.call.file() == segment.file
            && call.at(segment.stripe, segment.local.start()).is_none()
            && call.changes().is_some_and(|changed| changed.contains(segment.extent))
    })
}

/// A write that may be what a reader sees.
struct Standing {
    access: Access,
    /// Its place among the survivors.
    at: usize,
    /// Whether somebody saw it who can have it from the server only.
    stored: bool,
}

/// The life of the bytes of one segment.
struct Story {
    /// The accesses that count, in the order of the locks; those of lost writes are struck.
    survivors: Vec<Option<Access>>,
    standing: Vec<Standing>,
}

impl Story {
    fn tell(
        &mut self,
        history: &History,
        losses: &Losses<'_>,
        segment: &Segment,
        gaps: &mut Gaps,
    ) -> Result<(), Violation> {
        self.survivors.clear();
        self.standing.clear();
        for access in &segment.accesses {
            if is_cut_off(history, access) {
                gaps.reads_while_evicted += u64::from(!access.deed.changes());
                gaps.writes_lost += u64::from(access.deed.changes());
                continue;
            }
            match access.deed {
                Deed::Wrote | Deed::Cut => {
                    self.standing.push(Standing { access: *access, at: self.survivors.len(), stored: false });
                    // What failed counts only where somebody has seen it.
                    let counts = history.operation(access.call).succeeded();
                    self.survivors.push(counts.then_some(*access));
                    continue;
                }
                Deed::Saw(tag) => {
                    let by = history.operation(access.call).returned.map_or(u64::MAX, |r| r.step);
                    self.see(history, losses, segment, Some(access), tag, by, gaps)?;
                }
                Deed::Missed => {
                    let by = history.operation(access.call).returned.map_or(u64::MAX, |r| r.step);
                    self.see(history, losses, segment, Some(access), None, by, gaps)?;
                }
            }
            self.survivors.push(Some(*access));
        }
        match segment.finally {
            Some(tag) => self.see(history, losses, segment, None, tag, u64::MAX, gaps),
            None => Ok(()),
        }
    }

    /// Somebody saw `tag`: whatever is newer must be lost, and must be allowed to be.
    #[expect(clippy::too_many_arguments, reason = "all of it is needed to name a violation")]
    fn see(
        &mut self,
        history: &History,
        losses: &Losses<'_>,
        segment: &Segment,
        reader: Option<&Access>,
        tag: Tag,
        by: u64,
        gaps: &mut Gaps,
    ) -> Result<(), Violation> {
        if tag.is_some_and(|call| is_half_done(history, segment, call)) {
            return Ok(());
        }
        let mut undermined = false;
        while let Some(newest) = self.standing.last_mut() {
            let shows = match newest.access.deed {
                Deed::Cut => tag.is_none(),
                Deed::Wrote | Deed::Saw(_) | Deed::Missed => tag == Some(newest.access.call),
            };
            if shows {
                newest.stored |= reader.is_some_and(|r| r.used.session != newest.access.used.session);
                self.survivors[newest.at] = Some(newest.access);
                return Ok(());
            }
            match losses.fate(segment, &newest.access, newest.stored, undermined, by) {
                Fate::Doubtful { undermines } => {
                    undermined |= undermines;
                    gaps.writes_lost += 1;
                    let lost = self.standing.pop().expect("looked at just now");
                    self.survivors[lost.at] = None;
                }
                fate @ (Fate::Kept | Fate::Promised) => {
                    let newest = newest.access;
                    return Err(wrong_byte(history, segment, reader, tag, Some((&newest, fate))));
                }
            }
        }
        if tag.is_none() { Ok(()) } else { Err(wrong_byte(history, segment, reader, tag, None)) }
    }
}

/// Somebody saw what cannot be.
fn wrong_byte(
    history: &History,
    segment: &Segment,
    reader: Option<&Access>,
    seen: Tag,
    newest: Option<(&Access, Fate)>,
) -> Violation {
    let Segment { file, extent, stripe, local, .. } = segment;
    let place = format!("bytes {extent} of f{file} (stripe {stripe}, {local})");
    let who = match reader {
        Some(access) => {
            let missed = if access.deed == Deed::Missed { " to lie behind the end" } else { "" };
            format!("{}, under {}, found {place}{missed}", history.operation(access.call), access.used.sn)
        }
        None => format!("at the end {place} are found"),
    };
    let saw = match seen {
        Some(id) if (id.0 as usize) < history.operations.len() => {
            let of = segment.accesses.iter().find(|a| a.call == id && a.deed == Deed::Wrote);
            match of {
                Some(access) => format!("as {} wrote them under {}", history.operation(id), access.used.sn),
                None => format!("as written by {}, which did not write there", history.operation(id)),
            }
        }
        Some(id) => format!("as written by {id}, which never was"),
        None => "empty".to_owned(),
    };
    let (expected, rule) = match newest {
        Some((access, fate)) => {
            let did = if access.deed == Deed::Cut { "cut" } else { "wrote" };
            let newest = format!(
                "but {} {did} them under {}, which is newer",
                history.operation(access.call),
                access.used.sn
            );
            match fate {
                Fate::Promised => (format!("{newest}; an fsync has vouched for it"), Rule::Durable),
                Fate::Kept | Fate::Doubtful { .. } => {
                    (format!("{newest}; nothing happened that could lose it"), Rule::Order)
                }
            }
        }
        None => (
            "but that is not there: lost and back again, or not yet written by the locks".to_owned(),
            Rule::Order,
        ),
    };
    let operations: Vec<OpId> =
        [reader.map(|r| r.call), seen, newest.map(|(access, _)| access.call)].into_iter().flatten().collect();
    Violation::new(rule, &operations, format!("{who} {saw}, {expected}"))
}

/// The edges that the surviving accesses of a segment give.
fn connect(graph: &mut Graph, segment: &Segment, survivors: &[Option<Access>]) {
    let extent = segment.extent;
    let mut writer: Option<OpId> = None;
    let mut readers: Vec<OpId> = Vec::new();
    for access in survivors.iter().flatten() {
        if access.deed.changes() {
            if let Some(before) = writer {
                graph.put(before, access.call, Why::Overwritten(extent));
            }
            for reader in readers.drain(..) {
                graph.put(reader, access.call, Why::NotSeenYet(extent));
            }
            writer = Some(access.call);
        } else {
            if let Some(before) = writer {
                graph.put(before, access.call, Why::Seen(extent));
            }
            readers.push(access.call);
        }
    }
}

/// An append holds all of the file: each call that changes it comes before or after, on every stripe they share.
fn order_appends(history: &History, graph: &mut Graph) {
    let is_append = |call: &Call| matches!(call, Call::Append { .. });
    for file in 0..history.files.len() {
        for stripe in 0..history.files[file].layout.stripe_count() {
            let mut uses: Vec<_> = history
                .operations
                .iter()
                .filter(|operation| operation.call.file() as usize == file)
                .filter(|operation| operation.changes().is_some())
                .flat_map(|operation| operation.on_stripe(stripe).map(move |used| (operation, used)))
                .filter(|(_, used)| history.session(used).ended.is_none())
                .map(|(operation, used)| ((used.sn, used.order), operation.id, is_append(&operation.call)))
                .collect();
            uses.sort_unstable();
            let mut last: Option<OpId> = None;
            let mut between: Vec<OpId> = Vec::new();
            for (_, id, appends) in uses {
                if let Some(before) = last {
                    graph.put(before, id, Why::Append);
                }
                if appends {
                    between.drain(..).for_each(|before| graph.put(before, id, Why::Append));
                    last = Some(id);
                } else {
                    between.push(id);
                }
            }
        }
    }
}
