//! Atomicity between threads of one process: overlapping operations on a file take turns.

use ccpfs_types::Extent;
use std::sync::{Condvar, Mutex};

#[derive(Clone, Copy)]
struct Entry {
    ticket: u64,
    extent: Extent,
    exclusive: bool,
}

#[derive(Default)]
struct State {
    /// Operations in progress and waiting, by arrival: an operation waits for conflicting ones before it.
    entries: Vec<Entry>,
    next: u64,
    waiting: u32,
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
}

impl RangeLock {
    /// Waits until no overlapping operation that came before is in progress, readers beside readers excepted.
    pub(crate) fn lock(&self, extent: Extent, exclusive: bool) -> RangeGuard<'_> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        let ticket = state.next;
        state.next += 1;
        state.entries.push(Entry { ticket, extent, exclusive });
        let conflict = |state: &State| {
            state
                .entries
                .iter()
                .any(|e| e.ticket < ticket && (e.exclusive || exclusive) && e.extent.overlaps(extent))
        };
        while conflict(&state) {
            state.waiting += 1;
            state = self.changed.wait(state).expect("no code panics under this lock");
            state.waiting -= 1;
        }
        RangeGuard { lock: self, ticket }
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.lock.state.lock().expect("no code panics under this lock");
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
}
