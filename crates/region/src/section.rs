//! Nested strided sections in normal form: the pieces of an array that one process writes, in a few numbers.
//!
//! *What*: [`Section`], its normal form, and the questions that one section answers alone.
//! *Invariants*: see [`Section`].
//! *Not here*: questions about two sections (`common`), parts of one (`clip`, `stripes`).

use crate::view::View;
use crate::{DEPTH_MAX, UNBOUNDED};
use ccpfs_types::Extent;
use core::fmt;

/// Why something is not a section or a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RegionError {
    /// It would hold no byte: a length, a count or a list is zero or empty.
    Empty,
    /// A byte would lie at or beyond [`Extent::EOF`] although no count is unbounded.
    Overflow,
    /// Pieces overlap, or lie between each other in a way that no order of the levels nests.
    Overlapping,
    /// More than [`DEPTH_MAX`] levels are left in normal form.
    TooDeep,
    /// More than [`SECTIONS_MAX`](crate::SECTIONS_MAX) sections, or more parts of a datatype than
    /// [`PARTS_MAX`](crate::PARTS_MAX).
    TooMany,
    /// It would take more than [`EFFORT_MAX`](crate::EFFORT_MAX) steps to find out whether the pieces overlap.
    TooHard,
    /// It is not in the form that a region has.
    NotNormal,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RegionError::Empty => "a region holds at least one byte",
            RegionError::Overflow => "a region ends at the end of all files",
            RegionError::Overlapping => "the pieces of a region do not overlap and its levels nest",
            RegionError::TooDeep => "a section has too many levels",
            RegionError::TooMany => "a region has too many sections",
            RegionError::TooHard => "it is too hard to see whether the pieces of a region overlap",
            RegionError::NotNormal => "the sections of a region are not in normal form",
        })
    }
}

impl core::error::Error for RegionError {}

/// One level of a section: `count` copies of what the levels inside of it select, `stride` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level {
    stride: u64,
    count: u64,
    /// From the first byte of a copy to one past its last: follows from the levels inside.
    span: u64,
}

impl Level {
    /// What stands behind the last level.
    const NONE: Level = Level { stride: 0, count: 0, span: 0 };

    pub(crate) const fn new(stride: u64, count: u64, span: u64) -> Level {
        Level { stride, count, span }
    }

    /// Bytes from the start of a copy to the start of the next.
    #[must_use]
    pub const fn stride(&self) -> u64 {
        self.stride
    }

    /// Number of copies, at least 2; [`UNBOUNDED`] for as many as start before the end of all files.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes from the start of a copy to its end, at most the stride.
    #[must_use]
    pub const fn span(&self) -> u64 {
        self.span
    }
}

/// A nested strided section: the bytes `offset + k1 * stride1 + … + kd * strided + b` with `0 <= ki < counti` and
/// `0 <= b < length`, as far as they lie below [`Extent::EOF`].
///
/// A section with no levels is an extent. Invariants:
///
/// 1. The copies of a level follow each other without overlap: `stride >= span`, where the span of a level is that of
///    what it repeats. So pieces are disjoint and rise with `(kd, …, k1)` in lexicographic order.
/// 2. Every level has at least two copies.
/// 3. The innermost stride is greater than `length`; no stride is the product of the stride and the count inside of it.
///    Otherwise two levels, or a level and its pieces, are one.
/// 4. Only the outermost count may be [`UNBOUNDED`], and it is exactly if the next copy would start at or beyond
///    [`Extent::EOF`]. The last copy of such a level is cut there. Of any other section every byte is below it.
///
/// *Lemma:* sections of the same bytes are equal, so that `==` compares sets. A section can be read off its bytes: the first gap
/// gives `length`, and so the starts of all pieces; the second start gives the innermost stride, the first
/// multiple of it that is no start gives the count (it cannot be that of a later copy, by 1 and 3), the next start gives the
/// next stride, and so on. (Of an unbounded level too few copies may be left before the end of all files to
/// tell its stride; such sections may differ.)
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Section {
    offset: u64,
    length: u64,
    depth: u8,
    levels: [Level; DEPTH_MAX],
}

impl Section {
    /// The section of pieces of `length` bytes, the first at `offset`, repeated by `levels` of (stride in bytes, count),
    /// in any order. A count of [`UNBOUNDED`] goes on to the end of all files.
    ///
    /// # Errors
    /// [`RegionError::Empty`] for a length or a count of zero, [`RegionError::Overlapping`] if the levels do not nest
    /// in the order of their strides, [`RegionError::Overflow`] if a byte (of an unbounded level: of its first copy) lies
    /// beyond the end of all files, [`RegionError::TooDeep`].
    pub fn new(offset: u64, length: u64, levels: &[(u64, u64)]) -> Result<Section, RegionError> {
        if length == 0 || levels.iter().any(|(_, count)| *count == 0) {
            return Err(RegionError::Empty);
        }
        if offset.checked_add(length).is_none() {
            return Err(RegionError::Overflow);
        }
        let twice = |(at, level): (usize, &(u64, u64))| level.1 != 1 && levels[..at].contains(level);
        if levels.iter().enumerate().any(twice) {
            return Err(RegionError::Overlapping);
        }
        let mut section = Section { offset, length, depth: 0, levels: [Level::NONE; DEPTH_MAX] };
        // By selection, as there is nowhere to sort them in: lists of levels are short.
        let mut below = None;
        while let Some(next) = next_level(levels, below) {
            section.repeat(next)?;
            below = Some(next);
        }
        section.settle_end();
        Ok(section)
    }

    /// The section that is one extent.
    #[must_use]
    pub const fn from_extent(extent: Extent) -> Section {
        Section {
            offset: extent.start(),
            length: extent.length(),
            depth: 0,
            levels: [Level::NONE; DEPTH_MAX],
        }
    }

    /// Puts a level around the section; strides arrive in rising order.
    fn repeat(&mut self, (stride, count): (u64, u64)) -> Result<(), RegionError> {
        let span = self.span();
        if self.outer().is_some_and(|outer| outer.count == UNBOUNDED) || stride < span {
            return Err(RegionError::Overlapping);
        }
        let copies = if count == UNBOUNDED { self.copies_to_eof(stride) } else { count };
        if copies == 1 {
            return Ok(());
        }
        let last = stride.checked_mul(copies - 1).and_then(|bytes| self.offset.checked_add(bytes));
        let end = last.and_then(|last| last.checked_add(span));
        if count != UNBOUNDED && end.is_none() {
            return Err(RegionError::Overflow);
        }
        if self.depth == 0 && stride == self.length {
            self.length = end.unwrap_or(Extent::EOF) - self.offset;
            return Ok(());
        }
        if let Some(inner) = self.outer()
            && inner.stride.checked_mul(inner.count) == Some(stride)
        {
            let joined = if count == UNBOUNDED { Some(UNBOUNDED) } else { inner.count.checked_mul(count) };
            let depth = usize::from(self.depth) - 1;
            self.levels[depth].count = joined.ok_or(RegionError::Overflow)?;
            return Ok(());
        }
        let place = self.levels.get_mut(usize::from(self.depth)).ok_or(RegionError::TooDeep)?;
        *place = Level { stride, count, span };
        self.depth += 1;
        Ok(())
    }

    /// How many copies, `stride` bytes apart, start below the end of all files.
    fn copies_to_eof(&self, stride: u64) -> u64 {
        (Extent::EOF - 1 - self.offset) / stride + 1
    }

    /// Gives the outermost level the count that says whether it could go on (invariant 4).
    fn settle_end(&mut self) {
        let Some(outer) = self.outer() else { return };
        let next = outer.stride.checked_mul(outer.count).and_then(|bytes| self.offset.checked_add(bytes));
        if next.is_none_or(|next| next == Extent::EOF) {
            self.levels[usize::from(self.depth) - 1].count = UNBOUNDED;
        }
    }

    /// From the first byte to one past the last, without regard to the end of all files; of an unbounded section: all.
    fn span(&self) -> u64 {
        match self.outer() {
            None => self.length,
            Some(outer) if outer.count == UNBOUNDED => u64::MAX,
            Some(outer) => (outer.count - 1) * outer.stride + outer.span,
        }
    }

    fn outer(&self) -> Option<&Level> {
        self.levels().last()
    }

    pub(crate) fn view(&self) -> View<'_> {
        let count = self.outer().map_or(1, |outer| outer.count.min(self.copies_to_eof(outer.stride)));
        View::new(self.levels(), self.offset, self.length, count)
    }

    /// The first byte.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of one piece (of an extent to the end of file: a very large number).
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// The levels, innermost first.
    #[must_use]
    pub fn levels(&self) -> &[Level] {
        &self.levels[..usize::from(self.depth)]
    }

    /// The section as an extent, if it is one.
    #[must_use]
    pub fn as_extent(&self) -> Option<Extent> {
        if self.depth > 0 {
            return None;
        }
        Extent::with_length(self.offset, self.length)
    }

    /// The smallest extent that holds the section; of an unbounded one it reaches to [`Extent::EOF`].
    #[must_use]
    pub fn bounds(&self) -> Extent {
        let end = self.offset.saturating_add(self.span());
        Extent::new(self.offset, end).expect("a section has a length")
    }

    /// Whether the section holds the byte at `offset`. Cost: one division for each level.
    #[must_use]
    pub fn contains(&self, offset: u64) -> bool {
        self.piece_from(offset).is_some_and(|piece| piece.start() == offset)
    }

    /// The first piece that ends after `offset`, without what lies before `offset`. Cost: one division for each level.
    #[must_use]
    pub fn piece_from(&self, offset: u64) -> Option<Extent> {
        self.view().piece_from(offset)
    }

    /// How many bytes of the section lie before `offset`. Cost: one division for each level.
    #[must_use]
    pub fn bytes_before(&self, offset: u64) -> u64 {
        self.view().bytes_before(offset)
    }

    /// How many bytes the section holds.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.bytes_before(Extent::EOF)
    }

    /// How many pieces the section has. Pieces of neighbouring copies that touch count as two.
    #[must_use]
    pub fn piece_count(&self) -> u64 {
        self.view().pieces_before(Extent::EOF)
    }

    /// The section and `next` as one, if `next` begins after it and goes on with the same pattern or lies beside it in
    /// every copy.
    #[must_use]
    pub fn joined(&self, next: &Section) -> Option<Section> {
        self.continued(next).or_else(|| self.widened(next))
    }

    /// The outermost level goes on with the copies of `next`.
    fn continued(&self, next: &Section) -> Option<Section> {
        let outer = self.outer()?;
        let inside = usize::from(self.depth) - 1;
        let follows = outer.count != UNBOUNDED
            && next.offset.checked_sub(self.offset) == outer.stride.checked_mul(outer.count)
            && next.length == self.length;
        if !follows || self.levels[..inside] != next.levels[..inside.min(usize::from(next.depth))] {
            return None;
        }
        let more = match next.levels()[inside..] {
            [] => 1,
            [level] if level.stride == outer.stride => level.count,
            _ => return None,
        };
        let mut joined = *self;
        joined.levels[inside].count = if more == UNBOUNDED { more } else { outer.count + more };
        joined.settle_end();
        Some(joined)
    }

    /// Every piece ends where one of `next` begins.
    fn widened(&self, next: &Section) -> Option<Section> {
        let same = |a: &Level, b: &Level| a.stride == b.stride && a.count == b.count;
        let beside = self.depth == next.depth
            && next.offset.checked_sub(self.offset) == Some(self.length)
            && self.levels().iter().zip(next.levels()).all(|(a, b)| same(a, b));
        if !beside {
            return None;
        }
        let mut levels = [(0, 0); DEPTH_MAX];
        for (pair, level) in levels.iter_mut().zip(self.levels()) {
            *pair = (level.stride, level.count);
        }
        Section::new(self.offset, self.length.checked_add(next.length)?, &levels[..usize::from(self.depth)])
            .ok()
    }
}

/// The level after `below` in the order of (stride, count), without those of one copy.
fn next_level(levels: &[(u64, u64)], below: Option<(u64, u64)>) -> Option<(u64, u64)> {
    let after = |level: &(u64, u64)| level.1 != 1 && below.is_none_or(|below| *level > below);
    levels.iter().copied().filter(after).min()
}

impl From<Extent> for Section {
    fn from(extent: Extent) -> Section {
        Section::from_extent(extent)
    }
}

impl fmt::Debug for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Section {
    /// `4096+1 each 64 x 1024 each 262144 x ..`: offset, length, then stride and count of each level.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(extent) = self.as_extent() {
            return extent.fmt(f);
        }
        write!(f, "{}+{}", self.offset, self.length)?;
        for level in self.levels() {
            match level.count {
                UNBOUNDED => write!(f, " each {} x ..", level.stride)?,
                count => write!(f, " each {} x {count}", level.stride)?,
            }
        }
        Ok(())
    }
}
