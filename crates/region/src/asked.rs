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
    /// if it holds the other. `None` if there is no such region.
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
