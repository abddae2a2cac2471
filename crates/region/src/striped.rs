//! Sections in the offsets of a file, as far as they lie on one of its stripes: a region in the offsets of that stripe.
//!
//! The offsets of a stripe and those of the file rise together, so that first bytes, order and windows are the same in both; what lies
//! on the stripe is what the sections share with its units, which are a section as well.
//! *Invariants*: see [`Striped`].
//! *Not here*: what two such regions share (`meet`), and what one shares with another form (`compare`).

use crate::common::{Effort, search};
use crate::region::Region;
use crate::section::{RegionError, Section};
use crate::stripes::stripe_units;
use crate::{EFFORT_MAX, STEPS_MAX};
use alloc::vec::Vec;
use ccpfs_types::{Extent, Layout};

/// Pieces that lie elsewhere, before the next one on the stripe is found by arithmetic.
const LOOKS_MAX: usize = 4;
/// Most sections, in the stripe's offsets, of a region that is perhaps simple enough to be said in these.
const PLAIN_MAX: usize = 4;
/// Most pieces of one that is said in these though it takes several sections there.
const PIECES_MAX: u64 = 16;

/// Most pieces of one copy of a section's outermost level: what a question for the first byte on the stripe costs at most, twice.
const COPY_PIECES_MAX: u64 = STEPS_MAX / 2;

/// The bytes of some sections of a file that lie on a stripe: in the stripe's offsets, where not said otherwise.
///
/// Invariants: the layout has at least two stripes, this one among them; the sections are disjoint, sorted and joined where they
/// go on with each other; each has a byte on the stripe, and at most [`COPY_PIECES_MAX`] pieces in a copy; what they have there is neither one section in the stripe's
/// offsets nor at most [`PLAIN_MAX`] of at most [`PIECES_MAX`] pieces.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Striped {
    layout: Layout,
    stripe: u32,
    /// In the file's offsets.
    sections: Vec<Section>,
    /// From the first byte to one past the last; to the end of any file, if a section is unbounded.
    bounds: Extent,
}

impl Striped {
    /// The bytes of disjoint `sections` on a stripe, in the simplest form; `None` if there are none.
    pub(crate) fn region(layout: &Layout, stripe: u32, mut sections: Vec<Section>) -> Option<Region> {
        assert!(stripe < layout.stripe_count(), "a stripe of the layout");
        if layout.stripe_count() == 1 {
            return Region::of(sections);
        }
        let units = stripe_units(layout, stripe);
        sections.retain(|section| section.overlaps(&units));
        Region::join(&mut sections);
        if let Some(plain) = plain(layout, stripe, &sections) {
            return Some(plain);
        }
        let bounds = sections.iter().map(|section| bounds(layout, stripe, section)).reduce(Extent::hull)?;
        Some(Region::from_striped(Striped { layout: *layout, stripe, sections, bounds }))
    }

    /// As [`Striped::region`] of other sections on the same stripe.
    pub(crate) fn with(&self, sections: Vec<Section>) -> Option<Region> {
        Striped::region(&self.layout, self.stripe, sections)
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn stripe(&self) -> u32 {
        self.stripe
    }

    /// In the file's offsets.
    pub(crate) fn sections(&self) -> &[Section] {
        &self.sections
    }

    pub(crate) fn bounds(&self) -> Extent {
        self.bounds
    }

    /// The units of the stripe, in the file's offsets.
    pub(crate) fn units(&self) -> Section {
        stripe_units(&self.layout, self.stripe)
    }

    /// Whether the two are parts of the same stripe of files of one layout.
    pub(crate) fn is_beside(&self, other: &Striped) -> bool {
        (self.layout, self.stripe) == (other.layout, other.stripe)
    }

    /// An extent of the file that has on the stripe what `window` has there of the region, and cuts no section at an end of it at which
    /// `window` reaches as far as the region; `None` if that lies behind the end of all files.
    pub(crate) fn window(&self, window: Extent) -> Option<Extent> {
        let exact = file_window(&self.layout, self.stripe, window)?;
        let start = if window.start() <= self.bounds.start() { 0 } else { exact.start() };
        let end = if window.end() >= self.bounds.end() { Extent::EOF } else { exact.end() };
        Extent::new(start, end)
    }

    /// The offset in the stripe of a byte of the file that lies there.
    pub(crate) fn local(&self, byte: u64) -> u64 {
        self.layout.local_offset(byte)
    }

    /// Whether one piece holds `extent`: quicker than to look for the piece, and false if the extent lies on several units.
    pub(crate) fn has_at_once(&self, extent: Extent) -> bool {
        let unit_bytes = self.layout.stripe_bytes();
        if extent.start() / unit_bytes != (extent.end() - 1) / unit_bytes {
            return false;
        }
        let Some(start) = file_offset(&self.layout, self.stripe, extent.start()) else { return false };
        let end = start.saturating_add(extent.length());
        let holds = |piece: Extent| piece.start() == start && piece.end() >= end;
        self.sections.iter().any(|section| section.piece_from(start).is_some_and(holds))
    }

    /// The first piece that ends after `offset`, without what lies before `offset`. The piece of a section of the file is one piece,
    /// on however many units it lies.
    pub(crate) fn piece_from(&self, offset: u64) -> Option<Extent> {
        let start = file_offset(&self.layout, self.stripe, offset)?;
        self.sections.iter().filter_map(|section| self.piece_of(section, start)).min()
    }

    /// The first piece of a section that has a byte on the stripe at or behind `start`.
    fn piece_of(&self, section: &Section, start: u64) -> Option<Extent> {
        let units = self.units();
        let mut at = start;
        for _ in 0..LOOKS_MAX {
            let piece = section.piece_from(at)?;
            if let Some(local) = local_piece(&self.layout, self.stripe, piece) {
                return Some(local);
            }
            at = units.piece_from(piece.start())?.start();
        }
        let rest = Extent::new(at, Extent::EOF)?;
        let mut everything = Effort::new(u64::MAX);
        let first = |part: Section| search(part.view(), units.view(), &mut everything).ok().flatten();
        let start = section.in_extent(rest).into_iter().filter_map(first).min()?;
        local_piece(&self.layout, self.stripe, section.piece_from(start)?)
    }

    /// What of each section `part` leaves.
    pub(crate) fn parts(&self, part: impl Fn(Section) -> Vec<Section>) -> Option<Region> {
        self.with(self.sections.iter().copied().flat_map(part).collect())
    }

    /// The sections, each as a region of its own.
    pub(crate) fn each(&self) -> impl Iterator<Item = Region> + '_ {
        self.sections.iter().filter_map(|section| self.with(Vec::from([*section])))
    }
}

/// Whether its first byte on a stripe is found in a bounded time.
fn is_easy(section: &Section) -> bool {
    section.view().pieces_of_copy() <= COPY_PIECES_MAX
}

/// What the sections have on the stripe, if it is simple in the stripe's offsets.
fn plain(layout: &Layout, stripe: u32, sections: &[Section]) -> Option<Region> {
    let mut found = Vec::new();
    for section in sections {
        found.extend(section.on_stripe(layout, stripe, PLAIN_MAX).ok()?);
    }
    let region = Region::of(found)?;
    (region.sections().count() == 1 || region.piece_count() <= PIECES_MAX).then_some(region)
}

/// The offset in the file of a byte of a stripe; `None` if it would lie behind the end of all files.
pub(crate) fn file_offset(layout: &Layout, stripe: u32, local: u64) -> Option<u64> {
    let round = (local / layout.stripe_bytes()).checked_mul(u64::from(layout.stripe_count()))?;
    let unit = round.checked_add(u64::from(stripe))?.checked_mul(layout.stripe_bytes())?;
    unit.checked_add(local % layout.stripe_bytes()).filter(|offset| *offset < Extent::EOF)
}

/// The smallest extent of the file that holds the bytes `local` of a stripe. What lies behind the end of all files is left out; `None` if that is all.
pub(crate) fn file_window(layout: &Layout, stripe: u32, local: Extent) -> Option<Extent> {
    let end = file_offset(layout, stripe, local.end() - 1).map_or(Extent::EOF, |last| last + 1);
    Extent::new(file_offset(layout, stripe, local.start())?, end)
}

/// The bytes of an extent of the file on a stripe: they follow each other there.
fn local_piece(layout: &Layout, stripe: u32, piece: Extent) -> Option<Extent> {
    let end = match piece.end() {
        Extent::EOF => Extent::EOF,
        end => layout.stripe_length(stripe, end),
    };
    Extent::new(layout.stripe_length(stripe, piece.start()), end)
}

/// From the first byte that a section has on a stripe, which there is, to one past the last.
fn bounds(layout: &Layout, stripe: u32, section: &Section) -> Extent {
    let units = stripe_units(layout, stripe);
    let first = section.first_common(&units).expect("callers have seen that they overlap");
    let end = last_common(layout, stripe, section).map_or(Extent::EOF, |last| layout.local_offset(last) + 1);
    Extent::new(layout.local_offset(first), end).expect("the last byte is not before the first")
}

/// The last byte of a section on a stripe; `None` if it goes on to the end of all files, or almost.
///
/// Both are looked at from the other end: a section that is turned round is one with the same levels.
fn last_common(layout: &Layout, stripe: u32, section: &Section) -> Option<u64> {
    let round = layout.stripe_bytes() * u64::from(layout.stripe_count());
    let end = Some(section.bounds().end()).filter(|end| *end != Extent::EOF)?;
    let top = end.checked_next_multiple_of(round)?;
    let turned = |section: &Section| {
        let levels: Vec<(u64, u64)> =
            section.levels().iter().map(|level| (level.stride(), level.count())).collect();
        Section::new(top.checked_sub(section.bounds().end())?, section.length(), &levels).ok()
    };
    let start = u64::from(stripe) * layout.stripe_bytes();
    let units = Section::new(start, layout.stripe_bytes(), &[(round, top / round)]).ok()?;
    let common = turned(section)?.first_common(&turned(&units)?)?;
    Some(top - 1 - common)
}

impl Region {
    /// The bytes of disjoint `sections` of a file, in any order, that lie on `stripe`, in the stripe's offsets, however irregular
    /// they are there; `None` if there are none. Where [`Region::on_stripe`] says them with one section, or with a few extents, it is that.
    ///
    /// # Errors
    /// Those of [`Region::from_sections`], as to the sections of the file; [`RegionError::TooHard`] too if a copy of the outermost level of one of them
    /// has more than 16,384 pieces.
    ///
    /// # Panics
    /// If the layout has no such stripe.
    pub fn of_stripe(
        sections: Vec<Section>,
        layout: &Layout,
        stripe: u32,
    ) -> Result<Option<Region>, RegionError> {
        let Some(file) = Region::of(sections) else { return Err(RegionError::Empty) };
        let sections: Vec<Section> = file.sections().collect();
        let easy = layout.stripe_count() == 1 || sections.iter().all(is_easy);
        if Region::are_disjoint(&sections)? && easy {
            Ok(Striped::region(layout, stripe, sections))
        } else {
            Err(RegionError::TooHard)
        }
    }

    /// As [`Region::of_stripe`], for sections that are said to be [`Region::sections`] of such a region, whose [`Region::stripe`] is
    /// this one: they are believed to be disjoint if that is too hard to see.
    ///
    /// # Errors
    /// Those of [`Region::of_stripe`]; [`RegionError::NotNormal`] if it is no such region, or has other sections.
    ///
    /// # Panics
    /// If the layout has no such stripe.
    pub fn of_stripe_in_normal_form(
        sections: Vec<Section>,
        layout: &Layout,
        stripe: u32,
    ) -> Result<Region, RegionError> {
        Region::are_disjoint(&sections)?;
        assert!(stripe < layout.stripe_count(), "a stripe of the layout");
        let units = stripe_units(layout, stripe);
        let mut effort = Effort::new(EFFORT_MAX);
        for section in &sections {
            let found =
                search(section.view(), units.view(), &mut effort).map_err(|_| RegionError::TooHard)?;
            if found.is_none() || !is_easy(section) {
                return Err(RegionError::NotNormal);
            }
        }
        let region = Striped::region(layout, stripe, sections.clone()).ok_or(RegionError::Empty)?;
        let same = region.stripe().is_some() && region.sections().eq(sections);
        if same { Ok(region) } else { Err(RegionError::NotNormal) }
    }

    /// The layout and the stripe of a region whose [`Region::sections`] are in the offsets of the file.
    #[must_use]
    pub fn stripe(&self) -> Option<(Layout, u32)> {
        self.as_striped().map(|striped| (striped.layout, striped.stripe))
    }

    /// The smallest extent of a file that holds the bytes `window` of a stripe, given in the stripe's offsets. What would lie behind the
    /// end of all files is left out; `None` if that is all.
    ///
    /// # Panics
    /// If the layout has no such stripe.
    #[must_use]
    pub fn window_in_file(layout: &Layout, stripe: u32, window: Extent) -> Option<Extent> {
        assert!(stripe < layout.stripe_count(), "a stripe of the layout");
        file_window(layout, stripe, window)
    }
}
