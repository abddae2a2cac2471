//! The order of device jobs: those that share a byte run one after the other, in the order of admission.
//!
//! *What*: the queue between admission and device.
//! *Invariants*: two started jobs of one stripe never share a byte. So the last one admitted is the last one
//! written, which is what makes I3 hold on the device and not only in the extent cache.
//! *Not here*: which of several started jobs the device takes first; that is free.

use crate::{Effect, Part, WaitId, WriteId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ccpfs_types::{Extent, ExtentIndex};

/// A device job, numbered per stripe in the order of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What the device is to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Write these parts, which are in ascending order and share no bytes.
    Write {
        /// At least one.
        parts: Vec<Part>,
    },
    /// Make zeros, then set the length.
    Cut {
        /// Where zeros must be read from now on; never to the end of the file.
        holes: Vec<Extent>,
        /// The stripe's new length in bytes, shorter or longer than before; `None` leaves it.
        length: Option<u64>,
    },
}

impl Work {
    /// The bytes it changes, in ascending order.
    fn footprint(&self) -> Vec<Extent> {
        match self {
            Work::Write { parts } => parts.iter().map(|part| part.extent).collect(),
            Work::Cut { holes, length } => {
                let mut footprint = holes.clone();
                footprint.extend(length.and_then(|length| Extent::new(length, Extent::EOF)));
                footprint
            }
        }
    }
}

/// Who goes on when a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Follower {
    Job(JobId),
    Wait(WaitId),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum JobState {
    /// So many earlier jobs that overlap it have not ended.
    Blocked { blockers: usize, work: Work },
    /// At the device.
    Started,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Job {
    write: WriteId,
    state: JobState,
    /// Ascending, disjoint.
    footprint: Vec<Extent>,
    cuts: bool,
    followers: Vec<Follower>,
}

impl Job {
    fn hull(&self) -> Extent {
        let first = self.footprint.first().expect("a job changes something");
        let last = self.footprint.last().expect("a job changes something");
        first.hull(*last)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    blockers: usize,
    errno: Option<i32>,
}

/// The device jobs of a stripe that have not ended, and who waits for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Queue {
    jobs: BTreeMap<JobId, Job>,
    hulls: ExtentIndex<u64>,
    /// What they change, piece by piece: jobs of interleaved pieces are near each other only by their hulls.
    pieces: ExtentIndex<u64>,
    waits: BTreeMap<WaitId, Waiting>,
    next: u64,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether a job that has not ended changes bytes of `extent`.
    pub(crate) fn touches(&self, extent: Extent) -> bool {
        self.pieces.overlapping(extent).next().is_some()
    }

    /// One past the last byte that waiting and started writes bring, and whether a cut is among them.
    pub(crate) fn pending_end(&self) -> (u64, bool) {
        let cuts = self.jobs.values().any(|job| job.cuts);
        let end = self.jobs.values().filter(|job| !job.cuts).map(|job| job.hull().end()).max();
        (end.unwrap_or(0), cuts)
    }

    /// Takes a job in, behind those that overlap it.
    pub(crate) fn push(&mut self, write: WriteId, work: Work, out: &mut Vec<Effect>) {
        let id = JobId(self.next);
        self.next += 1;
        let footprint = work.footprint();
        assert!(!footprint.is_empty(), "admission makes no job that changes nothing");
        let mut before: Vec<u64> =
            footprint.iter().flat_map(|piece| self.pieces.overlapping(*piece)).map(|(_, job)| job).collect();
        before.sort_unstable();
        before.dedup();
        let blockers = self.follow(&before, Follower::Job(id));
        let cuts = matches!(work, Work::Cut { .. });
        let state = if blockers == 0 {
            out.push(Effect::Start { job: id, write, work });
            JobState::Started
        } else {
            JobState::Blocked { blockers, work }
        };
        let job = Job { write, state, footprint, cuts, followers: Vec::new() };
        self.hulls.insert(job.hull(), id.0);
        for piece in &job.footprint {
            self.pieces.insert(*piece, id.0);
        }
        self.jobs.insert(id, job);
    }

    /// Takes a wait in, behind the jobs that overlap `extent`.
    pub(crate) fn wait(&mut self, wait: WaitId, extent: Extent, out: &mut Vec<Effect>) {
        // Most wait for all of a stripe, which has fewer jobs than pieces.
        let near = self.hulls.overlapping(extent).map(|(_, job)| job);
        let before: Vec<u64> =
            near.filter(|job| overlap(&self.jobs[&JobId(*job)].footprint, extent)).collect();
        let blockers = self.follow(&before, Follower::Wait(wait));
        if blockers == 0 {
            out.push(Effect::Ready { wait, errno: None });
            return;
        }
        let before = self.waits.insert(wait, Waiting { blockers, errno: None });
        assert!(before.is_none(), "each wait has a number of its own");
    }

    /// Takes a job out and starts those that waited for it alone. Returns the write it belonged to.
    pub(crate) fn ended(&mut self, id: JobId, errno: Option<i32>, out: &mut Vec<Effect>) -> WriteId {
        let job = self.jobs.remove(&id).expect("a job ends once, after it was started");
        assert_eq!(job.state, JobState::Started, "a job ends after it was started");
        self.hulls.remove(job.hull(), id.0);
        for piece in &job.footprint {
            self.pieces.remove(*piece, id.0);
        }
        for follower in job.followers {
            match follower {
                Follower::Job(next) => self.unblock_job(next, out),
                Follower::Wait(wait) => self.unblock_wait(wait, errno, out),
            }
        }
        job.write
    }

    /// Makes `follower` wait for these jobs; returns how many.
    fn follow(&mut self, jobs: &[u64], follower: Follower) -> usize {
        for job in jobs {
            let job = self.jobs.get_mut(&JobId(*job)).expect("the index names jobs that have not ended");
            job.followers.push(follower);
        }
        jobs.len()
    }

    fn unblock_job(&mut self, id: JobId, out: &mut Vec<Effect>) {
        let job = self.jobs.get_mut(&id).expect("a job does not end before those it waits for");
        let (blockers, work) = match &mut job.state {
            JobState::Blocked { blockers, work } => (blockers, work),
            JobState::Started => panic!("a job starts after those it waits for have ended"),
        };
        *blockers -= 1;
        if *blockers == 0 {
            let work = core::mem::replace(work, Work::Write { parts: Vec::new() });
            job.state = JobState::Started;
            out.push(Effect::Start { job: id, write: job.write, work });
        }
    }

    fn unblock_wait(&mut self, wait: WaitId, errno: Option<i32>, out: &mut Vec<Effect>) {
        let waiting = self.waits.get_mut(&wait).expect("a wait ends after all it waits for");
        waiting.errno = waiting.errno.or(errno);
        waiting.blockers -= 1;
        if waiting.blockers == 0 {
            let errno = waiting.errno;
            self.waits.remove(&wait);
            out.push(Effect::Ready { wait, errno });
        }
    }
}

/// Whether `extent` shares a byte with one of these ascending, disjoint extents.
fn overlap(footprint: &[Extent], extent: Extent) -> bool {
    let skip = footprint.partition_point(|piece| piece.end() <= extent.start());
    footprint.get(skip).is_some_and(|piece| piece.overlaps(extent))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn write(start: u64, end: u64) -> Work {
        Work::Write { parts: vec![Part { extent: Extent::new(start, end).unwrap(), bulk_offset: 0 }] }
    }

    fn started(out: &mut Vec<Effect>) -> Vec<u64> {
        out.drain(..)
            .filter_map(|effect| match effect {
                Effect::Start { job, .. } => Some(job.0),
                Effect::Acknowledge { .. } | Effect::Ready { .. } => None,
            })
            .collect()
    }

    #[test]
    fn jobs_that_overlap_start_one_after_the_other_and_others_at_once() {
        let (mut queue, mut out) = (Queue::default(), Vec::new());
        for (start, end) in [(0, 10), (5, 15), (20, 30), (9, 21)] {
            queue.push(WriteId(0), write(start, end), &mut out);
        }
        assert_eq!(started(&mut out), [0, 2]);
        queue.ended(JobId(0), None, &mut out);
        assert_eq!(started(&mut out), [1]);
        queue.ended(JobId(2), None, &mut out);
        assert_eq!(started(&mut out), []);
        queue.ended(JobId(1), None, &mut out);
        assert_eq!(started(&mut out), [3]);
        queue.ended(JobId(3), None, &mut out);
        assert_eq!((queue.len(), queue.hulls.len(), queue.pieces.len()), (0, 0, 0));
    }

    #[test]
    fn interleaved_strided_jobs_do_not_wait_for_each_other() {
        let (mut queue, mut out) = (Queue::default(), Vec::new());
        for first in [0, 10] {
            let parts = (0..100)
                .map(|k| Part {
                    extent: Extent::with_length(first + k * 20, 10).unwrap(),
                    bulk_offset: k * 10,
                })
                .collect();
            queue.push(WriteId(0), Work::Write { parts }, &mut out);
        }
        assert_eq!(started(&mut out), [0, 1]);
    }

    #[test]
    fn a_wait_ends_after_the_jobs_before_it_and_tells_their_error() {
        let (mut queue, mut out) = (Queue::default(), Vec::new());
        queue.push(WriteId(0), write(0, 10), &mut out);
        queue.push(WriteId(1), write(10, 20), &mut out);
        out.clear();
        queue.wait(WaitId(7), Extent::WHOLE, &mut out);
        queue.wait(WaitId(8), Extent::new(30, 40).unwrap(), &mut out);
        assert_eq!(out.pop(), Some(Effect::Ready { wait: WaitId(8), errno: None }));
        queue.push(WriteId(2), write(50, 60), &mut out);
        queue.ended(JobId(1), Some(28), &mut out);
        out.clear();
        queue.ended(JobId(0), None, &mut out);
        assert_eq!(out, [Effect::Ready { wait: WaitId(7), errno: Some(28) }]);
    }
}
