//! What two sections share, as sections; and the first byte that three share.
//!
//! The cases are those of `common`, but nothing ends at the first byte: what pairs of copies share that lie equally far
//! apart is the same for all of them, and so a section with one level more.

use crate::clip::keep;
use crate::common::{Effort, TooHard, narrowed, search};
use crate::residue::{difference, gcd};
use crate::section::{RegionError, Section};
use crate::view::View;
use crate::{DEPTH_MAX, UNBOUNDED};
use alloc::vec::Vec;
use ccpfs_types::Extent;
use core::ops::Range;

/// Most copies that are looked at one by one, and most sections of an answer, before two sections are said to share too many.
const SHARED_MAX: usize = 16;

/// The first byte of all three. `units` is one level of pieces that never end.
///
/// What `a` and `b` share is written down where that takes few sections, each of which is compared with `units`. Otherwise the three are leapt
/// through by turns, always to the greatest of the first bytes that two of them share.
pub(crate) fn first_of_three(
    a: &Section,
    b: &Section,
    units: &Section,
    effort: &mut Effort,
) -> Result<Option<u64>, TooHard> {
    effort.spend()?;
    let Some(parts) = shared(a.view(), b.view(), effort)? else { return leaps(a, b, units, effort) };
    let mut found: Option<u64> = None;
    for part in parts {
        if found.is_none_or(|found| part.offset() < found)
            && let Some(byte) = search(part.view(), units.view(), effort)?
        {
            found = Some(found.map_or(byte, |found| found.min(byte)));
        }
    }
    Ok(found)
}

/// [`first_of_three`] by turns.
fn leaps(a: &Section, b: &Section, units: &Section, effort: &mut Effort) -> Result<Option<u64>, TooHard> {
    let mut at = 0;
    loop {
        let mut furthest = at;
        for (one, other) in [(a, b), (a, units), (b, units)] {
            match first_from(one, other, at, effort)? {
                None => return Ok(None),
                Some(byte) => furthest = furthest.max(byte),
            }
        }
        if a.contains(furthest) && b.contains(furthest) && units.contains(furthest) {
            return Ok(Some(furthest));
        }
        // No byte before this one is in all three; nor is this one.
        at = furthest.max(at + 1);
    }
}

/// The first byte from `at` on that both hold.
fn first_from(a: &Section, b: &Section, at: u64, effort: &mut Effort) -> Result<Option<u64>, TooHard> {
    let Some(rest) = Extent::new(at, Extent::EOF) else { return Ok(None) };
    let mut found: Option<u64> = None;
    for part in a.in_extent(rest) {
        if found.is_none_or(|found| part.offset() < found)
            && let Some(byte) = search(part.view(), b.view(), effort)?
        {
            found = Some(found.map_or(byte, |found| found.min(byte)));
        }
    }
    Ok(found)
}

/// What both hold, as disjoint sections in no order; `None` if it takes too many.
fn shared(a: View<'_>, b: View<'_>, effort: &mut Effort) -> Result<Option<Vec<Section>>, TooHard> {
    effort.spend()?;
    let Some((a, b)) = narrowed(a, b) else { return Ok(Some(Vec::new())) };
    let (Some(of_a), Some(of_b)) = (a.outer(), b.outer()) else {
        let (extent, view) = if a.outer().is_none() { (a.extent(), b) } else { (b.extent(), a) };
        let mut parts = Vec::new();
        keep(view, extent, &mut parts);
        return Ok(Some(parts));
    };
    match of_a.stride().cmp(&of_b.stride()) {
        core::cmp::Ordering::Equal => of_equal_strides(a, b, effort),
        core::cmp::Ordering::Greater => of_coarse_and_fine(a, b, effort),
        core::cmp::Ordering::Less => of_coarse_and_fine(b, a, effort),
    }
}

/// Copies that have bytes in common lie one of two distances apart.
fn of_equal_strides(a: View<'_>, b: View<'_>, effort: &mut Effort) -> Result<Option<Vec<Section>>, TooHard> {
    let stride = a.outer().map_or(1, |outer| outer.stride());
    let apart = difference(b.base(), a.base(), stride);
    let mut parts = Vec::new();
    let distances = [(a, b, apart), (b, a, stride - apart)];
    for (low, high, apart) in distances.into_iter().take(if apart == 0 { 1 } else { 2 }) {
        if low.outer().is_none_or(|outer| apart >= outer.span()) {
            continue;
        }
        let start = low.base().max(high.base().saturating_sub(apart));
        let Some(other) = start.checked_add(apart) else { continue };
        let (first_low, first_high) = ((start - low.base()) / stride, (other - high.base()) / stride);
        let left = |view: View<'_>, first: u64| view.count().saturating_sub(first);
        let pairs = left(low, first_low).min(left(high, first_high));
        if pairs == 0 {
            continue;
        }
        let Some(each) = shared(low.copy(first_low), high.copy(first_high), effort)? else { return Ok(None) };
        // A pair of copies begins below the end of all files if what they share does.
        let count = if low.goes_on() && high.goes_on() { UNBOUNDED } else { pairs };
        let Some(()) = add(&mut parts, &each, (stride, if pairs == 1 { 1 } else { count })) else {
            return Ok(None);
        };
    }
    Ok(Some(parts))
}

/// `a` has the greater stride. What a copy of it that lies wholly between the ends of `b` shares with `b` is the same after each common
/// period; the first and the last copy may cross an end of `b`.
fn of_coarse_and_fine(
    a: View<'_>,
    b: View<'_>,
    effort: &mut Effort,
) -> Result<Option<Vec<Section>>, TooHard> {
    let (Some(of_a), Some(of_b)) = (a.outer(), b.outer()) else { return Ok(None) };
    let Range { start: mut first, end: mut last } = a.touching(b.extent());
    let within = |index: u64| b.extent().contains(a.copy(index).extent());
    let mut parts = Vec::new();
    let mut alone = |index: u64, parts: &mut Vec<Section>| -> Result<Option<()>, TooHard> {
        Ok(shared(a.copy(index), b, effort)?.and_then(|each| add(parts, &each, (1, 1))))
    };
    if first < last && !within(first) {
        if alone(first, &mut parts)?.is_none() {
            return Ok(None);
        }
        first += 1;
    }
    if first < last && !within(last - 1) {
        last -= 1;
        if alone(last, &mut parts)?.is_none() {
            return Ok(None);
        }
    }
    let period = of_b.stride() / gcd(of_a.stride(), of_b.stride());
    let copies = last.saturating_sub(first);
    if copies.min(period) > SHARED_MAX as u64 {
        return Ok(None);
    }
    let goes_on = a.goes_on() && last == a.count();
    for index in first..first + copies.min(period) {
        let Some(each) = shared(a.copy(index), b, effort)? else { return Ok(None) };
        let repeated = (last - index).div_ceil(period);
        let count = if goes_on && repeated > 1 { UNBOUNDED } else { repeated };
        let Some(stride) = of_a.stride().checked_mul(period).or((repeated == 1).then_some(1)) else {
            return Ok(None);
        };
        let Some(()) = add(&mut parts, &each, (stride, count)) else { return Ok(None) };
    }
    Ok(Some(parts))
}

/// Adds sections, each repeated by one more level; `None` if that is too much.
fn add(parts: &mut Vec<Section>, each: &[Section], around: (u64, u64)) -> Option<()> {
    if parts.len() + each.len() > SHARED_MAX {
        return None;
    }
    for section in each {
        parts.push(if around.1 == 1 { *section } else { repeated(section, around).ok()? });
    }
    Some(())
}

/// A section with a level around it.
fn repeated(section: &Section, around: (u64, u64)) -> Result<Section, RegionError> {
    let mut levels = [(0, 1); DEPTH_MAX + 1];
    for (pair, level) in levels.iter_mut().zip(section.levels()) {
        *pair = (level.stride(), level.count());
    }
    levels[section.levels().len()] = around;
    Section::new(section.offset(), section.length(), &levels)
}
