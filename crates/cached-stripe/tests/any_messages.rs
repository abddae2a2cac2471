//! A stripe under random operations and a server that says anything: it never panics, answers every operation, and ends empty.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_cached_stripe::{CachedStripe, Effect, Input, Settings};
use ccpfs_dlm::client as dlm;
use ccpfs_region::Region;
use ccpfs_types::{
    Extent, FileId, LockId, LockMode, LockState, OperationId, Policy, RequestId, ResourceId, Sn, Terms,
};
use ccpfs_wire::{GrantedLock, Message, Status};
use ccpfs_writeback::{BarrierId, JobId};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const RESOURCE: ResourceId = ResourceId { file: FileId([1; 16]), stripe: 0 };

/// Numbers choose among what there is, counted around.
#[derive(Clone, Debug)]
enum Event {
    Begin,
    Acquire {
        mode: usize,
        extent: Extent,
        try_only: bool,
    },
    Finish {
        which: usize,
    },
    Written {
        which: usize,
    },
    Fetched {
        which: usize,
    },
    Look {
        which: usize,
        extent: Extent,
    },
    Truncate {
        which: usize,
        length: u64,
    },
    Measure,
    Barrier,
    Take {
        urgent_only: bool,
    },
    Answered {
        which: usize,
        errno: Option<i32>,
    },
    /// The server grants what was asked, or something else.
    Grant {
        which: usize,
        mode: Option<usize>,
        extent: Option<Extent>,
        lock: Option<u64>,
        canceling: bool,
        replaces: Vec<u64>,
    },
    Deny {
        which: usize,
        errno: i32,
    },
    Revoke {
        lock: u64,
        wanted: usize,
    },
    Glimpse,
    Simple(Input),
}

fn extents() -> impl Strategy<Value = Extent> {
    prop_oneof![
        9 => (0_u64..30, 1_u64..20).prop_map(|(start, length)| Extent::with_length(start, length).unwrap()),
        1 => (0_u64..30).prop_map(Extent::to_eof),
    ]
}

fn operations() -> impl Strategy<Value = Event> {
    let which = any::<usize>;
    prop_oneof![
        6 => (0_usize..4, extents(), prop::bool::weighted(0.1))
            .prop_map(|(mode, extent, try_only)| Event::Acquire { mode, extent, try_only }),
        5 => which().prop_map(|which| Event::Finish { which }),
        5 => which().prop_map(|which| Event::Written { which }),
        2 => which().prop_map(|which| Event::Fetched { which }),
        2 => (which(), extents()).prop_map(|(which, extent)| Event::Look { which, extent }),
        1 => (which(), 0_u64..30).prop_map(|(which, length)| Event::Truncate { which, length }),
        1 => Just(Event::Measure),
        1 => Just(Event::Barrier),
        4 => any::<bool>().prop_map(|urgent_only| Event::Take { urgent_only }),
    ]
}

fn answers() -> impl Strategy<Value = Event> {
    let which = any::<usize>;
    let errno = prop_oneof![4 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(28))];
    let other = prop::option::weighted(0.1, 0_usize..4);
    let elsewhere = prop::option::weighted(0.2, extents());
    let lock = prop::option::weighted(0.1, 1_u64..30);
    let replaces = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(1_u64..30, 1..3)];
    prop_oneof![
        6 => (which(), other, elsewhere, lock, any::<bool>(), replaces).prop_map(
            |(which, mode, extent, lock, canceling, replaces)| {
                Event::Grant { which, mode, extent, lock, canceling, replaces }
            }
        ),
        1 => (which(), prop_oneof![Just(11), Just(116)]).prop_map(|(which, errno)| Event::Deny { which, errno }),
        4 => (1_u64..30, 0_usize..4).prop_map(|(lock, wanted)| Event::Revoke { lock, wanted }),
        1 => Just(Event::Glimpse),
        4 => (which(), errno).prop_map(|(which, errno)| Event::Answered { which, errno }),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    let simple = prop_oneof![
        Just(Input::Retry),
        Just(Input::Remove),
        Just(Input::Tick),
        extents().prop_map(|extent| Input::Reclaim { extent }),
        (1_usize..4).prop_map(|count| Input::Shrink { count }),
        (1_u64..4, 1_u64..3)
            .prop_map(|(number, epoch)| Input::Sync { operation: OperationId(number), epoch }),
        (1_u64..4, any::<bool>())
            .prop_map(|(number, stored)| Input::Synced { operation: OperationId(number), stored }),
        Just(Input::Lost),
        Just(Input::Message(Message::Goodbye {})),
    ];
    prop_oneof![10 => operations(), 10 => answers(), 2 => simple.prop_map(Event::Simple), 1 => Just(Event::Begin)]
}

#[derive(Default)]
struct World {
    next: u64,
    next_lock: u64,
    /// Requests without an answer, with what they asked for.
    asked: Vec<(RequestId, LockMode, Extent)>,
    /// Operations without an answer, and those with a lock, with their extents.
    waiting: BTreeMap<OperationId, (LockMode, Extent)>,
    holding: BTreeMap<OperationId, (LockMode, Extent)>,
    /// Looks, truncates and measures without an answer.
    questions: BTreeSet<OperationId>,
    barriers: BTreeSet<BarrierId>,
    jobs: BTreeMap<JobId, Vec<(Extent, Sn)>>,
    glimpses: BTreeSet<u64>,
}

struct Player {
    stripe: CachedStripe,
    world: World,
}

impl Player {
    fn number(&mut self) -> u64 {
        self.world.next += 1;
        self.world.next
    }

    fn chosen(&self, which: usize) -> Option<(OperationId, (LockMode, Extent))> {
        let all = &self.world.holding;
        all.iter().nth(which % all.len().max(1)).map(|(operation, held)| (*operation, *held))
    }

    fn step(&mut self, input: Input) {
        let ended = matches!(input, Input::Lost | Input::Begin { .. });
        let mut out = Vec::new();
        self.stripe.step(input, &mut out);
        for effect in out {
            self.note(effect);
        }
        if ended {
            self.world.holding.clear();
            self.world.jobs.clear();
            self.world.asked.clear();
            self.world.glimpses.clear();
            assert!(self.world.waiting.is_empty() && self.world.questions.is_empty());
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "a stripe sends few of the messages")]
    fn note(&mut self, effect: Effect) {
        let world = &mut self.world;
        match effect {
            Effect::Answer { operation, answer } => {
                let wish = world.waiting.remove(&operation).expect("each operation is answered once");
                if answer.is_ok() {
                    world.holding.insert(operation, wish);
                }
            }
            Effect::Void { operation }
            | Effect::Missing { operation, .. }
            | Effect::Ask { operation, .. }
            | Effect::Measured { operation, .. } => {
                world.questions.remove(&operation);
            }
            Effect::Send { message, .. } => match message {
                Message::Enqueue { request, mode, required, .. } => {
                    world.asked.push((request, mode, required.bounds()));
                }
                Message::GlimpseTell { glimpse, .. } => assert!(world.glimpses.remove(&glimpse), "told once"),
                Message::RevokeAck { .. } | Message::Convert { .. } => {}
                other => panic!("{} is not for a stripe to send", other.name()),
            },
            Effect::Job { job, pieces, .. } => {
                let flying: Vec<Extent> = world.jobs.values().flatten().map(|(extent, _)| *extent).collect();
                assert!(pieces.iter().all(|(extent, _)| !flying.iter().any(|other| other.overlaps(*extent))));
                world.jobs.insert(job, pieces);
            }
            Effect::BarrierDone { barrier, .. } => assert!(world.barriers.remove(&barrier), "done once"),
            Effect::Release { .. }
            | Effect::Forgotten { .. }
            | Effect::DataLost { .. }
            | Effect::Wanted { .. }
            | Effect::Failed { .. } => {}
        }
    }

    fn begin(&mut self) {
        let locks = dlm::Settings { policy: Policy::SEQDLM, locks_max: 4, age_ticks_max: 2 };
        let epoch = self.number();
        self.step(Input::Begin { settings: Settings { locks, put_off_max: 3, epoch } });
    }

    fn acquire(&mut self, mode: usize, extent: Extent, try_only: bool) {
        let (operation, mode) = (OperationId(self.number()), LockMode::ALL[mode]);
        // The client's range lock keeps operations apart that touch the same bytes, unless both read.
        let apart =
            |(other, held): &(LockMode, Extent)| !held.overlaps(extent) || !(mode.writes() || other.writes());
        if !self.world.holding.values().chain(self.world.waiting.values()).all(apart) {
            return;
        }
        self.world.waiting.insert(operation, (mode, extent));
        let (required, desired) = (extent.into(), Extent::to_eof(extent.start()).into());
        let request = RequestId(operation.0);
        let terms = Terms { try_only, ..Terms::WAIT };
        self.step(Input::Acquire { operation, mode, required, desired, request, terms });
    }

    fn grant(&mut self, event: &Event) {
        let Event::Grant { which, mode, extent, lock, canceling, replaces } = event else { return };
        let place = which % self.world.asked.len().max(1);
        let (request, asked, required) = match self.world.asked.get(place).copied() {
            Some(found) => {
                self.world.asked.remove(place);
                found
            }
            None => (RequestId(999), LockMode::Pr, Extent::WHOLE),
        };
        self.world.next_lock += 1;
        let number = lock.unwrap_or(self.world.next_lock);
        let granted = GrantedLock {
            lock: LockId(number),
            mode: mode.map_or(asked, |mode| LockMode::ALL[mode]),
            region: extent.unwrap_or(required).into(),
            sn: Sn(number),
            state: if *canceling { LockState::Canceling } else { LockState::Granted },
            replaces: replaces.iter().map(|lock| LockId(*lock)).collect(),
            early: false,
        };
        self.step(Input::Message(Message::Grant { request, resource: RESOURCE, granted }));
    }

    fn play(&mut self, event: &Event) {
        match event {
            Event::Begin => self.begin(),
            Event::Acquire { mode, extent, try_only } => self.acquire(*mode, *extent, *try_only),
            Event::Finish { which } => {
                let Some((operation, _)) = self.chosen(*which) else { return };
                if self.world.questions.contains(&operation) {
                    return;
                }
                self.world.holding.remove(&operation);
                self.step(Input::Finish { operation });
            }
            Event::Written { which } => match self.chosen(*which) {
                Some((operation, (mode, extent))) if mode.writes() && extent.end() != Extent::EOF => {
                    self.step(Input::Written { operation, extent, now_ns: 1 });
                }
                Some(_) | None => {}
            },
            Event::Fetched { which } => match self.chosen(*which) {
                Some((operation, (mode, extent))) if mode.reads() && extent.end() != Extent::EOF => {
                    self.step(Input::Fetched { operation, extent });
                }
                Some(_) | None => {}
            },
            Event::Look { which, extent } => {
                let Some((operation, (mode, _))) = self.chosen(*which) else { return };
                if mode.reads() && self.world.questions.insert(operation) {
                    self.step(Input::Look { operation, extent: *extent, ahead_bytes: 10 });
                }
            }
            Event::Truncate { which, length } => {
                let Some((operation, (mode, _))) = self.chosen(*which) else { return };
                if mode == LockMode::Pw && self.world.questions.insert(operation) {
                    let request = RequestId(self.number());
                    self.step(Input::Truncate { operation, length: *length, request });
                }
            }
            Event::Measure => {
                let operation = OperationId(self.number());
                self.world.questions.insert(operation);
                self.step(Input::Measure { operation });
            }
            Event::Barrier => {
                let barrier = BarrierId(self.number());
                self.world.barriers.insert(barrier);
                self.step(Input::Barrier { barrier, next_job: JobId(barrier.0 + 1) });
            }
            Event::Take { urgent_only } => {
                let job = JobId(self.number());
                self.step(Input::Take { job, bytes_max: 16, pieces_max: 3, urgent_only: *urgent_only });
            }
            Event::Answered { which, errno } => {
                let jobs = &mut self.world.jobs;
                let job = jobs.keys().nth(which % jobs.len().max(1)).copied().unwrap_or(JobId(12_345));
                jobs.remove(&job);
                self.step(Input::Answered { job, errno: *errno });
            }
            Event::Grant { .. } => self.grant(event),
            Event::Deny { which, errno } => {
                if self.world.asked.is_empty() {
                    return;
                }
                let place = which % self.world.asked.len();
                let (request, ..) = self.world.asked.remove(place);
                let status = Status::Errno(*errno);
                self.step(Input::Message(Message::Denied {
                    request,
                    resource: RESOURCE,
                    status,
                    first_common: None,
                }));
            }
            Event::Revoke { lock, wanted } => {
                let (lock, wanted) = (LockId(*lock), LockMode::ALL[*wanted]);
                self.step(Input::Message(Message::Revoke {
                    resource: RESOURCE,
                    lock,
                    wanted,
                    region: Region::WHOLE,
                }));
            }
            Event::Glimpse => {
                let glimpse = self.number();
                self.world.glimpses.insert(glimpse);
                self.step(Input::Message(Message::GlimpseAsk { glimpse, resource: RESOURCE }));
            }
            Event::Simple(input) => self.step(input.clone()),
        }
    }

    /// All flushes are answered and all operations end: nothing is left to wait for but grants.
    fn finish(&mut self) {
        for _ in 0..200 {
            self.step(Input::Retry);
            let job = JobId(self.number());
            self.step(Input::Take { job, bytes_max: 1 << 20, pieces_max: 64, urgent_only: false });
            for job in self.world.jobs.keys().copied().collect::<Vec<_>>() {
                self.world.jobs.remove(&job);
                self.step(Input::Answered { job, errno: None });
            }
            assert!(
                self.world.questions.is_empty() && self.world.glimpses.is_empty(),
                "nobody waits without a flush"
            );
            for operation in self.world.holding.keys().copied().collect::<Vec<_>>() {
                self.world.holding.remove(&operation);
                self.step(Input::Finish { operation });
            }
            for (request, ..) in std::mem::take(&mut self.world.asked) {
                let status = Status::Errno(116);
                self.step(Input::Message(Message::Denied {
                    request,
                    resource: RESOURCE,
                    status,
                    first_common: None,
                }));
            }
            self.step(Input::Shrink { count: usize::MAX });
            if self.stripe.is_idle() {
                break;
            }
        }
        self.step(Input::Reclaim { extent: Extent::WHOLE });
        assert!(self.stripe.is_idle(), "{:?}", self.stripe);
        assert!(self.world.barriers.is_empty() && self.world.waiting.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn whatever_the_server_says_every_operation_is_answered(history in prop::collection::vec(events(), 1..100)) {
        let mut player = Player { stripe: CachedStripe::new(RESOURCE), world: World::default() };
        player.begin();
        for event in &history {
            player.play(event);
        }
        player.finish();
    }
}
