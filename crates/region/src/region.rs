//! The range of a lock or of a lock request: one extent, a list of extents, or sections.

use crate::common::{Effort, TooHard, search};
use crate::lists::{evenly_spaced, list_contains, lists_common};
use crate::pieces::{Pieces, StripePieces};
use crate::section::{RegionError, Section};
use crate::striped::Striped;
use crate::stripes::stripe_units;
use crate::{EFFORT_MAX, SECTIONS_MAX, STEPS_MAX};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ccpfs_types::{Extent, Layout};

/// A set of bytes, never empty: what a lock covers.
///
/// It is kept in the simplest form that says it: one extent; else, where no section has a level, a sorted list of extents of
/// which no two overlap or touch; else a sorted list of disjoint sections, at most [`SECTIONS_MAX`]. What lies on one stripe of a file and takes
/// more than one section there may be kept as sections of the file instead ([`Region::of_stripe`]). Equal regions hold the same
/// bytes; the converse is true as long as one section says them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Region(Form);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Form {
    Extent(Extent),
    List(Vec<Extent>),
    Sections(Vec<Section>),
    Striped(Box<Striped>),
}

impl Region {
    /// All bytes.
    pub const WHOLE: Region = Region(Form::Extent(Extent::WHOLE));

    /// The bytes of all `extents`, in any order, overlapping or not; `None` if there are none. Two and more extents of
    /// one length that lie equally far apart become a section.
    #[must_use]
    pub fn from_extents(mut extents: Vec<Extent>) -> Option<Region> {
        extents.sort_unstable();
        extents.dedup_by(|next, last| {
            let touch = next.start() <= last.end();
            if touch {
                *last = last.hull(*next);
            }
            touch
        });
        if let Some(section) = evenly_spaced(&extents) {
            return Some(section.into());
        }
        match extents[..] {
            [] => None,
            [extent] => Some(extent.into()),
            _ => Some(Region(Form::List(extents))),
        }
    }

    /// The bytes of all `sections`, in any order.
    ///
    /// # Errors
    /// [`RegionError::Empty`] if there are none; [`RegionError::Overlapping`] if two share a byte, or
    /// [`RegionError::TooHard`] if that is too hard to see (extents alone may overlap); [`RegionError::TooMany`] if more than [`SECTIONS_MAX`]
    /// are left after those that go on with each other were joined.
    pub fn from_sections(sections: Vec<Section>) -> Result<Region, RegionError> {
        let (region, disjoint) = Region::from_any(sections)?;
        if disjoint { Ok(region) } else { Err(RegionError::TooHard) }
    }

    /// As [`Region::from_sections`], for sections that are said to be those of a region: they are believed to be disjoint if that is too
    /// hard to see.
    ///
    /// # Errors
    /// Those of [`Region::from_sections`] but for [`RegionError::TooHard`]; [`RegionError::NotNormal`] if `sections` are not
    /// [`Region::sections`] of the region.
    pub fn from_normal_form(sections: Vec<Section>) -> Result<Region, RegionError> {
        if sections.len() > SECTIONS_MAX {
            return Err(RegionError::TooMany);
        }
        let (region, _) = Region::from_any(sections.clone())?;
        if region.sections().eq(sections) { Ok(region) } else { Err(RegionError::NotNormal) }
    }

    /// The region, and whether its sections are disjoint for sure.
    fn from_any(sections: Vec<Section>) -> Result<(Region, bool), RegionError> {
        let region = Region::of(sections).ok_or(RegionError::Empty)?;
        let Form::Sections(sections) = &region.0 else { return Ok((region, true)) };
        let disjoint = Region::are_disjoint(sections)?;
        Ok((region, disjoint))
    }

    /// Whether sections are disjoint for sure: `false` if that is too hard to see.
    pub(crate) fn are_disjoint(sections: &[Section]) -> Result<bool, RegionError> {
        if sections.len() > SECTIONS_MAX {
            return Err(RegionError::TooMany);
        }
        let mut effort = Effort::new(EFFORT_MAX);
        for (at, section) in sections.iter().enumerate() {
            for other in &sections[..at] {
                match search(section.view(), other.view(), &mut effort) {
                    Ok(None) => {}
                    Ok(Some(_)) => return Err(RegionError::Overlapping),
                    Err(TooHard) => return Ok(false),
                }
            }
        }
        Ok(true)
    }

    /// The bytes `local` of `stripe`, given in the stripe's offsets, in the offsets of the file: at most three sections. An end
    /// at [`Extent::EOF`] stays there, and what would lie at or beyond it in the file is left out; `None` if that is all.
    ///
    /// # Panics
    /// If the layout has no such stripe.
    #[must_use]
    pub fn from_stripe(layout: &Layout, stripe: u32, local: Extent) -> Option<Region> {
        let in_file = |bytes: u64| {
            let round = (bytes / layout.stripe_bytes()).checked_mul(u64::from(layout.stripe_count()))?;
            let unit = round.checked_add(u64::from(stripe))?;
            unit.checked_mul(layout.stripe_bytes())?.checked_add(bytes % layout.stripe_bytes())
        };
        let end = in_file(local.end() - 1).map_or(Extent::EOF, |last| last.saturating_add(1));
        let window = Extent::new(in_file(local.start())?, end)?;
        Region::of(stripe_units(layout, stripe).in_extent(window))
    }

    /// The region of sections that are disjoint, or all extents; `None` if there are none.
    pub(crate) fn of(mut sections: Vec<Section>) -> Option<Region> {
        Region::join(&mut sections);
        if sections.iter().all(|section| section.levels().is_empty()) {
            return Region::from_extents(sections.iter().filter_map(Section::as_extent).collect());
        }
        match sections[..] {
            [section] => Some(section.into()),
            _ => Some(Region(Form::Sections(sections))),
        }
    }

    pub(crate) fn from_striped(striped: Striped) -> Region {
        Region(Form::Striped(Box::new(striped)))
    }

    pub(crate) fn as_striped(&self) -> Option<&Striped> {
        match &self.0 {
            Form::Striped(striped) => Some(striped),
            Form::Extent(_) | Form::List(_) | Form::Sections(_) => None,
        }
    }

    /// Sorts sections and joins those that go on with each other.
    pub(crate) fn join(sections: &mut Vec<Section>) {
        sections.sort_unstable();
        loop {
            let before = sections.len();
            sections.dedup_by(|next, last| match last.joined(next) {
                Some(joined) => {
                    *last = joined;
                    true
                }
                None => false,
            });
            if sections.len() == before {
                break;
            }
        }
    }

    /// The extent, if the region is one.
    #[must_use]
    #[inline]
    pub fn as_extent(&self) -> Option<Extent> {
        match &self.0 {
            Form::Extent(extent) => Some(*extent),
            Form::List(_) | Form::Sections(_) | Form::Striped(_) => None,
        }
    }

    /// The sections that the region consists of, sorted by offset; extents are sections with no level. Those of a region of a stripe
    /// ([`Region::stripe`]) are in the offsets of the file, and only what of them lies on the stripe counts.
    pub fn sections(&self) -> impl Iterator<Item = Section> + '_ {
        let (extents, sections): (&[Extent], &[Section]) = match &self.0 {
            Form::Extent(extent) => (core::slice::from_ref(extent), &[]),
            Form::List(extents) => (extents, &[]),
            Form::Sections(sections) => (&[], sections),
            Form::Striped(striped) => (&[], striped.sections()),
        };
        extents.iter().copied().map(Section::from_extent).chain(sections.iter().copied())
    }

    /// The smallest extent that holds the region; if a section is unbounded it reaches to [`Extent::EOF`].
    #[must_use]
    #[inline]
    pub fn bounds(&self) -> Extent {
        match &self.0 {
            Form::Extent(extent) => *extent,
            Form::Striped(striped) => striped.bounds(),
            Form::List(_) | Form::Sections(_) => self.bounds_of_many(),
        }
    }

    fn bounds_of_many(&self) -> Extent {
        match &self.0 {
            Form::Extent(extent) => *extent,
            Form::Striped(striped) => striped.bounds(),
            Form::List(extents) => extents[0].hull(extents[extents.len() - 1]),
            Form::Sections(sections) => {
                sections.iter().map(Section::bounds).reduce(Extent::hull).expect("a region has a section")
            }
        }
    }

    /// Whether the region holds the byte at `offset`.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.piece_from(offset).is_some_and(|piece| piece.start() == offset)
    }

    /// Whether every byte of `other` lies in the region, as far as [`STEPS_MAX`] steps show; a region holds itself.
    ///
    /// A `true` is never wrong. See [`Region::contains_region_within`] for a `false`.
    #[must_use]
    #[inline]
    pub fn contains_region(&self, other: &Region) -> bool {
        match &self.0 {
            Form::Extent(extent) => extent.contains(other.bounds()),
            Form::Striped(striped) if other.as_extent().is_some_and(|extent| striped.has_at_once(extent)) => {
                true
            }
            Form::List(_) | Form::Sections(_) | Form::Striped(_) => {
                self.contains_region_within(other, STEPS_MAX).unwrap_or(false)
            }
        }
    }

    /// Whether every byte of `other` lies in the region, in at most `steps_max` steps: those of a question for the first common byte
    /// for each level of the section that may hold one of `other`; of an extent, one for each section and each piece that makes it up.
    ///
    /// Exact if the region is an extent, a list, or one section, of the file or of its stripe. If it has several, a `false` may be wrong where only
    /// some of them together hold a section of `other`; an extent of `other` is found even so.
    ///
    /// # Errors
    /// [`TooHard`] if the steps did not suffice.
    pub fn contains_region_within(&self, other: &Region, steps_max: u64) -> Result<bool, TooHard> {
        if !self.bounds().contains(other.bounds()) {
            return Ok(false);
        }
        if self == other {
            return Ok(true);
        }
        let mut effort = Effort::new(steps_max);
        if let Form::Extent(_) = &self.0 {
            return Ok(true);
        }
        if self.as_striped().is_some() || other.as_striped().is_some() {
            return self.holds_by_stripe(other, &mut effort);
        }
        for section in other.sections() {
            if !self.contains_section(&section, &mut effort)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn contains_section(&self, section: &Section, effort: &mut Effort) -> Result<bool, TooHard> {
        let own = match &self.0 {
            Form::Extent(extent) => return Ok(extent.contains(section.bounds())),
            Form::List(extents) => return Ok(list_contains(extents, section)),
            Form::Sections(own) => own,
            Form::Striped(_) => return self.holds_by_stripe(&(*section).into(), effort),
        };
        if own.binary_search(section).is_ok() {
            return Ok(true);
        }
        // They are disjoint: hardly ever more than one holds its first byte.
        for own in own.iter().filter(|own| own.contains(section.offset())) {
            if own.contains_section_within(section, effort)? {
                return Ok(true);
            }
        }
        match section.as_extent() {
            Some(extent) if own.len() > 1 => self.covers(extent, effort),
            Some(_) | None => Ok(false),
        }
    }

    /// Whether the next pieces touch each other and make up `extent`.
    pub(crate) fn covers(&self, extent: Extent, effort: &mut Effort) -> Result<bool, TooHard> {
        let mut at = extent.start();
        for piece in self.pieces_from(at) {
            for _ in self.sections() {
                effort.spend()?;
            }
            if piece.start() > at || piece.end() >= extent.end() {
                return Ok(piece.start() == at);
            }
            at = piece.end();
        }
        Ok(false)
    }

    /// Whether the two share a byte, exactly. Cost: see [`Region::first_common_within`].
    #[must_use]
    pub fn overlaps(&self, other: &Region) -> bool {
        self.first_common(other).is_some()
    }

    /// The first byte that both hold, exactly, however long it takes.
    #[must_use]
    pub fn first_common(&self, other: &Region) -> Option<u64> {
        self.first_common_within(other, u64::MAX).expect("nobody lives to see so many steps")
    }

    /// The first byte that both hold, in at most `steps_max` steps (see the crate's module `common`): of two regions with
    /// sections, the steps of each pair of them; of a list and sections, at most one for each extent of the list; of two
    /// lists, at most two for each extent of the shorter; of regions of a stripe, those of three sections for each pair of them (`meet`).
    ///
    /// # Errors
    /// [`TooHard`] if the steps did not suffice.
    pub fn first_common_within(&self, other: &Region, steps_max: u64) -> Result<Option<u64>, TooHard> {
        self.first_common_with(other, &mut Effort::new(steps_max))
    }

    pub(crate) fn first_common_with(
        &self,
        other: &Region,
        effort: &mut Effort,
    ) -> Result<Option<u64>, TooHard> {
        if !self.bounds().overlaps(other.bounds()) {
            return Ok(None);
        }
        match (&self.0, &other.0) {
            (Form::Striped(own), _) => own.first_common(self, other, effort),
            (_, Form::Striped(others)) => others.first_common(other, self, effort),
            (Form::Sections(own), Form::Sections(others)) => sections_common(own, others, effort),
            (Form::List(own), Form::List(others)) => lists_common(own, others, effort),
            (Form::Extent(_) | Form::List(_), _) | (Form::Sections(_), Form::Extent(_) | Form::List(_)) => {
                leapfrog(self, other, effort)
            }
        }
    }

    /// The bytes of the region in `window`; `None` if there are none.
    ///
    /// Of a section come at most two sections for each level and one. The result may have more than [`SECTIONS_MAX`] sections.
    #[must_use]
    pub fn in_extent(&self, window: Extent) -> Option<Region> {
        if let Form::Striped(striped) = &self.0 {
            let window = striped.window(window)?;
            return striped.parts(|section| section.in_extent(window));
        }
        self.parts(|section| section.in_extent(window))
    }

    /// The bytes of the region that are not in `taken`; `None` if there are none. What a holder keeps when a part of
    /// its lock is revoked; symbolic as [`Region::in_extent`].
    #[must_use]
    pub fn without(&self, taken: Extent) -> Option<Region> {
        if let Form::Striped(striped) = &self.0 {
            let Some(taken) = striped.window(taken) else { return Some(self.clone()) };
            return striped.parts(|section| section.without(taken));
        }
        self.parts(|section| section.without(taken))
    }

    fn parts(&self, part: impl Fn(Section) -> Vec<Section>) -> Option<Region> {
        Region::of(self.sections().flat_map(part).collect())
    }

    /// The bytes of the region on `stripe`, in the stripe's offsets, as at most `sections_max` sections; `None` if there
    /// are none.
    ///
    /// # Errors
    /// [`RegionError::TooMany`] or [`RegionError::TooDeep`] if it takes more sections, or more levels (what is kept as sections of a file
    /// already takes too many); then [`Region::stripe_pieces`] lists the pieces.
    ///
    /// # Panics
    /// If the layout has no such stripe.
    pub fn on_stripe(
        &self,
        layout: &Layout,
        stripe: u32,
        sections_max: usize,
    ) -> Result<Option<Region>, RegionError> {
        if self.as_striped().is_some() {
            return Err(RegionError::TooMany);
        }
        let mut found = Vec::new();
        for section in self.sections() {
            found.extend(section.on_stripe(layout, stripe, sections_max)?);
        }
        let region = Region::of(found);
        let sections = region.as_ref().map_or(0, |region| region.sections().count());
        if sections > sections_max { Err(RegionError::TooMany) } else { Ok(region) }
    }

    /// The pieces of the region on `stripe`, in the stripe's offsets and order.
    #[must_use]
    pub fn stripe_pieces(&self, layout: &Layout, stripe: u32) -> StripePieces<'_> {
        StripePieces::new(self, layout, stripe)
    }

    /// The first piece that ends after `offset`, without what lies before `offset`.
    #[must_use]
    pub fn piece_from(&self, offset: u64) -> Option<Extent> {
        match &self.0 {
            Form::Extent(extent) => Extent::new(extent.start().max(offset), extent.end()),
            Form::List(extents) => {
                let at = extents.partition_point(|extent| extent.end() <= offset);
                extents.get(at).and_then(|extent| Extent::new(extent.start().max(offset), extent.end()))
            }
            Form::Sections(sections) => {
                sections.iter().filter_map(|section| section.piece_from(offset)).min()
            }
            Form::Striped(striped) => striped.piece_from(offset),
        }
    }

    /// All pieces, in the order of their offsets.
    #[must_use]
    pub fn pieces(&self) -> Pieces<'_> {
        self.pieces_from(0)
    }

    /// The pieces from `offset` on; the first without what lies before `offset`.
    #[must_use]
    pub fn pieces_from(&self, offset: u64) -> Pieces<'_> {
        Pieces::new(self, offset)
    }
}

/// The first byte of both, by asking each pair of sections.
fn sections_common(a: &[Section], b: &[Section], effort: &mut Effort) -> Result<Option<u64>, TooHard> {
    let mut found: Option<u64> = None;
    for section in a {
        for other in b {
            // Whatever begins behind the byte that was found cannot hold an earlier one.
            let late = found.is_some_and(|found| found <= section.offset().max(other.offset()));
            if late || !section.bounds().overlaps(other.bounds()) {
                continue;
            }
            if let Some(byte) = search(section.view(), other.view(), effort)? {
                found = Some(found.map_or(byte, |found| found.min(byte)));
            }
        }
    }
    Ok(found)
}

/// The first byte of both: each is asked in turn for its first piece from where the other has one.
pub(crate) fn leapfrog(a: &Region, b: &Region, effort: &mut Effort) -> Result<Option<u64>, TooHard> {
    let mut at = 0;
    loop {
        effort.spend()?;
        let Some(piece) = a.piece_from(at) else { return Ok(None) };
        let Some(other) = b.piece_from(piece.start()) else { return Ok(None) };
        if other.start() < piece.end() {
            return Ok(Some(other.start()));
        }
        at = other.start();
    }
}

impl From<Extent> for Region {
    #[inline]
    fn from(extent: Extent) -> Region {
        Region(Form::Extent(extent))
    }
}

impl From<Section> for Region {
    fn from(section: Section) -> Region {
        match section.as_extent() {
            Some(extent) => extent.into(),
            None => Region(Form::Sections(Vec::from([section]))),
        }
    }
}
