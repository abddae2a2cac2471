//! Walking through a region piece by piece, from anywhere: for what must look at bytes.

use crate::region::Region;
use crate::stripes::stripe_units;
use ccpfs_types::{Extent, Layout};

/// The pieces of a region, in the order of their offsets; made by [`Region::pieces_from`].
///
/// Of a list: its extents. Of sections: their pieces, of which neighbours may touch. Each costs one division for each level of
/// each section.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    region: &'a Region,
    next: Option<u64>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(region: &'a Region, offset: u64) -> Pieces<'a> {
        Pieces { region, next: Some(offset) }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let piece = self.next.take().and_then(|offset| self.region.piece_from(offset))?;
        self.next = Some(piece.end());
        Some(piece)
    }
}

/// The pieces of a region that lie on one stripe, in the stripe's offsets and order; made by [`Region::stripe_pieces`].
/// Those of different units of the stripe are different pieces, even if they touch.
///
/// Pieces on other stripes are not walked: where the next piece is not on the stripe, the first that is is found as
/// the first common byte of the region and the units of the stripe.
#[derive(Clone, Debug)]
pub struct StripePieces<'a> {
    region: &'a Region,
    layout: Layout,
    stripe: u32,
    /// The units of the stripe, in the file's offsets.
    units: Region,
    /// Where to go on, in the file's offsets.
    next: Option<u64>,
}

impl<'a> StripePieces<'a> {
    pub(crate) fn new(region: &'a Region, layout: &Layout, stripe: u32) -> StripePieces<'a> {
        let units = Region::from(stripe_units(layout, stripe));
        StripePieces { region, layout: *layout, stripe, units, next: Some(0) }
    }

    /// The first piece of the region from `offset` on that is on the stripe, without what lies on others.
    fn piece_from(&self, offset: u64) -> Option<Extent> {
        let piece = self.region.piece_from(offset)?;
        let unit = self.units.piece_from(piece.start())?;
        if let Some(here) = piece.intersection(unit) {
            return Some(here);
        }
        let rest = self.region.in_extent(Extent::to_eof(unit.start()))?;
        let start = rest.first_common(&self.units)?;
        self.region.piece_from(start)?.intersection(self.units.piece_from(start)?)
    }
}

impl Iterator for StripePieces<'_> {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        let piece = self.next.take().and_then(|offset| self.piece_from(offset))?;
        self.next = Some(piece.end());
        let start = self.layout.local_offset(piece.start());
        let end = match piece.end() {
            Extent::EOF => Extent::EOF,
            end => self.layout.stripe_length(self.stripe, end),
        };
        Extent::new(start, end)
    }
}
