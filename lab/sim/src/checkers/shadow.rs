//! What a stripe's device must hold: an extent cache that never forgets, with the writers of the bytes.
//!
//! The product trims its extent cache and this one does not, so what a trimmed cache lets through by mistake shows as a
//! difference (I6); so does a wrong winner (I3), and whatever an evicted client changed (I7).

use super::TakenPiece;
use crate::history::{OpId, Tag};
use ccpfs_types::{Extent, ExtentMap, Sn};
use std::collections::BTreeMap;

/// The newest write of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The number of its lock.
    pub sn: Sn,
    /// Who wrote it; `None` for a hole.
    pub tag: Tag,
    /// Whether the server took it: what it answered with an error is there or not.
    pub sure: bool,
}

/// A byte that is not what it must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Difference {
    /// Which bytes of the stripe.
    pub extent: Extent,
    /// What is there.
    pub found: Tag,
    /// Under which number that was written, if it is known.
    pub found_sn: Option<Sn>,
    /// What must be there.
    pub expected: Cell,
}

/// One stripe as its server was told.
#[derive(Clone, Debug, Default)]
pub struct Shadow {
    newest: ExtentMap<Cell>,
    /// The numbers under which each call wrote here: one for each lock that it had.
    numbers: BTreeMap<OpId, ExtentMap<Sn>>,
    /// The newest truncate of each byte.
    holes: ExtentMap<Sn>,
    /// The newest acknowledged flush of each byte in this life of the server.
    acknowledged: ExtentMap<Sn>,
    /// What a Sync has vouched for.
    promised: ExtentMap<Sn>,
}

impl Shadow {
    /// A flush arrived.
    pub fn take(&mut self, piece: &TakenPiece) {
        for (extent, call) in &piece.tags {
            let cell = Cell { sn: piece.sn, tag: Some(*call), sure: true };
            self.numbers.entry(*call).or_default().insert(*extent, piece.sn);
            self.newest.merge(*extent, cell, |old| old.sn <= piece.sn);
        }
    }

    /// A truncate arrived.
    pub fn cut(&mut self, from: u64, sn: Sn) {
        if let Some(above) = Extent::new(from, Extent::EOF) {
            self.newest.merge(above, Cell { sn, tag: None, sure: true }, |old| old.sn <= sn);
            self.holes.merge(above, sn, |old| old < sn);
        }
    }

    /// What was brought for these bytes may be there or not.
    pub fn doubt(&mut self, extent: Extent) {
        self.newest.update(extent, |cell| Some(Cell { sure: false, ..cell }));
    }

    /// A client has the answer that its flush is with the server.
    pub fn acknowledge(&mut self, extent: Extent, sn: Sn) {
        self.acknowledged.merge(extent, sn, |old| old < sn);
    }

    /// What has been acknowledged until now.
    #[must_use]
    pub fn acknowledged(&self) -> ExtentMap<Sn> {
        self.acknowledged.clone()
    }

    /// A Sync has vouched for what was acknowledged when it came.
    pub fn promise(&mut self, acknowledged: &ExtentMap<Sn>) {
        for (extent, sn) in acknowledged.iter() {
            self.promised.merge(extent, sn, |old| old < sn);
        }
    }

    /// The first byte on the device that is not the newest that arrived.
    #[must_use]
    pub fn difference(&self, contents: &ExtentMap<OpId>) -> Option<Difference> {
        let differs = |extent: Extent, found: Tag, expected: Cell| {
            (expected.sure && found != expected.tag).then(|| Difference {
                extent,
                found,
                found_sn: found.and_then(|call| self.numbered(call, extent).first().and_then(|(_, sn)| *sn)),
                expected,
            })
        };
        for (extent, cell) in self.newest.iter() {
            let mut at = extent.start();
            for (part, call) in contents.within(extent) {
                let gap = Extent::new(at, part.start()).and_then(|gap| differs(gap, None, cell));
                if let Some(difference) = gap.or_else(|| differs(part, Some(call), cell)) {
                    return Some(difference);
                }
                at = part.end();
            }
            if let Some(difference) = Extent::new(at, extent.end()).and_then(|gap| differs(gap, None, cell)) {
                return Some(difference);
            }
        }
        let never = Cell { sn: Sn(0), tag: None, sure: true };
        contents.iter().find_map(|(extent, call)| {
            let gap = self.newest.gaps(extent).into_iter().next()?;
            differs(gap, Some(call), never)
        })
    }

    /// The server is back with this: the first byte that is older than what was promised.
    pub fn restart(&mut self, contents: &ExtentMap<OpId>) -> Option<Difference> {
        let broken = self.broken_promise(contents);
        self.newest = ExtentMap::new();
        for (extent, call) in contents.iter() {
            for (part, sn) in self.numbered(call, extent) {
                self.newest.insert(part, Cell { sn: sn.unwrap_or_default(), tag: Some(call), sure: true });
            }
        }
        self.acknowledged = ExtentMap::new();
        broken
    }

    /// Under which number a call wrote each part of these bytes, in rising order; none if it is not known.
    fn numbered(&self, call: OpId, extent: Extent) -> Vec<(Extent, Option<Sn>)> {
        let Some(numbers) = self.numbers.get(&call) else { return vec![(extent, None)] };
        let mut parts: Vec<_> = numbers.within(extent).map(|(part, sn)| (part, Some(sn))).collect();
        parts.extend(numbers.gaps(extent).into_iter().map(|gap| (gap, None)));
        parts.sort_unstable_by_key(|(part, _)| part.start());
        parts
    }

    fn broken_promise(&self, contents: &ExtentMap<OpId>) -> Option<Difference> {
        for (extent, sn) in self.promised.iter() {
            let expected = |part| {
                let newest = self.newest.overlapping(part).next().map(|(_, cell)| cell);
                newest.unwrap_or(Cell { sn, tag: None, sure: true })
            };
            let found = contents.within(extent).flat_map(|(part, call)| {
                self.numbered(call, part).into_iter().map(move |(part, sn)| (part, call, sn))
            });
            for (part, call, found_sn) in found {
                if found_sn.is_none_or(|found| found < sn) {
                    return Some(Difference {
                        extent: part,
                        found: Some(call),
                        found_sn,
                        expected: expected(part),
                    });
                }
            }
            for gap in contents.gaps(extent) {
                let cut = |part: Extent| {
                    self.holes.within(part).all(|(_, hole)| hole >= sn) && self.holes.covers(part)
                };
                let doubtful = self.newest.within(gap).any(|(_, cell)| !cell.sure);
                if !cut(gap) && !doubtful {
                    return Some(Difference {
                        extent: gap,
                        found: None,
                        found_sn: None,
                        expected: expected(gap),
                    });
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_types::{FileId, ResourceId};

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    fn piece(start: u64, end: u64, sn: u64, call: u32) -> TakenPiece {
        let resource = ResourceId { file: FileId([0; 16]), stripe: 0 };
        let extent = extent(start, end);
        TakenPiece { resource, extent, sn: Sn(sn), tags: vec![(extent, OpId(call))] }
    }

    fn contents(parts: &[(u64, u64, u32)]) -> ExtentMap<OpId> {
        let mut contents = ExtentMap::new();
        parts.iter().for_each(|(start, end, call)| contents.insert(extent(*start, *end), OpId(*call)));
        contents
    }

    //= protocol.md#I3 type=test
    #[test]
    fn the_highest_number_must_be_on_the_device_whatever_came_last() {
        let mut shadow = Shadow::default();
        shadow.take(&piece(0, 10, 2, 7));
        shadow.take(&piece(5, 15, 1, 8));
        assert_eq!(shadow.difference(&contents(&[(0, 10, 7), (10, 15, 8)])), None);
        let difference = shadow.difference(&contents(&[(0, 5, 7), (5, 15, 8)])).unwrap();
        assert_eq!((difference.extent, difference.found_sn), (extent(5, 10), Some(Sn(1))));
        assert_eq!(shadow.difference(&contents(&[(0, 10, 7)])).unwrap().extent, extent(10, 15));
        assert!(shadow.difference(&contents(&[(0, 10, 7), (10, 16, 8)])).is_some());
    }

    #[test]
    fn a_later_flush_of_the_same_lock_wins_and_a_hole_is_a_write_of_nothing() {
        let mut shadow = Shadow::default();
        shadow.take(&piece(0, 10, 2, 7));
        shadow.take(&piece(0, 10, 2, 8));
        assert_eq!(shadow.difference(&contents(&[(0, 10, 8)])), None);
        shadow.cut(4, Sn(3));
        shadow.take(&piece(0, 10, 2, 9));
        assert_eq!(shadow.difference(&contents(&[(0, 4, 9)])), None);
        assert!(shadow.difference(&contents(&[(0, 5, 9)])).is_some());
    }

    #[test]
    fn regression_a_call_that_wrote_under_several_locks_has_a_number_for_each() {
        let mut shadow = Shadow::default();
        let both = [piece(0, 10, 5, 7), piece(20, 30, 3, 7)];
        both.iter().for_each(|piece| shadow.take(piece));
        both.iter().for_each(|piece| shadow.acknowledge(piece.extent, piece.sn));
        let acknowledged = shadow.acknowledged();
        shadow.promise(&acknowledged);
        assert_eq!(shadow.restart(&contents(&[(0, 10, 7), (20, 30, 7)])), None);
        assert_eq!(shadow.restart(&contents(&[(0, 10, 7)])).unwrap().extent, extent(20, 30));
    }

    #[test]
    fn what_was_refused_may_be_there_or_not() {
        let mut shadow = Shadow::default();
        shadow.take(&piece(0, 10, 2, 7));
        shadow.doubt(extent(0, 5));
        assert_eq!(shadow.difference(&contents(&[(5, 10, 7)])), None);
        assert!(shadow.difference(&contents(&[(0, 5, 7)])).is_some());
    }

    //= protocol.md#I9 type=test
    #[test]
    fn a_promise_is_kept_by_the_same_a_newer_write_or_a_newer_hole() {
        let mut shadow = Shadow::default();
        shadow.take(&piece(0, 10, 2, 7));
        shadow.acknowledge(extent(0, 10), Sn(2));
        let acknowledged = shadow.acknowledged();
        shadow.promise(&acknowledged);
        shadow.take(&piece(0, 5, 3, 8));
        assert_eq!(shadow.clone().restart(&contents(&[(0, 10, 7)])), None);
        assert_eq!(shadow.clone().restart(&contents(&[(0, 5, 8), (5, 10, 7)])), None);
        assert_eq!(shadow.clone().restart(&contents(&[(0, 9, 7)])).unwrap().extent, extent(9, 10));
        shadow.cut(9, Sn(4));
        assert_eq!(shadow.restart(&contents(&[(0, 9, 7)])), None);
    }
}
