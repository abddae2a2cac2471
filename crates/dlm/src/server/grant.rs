//! Who may have a lock now, who must wait, and for whom.

use super::queue::Standing;
use super::request::{Claim, Request};
use super::resource::{Effect, Lock, Phase, Resource};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, LockState};
use ccpfs_wire::GrantedLock;

/// What a request can be given: this mode over this region, in place of these locks of the same client.
pub(super) struct Offer {
    mode: LockMode,
    region: Region,
    replaces: Vec<LockId>,
}

/// Whether a request can be granted.
pub(super) enum Verdict {
    Grant(Offer),
    Wait(Obstacle),
}

/// What stands against a request.
pub(super) enum Obstacle {
    /// An earlier request, the latest of those that must be served first.
    Request(u64),
    /// These locks, at least one, for this mode within this region: more than asked for if locks of the same client would be
    /// taken in.
    Locks { by: Vec<LockId>, mode: LockMode, region: Region },
}

impl Lock {
    /// Whether `kept`, the lock without `taken`, has nothing any more of what its holder was asked for: as its holder reckons, or by
    /// looking.
    //= protocol.md#I8
    pub(super) fn gives_way(&self, taken: Extent, kept: &Region) -> bool {
        let Some(asked) = self.asked.as_ref().filter(|_| self.phase == Phase::Revoking) else { return false };
        let (bounds, end) = (self.region.bounds(), asked.bounds().end());
        let first = self.region.first_in_the_way(asked);
        let to_end = taken.end() >= bounds.end() && first.is_some_and(|first| taken.start() <= first);
        let from_start = taken.start() <= bounds.start() && taken.end() >= end.min(bounds.end());
        to_end || from_start || !kept.may_overlap(asked)
    }
}

impl Resource {
    /// Looks again at these waiting requests, oldest first, and at all that a grant among them concerns.
    pub(super) fn reconsider(&mut self, mut arrivals: BTreeSet<u64>, out: &mut Vec<Effect>) {
        while let Some(arrival) = arrivals.pop_first() {
            let Some(request) = self.waiting.get(arrival) else { continue };
            match self.verdict(request, arrival) {
                Verdict::Grant(offer) => {
                    let request = self.waiting.withdraw(arrival);
                    arrivals.extend(self.serve(&request, arrival, offer, out));
                }
                Verdict::Wait(obstacle) => arrivals.extend(self.wait(arrival, obstacle, out)),
            }
        }
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Grants a request that does not wait, if nothing stands against it.
    pub(super) fn try_grant(&mut self, request: &Request, out: &mut Vec<Effect>) -> bool {
        match self.verdict(request, u64::MAX) {
            Verdict::Wait(_) => false,
            Verdict::Grant(offer) => {
                let concerned = self.grant(request, offer, out);
                self.reconsider(concerned, out);
                true
            }
        }
    }

    /// Grants a request that waits no longer; whom that concerns.
    pub(super) fn serve(
        &mut self,
        request: &Request,
        arrival: u64,
        offer: Offer,
        out: &mut Vec<Effect>,
    ) -> BTreeSet<u64> {
        let mut concerned = self.grant(request, offer, out);
        self.stop_clocks(request.required.bounds(), out);
        // Whoever waited behind this request now waits for the lock, or not at all.
        concerned.extend(self.waiting.behind(arrival));
        concerned
    }

    /// Lets a request stand behind what is in its way, and asks holders of locks to let go; whom that concerns.
    pub(super) fn wait(&mut self, arrival: u64, obstacle: Obstacle, out: &mut Vec<Effect>) -> Vec<u64> {
        match obstacle {
            Obstacle::Request(other) => {
                self.waiting.stand(arrival, Standing::Behind(other));
                Vec::new()
            }
            Obstacle::Locks { by, mode: wanted, region } => {
                let request = self.waiting.get(arrival).expect("callers found the request");
                let standing = if region != request.required || wanted != request.mode {
                    Standing::Upgrading(region.bounds())
                } else {
                    match self.waiting.standing(arrival) {
                        // Whom else it waits for depends on its client's other locks; it is looked at whenever they may have changed.
                        before @ Standing::Upgrading(_) => before,
                        Standing::New | Standing::Behind(_) | Standing::Blocked(_) => {
                            Standing::Blocked(*by.iter().max().expect("somebody is in the way"))
                        }
                    }
                };
                self.waiting.stand(arrival, standing);
                self.ask_for(&by, wanted, &region, out)
            }
        }
    }

    /// What stands against a request, of all that came before `arrival` and all that was granted.
    pub(super) fn verdict(&self, request: &Request, arrival: u64) -> Verdict {
        if let Some(other) = self.waiting.latest_before(arrival, request) {
            return Verdict::Wait(Obstacle::Request(other));
        }
        let (mut mode, mut region) = (request.mode, request.required.clone());
        // Each round takes in more of the client's own locks, so it ends.
        loop {
            let (mut own, mut by) = (Vec::new(), Vec::new());
            let mut joined = (mode, region.clone());
            for id in self.against(Claim { mode, group: request.group }, &region) {
                let lock = &self.locks[&id];
                match self.joined(request, &joined.1, lock) {
                    Some(region) => {
                        joined = (joined.0.join(lock.mode), region);
                        own.push(id);
                    }
                    None => by.push(id),
                }
            }
            if joined == (mode, region.clone()) {
                return if by.is_empty() {
                    Verdict::Grant(Offer { mode, region, replaces: own })
                } else {
                    Verdict::Wait(Obstacle::Locks { by, mode, region })
                };
            }
            (mode, region) = joined;
        }
    }

    /// The range of a lock that stands for `lock` as well as for a request that has come to ask for `region`, if one may.
    ///
    /// Of two extents it is what lies between them, too; of others one must hold the other. An operation that holds several locks
    /// must not come to hold more than it needs, so its locks are not joined.
    fn joined(&self, request: &Request, region: &Region, lock: &Lock) -> Option<Region> {
        let same = lock.holder == request.from && lock.group == request.group;
        let several = lock.of_several || request.part.of_several();
        if !self.policy.upgrading || !same || several || lock.phase != Phase::Granted {
            return None;
        }
        region.joined(&lock.region)
    }

    /// The locks that conflict with a claim on `region`: short ones first, those that are aside last.
    fn against(&self, claim: Claim, region: &Region) -> Vec<LockId> {
        let mut found: Vec<(bool, u32, u64, LockId)> = self
            .near(claim.mode, region)
            .filter_map(|id| {
                let lock = &self.locks[&id];
                let stands = !self.compatible(claim, lock) && lock.region.may_overlap(region);
                let bounds = lock.region.bounds();
                stands.then(|| (self.is_aside(lock), bounds.length().ilog2(), bounds.start(), id))
            })
            .collect();
        if found.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        found.into_iter().map(|(_, _, _, id)| id).collect()
    }

    /// Whether a claim may stand beside a granted lock under this policy (paper Table II).
    fn compatible(&self, claim: Claim, lock: &Lock) -> bool {
        let state = if self.policy.early_grant { lock.state() } else { LockState::Granted };
        claim.mode.compatible(lock.mode, state) || claim.agrees(lock.group)
    }

    /// Whether granted lock `id` conflicts with a claim, where both have bytes.
    pub(super) fn stands_against(&self, id: LockId, claim: Claim) -> bool {
        !self.compatible(claim, &self.locks[&id])
    }

    /// The first byte of `region` that stands against a claim because somebody has it or waits for it.
    pub(super) fn first_in_the_way(&self, claim: Claim, region: &Region) -> Option<u64> {
        let granted = self.first_granted_in_the_way(claim, region);
        granted.into_iter().chain(self.waiting.in_the_way(claim, region)).min()
    }

    /// The first byte of `region` that stands against a claim because somebody has it.
    pub(super) fn first_granted_in_the_way(&self, claim: Claim, region: &Region) -> Option<u64> {
        self.near(claim.mode, region)
            .filter(|id| self.stands_against(*id, claim))
            .filter_map(|id| self.locks[&id].region.first_in_the_way(region))
            .min()
    }

    /// Asks the holders of these locks to let go, each once; asks those that are CANCELING, each once, to hurry: a holder may
    /// put off a flush that nobody waits for. Starts their clocks (I8).
    ///
    /// Returns requests that would have taken in one of these locks, and with it others that are in their way without it.
    //= protocol.md#I8
    fn ask_for(
        &mut self,
        locks: &[LockId],
        wanted: LockMode,
        region: &Region,
        out: &mut Vec<Effect>,
    ) -> Vec<u64> {
        let mut concerned = Vec::new();
        for id in locks {
            let lock = self.locks.get_mut(id).expect("found by the verdict");
            let hurry = match lock.phase {
                Phase::Granted => {
                    lock.phase = Phase::Revoking;
                    lock.asked = Some(Box::new(region.clone()));
                    lock.urged = !wanted.is_blind_write();
                    concerned.extend(self.waiting.upgrading_in(lock.region.bounds()));
                    true
                }
                Phase::Revoking => false,
                // A blind write waits for no release: only until the holder has lowered the lock, which it does unasked.
                Phase::Canceling if wanted.is_blind_write() => false,
                Phase::Canceling => !core::mem::replace(&mut lock.urged, true),
            };
            if hurry {
                out.push(Effect::Revoke { to: lock.holder, lock: *id, wanted, region: region.clone() });
            }
            if !core::mem::replace(&mut lock.awaited, true) {
                self.awaited.insert(lock.region.bounds(), *id);
                out.push(Effect::Arm { lock: *id, holder: lock.holder });
            }
        }
        concerned
    }

    /// Stops the clocks of CANCELING locks that nobody waits for any longer: whoever did was granted beside them, and their holders
    /// may put their flushes off. Whoever comes to wait for one starts its clock again.
    fn stop_clocks(&mut self, extent: Extent, out: &mut Vec<Effect>) {
        let mut beside: Vec<LockId> = self
            .awaited
            .overlapping(extent)
            .map(|(_, id)| id)
            .filter(|id| {
                let lock = &self.locks[id];
                lock.phase == Phase::Canceling && !self.is_waited_for(lock)
            })
            .collect();
        beside.sort_unstable();
        for id in beside {
            let lock = self.locks.get_mut(&id).expect("the index names locks that are held");
            lock.awaited = false;
            self.awaited.remove(lock.region.bounds(), id);
            out.push(Effect::Disarm { lock: id });
        }
    }

    /// Whether a waiting request may need the release of CANCELING `lock`.
    fn is_waited_for(&self, lock: &Lock) -> bool {
        let extent = lock.region.bounds();
        // How strong an upgrade will be is known when its turn comes.
        self.waiting.upgrading_in(extent).next().is_some()
            || match self.is_aside(lock) {
                true => self.waiting.has_others_than_blind(&lock.region),
                false => {
                    let claim = Claim { mode: lock.mode, group: lock.group };
                    self.waiting.conflicting(claim, &lock.region).next().is_some()
                }
            }
    }

    /// Makes a lock; whom that concerns, beside those who waited behind the request.
    fn grant(&mut self, request: &Request, offer: Offer, out: &mut Vec<Effect>) -> BTreeSet<u64> {
        let Offer { mode, region: base, replaces } = offer;
        // Data written under the locks that are replaced may still be on their way (I6).
        let inherited = replaces.iter().filter_map(|id| self.locks[id].lowest_sn).min();
        for id in &replaces {
            self.remove(*id, out);
        }
        let claim = Claim { mode, group: request.group };
        let region = self.expanded(&base, claim, request);
        let wanted = self.policy.early_revocation && region == base && self.is_wanted(claim, &region);
        let (phase, state) = match wanted {
            true => (Phase::Canceling, LockState::Canceling),
            false => (Phase::Granted, LockState::Granted),
        };
        let early = mode.writes()
            && self
                .near_all(&region)
                .any(|id| self.locks[&id].lowest_sn.is_some() && self.locks[&id].region.may_overlap(&region));
        let (lock, sn) = (self.next.lock, self.next.sn);
        self.next.lock.0 += 1;
        //= protocol.md#I2
        if mode.writes() {
            self.next.sn = sn.next();
        }
        let lowest_sn = match (mode.writes(), inherited) {
            (true, inherited) => Some(inherited.unwrap_or(sn)),
            (false, inherited) => inherited,
        };
        //= protocol.md#I1
        debug_assert!(
            self.against(claim, &region).is_empty(),
            "a lock is granted only where nothing stands against it"
        );
        let extent = region.bounds();
        let mut concerned: BTreeSet<u64> = self.waiting.upgrading_in(extent).collect();
        // Nobody who stands behind another lock is in the way of a grant, except of an upgrade, or where growth or requests go past
        // those who came first.
        let past_waiting = self.policy.expansion == ccpfs_types::Expansion::PastWaiting;
        let passed = request.may_pass() || self.waiting.has_passed();
        if !replaces.is_empty() || past_waiting || passed {
            concerned.extend(self.waiting.blocked_in(extent));
        }
        let held = Lock {
            holder: request.from,
            mode,
            region: region.clone(),
            group: request.group,
            of_several: request.part.of_several(),
            phase,
            asked: None,
            lowest_sn,
            urged: false,
            awaited: false,
        };
        self.index_of(&held).insert(&held.region, lock);
        self.by_number.extend(lowest_sn.map(|sn| (sn, lock)));
        self.locks.insert(lock, held);
        let granted = GrantedLock { lock, mode, region, sn, state, replaces, early };
        out.push(Effect::Grant { to: request.from, request: request.request, granted });
        concerned
    }

    /// Whether a waiting request conflicts with what is about to be granted (paper III-A2).
    fn is_wanted(&self, claim: Claim, region: &Region) -> bool {
        self.waiting.conflicting(claim, region).next().is_some()
    }

    /// I1 in full: two overlapping locks that may both be in use are compatible. And the clock of each lock runs that a request
    /// waits for (I8).
    #[cfg(debug_assertions)]
    fn check(&self) {
        if self.locks.len() > 64 {
            return; // quadratic; the grant asserts its own part
        }
        for (arrival, request) in self.waiting.iter().take(64) {
            let standing = self.waiting.standing(arrival);
            let agrees = match self.verdict(request, arrival) {
                Verdict::Grant(_) => false,
                Verdict::Wait(Obstacle::Request(other)) => standing == Standing::Behind(other),
                Verdict::Wait(Obstacle::Locks { by, .. }) => {
                    assert!(
                        by.iter().all(|id| self.locks[id].awaited),
                        "I8 is broken for {request:?}: {by:?}"
                    );
                    match standing {
                        Standing::Blocked(lock) => by.contains(&lock),
                        Standing::Upgrading(_) => true,
                        Standing::New | Standing::Behind(_) => false,
                    }
                }
            };
            assert!(agrees, "{request:?} does not stand behind what it waits for: {standing:?}");
        }
        for (id, a) in &self.locks {
            for (_, b) in self.locks.range((core::ops::Bound::Excluded(*id), core::ops::Bound::Unbounded)) {
                // `b` is the newer one; what it was granted beside may only have been lowered since.
                let compatible = b.mode.compatible(a.mode, a.state())
                    || a.mode.compatible(b.mode, b.state())
                    || (Claim { mode: a.mode, group: a.group }).agrees(b.group);
                assert!(
                    compatible || !a.region.may_overlap(&b.region),
                    "I1 is broken between {a:?} and {b:?}"
                );
            }
        }
    }
}
