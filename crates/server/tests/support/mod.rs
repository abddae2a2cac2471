//! A raw client for tests: speaks the wire protocol over the transport, one message at a time.
#![allow(
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    dead_code,
    unreachable_pub,
    reason = "helpers of tests; not every test uses each"
)]

use ccpfs_config::ServerConfig;
use ccpfs_device::{Device, MemoryDevice};
use ccpfs_region::Region;
use ccpfs_server::{RunningServer, ShardStorage, start_on};
use ccpfs_transport::{Address, Connection, FrameSink, LinkError, Received, Wait, connect};
use ccpfs_types::{ClientId, Extent, FileId, LockId, LockMode, LockState, RequestId, ResourceId, Sn, Terms};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, GrantedLock, LockRef, Message, Status, WritePiece, decode_batch, encode_into};
use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No test waits longer than this for a message; it is only reached when the message never comes.
const PATIENCE: Duration = Duration::from_secs(60);

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number that no other test of this process has.
pub fn unique() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A loopback address of its own.
pub fn address() -> Address {
    Address::Loopback(format!("server-test-{}-{}", std::process::id(), unique()))
}

/// A configuration for a server in memory.
pub fn config() -> ServerConfig {
    ServerConfig::with_defaults(address(), Path::new("/nonexistent"))
}

/// A server on `device`, in its `epoch`-th life.
pub fn serve_on(config: ServerConfig, device: Arc<dyn Device>, epoch: u64) -> RunningServer {
    start_on(config, vec![ShardStorage { device, epoch }]).unwrap()
}

/// A server in memory.
pub fn serve(config: ServerConfig) -> RunningServer {
    serve_on(config, Arc::new(MemoryDevice::new()), 1)
}

/// A stripe of a file nobody else uses.
pub fn resource() -> ResourceId {
    let mut file = [0; 16];
    file[..8].copy_from_slice(&unique().to_le_bytes());
    ResourceId { file: FileId(file), stripe: 0 }
}

/// `[start, end)`.
pub fn extent(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

#[derive(Default)]
struct Inbox {
    messages: VecDeque<(Message, Vec<u8>)>,
    bulk: Vec<u8>,
}

impl FrameSink for Inbox {
    fn bulk_target(&mut self, _message: &[u8], bulk_bytes: usize) -> Vec<IoSliceMut<'_>> {
        self.bulk.resize(bulk_bytes, 0);
        vec![IoSliceMut::new(&mut self.bulk)]
    }

    fn frame(&mut self, message: &[u8], _bulk_bytes: usize) {
        let mut bulk = std::mem::take(&mut self.bulk);
        for message in decode_batch(message) {
            self.messages.push_back((message.unwrap(), std::mem::take(&mut bulk)));
        }
    }
}

/// One connection.
pub struct Line {
    pub connection: Arc<dyn Connection>,
    inbox: Mutex<Inbox>,
}

impl Line {
    /// Connects, without a Hello.
    pub fn open(address: &Address) -> Line {
        Line { connection: connect(address, PATIENCE).unwrap(), inbox: Mutex::default() }
    }

    /// Connects and introduces itself; the answer is still to be received.
    pub fn hello(address: &Address, client: ClientId, channel: Channel, version: u32) -> Line {
        let line = Line::open(address);
        line.send(&Message::Hello { version, client, channel, name: "test".into() });
        line
    }

    pub fn send(&self, message: &Message) {
        self.send_with(message, &[]);
    }

    pub fn send_with(&self, message: &Message, bulk: &[u8]) {
        self.try_send(message, bulk).unwrap();
    }

    pub fn try_send(&self, message: &Message, bulk: &[u8]) -> Result<(), LinkError> {
        let mut bytes = Vec::new();
        encode_into(message, &mut bytes);
        let slices = [IoSlice::new(bulk)];
        self.connection.send(&bytes, if bulk.is_empty() { &[] } else { &slices })
    }

    /// The next message.
    pub fn receive(&self) -> Message {
        self.receive_with().0
    }

    /// The next message and its bulk.
    pub fn receive_with(&self) -> (Message, Vec<u8>) {
        self.try_receive().unwrap()
    }

    /// The next message and its bulk, or why there is none.
    pub fn try_receive(&self) -> Result<(Message, Vec<u8>), LinkError> {
        let mut inbox = self.inbox.lock().unwrap();
        loop {
            if let Some(found) = inbox.messages.pop_front() {
                return Ok(found);
            }
            match self.connection.receive(Wait::For(PATIENCE), &mut *inbox)? {
                Received::Frame => {}
                Received::TimedOut => panic!("no message came"),
            }
        }
    }

    /// Receives until the server closes the connection.
    pub fn until_closed(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            match self.try_receive() {
                Ok((message, _)) => messages.push(message),
                Err(_) => return messages,
            }
        }
    }
}

/// A client with its three connections.
pub struct Client {
    pub id: ClientId,
    pub control: Line,
    pub callback: Line,
    pub bulk: Line,
    pub epoch: u64,
    next_request: AtomicU64,
}

impl Client {
    pub fn connect(address: &Address) -> Client {
        Client::connect_as(address, ClientId(1_000_000 + unique()))
    }

    pub fn connect_as(address: &Address, id: ClientId) -> Client {
        let mut epoch = 0;
        let mut line = |channel| {
            let line = Line::hello(address, id, channel, PROTOCOL_VERSION);
            match line.receive() {
                Message::Welcome { epoch: found, .. } => epoch = found,
                other => panic!("{other:?}"),
            }
            line
        };
        let (control, callback, bulk) =
            (line(Channel::Control), line(Channel::Callback), line(Channel::Bulk));
        Client { id, control, callback, bulk, epoch, next_request: AtomicU64::new(1) }
    }

    pub fn request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Sends a request for a lock with exactly this range.
    pub fn enqueue(&self, resource: ResourceId, mode: LockMode, range: Extent) -> RequestId {
        let (request, region) = (self.request(), Region::from(range));
        self.control.send(&Message::Enqueue {
            request,
            resource,
            mode,
            required: region.clone(),
            desired: region,
            terms: Terms::WAIT,
        });
        request
    }

    /// The next message on the control connection, which must be a grant.
    pub fn granted(&self) -> GrantedLock {
        match self.control.receive() {
            Message::Grant { granted, .. } => granted,
            other => panic!("{other:?}"),
        }
    }

    pub fn lock(&self, resource: ResourceId, mode: LockMode, range: Extent) -> GrantedLock {
        self.enqueue(resource, mode, range);
        self.granted()
    }

    /// The next message on the callback connection, which must be a revocation of this lock.
    pub fn revoked(&self, lock: LockId) {
        match self.callback.receive() {
            Message::Revoke { lock: found, .. } => assert_eq!(found, lock),
            other => panic!("{other:?}"),
        }
    }

    pub fn acknowledge(&self, resource: ResourceId, lock: &GrantedLock) {
        self.callback.send(&Message::RevokeAck { resource, lock: lock.lock, mode: lock.mode });
    }

    pub fn release(&self, resource: ResourceId, lock: LockId) {
        self.callback.send(&Message::Release { locks: vec![LockRef { resource, lock }] });
    }

    /// Sends a flush of one piece.
    pub fn send_flush(&self, resource: ResourceId, start: u64, data: &[u8], sn: Sn, releases: &[LockId]) {
        let pieces = match Extent::with_length(start, data.len() as u64) {
            Some(extent) => vec![WritePiece { resource, extent, sn }],
            None => vec![],
        };
        let releases = releases.iter().map(|lock| LockRef { resource, lock: *lock }).collect();
        let message = Message::Write { request: self.request(), urgent: false, pieces, releases };
        self.bulk.send_with(&message, data);
    }

    /// The next answer to a flush.
    pub fn flushed(&self) -> Status {
        match self.bulk.receive() {
            Message::WriteReply { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn flush(&self, resource: ResourceId, start: u64, data: &[u8], sn: Sn) -> Status {
        self.send_flush(resource, start, data, sn, &[]);
        self.flushed()
    }

    pub fn read(&self, resource: ResourceId, range: Extent) -> (Status, Vec<u8>, u64) {
        self.control.send(&Message::Read { request: self.request(), resource, extent: range });
        match self.control.receive_with() {
            (Message::ReadReply { status, stripe_bytes, .. }, data) => (status, data, stripe_bytes),
            (other, _) => panic!("{other:?}"),
        }
    }

    /// Sends a request that [`Message::Done`] answers, and waits for the answer.
    pub fn done(&self, message: &Message) -> Status {
        self.control.send(message);
        match self.control.receive() {
            Message::Done { status, .. } => status,
            other => panic!("{other:?}"),
        }
    }

    pub fn truncate(&self, resource: ResourceId, length: u64, sn: Sn) -> Status {
        self.done(&Message::Truncate { request: self.request(), resource, length, sn })
    }

    pub fn sync(&self, resource: ResourceId) -> Status {
        self.done(&Message::Sync { request: self.request(), resources: vec![resource] })
    }

    pub fn destroy(&self, resource: ResourceId) -> Status {
        self.done(&Message::Destroy { request: self.request(), resources: vec![resource] })
    }

    pub fn send_glimpse(&self, resource: ResourceId) {
        self.control.send(&Message::Glimpse { request: self.request(), resource });
    }

    pub fn glimpsed(&self) -> u64 {
        match self.control.receive() {
            Message::GlimpseReply { status: Status::Ok, stripe_bytes, .. } => stripe_bytes,
            other => panic!("{other:?}"),
        }
    }

    /// A counter of the server.
    pub fn status(&self, name: &str) -> u64 {
        self.control.send(&Message::Status { request: self.request() });
        match self.control.receive() {
            Message::StatusReply { names, values, .. } => {
                let at = names.iter().position(|found| found == name).unwrap();
                values[at]
            }
            other => panic!("{other:?}"),
        }
    }

    /// Returns when the server has taken in what was sent on the callback connection before.
    pub fn ping(&self) {
        let request = self.request();
        self.callback.send(&Message::Ping { request });
        assert_eq!(self.callback.receive(), Message::Pong { request });
    }

    /// As [`Client::ping`], whatever else arrives before the answer.
    pub fn ping_past_revocations(&self) {
        let request = self.request();
        self.callback.send(&Message::Ping { request });
        while self.callback.receive() != (Message::Pong { request }) {}
    }

    pub fn drop_connections(&self) {
        for line in [&self.control, &self.callback, &self.bulk] {
            line.connection.close();
        }
    }
}

/// Whether a lock was granted CANCELING.
pub fn is_canceling(lock: &GrantedLock) -> bool {
    lock.state == LockState::Canceling
}
