//! Walking through a region piece by piece, from anywhere: for what must look at bytes; how many there are; and how it is written.

use crate::region::Region;
use crate::stripes::stripe_units;
use ccpfs_types::{Extent, Layout};
use core::fmt;

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

impl Region {
    /// How many bytes of the region lie before `offset`. Those of a region that is kept as sections of a file ([`Region::stripe`]) are counted
    /// piece by piece, here and below.
    #[must_use]
    pub fn bytes_before(&self, offset: u64) -> u64 {
        if self.as_striped().is_some() {
            let pieces = self.pieces().take_while(|piece| piece.start() < offset);
            return pieces.map(|piece| piece.end().min(offset) - piece.start()).sum();
        }
        self.sections().map(|section| section.bytes_before(offset)).sum()
    }

    /// How many bytes the region holds.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.bytes_before(Extent::EOF)
    }

    /// How many pieces [`Region::pieces`] yields.
    #[must_use]
    pub fn piece_count(&self) -> u64 {
        if self.as_striped().is_some() {
            return self.pieces().map(|_| 1).sum();
        }
        self.sections().map(|section| section.piece_count()).sum()
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, section) in self.sections().enumerate() {
            if at > 0 {
                f.write_str(" | ")?;
            }
            section.fmt(f)?;
        }
        match self.stripe() {
            Some((layout, stripe)) => {
                write!(f, " on {stripe} of {} x {}", layout.stripe_count(), layout.stripe_bytes())
            }
            None => Ok(()),
        }
    }
}
