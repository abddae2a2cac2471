//! The rules of the data server: which bytes of a write are newest, in what order they reach the device.
//!
//! *What*: one [`Stripe`] per resource. It remembers the newest sequence number of every byte it has heard of (the *extent
//! cache* of paper IV-B), admits of an arriving write only what nothing newer has covered, and keeps device jobs that
//! overlap in the order in which they were admitted.
//! *Invariants*: I3 (the highest SN wins, whatever order flushes arrive in), I6 (an entry is forgotten only when no unreleased
//! write lock over it is older); two device jobs of one stripe that share a byte are never at the device together.
//! *Not here*: bytes, buffers, the device; who may write (`ccpfs-dlm`).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod admit;
pub mod destage;
pub mod trim;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ccpfs_types::{Extent, ExtentMap, Sn};

pub use destage::{JobId, Work};

use destage::Queue;

/// A write or truncate that arrived, numbered by the caller; never used again for the same stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WriteId(pub u64);

/// Something that waits for the device jobs before it, numbered by the caller; never used again for the same stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub u64);

/// A piece of an arriving write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arriving {
    /// Where it belongs in the stripe.
    pub extent: Extent,
    /// Sequence number of the lock it was written under.
    pub sn: Sn,
    /// Where its bytes begin in the write's bulk data.
    pub bulk_offset: u64,
}

/// Bytes to be written to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// Where in the stripe.
    pub extent: Extent,
    /// Where they begin in the write's bulk data.
    pub bulk_offset: u64,
}

/// What can happen to a stripe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A flush brought these pieces.
    Arrived {
        /// Number of the write.
        write: WriteId,
        /// Its pieces in this stripe.
        pieces: Vec<Arriving>,
    },
    /// A truncate: a write of a hole from `from` to the end of the file.
    Hole {
        /// Number of the truncate.
        write: WriteId,
        /// The new length.
        from: u64,
        /// Sequence number of the lock.
        sn: Sn,
    },
    /// A write of a hole that leaves the length.
    Punch {
        /// Number of the write.
        write: WriteId,
        /// Which bytes; not to the end of any file.
        extent: Extent,
        /// Sequence number of the lock.
        sn: Sn,
    },
    /// Something must not happen before the jobs that touch `extent` and were admitted so far have ended.
    Await {
        /// Number of the wait.
        wait: WaitId,
        /// Which bytes matter.
        extent: Extent,
    },
    /// A device job is done.
    Persisted {
        /// Which.
        job: JobId,
    },
    /// A device job failed.
    Failed {
        /// Which.
        job: JobId,
        /// `errno` of Linux.
        errno: i32,
    },
    /// Forget what nothing older can come for (I6).
    Trim {
        /// For each extent looked at (see [`Stripe::candidates`]) an SN under which older data than its own may still come, because
        /// a write lock that overlaps it is not released, or `None` if nothing older can come.
        floors: Vec<(Extent, Option<Sn>)>,
    },
}

/// What must be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The device is to do this; then [`Input::Persisted`] or [`Input::Failed`].
    Start {
        /// Number of the job, to be given back.
        job: JobId,
        /// The write or truncate it belongs to.
        write: WriteId,
        /// What to do.
        work: Work,
    },
    /// Everything of the write that was newest is with the device's file system, or could not be written.
    Acknowledge {
        /// Which.
        write: WriteId,
        /// The first error, as `errno` of Linux.
        errno: Option<i32>,
    },
    /// The jobs waited for have ended.
    Ready {
        /// Which wait.
        wait: WaitId,
        /// The first error among them, as `errno` of Linux.
        errno: Option<i32>,
    },
}

/// How far the jobs of one write have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Progress {
    jobs: usize,
    errno: Option<i32>,
}

/// The extent cache and the device queue of one stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stripe {
    /// The newest SN admitted for each byte.
    newest: ExtentMap<Sn>,
    queue: Queue,
    writes: BTreeMap<WriteId, Progress>,
    /// Where trimming goes on.
    cursor: u64,
}

impl Stripe {
    /// A stripe nothing is known of.
    #[must_use]
    pub fn new() -> Stripe {
        Stripe::default()
    }

    /// Takes one thing that happened and says what must be done.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Arrived { write, pieces } => {
                let works = admit::admit(&mut self.newest, &pieces);
                self.submit(write, works, out);
            }
            Input::Hole { write, from, sn } => {
                let works = admit::admit_hole(&mut self.newest, from, sn);
                self.submit(write, works, out);
            }
            Input::Punch { write, extent, sn } => {
                let works = admit::admit_punch(&mut self.newest, extent, sn);
                self.submit(write, works, out);
            }
            Input::Await { wait, extent } => self.queue.wait(wait, extent, out),
            Input::Persisted { job } => self.ended(job, None, out),
            Input::Failed { job, errno } => self.ended(job, Some(errno), out),
            Input::Trim { floors } => trim::trim(self, &floors),
        }
    }

    /// Entries of the extent cache.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.newest.len()
    }

    /// Device jobs that have not ended, waiting ones included.
    #[must_use]
    pub fn jobs(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is nothing to remember and nothing to wait for.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.newest.is_empty() && self.queue.len() == 0
    }

    /// One past the last byte of the writes that have been admitted and have not ended, and whether a truncate is among them: what
    /// the device's own length does not show yet.
    #[must_use]
    pub fn pending_end(&self) -> (u64, bool) {
        self.queue.pending_end()
    }

    /// The entries that trimming is to look at next, with their SNs, at most `limit` of them.
    #[must_use]
    pub fn candidates(&self, limit: usize) -> Vec<(Extent, Sn)> {
        trim::candidates(self, limit)
    }

    /// Puts jobs in the queue. A write nothing of which is newest is acknowledged at once.
    fn submit(&mut self, write: WriteId, works: Vec<Work>, out: &mut Vec<Effect>) {
        if works.is_empty() {
            out.push(Effect::Acknowledge { write, errno: None });
            return;
        }
        let before = self.writes.insert(write, Progress { jobs: works.len(), errno: None });
        assert!(before.is_none(), "each write has a number of its own");
        for work in works {
            self.queue.push(write, work, out);
        }
    }

    fn ended(&mut self, job: JobId, errno: Option<i32>, out: &mut Vec<Effect>) {
        // The entries of a failed job stay: what is older than them must not come through, and a retry has the same SN.
        let write = self.queue.ended(job, errno, out);
        let progress = self.writes.get_mut(&write).expect("a write is known until its last job has ended");
        progress.errno = progress.errno.or(errno);
        progress.jobs -= 1;
        if progress.jobs == 0 {
            let errno = progress.errno;
            self.writes.remove(&write);
            out.push(Effect::Acknowledge { write, errno });
        }
    }
}
