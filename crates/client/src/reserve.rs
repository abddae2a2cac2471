//! Reservations: how many pages the operations in progress may pin together.
//!
//! An operation reserves its pages before it waits for any lock. So whoever holds locks and lacks a page lacks only one that holds
//! cached bytes, which flushing and forgetting give back: no two operations wait for each other's pages.

use crate::pages::PAGE_BYTES;
use ccpfs_types::{Extent, Layout};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

/// Chunks end at multiples of it. It divides pages and stripe units, so a chunk of one block lies on one page.
const BLOCK_BYTES: u64 = 4096;

/// The pages reserved by the operations of one client.
#[derive(Default)]
pub(crate) struct Reservations {
    pages: AtomicUsize,
    /// Operations that wait, first come, first served.
    waiting: AtomicU32,
    turns: Mutex<Turns>,
    changed: Condvar,
}

#[derive(Default)]
struct Turns {
    next: u64,
    serving: u64,
}

/// Pages that an operation may pin; given back when dropped.
pub(crate) struct Reservation<'a> {
    reservations: &'a Reservations,
    pages: usize,
    /// Most bytes the operation may pin at a time.
    chunk_bytes: u64,
}

impl Reservations {
    /// Reserves pages for an operation on `length` bytes in a row, out of `pages_max`. Of more than half of them it gets the half,
    /// and works in chunks.
    pub(crate) fn reserve(&self, layout: Layout, length: u64, pages_max: usize) -> Reservation<'_> {
        let limit = (pages_max / 2).max(1);
        let (mut chunk_bytes, mut pages) = (length, pages_most(layout, length));
        if pages > limit as u64 {
            chunk_bytes = limit as u64 * PAGE_BYTES;
            while chunk_bytes > BLOCK_BYTES && pages_most(layout, chunk_bytes) > limit as u64 {
                chunk_bytes /= 2;
            }
            pages = limit as u64;
        }
        let pages = usize::try_from(pages).expect("at most the limit");
        if self.waiting.load(Ordering::SeqCst) > 0 || !self.try_take(pages, pages_max) {
            self.wait(pages, pages_max);
        }
        Reservation { reservations: self, pages, chunk_bytes }
    }

    /// Reserves `pages` pages, or half of `pages_max` if that is less.
    pub(crate) fn reserve_pages(&self, pages: u64, pages_max: usize) -> Reservation<'_> {
        let limit = (pages_max / 2).max(1);
        let pages = usize::try_from(pages).map_or(limit, |pages| pages.min(limit));
        if self.waiting.load(Ordering::SeqCst) > 0 || !self.try_take(pages, pages_max) {
            self.wait(pages, pages_max);
        }
        Reservation { reservations: self, pages, chunk_bytes: BLOCK_BYTES }
    }

    /// Takes a quarter of `pages_max` away for good, waiting for operations that have them; how many. At least one: a block lies on
    /// one page, and an operation can work block by block.
    pub(crate) fn set_aside(&self, pages_max: usize) -> usize {
        let pages = (pages_max / 4).max(1);
        if self.waiting.load(Ordering::SeqCst) > 0 || !self.try_take(pages, pages_max) {
            self.wait(pages, pages_max);
        }
        pages
    }

    fn try_take(&self, pages: usize, pages_max: usize) -> bool {
        let more = |taken: usize| (taken + pages <= pages_max).then_some(taken + pages);
        self.pages.fetch_update(Ordering::SeqCst, Ordering::SeqCst, more).is_ok()
    }

    fn wait(&self, pages: usize, pages_max: usize) {
        // Announced before the first look: whoever gives pages back afterwards wakes us.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut turns = self.turns.lock().expect("no code panics under this lock");
        let turn = turns.next;
        turns.next += 1;
        while turns.serving != turn || !self.try_take(pages, pages_max) {
            turns = self.changed.wait(turns).expect("no code panics under this lock");
        }
        turns.serving += 1;
        drop(turns);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.changed.notify_all();
    }
}

impl Reservation<'_> {
    /// How many pages may be pinned at a time.
    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    /// Cuts the operation's extent into parts whose pages can be pinned at a time, in file order.
    pub(crate) fn chunks(&self, extent: Extent) -> impl Iterator<Item = Extent> + use<> {
        let (chunk_bytes, end) = (self.chunk_bytes, extent.end());
        let mut at = extent.start();
        std::iter::from_fn(move || {
            let until = if chunk_bytes >= end.saturating_sub(at) {
                end
            } else {
                (at.saturating_add(chunk_bytes) / BLOCK_BYTES * BLOCK_BYTES).min(end)
            };
            let chunk = Extent::new(at, until)?;
            at = chunk.end();
            Some(chunk)
        })
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.reservations.pages.fetch_sub(self.pages, Ordering::SeqCst);
        if self.reservations.waiting.load(Ordering::SeqCst) > 0 {
            drop(self.reservations.turns.lock().expect("no code panics under this lock"));
            self.reservations.changed.notify_all();
        }
    }
}

/// Most pages that `length` bytes in a row can touch, wherever they begin.
fn pages_most(layout: Layout, length: u64) -> u64 {
    let unit = layout.stripe_bytes();
    let units = length.saturating_add(unit - 1).saturating_sub(1) / unit + 1;
    let stripes = units.min(u64::from(layout.stripe_count()));
    match length {
        0 | 1 => length,
        _ => (length / PAGE_BYTES).saturating_add(2 * stripes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn pages_of(layout: Layout, extent: Extent) -> u64 {
        let pages = |e: Extent| e.end().div_ceil(PAGE_BYTES) - e.start() / PAGE_BYTES;
        layout.stripe_hulls(extent).map(|(_, part)| pages(part)).sum()
    }

    #[test]
    fn no_extent_touches_more_pages_than_are_reserved_for_it() {
        for (count, unit) in [(1, 4096), (3, 4096), (4, 65_536), (7, 1 << 20)] {
            let layout = Layout::new(count, unit).unwrap();
            for length in [1, 2, 4095, 4097, 16_384, 16_385, 100_000, 1 << 20, (1 << 20) + 1] {
                for start in [0, 1, 4095, 16_383, 65_535, 1_000_001] {
                    let extent = Extent::with_length(start, length).unwrap();
                    assert!(
                        pages_of(layout, extent) <= pages_most(layout, length),
                        "{count} {unit} {extent}"
                    );
                }
            }
        }
    }

    #[test]
    fn an_operation_larger_than_the_pool_gets_half_of_it_and_chunks_that_fit() {
        let reservations = Reservations::default();
        let layout = Layout::new(3, 65_536).unwrap();
        let reservation = reservations.reserve(layout, 10 << 20, 64);
        let extent = Extent::with_length(12_345, 10 << 20).unwrap();
        let chunks: Vec<Extent> = reservation.chunks(extent).collect();
        assert!(chunks.iter().all(|chunk| pages_of(layout, *chunk) <= 32));
        assert_eq!(chunks.iter().map(|chunk| chunk.length()).sum::<u64>(), extent.length());
        assert!(chunks.windows(2).all(|pair| pair[0].end() == pair[1].start()));
        drop(reservation);
        // The smallest pool: blocks, each on one page.
        let reservation = reservations.reserve(layout, 100_000, 4);
        let extent = Extent::with_length(12_345, 100_000).unwrap();
        let chunks: Vec<Extent> = reservation.chunks(extent).collect();
        assert!(chunks.iter().all(|chunk| pages_of(layout, *chunk) == 1));
        assert_eq!(chunks.iter().map(|chunk| chunk.length()).sum::<u64>(), extent.length());
    }

    #[test]
    fn operations_wait_for_pages_and_all_get_their_turn() {
        let reservations = Arc::new(Reservations::default());
        let layout = Layout::new(1, 1 << 20).unwrap();
        let threads: Vec<_> = (1..6_u64)
            .map(|size| {
                let reservations = Arc::clone(&reservations);
                std::thread::spawn(move || {
                    for _ in 0..2000 {
                        let reservation = reservations.reserve(layout, size * PAGE_BYTES, 8);
                        assert!(reservations.pages.load(Ordering::SeqCst) <= 8);
                        drop(reservation);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(reservations.pages.load(Ordering::SeqCst), 0);
        assert_eq!(reservations.waiting.load(Ordering::SeqCst), 0);
    }
}
