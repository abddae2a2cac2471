//! The state of one cached stripe, and how the effects of its two rules meet.

use crate::sync::Unsynced;
use crate::wait::Waits;
use crate::{EIO, Effect, Input, Settings};
use alloc::vec::Vec;
use ccpfs_dlm::client as dlm;
use ccpfs_region::Region;
use ccpfs_types::{Extent, GroupId, LockId, LockMode, OperationId, ResourceId, Sn};
use ccpfs_wire::{Channel, LockRef, Message, Status};
use ccpfs_writeback as writeback;

/// Number of a [`Message::GlimpseAsk`] whose answer is not looked at, but that it comes.
const SIGN_OF_LIFE: u64 = 0;
/// A server that does not keep to the protocol (errno of Linux).
const EPROTO: i32 = 71;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Session {
    pub(crate) locks: dlm::Locks,
    put_off_max: usize,
    pub(crate) epoch: u64,
}

/// One stripe of a file in one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CachedStripe {
    pub(crate) resource: ResourceId,
    /// None before the first session, and between two.
    pub(crate) session: Option<Session>,
    pub(crate) cache: writeback::Stripe,
    /// When the last byte was written, nanoseconds since 1970.
    pub(crate) modified_ns: i64,
    pub(crate) waits: Waits,
    unsynced: Unsynced,
    /// Empty between steps, as is the next: kept for their memory.
    lock_effects: Vec<dlm::Effect>,
    cache_effects: Vec<writeback::Effect>,
}

impl CachedStripe {
    /// Nothing cached, and no session.
    #[must_use]
    pub fn new(resource: ResourceId) -> CachedStripe {
        CachedStripe {
            resource,
            session: None,
            cache: writeback::Stripe::new(),
            modified_ns: 0,
            waits: Waits::default(),
            unsynced: Unsynced::default(),
            lock_effects: Vec::new(),
            cache_effects: Vec::new(),
        }
    }

    /// Takes one input and appends what follows from it.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Begin { settings } => self.begin(settings, out),
            Input::Acquire { operation, mode, required, desired, request, terms } => {
                if self.session.is_none() {
                    out.push(Effect::Answer { operation, answer: Err(EIO) });
                }
                self.locks_step(dlm::Input::Acquire { operation, mode, required, desired, request, terms });
            }
            Input::Join { operation, under, writes } => {
                if self.session.is_none() {
                    out.push(Effect::Answer { operation, answer: Err(EIO) });
                }
                self.locks_step(dlm::Input::Join { operation, under, writes, errno: EIO });
            }
            Input::Watch { operation } => {
                if self.session.is_none() {
                    out.push(Effect::Wanted { operation });
                }
                self.locks_step(dlm::Input::Watch { operation });
            }
            Input::Finish { operation } => {
                self.waits.forget(operation);
                self.locks_step(dlm::Input::Finish { operation });
            }
            Input::Message(message) => self.message(message, out),
            Input::Written { operation, extent, now_ns } => self.written(operation, extent, now_ns, out),
            Input::Fetched { operation, extent } => self.fetched(operation, extent, out),
            Input::Look { operation, extent, ahead_bytes } => self.waits.look(operation, extent, ahead_bytes),
            Input::Truncate { operation, length, request } => self.waits.cut(operation, length, request),
            Input::Punch { operation, extent, request } => self.waits.punch(operation, extent, request),
            Input::Cut { operation } => self.cut(operation),
            Input::Measure { operation } => self.waits.measure(operation, self.cache.last_leaving()),
            Input::Take { job, bytes_max, pieces_max, urgent_only } => {
                // Who waits at a barrier waits for data that no lock is waited for as well.
                let urgent_only = urgent_only && !self.cache.has_barrier();
                self.cache_step(writeback::Input::Take { job, bytes_max, pieces_max, urgent_only });
            }
            Input::Answered { job, errno } => self.answered(job, errno, out),
            Input::Barrier { barrier, next_job } => {
                self.cache_step(writeback::Input::Barrier { barrier, next_job });
            }
            Input::Sync { operation, epoch } => {
                if !self.unsynced.begin(operation, epoch) {
                    out.push(Effect::Failed { errno: EIO });
                }
            }
            Input::Synced { operation, stored } => self.unsynced.end(operation, stored),
            Input::Retry => self.cache_step(writeback::Input::Retry),
            Input::Reclaim { extent } => self.cache_step(writeback::Input::Reclaim { extent }),
            Input::Remove => self.cache_step(writeback::Input::Truncated { length: 0 }),
            Input::Tick => self.locks_step(dlm::Input::Tick),
            Input::Shrink { count } => self.locks_step(dlm::Input::Shrink { count }),
            Input::Lost => self.lose(out),
        }
        self.carry_out(out);
        if !self.waits.is_empty() {
            self.answer_waiting(out);
            self.carry_out(out);
        }
    }

    /// The stripe.
    #[must_use]
    pub const fn resource(&self) -> ResourceId {
        self.resource
    }

    /// Its locks, while there is a session.
    #[must_use]
    pub fn locks(&self) -> Option<&dlm::Locks> {
        self.session.as_ref().map(|session| &session.locks)
    }

    /// Its cached data.
    #[must_use]
    pub const fn cache(&self) -> &writeback::Stripe {
        &self.cache
    }

    /// Whether the operation uses a lock of this stripe: if not, it was lost, or the operation has ended.
    #[must_use]
    pub fn holds(&self, operation: OperationId) -> bool {
        self.sn_of(operation).is_some()
    }

    /// Whether an operation would find a lock of `group` here that covers `region` for `mode`, and would not have to ask.
    #[must_use]
    pub fn covers(&self, mode: LockMode, region: &Region, group: GroupId) -> bool {
        self.covering(mode, region, group).is_some()
    }

    /// What the lock covers that such an operation would find.
    #[must_use]
    pub fn covering(&self, mode: LockMode, region: &Region, group: GroupId) -> Option<&Region> {
        self.locks().and_then(|locks| locks.covering(mode, region, group))
    }

    /// When the last byte was written, nanoseconds since 1970; 0 if never.
    #[must_use]
    pub const fn modified_ns(&self) -> i64 {
        self.modified_ns
    }

    /// Whether a lock or a barrier waits for a flush: to be sent before others.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.cache.wants_flush()
    }

    /// Whether so many flushes have been put off that some should go.
    #[must_use]
    pub fn wants_flush_soon(&self) -> bool {
        self.session.as_ref().is_some_and(|session| self.cache.put_off_count() > session.put_off_max)
    }

    /// Whether nothing is cached, locked, asked for or under way.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.cache.is_empty() && self.locks().is_none_or(dlm::Locks::is_idle)
    }

    pub(crate) fn sn_of(&self, operation: OperationId) -> Option<Sn> {
        self.locks().and_then(|locks| locks.sn_of(operation))
    }

    /// Whether the lock that the operation uses covers an extent.
    pub(crate) fn is_covered(&self, operation: OperationId, extent: Extent) -> bool {
        let region = self.locks().and_then(|locks| locks.in_use_by(operation));
        region.is_some_and(|region| region.contains_region(&extent.into()))
    }

    fn begin(&mut self, settings: Settings, out: &mut Vec<Effect>) {
        if self.session.is_some() {
            self.lose(out);
        }
        let Settings { locks, put_off_max, epoch } = settings;
        self.session = Some(Session { locks: dlm::Locks::new(locks), put_off_max, epoch });
    }

    fn lose(&mut self, out: &mut Vec<Effect>) {
        self.locks_step(dlm::Input::Lost { errno: EIO });
        self.session = None;
        self.waits.session_lost();
        self.cache_step(writeback::Input::Lost);
        let lost =
            self.cache_effects.iter().any(|effect| matches!(effect, writeback::Effect::DataLost { .. }));
        if lost {
            out.push(Effect::Failed { errno: EIO });
        }
        self.carry_out(out);
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what a server may say to a stripe is named; the rest is ignored"
    )]
    fn message(&mut self, message: Message, out: &mut Vec<Effect>) {
        let ours = self.resource;
        match message {
            Message::Grant { request, resource, granted } if resource == ours => {
                self.locks_step(dlm::Input::Granted { request, granted });
            }
            Message::Denied { request, resource, status, first_common: _ } if resource == ours => {
                let errno = match status {
                    Status::Errno(errno) => errno,
                    Status::Ok => EPROTO,
                };
                self.locks_step(dlm::Input::Denied { request, errno });
            }
            Message::Revoke { resource, lock, wanted, region } if resource == ours => {
                self.revoked(lock, wanted, &region, out);
            }
            // Who only wants a sign of life does not wait for the flush that keeps this client waiting, too.
            Message::GlimpseAsk { glimpse: SIGN_OF_LIFE, resource } if resource == ours => {
                self.waits.glimpse(SIGN_OF_LIFE, None);
            }
            Message::GlimpseAsk { glimpse, resource } if resource == ours => {
                self.waits.glimpse(glimpse, self.cache.last_leaving());
            }
            _ => {}
        }
    }

    /// Somebody waits for `region` of a lock. Where nothing of what would be given up is in use, or was written and has not been
    /// acknowledged, the rest of the lock is kept; else it goes as a whole.
    fn revoked(&mut self, lock: LockId, wanted: LockMode, region: &Region, out: &mut Vec<Effect>) {
        for taken in self.locks().map_or([None; 2], |locks| locks.keeps(lock, region)).into_iter().flatten() {
            let given_up = self.locks().and_then(|locks| locks.part_of(lock, taken));
            let Some((part, sn)) = given_up.filter(|(part, sn)| !self.cache.has_data(part, *sn)) else {
                continue;
            };
            self.cache_step(writeback::Input::Forget { region: part, sn });
            self.locks_step(dlm::Input::Narrow { lock, taken });
            let message = Message::Narrow { resource: self.resource, lock, taken };
            out.push(Effect::Send { channel: Channel::Callback, message });
            return;
        }
        self.locks_step(dlm::Input::Revoked { lock, wanted });
    }

    fn written(&mut self, operation: OperationId, extent: Extent, now_ns: i64, out: &mut Vec<Effect>) {
        let Some(sn) = self.sn_of(operation) else {
            out.push(Effect::Void { operation });
            return;
        };
        debug_assert!(self.is_covered(operation, extent), "an operation writes what its lock covers");
        self.modified_ns = now_ns;
        self.cache_step(writeback::Input::Written { extent, sn });
    }

    fn fetched(&mut self, operation: OperationId, extent: Extent, out: &mut Vec<Effect>) {
        let Some(sn) = self.sn_of(operation) else {
            out.push(Effect::Void { operation });
            return;
        };
        debug_assert!(self.is_covered(operation, extent), "an operation fetches what its lock covers");
        self.cache_step(writeback::Input::Fetched { extent, sn });
    }

    fn answered(&mut self, job: writeback::JobId, errno: Option<i32>, out: &mut Vec<Effect>) {
        let Some(session) = self.session.as_ref().filter(|_| self.cache.is_under_way(job)) else {
            return; // sent before the server was lost
        };
        match errno {
            // What stays dirty is reported as well: whoever waits for room or at a barrier gives up.
            Some(errno) => out.push(Effect::Failed { errno }),
            None => self.unsynced.acknowledged(session.epoch),
        }
        self.cache_step(writeback::Input::Acknowledged { job, errno });
    }

    /// The server has acknowledged a cut: no less than data that it has acknowledged, a Sync has to cover it. Also when the
    /// session has ended between the answer and this: the call returns success all the same.
    //= protocol.md#I9
    fn cut(&mut self, operation: OperationId) {
        if let Some(epoch) = self.waits.cutting_epoch(operation) {
            self.unsynced.acknowledged(epoch);
        }
    }

    fn locks_step(&mut self, input: dlm::Input) {
        if let Some(session) = self.session.as_mut() {
            session.locks.step(input, &mut self.lock_effects);
        }
    }

    pub(crate) fn cache_step(&mut self, input: writeback::Input) {
        self.cache.step(input, &mut self.cache_effects);
    }

    /// Lets the effects of the two rules meet until nothing is left of them.
    fn carry_out(&mut self, out: &mut Vec<Effect>) {
        if self.lock_effects.is_empty() && self.cache_effects.is_empty() {
            return;
        }
        let mut lock_effects = core::mem::take(&mut self.lock_effects);
        let mut cache_effects = core::mem::take(&mut self.cache_effects);
        while !(lock_effects.is_empty() && cache_effects.is_empty()) {
            for effect in lock_effects.drain(..) {
                self.lock_effect(effect, out);
            }
            for effect in cache_effects.drain(..) {
                self.cache_effect(effect, out);
            }
            // New ones are here, and the memory of the old ones takes what follows from them.
            core::mem::swap(&mut lock_effects, &mut self.lock_effects);
            core::mem::swap(&mut cache_effects, &mut self.cache_effects);
        }
        if lock_effects.capacity() > self.lock_effects.capacity() {
            self.lock_effects = lock_effects;
        }
        if cache_effects.capacity() > self.cache_effects.capacity() {
            self.cache_effects = cache_effects;
        }
    }

    fn lock_effect(&mut self, effect: dlm::Effect, out: &mut Vec<Effect>) {
        let resource = self.resource;
        let on_callback = |message| Effect::Send { channel: Channel::Callback, message };
        match effect {
            dlm::Effect::Use { operation, lock, sn } => {
                out.push(Effect::Answer { operation, answer: Ok((lock, sn)) });
            }
            dlm::Effect::Refused { operation, errno } => {
                out.push(Effect::Answer { operation, answer: Err(errno) });
            }
            dlm::Effect::Wanted { operation } => out.push(Effect::Wanted { operation }),
            dlm::Effect::Enqueue { request, mode, required, desired, terms } => {
                let message = Message::Enqueue { request, resource, mode, required, desired, terms };
                out.push(Effect::Send { channel: Channel::Control, message });
            }
            dlm::Effect::RevokeAck { lock, mode } => {
                out.push(on_callback(Message::RevokeAck { resource, lock, mode }));
            }
            dlm::Effect::Convert { lock, mode } => {
                out.push(on_callback(Message::Convert { resource, lock, mode }));
            }
            dlm::Effect::Flush { lock, region, sn, release, urgent } => {
                self.cache_step(writeback::Input::Flush { lock, region, sn, release, urgent });
            }
            dlm::Effect::Hurry { lock } => self.cache_step(writeback::Input::Hurry { lock }),
            dlm::Effect::Release { lock, region, sn } => {
                self.cache_step(writeback::Input::Forget { region, sn });
                out.push(Effect::Release { lock: LockRef { resource, lock } });
            }
        }
    }

    fn cache_effect(&mut self, effect: writeback::Effect, out: &mut Vec<Effect>) {
        match effect {
            writeback::Effect::Job { job, pieces, releases, urgent } => {
                out.push(Effect::Job { job, pieces, releases, urgent });
            }
            writeback::Effect::Flushed { lock, released } => {
                self.locks_step(dlm::Input::Flushed { lock, released });
            }
            writeback::Effect::Forgotten { extent } => out.push(Effect::Forgotten { extent }),
            writeback::Effect::BarrierDone { barrier, errno } => {
                out.push(Effect::BarrierDone { barrier, errno });
            }
            writeback::Effect::DataLost { extent, errno } => out.push(Effect::DataLost { extent, errno }),
        }
    }
}
