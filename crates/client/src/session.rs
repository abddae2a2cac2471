//! One life of the connections between this client and one shard.
//!
//! A session has a [`ClientId`] of its own. When any of its connections is lost the whole session is: the server has evicted
//! the id, and a new session begins with a new one.

use crate::error::FsError;
use crate::stripe::Stripe;
use crate::sys::random_bytes;
use ccpfs_transport::{
    Address, ConnectOptions, Connection, FrameSink, LinkError, Received, Wait, connect_with,
};
use ccpfs_types::{ClientId, Policy, RequestId};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, decode_batch, encode_into};
use std::collections::{HashMap, VecDeque};
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How a client connects, and how long it waits.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) connect_timeout: Duration,
    pub(crate) server_timeout: Duration,
    pub(crate) options: ConnectOptions,
}

/// Flushes that wait for the sender of a session.
#[derive(Default)]
pub(crate) struct FlushQueue {
    pub(crate) urgent: VecDeque<Arc<Stripe>>,
    pub(crate) normal: VecDeque<Arc<Stripe>>,
    /// Jobs without an answer, with the stripe they belong to.
    pub(crate) jobs: HashMap<u64, Arc<Stripe>>,
    pub(crate) running: bool,
}

/// When a server that owes answers to flushes was heard from, and asked for a sign of life.
pub(crate) struct Vigil {
    pub(crate) heard: Instant,
    pub(crate) asked: Instant,
}

/// Who receives on the control connection.
#[derive(Default)]
struct Leadership {
    taken: bool,
    followers: u32,
    /// Rises with each frame: whoever has looked in vain before it must look again before it sleeps.
    delivered: u64,
}

/// A request on the control connection that waits for its answer.
struct PendingReply {
    /// Where bulk goes: (start, length) pieces that stay valid while the request is pending.
    target: Vec<(*mut u8, usize)>,
    answer: Option<(Message, usize)>,
}

// SAFETY: the pointers name pinned pages or buffers of the waiting thread, which stays in `wait_reply` until the
// reply has come or the session is dead and the receiver gone.
unsafe impl Send for PendingReply {}

/// The connections between this client and one shard.
pub(crate) struct Session {
    pub(crate) target: u32,
    pub(crate) address: Address,
    pub(crate) id: ClientId,
    pub(crate) policy: Policy,
    /// Which life of the server this is.
    pub(crate) epoch: u64,
    control: Arc<dyn Connection>,
    callback: OnceLock<Arc<dyn Connection>>,
    bulk: OnceLock<Arc<dyn Connection>>,
    opening: Mutex<()>,
    patience: Patience,
    dead: AtomicBool,
    /// Somebody has seen to it that the stripes forget this session.
    forgotten: AtomicBool,
    leadership: Mutex<Leadership>,
    led: Condvar,
    replies: Mutex<HashMap<u64, PendingReply>>,
    pub(crate) vigil: Mutex<Vigil>,
    pub(crate) flushes: Mutex<FlushQueue>,
    pub(crate) flush_changed: Condvar,
}

/// What the owner of sessions does with messages that are not answers.
pub(crate) trait Receiver {
    /// A message that is no reply to [`Session::send_request`].
    fn message(&self, session: &Session, message: Message);
}

impl Session {
    /// Connects to a shard, trying again until the connect timeout has passed.
    pub(crate) fn open(target: u32, address: &Address, patience: Patience) -> Result<Session, FsError> {
        let mut id = [0_u8; 8];
        random_bytes(&mut id).map_err(|e| unreachable_server(address, &e.to_string()))?;
        // Zero is the server's own.
        let id = ClientId(u64::from_le_bytes(id) | 1);
        let (control, policy, epoch) = open_channel((target, address), id, Channel::Control, patience)?;
        Ok(Session {
            target,
            address: address.clone(),
            id,
            policy,
            epoch,
            control,
            callback: OnceLock::new(),
            bulk: OnceLock::new(),
            opening: Mutex::new(()),
            patience,
            dead: AtomicBool::new(false),
            forgotten: AtomicBool::new(false),
            leadership: Mutex::default(),
            led: Condvar::new(),
            replies: Mutex::default(),
            vigil: Mutex::new(Vigil { heard: Instant::now(), asked: Instant::now() }),
            flushes: Mutex::default(),
            flush_changed: Condvar::new(),
        })
    }

    /// Whether the session has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Ends the session for everybody in this process, without a word to the server: nothing new begins under its locks.
    pub(crate) fn retire(&self) {
        self.dead.store(true, Ordering::Release);
        drop(self.leadership.lock().expect("no code panics under this lock"));
        self.led.notify_all();
        drop(self.flushes.lock().expect("no code panics under this lock"));
        self.flush_changed.notify_all();
    }

    /// Ends the session: every connection is closed, whoever waits wakes up. Idempotent. Whoever calls it sees to it that the
    /// stripes forget the session afterwards (see [`Session::forget_once`]).
    pub(crate) fn kill(&self) {
        self.dead.store(true, Ordering::Release);
        self.control.close();
        for connection in [self.callback.get(), self.bulk.get()].into_iter().flatten() {
            connection.close();
        }
        self.retire();
    }

    /// True for the first caller, whose task it is to make the stripes forget the session.
    pub(crate) fn forget_once(&self) -> bool {
        !self.forgotten.swap(true, Ordering::AcqRel)
    }

    /// The callback connection; the flag tells whether this call opened it.
    pub(crate) fn callback(&self) -> Result<(&Arc<dyn Connection>, bool), FsError> {
        self.lazily(&self.callback, Channel::Callback)
    }

    /// The bulk connection; the flag tells whether this call opened it.
    pub(crate) fn bulk(&self) -> Result<(&Arc<dyn Connection>, bool), FsError> {
        self.lazily(&self.bulk, Channel::Bulk)
    }

    /// The connections that the background thread serves, as far as they are open.
    pub(crate) fn served(&self) -> [Option<&Arc<dyn Connection>>; 2] {
        [self.callback.get(), self.bulk.get()]
    }

    fn lazily<'a>(
        &'a self,
        slot: &'a OnceLock<Arc<dyn Connection>>,
        channel: Channel,
    ) -> Result<(&'a Arc<dyn Connection>, bool), FsError> {
        if let Some(connection) = slot.get() {
            return Ok((connection, false));
        }
        let _one_opens = self.opening.lock().expect("no code panics under this lock");
        if let Some(connection) = slot.get() {
            return Ok((connection, false));
        }
        if self.is_dead() {
            return Err(self.lost());
        }
        let (connection, ..) = open_channel((self.target, &self.address), self.id, channel, self.patience)?;
        let connection = slot.get_or_init(|| connection);
        if self.is_dead() {
            // Ended meanwhile, and perhaps before it could know of this connection.
            connection.close();
            return Err(self.lost());
        }
        Ok((connection, true))
    }

    pub(crate) fn lost(&self) -> FsError {
        FsError::ServerLost { address: self.address.clone() }
    }

    /// Sends messages on the control connection.
    pub(crate) fn send_control(&self, batch: &[u8]) -> Result<(), FsError> {
        self.control.send(batch, &[]).map_err(|_| self.lost())
    }

    /// Sends a request that [`Session::wait_reply`] will take the answer of. Bulk of the answer goes to `target`, which
    /// must stay valid until then.
    pub(crate) fn send_request(
        &self,
        request: RequestId,
        message: &Message,
        target: Vec<(*mut u8, usize)>,
    ) -> Result<(), FsError> {
        let mut batch = Vec::with_capacity(128);
        encode_into(message, &mut batch);
        self.replies
            .lock()
            .expect("no code panics under this lock")
            .insert(request.0, PendingReply { target, answer: None });
        let sent = self.send_control(&batch);
        if sent.is_err() {
            // The server has not got all of it, so it will not answer: nobody needs the memory.
            self.replies.lock().expect("no code panics under this lock").remove(&request.0);
        }
        sent
    }

    /// Waits for the answer to a request; with it, the number of bulk bytes that came. After an error the session must be
    /// ended, and [`Session::abandon`] be called before the memory for the bulk is used otherwise.
    pub(crate) fn wait_reply(
        &self,
        request: RequestId,
        receiver: &dyn Receiver,
    ) -> Result<(Message, usize), FsError> {
        let take = || {
            let mut replies = self.replies.lock().expect("no code panics under this lock");
            match replies.get(&request.0) {
                Some(PendingReply { answer: Some(_), .. }) => {
                    replies.remove(&request.0).and_then(|pending| pending.answer)
                }
                Some(PendingReply { answer: None, .. }) | None => None,
            }
        };
        self.wait_until(receiver, take)
    }

    /// Gives up a request of a session that has ended. When this returns nobody receives into the request's memory any more:
    /// another thread may have been about to.
    pub(crate) fn abandon(&self, request: RequestId) {
        debug_assert!(self.is_dead(), "a receiver of a session that goes on may not end soon");
        let mut leadership = self.leadership.lock().expect("no code panics under this lock");
        while leadership.taken {
            leadership.followers += 1;
            leadership = self.led.wait(leadership).expect("no code panics under this lock");
            leadership.followers -= 1;
        }
        drop(leadership);
        self.replies.lock().expect("no code panics under this lock").remove(&request.0);
    }

    /// Receives, or lets another thread receive, until `ready` has something.
    ///
    /// The waiting thread itself reads the socket: no hand-over between threads stands between an answer and its user.
    pub(crate) fn wait_until<T>(
        &self,
        receiver: &dyn Receiver,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, FsError> {
        loop {
            let seen = {
                let leadership = self.leadership.lock().expect("no code panics under this lock");
                leadership.delivered
            };
            if let Some(value) = ready() {
                return Ok(value);
            }
            if self.is_dead() {
                return Err(self.lost());
            }
            let mut leadership = self.leadership.lock().expect("no code panics under this lock");
            if leadership.taken {
                if leadership.delivered == seen && !self.is_dead() {
                    leadership.followers += 1;
                    leadership = self.led.wait(leadership).expect("no code panics under this lock");
                    leadership.followers -= 1;
                }
                continue;
            }
            leadership.taken = true;
            drop(leadership);
            let _leading = Leading { session: self };
            return self.lead(receiver, &mut ready);
        }
    }

    fn lead<T>(&self, receiver: &dyn Receiver, ready: &mut impl FnMut() -> Option<T>) -> Result<T, FsError> {
        let quiet = Duration::from_secs(5).min(self.patience.server_timeout / 2);
        let mut heard = Instant::now();
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            let mut sink = ControlSink { session: self, receiver };
            match self.control.receive(Wait::For(quiet), &mut sink) {
                Ok(Received::Frame) => {
                    heard = Instant::now();
                    let mut leadership = self.leadership.lock().expect("no code panics under this lock");
                    // Also when nobody follows yet: somebody may have looked just before this frame, and follow now.
                    leadership.delivered += 1;
                    if leadership.followers > 0 {
                        self.led.notify_all();
                    }
                }
                Ok(Received::TimedOut) if heard.elapsed() >= self.patience.server_timeout => {
                    tracing::warn!(server = %self.address, "no answer for {:?}: giving the server up", heard.elapsed());
                    return Err(self.lost());
                }
                Ok(Received::TimedOut) => {
                    let mut batch = Vec::new();
                    encode_into(&Message::Ping { request: RequestId(0) }, &mut batch);
                    self.send_control(&batch)?;
                }
                Err(error) => {
                    tracing::debug!(server = %self.address, %error, "control connection lost");
                    return Err(self.lost());
                }
            }
        }
    }

    /// Says goodbye on every open connection: the server forgets the locks without calling it an eviction.
    pub(crate) fn goodbye(&self) {
        let mut batch = Vec::new();
        encode_into(&Message::Goodbye {}, &mut batch);
        for connection in [self.callback.get(), self.bulk.get(), Some(&self.control)].into_iter().flatten() {
            // The server may be gone already; leaving was the aim.
            let _ = connection.send(&batch, &[]);
        }
        self.kill();
    }
}

/// The receiver of a session; the next one may begin when it is dropped, even by a panic.
struct Leading<'a> {
    session: &'a Session,
}

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        let mut leadership = self.session.leadership.lock().expect("no code panics under this lock");
        leadership.taken = false;
        leadership.delivered += 1;
        if leadership.followers > 0 {
            self.session.led.notify_all();
        }
    }
}

fn unreachable_server(address: &Address, reason: &str) -> FsError {
    FsError::Unreachable { address: address.clone(), reason: reason.to_owned() }
}

/// Connects one channel and exchanges Hello and Welcome.
fn open_channel(
    (target, address): (u32, &Address),
    id: ClientId,
    channel: Channel,
    patience: Patience,
) -> Result<(Arc<dyn Connection>, Policy, u64), FsError> {
    let until = Instant::now() + patience.connect_timeout;
    let connection = loop {
        match connect_with(
            address,
            patience.connect_timeout.max(Duration::from_millis(100)),
            patience.options,
        ) {
            Ok(connection) => break connection,
            Err(error) if Instant::now() >= until => {
                return Err(unreachable_server(address, &error.source.to_string()));
            }
            // The server may be starting; a short pause keeps the retry from spinning.
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    };
    let mut batch = Vec::new();
    let name = format!("pid {}", std::process::id());
    encode_into(&Message::Hello { version: PROTOCOL_VERSION, client: id, channel, name }, &mut batch);
    let link = |error: LinkError| unreachable_server(address, &error.to_string());
    connection.send(&batch, &[]).map_err(link)?;
    let mut sink = FirstMessage(None);
    match connection.receive(Wait::For(patience.server_timeout), &mut sink).map_err(link)? {
        Received::TimedOut => Err("it accepts connections but does not answer".to_owned()),
        Received::Frame => welcomed(sink.0, target),
    }
    .map(|(policy, epoch)| (connection, policy, epoch))
    .map_err(|reason| unreachable_server(address, &reason))
}

/// What the first message of a server says: its policy and the number of its life, or why it is not the right server.
fn welcomed(first: Option<Message>, expected: u32) -> Result<(Policy, u64), String> {
    match first {
        Some(Message::Welcome { version, .. }) if version != PROTOCOL_VERSION => {
            Err(format!("it speaks protocol version {version}, this client {PROTOCOL_VERSION}"))
        }
        // Data on another target than where they are looked for would read as holes.
        Some(Message::Welcome { target, .. }) if target != expected => Err(format!(
            "it is target {target} of its cluster, the configuration has it as {expected}: cluster.servers must list the servers in the order they were started with"
        )),
        Some(Message::Welcome { policy, epoch, .. }) => Ok((policy, epoch)),
        Some(Message::Refused { reason }) => Err(format!("it refused: {reason}")),
        Some(other) => Err(format!("it began with {}", other.name())),
        None => Err("it does not speak the ccPFS protocol".to_owned()),
    }
}

struct FirstMessage(Option<Message>);

impl FrameSink for FirstMessage {
    fn bulk_target(&mut self, _: &[u8], _: usize) -> Vec<IoSliceMut<'_>> {
        Vec::new()
    }

    fn frame(&mut self, message: &[u8], _: usize) {
        self.0 = decode_batch(message).next().and_then(Result::ok);
    }
}

/// Takes what arrives on the control connection.
struct ControlSink<'a> {
    session: &'a Session,
    receiver: &'a dyn Receiver,
}

impl FrameSink for ControlSink<'_> {
    fn bulk_target(&mut self, message: &[u8], _: usize) -> Vec<IoSliceMut<'_>> {
        let Some(Ok(Message::ReadReply { request, .. })) = decode_batch(message).next() else {
            return Vec::new();
        };
        let replies = self.session.replies.lock().expect("no code panics under this lock");
        let Some(pending) = replies.get(&request.0) else { return Vec::new() };
        let slice = |(start, length): &(*mut u8, usize)| {
            // SAFETY: `send_request` was promised that these pieces stay valid until the reply is taken, and nobody
            // else uses them: the pages are pinned and the bytes not valid yet.
            IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(*start, *length) })
        };
        pending.target.iter().map(slice).collect()
    }

    fn frame(&mut self, message: &[u8], bulk_bytes: usize) {
        for message in decode_batch(message) {
            let Ok(message) = message else {
                tracing::warn!(server = %self.session.address, "malformed message");
                self.session.kill();
                return;
            };
            match crate::answers::reply_to(&message) {
                Some(request) => {
                    let mut replies = self.session.replies.lock().expect("no code panics under this lock");
                    if let Some(pending) = replies.get_mut(&request.0) {
                        pending.answer = Some((message, bulk_bytes));
                    }
                }
                None => self.receiver.message(self.session, message),
            }
        }
    }
}
