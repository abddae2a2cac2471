//! Half-open byte ranges that are never empty.

use core::fmt;

/// A half-open, non-empty range of bytes `[start, end)`.
///
/// An `end` of [`Extent::EOF`] means "to the end of the file, whatever it is or becomes".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    start: u64,
    end: u64,
}

impl Extent {
    /// The end of an extent that reaches to the end of the file.
    pub const EOF: u64 = u64::MAX;
    /// The whole of a file or stripe.
    pub const WHOLE: Extent = Extent { start: 0, end: Self::EOF };

    /// The extent `[start, end)`, or `None` if it would be empty.
    #[must_use]
    pub const fn new(start: u64, end: u64) -> Option<Extent> {
        if start < end { Some(Extent { start, end }) } else { None }
    }

    /// The extent of `length` bytes from `start`; `None` if `length` is zero or the end would overflow.
    #[must_use]
    pub const fn with_length(start: u64, length: u64) -> Option<Extent> {
        match start.checked_add(length) {
            Some(end) => Extent::new(start, end),
            None => None,
        }
    }

    /// Everything from `start` on. `start` must be below [`Extent::EOF`].
    #[must_use]
    pub const fn to_eof(start: u64) -> Extent {
        assert!(start < Self::EOF, "an extent starts before the end of all files");
        Extent { start, end: Self::EOF }
    }

    /// First byte.
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// One past the last byte.
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Number of bytes (of an extent to end of file: a very large number).
    #[must_use]
    pub const fn length(self) -> u64 {
        self.end - self.start
    }

    /// Whether the two share a byte.
    #[must_use]
    pub const fn overlaps(self, other: Extent) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Whether every byte of `other` lies in `self`.
    #[must_use]
    pub const fn contains(self, other: Extent) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// The bytes both have.
    #[must_use]
    pub fn intersection(self, other: Extent) -> Option<Extent> {
        Extent::new(self.start.max(other.start), self.end.min(other.end))
    }

    /// The smallest extent that holds both (and what lies between them).
    #[must_use]
    pub fn hull(self, other: Extent) -> Extent {
        Extent { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// Grown outwards to multiples of `granularity` bytes (1 = unchanged). An end at EOF stays there.
    #[must_use]
    pub fn aligned(self, granularity: u64) -> Extent {
        assert!(granularity > 0, "a granularity of zero bytes rounds nothing");
        let start = self.start - self.start % granularity;
        let end = match self.end.checked_next_multiple_of(granularity) {
            Some(end) => end,
            None => Self::EOF,
        };
        Extent { start, end }
    }
}

impl fmt::Debug for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.end == Self::EOF {
            write!(f, "{}..EOF", self.start)
        } else {
            write!(f, "{}..{}", self.start, self.end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_range_is_no_extent() {
        assert_eq!(Extent::new(5, 5), None);
        assert_eq!(Extent::with_length(5, 0), None);
        assert_eq!(Extent::with_length(u64::MAX, 2), None);
    }

    #[test]
    fn neighbours_do_not_overlap() {
        let left = Extent::new(0, 10).unwrap();
        let right = Extent::new(10, 20).unwrap();
        assert!(!left.overlaps(right) && !right.overlaps(left));
        assert_eq!(left.intersection(right), None);
        assert_eq!(left.hull(right), Extent::new(0, 20).unwrap());
    }

    #[test]
    fn alignment_grows_outwards_and_keeps_end_of_file() {
        assert_eq!(Extent::new(47_008, 94_016).unwrap().aligned(4096), Extent::new(45_056, 94_208).unwrap());
        assert_eq!(Extent::to_eof(1).aligned(4096), Extent::WHOLE);
        assert_eq!(Extent::new(3, 4).unwrap().aligned(1), Extent::new(3, 4).unwrap());
    }
}
