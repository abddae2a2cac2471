//! Threads of one process take turns: the client's range lock, as `ccpfs-client` has it.

use ccpfs_types::Extent;

#[derive(Clone, Copy, Debug)]
struct Entry {
    ticket: u64,
    thread: u32,
    extent: Extent,
    exclusive: bool,
    /// It has its turn.
    granted: bool,
}

/// The operations in progress and waiting on one file in one process, by arrival.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeLock {
    entries: Vec<Entry>,
    next: u64,
}

impl RangeLock {
    /// A ticket, and whether its turn is now. Otherwise it comes with [`RangeLock::unlock`] of others.
    pub(crate) fn lock(&mut self, thread: u32, extent: Extent, exclusive: bool) -> (u64, bool) {
        let ticket = self.next;
        self.next += 1;
        let mut entry = Entry { ticket, thread, extent, exclusive, granted: false };
        entry.granted = !self.is_blocked(&entry);
        self.entries.push(entry);
        (ticket, entry.granted)
    }

    fn is_blocked(&self, entry: &Entry) -> bool {
        self.entries.iter().any(|other| {
            other.ticket < entry.ticket
                && (other.exclusive || entry.exclusive)
                && other.extent.overlaps(entry.extent)
        })
    }

    /// Ends a turn. Returns the threads whose turn has come.
    pub(crate) fn unlock(&mut self, ticket: u64) -> Vec<u32> {
        self.entries.retain(|entry| entry.ticket != ticket);
        let mut woken = Vec::new();
        for at in 0..self.entries.len() {
            let entry = self.entries[at];
            if !entry.granted && !self.is_blocked(&entry) {
                self.entries[at].granted = true;
                woken.push(entry.thread);
            }
        }
        woken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_share_and_writers_take_turns_by_arrival() {
        let extent = |start, end| Extent::new(start, end).unwrap();
        let mut lock = RangeLock::default();
        let (first, granted) = lock.lock(0, extent(0, 10), false);
        assert!(granted && lock.lock(1, extent(5, 15), false).1);
        let (writer, granted) = lock.lock(2, extent(12, 20), true);
        assert!(!granted);
        assert!(!lock.lock(3, extent(12, 13), false).1, "behind the writer that came before");
        assert!(lock.unlock(first).is_empty());
        assert_eq!(lock.unlock(1), [2]);
        assert_eq!(lock.unlock(writer), [3]);
    }
}
