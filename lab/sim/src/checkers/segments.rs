//! A file cut at every border of every call: within a segment all bytes have the same story.

use super::{Rule, Violation};
use crate::history::{Call, History, OpId, Operation, Outcome, StripeUse, Tag};
use ccpfs_types::{Extent, Layout, Sn};

/// What a call did to the bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deed {
    /// It wrote them.
    Wrote,
    /// It cut them off.
    Cut,
    /// It read them, and this is what it saw.
    Saw(Tag),
    /// It asked for them and was told that the file ends before them.
    Missed,
}

impl Deed {
    /// Whether it changes the bytes.
    #[must_use]
    pub const fn changes(self) -> bool {
        match self {
            Deed::Wrote | Deed::Cut => true,
            Deed::Saw(_) | Deed::Missed => false,
        }
    }
}

/// One call's part in the story of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// The call.
    pub call: OpId,
    /// What it did to the stripe.
    pub used: StripeUse,
    /// What it did to the bytes.
    pub deed: Deed,
}

impl Access {
    /// Its place among the accesses of its bytes: by the number of the lock, then by the step.
    #[must_use]
    pub const fn key(&self) -> (Sn, u64) {
        (self.used.sn, self.used.order)
    }
}

/// Bytes that every call treated alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// The file.
    pub file: u32,
    /// Which bytes of it.
    pub extent: Extent,
    /// The stripe they are in.
    pub stripe: u32,
    /// Which bytes of the stripe.
    pub local: Extent,
    /// Who touched them, in the order of the locks.
    pub accesses: Vec<Access>,
    /// What is there at the end, if somebody looked.
    pub finally: Option<Tag>,
}

/// Parts of a call: bytes of the file and what was done to them.
fn deeds(operation: &Operation, end: u64) -> Vec<(Extent, Deed)> {
    let clipped = |extent: Extent| Extent::new(extent.start(), extent.end().min(end));
    match (&operation.call, &operation.outcome) {
        (Call::Write { extent, comb, .. }, _) => {
            comb.pieces(*extent).map(|piece| (piece, Deed::Wrote)).collect()
        }
        (Call::Append { .. }, _) => {
            operation.changes().map(|extent| (extent, Deed::Wrote)).into_iter().collect()
        }
        (Call::Truncate { .. }, _) => {
            operation.changes().and_then(clipped).map(|extent| (extent, Deed::Cut)).into_iter().collect()
        }
        (Call::Read { extent, comb, .. }, Some(Ok(Outcome::Read { length, bytes }))) => {
            let mut deeds: Vec<_> = bytes.iter().map(|(part, tag)| (*part, Deed::Saw(*tag))).collect();
            if let Some(beyond) = Extent::new(extent.start() + length, extent.end()) {
                let missed = comb.pieces(*extent).filter_map(|piece| piece.intersection(beyond));
                deeds.extend(missed.map(|piece| (piece, Deed::Missed)));
            }
            deeds
        }
        (Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. }, _) => Vec::new(),
    }
}

/// Beyond the last byte that anybody wrote, asked for or found: every truncate cuts at least one byte below.
fn end_of(history: &History, file: u32) -> u64 {
    let calls = history.operations.iter().filter(|operation| operation.call.file() == file);
    let ends = calls.map(|operation| match operation.call {
        Call::Read { extent, .. } | Call::Write { extent, .. } => extent.end(),
        Call::Append { .. } => operation.changes().map_or(0, Extent::end),
        Call::Truncate { length, .. } => length,
        Call::Size { .. } | Call::Fsync { .. } => 0,
    });
    let last = history.finals.get(file as usize).and_then(|contents| contents.bytes.end());
    ends.chain(last).max().unwrap_or(0).saturating_add(1)
}

/// Cuts a file.
///
/// # Errors
/// When the history contradicts itself: a call that succeeded without a lock, or a read that does not say what it saw.
pub fn of_file(history: &History, file: u32) -> Result<Vec<Segment>, Violation> {
    let layout = history.files[file as usize].layout;
    let end = end_of(history, file);
    let mut parts: Vec<(OpId, StripeUse, Extent, Deed)> = Vec::new();
    for operation in history.operations.iter().filter(|operation| operation.call.file() == file) {
        check_read(operation)?;
        for (extent, deed) in deeds(operation, end) {
            for piece in layout.pieces(extent) {
                let at = extent.start() + piece.offset;
                let mut found = 0;
                for used in operation.on_stripe(piece.stripe) {
                    let Some(local) = used.extent.intersection(piece.extent) else { continue };
                    let start = at + (local.start() - piece.extent.start());
                    let bytes = Extent::with_length(start, local.length()).expect("pieces have bytes");
                    found += local.length();
                    parts.push((operation.id, *used, bytes, deed));
                }
                // What failed did not get that far.
                if operation.succeeded() && found != piece.extent.length() {
                    return Err(without_lock(operation, piece.stripe));
                }
            }
        }
    }
    let mut segments = cut(history, file, layout, &parts);
    for (call, used, extent, deed) in parts {
        let first = segments.partition_point(|segment| segment.extent.end() <= extent.start());
        for segment in segments[first..].iter_mut().take_while(|s| s.extent.start() < extent.end()) {
            segment.accesses.push(Access { call, used, deed });
        }
    }
    for segment in &mut segments {
        segment.accesses.sort_by_key(Access::key);
    }
    Ok(segments)
}

/// The segments, without accesses.
fn cut(
    history: &History,
    file: u32,
    layout: Layout,
    parts: &[(OpId, StripeUse, Extent, Deed)],
) -> Vec<Segment> {
    let finals = history.finals.get(file as usize);
    let mut borders: Vec<u64> = parts.iter().flat_map(|(_, _, e, _)| [e.start(), e.end()]).collect();
    if let Some(contents) = finals {
        for (extent, _) in contents.bytes.iter() {
            let pieces = layout.pieces(extent);
            borders.extend(pieces.flat_map(|piece| {
                let start = extent.start() + piece.offset;
                [start, start + piece.extent.length()]
            }));
        }
    }
    borders.sort_unstable();
    borders.dedup();
    let mut segments = Vec::with_capacity(borders.len());
    for pair in borders.windows(2) {
        let extent = Extent::new(pair[0], pair[1]).expect("borders are distinct and ascending");
        let finally = finals.map(|contents| contents.bytes.overlapping(extent).next().map(|(_, call)| call));
        let mut pieces = layout.pieces(extent);
        let (Some(piece), None) = (pieces.next(), pieces.next()) else {
            continue; // a gap: what anybody touched was cut by stripe
        };
        segments.push(Segment {
            file,
            extent,
            stripe: piece.stripe,
            local: piece.extent,
            accesses: Vec::new(),
            finally,
        });
    }
    segments
}

fn without_lock(operation: &Operation, stripe: u32) -> Violation {
    let what = format!("{operation} succeeded without a lock on stripe {stripe}");
    Violation::new(Rule::Laboratory, &[operation.id], what)
}

/// A read must say what it saw, byte by byte, and not more than it asked for.
fn check_read(operation: &Operation) -> Result<(), Violation> {
    let (Call::Read { extent, comb, .. }, Some(Ok(outcome))) = (&operation.call, &operation.outcome) else {
        return Ok(());
    };
    let fits = match outcome {
        Outcome::Read { length, bytes } => {
            let found = Extent::new(extent.start(), extent.start() + length);
            let mut seen = bytes.iter().map(|(part, _)| *part).peekable();
            let mut due = comb.pieces(*extent).filter_map(|piece| piece.intersection(found?));
            let adjoining = due.all(|piece| {
                let mut at = piece.start();
                while at < piece.end()
                    && let Some(part) = seen.next_if(|part| part.start() == at && part.end() <= piece.end())
                {
                    at = part.end();
                }
                at == piece.end()
            });
            adjoining && seen.next().is_none() && *length <= extent.length()
        }
        Outcome::Written
        | Outcome::Appended { .. }
        | Outcome::Truncated
        | Outcome::Size { .. }
        | Outcome::Synced => false,
    };
    if fits {
        return Ok(());
    }
    let what = format!("{operation} does not say what it saw: {outcome:?}");
    Err(Violation::new(Rule::Laboratory, &[operation.id], what))
}
