//! The part of a section on one stripe of a file, in the stripe's own offsets.
//!
//! A file is laid over its stripes in rounds of `W = stripe size * stripe count` bytes. Where the offset in the stripe of
//! one byte is known, that of the byte `q * W` further on is `q * stripe size` greater. So copies whose stride is a multiple of `W`
//! stay a level; copies with any other stride `s` come back to the same place of a round after `W / gcd(s, W)` copies,
//! and everything that these leave on the stripe is repeated as a whole. Within such a period, copies that do not touch
//! the stripe are jumped over by the window algorithm of `residue`, copies that lie together in one unit of the stripe stay a
//! level, and a copy that crosses the border of a unit is taken apart. So the cost is the number of units of the
//! stripe in one period, and never depends on the number of pieces or stripes.

use crate::residue::{difference, first_hit, gcd};
use crate::section::{Level, RegionError, Section};
use crate::view::View;
use crate::{DEPTH_MAX, UNBOUNDED};
use alloc::vec::Vec;
use ccpfs_types::{Extent, Layout};
use core::ops::Range;

impl Section {
    /// The bytes of the section that lie on `stripe`, in the stripe's offsets: at most `sections_max` sections, in no
    /// order, disjoint; none if there are no such bytes. An end at [`Extent::EOF`] stays there.
    ///
    /// # Errors
    /// [`RegionError::TooMany`] if more than `sections_max` are necessary, or if so many places of the section were
    /// looked at; [`RegionError::TooDeep`] if the round of the stripes is one level too many. Then
    /// [`Region::stripe_pieces`](crate::Region::stripe_pieces) still lists them.
    ///
    /// # Panics
    /// If the layout has no such stripe.
    pub fn on_stripe(
        &self,
        layout: &Layout,
        stripe: u32,
        sections_max: usize,
    ) -> Result<Vec<Section>, RegionError> {
        assert!(stripe < layout.stripe_count(), "a stripe of the layout");
        if layout.stripe_count() == 1 {
            return Ok(Vec::from([*self]));
        }
        let mut cut = Cut {
            layout: *layout,
            stripe,
            around: Vec::new(),
            found: Vec::new(),
            sections_max,
            looks: sections_max.saturating_mul(2).saturating_add(DEPTH_MAX),
        };
        cut.view(self.view())?;
        Ok(cut.found)
    }
}

/// The units of a stripe, in the offsets of the file.
pub(crate) fn stripe_units(layout: &Layout, stripe: u32) -> Section {
    assert!(stripe < layout.stripe_count(), "a stripe of the layout");
    let unit = layout.stripe_bytes();
    let round = unit * u64::from(layout.stripe_count());
    let units = Section::new(u64::from(stripe) * unit, unit, &[(round, UNBOUNDED)]);
    units.expect("the largest layout is smaller than the largest file")
}

/// A section being cut.
struct Cut {
    layout: Layout,
    stripe: u32,
    /// What the part at hand is repeated by, in the stripe's offsets, outermost first.
    around: Vec<(u64, u64)>,
    found: Vec<Section>,
    sections_max: usize,
    /// How many more copies may be looked at.
    looks: usize,
}

impl Cut {
    /// Bytes of a round over all stripes.
    fn round(&self) -> u64 {
        self.layout.stripe_bytes() * u64::from(self.layout.stripe_count())
    }

    /// Adds what `view` has on the stripe.
    fn view(&mut self, view: View<'_>) -> Result<(), RegionError> {
        self.looks = self.looks.checked_sub(1).ok_or(RegionError::TooMany)?;
        let unit_bytes = self.layout.stripe_bytes();
        let extent = view.extent();
        let unit = extent.start() / unit_bytes;
        if unit == (extent.end() - 1) / unit_bytes {
            return if unit % u64::from(self.layout.stripe_count()) == u64::from(self.stripe) {
                self.add(view)
            } else {
                Ok(())
            };
        }
        match view.outer() {
            None => self.piece(extent),
            Some(outer) => self.level(view, outer),
        }
    }

    /// Adds what a piece that crosses a border has on the stripe: all its bytes there follow each other.
    fn piece(&mut self, piece: Extent) -> Result<(), RegionError> {
        let start = self.layout.stripe_length(self.stripe, piece.start());
        let end = match piece.end() {
            Extent::EOF => Extent::EOF,
            end => self.layout.stripe_length(self.stripe, end),
        };
        let Some(local) = Extent::new(start, end) else { return Ok(()) };
        self.push(Section::new(start, local.length(), &self.around)?)
    }

    /// Adds what the copies of a level have on the stripe: those of one period, repeated, and the rest.
    fn level(&mut self, view: View<'_>, outer: &Level) -> Result<(), RegionError> {
        let divisor = gcd(outer.stride(), self.round());
        let period = self.round() / divisor;
        let rounds = outer.stride() / divisor;
        let periods = view.count() / period;
        let Some(stride) = rounds.checked_mul(self.layout.stripe_bytes()).filter(|_| periods >= 2) else {
            return self.run(view, outer, 0..view.count());
        };
        let unbounded = view.goes_on();
        self.around.insert(0, (stride, if unbounded { UNBOUNDED } else { periods }));
        self.run(view, outer, 0..period)?;
        self.around.remove(0);
        if unbounded { Ok(()) } else { self.run(view, outer, periods * period..view.count()) }
    }

    /// Adds what the copies in `range` have on the stripe.
    fn run(&mut self, view: View<'_>, outer: &Level, range: Range<u64>) -> Result<(), RegionError> {
        let unit_bytes = self.layout.stripe_bytes();
        let mut index = range.start;
        while index < range.end {
            let phase = difference(view.copy_base(index), u64::from(self.stripe) * unit_bytes, self.round());
            let before = outer.span() - 1;
            let window = before.saturating_add(unit_bytes);
            let Some(jump) = first_hit(phase, outer.stride(), self.round(), before, window) else { break };
            index = index.saturating_add(jump);
            if index >= range.end {
                break;
            }
            let base = view.copy_base(index);
            let room = unit_bytes - base % unit_bytes;
            let together = match room.checked_sub(outer.span()) {
                None => {
                    self.view(view.copy(index))?;
                    1
                }
                Some(room) => {
                    let count = (room / outer.stride() + 1).min(range.end - index);
                    self.view(view.copies(index..index + count))?;
                    count
                }
            };
            index += together;
        }
        Ok(())
    }

    /// Adds a view that lies in one unit of the stripe.
    fn add(&mut self, view: View<'_>) -> Result<(), RegionError> {
        self.push(view.section_at(self.layout.local_offset(view.base()), &self.around)?)
    }

    fn push(&mut self, section: Section) -> Result<(), RegionError> {
        if self.found.len() == self.sections_max {
            return Err(RegionError::TooMany);
        }
        self.found.push(section);
        Ok(())
    }
}
