//! Loops around loops: where the next piece of a nested strided access starts.
//!
//! The starts of pieces are read as those of a nest of loops. The innermost level is the distance of the first two; when
//! a piece comes elsewhere than the outermost level says, that level has ended (its count is known now) and the piece begins the
//! second copy of a level around it.

use ccpfs_region::{Section, UNBOUNDED};

/// Most levels that are recognized: rows of tiles of variables of time steps.
pub const DEPTH_MAX: usize = 4;

/// A loop: copies of what is inside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Loop {
    /// Bytes from the start of a copy to the start of the next; negative if they go backwards.
    stride: i64,
    /// Number of copies; of the outermost, not known yet.
    count: u64,
    /// Which copy this is.
    at: u64,
    /// Where the first of these copies starts.
    origin: i64,
}

/// What a start of a piece is to a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fit {
    /// It came where it was expected.
    Expected,
    /// The outermost loop has ended, and this begins the second copy of one around it.
    Closes {
        /// Whether the one that has ended had more than two copies.
        sure: bool,
    },
    /// It does not fit.
    Breaks,
}

/// A nest of loops and the place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Nest {
    loops: [Loop; DEPTH_MAX],
    depth: usize,
}

impl Nest {
    /// The nest of one loop that has had `copies` copies, at least 2, of which the last starts at `last`.
    pub(crate) fn new(stride: i64, last: i64, copies: u32) -> Nest {
        let mut loops = [Loop::default(); DEPTH_MAX];
        let at = copies - 1;
        loops[0] = Loop { stride, count: UNBOUNDED, at: at.into(), origin: last - stride * i64::from(at) };
        Nest { loops, depth: 1 }
    }

    /// The loop that goes on next: the innermost that has not had all its copies.
    fn turn(&self) -> usize {
        let open = |level: &Loop| level.count == UNBOUNDED || level.at + 1 < level.count;
        self.loops[..self.depth].iter().position(open).expect("the outermost loop is open")
    }

    /// Where the next piece starts if all goes on.
    fn expected(&self, turn: usize) -> Option<i64> {
        let level = &self.loops[turn];
        let ahead = level.stride.checked_mul(i64::try_from(level.at + 1).ok()?)?;
        level.origin.checked_add(ahead)
    }

    /// What a piece that starts at `start` is; nothing changes.
    pub(crate) fn fit(&self, start: i64) -> Fit {
        let turn = self.turn();
        if self.expected(turn) == Some(start) {
            return Fit::Expected;
        }
        let outer = &self.loops[self.depth - 1];
        if turn + 1 == self.depth && self.depth < DEPTH_MAX && start != outer.origin {
            return Fit::Closes { sure: outer.at >= 2 };
        }
        Fit::Breaks
    }

    /// Goes on to the expected piece at `start`.
    pub(crate) fn go_on(&mut self, start: i64) {
        let turn = self.turn();
        self.loops[turn].at += 1;
        for inner in &mut self.loops[..turn] {
            (inner.at, inner.origin) = (0, start);
        }
    }

    /// Ends the outermost loop with the copies it has had, and goes on to the second copy, at `start`, of one around it.
    pub(crate) fn close(&mut self, start: i64) {
        let outer = &mut self.loops[self.depth - 1];
        let (first, count) = (outer.origin, outer.at + 1);
        outer.count = count;
        for inner in &mut self.loops[..self.depth] {
            (inner.at, inner.origin) = (0, start);
        }
        self.loops[self.depth] = Loop { stride: start - first, count: UNBOUNDED, at: 1, origin: first };
        self.depth += 1;
    }

    /// The pieces of `length` bytes from the copy of the outermost loop on that holds the piece at `start`: of about
    /// `pieces` of them, or without end. Of a nest whose loops lie between each other: those of the copy at hand.
    pub(crate) fn ahead(&self, start: i64, length: u64, pieces: u64) -> Option<Section> {
        let outer = self.depth - 1;
        let each =
            self.loops[..outer].iter().fold(1_u64, |product, level| product.saturating_mul(level.count));
        let copies = if pieces == UNBOUNDED { UNBOUNDED } else { pieces.div_ceil(each).max(1) + 1 };
        let whole = self.section(self.depth, start, length, copies);
        whole.or_else(|| self.section(outer, start, length, UNBOUNDED).filter(|_| outer > 0))
    }

    /// A group of pieces as that of the outermost loop so far, but for its place: the first at `start`. `None` if too few were seen.
    pub(crate) fn as_before(&self, start: i64, length: u64) -> Option<Section> {
        if self.fit(start) != (Fit::Closes { sure: true }) {
            return None;
        }
        let mut again = *self;
        again.close(start);
        again.section(self.depth, start, length, UNBOUNDED)
    }

    /// The copies of the `depth` innermost loops; those of the outermost of them from the one at hand on, `copies` at most.
    fn section(&self, depth: usize, start: i64, length: u64, copies: u64) -> Option<Section> {
        let (outer, inner) = self.loops[..depth].split_last()?;
        let mut levels = [(0, 1); DEPTH_MAX];
        // The first byte: loops that go backwards have it in their last copy.
        let mut first = inner.last().map_or(start, |level| level.origin);
        for (pair, level) in levels.iter_mut().zip(inner) {
            *pair = (level.stride.unsigned_abs(), level.count);
            if level.stride < 0 {
                let ahead = level.stride.checked_mul(i64::try_from(level.count - 1).ok()?)?;
                first = first.checked_add(ahead)?;
            }
        }
        let mut base = u64::try_from(first).ok()?;
        let stride = outer.stride.unsigned_abs();
        let left = if outer.count == UNBOUNDED { copies } else { copies.min(outer.count - outer.at) };
        let count = if outer.stride < 0 {
            let count = left.min(base / stride + 1);
            base -= (count - 1) * stride;
            count
        } else {
            left
        };
        levels[depth - 1] = (stride, count);
        Section::new(base, length, &levels).ok()
    }
}
