//! Extents that may overlap, each under a key: finds who overlaps a range without looking at everybody.

use crate::Extent;
use alloc::collections::BTreeMap;

/// A set of possibly overlapping extents, each with a distinct key.
///
/// Extents are kept in classes by the binary logarithm of their length. In a class of lengths below `2^(c+1)`, whoever
/// overlaps `[start, end)` begins after `start - 2^(c+1)` and before `end`, so a query looks at no more than about
/// twice the extents it finds, per class in use.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtentIndex<K> {
    entries: BTreeMap<(u8, u64, K), u64>,
    /// Number of extents in each class.
    classes: [u32; 64],
    /// A bit for each class that has any.
    in_use: u64,
}

impl<K: Copy + Ord> Default for ExtentIndex<K> {
    fn default() -> Self {
        ExtentIndex { entries: BTreeMap::new(), classes: [0; 64], in_use: 0 }
    }
}

fn class(extent: Extent) -> u8 {
    u8::try_from(extent.length().ilog2()).expect("the logarithm of a u64 is below 64")
}

impl<K: Copy + Ord> ExtentIndex<K> {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of extents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds an extent. The pair must not be there yet.
    pub fn insert(&mut self, extent: Extent, key: K) {
        let class = class(extent);
        let before = self.entries.insert((class, extent.start(), key), extent.end());
        assert!(before.is_none(), "each key is stored once");
        self.classes[usize::from(class)] += 1;
        self.in_use |= 1 << class;
    }

    /// Removes an extent that was added with this key.
    pub fn remove(&mut self, extent: Extent, key: K) {
        let class = class(extent);
        let before = self.entries.remove(&(class, extent.start(), key));
        assert_eq!(before, Some(extent.end()), "only what was stored is removed");
        let count = &mut self.classes[usize::from(class)];
        *count -= 1;
        if *count == 0 {
            self.in_use &= !(1 << class);
        }
    }

    fn classes_in_use(&self) -> impl Iterator<Item = u8> + '_ {
        let mut left = self.in_use;
        core::iter::from_fn(move || {
            let class = u8::try_from(left.trailing_zeros()).expect("at most 64");
            // All but the lowest bit.
            left = left & left.checked_sub(1)?;
            Some(class)
        })
    }
}

impl<K: Copy + Ord + Bounded> ExtentIndex<K> {
    /// Those that overlap `extent`, in no particular order (but always the same one).
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = (Extent, K)> + '_ {
        self.classes_in_use().flat_map(move |class| {
            let reach = (2_u64 << class).wrapping_sub(1); // for class 63: all ones
            let first = extent.start().saturating_sub(reach);
            self.entries
                .range((class, first, K::LEAST)..(class, extent.end(), K::LEAST))
                .filter(move |(_, end)| **end > extent.start())
                .map(|((_, start, key), end)| {
                    (Extent::new(*start, *end).expect("stored extents are not empty"), *key)
                })
        })
    }

    /// Of each class, one that begins last of those that begin at or before `offset`, if it holds that byte: the likely one, found
    /// by a single search, where extents do not overlap much. Others may hold it as well.
    pub fn nearest(&self, offset: u64) -> impl Iterator<Item = K> + '_ {
        self.classes_in_use().filter_map(move |class| {
            let next = (class, offset.checked_add(1)?, K::LEAST);
            let ((found, _, key), end) = self.entries.range(..next).next_back()?;
            (*found == class && *end > offset).then_some(*key)
        })
    }

    /// The least start at or after `from` and before `to` among those for which `counts` answers yes.
    pub fn first_start(&self, from: u64, to: u64, mut counts: impl FnMut(K) -> bool) -> Option<u64> {
        let mut least: Option<u64> = None;
        for class in self.classes_in_use() {
            let until = least.unwrap_or(to);
            if from >= until {
                break;
            }
            let found = self
                .entries
                .range((class, from, K::LEAST)..(class, until, K::LEAST))
                .find(|((_, _, key), _)| counts(*key));
            if let Some(((_, start, _), _)) = found {
                least = Some(*start);
            }
        }
        least
    }
}

/// Keys with a least value, to begin a search at.
pub trait Bounded {
    /// The least key.
    const LEAST: Self;
}

impl Bounded for crate::LockId {
    const LEAST: Self = crate::LockId(0);
}

impl Bounded for u64 {
    const LEAST: Self = 0;
}
