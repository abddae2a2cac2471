//! Sorted lists of extents that neither overlap nor touch: what one holds, and what two share.

use crate::common::{Effort, TooHard};
use crate::section::Section;
use ccpfs_types::Extent;

/// The section that sorted extents are, if there are at least two.
pub(crate) fn evenly_spaced(extents: &[Extent]) -> Option<Section> {
    let [first, second, ..] = extents else { return None };
    let stride = second.start() - first.start();
    let even =
        |pair: &[Extent]| pair[1].start() - pair[0].start() == stride && pair[1].length() == first.length();
    let count = u64::try_from(extents.len()).ok()?;
    if !extents.windows(2).all(even) {
        return None;
    }
    Section::new(first.start(), first.length(), &[(stride, count)]).ok()
}

/// Whether every byte of `section` is in one of the sorted `extents`: no byte of it is between them.
pub(crate) fn list_contains(extents: &[Extent], section: &Section) -> bool {
    let mut at = section.offset();
    while let Some(piece) = section.piece_from(at) {
        let holder = extents.partition_point(|extent| extent.end() <= piece.start());
        match extents.get(holder) {
            Some(extent) if extent.contains(piece) => at = extent.end(),
            _ => return false,
        }
    }
    true
}

/// The first byte of both lists: whichever ends before the other begins is left behind.
pub(crate) fn lists_common(a: &[Extent], b: &[Extent], effort: &mut Effort) -> Result<Option<u64>, TooHard> {
    let (mut a, mut b) = (a, b);
    while let ([first, ..], [other, ..]) = (a, b) {
        effort.spend()?;
        if let Some(common) = first.intersection(*other) {
            return Ok(Some(common.start()));
        }
        if first.end() <= other.start() {
            a = ending_after(a, other.start());
        } else {
            b = ending_after(b, first.start());
        }
    }
    Ok(None)
}

/// The extents that end after `offset`. Cost: the logarithm of the number of those that do not.
fn ending_after(extents: &[Extent], offset: u64) -> &[Extent] {
    let mut reach = 1;
    while extents.get(reach - 1).is_some_and(|extent| extent.end() <= offset) {
        reach *= 2;
    }
    let near = &extents[..extents.len().min(reach)];
    &extents[near.partition_point(|extent| extent.end() <= offset)..]
}
