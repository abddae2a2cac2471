//! Walking through a region in parts that fit into the pages an operation has reserved.

use super::Locked;
use crate::pages::PAGE_BYTES;
use ccpfs_region::{Pieces, Region};
use ccpfs_types::{Extent, Layout};
use std::collections::HashMap;

/// Most places of a part: bounds the memory for it.
const PLACES_MAX: usize = 4096;

/// Some bytes in a row of one unit of one stripe, under one lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of the lock.
    pub(crate) held: usize,
    /// The bytes, in the stripe's offsets.
    pub(crate) extent: Extent,
    /// Where they begin in the file.
    pub(crate) offset: u64,
}

/// The places of a region, in the order of the file.
pub(crate) struct Walk<'a> {
    pieces: Pieces<'a>,
    layout: Layout,
    /// What is left of a piece, in the file's offsets.
    left: Option<Extent>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(region: &'a Region, layout: Layout) -> Walk<'a> {
        Walk { pieces: region.pieces(), layout, left: None }
    }

    /// Most pages that the places of a region lie on.
    pub(crate) fn pages_most(region: &Region, layout: Layout) -> u64 {
        let hull = region.bounds().length();
        let (units, pieces) = (hull / layout.stripe_bytes() + 2, region.piece_count());
        let dense = (hull / PAGE_BYTES).saturating_add(2 * units);
        let sparse = (region.length_bytes() / PAGE_BYTES).saturating_add(2 * pieces.saturating_add(units));
        dense.min(sparse)
    }

    /// The next places, which lie on `pages_max` pages together at most, one at least; none at the end.
    pub(crate) fn next(&mut self, locked: &Locked<'_>, pages_max: usize, places: &mut Vec<Place>) {
        places.clear();
        let mut room = u64::try_from(pages_max.max(1)).unwrap_or(u64::MAX);
        let mut last: HashMap<u32, u64> = HashMap::new();
        while places.len() < PLACES_MAX {
            let Some(piece) = self.left.take().or_else(|| self.pieces.next()) else { return };
            let unit = self.layout.stripe_bytes();
            let stripe = u32::try_from(piece.start() / unit % u64::from(self.layout.stripe_count()))
                .expect("there are fewer stripes");
            let start = self.layout.local_offset(piece.start());
            let (held, lock_end) = locked.at(stripe, start);
            let (first, ends) = (start / PAGE_BYTES, last.get(&stripe).copied().unwrap_or(0));
            // Where the room ends, on pages that are not counted yet.
            let reach = (first.max(ends).saturating_add(room)).saturating_mul(PAGE_BYTES);
            let end = start + piece.length().min(unit - piece.start() % unit);
            let end = end.min(lock_end).min(reach);
            let Some(extent) = Extent::new(start, end) else {
                self.left = Some(piece);
                return;
            };
            let pages_end = end.div_ceil(PAGE_BYTES);
            room -= pages_end.saturating_sub(first.max(ends));
            last.insert(stripe, pages_end.max(ends));
            places.push(Place { held, extent, offset: piece.start() });
            self.left = Extent::new(piece.start() + extent.length(), piece.end());
        }
    }
}
