//! Atomicity between threads of one process: overlapping operations on a file take turns.
//!
//! An operation has its turn first, then takes its locks of the servers, then *runs*: touches bytes. What is done beneath a hold has
//! its lock already, and must not wait for operations that wait for locks: one of those may wait, by way of another client, for the
//! very lock that the hold has. So it waits only for operations that run, and they for it before they do.

use ccpfs_types::Extent;
use std::sync::{Condvar, Mutex, MutexGuard};

#[derive(Clone, Copy)]
struct Entry {
    ticket: u64,
    extent: Extent,
    exclusive: bool,
    /// Under the lock of a hold.
    beneath: bool,
    /// Since when it runs: who overlaps waits for those that do for longer.
    runs: Option<u64>,
}

impl Entry {
    fn conflicts(&self, other: &Entry) -> bool {
        (self.exclusive || other.exclusive) && self.extent.overlaps(other.extent)
    }
}

#[derive(Default)]
struct State {
    /// Operations in progress and waiting, by arrival: an operation waits for conflicting ones before it.
    entries: Vec<Entry>,
    next: u64,
    waiting: u32,
    /// Holds on this file. As long as there is none, operations count as running from their arrival, and need not say so later.
    holds: u32,
}

impl State {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Whether something that conflicts runs for longer than since `order`.
    fn runs_before(&self, order: u64, entry: &Entry, counts: impl Fn(&Entry) -> bool) -> bool {
        let earlier = |e: &&Entry| e.runs.is_some_and(|since| since < order);
        self.entries.iter().filter(earlier).any(|e| counts(e) && e.conflicts(entry))
    }
}

/// The operations in progress on one file in this process.
#[derive(Default)]
pub(crate) struct RangeLock {
    state: Mutex<State>,
    changed: Condvar,
}

/// An operation in progress; ends when dropped.
pub(crate) struct RangeGuard<'a> {
    lock: &'a RangeLock,
    ticket: u64,
    runs: bool,
}

impl RangeLock {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).expect("no code panics under this lock");
        state.waiting -= 1;
        state
    }

    /// Waits until no overlapping operation that came before is in progress, readers beside readers excepted.
    pub(crate) fn lock(&self, extent: Extent, exclusive: bool) -> RangeGuard<'_> {
        let mut state = self.state();
        let ticket = state.number();
        let runs = state.holds == 0;
        let entry = Entry { ticket, extent, exclusive, beneath: false, runs: runs.then_some(ticket) };
        state.entries.push(entry);
        let conflict = |state: &State| {
            state.entries.iter().any(|e| !e.beneath && e.ticket < ticket && e.conflicts(&entry))
        };
        while conflict(&state) {
            state = self.wait(state);
        }
        RangeGuard { lock: self, ticket, runs }
    }

    /// Waits until no overlapping operation runs that did before, readers beside readers excepted; for something under the locks
    /// of a hold.
    pub(crate) fn beneath(&self, extent: Extent, exclusive: bool) -> RangeGuard<'_> {
        let mut state = self.state();
        let ticket = state.number();
        let entry = Entry { ticket, extent, exclusive, beneath: true, runs: Some(ticket) };
        state.entries.push(entry);
        while state.runs_before(ticket, &entry, |_| true) {
            state = self.wait(state);
        }
        RangeGuard { lock: self, ticket, runs: true }
    }

    /// A hold begins, and has no lock yet. Waits for overlapping operations that count as running but may be waiting for their locks.
    pub(crate) fn begin_hold(&self, extent: Extent) {
        let mut state = self.state();
        state.holds += 1;
        let at_once = |e: &Entry| !e.beneath && e.runs == Some(e.ticket) && e.extent.overlaps(extent);
        while state.entries.iter().any(at_once) {
            state = self.wait(state);
        }
    }

    /// A hold has ended.
    pub(crate) fn end_hold(&self) {
        self.state().holds -= 1;
    }
}

impl RangeGuard<'_> {
    /// Whether there are holds of the file beside the operation. If not, none with a byte in common begins before it has ended.
    pub(crate) fn is_beside_holds(&self) -> bool {
        !self.runs
    }

    /// The operation has its locks: it runs from now on, when what holds do just now to the same bytes is done.
    pub(crate) fn run(&mut self) {
        if self.runs {
            return;
        }
        self.runs = true;
        let mut state = self.lock.state();
        let order = state.number();
        let entry =
            state.entries.iter_mut().find(|e| e.ticket == self.ticket).expect("a guard has its entry");
        entry.runs = Some(order);
        let entry = *entry;
        while state.runs_before(order, &entry, |e| e.beneath) {
            state = self.lock.wait(state);
        }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state();
        let at = state.entries.iter().position(|e| e.ticket == self.ticket).expect("a guard has its entry");
        state.entries.swap_remove(at);
        if state.waiting > 0 {
            self.lock.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn writers_of_one_range_take_turns_and_readers_do_not() {
        let lock = Arc::new(RangeLock::default());
        let inside = Arc::new(AtomicU32::new(0));
        let extent = Extent::new(0, 10).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (lock, inside) = (Arc::clone(&lock), Arc::clone(&inside));
                std::thread::spawn(move || {
                    for _ in 0..1000 {
                        let _guard = lock.lock(extent, true);
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let one = lock.lock(extent, false);
        let two = lock.lock(extent, false);
        let apart = lock.lock(Extent::new(10, 20).unwrap(), true);
        drop((one, two, apart));
    }

    #[test]
    fn what_a_hold_does_waits_for_operations_that_run_and_not_for_those_that_wait_for_locks() {
        let lock = RangeLock::default();
        let (low, high) = (Extent::new(0, 10).unwrap(), Extent::new(5, 15).unwrap());
        lock.begin_hold(low);
        let mut waits_for_locks = lock.lock(high, true);
        drop(lock.beneath(low, true));
        let beneath = lock.beneath(low, false);
        let second = lock.beneath(low, false);
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                waits_for_locks.run();
                drop(waits_for_locks);
            });
            drop((beneath, second));
            drop(lock.beneath(low, true));
            runs.join().unwrap();
        });
        lock.end_hold();
    }

    #[test]
    fn without_holds_operations_run_from_their_arrival() {
        let lock = RangeLock::default();
        let extent = Extent::new(0, 10).unwrap();
        let mut guard = lock.lock(extent, true);
        guard.run();
        let entry = lock.state().entries[0];
        assert_eq!(entry.runs, Some(entry.ticket));
        drop(guard);
    }

    #[test]
    fn a_hold_begins_after_operations_that_may_be_waiting_for_locks() {
        let lock = RangeLock::default();
        let extent = Extent::new(0, 10).unwrap();
        let early = lock.lock(extent, false);
        std::thread::scope(|scope| {
            let hold = scope.spawn(|| lock.begin_hold(extent));
            assert!(!hold.is_finished());
            drop(early);
            hold.join().unwrap();
        });
        let mut later = lock.lock(extent, true);
        drop(lock.beneath(extent, true));
        later.run();
        drop(later);
        lock.end_hold();
    }
}
