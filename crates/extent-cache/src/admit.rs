//! Admission: which parts of an arriving write are newest (paper IV-B, Fig. 15).
//!
//! *What*: the merge of sequence numbers into the extent cache and the *update set* that comes out of it.
//! *Invariants*: I3.
//! *Not here*: the order of device jobs (`destage`).

use crate::{Arriving, Part, Work};
use alloc::vec::Vec;
use ccpfs_types::{Extent, ExtentMap, Sn};

/// The device work for those parts of `pieces` that are newest.
///
/// One job, as long as the pieces come in ascending order and share no bytes; then one more for each step back, so that pieces of
/// one write that overlap are ordered by the queue like those of two.
pub(crate) fn admit(newest: &mut ExtentMap<Sn>, pieces: &[Arriving]) -> Vec<Work> {
    let mut works = Vec::new();
    let mut parts: Vec<Part> = Vec::new();
    for piece in pieces {
        //= protocol.md#I3
        //# Bytes on the server are, for each byte, those of the write with the highest SN admitted; equal SN: the later
        //# flush of the same lock.
        for extent in newest.merge(piece.extent, piece.sn, |old| old <= piece.sn) {
            if parts.last().is_some_and(|last| extent.start() < last.extent.end()) {
                works.push(Work::Write { parts: core::mem::take(&mut parts) });
            }
            let bulk_offset = piece.bulk_offset + (extent.start() - piece.extent.start());
            push(&mut parts, Part { extent, bulk_offset });
        }
    }
    if !parts.is_empty() {
        works.push(Work::Write { parts });
    }
    works
}

/// Appends a part, joined with the last one where both stripe and bulk go on without a gap.
fn push(parts: &mut Vec<Part>, part: Part) {
    match parts.last_mut() {
        Some(last)
            if last.extent.end() == part.extent.start()
                && last.bulk_offset + last.extent.length() == part.bulk_offset =>
        {
            last.extent = last.extent.hull(part.extent);
        }
        Some(_) | None => parts.push(part),
    }
}

/// The device work of a truncate to `from`: at most one job.
pub(crate) fn admit_hole(newest: &mut ExtentMap<Sn>, from: u64, sn: Sn) -> Vec<Work> {
    let Some(hole) = Extent::new(from, Extent::EOF) else { return Vec::new() };
    let mut holes = newest.merge(hole, sn, |old| old <= sn);
    // What ends the file is the last byte of newer data: where the part that reaches to the end begins. Without such a
    // part a newer truncate has decided about the length.
    let length = match holes.last() {
        Some(tail) if tail.end() == Extent::EOF => Some(tail.start()),
        Some(_) | None => None,
    };
    if length.is_some() {
        holes.pop();
    }
    if holes.is_empty() && length.is_none() { Vec::new() } else { Vec::from([Work::Cut { holes, length }]) }
}

/// The device work of a hole that leaves the length: at most one job.
pub(crate) fn admit_punch(newest: &mut ExtentMap<Sn>, extent: Extent, sn: Sn) -> Vec<Work> {
    let holes = newest.merge(extent, sn, |old| old <= sn);
    if holes.is_empty() { Vec::new() } else { Vec::from([Work::Cut { holes, length: None }]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    fn piece(start: u64, end: u64, sn: u64, bulk_offset: u64) -> Arriving {
        Arriving { extent: extent(start, end), sn: Sn(sn), bulk_offset }
    }

    fn part(start: u64, end: u64, bulk_offset: u64) -> Part {
        Part { extent: extent(start, end), bulk_offset }
    }

    //= protocol.md#I3 type=test
    #[test]
    fn figure_15_of_the_paper_discards_the_older_piece_and_joins_the_newer_ones() {
        let mut newest = ExtentMap::new();
        newest.insert(extent(0, 4096), Sn(8));
        let works = admit(
            &mut newest,
            &[piece(0, 2048, 7, 0), piece(2048, 4096, 9, 2048), piece(4096, 8192, 9, 4096)],
        );
        assert_eq!(works, [Work::Write { parts: vec![part(2048, 8192, 2048)] }]);
        assert_eq!(
            newest.iter().collect::<Vec<_>>(),
            [(extent(0, 2048), Sn(8)), (extent(2048, 8192), Sn(9))]
        );
    }

    #[test]
    fn a_superseded_write_leaves_no_work() {
        let mut newest = ExtentMap::new();
        newest.insert(extent(0, 100), Sn(8));
        assert_eq!(admit(&mut newest, &[piece(0, 50, 7, 0), piece(60, 100, 7, 50)]), []);
    }

    #[test]
    fn a_piece_around_newer_data_is_cut_in_two_with_the_right_bulk_offsets() {
        let mut newest = ExtentMap::new();
        newest.insert(extent(10, 20), Sn(8));
        let works = admit(&mut newest, &[piece(0, 30, 7, 1000)]);
        assert_eq!(works, [Work::Write { parts: vec![part(0, 10, 1000), part(20, 30, 1020)] }]);
    }

    #[test]
    fn pieces_that_overlap_within_one_write_become_separate_jobs() {
        let mut newest = ExtentMap::new();
        let works = admit(&mut newest, &[piece(0, 10, 1, 0), piece(5, 15, 2, 10)]);
        assert_eq!(
            works,
            [Work::Write { parts: vec![part(0, 10, 0)] }, Work::Write { parts: vec![part(5, 15, 10)] }]
        );
    }

    //= protocol.md#I3 type=test
    #[test]
    fn a_hole_leaves_the_length_and_what_is_newer_and_what_is_older_does_not_come_through() {
        let mut newest = ExtentMap::new();
        admit(&mut newest, &[piece(0, 100, 3, 0)]);
        admit(&mut newest, &[piece(50, 60, 5, 0)]);
        let cut = Work::Cut { holes: vec![extent(40, 50), extent(60, 70)], length: None };
        assert_eq!(admit_punch(&mut newest, extent(40, 70), Sn(4)), [cut]);
        let parts = vec![Part { extent: extent(30, 40), bulk_offset: 0 }];
        assert_eq!(admit(&mut newest, &[piece(30, 70, 3, 0)]), [Work::Write { parts }]);
        assert_eq!(admit_punch(&mut newest, extent(52, 58), Sn(4)), []);
    }

    #[test]
    fn a_truncate_cuts_to_its_length_when_nothing_newer_lies_above() {
        let mut newest = ExtentMap::new();
        newest.insert(extent(0, 100), Sn(3));
        assert_eq!(admit_hole(&mut newest, 40, Sn(4)), [Work::Cut { holes: vec![], length: Some(40) }]);
        assert_eq!(
            admit(&mut newest, &[piece(30, 60, 3, 0)]),
            [Work::Write { parts: vec![part(30, 40, 0)] }]
        );
    }

    #[test]
    fn a_truncate_leaves_newer_data_and_a_newer_length_alone() {
        let mut newest = ExtentMap::new();
        newest.insert(extent(50, 60), Sn(9));
        assert_eq!(
            admit_hole(&mut newest, 40, Sn(4)),
            [Work::Cut { holes: vec![extent(40, 50)], length: Some(60) }]
        );
        newest.insert(Extent::to_eof(70), Sn(10));
        assert_eq!(
            admit_hole(&mut newest, 30, Sn(5)),
            [Work::Cut { holes: vec![extent(30, 50), extent(60, 70)], length: None }]
        );
        newest.insert(Extent::WHOLE, Sn(11));
        assert_eq!(admit_hole(&mut newest, 30, Sn(6)), []);
    }
}
