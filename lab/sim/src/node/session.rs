//! Sessions of a client: connecting, losing, and what comes over their connections.

use super::client::{Client, Note};
use super::stripe::to_u32;
use crate::engine::{ClientEvent, Engine};
use crate::history::FaultKind;
use crate::net::{Frame, Payload};
use ccpfs_cached_stripe::Input;
use ccpfs_types::{ClientId, Policy, RequestId, ResourceId};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, Status};
use ccpfs_writeback::JobId;
use std::collections::{BTreeMap, VecDeque};

/// EHOSTUNREACH of Linux.
const UNREACHABLE: i32 = 113;
/// Pause between two attempts to connect.
const RETRY_NS: u64 = 5_000_000;

/// A connection that is not open yet.
const UNOPENED: u32 = u32::MAX;

/// The connections between a client process and one shard.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) serial: u64,
    /// Its number in history.
    pub(crate) number: u32,
    pub(crate) id: ClientId,
    pub(crate) epoch: u64,
    pub(crate) policy: Policy,
    connections: [u32; 3],
    welcomes: u32,
    opened_ns: u64,
    /// Flushes that wait for the sender, and those without an answer.
    pub(crate) urgent: VecDeque<(usize, usize)>,
    pub(crate) normal: VecDeque<(usize, usize)>,
    pub(crate) jobs: BTreeMap<u64, (usize, usize)>,
    pub(crate) pump_due: bool,
    /// Requests on the control connection without an answer.
    pub(crate) requests: Vec<u64>,
    heard_ns: u64,
}

impl Session {
    pub(crate) fn connection(&self, channel: Channel) -> u32 {
        match channel {
            Channel::Control => self.connections[0],
            Channel::Callback => self.connections[1],
            Channel::Bulk => self.connections[2],
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.welcomes == 3
    }

    fn opened(&self) -> impl Iterator<Item = u32> + use<> {
        self.connections.into_iter().filter(|connection| *connection != UNOPENED)
    }
}

/// The place of a session with one shard.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    pub(crate) session: Option<Session>,
    /// Threads that wait for one.
    waiting: Vec<u32>,
    /// When connecting began.
    since_ns: Option<u64>,
}

impl Slot {
    /// The session with this serial number, if it stands.
    pub(crate) fn live(&mut self, serial: u64) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.serial == serial && session.is_ready())
    }

    pub(crate) fn ready(&mut self) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| session.is_ready())
    }
}

impl Client {
    /// The serial number of the session with a shard. Without one the thread is told when there is one, or that there is none.
    pub(crate) fn session(&mut self, engine: &mut Engine, thread: u32, target: u32) -> Option<u64> {
        let slot = &mut self.sessions[target as usize];
        if let Some(session) = slot.ready() {
            return Some(session.serial);
        }
        slot.waiting.push(thread);
        if slot.since_ns.is_none() {
            slot.since_ns = Some(engine.now_ns());
            self.connect(engine, target);
        }
        None
    }

    /// Opens the connections of a session.
    pub(crate) fn connect(&mut self, engine: &mut Engine, target: u32) {
        if self.sessions[target as usize].since_ns.is_none()
            || self.sessions[target as usize].session.is_some()
        {
            return;
        }
        self.serial += 1;
        let id = ClientId(engine.random.next() | 1);
        self.sessions[target as usize].session = Some(Session {
            serial: self.serial,
            number: engine.session_began(self.process, target, id),
            id,
            epoch: 0,
            policy: Policy::SEQDLM,
            connections: [UNOPENED; 3],
            welcomes: 0,
            opened_ns: engine.now_ns(),
            urgent: VecDeque::new(),
            normal: VecDeque::new(),
            jobs: BTreeMap::new(),
            pump_due: false,
            requests: Vec::new(),
            heard_ns: engine.now_ns(),
        });
        self.open(engine, target, Channel::Control);
    }

    /// Opens one connection of a session.
    fn open(&mut self, engine: &mut Engine, target: u32, channel: Channel) {
        let Some(session) = self.sessions[target as usize].session.as_mut() else { return };
        let id = session.id;
        let slot = match channel {
            Channel::Control => 0,
            Channel::Callback => 1,
            Channel::Bulk => 2,
        };
        session.connections[slot] = engine.net.open(self.node, target, channel, id);
        let hello = Message::Hello { version: PROTOCOL_VERSION, client: id, channel, name: String::new() };
        engine.send(session.connections[slot], true, hello, None, false);
    }

    /// A connection is taken: the control connection first, which says whose session it is, then the others.
    fn welcomed(&mut self, engine: &mut Engine, target: u32, serial: u64, policy: Policy, epoch: u64) {
        let slot = &mut self.sessions[target as usize];
        let Some(session) = slot.session.as_mut().filter(|session| session.serial == serial) else { return };
        session.welcomes += 1;
        if session.welcomes == 1 {
            (session.policy, session.epoch) = (policy, epoch);
            self.open(engine, target, Channel::Callback);
            return self.open(engine, target, Channel::Bulk);
        }
        if session.is_ready() {
            slot.since_ns = None;
            for thread in std::mem::take(&mut slot.waiting) {
                self.tell(thread, Note::Session { target, errno: None });
            }
        }
    }

    /// A session has ended: all its locks are gone, and what was dirty under them.
    pub(crate) fn session_lost(&mut self, engine: &mut Engine, target: u32, serial: u64) {
        let slot = &mut self.sessions[target as usize];
        let Some(session) = slot.session.take_if(|session| session.serial == serial) else { return };
        engine.note(crate::engine::Who::Client(self.node), || {
            format!("session {} with s{target} lost", session.id)
        });
        // The server will call it an eviction, unless it was one.
        engine.fault(FaultKind::Disturbed { node: self.process });
        for connection in session.opened() {
            engine.net.shut(connection, false);
            engine.send_close(connection, true);
        }
        self.forget_session(engine, target, &session);
        if !session.is_ready() {
            self.try_again(engine, target);
        }
    }

    /// Makes the stripes and threads forget a session that has ended.
    pub(crate) fn forget_session(&mut self, engine: &mut Engine, target: u32, session: &Session) {
        for request in &session.requests {
            self.tell_owner(*request, Note::NoReply { request: RequestId(*request) });
        }
        for file in 0..self.files.len() {
            for stripe in 0..self.files[file].stripes.len() {
                let Some(place) = self.files[file].stripes[stripe].as_mut() else { continue };
                if place.target == target && place.session.is_some_and(|(serial, _)| serial == session.serial)
                {
                    place.session = None;
                    place.queued = false;
                    place.queued_urgent = false;
                    self.step(engine, file, stripe, Input::Lost);
                }
            }
        }
    }

    /// Connecting has failed: again after a pause, unless it has been tried for too long.
    fn try_again(&mut self, engine: &mut Engine, target: u32) {
        let timeout = engine.config.client.connect_timeout_ns;
        let slot = &mut self.sessions[target as usize];
        let Some(since) = slot.since_ns else { return };
        if engine.now_ns() >= since + timeout {
            slot.since_ns = None;
            for thread in std::mem::take(&mut slot.waiting) {
                self.tell(thread, Note::Session { target, errno: Some(UNREACHABLE) });
            }
        } else {
            let at_ns = engine.now_ns() + RETRY_NS.min(timeout / 4 + 1);
            engine.client_event(at_ns, self.node, self.life, ClientEvent::Connect { target });
        }
    }

    /// Gives up servers that owe answers and are silent, and connections that do not come about.
    pub(crate) fn watch(&mut self, engine: &mut Engine) {
        let (now, settings) = (engine.now_ns(), engine.config.client);
        for target in 0..to_u32(self.sessions.len()) {
            let Some(session) = self.sessions[target as usize].session.as_mut() else { continue };
            if !session.is_ready() {
                if now >= session.opened_ns + settings.connect_timeout_ns {
                    let serial = session.serial;
                    self.session_lost(engine, target, serial);
                }
                continue;
            }
            let owes = !session.jobs.is_empty() || !session.requests.is_empty() || self.asks(target);
            let session = self.sessions[target as usize].session.as_mut().expect("found above");
            if !owes {
                session.heard_ns = now;
                continue;
            }
            let (silence, serial) = (now - session.heard_ns, session.serial);
            if silence >= settings.server_timeout_ns {
                self.session_lost(engine, target, serial);
            } else if silence >= settings.server_timeout_ns / 4 {
                let ping = Message::Ping { request: RequestId(0) };
                engine.send(session.connection(Channel::Control), true, ping, None, false);
            }
        }
    }

    /// Whether a thread waits for a lock of this shard.
    fn asks(&self, target: u32) -> bool {
        self.files.iter().flat_map(|file| file.stripes.iter().flatten()).any(|stripe| {
            stripe.target == target && stripe.machine.locks().is_some_and(|locks| !locks.is_idle())
        })
    }

    /// Lets a stripe enter the session with its shard, if it is not in it.
    pub(crate) fn bind(&mut self, engine: &mut Engine, file: usize, stripe: usize, serial: u64) {
        let target = self.target(file, stripe);
        let Some(session) = self.sessions[target as usize].live(serial) else { return };
        let (number, epoch, policy) = (session.number, session.epoch, session.policy);
        let place = self.stripe(file, stripe);
        if place.session.is_some_and(|(bound, _)| bound == serial) {
            return;
        }
        place.session = Some((serial, number));
        let config = engine.config.client;
        let locks = ccpfs_dlm::client::Settings {
            policy,
            locks_max: size(config.locks_max),
            age_ticks_max: config.age_ticks_max,
        };
        let settings = ccpfs_cached_stripe::Settings { locks, put_off_max: size(config.put_off_max), epoch };
        self.step(engine, file, stripe, Input::Begin { settings });
    }

    /// One end of a connection is lost.
    pub(crate) fn broken(&mut self, engine: &mut Engine, connection: u32) {
        let link = engine.net.connection(connection);
        let (target, id) = (link.target, link.id);
        let session = self.sessions[target as usize].session.as_ref().filter(|session| session.id == id);
        if let Some(serial) = session.map(|session| session.serial) {
            self.session_lost(engine, target, serial);
        }
        self.wake(engine);
    }

    /// Takes a frame.
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever does not belong to a client is reported")]
    pub(crate) fn handle(&mut self, engine: &mut Engine, frame: Frame) {
        if !engine.net.is_open(frame.connection, false) {
            return;
        }
        let link = engine.net.connection(frame.connection);
        let (target, id) = (link.target, link.id);
        let now = engine.now_ns();
        let session = self.sessions[target as usize].session.as_mut().filter(|session| session.id == id);
        let Some(session) = session else { return };
        session.heard_ns = now;
        let serial = session.serial;
        let Payload::Message(message) = frame.payload else {
            return self.session_lost(engine, target, serial);
        };
        match message {
            Message::Welcome { policy, epoch, .. } => self.welcomed(engine, target, serial, policy, epoch),
            Message::Refused { .. } => self.session_lost(engine, target, serial),
            Message::Grant { resource, .. }
            | Message::Denied { resource, .. }
            | Message::Revoke { resource, .. } => self.hand_over(engine, serial, resource, message),
            Message::GlimpseAsk { glimpse, resource } => {
                if !self.hand_if_bound(engine, serial, resource, &message) {
                    let session = self.sessions[target as usize].session.as_mut().expect("found above");
                    let nothing = Message::GlimpseTell { glimpse, resource, end: 0, modified_ns: 0 };
                    engine.send(session.connection(Channel::Callback), true, nothing, None, false);
                }
            }
            Message::WriteReply { request, status } => self.answered(engine, target, request, status),
            Message::ReadReply { request, .. }
            | Message::Done { request, .. }
            | Message::GlimpseReply { request, .. } => {
                session.requests.retain(|open| *open != request.0);
                let bytes = frame.bulk.as_ref().map_or(0, |bulk| bulk.bytes);
                if let Some(bulk) = frame.bulk {
                    self.receive_bulk(request, &bulk);
                }
                self.tell_owner(request.0, Note::Reply { request, message, bytes });
            }
            Message::Pong { .. } | Message::Goodbye {} => {}
            other => engine.complain(format!("a client is sent {}", other.name())),
        }
    }

    fn hand_over(&mut self, engine: &mut Engine, serial: u64, resource: ResourceId, message: Message) {
        self.hand_if_bound(engine, serial, resource, &message);
    }

    /// Gives a message to its stripe, if that is in the session that the message came over.
    fn hand_if_bound(
        &mut self,
        engine: &mut Engine,
        serial: u64,
        resource: ResourceId,
        message: &Message,
    ) -> bool {
        let Some((file, stripe)) = self.place(resource) else { return false };
        let known = self.files[file].stripes[stripe].as_ref();
        if known.and_then(|place| place.session).is_none_or(|(bound, _)| bound != serial) {
            return false;
        }
        self.step(engine, file, stripe, Input::Message(message.clone()));
        true
    }

    /// The answer to a flush.
    fn answered(&mut self, engine: &mut Engine, target: u32, request: RequestId, status: Status) {
        let session = self.sessions[target as usize].session.as_mut().expect("the caller found it");
        let (serial, id) = (session.serial, session.id);
        let Some((file, stripe)) = session.jobs.remove(&request.0) else { return };
        self.pump_soon(engine, target, serial);
        let bound = self.stripe(file, stripe).session.is_some_and(|(bound, _)| bound == serial);
        let errno = match status {
            Status::Ok => None,
            Status::Errno(errno) => Some(errno),
        };
        let resource = self.resource(file, stripe);
        engine.tell(|observer, at| observer.flush_answered(at, target, id, resource, request.0, errno));
        if bound {
            self.step(engine, file, stripe, Input::Answered { job: JobId(request.0), errno });
        }
    }

    /// Says goodbye on every connection: the server forgets the locks without calling it an eviction.
    pub(crate) fn leave(&mut self, engine: &mut Engine) {
        for target in 0..to_u32(self.sessions.len()) {
            let Some(session) = self.sessions[target as usize].session.take_if(|session| session.is_ready())
            else {
                continue;
            };
            self.forget_session(engine, target, &session);
            for connection in session.opened() {
                engine.send(connection, true, Message::Goodbye {}, None, false);
                engine.net.shut(connection, false);
                engine.send_close(connection, true);
            }
        }
        self.wake(engine);
    }

    /// The process is gone: its connections break.
    pub(crate) fn crash(&mut self, engine: &mut Engine) {
        self.up = false;
        self.life += 1;
        for target in 0..self.sessions.len() {
            let Some(session) = self.sessions[target].session.take() else { continue };
            engine.session_ended(session.number);
            for connection in session.opened() {
                engine.net.shut(connection, false);
                // What the kernel had taken may still arrive.
                engine.send_close(connection, true);
            }
        }
    }
}

/// A number of the configuration as a size.
pub(crate) fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
