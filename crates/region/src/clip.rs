//! Parts of one section: what lies in an extent, what lies outside of it, and the gaps.

use crate::common::{Effort, TooHard, search};
use crate::section::Section;
use crate::view::View;
use crate::{DEPTH_MAX, UNBOUNDED};
use alloc::vec::Vec;
use ccpfs_types::Extent;

impl Section {
    /// The bytes of the section in `window`, as sections in the order of their offsets, none of which begins before the
    /// one in front of it has ended.
    ///
    /// At most two for each level and one: the copies that lie wholly in the window stay together, and only
    /// those at its two ends are taken apart. Cost: the same number of divisions.
    #[must_use]
    pub fn in_extent(&self, window: Extent) -> Vec<Section> {
        let mut parts = Vec::new();
        keep(self.view(), window, &mut parts);
        parts
    }

    /// The bytes of the section that are not in `taken`: what a holder keeps when this part of its lock is revoked.
    ///
    /// As many sections as [`Section::in_extent`] makes, at both sides of `taken`, and in the same order.
    #[must_use]
    pub fn without(&self, taken: Extent) -> Vec<Section> {
        let mut parts = Vec::new();
        if let Some(before) = Extent::new(0, taken.start()) {
            keep(self.view(), before, &mut parts);
        }
        if let Some(after) = Extent::new(taken.end(), Extent::EOF) {
            keep(self.view(), after, &mut parts);
        }
        parts
    }

    /// Whether every byte of `other` is in the section, exactly.
    ///
    /// It is, if `other` lies within the bounds and overlaps none of the gaps. Cost: of an extent two divisions for each level;
    /// else that of as many questions for the first common byte as the section has levels.
    #[must_use]
    pub fn contains_section(&self, other: &Section) -> bool {
        let contains = self.contains_section_within(other, &mut Effort::new(u64::MAX));
        contains.expect("nobody lives to see so many steps")
    }

    /// As [`Section::contains_section`], with as much effort as is left.
    pub(crate) fn contains_section_within(
        &self,
        other: &Section,
        effort: &mut Effort,
    ) -> Result<bool, TooHard> {
        if let Some(extent) = other.as_extent() {
            return Ok(self.covers(extent));
        }
        if !self.bounds().contains(other.bounds()) {
            return Ok(false);
        }
        for gap in self.gaps() {
            if search(gap.view(), other.view(), effort)?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether one piece, or two that touch, hold the extent. Three never touch: behind the first piece of a copy is a gap.
    fn covers(&self, extent: Extent) -> bool {
        let piece = |offset| self.piece_from(offset).filter(|piece| piece.start() == offset);
        let reaches = |piece: Extent| piece.end() >= extent.end();
        piece(extent.start()).is_some_and(|first| reaches(first) || piece(first.end()).is_some_and(reaches))
    }

    /// What lies between the pieces, one section for each level whose copies do not touch: after each copy but the last
    /// (of an unbounded level: after each).
    pub fn gaps(&self) -> impl Iterator<Item = Section> + '_ {
        let levels = self.levels();
        (0..levels.len()).filter_map(move |at| {
            let level = &levels[at];
            let length = level.stride() - level.span();
            let offset = self.offset().checked_add(level.span())?;
            if length == 0 || offset == Extent::EOF {
                return None;
            }
            let mut around = [(0, 1); DEPTH_MAX];
            for (pair, level) in around.iter_mut().zip(&levels[at..]) {
                *pair = (level.stride(), level.count());
            }
            if around[0].1 != UNBOUNDED {
                around[0].1 -= 1;
            }
            let gap = Section::new(offset, length.min(Extent::EOF - offset), &around);
            Some(gap.expect("gaps nest as the copies between which they lie"))
        })
    }
}

/// Adds the bytes of `view` in `window` to `parts`.
pub(crate) fn keep(view: View<'_>, window: Extent, parts: &mut Vec<Section>) {
    let touching = view.touching(window);
    if touching.is_empty() {
        return;
    }
    if view.depth() == 0 {
        let piece = view.extent().intersection(window).expect("it touches");
        parts.push(Section::from_extent(piece));
        return;
    }
    // Only the first and the last copy can reach out of the window.
    let (mut first, mut end) = (touching.start, touching.end);
    let inside = |index| window.contains(view.copy(index).extent());
    if !inside(first) {
        keep(view.copy(first), window, parts);
        first += 1;
    }
    let cut_at_end = first < end && !inside(end - 1);
    if cut_at_end {
        end -= 1;
    }
    if first < end {
        let middle = view.copies(first..end);
        parts.push(middle.section_at(middle.base(), &[]).expect("some copies of a section are a section"));
    }
    if cut_at_end {
        keep(view.copy(end), window, parts);
    }
}
