//! Room: how much of a client's cache is dirty, who waits for less, and what is flushed or forgotten to make it.

use crate::client::ClientInner;
use crate::error::FsError;
use crate::flush_loop;
use crate::stripe::{Outbox, Stripe};
use ccpfs_writeback::{Budget, Verdict};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// The accounts of a client's memory.
pub(crate) struct Room {
    dirty_bytes: AtomicI64,
    budget: Budget,
    /// A background flush is under way.
    flushing: AtomicBool,
    /// How many flushes have failed, and the last error: writers that wait for room give up.
    failures: Mutex<(u64, i32)>,
    /// Number of writers that wait.
    waiting: Mutex<u32>,
    changed: Condvar,
}

impl Room {
    pub(crate) fn new(budget: Budget) -> Room {
        Room {
            dirty_bytes: AtomicI64::new(0),
            budget,
            flushing: AtomicBool::new(false),
            failures: Mutex::default(),
            waiting: Mutex::new(0),
            changed: Condvar::new(),
        }
    }
}

impl ClientInner {
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
            } else if let Some(session) = self.current_session(stripe.target) {
                flush_loop::schedule(self, &session, stripe, false);
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
                if stripe.lock().cache.dirty_bytes() > 0
                    && let Some(session) = self.current_session(stripe.target)
                {
                    flush_loop::schedule(self, &session, stripe, false);
                }
            }
        }
    }

    pub(crate) fn wake_writers(&self) {
        if *self.room.waiting.lock().expect("no code panics under this lock") > 0 {
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
        let seen = self.room.failures.lock().expect("no code panics under this lock").0;
        self.room.flushing.store(true, Ordering::Relaxed);
        self.flush_everything();
        let mut waiting = self.room.waiting.lock().expect("no code panics under this lock");
        *waiting += 1;
        let result = loop {
            if enough() {
                break Ok(());
            }
            let (failures, errno) = *self.room.failures.lock().expect("no code panics under this lock");
            if failures != seen {
                break Err(FsError::Server { operation: "flush", errno });
            }
            // Woken by acknowledgements; the bound only guards against a wake-up lost to a session that just ended.
            let pause = Duration::from_millis(200);
            waiting =
                self.room.changed.wait_timeout(waiting, pause).expect("no code panics under this lock").0;
        };
        *waiting -= 1;
        result
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

    fn reclaim(&self, pages: usize) {
        let mut freed = 0;
        for file in self.all_files() {
            for stripe in &file.stripes {
                let mut out = Outbox::default();
                let mut inner = stripe.lock();
                let before = inner.page_count();
                inner.reclaim(stripe, self.the_pool(), &mut out);
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
