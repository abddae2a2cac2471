//! The state of a client's lock cache for one resource and everything that can happen to it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{
    Extent, ExtentIndex, GroupId, LockId, LockMode, OperationId, Policy, RequestId, Sn, Terms,
};
use ccpfs_wire::GrantedLock;

/// What a lock cache is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The policy of the server.
    pub policy: Policy,
    /// Locks kept, beside those on their way back, before the least recently used are given back.
    pub locks_max: usize,
    /// Ticks after which an unused lock is given back.
    pub age_ticks_max: u64,
}

/// Everything that can happen to the locks of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// An operation begins and needs a lock.
    Acquire {
        /// The operation.
        operation: OperationId,
        /// What it will do.
        mode: LockMode,
        /// What it needs covered.
        required: Region,
        /// What would be welcome.
        desired: Region,
        /// The number to use if a request must be sent; not used otherwise.
        request: RequestId,
        /// Whether to wait, and for whom.
        terms: Terms,
    },
    /// An operation begins under the lock that another one uses, even if that lock is on its way back: what it does is part of
    /// what the other one does. [`Effect::Refused`] if that one uses none.
    Join {
        /// The operation.
        operation: OperationId,
        /// Whose lock it uses; an operation that writes, if this one does.
        under: OperationId,
        /// Whether it writes.
        writes: bool,
        /// What it is told if there is no lock.
        errno: i32,
    },
    /// An operation that may take long wants to know when somebody waits for its lock: [`Effect::Wanted`], once, and at once if
    /// the lock is on its way back already or is gone.
    Watch {
        /// The operation.
        operation: OperationId,
    },
    /// An operation does not use its lock any longer.
    Finish {
        /// The operation.
        operation: OperationId,
    },
    /// The server granted a request.
    Granted {
        /// The request.
        request: RequestId,
        /// The lock.
        granted: GrantedLock,
    },
    /// The server refused a request.
    Denied {
        /// The request.
        request: RequestId,
        /// Why.
        errno: i32,
    },
    /// The server wants a lock back.
    Revoked {
        /// The lock.
        lock: LockId,
        /// The mode that is waited for.
        wanted: LockMode,
    },
    /// A part of a lock is given up, and the rest kept, which [`Locks::keeps`] has said can be done: answers a revocation. Clean
    /// data there up to `sn` are not valid from now on.
    Narrow {
        /// The lock.
        lock: LockId,
        /// The part.
        taken: Extent,
    },
    /// What [`Effect::Flush`] asked for is done.
    Flushed {
        /// The lock.
        lock: LockId,
        /// Whether the release went with the flush: the server has it already.
        released: bool,
    },
    /// Some time has passed: unused locks grow older.
    Tick,
    /// Give back about this many locks, the least recently used first.
    Shrink {
        /// How many.
        count: usize,
    },
    /// The server has forgotten us: all locks are gone.
    Lost {
        /// What waiting operations are told.
        errno: i32,
    },
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The operation goes on under this lock.
    Use {
        /// The operation.
        operation: OperationId,
        /// The lock.
        lock: LockId,
        /// Its sequence number: what is written now is tagged with it.
        sn: Sn,
    },
    /// The operation gets no lock.
    Refused {
        /// The operation.
        operation: OperationId,
        /// Why.
        errno: i32,
    },
    /// The lock that the operation uses is on its way back, or is gone: it should end soon.
    Wanted {
        /// The operation.
        operation: OperationId,
    },
    /// Ask the server.
    Enqueue {
        /// The number of the request.
        request: RequestId,
        /// The mode.
        mode: LockMode,
        /// What must be covered.
        required: Region,
        /// What would be welcome.
        desired: Region,
        /// Whether to wait, and for whom.
        terms: Terms,
    },
    /// Tell the server that nothing new begins under a lock.
    RevokeAck {
        /// The lock.
        lock: LockId,
        /// Its mode from now on.
        mode: LockMode,
    },
    /// Tell the server that a CANCELING lock is lowered.
    Convert {
        /// The lock.
        lock: LockId,
        /// Its new mode.
        mode: LockMode,
    },
    /// Flush what is dirty in `region` with a number up to `sn`; then [`Input::Flushed`].
    Flush {
        /// The lock.
        lock: LockId,
        /// Where.
        region: Region,
        /// Up to which number.
        sn: Sn,
        /// Whether the lock goes when this is done: the release may travel with the last flush. Clean data up to `sn`
        /// in `region` are not valid from now on, and must be forgotten before the release is sent.
        release: bool,
        /// Whether somebody waits for the release. If not (the waiter was granted early), the flush may be put off.
        urgent: bool,
    },
    /// Somebody waits now for the release of a lock whose flush may have been put off.
    Hurry {
        /// The lock.
        lock: LockId,
    },
    /// Forget clean data in `region` with a number up to `sn`, then tell the server that the lock is free.
    Release {
        /// The lock.
        lock: LockId,
        /// Where.
        region: Region,
        /// Up to which number.
        sn: Sn,
    },
}

/// How far a lock has come on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// May be used.
    Granted,
    /// Nothing new begins; operations still use it.
    Draining,
    /// PW that only readers use: its data are flushed so that it can be lowered to PR.
    Lowering,
    /// Nobody uses it; its data are being flushed.
    Flushing,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub(super) mode: LockMode,
    pub(super) region: Region,
    pub(super) group: GroupId,
    /// Whether it was asked for by an operation that takes several locks here.
    pub(super) of_several: bool,
    pub(super) sn: Sn,
    pub(super) phase: Phase,
    /// The mode somebody waits for, once it is revoked.
    pub(super) wanted: Option<LockMode>,
    /// How often a part of it was given up.
    pub(super) narrowed: u8,
    /// When it was last used: counts acquisitions.
    pub(super) used: u64,
    pub(super) used_tick: u64,
}

impl Held {
    pub(super) const fn use_now(&mut self, clock: u64, tick: u64) {
        self.used = clock;
        self.used_tick = tick;
    }

    /// Whether an operation that needs this may begin under the lock.
    #[inline]
    fn serves(&self, mode: LockMode, region: &Region, terms: Terms) -> bool {
        let serves =
            self.phase == Phase::Granted && self.mode.serves(mode) && self.region.contains_region(region);
        // In a group nobody stands in a member's way, and a lock beside one that serves would have a higher number (I3).
        let whole_part = terms.group != GroupId::NONE || self.is_no_more_than(region);
        serves && self.group == terms.group && (!terms.part.of_several() || whole_part)
    }

    /// Whether whoever uses the lock for `region`, and then waits for what lies behind that, keeps nobody from anything there: not
    /// others, who may have what is waited for, and not itself, when the lock is on its way back. Nor will it be joined with others.
    fn is_no_more_than(&self, region: &Region) -> bool {
        self.of_several && self.region.bounds().end() <= region.bounds().end()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Pending {
    pub(super) mode: LockMode,
    pub(super) required: Region,
    pub(super) terms: Terms,
    /// Operations that wait for it, with what they will do.
    pub(super) operations: Vec<(OperationId, LockMode)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct User {
    pub(super) operation: OperationId,
    pub(super) lock: LockId,
    /// The number of the lock. It rises with an upgrade: an operation that began before may write after one that began since.
    pub(super) sn: Sn,
    pub(super) reads: bool,
    /// The group of the lock.
    pub(super) group: GroupId,
    /// What it needs ends here.
    pub(super) end: u64,
    /// Whether it wants to know when the lock is wanted.
    pub(super) watches: bool,
}

/// The locks of one resource in one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Locks {
    pub(super) settings: Settings,
    pub(super) held: BTreeMap<LockId, Held>,
    /// Those that may be used (granted, and not on their way back): there may be thousands of the others.
    pub(super) by_extent: ExtentIndex<LockId>,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    /// Operations in progress: few, but for holds, which last; what is looked for is mostly what began last.
    pub(super) users: Vec<User>,
    /// How many locks are on their way back: as long as there is none, the end of an operation concerns no lock.
    pub(super) canceling: usize,
    /// Revocations that came before their grants.
    pub(super) early_revocations: BTreeMap<LockId, LockMode>,
    /// With what it covers: a lock never covers anything else.
    pub(super) last_used: Option<(LockId, Extent)>,
    pub(super) clock: u64,
    pub(super) tick: u64,
    /// Where the last write ended, to see whether the next one goes on from there.
    pub(super) last_write_end: Option<u64>,
    /// The number of the last write lock that was granted.
    pub(super) newest_write: Option<Sn>,
}

impl Locks {
    /// No locks yet.
    #[must_use]
    pub fn new(settings: Settings) -> Locks {
        assert!(settings.locks_max > 0, "a client must be able to hold a lock");
        Locks {
            settings,
            held: BTreeMap::new(),
            by_extent: ExtentIndex::new(),
            pending: BTreeMap::new(),
            users: Vec::new(),
            canceling: 0,
            early_revocations: BTreeMap::new(),
            last_used: None,
            clock: 0,
            tick: 0,
            last_write_end: None,
            newest_write: None,
        }
    }

    /// Takes one input and appends what follows from it.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            // The rule, and so without as much as moving the ranges.
            Input::Acquire { operation, mode, ref required, terms, .. }
                if self.use_cached(operation, self.known(mode), required, terms, out) => {}
            Input::Acquire { operation, mode, required, desired, request, terms } => {
                self.ask(operation, self.known(mode), (required, desired), (request, terms), out);
            }
            Input::Join { operation, under, writes, errno } => {
                self.join(operation, under, writes, errno, out)
            }
            Input::Watch { operation } => self.watch(operation, out),
            Input::Finish { operation } => self.finish(operation, out),
            Input::Granted { request, granted } => self.granted(request, granted, out),
            Input::Denied { request, errno } => {
                if let Some(pending) = self.pending.remove(&request) {
                    let refused = pending.operations.into_iter();
                    out.extend(refused.map(|(operation, _)| Effect::Refused { operation, errno }));
                    self.leave_group(pending.terms.group, out);
                }
                self.forget_stale_revocations();
            }
            Input::Revoked { lock, wanted } => self.revoked(lock, wanted, out),
            Input::Narrow { lock, taken } => self.narrow(lock, taken),
            Input::Flushed { lock, released } => self.flushed(lock, released, out),
            Input::Tick => self.grow_older(out),
            Input::Shrink { count } => self.shrink(count, out),
            Input::Lost { errno } => self.lost(errno, out),
        }
    }

    /// The mode that the server's policy has for this one.
    const fn known(&self, mode: LockMode) -> LockMode {
        if mode.writes() && !self.settings.policy.write_modes { LockMode::Pw } else { mode }
    }

    /// Number of locks held, whatever their phase.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held, asked for or in use.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.pending.is_empty() && self.users.is_empty()
    }

    /// Whether a lock of `group` that may be used covers `region` for `mode`: what a caller may skip asking for.
    #[must_use]
    pub fn covers(&self, mode: LockMode, region: &Region, group: GroupId) -> bool {
        self.covering(mode, region, group).is_some()
    }

    /// What such a lock covers.
    #[must_use]
    pub fn covering(&self, mode: LockMode, region: &Region, group: GroupId) -> Option<&Region> {
        self.find(mode, region, Terms { group, ..Terms::WAIT }).map(|lock| &self.held[&lock].region)
    }

    /// What the lock covers that `operation` uses: nobody takes it back before the operation ends.
    #[must_use]
    pub fn in_use_by(&self, operation: OperationId) -> Option<&Region> {
        let user = self.users.iter().rev().find(|user| user.operation == operation)?;
        self.held.get(&user.lock).map(|held| &held.region)
    }

    /// The sequence number that `operation` writes under, while it uses a lock.
    #[must_use]
    pub fn sn_of(&self, operation: OperationId) -> Option<Sn> {
        self.users.iter().rev().find(|user| user.operation == operation).map(|user| user.sn)
    }

    pub(super) fn find(&self, mode: LockMode, region: &Region, terms: Terms) -> Option<LockId> {
        let serves = |id: &LockId| self.held[id].serves(mode, region, terms);
        self.by_extent.overlapping(region.bounds()).map(|(_, id)| id).find(serves)
    }

    /// As [`Locks::find`] for where a serving lock most likely is: the lock used last, or that which begins last before the region.
    /// One search in each table, because this is the way of an operation that finds its lock.
    pub(super) fn find_likely(
        &mut self,
        mode: LockMode,
        region: &Region,
        terms: Terms,
    ) -> Option<(LockId, &mut Held)> {
        let bounds = region.bounds();
        let last = self.last_used.filter(|(_, covers)| covers.contains(bounds)).map(|(last, _)| last);
        let likely = last.or_else(|| self.by_extent.nearest(bounds.start()).next())?;
        let held = self.held.get_mut(&likely)?;
        held.serves(mode, region, terms).then_some((likely, held))
    }

    /// Whether an operation uses the lock.
    pub(super) fn is_used(&self, lock: LockId) -> bool {
        self.users.iter().any(|user| user.lock == lock)
    }

    /// Whether an operation writes under the lock.
    pub(super) fn is_written(&self, lock: LockId) -> bool {
        self.users.iter().any(|user| user.lock == lock && !user.reads)
    }

    pub(super) fn remove(&mut self, lock: LockId) -> Option<Held> {
        let held = self.held.remove(&lock)?;
        match held.phase {
            Phase::Granted => self.by_extent.remove(held.region.bounds(), lock),
            Phase::Draining | Phase::Lowering | Phase::Flushing => self.canceling -= 1,
        };
        self.last_used = self.last_used.filter(|(last, _)| *last != lock);
        Some(held)
    }

    /// A revocation of an unknown lock means a grant under way, or a release that crossed with it. Without an
    /// outstanding request it was the latter.
    pub(super) fn forget_stale_revocations(&mut self) {
        if self.pending.is_empty() {
            self.early_revocations.clear();
        }
    }

    fn lost(&mut self, errno: i32, out: &mut Vec<Effect>) {
        let waiting: BTreeSet<OperationId> = self
            .pending
            .values()
            .flat_map(|p| p.operations.iter().map(|(operation, _)| *operation))
            .collect();
        out.extend(waiting.into_iter().map(|operation| Effect::Refused { operation, errno }));
        let watching = self.users.iter().filter(|user| user.watches);
        out.extend(watching.map(|user| Effect::Wanted { operation: user.operation }));
        *self = Locks::new(self.settings);
    }
}
