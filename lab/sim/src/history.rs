//! What happened in a run, as the checkers read it: calls, the locks they ran under, sessions, faults, and what is left.
//!
//! Bytes are not kept. Every byte in a simulated cache, message or device is tagged with the call that wrote it, so contents are
//! runs of [`Tag`]s.

use ccpfs_types::{Extent, ExtentMap, Layout, Sn};
use std::fmt;

/// A call of an application, numbered from 0 in the order of invocation: the index in [`History::operations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u32);

impl fmt::Display for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "op{}", self.0)
    }
}

/// Who wrote a byte; `None` is a zero: a hole, or a byte that nobody wrote.
pub type Tag = Option<OpId>;

/// Which bytes of an extent a call is for: all, or pieces at a stride, the first at its start and the last at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Comb {
    /// Bytes of a piece.
    pub length: u64,
    /// From the start of a piece to that of the next; 0: all bytes.
    pub stride: u64,
}

impl Comb {
    /// All bytes.
    pub const NONE: Comb = Comb { length: 0, stride: 0 };

    /// The pieces of an extent, ascending.
    pub fn pieces(self, extent: Extent) -> impl Iterator<Item = Extent> {
        let count = (extent.length() - 1).checked_div(self.stride).map_or(1, |last| last + 1);
        (0..count).map(move |index| {
            let start = extent.start() + index * self.stride;
            let end = if self.stride == 0 { extent.end() } else { (start + self.length).min(extent.end()) };
            Extent::new(start, end).expect("a piece has bytes")
        })
    }
}

/// What an application called. Extents are in file offsets; `file` is the index in [`History::files`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// A write at an offset.
    Write {
        /// The file.
        file: u32,
        /// Which bytes.
        extent: Extent,
        /// Which of them.
        comb: Comb,
    },
    /// A read at an offset.
    Read {
        /// The file.
        file: u32,
        /// Which bytes are asked for; never to the end of the file.
        extent: Extent,
        /// Which of them.
        comb: Comb,
    },
    /// A write at the end of the file.
    Append {
        /// The file.
        file: u32,
        /// How many bytes, at least one.
        length: u64,
    },
    /// A cut, or a hole at the end.
    Truncate {
        /// The file.
        file: u32,
        /// The new size in bytes.
        length: u64,
    },
    /// A question for the size.
    Size {
        /// The file.
        file: u32,
    },
    /// A promise is asked for: what this node wrote before survives.
    Fsync {
        /// The file.
        file: u32,
    },
}

impl Call {
    /// The file it is about.
    #[must_use]
    pub const fn file(&self) -> u32 {
        match self {
            Call::Write { file, .. }
            | Call::Read { file, .. }
            | Call::Append { file, .. }
            | Call::Truncate { file, .. }
            | Call::Size { file }
            | Call::Fsync { file } => *file,
        }
    }
}

impl fmt::Display for Comb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stride == 0 { Ok(()) } else { write!(f, " ({} each {})", self.length, self.stride) }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Write { file, extent, comb } => write!(f, "write f{file} {extent}{comb}"),
            Call::Read { file, extent, comb } => write!(f, "read f{file} {extent}{comb}"),
            Call::Append { file, length } => write!(f, "append f{file} {length} bytes"),
            Call::Truncate { file, length } => write!(f, "truncate f{file} to {length}"),
            Call::Size { file } => write!(f, "size f{file}"),
            Call::Fsync { file } => write!(f, "fsync f{file}"),
        }
    }
}

/// What a call that succeeded answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All bytes were taken.
    Written,
    /// All bytes were taken, from this offset on.
    Appended {
        /// Where they begin in the file.
        offset: u64,
    },
    /// These bytes were there.
    Read {
        /// How far the bytes that were returned reach, from the start on: less than asked for only at the end of the file.
        length: u64,
        /// Who wrote each of them, in file offsets: covers exactly what the call is for of `[start, start + length)`, ascending.
        bytes: Vec<(Extent, Tag)>,
    },
    /// The file has the length asked for.
    Truncated,
    /// The file has this many bytes.
    Size {
        /// How many.
        length: u64,
    },
    /// What was written is safe.
    Synced,
}

/// A point in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Virtual time in nanoseconds.
    pub at_ns: u64,
    /// The global count of steps: rises with everything that happens, and never stands still between two happenings that a
    /// checker may have to order.
    pub step: u64,
}

/// What a call did to one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StripeUse {
    /// Which stripe of the file.
    pub stripe: u32,
    /// Which bytes of the stripe it is about: all, unless the call took several locks there.
    pub extent: Extent,
    /// The session its lock belonged to: the index in [`History::sessions`].
    pub session: u32,
    /// Sequence number of the lock, as told when the call was let in (`Effect::Answer`).
    pub sn: Sn,
    /// The global step at which it took effect: for a write or append when the client marked its (last) bytes dirty here, for a
    /// truncate when the client cut its own cache here, for a read, and for an append on a stripe that it wrote nothing to, when
    /// it was let in under the lock.
    pub order: u64,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Operation {
    /// Its number: its index.
    pub id: OpId,
    /// The client process. A process that is started again is another node.
    pub node: u32,
    /// What was called.
    pub call: Call,
    /// When.
    pub invoked: Moment,
    /// When it returned; `None` if it never did.
    pub returned: Option<Moment>,
    /// What it returned; `None` if it never did.
    pub outcome: Option<Result<Outcome, i32>>,
    /// Where an append began in the file, from the moment the client chose it; `None` for other calls.
    pub offset: Option<u64>,
    /// The stripes on which it took effect so far, an entry for each lock. Of a call that failed or never returned, those on
    /// which it did take effect (or may have). An append uses every stripe of its file: it holds them all. Empty for
    /// [`Call::Size`] and [`Call::Fsync`].
    pub stripes: Vec<StripeUse>,
}

impl Operation {
    /// Whether it returned without an error.
    #[must_use]
    pub const fn succeeded(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }

    /// The extent in which it wrote or cut, in file offsets, as far as known; of a write, see [`Comb`].
    #[must_use]
    pub fn changes(&self) -> Option<Extent> {
        match self.call {
            Call::Write { extent, .. } => Some(extent),
            Call::Append { length, .. } => Extent::with_length(self.offset?, length),
            Call::Truncate { length, .. } => Extent::new(length, Extent::EOF),
            Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. } => None,
        }
    }

    /// What it did to a byte of a stripe, in the stripe's offsets.
    #[must_use]
    pub fn at(&self, stripe: u32, offset: u64) -> Option<&StripeUse> {
        self.on_stripe(stripe).find(|used| used.extent.start() <= offset && offset < used.extent.end())
    }

    /// What it did to a stripe.
    pub fn on_stripe(&self, stripe: u32) -> impl Iterator<Item = &StripeUse> {
        self.stripes.iter().filter(move |used| used.stripe == stripe)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (node {}, {} ns: {})", self.id, self.node, self.invoked.at_ns, self.call)
    }
}

/// The locks of one client at one server, from Hello to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session {
    /// The client process.
    pub node: u32,
    /// The shard.
    pub server: u32,
    /// When the server fenced it, or died, or the client died, whichever came first; `None` if it still stands at the end of the run,
    /// or was ended in order with everything flushed.
    pub ended: Option<Moment>,
}

/// What went wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// A client process was killed.
    ClientCrashed {
        /// Which.
        node: u32,
    },
    /// A server evicted a client that was silent or whose connection was lost.
    ClientEvicted {
        /// Which client.
        node: u32,
        /// Which server.
        server: u32,
    },
    /// A server process was killed; its file system keeps what it was given.
    ServerKilled {
        /// Which.
        server: u32,
    },
    /// A server lost power: only what was synced is left for sure.
    ServerLostPower {
        /// Which.
        server: u32,
    },
    /// A server is back.
    ServerRestarted {
        /// Which.
        server: u32,
    },
    /// Devices begin to answer with errors.
    DevicesFailed,
    /// A server was stopped for some time.
    ServerDisturbed {
        /// Which.
        server: u32,
    },
    /// Anything else that may keep a client from answering in time: a partition, a pause, a lost connection.
    Disturbed {
        /// The client process.
        node: u32,
    },
}

/// A fault and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// When.
    pub at: Moment,
    /// What.
    pub kind: FaultKind,
}

/// Unflushed data that a client knows to be lost (`Effect::DataLost`), for instance on a full device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// When the client learnt of it.
    pub at: Moment,
    /// The client process.
    pub node: u32,
    /// The file.
    pub file: u32,
    /// The stripe.
    pub stripe: u32,
    /// Which bytes, in offsets of the stripe.
    pub extent: Extent,
    /// Why: `errno` of Linux.
    pub errno: i32,
}

/// A file of a run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FileShape {
    /// How it is striped.
    pub layout: Layout,
    /// The shard of each stripe.
    pub servers: Vec<u32>,
}

/// A file as it is on the devices when everything is flushed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contents {
    /// The size in bytes.
    pub length: u64,
    /// Who wrote what, in file offsets; no entry is a zero.
    pub bytes: ExtentMap<OpId>,
}

/// Everything that the checkers need to know about a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The files.
    pub files: Vec<FileShape>,
    /// The calls, by number.
    pub operations: Vec<Operation>,
    /// The sessions, in any order.
    pub sessions: Vec<Session>,
    /// The faults, in the order in which they happened.
    pub faults: Vec<Fault>,
    /// Losses that clients know of, in the order in which they happened.
    pub losses: Vec<Loss>,
    /// What is left of each file at the end; empty if nobody looked.
    pub finals: Vec<Contents>,
}

impl History {
    /// The call with this number.
    #[must_use]
    pub fn operation(&self, id: OpId) -> &Operation {
        &self.operations[id.0 as usize]
    }

    /// The session a call had with the server of a stripe.
    #[must_use]
    pub fn session(&self, used: &StripeUse) -> &Session {
        &self.sessions[used.session as usize]
    }

    /// Whether nothing was lost, ended or broken in the run: every call must look as if it ran alone.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        let ended = self.sessions.iter().any(|session| session.ended.is_some());
        let failed = self.operations.iter().any(|operation| !operation.succeeded());
        self.losses.is_empty() && !ended && !failed
    }
}
