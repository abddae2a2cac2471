//! What goes into a shard and what comes out of it.

use crate::overdue::Debt;
use alloc::string::String;
use alloc::vec::Vec;
use ccpfs_extent_cache::Part;
use ccpfs_types::{ClientId, Extent, Policy, RequestId, ResourceId};
use ccpfs_wire::{Channel, Message, StoredStripe};
use core::fmt;

/// Operations under way at a time that suit a server: [`Settings::operations_max`]. Flushes are bounded by the memory for their data
/// before that.
pub const OPERATIONS_MAX: usize = 1 << 16;

/// Number of a [`Message::GlimpseAsk`] that only wants a sign of life; no glimpse has it.
pub const PROBE: u64 = 0;

/// What a shard is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The lock policy.
    pub policy: Policy,
    /// A number that rises with every start of the server on its device; at most 16,777,215.
    pub epoch: u64,
    /// How long a client may be silent while others wait for what it holds, in nanoseconds; above 0.
    pub revoke_timeout_ns: u64,
    /// Entries of the extent caches above which they are trimmed.
    pub entries_max: usize,
    /// Operations and glimpses under way at a time; a client that asks for more has broken the protocol.
    pub operations_max: usize,
}

/// A device task, numbered by the shard; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// The data of one flush, in the memory of the shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BulkRef {
    /// The shell's name for them.
    pub id: u64,
    /// Where they begin in what `id` names, in bytes; for the shell.
    pub offset: u64,
    /// How many bytes they are; at most [`ccpfs_types::limits::BULK_BYTES_MAX`].
    pub bytes: u64,
}

/// What is known of a stripe on the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Measure {
    /// Its length.
    pub length_bytes: u64,
    /// When it was last written, nanoseconds since 1970; 0 if never.
    pub modified_ns: i64,
}

/// Everything that can happen to a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A connection of a client was taken; [`crate::Shard::refusal`] had nothing against it.
    Joined {
        /// Who.
        client: ClientId,
        /// What the connection is for.
        channel: Channel,
    },
    /// A client sent a message.
    Message {
        /// Who.
        from: ClientId,
        /// Over which of its connections.
        channel: Channel,
        /// What.
        message: Message,
        /// The data that came with it, as many as [`bulk_bytes`] says or as there were; `None` for none.
        bulk: Option<BulkRef>,
    },
    /// A client is gone: its connections are closed, so nothing more comes from it (I7).
    Parted {
        /// Who.
        client: ClientId,
        /// Whether it left of its own will.
        goodbye: bool,
    },
    /// The device has ended a task.
    Ended {
        /// Which.
        task: TaskId,
        /// How.
        result: TaskResult,
    },
    /// Time has passed: looks at overdue clocks, and trims a little if there is something to trim.
    Clock,
}

/// How a device task ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TaskResult {
    /// A write, cut, sync or removal is done.
    Done,
    /// A read is done.
    Read {
        /// Bytes read from the start of the extent; fewer than asked for where the stripe ends.
        bytes: u64,
        /// The stripe's length.
        stripe_bytes: u64,
    },
    /// A measurement is done.
    Measured(Measure),
    /// A map is done.
    Mapped {
        /// What may be other than zeros, in ascending order and disjoint, within the extent asked for.
        data: Vec<Extent>,
        /// How far this reaches.
        known_to: u64,
    },
    /// A list is made.
    Listed {
        /// In order, each behind where the list was to begin; not more than were asked for.
        stripes: Vec<StoredStripe>,
        /// Whether there may be something behind them.
        more: bool,
    },
    /// The task failed.
    Failed {
        /// `errno` of Linux.
        errno: i32,
    },
}

/// Something for the device to do. Tasks that were started and have not ended may be done in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Write; ends with [`TaskResult::Done`].
    Write {
        /// The stripe.
        resource: ResourceId,
        /// The data; offsets of the parts count from where these begin.
        bulk: BulkRef,
        /// Which bytes go where; at least one.
        parts: Vec<Part>,
    },
    /// Make zeros, then set the length; ends with [`TaskResult::Done`].
    Cut {
        /// The stripe.
        resource: ResourceId,
        /// Where zeros must be read from now on.
        holes: Vec<Extent>,
        /// The new length in bytes; `None` leaves it.
        length: Option<u64>,
    },
    /// Read; ends with [`TaskResult::Read`].
    Read {
        /// The stripe.
        resource: ResourceId,
        /// Which bytes; at most [`ccpfs_types::limits::READ_BYTES_MAX`].
        extent: Extent,
    },
    /// Find out the length; ends with [`TaskResult::Measured`].
    Measure {
        /// The stripe.
        resource: ResourceId,
    },
    /// Find out where data are, in at most [`ccpfs_types::limits::MAP_EXTENTS_MAX`] extents; ends with [`TaskResult::Mapped`].
    Map {
        /// The stripe.
        resource: ResourceId,
        /// Which bytes.
        extent: Extent,
    },
    /// Tell what is there, in order of file and stripe; ends with [`TaskResult::Listed`].
    List {
        /// Only what comes behind this one.
        after: Option<ResourceId>,
        /// At most so many; not 0.
        count_max: u32,
    },
    /// Make durable what has been written; ends with [`TaskResult::Done`].
    Sync {
        /// The stripes.
        resources: Vec<ResourceId>,
    },
    /// Remove; ends with [`TaskResult::Done`].
    Remove {
        /// The stripes.
        resources: Vec<ResourceId>,
    },
}

/// What must be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a message. Nothing happens if the client is gone.
    Send {
        /// Whom to.
        to: ClientId,
        /// Over which of its connections.
        channel: Channel,
        /// What.
        message: Message,
    },
    /// Send a message and the bytes that a task has read: the one whose end made this step.
    SendData {
        /// Whom to.
        to: ClientId,
        /// Over which of its connections.
        channel: Channel,
        /// What.
        message: Message,
        /// The task.
        task: TaskId,
    },
    /// Answer a [`Message::Status`] with what the shard and the shell have counted.
    Status {
        /// Whom to, over its control connection.
        to: ClientId,
        /// Its request.
        request: RequestId,
    },
    /// Have the device do this; then [`Input::Ended`].
    Start {
        /// Number of the task.
        task: TaskId,
        /// What to do.
        work: Work,
        /// Whether somebody waits for it.
        urgent: bool,
    },
    /// These data are not needed any more, but for tasks that were started.
    Free {
        /// Which.
        bulk: BulkRef,
    },
    /// A client must go: close its connections, then [`Input::Parted`].
    Part {
        /// Who.
        client: ClientId,
        /// Why.
        why: Parting,
    },
    /// Something worth a line in a log.
    Note(Note),
}

/// Why a client must go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Parting {
    /// It said goodbye.
    Goodbye,
    /// It broke the protocol.
    Violation {
        /// How, for a person.
        what: String,
    },
    /// It kept others waiting for too long.
    Overdue {
        /// What it owed.
        what: Debt,
    },
    /// It owes an answer and has no callback connection to be asked on.
    Unreachable,
}

impl fmt::Display for Parting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Parting::Goodbye => write!(f, "it said goodbye"),
            Parting::Violation { what } => write!(f, "it broke the protocol: {what}"),
            Parting::Overdue { what } => write!(f, "it did not give back {what} in time"),
            Parting::Unreachable => write!(f, "it has no callback connection to be asked on"),
        }
    }
}

/// Something worth a line in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// A client is gone, and everything it held is free.
    Gone {
        /// Who.
        client: ClientId,
        /// Resources on which it held locks or waited for some.
        resources: usize,
    },
    /// A piece of a flush was not taken.
    Refused {
        /// Whose.
        client: ClientId,
        /// Of which stripe.
        resource: ResourceId,
        /// Why: `errno` of Linux.
        errno: i32,
    },
    /// The device could not do a write or cut.
    Failed {
        /// Of which stripe.
        resource: ResourceId,
        /// Why: `errno` of Linux.
        errno: i32,
    },
    /// All clients are asked to flush a stripe, so that its extent cache can be trimmed.
    Forced {
        /// Which.
        resource: ResourceId,
    },
}

/// How many bytes of a frame's bulk belong to this message: those of its pieces. `None` if that is no number.
#[must_use]
pub fn bulk_bytes(message: &Message) -> Option<u64> {
    let Message::Write { pieces, .. } = message else { return Some(0) };
    pieces.iter().try_fold(0_u64, |sum, piece| sum.checked_add(piece.extent.length()))
}
