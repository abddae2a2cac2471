//! One stripe in one client: its machine, its pages, and what follows from a step.

use super::client::{Client, EIO, Note};
use crate::engine::{ClientEvent, Engine};
use crate::history::{Loss, StripeUse};
use crate::net::Tag;
use ccpfs_cached_stripe::{CachedStripe, Effect, Input};
use ccpfs_types::limits::RELEASES_MAX;
use ccpfs_types::{Extent, ExtentMap, OperationId, ResourceId};
use ccpfs_wire::{Channel, LockRef, Message, WritePiece};
use ccpfs_writeback::{JobId, Readable};

/// The tag of bytes in a page that mean nothing.
pub(crate) const GARBAGE: Tag = Tag::MAX;

/// One stripe of an open file.
#[derive(Debug)]
pub(crate) struct Stripe {
    pub(crate) machine: CachedStripe,
    pub(crate) target: u32,
    /// What the pages hold; nothing where they hold garbage.
    pub(crate) memory: ExtentMap<Tag>,
    /// Bytes whose pages operations use just now.
    pub(crate) pins: Vec<Extent>,
    /// The session whose locks these are: its serial number in this process, and its number in history.
    pub(crate) session: Option<(u64, u32)>,
    /// Whether the operation has begun that lasts as long as a membership in a group.
    pub(crate) is_member: bool,
    /// Operations that took a lock for later, whose requests wait at the server; they end with the answer.
    pub(crate) ahead: Vec<OperationId>,
    pub(crate) queued_urgent: bool,
    pub(crate) queued: bool,
}

impl Stripe {
    pub(crate) fn new(resource: ResourceId, target: u32) -> Stripe {
        Stripe {
            machine: CachedStripe::new(resource),
            target,
            memory: ExtentMap::new(),
            pins: Vec::new(),
            session: None,
            is_member: false,
            ahead: Vec::new(),
            queued_urgent: false,
            queued: false,
        }
    }

    /// Pages that nobody needs are used for something else.
    pub(crate) fn sweep(&mut self, extent: Extent) {
        let Some(end) = self.memory.end() else { return };
        let Some(extent) = Extent::new(extent.start(), extent.end().min(end)) else { return };
        let Readable::Missing(gaps) = self.machine.cache().readable(extent) else { return };
        for gap in gaps {
            let pinned = self.pins.iter().any(|pin| pin.overlaps(gap));
            if !pinned && !self.machine.cache().needs_pages(gap) {
                self.memory.remove(gap);
            }
        }
    }

    pub(crate) fn unpin(&mut self, extent: Extent) {
        if let Some(at) = self.pins.iter().position(|pin| *pin == extent) {
            self.pins.swap_remove(at);
        }
        self.sweep(extent);
    }
}

/// What a step leaves to send.
#[derive(Default)]
struct Outbox {
    messages: Vec<(Channel, Message)>,
    releases: Vec<LockRef>,
    /// Operations that have the lock they took for later.
    over: Vec<OperationId>,
}

impl Client {
    /// Puts an input through a stripe and carries out what follows.
    pub(crate) fn step(&mut self, engine: &mut Engine, file: usize, stripe: usize, input: Input) {
        let mut effects = std::mem::take(&mut self.effects);
        let place = self.stripe(file, stripe);
        let before = place.machine.cache().dirty_bytes();
        // The sender itself knows whether to come back.
        let takes = matches!(input, Input::Take { .. });
        place.machine.step(input, &mut effects);
        let after = place.machine.cache().dirty_bytes();
        let (urgent, soon) = (place.machine.wants_flush(), place.machine.wants_flush_soon());
        let mut out = Outbox::default();
        for effect in effects.drain(..) {
            self.carry_out(engine, (file, stripe), effect, &mut out);
        }
        self.effects = effects;
        let over = std::mem::take(&mut out.over);
        if !(out.messages.is_empty() && out.releases.is_empty()) {
            self.post(engine, file, stripe, out);
        }
        if (urgent || soon) && !takes {
            self.schedule(engine, file, stripe, urgent);
        }
        if before != after {
            self.dirty_changed(engine, (file, stripe), before, after);
        }
        for operation in over {
            self.step(engine, file, stripe, Input::Finish { operation });
        }
    }

    fn carry_out(&mut self, engine: &mut Engine, place: (usize, usize), effect: Effect, out: &mut Outbox) {
        let (file, stripe) = place;
        match effect {
            Effect::Answer { operation, answer } => {
                let ahead = &mut self.stripe(file, stripe).ahead;
                if let Some(at) = ahead.iter().position(|ahead| *ahead == operation) {
                    ahead.swap_remove(at);
                    out.over.extend(answer.is_ok().then_some(operation));
                    return;
                }
                self.tell_owner(operation.0, Note::Answer { operation, answer });
            }
            Effect::Void { operation } => self.tell_owner(operation.0, Note::Void { operation }),
            // Nobody holds locks for pages outside the cache here.
            Effect::Wanted { operation: _ } => {}
            Effect::Missing { operation, extents } => {
                self.tell_owner(operation.0, Note::Missing { operation, extents });
            }
            Effect::Measured { operation, end, modified_ns: _ } => {
                self.tell_owner(operation.0, Note::Measured { operation, end });
            }
            Effect::BarrierDone { barrier, errno: _ } => {
                self.tell_owner(barrier.0, Note::BarrierDone { barrier });
            }
            Effect::Ask { operation, message } => {
                if let Message::Truncate { request, sn, .. } = &message {
                    self.cut_here(engine, place, request.0, *sn);
                }
                self.tell_owner(operation.0, Note::Ask { operation, message });
            }
            Effect::Send { channel, message } => {
                engine.seen.narrowed += u64::from(matches!(message, Message::Narrow { .. }));
                out.messages.push((channel, message));
            }
            Effect::Release { lock } => out.releases.push(lock),
            Effect::Job { job, pieces, releases, urgent } => {
                let resource = self.stripe(file, stripe).machine.resource();
                let extents = pieces.iter().map(|(extent, _)| *extent).collect::<Vec<_>>();
                let message = Message::Write {
                    request: ccpfs_types::RequestId(job.0),
                    urgent,
                    pieces: pieces
                        .into_iter()
                        .map(|(extent, sn)| WritePiece { resource, extent, sn })
                        .collect(),
                    releases: releases.into_iter().map(|lock| LockRef { resource, lock }).collect(),
                };
                self.send_job(engine, place, JobId(job.0), message, &extents);
            }
            Effect::Forgotten { extent } => {
                if engine.is_tagged() {
                    self.stripe(file, stripe).sweep(extent);
                }
            }
            Effect::DataLost { extent, errno } => self.note_loss(engine, place, extent, errno),
            Effect::Failed { errno } => {
                let errors = &mut self.files[file].errors;
                *errors = (errors.0 + 1, errno);
                self.room.failures = (self.room.failures.0 + 1, errno);
                self.wake_writers();
            }
        }
    }

    /// A truncate takes effect where the own cache is cut.
    fn cut_here(
        &mut self,
        engine: &mut Engine,
        (file, stripe): (usize, usize),
        request: u64,
        sn: ccpfs_types::Sn,
    ) {
        let call = self.owner_call(request);
        let place = self.stripe(file, stripe);
        let session = place.session.map_or(0, |(_, session)| session);
        let number = place.machine.resource().stripe;
        engine.took_effect(call, StripeUse { stripe: number, extent: Extent::WHOLE, session, sn, order: 0 });
    }

    fn note_loss(&mut self, engine: &mut Engine, (file, stripe): (usize, usize), extent: Extent, errno: i32) {
        if self.stripe(file, stripe).session.is_none() {
            return; // with its session, whose end says so; what was on its way may still arrive
        }
        let node = self.process;
        let (file, stripe) = (to_u32(file), to_u32(stripe));
        engine.note(self.who(), || format!("data lost: f{file}.{stripe} {extent}, errno {errno}"));
        engine.lost(|at| Loss { at, node, file, stripe, extent, errno });
    }

    /// Sends what a step left, over the session of the stripe's locks, perhaps a little later.
    fn post(&mut self, engine: &mut Engine, file: usize, stripe: usize, out: Outbox) {
        let place = self.stripe(file, stripe);
        let (Some((serial, _)), target) = (place.session, place.target) else { return };
        let Outbox { mut messages, releases, over: _ } = out;
        for locks in releases.chunks(RELEASES_MAX) {
            messages.push((Channel::Callback, Message::Release { locks: locks.to_vec() }));
        }
        let jitter = engine.config.client.send_jitter_ns;
        if jitter == 0 {
            return self.send_all(engine, target, serial, messages);
        }
        let at_ns = engine.now_ns() + engine.jitter(jitter);
        engine.client_event(at_ns, self.node, self.life, ClientEvent::Send { target, serial, messages });
    }

    /// Sends messages over a session, if it still stands.
    pub(crate) fn send_all(
        &mut self,
        engine: &mut Engine,
        target: u32,
        serial: u64,
        messages: Vec<(Channel, Message)>,
    ) {
        let Some(session) = self.sessions[target as usize].live(serial) else { return };
        for (channel, message) in messages {
            engine.send(session.connection(channel), true, message, None, false);
        }
    }

    /// Whether the operation still has its lock on a stripe.
    pub(crate) fn holds(&self, file: usize, stripe: usize, operation: ccpfs_types::OperationId) -> bool {
        self.files[file].stripes[stripe].as_ref().is_some_and(|stripe| stripe.machine.holds(operation))
    }

    /// The answer of a machine that has lost the operation's lock, if it gave one.
    pub(crate) fn take_void(&mut self, thread: u32, of: ccpfs_types::OperationId) -> Option<i32> {
        self.take_note(thread, |note| {
            if let Note::Void { operation } = note
                && *operation == of
            {
                return Some(EIO);
            }
            None
        })
    }
}

/// A small index as the number that history and messages use.
pub(crate) fn to_u32(index: usize) -> u32 {
    u32::try_from(index).expect("a small index")
}
