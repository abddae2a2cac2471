//! One stripe of an open file: its locks, its cached bytes and their pages, under one mutex.
//!
//! The rules decide; this file lets their effects meet: what the lock rule wants flushed goes to the write-back rule,
//! what that has flushed goes back, and messages and work for other threads collect in an [`Outbox`].

use crate::pages::{PAGE_BYTES, PageId, Pool};
use crate::session::Session;
use crate::shared::FileShared;
use crate::statistics::{Counters, add};
use ccpfs_dlm::client as dlm;
use ccpfs_types::{Extent, Layout, LockId, OperationId, Region, ResourceId, Sn};
use ccpfs_wire::{LockRef, Message};
use ccpfs_writeback as writeback;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

/// Canceled locks of a stripe whose flush nobody waits for, before some are flushed: bounds the servers' lock tables.
const PUT_OFF_MAX: usize = 256;

/// What a step leaves to do once the mutex is free.
#[derive(Default)]
pub(crate) struct Outbox {
    /// The session that the messages are for; set if there are any. Locks of another session may have the same numbers.
    pub(crate) session: Option<Arc<Session>>,
    /// For the control connection.
    pub(crate) control: Vec<Message>,
    /// For the callback connection.
    pub(crate) callback: Vec<Message>,
    /// Locks to release by one message.
    pub(crate) releases: Vec<LockRef>,
    /// The stripe has something for the flush thread that a lock or a barrier waits for.
    pub(crate) flush: bool,
    /// So many flushes have been put off that some should go.
    pub(crate) flush_soon: bool,
    /// Pages that went back to the pool, or bytes that were acknowledged: writers may be waiting for room.
    pub(crate) freed: bool,
    /// Data were lost, or could not be stored yet.
    pub(crate) errno: Option<i32>,
    /// Change of the client's dirty bytes.
    pub(crate) dirty_delta: i64,
}

/// How the wait for a lock ended.
pub(crate) type Answer = Result<(LockId, Sn), i32>;

struct Slot {
    page: PageId,
    /// Operations that copy into or out of the page just now.
    pins: u32,
    /// Not needed any longer, but pinned.
    orphan: bool,
}

/// What the mutex of a stripe protects.
pub(crate) struct Inner {
    /// The session whose locks these are, and under which everything cached was got. Replaced only by [`Inner::lose`].
    session: Option<Arc<Session>>,
    /// None until the first lock is asked for: the server's policy must be known.
    pub(crate) locks: Option<dlm::Locks>,
    pub(crate) cache: writeback::Stripe,
    slots: BTreeMap<u64, Slot>,
    /// Answers that no thread has picked up yet.
    answers: Vec<(OperationId, Answer)>,
    barriers: Vec<writeback::BarrierId>,
    /// Glimpses that cannot be answered before a flush up to this number is.
    glimpses: Vec<(u64, writeback::JobId)>,
    /// Rises when all locks are lost: an operation that began before must not mark anything dirty.
    pub(crate) generation: u64,
    /// The life of the server that has acknowledged data which no fsync has covered: the first one, if there are several.
    pub(crate) unsynced: Option<u64>,
    /// In the session's queue of urgent, of other flushes.
    pub(crate) queued_urgent: bool,
    pub(crate) queued: bool,
    /// When the last byte was written, nanoseconds since 1970.
    pub(crate) modified_ns: i64,
    lock_effects: Vec<dlm::Effect>,
    cache_effects: Vec<writeback::Effect>,
}

/// One stripe of an open file.
pub(crate) struct Stripe {
    pub(crate) resource: ResourceId,
    /// Which shard has it.
    pub(crate) target: u32,
    pub(crate) file: Weak<FileShared>,
    inner: Mutex<Inner>,
    /// Answers, acknowledgements and barriers.
    pub(crate) changed: Condvar,
}

impl Stripe {
    pub(crate) fn new(resource: ResourceId, target: u32, file: Weak<FileShared>) -> Stripe {
        let inner = Inner {
            session: None,
            locks: None,
            cache: writeback::Stripe::new(),
            slots: BTreeMap::new(),
            answers: Vec::new(),
            barriers: Vec::new(),
            glimpses: Vec::new(),
            generation: 0,
            unsynced: None,
            queued_urgent: false,
            queued: false,
            modified_ns: 0,
            lock_effects: Vec::new(),
            cache_effects: Vec::new(),
        };
        Stripe { resource, target, file, inner: Mutex::new(inner), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("a rule's invariant was broken under this lock; nothing here can be trusted")
    }

    /// Leaves an error for the file's handles to report.
    pub(crate) fn note_error(&self, errno: i32) {
        if let Some(file) = self.file.upgrade() {
            file.record_error(errno);
        }
    }

    pub(crate) fn wait<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        self.changed.wait(inner).expect("a rule's invariant was broken under this lock")
    }
}

impl Inner {
    /// Whether the locks are those of this session.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        self.session.as_ref().is_some_and(|ours| std::ptr::eq(Arc::as_ptr(ours), session))
    }

    /// The session whose locks these are, unless it has ended.
    pub(crate) fn live_session(&self) -> Option<Arc<Session>> {
        self.session.as_ref().filter(|session| !session.is_dead()).cloned()
    }

    /// Whether locks can be found or asked for: there is a session, and it has not ended.
    pub(crate) fn is_ready(&self) -> bool {
        self.locks.is_some() && self.session.as_ref().is_some_and(|session| !session.is_dead())
    }

    /// Begins with the locks of a session. What was there of an earlier one is lost.
    pub(crate) fn begin_session(
        &mut self,
        stripe: &Stripe,
        pool: &Pool,
        session: &Arc<Session>,
        settings: dlm::Settings,
        out: &mut Outbox,
    ) {
        if self.session.is_some() {
            self.lose(stripe, pool, out);
        }
        self.session = Some(Arc::clone(session));
        self.locks = Some(dlm::Locks::new(settings));
    }

    /// Notes in the outbox whom its messages are for.
    fn address(&self, out: &mut Outbox) {
        let messages = !(out.control.is_empty() && out.callback.is_empty() && out.releases.is_empty());
        if messages && out.session.is_none() {
            out.session.clone_from(&self.session);
        }
    }

    /// Gives the lock rule an input and carries out what follows, as far as it concerns this stripe.
    pub(crate) fn step_locks(&mut self, stripe: &Stripe, pool: &Pool, input: dlm::Input, out: &mut Outbox) {
        let Some(locks) = self.locks.as_mut() else { return };
        locks.step(input, &mut self.lock_effects);
        self.carry_out(stripe, pool, out);
    }

    /// Likewise for the write-back rule.
    pub(crate) fn step_cache(
        &mut self,
        stripe: &Stripe,
        pool: &Pool,
        input: writeback::Input,
        out: &mut Outbox,
    ) {
        let before = self.cache.dirty_bytes();
        self.cache.step(input, &mut self.cache_effects);
        self.note_dirty(before, out);
        if !self.cache_effects.is_empty() {
            self.carry_out(stripe, pool, out);
        }
    }

    /// A flush to send, if there is one: its pieces and releases.
    pub(crate) fn take_job(
        &mut self,
        input: writeback::Input,
        out: &mut Outbox,
    ) -> Option<writeback::Effect> {
        let before = self.cache.dirty_bytes();
        self.cache.step(input, &mut self.cache_effects);
        self.note_dirty(before, out);
        let job = self.cache_effects.pop();
        assert!(self.cache_effects.is_empty(), "taking a job has one effect at most");
        job
    }

    fn note_dirty(&mut self, before: u64, out: &mut Outbox) {
        out.dirty_delta += self.cache.dirty_bytes().cast_signed() - before.cast_signed();
    }

    fn carry_out(&mut self, stripe: &Stripe, pool: &Pool, out: &mut Outbox) {
        loop {
            let lock_effects = std::mem::take(&mut self.lock_effects);
            let cache_effects = std::mem::take(&mut self.cache_effects);
            if lock_effects.is_empty() && cache_effects.is_empty() {
                // Keep the allocation for the next step.
                self.lock_effects = lock_effects;
                self.cache_effects = cache_effects;
                break;
            }
            for effect in lock_effects {
                self.lock_effect(stripe, effect, out);
            }
            for effect in cache_effects {
                self.cache_effect(stripe, pool, effect, out);
            }
        }
        out.flush |= self.cache.wants_flush();
        out.flush_soon |= self.cache.put_off_count() > PUT_OFF_MAX;
        self.address(out);
    }

    fn lock_effect(&mut self, stripe: &Stripe, effect: dlm::Effect, out: &mut Outbox) {
        let resource = stripe.resource;
        match effect {
            dlm::Effect::Use { operation, lock, sn } => {
                self.answers.push((operation, Ok((lock, sn))));
                stripe.changed.notify_all();
            }
            dlm::Effect::Refused { operation, errno } => {
                self.answers.push((operation, Err(errno)));
                stripe.changed.notify_all();
            }
            dlm::Effect::Enqueue { request, mode, required, desired, try_only } => {
                out.control.push(Message::Enqueue { request, resource, mode, required, desired, try_only });
            }
            dlm::Effect::RevokeAck { lock, mode } => {
                out.callback.push(Message::RevokeAck { resource, lock, mode })
            }
            dlm::Effect::Convert { lock, mode } => {
                out.callback.push(Message::Convert { resource, lock, mode })
            }
            dlm::Effect::Flush { lock, region, sn, release, urgent } => {
                let extent = region.bounds();
                self.cache_step(writeback::Input::Flush { lock, extent, sn, release, urgent }, out);
            }
            dlm::Effect::Hurry { lock } => self.cache_step(writeback::Input::Hurry { lock }, out),
            dlm::Effect::Release { lock, region, sn } => {
                self.cache_step(writeback::Input::Forget { extent: region.bounds(), sn }, out);
                out.releases.push(LockRef { resource, lock });
            }
        }
    }

    fn cache_step(&mut self, input: writeback::Input, out: &mut Outbox) {
        let before = self.cache.dirty_bytes();
        self.cache.step(input, &mut self.cache_effects);
        self.note_dirty(before, out);
    }

    fn cache_effect(&mut self, stripe: &Stripe, pool: &Pool, effect: writeback::Effect, out: &mut Outbox) {
        match effect {
            writeback::Effect::Job { .. } => unreachable!("jobs are only made by taking them"),
            writeback::Effect::Flushed { lock, released } => {
                if let Some(locks) = self.locks.as_mut() {
                    locks.step(dlm::Input::Flushed { lock, released }, &mut self.lock_effects);
                }
            }
            writeback::Effect::Forgotten { extent } => {
                out.freed = true;
                self.free_pages(pool, extent);
            }
            writeback::Effect::BarrierDone { barrier, errno: _ } => {
                // The error itself was noted when the flush failed.
                self.barriers.retain(|waiting| *waiting != barrier);
                stripe.changed.notify_all();
            }
            writeback::Effect::DataLost { extent: _, errno } => {
                // Whoever gave the input notes it for the file, once, before the mutex is free: an fsync that finds nothing
                // dirty any more must find the error.
                out.errno = Some(errno);
            }
        }
    }

    /// The answer to an operation's wish for a lock, once.
    pub(crate) fn take_answer(&mut self, operation: OperationId) -> Option<Answer> {
        let at = self.answers.iter().position(|(of, _)| *of == operation)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Registers a barrier; false from [`Inner::is_waiting`] tells that it is done.
    pub(crate) fn set_barrier(
        &mut self,
        stripe: &Stripe,
        pool: &Pool,
        input: writeback::Input,
        out: &mut Outbox,
    ) {
        if let writeback::Input::Barrier { barrier, .. } = &input {
            self.barriers.push(*barrier);
        }
        self.step_cache(stripe, pool, input, out);
        out.flush |= self.cache.wants_flush();
    }

    /// The server asks how far our data reach: answered as soon as it is certain which of them are still ours.
    pub(crate) fn glimpse(&mut self, stripe: &Stripe, glimpse: u64, out: &mut Outbox) {
        let last = self.cache.last_leaving().unwrap_or(writeback::JobId(0));
        self.glimpses.push((glimpse, last));
        self.answer_glimpses(stripe, out);
    }

    pub(crate) fn answer_glimpses(&mut self, stripe: &Stripe, out: &mut Outbox) {
        let (end, modified_ns) = (self.cache.unacknowledged_end(), self.modified_ns);
        let cache = &self.cache;
        self.glimpses.retain(|(glimpse, last)| {
            let wait = cache.is_leaving(*last);
            if !wait {
                let resource = stripe.resource;
                out.callback.push(Message::GlimpseTell { glimpse: *glimpse, resource, end, modified_ns });
            }
            wait
        });
        self.address(out);
    }

    /// Whether somebody waits for all that is dirty.
    pub(crate) fn has_barrier(&self) -> bool {
        !self.barriers.is_empty()
    }

    pub(crate) fn is_waiting(&self, barrier: writeback::BarrierId) -> bool {
        self.barriers.contains(&barrier)
    }

    /// All locks are gone with their session, and with them whatever is cached. Nothing is left to send.
    pub(crate) fn lose(&mut self, stripe: &Stripe, pool: &Pool, out: &mut Outbox) {
        self.generation += 1;
        self.step_locks(stripe, pool, dlm::Input::Lost { errno: libc::EIO }, out);
        self.locks = None;
        self.session = None;
        // An answer that nobody has picked up yet names a lock that is gone: its operation finds the session ended.
        self.answers.clear();
        self.queued = false;
        self.queued_urgent = false;
        self.glimpses.clear();
        self.step_cache(stripe, pool, writeback::Input::Lost, out);
        if let Some(errno) = out.errno {
            stripe.note_error(errno);
        }
        (out.control, out.callback, out.releases, out.session, out.flush, out.flush_soon) =
            Default::default();
        stripe.changed.notify_all();
    }

    /// Makes sure that every byte of `extent` has a page, and pins them: start and length of each run of bytes.
    ///
    /// `Err(count)` if the pool lacks that many pages; nothing is pinned then.
    pub(crate) fn pin(
        &mut self,
        pool: &Pool,
        extent: Extent,
        runs: &mut Vec<(*mut u8, usize)>,
    ) -> Result<(), usize> {
        let (first, last) = page_range(extent);
        let mut missing = Vec::new();
        for index in first..last {
            if !self.slots.contains_key(&index) {
                missing.push(index);
            }
        }
        let mut fresh = Vec::with_capacity(missing.len());
        if !pool.allocate(missing.len(), &mut fresh) {
            return Err(missing.len());
        }
        for (index, page) in missing.into_iter().zip(fresh) {
            self.slots.insert(index, Slot { page, pins: 0, orphan: false });
        }
        for (index, slot) in self.slots.range_mut(first..last) {
            slot.pins += 1;
            push_run(runs, pool.pointer(slot.page), *index, extent);
        }
        Ok(())
    }

    /// Where bytes with pages lie in memory.
    pub(crate) fn runs(&self, pool: &Pool, extent: Extent, runs: &mut Vec<(*mut u8, usize)>) {
        let (first, last) = page_range(extent);
        let mut next = first;
        for (index, slot) in self.slots.range(first..last) {
            assert_eq!(*index, next, "cached bytes have pages");
            next += 1;
            push_run(runs, pool.pointer(slot.page), *index, extent);
        }
        assert_eq!(next, last, "cached bytes have pages");
    }

    /// Ends a pin. Pages that nothing needs any more go back to the pool.
    pub(crate) fn unpin(&mut self, pool: &Pool, extent: Extent) {
        let (first, last) = page_range(extent);
        let mut check = false;
        for (_, slot) in self.slots.range_mut(first..last) {
            slot.pins -= 1;
            check |= slot.pins == 0 && slot.orphan;
        }
        if check {
            self.free_pages(pool, extent);
        }
    }

    /// Gives back the pages within `extent` that hold no cached byte and are not in use.
    pub(crate) fn free_pages(&mut self, pool: &Pool, extent: Extent) {
        let (first, last) = page_range(extent);
        let mut freed = Vec::new();
        let mut gone = Vec::new();
        for (index, slot) in self.slots.range_mut(first..last) {
            if self.cache.needs_pages(page_extent(*index)) {
                slot.orphan = false;
            } else if slot.pins > 0 {
                slot.orphan = true;
            } else {
                freed.push(slot.page);
                gone.push(*index);
            }
        }
        for index in gone {
            self.slots.remove(&index);
        }
        pool.release(&freed);
    }

    /// Marks the pages of an operation that may end without making them needed.
    pub(crate) fn doubt(&mut self, extent: Extent) {
        let (first, last) = page_range(extent);
        for (_, slot) in self.slots.range_mut(first..last) {
            slot.orphan = true;
        }
    }

    /// Number of pages held.
    pub(crate) fn page_count(&self) -> usize {
        self.slots.len()
    }

    /// Forgets clean bytes of all pages that are not in use, to make room.
    pub(crate) fn reclaim(&mut self, stripe: &Stripe, pool: &Pool, out: &mut Outbox) {
        self.step_cache(stripe, pool, writeback::Input::Reclaim { extent: Extent::WHOLE }, out);
        self.free_pages(pool, Extent::WHOLE);
    }
}

/// Counts what a grant brought.
pub(crate) fn count_grant(counters: &Counters, granted: &ccpfs_wire::GrantedLock) {
    add(&counters.early_grants, u64::from(granted.early));
    add(&counters.early_revocations, u64::from(granted.state == ccpfs_types::LockState::Canceling));
    add(&counters.upgrades, u64::from(!granted.replaces.is_empty()));
}

/// The region that an operation asks for beyond what it needs.
pub(crate) fn to_eof(extent: Extent) -> Region {
    Extent::to_eof(extent.start()).into()
}

/// The bytes of `stripe` that lie within `extent` of the file.
pub(crate) fn local(layout: Layout, stripe: &Stripe, extent: Extent) -> Option<Extent> {
    let index = stripe.resource.stripe;
    Extent::new(layout.stripe_length(index, extent.start()), layout.stripe_length(index, extent.end()))
}

fn page_range(extent: Extent) -> (u64, u64) {
    (extent.start() / PAGE_BYTES, extent.end().div_ceil(PAGE_BYTES))
}

fn page_extent(index: u64) -> Extent {
    Extent::with_length(index * PAGE_BYTES, PAGE_BYTES).expect("pages have bytes")
}

/// Adds the part of `extent` that lies on page `index` at `start`, joined to the run before it where memory goes on.
fn push_run(runs: &mut Vec<(*mut u8, usize)>, start: *mut u8, index: u64, extent: Extent) {
    let page = page_extent(index);
    let part = page.intersection(extent).expect("the page was found by the extent");
    let skip = usize::try_from(part.start() - page.start()).expect("within a page");
    let length = usize::try_from(part.length()).expect("within a page");
    let at = start.wrapping_add(skip);
    match runs.last_mut() {
        Some((last, bytes)) if last.wrapping_add(*bytes) == at => *bytes += length,
        Some(_) | None => runs.push((at, length)),
    }
}
