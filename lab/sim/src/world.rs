//! A world: clients, servers, and the loop that lets things happen one after the other.

mod faults;
mod finals;

use crate::config::Config;
use crate::engine::{ClientEvent, Engine, Event, Returned, Seen};
use crate::history::{FileShape, History};
use crate::net::{Frame, Payload};
use crate::node::client::{Client, target_of};
use crate::node::server::ShardNode;
use crate::workload::plan::PlannedFault;
use crate::workload::{Next, Thread, Work, Workload};
use ccpfs_wire::Message;

/// How a thread of the applications stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It calls, or is about to.
    Busy,
    /// It waits for the others.
    AtBarrier,
    /// It calls nothing more.
    Done,
}

/// A whole cluster.
pub struct World<W> {
    pub(crate) engine: Engine,
    pub(crate) clients: Vec<Client>,
    pub(crate) shards: Vec<ShardNode>,
    /// The applications.
    pub workload: W,
    faults: Vec<PlannedFault>,
    standings: Vec<Standing>,
    busy: usize,
    at_barrier: usize,
    /// The workload is over: calls are made by whoever runs the world.
    over: bool,
    /// Events after which a run is given up.
    pub events_max: u64,
}

impl<W: Workload> World<W> {
    /// A cluster at time zero, with nothing in its files. `trace`: keep a line of text for everything that happens.
    #[must_use]
    pub fn new(config: &Config, seed: u64, workload: W, faults: &[PlannedFault], trace: bool) -> World<W> {
        let mut engine = Engine::new(config.clone(), seed, trace);
        let (count, threads) = (number(config.sizes.clients), number(config.sizes.threads));
        let targets = config.targets();
        let shards = (0..targets).map(|target| ShardNode::new(&engine, target)).collect();
        let clients = (0..count).map(|node| Client::new(&mut engine, node, 0, threads)).collect();
        if let Some(history) = engine.history.as_mut() {
            history.files = engine
                .layouts
                .iter()
                .zip(0..)
                .map(|(layout, file)| FileShape {
                    layout: *layout,
                    servers: (0..layout.stripe_count())
                        .map(|stripe| target_of(file, stripe, targets))
                        .collect(),
                })
                .collect();
        }
        for (at, fault) in faults.iter().enumerate() {
            engine.clock.at(fault.at_ns, Event::Fault(number(at as u64)));
        }
        let standings = vec![Standing::Busy; (count * threads) as usize];
        let mut world = World {
            engine,
            clients,
            shards,
            workload,
            faults: faults.to_vec(),
            busy: standings.len(),
            standings,
            at_barrier: 0,
            over: false,
            events_max: u64::MAX,
        };
        for client in 0..count {
            for thread in 0..threads {
                world.engine.client_event(0, client, 0, ClientEvent::Next { thread });
            }
        }
        world
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.engine.now_ns()
    }

    /// Events that have been put into the queue so far: a measure of work.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.engine.clock.sequence()
    }

    /// A number that is the same for the same run, and most likely for no other.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.engine.digest
    }

    /// Messages and bytes sent so far.
    #[must_use]
    pub fn traffic(&self) -> (u64, u64) {
        (self.engine.net.messages, self.engine.net.bytes)
    }

    /// Bytes given to all devices so far.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.disk.bytes_written).sum()
    }

    /// What the shards have counted; nothing of those that are down.
    pub fn counters(&self) -> impl Iterator<Item = ccpfs_shard::Counters> + '_ {
        self.shards.iter().filter_map(|shard| shard.machine.as_ref().map(ccpfs_shard::Shard::counters))
    }

    /// What was met of what is rare.
    #[must_use]
    pub const fn seen(&self) -> Seen {
        self.engine.seen
    }

    /// What has happened, if contents are kept.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.engine.history.as_ref()
    }

    /// The first broken invariant of a step, if there was one.
    #[must_use]
    pub fn violation(&self) -> Option<&crate::checkers::Violation> {
        self.engine.observer.as_ref()?.violation()
    }

    /// What must never happen and did, if anything.
    #[must_use]
    pub fn complaint(&self) -> Option<&str> {
        self.engine.complaint.as_deref()
    }

    /// The trace so far; nothing is kept after this.
    pub fn take_trace(&mut self) -> String {
        self.engine.take_trace()
    }

    /// Whether all applications have called everything and got their answers.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.busy == 0 && self.at_barrier == 0
    }

    /// Where calls stand that have not returned.
    #[must_use]
    pub fn standing(&self) -> String {
        let standing: Vec<String> = self.clients.iter().filter(|c| c.up).map(Client::standing).collect();
        standing.join("; ")
    }

    /// Lets things happen until all applications are done, or until a time. True if they are done.
    pub fn run(&mut self, until_ns: u64) -> bool {
        while !self.is_done() && self.engine.complaint.is_none() && self.engine.now_ns() < until_ns {
            if !self.one_event() {
                break;
            }
        }
        self.is_done()
    }

    /// Lets things happen until a condition holds, or until a time. True if it holds.
    pub(crate) fn run_until(&mut self, until_ns: u64, mut enough: impl FnMut(&World<W>) -> bool) -> bool {
        loop {
            if enough(self) {
                return true;
            }
            if self.engine.complaint.is_some() || self.engine.now_ns() >= until_ns || !self.one_event() {
                return false;
            }
        }
    }

    /// The applications are done; calls are made by whoever runs the world.
    pub(crate) fn take_over(&mut self) {
        self.over = true;
    }

    pub(crate) fn call(&mut self, node: u32, thread: u32, work: Work) {
        let life = self.clients[node as usize].life;
        self.engine.calls_due += 1;
        self.engine.client_event(self.engine.now_ns(), node, life, ClientEvent::Call { thread, work });
    }

    /// Another client node, with one thread.
    pub(crate) fn add_client(&mut self) -> u32 {
        let node = number(self.clients.len() as u64);
        let client = Client::new(&mut self.engine, node, 0, 1);
        self.clients.push(client);
        node
    }

    /// Whether every process runs.
    pub(crate) fn is_whole(&self) -> bool {
        let now = self.engine.now_ns();
        self.clients.iter().all(|client| client.up && client.frozen_until_ns <= now)
            && self.shards.iter().all(|shard| shard.machine.is_some() && shard.frozen_until_ns <= now)
    }

    /// Whether no call is in progress, nor about to begin.
    pub(crate) fn is_quiet(&self) -> bool {
        self.engine.calls_due == 0
            && self.clients.iter().all(|client| client.threads.iter().all(|thread| thread.op.is_none()))
    }

    /// Whether no client has anything that its server has not acknowledged.
    pub(crate) fn is_clean(&self) -> bool {
        let stripes = self.clients.iter().flat_map(|client| &client.files).flat_map(|file| &file.stripes);
        stripes.flatten().all(|stripe| stripe.machine.cache().unacknowledged_end() == 0)
    }

    /// All clients end their sessions in order.
    pub(crate) fn leave(&mut self) {
        self.engine.ending = true;
        for client in &mut self.clients {
            client.leave(&mut self.engine);
        }
    }

    /// Whether the servers have nothing of anybody.
    pub(crate) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.leftovers().is_none())
    }

    /// What servers keep of clients that are gone.
    pub(crate) fn leftovers(&self) -> String {
        let kept = |shard: &ShardNode| Some(format!("s{}: {}", shard.target, shard.leftovers()?));
        self.shards.iter().filter_map(kept).collect::<Vec<_>>().join("; ")
    }

    fn one_event(&mut self) -> bool {
        let Some(event) = self.engine.clock.next() else { return false };
        if self.engine.clock.sequence() > self.events_max {
            self.engine.complain(format!("{} events and no end", self.events_max));
        }
        self.happen(event);
        if !(self.engine.returned.is_empty() && self.engine.locked.is_empty()) {
            self.answer_applications();
        }
        true
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { frame, last_ns } => {
                let bytes = frame.bulk.as_ref().map_or(0, |bulk| bulk.bytes);
                let now = self.engine.now_ns();
                let at = self.engine.net.receive(now, frame.connection, frame.up, bytes, last_ns);
                self.engine.clock.at(at, Event::Deliver(frame));
            }
            Event::Deliver(frame) => self.deliver(frame),
            Event::Serve { frame, life } => {
                let target = self.engine.net.connection(frame.connection).target;
                let shard = &mut self.shards[target as usize];
                if shard.frozen_until_ns > self.engine.clock.now_ns() {
                    self.engine.clock.at(shard.frozen_until_ns, Event::Serve { frame, life });
                } else if shard.life == life {
                    shard.serve(&mut self.engine, frame);
                }
            }
            Event::Broken { connection, up } => self.broken(connection, up),
            Event::Client { node, life, what } => self.client_event(node, life, what),
            Event::Shard { target, life, what } => {
                let shard = &mut self.shards[target as usize];
                if shard.frozen_until_ns > self.engine.clock.now_ns() {
                    self.engine.clock.at(shard.frozen_until_ns, Event::Shard { target, life, what });
                } else if shard.life == life {
                    self.engine.digested(3);
                    shard.event(&mut self.engine, what);
                }
            }
            Event::Fault(at) => {
                if self.engine.stormy {
                    let PlannedFault { kind, .. } = self.faults[at as usize];
                    self.strike(kind);
                }
            }
            Event::ClientBack { node } => self.client_back(node),
            Event::ServerBack { server } => self.server_back(server),
            Event::DeviceHeals => self.engine.device_errors_per_mille = 0,
        }
    }

    fn client_event(&mut self, node: u32, life: u32, what: ClientEvent) {
        let client = &mut self.clients[node as usize];
        if client.life != life || !client.up {
            return;
        }
        if client.frozen_until_ns > self.engine.clock.now_ns() {
            self.engine.client_event(client.frozen_until_ns, node, life, what);
            return;
        }
        if let ClientEvent::Next { thread } = what {
            return self.ask_application(Thread { client: node, thread });
        }
        self.engine.digested(1);
        if self.over && matches!(what, ClientEvent::Call { .. }) {
            self.engine.calls_due -= 1;
        }
        client.event(&mut self.engine, what);
    }

    fn deliver(&mut self, mut frame: Frame) {
        let link = self.engine.net.connection(frame.connection);
        let (node, target) = (link.client, link.target);
        let now = self.engine.clock.now_ns();
        if frame.up {
            let shard = &self.shards[target as usize];
            if shard.frozen_until_ns > now {
                return self.engine.clock.at(shard.frozen_until_ns, Event::Deliver(frame));
            }
            if std::mem::take(&mut frame.live) {
                self.sample_again(&mut frame);
            }
            self.engine.digested(kind_of(&frame) << 8);
            self.shards[target as usize].deliver(&mut self.engine, frame);
        } else {
            let client = &mut self.clients[node as usize];
            if client.frozen_until_ns > now {
                return self.engine.clock.at(client.frozen_until_ns, Event::Deliver(frame));
            }
            self.engine.digested(kind_of(&frame) << 16);
            if client.up {
                client.deliver(&mut self.engine, frame);
            }
        }
    }

    /// A flush carries what the pages hold now, if they still are that flush's.
    fn sample_again(&mut self, frame: &mut Frame) {
        let link = self.engine.net.connection(frame.connection);
        let client = &self.clients[link.client as usize];
        let Payload::Message(Message::Write { pieces, request, .. }) = &frame.payload else { return };
        let slot = &client.sessions[link.target as usize];
        let session = slot.session.as_ref().filter(|session| session.id == link.id);
        if !client.up || session.is_none_or(|session| !session.jobs.contains_key(&request.0)) {
            return;
        }
        let Some((file, stripe)) = pieces.first().and_then(|piece| client.place(piece.resource)) else {
            return;
        };
        let bulk = client.sample(file, stripe, pieces.iter().map(|piece| piece.extent));
        frame.bulk = Some(Box::new(bulk));
    }

    fn broken(&mut self, connection: u32, up: bool) {
        let link = self.engine.net.connection(connection);
        let (node, target) = (link.client as usize, link.target as usize);
        let now = self.engine.clock.now_ns();
        let frozen =
            if up { self.shards[target].frozen_until_ns } else { self.clients[node].frozen_until_ns };
        if frozen > now {
            self.engine.clock.at(frozen, Event::Broken { connection, up });
        } else if up {
            self.shards[target].broken(&mut self.engine, connection);
        } else if self.clients[node].up {
            self.clients[node].broken(&mut self.engine, connection);
        }
    }

    // ------------------------------------------------------------------ applications

    fn index(&self, of: Thread) -> usize {
        (u64::from(of.client) * self.engine.config.sizes.threads + u64::from(of.thread)) as usize
    }

    fn ask_application(&mut self, of: Thread) {
        if self.over {
            return;
        }
        let now = self.engine.now_ns();
        let index = self.index(of);
        match self.workload.next(of, now) {
            Next::Call { after_ns, work } => {
                let life = self.clients[of.client as usize].life;
                let call = ClientEvent::Call { thread: of.thread, work };
                self.engine.client_event(now + after_ns, of.client, life, call);
            }
            Next::Barrier => {
                self.standings[index] = Standing::AtBarrier;
                self.busy -= 1;
                self.at_barrier += 1;
            }
            Next::Done => {
                self.standings[index] = Standing::Done;
                self.busy -= 1;
            }
        }
        if self.busy == 0 && self.at_barrier > 0 {
            self.open_barrier();
        }
    }

    fn open_barrier(&mut self) {
        let now = self.engine.now_ns();
        self.workload.barrier(now);
        self.busy = self.at_barrier;
        self.at_barrier = 0;
        for index in 0..self.standings.len() {
            if self.standings[index] == Standing::AtBarrier {
                self.standings[index] = Standing::Busy;
                let threads = self.engine.config.sizes.threads;
                let (client, thread) = (number(index as u64 / threads), number(index as u64 % threads));
                let life = self.clients[client as usize].life;
                self.engine.client_event(now, client, life, ClientEvent::Next { thread });
            }
        }
    }

    fn answer_applications(&mut self) {
        let now = self.engine.now_ns();
        for (client, thread) in std::mem::take(&mut self.engine.locked) {
            self.workload.locked(Thread { client, thread }, now);
        }
        for Returned { of, life, work, result } in std::mem::take(&mut self.engine.returned) {
            if self.over {
                continue;
            }
            self.workload.returned(of, &work, result, now);
            if self.clients[of.client as usize].life == life {
                self.ask_application(of);
            }
        }
    }
}

fn kind_of(frame: &Frame) -> u64 {
    match &frame.payload {
        Payload::Message(message) => u64::from(message.kind()),
        Payload::Close => 99,
    }
}

/// A small number as nodes have them.
fn number(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}

fn index(number: u64) -> usize {
    usize::try_from(number).expect("a small number")
}
