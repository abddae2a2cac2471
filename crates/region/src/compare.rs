//! What a region of a stripe and one of any form share, or hold of each other.

use crate::common::{Effort, TooHard};
use crate::meet::first_of_three;
use crate::region::{Region, leapfrog};
use crate::residue::gcd;
use crate::section::{RegionError, Section};
use crate::striped::{Striped, file_offset, file_window};
use crate::view::View;
use alloc::vec::Vec;
use ccpfs_types::{Extent, Layout};
use core::ops::Range;

/// Most sections of the file that a section of its stripe is turned into.
const IN_FILE_MAX: usize = 64;

impl Striped {
    /// The first byte that both hold.
    pub(crate) fn first_common(
        &self,
        own: &Region,
        other: &Region,
        effort: &mut Effort,
    ) -> Result<Option<u64>, TooHard> {
        if let Some(extent) = other.as_extent() {
            effort.spend()?;
            let piece = self.piece_from(extent.start());
            return Ok(piece.map(Extent::start).filter(|start| *start < extent.end()));
        }
        let Some(others) = self.others(other) else { return leapfrog(own, other, effort) };
        let units = self.units();
        let mut found: Option<u64> = None;
        for section in self.sections() {
            for other in &others {
                let late = found.is_some_and(|found| found <= section.offset().max(other.offset()));
                if late || !section.bounds().overlaps(other.bounds()) {
                    continue;
                }
                if let Some(byte) = first_of_three(section, other, &units, effort)? {
                    found = Some(found.map_or(byte, |found| found.min(byte)));
                }
            }
        }
        Ok(found.map(|byte| self.local(byte)))
    }

    /// Sections of the file that have on the stripe what `other` has there; `None` if these are too many, or if it is a list.
    fn others(&self, other: &Region) -> Option<Vec<Section>> {
        if let Some(other) = other.as_striped() {
            return other.is_beside(self).then(|| other.sections().to_vec());
        }
        if other.sections().all(|section| section.levels().is_empty()) {
            return None;
        }
        let mut found = Vec::new();
        for section in other.sections() {
            found.extend(in_file(&section, self.layout(), self.stripe()).ok()?);
        }
        Some(found)
    }
}

impl Region {
    /// Whether every byte of `other` lies in the region, where one of the two is of a stripe and this one is no extent.
    pub(crate) fn holds_by_stripe(&self, other: &Region, effort: &mut Effort) -> Result<bool, TooHard> {
        if let Some(extent) = other.as_extent() {
            return self.covers(extent, effort);
        }
        if self.sections().all(|section| section.levels().is_empty()) && self.as_striped().is_none() {
            for piece in other.pieces() {
                effort.spend()?;
                if !self.covers(piece, effort)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        let own = self.singles();
        'others: for other in other.singles() {
            for own in &own {
                if own.holds_single(&other, effort)? {
                    continue 'others;
                }
            }
            match other.as_extent() {
                Some(extent) if self.covers(extent, effort)? => {}
                Some(_) | None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The region as regions of one section each.
    fn singles(&self) -> Vec<Region> {
        match self.as_striped() {
            // One section of the file alone may be few extents, or sections, of the stripe.
            Some(striped) => striped.each().flat_map(|one| one.plain_singles()).collect(),
            None => self.plain_singles(),
        }
    }

    /// As [`Region::singles`], of a region that is in the stripe's offsets or one section of the file.
    fn plain_singles(&self) -> Vec<Region> {
        match self.as_striped() {
            Some(_) => Vec::from([self.clone()]),
            None => self.sections().map(Region::from).collect(),
        }
    }

    /// Whether every byte of `other` lies in this region of one section: within its bounds, and in none of its gaps.
    fn holds_single(&self, other: &Region, effort: &mut Effort) -> Result<bool, TooHard> {
        if let Some(extent) = self.as_extent() {
            return Ok(extent.contains(other.bounds()));
        }
        if !self.bounds().contains(other.bounds()) {
            return Ok(false);
        }
        for section in self.sections() {
            for gap in section.gaps() {
                let gap = match self.as_striped() {
                    Some(striped) => striped.with(Vec::from([gap])),
                    None => Some(gap.into()),
                };
                if let Some(gap) = gap
                    && gap.first_common_with(other, effort)?.is_some()
                {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The bytes of a section of a stripe, with others on other stripes, as sections of the file.
///
/// A copy within a unit lies in the file as it does in the stripe; a piece on several is taken with all that lies between them; and copies
/// whose stride is, or comes by and by to, a multiple of a unit are repeated there by as many rounds.
pub(crate) fn in_file(section: &Section, layout: &Layout, stripe: u32) -> Result<Vec<Section>, RegionError> {
    let mut turn =
        Turn { layout: *layout, stripe, around: Vec::new(), found: Vec::new(), looks: 4 * IN_FILE_MAX };
    // Nobody has bytes behind the end of all files.
    let end = layout.stripe_length(stripe, Extent::EOF);
    let Some(window) = Extent::new(0, end) else { return Ok(Vec::new()) };
    for part in section.in_extent(window) {
        turn.view(part.view())?;
    }
    Ok(turn.found)
}

/// A section on its way into the file.
struct Turn {
    layout: Layout,
    stripe: u32,
    /// What the part at hand is repeated by, in the file's offsets, outermost first.
    around: Vec<(u64, u64)>,
    found: Vec<Section>,
    /// How many more copies may be looked at.
    looks: usize,
}

impl Turn {
    fn view(&mut self, view: View<'_>) -> Result<(), RegionError> {
        self.looks = self.looks.checked_sub(1).ok_or(RegionError::TooMany)?;
        let unit_bytes = self.layout.stripe_bytes();
        let extent = view.extent();
        if extent.start() / unit_bytes == (extent.end() - 1) / unit_bytes {
            let base = file_offset(&self.layout, self.stripe, view.base()).ok_or(RegionError::Overflow)?;
            return self.push(view.section_at(base, &self.around));
        }
        let Some(outer) = view.outer() else {
            let window = file_window(&self.layout, self.stripe, extent).ok_or(RegionError::Overflow)?;
            return self.push(Section::new(window.start(), window.length(), &self.around));
        };
        let count = view.count();
        let period = unit_bytes / gcd(outer.stride(), unit_bytes);
        let periods = count / period;
        if periods < 2 {
            return self.run(view, 0..count);
        }
        let units = outer.stride().checked_mul(period).map(|bytes| bytes / unit_bytes);
        let round = unit_bytes * u64::from(self.layout.stripe_count());
        let stride = units.and_then(|units| units.checked_mul(round)).ok_or(RegionError::Overflow)?;
        self.around.insert(0, (stride, periods));
        self.run(view, 0..period)?;
        self.around.remove(0);
        self.run(view, periods * period..count)
    }

    /// Adds the copies in `range`: those in one unit together.
    fn run(&mut self, view: View<'_>, range: Range<u64>) -> Result<(), RegionError> {
        let unit_bytes = self.layout.stripe_bytes();
        let Some(outer) = view.outer() else { return Ok(()) };
        let mut index = range.start;
        while index < range.end {
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

    fn push(&mut self, section: Result<Section, RegionError>) -> Result<(), RegionError> {
        if self.found.len() == IN_FILE_MAX {
            return Err(RegionError::TooMany);
        }
        self.found.push(section?);
        Ok(())
    }
}
