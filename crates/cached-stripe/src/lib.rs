//! The rules of one stripe in one client, put together: its cached locks and its cached data.
//!
//! *What*: a [`CachedStripe`] lets the lock rule and the write-back rule meet (what the one wants flushed goes to the other,
//! what that has flushed goes back), keeps what both need (glimpses, barriers, waiting readers and truncates, what no
//! fsync has covered), and turns the rest into messages. A shell gives it what happens and carries out its effects.
//!
//! *Invariants*: an operation whose lock was lost can mark nothing dirty or valid, and cut nothing ([`Effect::Void`]); a
//! glimpse is answered, and the own size told, only when no flush that carries a release is unanswered that was under way at
//! the question (R24); a truncate is sent only when no flush above the cut is unanswered (I4); an fsync does not vouch for
//! what an earlier life of the server has acknowledged (I9, R30); after [`Input::Lost`] nothing of the lost session is sent.
//!
//! *Not here*: page memory, connections, which session a message came over (the shell gives a stripe only what came over the
//! session that it has begun), time but for [`Input::Written`], when to flush for room.
//!
//! Differences from what users might expect: writes and fetches name their *operation*, not a number or a generation, and
//! what waits (reads, truncates, measures) waits inside, to be answered by an effect; there is nothing to ask twice.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

#[cfg(test)]
mod section_tests;
mod stripe;
mod sync;
#[cfg(test)]
mod tests;
mod wait;

pub use stripe::CachedStripe;

use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, OperationId, RequestId, Sn, Terms};
use ccpfs_wire::{Channel, LockRef, Message};
use ccpfs_writeback::{BarrierId, JobId};

/// [`Settings::put_off_max`] of the product: bounds the servers' lock tables.
pub const PUT_OFF_MAX: usize = 256;

/// Error of whoever loses a lock, or data, with the session (errno of Linux).
pub const EIO: i32 = 5;

/// What a stripe is set to for one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The lock cache.
    pub locks: ccpfs_dlm::client::Settings,
    /// Canceled locks whose flush nobody waits for, before some are flushed.
    pub put_off_max: usize,
    /// Which life of the server the session is with (from its Welcome).
    pub epoch: u64,
}

/// Everything that can happen to a cached stripe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A session begins. What is left of an earlier one is lost first.
    Begin {
        /// What it says.
        settings: Settings,
    },
    /// An operation begins and needs a lock: [`Effect::Answer`], at once if a cached lock serves.
    Acquire {
        /// The operation: a number that is used once.
        operation: OperationId,
        /// What it will do.
        mode: LockMode,
        /// What it needs covered.
        required: Region,
        /// What would be welcome.
        desired: Region,
        /// The number to use if a request must be sent; not used otherwise.
        request: RequestId,
        /// Whether to wait for others, or be answered EAGAIN; and for whom.
        terms: Terms,
    },
    /// An operation begins under the lock that another one uses, whoever waits for that lock: it is a part of the other one, as a
    /// page that a hold serves is. [`Effect::Answer`] at once; EIO if that one's lock was lost.
    Join {
        /// The operation: a number that is used once.
        operation: OperationId,
        /// Whose lock it uses.
        under: OperationId,
        /// Whether it writes; only under an operation whose mode allows it.
        writes: bool,
    },
    /// An operation that holds its lock for long wants to hear when that is wanted back, or gone: [`Effect::Wanted`], once; at once
    /// if it is already so.
    Watch {
        /// The operation.
        operation: OperationId,
    },
    /// An operation does not use its lock any longer. Ignored if the lock was lost.
    Finish {
        /// The operation.
        operation: OperationId,
    },
    /// The server says something about this stripe: Grant, Denied, Revoke, GlimpseAsk. Anything else is ignored, and so is what
    /// names another stripe.
    Message(Message),
    /// An operation has put bytes into the pages. [`Effect::Void`] if its lock was lost.
    Written {
        /// The operation.
        operation: OperationId,
        /// Which bytes of the stripe; its lock covers them.
        extent: Extent,
        /// The time, nanoseconds since 1970.
        now_ns: i64,
    },
    /// Bytes that were missing have been put into the pages for an operation. [`Effect::Void`] if its lock was lost.
    Fetched {
        /// The operation.
        operation: OperationId,
        /// Which; only those still missing become valid. The operation's lock covers them.
        extent: Extent,
    },
    /// An operation wants to read: [`Effect::Missing`], as soon as nothing of it is on its way out under an older lock.
    Look {
        /// The operation.
        operation: OperationId,
        /// Which bytes.
        extent: Extent,
        /// How many behind them it will want next.
        ahead_bytes: u64,
    },
    /// An operation wants the stripe cut: as soon as no flush above is under way the cache forgets what lies above, and
    /// [`Effect::Ask`] sends the Truncate. [`Effect::Void`] if its lock was lost.
    Truncate {
        /// The operation.
        operation: OperationId,
        /// New length of the stripe in bytes.
        length: u64,
        /// The number of the message.
        request: RequestId,
    },
    /// An operation wants a hole in the stripe, whose length stays: as soon as no flush of it is under way the cache forgets it,
    /// and [`Effect::Ask`] sends the Punch. [`Effect::Void`] if its lock was lost, or if something in it is dirty: that must be
    /// flushed before, because it may be what ends the file.
    Punch {
        /// The operation.
        operation: OperationId,
        /// Which bytes; its lock covers them.
        extent: Extent,
        /// The number of the message.
        request: RequestId,
    },
    /// The server has done what [`Effect::Ask`] asked: the stripe is cut, or has the hole. Before [`Input::Finish`], which follows even if the
    /// session has ended. Not given if the request failed.
    Cut {
        /// The operation.
        operation: OperationId,
    },
    /// How far do the data of this client reach? [`Effect::Measured`].
    Measure {
        /// Who asks: a number that is used once.
        operation: OperationId,
    },
    /// The sender has room for one flush: [`Effect::Job`] if there is something to send.
    Take {
        /// The number it will have; rising, and above that of every barrier set before.
        job: JobId,
        /// Most bytes.
        bytes_max: u64,
        /// Most pieces.
        pieces_max: usize,
        /// Only what locks or barriers wait for.
        urgent_only: bool,
    },
    /// The server answered a flush (WriteReply).
    Answered {
        /// Which.
        job: JobId,
        /// The error, if it failed.
        errno: Option<i32>,
    },
    /// Tell when all that is dirty or on its way now has been answered: [`Effect::BarrierDone`].
    Barrier {
        /// Who asks.
        barrier: BarrierId,
        /// No job up to this number may count for what is dirty now.
        next_job: JobId,
    },
    /// A Sync is about to be sent for an fsync. [`Effect::Failed`] if an earlier life of the server has acknowledged data that
    /// no Sync has covered: once.
    Sync {
        /// The fsync: a number that is used once.
        operation: OperationId,
        /// The life of the server that is asked.
        epoch: u64,
    },
    /// The Sync has ended.
    Synced {
        /// The fsync.
        operation: OperationId,
        /// Whether the server has said that all is stored.
        stored: bool,
    },
    /// Room is needed: flushes may be tried again although one has failed.
    Retry,
    /// Memory is needed: forget clean bytes here.
    Reclaim {
        /// Where.
        extent: Extent,
    },
    /// The file is removed: forget everything that is not on its way.
    Remove,
    /// Some time has passed: unused locks grow older.
    Tick,
    /// Give back about this many unused locks, the least recently used first.
    Shrink {
        /// How many.
        count: usize,
    },
    /// The session has ended: all locks are gone, and with them whatever is cached. An [`Effect::Answer`], [`Effect::Missing`]
    /// or [`Effect::Ask`] that nobody has acted on yet is void.
    Lost,
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The operation has its lock, with this number, or gets none for this reason.
    Answer {
        /// The operation.
        operation: OperationId,
        /// Lock and number, or an errno; EIO if the session ended.
        answer: Result<(LockId, Sn), i32>,
    },
    /// The lock of an operation that has asked for this ([`Input::Watch`]) is on its way back, or was lost: it should end soon.
    Wanted {
        /// The operation.
        operation: OperationId,
    },
    /// The operation's lock was lost with its session: what it did or asked does not count.
    Void {
        /// The operation.
        operation: OperationId,
    },
    /// Send this request for an operation on control: a Truncate or Punch. The operation goes on with its answer (Done).
    Ask {
        /// The operation.
        operation: OperationId,
        /// What.
        message: Message,
    },
    /// Send this over the session: Enqueue on control; RevokeAck, Convert and GlimpseTell on callback.
    Send {
        /// By which connection.
        channel: Channel,
        /// What.
        message: Message,
    },
    /// Tell the server on callback that a lock is free. Several may go in one Release.
    Release {
        /// Which.
        lock: LockRef,
    },
    /// Send these bytes as a Write on bulk, in this order; then [`Input::Answered`].
    Job {
        /// Its number.
        job: JobId,
        /// What to send. Their pages are needed until the answer.
        pieces: Vec<(Extent, Sn)>,
        /// Locks whose last data these are: released by the Write.
        releases: Vec<LockId>,
        /// Whether a lock waits for it.
        urgent: bool,
    },
    /// What [`Input::Look`] asked: these parts must be fetched, perhaps none. Those behind what was looked at are for reading
    /// ahead; the operation's lock covers them all.
    Missing {
        /// The operation.
        operation: OperationId,
        /// Which, in order.
        extents: Vec<Extent>,
    },
    /// What [`Input::Measure`] asked.
    Measured {
        /// Who asked.
        operation: OperationId,
        /// One past the last byte that the server has not acknowledged; 0 if none.
        end: u64,
        /// When something was written here last, nanoseconds since 1970; 0 if never.
        modified_ns: i64,
    },
    /// These bytes are not cached any longer: their pages may be free.
    Forgotten {
        /// Which.
        extent: Extent,
    },
    /// All that was dirty when the barrier was set has been answered.
    BarrierDone {
        /// Which.
        barrier: BarrierId,
        /// The first error among the flushes it waited for.
        errno: Option<i32>,
    },
    /// These bytes could not be stored and are not cached any longer. Never without a [`Effect::Failed`] in the same step.
    DataLost {
        /// Which.
        extent: Extent,
        /// Why.
        errno: i32,
    },
    /// A flush has failed, data are lost, or nobody knows whether they are stored: each handle of the file reports it once. At
    /// most one in a step, and before a thread learns that its barrier is done.
    Failed {
        /// Why.
        errno: i32,
    },
}
