//! Admission, holes and trimming against their dumb twin: an array with the newest number of every byte.
//!
//! Device jobs end as soon as they may start; those that wait for each other are the matter of `twin_stripe`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_extent_cache::{Arriving, Effect, Input, JobId, Stripe, Work, WriteId};
use ccpfs_types::{Extent, Sn};
use proptest::prelude::*;

/// Offsets that matter. The last cell of the array stands for all bytes from here to the end of any file.
const SPACE: usize = 32;

#[derive(Clone, Debug)]
enum Event {
    /// A flush of pieces, each with a number.
    Write(Vec<(Extent, u64)>),
    Hole {
        from: u64,
        sn: u64,
    },
    /// Trims all entries from the cursor on, some at a time, with the numbers of unreleased locks by extent.
    Trim {
        limit: usize,
        locks: Vec<(Extent, u64)>,
    },
    /// Trims where it is told to, whatever the entries are.
    TrimHere {
        extent: Extent,
        floor: Option<u64>,
    },
}

fn extents() -> impl Strategy<Value = Extent> {
    let space = SPACE as u64;
    (0..space, 1..=space)
        .prop_map(move |(start, length)| Extent::new(start, (start + length).min(space)).unwrap())
}

fn events() -> impl Strategy<Value = Event> {
    let numbered = || (extents(), 1_u64..12);
    prop_oneof![
        5 => prop::collection::vec(numbered(), 1..4).prop_map(Event::Write),
        1 => (0..SPACE as u64, 1_u64..12).prop_map(|(from, sn)| Event::Hole { from, sn }),
        1 => (1_usize..5, prop::collection::vec(numbered(), 0..4))
            .prop_map(|(limit, locks)| Event::Trim { limit, locks }),
        1 => (extents(), prop::option::of(1_u64..12)).prop_map(|(extent, floor)| Event::TrimHere { extent, floor }),
    ]
}

fn cells(extent: Extent) -> std::ops::Range<usize> {
    let end = if extent.end() == Extent::EOF { SPACE + 1 } else { usize::try_from(extent.end()).unwrap() };
    usize::try_from(extent.start()).unwrap()..end
}

#[derive(Default)]
struct World {
    stripe: Stripe,
    twin: Vec<Option<u64>>,
    next_write: u64,
}

impl World {
    fn new() -> World {
        World { twin: vec![None; SPACE + 1], ..World::default() }
    }

    /// Gives the stripe a write and ends its jobs; what they did, in order.
    fn run(&mut self, input: impl FnOnce(WriteId) -> Input) -> Vec<Work> {
        self.next_write += 1;
        let write = WriteId(self.next_write);
        let (mut out, mut started) = (Vec::new(), Vec::new());
        self.stripe.step(input(write), &mut out);
        let mut acknowledged = 0;
        while !out.is_empty() {
            let effects = std::mem::take(&mut out);
            for effect in effects {
                match effect {
                    Effect::Start { job, write: of, work } => {
                        assert_eq!(of, write);
                        started.push((job, work));
                        self.stripe.step(Input::Persisted { job }, &mut out);
                    }
                    Effect::Acknowledge { write: of, errno } => {
                        assert_eq!((of, errno), (write, None));
                        acknowledged += 1;
                    }
                    Effect::Ready { .. } => panic!("nobody waits"),
                }
            }
        }
        assert_eq!((acknowledged, self.stripe.jobs()), (1, 0));
        started.sort_by_key(|(JobId(job), _)| *job);
        started.into_iter().map(|(_, work)| work).collect()
    }

    /// Takes those cells that nothing newer holds.
    fn take(&mut self, extent: Extent, sn: u64) -> Vec<usize> {
        let free: Vec<usize> =
            cells(extent).filter(|at| self.twin[*at].is_none_or(|newest| newest <= sn)).collect();
        free.iter().for_each(|at| self.twin[*at] = Some(sn));
        free
    }

    fn write(&mut self, pieces: &[(Extent, u64)]) {
        let (mut arriving, mut bulk_offset) = (Vec::new(), 0);
        for (extent, sn) in pieces {
            arriving.push(Arriving { extent: *extent, sn: Sn(*sn), bulk_offset });
            bulk_offset += extent.length();
        }
        // Byte of the stripe, byte of the bulk: in the order of the pieces.
        let mut expected: Vec<(u64, u64)> = Vec::new();
        for piece in &arriving {
            let skip = |at: usize| at as u64 - piece.extent.start();
            let taken = self.take(piece.extent, piece.sn.0);
            expected.extend(taken.into_iter().map(|at| (at as u64, piece.bulk_offset + skip(at))));
        }
        let mut found: Vec<(u64, u64)> = Vec::new();
        for work in self.run(|write| Input::Arrived { write, pieces: arriving }) {
            let Work::Write { parts } = work else { panic!("a write cuts nothing") };
            assert!(parts.windows(2).all(|pair| pair[0].extent.end() <= pair[1].extent.start()), "{parts:?}");
            for part in parts {
                found.extend(
                    (0..part.extent.length()).map(|at| (part.extent.start() + at, part.bulk_offset + at)),
                );
            }
        }
        assert_eq!(found, expected);
    }

    fn hole(&mut self, from: u64, sn: u64) {
        let mut taken = self.take(Extent::to_eof(from), sn);
        // If the end of the file is the truncate's to set, it is where the last run of its cells begins.
        let mut length = None;
        while taken.last().is_some_and(|last| *last as u64 + 1 == length.unwrap_or(SPACE as u64 + 1)) {
            length = taken.pop().map(|at| at as u64);
        }
        let works = self.run(|write| Input::Hole { write, from, sn: Sn(sn) });
        let mut punched = Vec::new();
        let mut cut_to = None;
        for work in works {
            let Work::Cut { holes, length } = work else { panic!("a truncate writes nothing") };
            punched.extend(holes.into_iter().flat_map(cells));
            cut_to = length;
        }
        assert_eq!((punched, cut_to), (taken, length));
    }

    fn trim(&mut self, limit: usize, locks: &[(Extent, u64)]) {
        let floor =
            |extent: Extent| locks.iter().filter(|(lock, _)| lock.overlaps(extent)).map(|(_, sn)| *sn).min();
        let candidates: Vec<Extent> = self.stripe.candidates(limit).into_iter().map(|(e, _)| e).collect();
        assert!(candidates.len() <= limit);
        let held: Vec<(Extent, u64)> = self.runs();
        for candidate in candidates.iter().filter_map(|extent| held.iter().find(|(run, _)| run == extent)) {
            let (extent, sn) = candidate;
            // No unreleased lock over the entry has a smaller number.
            if floor(*extent).is_none_or(|floor| floor >= *sn) {
                self.twin[cells(*extent)].fill(None);
            }
        }
        assert!(
            candidates.iter().all(|extent| held.iter().any(|(run, _)| run == extent)),
            "entries are runs"
        );
        let floors = candidates.into_iter().map(|extent| (extent, floor(extent).map(Sn))).collect();
        self.stripe.step(Input::Trim { floors }, &mut Vec::new());
    }

    fn trim_here(&mut self, extent: Extent, floor: Option<u64>) {
        for cell in &mut self.twin[cells(extent)] {
            *cell = cell.filter(|sn| floor.is_some_and(|floor| *sn > floor));
        }
        let floors = vec![(extent, floor.map(Sn))];
        self.stripe.step(Input::Trim { floors }, &mut Vec::new());
    }

    /// Maximal runs of cells with one number.
    fn runs(&self) -> Vec<(Extent, u64)> {
        let mut runs: Vec<(Extent, u64)> = Vec::new();
        for (at, sn) in self.twin.iter().enumerate() {
            let Some(sn) = *sn else { continue };
            let cell = if at == SPACE {
                Extent::to_eof(SPACE as u64)
            } else {
                Extent::new(at as u64, at as u64 + 1).unwrap()
            };
            match runs.last_mut() {
                Some((run, old)) if run.end() == cell.start() && *old == sn => *run = run.hull(cell),
                Some(_) | None => runs.push((cell, sn)),
            }
        }
        runs
    }

    fn compare(&self) {
        let runs = self.runs();
        assert_eq!(self.stripe.entries(), runs.len());
        assert_eq!(self.stripe.is_idle(), runs.is_empty());
    }

    fn play(&mut self, event: &Event) {
        match event {
            Event::Write(pieces) => self.write(pieces),
            Event::Hole { from, sn } => self.hole(*from, *sn),
            Event::Trim { limit, locks } => self.trim(*limit, locks),
            Event::TrimHere { extent, floor } => self.trim_here(*extent, *floor),
        }
        self.compare();
    }
}

//= protocol.md#I3 type=test
//= protocol.md#I6 type=test
proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn admission_agrees_with_an_array_of_numbers(history in prop::collection::vec(events(), 1..50)) {
        let mut world = World::new();
        for event in &history {
            world.play(event);
        }
        // Without locks, a round of trimming forgets everything.
        for _ in 0..=SPACE {
            world.trim(3, &[]);
        }
        assert!(world.stripe.is_idle());
    }
}
