//! What clients have asked of the data service and what has come of it so far.

use ccpfs_transport::{Buffer, ConnectionId};
use ccpfs_types::{ClientId, Extent, LockId, RequestId, ResourceId};
use ccpfs_wire::{LockRef, Message, Status};
use std::sync::Arc;

use crate::device_pool::Measure;

/// Whom to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyTo {
    pub(crate) connection: ConnectionId,
    pub(crate) request: RequestId,
}

/// An operation under way, numbered by the data service.
#[derive(Debug)]
pub(crate) enum Operation {
    /// A flush.
    Write {
        reply: ReplyTo,
        client: ClientId,
        urgent: bool,
        /// Stripes that have not acknowledged their part.
        stripes: usize,
        errno: Option<i32>,
        releases: Vec<LockRef>,
        bulk: Option<Arc<Buffer>>,
        /// Where this flush's bytes begin in the frame's bulk.
        base: usize,
    },
    Truncate {
        reply: ReplyTo,
    },
    Read {
        reply: ReplyTo,
        resource: ResourceId,
        extent: Extent,
    },
    /// Waits for the jobs before it on all its stripes, then syncs.
    Sync {
        reply: ReplyTo,
        client: ClientId,
        stripes: usize,
        errno: Option<i32>,
        resources: Vec<ResourceId>,
    },
    /// Waits for the jobs before it on all its stripes, then removes.
    Destroy {
        reply: ReplyTo,
        stripes: usize,
        resources: Vec<ResourceId>,
    },
    /// Finds out the length of a stripe for a glimpse.
    Measure {
        glimpse: u64,
        resource: ResourceId,
        /// Where the writes end that have not reached the device.
        pending_end: u64,
    },
}

/// What the data service wants done by the shard.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Answer a request.
    Reply { connection: ConnectionId, message: Message },
    /// Answer a read.
    Data { connection: ConnectionId, message: Message, bulk: Buffer },
    /// These locks came back with a flush.
    Release { client: ClientId, locks: Vec<LockRef> },
    /// The length that a glimpse asked for.
    Measured { glimpse: u64, result: Result<Measure, i32> },
    /// No job of this stripe is left.
    Quiet { resource: ResourceId },
}

/// A result as it is told on the wire.
pub(crate) fn status(errno: Option<i32>) -> Status {
    match errno {
        None => Status::Ok,
        Some(errno) => Status::Errno(errno),
    }
}

/// The answer to a truncate, a sync, or a destroy.
pub(crate) fn done(reply: ReplyTo, errno: Option<i32>) -> Outcome {
    let message = Message::Done { request: reply.request, status: status(errno) };
    Outcome::Reply { connection: reply.connection, message }
}

/// The answer to a flush.
pub(crate) fn written(reply: ReplyTo, errno: Option<i32>) -> Outcome {
    let message = Message::WriteReply { request: reply.request, status: status(errno) };
    Outcome::Reply { connection: reply.connection, message }
}

/// The answer to a read that brings no data.
pub(crate) fn unread(reply: ReplyTo, errno: i32) -> Outcome {
    let message =
        Message::ReadReply { request: reply.request, status: Status::Errno(errno), stripe_bytes: 0 };
    Outcome::Reply { connection: reply.connection, message }
}

/// A list of locks by resource, as the lock service takes it.
pub(crate) fn by_lock(locks: Vec<LockRef>) -> impl Iterator<Item = (ResourceId, LockId)> {
    locks.into_iter().map(|lock| (lock.resource, lock.lock))
}
