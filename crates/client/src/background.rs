//! The one thread of a client that answers servers: revocations, glimpses, acknowledgements of flushes.

use crate::client::{ClientInner, TICK};
use crate::session::Session;
use crate::statistics::add;
use crate::stripe::Outbox;
use ccpfs_cached_stripe::Input;
use ccpfs_transport::FrameSink;
use ccpfs_types::{RequestId, ResourceId};
use ccpfs_wire::{Message, Status, decode_batch, encode_into};
use ccpfs_writeback::JobId;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A session whose callback and bulk connections are looked after.
pub(crate) struct Served {
    pub(crate) session: Arc<Session>,
}

struct Shared {
    sessions: Mutex<Vec<Arc<Session>>>,
    stopping: AtomicBool,
    /// Written to when there is something new in the fields above.
    wake: OwnedFd,
}

/// The thread, as its client sees it.
pub(crate) struct Background {
    shared: Arc<Shared>,
}

impl Background {
    pub(crate) fn start(client: Weak<ClientInner>) -> Background {
        // SAFETY: plain call; the result is checked.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        assert!(wake >= 0, "an eventfd can be made: {}", std::io::Error::last_os_error());
        // SAFETY: just made, owned by nobody else.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let shared = Arc::new(Shared { sessions: Mutex::default(), stopping: AtomicBool::new(false), wake });
        let theirs = Arc::clone(&shared);
        crate::flush_loop::spawn("ccpfs-callback", move || serve(&theirs, &client));
        Background { shared }
    }

    /// Looks after a session from now on; also needed again when it has opened another connection.
    pub(crate) fn add(&self, served: Served) {
        let mut sessions = self.shared.sessions.lock().expect("no code panics under this lock");
        if !sessions.iter().any(|session| Arc::ptr_eq(session, &served.session)) {
            sessions.push(served.session);
        }
        drop(sessions);
        self.shared.wake();
    }

    /// Whether every session it has looked after has ended.
    pub(crate) fn is_idle(&self) -> bool {
        let sessions = self.shared.sessions.lock().expect("no code panics under this lock");
        sessions.iter().all(|session| session.is_dead())
    }

    pub(crate) fn stop(&self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake();
    }
}

impl Shared {
    fn wake(&self) {
        let one = 1_u64.to_ne_bytes_for_eventfd();
        // SAFETY: writes eight bytes of our own to our descriptor. A full counter has woken the thread already.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn drain(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: reads at most eight bytes into our own buffer.
        unsafe { libc::read(self.wake.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// An eventfd wants its number in the machine's own order.
trait EventfdBytes {
    fn to_ne_bytes_for_eventfd(self) -> [u8; 8];
}

impl EventfdBytes for u64 {
    #[allow(clippy::host_endian_bytes, reason = "the kernel on this machine reads it, nobody else")]
    fn to_ne_bytes_for_eventfd(self) -> [u8; 8] {
        self.to_ne_bytes()
    }
}

fn serve(shared: &Shared, client: &Weak<ClientInner>) {
    // Other clients wait while a revocation waits for this thread.
    ccpfs_transport::prefer_latency();
    let mut ticked = Instant::now();
    let mut beat = TICK;
    while !shared.stopping.load(Ordering::Acquire) {
        let sessions: Vec<Arc<Session>> = {
            let mut sessions = shared.sessions.lock().expect("no code panics under this lock");
            sessions.retain(|session| !session.is_dead());
            sessions.clone()
        };
        wait_for_readiness(shared, &sessions, beat);
        let Some(client) = client.upgrade() else { return };
        beat = TICK.min(client.server_timeout() / 4);
        for session in &sessions {
            for connection in session.served().into_iter().flatten() {
                let mut sink = CallbackSink { client: &client, session, answers: Vec::new() };
                let received = connection.receive_ready(&mut sink);
                let answers = std::mem::take(&mut sink.answers);
                if matches!(received, Ok(1..)) {
                    session.vigil.lock().expect("no code panics under this lock").heard = Instant::now();
                }
                if received.is_err() || reply(session, &answers).is_err() {
                    client.session_lost(session);
                    break;
                }
            }
            watch(&client, session, beat);
        }
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            client.tick();
            client.trim();
        }
    }
}

/// Asks a server that owes answers to flushes for a sign of life, and gives it up if none comes: who waits for a flush waits for
/// this thread, which would notice a lost connection, but not a server that has stopped.
fn watch(client: &ClientInner, session: &Arc<Session>, beat: Duration) {
    let owes = !session.flushes.lock().expect("no code panics under this lock").jobs.is_empty();
    let now = Instant::now();
    let mut vigil = session.vigil.lock().expect("no code panics under this lock");
    if !owes {
        vigil.heard = now;
    }
    let silence = now.duration_since(vigil.heard);
    let ask = silence >= beat && now.duration_since(vigil.asked) >= beat;
    if ask {
        vigil.asked = now;
    }
    drop(vigil);
    let gone = silence >= client.server_timeout();
    if gone {
        tracing::warn!(server = %session.address, "no answer to flushes for {silence:?}: giving the server up");
    }
    let mut ping = Vec::new();
    encode_into(&Message::Ping { request: RequestId(0) }, &mut ping);
    if gone || (ask && reply(session, &ping).is_err()) {
        client.session_lost(session);
    }
}

fn wait_for_readiness(shared: &Shared, sessions: &[Arc<Session>], limit: Duration) {
    let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut polled = vec![entry(shared.wake.as_raw_fd())];
    for session in sessions {
        polled.extend(session.served().into_iter().flatten().map(|connection| entry(connection.readiness())));
    }
    let count = libc::nfds_t::try_from(polled.len()).expect("sessions are few");
    let timeout = libc::c_int::try_from(limit.as_millis()).expect("a short time");
    // SAFETY: the array is ours and as long as said; the descriptors live as long as the sessions we hold.
    unsafe { libc::poll(polled.as_mut_ptr(), count, timeout) };
    if polled[0].revents != 0 {
        shared.drain();
    }
}

/// Sends collected answers on the callback connection.
fn reply(session: &Session, batch: &[u8]) -> Result<(), ()> {
    if batch.is_empty() {
        return Ok(());
    }
    let (connection, _) = session.callback().map_err(drop)?;
    connection.send(batch, &[]).map_err(drop)
}

struct CallbackSink<'a> {
    client: &'a Arc<ClientInner>,
    session: &'a Arc<Session>,
    /// Glimpse answers of this turn, encoded.
    answers: Vec<u8>,
}

impl FrameSink for CallbackSink<'_> {
    fn bulk_target(&mut self, _: &[u8], _: usize) -> Vec<IoSliceMut<'_>> {
        Vec::new()
    }

    fn frame(&mut self, message: &[u8], _: usize) {
        for message in decode_batch(message) {
            match message {
                Ok(message) => self.message(message),
                Err(error) => {
                    tracing::warn!(server = %self.session.address, %error, "malformed message");
                    self.client.session_lost(self.session);
                    return;
                }
            }
        }
    }
}

impl CallbackSink<'_> {
    #[allow(clippy::wildcard_enum_match_arm, reason = "whatever does not belong on this channel is reported")]
    fn message(&mut self, message: Message) {
        match message {
            Message::Revoke { resource, .. } => {
                add(&self.client.counters.revocations, 1);
                self.stripe_message(resource, message);
            }
            Message::GlimpseAsk { glimpse, resource } => {
                if !self.stripe_message(resource, message) {
                    // Nothing was written here under this session's locks.
                    let nothing = Message::GlimpseTell { glimpse, resource, end: 0, modified_ns: 0 };
                    encode_into(&nothing, &mut self.answers);
                }
            }
            Message::WriteReply { request, status } => self.acknowledged(request.0, status),
            Message::Pong { .. } | Message::Goodbye {} => {}
            other => tracing::warn!(server = %self.session.address, "unexpected {}", other.name()),
        }
    }

    /// Gives a message to the stripe that it names. False if that is not one of this session: its locks may have the same numbers.
    fn stripe_message(&self, resource: ResourceId, message: Message) -> bool {
        let Some(stripe) = self.client.find_stripe(resource) else { return false };
        let mut out = Outbox::default();
        let mut inner = stripe.lock();
        let ours = inner.is_of(self.session);
        if ours {
            inner.step(&stripe, self.client, Input::Message(message), &mut out);
        }
        drop(inner);
        self.client.dispatch(&stripe, out);
        ours
    }

    fn acknowledged(&self, job: u64, status: Status) {
        let stripe = {
            let mut flushes = self.session.flushes.lock().expect("no code panics under this lock");
            flushes.jobs.remove(&job)
        };
        self.session.flush_changed.notify_all();
        let Some(stripe) = stripe else { return };
        let errno = match status {
            Status::Ok => None,
            Status::Errno(errno) => Some(errno),
        };
        let mut out = Outbox::default();
        {
            let mut inner = stripe.lock();
            if !inner.is_of(self.session) {
                return; // what this session lost has been reported
            }
            inner.step(&stripe, self.client, Input::Answered { job: JobId(job), errno }, &mut out);
        }
        out.freed = true;
        self.client.dispatch(&stripe, out);
    }
}
