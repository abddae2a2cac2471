//! Virtual time, and what happens when: a queue of events ordered by time, and by insertion where times are equal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What will happen, and the time that it is now.
#[derive(Debug)]
pub struct Clock<E> {
    now_ns: u64,
    sequence: u64,
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slots: Vec<Option<E>>,
    free: Vec<u32>,
}

impl<E> Default for Clock<E> {
    fn default() -> Clock<E> {
        Clock::new()
    }
}

impl<E> Clock<E> {
    /// Time zero, and nothing to come.
    #[must_use]
    pub const fn new() -> Clock<E> {
        Clock { now_ns: 0, sequence: 0, heap: BinaryHeap::new(), slots: Vec::new(), free: Vec::new() }
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Number of events that are to come.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is to come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Number of events that were put in so far.
    #[must_use]
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Lets `event` happen at `at_ns`, or now if that has passed.
    pub fn at(&mut self, at_ns: u64, event: E) {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push(None);
                u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 events at a time")
            }
        };
        self.slots[slot as usize] = Some(event);
        self.heap.push(Reverse((at_ns.max(self.now_ns), self.sequence, slot)));
        self.sequence += 1;
    }

    /// Goes on to the next event.
    #[allow(
        clippy::should_implement_trait,
        reason = "time does not end: more may be put in after the last one"
    )]
    pub fn next(&mut self) -> Option<E> {
        let Reverse((at_ns, _, slot)) = self.heap.pop()?;
        self.now_ns = at_ns;
        self.free.push(slot);
        self.slots[slot as usize].take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_they_were_put_in() {
        let mut clock = Clock::new();
        for (at, event) in [(5, 'c'), (1, 'a'), (5, 'd'), (3, 'b')] {
            clock.at(at, event);
        }
        let mut seen = Vec::new();
        while let Some(event) = clock.next() {
            seen.push((clock.now_ns(), event));
            if event == 'b' {
                clock.at(0, 'x');
            }
        }
        assert_eq!(seen, [(1, 'a'), (3, 'b'), (3, 'x'), (5, 'c'), (5, 'd')]);
    }
}
