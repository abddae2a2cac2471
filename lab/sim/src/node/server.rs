//! One shard process: connections in front of the machine, the device behind it.

use super::device::Task;
use super::meter::Meter;
use super::observe::Watched;
use super::session::size;
use crate::disk::Disk;
use crate::engine::{Engine, ShardEvent, Who};
use crate::history::FaultKind;
use crate::net::{Bulk, Frame, Payload};
use ccpfs_shard::{BulkRef, Effect, Input, Parting, Settings, Shard};
use ccpfs_types::ClientId;
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, Status};
use std::collections::{BTreeMap, VecDeque};

/// How long the shard is busy with other things between two slices of trimming.
const SLICE_NS: u64 = 1_000;

/// The connections of one client.
#[derive(Debug)]
struct Peer {
    node: u32,
    connections: [Option<u32>; 3],
}

/// One shard of a server.
pub(crate) struct ShardNode {
    pub(crate) target: u32,
    pub(crate) life: u32,
    pub(crate) epoch: u64,
    pub(crate) frozen_until_ns: u64,
    /// None while the process is dead.
    pub(crate) machine: Option<Shard>,
    pub(crate) disk: Disk,
    peers: BTreeMap<ClientId, Peer>,
    pub(super) tasks: BTreeMap<u64, Task>,
    /// The data of flushes that the machine still needs.
    pub(super) bulks: BTreeMap<u64, Box<Bulk>>,
    next_bulk: u64,
    /// When the shard has time for the next message.
    free_ns: u64,
    clock_ns: Option<u64>,
    effects: Vec<Effect>,
    pub(crate) meter: Meter,
    pub(super) watched: Watched,
}

const fn slot(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Callback => 1,
        Channel::Bulk => 2,
    }
}

impl ShardNode {
    pub(crate) fn new(engine: &Engine, target: u32) -> ShardNode {
        let random = engine.random.split(&format!("disk {target}"));
        let mut node = ShardNode {
            target,
            life: 0,
            epoch: 0,
            frozen_until_ns: 0,
            machine: None,
            disk: Disk::new(engine.config.disk, engine.is_tagged(), random),
            peers: BTreeMap::new(),
            tasks: BTreeMap::new(),
            bulks: BTreeMap::new(),
            next_bulk: 0,
            free_ns: 0,
            clock_ns: None,
            effects: Vec::new(),
            meter: Meter::default(),
            watched: Watched::default(),
        };
        node.start(engine);
        node
    }

    pub(crate) fn who(&self) -> Who {
        Who::Shard(self.target)
    }

    /// The process begins another life.
    pub(crate) fn start(&mut self, engine: &Engine) {
        self.epoch += 1;
        let config = engine.config.server;
        self.machine = Some(Shard::new(Settings {
            policy: engine.config.policy,
            epoch: self.epoch,
            revoke_timeout_ns: config.revoke_timeout_ns,
            entries_max: size(config.entries_max),
            operations_max: size(config.operations_max),
        }));
    }

    /// The process dies: its clients find their connections gone, sooner or later.
    pub(crate) fn crash(&mut self, engine: &mut Engine) {
        self.life += 1;
        self.machine = None;
        self.tasks.clear();
        self.bulks.clear();
        self.clock_ns = None;
        self.free_ns = 0;
        if engine.observer.is_some() {
            self.observe_death(engine);
        }
        for (client, peer) in std::mem::take(&mut self.peers) {
            engine.client_session_ended(client);
            for connection in peer.connections.into_iter().flatten() {
                engine.net.shut(connection, true);
                engine.send_close(connection, false);
            }
        }
    }

    /// A frame has arrived: it waits until the shard has time for it.
    pub(crate) fn deliver(&mut self, engine: &mut Engine, frame: Frame) {
        let config = engine.config.server;
        let cost = match engine.net.connection(frame.connection).channel {
            Channel::Control | Channel::Callback => config.rpc_ns,
            Channel::Bulk => config.write_ns,
        };
        if cost == 0 {
            return self.serve(engine, frame);
        }
        self.meter.busy_ns += cost;
        self.free_ns = self.free_ns.max(engine.now_ns()) + cost;
        let event = crate::engine::Event::Serve { frame, life: self.life };
        engine.clock.at(self.free_ns, event);
    }

    /// The shard takes a frame.
    pub(crate) fn serve(&mut self, engine: &mut Engine, frame: Frame) {
        let connection = frame.connection;
        if self.machine.is_none() {
            if engine.net.is_open(connection, true) {
                // Nobody listens, or the other end is gone.
                engine.net.shut(connection, true);
                engine.send_close(connection, false);
            }
            return;
        }
        if !engine.net.is_open(connection, true) {
            return;
        }
        let link = engine.net.connection(connection);
        let (client, channel, node) = (link.id, link.channel, link.client);
        match frame.payload {
            Payload::Close => self.broken(engine, connection),
            Payload::Message(Message::Hello { .. }) => self.hello(engine, connection, client, channel, node),
            Payload::Message(message) => {
                self.meter.received(engine.now_ns(), &message);
                let bulk = frame.bulk.map(|bulk| self.keep(bulk));
                self.step(engine, Input::Message { from: client, channel, message, bulk });
            }
        }
    }

    fn keep(&mut self, bulk: Box<Bulk>) -> BulkRef {
        self.next_bulk += 1;
        let reference = BulkRef { id: self.next_bulk, offset: 0, bytes: bulk.bytes };
        self.bulks.insert(self.next_bulk, bulk);
        reference
    }

    fn hello(&mut self, engine: &mut Engine, connection: u32, client: ClientId, channel: Channel, node: u32) {
        let machine = self.machine.as_ref().expect("the caller looked");
        if let Some(refusal) = machine.refusal(client, channel) {
            engine.send(connection, false, Message::Refused { reason: refusal.to_string() }, None, false);
            engine.net.shut(connection, true);
            engine.send_close(connection, false);
            return;
        }
        let peer = self.peers.entry(client).or_insert(Peer { node, connections: [None; 3] });
        peer.connections[slot(channel)] = Some(connection);
        let welcome = Message::Welcome {
            version: PROTOCOL_VERSION,
            policy: engine.config.policy,
            target: self.target,
            epoch: self.epoch,
        };
        engine.send(connection, false, welcome, None, false);
        self.step(engine, Input::Joined { client, channel });
    }

    /// A connection is gone, and its client with it.
    pub(crate) fn broken(&mut self, engine: &mut Engine, connection: u32) {
        let client = engine.net.connection(connection).id;
        engine.net.shut(connection, true);
        let known = self.peers.get(&client).is_some_and(|peer| peer.connections.contains(&Some(connection)));
        if known && self.machine.is_some() {
            self.part(engine, client, false);
            self.settle(engine);
        }
    }

    /// Closes a client's connections, then tells the machine (I7: in this order).
    fn part(&mut self, engine: &mut Engine, client: ClientId, goodbye: bool) {
        let Some(peer) = self.peers.remove(&client) else { return };
        for connection in peer.connections.into_iter().flatten() {
            engine.net.shut(connection, true);
            engine.send_close(connection, false);
        }
        if !goodbye {
            let (node, server) = (engine.process_of(client, peer.node), self.target);
            engine.fault(FaultKind::ClientEvicted { node, server });
        }
        if !engine.ending {
            engine.client_session_ended(client);
        }
        let target = self.target;
        engine.tell(|observer, at| observer.evicted(at, target, client));
        self.put(engine, Input::Parted { client, goodbye });
    }

    /// Puts an input through the machine and carries out what follows.
    pub(super) fn step(&mut self, engine: &mut Engine, input: Input) {
        if engine.observer.is_some() {
            self.observe_input(engine, &input);
        }
        self.put(engine, input);
        self.settle(engine);
    }

    fn put(&mut self, engine: &Engine, input: Input) {
        if let Some(machine) = self.machine.as_mut() {
            machine.step(input, engine.clock.now_ns(), &mut self.effects);
        }
    }

    fn settle(&mut self, engine: &mut Engine) {
        let mut todo: VecDeque<Effect> = self.effects.drain(..).collect();
        while let Some(effect) = todo.pop_front() {
            if engine.observer.is_some() {
                self.observe_effect(engine, &effect);
            }
            self.carry_out(engine, effect);
            todo.extend(self.effects.drain(..));
        }
        if engine.observer.is_some() {
            self.observe_rest(engine);
        }
        let due = self.machine.as_ref().and_then(Shard::next_look_ns);
        if let Some(due) = due {
            let due = due.max(engine.now_ns() + SLICE_NS);
            if self.clock_ns.is_none_or(|at| due < at) {
                self.clock_ns = Some(due);
                engine.shard_event(due, self.target, self.life, ShardEvent::Clock);
            }
        }
    }

    fn carry_out(&mut self, engine: &mut Engine, effect: Effect) {
        match effect {
            Effect::Send { to, channel, message } => self.send(engine, to, channel, message, None),
            Effect::SendData { to, channel, message, task } => {
                let bulk = self.take_read(task);
                self.send(engine, to, channel, message, bulk);
            }
            Effect::Status { to, request } => {
                let reply = Message::StatusReply { request, names: Vec::new(), values: Vec::new() };
                self.send(engine, to, Channel::Control, reply, None);
            }
            Effect::Start { task, work, urgent } => self.start_task(engine, task, work, urgent),
            Effect::Free { bulk } => {
                if self.bulks.remove(&bulk.id).is_none() {
                    engine.complain(format!("data {} are given back twice", bulk.id));
                }
            }
            Effect::Part { client, why } => {
                engine.note(self.who(), || format!("{client} must go: {why}"));
                if let Parting::Violation { what } = &why {
                    engine.complain(format!("a client broke the protocol: {what}"));
                }
                let goodbye = matches!(why, Parting::Goodbye);
                self.part(engine, client, goodbye);
            }
            Effect::Note(note) => engine.note(self.who(), || format!("{note:?}")),
        }
    }

    fn send(
        &mut self,
        engine: &mut Engine,
        to: ClientId,
        channel: Channel,
        message: Message,
        bulk: Option<Box<Bulk>>,
    ) {
        let Some(peer) = self.peers.get(&to) else { return };
        let Some(connection) = peer.connections[slot(channel)] else { return };
        if channel == Channel::Callback && engine.config.server.send_ns > 0 {
            self.meter.busy_ns += engine.config.server.send_ns;
            self.free_ns = self.free_ns.max(engine.now_ns()) + engine.config.server.send_ns;
        }
        self.meter.sent(engine.now_ns(), &message);
        if let Message::WriteReply { status: Status::Errno(errno), .. } = &message {
            engine.note(self.who(), || format!("a flush of {to} fails: errno {errno}"));
        }
        engine.send(connection, false, message, bulk, false);
    }

    /// What is left of clients here, in words; `None` if nothing is.
    pub(crate) fn leftovers(&self) -> Option<String> {
        let machine = self.machine.as_ref()?;
        let counts = [
            ("clients", machine.client_count()),
            ("locks", machine.lock_count()),
            ("waiting requests", machine.waiting_count()),
            ("extent-cache entries", machine.entry_count()),
            ("operations", machine.operation_count()),
            ("glimpses", machine.glimpse_count()),
            ("connections", self.peers.len()),
            ("data", self.bulks.len()),
            ("tasks", self.tasks.len()),
        ];
        let left: Vec<String> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        (!left.is_empty()).then(|| left.join(", "))
    }

    pub(crate) fn event(&mut self, engine: &mut Engine, what: ShardEvent) {
        match what {
            ShardEvent::Clock => {
                // An earlier one may have taken its place.
                if self.clock_ns.is_some_and(|at| at <= engine.now_ns()) {
                    self.clock_ns = None;
                    self.step(engine, Input::Clock);
                }
            }
            ShardEvent::Done(task) => self.task_done(engine, task),
            ShardEvent::Free => self.device_free(engine),
        }
    }
}
