//! The page pool: all memory of the cache in one mapping, so that it can be registered with an RDMA provider.

use std::io;
use std::sync::Mutex;

/// Bytes of a page. Validity is kept per byte elsewhere; a page is only memory.
pub(crate) const PAGE_BYTES: u64 = 16 * 1024;

/// One page of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PageId(u32);

struct Free {
    /// Pages that were used and given back.
    returned: Vec<PageId>,
    /// Pages from here on have never been used.
    next: u32,
}

/// The memory of one client's cache.
pub(crate) struct Pool {
    base: *mut u8,
    bytes: usize,
    pages: u32,
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
        let free = Mutex::new(Free { returned: Vec::new(), next: 0 });
        Ok(Pool { base: base.cast(), bytes, pages, free })
    }

    /// Number of pages, used or not.
    pub(crate) fn page_count(&self) -> usize {
        self.pages as usize
    }

    /// Takes `count` pages, neighbours where possible; none if there are not so many.
    pub(crate) fn allocate(&self, count: usize, out: &mut Vec<PageId>) -> bool {
        let mut free = self.free.lock().expect("no code panics under this lock");
        let fresh = (self.pages - free.next) as usize;
        if free.returned.len() + fresh < count {
            return false;
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
        pool.release(&pages[..3]);
        let mut again = Vec::new();
        assert!(!pool.allocate(4, &mut again) && again.is_empty());
        assert!(pool.allocate(3, &mut again));
        assert_eq!(again, pages[..3], "neighbours stay neighbours");
    }
}
