//! What a world is made of.

use ccpfs_types::Policy;

/// Bytes of a stripe that have contents in the model.
pub const BYTES: usize = 4;

/// A part of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Which stripe.
    pub stripe: u8,
    /// First byte.
    pub start: u8,
    /// One past the last byte, at most [`BYTES`].
    pub end: u8,
}

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// One write call: NBW, or BW with several parts. Parts in the order of stripes and bytes; several of one stripe are locks of
    /// their own.
    Write(&'static [Part]),
    /// One read call.
    Read(&'static [Part]),
    /// Writes so many bytes at the end of a stripe (each stripe counts as a file here).
    Append {
        /// Which stripe.
        stripe: u8,
        /// How many bytes.
        length: u8,
    },
    /// Sets the length of a stripe.
    Truncate {
        /// Which stripe.
        stripe: u8,
        /// To how many bytes.
        length: u8,
    },
    /// Asks how long a stripe is, without a lock.
    Size {
        /// Which stripe.
        stripe: u8,
    },
    /// `fsync` of everything.
    Sync,
}

/// How a call takes several locks (paper 001, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// One after the other, in their order.
    TwoPhase,
    /// All at once without waiting; then those that are missing one after the other.
    OneTry,
    /// Both by turns.
    AltTry,
}

/// What else a world does, beyond the scripts.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Device tasks end in any order, some time after they were started; otherwise at once.
    pub slow_device: bool,
    /// Extent caches are trimmed at any time (and clients forced to flush, which the server does when trimming is of no use).
    pub trims: bool,
    /// This node may crash, once, at any moment.
    pub crashes: Option<u8>,
    /// This node may lose its connections, once, at any moment, and comes back under a new number.
    pub loses: Option<u8>,
    /// Clients may flush at any time although nobody asks them to.
    pub flushes: bool,
    /// How many times each node may give back an unused lock of a stripe unasked.
    pub shrinks: u8,
    /// The bytes of a flush are those that the pages hold when it arrives, not when it was made.
    pub late_bytes: bool,
    /// What a client sends on its callback connection may change places (R31).
    pub swaps: bool,
    /// Above 0: who writes desires all pieces of this length that lie so many bytes apart from there on; otherwise all that follows.
    pub stride: u8,
    /// How calls take several locks.
    pub protocol: Protocol,
    /// Most bytes of one flush.
    pub flush_bytes_max: u64,
    /// Canceled locks with flushes put off before some are flushed.
    pub put_off_max: usize,
    /// Locks that a client keeps.
    pub locks_max: usize,
}

/// Nothing beyond the scripts.
pub const PLAIN: Options = Options {
    slow_device: false,
    trims: false,
    crashes: None,
    loses: None,
    flushes: false,
    shrinks: 0,
    late_bytes: false,
    swaps: false,
    stride: 0,
    protocol: Protocol::TwoPhase,
    flush_bytes_max: 1 << 20,
    put_off_max: 256,
    locks_max: 8,
};

/// One world.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its name.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Scripts: of each node, of each of its threads.
    pub nodes: &'static [&'static [&'static [Op]]],
    /// Stripes: 1 or 2.
    pub stripes: u8,
    /// Servers of one shard each; stripe `s` lives on shard `s % shards`.
    pub shards: u8,
    /// Length of each stripe before anything happens; its bytes are zeros.
    pub length: u8,
    /// Name of the lock policy.
    pub policy: &'static str,
    /// What else happens.
    pub options: Options,
    /// Unique states after which the search ends in the usual run; `None` searches all.
    pub states_max: Option<usize>,
    /// Whether it is small enough for the tests that run with every build.
    pub small: bool,
}

impl Config {
    /// The lock policy.
    ///
    /// # Panics
    /// If the table names a policy that does not exist.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy.parse().expect("the table names policies that exist")
    }

    /// The configuration of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Config> {
        crate::table::CONFIGS.iter().find(|config| config.name == name)
    }
}
