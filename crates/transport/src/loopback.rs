//! In-process connections without sockets, for tests: the server's port and the state it shares with clients.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::address::Address;
use crate::buffer::{Buffer, BufferPool};
use crate::connection::{ConnectOptions, descriptor_minimum};
use crate::frame::FrameHeader;
use crate::loopback_client::LoopbackConnection;
use crate::port::{Bulk, CloseReason, ConnectionId, Event, PortOptions, SendError, ServerPort, Waker};
use crate::sys::{self, EventFd, Interest};
use crate::wake::WakeTarget;

/// Bytes on the way to the server from one client before its senders wait.
pub(crate) const BYTES_TO_SERVER_MAX: usize = 8 << 20;

/// All ports of this process that are open, by name.
static HUBS: Mutex<BTreeMap<String, Weak<Hub>>> = Mutex::new(BTreeMap::new());

/// Takes a lock whose state stays consistent even if a holder panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a port and its clients share.
pub(crate) struct Hub {
    pub(crate) links: Mutex<BTreeMap<u64, HubLink>>,
    /// Senders wait here for room.
    pub(crate) room: Condvar,
    pub(crate) target: Arc<WakeTarget>,
}

/// One connection inside a hub.
pub(crate) struct HubLink {
    pub(crate) to_server: VecDeque<HubFrame>,
    pub(crate) to_server_bytes: usize,
    pub(crate) to_client: VecDeque<HubFrame>,
    pub(crate) to_client_bytes: usize,
    /// Readable while the client has something to receive, or the end to learn of.
    pub(crate) readiness: Arc<EventFd>,
    pub(crate) client_closed: bool,
    pub(crate) server_closed: bool,
    announced: bool,
}

/// A frame in flight.
pub(crate) struct HubFrame {
    pub(crate) message: Vec<u8>,
    pub(crate) bulk: Vec<u8>,
}

impl HubFrame {
    pub(crate) fn bytes(&self) -> usize {
        self.message.len() + self.bulk.len()
    }
}

/// Connects to the port of this name.
pub(crate) fn connect(name: &str, options: ConnectOptions) -> io::Result<LoopbackConnection> {
    let hub = lock(&HUBS).get(name).and_then(Weak::upgrade);
    let hub = hub.ok_or_else(|| io::Error::from_raw_os_error(libc::ECONNREFUSED))?;
    let readiness = Arc::new(EventFd::new()?.moved_up(descriptor_minimum()));
    let link = HubLink {
        to_server: VecDeque::new(),
        to_server_bytes: 0,
        to_client: VecDeque::new(),
        to_client_bytes: 0,
        readiness: readiness.clone(),
        client_closed: false,
        server_closed: false,
        announced: false,
    };
    let number = {
        let mut links = lock(&hub.links);
        let number = next_number();
        links.insert(number, link);
        number
    };
    hub.target.nudge();
    Ok(LoopbackConnection::new(hub, number, readiness, options))
}

/// Connection numbers are unique in the process.
fn next_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// A port that clients of this process reach by its name.
pub(crate) struct LoopbackPort {
    name: String,
    hub: Arc<Hub>,
    interrupt: Arc<EventFd>,
    pool: BufferPool,
    options: PortOptions,
    closed: Vec<Event>,
}

impl LoopbackPort {
    pub(crate) fn listen(name: &str, pool: BufferPool, options: PortOptions) -> io::Result<LoopbackPort> {
        let interrupt = Arc::new(EventFd::new()?);
        let setter = interrupt.clone();
        let target = WakeTarget::new(move || setter.set());
        let hub = Arc::new(Hub { links: Mutex::default(), room: Condvar::new(), target });
        let mut hubs = lock(&HUBS);
        if hubs.get(name).is_some_and(|known| known.strong_count() > 0) {
            return Err(io::Error::from_raw_os_error(libc::EADDRINUSE));
        }
        hubs.insert(name.to_owned(), Arc::downgrade(&hub));
        drop(hubs);
        Ok(LoopbackPort { name: name.to_owned(), hub, interrupt, pool, options, closed: Vec::new() })
    }

    /// One turn over all connections: at most one bulk frame of each.
    fn collect(&mut self, events: &mut Vec<Event>) {
        let mut links = lock(&self.hub.links);
        let mut ended = Vec::new();
        for (number, link) in links.iter_mut() {
            let connection = ConnectionId(*number);
            if link.server_closed {
                continue;
            }
            if !link.announced {
                link.announced = true;
                events.push(Event::Opened { connection, peer: format!("loopback client {number}") });
            }
            while let Some(front) = link.to_server.front() {
                let Some(bulk) = copied(&self.pool, &self.hub.target, &front.bulk) else { break };
                let had_bulk = bulk.is_some();
                let frame = link.to_server.pop_front().expect("the front was just looked at");
                link.to_server_bytes -= frame.bytes();
                events.push(Event::Frame { connection, message: frame.message, bulk });
                if had_bulk {
                    // Others first; a nudge brings the port back to the rest.
                    self.hub.target.nudge();
                    break;
                }
            }
            if link.client_closed && link.to_server.is_empty() {
                ended.push(*number);
                events.push(Event::Closed { connection, reason: CloseReason::PeerClosed });
            }
        }
        for number in ended {
            links.remove(&number);
        }
        drop(links);
        self.hub.room.notify_all();
    }
}

/// The bulk in pool memory: `None` while the pool is exhausted, `Some(None)` if there is no bulk.
fn copied(pool: &BufferPool, target: &Arc<WakeTarget>, bulk: &[u8]) -> Option<Option<Buffer>> {
    if bulk.is_empty() {
        return Some(None);
    }
    let mut buffer = pool.take_or_wait(bulk.len(), target)?;
    buffer.copy_from_slice(bulk);
    Some(Some(buffer))
}

impl ServerPort for LoopbackPort {
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()> {
        if self.closed.is_empty() && self.hub.target.may_sleep() {
            sys::wait(self.interrupt.as_raw_fd(), Interest::Readable, timeout)?;
        }
        self.hub.target.awake();
        self.interrupt.clear();
        if self.hub.target.take_reasons().woken {
            events.push(Event::Woken);
        }
        self.collect(events);
        events.append(&mut self.closed);
        Ok(())
    }

    fn send(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
        bulk: Option<Bulk>,
    ) -> Result<(), SendError> {
        let bulk = bulk.map_or_else(Vec::new, |bulk| bulk.as_bytes().to_vec());
        FrameHeader::new(message.len(), bulk.len()).map_err(SendError::TooLarge)?;
        let mut links = lock(&self.hub.links);
        let link = links.get_mut(&connection.0).filter(|link| !link.server_closed && !link.client_closed);
        let link = link.ok_or(SendError::Gone)?;
        let frame = HubFrame { message: message.to_vec(), bulk };
        let queued_bytes = link.to_client_bytes;
        if queued_bytes > 0 && queued_bytes + frame.bytes() > self.options.queued_bytes_max {
            return Err(SendError::Overflow { queued_bytes });
        }
        link.to_client_bytes += frame.bytes();
        link.to_client.push_back(frame);
        link.readiness.set();
        Ok(())
    }

    /// Nothing to do: frames are with the client as soon as they are queued.
    fn flush(&mut self) {}

    fn close(&mut self, connection: ConnectionId) {
        let mut links = lock(&self.hub.links);
        let Some(link) = links.get_mut(&connection.0).filter(|link| !link.server_closed) else { return };
        link.close_here();
        if link.client_closed {
            links.remove(&connection.0);
        }
        drop(links);
        self.hub.room.notify_all();
        self.closed.push(Event::Closed { connection, reason: CloseReason::ClosedHere });
    }

    fn waker(&self) -> Waker {
        Waker::new(self.hub.target.clone())
    }

    fn local_address(&self) -> Address {
        Address::Loopback(self.name.clone())
    }
}

impl HubLink {
    fn close_here(&mut self) {
        self.server_closed = true;
        self.to_server.clear();
        self.to_server_bytes = 0;
        self.readiness.set();
    }
}

impl Drop for LoopbackPort {
    fn drop(&mut self) {
        lock(&HUBS).remove(&self.name);
        for link in lock(&self.hub.links).values_mut() {
            link.close_here();
        }
        self.hub.room.notify_all();
    }
}
