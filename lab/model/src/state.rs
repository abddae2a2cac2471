//! The state of a world.

use crate::config::BYTES;
use crate::ghost::Ghost;
use crate::rule::Broken;
use ccpfs_cached_stripe::CachedStripe;
use ccpfs_shard::Shard;
use ccpfs_types::{ClientId, Extent, LockMode, OperationId, RequestId};
use ccpfs_wire::Message;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Who wrote a byte: the number of an operation, from 1; 0 is a zero that nobody wrote.
pub type Tag = u8;

/// A byte of a page that nothing valid is in.
pub const POISON: Tag = 255;

/// The bytes of a stripe.
pub type Bytes = [Tag; BYTES];

/// Everything. Parts are shared between states until they change.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Clients.
    pub nodes: Vec<Arc<Node>>,
    /// Servers.
    pub servers: Vec<Arc<Server>>,
    /// Connections: those of incarnation `i` to shard `s` at `i * shards + s`.
    pub links: Vec<Arc<Link>>,
    /// What has happened, as far as the checks need it.
    pub ghost: Arc<Ghost>,
    /// The first thing that was found wrong.
    pub broken: Option<Broken>,
}

/// A client process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// Under which number it is known now; `None` when it has crashed.
    pub incarnation: Option<u8>,
    /// Its stripes.
    pub stripes: Vec<Cached>,
    /// Its threads.
    pub threads: Vec<Thread>,
    /// Whether it has lost its connections already.
    pub has_lost: bool,
    /// How many times it may still give back a lock unasked.
    pub shrinks: u8,
}

/// A cached stripe with its pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cached {
    /// The product's rules.
    pub rules: CachedStripe,
    /// What the pages hold.
    pub pages: Bytes,
    /// Flushes without an answer: number, pieces with their sequence numbers.
    pub flying: Vec<(u64, Vec<(Extent, u64)>)>,
    /// Flushes made so far.
    pub jobs: u64,
    /// The operation that took a lock for later, whose request waits; it ends with the answer.
    pub ahead: Option<OperationId>,
}

/// A thread of a client: it runs its script.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Operations that have returned; the next one is at this place in the script.
    pub next: u8,
    /// How far the present one has come.
    pub step: Step,
}

/// How far an operation has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// None has begun.
    Idle,
    /// Takes its locks.
    Locking {
        /// How each of them stands.
        locks: Vec<Standing>,
        /// What was asked for last: the first, and the one behind the last.
        asked: (u8, u8),
        /// Whether without waiting.
        tries: bool,
    },
    /// Waits until its part can be looked at.
    Looking {
        /// Which part.
        part: u8,
    },
    /// Waits for data.
    Fetching {
        /// Which part.
        part: u8,
        /// What was asked for, by the number in the request.
        extents: Vec<Extent>,
        /// Answers that have not come.
        left: u8,
        /// What the answers left out because the stripe ended.
        short: Vec<Extent>,
    },
    /// Waits for its own measure.
    Measuring {
        /// What was left out of a read.
        short: Vec<Extent>,
    },
    /// Waits for the servers' measure.
    Glimpsing {
        /// The end of its own data.
        end: u64,
        /// What was left out of a read.
        short: Vec<Extent>,
    },
    /// A read that has all its bytes in the pages: copies them out next.
    Filled {
        /// Length of the stripe, if it was needed.
        size: Option<u64>,
    },
    /// A write that has put its bytes into the pages: marks those of this part next.
    Copied {
        /// Which part.
        part: u8,
        /// Where an append goes.
        offset: u8,
    },
    /// A truncate that waits for the server.
    Cutting,
    /// An `fsync` that waits for flushes.
    Flushing {
        /// Stripes.
        left: u8,
    },
    /// An `fsync` that waits for servers.
    Syncing {
        /// Servers.
        left: u8,
    },
}

/// How a lock of a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is not asked for.
    Open,
    /// It is asked for.
    Asked,
    /// It was not to be had at once.
    Refused,
    /// It is held.
    Held,
}

/// A message under way, with its data.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The message.
    pub message: Message,
    /// Its bytes.
    pub data: Data,
}

/// The bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Data {
    /// None.
    Nothing,
    /// These.
    Bytes(Vec<Tag>),
    /// What the pages of its pieces hold when it arrives.
    Late,
}

/// The three connections of one incarnation with one shard: control, callback, bulk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Link {
    /// Whether the server still has them.
    pub open: bool,
    /// Whether the client's end is closed: nothing reaches it.
    pub cut: bool,
    /// From client to server.
    pub up: [VecDeque<Frame>; 3],
    /// From server to client.
    pub down: [VecDeque<Frame>; 3],
}

/// A server with one shard and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Server {
    /// The product's rules.
    pub shard: Shard,
    /// Tasks that the device has not ended.
    pub tasks: BTreeMap<u64, Task>,
    /// Data of flushes, by the name the shard knows them by.
    pub bulks: BTreeMap<u64, Vec<Tag>>,
    /// Requests for locks that are not answered, in the order in which they came.
    pub waiting: Vec<Waiting>,
    /// All stripes; those of other shards stay as they are.
    pub stripes: Vec<Stored>,
}

/// A request for a lock, as the server was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Waiting {
    /// For which stripe.
    pub stripe: u8,
    /// Whose.
    pub client: ClientId,
    /// Its number.
    pub request: RequestId,
    /// The mode.
    pub mode: LockMode,
    /// What must be covered.
    pub required: Extent,
    /// Nobody who waits is in its way (R47).
    pub is_next: bool,
}

/// A stripe on a device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stored {
    /// What is there.
    pub live: Bytes,
    /// Length of the stripe.
    pub length: u64,
    /// What survives a crash.
    pub durable: Bytes,
    /// The shadow extent cache: never trimmed. The highest sequence number that arrived for each byte, and with what.
    pub shadow: [(u64, Tag); BYTES],
}

/// A device task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Task {
    /// Write.
    Write {
        /// Which stripe.
        stripe: u8,
        /// First byte and contents of each part.
        parts: Vec<(usize, Vec<Tag>)>,
    },
    /// Make zeros, then set the length.
    Cut {
        /// Which stripe.
        stripe: u8,
        /// Where zeros go.
        holes: Vec<Extent>,
        /// The new length.
        length: Option<u64>,
    },
    /// Read.
    Read {
        /// Which stripe.
        stripe: u8,
        /// Which bytes.
        extent: Extent,
    },
    /// Find out the length.
    Measure {
        /// Which stripe.
        stripe: u8,
    },
    /// Make durable.
    Sync {
        /// Which stripes.
        stripes: Vec<u8>,
    },
}

/// The byte positions of an extent that have contents.
pub fn range(extent: Extent) -> std::ops::Range<usize> {
    let clip = |offset: u64| usize::try_from(offset).unwrap_or(BYTES).min(BYTES);
    clip(extent.start())..clip(extent.end())
}

/// A sequence number without the epoch, for people.
pub const fn counted(sn: u64) -> u64 {
    sn & ((1 << 40) - 1)
}
