//! From the wish of an operation to a lock it may use.

use super::locks::{Effect, Held, Locks, Pending, Phase, User};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::{Region, STEPS_MAX};
use ccpfs_types::{GroupId, LockId, LockMode, LockState, OperationId, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;

/// A server that does not keep to the protocol (errno of Linux).
const EPROTO: i32 = 71;

/// Whether a granted region holds another that it stands for. What is too hard to see at once the server has seen step by step: of
/// its own locks that it joined, and of what it granted beyond.
fn takes_all(granted: &Region, other: &Region) -> bool {
    granted.contains_region_within(other, STEPS_MAX).unwrap_or(true)
}

impl Locks {
    /// Lets the operation go on under a cached lock, if one serves.
    pub(super) fn use_cached(
        &mut self,
        operation: OperationId,
        mode: LockMode,
        required: &Region,
        terms: Terms,
        out: &mut Vec<Effect>,
    ) -> bool {
        let (clock, tick) = (self.clock + 1, self.tick);
        let found = self.find_likely(mode, required, terms).map(|(lock, held)| {
            held.use_now(clock, tick);
            (lock, held.sn, held.region.bounds())
        });
        match found {
            Some((lock, sn, covers)) => {
                self.clock = clock;
                self.last_used = Some((lock, covers));
                let (reads, end) = (!mode.writes(), required.bounds().end());
                self.add_user(
                    User { operation, lock, sn, reads, group: terms.group, end, watches: false },
                    out,
                );
            }
            None => {
                let Some(lock) = self.find(mode, required, terms) else { return false };
                self.begin_use(operation, lock, mode, required.bounds().end(), out);
            }
        }
        self.note_write(mode, required);
        true
    }

    /// Sends a request, or waits for one that is under way and will serve.
    pub(super) fn ask(
        &mut self,
        operation: OperationId,
        mode: LockMode,
        (required, desired): (Region, Region),
        (request, terms): (RequestId, Terms),
        out: &mut Vec<Effect>,
    ) {
        let serves = |p: &&mut Pending| {
            p.terms == terms && p.mode.serves(mode) && p.required.contains_region(&required)
        };
        let alone = terms.try_only || terms.part.of_several();
        if !alone && let Some(pending) = self.pending.values_mut().find(serves) {
            pending.operations.push((operation, mode));
            return;
        }
        let jumps = self.last_write_end.is_some_and(|end| end != required.bounds().start());
        let exact = self.settings.policy.adaptive_range && mode.writes() && jumps;
        let desired = if exact {
            required.clone()
        } else {
            desired.joined(&required).unwrap_or_else(|| required.clone())
        };
        self.note_write(mode, &required);
        // A reader's lock of a group would let in readers that are not of it, beside what members write.
        let asked = if terms.group == GroupId::NONE || mode.writes() { mode } else { LockMode::Pw };
        let pending =
            Pending { mode: asked, required: required.clone(), terms, operations: vec![(operation, mode)] };
        let before = self.pending.insert(request, pending);
        assert!(before.is_none(), "request numbers are used once");
        out.push(Effect::Enqueue { request, mode: asked, required, desired, terms });
    }

    pub(super) fn granted(&mut self, request: RequestId, granted: GrantedLock, out: &mut Vec<Effect>) {
        let Some(pending) = self.pending.remove(&request) else {
            return; // asked for before the connection was lost; that server's locks are gone
        };
        // What came from a socket is checked: a lock that does not cover its request must never be used, and one whose number has
        // not risen would let older bytes pass for newer ones (I2; grants of one resource arrive in order).
        let serves = granted.mode.serves(pending.mode) && takes_all(&granted.region, &pending.required);
        let is_new =
            !self.held.contains_key(&granted.lock) && self.newest_write.is_none_or(|sn| granted.sn > sn);
        if !serves || !is_new || !self.takes_in(&granted, pending.terms.group) {
            let refused = pending.operations.into_iter();
            out.extend(refused.map(|(operation, _)| Effect::Refused { operation, errno: EPROTO }));
            return;
        }
        let GrantedLock { lock, mode, region, sn, state, replaces, early: _ } = granted;
        if mode.writes() {
            self.newest_write = Some(sn);
        }
        let held = Held {
            mode,
            region,
            group: pending.terms.group,
            of_several: pending.terms.part.of_several(),
            sn,
            phase: Phase::Granted,
            wanted: None,
            narrowed: 0,
            used: self.clock,
            used_tick: self.tick,
        };
        for old in replaces {
            self.take_over(old, lock, sn);
        }
        self.cancel_older(&held, out);
        self.by_extent.insert(held.region.bounds(), lock);
        let before = self.held.insert(lock, held);
        assert!(before.is_none(), "lock numbers are used once");
        for (operation, mode) in pending.operations {
            self.begin_use(operation, lock, mode, pending.required.bounds().end(), out);
        }
        let early_revocation = self.early_revocations.remove(&lock);
        // Grants of one resource arrive in the order of their numbers: what is older was released long ago.
        self.early_revocations = self.early_revocations.split_off(&lock);
        match (early_revocation, state) {
            (Some(wanted), _) => self.revoked(lock, wanted, out),
            // Granted with early revocation: the server knows, no acknowledgement (paper III-A2).
            (None, LockState::Canceling) => self.cancel(lock, LockMode::Nbw, false, out),
            (None, LockState::Granted) => {}
        }
        self.forget_stale_revocations();
        if self.held.len() - self.canceling > self.settings.locks_max {
            self.shrink(self.settings.locks_max.div_ceil(8), out);
        }
    }

    /// Whether a lock allows all that those allow which it replaces, because operations in progress go on under it, and conflicts
    /// with none of the others that may be used (I1).
    fn takes_in(&self, granted: &GrantedLock, group: GroupId) -> bool {
        let mut replaced = granted.replaces.iter().filter_map(|old| self.held.get(old));
        let covers = |old: &Held| granted.mode.serves(old.mode) && takes_all(&granted.region, &old.region);
        // What is too hard to see is left to the server, which may have seen it of a region that has been narrowed since.
        let overlaps =
            |other: &Region| matches!(granted.region.first_common_within(other, STEPS_MAX), Ok(Some(_)));
        let conflicts = |other: &LockId| {
            let held = &self.held[other];
            !granted.mode.compatible(held.mode, LockState::Granted)
                && (group == GroupId::NONE || held.group != group)
                && !granted.replaces.contains(other)
                && overlaps(&held.region)
        };
        replaced.all(covers)
            && !self.by_extent.overlapping(granted.region.bounds()).any(|(_, other)| conflicts(&other))
    }

    /// The operations under lock `old` go on under `new`, which the server granted in its place (paper III-D1).
    fn take_over(&mut self, old: LockId, new: LockId, sn: Sn) {
        self.remove(old);
        for user in self.users.iter_mut().filter(|user| user.lock == old) {
            (user.lock, user.sn) = (new, sn);
        }
    }

    /// Cancels the write locks of a group that a newer one of the same group has been granted beside: what is written from now on
    /// where both are must have the higher number (I3).
    //= protocol.md#I3
    fn cancel_older(&mut self, newer: &Held, out: &mut Vec<Effect>) {
        if newer.group == GroupId::NONE || !newer.mode.writes() {
            return;
        }
        let is_older = |id: &LockId| {
            let held = &self.held[id];
            held.mode.writes() && held.group == newer.group && held.region.may_overlap(&newer.region)
        };
        let near = self.by_extent.overlapping(newer.region.bounds());
        let older: Vec<LockId> = near.map(|(_, id)| id).filter(is_older).collect();
        for lock in older {
            self.cancel_unasked(lock, out);
        }
    }

    fn begin_use(
        &mut self,
        operation: OperationId,
        lock: LockId,
        mode: LockMode,
        end: u64,
        out: &mut Vec<Effect>,
    ) {
        self.clock += 1;
        let held = self.held.get_mut(&lock).expect("callers found the lock");
        held.use_now(self.clock, self.tick);
        self.last_used = Some((lock, held.region.bounds()));
        let (sn, group, reads) = (held.sn, held.group, !mode.writes());
        let user = User { operation, lock, sn, reads, group, end, watches: false };
        self.add_user(user, out);
    }

    /// Begins an operation under the lock that another one uses: that lock cannot go before the other one ends, whatever its phase.
    pub(super) fn join(
        &mut self,
        operation: OperationId,
        under: OperationId,
        writes: bool,
        errno: i32,
        out: &mut Vec<Effect>,
    ) {
        let Some(host) = self.users.iter().find(|user| user.operation == under).copied() else {
            out.push(Effect::Refused { operation, errno });
            return;
        };
        assert!(!(writes && host.reads), "who joins a reader reads");
        let (clock, tick) = (self.clock + 1, self.tick);
        self.clock = clock;
        self.held.get_mut(&host.lock).expect("a lock in use is held").use_now(clock, tick);
        self.add_user(User { operation, reads: !writes, watches: false, ..host }, out);
    }

    /// Remembers who wants to know when a lock is wanted.
    pub(super) fn watch(&mut self, operation: OperationId, out: &mut Vec<Effect>) {
        let held = &self.held;
        let user = self.users.iter_mut().find(|user| user.operation == operation);
        let group = match user.filter(|user| held[&user.lock].phase == Phase::Granted) {
            Some(user) => {
                user.watches = true;
                user.group
            }
            None => {
                out.push(Effect::Wanted { operation });
                GroupId::NONE
            }
        };
        self.leave_group(group, out);
    }

    fn add_user(&mut self, user: User, out: &mut Vec<Effect>) {
        self.users.push(user);
        out.push(Effect::Use { operation: user.operation, lock: user.lock, sn: user.sn });
    }

    pub(super) fn finish(&mut self, operation: OperationId, out: &mut Vec<Effect>) {
        let Some(at) = self.users.iter().rposition(|user| user.operation == operation) else {
            return; // the lock was lost with its server
        };
        let user = self.users.swap_remove(at);
        if self.canceling > 0 {
            self.go_on_canceling(user.lock, out);
        }
        self.leave_group(user.group, out);
    }

    /// Gives back the locks of a group once no operation of it is left, but for those that want to know when to end: a member keeps one
    /// in progress. What was read under them may be older than what other members have written.
    pub(super) fn leave_group(&mut self, group: GroupId, out: &mut Vec<Effect>) {
        if group == GroupId::NONE
            || self.users.iter().any(|user| user.group == group && !user.watches)
            || self.pending.values().any(|pending| pending.terms.group == group)
        {
            return;
        }
        let of_group = |held: &Held| held.phase == Phase::Granted && held.group == group;
        let left: Vec<LockId> =
            self.held.iter().filter(|(_, held)| of_group(held)).map(|(id, _)| *id).collect();
        for lock in left {
            self.cancel_unasked(lock, out);
        }
    }

    fn note_write(&mut self, mode: LockMode, required: &Region) {
        if mode.writes() {
            self.last_write_end = Some(required.bounds().end());
        }
    }
}
