//! A set that remembers a bounded number of members: the oldest one makes room.

use alloc::collections::{BTreeMap, BTreeSet};

/// The last `members_max` values that were added.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Recent<T> {
    members: BTreeSet<T>,
    /// The members by their arrival.
    order: BTreeMap<u64, T>,
    next: u64,
    members_max: usize,
}

impl<T: Copy + Ord> Recent<T> {
    pub(crate) fn new(members_max: usize) -> Recent<T> {
        Recent { members: BTreeSet::new(), order: BTreeMap::new(), next: 0, members_max }
    }

    pub(crate) fn insert(&mut self, value: T) {
        if !self.members.insert(value) {
            return;
        }
        self.order.insert(self.next, value);
        self.next += 1;
        if self.order.len() > self.members_max
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.members.remove(&oldest);
        }
        assert!(self.members.len() == self.order.len(), "each member has arrived once");
    }

    pub(crate) fn contains(&self, value: &T) -> bool {
        self.members.contains(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_member_makes_room() {
        let mut recent = Recent::new(2);
        for value in [1, 2, 2, 3] {
            recent.insert(value);
        }
        assert!(!recent.contains(&1) && recent.contains(&2) && recent.contains(&3));
    }
}
