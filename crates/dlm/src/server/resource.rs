//! The state of one lock resource and everything that can happen to it.

use super::grant::Verdict;
use super::index::RegionIndex;
use super::queue::{Queue, Standing};
use super::request::Request;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::limits::WAITING_MAX;
use ccpfs_types::{
    ClientId, Extent, ExtentIndex, GroupId, LockId, LockMode, LockState, Part, Policy, RequestId, Sn, Terms,
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
        /// Whether to wait, and for whom.
        terms: Terms,
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
    /// A holder gives up this part of a lock that it may go on to use; nothing written there is left to flush.
    Narrow {
        /// The holder.
        from: ClientId,
        /// The lock.
        lock: LockId,
        /// The part.
        taken: Extent,
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
        /// The first byte of what is required that somebody has or waits for, if that is the reason.
        first_common: Option<u64>,
    },
    /// Ask a holder to let go; of a CANCELING lock: to hurry with its flush, because somebody waits for its release.
    Revoke {
        /// Whom.
        to: ClientId,
        /// The lock.
        lock: LockId,
        /// The mode that is waited for.
        wanted: LockMode,
        /// What is waited for.
        region: Region,
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
    pub(super) group: GroupId,
    /// Whether the operation that asked for it takes several locks here.
    pub(super) of_several: bool,
    pub(super) phase: Phase,
    /// What its holder was asked to let go of, once it was.
    pub(super) asked: Option<Box<Region>>,
    /// Lowest number under which data may still be on their way: its own, or that of a lock it replaced (I6).
    pub(super) lowest_sn: Option<Sn>,
    /// Whether its holder knows that the release itself is waited for.
    pub(super) urged: bool,
    /// Whether its holder's time runs: somebody waits for its release.
    pub(super) awaited: bool,
}

impl Lock {
    pub(super) const fn state(&self) -> LockState {
        match self.phase {
            Phase::Granted | Phase::Revoking => LockState::Granted,
            Phase::Canceling => LockState::Canceling,
        }
    }
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
    pub(super) locks: BTreeMap<LockId, Lock>,
    /// Write locks that may stand in anybody's way.
    pub(super) by_region: RegionIndex<LockId>,
    /// Read locks, which stand in no reader's way.
    pub(super) reads: RegionIndex<LockId>,
    /// Those that stand in no blind write's way, however many they are: CANCELING NBW locks, under early grant.
    pub(super) aside: RegionIndex<LockId>,
    /// Those whose release somebody waits for.
    pub(super) awaited: ExtentIndex<LockId>,
    /// Those under which data were or may be written, by the lowest number of such data.
    pub(super) by_number: BTreeSet<(Sn, LockId)>,
    pub(super) waiting: Queue,
}

impl Resource {
    /// A resource without locks whose next grant takes the numbers of `origin`.
    #[must_use]
    pub fn new(policy: Policy, origin: Origin) -> Resource {
        Resource {
            policy,
            next: origin,
            locks: BTreeMap::new(),
            by_region: RegionIndex::new(),
            reads: RegionIndex::new(),
            aside: RegionIndex::new(),
            awaited: ExtentIndex::new(),
            by_number: BTreeSet::new(),
            waiting: Queue::new(),
        }
    }

    /// Takes one input and appends what follows from it.
    ///
    /// Acknowledgements, conversions and releases of locks that the sender does not hold are expected turns (they cross with
    /// upgrades and evictions) and change nothing.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Enqueue { from, request, mode, required, desired, terms } => {
                let request = self.normalized((from, request), mode, &required, &desired, terms);
                if terms.try_only { self.try_enqueue(request, out) } else { self.enqueue(request, out) }
            }
            Input::RevokeAck { from, lock, mode } | Input::Convert { from, lock, mode } => {
                if self.canceling(from, lock, mode) {
                    self.reconsider(self.concerned_by_cancel(lock), out);
                }
            }
            Input::Narrow { from, lock, taken } => self.narrow(from, lock, taken, out),
            Input::Release { from, lock } => {
                if self.holds(from, lock) {
                    let arrivals = self.concerned_by_release(lock);
                    self.remove(lock, out);
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
        self.locks.is_empty() && self.waiting.len() == 0
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
            || self.waiting.iter().any(|(_, request)| request.from == client)
    }

    /// A number up to `sn` under which data may still arrive for `extent`: the lowest that one of the write locks there has which
    /// are not released, with those that it replaced. `None` if there is none (I6).
    ///
    /// Looks at all locks from the lowest number on and at those that overlap by turns, until either has the answer: where many
    /// locks have covered the rest of a file one of the first has it, and where each covers its own bytes few overlap.
    //= protocol.md#I6
    #[must_use]
    pub fn unreleased_up_to(&self, extent: Extent, sn: Sn) -> Option<Sn> {
        let mut near =
            self.near_all(&extent.into()).filter(|id| self.locks[id].region.overlaps_extent(extent));
        for (number, lock) in self.by_number.range(..=(sn, LockId(u64::MAX))) {
            if self.locks[lock].region.overlaps_extent(extent) {
                return Some(*number);
            }
            let lowest = self.locks[&near.next()?].lowest_sn;
            if lowest.is_some_and(|lowest| lowest <= sn) {
                return lowest;
            }
        }
        None
    }

    /// Who holds write locks, GRANTED or CANCELING, that reach above offset `beyond`: whom a glimpse must ask.
    #[must_use]
    pub fn write_holders(&self, beyond: u64) -> Vec<ClientId> {
        let Some(above) = Extent::new(beyond, Extent::EOF) else { return Vec::new() };
        let holders: BTreeSet<ClientId> = self
            .near_all(&above.into())
            .filter_map(|lock| {
                let lock = &self.locks[&lock];
                let reaches = lock.region.bounds().end() > beyond;
                (reaches && lock.lowest_sn.is_some()).then_some(lock.holder)
            })
            .collect();
        holders.into_iter().collect()
    }

    /// The request as this policy sees it: rounded, and with the modes it knows.
    fn normalized(
        &self,
        (from, request): (ClientId, RequestId),
        mode: LockMode,
        required: &Region,
        desired: &Region,
        Terms { part, group, .. }: Terms,
    ) -> Request {
        // Whoever holds several locks here must not hold more than its operation needs: others might wait for the rest, or the
        // operation itself for what was rounded into the part before.
        let granularity = if part.of_several() { 1 } else { u64::from(self.policy.granularity_bytes) };
        let required = required.aligned(granularity);
        let desired = match part {
            Part::Only => desired.aligned(granularity).joined(&required),
            Part::First | Part::Next => None,
        };
        let desired = desired.unwrap_or_else(|| required.clone());
        let mode = if mode.writes() && !self.policy.write_modes { LockMode::Pw } else { mode };
        Request { from, request, mode, required, desired, part, group, standing: Standing::New }
    }

    fn enqueue(&mut self, request: Request, out: &mut Vec<Effect>) {
        if self.waiting.len() >= WAITING_MAX {
            let (to, request) = (request.from, request.request);
            out.push(Effect::Deny { to, request, errno: errno::EBUSY, first_common: None });
            return;
        }
        let arrival = self.waiting.arrive();
        let arrivals = match self.verdict(&request, arrival) {
            Verdict::Grant(offer) => self.serve(&request, arrival, offer, out),
            Verdict::Wait(obstacle) => {
                self.waiting.insert(arrival, request);
                self.wait(arrival, obstacle, out).into_iter().collect()
            }
        };
        self.reconsider(arrivals, out);
    }

    fn try_enqueue(&mut self, request: Request, out: &mut Vec<Effect>) {
        if !self.try_grant(&request, out) {
            let first_common = self.first_in_the_way(request.claim(), &request.required);
            let (to, request) = (request.from, request.request);
            out.push(Effect::Deny { to, request, errno: errno::EAGAIN, first_common });
        }
    }

    /// Marks a lock CANCELING with a mode that may be lower; whether there was such a lock.
    fn canceling(&mut self, from: ClientId, lock: LockId, mode: LockMode) -> bool {
        let Some(held) = self.locks.get(&lock).filter(|held| held.holder == from) else { return false };
        let mut held = held.clone();
        let region = held.region.clone();
        self.index_of(&held).remove(&region, lock);
        held.phase = Phase::Canceling;
        if held.mode.serves(mode) {
            held.mode = mode;
        }
        self.index_of(&held).insert(&region, lock);
        self.locks.insert(lock, held);
        true
    }

    /// A holder keeps a lock but for a part of it. As it has not begun to cancel it, the lock is as if nobody had asked for it;
    /// who waits for the rest asks anew. An answer gives up all that was asked for: otherwise the clock runs on (I8).
    fn narrow(&mut self, from: ClientId, lock: LockId, taken: Extent, out: &mut Vec<Effect>) {
        let Some(held) = self.locks.get(&lock).filter(|held| held.holder == from) else { return };
        let Some(kept) = held.region.kept_without(taken).filter(|kept| held.gives_way(taken, kept)) else {
            return; // which no client of ours sends
        };
        let mut concerned = self.concerned_by_release(lock);
        // Others who have asked for it stand behind other locks, and ask again.
        concerned.extend(self.waiting.blocked_in(held.region.bounds()));
        let mut held = held.clone();
        self.index_of(&held).remove(&held.region, lock);
        if core::mem::replace(&mut held.awaited, false) {
            self.awaited.remove(held.region.bounds(), lock);
            out.push(Effect::Disarm { lock });
        }
        held.region = kept;
        (held.phase, held.asked, held.urged) = (Phase::Granted, None, false);
        self.index_of(&held).insert(&held.region, lock);
        self.locks.insert(lock, held);
        self.reconsider(concerned, out);
    }

    /// Whether a lock stands in no blind write's way.
    pub(super) fn is_aside(&self, lock: &Lock) -> bool {
        self.policy.early_grant && lock.phase == Phase::Canceling && lock.mode == LockMode::Nbw
    }

    /// The index that a lock belongs in.
    pub(super) fn index_of(&mut self, lock: &Lock) -> &mut RegionIndex<LockId> {
        match lock.mode {
            LockMode::Pr => &mut self.reads,
            LockMode::Nbw if self.is_aside(lock) => &mut self.aside,
            LockMode::Nbw | LockMode::Bw | LockMode::Pw => &mut self.by_region,
        }
    }

    /// Locks that may overlap `region` and stand in the way of `mode`; perhaps some others, and some twice.
    pub(super) fn near(&self, mode: LockMode, region: &Region) -> impl Iterator<Item = LockId> + '_ {
        let reads = mode.writes().then(|| self.reads.near(region));
        let aside = (!mode.is_blind_write()).then(|| self.aside.near(region));
        self.by_region.near(region).chain(reads.into_iter().flatten()).chain(aside.into_iter().flatten())
    }

    /// All locks that may overlap `region`; perhaps some others, and some twice.
    pub(super) fn near_all(&self, region: &Region) -> impl Iterator<Item = LockId> + '_ {
        self.by_region.near(region).chain(self.aside.near(region)).chain(self.reads.near(region))
    }

    pub(super) fn remove(&mut self, lock: LockId, out: &mut Vec<Effect>) {
        let held = self.locks.remove(&lock).expect("callers found the lock");
        let extent = held.region.bounds();
        self.index_of(&held).remove(&held.region, lock);
        if let Some(sn) = held.lowest_sn {
            self.by_number.remove(&(sn, lock));
        }
        if held.awaited {
            self.awaited.remove(extent, lock);
            out.push(Effect::Disarm { lock });
        }
    }

    fn evict(&mut self, client: ClientId, out: &mut Vec<Effect>) {
        let gone: Vec<u64> =
            self.waiting.iter().filter(|(_, r)| r.from == client).map(|(arrival, _)| arrival).collect();
        let mut concerned = BTreeSet::new();
        for arrival in gone {
            concerned.extend(self.waiting.behind(arrival));
            self.waiting.withdraw(arrival);
        }
        let locks: Vec<LockId> =
            self.locks.iter().filter(|(_, l)| l.holder == client).map(|(id, _)| *id).collect();
        for lock in locks {
            concerned.extend(self.concerned_by_release(lock));
            self.remove(lock, out);
        }
        self.reconsider(concerned, out);
    }

    fn destroy(&mut self, out: &mut Vec<Effect>) {
        let arrivals: Vec<u64> = self.waiting.iter().map(|(arrival, _)| arrival).collect();
        for arrival in arrivals {
            let request = self.waiting.withdraw(arrival);
            let (to, request) = (request.from, request.request);
            out.push(Effect::Deny { to, request, errno: errno::ESTALE, first_common: None });
        }
        let locks: Vec<LockId> = self.locks.keys().copied().collect();
        for lock in locks {
            self.remove(lock, out);
        }
    }

    /// Whose turn may come when a lock goes.
    fn concerned_by_release(&self, lock: LockId) -> BTreeSet<u64> {
        let extent = self.locks[&lock].region.bounds();
        self.waiting.blocked_by(lock).chain(self.waiting.upgrading_in(extent)).collect()
    }

    /// Whose turn may have come when a lock has become CANCELING or lower, and who may ask its holder to hurry.
    fn concerned_by_cancel(&self, lock: LockId) -> BTreeSet<u64> {
        let held = &self.locks[&lock];
        let mut concerned = self.concerned_by_release(lock);
        // Whoever stands behind another lock has nothing to ask of a holder that has been asked to hurry.
        if !(held.urged && held.awaited) {
            concerned.extend(self.waiting.blocked_in(held.region.bounds()));
        }
        concerned
    }
}
