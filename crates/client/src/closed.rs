//! Files without an open handle, in the order in which they were closed last.

use ccpfs_types::FileId;
use std::collections::{BTreeMap, HashMap};

/// Files whose caches and locks are kept, oldest first.
#[derive(Default)]
pub(crate) struct Closed {
    /// By the turn at which they were closed.
    order: BTreeMap<u64, FileId>,
    turns: HashMap<FileId, u64>,
    next: u64,
}

impl Closed {
    /// A file was closed just now. Takes out the one closed longest ago if there are more than `count_max`.
    pub(crate) fn enter(&mut self, file: FileId, count_max: usize) -> Option<FileId> {
        let turn = self.next;
        self.next += 1;
        if let Some(before) = self.turns.insert(file, turn) {
            self.order.remove(&before);
        }
        self.order.insert(turn, file);
        if self.order.len() <= count_max {
            return None;
        }
        let (_, oldest) = self.order.pop_first()?;
        self.turns.remove(&oldest);
        Some(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_closed_longest_ago_goes_first_and_each_file_counts_once() {
        let file = |number: u8| FileId([number; 16]);
        let mut closed = Closed::default();
        assert_eq!(closed.enter(file(1), 2), None);
        assert_eq!(closed.enter(file(2), 2), None);
        assert_eq!(closed.enter(file(1), 2), None, "it is the youngest now");
        assert_eq!(closed.enter(file(3), 2), Some(file(2)));
        assert_eq!(closed.enter(file(2), 2), Some(file(1)));
        assert_eq!((closed.order.len(), closed.turns.len()), (2, 2));
    }
}
