//! Room: how much of a client's cache is dirty, who waits for less, and what is flushed or forgotten to make it.

use crate::client::ClientInner;
use crate::error::FsError;
use crate::flush_loop;
use crate::pages::PAGE_BYTES;
use crate::reserve::{Reservation, Reservations};
use crate::stripe::{Outbox, Stripe};
use ccpfs_cached_stripe::Input;
use ccpfs_types::Layout;
use ccpfs_writeback::{Budget, Verdict};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::Duration;

/// Pages that holds would like to do their reading and writing with.
const HELD_PAGES_WANTED: u64 = (16 << 20) / PAGE_BYTES;

/// The accounts of a client's memory.
pub(crate) struct Room {
    dirty_bytes: AtomicI64,
    budget: Budget,
    /// A background flush is under way.
    flushing: AtomicBool,
    /// How many flushes have failed, and the last error: writers that wait for room give up.
    failures: Mutex<(u64, i32)>,
    waiters: Mutex<Waiters>,
    /// Pages of operations in progress.
    reservations: Reservations,
    /// Pages that holds do their reading and writing with, once there was one: they never wait for those of operations that wait for
    /// what a hold has.
    held_pages: OnceLock<usize>,
    held_reservations: Reservations,
    changed: Condvar,
}

/// Who waits for room.
#[derive(Default)]
struct Waiters {
    count: u32,
    /// Rises with each change that may have made room.
    changes: u64,
}

impl Room {
    pub(crate) fn new(budget: Budget) -> Room {
        Room {
            dirty_bytes: AtomicI64::new(0),
            budget,
            flushing: AtomicBool::new(false),
            failures: Mutex::default(),
            waiters: Mutex::default(),
            reservations: Reservations::default(),
            held_pages: OnceLock::new(),
            held_reservations: Reservations::default(),
            changed: Condvar::new(),
        }
    }
}

impl ClientInner {
    /// Pages for an operation on `length` bytes of a file, before it takes its locks; waits for other operations if they are all
    /// in use.
    pub(crate) fn reserve(&self, layout: Layout, length: u64) -> Result<Reservation<'_>, FsError> {
        let pages_max = self.pool()?.page_count(length.div_ceil(PAGE_BYTES));
        Ok(self.room.reservations.reserve(layout, length, pages_max))
    }

    /// Reserves pages for an operation that works piece by piece: at most half of all.
    pub(crate) fn reserve_pages(&self, pages: u64) -> Result<Reservation<'_>, FsError> {
        Ok(self.room.reservations.reserve_pages(pages, self.pool()?.page_count(pages)))
    }

    /// Sets pages aside for what holds do; for good, and before the first hold takes its locks.
    pub(crate) fn set_aside_for_holds(&self) -> Result<(), FsError> {
        let pages = self.pool()?.page_count(HELD_PAGES_WANTED);
        self.room.held_pages.get_or_init(|| self.room.reservations.set_aside(pages));
        Ok(())
    }

    /// As [`ClientInner::reserve`], for an operation under the locks of a hold.
    pub(crate) fn reserve_held(&self, layout: Layout, length: u64) -> Result<Reservation<'_>, FsError> {
        self.set_aside_for_holds()?;
        let pages = self.room.held_pages.get().copied().unwrap_or(1);
        Ok(self.room.held_reservations.reserve(layout, length, pages))
    }

    pub(crate) fn change_dirty(&self, delta: i64, stripe: &Arc<Stripe>) {
        let now = self.room.dirty_bytes.fetch_add(delta, Ordering::Relaxed) + delta;
        let verdict = self.room.budget.verdict(u64::try_from(now).unwrap_or(0));
        if delta < 0 {
            self.wake_writers();
            if verdict == Verdict::Calm {
                self.room.flushing.store(false, Ordering::Relaxed);
            }
        } else if verdict != Verdict::Calm {
            if !self.room.flushing.swap(true, Ordering::Relaxed) {
                self.flush_everything();
            } else {
                flush_loop::schedule(self, stripe, false);
            }
        }
    }

    /// Whether the background flush should go on.
    pub(crate) fn wants_room(&self) -> bool {
        self.room.flushing.load(Ordering::Relaxed)
    }

    /// Starts flushing all dirty stripes, waiting for none.
    pub(crate) fn flush_everything(&self) {
        for file in self.all_files() {
            for stripe in &file.stripes {
                let dirty = stripe.lock().cached().cache().dirty_bytes() > 0;
                if dirty {
                    flush_loop::schedule(self, stripe, false);
                }
            }
        }
    }

    /// As [`ClientInner::flush_everything`], and what could not be stored before is tried again.
    fn retry_everything(&self) {
        for file in self.all_files() {
            for stripe in &file.stripes {
                let mut out = Outbox::default();
                let mut inner = stripe.lock();
                if inner.cached().cache().dirty_bytes() > 0 {
                    inner.step(stripe, self, Input::Retry, &mut out);
                }
                drop(inner);
                self.dispatch(stripe, out);
            }
        }
        self.flush_everything();
    }

    pub(crate) fn wake_writers(&self) {
        let mut waiters = self.room.waiters.lock().expect("no code panics under this lock");
        waiters.changes += 1;
        if waiters.count > 0 {
            self.room.changed.notify_all();
        }
    }

    /// Tells writers that wait for room that a flush has failed. The file itself has noted the error already.
    pub(crate) fn note_failure(&self, errno: i32) {
        let mut failures = self.room.failures.lock().expect("no code panics under this lock");
        *failures = (failures.0 + 1, errno);
        drop(failures);
        self.wake_writers();
    }

    /// Waits while there are too many dirty bytes.
    pub(crate) fn wait_for_budget(&self) -> Result<(), FsError> {
        let over = || {
            let now = u64::try_from(self.room.dirty_bytes.load(Ordering::Relaxed)).unwrap_or(0);
            self.room.budget.verdict(now) == Verdict::Wait
        };
        if over() { self.wait_for_room(|| !over()) } else { Ok(()) }
    }

    /// Waits until `enough` is true, flushing and reclaiming meanwhile. Gives up with the error of a flush that fails.
    pub(crate) fn wait_for_room(&self, mut enough: impl FnMut() -> bool) -> Result<(), FsError> {
        let failures = || *self.room.failures.lock().expect("no code panics under this lock");
        let seen = failures().0;
        let waiters = || self.room.waiters.lock().expect("no code panics under this lock");
        self.retry_everything();
        loop {
            let before = waiters().changes;
            if enough() {
                return Ok(());
            }
            let (count, errno) = failures();
            if count != seen {
                return Err(FsError::Server { operation: "flush", errno });
            }
            // Again in each turn: what was flushed may have been less than what is needed, or have been written since.
            self.room.flushing.store(true, Ordering::Relaxed);
            self.flush_everything();
            let mut waiters = waiters();
            waiters.count += 1;
            while waiters.changes == before {
                // The bound is for changes that nobody announces: pages of a read that has ended.
                let pause = Duration::from_millis(200);
                let (next, timed_out) =
                    self.room.changed.wait_timeout(waiters, pause).expect("no code panics under this lock");
                waiters = next;
                if timed_out.timed_out() {
                    break;
                }
            }
            waiters.count -= 1;
        }
    }

    /// Makes room in the pool for `pages` pages: clean ones are forgotten, dirty ones flushed.
    pub(crate) fn make_room(&self, pages: usize) -> Result<(), FsError> {
        let mut trial = Vec::new();
        self.wait_for_room(|| {
            self.reclaim(pages);
            let fits = self.the_pool().allocate(pages, &mut trial);
            self.the_pool().release(&trial);
            trial.clear();
            fits
        })
    }

    /// Gives memory back that the node has none left of: what is cached and clean is forgotten.
    pub(crate) fn trim(&self) {
        let Some(pool) = self.pool.get() else { return };
        if crate::memory::left_bytes() == 0 {
            self.reclaim(usize::MAX);
            pool.trim();
        }
    }

    fn reclaim(&self, pages: usize) {
        let mut freed = 0;
        for file in self.all_files() {
            for stripe in &file.stripes {
                let mut out = Outbox::default();
                let mut inner = stripe.lock();
                let before = inner.page_count();
                inner.reclaim(stripe, self, &mut out);
                freed += before - inner.page_count();
                drop(inner);
                out.freed = false;
                self.dispatch(stripe, out);
                if freed >= pages {
                    return;
                }
            }
        }
    }
}
