//! The requests that wait for one resource, and what each of them waits for.
//!
//! *What*: each waiting request stands behind the latest earlier request that it conflicts with; if there is none, behind one of
//! the locks in its way. So whoever goes names those whose turn may have come, however many wait.
//! *Invariants*: I8 (whoever waits stands behind somebody who is still there).
//! *Not here*: which locks are in whose way, and what follows.

use super::index::RegionIndex;
use super::request::{Claim, Request};
use alloc::collections::{BTreeMap, BTreeSet};
use ccpfs_region::Region;
use ccpfs_types::{Extent, ExtentIndex, LockId, LockMode, LockState};
use core::fmt;

/// What a waiting request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Standing {
    /// It has not been looked at yet.
    New,
    /// The latest of the earlier requests that it conflicts with.
    Behind(u64),
    /// This lock, and perhaps others: all of their holders have been asked.
    Blocked(LockId),
    /// It would take in locks of its own client, and so waits for more than what it requires conflicts with: how far.
    Upgrading(Extent),
}

/// Waiting requests, by order of arrival.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    next_arrival: u64,
    waiters: BTreeMap<u64, Request>,
    /// All of them by what they require: reads, blind writes, and the others.
    reads: RegionIndex<u64>,
    blind: RegionIndex<u64>,
    exclusive: RegionIndex<u64>,
    /// An earlier request, and one that stands behind it.
    behind: BTreeSet<(u64, u64)>,
    /// A lock, and a request that stands behind it.
    blocked: BTreeSet<(LockId, u64)>,
    /// Those that stand behind a lock, by what they require.
    blocked_by_extent: ExtentIndex<u64>,
    /// Those that would take in other locks, by how far they reach.
    upgrading: ExtentIndex<u64>,
    /// How many may stand behind a lock although a request that came first waits as well.
    passing: usize,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue {
            next_arrival: 0,
            waiters: BTreeMap::new(),
            reads: RegionIndex::new(),
            blind: RegionIndex::new(),
            exclusive: RegionIndex::new(),
            behind: BTreeSet::new(),
            blocked: BTreeSet::new(),
            blocked_by_extent: ExtentIndex::new(),
            upgrading: ExtentIndex::new(),
            passing: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether a grant to one that came first may be in the way of one that stands behind a lock already.
    pub(super) fn has_passed(&self) -> bool {
        self.passing > 0
    }

    /// All requests with their arrivals, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Request)> + '_ {
        self.waiters.iter().map(|(arrival, request)| (*arrival, request))
    }

    pub(super) fn get(&self, arrival: u64) -> Option<&Request> {
        self.waiters.get(&arrival)
    }

    /// The arrival of the next request, which is taken.
    pub(super) fn arrive(&mut self) -> u64 {
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        arrival
    }

    /// Takes in a request under its arrival.
    pub(super) fn insert(&mut self, arrival: u64, request: Request) {
        self.by_region(request.mode).insert(&request.required, arrival);
        self.passing += usize::from(request.may_pass());
        let before = self.waiters.insert(arrival, request);
        assert!(before.is_none(), "arrivals are taken once");
    }

    /// Takes a request out. Those that stand behind it must be looked at.
    pub(super) fn withdraw(&mut self, arrival: u64) -> Request {
        self.stand(arrival, Standing::New);
        let request = self.waiters.remove(&arrival).expect("callers found the request");
        self.by_region(request.mode).remove(&request.required, arrival);
        self.passing -= usize::from(request.may_pass());
        request
    }

    fn by_region(&mut self, mode: LockMode) -> &mut RegionIndex<u64> {
        match mode {
            LockMode::Pr => &mut self.reads,
            LockMode::Nbw | LockMode::Bw => &mut self.blind,
            LockMode::Pw => &mut self.exclusive,
        }
    }

    pub(super) fn standing(&self, arrival: u64) -> Standing {
        self.waiters[&arrival].standing
    }

    /// Notes what a request waits for.
    pub(super) fn stand(&mut self, arrival: u64, standing: Standing) {
        let waiter = self.waiters.get_mut(&arrival).expect("callers found the request");
        let extent = waiter.required.bounds();
        match core::mem::replace(&mut waiter.standing, standing) {
            Standing::New => {}
            Standing::Behind(other) => {
                self.behind.remove(&(other, arrival));
            }
            Standing::Blocked(lock) => {
                self.blocked.remove(&(lock, arrival));
                self.blocked_by_extent.remove(extent, arrival);
            }
            Standing::Upgrading(reach) => self.upgrading.remove(reach, arrival),
        }
        match standing {
            Standing::New => {}
            Standing::Behind(other) => {
                self.behind.insert((other, arrival));
            }
            Standing::Blocked(lock) => {
                self.blocked.insert((lock, arrival));
                self.blocked_by_extent.insert(extent, arrival);
            }
            Standing::Upgrading(reach) => self.upgrading.insert(reach, arrival),
        }
    }

    /// Those that stand behind this request.
    pub(super) fn behind(&self, arrival: u64) -> impl Iterator<Item = u64> + '_ {
        self.behind.range((arrival, 0)..=(arrival, u64::MAX)).map(|(_, waiter)| *waiter)
    }

    /// Those that stand behind this lock.
    pub(super) fn blocked_by(&self, lock: LockId) -> impl Iterator<Item = u64> + '_ {
        self.blocked.range((lock, 0)..=(lock, u64::MAX)).map(|(_, waiter)| *waiter)
    }

    /// Those that stand behind a lock and require bytes of `extent`.
    pub(super) fn blocked_in(&self, extent: Extent) -> impl Iterator<Item = u64> + '_ {
        self.blocked_by_extent.overlapping(extent).map(|(_, waiter)| waiter)
    }

    /// Those that would take in other locks and reach into `extent`.
    pub(super) fn upgrading_in(&self, extent: Extent) -> impl Iterator<Item = u64> + '_ {
        self.upgrading.overlapping(extent).map(|(_, waiter)| waiter)
    }

    /// Requests that conflict with a claim on `region`; some perhaps twice.
    pub(super) fn conflicting<'a>(
        &'a self,
        claim: Claim,
        region: &'a Region,
    ) -> impl Iterator<Item = &'a Request> + 'a {
        self.conflicting_arrivals(claim, region).map(|arrival| &self.waiters[&arrival])
    }

    fn conflicting_arrivals<'a>(
        &'a self,
        claim: Claim,
        region: &'a Region,
    ) -> impl Iterator<Item = u64> + 'a {
        let reads = claim.mode.writes().then(|| self.reads.near(region));
        let writes = self.blind.near(region).chain(self.exclusive.near(region));
        let all = writes.chain(reads.into_iter().flatten());
        all.filter(move |arrival| self.waiters[arrival].conflicts(claim, region))
    }

    /// Whether somebody waits for bytes of `region` who wants to read them: no blind write.
    pub(super) fn has_others_than_blind(&self, region: &Region) -> bool {
        let mut others = self.reads.near(region).chain(self.exclusive.near(region));
        others.any(|arrival| self.waiters[&arrival].required.may_overlap(region))
    }

    /// The first byte of `region` that a request waits for which conflicts with a claim.
    pub(super) fn in_the_way(&self, claim: Claim, region: &Region) -> Option<u64> {
        let found = self.conflicting(claim, region);
        found.filter_map(|other| other.required.first_in_the_way(region)).min()
    }

    /// The least offset from `from` on that a request waits for which conflicts with a claim and begins at or before `from`.
    pub(super) fn first_around(&self, claim: Claim, from: u64) -> Option<u64> {
        let here = Region::from(Extent::new(from, from.checked_add(1)?)?);
        let reads = claim.mode.writes().then(|| self.reads.near(&here));
        let writes = self.blind.near(&here).chain(self.exclusive.near(&here));
        let mut first: Option<u64> = None;
        for arrival in writes.chain(reads.into_iter().flatten()) {
            let waiter = &self.waiters[&arrival];
            if !waiter.conflicts(claim, &Region::WHOLE) {
                continue;
            }
            let start = waiter.required.piece_from(from).map(Extent::start);
            first = first.into_iter().chain(start).min();
            if first == Some(from) {
                break;
            }
        }
        first
    }

    /// The least offset in `[from, to)` at which a request begins that conflicts with a claim.
    pub(super) fn first_start(&self, claim: Claim, from: u64, to: u64) -> Option<u64> {
        let counts = |arrival: u64| {
            let waiter = &self.waiters[&arrival];
            let next = waiter.required.piece_from(from).filter(|_| waiter.conflicts(claim, &Region::WHOLE));
            next.map(Extent::start)
        };
        let blind = self.blind.first_start(from, to, counts);
        let exclusive = self.exclusive.first_start(from, blind.unwrap_or(to), counts).or(blind);
        if claim.mode.writes() {
            self.reads.first_start(from, exclusive.unwrap_or(to), counts).or(exclusive)
        } else {
            exclusive
        }
    }

    /// The latest request before arrival `before` that `asked` conflicts with and does not pass.
    ///
    /// Looks at those that came last and at those nearby by turns, until either has the answer: in a crowd that wants the same
    /// bytes the one before is found at once, and where everybody wants others, nobody is nearby.
    pub(super) fn latest_before(&self, before: u64, asked: &Request) -> Option<u64> {
        let mut back = self.waiters.range(..before).rev();
        let mut near = self.conflicting_arrivals(asked.claim(), &asked.required);
        let mut latest = None;
        loop {
            let Some(nearby) = near.next() else { return latest };
            if nearby < before && !asked.passes(&self.waiters[&nearby]) {
                latest = latest.max(Some(nearby));
            }
            let (arrival, request) = back.next()?;
            if request.conflicts(asked.claim(), &asked.required) && !asked.passes(request) {
                return Some(*arrival);
            }
        }
    }
}

/// The requests: the rest only finds them faster.
impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.waiters).finish()
    }
}

impl Request {
    /// Whether it conflicts with a claim on `region`, when neither has been granted.
    fn conflicts(&self, claim: Claim, region: &Region) -> bool {
        !claim.mode.compatible(self.mode, LockState::Granted)
            && !claim.agrees(self.group)
            && self.required.may_overlap(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_types::{ClientId, GroupId, Part, RequestId};

    fn request(arrival: u64) -> Request {
        // Numbers that are spread, always the same ones.
        let some = arrival.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let start = (some >> 40) % 50;
        let required = Region::from(Extent::with_length(start, 1 + (some >> 50) % 6).unwrap());
        Request {
            from: ClientId(1),
            request: RequestId(arrival),
            mode: LockMode::ALL[usize::try_from((some >> 30) % 4).unwrap()],
            desired: required.clone(),
            required,
            part: Part::Only,
            group: GroupId::NONE,
            standing: Standing::New,
        }
    }

    #[test]
    fn the_latest_request_that_conflicts_is_found_as_by_a_search_of_all() {
        for count in [0, 1, 7, 40, 300] {
            let mut queue = Queue::new();
            for _ in 0..count {
                let arrival = queue.arrive();
                queue.insert(arrival, request(arrival));
            }
            for gone in (0..count).filter(|arrival| arrival % 3 == 1) {
                queue.withdraw(gone);
            }
            for (before, asked) in (0..count + 1).map(|arrival| (arrival, request(arrival))) {
                let dumb = queue
                    .iter()
                    .filter(|(arrival, other)| {
                        *arrival < before && other.conflicts(asked.claim(), &asked.required)
                    })
                    .map(|(arrival, _)| arrival)
                    .last();
                assert_eq!(queue.latest_before(before, &asked), dumb);
            }
        }
    }
}
