//! A world: what a configuration is made into, its names and numbers, and its state before anything happens.

use crate::client::Turn;
use crate::config::{BYTES, Config, Op, Part};
use crate::ghost::Ghost;
use crate::mark::Mark;
use crate::state::{Cached, Link, Node, POISON, Server, State, Step, Stored, Tag, Thread};
use ccpfs_cached_stripe::CachedStripe;
use ccpfs_shard::{Settings, Shard};
use ccpfs_types::{ClientId, FileId, LockMode, Policy, ResourceId};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One operation of a script.
#[derive(Clone, Copy, Debug)]
pub struct OpInfo {
    /// Of which node.
    pub node: usize,
    /// Of which thread.
    pub thread: usize,
    /// What.
    pub op: Op,
}

impl Op {
    /// Whether it changes bytes.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            Op::Write(_) | Op::Append { .. } | Op::Truncate { .. } => true,
            Op::Read(_) | Op::Size { .. } | Op::Sync => false,
        }
    }

    /// Whether it cuts.
    #[must_use]
    pub const fn cuts(self) -> bool {
        match self {
            Op::Truncate { .. } => true,
            Op::Write(_) | Op::Append { .. } | Op::Read(_) | Op::Size { .. } | Op::Sync => false,
        }
    }

    /// What it locks and touches, in stripe order.
    #[must_use]
    pub fn parts(self) -> Vec<Part> {
        let end = u8::try_from(BYTES).expect("a few");
        match self {
            Op::Write(parts) | Op::Read(parts) => parts.to_vec(),
            Op::Append { stripe, .. } => vec![Part { stripe, start: 0, end }],
            Op::Truncate { stripe, length } => vec![Part { stripe, start: length, end }],
            Op::Size { .. } | Op::Sync => Vec::new(),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |parts: &[Part]| {
            let parts: Vec<String> =
                parts.iter().map(|p| format!("s{}[{},{})", p.stripe, p.start, p.end)).collect();
            parts.join("+")
        };
        match self {
            Op::Write(parts) => write!(f, "write {}", list(parts)),
            Op::Read(parts) => write!(f, "read {}", list(parts)),
            Op::Append { stripe, length } => write!(f, "append {length} to s{stripe}"),
            Op::Truncate { stripe, length } => write!(f, "truncate s{stripe} to {length}"),
            Op::Size { stripe } => write!(f, "size of s{stripe}"),
            Op::Sync => write!(f, "fsync"),
        }
    }
}

/// A world to be searched.
#[derive(Clone, Debug)]
pub struct World {
    /// What it is made of.
    pub config: Config,
    /// Its lock policy.
    pub policy: Policy,
    /// All operations; the tag of one is its place here and one more.
    pub ops: Vec<OpInfo>,
    marks: Arc<AtomicU64>,
}

impl World {
    /// The world of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> World {
        let mut ops = Vec::new();
        for (node, threads) in config.nodes.iter().enumerate() {
            for (thread, script) in threads.iter().enumerate() {
                ops.extend(script.iter().map(|op| OpInfo { node, thread, op: *op }));
            }
        }
        assert!((1..=2).contains(&config.stripes) && (1..=config.stripes).contains(&config.shards));
        assert!(
            config.options.loses.is_none() || config.shards == 1,
            "a node comes back to one server at a time"
        );
        World { config: *config, policy: config.policy(), ops, marks: Arc::default() }
    }

    /// Whether stripes may end before their last byte: then lengths are checked.
    #[must_use]
    pub const fn is_sized(&self) -> bool {
        (self.config.length as usize) < BYTES
    }

    /// The operation of a tag.
    #[must_use]
    pub fn op(&self, tag: Tag) -> OpInfo {
        self.ops[usize::from(tag) - 1]
    }

    /// The tag of the `index`th operation of a thread.
    #[must_use]
    pub fn tag(&self, node: usize, thread: usize, index: u8) -> Tag {
        let first = self.ops.iter().position(|info| (info.node, info.thread) == (node, thread));
        Tag::try_from(first.expect("it has a script") + 1).expect("at most 16 operations") + index
    }

    /// The mode that an operation asks for.
    #[must_use]
    pub fn mode(&self, tag: Tag) -> LockMode {
        use ccpfs_dlm::client::{Intent, least_restrictive};
        let (intent, parts) = match self.op(tag).op {
            Op::Write(parts) => (Intent::Write, parts.len()),
            Op::Read(parts) => (Intent::Read, parts.len()),
            Op::Append { .. } | Op::Truncate { .. } => (Intent::ReadThenWrite, 1),
            Op::Size { .. } | Op::Sync => (Intent::Read, 0),
        };
        let mode = least_restrictive(intent, parts);
        if mode.writes() && !self.policy.write_modes { LockMode::Pw } else { mode }
    }

    /// An operation for people.
    #[must_use]
    pub fn title(&self, tag: Tag) -> String {
        let info = self.op(tag);
        format!("#{tag} of c{} ({})", info.node, info.op)
    }

    /// The name of a stripe.
    #[must_use]
    pub const fn resource(&self, stripe: u8) -> ResourceId {
        ResourceId { file: FileId([0; 16]), stripe: stripe as u32 }
    }

    /// Where a stripe lives.
    #[must_use]
    pub const fn shard_of(&self, stripe: u8) -> u8 {
        stripe % self.config.shards
    }

    /// The connections of an incarnation with a shard.
    #[must_use]
    pub fn link(&self, incarnation: u8, shard: u8) -> usize {
        usize::from(incarnation) * usize::from(self.config.shards) + usize::from(shard)
    }

    /// Which incarnation with which shard.
    #[must_use]
    pub fn ends(&self, link: usize) -> (u8, u8) {
        let shards = usize::from(self.config.shards);
        let small = |value: usize| u8::try_from(value).expect("a few");
        (small(link / shards), small(link % shards))
    }

    /// The node of an incarnation.
    #[must_use]
    pub fn node_of(&self, incarnation: u8) -> usize {
        match self.config.options.loses {
            Some(node) if usize::from(incarnation) >= self.config.nodes.len() => usize::from(node),
            Some(_) | None => usize::from(incarnation),
        }
    }

    /// The identity of an incarnation; 0 is the server's.
    #[must_use]
    pub const fn client(incarnation: u8) -> ClientId {
        ClientId(incarnation as u64 + 1)
    }

    /// Notes that something was met.
    pub fn mark(&self, mark: Mark) {
        let bit = 1 << mark as u64;
        if self.marks.load(Ordering::Relaxed) & bit == 0 {
            self.marks.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// What was met so far.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        let marks = self.marks.load(Ordering::Relaxed);
        Mark::ALL.into_iter().filter(|mark| marks & 1 << *mark as u64 != 0).collect()
    }

    /// The state before anything happens.
    #[must_use]
    pub fn initial(&self) -> State {
        let config = &self.config;
        let stored = Stored {
            live: [0; BYTES],
            length: u64::from(config.length),
            durable: [0; BYTES],
            shadow: [(0, 0); BYTES],
        };
        let settings = Settings {
            policy: self.policy,
            epoch: 1,
            revoke_timeout_ns: 1 << 60,
            entries_max: if config.options.trims { 0 } else { 1 << 20 },
            operations_max: 1 << 16,
        };
        let servers = (0..config.shards).map(|_| {
            let shard = Shard::new(settings);
            let stripes = vec![stored.clone(); usize::from(config.stripes)];
            Arc::new(Server {
                shard,
                tasks: BTreeMap::new(),
                bulks: BTreeMap::new(),
                waiting: Vec::new(),
                stripes,
            })
        });
        let nodes = (0..).zip(config.nodes).map(|(node, threads)| {
            let stripes = (0..config.stripes).map(|stripe| Cached {
                rules: CachedStripe::new(self.resource(stripe)),
                pages: [POISON; BYTES],
                flying: Vec::new(),
                jobs: 0,
                ahead: None,
            });
            let threads = threads.iter().map(|_| Thread { next: 0, step: Step::Idle });
            Arc::new(Node {
                incarnation: Some(node),
                stripes: stripes.collect(),
                threads: threads.collect(),
                has_lost: false,
                shrinks: config.options.shrinks,
            })
        });
        let incarnations = config.nodes.len() + usize::from(config.options.loses.is_some());
        let links =
            (0..incarnations * usize::from(config.shards)).map(|_| Arc::new(Link::default())).collect();
        let ghost = Arc::new(Ghost::new(self.ops.len(), config.stripes, config.length));
        let mut state =
            State { nodes: nodes.collect(), servers: servers.collect(), links, ghost, broken: None };
        for node in 0..config.nodes.len() {
            Turn::new(self, &mut state, node).begin();
        }
        state
    }
}
