//! One stripe of an open file: its locks and cached bytes, which are a machine of their own, and their pages, under one mutex.
//!
//! The machine decides; this file keeps the memory, hands answers to the threads that wait for them, and collects messages
//! and work for other threads in an [`Outbox`].

use crate::client::ClientInner;
use crate::pages::Pool;
use crate::session::Session;
use crate::shared::FileShared;
use crate::slots::Slots;
use crate::statistics::{Counters, add};
use ccpfs_cached_stripe::{CachedStripe, Effect, Input, Settings};
use ccpfs_region::Region;
use ccpfs_types::{Extent, Layout, LockId, OperationId, ResourceId, Sn};
use ccpfs_wire::{Channel, LockRef, Message};
use ccpfs_writeback::JobId;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};

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
    /// Holds that should end soon.
    pub(crate) wanted: Vec<OperationId>,
}

/// What an operation waited for.
pub(crate) enum Answer {
    /// Its lock, or why there is none.
    Lock(Result<(LockId, Sn), i32>),
    /// What it must fetch to read.
    Missing(Vec<Extent>),
    /// The request that it may send.
    Ask(Message),
    /// How far the data of this client reach, and when they were written.
    Measured(u64, i64),
    /// Its lock was lost.
    Void,
}

/// A flush to send.
pub(crate) struct Job {
    pub(crate) job: JobId,
    pub(crate) pieces: Vec<(Extent, Sn)>,
    pub(crate) releases: Vec<LockId>,
    pub(crate) urgent: bool,
}

/// What the mutex of a stripe protects.
pub(crate) struct Inner {
    /// The session whose locks these are, and under which everything cached was got. Replaced only by [`Inner::lose`].
    session: Option<Arc<Session>>,
    cached: CachedStripe,
    slots: Slots,
    /// Answers that no thread has picked up yet.
    answers: Vec<(OperationId, Answer)>,
    /// Operations that want a lock for later, and end with its answer; and those that have it.
    speculative: Vec<OperationId>,
    /// As these, asked for by requests that wait for others.
    ahead: Vec<OperationId>,
    answered: Vec<OperationId>,
    /// Threads that wait for [`Stripe::changed`].
    waiting: u32,
    /// In the session's queue of urgent, of other flushes.
    pub(crate) queued_urgent: bool,
    pub(crate) queued: bool,
    /// Empty between steps: kept for its memory.
    effects: Vec<Effect>,
}

/// One stripe of an open file.
pub(crate) struct Stripe {
    pub(crate) resource: ResourceId,
    /// Which shard has it.
    pub(crate) target: u32,
    pub(crate) file: Weak<FileShared>,
    inner: Mutex<Inner>,
    /// Answers that threads wait for here, and barriers that are done.
    changed: Condvar,
}

impl Stripe {
    pub(crate) fn new(resource: ResourceId, target: u32, file: Weak<FileShared>) -> Stripe {
        let inner = Inner {
            session: None,
            cached: CachedStripe::new(resource),
            slots: Slots::default(),
            answers: Vec::new(),
            speculative: Vec::new(),
            ahead: Vec::new(),
            answered: Vec::new(),
            waiting: 0,
            queued_urgent: false,
            queued: false,
            effects: Vec::new(),
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

    /// Waits until something has changed.
    pub(crate) fn wait<'a>(&self, mut inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        inner.waiting += 1;
        let mut inner = self.changed.wait(inner).expect("a rule's invariant was broken under this lock");
        inner.waiting -= 1;
        inner
    }

    /// Gives the machine something that an operation waits for, and waits for the answer: at the latest, the loss of the session.
    pub(crate) fn ask(
        self: &Arc<Stripe>,
        client: &ClientInner,
        operation: OperationId,
        input: Input,
    ) -> Answer {
        let mut out = Outbox::default();
        let mut inner = self.lock();
        inner.step(self, client, input, &mut out);
        let at_once = inner.take_answer(operation);
        drop(inner);
        client.dispatch(self, out);
        if let Some(answer) = at_once {
            return answer;
        }
        let mut inner = self.lock();
        loop {
            match inner.take_answer(operation) {
                Some(answer) => return answer,
                None => inner = self.wait(inner),
            }
        }
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
        self.session.as_ref().is_some_and(|session| !session.is_dead())
    }

    /// From the next step on, this operation ends with the answer to what it asks for; nobody waits for that.
    pub(crate) fn speculate(&mut self, operation: OperationId) {
        self.speculative.push(operation);
    }

    /// Whether locks were asked for that nobody waits for, and the answers are not known yet.
    pub(crate) fn speculates(&self) -> bool {
        !self.speculative.is_empty()
    }

    /// As [`Inner::speculate`], for a request that waits until others have let go.
    pub(crate) fn wait_ahead(&mut self, operation: OperationId) {
        self.ahead.push(operation);
    }

    /// Whether a lock was asked for by a request that waits, with nobody who needs it yet, and the answer is not known.
    pub(crate) fn waits_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// The locks and data, to look at.
    pub(crate) fn cached(&self) -> &CachedStripe {
        &self.cached
    }

    /// Begins with the locks of a session. What was there of an earlier one is lost.
    pub(crate) fn begin_session(
        &mut self,
        stripe: &Stripe,
        client: &ClientInner,
        session: &Arc<Session>,
        settings: Settings,
        out: &mut Outbox,
    ) {
        if self.session.is_some() {
            self.lose(stripe, client, out);
        }
        self.session = Some(Arc::clone(session));
        self.step(stripe, client, Input::Begin { settings }, out);
    }

    /// Gives the machine an input and carries out what follows, as far as it concerns this stripe.
    pub(crate) fn step(&mut self, stripe: &Stripe, client: &ClientInner, input: Input, out: &mut Outbox) {
        let job = self.step_for_job(stripe, client, input, out);
        assert!(job.is_none(), "jobs are only made by taking them");
    }

    /// As [`Inner::step`]; with the flush to send, if the input takes one and there is one.
    pub(crate) fn step_for_job(
        &mut self,
        stripe: &Stripe,
        client: &ClientInner,
        input: Input,
        out: &mut Outbox,
    ) -> Option<Job> {
        let before = self.cached.cache().dirty_bytes();
        let mut effects = std::mem::take(&mut self.effects);
        self.cached.step(input, &mut effects);
        let mut job = None;
        for effect in effects.drain(..) {
            job = self.carry_out(stripe, client, effect, out).or(job);
        }
        while let Some(operation) = self.answered.pop() {
            self.cached.step(Input::Finish { operation }, &mut effects);
            for effect in effects.drain(..) {
                job = self.carry_out(stripe, client, effect, out).or(job);
            }
        }
        self.effects = effects;
        out.dirty_delta += self.cached.cache().dirty_bytes().cast_signed() - before.cast_signed();
        out.flush |= self.cached.wants_flush();
        out.flush_soon |= self.cached.wants_flush_soon();
        let messages = !(out.control.is_empty() && out.callback.is_empty() && out.releases.is_empty());
        if messages && out.session.is_none() {
            out.session.clone_from(&self.session);
        }
        job
    }

    fn carry_out(
        &mut self,
        stripe: &Stripe,
        client: &ClientInner,
        effect: Effect,
        out: &mut Outbox,
    ) -> Option<Job> {
        match effect {
            Effect::Answer { operation, answer } => {
                let asked = [&mut self.speculative, &mut self.ahead];
                let found = asked.into_iter().find_map(|asked| {
                    let at = asked.iter().position(|speculative| *speculative == operation)?;
                    Some(asked.swap_remove(at))
                });
                match found {
                    Some(speculative) => self.answered.push(speculative),
                    None => self.answers.push((operation, Answer::Lock(answer))),
                }
            }
            Effect::Void { operation } => self.answer(stripe, operation, Answer::Void),
            Effect::Ask { operation, message } => self.answer(stripe, operation, Answer::Ask(message)),
            Effect::Missing { operation, extents } => {
                self.answer(stripe, operation, Answer::Missing(extents));
            }
            Effect::Wanted { operation } => out.wanted.push(operation),
            Effect::Measured { operation, end, modified_ns } => {
                self.answer(stripe, operation, Answer::Measured(end, modified_ns));
            }
            Effect::Send { channel: Channel::Control, message } => out.control.push(message),
            Effect::Send { channel: Channel::Callback | Channel::Bulk, message } => {
                out.callback.push(message);
            }
            Effect::Release { lock } => out.releases.push(lock),
            Effect::Job { job, pieces, releases, urgent } => {
                return Some(Job { job, pieces, releases, urgent });
            }
            Effect::Forgotten { extent } => {
                out.freed = true;
                if self.slots.page_count() > 0 {
                    self.free_pages(client.the_pool(), extent);
                }
            }
            Effect::BarrierDone { .. } => self.notify(stripe),
            Effect::DataLost { extent, errno } => {
                tracing::debug!(stripe = stripe.resource.stripe, %extent, errno, "data lost");
            }
            Effect::Failed { errno } => {
                // Before the mutex is free: an fsync whose barrier has just ended must find the error.
                stripe.note_error(errno);
                out.errno = Some(errno);
            }
        }
        None
    }

    fn answer(&mut self, stripe: &Stripe, operation: OperationId, answer: Answer) {
        self.answers.push((operation, answer));
        self.notify(stripe);
    }

    fn notify(&self, stripe: &Stripe) {
        // Waking nobody is a system call all the same.
        if self.waiting > 0 {
            stripe.changed.notify_all();
        }
    }

    /// The answer to what an operation has asked, once.
    pub(crate) fn take_answer(&mut self, operation: OperationId) -> Option<Answer> {
        let at = self.answers.iter().position(|(of, _)| *of == operation)?;
        Some(self.answers.swap_remove(at).1)
    }

    /// Marks bytes that are in the pages, or cuts what is not. False if the operation's lock was lost.
    pub(crate) fn mark(
        &mut self,
        stripe: &Stripe,
        client: &ClientInner,
        (operation, input): (OperationId, Input),
        out: &mut Outbox,
    ) -> bool {
        self.step(stripe, client, input, out);
        self.take_answer(operation).is_none()
    }

    /// All locks are gone with their session, and with them whatever is cached. Nothing is left to send.
    pub(crate) fn lose(&mut self, stripe: &Stripe, client: &ClientInner, out: &mut Outbox) {
        self.step(stripe, client, Input::Lost, out);
        self.session = None;
        self.queued = false;
        self.queued_urgent = false;
        // A lock that nobody has picked up yet is gone: its operation finds the session ended. Who waits here must be told.
        self.answers.retain(|(_, answer)| !matches!(answer, Answer::Lock(_)));
        for (_, answer) in &mut self.answers {
            if matches!(answer, Answer::Missing(_) | Answer::Ask(_)) {
                *answer = Answer::Void;
            }
        }
        (out.control, out.callback, out.releases, out.session, out.flush, out.flush_soon) =
            Default::default();
    }

    /// See [`Slots::pin`].
    pub(crate) fn pin(
        &mut self,
        pool: &Pool,
        extent: Extent,
        runs: &mut Vec<(*mut u8, usize)>,
    ) -> Result<(), usize> {
        self.slots.pin(pool, extent, runs)
    }

    /// See [`Slots::runs`].
    pub(crate) fn runs(&self, pool: &Pool, extent: Extent, runs: &mut Vec<(*mut u8, usize)>) {
        self.slots.runs(pool, extent, runs);
    }

    /// Ends a pin. Pages that nothing needs any more go back to the pool.
    pub(crate) fn unpin(&mut self, pool: &Pool, extent: Extent) {
        if self.slots.unpin(extent) {
            self.free_pages(pool, extent);
        }
    }

    /// Gives back the pages within `extent` that hold no cached byte and are not in use.
    pub(crate) fn free_pages(&mut self, pool: &Pool, extent: Extent) {
        let cache = self.cached.cache();
        self.slots.free(pool, extent, |part| cache.needs_pages(part));
    }

    /// See [`Slots::doubt`].
    pub(crate) fn doubt(&mut self, extent: Extent) {
        self.slots.doubt(extent);
    }

    /// Number of pages held.
    pub(crate) fn page_count(&self) -> usize {
        self.slots.page_count()
    }

    /// Forgets clean bytes of all pages that are not in use, to make room.
    pub(crate) fn reclaim(&mut self, stripe: &Stripe, client: &ClientInner, out: &mut Outbox) {
        self.step(stripe, client, Input::Reclaim { extent: Extent::WHOLE }, out);
        self.free_pages(client.the_pool(), Extent::WHOLE);
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
