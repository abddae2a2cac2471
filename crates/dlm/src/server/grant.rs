//! Who may have a lock now, who must wait, and for whom.

use super::resource::{Effect, Lock, Phase, Request, Resource};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ccpfs_types::{Extent, LockId, LockMode, LockState, Region};
use ccpfs_wire::GrantedLock;

/// What stands against a request.
enum Verdict {
    /// Nothing: grant this mode over this region in place of these locks of the same client.
    Grant { mode: LockMode, region: Region, replaces: Vec<LockId> },
    /// An earlier request, which must be served first.
    Behind,
    /// These locks, for this mode within this region: more than asked for if locks of the same client would be taken in.
    Blocked { by: Vec<LockId>, mode: LockMode, region: Region },
}

impl Resource {
    /// Looks again at these waiting requests, oldest first, and at all that a grant among them concerns.
    pub(super) fn reconsider(&mut self, mut arrivals: BTreeSet<u64>, out: &mut Vec<Effect>) {
        while let Some(arrival) = arrivals.pop_first() {
            let Some(request) = self.waiting.get(&arrival) else { continue };
            match self.verdict(request, Some(arrival)) {
                Verdict::Behind => {}
                Verdict::Blocked { by, mode: wanted, region } => {
                    if region != request.required || wanted != request.mode {
                        self.upgrading.insert(arrival, region.bounds());
                    }
                    self.ask_for(&by, wanted, out);
                }
                Verdict::Grant { mode, region, replaces } => {
                    let request = self.withdraw(arrival);
                    let extent = self.grant(&request, mode, region, replaces, out).bounds();
                    self.stop_clocks(request.required.bounds(), out);
                    // Whoever waited behind this request now waits for the lock, or not at all.
                    arrivals.extend(self.waiters_overlapping(extent));
                    arrivals.extend(self.waiters_overlapping(request.required.bounds()));
                }
            }
        }
        #[cfg(debug_assertions)]
        self.check();
    }

    /// Grants a request that does not wait, if nothing stands against it.
    pub(super) fn try_grant(&mut self, request: &Request, out: &mut Vec<Effect>) -> bool {
        match self.verdict(request, None) {
            Verdict::Behind | Verdict::Blocked { .. } => false,
            Verdict::Grant { mode, region, replaces } => {
                let extent = self.grant(request, mode, region, replaces, out).bounds();
                self.reconsider(self.waiters_overlapping(extent), out);
                true
            }
        }
    }

    fn verdict(&self, request: &Request, arrival: Option<u64>) -> Verdict {
        let earlier = |other: u64| arrival.is_none_or(|arrival| other < arrival);
        let behind = self
            .waiting_by_extent
            .overlapping(request.required.bounds())
            .any(|(_, other)| earlier(other) && self.waits_against(other, request.mode, &request.required));
        if behind {
            return Verdict::Behind;
        }
        let (mut mode, mut region) = (request.mode, request.required.clone());
        // Each round takes in more of the client's own locks, so it ends.
        loop {
            let mut own = Vec::new();
            let mut by = Vec::new();
            for (_, id) in self.near(mode, region.bounds()) {
                let lock = &self.locks[&id];
                if !lock.region.overlaps(&region) || self.compatible(mode, lock) {
                    continue;
                }
                let joins =
                    self.policy.upgrading && lock.holder == request.from && lock.phase == Phase::Granted;
                if joins { own.push(id) } else { by.push(id) }
            }
            let joined = own.iter().fold((mode, region.clone()), |(mode, region), id| {
                (mode.join(self.locks[id].mode), region.hull(&self.locks[id].region))
            });
            if joined == (mode, region.clone()) {
                return if by.is_empty() {
                    Verdict::Grant { mode, region, replaces: own }
                } else {
                    Verdict::Blocked { by, mode, region }
                };
            }
            (mode, region) = joined;
        }
    }

    /// Whether a request of `mode` may stand beside a granted lock under this policy (paper Table II).
    fn compatible(&self, mode: LockMode, lock: &Lock) -> bool {
        let state = if self.policy.early_grant { lock.state() } else { LockState::Granted };
        mode.compatible(lock.mode, state)
    }

    /// Whether waiting request `other` conflicts with `mode` over `region`.
    pub(super) fn waits_against(&self, other: u64, mode: LockMode, region: &Region) -> bool {
        let other = &self.waiting[&other];
        !mode.compatible(other.mode, LockState::Granted) && other.required.overlaps(region)
    }

    /// Whether granted lock `id` conflicts with `mode`.
    pub(super) fn stands_against(&self, id: LockId, mode: LockMode) -> bool {
        !self.compatible(mode, &self.locks[&id])
    }

    /// Asks the holders of these locks to let go, each once; asks those that are CANCELING, each once, to hurry: a holder may
    /// put off a flush that nobody waits for. Starts their clocks (I8).
    //= protocol.md#I8
    fn ask_for(&mut self, locks: &[LockId], wanted: LockMode, out: &mut Vec<Effect>) {
        for id in locks {
            let lock = self.locks.get_mut(id).expect("found by the verdict");
            let hurry = match lock.phase {
                Phase::Granted => {
                    lock.phase = Phase::Revoking;
                    lock.urged = !wanted.is_blind_write();
                    true
                }
                Phase::Revoking => false,
                // A blind write waits for no release: only until the holder has lowered the lock, which it does unasked.
                Phase::Canceling if wanted.is_blind_write() => false,
                Phase::Canceling => !core::mem::replace(&mut lock.urged, true),
            };
            if hurry {
                out.push(Effect::Revoke { to: lock.holder, lock: *id, wanted });
            }
            if self.awaited.insert(*id) {
                out.push(Effect::Arm { lock: *id, holder: lock.holder });
            }
        }
    }

    /// Stops the clocks of CANCELING locks that nobody waits for any longer: whoever did was granted beside them, and their holders
    /// may put their flushes off. Whoever comes to wait for one starts its clock again.
    fn stop_clocks(&mut self, extent: Extent, out: &mut Vec<Effect>) {
        let beside: Vec<LockId> = self
            .awaited
            .iter()
            .copied()
            .filter(|id| {
                let lock = &self.locks[id];
                lock.region.bounds().overlaps(extent)
                    && lock.phase == Phase::Canceling
                    && !self.is_waited_for(lock)
            })
            .collect();
        for id in beside {
            self.awaited.remove(&id);
            out.push(Effect::Disarm { lock: id });
        }
    }

    /// Whether a waiting request may need the release of `lock`.
    fn is_waited_for(&self, lock: &Lock) -> bool {
        let extent = lock.region.bounds();
        // How strong an upgrade will be is known when its turn comes.
        self.upgrading.values().any(|reach| reach.overlaps(extent))
            || self.waiting_by_extent.overlapping(extent).any(|(_, arrival)| {
                self.upgrading.contains_key(&arrival) || !self.compatible(self.waiting[&arrival].mode, lock)
            })
    }

    fn grant(
        &mut self,
        request: &Request,
        mode: LockMode,
        base: Region,
        replaces: Vec<LockId>,
        out: &mut Vec<Effect>,
    ) -> Region {
        // Data written under the locks that are replaced may still be on their way (I6).
        let inherited = replaces.iter().filter_map(|id| self.locks[id].lowest_sn).min();
        for id in &replaces {
            self.remove(*id, out);
        }
        let region = self.expanded(&base, mode, request);
        let wanted = self.policy.early_revocation && region == base && self.is_wanted(mode, &region);
        let (phase, state) = match wanted {
            true => (Phase::Canceling, LockState::Canceling),
            false => (Phase::Granted, LockState::Granted),
        };
        let early = self
            .all_overlapping(region.bounds())
            .any(|id| self.locks[&id].lowest_sn.is_some() && self.locks[&id].region.overlaps(&region));
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
            self.near(mode, region.bounds()).all(|(_, id)| !self.stands_against(id, mode)),
            "a lock is granted only where nothing stands against it"
        );
        let held =
            Lock { holder: request.from, mode, region: region.clone(), phase, lowest_sn, urged: false };
        self.index_of(&held).insert(region.bounds(), lock);
        self.locks.insert(lock, held);
        let granted = GrantedLock {
            lock,
            mode,
            region: region.clone(),
            sn,
            state,
            replaces,
            early: early && mode.writes(),
        };
        out.push(Effect::Grant { to: request.from, request: request.request, granted });
        region
    }

    /// Whether a waiting request conflicts with what is about to be granted (paper III-A2).
    fn is_wanted(&self, mode: LockMode, region: &Region) -> bool {
        self.waiting_by_extent
            .overlapping(region.bounds())
            .any(|(_, arrival)| self.waits_against(arrival, mode, region))
    }

    /// I1 in full: two overlapping locks that may both be in use are compatible. And the clock of each lock runs that a request
    /// waits for (I8).
    #[cfg(debug_assertions)]
    fn check(&self) {
        if self.locks.len() > 64 {
            return; // quadratic; the grant asserts its own part
        }
        for (arrival, request) in self.waiting.iter().take(64) {
            if let Verdict::Blocked { by, .. } = self.verdict(request, Some(*arrival)) {
                assert!(
                    by.iter().all(|id| self.awaited.contains(id)),
                    "I8 is broken for {request:?}: {by:?}"
                );
            }
        }
        for (id, a) in &self.locks {
            for (_, b) in self.locks.range((core::ops::Bound::Excluded(*id), core::ops::Bound::Unbounded)) {
                // `b` is the newer one; what it was granted beside may only have been lowered since.
                let compatible = b.mode.compatible(a.mode, a.state()) || a.mode.compatible(b.mode, b.state());
                assert!(!a.region.overlaps(&b.region) || compatible, "I1 is broken between {a:?} and {b:?}");
            }
        }
    }
}
