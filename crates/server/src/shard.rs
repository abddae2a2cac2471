//! One shard: one thread that polls its port, puts what arrived through the rules, and does what they say.
//!
//! Nothing is shared between shards. Device calls are made by the shard's device threads only, so a turn of this loop never
//! blocks on a disk; all replies that one turn has for a connection leave as one frame.

use crate::connections::{Connections, Parting};
use crate::device_pool::{Call, DevicePool, Done, Task};
use crate::memory::{Bulks, Read, Reads};
use crate::status;
use ccpfs_device::DeviceError;
use ccpfs_shard::{Effect, Input, Note, TaskId, Work};
use ccpfs_transport::{Buffer, BufferPool, Bulk, Event, ServerPort};
use ccpfs_types::{ClientId, Policy};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// What a client is told when it is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Welcome {
    pub(crate) policy: Policy,
    pub(crate) target: u32,
    pub(crate) epoch: u64,
}

impl Welcome {
    pub(crate) fn message(&self) -> Message {
        Message::Welcome {
            version: PROTOCOL_VERSION,
            policy: self.policy,
            target: self.target,
            epoch: self.epoch,
        }
    }
}

/// Why a shard ended other than by being told to.
#[derive(Debug, Error)]
pub enum ShardError {
    /// Its connections cannot be served any more.
    #[error("its port failed: {0}")]
    Port(io::Error),
    /// What was written could not be made durable at the end.
    #[error("{0}")]
    Device(DeviceError),
}

/// One shard of a server.
pub(crate) struct Shard {
    pub(crate) port: Box<dyn ServerPort>,
    pub(crate) connections: Connections,
    pub(crate) rules: ccpfs_shard::Shard,
    pub(crate) pool: DevicePool,
    pub(crate) bulks: Bulks,
    pub(crate) reads: Reads,
    pub(crate) buffers: BufferPool,
    pub(crate) welcome: Welcome,
    pub(crate) started: Instant,
    pub(crate) stop: Arc<AtomicBool>,
    /// Empty between two steps.
    pub(crate) effects: Vec<Effect>,
    /// Empty between two turns.
    pub(crate) done: Vec<Done>,
}

impl Shard {
    /// Serves until it is told to stop, then finishes what was admitted and makes it durable.
    pub(crate) fn run(mut self) -> Result<(), ShardError> {
        let mut events = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.next_timeout();
            self.port.poll(&mut events, timeout).map_err(ShardError::Port)?;
            let now_ns = self.now_ns();
            for event in events.drain(..) {
                self.event(event, now_ns);
            }
            self.collect(now_ns);
            self.step(Input::Clock, now_ns);
            self.connections.flush(&mut *self.port);
            self.port.flush();
            // Sending has given memory back.
            self.reads.retry(&mut self.pool);
        }
        self.finish()
    }

    /// Time on the clock of the rules.
    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).expect("five hundred years fit")
    }

    /// How long the port may sleep.
    fn next_timeout(&self) -> Option<Duration> {
        if self.connections.has_doomed() {
            return Some(Duration::ZERO);
        }
        match self.rules.next_look_ns()? {
            0 => Some(Duration::ZERO),
            look_ns => Some(Duration::from_nanos(look_ns.saturating_sub(self.now_ns()))),
        }
    }

    fn event(&mut self, event: Event, now_ns: u64) {
        match event {
            Event::Opened { connection, peer } => self.connections.opened(connection, peer),
            Event::Frame { connection, message, bulk } => self.frame(connection, &message, bulk, now_ns),
            Event::Closed { connection, reason } => {
                self.connections.closed(connection, reason.to_string());
                self.part_doomed(now_ns);
            }
            Event::Woken => {}
        }
    }

    /// Puts one input through the rules and does what they say.
    pub(crate) fn step(&mut self, input: Input, now_ns: u64) {
        self.step_with(input, None, now_ns);
        self.part_doomed(now_ns);
    }

    /// As [`Shard::step`]; `read` is what the task that has ended has read. Who must go is gone later, by [`Shard::part_doomed`].
    fn step_with(&mut self, input: Input, mut read: Option<Buffer>, now_ns: u64) {
        let mut effects = std::mem::take(&mut self.effects);
        self.rules.step(input, now_ns, &mut effects);
        for effect in effects.drain(..) {
            self.carry_out(effect, &mut read);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, effect: Effect, read: &mut Option<Buffer>) {
        match effect {
            Effect::Send { to, channel, message } => self.connections.send_to(to, channel, &message),
            Effect::SendData { to, channel, message, task: _ } => {
                let data = read.take().expect("the rules send what the task that has ended has read");
                self.connections.send_bulk_to(to, channel, &message, Bulk::Buffer(data));
            }
            Effect::Status { to, request } => {
                let reply = status::reply(self, request);
                self.connections.send_to(to, Channel::Control, &reply);
            }
            Effect::Start { task, work, urgent } => self.start(task, work, urgent),
            Effect::Free { bulk } => self.bulks.free(bulk.id),
            Effect::Part { client, why } => self.connections.doom(client, Parting::Rules(why)),
            Effect::Note(note) => log(note),
        }
    }

    fn start(&mut self, id: TaskId, work: Work, urgent: bool) {
        let call = match work {
            Work::Read { resource, extent } => {
                return self.reads.start(Read { task: id, resource, extent }, &mut self.pool);
            }
            Work::Write { resource, bulk, parts } => {
                let base = usize::try_from(bulk.offset).expect("a frame is small");
                Call::Write { resource, bulk: self.bulks.get(bulk.id).clone(), base, parts }
            }
            Work::Cut { resource, holes, length } => Call::Cut { resource, holes, length },
            Work::Measure { resource } => Call::Measure { resource },
            Work::Map { resource, extent } => Call::Map { resource, extent },
            Work::List { after, count_max } => Call::List { after, count_max },
            Work::Sync { resources } => Call::Sync { resources },
            Work::Remove { resources } => Call::Remove { resources },
        };
        self.pool.submit(Task { id, call }, urgent);
    }

    /// Ends the clients that must go: first their connections, then what they held (I7).
    pub(crate) fn part_doomed(&mut self, now_ns: u64) {
        while let Some((client, why)) = self.connections.next_doomed() {
            let Some(gone) = self.connections.remove(client, &mut *self.port) else { continue };
            let goodbye = why == Parting::Rules(ccpfs_shard::Parting::Goodbye);
            let evictions = self.rules.counters().evictions;
            self.step_with(Input::Parted { client, goodbye }, None, now_ns);
            let with_locks = self.rules.counters().evictions > evictions;
            log_parting(client, &gone.name, &why, with_locks);
        }
    }

    /// Takes in what the device threads have ended.
    fn collect(&mut self, now_ns: u64) {
        let mut all = std::mem::take(&mut self.done);
        self.pool.take_done(&mut all);
        for Done { task, result, buffer } in all.drain(..) {
            self.step_with(Input::Ended { task, result }, buffer, now_ns);
            self.part_doomed(now_ns);
        }
        self.done = all;
    }

    fn finish(mut self) -> Result<(), ShardError> {
        let now_ns = self.now_ns();
        while self.pool.in_flight() > 0 {
            self.pool.wait_done();
            self.collect(now_ns);
        }
        let result = self.pool.device().sync_all();
        self.connections.flush(&mut *self.port);
        self.port.flush();
        result.map_err(ShardError::Device)
    }
}

fn log(note: Note) {
    match note {
        Note::Gone { client, resources } => tracing::debug!(%client, resources, "what a client held is free"),
        Note::Refused { client, resource, errno } => {
            tracing::debug!(%client, %resource, errno, "a piece was refused");
        }
        Note::Failed { resource, errno } => tracing::debug!(%resource, errno, "a device write failed"),
        Note::Forced { resource } => tracing::debug!(%resource, "asking all clients to flush a stripe"),
    }
}

fn log_parting(client: ClientId, name: &str, why: &Parting, with_locks: bool) {
    let violation =
        matches!(why, Parting::Malformed { .. } | Parting::Rules(ccpfs_shard::Parting::Violation { .. }));
    if *why == Parting::Rules(ccpfs_shard::Parting::Goodbye) {
        tracing::debug!(%client, ?name, "a client left");
    } else if with_locks {
        tracing::warn!(%client, ?name, %why, "a client with locks was evicted");
    } else if violation {
        tracing::warn!(%client, ?name, %why, "a client without locks was evicted");
    } else {
        tracing::info!(%client, ?name, %why, "a client without locks was evicted");
    }
}
