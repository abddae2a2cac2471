//! The state of one cached stripe and everything that can happen to it.

use crate::parts::parts;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{Extent, ExtentMap, LockId, Sn};

/// A flush under way, numbered by the client, rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// Somebody waits for all that is dirty now (fsync), numbered by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BarrierId(pub u64);

/// Everything that can happen to a cached stripe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// Bytes were written into the pages, under a lock with this number.
    Written {
        /// Which.
        extent: Extent,
        /// Number of the lock.
        sn: Sn,
    },
    /// Bytes that were missing have been fetched into the pages, under a lock with this number.
    Fetched {
        /// Which; only those still missing become valid.
        extent: Extent,
        /// Number of the lock.
        sn: Sn,
    },
    /// A lock is being canceled or lowered: its dirty data must go to the server.
    Flush {
        /// The lock.
        lock: LockId,
        /// What it covers.
        region: Region,
        /// Its number: what has a higher one belongs to others.
        sn: Sn,
        /// Whether the lock goes: then clean data up to `sn` are forgotten.
        release: bool,
        /// Whether somebody waits for it; otherwise it goes along with the next flush of whatever reason.
        urgent: bool,
    },
    /// Somebody waits now for a lock whose flush was put off.
    Hurry {
        /// The lock.
        lock: LockId,
    },
    /// The sender has room for one flush.
    Take {
        /// The number it will have.
        job: JobId,
        /// Most bytes.
        bytes_max: u64,
        /// Most pieces.
        pieces_max: usize,
        /// Only what locks wait for.
        urgent_only: bool,
    },
    /// The server answered a flush.
    Acknowledged {
        /// Which.
        job: JobId,
        /// The error, if it failed.
        errno: Option<i32>,
    },
    /// Tell when all that is dirty or in flight now has been acknowledged.
    Barrier {
        /// Who asks.
        barrier: BarrierId,
        /// No job up to this number may count for what is dirty now.
        next_job: JobId,
    },
    /// Room is needed: flushes may be tried again although one has failed.
    Retry,
    /// Memory is needed: forget clean bytes here.
    Reclaim {
        /// Where.
        extent: Extent,
    },
    /// A lock without data of its own goes: forget clean bytes with numbers up to its own.
    Forget {
        /// What the lock covered.
        region: Region,
        /// Its number.
        sn: Sn,
    },
    /// The stripe was cut to this length: forget what lies above.
    Truncated {
        /// Length of the stripe in bytes.
        length: u64,
    },
    /// The server has forgotten us: nothing here is valid.
    Lost,
}

/// What follows from an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send these bytes, in this order; the locks go with them.
    Job {
        /// Its number.
        job: JobId,
        /// What to send.
        pieces: Vec<(Extent, Sn)>,
        /// Locks whose last data these are.
        releases: Vec<LockId>,
        /// Whether a lock waits for it.
        urgent: bool,
    },
    /// Nothing written under the lock is left.
    Flushed {
        /// The lock.
        lock: LockId,
        /// Whether the release went with the last job.
        released: bool,
    },
    /// These bytes are not cached any longer.
    Forgotten {
        /// Which.
        extent: Extent,
    },
    /// All that was dirty when the barrier was set has been acknowledged.
    BarrierDone {
        /// Which.
        barrier: BarrierId,
        /// The first error among the flushes it waited for.
        errno: Option<i32>,
    },
    /// These bytes could not be stored and are not cached any longer.
    DataLost {
        /// Which.
        extent: Extent,
        /// Why.
        errno: i32,
    },
}

/// Whether a range can be read from the cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Readable {
    /// All of it.
    All,
    /// These parts must be fetched.
    Missing(Vec<Extent>),
    /// Parts are on their way out under a lock that is gone: ask again after the next acknowledgement.
    Wait,
}

/// How a cached byte stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum State {
    /// As on the server.
    Clean,
    /// Newer than on the server.
    Dirty,
    /// Being flushed.
    Flushing,
    /// Being flushed for the last time: its lock is gone with it, so it may not be read.
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tag {
    pub(super) sn: Sn,
    pub(super) state: State,
}

/// A lock that waits for its data to be flushed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cancel {
    /// What the lock covered.
    pub(super) region: Region,
    pub(super) sn: Sn,
    /// The smallest extent around its data, dirty or on their way, when it was canceled or since. What lies beyond in `region` is
    /// newer: a lock may have covered all of a file of which others of this client hold thousands of pieces by now.
    pub(super) data: Extent,
    pub(super) release: bool,
    /// The job that the release travels with.
    pub(super) travels_with: Option<JobId>,
}

/// A lock that is canceled just now.
pub(super) struct Canceled {
    pub(super) region: Region,
    pub(super) sn: Sn,
    pub(super) release: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Barrier {
    /// What it waits for, with the first job that counts.
    pub(super) pending: ExtentMap<JobId>,
    pub(super) errno: Option<i32>,
}

/// The cached bytes of one stripe in one client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stripe {
    pub(super) cache: ExtentMap<Tag>,
    /// The dirty ones among them, with their numbers.
    pub(super) dirty: ExtentMap<Sn>,
    /// Bytes on their way to the server; never two jobs for one byte (I4).
    pub(super) in_flight: ExtentMap<Sn>,
    pub(super) jobs: BTreeMap<JobId, Vec<(Extent, Sn)>>,
    pub(super) cancels: BTreeMap<LockId, Cancel>,
    /// Those among them that somebody waits for.
    pub(super) urgent: BTreeSet<LockId>,
    /// The urgent ones with dirty data, and perhaps some whose last have been overwritten or cut since: there may be thousands of
    /// others, whose data are all on their way.
    pub(super) unsent: BTreeSet<LockId>,
    /// No lock among them has a higher number.
    pub(super) newest_canceled: Sn,
    pub(super) barriers: BTreeMap<BarrierId, Barrier>,
    /// A voluntary flush failed: no other one until somebody asks for it.
    pub(super) stalled: bool,
}

impl Stripe {
    /// Nothing cached.
    #[must_use]
    pub fn new() -> Stripe {
        Stripe::default()
    }

    /// Takes one input and appends what follows from it.
    pub fn step(&mut self, input: Input, out: &mut Vec<Effect>) {
        match input {
            Input::Written { extent, sn } => {
                let covers = !self.cancels.is_empty() && self.dirty.overlapping(extent).next().is_some();
                self.written(extent, sn);
                if sn <= self.newest_canceled {
                    self.note_late(extent, sn);
                }
                if covers {
                    // The last bytes of a canceled lock may have been overwritten under a newer one: nothing left to flush.
                    self.settle(extent, out);
                }
            }
            Input::Fetched { extent, sn } => {
                for gap in self.missing(extent) {
                    self.cache.insert(gap, Tag { sn, state: State::Clean });
                }
            }
            Input::Flush { lock, region, sn, release, urgent } => {
                self.flush(lock, Canceled { region, sn, release }, urgent, out);
            }
            Input::Hurry { lock } => {
                if self.cancels.contains_key(&lock) {
                    self.urgent.insert(lock);
                    self.unsent.insert(lock);
                }
            }
            Input::Take { job, bytes_max, pieces_max, urgent_only } => {
                self.take(job, bytes_max, pieces_max, urgent_only, out);
            }
            Input::Acknowledged { job, errno } => self.acknowledged(job, errno, out),
            Input::Barrier { barrier, next_job } => self.set_barrier(barrier, next_job, out),
            Input::Retry => self.stalled = false,
            Input::Reclaim { extent } => self.forget_clean(&extent.into(), Sn(u64::MAX), out),
            Input::Forget { region, sn } => self.forget_clean(&region, sn, out),
            Input::Truncated { length } => self.truncated(length, out),
            Input::Lost => self.lost(out),
        }
    }

    /// Bytes that are newer than on the server and not on their way.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.bytes()
    }

    /// Whether a lock or barrier waits for a flush that has not been taken yet.
    #[must_use]
    pub fn wants_flush(&self) -> bool {
        self.has_urgent() || (!self.dirty.is_empty() && !self.barriers.is_empty() && !self.stalled)
    }

    /// Locks whose flush has been put off.
    #[must_use]
    pub fn put_off_count(&self) -> usize {
        self.cancels.len()
    }

    /// Whether somebody waits for all that is dirty.
    #[must_use]
    pub fn has_barrier(&self) -> bool {
        !self.barriers.is_empty()
    }

    /// Whether this barrier has not been reported as done.
    #[must_use]
    pub fn waits_for(&self, barrier: BarrierId) -> bool {
        self.barriers.contains_key(&barrier)
    }

    /// Whether this flush has been taken and not been answered.
    #[must_use]
    pub fn is_under_way(&self, job: JobId) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Whether anything is on its way to the server at or above `offset`.
    #[must_use]
    pub fn in_flight_above(&self, offset: u64) -> bool {
        Extent::new(offset, Extent::EOF)
            .is_some_and(|above| self.in_flight.overlapping(above).next().is_some())
    }

    /// Whether any byte of `extent` is cached or on its way: its pages are needed.
    #[must_use]
    pub fn needs_pages(&self, extent: Extent) -> bool {
        self.cache.overlapping(extent).next().is_some() || self.in_flight.overlapping(extent).next().is_some()
    }

    /// One past the last byte that the server has not acknowledged; 0 if none.
    #[must_use]
    pub fn unacknowledged_end(&self) -> u64 {
        self.dirty.end().unwrap_or(0).max(self.in_flight.end().unwrap_or(0))
    }

    /// The last flush under way that a release travels with. Until it is answered nobody here knows whether the server has
    /// the data, and perhaps somebody else has cut or overwritten them since: [`Stripe::unacknowledged_end`] may say too much.
    #[must_use]
    pub fn last_leaving(&self) -> Option<JobId> {
        self.cancels.values().filter_map(|cancel| cancel.travels_with).max()
    }

    /// Whether a release travels with a flush up to number `job` that has not been answered.
    #[must_use]
    pub fn is_leaving(&self, job: JobId) -> bool {
        self.cancels.values().filter_map(|cancel| cancel.travels_with).any(|traveling| traveling <= job)
    }

    /// Whether nothing is cached or under way.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cache.is_empty()
            && self.in_flight.is_empty()
            && self.cancels.is_empty()
            && self.barriers.is_empty()
    }

    /// Whether `extent` can be read from the cache (under a lock that allows reading).
    #[must_use]
    pub fn readable(&self, extent: Extent) -> Readable {
        if self.cache.overlapping(extent).any(|(_, tag)| tag.state == State::Leaving) {
            return Readable::Wait;
        }
        let missing = self.missing(extent);
        if missing.is_empty() { Readable::All } else { Readable::Missing(missing) }
    }

    fn missing(&self, extent: Extent) -> Vec<Extent> {
        self.cache.gaps(extent)
    }

    fn written(&mut self, extent: Extent, sn: Sn) {
        debug_assert!(
            self.cache.overlapping(extent).all(|(_, tag)| tag.sn <= sn),
            "within a client, writes of overlapping bytes are in the order of their locks"
        );
        self.cache.insert(extent, Tag { sn, state: State::Dirty });
        self.dirty.insert(extent, sn);
    }

    /// Forgets clean bytes with numbers up to `sn`.
    pub(super) fn forget_clean(&mut self, region: &Region, sn: Sn, out: &mut Vec<Effect>) {
        let mut forgotten = false;
        let forget = |tag: Tag| {
            let keep = tag.state != State::Clean || tag.sn > sn;
            forgotten |= !keep;
            keep.then_some(tag)
        };
        self.change(region, forget);
        if forgotten {
            out.push(Effect::Forgotten { extent: region.bounds() });
        }
    }

    /// Changes what is cached of a region.
    pub(super) fn change(&mut self, region: &Region, mut change: impl FnMut(Tag) -> Option<Tag>) {
        if let Some(extent) = region.as_extent() {
            return self.cache.update(extent, change);
        }
        let found: Vec<(Extent, Tag)> = parts(&self.cache, region, Extent::WHOLE).collect();
        for (part, _) in found {
            self.cache.update(part, &mut change);
        }
    }

    /// Whether anything of a region that was written under numbers up to `sn` has not been acknowledged.
    #[must_use]
    pub fn has_data(&self, region: &Region, sn: Sn) -> bool {
        let mut unsent = parts(&self.dirty, region, Extent::WHOLE);
        let mut sent = parts(&self.in_flight, region, Extent::WHOLE);
        unsent.any(|(_, number)| number <= sn) || sent.any(|(_, number)| number <= sn)
    }

    fn truncated(&mut self, length: u64, out: &mut Vec<Effect>) {
        let Some(above) = Extent::new(length, Extent::EOF) else { return };
        self.cache.remove(above);
        self.dirty.remove(above);
        for barrier in self.barriers.values_mut() {
            barrier.pending.remove(above);
        }
        out.push(Effect::Forgotten { extent: above });
        self.settle(above, out);
    }

    fn lost(&mut self, out: &mut Vec<Effect>) {
        const EIO: i32 = 5;
        let unsaved = !self.dirty.is_empty() || !self.in_flight.is_empty();
        for barrier in self.barriers.keys() {
            out.push(Effect::BarrierDone { barrier: *barrier, errno: Some(EIO) });
        }
        *self = Stripe::default();
        if unsaved {
            out.push(Effect::DataLost { extent: Extent::WHOLE, errno: EIO });
        }
        out.push(Effect::Forgotten { extent: Extent::WHOLE });
    }
}
