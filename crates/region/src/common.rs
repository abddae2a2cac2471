//! The first byte that two sections share, by arithmetic.
//!
//! *What*: [`Section::first_common`] and [`Section::overlaps`], exact for every pair of sections.
//!
//! # How
//!
//! Both sections are narrowed to the extent in which both have bytes; levels with one copy left are dropped. Then:
//!
//! 1. *One is an extent.* The other is asked for its first piece from there on: one division for each level.
//! 2. *The outer strides are equal*, `s`. Copies of `a` and of `b` that have bytes in common lie `d` or `d - s` bytes apart,
//!    where `d` is the distance of the sections modulo `s`, because no copy is longer than `s`. All pairs of copies that lie
//!    equally far apart share the same bytes relative to themselves, so the first pair speaks for all: two
//!    questions about sections with one level less on both sides.
//! 3. *The outer strides differ and the copies of both are single pieces.* Let `a` have the greater stride `s`, and `b` the
//!    stride `t`, and let each copy of `a` have a byte between the first and the last byte of `b`. *Lemma:* copy `i` of `a`
//!    shares a byte with `b` exactly if it does so with `b` continued in both directions, because a piece that would be
//!    shared with a copy before the first (behind the last) covers bytes of the first (the last) as well. So `i` is
//!    looked for with `a_i - b_0 mod t` in `(-length(a), length(b))`: the first hit of a window by a multiple of
//!    `s` modulo `t`, by Euclid's algorithm in `O(log t)` steps.
//! 4. *The outer strides differ.* What copy `i` of `a` shares with `b` continued in both directions follows from `a_i mod t`
//!    alone; a copy that lies wholly between the first and the last byte of `b` shares the same with `b` itself, and one
//!    that crosses a border at most that. So the first copy is asked, which may cross one, and up to `t / gcd(s, t)`
//!    after it: whoever comes later shares nothing that they do not. Each is a question with one level less on one
//!    side; if `t` divides `s`, which is the rule for arrays, there are two. Copies whose hulls hit no hull of a copy of `b` are
//!    jumped over as in 3. A pair of sections whose bytes lie in different residues modulo the divisor of all strides is
//!    recognized without any walk.
//!    Where two copies have fewer pairs of pieces than that, the walk gives up after as many steps as there are pairs,
//!    and 3 is asked for each pair.
//!
//! # Cost
//!
//! Counted in *steps*, each `O(levels + log stride)`, and independent of the number of pieces:
//!
//! | sections | steps |
//! |---|---|
//! | section and extent, of any depth | 1 |
//! | one level each, any strides | 1 |
//! | d levels each, equal strides level by level | at most 2^d, in practice d + 1: most pairs lie too far apart |
//! | strides that divide one another, d levels in all | at most 2^d, in practice about d |
//! | one level, and one level around another of `m` pieces | at most min(2 m, copies or residues of the coarser) |
//! | general | the product, over the levels, of min(copies, stride of the other over gcd + 1, twice the pairs of pieces of two copies) |
//!
//! Where the sections do overlap, and are not made up to do so late, the answer comes after a few steps: of 90,000 pairs
//! of blocks of arrays of unrelated, random dimensions one took more than 64. The last line may be large for sections
//! made up for that purpose, so whoever asks on behalf of others says how many steps it may take
//! ([`Section::first_common_within`]).

use crate::residue::{difference, first_hit, gcd};
use crate::section::{Level, Section};
use crate::view::View;
use ccpfs_types::Extent;
use core::fmt;

/// A question took more steps than were allowed. Whoever decides on locks takes it for "they overlap".
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TooHard;

impl fmt::Display for TooHard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the sections take too many steps to compare")
    }
}

impl core::error::Error for TooHard {}

/// The steps that are left.
#[derive(Debug)]
pub(crate) struct Effort(u64);

impl Effort {
    pub(crate) fn new(steps_max: u64) -> Effort {
        Effort(steps_max)
    }

    /// At most `steps` of what is left, and gone from it.
    fn share(&mut self, steps: u64) -> Effort {
        let share = steps.min(self.0);
        self.0 -= share;
        Effort(share)
    }

    /// Takes one step.
    pub(crate) fn spend(&mut self) -> Result<(), TooHard> {
        self.0 = self.0.checked_sub(1).ok_or(TooHard)?;
        Ok(())
    }
}

impl Section {
    /// The first byte that both hold, exactly, however long it takes.
    #[must_use]
    pub fn first_common(&self, other: &Section) -> Option<u64> {
        self.first_common_within(other, u64::MAX).expect("nobody lives to see so many steps")
    }

    /// Whether the two share a byte.
    #[must_use]
    pub fn overlaps(&self, other: &Section) -> bool {
        self.first_common(other).is_some()
    }

    /// The first byte that both hold, in at most `steps_max` steps.
    ///
    /// # Errors
    /// [`TooHard`] if the steps did not suffice.
    pub fn first_common_within(&self, other: &Section, steps_max: u64) -> Result<Option<u64>, TooHard> {
        search(self.view(), other.view(), &mut Effort::new(steps_max))
    }
}

/// The first byte of both, by the cases of the module's documentation.
pub(crate) fn search(a: View<'_>, b: View<'_>, effort: &mut Effort) -> Result<Option<u64>, TooHard> {
    effort.spend()?;
    let Some((a, b)) = narrowed(a, b) else { return Ok(None) };
    match (a.outer(), b.outer()) {
        (None, _) => Ok(first_in(a.extent(), b)),
        (_, None) => Ok(first_in(b.extent(), a)),
        (Some(s), Some(t)) if s.stride() == t.stride() => equal_strides(a, b, s, t, effort),
        (Some(s), Some(t)) if s.stride() > t.stride() => coarse_and_fine(a, b, s, t, effort),
        (Some(s), Some(t)) => coarse_and_fine(b, a, t, s, effort),
    }
}

/// Both without the copies that lie outside of the other, until this drops no more levels.
pub(crate) fn narrowed<'a, 'b>(mut a: View<'a>, mut b: View<'b>) -> Option<(View<'a>, View<'b>)> {
    loop {
        let depths = (a.depth(), b.depth());
        let window = a.extent().intersection(b.extent())?;
        (a, b) = (a.narrowed(window)?, b.narrowed(window)?);
        if depths == (a.depth(), b.depth()) {
            return Some((a, b));
        }
    }
}

/// Case 1: the first byte of `view` in `extent`.
fn first_in(extent: Extent, view: View<'_>) -> Option<u64> {
    view.piece_from(extent.start()).map(Extent::start).filter(|start| *start < extent.end())
}

/// Case 2.
fn equal_strides(
    a: View<'_>,
    b: View<'_>,
    of_a: &Level,
    of_b: &Level,
    effort: &mut Effort,
) -> Result<Option<u64>, TooHard> {
    let stride = of_a.stride();
    let apart = difference(b.base(), a.base(), stride);
    let first = if apart < of_a.span() { pair(a, b, stride, apart) } else { None };
    let found = match first {
        Some((a, b)) => search(a, b, effort)?,
        None => None,
    };
    if apart == 0 || stride - apart >= of_b.span() {
        return Ok(found);
    }
    let Some((b, a)) = pair(b, a, stride, stride - apart) else { return Ok(found) };
    if found.is_some_and(|found| found < a.base()) {
        return Ok(found);
    }
    Ok(match (found, search(a, b, effort)?) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    })
}

/// The first copy of `low` and the copy of `high` that starts `apart` bytes behind it.
fn pair<'a, 'b>(low: View<'a>, high: View<'b>, stride: u64, apart: u64) -> Option<(View<'a>, View<'b>)> {
    let start = low.base().max(high.base().saturating_sub(apart));
    let low_index = (start - low.base()) / stride;
    let high_index = (start.checked_add(apart)? - high.base()) / stride;
    (low_index < low.count() && high_index < high.count())
        .then(|| (low.copy(low_index), high.copy(high_index)))
}

/// Cases 3 and 4: `a` has the greater stride.
fn coarse_and_fine(
    a: View<'_>,
    b: View<'_>,
    of_a: &Level,
    of_b: &Level,
    effort: &mut Effort,
) -> Result<Option<u64>, TooHard> {
    let touching = a.touching(b.extent());
    if touching.is_empty() {
        return Ok(None);
    }
    let a = a.copies(touching);
    let pairs = a.pieces_of_copy().saturating_mul(b.pieces_of_copy());
    if pairs == 1 {
        return Ok(lines(a, b, of_a, of_b));
    }
    let period = of_b.stride() / gcd(of_a.stride(), of_b.stride());
    if period > 1 && residues_differ(&a, &b) {
        return Ok(None);
    }
    // Where there is a common byte a walk mostly finds it soon; where there is none, pairs may be fewer. A walk looks into the copies that it
    // meets, so that many of them may cost more than all pairs even where they are fewer.
    let mut share = effort.share(pairs);
    let walked = walk(a, b, of_a, of_b, period, &mut share);
    effort.0 += share.0;
    match walked {
        Ok(found) => Ok(found),
        Err(TooHard) => all_pairs(a, b, of_a, of_b, effort),
    }
}

/// The copies, counted from the first of `a`, of which the first has a hull that hits one of the hulls of `b`.
fn jump(from: u64, b: &View<'_>, of_a: &Level, of_b: &Level) -> Option<u64> {
    let length = (of_a.span() - 1).saturating_add(of_b.span());
    let phase = difference(from, b.base(), of_b.stride());
    first_hit(phase, of_a.stride(), of_b.stride(), of_a.span() - 1, length)
}

/// Case 3.
fn lines(a: View<'_>, b: View<'_>, of_a: &Level, of_b: &Level) -> Option<u64> {
    let index = jump(a.base(), &b, of_a, of_b).filter(|index| *index < a.count())?;
    first_in(a.copy(index).extent(), b)
}

/// Case 4, piece by piece: case 3 for every piece of a copy of `a` with every piece of a copy of `b`.
fn all_pairs(
    a: View<'_>,
    b: View<'_>,
    of_a: &Level,
    of_b: &Level,
    effort: &mut Effort,
) -> Result<Option<u64>, TooHard> {
    let mut found: Option<u64> = None;
    let mut at_a = a.base();
    while let Some(piece_a) = a.copy(0).piece_from(at_a) {
        at_a = piece_a.end();
        let levels_a = [Level::new(of_a.stride(), a.count(), piece_a.length())];
        let line_a = line(&levels_a, piece_a.start());
        let mut at_b = b.base();
        while let Some(piece_b) = b.copy(0).piece_from(at_b) {
            at_b = piece_b.end();
            let levels_b = [Level::new(of_b.stride(), b.count(), piece_b.length())];
            if let Some(byte) = search(line_a, line(&levels_b, piece_b.start()), effort)? {
                found = Some(found.map_or(byte, |found| found.min(byte)));
            }
        }
    }
    Ok(found)
}

/// One piece of each copy of a view: a level of pieces, as far as they start below the end of all files.
fn line(levels: &[Level; 1], start: u64) -> View<'_> {
    let [level] = levels;
    let count = level.count().min((Extent::EOF - 1 - start) / level.stride() + 1);
    View::new(levels, start, level.span(), count)
}

/// Whether no byte of `a` can be one of `b`, because they differ modulo what divides all strides.
fn residues_differ(a: &View<'_>, b: &View<'_>) -> bool {
    let divisor = a.levels().iter().chain(b.levels()).fold(0, |divisor, level| gcd(divisor, level.stride()));
    let apart = difference(b.base(), a.base(), divisor);
    apart >= a.length() && divisor - apart >= b.length()
}

/// Case 4, copy by copy of `a`: the first, then one for each residue.
fn walk(
    a: View<'_>,
    b: View<'_>,
    of_a: &Level,
    of_b: &Level,
    period: u64,
    effort: &mut Effort,
) -> Result<Option<u64>, TooHard> {
    let last = period.min(a.count() - 1);
    let mut index = 0;
    while index <= last {
        let Some(jump) = jump(a.copy_base(index), &b, of_a, of_b) else { return Ok(None) };
        index = index.saturating_add(jump);
        if index > last {
            return Ok(None);
        }
        if let Some(found) = search(a.copy(index), b, effort)? {
            return Ok(Some(found));
        }
        index += 1;
    }
    Ok(None)
}
