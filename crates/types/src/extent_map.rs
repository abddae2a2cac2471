//! Disjoint extents, each with a value: the shape of the client cache's and of the server's extent cache.

use crate::Extent;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A map from disjoint extents to values. Neighbours with equal values are merged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtentMap<V> {
    entries: BTreeMap<u64, (u64, V)>,
    /// Sum of the lengths, wrapping only if extents to end of file are stored (then meaningless).
    bytes: u64,
}

impl<V> Default for ExtentMap<V> {
    fn default() -> Self {
        ExtentMap { entries: BTreeMap::new(), bytes: 0 }
    }
}

impl<V: Copy + PartialEq> ExtentMap<V> {
    /// An empty map.
    #[must_use]
    pub const fn new() -> Self {
        ExtentMap { entries: BTreeMap::new(), bytes: 0 }
    }

    /// Number of entries after merging.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Bytes covered (meaningless while an extent to end of file is stored).
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Extent, V)> + '_ {
        self.entries.iter().map(|(start, (end, value))| (stored(*start, *end), *value))
    }

    /// The entries that overlap `extent`, in order, unclipped.
    pub fn overlapping(&self, extent: Extent) -> impl Iterator<Item = (Extent, V)> + '_ {
        let last = self.last_overlapping(extent);
        // Most look for what is nowhere, or in one entry: then there is nothing more to search for.
        let only = last.filter(|(found, _)| found.start() <= extent.start());
        let several = last.filter(|(found, _)| found.start() > extent.start()).map(|_| {
            let first = match self.entries.range(..=extent.start()).next_back() {
                Some((start, (end, _))) if *end > extent.start() => *start,
                Some(_) | None => extent.start(),
            };
            self.entries.range(first..extent.end())
        });
        let several = several.into_iter().flatten();
        only.into_iter().chain(several.map(|(start, (end, value))| (stored(*start, *end), *value)))
    }

    /// The entries that overlap `extent`, clipped to it.
    pub fn within(&self, extent: Extent) -> impl Iterator<Item = (Extent, V)> + '_ {
        self.overlapping(extent).map(move |(found, value)| {
            (found.intersection(extent).expect("found because they overlap"), value)
        })
    }

    /// The parts of `extent` without an entry, in order.
    pub fn gaps(&self, extent: Extent) -> Vec<Extent> {
        let mut gaps = Vec::new();
        let mut at = extent.start();
        for (found, _) in self.within(extent) {
            gaps.extend(Extent::new(at, found.start()));
            at = found.end();
        }
        gaps.extend(Extent::new(at, extent.end()));
        gaps
    }

    /// Whether every byte of `extent` has an entry.
    #[must_use]
    pub fn covers(&self, extent: Extent) -> bool {
        let mut at = extent.start();
        for (found, _) in self.overlapping(extent) {
            if found.start() > at {
                return false;
            }
            at = found.end();
        }
        at >= extent.end()
    }

    /// One past the last byte with an entry.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        self.entries.last_key_value().map(|(_, (end, _))| *end)
    }

    /// Sets `extent` to `value`, whatever was there.
    pub fn insert(&mut self, extent: Extent, value: V) {
        // The pieces of strided data lie apart, and what is written in order goes on where the last one ended: one search for either,
        // and none behind everything.
        if let Some(mut last) = self.entries.last_entry()
            && last.get().0 <= extent.start()
        {
            if *last.get() == (extent.start(), value) {
                last.get_mut().0 = extent.end();
                self.bytes = self.bytes.wrapping_add(extent.length());
            } else {
                self.put(extent, value);
            }
            return;
        }
        match self.entries.range_mut(..=extent.end()).next_back() {
            Some((_, (end, old))) if *end == extent.start() && *old == value => {
                *end = extent.end();
                self.bytes = self.bytes.wrapping_add(extent.length());
            }
            Some((_, (end, _))) if *end <= extent.start() => self.put(extent, value),
            None => self.put(extent, value),
            Some((start, (end, _))) if (*start, *end) == (extent.start(), extent.end()) => {
                self.replace(extent, value);
            }
            Some(_) => {
                self.remove(extent);
                self.add(extent, value);
            }
        }
    }

    /// Gives an entry that nothing equal follows at once another value.
    fn replace(&mut self, entry: Extent, value: V) {
        let before = self.entries.range(..entry.start()).next_back();
        let joined = before.is_some_and(|(_, (end, old))| *end == entry.start() && *old == value);
        match self.entries.get_mut(&entry.start()) {
            Some((_, old)) if !joined => *old = value,
            Some(_) | None => {
                self.remove(entry);
                self.add(entry, value);
            }
        }
    }

    /// Removes everything inside `extent`; entries that reach over its borders are cut.
    pub fn remove(&mut self, extent: Extent) {
        while let Some((found, value)) = self.last_overlapping(extent) {
            self.take(found);
            if let Some(right) = Extent::new(extent.end(), found.end()) {
                self.put(right, value);
            }
            if let Some(left) = Extent::new(found.start(), extent.start()) {
                self.put(left, value);
            }
            if found.start() <= extent.start() {
                return;
            }
        }
    }

    /// Sets those bytes of `extent` to `value` that have no entry or one for which `replaces` answers yes.
    ///
    /// Returns the parts that were set, merged and in order: the *update set* of paper IV-B.
    pub fn merge(&mut self, extent: Extent, value: V, mut replaces: impl FnMut(V) -> bool) -> Vec<Extent> {
        let mut set: Vec<Extent> = Vec::new();
        let mut push = |part: Extent| match set.last_mut() {
            Some(last) if last.end() == part.start() => *last = last.hull(part),
            Some(_) | None => set.push(part),
        };
        let mut at = extent.start();
        for (found, old) in self.within(extent) {
            if let Some(gap) = Extent::new(at, found.start()) {
                push(gap);
            }
            if replaces(old) {
                push(found);
            }
            at = found.end();
        }
        if let Some(gap) = Extent::new(at, extent.end()) {
            push(gap);
        }
        for part in &set {
            self.insert(*part, value);
        }
        set
    }

    /// Replaces the value of every entry byte inside `extent` by `change(value)`; `None` removes it.
    pub fn update(&mut self, extent: Extent, mut change: impl FnMut(V) -> Option<V>) {
        let found: Vec<(Extent, V)> = self.within(extent).collect();
        for (part, old) in found {
            match change(old) {
                Some(new) if new == old => {}
                Some(new) => self.insert(part, new),
                None => self.remove(part),
            }
        }
    }

    /// The last entry that overlaps `extent`.
    fn last_overlapping(&self, extent: Extent) -> Option<(Extent, V)> {
        let last = self.entries.last_key_value()?;
        let (start, (end, value)) =
            if *last.0 < extent.end() { last } else { self.entries.range(..extent.end()).next_back()? };
        (*end > extent.start()).then(|| (stored(*start, *end), *value))
    }

    fn take(&mut self, extent: Extent) {
        let taken = self.entries.remove(&extent.start());
        debug_assert!(taken.is_some(), "only stored extents are taken");
        self.bytes = self.bytes.wrapping_sub(extent.length());
    }

    fn put(&mut self, extent: Extent, value: V) {
        self.bytes = self.bytes.wrapping_add(extent.length());
        let before = self.entries.insert(extent.start(), (extent.end(), value));
        debug_assert!(before.is_none(), "extents are disjoint");
    }

    /// Adds an extent where nothing is, merging it with equal neighbours.
    fn add(&mut self, extent: Extent, value: V) {
        let mut merged = extent;
        if let Some((start, (end, old))) = self.entries.range(..extent.start()).next_back()
            && *end == extent.start()
            && *old == value
        {
            let left = stored(*start, *end);
            self.take(left);
            merged = merged.hull(left);
        }
        if let Some((end, old)) = self.entries.get(&extent.end())
            && *old == value
        {
            let right = stored(extent.end(), *end);
            self.take(right);
            merged = merged.hull(right);
        }
        self.put(merged, value);
    }
}

fn stored(start: u64, end: u64) -> Extent {
    Extent::new(start, end).expect("only non-empty extents are stored")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    #[test]
    fn the_papers_example_of_figure_15_gives_its_update_set() {
        let mut cache = ExtentMap::new();
        cache.insert(extent(0, 4096), 8_u8);
        assert_eq!(cache.merge(extent(0, 2048), 7, |old| old <= 7), []);
        assert_eq!(cache.merge(extent(2048, 4096), 9, |old| old <= 9), [extent(2048, 4096)]);
        assert_eq!(cache.merge(extent(4096, 8192), 9, |old| old <= 9), [extent(4096, 8192)]);
        assert_eq!(cache.iter().collect::<Vec<_>>(), [(extent(0, 2048), 8), (extent(2048, 8192), 9)]);
    }
}
