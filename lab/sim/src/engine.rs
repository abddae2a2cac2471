//! What all nodes of a world share: time, links, luck, history, and the trace.

use crate::checkers::{Invariants, Observer};
use crate::clock::Clock;
use crate::config::Config;
use crate::history::{Fault, FaultKind, History, Loss, Moment, OpId, Operation, Session, StripeUse};
use crate::net::{Bulk, Frame, Net, Payload, Travel};
use crate::random::Random;
use crate::workload::{Thread, Work};
use ccpfs_shard::TaskId;
use ccpfs_types::{ClientId, Layout};
use ccpfs_wire::{Message, decode_batch, encode_into};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Everything that can happen in a world.
#[derive(Debug)]
pub(crate) enum Event {
    /// The first byte of a frame is at the receiver's network card.
    Arrive { frame: Frame, last_ns: u64 },
    /// A frame is with its receiver.
    Deliver(Frame),
    /// The shard has time for a frame.
    Serve { frame: Frame, life: u32 },
    /// One end of a connection notices that it is lost.
    Broken { connection: u32, up: bool },
    /// Something in a client.
    Client { node: u32, life: u32, what: ClientEvent },
    /// Something in a shard.
    Shard { target: u32, life: u32, what: ShardEvent },
    /// A fault of the plan.
    Fault(u32),
    /// A client process is started again.
    ClientBack { node: u32 },
    /// A server process is started again.
    ServerBack { server: u32 },
    /// Devices fail no longer.
    DeviceHeals,
}

#[derive(Debug)]
pub(crate) enum ClientEvent {
    /// A thread asks for its next call.
    Next { thread: u32 },
    /// A thread that has been told something goes on.
    Resume { thread: u32 },
    /// A thread has finished what took time.
    Timer { thread: u32 },
    /// A thread's next call begins.
    Call { thread: u32, work: Work },
    /// The flush thread of a session looks at its queues.
    Flush { target: u32, serial: u64 },
    /// Messages leave.
    Send { target: u32, serial: u64, messages: Vec<(ccpfs_wire::Channel, Message)> },
    /// The background thread takes a frame.
    Handle(Frame),
    /// Connecting is tried again.
    Connect { target: u32 },
    /// Time for ages and silent servers.
    Tick,
}

#[derive(Debug)]
pub(crate) enum ShardEvent {
    /// The shard wants to look at its clocks.
    Clock,
    /// The device has done a task.
    Done(TaskId),
    /// The device can begin another task.
    Free,
}

/// Who does something, for the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    Client(u32),
    Shard(u32),
    World,
}

/// A call that has returned, and how.
pub(crate) struct Returned {
    pub(crate) of: Thread,
    /// The life of the client's process.
    pub(crate) life: u32,
    pub(crate) work: Work,
    pub(crate) result: Result<u64, i32>,
}

/// How often what is rare was met: shows what worlds are full of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Locks asked for without waiting.
    pub tried: u64,
    /// Of those, refused.
    pub refused: u64,
    /// Locks given up because one before them was refused.
    pub given_up: u64,
    /// Locks asked for as one of several on a stripe.
    pub parts: u64,
    /// Locks asked for ahead, while one before them is waited for.
    pub ahead: u64,
    /// Locks narrowed.
    pub narrowed: u64,
}

impl Seen {
    /// Adds what was met in another world.
    pub const fn add(&mut self, other: Seen) {
        self.tried += other.tried;
        self.refused += other.refused;
        self.given_up += other.given_up;
        self.parts += other.parts;
        self.ahead += other.ahead;
        self.narrowed += other.narrowed;
    }
}

/// What all nodes share.
pub(crate) struct Engine {
    pub(crate) config: Config,
    pub(crate) clock: Clock<Event>,
    pub(crate) net: Net,
    pub(crate) random: Random,
    /// Kept if contents are.
    pub(crate) history: Option<History>,
    trace: Option<String>,
    pub(crate) digest: u64,
    step: u64,
    pub(crate) layouts: Vec<Layout>,
    /// Faults may happen.
    pub(crate) stormy: bool,
    /// Everything is flushed, and all clients leave: nothing goes with their sessions.
    pub(crate) ending: bool,
    /// Processes started so far, over all client nodes.
    pub(crate) processes: u32,
    /// Something that must never happen has happened.
    pub(crate) complaint: Option<String>,
    /// Of a thousand device tasks, so many fail.
    pub(crate) device_errors_per_mille: u64,
    /// Calls that have returned since the applications were told.
    pub(crate) returned: Vec<Returned>,
    /// Calls that have got all their locks since the applications were told: node and thread. Only without contents.
    pub(crate) locked: Vec<(u32, u32)>,
    /// Checks each step, if contents are kept.
    pub(crate) observer: Option<Box<Invariants>>,
    /// Calls of the world's own that have not begun.
    pub(crate) calls_due: u32,
    /// What was met.
    pub(crate) seen: Seen,
    /// The session in history of each client number.
    sessions: BTreeMap<ClientId, u32>,
}

impl Engine {
    pub(crate) fn new(config: Config, seed: u64, trace: bool) -> Engine {
        let random = Random::new(seed);
        let clients = u32::try_from(config.sizes.clients).expect("clients are few");
        let servers = u32::try_from(config.sizes.servers).expect("servers are few");
        let shards = u32::try_from(config.sizes.shards).expect("shards are few");
        let net = Net::new(config.net, clients, servers, shards, random.split("net"));
        let layouts = config
            .files
            .iter()
            .map(|file| Layout::new(file.stripes, file.stripe_bytes).expect("a layout within the limits"))
            .collect();
        let history = (config.sizes.contents > 0).then(History::default);
        let observer = (config.sizes.contents > 0).then(Box::default);
        Engine {
            config,
            clock: Clock::new(),
            net,
            random: random.split("shells"),
            history,
            trace: trace.then(String::new),
            digest: seed,
            step: 0,
            layouts,
            stormy: true,
            ending: false,
            processes: 0,
            complaint: None,
            device_errors_per_mille: 0,
            returned: Vec::new(),
            locked: Vec::new(),
            seen: Seen::default(),
            observer,
            calls_due: 0,
            sessions: BTreeMap::new(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    pub(crate) fn is_tagged(&self) -> bool {
        self.config.sizes.contents > 0
    }

    /// This very moment; no two are the same.
    pub(crate) fn moment(&mut self) -> Moment {
        self.step += 1;
        Moment { at_ns: self.clock.now_ns(), step: self.step }
    }

    /// Adds a line to the trace, if there is one.
    pub(crate) fn note(&mut self, who: Who, text: impl FnOnce() -> String) {
        let now = self.clock.now_ns();
        if let Some(trace) = self.trace.as_mut() {
            let who = match who {
                Who::Client(node) => format!("c{node}"),
                Who::Shard(target) => format!("s{target}"),
                Who::World => String::from("--"),
            };
            let _ = writeln!(trace, "{:>14.3} us  {who:<4} {}", now as f64 / 1000.0, text());
        }
    }

    pub(crate) fn take_trace(&mut self) -> String {
        self.trace.take().unwrap_or_default()
    }

    /// Takes an event into the digest of the run.
    pub(crate) fn digested(&mut self, number: u64) {
        self.digest =
            (self.digest ^ number ^ self.clock.now_ns()).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(17);
    }

    /// A number of nanoseconds below a bound, 0 without one and when the storm is over.
    pub(crate) fn jitter(&mut self, bound_ns: u64) -> u64 {
        if bound_ns == 0 { 0 } else { self.random.below(bound_ns) }
    }

    pub(crate) fn client_event(&mut self, at_ns: u64, node: u32, life: u32, what: ClientEvent) {
        self.clock.at(at_ns, Event::Client { node, life, what });
    }

    pub(crate) fn shard_event(&mut self, at_ns: u64, target: u32, life: u32, what: ShardEvent) {
        self.clock.at(at_ns, Event::Shard { target, life, what });
    }

    /// Sends a message over a connection.
    pub(crate) fn send(
        &mut self,
        connection: u32,
        up: bool,
        message: Message,
        bulk: Option<Box<Bulk>>,
        live: bool,
    ) {
        let message = if self.config.sizes.codec > 0 { self.recoded(message) } else { message };
        let link = self.net.connection(connection);
        let (client, target, channel) = (link.client, link.target, link.channel);
        let who = if up { Who::Client(client) } else { Who::Shard(target) };
        self.note(who, || {
            let other = if up { format!("s{target}") } else { format!("c{client}") };
            let bytes = bulk.as_ref().map(|bulk| bulk.to_text()).unwrap_or_default();
            format!("-> {other} {channel:?}: {}{bytes}", describe(&message))
        });
        let frame = Frame { connection, up, payload: Payload::Message(message), bulk, live };
        self.carry(frame);
    }

    /// Closes one direction of a connection, behind what was sent before.
    pub(crate) fn send_close(&mut self, connection: u32, up: bool) {
        self.carry(Frame { connection, up, payload: Payload::Close, bulk: None, live: false });
    }

    fn carry(&mut self, frame: Frame) {
        let bytes = frame.bulk.as_ref().map_or(0, |bulk| bulk.bytes);
        match self.net.send(self.clock.now_ns(), frame.connection, frame.up, bytes) {
            Travel::Delivered { at_ns } => self.clock.at(at_ns, Event::Deliver(frame)),
            Travel::Arriving { at_ns, last_ns } => self.clock.at(at_ns, Event::Arrive { frame, last_ns }),
        }
    }

    /// The message as it comes out of its encoding.
    fn recoded(&mut self, message: Message) -> Message {
        let mut bytes = Vec::new();
        encode_into(&message, &mut bytes);
        let mut decoded = decode_batch(&bytes);
        match (decoded.next(), decoded.next()) {
            (Some(Ok(back)), None) if back == message => back,
            other => {
                self.complain(format!("{message:?} comes out of its encoding as {other:?}"));
                message
            }
        }
    }

    /// Notes something that must never happen.
    pub(crate) fn complain(&mut self, what: String) {
        self.note(Who::World, || format!("!! {what}"));
        self.complaint.get_or_insert(what);
    }

    /// Tells the observer, if there is one.
    pub(crate) fn tell(&mut self, what: impl FnOnce(&mut dyn Observer, Moment)) {
        if self.observer.is_some() {
            let at = self.moment();
            if let Some(observer) = self.observer.as_mut() {
                what(observer.as_mut(), at);
            }
        }
    }

    // ------------------------------------------------------------------ history

    pub(crate) fn invoked(&mut self, node: u32, call: crate::history::Call) -> Option<OpId> {
        let invoked = self.moment();
        let operations = &mut self.history.as_mut()?.operations;
        let id = OpId(u32::try_from(operations.len()).expect("fewer than 2^32 calls"));
        operations.push(Operation {
            id,
            node,
            call,
            invoked,
            returned: None,
            outcome: None,
            offset: None,
            stripes: Vec::new(),
        });
        Some(id)
    }

    pub(crate) fn operation(&mut self, id: Option<OpId>) -> Option<&mut Operation> {
        let index = usize::try_from(id?.0).expect("an index");
        self.history.as_mut()?.operations.get_mut(index)
    }

    /// The call took effect on a stripe, now.
    pub(crate) fn took_effect(&mut self, id: Option<OpId>, mut used: StripeUse) {
        used.order = self.moment().step;
        if let Some(operation) = self.operation(id) {
            let same = |known: &&mut StripeUse| (known.stripe, known.extent) == (used.stripe, used.extent);
            match operation.stripes.iter_mut().find(same) {
                Some(known) => *known = used,
                None => operation.stripes.push(used),
            }
        }
    }

    pub(crate) fn fault(&mut self, kind: FaultKind) {
        let at = self.moment();
        self.note(Who::World, || format!("{kind:?}"));
        if let Some(history) = self.history.as_mut() {
            history.faults.push(Fault { at, kind });
        }
    }

    pub(crate) fn session_began(&mut self, node: u32, server: u32, id: ClientId) -> u32 {
        let Some(history) = self.history.as_mut() else { return 0 };
        history.sessions.push(Session { node, server, ended: None });
        let number = u32::try_from(history.sessions.len() - 1).expect("fewer than 2^32 sessions");
        self.sessions.insert(id, number);
        number
    }

    /// A server has fenced a client, or died.
    pub(crate) fn client_session_ended(&mut self, id: ClientId) {
        if let Some(session) = self.sessions.get(&id).copied() {
            self.session_ended(session);
        }
    }

    /// The process behind a client number.
    pub(crate) fn process_of(&self, id: ClientId, otherwise: u32) -> u32 {
        let session = self.sessions.get(&id).copied();
        let known = session.zip(self.history.as_ref());
        known.map_or(otherwise, |(session, history)| history.sessions[session as usize].node)
    }

    pub(crate) fn session_ended(&mut self, session: u32) {
        let at = self.moment();
        if let Some(history) = self.history.as_mut() {
            history.sessions[session as usize].ended.get_or_insert(at);
        }
    }

    pub(crate) fn lost(&mut self, loss: impl FnOnce(Moment) -> Loss) {
        let at = self.moment();
        if let Some(history) = self.history.as_mut() {
            history.losses.push(loss(at));
        }
    }
}

/// A message in one line.
pub(crate) fn describe(message: &Message) -> String {
    format!("{message:?}").replace("Extent(", "(")
}
