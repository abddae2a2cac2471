//! S3, S4, S5: sizes, the offsets of appends, and where reads end.
//!
//! A read that ended early comes before whatever lengthened the file beyond that end. With these edges the graph of `order`
//! fixes the size at every call that asked for it, so one replay in any order of the graph tells what it must have been. A
//! run in which something was lost is not replayed: the size goes with the bytes.

use super::graph::Why;
use super::order::Analysis;
use super::segments::{Deed, Segment};
use super::{Rule, Violation};
use crate::history::{Call, History, OpId, Operation, Outcome};
use ccpfs_types::Extent;

/// Checks the sizes of a whole run, given what its bytes say. Orders the graph.
///
/// # Errors
/// The first violation found, of the order of the calls or of a size.
pub fn check(history: &History, analysis: &mut Analysis) -> Result<(), Violation> {
    if !history.is_undisturbed() {
        analysis.graph.in_order(history)?;
        return Ok(());
    }
    for operation in &history.operations {
        if let Some(end) = early_end(operation) {
            order_behind(history, analysis, operation, end);
        }
    }
    let order = analysis.graph.in_order(history)?;
    replay(history, &order)?;
    for operation in &history.operations {
        check_full_read(history, analysis, operation)?;
        check_size(history, operation)?;
    }
    Ok(())
}

/// Where the file ended for a read that returned less than it asked for.
fn early_end(operation: &Operation) -> Option<u64> {
    match (&operation.call, &operation.outcome) {
        (Call::Read { extent, .. }, Some(Ok(Outcome::Read { length, .. }))) if *length < extent.length() => {
            Some(extent.start() + length)
        }
        _other => None,
    }
}

/// The size that a call leaves at least, or exactly if it is a truncate.
fn reach(operation: &Operation) -> Option<u64> {
    match operation.call {
        Call::Write { .. } | Call::Append { .. } => operation.changes().map(Extent::end),
        Call::Truncate { length, .. } => Some(length),
        Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. } => None,
    }
}

/// Puts a read that found the file to end at `end` before everything that lengthened it beyond, unless that was cut off again
/// before the read.
fn order_behind(history: &History, analysis: &mut Analysis, reader: &Operation, end: u64) {
    let Analysis { graph, segments, .. } = analysis;
    let Call::Read { file, extent, comb } = reader.call else { return };
    let cut = last_cut_before(segments, file, end, reader.id);
    for operation in history.operations.iter().filter(|operation| operation.call.file() == file) {
        let Some(size) = reach(operation) else { continue };
        let behind = match operation.call {
            Call::Truncate { length, .. } => length >= extent.end(),
            Call::Write { extent: written, comb: pieces, .. } => {
                let shared = |piece: Extent| pieces.pieces(written).any(|other| other.overlaps(piece));
                !comb.pieces(extent).any(shared)
            }
            Call::Append { .. } => operation.changes().is_some_and(|changed| changed.start() >= extent.end()),
            Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. } => false,
        };
        if behind && size > end && !cut.is_some_and(|cut| is_before(history, operation, cut, size)) {
            graph.put(reader.id, operation.id, Why::EndedBefore(end));
        }
    }
}

/// The last truncate that cut byte `at` before `reader` had its lock.
fn last_cut_before(segments: &[Segment], file: u32, at: u64, reader: OpId) -> Option<OpId> {
    // What cuts a byte cuts all behind it. The reader may not have asked for that byte itself.
    let reads = |segment: &&Segment| segment.accesses.iter().any(|access| access.call == reader);
    let segment = segments.iter().filter(|s| s.file == file && s.extent.end() > at).find(reads)?;
    let here = segment.accesses.iter().position(|access| access.call == reader)?;
    let cuts = segment.accesses[..here].iter().rev().filter(|access| access.deed == Deed::Cut);
    cuts.map(|access| access.call).next()
}

/// Whether a call that left a size of `size` at least is before a truncate, by the locks on the stripe of its last byte.
fn is_before(history: &History, operation: &Operation, cut: OpId, size: u64) -> bool {
    let layout = history.files[operation.call.file() as usize].layout;
    let Some(last) = size.checked_sub(1).and_then(|last| Extent::with_length(last, 1)) else {
        return true;
    };
    let piece = layout.pieces(last).next().expect("a byte is in a stripe");
    let of = |operation: &Operation| operation.at(piece.stripe, piece.extent.start()).copied();
    match (of(operation), of(history.operation(cut))) {
        (Some(ours), Some(cuts)) => (ours.sn, ours.order) < (cuts.sn, cuts.order),
        _other => false,
    }
}

/// Runs through all calls in an order that the graph allows, with the size in mind.
fn replay(history: &History, order: &[OpId]) -> Result<(), Violation> {
    let mut sizes = vec![0_u64; history.files.len()];
    for id in order {
        let operation = history.operation(*id);
        let size = &mut sizes[operation.call.file() as usize];
        match (&operation.call, &operation.outcome) {
            (Call::Write { extent, .. }, _) => *size = extent.end().max(*size),
            (Call::Truncate { length, .. }, _) => *size = *length,
            (Call::Append { length, .. }, Some(Ok(Outcome::Appended { offset }))) => {
                if offset != size {
                    let what = format!("{operation} went to {offset}, but the file ended at {size}");
                    return Err(Violation::new(Rule::Size, &[*id], what));
                }
                *size = offset + length;
            }
            (Call::Read { extent, comb, .. }, Some(Ok(Outcome::Read { length, .. }))) => {
                let end = extent.start() + length;
                // Where the file ends between two pieces, nothing orders the call and those who write there.
                let between = *length > 0 && !comb.pieces(*extent).any(|p| p.start() < end && end <= p.end());
                let fits = *length == extent.length()
                    || between
                    || (*length > 0 && end == *size)
                    || (*length == 0 && extent.start() >= *size);
                if !fits {
                    let what = format!("{operation} found the file to end at {end}, but it ended at {size}");
                    return Err(Violation::new(Rule::Size, &[*id], what));
                }
            }
            _other => {}
        }
    }
    for (file, contents) in history.finals.iter().enumerate() {
        if contents.length != sizes[file] {
            let what =
                format!("at the end f{file} has {} bytes, but it must have {}", contents.length, sizes[file]);
            return Err(Violation::new(Rule::Size, &[], what));
        }
    }
    Ok(())
}

/// A read that got all it asked for, the last byte of which nobody wrote: somebody must have made the file that long.
fn check_full_read(history: &History, analysis: &Analysis, reader: &Operation) -> Result<(), Violation> {
    let (Call::Read { file, extent, .. }, Some(Ok(Outcome::Read { length, bytes }))) =
        (&reader.call, &reader.outcome)
    else {
        return Ok(());
    };
    let (file, end) = (*file, extent.end());
    if *length < extent.length() || bytes.last().is_some_and(|(_, tag)| tag.is_some()) {
        return Ok(());
    }
    let cut = last_cut_before(&analysis.segments, file, end - 1, reader.id);
    let lengthens = |operation: &&Operation| {
        operation.call.file() == file
            && reach(operation).is_some_and(|size| size >= end)
            && reader.returned.is_none_or(|returned| operation.invoked.step < returned.step)
            && !cut.is_some_and(|cut| cut != operation.id && is_before(history, operation, cut, end))
            && !analysis.graph.leads_to(reader.id, operation.id)
    };
    if history.operations.iter().any(|operation| lengthens(&operation)) {
        return Ok(());
    }
    let what = format!(
        "{reader} found {length} bytes, but nothing before it had made the file longer than {}",
        end - 1
    );
    Err(Violation::new(Rule::Size, &[reader.id], what))
}

/// A size that was told: not smaller than what had been written before, and one that the file had.
fn check_size(history: &History, asker: &Operation) -> Result<(), Violation> {
    let (Call::Size { file }, Some(Ok(Outcome::Size { length }))) = (&asker.call, &asker.outcome) else {
        return Ok(());
    };
    let returned = asker.returned.map_or(u64::MAX, |returned| returned.step);
    let others = || {
        let others = history.operations.iter().filter(|o| o.call.file() == *file);
        others.filter(move |o| o.invoked.step < returned)
    };
    let possible = *length == 0
        || others().any(|other| {
            let ended = other.returned.is_some_and(|returned| returned.step < asker.invoked.step);
            match other.call {
                // Until it has returned it may have reached some of the stripes only.
                Call::Truncate { length: cut, .. } => cut == *length || !ended,
                // Until it is flushed as a whole the servers know a part of it: what is told may lie within.
                Call::Write { .. } | Call::Append { .. } => other.changes().is_some_and(|changed| {
                    changed.end() == *length
                        || (!ended && changed.start() < *length && *length < changed.end())
                }),
                Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. } => false,
            }
        });
    let written = others()
        .filter(|other| !matches!(other.call, Call::Truncate { .. }))
        .filter(|other| other.returned.is_some_and(|r| r.step < asker.invoked.step))
        .filter_map(|other| Some((reach(other)?, other)))
        .filter(|(size, other)| size > length && !may_be_cut(history, other, *size, returned))
        .max_by_key(|(size, _)| *size);
    if let Some((size, other)) = written {
        let what = format!("{asker} was told {length}, but {other} had written up to {size} before");
        return Err(Violation::new(Rule::Size, &[asker.id, other.id], what));
    }
    if possible {
        return Ok(());
    }
    Err(Violation::new(
        Rule::Size,
        &[asker.id],
        format!("{asker} was told {length}, a size that the file never had"),
    ))
}

/// Whether a truncate that began before step `by` and did not return before `operation` began leaves less than `size`.
fn may_be_cut(history: &History, operation: &Operation, size: u64, by: u64) -> bool {
    history.operations.iter().any(|cut| match cut.call {
        Call::Truncate { file, length } => {
            file == operation.call.file()
                && length < size
                && cut.invoked.step < by
                && cut.returned.is_none_or(|returned| returned.step > operation.invoked.step)
        }
        Call::Read { .. }
        | Call::Write { .. }
        | Call::Append { .. }
        | Call::Size { .. }
        | Call::Fsync { .. } => false,
    })
}
