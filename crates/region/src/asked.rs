//! What a lock manager asks of two regions: whether one may stand in the other's way, and what takes in both.
//!
//! A question that is too hard has the answer that is safe, and the same for whoever of the two asks.

use crate::region::Region;
use crate::{SECTIONS_MAX, STEPS_MAX};
use ccpfs_types::Extent;

impl Region {
    /// Whether the two may share a byte: exactly, unless it takes more than [`STEPS_MAX`] steps to see; then yes.
    #[must_use]
    #[inline]
    pub fn may_overlap(&self, other: &Region) -> bool {
        match (self.as_extent(), other.as_extent()) {
            (Some(a), Some(b)) => a.overlaps(b),
            _ => self.first_in_the_way(other).is_some(),
        }
    }

    /// The first byte that both hold, or, if that is too hard to see, the first that both can hold.
    #[must_use]
    pub fn first_in_the_way(&self, other: &Region) -> Option<u64> {
        let common = self.bounds().intersection(other.bounds())?;
        if self.as_extent().is_some() && other.as_extent().is_some() {
            return Some(common.start());
        }
        // Always in the same order, so that both sides have the same answer.
        let (a, b) = if self <= other { (self, other) } else { (other, self) };
        a.first_common_within(b, STEPS_MAX).unwrap_or(Some(common.start()))
    }

    /// Whether the region holds a byte of an extent, exactly.
    #[must_use]
    #[inline]
    pub fn overlaps_extent(&self, extent: Extent) -> bool {
        match self.as_extent() {
            Some(own) => own.overlaps(extent),
            None => self.piece_from(extent.start()).is_some_and(|piece| piece.start() < extent.end()),
        }
    }

    /// A region that takes in both and hardly anything else: of two extents, all between them as well; else the larger one,
    /// if it holds the other. `None` if there is no such region, or if that is too hard to see.
    #[must_use]
    pub fn joined(&self, other: &Region) -> Option<Region> {
        if let (Some(a), Some(b)) = (self.as_extent(), other.as_extent()) {
            return Some(a.hull(b).into());
        }
        if self.contains_region(other) {
            return Some(self.clone());
        }
        other.contains_region(self).then(|| other.clone())
    }

    /// An extent grown outwards to multiples of `granularity` bytes. Other regions stay as they are: their
    /// pieces would grow into each other.
    #[must_use]
    #[inline]
    pub fn aligned(&self, granularity: u64) -> Region {
        match self.as_extent() {
            Some(extent) => extent.aligned(granularity).into(),
            None => self.clone(),
        }
    }

    /// Whether it is simple enough for a lock: at most [`SECTIONS_MAX`] sections or extents.
    #[must_use]
    pub fn is_lockable(&self) -> bool {
        self.as_extent().is_some() || self.sections().take(SECTIONS_MAX + 1).count() <= SECTIONS_MAX
    }

    /// The bytes that are left when `taken` is given up, if there are any and they are simple enough for a lock.
    #[must_use]
    pub fn kept_without(&self, taken: Extent) -> Option<Region> {
        self.without(taken).filter(Region::is_lockable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Section, UNBOUNDED};
    use alloc::vec::Vec;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    fn section(offset: u64, length: u64, stride: u64, count: u64) -> Region {
        Section::new(offset, length, &[(stride, count)]).unwrap().into()
    }

    #[test]
    fn whoever_asks_has_the_same_answer() {
        let mine = section(0, 10, 40, UNBOUNDED);
        for (other, first) in [
            (section(10, 30, 40, UNBOUNDED), None),
            (section(5, 10, 40, 7), Some(5)),
            (section(15, 10, 35, 7), Some(85)),
            (extent(10, 40).into(), None),
            (extent(35, 90).into(), Some(40)),
        ] {
            assert_eq!(mine.first_in_the_way(&other), first, "{other}");
            assert_eq!(other.first_in_the_way(&mine), first, "{other}");
            assert_eq!(mine.may_overlap(&other), first.is_some());
        }
    }

    #[test]
    fn what_is_too_hard_to_compare_is_in_the_way() {
        // Pieces at even places, and pieces at odd ones, of strides that have only two in common.
        let levels = |strides: [u64; 4]| strides.map(|stride| (stride, 97));
        let (mut a, mut b) = (Vec::new(), Vec::new());
        let (mut wide, mut other) = (2 * 101, 2 * 103);
        for _ in 0..4 {
            a.push(wide);
            b.push(other);
            (wide, other) = (wide * 97 + 2 * 89, other * 97 + 2 * 83);
        }
        let of = |offset, strides: &[u64]| {
            let strides: [u64; 4] = strides.try_into().unwrap();
            Region::from(Section::new(offset, 40, &levels(strides)).unwrap())
        };
        let (a, b) = (of(0, &a), of(41, &b));
        let common = a.bounds().intersection(b.bounds()).unwrap().start();
        if a.first_common_within(&b, STEPS_MAX).is_err() {
            assert_eq!((a.first_in_the_way(&b), b.first_in_the_way(&a)), (Some(common), Some(common)));
        } else {
            assert_eq!(a.first_in_the_way(&b), a.first_common(&b));
        }
    }

    #[test]
    fn extents_are_joined_by_their_bounds_and_others_only_if_one_holds_the_other() {
        let (near, far): (Region, Region) = (extent(0, 10).into(), extent(20, 30).into());
        assert_eq!(near.joined(&far), Some(extent(0, 30).into()));
        let all = section(0, 10, 20, UNBOUNDED);
        assert_eq!(all.joined(&far), Some(all.clone()));
        assert_eq!(section(20, 10, 40, 3).joined(&all), Some(all.clone()));
        assert_eq!(all.joined(&extent(25, 35).into()), None);
        assert_eq!(all.joined(&Region::WHOLE), Some(Region::WHOLE));
    }

    #[test]
    fn regression_what_is_too_hard_to_see_is_not_contained_but_a_region_contains_itself() {
        // Gaps of one byte whose places modulo 10^9 are below 10^8, and pieces at places around half of it: the strides have no
        // common divisor, and so many copies lie side by side that no walk ends soon.
        const UNIT: u64 = 1_000_000_000;
        let span = 9_999 * (10 * UNIT + 1) + 10 * UNIT - 1;
        let of = |offset, length, levels: &[(u64, u64)]| {
            Region::from(Section::new(offset, length, levels).unwrap())
        };
        let holder = of(0, UNIT - 1, &[(UNIT, 10), (10 * UNIT + 1, 10_000), (span + 1, 10_000)]);
        let held = of(UNIT / 2, 1, &[(3 * UNIT, 4), (12 * UNIT + 1, 8_000), (100_000 * UNIT + 1, 9_000)]);
        assert_eq!(holder.contains_region_within(&held, STEPS_MAX), Err(crate::TooHard));
        assert!(!holder.contains_region(&held) && !held.contains_region(&holder));
        assert_eq!(holder.joined(&held), None);
        for region in [&holder, &held] {
            assert!(region.contains_region(region));
            assert_eq!(region.joined(region).as_ref(), Some(region));
            assert_eq!(region.joined(&Region::WHOLE), Some(Region::WHOLE));
        }
    }

    #[test]
    fn extents_are_rounded_and_sections_are_not() {
        assert_eq!(Region::from(extent(5, 4097)).aligned(4096), extent(0, 8192).into());
        let all = section(5, 10, 20, 3);
        assert_eq!(all.aligned(4096), all);
    }

    #[test]
    fn a_region_that_would_fall_into_too_many_sections_is_given_up_as_a_whole() {
        let all = section(0, 10, 20, UNBOUNDED);
        assert_eq!(all.kept_without(extent(45, 1000)).unwrap().bounds(), Extent::to_eof(0));
        assert_eq!(all.kept_without(Extent::WHOLE), None);
        let list =
            |count| Region::from_extents((0..count).map(|at| extent(at * at * 8, at * at * 8 + 4)).collect());
        let most = list(SECTIONS_MAX as u64).unwrap();
        assert!(most.is_lockable() && !list(1 + SECTIONS_MAX as u64).unwrap().is_lockable());
        assert_eq!(most.kept_without(extent(9, 10)), None, "one extent would become two");
    }
}
