//! When and where extent caches are trimmed: in slices between two turns of the shard, until they are small enough.
//!
//! *What*: a *round* looks at every entry once. If it leaves too many, old locks have not been flushed: the server then takes a read lock on
//! the whole of the largest stripes, which makes clients flush (DESIGN section 5).
//! *Invariants*: I6, by asking the lock table for each entry whether anything older may still come.
//! *Not here*: what is forgotten of what was looked at (`ccpfs-extent-cache`).

use crate::data::DataService;
use crate::locks::LockTable;
use crate::services::Turn;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ccpfs_types::limits::TRIM_ENTRIES_MAX;
use ccpfs_types::{Extent, ResourceId, Sn};
use core::ops::Bound;

/// Stripes on which the server takes its lock at a time.
const FORCED_AT_ONCE_MAX: usize = 4;

/// How far trimming has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trimming {
    entries_max: usize,
    /// Entries at which the next round begins; above `entries_max` when a round was of little use.
    begin_at: usize,
    round: Option<Round>,
    /// Stripes for which the server waits for its lock.
    forced: BTreeSet<ResourceId>,
    pub(crate) forced_count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Round {
    /// The stripe looked at last.
    at: Option<ResourceId>,
    /// Entries left to look at.
    left: usize,
    /// Entries of the stripe that were looked at in this round.
    looked: usize,
}

impl Trimming {
    pub(crate) fn new(entries_max: usize) -> Trimming {
        Trimming { entries_max, begin_at: entries_max, round: None, forced: BTreeSet::new(), forced_count: 0 }
    }

    /// Whether there is a slice of work to do.
    pub(crate) fn is_busy(&self, data: &DataService) -> bool {
        self.round.is_some() || data.entries > self.begin_at
    }

    /// One slice: at most [`TRIM_ENTRIES_MAX`] entries. Returns the stripes to force a flush of.
    pub(crate) fn slice(
        &mut self,
        data: &mut DataService,
        locks: &LockTable,
        turn: &mut Turn<'_>,
    ) -> Vec<ResourceId> {
        if !self.is_busy(data) {
            return Vec::new();
        }
        let mut round = self.round.take().unwrap_or(Round { at: None, left: data.entries, looked: 0 });
        let mut budget = TRIM_ENTRIES_MAX;
        while budget > 0 && round.left > 0 {
            let Some(resource) = stripe_to_look_at(data, &mut round) else {
                round.left = 0;
                break;
            };
            let candidates = data.stripes[&resource].candidates(budget);
            let floors: Vec<(Extent, Option<Sn>)> = candidates
                .iter()
                .map(|(extent, sn)| (*extent, locks.unreleased_below(resource, *extent, *sn)))
                .collect();
            let looked = candidates.len().max(1);
            budget = budget.saturating_sub(looked);
            round.looked += looked;
            round.left = round.left.saturating_sub(looked);
            data.trim(resource, floors, turn);
        }
        if round.left > 0 {
            self.round = Some(round);
            return Vec::new();
        }
        self.end_of_round(data, locks)
    }

    /// The server has been granted its lock on a stripe, or the stripe is gone.
    pub(crate) fn unforced(&mut self, resource: ResourceId) {
        self.forced.remove(&resource);
    }

    fn end_of_round(&mut self, data: &DataService, locks: &LockTable) -> Vec<ResourceId> {
        if data.entries <= self.entries_max {
            self.begin_at = self.entries_max;
            return Vec::new();
        }
        // Not again before a sixteenth has been added: what is unflushed today is so a millisecond later as well.
        self.begin_at = data.entries + self.entries_max / 16 + 1;
        let mut largest: Vec<(usize, ResourceId)> = data
            .stripes
            .iter()
            .filter(|(id, _)| locks.knows(**id) && !self.forced.contains(id))
            .map(|(id, stripe)| (stripe.entries(), *id))
            .collect();
        largest.sort_unstable_by(|a, b| b.cmp(a));
        let room = FORCED_AT_ONCE_MAX.saturating_sub(self.forced.len());
        let chosen: Vec<ResourceId> = largest.into_iter().take(room).map(|(_, id)| id).collect();
        self.forced.extend(chosen.iter().copied());
        self.forced_count += chosen.len() as u64;
        chosen
    }
}

/// The stripe that the round has not finished yet, or the next one with entries.
fn stripe_to_look_at(data: &DataService, round: &mut Round) -> Option<ResourceId> {
    if let Some(at) = round.at
        && data.stripes.get(&at).is_some_and(|stripe| stripe.entries() > round.looked)
    {
        return Some(at);
    }
    let from = round.at.map_or(Bound::Unbounded, Bound::Excluded);
    let (next, _) = data.stripes.range((from, Bound::Unbounded)).find(|(_, stripe)| stripe.entries() > 0)?;
    round.at = Some(*next);
    round.looked = 0;
    Some(*next)
}
