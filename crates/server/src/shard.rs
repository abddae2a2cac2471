//! One shard: one thread that polls its port, puts what arrived through the services, and sends what came out.
//!
//! Nothing is shared between shards. Device calls are made by the shard's device threads only, so a turn of this loop never
//! blocks on a disk; all replies that one turn has for a connection leave as one frame.

use crate::connections::{Connections, Parting};
use crate::data_service::DataService;
use crate::glimpse::{Glimpses, Next};
use crate::lock_service::{Followup, LockService};
use crate::operations::Outcome;
use crate::overdue::{Action, Debt};
use crate::trimming::Trimming;
use ccpfs_device::DeviceError;
use ccpfs_dlm::server::Input;
use ccpfs_transport::{BufferPool, Bulk, Event, ServerPort};
use ccpfs_types::{ClientId, Policy, ResourceId};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Number of a glimpse that only wants a sign of life.
const PROBE: u64 = 0;

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
    pub(crate) locks: LockService,
    pub(crate) data: DataService,
    pub(crate) glimpses: Glimpses,
    pub(crate) trimming: Trimming,
    pub(crate) buffers: BufferPool,
    pub(crate) welcome: Welcome,
    pub(crate) started: Instant,
    pub(crate) evictions: u64,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) outcomes: Vec<Outcome>,
}

impl Shard {
    /// Serves until it is told to stop, then finishes what was admitted and makes it durable.
    pub(crate) fn run(mut self) -> Result<(), ShardError> {
        let mut events = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let timeout = self.next_timeout();
            self.port.poll(&mut events, timeout).map_err(ShardError::Port)?;
            let now = Instant::now();
            for event in events.drain(..) {
                self.event(event, now);
                self.settle(now);
            }
            self.data.collect(&mut self.outcomes);
            self.settle(now);
            self.look_at_clocks(now);
            self.trim(now);
            self.settle(now);
            self.connections.flush(&mut *self.port);
            self.port.flush();
            // Sending has given memory back.
            self.data.retry_reads();
        }
        self.finish()
    }

    /// How long the port may sleep.
    fn next_timeout(&self) -> Option<Duration> {
        if self.trimming.is_busy(&self.data) || self.connections.has_doomed() {
            return Some(Duration::ZERO);
        }
        let look = self.locks.overdue.next_look()?;
        Some(look.saturating_duration_since(Instant::now()))
    }

    fn event(&mut self, event: Event, now: Instant) {
        match event {
            Event::Opened { connection, peer } => self.connections.opened(connection, peer),
            Event::Frame { connection, message, bulk } => {
                if let Some(Some(role)) = self.connections.role(connection) {
                    self.connections.heard(role.client, role.channel == Channel::Bulk, now);
                }
                self.frame(connection, &message, bulk, now);
            }
            Event::Closed { connection, reason } => self.connections.closed(connection, reason.to_string()),
            Event::Woken => {}
        }
    }

    /// Carries out what the services want done, and what follows from that, until nothing is left.
    pub(crate) fn settle(&mut self, now: Instant) {
        loop {
            for outcome in std::mem::take(&mut self.outcomes) {
                self.outcome(outcome, now);
            }
            for followup in self.locks.take_followups() {
                self.followup(followup, now);
            }
            if let Some((client, why)) = self.connections.next_doomed() {
                self.part(client, &why, now);
            } else if self.outcomes.is_empty() && !self.locks.has_followups() {
                return;
            }
        }
    }

    fn outcome(&mut self, outcome: Outcome, now: Instant) {
        match outcome {
            Outcome::Reply { connection, message } => self.connections.send(connection, &message),
            Outcome::Data { connection, message, bulk } => {
                self.connections.send_bulk(connection, &message, Bulk::Buffer(bulk));
            }
            Outcome::Release { client, locks } => self.release(client, locks, now),
            Outcome::Measured { glimpse, result } => {
                let locks = &self.locks;
                let next =
                    self.glimpses.measured(glimpse, result, |id, beyond| locks.write_holders(id, beyond));
                self.glimpse_goes_on(glimpse, next, now);
            }
            Outcome::Quiet { resource } => {
                if !self.locks.knows(resource) {
                    self.data.forget(resource, &mut self.outcomes);
                }
            }
        }
    }

    fn followup(&mut self, followup: Followup, now: Instant) {
        match followup {
            Followup::Idle(resource) => {
                self.trimming.unforced(resource);
                self.data.forget(resource, &mut self.outcomes);
            }
            Followup::Refused(resource) => self.trimming.unforced(resource),
            Followup::Whole(resource, lock) => {
                self.trimming.unforced(resource);
                self.data.forget(resource, &mut self.outcomes);
                let input = Input::Release { from: ClientId::SERVER, lock };
                self.locks.step(resource, input, &mut self.connections, now);
            }
        }
    }

    /// Does the next step of a glimpse.
    pub(crate) fn glimpse_goes_on(&mut self, glimpse: u64, next: Next, now: Instant) {
        match next {
            Next::Wait => {}
            Next::Ask { resource, clients } => {
                for client in clients {
                    self.locks.overdue.arm(Debt::Glimpse { resource, glimpse, client }, client, now);
                    let message = Message::GlimpseAsk { glimpse, resource };
                    if !self.connections.send_to(client, Channel::Callback, &message) {
                        self.connections.doom(client, Parting::Unreachable);
                    }
                }
            }
            Next::Measure { resource } => self.data.measure(glimpse, resource, &mut self.outcomes),
            Next::Reply { reply, message } => self.connections.send(reply.connection, &message),
        }
    }

    /// Ends a client: its connections, then what it held, then whoever waited for it goes on (I7: in this order).
    fn part(&mut self, client: ClientId, why: &Parting, now: Instant) {
        let Some(gone) = self.connections.remove(client, &mut *self.port) else { return };
        let resources = self.locks.evict(client, &mut self.connections, now);
        for glimpse in self.glimpses.waiting_for(client) {
            let next = self.glimpses.told(glimpse, client, 0, 0);
            self.glimpse_goes_on(glimpse, next, now);
        }
        if *why == Parting::Goodbye {
            tracing::debug!(%client, name = ?gone.name, "a client left");
        } else if resources > 0 {
            self.evictions += 1;
            tracing::warn!(%client, name = ?gone.name, resources, %why, "a client with locks was evicted");
        } else {
            tracing::info!(%client, name = ?gone.name, %why, "a client without locks was evicted");
        }
    }

    fn look_at_clocks(&mut self, now: Instant) {
        let connections = &self.connections;
        for action in self.locks.overdue.look(now, |client| connections.client(client)) {
            match action {
                Action::Probe { client, resource } => {
                    self.connections.probed(client, now);
                    let message = Message::GlimpseAsk { glimpse: PROBE, resource };
                    self.connections.send_to(client, Channel::Callback, &message);
                }
                Action::Evict { client, what } => {
                    self.connections.doom(client, Parting::Overdue { what });
                }
            }
        }
    }

    fn trim(&mut self, now: Instant) {
        let forced: Vec<ResourceId> = self.trimming.slice(&mut self.data, &self.locks);
        for resource in forced {
            tracing::debug!(%resource, "asking all clients to flush a stripe");
            self.locks.force_flush(resource, &mut self.connections, now);
        }
    }

    fn finish(mut self) -> Result<(), ShardError> {
        let now = Instant::now();
        let result = self.data.shut_down(&mut self.outcomes);
        self.settle(now);
        self.connections.flush(&mut *self.port);
        self.port.flush();
        result.map_err(ShardError::Device)
    }
}
