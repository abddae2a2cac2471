//! A port over TCP or Unix sockets: one epoll, one thread, turns of bounded length.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Interest, Token};

use crate::address::Address;
use crate::buffer::BufferPool;
use crate::frame::FrameHeader;
use crate::listener::Listener;
use crate::outbound::{Outbound, Written};
use crate::port::{Bulk, CloseReason, ConnectionId, Event, PortOptions, SendError, ServerPort, Waker};
use crate::socket_link::{BULK_SLICE_BYTES, Listed, Next, SocketLink, close_reason};
use crate::socket_options;
use crate::sys;
use crate::wake::WakeTarget;

const LISTENER: Token = Token(0);
const WAKE: Token = Token(1);
/// The first connection's number; those below are tokens of the port itself.
const FIRST_CONNECTION: u64 = 2;
/// Kernel events taken per wait.
const EVENTS_PER_WAIT: usize = 256;
/// Bulk bytes received per `poll`, over all connections: a lock request never waits for more than this.
const BULK_BYTES_PER_POLL: usize = 4 * BULK_SLICE_BYTES;
/// How often stalled transfers are looked for, and a failed accept is tried again.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_millis(500);

/// See the module.
pub(crate) struct SocketPort {
    poll: mio::Poll,
    kernel_events: mio::Events,
    listener: Listener,
    /// Clients may be waiting to be accepted.
    accept_pending: bool,
    /// The process lacked descriptors or memory; housekeeping makes the next attempt.
    accept_deferred: bool,
    target: Arc<WakeTarget>,
    pool: BufferPool,
    options: PortOptions,
    links: HashMap<u64, SocketLink>,
    next_connection: u64,
    /// Readable connections between frames; inside a bulk; waiting for a buffer.
    messages: VecDeque<u64>,
    bulk: VecDeque<u64>,
    starved: VecDeque<u64>,
    /// Connections with queued frames that the kernel may take.
    writing: Vec<u64>,
    /// `Closed` events of connections that ended outside the reading pass.
    closed: Vec<Event>,
    housekeeping_at: Instant,
}

impl SocketPort {
    pub(crate) fn listen(
        address: &Address,
        pool: BufferPool,
        options: PortOptions,
    ) -> io::Result<SocketPort> {
        let listener = Listener::bind(address)?;
        let poll = mio::Poll::new()?;
        poll.registry().register(&mut SourceFd(&listener.as_raw_fd()), LISTENER, Interest::READABLE)?;
        let interrupt = mio::Waker::new(poll.registry(), WAKE)?;
        let target = WakeTarget::new(move || {
            if let Err(error) = interrupt.wake() {
                tracing::warn!(%error, "a server port could not be woken");
            }
        });
        Ok(SocketPort {
            poll,
            kernel_events: mio::Events::with_capacity(EVENTS_PER_WAIT),
            listener,
            accept_pending: false,
            accept_deferred: false,
            target,
            pool,
            options,
            links: HashMap::new(),
            next_connection: FIRST_CONNECTION,
            messages: VecDeque::new(),
            bulk: VecDeque::new(),
            starved: VecDeque::new(),
            writing: Vec::new(),
            closed: Vec::new(),
            housekeeping_at: Instant::now() + HOUSEKEEPING_INTERVAL,
        })
    }

    /// Asks the kernel, blocking at most `timeout` and only if there is nothing to do.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let idle = !self.accept_pending
            && self.messages.is_empty()
            && self.bulk.is_empty()
            && self.writing.is_empty()
            && self.closed.is_empty();
        let mut limit = if idle { timeout } else { Some(Duration::ZERO) };
        let blocking = limit != Some(Duration::ZERO);
        if blocking && (self.accept_deferred || self.links.values().any(SocketLink::in_bulk)) {
            limit = Some(limit.map_or(HOUSEKEEPING_INTERVAL, |limit| limit.min(HOUSEKEEPING_INTERVAL)));
        }
        if blocking && !self.options.busy_poll.is_zero() {
            let spin = limit.map_or(self.options.busy_poll, |limit| limit.min(self.options.busy_poll));
            let until = Instant::now() + spin;
            while Instant::now() < until {
                self.wait_kernel(Some(Duration::ZERO))?;
                if !self.kernel_events.is_empty() || self.target.has_reason() {
                    return Ok(());
                }
                thread::yield_now();
            }
        }
        if blocking && !self.target.may_sleep() {
            limit = Some(Duration::ZERO);
        }
        let waited = self.wait_kernel(limit);
        self.target.awake();
        waited
    }

    fn wait_kernel(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.kernel_events, limit) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.kernel_events.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// Notes what the kernel reported.
    fn note_kernel_events(&mut self) {
        for event in &self.kernel_events {
            match event.token() {
                LISTENER => self.accept_pending = true,
                WAKE => {}
                Token(number) => {
                    let number = number as u64;
                    let Some(link) = self.links.get_mut(&number) else { continue };
                    link.ending |= event.is_read_closed() || event.is_error();
                    if event.is_readable() || link.ending {
                        list_readable(link, &mut self.messages, &mut self.bulk);
                    }
                    if event.is_writable() && link.write_blocked {
                        link.write_blocked = false;
                        if !link.write_listed {
                            link.write_listed = true;
                            self.writing.push(number);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self, events: &mut Vec<Event>) {
        while self.accept_pending {
            match self.listener.accept() {
                Ok((fd, peer)) => {
                    if self.links.len() >= self.options.connections_max {
                        tracing::warn!(%peer, "too many connections; one was refused");
                        continue;
                    }
                    match self.open(fd) {
                        Ok(connection) => events.push(Event::Opened { connection, peer }),
                        Err(error) => tracing::debug!(%error, %peer, "a connection failed at once"),
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.accept_pending = false,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => {
                        tracing::warn!(%error, "a connection cannot be accepted yet");
                        self.accept_pending = false;
                        self.accept_deferred = true;
                    }
                    Some(_) | None => tracing::debug!(%error, "a connection was gone before it was accepted"),
                },
            }
        }
    }

    fn open(&mut self, fd: std::os::fd::OwnedFd) -> io::Result<ConnectionId> {
        socket_options::prepare(fd.as_raw_fd(), self.listener.family(), self.options.stall_timeout)?;
        let number = self.next_connection;
        self.poll.registry().register(
            &mut SourceFd(&fd.as_raw_fd()),
            Token(number as usize),
            Interest::READABLE,
        )?;
        self.next_connection += 1;
        let mut link = SocketLink::new(ConnectionId(number), fd);
        list_readable(&mut link, &mut self.messages, &mut self.bulk);
        self.links.insert(number, link);
        Ok(ConnectionId(number))
    }

    /// Reads once from a connection and lists it again where it belongs.
    fn read_turn(&mut self, number: u64, events: &mut Vec<Event>) -> usize {
        let Some(link) = self.links.get_mut(&number) else { return 0 };
        link.listed = Listed::No;
        match link.read() {
            Ok(count) => {
                let may_take = self.starved.is_empty();
                self.frames_turn(number, may_take, events);
                count
            }
            Err(reason) => {
                self.end(number, reason);
                0
            }
        }
    }

    fn frames_turn(&mut self, number: u64, may_take: bool, events: &mut Vec<Event>) {
        let Some(link) = self.links.get_mut(&number) else { return };
        // Nobody overtakes those who wait for memory already.
        let source = may_take.then_some((&self.pool, &self.target));
        match link.take_frames(source, events) {
            Ok(Next::Bytes) => {
                link.listed = Listed::No;
                if link.readable {
                    list_readable(link, &mut self.messages, &mut self.bulk);
                }
            }
            Ok(Next::Buffer) => {
                link.listed = Listed::Starved;
                self.starved.push_back(number);
            }
            Err(error) => {
                tracing::debug!(connection = number, %error, "closing a connection");
                self.end(number, CloseReason::Malformed(error));
            }
        }
    }

    /// Every connection that waits for a buffer gets one more chance, in order, until one fails.
    fn retry_starved(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.starved.len() {
            let Some(number) = self.starved.pop_front() else { return };
            self.frames_turn(number, true, events);
            if self.starved.back() == Some(&number) {
                self.starved.rotate_right(1);
                return;
            }
        }
    }

    fn read_pass(&mut self, events: &mut Vec<Event>) {
        for _ in 0..self.messages.len() {
            let Some(number) = self.messages.pop_front() else { break };
            self.read_turn(number, events);
        }
        let mut bulk_bytes = 0;
        for _ in 0..self.bulk.len() {
            if bulk_bytes >= BULK_BYTES_PER_POLL {
                break;
            }
            let Some(number) = self.bulk.pop_front() else { break };
            bulk_bytes += self.read_turn(number, events);
        }
    }

    fn write_turn(&mut self, number: u64) {
        let Some(link) = self.links.get_mut(&number) else { return };
        match link.outbound.write(link.raw_fd()) {
            Ok(Written::All) => self.watch_writable(number, false),
            Ok(Written::Share) => {
                link.write_listed = true;
                self.writing.push(number);
            }
            Ok(Written::Blocked) => {
                link.write_blocked = true;
                self.watch_writable(number, true);
            }
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                // The peer has gone, but what it sent before still counts; the end shows behind it.
                link.outbound = Outbound::default();
                link.ending = true;
                list_readable(link, &mut self.messages, &mut self.bulk);
            }
            Err(error) => self.end(number, close_reason(&error)),
        }
    }

    /// Has the kernel report when a full send buffer takes bytes again (and only then: a Unix socket would
    /// otherwise report every read of its peer).
    fn watch_writable(&mut self, number: u64, watch: bool) {
        let Some(link) = self.links.get_mut(&number).filter(|link| link.write_watched != watch) else {
            return;
        };
        link.write_watched = watch;
        let interest = if watch { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        let token = Token(number as usize);
        if let Err(error) = self.poll.registry().reregister(&mut SourceFd(&link.raw_fd()), token, interest) {
            self.end(number, close_reason(&error));
        }
    }

    /// Ends a connection; its event follows with the next `poll`.
    fn end(&mut self, number: u64, reason: CloseReason) {
        let Some(link) = self.links.remove(&number) else { return };
        match link.listed {
            Listed::No => {}
            Listed::Messages => self.messages.retain(|other| *other != number),
            Listed::Bulk => self.bulk.retain(|other| *other != number),
            Listed::Starved => self.starved.retain(|other| *other != number),
        }
        if let Err(error) = self.poll.registry().deregister(&mut SourceFd(&link.raw_fd())) {
            tracing::debug!(connection = number, %error, "a descriptor was not watched");
        }
        sys::shut_down(link.raw_fd());
        self.closed.push(Event::Closed { connection: link.id, reason });
    }

    fn housekeeping(&mut self) {
        let now = Instant::now();
        if now < self.housekeeping_at {
            return;
        }
        self.housekeeping_at = now + HOUSEKEEPING_INTERVAL;
        self.accept_pending |= std::mem::take(&mut self.accept_deferred);
        let limit = self.options.stall_timeout;
        let stalled: Vec<u64> = self
            .links
            .iter()
            .filter(|(_, link)| link.bulk_progress().is_some_and(|since| now - since > limit))
            .map(|(number, _)| *number)
            .collect();
        for number in stalled {
            self.end(number, CloseReason::Stalled);
        }
    }
}

/// Notes that there may be something to read, and where the connection waits for its turn.
fn list_readable(link: &mut SocketLink, messages: &mut VecDeque<u64>, bulk: &mut VecDeque<u64>) {
    link.readable = true;
    if link.listed != Listed::No {
        return;
    }
    if link.in_bulk() {
        link.listed = Listed::Bulk;
        bulk.push_back(link.id.0);
    } else {
        link.listed = Listed::Messages;
        messages.push_back(link.id.0);
    }
}

impl ServerPort for SocketPort {
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        self.flush();
        self.wait(timeout)?;
        self.note_kernel_events();
        let reasons = self.target.take_reasons();
        if reasons.woken {
            events.push(Event::Woken);
        }
        self.housekeeping();
        self.accept(events);
        self.retry_starved(events);
        self.read_pass(events);
        events.append(&mut self.closed);
        Ok(())
    }

    fn send(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
        bulk: Option<Bulk>,
    ) -> Result<(), SendError> {
        let bulk_bytes = bulk.as_ref().map_or(0, |bulk| bulk.as_bytes().len());
        let header = FrameHeader::new(message.len(), bulk_bytes).map_err(SendError::TooLarge)?;
        let link = self.links.get_mut(&connection.0).ok_or(SendError::Gone)?;
        let queued_bytes = link.outbound.queued_bytes();
        if queued_bytes > 0 && queued_bytes + message.len() + bulk_bytes > self.options.queued_bytes_max {
            return Err(SendError::Overflow { queued_bytes });
        }
        link.outbound.push(header, message, bulk);
        if !link.write_listed && !link.write_blocked {
            link.write_listed = true;
            self.writing.push(connection.0);
        }
        Ok(())
    }

    fn flush(&mut self) {
        for number in std::mem::take(&mut self.writing) {
            if let Some(link) = self.links.get_mut(&number) {
                link.write_listed = false;
            }
            self.write_turn(number);
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        if self.links.contains_key(&connection.0) {
            self.write_turn(connection.0);
            self.end(connection.0, CloseReason::ClosedHere);
        }
    }

    fn waker(&self) -> Waker {
        Waker::new(self.target.clone())
    }

    fn local_address(&self) -> Address {
        self.listener.address()
    }
}

impl Drop for SocketPort {
    fn drop(&mut self) {
        self.flush();
    }
}
