//! The client's side of a connection: the trait, its options and errors, and `connect`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use thiserror::Error;

use crate::address::Address;
use crate::frame::FrameError;
use crate::loopback;
use crate::socket_connection::SocketConnection;

/// A client's connection to one shard. All methods may be called from many threads at once.
///
/// A provider with remote memory access fits behind the same calls: `send` announces the caller's memory and
/// returns when the server has fetched it; `bulk_target` is asked when a reply has been announced, and the bulk is
/// then fetched straight into it. Memory is registered on first use, so callers do not see it.
pub trait Connection: Send + Sync {
    /// Sends one frame; when it returns, the caller may reuse all memory. Threads are served one after the other.
    ///
    /// Every error but [`LinkError::TooLarge`] ends the connection for everybody.
    fn send(&self, message: &[u8], bulk: &[IoSlice<'_>]) -> Result<(), LinkError>;

    /// Hands the next frame to `sink`, waiting for it as `wait` says. One thread receives at a time, others queue.
    ///
    /// On time-out, bytes that have arrived are kept, and the next call goes on with them.
    fn receive(&self, wait: Wait, sink: &mut dyn FrameSink) -> Result<Received, LinkError>;

    /// Hands every frame that is here already to `sink`, without blocking, and returns how many there were.
    ///
    /// After it, either [`Connection::readiness`] stays readable, or nothing complete is left over: a
    /// thread may go back to `poll`. While another thread is receiving it does nothing.
    fn receive_ready(&self, sink: &mut dyn FrameSink) -> Result<usize, LinkError>;

    /// A descriptor that is readable while `receive_ready` has something to do (or an error to report). Valid as
    /// long as the connection; not to be read from.
    fn readiness(&self) -> RawFd;

    /// Ends the connection; blocked senders and receivers wake with [`LinkError::Closed`]. Idempotent.
    fn close(&self);
}

/// Who takes received frames.
pub trait FrameSink {
    /// Where the bulk of the frame with this message goes. Called only for frames with bulk.
    ///
    /// It may be called several times for one frame, while its bytes arrive: all answers
    /// must describe the same memory (or none, once nobody wants the bulk any more). Excess bulk is discarded.
    fn bulk_target(&mut self, message: &[u8], bulk_bytes: usize) -> Vec<IoSliceMut<'_>>;

    /// A whole frame is here; its bulk of `bulk_bytes` is in the target.
    fn frame(&mut self, message: &[u8], bulk_bytes: usize);
}

/// How long `receive` waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until a frame comes or the connection ends.
    Forever,
    /// At most this long; zero takes only what is here.
    For(Duration),
}

/// What `receive` came back with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// One frame went to the sink.
    Frame,
    /// The wait passed without a whole frame.
    TimedOut,
}

/// How a client's connection behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// How long a receiver looks again and again, yielding the processor, before it blocks. Default zero: a wake-up
    /// costs some 40 us, spinning costs a core, and clients often share cores with servers.
    pub busy_poll: Duration,
    /// A send that moves no byte for this long fails. Default 60 s; a TCP peer that acknowledges
    /// nothing for this long is given up as well.
    pub stall_timeout: Duration,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions { busy_poll: Duration::ZERO, stall_timeout: Duration::from_secs(60) }
    }
}

/// Why no connection came about.
#[derive(Debug, Error)]
#[error("cannot connect to {address}: {source}")]
pub struct ConnectError {
    /// Where to.
    pub address: Address,
    /// What the system said.
    pub source: io::Error,
}

/// Why a connection ended, or a frame was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LinkError {
    /// This side closed it.
    #[error("the connection was closed on this side")]
    Closed,
    /// The peer closed it, or died.
    #[error("the peer closed the connection")]
    PeerClosed,
    /// The peer took no byte for `waited`.
    #[error("the peer has not taken a byte for {} s", waited.as_secs_f32())]
    Stalled {
        /// The stall limit that passed.
        waited: Duration,
    },
    /// The peer sent something that is not a frame.
    #[error("malformed frame from the peer: {0}")]
    Malformed(FrameError),
    /// The caller's frame is over a limit; nothing was sent and the connection lives on.
    #[error("frame refused: {0}")]
    TooLarge(FrameError),
    /// The system reported an error.
    #[error("connection failed: {}", io::Error::from_raw_os_error(*errno))]
    Os {
        /// The system's error number.
        errno: i32,
    },
}

impl LinkError {
    /// What an error of a socket call means for the link.
    pub(crate) fn from_io(error: &io::Error) -> LinkError {
        match error.raw_os_error() {
            Some(libc::EPIPE | libc::ECONNRESET) => LinkError::PeerClosed,
            Some(errno) => LinkError::Os { errno },
            None => LinkError::Os { errno: libc::EIO },
        }
    }
}

/// Has all later connections of this process use descriptors of at least `minimum`, as far as the process's limit
/// allows. Without a call, the lowest free ones are used.
///
/// A library inside other people's programs keeps clear of the low numbers, which shells and daemons
/// take for themselves. The setting is the process's, as the descriptors are.
pub fn set_descriptor_minimum(minimum: i32) {
    DESCRIPTOR_MINIMUM.store(minimum, Ordering::Relaxed);
}

static DESCRIPTOR_MINIMUM: AtomicI32 = AtomicI32::new(0);

/// What [`set_descriptor_minimum`] was told last.
pub(crate) fn descriptor_minimum() -> i32 {
    DESCRIPTOR_MINIMUM.load(Ordering::Relaxed)
}

/// Connects to a server's shard with default options. `timeout` bounds each connection attempt, but not the
/// lookup of a host name.
pub fn connect(address: &Address, timeout: Duration) -> Result<Arc<dyn Connection>, ConnectError> {
    connect_with(address, timeout, ConnectOptions::default())
}

/// Like [`connect`], with options.
pub fn connect_with(
    address: &Address,
    timeout: Duration,
    options: ConnectOptions,
) -> Result<Arc<dyn Connection>, ConnectError> {
    let connection: io::Result<Arc<dyn Connection>> = match address {
        Address::Tcp { host, port } => {
            SocketConnection::connect_tcp(host, *port, timeout, options).map(|link| Arc::new(link) as _)
        }
        Address::Unix(path) => {
            SocketConnection::connect_unix(path, timeout, options).map(|link| Arc::new(link) as _)
        }
        Address::Loopback(name) => loopback::connect(name, options).map(|link| Arc::new(link) as _),
    };
    connection.map_err(|source| ConnectError { address: address.clone(), source })
}
