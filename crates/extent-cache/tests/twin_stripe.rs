//! A stripe under random histories against its dumb twin: all operations one after the other, in the order of their numbers.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ccpfs_extent_cache::{Arriving, Effect, Input, JobId, Stripe, WaitId, Work, WriteId};
use ccpfs_types::{Extent, Sn};

const SPACE: u64 = 48;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap()
    }

    fn extent(&mut self) -> Extent {
        let start = self.below(SPACE - 1);
        Extent::new(start, start + 1 + self.below(SPACE - start)).unwrap()
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Write { pieces: Vec<Extent> },
    Truncate { length: u64 },
}

/// A granted lock with one operation under it, unreleased until the operation is acknowledged.
#[derive(Clone, Debug)]
struct Lock {
    sn: Sn,
    operation: Operation,
    arrived: bool,
}

impl Lock {
    fn overlaps(&self, extent: Extent) -> bool {
        match &self.operation {
            Operation::Write { pieces } => pieces.iter().any(|piece| piece.overlaps(extent)),
            Operation::Truncate { length } => Extent::to_eof(*length).overlaps(extent),
        }
    }
}

/// A file as bytes: each byte is the number of the operation that wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
struct File(Vec<u64>);

impl File {
    fn fill(&mut self, extent: Extent, value: u64) {
        let (start, end) = (usize::try_from(extent.start()).unwrap(), usize::try_from(extent.end()).unwrap());
        if self.0.len() < end {
            self.0.resize(end, 0);
        }
        self.0[start..end].fill(value);
    }

    fn punch(&mut self, extent: Extent) {
        for at in extent.start()..extent.end().min(self.0.len() as u64) {
            self.0[usize::try_from(at).unwrap()] = 0;
        }
    }

    fn apply(&mut self, work: &Work, value: u64) {
        match work {
            Work::Write { parts } => parts.iter().for_each(|part| self.fill(part.extent, value)),
            Work::Cut { holes, length } => {
                holes.iter().for_each(|hole| self.punch(*hole));
                if let Some(length) = length {
                    self.0.resize(usize::try_from(*length).unwrap(), 0);
                }
            }
        }
    }

    fn serially(done: &[Lock]) -> File {
        let mut file = File::default();
        let mut sorted = done.to_vec();
        sorted.sort_by_key(|lock| lock.sn);
        for lock in &sorted {
            match &lock.operation {
                Operation::Write { pieces } => pieces.iter().for_each(|piece| file.fill(*piece, lock.sn.0)),
                Operation::Truncate { length } => file.0.resize(usize::try_from(*length).unwrap(), 0),
            }
        }
        file
    }
}

struct World {
    random: Random,
    stripe: Stripe,
    file: File,
    locks: Vec<Lock>,
    released: Vec<Lock>,
    at_device: Vec<(JobId, WriteId, Work)>,
    next_sn: u64,
    waits: u64,
    ready: u64,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Random(seed),
            stripe: Stripe::new(),
            file: File::default(),
            locks: Vec::new(),
            released: Vec::new(),
            at_device: Vec::new(),
            next_sn: 1,
            waits: 0,
            ready: 0,
        }
    }

    fn step(&mut self, input: Input) {
        let mut out = Vec::new();
        self.stripe.step(input, &mut out);
        for effect in out {
            match effect {
                Effect::Start { job, write, work } => self.at_device.push((job, write, work)),
                Effect::Acknowledge { write, errno } => {
                    assert_eq!(errno, None);
                    let at = self.locks.iter().position(|lock| lock.sn.0 == write.0).unwrap();
                    self.released.push(self.locks.swap_remove(at));
                }
                Effect::Ready { errno, .. } => {
                    assert_eq!(errno, None);
                    self.ready += 1;
                }
            }
        }
    }

    fn grant(&mut self) {
        let operation = if self.random.below(5) == 0 {
            Operation::Truncate { length: self.random.below(SPACE) }
        } else {
            let (a, b) = (self.random.extent(), self.random.extent());
            Operation::Write { pieces: if a.end() <= b.start() { vec![a, b] } else { vec![a] } }
        };
        self.locks.push(Lock { sn: Sn(self.next_sn), operation, arrived: false });
        self.next_sn += 1;
    }

    fn arrive(&mut self) {
        let waiting: Vec<usize> = (0..self.locks.len()).filter(|at| !self.locks[*at].arrived).collect();
        if waiting.is_empty() {
            return;
        }
        let at = waiting[self.random.index(waiting.len())];
        self.locks[at].arrived = true;
        let lock = self.locks[at].clone();
        let write = WriteId(lock.sn.0);
        self.step(match lock.operation {
            Operation::Truncate { length } => Input::Hole { write, from: length, sn: lock.sn },
            Operation::Write { pieces } => Input::Arrived {
                write,
                pieces: pieces
                    .iter()
                    .map(|extent| Arriving { extent: *extent, sn: lock.sn, bulk_offset: extent.start() })
                    .collect(),
            },
        });
    }

    fn complete(&mut self) {
        if self.at_device.is_empty() {
            return;
        }
        let at = self.random.index(self.at_device.len());
        let (job, write, work) = self.at_device.swap_remove(at);
        if let Work::Write { parts } = &work {
            assert!(parts.iter().all(|part| part.bulk_offset == part.extent.start()), "{parts:?}");
        }
        self.file.apply(&work, write.0);
        self.step(Input::Persisted { job });
    }

    fn trim(&mut self) {
        let limit = 1 + self.random.index(4);
        let floor =
            |extent: Extent| self.locks.iter().filter(|lock| lock.overlaps(extent)).map(|lock| lock.sn).min();
        let floors = self.stripe.candidates(limit).into_iter().map(|(e, _)| (e, floor(e))).collect();
        self.step(Input::Trim { floors });
    }

    fn wait(&mut self) {
        self.waits += 1;
        let input = Input::Await { wait: WaitId(self.waits), extent: self.random.extent() };
        self.step(input);
    }

    fn drain(&mut self) {
        while !self.locks.is_empty() {
            self.arrive();
            self.complete();
        }
    }
}

//= protocol.md#I3 type=test
//= protocol.md#I6 type=test
#[test]
fn any_order_of_arrival_completion_and_trimming_leaves_the_newest_bytes() {
    for seed in 0..3000 {
        let mut world = World::new(seed);
        let most = 1 + world.random.below(12);
        for _ in 0..120 {
            match world.random.below(5) {
                0 if (world.locks.len() as u64) < most => world.grant(),
                0 | 1 => world.arrive(),
                2 => world.complete(),
                3 => world.trim(),
                _ => world.wait(),
            }
        }
        world.drain();
        assert_eq!(world.file, File::serially(&world.released), "seed {seed}");
        assert_eq!(world.ready, world.waits, "seed {seed}: every wait ends");
        world.step(Input::Trim { floors: vec![(Extent::WHOLE, None)] });
        assert!(world.stripe.is_idle(), "seed {seed}");
    }
}

#[test]
fn trimming_by_a_wrong_floor_would_be_noticed_here() {
    let broken = (0..200).any(|seed| {
        let mut world = World::new(seed);
        for _ in 0..120 {
            match world.random.below(5) {
                0 if world.locks.len() < 8 => world.grant(),
                0 | 1 => world.arrive(),
                2 | 3 => world.complete(),
                _ => world.step(Input::Trim { floors: vec![(Extent::WHOLE, None)] }),
            }
        }
        world.drain();
        world.file != File::serially(&world.released)
    });
    assert!(broken, "the check of I6 can fail");
}

#[test]
fn a_late_flush_does_not_undo_a_truncate() {
    let mut world = World::new(1);
    let write = Operation::Write { pieces: vec![Extent::new(0, 40).unwrap()] };
    world.locks.push(Lock { sn: Sn(1), operation: write, arrived: true });
    world.locks.push(Lock { sn: Sn(2), operation: Operation::Truncate { length: 10 }, arrived: true });
    world.step(Input::Hole { write: WriteId(2), from: 10, sn: Sn(2) });
    world.complete();
    let piece = Arriving { extent: Extent::new(0, 40).unwrap(), sn: Sn(1), bulk_offset: 0 };
    world.step(Input::Arrived { write: WriteId(1), pieces: vec![piece] });
    world.complete();
    assert_eq!(world.file.0, [1; 10]);
}
