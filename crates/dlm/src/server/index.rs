//! Regions that may overlap, each under a key: finds who may be in the way of one without looking at everybody.

use alloc::collections::BTreeMap;
use ccpfs_region::{Region, Section};
use ccpfs_types::extent_index::Bounded;
use ccpfs_types::{Extent, ExtentIndex, Layout};

/// Strides above this are not told apart by residues: places in two strides still fit into a number.
const STRIDE_MAX: u64 = 1 << 62;

/// A set of regions, each with a distinct key.
///
/// Extents, lists and groups of sections are found by their bounds. Sections are found by where in its outermost stride a copy
/// lies: those of many clients interleave, so that the bounds of all of them overlap everything, but the places of their copies do not.
/// Sections of a file, of which a stripe has what lies there, by where a copy lies in the file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RegionIndex<K> {
    bounds: ExtentIndex<K>,
    /// By whose offsets they are in and by stride, then by the place of a copy: an extent that begins within the first stride.
    combs: BTreeMap<(Space, u64), ExtentIndex<K>>,
}

/// Whose offsets a section is in: those of the stripe, or of a file of this layout, of which this is the stripe.
type Space = Option<(Layout, u32)>;

/// Where copies lie that may share a byte with what is asked for: an offset and a length in a space; anywhere, if that is not known.
type Place = Option<(u64, u64)>;

/// The stride of a section, and where in it a copy lies.
fn comb(section: &Section) -> Option<(u64, Extent)> {
    let outer = section.levels().last().filter(|outer| outer.stride() <= STRIDE_MAX)?;
    Some((outer.stride(), Extent::with_length(section.offset() % outer.stride(), outer.span())?))
}

/// The only section of a region that is not an extent.
fn only_section(region: &Region) -> Option<Section> {
    if region.as_extent().is_some() {
        return None;
    }
    let mut sections = region.sections();
    sections.next().filter(|_| sections.next().is_none())
}

impl<K: Copy + Ord + Bounded> RegionIndex<K> {
    pub(super) fn new() -> RegionIndex<K> {
        RegionIndex { bounds: ExtentIndex::new(), combs: BTreeMap::new() }
    }

    /// Adds a region. The pair must not be there yet.
    pub(super) fn insert(&mut self, region: &Region, key: K) {
        match only_section(region).as_ref().and_then(comb) {
            None => self.bounds.insert(region.bounds(), key),
            Some((stride, place)) => {
                self.combs.entry((region.stripe(), stride)).or_default().insert(place, key);
            }
        }
    }

    /// Removes a region that was added with this key.
    pub(super) fn remove(&mut self, region: &Region, key: K) {
        let Some((stride, place)) = only_section(region).as_ref().and_then(comb) else {
            return self.bounds.remove(region.bounds(), key);
        };
        let comb = (region.stripe(), stride);
        let teeth = self.combs.get_mut(&comb).expect("only what was stored is removed");
        teeth.remove(place, key);
        if teeth.is_empty() {
            self.combs.remove(&comb);
        }
    }

    /// All whose regions may share a byte with `region`, and perhaps some others; some perhaps twice.
    pub(super) fn near(&self, region: &Region) -> impl Iterator<Item = K> + '_ {
        let bounds = region.bounds();
        let asked = if self.combs.is_empty() { None } else { only_section(region) };
        let (plain, of) = (region.as_extent(), region.stripe());
        let in_combs = self.combs.iter().flat_map(move |((space, stride), teeth)| {
            let place = match (&asked, plain) {
                (_, Some(extent)) => extent_in(*space, extent),
                (Some(section), None) if of == *space => copies_within(section, *stride),
                (Some(_) | None, None) => None,
            };
            around(*stride, place)
                .into_iter()
                .flatten()
                .flat_map(|place| teeth.overlapping(place))
                .map(|(_, key)| key)
        });
        self.bounds.overlapping(bounds).map(|(_, key)| key).chain(in_combs)
    }

    /// The least offset in `[from, to)` at which a piece begins of somebody who has none at `from`; `next` says where the
    /// first piece from `from` on begins of those that count.
    pub(super) fn first_start(&self, from: u64, to: u64, next: impl Fn(K) -> Option<u64>) -> Option<u64> {
        let mut first = self.bounds.first_start(from, to, |key| next(key).is_some());
        for ((space, stride), teeth) in &self.combs {
            if space.is_some() {
                // The first byte of a copy may be on another stripe.
                let next = teeth.overlapping(Extent::WHOLE).filter_map(|(_, key)| next(key));
                first = first.into_iter().chain(next.filter(|found| *found < to)).min();
                continue;
            }
            let place = from % stride;
            // Who has a piece within the next stride has it in the order of the places.
            let soon = |key| next(key).is_some_and(|piece| piece - from < *stride);
            let behind = || teeth.first_start(place, *stride, soon).map(|start| start - place);
            let before = || teeth.first_start(0, place, soon).map(|start| stride - place + start);
            let found = match behind().or_else(before) {
                Some(distance) => from.checked_add(distance),
                None => teeth.overlapping(Extent::WHOLE).filter_map(|(_, key)| next(key)).min(),
            };
            first = first.into_iter().chain(found.filter(|found| *found < to)).min();
        }
        first
    }
}

/// Where an extent of the stripe lies.
fn extent_in(space: Space, extent: Extent) -> Place {
    let extent = match space {
        None => extent,
        Some((layout, stripe)) => Region::window_in_file(&layout, stripe, extent)?,
    };
    Some((extent.start(), extent.length()))
}

/// Where the copies of a section lie modulo `stride`, if all lie at one place.
fn copies_within(section: &Section, stride: u64) -> Place {
    let outer = section.levels().last().filter(|outer| outer.stride().is_multiple_of(stride))?;
    Some((section.offset(), outer.span()))
}

/// Where copies may lie that share a byte, modulo the stride, with `length` bytes at `start`; anywhere, if that is not known.
fn around(stride: u64, place: Place) -> [Option<Extent>; 3] {
    match place {
        Some((start, length)) if length < stride => {
            let start = start % stride;
            let end = start + length;
            [
                Extent::new(start, end),
                Extent::new(start + stride, end + stride),
                end.checked_sub(stride).and_then(|end| Extent::new(0, end)),
            ]
        }
        Some(_) | None => [Some(Extent::WHOLE), None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use ccpfs_region::UNBOUNDED;

    /// Below `end`, always the same ones.
    fn next(state: &mut u64, end: u64) -> u64 {
        *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (*state >> 33) % end
    }

    /// A region of any form, of which sections of the file are of two layouts.
    fn region(state: &mut u64) -> Option<Region> {
        let strides = [3000, 6000, 4099, 12_288];
        let stride = strides[usize::try_from(next(state, 4)).unwrap()];
        let count = if next(state, 2) == 0 { UNBOUNDED } else { 2 + next(state, 40) };
        let section = Section::new(next(state, 20_000), 1 + next(state, 900), &[(stride, count)]).unwrap();
        let extent =
            |state: &mut u64| Extent::with_length(next(state, 60_000), 1 + next(state, 3000)).unwrap();
        match next(state, 6) {
            0 => Some(extent(state).into()),
            1 => Region::from_extents(vec![extent(state), extent(state), extent(state)]),
            2 => Some(section.into()),
            3 => Region::of_stripe(vec![section], &Layout::new(4, 4096).unwrap(), 1).unwrap(),
            4 => Region::of_stripe(vec![section], &Layout::new(3, 8192).unwrap(), 2).unwrap(),
            _ => {
                let part = Region::of_stripe(vec![section], &Layout::new(4, 4096).unwrap(), 1).unwrap()?;
                part.in_extent(extent(state))
            }
        }
    }

    #[test]
    fn whoever_shares_a_byte_is_near_and_the_next_that_begins_is_found_whatever_the_forms() {
        let mut state = 7;
        for _ in 0..60 {
            let mut regions: Vec<Region> = (0..40).filter_map(|_| region(&mut state)).collect();
            let mut index = RegionIndex::new();
            for (key, region) in (0_u64..).zip(&regions) {
                index.insert(region, key);
            }
            let gone = regions.split_off(regions.len() / 2);
            for (key, region) in (regions.len() as u64..).zip(&gone) {
                index.remove(region, key);
            }
            assert_eq!(
                regions.iter().filter(|region| region.stripe().is_some()).count() == 0,
                index.combs.keys().all(|(space, _)| space.is_none())
            );
            for _ in 0..40 {
                let Some(asked) = region(&mut state) else { continue };
                let near: Vec<u64> = index.near(&asked).collect();
                for (key, region) in (0_u64..).zip(&regions) {
                    assert!(!region.may_overlap(&asked) || near.contains(&key), "{region} and {asked}");
                }
                let from = next(&mut state, 50_000);
                let to = from + 1 + next(&mut state, 20_000);
                // Those that are kept by their bounds, and begin before, are found by what is near.
                let begins = |key: u64| {
                    let region = &regions[usize::try_from(key).unwrap()];
                    let in_comb = only_section(region).as_ref().and_then(comb).is_some();
                    let start = region.piece_from(from)?.start();
                    (start > from && (in_comb || region.bounds().start() > from)).then_some(start)
                };
                let expected = (0..regions.len() as u64).filter_map(begins).filter(|start| *start < to).min();
                assert_eq!(index.first_start(from, to, begins), expected, "from {from} to {to}");
            }
        }
    }
}
