//! The state of one lock resource and everything that can happen to it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ccpfs_types::limits::WAITING_MAX;
use ccpfs_types::{
    ClientId, Extent, ExtentIndex, LockId, LockMode, LockState, Policy, Region, RequestId, Sn,
};
use ccpfs_wire::GrantedLock;

/// The numbers that the next grant of a resource takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// Sequence number.
    pub sn: Sn,
    /// Lock number.
    pub lock: LockId,
}

impl Origin {
    /// The later of both, number by number: where a new resource starts when another has been forgotten.
    #[must_use]
    pub fn max(self, other: Origin) -> Origin {
        Origin { sn: self.sn.max(other.sn), lock: self.lock.max(other.lock) }
    }
}

/// Everything that can happen to a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A client asks for a lock.
    Enqueue {
        /// Who.
        from: ClientId,
        /// Its number for the request.
        request: RequestId,
        /// The mode it needs.
        mode: LockMode,
        /// What must be covered.
        required: Region,
        /// What would be welcome.
        desired: Region,
        /// Deny instead of waiting.
        try_only: bool,
    },
    /// A holder will not begin anything new under the lock.
    RevokeAck {
        /// The holder.
        from: ClientId,
        /// The lock.
        lock: LockId,
        /// Its mode from now on.
        mode: LockMode,
    },
    /// A holder lowers the mode of a lock that it is canceling.
    Convert {
        /// The holder.
        from: ClientId,
        /// The lock.
        lock: LockId,
        /// The less restrictive mode.
        mode: LockMode,
    },
    /// A holder gives a lock back; nothing written under it is left to flush.
    Release {
        /// The holder.
        from: ClientId,
        /// The lock.
        lock: LockId,
    },
    /// A client is gone (and fenced: nothing more comes from it).
    Evict {
        /// Who.
        client: ClientId,
    },
    /// The file is gone.
    Destroy,
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Tell a client that it has a lock.
    Grant {
        /// Whom.
        to: ClientId,
        /// Its request.
        request: RequestId,
        /// The lock.
        granted: GrantedLock,
    },
    /// Tell a client that it gets no lock.
    Deny {
        /// Whom.
        to: ClientId,
        /// Its request.
        request: RequestId,
        /// EAGAIN, EBUSY or ESTALE of Linux.
        errno: i32,
    },
    /// Ask a holder to let go; of a CANCELING lock: to hurry with its flush, because somebody waits for its release.
    Revoke {
        /// Whom.
        to: ClientId,
        /// The lock.
        lock: LockId,
        /// The mode that is waited for.
        wanted: LockMode,
    },
    /// Somebody waits for the release of this lock: its holder has a bounded time from now.
    Arm {
        /// The lock.
        lock: LockId,
        /// Who holds it.
        holder: ClientId,
    },
    /// Nobody waits for the lock any longer.
    Disarm {
        /// The lock.
        lock: LockId,
    },
}

/// How far a lock has come on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// The holder may reuse it.
    Granted,
    /// The holder has been asked.
    Revoking,
    /// The holder will not begin anything new under it.
    Canceling,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lock {
    pub(super) holder: ClientId,
    pub(super) mode: LockMode,
    pub(super) region: Region,
    pub(super) phase: Phase,
    /// Lowest number under which data may still be on their way: its own, or that of a lock it replaced (I6).
    pub(super) lowest_sn: Option<Sn>,
    /// Whether its holder knows that the release itself is waited for.
    pub(super) urged: bool,
}

impl Lock {
    pub(super) const fn state(&self) -> LockState {
        match self.phase {
            Phase::Granted | Phase::Revoking => LockState::Granted,
            Phase::Canceling => LockState::Canceling,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) from: ClientId,
    pub(super) request: RequestId,
    pub(super) mode: LockMode,
    pub(super) required: Region,
    pub(super) desired: Region,
}

/// Errors of Linux that a request can be denied with.
pub(super) mod errno {
    pub(in crate::server) const EAGAIN: i32 = 11;
    pub(in crate::server) const EBUSY: i32 = 16;
    pub(in crate::server) const ESTALE: i32 = 116;
}

/// One lock resource: the locks of one stripe of one file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    pub(super) policy: Policy,
    pub(super) next: Origin,
    next_arrival: u64,
    pub(super) locks: BTreeMap<LockId, Lock>,
    /// Those that may stand in anybody's way.
    pub(super) by_extent: ExtentIndex<LockId>,
    /// Those that stand in no blind write's way, however many they are: CANCELING NBW locks, under early grant.
    pub(super) aside: ExtentIndex<LockId>,
    /// Those whose release somebody waits for.
    pub(super) awaited: BTreeSet<LockId>,
    /// Requests by order of arrival.
    pub(super) waiting: BTreeMap<u64, Request>,
    pub(super) waiting_by_extent: ExtentIndex<u64>,
    /// Requests that would take in locks of their own client, and so wait for more than what they require conflicts with: how far.
    pub(super) upgrading: BTreeMap<u64, Extent>,
}

impl Resource {
    /// A resource without locks whose next grant takes the numbers of `origin`.
    #[must_use]
    pub fn new(policy: Policy, origin: Origin) -> Resource {
        Resource {
            policy,
            next: origin,
            next_arrival: 0,
            locks: BTreeMap::new(),
            by_extent: ExtentIndex::new(),
            aside: ExtentIndex::new(),
            awaited: BTreeSet::new(),
            waiting: BTreeMap::new(),
            waiting_by_extent: ExtentIndex::new(),
            upgrading: BTreeMap::new(),
        }
    }

    /// Takes one input and appends what follows from it.
    ///
    /// Acknowledgements, conversions and releases of locks that the sender does not hold are expected turns (they cross with
    /// upgrades and evictions) and change nothing.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Enqueue { from, request, mode, required, desired, try_only } => {
                let request = self.normalized(from, request, mode, &required, &desired);
                if try_only { self.try_enqueue(request, out) } else { self.enqueue(request, out) }
            }
            Input::RevokeAck { from, lock, mode } | Input::Convert { from, lock, mode } => {
                if let Some(extent) = self.canceling(from, lock, mode) {
                    self.reconsider(self.waiters_overlapping(extent), out);
                }
            }
            Input::Release { from, lock } => {
                if let Some(held) = self.locks.get(&lock).filter(|held| held.holder == from) {
                    let was_aside = self.is_aside(held);
                    let extent = self.remove(lock, out);
                    let mut arrivals = self.waiters_overlapping(extent);
                    if was_aside {
                        // It stood in no blind write's way.
                        arrivals.retain(|arrival| {
                            !self.waiting[arrival].mode.is_blind_write()
                                || self.upgrading.contains_key(arrival)
                        });
                    }
                    self.reconsider(arrivals, out);
                }
            }
            Input::Evict { client } => self.evict(client, out),
            Input::Destroy => self.destroy(out),
        }
    }

    /// The numbers of the next grant.
    #[must_use]
    pub const fn origin(&self) -> Origin {
        self.next
    }

    /// Whether nobody holds or waits for anything.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.locks.is_empty() && self.waiting.is_empty()
    }

    /// Number of granted locks.
    #[must_use]
    pub fn lock_count(&self) -> usize {
        self.locks.len()
    }

    /// Number of waiting requests.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Whether `client` holds `lock`.
    #[must_use]
    pub fn holds(&self, client: ClientId, lock: LockId) -> bool {
        self.locks.get(&lock).is_some_and(|held| held.holder == client)
    }

    /// Whether `client` holds or waits for anything here.
    #[must_use]
    pub fn involves(&self, client: ClientId) -> bool {
        self.locks.values().any(|lock| lock.holder == client)
            || self.waiting.values().any(|r| r.from == client)
    }

    /// The lowest sequence number among write locks that overlap `extent` and are not released: data with that number
    /// or a higher one may still arrive (I6).
    //= protocol.md#I6
    #[must_use]
    pub fn lowest_unreleased_sn(&self, extent: Extent) -> Option<Sn> {
        self.all_overlapping(extent).filter_map(|lock| self.locks[&lock].lowest_sn).min()
    }

    /// Whether [`Resource::lowest_unreleased_sn`] is at most `sn`: found without looking at all locks.
    #[must_use]
    pub fn is_unreleased(&self, extent: Extent, sn: Sn) -> bool {
        self.all_overlapping(extent)
            .any(|lock| self.locks[&lock].lowest_sn.is_some_and(|lowest| lowest <= sn))
    }

    /// Who holds write locks, GRANTED or CANCELING, that reach above offset `beyond`: whom a glimpse must ask.
    #[must_use]
    pub fn write_holders(&self, beyond: u64) -> Vec<ClientId> {
        let Some(above) = Extent::new(beyond, Extent::EOF) else { return Vec::new() };
        let holders: BTreeSet<ClientId> = self
            .all_overlapping(above)
            .filter_map(|lock| {
                let lock = &self.locks[&lock];
                lock.lowest_sn.is_some().then_some(lock.holder)
            })
            .collect();
        holders.into_iter().collect()
    }

    /// The request as this policy sees it: rounded, and with the modes it knows.
    fn normalized(
        &self,
        from: ClientId,
        request: RequestId,
        mode: LockMode,
        required: &Region,
        desired: &Region,
    ) -> Request {
        let granularity = u64::from(self.policy.granularity_bytes);
        let required = required.aligned(granularity);
        let desired = desired.aligned(granularity).hull(&required);
        let mode = if mode.writes() && !self.policy.write_modes { LockMode::Pw } else { mode };
        Request { from, request, mode, required, desired }
    }

    fn enqueue(&mut self, request: Request, out: &mut Vec<Effect>) {
        if self.waiting.len() >= WAITING_MAX {
            out.push(Effect::Deny { to: request.from, request: request.request, errno: errno::EBUSY });
            return;
        }
        let arrival = self.next_arrival;
        self.next_arrival += 1;
        self.waiting_by_extent.insert(request.required.bounds(), arrival);
        self.waiting.insert(arrival, request);
        self.reconsider(BTreeSet::from([arrival]), out);
    }

    fn try_enqueue(&mut self, request: Request, out: &mut Vec<Effect>) {
        if !self.try_grant(&request, out) {
            out.push(Effect::Deny { to: request.from, request: request.request, errno: errno::EAGAIN });
        }
    }

    /// Marks a lock CANCELING with a mode that may be lower; its extent if there was such a lock.
    fn canceling(&mut self, from: ClientId, lock: LockId, mode: LockMode) -> Option<Extent> {
        let mut held = self.locks.get(&lock).filter(|held| held.holder == from)?.clone();
        self.index_of(&held).remove(held.region.bounds(), lock);
        held.phase = Phase::Canceling;
        if held.mode.serves(mode) {
            held.mode = mode;
        }
        let extent = held.region.bounds();
        self.index_of(&held).insert(extent, lock);
        self.locks.insert(lock, held);
        Some(extent)
    }

    /// Whether a lock stands in no blind write's way.
    pub(super) fn is_aside(&self, lock: &Lock) -> bool {
        self.policy.early_grant && lock.phase == Phase::Canceling && lock.mode == LockMode::Nbw
    }

    /// The index that a lock belongs in.
    pub(super) fn index_of(&mut self, lock: &Lock) -> &mut ExtentIndex<LockId> {
        if self.is_aside(lock) { &mut self.aside } else { &mut self.by_extent }
    }

    /// Locks that overlap `extent` and may stand in the way of `mode`.
    pub(super) fn near(&self, mode: LockMode, extent: Extent) -> impl Iterator<Item = (Extent, LockId)> + '_ {
        let aside = (!mode.is_blind_write()).then(|| self.aside.overlapping(extent));
        self.by_extent.overlapping(extent).chain(aside.into_iter().flatten())
    }

    /// All locks that overlap `extent`.
    pub(super) fn all_overlapping(&self, extent: Extent) -> impl Iterator<Item = LockId> + '_ {
        self.by_extent.overlapping(extent).chain(self.aside.overlapping(extent)).map(|(_, lock)| lock)
    }

    pub(super) fn remove(&mut self, lock: LockId, out: &mut Vec<Effect>) -> Extent {
        let held = self.locks.remove(&lock).expect("callers found the lock");
        let extent = held.region.bounds();
        self.index_of(&held).remove(extent, lock);
        if self.awaited.remove(&lock) {
            out.push(Effect::Disarm { lock });
        }
        extent
    }

    pub(super) fn withdraw(&mut self, arrival: u64) -> Request {
        let request = self.waiting.remove(&arrival).expect("callers found the request");
        self.waiting_by_extent.remove(request.required.bounds(), arrival);
        self.upgrading.remove(&arrival);
        request
    }

    fn evict(&mut self, client: ClientId, out: &mut Vec<Effect>) {
        let arrivals: Vec<u64> =
            self.waiting.iter().filter(|(_, r)| r.from == client).map(|(a, _)| *a).collect();
        for arrival in arrivals {
            self.withdraw(arrival);
        }
        let locks: Vec<LockId> =
            self.locks.iter().filter(|(_, l)| l.holder == client).map(|(id, _)| *id).collect();
        for lock in locks {
            self.remove(lock, out);
        }
        self.reconsider(self.waiting.keys().copied().collect(), out);
    }

    fn destroy(&mut self, out: &mut Vec<Effect>) {
        let arrivals: Vec<u64> = self.waiting.keys().copied().collect();
        for arrival in arrivals {
            let request = self.withdraw(arrival);
            out.push(Effect::Deny { to: request.from, request: request.request, errno: errno::ESTALE });
        }
        let locks: Vec<LockId> = self.locks.keys().copied().collect();
        for lock in locks {
            self.remove(lock, out);
        }
    }

    /// Whose turn may have come when something changed in `extent`.
    pub(super) fn waiters_overlapping(&self, extent: Extent) -> BTreeSet<u64> {
        let upgrading =
            self.upgrading.iter().filter(|(_, reach)| reach.overlaps(extent)).map(|(arrival, _)| *arrival);
        self.waiting_by_extent.overlapping(extent).map(|(_, arrival)| arrival).chain(upgrading).collect()
    }
}
