//! The server's side: the port trait that one shard thread drives, its events and errors, and `listen`.

use std::io;
use std::time::Duration;

use thiserror::Error;

use crate::address::Address;
use crate::buffer::{Buffer, BufferPool};
use crate::frame::FrameError;
use crate::loopback::LoopbackPort;
use crate::socket_port::SocketPort;
pub use crate::wake::Waker;

/// One connection of one port. Never used again for another connection of the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(crate) u64);

/// What happened on a port. Every `Opened` is followed by exactly one `Closed` of the same connection.
#[derive(Debug)]
pub enum Event {
    /// A client has connected.
    Opened {
        /// The new connection.
        connection: ConnectionId,
        /// Who it is, for messages to people: an address or a process.
        peer: String,
    },
    /// A whole frame has arrived.
    Frame {
        /// From whom.
        connection: ConnectionId,
        /// The message as it was sent.
        message: Vec<u8>,
        /// The bulk, if there was any.
        bulk: Option<Buffer>,
    },
    /// The connection is gone, also after [`ServerPort::close`].
    Closed {
        /// Which one.
        connection: ConnectionId,
        /// Why.
        reason: CloseReason,
    },
    /// A [`Waker`] of this port was used since the last such event.
    Woken,
}

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    /// The peer closed it between two frames.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The peer closed it, or died, inside a frame.
    #[error("the peer closed the connection inside a frame")]
    Truncated,
    /// This side closed it.
    #[error("the connection was closed on this side")]
    ClosedHere,
    /// The peer sent something that is not a frame.
    #[error("malformed frame: {0}")]
    Malformed(FrameError),
    /// The peer stopped in the middle of a bulk for longer than the stall limit.
    #[error("the peer stopped inside a bulk transfer")]
    Stalled,
    /// The system reported an error.
    #[error("connection failed: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// The system's error number.
        errno: i32,
    },
}

/// Bulk on its way out. It is kept until the peer's kernel has it.
#[derive(Debug)]
pub enum Bulk {
    /// Memory of a pool; the cheapest way.
    Buffer(Buffer),
    /// Any other bytes.
    Bytes(Vec<u8>),
}

impl Bulk {
    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Bulk::Buffer(buffer) => buffer,
            Bulk::Bytes(bytes) => bytes,
        }
    }
}

impl From<Buffer> for Bulk {
    fn from(buffer: Buffer) -> Bulk {
        Bulk::Buffer(buffer)
    }
}

impl From<Vec<u8>> for Bulk {
    fn from(bytes: Vec<u8>) -> Bulk {
        Bulk::Bytes(bytes)
    }
}

/// Why a frame was not queued. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SendError {
    /// The connection has ended; its `Closed` event is out or on its way.
    #[error("the connection is gone")]
    Gone,
    /// The peer does not read: more than the limit is queued already. Close the connection.
    #[error("the peer does not read and {queued_bytes} bytes are queued")]
    Overflow {
        /// Bytes that wait for the peer.
        queued_bytes: usize,
    },
    /// The frame is over a limit.
    #[error("frame refused: {0}")]
    TooLarge(FrameError),
}

/// How a port behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortOptions {
    /// How long `poll` looks again and again, yielding the processor, before it blocks. Default zero.
    pub busy_poll: Duration,
    /// Bytes that may wait for a peer that does not read. Default 64 MiB; a larger single frame is
    /// taken when nothing else waits.
    pub queued_bytes_max: usize,
    /// A bulk transfer that moves no byte for this long ends its connection, because it holds
    /// memory that others wait for. Default 60 s.
    pub stall_timeout: Duration,
    /// Connections at the same time; more are closed at once. Default 4,096, each of which costs some 70 KiB.
    pub connections_max: usize,
}

impl Default for PortOptions {
    fn default() -> Self {
        PortOptions {
            busy_poll: Duration::ZERO,
            queued_bytes_max: 64 << 20,
            stall_timeout: Duration::from_secs(60),
            connections_max: 4096,
        }
    }
}

/// A listening port, driven by one thread. Dropping it ends all its connections.
pub trait ServerPort: Send {
    /// Sends what is queued, waits until something happens or `timeout` passes, and appends what happened.
    ///
    /// May return early without events. Small messages are served before bulk, and bulk of all connections
    /// together takes a bounded time per call. An error means that the port itself is unusable.
    fn poll(&mut self, events: &mut Vec<Event>, timeout: Option<Duration>) -> io::Result<()>;

    /// Queues one frame. It goes out with the next [`ServerPort::flush`] or `poll`, together with others.
    fn send(&mut self, connection: ConnectionId, message: &[u8], bulk: Option<Bulk>)
    -> Result<(), SendError>;

    /// Sends what is queued, as far as the peers take it without blocking.
    fn flush(&mut self);

    /// Ends a connection after one attempt to send what is queued. `Closed` follows from the next `poll`; no
    /// `Frame` comes before it any more. Unknown or ended connections are ignored.
    fn close(&mut self, connection: ConnectionId);

    /// Something other threads can wake `poll` with.
    fn waker(&self) -> Waker;

    /// Where this port listens; a TCP port 0 is resolved.
    fn local_address(&self) -> Address;
}

/// Why a port could not be opened.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Somebody listens there already.
    #[error("cannot listen on {address}: the address is in use by another server")]
    AddressInUse {
        /// The wanted address.
        address: Address,
    },
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    Os {
        /// The wanted address.
        address: Address,
        /// What the system said.
        source: io::Error,
    },
}

impl ListenError {
    fn new(address: &Address, source: io::Error) -> ListenError {
        let address = address.clone();
        if source.kind() == io::ErrorKind::AddrInUse {
            ListenError::AddressInUse { address }
        } else {
            ListenError::Os { address, source }
        }
    }
}

/// Opens a port. Incoming bulk is received into buffers of `pool`; while that is exhausted, connections
/// with bulk under way are not read. A Unix socket file that nobody listens on any more is replaced.
pub fn listen(
    address: &Address,
    pool: BufferPool,
    options: PortOptions,
) -> Result<Box<dyn ServerPort>, ListenError> {
    let port: io::Result<Box<dyn ServerPort>> = match address {
        Address::Tcp { .. } | Address::Unix(_) => {
            SocketPort::listen(address, pool, options).map(|port| Box::new(port) as _)
        }
        Address::Loopback(name) => LoopbackPort::listen(name, pool, options).map(|port| Box::new(port) as _),
    };
    port.map_err(|source| ListenError::new(address, source))
}
