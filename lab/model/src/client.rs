//! The shell of a client: carries messages, pages and answers between its cached stripes, its threads and the network.

use crate::config::BYTES;
use crate::ghost::Ghost;
use crate::mark::Mark;
use crate::rule::{Broken, Found, Rule, broken};
use crate::server;
use crate::state::{Bytes, Cached, Data, Frame, Link, Node, POISON, State, Step, Tag, range};
use crate::world::World;
use ccpfs_cached_stripe::{Effect, Input, Settings};
use ccpfs_dlm::client as dlm;
use ccpfs_types::{Extent, OperationId};
use ccpfs_wire::{Channel, LockRef, Message, Status, WritePiece};
use ccpfs_writeback::JobId;
use std::sync::Arc;

/// What the parts of a number for a request or an operation mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The operation of a script.
    pub tag: Tag,
    /// What for: see the constants of [`Number`].
    pub kind: u8,
    /// Which stripe, or which shard.
    pub of: u8,
    /// Which of several; of locks, which part of the call.
    pub sub: u8,
}

impl Number {
    /// A lock, and its use.
    pub const LOCK: u8 = 1;
    /// Data.
    pub const READ: u8 = 2;
    /// A cut.
    pub const CUT: u8 = 3;
    /// How long the stripe is.
    pub const GLIMPSE: u8 = 4;
    /// A sync.
    pub const SYNC: u8 = 5;
    /// A lock for later.
    pub const AHEAD: u8 = 6;

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        (self.tag as u64) << 32 | (self.kind as u64) << 24 | (self.of as u64) << 16 | self.sub as u64
    }

    /// Takes one apart; `None` for the number of a flush.
    #[must_use]
    pub fn of(number: u64) -> Option<Number> {
        let byte = |shift: u32| u8::try_from(number >> shift & 0xff).expect("a byte");
        (number >> 32 != 0).then(|| Number { tag: byte(32), kind: byte(24), of: byte(16), sub: byte(0) })
    }
}

/// One step of a client.
pub struct Turn<'a> {
    pub(crate) world: &'a World,
    pub(crate) state: &'a mut State,
    pub(crate) node: usize,
}

/// The place of a channel.
pub fn place(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Callback => 1,
        Channel::Bulk => 2,
    }
}

impl<'a> Turn<'a> {
    /// A step of `node`.
    pub fn new(world: &'a World, state: &'a mut State, node: usize) -> Turn<'a> {
        Turn { world, state, node }
    }

    pub(crate) fn node(&mut self) -> &mut Node {
        Arc::make_mut(&mut self.state.nodes[self.node])
    }

    pub(crate) fn cached(&mut self, stripe: u8) -> &mut Cached {
        &mut self.node().stripes[usize::from(stripe)]
    }

    pub(crate) fn ghost(&mut self) -> &mut Ghost {
        Arc::make_mut(&mut self.state.ghost)
    }

    fn link(&mut self, incarnation: u8, shard: u8) -> &mut Link {
        Arc::make_mut(&mut self.state.links[self.world.link(incarnation, shard)])
    }

    /// Does something and tidies up behind it.
    pub fn act(mut self, act: impl FnOnce(&mut Turn<'a>) -> Found) -> Found {
        act(&mut self)?;
        self.tidy();
        Ok(())
    }

    /// Joins all servers and begins a session with each.
    pub fn begin(mut self) {
        let Some(incarnation) = self.state.nodes[self.node].incarnation else { return };
        for shard in 0..self.world.config.shards {
            self.link(incarnation, shard).open = true;
            server::join(self.state, shard, World::client(incarnation));
        }
        let locks = dlm::Settings {
            policy: self.world.policy,
            locks_max: self.world.config.options.locks_max,
            age_ticks_max: 1 << 20,
        };
        let settings = Settings { locks, put_off_max: self.world.config.options.put_off_max, epoch: 1 };
        for stripe in 0..self.world.config.stripes {
            let mut out = Vec::new();
            self.cached(stripe).rules.step(Input::Begin { settings }, &mut out);
            assert!(out.is_empty(), "there was no session before");
        }
    }

    /// Gives a stripe an input and carries out what follows: first what is sent, then what threads learn.
    pub(crate) fn step(&mut self, stripe: u8, input: Input) -> Found {
        let mut out = Vec::new();
        self.cached(stripe).rules.step(input, &mut out);
        let mut releases: Vec<LockRef> = Vec::new();
        for effect in &out {
            match effect {
                Effect::Send { channel, message } => self.send_one(stripe, *channel, message.clone())?,
                Effect::Ask { message, .. } => self.send_one(stripe, Channel::Control, message.clone())?,
                Effect::Release { lock } => releases.push(*lock),
                Effect::Job { job, pieces, releases, urgent } => {
                    let releases = releases.iter().map(|lock| self.reference(stripe, *lock)).collect();
                    self.send_job(stripe, *job, pieces, releases, *urgent)?;
                }
                Effect::DataLost { errno, .. } | Effect::Failed { errno } => self.excuse("data", *errno)?,
                Effect::Answer { .. }
                | Effect::Void { .. }
                | Effect::Wanted { .. }
                | Effect::Missing { .. }
                | Effect::Measured { .. }
                | Effect::Forgotten { .. }
                | Effect::BarrierDone { .. } => {}
            }
        }
        if !releases.is_empty() {
            self.send(stripe, Channel::Callback, Message::Release { locks: releases }, Data::Nothing);
        }
        for effect in out {
            match effect {
                Effect::Answer { operation, answer } => self.answered(operation, answer)?,
                Effect::Void { operation } => self.void(operation)?,
                Effect::Missing { operation, extents } => self.missing(operation, extents)?,
                Effect::Measured { operation, end, .. } => self.measured(operation, end)?,
                Effect::BarrierDone { barrier, errno } => self.barrier_done(barrier, errno)?,
                Effect::Wanted { .. }
                | Effect::Send { .. }
                | Effect::Ask { .. }
                | Effect::Release { .. }
                | Effect::Job { .. }
                | Effect::Forgotten { .. }
                | Effect::DataLost { .. }
                | Effect::Failed { .. } => {}
            }
        }
        Ok(())
    }

    fn reference(&self, stripe: u8, lock: ccpfs_types::LockId) -> LockRef {
        LockRef { resource: self.world.resource(stripe), lock }
    }

    /// An error is fine if a session was lost, and a finding otherwise.
    pub(crate) fn excuse(&mut self, what: &str, errno: i32) -> Found {
        if self.node().has_lost || self.state.nodes[self.node].incarnation.is_none() {
            self.world.mark(Mark::Failed);
            return Ok(());
        }
        broken(Rule::Protocol, format!("c{}: {what} failed with errno {errno}", self.node))
    }

    fn send_one(&mut self, stripe: u8, channel: Channel, message: Message) -> Found {
        if let Message::Truncate { length, .. } = &message {
            let above = Extent::new(*length, Extent::EOF).expect("files end before EOF");
            let flying = &self.cached(stripe).flying;
            if flying.iter().any(|(_, pieces)| pieces.iter().any(|(extent, _)| extent.overlaps(above))) {
                return broken(
                    Rule::I4,
                    format!("c{} cuts stripe {stripe} while a flush above is under way", self.node),
                );
            }
        }
        if let Message::Convert { .. } = &message {
            self.world.mark(Mark::Convert);
        }
        self.send(stripe, channel, message, Data::Nothing);
        Ok(())
    }

    /// Sends to the shard of a stripe.
    pub(crate) fn send(&mut self, stripe: u8, channel: Channel, message: Message, data: Data) {
        let shard = self.world.shard_of(stripe);
        self.send_to(shard, channel, message, data);
    }

    /// Sends to a shard.
    pub(crate) fn send_to(&mut self, shard: u8, channel: Channel, message: Message, data: Data) {
        let Some(incarnation) = self.state.nodes[self.node].incarnation else { return };
        let link = self.link(incarnation, shard);
        if link.open && !link.cut {
            link.up[place(channel)].push_back(Frame { message, data });
        }
    }

    fn send_job(
        &mut self,
        stripe: u8,
        job: JobId,
        pieces: &[(Extent, ccpfs_types::Sn)],
        releases: Vec<LockRef>,
        urgent: bool,
    ) -> Found {
        let late = self.world.config.options.late_bytes;
        let (node, resource) = (self.node, self.world.resource(stripe));
        let cached = self.cached(stripe);
        for (extent, sn) in pieces {
            let same = |(other, number): &(Extent, u64)| other.overlaps(*extent) && *number == sn.0;
            if cached.flying.iter().any(|(_, pieces)| pieces.iter().any(same)) {
                let what =
                    format!("c{node} has two flushes of {extent:?} of stripe {stripe} of one lock under way");
                return broken(Rule::I4, what);
            }
        }
        cached.flying.push((job.0, pieces.iter().map(|(extent, sn)| (*extent, sn.0)).collect()));
        let bytes = sample(&cached.pages, pieces.iter().map(|(extent, _)| *extent));
        if !releases.is_empty() {
            self.world.mark(Mark::ReleaseWithFlush);
        }
        let pieces = pieces.iter().map(|(extent, sn)| WritePiece { resource, extent: *extent, sn: *sn });
        let request = ccpfs_types::RequestId(job.0);
        let message = Message::Write { request, urgent, pieces: pieces.collect(), releases };
        self.send(stripe, Channel::Bulk, message, if late { Data::Late } else { Data::Bytes(bytes) });
        Ok(())
    }

    /// The flush thread takes a job.
    pub(crate) fn take(&mut self, stripe: u8, urgent_only: bool) -> Found {
        let bytes_max = self.world.config.options.flush_bytes_max;
        let cached = self.cached(stripe);
        let job = next_job(cached, stripe);
        let before = cached.flying.len();
        self.step(stripe, Input::Take { job, bytes_max, pieces_max: 1024, urgent_only })?;
        let cached = self.cached(stripe);
        if cached.flying.len() > before {
            cached.jobs += 1;
        }
        Ok(())
    }

    /// Gives back an unused lock.
    pub(crate) fn shrink(&mut self, stripe: u8) -> Found {
        self.node().shrinks -= 1;
        self.step(stripe, Input::Shrink { count: 1 })
    }

    /// A message arrives.
    pub fn deliver(mut self, link: usize, channel: u8) -> Found {
        let queue = &mut Arc::make_mut(&mut self.state.links[link]).down[usize::from(channel)];
        let Some(frame) = queue.pop_front() else { return Ok(()) };
        self.message(frame)?;
        self.tidy();
        Ok(())
    }

    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "what a server may say is named; the rest is a finding"
    )]
    fn message(&mut self, frame: Frame) -> Found {
        let Frame { message, data } = frame;
        match message {
            Message::Grant { resource, .. } | Message::Denied { resource, .. } => {
                self.step(stripe_of(resource), Input::Message(message))
            }
            Message::Revoke { resource, .. } => self.revoke(stripe_of(resource), message),
            Message::GlimpseAsk { resource, .. } => {
                self.world.mark(Mark::Glimpse);
                self.step(stripe_of(resource), Input::Message(message))
            }
            Message::WriteReply { request, status } => {
                let stripe = u8::try_from(request.0 & 0xff).expect("a byte");
                let errno = self.errno(status)?;
                self.cached(stripe).flying.retain(|(job, _)| *job != request.0);
                self.step(stripe, Input::Answered { job: JobId(request.0), errno })
            }
            Message::ReadReply { request, status, .. } => {
                self.errno(status)?;
                self.fetched(Number::of(request.0), data)
            }
            Message::GlimpseReply { request, status, stripe_bytes, .. } => {
                self.errno(status)?;
                self.glimpsed(Number::of(request.0), stripe_bytes)
            }
            Message::Done { request, status } => {
                self.errno(status)?;
                self.done(Number::of(request.0))
            }
            other => broken(Rule::Protocol, format!("c{} is sent {other:?}", self.node)),
        }
    }

    fn errno(&mut self, status: Status) -> Result<Option<i32>, Broken> {
        match status {
            Status::Ok => Ok(None),
            Status::Errno(errno) => self.excuse("a request", errno).map(|()| Some(errno)),
        }
    }

    fn revoke(&mut self, stripe: u8, message: Message) -> Found {
        let before = self.cached(stripe).rules.clone();
        self.step(stripe, Input::Message(message))?;
        let world = self.world;
        let used = self.node().threads.iter().any(|thread| match &thread.step {
            Step::Filled { .. } | Step::Copied { .. } | Step::Fetching { .. } => true,
            Step::Idle
            | Step::Locking { .. }
            | Step::Looking { .. }
            | Step::Measuring { .. }
            | Step::Glimpsing { .. }
            | Step::Cutting
            | Step::Flushing { .. }
            | Step::Syncing { .. } => false,
        });
        let after = &self.cached(stripe).rules;
        let same_locks = before.locks().map(dlm::Locks::count) == after.locks().map(dlm::Locks::count);
        if before == *after {
            world.mark(Mark::RevokeLate);
        } else if used && same_locks {
            world.mark(Mark::RevokeInUse);
        }
        let put_off = before.cache().put_off_count();
        if put_off > 0
            && put_off == after.cache().put_off_count()
            && !before.wants_flush()
            && after.wants_flush()
        {
            world.mark(Mark::Hurry);
        }
        Ok(())
    }

    /// The client dies.
    pub fn crash(mut self) -> Found {
        self.cut();
        let node = self.node();
        node.incarnation = None;
        node.threads.iter_mut().for_each(|thread| thread.step = Step::Idle);
        for cached in &mut node.stripes {
            let resource = cached.rules.resource();
            let rules = ccpfs_cached_stripe::CachedStripe::new(resource);
            *cached = Cached { rules, pages: [POISON; BYTES], flying: Vec::new(), jobs: 0, ahead: None };
        }
        let (world, node) = (self.world, self.node);
        self.ghost().vanished(world, node);
        Ok(())
    }

    /// The client finds its connections gone, and comes back under a new number.
    pub fn lose(mut self) -> Found {
        self.cut();
        let (world, node) = (self.world, self.node);
        self.ghost().vanished(world, node);
        self.node().has_lost = true;
        for stripe in 0..world.config.stripes {
            self.cached(stripe).flying.clear();
            self.step(stripe, Input::Lost)?;
        }
        self.give_up_replies()?;
        let second = u8::try_from(world.config.nodes.len()).expect("a few");
        self.node().incarnation = Some(second);
        self.tidy();
        self.begin();
        Ok(())
    }

    /// Nothing reaches the client any more; what it has sent may still arrive.
    fn cut(&mut self) {
        let Some(incarnation) = self.state.nodes[self.node].incarnation else { return };
        for shard in 0..self.world.config.shards {
            let node = Arc::clone(&self.state.nodes[self.node]);
            let link = self.link(incarnation, shard);
            link.cut = true;
            link.down.iter_mut().for_each(std::collections::VecDeque::clear);
            for frame in &mut link.up[place(Channel::Bulk)] {
                freeze(&node, frame);
            }
        }
    }

    /// Bytes of pages that nothing needs are anything at all.
    fn tidy(&mut self) {
        let pinned = self.pinned();
        let stripes = usize::from(self.world.config.stripes);
        for (stripe, pinned) in pinned.iter().enumerate().take(stripes) {
            for byte in (0..BYTES).filter(|byte| !pinned[*byte]) {
                let cached = &self.state.nodes[self.node].stripes[stripe];
                let extent = Extent::with_length(byte as u64, 1).expect("one byte");
                if cached.pages[byte] != POISON && !cached.rules.cache().needs_pages(extent) {
                    self.node().stripes[stripe].pages[byte] = POISON;
                }
            }
        }
    }

    /// The bytes that operations are about just now.
    fn pinned(&self) -> [[bool; BYTES]; 2] {
        let mut pinned = [[false; BYTES]; 2];
        for (thread, t) in
            self.state.nodes[self.node].threads.iter().enumerate().filter(|(_, t)| t.step != Step::Idle)
        {
            let tag = self.world.tag(self.node, thread, t.next);
            for part in self.world.op(tag).op.parts() {
                pinned[usize::from(part.stripe)][usize::from(part.start)..usize::from(part.end)].fill(true);
            }
        }
        pinned
    }
}

/// The number of the next flush of a stripe.
pub(crate) fn next_job(cached: &Cached, stripe: u8) -> JobId {
    JobId((cached.jobs + 1) << 8 | u64::from(stripe))
}

/// The stripe of a resource.
pub fn stripe_of(resource: ccpfs_types::ResourceId) -> u8 {
    u8::try_from(resource.stripe).expect("a few")
}

/// The number of an operation on a stripe.
pub(crate) const fn operation(tag: Tag, kind: u8, of: u8) -> OperationId {
    OperationId(Number { tag, kind, of, sub: 0 }.get())
}

/// The number of the use of a lock: which part of the call it is for.
pub(crate) const fn lock(tag: Tag, of: u8, sub: u8) -> OperationId {
    OperationId(Number { tag, kind: Number::LOCK, of, sub }.get())
}

/// What pages hold, extent by extent.
fn sample(pages: &Bytes, extents: impl Iterator<Item = Extent>) -> Vec<Tag> {
    extents.flat_map(|extent| pages[range(extent)].to_vec()).collect()
}

/// Gives a flush the bytes that its pages hold now.
pub(crate) fn freeze(node: &Node, frame: &mut Frame) {
    let Message::Write { pieces, .. } = &frame.message else { return };
    if frame.data == Data::Late {
        let extents = pieces.iter().map(|piece| (stripe_of(piece.resource), piece.extent));
        let bytes = extents
            .flat_map(|(stripe, extent)| node.stripes[usize::from(stripe)].pages[range(extent)].to_vec());
        frame.data = Data::Bytes(bytes.collect());
    }
}
