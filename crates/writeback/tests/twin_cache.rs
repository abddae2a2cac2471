//! The client cache against its dumb twin: an array with number and state of every byte, looked through from end to end.
//!
//! The twin does not choose what to flush; it checks what the cache has chosen, and says what must follow. Locks come and go
//! as a lock cache would have them: written is only under a lock that is held, and overlapping locks are held one at a time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_types::{Extent, LockId, Sn};
use ccpfs_writeback::{BarrierId, Effect, Input, JobId, Readable, Stripe};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SPACE: usize = 24;
const EPERM: i32 = 1;
const ENOSPC: i32 = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Clean,
    Dirty,
    Flushing,
    Leaving,
}

#[derive(Clone, Debug)]
enum Event {
    /// A lock is granted; locks of ours that overlap it are canceled before.
    Grant {
        extent: Extent,
        put_off: bool,
    },
    /// Under the lock at this place of the list, counted around; within its extent.
    Write {
        lock: usize,
        part: Extent,
    },
    Fetch {
        lock: usize,
        part: Extent,
    },
    Cancel {
        lock: usize,
        urgent: bool,
    },
    /// Data are flushed so that the lock can be lowered; it stays.
    Lower {
        lock: usize,
    },
    Hurry {
        lock: usize,
    },
    Take {
        bytes_max: u64,
        pieces_max: usize,
        urgent_only: bool,
    },
    Answer {
        job: usize,
        errno: Option<i32>,
    },
    Barrier,
    Retry,
    Reclaim {
        extent: Extent,
    },
    Truncate {
        length: u64,
    },
    Lose,
}

fn extents() -> impl Strategy<Value = Extent> {
    let space = SPACE as u64;
    (0..space, 1..=space)
        .prop_map(move |(start, length)| Extent::new(start, (start + length).min(space)).unwrap())
}

fn events() -> impl Strategy<Value = Event> {
    let place = any::<usize>;
    let error = || prop_oneof![4 => Just(None), 1 => Just(Some(EPERM)), 1 => Just(Some(ENOSPC))];
    prop_oneof![
        4 => (extents(), any::<bool>()).prop_map(|(extent, put_off)| Event::Grant { extent, put_off }),
        6 => (place(), extents()).prop_map(|(lock, part)| Event::Write { lock, part }),
        2 => (place(), extents()).prop_map(|(lock, part)| Event::Fetch { lock, part }),
        2 => (place(), any::<bool>()).prop_map(|(lock, urgent)| Event::Cancel { lock, urgent }),
        1 => place().prop_map(|lock| Event::Lower { lock }),
        1 => place().prop_map(|lock| Event::Hurry { lock }),
        5 => (1_u64..30, 1_usize..5, any::<bool>())
            .prop_map(|(bytes_max, pieces_max, urgent_only)| Event::Take { bytes_max, pieces_max, urgent_only }),
        5 => (place(), error()).prop_map(|(job, errno)| Event::Answer { job, errno }),
        1 => Just(Event::Barrier),
        1 => Just(Event::Retry),
        1 => extents().prop_map(|extent| Event::Reclaim { extent }),
        1 => (0..SPACE as u64).prop_map(|length| Event::Truncate { length }),
        1 => prop_oneof![9 => Just(Event::Retry), 1 => Just(Event::Lose)],
    ]
}

fn cells(extent: Extent) -> std::ops::Range<usize> {
    let end = usize::try_from(extent.end()).unwrap_or(SPACE).min(SPACE);
    usize::try_from(extent.start()).unwrap().min(end)..end
}

#[derive(Clone, Debug)]
struct Cancel {
    extent: Extent,
    sn: u64,
    release: bool,
    urgent: bool,
    travels_with: Option<u64>,
}

#[derive(Clone, Debug, Default)]
struct Barrier {
    /// For each byte waited for, the first job that counts.
    pending: BTreeMap<usize, u64>,
    errno: Option<i32>,
}

/// What must follow from an event, apart from what is sent: in no particular order.
#[derive(Debug, Default, PartialEq, Eq)]
struct Expected {
    flushed: BTreeSet<(u64, bool)>,
    barriers: BTreeSet<(u64, Option<i32>)>,
    lost: bool,
}

/// One value per byte for everything.
#[derive(Default)]
struct Twin {
    cache: Vec<Option<(u64, State)>>,
    /// Job and number of what is on its way.
    in_flight: Vec<Option<(u64, u64)>>,
    cancels: BTreeMap<u64, Cancel>,
    barriers: BTreeMap<u64, Barrier>,
    stalled: bool,
}

impl Twin {
    fn new() -> Twin {
        Twin { cache: vec![None; SPACE], in_flight: vec![None; SPACE], ..Twin::default() }
    }

    fn state(&self, at: usize) -> Option<State> {
        self.cache[at].map(|(_, state)| state)
    }

    fn is_dirty(&self, at: usize, sn: u64) -> bool {
        self.cache[at].is_some_and(|(own, state)| state == State::Dirty && own <= sn)
    }

    fn forget_clean(&mut self, extent: Extent, sn: u64) {
        for at in cells(extent) {
            self.cache[at] = self.cache[at].filter(|(own, state)| *state != State::Clean || *own > sn);
        }
    }

    fn flush(&mut self, lock: u64, cancel: Cancel) {
        if cancel.release {
            self.forget_clean(cancel.extent, cancel.sn);
            for at in cells(cancel.extent) {
                if let Some((own, state @ State::Flushing)) = &mut self.cache[at]
                    && *own <= cancel.sn
                {
                    *state = State::Leaving;
                }
            }
        }
        self.stalled = false;
        self.cancels.insert(lock, cancel);
    }

    /// What waits for nothing any more.
    fn settle(&mut self, expected: &mut Expected) {
        let waits = |at: usize, cancel: &Cancel| {
            self.is_dirty(at, cancel.sn) || self.in_flight[at].is_some_and(|(_, sn)| sn <= cancel.sn)
        };
        let quiet: Vec<u64> = self
            .cancels
            .iter()
            .filter(|(_, c)| c.travels_with.is_none() && !cells(c.extent).any(|at| waits(at, c)))
            .map(|(lock, _)| *lock)
            .collect();
        for lock in quiet {
            let cancel = self.cancels.remove(&lock).unwrap();
            if cancel.release {
                self.forget_clean(cancel.extent, cancel.sn);
            }
            expected.flushed.insert((lock, false));
        }
        let nothing_flies = self.in_flight.iter().all(Option::is_none);
        let given_up = |b: &Barrier| b.errno.is_some() && self.stalled && nothing_flies;
        let done: Vec<u64> = self
            .barriers
            .iter()
            .filter(|(_, b)| b.pending.is_empty() || given_up(b))
            .map(|(barrier, _)| *barrier)
            .collect();
        for barrier in done {
            expected.barriers.insert((barrier, self.barriers.remove(&barrier).unwrap().errno));
        }
    }

    /// Takes what the cache has chosen to send, and says which locks must be released by it.
    fn taken(&mut self, job: u64, pieces: &[(Extent, Sn)], urgent: bool) -> Vec<LockId> {
        for (extent, sn) in pieces {
            for at in cells(*extent) {
                assert_eq!(self.cache[at], Some((sn.0, State::Dirty)), "what is sent is dirty: byte {at}");
                //= protocol.md#I4 type=test
                assert_eq!(self.in_flight[at], None, "byte {at} is on its way already");
                let waited_for = |c: &Cancel| c.urgent && cells(c.extent).contains(&at) && sn.0 <= c.sn;
                assert!(!urgent || self.cancels.values().any(waited_for), "somebody waits for byte {at}");
                let leaves = |c: &Cancel| c.release && cells(c.extent).contains(&at) && sn.0 <= c.sn;
                let leaving = self.cancels.values().any(leaves);
                self.cache[at] = Some((sn.0, if leaving { State::Leaving } else { State::Flushing }));
                self.in_flight[at] = Some((job, sn.0));
            }
        }
        let mut released = Vec::new();
        for (lock, cancel) in self.cancels.clone() {
            let dirty = cells(cancel.extent).any(|at| self.is_dirty(at, cancel.sn));
            let mut flying = cells(cancel.extent)
                .filter_map(|at| self.in_flight[at])
                .filter(|(_, sn)| *sn <= cancel.sn)
                .peekable();
            let last = !dirty && flying.peek().is_some() && flying.all(|(with, _)| with == job);
            if cancel.release && cancel.travels_with.is_none() && last {
                self.cancels.get_mut(&lock).unwrap().travels_with = Some(job);
                released.push(LockId(lock));
            }
        }
        released
    }

    fn answered(&mut self, job: u64, errno: Option<i32>, expected: &mut Expected) {
        for at in 0..SPACE {
            if self.in_flight[at].is_none_or(|(of, _)| of != job) {
                continue;
            }
            self.in_flight[at] = None;
            for barrier in self.barriers.values_mut() {
                if barrier.pending.get(&at).is_some_and(|first| job >= *first) {
                    barrier.pending.remove(&at);
                }
            }
            let Some((sn, state)) = self.cache[at] else { continue };
            self.cache[at] = match (state, errno) {
                (State::Clean | State::Dirty, _) => Some((sn, state)),
                (State::Flushing, None) => Some((sn, State::Clean)),
                (State::Leaving, None) => None,
                (State::Flushing, Some(ENOSPC)) => {
                    self.stalled = true;
                    // A lock that is only lowered does not make one failing flush follow the other.
                    for cancel in self.cancels.values_mut() {
                        let waits = sn <= cancel.sn && cells(cancel.extent).contains(&at);
                        cancel.urgent &= cancel.release || !waits;
                    }
                    Some((sn, State::Dirty))
                }
                (State::Flushing | State::Leaving, Some(_)) => {
                    expected.lost = true;
                    None
                }
            };
        }
        for barrier in self.barriers.values_mut() {
            barrier.errno = barrier.errno.or(errno);
        }
        let traveled: Vec<u64> =
            self.cancels.iter().filter(|(_, c)| c.travels_with == Some(job)).map(|(lock, _)| *lock).collect();
        for lock in traveled {
            self.cancels.remove(&lock);
            expected.flushed.insert((lock, true));
        }
    }

    fn barrier(&mut self, barrier: u64, next_job: u64) {
        let mut pending = BTreeMap::new();
        for at in 0..SPACE {
            if self.state(at) == Some(State::Dirty) {
                pending.insert(at, next_job);
            } else if self.in_flight[at].is_some() {
                pending.insert(at, 0);
            }
        }
        self.stalled = false;
        self.barriers.insert(barrier, Barrier { pending, errno: None });
    }

    fn truncate(&mut self, length: u64) {
        for at in cells(Extent::to_eof(length)) {
            self.cache[at] = None;
            self.barriers.values_mut().for_each(|barrier| _ = barrier.pending.remove(&at));
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Lock {
    id: u64,
    extent: Extent,
}

/// Pieces, releases, and whether a lock waits.
type Sent = (Vec<(Extent, Sn)>, Vec<LockId>, bool);

struct World {
    stripe: Stripe,
    twin: Twin,
    /// Locks held; a lock's number is its sequence number as well.
    held: Vec<Lock>,
    jobs: Vec<u64>,
    /// Locks and jobs and barriers are numbered by one counter.
    next: u64,
}

impl World {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn lock(&self, place: usize) -> Option<Lock> {
        (!self.held.is_empty()).then(|| self.held[place % self.held.len()])
    }

    /// Gives the cache an input and compares what follows with what must.
    fn step(&mut self, input: Input, mut expected: Expected, settles: bool) -> Option<Sent> {
        if settles {
            self.twin.settle(&mut expected);
        }
        let mut out = Vec::new();
        self.stripe.step(input, &mut out);
        let mut found = Expected::default();
        let mut sent = None;
        for effect in out {
            match effect {
                Effect::Job { pieces, releases, urgent, .. } => sent = Some((pieces, releases, urgent)),
                Effect::Flushed { lock, released } => assert!(found.flushed.insert((lock.0, released))),
                Effect::BarrierDone { barrier, errno } => assert!(found.barriers.insert((barrier.0, errno))),
                Effect::DataLost { .. } => found.lost = true,
                Effect::Forgotten { .. } => {}
            }
        }
        assert_eq!(found, expected);
        sent
    }

    fn cancel(&mut self, lock: Lock, release: bool, urgent: bool) {
        if release {
            self.held.retain(|held| held.id != lock.id);
        }
        let Lock { id, extent } = lock;
        self.twin.flush(id, Cancel { extent, sn: id, release, urgent, travels_with: None });
        let flush = Input::Flush { lock: LockId(id), region: extent.into(), sn: Sn(id), release, urgent };
        self.step(flush, Expected::default(), true);
    }

    fn take(&mut self, bytes_max: u64, pieces_max: usize, urgent_only: bool) {
        let job = self.number();
        let wanted = self.wants_flush();
        let take = Input::Take { job: JobId(job), bytes_max, pieces_max, urgent_only };
        let Some((pieces, releases, urgent)) = self.step(take, Expected::default(), false) else {
            assert!(!wanted.0, "what a lock waits for is sent");
            let could =
                (0..SPACE).any(|at| self.twin.is_dirty(at, u64::MAX) && self.twin.in_flight[at].is_none());
            assert!(urgent_only || self.twin.stalled || !could, "what is dirty is sent");
            return;
        };
        assert_eq!(urgent, wanted.0, "what a lock waits for is sent first");
        assert!(urgent || !(urgent_only || self.twin.stalled));
        assert!(pieces.len() <= pieces_max);
        assert!(pieces.iter().map(|(extent, _)| extent.length()).sum::<u64>() <= bytes_max);
        assert_eq!(releases, self.twin.taken(job, &pieces, urgent));
        self.jobs.push(job);
    }

    fn answer(&mut self, place: usize, errno: Option<i32>) {
        if self.jobs.is_empty() {
            return;
        }
        let job = self.jobs.swap_remove(place % self.jobs.len());
        let mut expected = Expected::default();
        self.twin.answered(job, errno, &mut expected);
        self.step(Input::Acknowledged { job: JobId(job), errno }, expected, true);
    }

    fn lose(&mut self) {
        const EIO: i32 = 5;
        let unsaved =
            |at: usize| self.twin.state(at) == Some(State::Dirty) || self.twin.in_flight[at].is_some();
        let lost = (0..SPACE).any(unsaved);
        let barriers = self.twin.barriers.keys().map(|barrier| (*barrier, Some(EIO))).collect();
        self.twin = Twin::new();
        self.held.clear();
        self.jobs.clear();
        self.step(Input::Lost, Expected { barriers, lost, ..Expected::default() }, false);
    }

    fn play(&mut self, event: &Event) {
        match *event {
            Event::Grant { extent, put_off } => {
                for lock in self.held.clone().into_iter().filter(|lock| lock.extent.overlaps(extent)) {
                    self.cancel(lock, true, !put_off);
                }
                let id = self.number();
                self.held.push(Lock { id, extent });
            }
            Event::Write { lock, part } => {
                let Some(lock) = self.lock(lock) else { return };
                let Some(extent) = lock.extent.intersection(part) else { return };
                cells(extent).for_each(|at| self.twin.cache[at] = Some((lock.id, State::Dirty)));
                self.step(Input::Written { extent, sn: Sn(lock.id) }, Expected::default(), true);
            }
            Event::Fetch { lock, part } => {
                let Some(lock) = self.lock(lock) else { return };
                let Some(extent) = lock.extent.intersection(part) else { return };
                for at in cells(extent) {
                    self.twin.cache[at] = self.twin.cache[at].or(Some((lock.id, State::Clean)));
                }
                self.step(Input::Fetched { extent, sn: Sn(lock.id) }, Expected::default(), false);
            }
            Event::Cancel { lock, urgent } => {
                let Some(lock) = self.lock(lock) else { return };
                self.cancel(lock, true, urgent);
            }
            Event::Lower { lock } => {
                let Some(lock) = self.lock(lock) else { return };
                self.cancel(lock, false, true);
            }
            Event::Hurry { lock } => {
                let locks: Vec<u64> = self.twin.cancels.keys().copied().collect();
                let Some(lock) = locks.get(lock % locks.len().max(1)) else { return };
                self.twin.cancels.get_mut(lock).unwrap().urgent = true;
                self.step(Input::Hurry { lock: LockId(*lock) }, Expected::default(), false);
            }
            Event::Take { bytes_max, pieces_max, urgent_only } => {
                self.take(bytes_max, pieces_max, urgent_only)
            }
            Event::Answer { job, errno } => self.answer(job, errno),
            Event::Barrier => {
                let (barrier, next_job) = (self.number(), self.next + 1);
                self.twin.barrier(barrier, next_job);
                let input = Input::Barrier { barrier: BarrierId(barrier), next_job: JobId(next_job) };
                self.step(input, Expected::default(), true);
            }
            Event::Retry => {
                self.twin.stalled = false;
                self.step(Input::Retry, Expected::default(), false);
            }
            Event::Reclaim { extent } => {
                self.twin.forget_clean(extent, u64::MAX);
                self.step(Input::Reclaim { extent }, Expected::default(), false);
            }
            Event::Truncate { length } => {
                self.twin.truncate(length);
                self.step(Input::Truncated { length }, Expected::default(), true);
            }
            Event::Lose => self.lose(),
        }
    }

    /// Whether a lock, whether a barrier waits for something that could be sent.
    fn wants_flush(&self) -> (bool, bool) {
        let twin = &self.twin;
        let waits =
            |c: &Cancel| cells(c.extent).any(|at| twin.is_dirty(at, c.sn) && twin.in_flight[at].is_none());
        let dirty = (0..SPACE).any(|at| twin.is_dirty(at, u64::MAX));
        let urgent = twin.cancels.values().any(|c| c.urgent && waits(c));
        (urgent, dirty && !twin.barriers.is_empty() && !twin.stalled)
    }

    /// Everything that can be asked.
    fn compare(&self, probe: Extent) {
        let (twin, stripe) = (&self.twin, &self.stripe);
        let dirty = (0..SPACE).filter(|at| twin.is_dirty(*at, u64::MAX));
        assert_eq!(stripe.dirty_bytes(), dirty.clone().count() as u64);
        let mut unacknowledged =
            (0..SPACE).filter(|at| twin.is_dirty(*at, u64::MAX) || twin.in_flight[*at].is_some());
        assert_eq!(stripe.unacknowledged_end(), unacknowledged.next_back().map_or(0, |at| at as u64 + 1));
        let (by_lock, by_barrier) = self.wants_flush();
        assert_eq!(stripe.wants_flush(), by_lock || by_barrier);
        assert_eq!(stripe.has_barrier(), !twin.barriers.is_empty());
        assert_eq!(stripe.put_off_count(), twin.cancels.len());
        let needed = |at: usize| twin.cache[at].is_some() || twin.in_flight[at].is_some();
        assert_eq!(stripe.needs_pages(probe), cells(probe).any(needed));
        let above = cells(Extent::to_eof(probe.start())).any(|at| twin.in_flight[at].is_some());
        assert_eq!(stripe.in_flight_above(probe.start()), above);
        let leaving = twin.cancels.values().filter_map(|c| c.travels_with);
        assert_eq!(stripe.last_leaving(), leaving.clone().max().map(JobId));
        for job in &self.jobs {
            assert_eq!(stripe.is_leaving(JobId(*job)), leaving.clone().any(|with| with <= *job));
            assert!(stripe.is_under_way(JobId(*job)));
        }
        let idle = !(0..SPACE).any(needed) && twin.cancels.is_empty() && twin.barriers.is_empty();
        assert_eq!(stripe.is_empty(), idle);
        let missing: BTreeSet<usize> = cells(probe).filter(|at| twin.cache[*at].is_none()).collect();
        match stripe.readable(probe) {
            Readable::Wait => assert!(cells(probe).any(|at| twin.state(at) == Some(State::Leaving))),
            Readable::All => assert!(missing.is_empty() && !self.leaves(probe)),
            Readable::Missing(extents) => {
                assert!(!self.leaves(probe) && !missing.is_empty());
                assert_eq!(extents.into_iter().flat_map(cells).collect::<BTreeSet<usize>>(), missing);
            }
        }
    }

    fn leaves(&self, probe: Extent) -> bool {
        cells(probe).any(|at| self.twin.state(at) == Some(State::Leaving))
    }
}

//= protocol.md#I9 type=test
proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn the_client_cache_agrees_with_an_array_of_bytes(
        history in prop::collection::vec((events(), extents()), 1..80),
    ) {
        let (stripe, twin) = (Stripe::new(), Twin::new());
        let mut world = World { stripe, twin, held: Vec::new(), jobs: Vec::new(), next: 0 };
        for (event, probe) in &history {
            world.play(event);
            world.compare(*probe);
        }
        // Everything is given back; all of it goes in the end, and every lock with it.
        for lock in world.held.clone() {
            world.cancel(lock, true, true);
        }
        for _ in 0..4 * SPACE {
            world.play(&Event::Retry);
            world.take(u64::MAX, 8, false);
            world.answer(0, None);
        }
        assert!(world.stripe.is_empty(), "{:?}", world.stripe);
    }
}
