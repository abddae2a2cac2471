//! A run of copies somewhere inside a section: what the algorithms descend through.

use crate::section::{Level, RegionError, Section};
use crate::{DEPTH_MAX, UNBOUNDED};
use ccpfs_types::Extent;
use core::ops::Range;

/// `count` copies of what is inside the last of `levels`, the first at `base`. No level: one piece.
///
/// The count is a number of copies that start below [`Extent::EOF`]; ends saturate there, which cuts the last copy of an
/// unbounded section exactly where the section is cut.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    levels: &'a [Level],
    base: u64,
    length: u64,
    count: u64,
}

impl<'a> View<'a> {
    pub(crate) fn new(levels: &'a [Level], base: u64, length: u64, count: u64) -> View<'a> {
        debug_assert!(count > 0 && base < Extent::EOF, "copies start below the end of all files");
        View { levels, base, length, count }
    }

    /// Where the first copy starts.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Number of copies.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The levels, innermost first.
    pub(crate) fn levels(&self) -> &'a [Level] {
        self.levels
    }

    /// Bytes of one piece.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Number of levels.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The level whose copies are counted.
    pub(crate) fn outer(&self) -> Option<&'a Level> {
        self.levels.last()
    }

    /// Where copy `index` starts.
    pub(crate) fn copy_base(&self, index: u64) -> u64 {
        debug_assert!(index < self.count, "a copy of the view");
        self.base + index * self.outer().map_or(0, Level::stride)
    }

    /// From the first byte to the end of the last copy.
    pub(crate) fn extent(&self) -> Extent {
        let span = self.outer().map_or(self.length, Level::span);
        let end = self.copy_base(self.count - 1).saturating_add(span);
        Extent::new(self.base, end).expect("a view holds a byte")
    }

    /// Copy `index` of the outer level.
    pub(crate) fn copy(&self, index: u64) -> View<'a> {
        let Some((outer, inner)) = self.levels.split_last() else { return *self };
        let base = self.copy_base(index);
        let count = match inner.last() {
            None => 1,
            Some(level) if base.checked_add(outer.span()).is_some() => level.count(),
            Some(level) => level.count().min((Extent::EOF - 1 - base) / level.stride() + 1),
        };
        View { levels: inner, base, length: self.length, count }
    }

    /// The copies in `range`.
    pub(crate) fn copies(&self, range: Range<u64>) -> View<'a> {
        debug_assert!(range.start < range.end && range.end <= self.count, "some copies of the view");
        View { base: self.copy_base(range.start), count: range.end - range.start, ..*self }
    }

    /// Which copies, as hulls, have a byte in `window`.
    pub(crate) fn touching(&self, window: Extent) -> Range<u64> {
        let Some(outer) = self.outer() else {
            return 0..u64::from(self.extent().overlaps(window));
        };
        let end = match window.end().checked_sub(self.base) {
            None | Some(0) => 0,
            Some(bytes) => self.count.min((bytes - 1) / outer.stride() + 1),
        };
        // Copy i ends after the start of the window if i * stride > start - (base + span).
        let start = match self.base.checked_add(outer.span()).and_then(|end| window.start().checked_sub(end))
        {
            None => 0,
            Some(bytes) => bytes / outer.stride() + 1,
        };
        start..end
    }

    /// The view without copies that have nothing in `window`, and without levels of which one copy is left. Its bytes in
    /// `window` are the same; `None` if there are none for sure.
    pub(crate) fn narrowed(&self, window: Extent) -> Option<View<'a>> {
        let mut view = *self;
        loop {
            let range = view.touching(window);
            if range.is_empty() {
                return None;
            }
            view = view.copies(range);
            if view.count > 1 || view.levels.is_empty() {
                return Some(view);
            }
            view = view.copy(0);
        }
    }

    /// The first piece that ends after `offset`, without what lies before `offset`.
    pub(crate) fn piece_from(&self, offset: u64) -> Option<Extent> {
        let mut view = *self;
        while offset > view.base {
            let Some(outer) = view.outer() else {
                return Extent::new(offset, view.extent().end());
            };
            let index = ((offset - view.base) / outer.stride()).min(view.count - 1);
            if offset < view.copy_base(index).saturating_add(outer.span()) {
                view = view.copy(index);
            } else if index + 1 < view.count {
                view.base = view.copy_base(index + 1);
            } else {
                return None;
            }
        }
        Extent::new(view.base, view.base.saturating_add(view.length))
    }

    /// How many bytes lie before `offset`.
    pub(crate) fn bytes_before(&self, offset: u64) -> u64 {
        self.before(offset, self.length, |bytes| bytes.min(self.length))
    }

    /// How many pieces start before `offset`.
    pub(crate) fn pieces_before(&self, offset: u64) -> u64 {
        self.before(offset, 1, |_| 1)
    }

    /// The sum over all pieces that start before `offset`: of `whole` for those in copies that end before it, else of
    /// `part` of the bytes from the start of the piece to `offset`.
    fn before(&self, offset: u64, whole: u64, part: impl Fn(u64) -> u64) -> u64 {
        let mut view = *self;
        let mut sum = 0;
        while offset > view.base {
            let Some((outer, inner)) = view.levels.split_last() else {
                return sum + part(offset - view.base);
            };
            let index = (offset - view.base) / outer.stride();
            let each = inner.iter().fold(whole, |product, level| product * level.count());
            sum += index.min(view.count) * each;
            if index >= view.count {
                return sum;
            }
            view = view.copy(index);
        }
        sum
    }

    /// The number of pieces of one copy.
    pub(crate) fn pieces_of_copy(&self) -> u64 {
        let inner = self.levels.split_last().map_or(&[][..], |(_, inner)| inner);
        inner.iter().fold(1, |product, level| product * level.count())
    }

    /// Whether the next copy would start at or beyond the end of all files, so that the copies may count as unbounded.
    pub(crate) fn goes_on(&self) -> bool {
        let Some(outer) = self.outer() else { return false };
        let next = outer.stride().checked_mul(self.count).and_then(|bytes| self.base.checked_add(bytes));
        next.is_none_or(|next| next == Extent::EOF)
    }

    /// The bytes of the view as a section, moved to `offset`, with `around` more levels around it.
    pub(crate) fn section_at(&self, offset: u64, around: &[(u64, u64)]) -> Result<Section, RegionError> {
        if self.count == 1 && !self.levels.is_empty() {
            // Of one copy that is cut at the end of all files, that is said by a level inside.
            return self.copy(0).section_at(offset, around);
        }
        // One more than fits, so that it is the section that refuses.
        let mut levels = [(0, 1); 2 * DEPTH_MAX + 2];
        let (inside, outside) = levels.split_at_mut(self.levels.len());
        for (pair, level) in inside.iter_mut().zip(self.levels) {
            *pair = (level.stride(), level.count());
        }
        if let Some(outermost) = inside.last_mut() {
            outermost.1 = if self.goes_on() { UNBOUNDED } else { self.count };
        }
        outside[..around.len()].copy_from_slice(around);
        Section::new(offset, self.length.min(Extent::EOF - self.base), &levels)
    }
}
