//! One client: a cached stripe per stripe, the memory of its pages, and the operations of its threads.
//!
//! As the product's shell it carries and does not decide: what a cached stripe wants sent is sent, what arrives is given to it.

use crate::bytes::{Bytes, copied, overlay};
use crate::cluster::Context;
use crate::net::{Link, Packet, Wire};
use crate::operation::Operation;
use crate::{places, text};
use ccpfs_cached_stripe::{CachedStripe, Effect, Input, Settings};
use ccpfs_types::limits::{FLUSH_BYTES_MAX, FLUSH_EXTENTS_MAX};
use ccpfs_types::{ClientId, Extent, FileId, LockId, OperationId, RequestId, ResourceId, Sn};
use ccpfs_wire::{Channel, LockRef, Message, Status, WritePiece};
use ccpfs_writeback::{BarrierId, JobId};
use std::collections::{BTreeMap, BTreeSet};

/// The file that every walk is about.
pub(crate) const FILE: FileId = FileId([7; 16]);

/// A stripe in a client, and its pages.
#[derive(Clone, Debug)]
pub(crate) struct StripeNode {
    pub(crate) machine: CachedStripe,
    pub(crate) memory: Bytes,
}

/// What operations have been told and not looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) answers: BTreeMap<OperationId, Result<(LockId, Sn), i32>>,
    pub(crate) missing: BTreeMap<OperationId, Vec<Extent>>,
    pub(crate) measured: BTreeMap<OperationId, u64>,
    pub(crate) void: BTreeSet<OperationId>,
    pub(crate) barriers: BTreeMap<BarrierId, Option<i32>>,
    pub(crate) replies: BTreeMap<RequestId, (Message, Option<Bytes>)>,
    /// An error of the file that nobody has reported.
    pub(crate) error: Option<i32>,
}

/// One client.
#[derive(Clone, Debug)]
pub(crate) struct ClientNode {
    /// Its number: 1 for `c1`.
    pub(crate) number: u64,
    /// Which life it is in, for each shard.
    lives: Vec<u64>,
    /// The life of the server that its session is with, for each shard.
    pub(crate) sessions: Vec<Option<u64>>,
    pub(crate) stripes: Vec<StripeNode>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) inbox: Inbox,
    numbers: u64,
    operation_numbers: u64,
    jobs: BTreeMap<JobId, usize>,
    /// What the last question for the size has found out.
    pub(crate) known_cuts: Vec<u64>,
    /// The flush threads stand still.
    pub(crate) paused: bool,
    pub(crate) crashed: bool,
}

impl ClientNode {
    pub(crate) fn new(number: u64, stripes: u32, shards: usize) -> ClientNode {
        let stripe = |stripe| StripeNode {
            machine: CachedStripe::new(ResourceId { file: FILE, stripe }),
            memory: Bytes::new(),
        };
        ClientNode {
            number,
            lives: vec![0; shards],
            sessions: vec![None; shards],
            stripes: (0..stripes).map(stripe).collect(),
            operations: Vec::new(),
            inbox: Inbox::default(),
            numbers: 0,
            operation_numbers: 0,
            jobs: BTreeMap::new(),
            known_cuts: Vec::new(),
            paused: false,
            crashed: false,
        }
    }

    /// Who it is to a shard.
    pub(crate) fn id(&self, shard: usize) -> ClientId {
        ClientId(self.number + text::LIFE * self.lives[shard])
    }

    /// Who it is and was to a shard, the first life first.
    pub(crate) fn all_ids(&self, shard: usize) -> Vec<ClientId> {
        (0..=self.lives[shard]).map(|life| ClientId(self.number + text::LIFE * life)).collect()
    }

    /// `c1`, as walks call it whatever life it is in.
    pub(crate) fn name(&self) -> String {
        format!("c{}", self.number)
    }

    /// The next number of a request, flush or barrier.
    pub(crate) fn request(&mut self) -> RequestId {
        self.numbers += 1;
        RequestId(self.numbers)
    }

    /// The number that [`ClientNode::request`] will give next.
    pub(crate) const fn next_number(&self) -> u64 {
        self.numbers + 1
    }

    pub(crate) fn operation(&mut self) -> OperationId {
        self.operation_numbers += 1;
        OperationId(self.operation_numbers)
    }

    /// Begins a session for a stripe that has none.
    pub(crate) fn begin(&mut self, stripe: usize, settings: Settings, cx: &mut Context) {
        if self.stripes[stripe].machine.locks().is_none() {
            self.step(stripe, Input::Begin { settings }, cx);
        }
    }

    /// Its connections to a shard are gone: whatever it had of it is lost, and it will come back as somebody else.
    pub(crate) fn lose(&mut self, shard: usize, cx: &mut Context) {
        self.sessions[shard] = None;
        self.lives[shard] += 1;
        for stripe in 0..self.stripes.len() {
            if cx.shard_of(stripe) == shard {
                self.step(stripe, Input::Lost, cx);
                self.stripes[stripe].memory = Bytes::new();
            }
        }
        for mut operation in std::mem::take(&mut self.operations) {
            operation.lose(shard, self, cx);
            self.operations.push(operation);
        }
        self.advance(cx);
    }

    /// Gives a stripe an input and carries out what follows.
    pub(crate) fn step(&mut self, stripe: usize, input: Input, cx: &mut Context) {
        let mut effects = Vec::new();
        self.stripes[stripe].machine.step(input, &mut effects);
        self.carry_out(stripe, effects, cx);
        self.flush_what_is_waited_for(stripe, cx);
    }

    fn carry_out(&mut self, stripe: usize, effects: Vec<Effect>, cx: &mut Context) {
        let me = self.name();
        let mut releases: Vec<LockRef> = Vec::new();
        for effect in effects {
            match effect {
                Effect::Answer { operation, answer } => {
                    self.inbox.answers.insert(operation, answer);
                }
                Effect::Void { operation } => {
                    self.inbox.void.insert(operation);
                }
                // No script holds locks for pages outside the cache.
                Effect::Wanted { operation: _ } => {}
                Effect::Send { channel, message } => {
                    self.send(cx.shard_of(stripe), channel, message, None, cx)
                }
                Effect::Ask { operation: _, message } => {
                    self.send(cx.shard_of(stripe), Channel::Control, message, None, cx);
                }
                Effect::Release { lock } => releases.push(lock),
                Effect::Job { job, pieces, releases, urgent } => {
                    self.send_job(stripe, (job, urgent), &pieces, &releases, cx);
                }
                Effect::Missing { operation, extents } => {
                    self.inbox.missing.insert(operation, extents);
                }
                Effect::Measured { operation, end, modified_ns: _ } => {
                    self.inbox.measured.insert(operation, end);
                }
                Effect::Forgotten { extent } => {
                    let what = cx.writer.in_stripe(self.stripe_number(stripe), extent);
                    cx.log.say(places::CACHE, format!("{me} forgets {what}"));
                }
                Effect::BarrierDone { barrier, errno } => {
                    self.inbox.barriers.insert(barrier, errno);
                }
                Effect::DataLost { extent, errno } => {
                    let what = cx.writer.in_stripe(self.stripe_number(stripe), extent);
                    let why = text::errno(errno);
                    cx.log.say(places::CACHE, format!("{me} loses unflushed data in {what}: {why}"));
                }
                Effect::Failed { errno } => {
                    self.inbox.error = Some(errno);
                    cx.log.say(places::STRIPE, format!("{me} notes {} for the file", text::errno(errno)));
                }
            }
        }
        if !releases.is_empty() {
            let shard = cx.shard_of(stripe);
            self.send(shard, Channel::Callback, Message::Release { locks: releases }, None, cx);
        }
    }

    /// What a flush thread does at once, unless it stands still: sends what locks and barriers wait for.
    fn flush_what_is_waited_for(&mut self, stripe: usize, cx: &mut Context) {
        while !self.paused {
            let machine = &self.stripes[stripe].machine;
            let urgent = machine.wants_flush();
            if !(urgent || machine.wants_flush_soon()) || !self.take(stripe, urgent, cx) {
                return;
            }
        }
    }

    /// The flush threads run again.
    pub(crate) fn go_on_flushing(&mut self, cx: &mut Context) {
        self.paused = false;
        for stripe in 0..self.stripes.len() {
            self.flush_what_is_waited_for(stripe, cx);
        }
    }

    /// Sends one flush of a stripe if there is something to send.
    pub(crate) fn take(&mut self, stripe: usize, urgent_only: bool, cx: &mut Context) -> bool {
        let job = JobId(self.next_number());
        let mut effects = Vec::new();
        let input =
            Input::Take { job, bytes_max: FLUSH_BYTES_MAX, pieces_max: FLUSH_EXTENTS_MAX, urgent_only };
        self.stripes[stripe].machine.step(input, &mut effects);
        let taken = effects.iter().any(|effect| matches!(effect, Effect::Job { .. }));
        if taken {
            self.numbers += 1;
        }
        self.carry_out(stripe, effects, cx);
        taken
    }

    fn send_job(
        &mut self,
        stripe: usize,
        (job, urgent): (JobId, bool),
        pieces: &[(Extent, Sn)],
        releases: &[LockId],
        cx: &mut Context,
    ) {
        let resource = self.stripes[stripe].machine.resource();
        let mut bulk = Bytes::new();
        let mut offset = 0;
        for (extent, _) in pieces {
            overlay(&mut bulk, &copied(&self.stripes[stripe].memory, *extent, offset));
            offset += extent.length();
        }
        let message = Message::Write {
            request: RequestId(job.0),
            urgent,
            pieces: pieces
                .iter()
                .map(|(extent, sn)| WritePiece { resource, extent: *extent, sn: *sn })
                .collect(),
            releases: releases.iter().map(|lock| LockRef { resource, lock: *lock }).collect(),
        };
        self.jobs.insert(job, stripe);
        self.send(cx.shard_of(stripe), Channel::Bulk, message, Some(bulk), cx);
    }

    /// Puts a message on its way.
    pub(crate) fn send(
        &mut self,
        shard: usize,
        channel: Channel,
        message: Message,
        bulk: Option<Bytes>,
        cx: &mut Context,
    ) {
        if let Message::Enqueue { request, .. } = &message {
            self.numbers = self.numbers.max(request.0);
        }
        let line = cx.writer.message(&message, bulk.as_ref());
        let from = text::client(self.id(shard));
        let arrow = format!("{from} -> s{shard} {:<8} {line}", text::channel(channel));
        cx.log.say(places::sender(&message), arrow);
        let link = Link { client: self.id(shard), shard, channel: Wire::from(channel), to_server: true };
        cx.net.send(link, message, bulk);
    }

    /// Takes a message that has arrived.
    #[allow(clippy::wildcard_enum_match_arm, reason = "what a server does not send is not heard")]
    pub(crate) fn receive(&mut self, link: Link, packet: Packet, cx: &mut Context) {
        let Packet { message, bulk, .. } = packet;
        let what = cx.writer.heading(&message);
        if self.crashed || link.client != self.id(link.shard) || self.sessions[link.shard].is_none() {
            let who = text::client(link.client);
            cx.log.say(places::SESSION, format!("{what} reaches nobody: {who} is gone"));
            return;
        }
        cx.log.say(places::receiver(&message), format!("{} takes {what}", self.name()));
        cx.log.deeper();
        match message {
            Message::Grant { resource, .. }
            | Message::Denied { resource, .. }
            | Message::Revoke { resource, .. }
            | Message::GlimpseAsk { resource, .. } => {
                self.step(resource.stripe as usize, Input::Message(message), cx);
            }
            Message::WriteReply { request, status } => self.answered(JobId(request.0), status, cx),
            Message::ReadReply { request, .. }
            | Message::Done { request, .. }
            | Message::GlimpseReply { request, .. } => {
                self.inbox.replies.insert(request, (message, bulk));
            }
            _ => {}
        }
        self.advance(cx);
        cx.log.back();
    }

    fn answered(&mut self, job: JobId, status: Status, cx: &mut Context) {
        let errno = match status {
            Status::Ok => None,
            Status::Errno(errno) => Some(errno),
        };
        if let Some(stripe) = self.jobs.remove(&job) {
            self.step(stripe, Input::Answered { job, errno }, cx);
        }
    }

    /// Lets every operation go on as far as it can.
    pub(crate) fn advance(&mut self, cx: &mut Context) {
        loop {
            let before = self.operations.len();
            for mut operation in std::mem::take(&mut self.operations) {
                operation.advance(self, cx);
                if !operation.is_over() {
                    self.operations.push(operation);
                }
            }
            // What one has ended may be what another waits for.
            if self.operations.len() == before {
                return;
            }
        }
    }

    fn stripe_number(&self, stripe: usize) -> u32 {
        self.stripes[stripe].machine.resource().stripe
    }
}
