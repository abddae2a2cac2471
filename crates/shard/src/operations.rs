//! What clients have asked of the data service and what has come of it so far.

use crate::interface::BulkRef;
use alloc::vec::Vec;
use ccpfs_types::{ClientId, Extent, LockId, RequestId, ResourceId};
use ccpfs_wire::{Channel, LockRef, Message, Status};

/// Whom to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReplyTo {
    pub(crate) client: ClientId,
    /// The connection over which the question came.
    pub(crate) channel: Channel,
    pub(crate) request: RequestId,
}

/// An operation under way, numbered by the data service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Operation {
    /// A flush.
    Write {
        reply: ReplyTo,
        urgent: bool,
        /// Stripes that have not acknowledged their part.
        stripes: usize,
        errno: Option<i32>,
        releases: Vec<LockRef>,
        bulk: Option<BulkRef>,
    },
    /// Or a hole.
    Truncate {
        reply: ReplyTo,
    },
    Map {
        reply: ReplyTo,
        resource: ResourceId,
        extent: Extent,
    },
    List {
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

/// A result as it is told on the wire.
pub(crate) fn status(errno: Option<i32>) -> Status {
    match errno {
        None => Status::Ok,
        Some(errno) => Status::Errno(errno),
    }
}

/// The answer to a truncate, a hole, a sync, or a destroy.
pub(crate) fn done(reply: ReplyTo, errno: Option<i32>) -> Message {
    Message::Done { request: reply.request, status: status(errno) }
}

/// The answer to a flush.
pub(crate) fn written(reply: ReplyTo, errno: Option<i32>) -> Message {
    Message::WriteReply { request: reply.request, status: status(errno) }
}

/// The answer to a read that brings no data.
pub(crate) fn unread(reply: ReplyTo, errno: i32) -> Message {
    Message::ReadReply { request: reply.request, status: Status::Errno(errno), stripe_bytes: 0 }
}

/// The answer to a question for a map that brings none.
pub(crate) fn unmapped(reply: ReplyTo, errno: i32) -> Message {
    let status = Status::Errno(errno);
    Message::MapReply { request: reply.request, status, data: Vec::new(), known_to: 0 }
}

/// The answer to a question for what is on the device that brings nothing.
pub(crate) fn unlisted(reply: ReplyTo, errno: i32) -> Message {
    let status = Status::Errno(errno);
    Message::ListReply { request: reply.request, status, stripes: Vec::new(), more: false }
}

/// A list of locks by resource, as the lock table takes it.
pub(crate) fn by_lock(locks: Vec<LockRef>) -> impl Iterator<Item = (ResourceId, LockId)> {
    locks.into_iter().map(|lock| (lock.resource, lock.lock))
}
