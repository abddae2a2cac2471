//! The page pool: all memory of the cache in one mapping, so that it can be registered with an RDMA provider.
//!
//! The mapping has the size that the configuration allows. How much of it is used grows step by step, each time only if the node
//! has memory left: all clients of a node together must not use it up.

use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Bytes of a page. Validity is kept per byte elsewhere; a page is only memory.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// What a pool may use whatever the node has left, bytes: with less, no operation gets on.
const GRANTED_BYTES_MIN: u64 = 16 << 20;

/// Least and most that a pool grows by, bytes: so often it is looked what the node has left, and so much may all clients of a node
/// together take beyond that if they look at once.
const STEP_BYTES: (u64, u64) = (16 << 20, 64 << 20);

/// For so long a pool that may not grow does not ask again.
const REFUSAL: Duration = Duration::from_millis(100);

/// One page of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageId(u32);

struct Free {
    /// Pages that were used and given back.
    returned: Vec<PageId>,
    /// Pages from here on have never been used.
    next: u32,
    /// When the pool was not allowed to grow.
    refused: Option<Instant>,
}

/// Tells how many more bytes may be taken.
type Left = fn() -> u64;

/// The memory of one client's cache.
pub(crate) struct Pool {
    base: *mut u8,
    bytes: usize,
    pages: u32,
    /// Pages that may be used so far; it never shrinks, because operations have reserved some of them.
    granted: AtomicU32,
    left: Left,
    free: Mutex<Free>,
}

// SAFETY: `base` is a mapping that lives as long as the pool; pages are handed out exclusively, and whoever shares a
// page's bytes between threads synchronises by the stripe's mutex, its pins and the file's range lock.
unsafe impl Send for Pool {}
// SAFETY: as above; the free list has its own mutex.
unsafe impl Sync for Pool {}

impl Pool {
    /// Maps `bytes` (rounded down to whole pages) and touches the first `prefault` of them.
    ///
    /// # Errors
    /// When the system refuses the mapping.
    pub(crate) fn new(bytes: u64, prefault: u64) -> io::Result<Pool> {
        Pool::limited(bytes, prefault, crate::memory::left_bytes)
    }

    /// As [`Pool::new`], on a node that has `left` bytes left.
    fn limited(bytes: u64, prefault: u64, left: Left) -> io::Result<Pool> {
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX).max(4);
        let bytes = usize::try_from(u64::from(pages) * PAGE_BYTES).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh anonymous mapping; the result is checked below.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the mapping is ours; advice changes no contents. Huge pages only make first touches cheaper.
        unsafe {
            libc::madvise(base, bytes, libc::MADV_HUGEPAGE);
            libc::madvise(base, bytes, libc::MADV_DONTDUMP);
        }
        let prefault = usize::try_from(prefault).unwrap_or(usize::MAX).min(bytes);
        if prefault > 0 {
            // SAFETY: within the mapping. On kernels without it the pages are touched by their first use instead.
            unsafe { libc::madvise(base, prefault, libc::MADV_POPULATE_WRITE) };
        }
        let free = Mutex::new(Free { returned: Vec::new(), next: 0, refused: None });
        let granted = (prefault as u64).max(GRANTED_BYTES_MIN).div_ceil(PAGE_BYTES);
        let granted = AtomicU32::new(u32::try_from(granted).unwrap_or(u32::MAX).min(pages));
        Ok(Pool { base: base.cast(), bytes, pages, granted, left, free })
    }

    /// Number of pages that may be used, for somebody who would like to use `wanted` of them at a time.
    pub(crate) fn page_count(&self, wanted: u64) -> usize {
        let granted = self.granted.load(Ordering::Acquire);
        // Several operations at once, and something cached besides.
        if wanted.saturating_mul(4) > u64::from(granted) && granted < self.pages {
            let mut free = self.free.lock().expect("no code panics under this lock");
            self.grow(&mut free, wanted.saturating_mul(4) - u64::from(granted));
        }
        self.granted.load(Ordering::Acquire) as usize
    }

    /// Allows the use of some more pages, about as many as are `wanted`, if the node has memory left.
    fn grow(&self, free: &mut Free, wanted: u64) {
        let granted = self.granted.load(Ordering::Acquire);
        if granted == self.pages || free.refused.is_some_and(|at| at.elapsed() < REFUSAL) {
            return;
        }
        let (least, most) = (STEP_BYTES.0 / PAGE_BYTES, STEP_BYTES.1 / PAGE_BYTES);
        let step = wanted.max(u64::from(granted) / 8).clamp(least, most);
        // Others look at what is left at the same time.
        let step = step.min((self.left)() / 4 / PAGE_BYTES);
        if step < least {
            free.refused = Some(Instant::now());
        } else {
            let more = u32::try_from(step).expect("a step is small");
            self.granted.store(granted.saturating_add(more).min(self.pages), Ordering::Release);
        }
    }

    /// Gives the memory of pages that nobody uses back to the system if it has none left. They can be used again.
    pub(crate) fn trim(&self) {
        let mut free = self.free.lock().expect("no code panics under this lock");
        if free.returned.is_empty() || (self.left)() > 0 {
            return;
        }
        let mut pages: Vec<u32> = free.returned.iter().map(|page| page.0).collect();
        pages.sort_unstable();
        for run in pages.chunk_by(|one, next| one + 1 == *next) {
            let start = self.pointer(PageId(run[0]));
            let bytes = run.len() * PAGE_BYTES as usize;
            // SAFETY: pages within the mapping whose contents nobody needs, and which nobody can take while the list is locked.
            unsafe { libc::madvise(start.cast(), bytes, libc::MADV_DONTNEED) };
        }
        // Lower ones first, so that those which are used lie together.
        free.returned.sort_unstable_by_key(|page| std::cmp::Reverse(page.0));
    }

    /// Takes `count` pages, neighbours where possible; none if there are not so many.
    pub(crate) fn allocate(&self, count: usize, out: &mut Vec<PageId>) -> bool {
        let mut free = self.free.lock().expect("no code panics under this lock");
        let fresh = || (self.granted.load(Ordering::Acquire) - free.next) as usize;
        if free.returned.len() + fresh() < count {
            let missing = count - free.returned.len() - fresh();
            self.grow(&mut free, missing as u64);
            let fresh = (self.granted.load(Ordering::Acquire) - free.next) as usize;
            if free.returned.len() + fresh < count {
                return false;
            }
        }
        for _ in 0..count {
            if let Some(page) = free.returned.pop() {
                out.push(page);
            } else {
                out.push(PageId(free.next));
                free.next += 1;
            }
        }
        true
    }

    /// Gives pages back.
    pub(crate) fn release(&self, pages: &[PageId]) {
        if !pages.is_empty() {
            // Last in, first out; reversed so that a run of neighbours is handed out in order again.
            self.free.lock().expect("no code panics under this lock").returned.extend(pages.iter().rev());
        }
    }

    /// Start of a page's memory: [`PAGE_BYTES`] bytes, valid as long as the pool.
    pub(crate) fn pointer(&self, page: PageId) -> *mut u8 {
        debug_assert!(page.0 < self.pages);
        // SAFETY: the page lies within the mapping.
        unsafe { self.base.add(page.0 as usize * PAGE_BYTES as usize) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length; nobody has the pool any more.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_out_once_and_run_out() {
        let pool = Pool::new(8 * PAGE_BYTES, PAGE_BYTES).unwrap();
        let mut pages = Vec::new();
        assert!(pool.allocate(8, &mut pages));
        assert!(!pool.allocate(1, &mut Vec::new()));
        let mut distinct: Vec<_> = pages.iter().map(|p| pool.pointer(*p) as usize).collect();
        distinct.dedup();
        assert_eq!(distinct.len(), 8);
        assert_eq!(pool.page_count(100), 8);
        pool.release(&pages[..3]);
        let mut again = Vec::new();
        assert!(!pool.allocate(4, &mut again) && again.is_empty());
        assert!(pool.allocate(3, &mut again));
        assert_eq!(again, pages[..3], "neighbours stay neighbours");
    }

    #[test]
    fn a_pool_grows_only_while_the_node_has_memory_left() {
        const LIMIT: u64 = 1 << 30;
        let least = (GRANTED_BYTES_MIN / PAGE_BYTES) as usize;
        let full = Pool::limited(LIMIT, 0, || 0).unwrap();
        let mut pages = Vec::new();
        assert!(full.allocate(least, &mut pages), "so much in any case");
        assert!(!full.allocate(1, &mut pages));
        assert_eq!(full.page_count(1 << 20), least);
        full.release(&pages);
        full.trim();
        assert!(full.allocate(least, &mut Vec::new()), "pages that were given back can be used again");
        let empty = Pool::limited(LIMIT, 0, || u64::MAX).unwrap();
        let mut count = 0;
        while empty.allocate(64, &mut Vec::new()) {
            count += 64;
        }
        assert_eq!((count, empty.page_count(0)), ((LIMIT / PAGE_BYTES) as usize, empty.pages as usize));
        assert!(
            Pool::limited(LIMIT, 0, || u64::MAX).unwrap().page_count(1 << 10) >= 4 << 10,
            "for one operation"
        );
        let touched = Pool::limited(LIMIT, 64 << 20, || 0).unwrap();
        assert_eq!(
            touched.page_count(0) as u64 * PAGE_BYTES,
            64 << 20,
            "what is touched at the start may be used"
        );
    }
}
