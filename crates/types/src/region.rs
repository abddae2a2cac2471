//! What a lock covers.

use crate::Extent;
use core::fmt;

/// The range of a lock or of a lock request.
///
/// One extent today. DESIGN section 9 adds lists and nested strided sections as further variants, which is why
/// callers ask questions (`overlaps`, `contains`, `hull`) and do not take a region apart, and why it is `Clone` and not `Copy`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// One contiguous extent.
    Extent(Extent),
}

impl Region {
    /// The whole resource.
    pub const WHOLE: Region = Region::Extent(Extent::WHOLE);

    /// The smallest extent that holds the region.
    #[must_use]
    pub fn bounds(&self) -> Extent {
        match self {
            Region::Extent(extent) => *extent,
        }
    }

    /// Whether the two share a byte.
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        match (self, other) {
            (Region::Extent(a), Region::Extent(b)) => a.overlaps(*b),
        }
    }

    /// Whether every byte of `other` lies in `self`.
    #[must_use]
    pub fn contains(&self, other: &Region) -> bool {
        match (self, other) {
            (Region::Extent(a), Region::Extent(b)) => a.contains(*b),
        }
    }

    /// A region that takes in both.
    #[must_use]
    pub fn hull(&self, other: &Region) -> Region {
        match (self, other) {
            (Region::Extent(a), Region::Extent(b)) => Region::Extent(a.hull(*b)),
        }
    }

    /// Grown outwards to multiples of `granularity` bytes.
    #[must_use]
    pub fn aligned(&self, granularity: u64) -> Region {
        match self {
            Region::Extent(extent) => Region::Extent(extent.aligned(granularity)),
        }
    }
}

impl From<Extent> for Region {
    fn from(extent: Extent) -> Region {
        Region::Extent(extent)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::Extent(extent) => extent.fmt(f),
        }
    }
}
