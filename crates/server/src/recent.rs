//! A set that remembers a bounded number of members: the oldest one makes room.

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;

/// The last `members_max` values that were added.
#[derive(Debug)]
pub(crate) struct Recent<T> {
    members: HashSet<T>,
    order: VecDeque<T>,
    members_max: usize,
}

impl<T: Copy + Eq + Hash> Recent<T> {
    pub(crate) fn new(members_max: usize) -> Recent<T> {
        Recent { members: HashSet::new(), order: VecDeque::new(), members_max }
    }

    pub(crate) fn insert(&mut self, value: T) {
        if !self.members.insert(value) {
            return;
        }
        self.order.push_back(value);
        if self.order.len() > self.members_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.members.remove(&oldest);
        }
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
