//! From a revocation, or a wish of our own, to the release.

use super::locks::{Effect, Held, Locks, Phase};
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, Sn};

/// How often a part of a lock is given up, and not the rest along with it: who comes for a part again and again comes for all, piece by piece.
const NARROWED_MAX: u8 = 2;

impl Locks {
    /// The server wants a lock back. Acknowledged only once its grant is known; for a lock given back already, ignored.
    pub(super) fn revoked(&mut self, lock: LockId, wanted: LockMode, out: &mut Vec<Effect>) {
        match self.held.get_mut(&lock) {
            Some(held) if held.phase == Phase::Granted => self.cancel(lock, wanted, true, out),
            // Canceled of our own will, or granted with early revocation: the release is on its way, but the server waits.
            Some(held) => {
                held.wanted = Some(wanted);
                if held.phase == Phase::Flushing {
                    out.push(Effect::Hurry { lock });
                }
                out.push(Effect::RevokeAck { lock, mode: held.mode });
            }
            None if self.pending.is_empty() => {}
            None => {
                self.early_revocations.insert(lock, wanted);
            }
        }
    }

    /// What a lock would keep of what it covers, and what it would give up, for somebody who wants `wanted` of it: all from the
    /// first byte that is wanted on, or, if something uses that, all up to the last. `None` if nothing would be left, if an operation
    /// needs what would be given up, or reads, as it may read ahead; if parts were given up before; or if the lock is
    /// a single extent, which is all wanted by whoever writes on from there.
    #[must_use]
    pub fn keeps(&self, lock: LockId, wanted: &Region) -> [Option<Extent>; 2] {
        let may_keep = |held: &&Held| held.phase == Phase::Granted && held.narrowed < NARROWED_MAX;
        let Some(held) = self.held.get(&lock).filter(may_keep) else { return [None; 2] };
        let bounds = held.region.bounds();
        let Some(first) = held.region.first_in_the_way(wanted) else { return [None; 2] };
        let end = wanted.bounds().end().min(bounds.end());
        let free = |taken: &Extent| {
            let mut users = self.users.iter().filter(|user| user.lock == lock);
            held.region.as_extent().is_none()
                && users.all(|user| !user.reads && user.end <= taken.start())
                && held.region.kept_without(*taken).is_some()
        };
        [Extent::new(first, bounds.end()).filter(free), Extent::new(bounds.start(), end).filter(free)]
    }

    /// What `lock` covers of an extent, and its sequence number.
    #[must_use]
    pub fn part_of(&self, lock: LockId, extent: Extent) -> Option<(Region, Sn)> {
        let held = self.held.get(&lock)?;
        Some((held.region.in_extent(extent)?, held.sn))
    }

    /// Gives up a part of a lock. Nothing was written there that has not been flushed.
    pub(super) fn narrow(&mut self, lock: LockId, taken: Extent) {
        let held = self.held.get_mut(&lock).expect("callers found the lock");
        assert_eq!(held.phase, Phase::Granted, "what is on its way back goes as a whole");
        let kept = held.region.kept_without(taken).expect("callers have seen that something is left");
        self.by_extent.remove(held.region.bounds(), lock);
        held.region = kept;
        held.narrowed = held.narrowed.saturating_add(1);
        self.by_extent.insert(held.region.bounds(), lock);
        self.last_used = self.last_used.filter(|(last, _)| *last != lock);
    }

    /// Nothing new begins under the lock from here on.
    pub(super) fn cancel(
        &mut self,
        lock: LockId,
        wanted: LockMode,
        acknowledge: bool,
        out: &mut Vec<Effect>,
    ) {
        let downgrading = self.settings.policy.downgrading;
        let used = self.is_used(lock);
        if used {
            self.tell_watchers(lock, out);
        }
        let held = self.drain(lock);
        held.wanted = acknowledge.then_some(wanted);
        let idle_reader = held.mode == LockMode::Pr && !used;
        if acknowledge && !idle_reader {
            // An unused lock is lowered by the acknowledgement itself: no second message.
            if downgrading && !used && lowers(held.mode, wanted) {
                held.mode = LockMode::Nbw;
            }
            out.push(Effect::RevokeAck { lock, mode: held.mode });
        }
        if !acknowledge {
            held.wanted = Some(wanted);
        }
        self.go_on_canceling(lock, out);
    }

    /// Tells those that use the lock and want to know that it is on its way back, once.
    fn tell_watchers(&mut self, lock: LockId, out: &mut Vec<Effect>) {
        for user in self.users.iter_mut().filter(|user| user.lock == lock && user.watches) {
            user.watches = false;
            out.push(Effect::Wanted { operation: user.operation });
        }
    }

    /// Takes the next step on the way back that the operations in progress allow.
    pub(super) fn go_on_canceling(&mut self, lock: LockId, out: &mut Vec<Effect>) {
        let early_grant = self.settings.policy.early_grant;
        let downgrading = self.settings.policy.downgrading;
        let (used, written) = (self.is_used(lock), self.is_written(lock));
        let held = self.held.get_mut(&lock).expect("callers found the lock");
        match held.phase {
            Phase::Granted | Phase::Flushing => {}
            Phase::Lowering if used => {}
            Phase::Draining if used => {
                // Held by readers only: flush, then lower to PR so that other readers come in (paper III-D2).
                let readers_wait = held.wanted == Some(LockMode::Pr);
                if downgrading && held.mode == LockMode::Pw && !written && readers_wait {
                    held.phase = Phase::Lowering;
                    out.push(Effect::Flush {
                        lock,
                        region: held.region.clone(),
                        sn: held.sn,
                        release: false,
                        urgent: true,
                    });
                }
            }
            Phase::Draining | Phase::Lowering if held.mode == LockMode::Pr => self.release(lock, out),
            // The last reader may end before the flush that would lower the lock for it: then the lock goes with its data,
            // whatever becomes of them.
            Phase::Draining | Phase::Lowering => {
                if downgrading && held.wanted.is_some_and(|wanted| lowers(held.mode, wanted)) {
                    held.mode = LockMode::Nbw;
                    out.push(Effect::Convert { lock, mode: LockMode::Nbw });
                }
                held.phase = Phase::Flushing;
                let granted_early =
                    held.mode == LockMode::Nbw && held.wanted.is_some_and(LockMode::is_blind_write);
                let urgent = !(early_grant && granted_early);
                out.push(Effect::Flush {
                    lock,
                    region: held.region.clone(),
                    sn: held.sn,
                    release: true,
                    urgent,
                });
            }
        }
    }

    pub(super) fn flushed(&mut self, lock: LockId, released: bool, out: &mut Vec<Effect>) {
        let Some(held) = self.held.get_mut(&lock) else {
            return; // replaced by an upgrade, or lost, in the meantime
        };
        match held.phase {
            Phase::Granted | Phase::Draining => {}
            Phase::Lowering => {
                held.mode = LockMode::Pr;
                held.phase = Phase::Draining;
                out.push(Effect::Convert { lock, mode: LockMode::Pr });
                self.go_on_canceling(lock, out);
            }
            Phase::Flushing if released => {
                self.remove(lock);
            }
            Phase::Flushing => self.release(lock, out),
        }
    }

    fn release(&mut self, lock: LockId, out: &mut Vec<Effect>) {
        assert!(!self.is_used(lock), "a lock in use is not released");
        let held = self.remove(lock).expect("callers found the lock");
        out.push(Effect::Release { lock, region: held.region, sn: held.sn });
    }

    /// Gives back about `count` unused locks, those first that were used longest ago.
    pub(super) fn shrink(&mut self, count: usize, out: &mut Vec<Effect>) {
        let mut unused: Vec<(u64, LockId)> = self
            .held
            .iter()
            .filter(|(id, held)| held.phase == Phase::Granted && !self.is_used(**id))
            .map(|(id, held)| (held.used, *id))
            .collect();
        unused.sort_unstable();
        for (_, lock) in unused.into_iter().take(count) {
            self.cancel_unasked(lock, out);
        }
    }

    pub(super) fn grow_older(&mut self, out: &mut Vec<Effect>) {
        self.tick += 1;
        let (tick, age_max) = (self.tick, self.settings.age_ticks_max);
        let old: Vec<LockId> = self
            .held
            .iter()
            .filter(|(_, held)| held.phase == Phase::Granted && tick - held.used_tick > age_max)
            .filter(|(id, _)| !self.is_used(**id))
            .map(|(id, _)| *id)
            .collect();
        for lock in old {
            self.cancel_unasked(lock, out);
        }
    }

    /// Cancels a lock that nobody asked for: there is no waiter to lower it for. What uses it goes on.
    pub(super) fn cancel_unasked(&mut self, lock: LockId, out: &mut Vec<Effect>) {
        self.tell_watchers(lock, out);
        self.drain(lock);
        self.go_on_canceling(lock, out);
    }

    fn drain(&mut self, lock: LockId) -> &mut Held {
        let held = self.held.get_mut(&lock).expect("callers found the lock");
        assert_eq!(held.phase, Phase::Granted, "a lock is canceled once");
        held.phase = Phase::Draining;
        self.canceling += 1;
        self.by_extent.remove(held.region.bounds(), lock);
        held
    }
}

/// Whether lowering a lock of `mode` to NBW lets in somebody who waits for `wanted` (paper III-D2).
const fn lowers(mode: LockMode, wanted: LockMode) -> bool {
    matches!(mode, LockMode::Bw | LockMode::Pw) && wanted.is_blind_write()
}

#[cfg(test)]
mod tests {
    use crate::client::{Effect, Input, Locks, Settings};
    use alloc::vec::Vec;
    use ccpfs_region::Region;
    use ccpfs_types::{Extent, LockId, LockMode, LockState, OperationId, Policy, RequestId, Sn, Terms};
    use ccpfs_wire::GrantedLock;

    //= protocol.md#I8 type=test
    #[test]
    fn regression_a_lock_that_is_being_lowered_goes_when_its_last_reader_ends_before_the_flush() {
        let mut locks = Locks::new(Settings { policy: Policy::SEQDLM, locks_max: 8, age_ticks_max: 8 });
        let (operation, request, lock) = (OperationId(1), RequestId(1), LockId(1));
        let region = Region::from(Extent::new(0, 10).unwrap());
        let (required, desired) = (region.clone(), region.clone());
        let mut out = Vec::new();
        locks.step(
            Input::Acquire { operation, mode: LockMode::Pr, required, desired, request, terms: Terms::WAIT },
            &mut out,
        );
        let granted = GrantedLock {
            lock,
            mode: LockMode::Pw,
            region: region.clone(),
            sn: Sn(1),
            state: LockState::Granted,
            replaces: Vec::new(),
            early: false,
        };
        locks.step(Input::Granted { request, granted }, &mut out);
        out.clear();
        locks.step(Input::Revoked { lock, wanted: LockMode::Pr }, &mut out);
        let flush =
            |release| Effect::Flush { lock, region: region.clone(), sn: Sn(1), release, urgent: true };
        assert_eq!(out, [Effect::RevokeAck { lock, mode: LockMode::Pw }, flush(false)]);
        out.clear();
        // On a full device that flush never ends well: the lock must not wait for it once nobody reads under it.
        locks.step(Input::Finish { operation }, &mut out);
        assert_eq!(out, [flush(true)]);
        out.clear();
        locks.step(Input::Flushed { lock, released: true }, &mut out);
        assert!(out.is_empty() && locks.is_idle());
    }
}
