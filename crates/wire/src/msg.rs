//! Every message, by the channel it travels on.
//!
//! A client opens up to three connections to each shard ([`Channel`]): *control* for what it asks and waits for, *callback* for
//! what the server asks of it, *bulk* for flushes. Messages of one connection arrive in order; nothing is
//! promised between two connections, so every rule must settle the races (docs/protocol.md).

use crate::codec::{DecodeError, Field, Reader};
use alloc::string::String;
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, LockId, LockMode, LockState, Policy, RequestId, ResourceId, Sn, Terms};

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    /// Client asks, server answers: locks, reads, truncates, syncs, glimpses.
    Control,
    /// Server asks, client answers: revocations, glimpses; and what the client tells without waiting.
    Callback,
    /// Client flushes, server acknowledges.
    Bulk,
}

/// How an operation at the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Done.
    Ok,
    /// Failed with this `errno` of Linux (positive).
    Errno(i32),
}

/// One piece of a flush: where, how new, and (by position) which part of the bulk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WritePiece {
    /// The stripe.
    pub resource: ResourceId,
    /// Which of its bytes; their data follow those of the piece before it in the frame's bulk.
    pub extent: Extent,
    /// Sequence number of the lock they were written under.
    pub sn: Sn,
}

/// A lock given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockRef {
    /// The resource.
    pub resource: ResourceId,
    /// The lock.
    pub lock: LockId,
}

/// A stripe that a shard has on its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoredStripe {
    /// Which.
    pub resource: ResourceId,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Space that it takes, in bytes.
    pub stored_bytes: u64,
    /// When it was last written, nanoseconds since 1970.
    pub modified_ns: i64,
}

/// A granted lock, as the client is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GrantedLock {
    /// Its number.
    pub lock: LockId,
    /// Its mode: the one asked for, or a more restrictive one after an upgrade.
    pub mode: LockMode,
    /// What it covers: the required range at least.
    pub region: Region,
    /// Its sequence number.
    pub sn: Sn,
    /// CANCELING: use it for the waiting operation, then cancel it (early revocation).
    pub state: LockState,
    /// Locks of the same client that it replaces (upgrade).
    pub replaces: Vec<LockId>,
    /// Whether it was granted while CANCELING write locks overlap it (early grant); for statistics.
    pub early: bool,
}

macro_rules! structure {
    ($type:ident { $($field:ident),* $(,)? }, $min:expr) => {
        impl Field for $type {
            const BYTES_MIN: usize = $min;
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($type { $($field: Field::take(reader)?),* })
            }
        }
    };
}
structure!(WritePiece { resource, extent, sn }, 44);
structure!(StoredStripe { resource, length_bytes, stored_bytes, modified_ns }, 44);
structure!(LockRef { resource, lock }, 28);
structure!(GrantedLock { lock, mode, region, sn, state, replaces, early }, 40);

impl Field for Channel {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Channel::Control => 0,
            Channel::Callback => 1,
            Channel::Bulk => 2,
        });
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(Channel::Control),
            1 => Ok(Channel::Callback),
            2 => Ok(Channel::Bulk),
            _ => Err(DecodeError::BadValue("channel")),
        }
    }
}

impl Field for Status {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Status::Ok => 0_i32.put(out),
            Status::Errno(errno) => errno.put(out),
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match i32::take(reader)? {
            0 => Ok(Status::Ok),
            errno if (1..4096).contains(&errno) => Ok(Status::Errno(errno)),
            _ => Err(DecodeError::BadValue("status")),
        }
    }
}

macro_rules! messages {
    ($(
        $(#[$doc:meta])*
        $kind:literal $name:ident { $( $(#[$field_doc:meta])* $field:ident : $type:ty ),* $(,)? }
    )*) => {
        /// One step of the protocol.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Message {
            $( $(#[$doc])* $name { $( $(#[$field_doc])* $field: $type ),* } ),*
        }

        impl Message {
            /// The number that names the kind on the wire.
            #[must_use]
            pub const fn kind(&self) -> u16 {
                match self { $( Message::$name { .. } => $kind ),* }
            }

            /// The name of the kind, for logs.
            #[must_use]
            pub const fn name(&self) -> &'static str {
                match self { $( Message::$name { .. } => stringify!($name) ),* }
            }

            pub(crate) fn put_body(&self, out: &mut Vec<u8>) {
                match self { $( Message::$name { $($field),* } => { $( $field.put(out); )* let _ = out; } ),* }
            }

            pub(crate) fn take_body(kind: u16, reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
                match kind {
                    $( $kind => Ok(Message::$name { $( $field: Field::take(reader)? ),* }), )*
                    other => Err(DecodeError::UnknownKind(other)),
                }
            }
        }
    };
}

messages! {
    /// First message on each connection, client to server.
    1 Hello {
        /// [`crate::version::PROTOCOL_VERSION`] of the client.
        version: u32,
        /// Who speaks.
        client: ClientId,
        /// What the connection is for.
        channel: Channel,
        /// Process and host, for the server's logs.
        name: String,
    }
    /// The server takes the client. First message from the server.
    2 Welcome {
        /// Version the server speaks.
        version: u32,
        /// The lock policy of this server: clients choose modes and ranges by it.
        policy: Policy,
        /// Number of this shard within the cluster's list, as the server was started with.
        target: u32,
        /// The persisted start counter of the server.
        epoch: u64,
    }
    /// The server does not take the client; it closes the connection after this.
    3 Refused {
        /// Why, for a person.
        reason: String,
    }
    /// Control: are you there?
    4 Ping {
        /// Comes back in the answer.
        request: RequestId,
    }
    /// Control: yes.
    5 Pong {
        /// The number of the question.
        request: RequestId,
    }
    /// Any channel: the client leaves of its own will; what it held is free.
    6 Goodbye {}

    /// Control: asks for a lock.
    10 Enqueue {
        /// Comes back in the answer.
        request: RequestId,
        /// The resource.
        resource: ResourceId,
        /// The least restrictive mode that serves.
        mode: LockMode,
        /// What must be covered.
        required: Region,
        /// What would be welcome; takes in `required`.
        desired: Region,
        /// Whether to wait, and for whom.
        terms: Terms,
    }
    /// Control: the lock is granted.
    11 Grant {
        /// The number of the request.
        request: RequestId,
        /// The resource.
        resource: ResourceId,
        /// The lock.
        granted: GrantedLock,
    }
    /// Control: the lock is not granted.
    12 Denied {
        /// The number of the request.
        request: RequestId,
        /// The resource.
        resource: ResourceId,
        /// EAGAIN for a try-lock in conflict, ESTALE for a destroyed file, EBUSY for too many waiting.
        status: Status,
        /// EAGAIN: the first byte of what is required that somebody has or waits for.
        first_common: Option<u64>,
    }

    /// Callback, server to client: somebody else wants what this lock covers.
    20 Revoke {
        /// The resource.
        resource: ResourceId,
        /// The lock.
        lock: LockId,
        /// The mode that is waited for.
        wanted: LockMode,
        /// What is waited for: a holder may keep what it does not touch ([`Message::Narrow`]).
        region: Region,
    }
    /// Callback, client to server: no new use begins under the lock.
    21 RevokeAck {
        /// The resource.
        resource: ResourceId,
        /// The lock.
        lock: LockId,
        /// Its mode from now on: lowered if no reader uses it (downgrading).
        mode: LockMode,
    }
    /// Callback, client to server: a CANCELING lock is lowered (paper III-D2).
    22 Convert {
        /// The resource.
        resource: ResourceId,
        /// The lock.
        lock: LockId,
        /// Its new, less restrictive mode.
        mode: LockMode,
    }
    /// Callback, client to server: these locks are free; nothing written under them is left to flush.
    23 Release {
        /// The locks.
        locks: Vec<LockRef>,
    }
    /// Callback, server to client: how far does what you have of this stripe reach?
    24 GlimpseAsk {
        /// Comes back in the answer.
        glimpse: u64,
        /// The stripe.
        resource: ResourceId,
    }
    /// Callback, client to server: this far.
    25 GlimpseTell {
        /// The number of the question.
        glimpse: u64,
        /// The stripe.
        resource: ResourceId,
        /// One past the last byte written and not acknowledged by the server; 0 if none.
        end: u64,
        /// When it was written, nanoseconds since 1970; 0 if unknown.
        modified_ns: i64,
    }
    /// Callback, client to server: a GRANTED lock covers nothing of this extent any longer, and nothing was written there that
    /// the server has not acknowledged. Instead of [`Message::RevokeAck`]: the lock is as if it had not been revoked.
    26 Narrow {
        /// The resource.
        resource: ResourceId,
        /// The lock.
        lock: LockId,
        /// What it does not cover any longer.
        taken: Extent,
    }

    /// Bulk: data, newest wins. The bulk of the frame holds the pieces' bytes one after the other.
    30 Write {
        /// Comes back in the answer.
        request: RequestId,
        /// A revocation waits for this one: served before others.
        urgent: bool,
        /// What the data are.
        pieces: Vec<WritePiece>,
        /// Locks that are free once the data are in.
        releases: Vec<LockRef>,
    }
    /// Bulk: the data are with the server's file system (not yet synced), or why not.
    31 WriteReply {
        /// The number of the request.
        request: RequestId,
        /// The first thing that went wrong, if any. The releases have been done in any case.
        status: Status,
    }
    /// Control: asks for data. Requires a PR or PW lock.
    32 Read {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripe.
        resource: ResourceId,
        /// Which bytes; at most [`ccpfs_types::limits::READ_BYTES_MAX`].
        extent: Extent,
    }
    /// Control: the frame's bulk holds the bytes from the start of the extent; it is short where the stripe ends.
    33 ReadReply {
        /// The number of the request.
        request: RequestId,
        /// Ok, or why there are no data.
        status: Status,
        /// The stripe's length at the server.
        stripe_bytes: u64,
    }
    /// Control: cuts a stripe, or lengthens it with a hole. Requires a PW lock from `length` to the end.
    34 Truncate {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripe.
        resource: ResourceId,
        /// Its new length.
        length: u64,
        /// Sequence number of the lock: the hole is a write (DESIGN section 5).
        sn: Sn,
    }
    /// Control: makes everything acknowledged so far survive a crash.
    35 Sync {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripes.
        resources: Vec<ResourceId>,
    }
    /// Control: answers [`Message::Truncate`], [`Message::Punch`], [`Message::Sync`] and [`Message::Destroy`].
    36 Done {
        /// The number of the request.
        request: RequestId,
        /// How it went.
        status: Status,
    }
    /// Control: the file is gone: drop its data and refuse its locks.
    37 Destroy {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripes on this shard.
        resources: Vec<ResourceId>,
    }
    /// Control: how long is this stripe, counting what clients hold?
    38 Glimpse {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripe.
        resource: ResourceId,
    }
    /// Control: so long.
    39 GlimpseReply {
        /// The number of the request.
        request: RequestId,
        /// Ok, or why not known.
        status: Status,
        /// Length of the stripe.
        stripe_bytes: u64,
        /// When it was last written, nanoseconds since 1970; 0 if never.
        modified_ns: i64,
        /// Space it takes on the device, in bytes.
        stored_bytes: u64,
        /// Truncates that the shard has taken, in this life or an earlier one: a number that rises with each.
        cuts: u64,
    }
    /// Control: what the shard has counted since it started, and its device's room.
    40 Status {
        /// Comes back in the answer.
        request: RequestId,
    }
    /// Control: name and value of each counter.
    41 StatusReply {
        /// The number of the request.
        request: RequestId,
        /// Names, in a fixed order.
        names: Vec<String>,
        /// Values, in the same order.
        values: Vec<u64>,
    }
    /// Control: where are data, and where are holes? Requires a PR or PW lock.
    42 Map {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripe.
        resource: ResourceId,
        /// Which of its bytes.
        extent: Extent,
    }
    /// Control: there.
    43 MapReply {
        /// The number of the request.
        request: RequestId,
        /// Ok, or why not known.
        status: Status,
        /// What may be other than zeros, in ascending order, disjoint; at most [`ccpfs_types::limits::MAP_EXTENTS_MAX`].
        data: Vec<Extent>,
        /// How far the answer reaches: from the start of the extent to here, what is not named is a hole.
        known_to: u64,
    }
    /// Control: makes a hole, and leaves the length. Requires a PW lock on it.
    44 Punch {
        /// Comes back in the answer.
        request: RequestId,
        /// The stripe.
        resource: ResourceId,
        /// Which bytes are zeros from now on.
        extent: Extent,
        /// Sequence number of the lock: the hole is a write.
        sn: Sn,
    }
    /// Control: what is on the device? In order of file and stripe; what has not reached the device is not in it.
    45 List {
        /// Comes back in the answer.
        request: RequestId,
        /// Only what comes behind this one; everything if there is none.
        after: Option<ResourceId>,
        /// At most so many; never more than [`ccpfs_types::limits::LIST_STRIPES_MAX`].
        count_max: u32,
    }
    /// Control: this.
    46 ListReply {
        /// The number of the request.
        request: RequestId,
        /// Ok, or why not known.
        status: Status,
        /// What comes next.
        stripes: Vec<StoredStripe>,
        /// Whether there may be something behind it.
        more: bool,
    }
}
