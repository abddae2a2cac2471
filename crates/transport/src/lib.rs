//! ccPFS port: small messages plus bulk, over TCP, Unix sockets or in-process loopback.
//!
//! A frame is one small message and, optionally, bulk bytes. This crate carries both and understands neither. A
//! client [`connect`]s to a shard and sends and receives from many threads, blocking; a shard [`listen`]s and
//! drives its [`ServerPort`] from one thread, by events. Callers see traits only, so that a
//! provider with registered memory and one-sided reads fits behind the same calls.

mod address;
mod buffer;
mod connection;
mod frame;
mod inbound;
mod listener;
mod loopback;
mod loopback_client;
mod outbound;
mod port;
mod scheduling;
mod socket_connection;
mod socket_link;
mod socket_options;
mod socket_port;
mod sys;
mod wake;

pub use address::{Address, AddressError};
pub use buffer::{Buffer, BufferPool};
pub use connection::{
    ConnectError, ConnectOptions, Connection, FrameSink, LinkError, Received, Wait, connect, connect_with,
    set_descriptor_minimum,
};
pub use frame::{
    FRAME_BULK_BYTES_MAX, FRAME_FORMAT_VERSION, FRAME_HEADER_BYTES, FRAME_MESSAGE_BYTES_MAX, FrameError,
    FrameHeader,
};
pub use port::{
    Bulk, CloseReason, ConnectionId, Event, ListenError, PortOptions, SendError, ServerPort, Waker, listen,
};
pub use scheduling::prefer_latency;
