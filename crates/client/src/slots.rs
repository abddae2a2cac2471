//! The pages of one stripe: which page of the pool has which bytes, and who uses them just now.
//!
//! *What*: a page for each 4 KiB of which a byte is cached or in use, and none for others: sparse data take no more memory than they
//! fill, and memory that is written for the first time costs more than writing it. Pages are found by blocks of several, so that
//! there are few to look through where data are dense.
//! *Invariants*: a pinned page stays; a page that nobody needs and nobody uses goes back to the pool, whatever its neighbours hold.
//! *Not here*: which bytes are valid (`ccpfs-writeback`).

use crate::pages::{PAGE_BYTES, PageId, Pool};
use ccpfs_types::Extent;
use std::collections::BTreeMap;

/// Pages that are found together.
const BLOCK_PAGES: usize = 4;
/// Bytes of a block.
const BLOCK_BYTES: u64 = BLOCK_PAGES as u64 * PAGE_BYTES;

/// Where a page belongs.
#[derive(Clone, Copy, Default)]
struct Slot {
    page: Option<PageId>,
    /// Operations that copy into or out of the page just now.
    pins: u32,
    /// Not needed any longer, but pinned.
    orphan: bool,
}

type Block = [Slot; BLOCK_PAGES];

/// The pages of one stripe, by the place of their bytes.
#[derive(Default)]
pub(crate) struct Slots {
    blocks: BTreeMap<u64, Block>,
    pages: usize,
}

impl Slots {
    /// Number of pages held.
    pub(crate) fn page_count(&self) -> usize {
        self.pages
    }

    /// Makes sure that every byte of `extent` has a page, and pins them: start and length of each run of bytes.
    ///
    /// `Err(count)` if the pool lacks that many pages; nothing is pinned then.
    pub(crate) fn pin(
        &mut self,
        pool: &Pool,
        extent: Extent,
        runs: &mut Vec<(*mut u8, usize)>,
    ) -> Result<(), usize> {
        let there: usize = self
            .blocks
            .range(blocks(extent))
            .map(|(block, slots)| {
                slots[part(*block, extent)].iter().filter(|slot| slot.page.is_some()).count()
            })
            .sum();
        let missing = pages(extent) - there;
        let mut fresh = Vec::with_capacity(missing);
        if !pool.allocate(missing, &mut fresh) {
            return Err(missing);
        }
        self.pages += missing;
        let mut fresh = fresh.into_iter();
        for block in blocks(extent) {
            let slots = self.blocks.entry(block).or_default();
            for at in part(block, extent) {
                let slot = &mut slots[at];
                let page = *slot
                    .page
                    .get_or_insert_with(|| fresh.next().expect("as many were taken as were missing"));
                slot.pins += 1;
                push_run(runs, pool.pointer(page), page_extent(block, at), extent);
            }
        }
        Ok(())
    }

    /// Where bytes with pages lie in memory.
    pub(crate) fn runs(&self, pool: &Pool, extent: Extent, runs: &mut Vec<(*mut u8, usize)>) {
        let mut found = 0;
        for (block, slots) in self.blocks.range(blocks(extent)) {
            for at in part(*block, extent) {
                let page = slots[at].page.expect("cached bytes have pages");
                push_run(runs, pool.pointer(page), page_extent(*block, at), extent);
                found += 1;
            }
        }
        assert_eq!(found, pages(extent), "cached bytes have pages");
    }

    /// Ends a pin. Whether there are pages now that perhaps nobody needs any more.
    #[must_use]
    pub(crate) fn unpin(&mut self, extent: Extent) -> bool {
        let mut check = false;
        for (block, slots) in self.blocks.range_mut(blocks(extent)) {
            for slot in &mut slots[part(*block, extent)] {
                slot.pins -= 1;
                check |= slot.pins == 0 && slot.orphan;
            }
        }
        check
    }

    /// Gives back the pages within `extent` that are not in use and in which nothing is needed.
    pub(crate) fn free(&mut self, pool: &Pool, extent: Extent, needed: impl Fn(Extent) -> bool) {
        let mut freed = Vec::new();
        let mut empty = Vec::new();
        for (block, slots) in self.blocks.range_mut(blocks(extent)) {
            let block_needed = needed(block_extent(*block));
            for at in part(*block, extent) {
                let slot = &mut slots[at];
                if block_needed && slot.page.is_some() && needed(page_extent(*block, at)) {
                    slot.orphan = false;
                } else if slot.pins > 0 {
                    slot.orphan = true;
                } else {
                    freed.extend(slot.page.take());
                    slot.orphan = false;
                }
            }
            if slots.iter().all(|slot| slot.page.is_none()) {
                empty.push(*block);
            }
        }
        for block in empty {
            self.blocks.remove(&block);
        }
        self.pages -= freed.len();
        pool.release(&freed);
    }

    /// Marks the pages of an operation that may end without making them needed.
    pub(crate) fn doubt(&mut self, extent: Extent) {
        for (block, slots) in self.blocks.range_mut(blocks(extent)) {
            slots[part(*block, extent)].iter_mut().for_each(|slot| slot.orphan = slot.page.is_some());
        }
    }
}

/// The blocks that have bytes of `extent`.
fn blocks(extent: Extent) -> std::ops::Range<u64> {
    extent.start() / BLOCK_BYTES..extent.end().div_ceil(BLOCK_BYTES)
}

/// How many pages have bytes of `extent`.
fn pages(extent: Extent) -> usize {
    let count = extent.end().div_ceil(PAGE_BYTES) - extent.start() / PAGE_BYTES;
    usize::try_from(count).expect("an operation fits into memory")
}

/// Which pages of a block that has bytes of `extent` have some.
fn part(block: u64, extent: Extent) -> std::ops::Range<usize> {
    let first = block * BLOCK_PAGES as u64;
    let within =
        |page: u64| usize::try_from(page.saturating_sub(first)).map_or(BLOCK_PAGES, |at| at.min(BLOCK_PAGES));
    within(extent.start() / PAGE_BYTES)..within(extent.end().div_ceil(PAGE_BYTES))
}

fn block_extent(block: u64) -> Extent {
    Extent::with_length(block * BLOCK_BYTES, BLOCK_BYTES).expect("blocks have bytes")
}

fn page_extent(block: u64, at: usize) -> Extent {
    let start = block * BLOCK_BYTES + at as u64 * PAGE_BYTES;
    Extent::with_length(start, PAGE_BYTES).expect("pages have bytes")
}

/// Adds the part of `extent` that lies on the page of `page`, whose memory begins at `start`, joined to the run before it where memory
/// goes on.
fn push_run(runs: &mut Vec<(*mut u8, usize)>, start: *mut u8, page: Extent, extent: Extent) {
    let part = page.intersection(extent).expect("the page was found by the extent");
    let skip = usize::try_from(part.start() - page.start()).expect("within a page");
    let length = usize::try_from(part.length()).expect("within a page");
    let at = start.wrapping_add(skip);
    match runs.last_mut() {
        Some((last, bytes)) if last.wrapping_add(*bytes) == at => *bytes += length,
        Some(_) | None => runs.push((at, length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    #[test]
    fn sparse_bytes_take_as_many_pages_as_they_lie_on() {
        let pool = Pool::new(64 * PAGE_BYTES, 0).unwrap();
        let mut slots = Slots::default();
        let mut runs = Vec::new();
        for piece in 0..16 {
            let start = piece * 4 * PAGE_BYTES;
            slots.pin(&pool, extent(start, start + PAGE_BYTES), &mut runs).unwrap();
        }
        assert_eq!(slots.page_count(), 16);
        assert_eq!(runs.len(), 1, "neighbours in memory whatever lies between them in the file");
        runs.clear();
        slots.pin(&pool, extent(1, 5 * PAGE_BYTES - 1), &mut runs).unwrap();
        assert_eq!(slots.page_count(), 19, "what was there is used again");
        assert_eq!(
            runs.iter().map(|run| run.1 as u64).sum::<u64>(),
            5 * PAGE_BYTES - 2,
            "every byte once, in order"
        );
        let mut again = Vec::new();
        slots.runs(&pool, extent(1, 5 * PAGE_BYTES - 1), &mut again);
        assert_eq!(again, runs);
    }

    #[test]
    fn a_page_goes_when_nobody_needs_or_uses_it_and_its_neighbours_stay() {
        let pool = Pool::new(8 * PAGE_BYTES, 0).unwrap();
        let (mut slots, mut runs) = (Slots::default(), Vec::new());
        let all = extent(0, 8 * PAGE_BYTES);
        slots.pin(&pool, all, &mut runs).unwrap();
        assert_eq!(slots.pin(&pool, extent(8 * PAGE_BYTES, 9 * PAGE_BYTES), &mut runs), Err(1));
        assert!(!slots.unpin(extent(0, 6 * PAGE_BYTES)));
        let kept = extent(PAGE_BYTES, PAGE_BYTES + 1);
        slots.free(&pool, all, |part| part.overlaps(kept));
        assert_eq!(slots.page_count(), 3, "the one that is needed, and two in use");
        assert!(
            slots.unpin(extent(6 * PAGE_BYTES, 8 * PAGE_BYTES)),
            "they were not needed when they were in use"
        );
        slots.free(&pool, all, |part| part.overlaps(kept));
        assert_eq!((slots.page_count(), slots.blocks.len()), (1, 1));
        slots.free(&pool, all, |_| false);
        assert_eq!((slots.page_count(), slots.blocks.len()), (0, 0));
        assert!(pool.allocate(8, &mut Vec::new()), "all went back");
    }
}
