//! The lock server's [`Resource`] against its dumb twin: lists that are looked through from end to end, cell by cell, for every
//! waiting request after every event.
//!
//! Equal must be: who is granted what (with number, mode, range, state and what it replaces), who is denied, who is asked to
//! let go for which mode, all in order; which locks are unreleased, and whom a glimpse asks. Two things are left open, because
//! nobody may rely on them: the order among the holders that are asked in a row, and that among the locks that a grant replaces.
//! Clocks must run for all who are waited for; they may run longer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_types::{ClientId, Expansion, Extent, LockId, LockMode, LockState, Policy, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Cells of one unit of the policy's granularity; one more stands for all bytes from here to the end of any file.
const SPACE: u64 = 16;
const EAGAIN: i32 = 11;
const ESTALE: i32 = 116;

/// Paper Table II: rows requested, columns granted, both in the order PR, NBW, BW, PW; C: only beside a CANCELING lock.
const TABLE: [&[u8; 4]; 4] = [b"YNNN", b"NCNN", b"NCNN", b"NNNN"];

#[derive(Clone, Copy, Debug)]
struct Wish {
    client: u64,
    mode: usize,
    /// In bytes, before rounding, as thousandths of a unit.
    start: u64,
    length: u64,
    /// 0: exactly; 1: to the end of the file; 2: a little more.
    desired: u8,
    try_only: bool,
}

/// What happens; numbers choose among what is there, counted around.
#[derive(Clone, Copy, Debug)]
enum Event {
    Enqueue(Wish),
    /// The holder of a lock that was asked for acknowledges, perhaps with a lower mode.
    Acknowledge {
        which: usize,
        lower: bool,
    },
    /// A holder cancels of its own will, or lowers what it cancels.
    Convert {
        which: usize,
        lower: bool,
    },
    Release {
        which: usize,
    },
    /// Somebody gives back what is not theirs.
    ReleaseForeign {
        which: usize,
    },
    Evict {
        client: u64,
    },
    Destroy,
}

fn wishes() -> impl Strategy<Value = Wish> {
    (1_u64..5, 0_usize..4, 0..SPACE * 1000, 1_u64..5000, 0_u8..3, prop::bool::weighted(0.1)).prop_map(
        |(client, mode, start, length, desired, try_only)| Wish {
            client,
            mode,
            start,
            length,
            desired,
            try_only,
        },
    )
}

fn events() -> impl Strategy<Value = Event> {
    let which = any::<usize>;
    prop_oneof![
        30 => wishes().prop_map(Event::Enqueue),
        20 => (which(), any::<bool>()).prop_map(|(which, lower)| Event::Acknowledge { which, lower }),
        5 => (which(), any::<bool>()).prop_map(|(which, lower)| Event::Convert { which, lower }),
        20 => which().prop_map(|which| Event::Release { which }),
        1 => which().prop_map(|which| Event::ReleaseForeign { which }),
        2 => (1_u64..5).prop_map(|client| Event::Evict { client }),
        1 => prop_oneof![4 => Just(Event::ReleaseForeign { which: 0 }), 1 => Just(Event::Destroy)],
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Granted,
    Asked,
    Canceling,
}

/// Ranges are cells; `SPACE + 1` is the end of any file.
type Cells = std::ops::Range<u64>;

fn overlap(a: &Cells, b: &Cells) -> bool {
    a.clone().any(|cell| b.contains(&cell))
}

#[derive(Clone, Debug)]
struct Lock {
    id: u64,
    holder: u64,
    mode: LockMode,
    cells: Cells,
    phase: Phase,
    lowest_sn: Option<u64>,
    hurried: bool,
}

#[derive(Clone, Debug)]
struct Request {
    client: u64,
    number: u64,
    mode: LockMode,
    required: Cells,
    desired: Cells,
}

/// What can be told of an effect, comparable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Granted {
        to: u64,
        request: u64,
        lock: u64,
        mode: LockMode,
        start: u64,
        end: u64,
        sn: u64,
        canceling: bool,
        early: bool,
        replaces: BTreeSet<u64>,
    },
    Denied {
        to: u64,
        request: u64,
        errno: i32,
    },
    Asked {
        lock: u64,
        to: u64,
        wanted: LockMode,
    },
}

struct Twin {
    policy: Policy,
    locks: Vec<Lock>,
    /// In the order of their arrival.
    waiting: Vec<Request>,
    next_lock: u64,
    next_sn: u64,
}

fn compatible(requested: LockMode, granted: LockMode, canceling: bool) -> bool {
    let place = |mode| LockMode::ALL.iter().position(|known| *known == mode).unwrap();
    match TABLE[place(requested)][place(granted)] {
        b'Y' => true,
        b'C' => canceling,
        _ => false,
    }
}

impl Twin {
    fn conflicts(&self, mode: LockMode, lock: &Lock) -> bool {
        !compatible(mode, lock.mode, self.policy.early_grant && lock.phase == Phase::Canceling)
    }

    /// What stands against a request: mode and range that it would get, its own locks that these take in, others in the way.
    fn obstacles(&self, request: &Request) -> (LockMode, Cells, BTreeSet<u64>, BTreeSet<u64>) {
        let (mut mode, mut cells) = (request.mode, request.required.clone());
        loop {
            let against: Vec<&Lock> =
                self.locks.iter().filter(|l| overlap(&l.cells, &cells) && self.conflicts(mode, l)).collect();
            let joins =
                |l: &&&Lock| self.policy.upgrading && l.holder == request.client && l.phase == Phase::Granted;
            let own: Vec<&Lock> = against.iter().filter(|l| joins(l)).copied().collect();
            let mut grown = (mode, cells.clone());
            for lock in &own {
                grown.0 = grown.0.join(lock.mode);
                grown.1 = grown.1.start.min(lock.cells.start)..grown.1.end.max(lock.cells.end);
            }
            if grown == (mode, cells.clone()) {
                let own: BTreeSet<u64> = own.iter().map(|l| l.id).collect();
                let others = against.iter().map(|l| l.id).filter(|id| !own.contains(id)).collect();
                return (mode, cells, own, others);
            }
            (mode, cells) = grown;
        }
    }

    /// Whether an earlier request is in the way.
    fn is_behind(&self, request: &Request, earlier: &[Request]) -> bool {
        earlier.iter().any(|other| {
            overlap(&other.required, &request.required) && !compatible(request.mode, other.mode, false)
        })
    }

    /// Looks at every request, oldest first, and begins again after each grant.
    fn serve_all(&mut self, told: &mut Vec<Told>) {
        let mut at = 0;
        while at < self.waiting.len() {
            let request = self.waiting[at].clone();
            if self.is_behind(&request, &self.waiting[..at]) {
                at += 1;
                continue;
            }
            let (mode, cells, own, others) = self.obstacles(&request);
            if others.is_empty() {
                self.waiting.remove(at);
                self.grant(&request, mode, cells, &own, told);
                at = 0;
            } else {
                self.ask(&others, mode, told);
                at += 1;
            }
        }
    }

    fn ask(&mut self, others: &BTreeSet<u64>, wanted: LockMode, told: &mut Vec<Told>) {
        let blind = matches!(wanted, LockMode::Nbw | LockMode::Bw);
        for lock in self.locks.iter_mut().filter(|lock| others.contains(&lock.id)) {
            let ask = match lock.phase {
                Phase::Granted => true,
                Phase::Asked => false,
                Phase::Canceling => !blind && !lock.hurried,
            };
            if ask {
                lock.hurried = !blind;
                told.push(Told::Asked { lock: lock.id, to: lock.holder, wanted });
            }
            if lock.phase == Phase::Granted {
                lock.phase = Phase::Asked;
            }
        }
    }

    fn grant(
        &mut self,
        request: &Request,
        mode: LockMode,
        base: Cells,
        own: &BTreeSet<u64>,
        told: &mut Vec<Told>,
    ) {
        let inherited = self.locks.iter().filter(|l| own.contains(&l.id)).filter_map(|l| l.lowest_sn).min();
        self.locks.retain(|lock| !own.contains(&lock.id));
        let mut cells = base.clone();
        if matches!(self.policy.expansion, Expansion::Greedy | Expansion::PastWaiting) {
            while cells.end < request.desired.end.max(base.end) && self.is_free(cells.end, mode) {
                cells.end += 1;
            }
        }
        let wanted =
            |other: &Request| overlap(&other.required, &cells) && !compatible(mode, other.mode, false);
        let canceling = self.policy.early_revocation && cells == base && self.waiting.iter().any(wanted);
        let written = |lock: &Lock| lock.lowest_sn.is_some() && overlap(&lock.cells, &cells);
        let early = mode.writes() && self.locks.iter().any(written);
        let (lock, sn) = (self.next_lock, self.next_sn);
        self.next_lock += 1;
        self.next_sn += u64::from(mode.writes());
        let own_sn = mode.writes().then_some(sn);
        told.push(Told::Granted {
            to: request.client,
            request: request.number,
            lock,
            mode,
            start: cells.start,
            end: cells.end,
            sn,
            canceling,
            early,
            replaces: own.clone(),
        });
        self.locks.push(Lock {
            id: lock,
            holder: request.client,
            mode,
            cells,
            phase: if canceling { Phase::Canceling } else { Phase::Granted },
            lowest_sn: inherited.or(own_sn),
            hurried: false,
        });
    }

    /// Whether nobody has, and nobody waits for (if that counts), a cell in a mode that conflicts.
    fn is_free(&self, cell: u64, mode: LockMode) -> bool {
        let waits = |r: &Request| r.required.contains(&cell) && !compatible(mode, r.mode, false);
        !self.locks.iter().any(|lock| lock.cells.contains(&cell) && self.conflicts(mode, lock))
            && (self.policy.expansion == Expansion::PastWaiting || !self.waiting.iter().any(waits))
    }

    fn enqueue(&mut self, request: Request, try_only: bool, told: &mut Vec<Told>) {
        if try_only {
            let (mode, cells, own, others) = self.obstacles(&request);
            if self.is_behind(&request, &self.waiting) || !others.is_empty() {
                told.push(Told::Denied { to: request.client, request: request.number, errno: EAGAIN });
                return;
            }
            self.grant(&request, mode, cells, &own, told);
        } else {
            self.waiting.push(request);
        }
        self.serve_all(told);
    }

    fn cancel(&mut self, id: u64, mode: LockMode, told: &mut Vec<Told>) {
        let Some(lock) = self.locks.iter_mut().find(|lock| lock.id == id) else { return };
        (lock.phase, lock.mode) = (Phase::Canceling, mode);
        self.serve_all(told);
    }

    /// The locks that some request waits for.
    fn waited_for(&self) -> BTreeSet<u64> {
        let mut all = BTreeSet::new();
        for (at, request) in self.waiting.iter().enumerate() {
            if !self.is_behind(request, &self.waiting[..at]) {
                all.extend(self.obstacles(request).3);
            }
        }
        all
    }
}

struct World {
    policy: Policy,
    unit: u64,
    resource: Resource,
    twin: Twin,
    running: BTreeSet<u64>,
    next_request: u64,
}

impl World {
    fn new(policy: Policy) -> World {
        let origin = Origin { sn: Sn(1), lock: LockId(1) };
        World {
            policy,
            unit: u64::from(policy.granularity_bytes),
            resource: Resource::new(policy, origin),
            twin: Twin { policy, locks: Vec::new(), waiting: Vec::new(), next_lock: 1, next_sn: 1 },
            running: BTreeSet::new(),
            next_request: 0,
        }
    }

    fn cell(&self, byte: u64) -> u64 {
        if byte == Extent::EOF { SPACE + 1 } else { byte / self.unit }
    }

    fn told(&mut self, effect: Effect) -> Option<Told> {
        match effect {
            Effect::Grant { to, request, granted } => {
                let GrantedLock { lock, mode, region, sn, state, replaces, early } = granted;
                let extent = region.as_extent().unwrap();
                assert!(extent.start() % self.unit == 0, "{extent}");
                Some(Told::Granted {
                    to: to.0,
                    request: request.0,
                    lock: lock.0,
                    mode,
                    start: self.cell(extent.start()),
                    end: self.cell(extent.end()),
                    sn: sn.0,
                    canceling: state == LockState::Canceling,
                    early,
                    replaces: replaces.into_iter().map(|lock| lock.0).collect(),
                })
            }
            Effect::Deny { to, request, errno, first_common: _ } => {
                Some(Told::Denied { to: to.0, request: request.0, errno })
            }
            Effect::Revoke { to, lock, wanted, region: _ } => {
                Some(Told::Asked { lock: lock.0, to: to.0, wanted })
            }
            Effect::Arm { lock, holder: _ } => {
                assert!(self.running.insert(lock.0), "a clock is started once");
                None
            }
            Effect::Disarm { lock } => {
                assert!(self.running.remove(&lock.0), "only clocks that run are stopped");
                None
            }
        }
    }

    fn compare(&mut self, input: Input, mut expected: Vec<Told>) {
        let mut out = Vec::new();
        self.resource.step(input, &mut out);
        let mut found: Vec<Told> = out.into_iter().filter_map(|effect| self.told(effect)).collect();
        for told in [&mut found, &mut expected] {
            for in_a_row in
                told.chunk_by_mut(|a, b| matches!((a, b), (Told::Asked { .. }, Told::Asked { .. })))
            {
                in_a_row.sort();
            }
        }
        assert_eq!(found, expected);
        assert_eq!(self.resource.lock_count(), self.twin.locks.len());
        assert_eq!(self.resource.waiting_count(), self.twin.waiting.len());
        assert_eq!(
            self.resource.origin(),
            Origin { sn: Sn(self.twin.next_sn), lock: LockId(self.twin.next_lock) }
        );
        let waited_for = self.twin.waited_for();
        assert!(
            self.running.is_superset(&waited_for),
            "{waited_for:?} are waited for, {:?} are counted",
            self.running
        );
        self.compare_numbers();
    }

    //= protocol.md#I6 type=test
    fn compare_numbers(&self) {
        for start in [0, 3, 7, 12] {
            let probe = start..start + 3;
            let extent = Extent::new(probe.start * self.unit, probe.end * self.unit).unwrap();
            let over = self.twin.locks.iter().filter(|lock| overlap(&lock.cells, &probe));
            let numbers: Vec<u64> = over.filter_map(|lock| lock.lowest_sn).collect();
            for sn in
                numbers.iter().flat_map(|number| [number.saturating_sub(1), *number, number + 1]).chain([0])
            {
                let found = self.resource.unreleased_up_to(extent, Sn(sn));
                assert_eq!(found.is_some(), numbers.iter().any(|number| *number <= sn));
                assert!(found.is_none_or(|found| found <= Sn(sn) && numbers.contains(&found.0)));
            }
            let above = self.twin.locks.iter().filter(|l| l.lowest_sn.is_some() && l.cells.end > start);
            let holders: BTreeSet<ClientId> = above.map(|lock| ClientId(lock.holder)).collect();
            assert_eq!(self.resource.write_holders(start * self.unit), Vec::from_iter(holders));
        }
    }

    fn enqueue(&mut self, wish: Wish) {
        self.next_request += 1;
        let number = self.next_request;
        let byte = |thousandths: u64| thousandths * self.unit / 1000;
        let start = byte(wish.start);
        let required = Extent::new(start, byte(wish.start + wish.length).max(start + 1)).unwrap();
        let desired = match wish.desired {
            0 => required,
            1 => Extent::to_eof(start),
            _ => Extent::new(start, required.end() + 3 * self.unit).unwrap(),
        };
        // Every cell that a byte lies in.
        let rounded = |extent: Extent| {
            self.cell(extent.start())..match extent.end() {
                Extent::EOF => SPACE + 1,
                end => (end - 1) / self.unit + 1,
            }
        };
        let mode = LockMode::ALL[wish.mode];
        let known = if mode.writes() && !self.policy.write_modes { LockMode::Pw } else { mode };
        let request = Request {
            client: wish.client,
            number,
            mode: known,
            required: rounded(required),
            desired: rounded(desired),
        };
        // Beyond the last cell there is nothing but the end of the file.
        if request.required.end > SPACE || (request.desired.end > SPACE && wish.desired != 1) {
            return;
        }
        let mut told = Vec::new();
        self.twin.enqueue(request, wish.try_only, &mut told);
        let input = Input::Enqueue {
            from: ClientId(wish.client),
            request: RequestId(number),
            mode,
            required: required.into(),
            desired: desired.into(),
            terms: Terms { try_only: wish.try_only, ..Terms::WAIT },
        };
        self.compare(input, told);
    }

    fn choose(&self, which: usize, phases: &[Phase]) -> Option<Lock> {
        let all: Vec<&Lock> = self.twin.locks.iter().filter(|lock| phases.contains(&lock.phase)).collect();
        (!all.is_empty()).then(|| all[which % all.len()].clone())
    }

    fn cancel(&mut self, lock: &Lock, lower: bool, acknowledge: bool) {
        let lowers = lower && matches!(lock.mode, LockMode::Bw | LockMode::Pw);
        let mode = if lowers { LockMode::Nbw } else { lock.mode };
        let mut told = Vec::new();
        self.twin.cancel(lock.id, mode, &mut told);
        let (from, lock) = (ClientId(lock.holder), LockId(lock.id));
        let input = match acknowledge {
            true => Input::RevokeAck { from, lock, mode },
            false => Input::Convert { from, lock, mode },
        };
        self.compare(input, told);
    }

    fn release(&mut self, lock: &Lock) {
        let mut told = Vec::new();
        self.twin.locks.retain(|held| held.id != lock.id);
        self.twin.serve_all(&mut told);
        self.compare(Input::Release { from: ClientId(lock.holder), lock: LockId(lock.id) }, told);
    }

    fn play(&mut self, event: Event) {
        use Phase::{Asked, Canceling, Granted};
        match event {
            Event::Enqueue(wish) => self.enqueue(wish),
            Event::Acknowledge { which, lower } => {
                let Some(lock) = self.choose(which, &[Asked]) else { return };
                self.cancel(&lock, lower, true);
            }
            Event::Convert { which, lower } => {
                let Some(lock) = self.choose(which, &[Granted, Asked, Canceling]) else { return };
                self.cancel(&lock, lower, false);
            }
            Event::Release { which } => {
                let Some(lock) = self.choose(which, &[Canceling]).or_else(|| self.choose(which, &[Asked]))
                else {
                    return;
                };
                self.release(&lock);
            }
            Event::ReleaseForeign { which } => {
                let Some(lock) = self.choose(which, &[Granted, Asked, Canceling]) else { return };
                let from = ClientId(lock.holder + 1);
                self.compare(Input::Release { from, lock: LockId(lock.id) }, Vec::new());
                let unknown = LockId(self.twin.next_lock + 7);
                self.compare(Input::RevokeAck { from, lock: unknown, mode: LockMode::Pr }, Vec::new());
            }
            Event::Evict { client } => {
                let mut told = Vec::new();
                self.twin.waiting.retain(|request| request.client != client);
                self.twin.locks.retain(|lock| lock.holder != client);
                self.twin.serve_all(&mut told);
                self.compare(Input::Evict { client: ClientId(client) }, told);
            }
            Event::Destroy => {
                let denied = |r: &Request| Told::Denied { to: r.client, request: r.number, errno: ESTALE };
                let told = self.twin.waiting.iter().map(denied).collect();
                self.twin.waiting.clear();
                self.twin.locks.clear();
                self.compare(Input::Destroy, told);
            }
        }
    }

    /// Holders do what they are asked until nobody waits.
    //= protocol.md#I8 type=test
    fn finish(&mut self) {
        while !self.twin.waiting.is_empty() {
            let asked = self.choose(0, &[Phase::Asked, Phase::Canceling]);
            self.release(&asked.expect("whoever waits, waits for somebody who was asked"));
        }
        assert_eq!(self.resource.waiting_count(), 0);
    }
}

fn play(policy: Policy, history: &[Event]) {
    let mut world = World::new(policy);
    for event in history {
        world.play(*event);
    }
    world.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_lock_table_agrees_with_lists_under_seqdlm(history in prop::collection::vec(events(), 1..80)) {
        play(Policy::SEQDLM, &history);
    }

    #[test]
    fn the_lock_table_agrees_with_lists_under_the_basic_policy(history in prop::collection::vec(events(), 1..80)) {
        play(Policy::BASIC, &history);
    }

    #[test]
    fn the_lock_table_agrees_with_lists_where_ranges_are_exact(history in prop::collection::vec(events(), 1..80)) {
        play(Policy { expansion: Expansion::Exact, ..Policy::SEQDLM }, &history);
    }

    #[test]
    fn the_lock_table_agrees_with_lists_where_growth_goes_past_those_who_wait(
        history in prop::collection::vec(events(), 1..80),
    ) {
        play(Policy { expansion: Expansion::PastWaiting, ..Policy::SEQDLM }, &history);
    }

    #[test]
    fn the_lock_table_agrees_with_lists_under_any_switches(
        history in prop::collection::vec(events(), 1..60),
        switches in any::<[bool; 6]>(),
    ) {
        let [write_modes, early_grant, early_revocation, upgrading, exact, page] = switches;
        let expansion = if exact { Expansion::Exact } else { Expansion::Greedy };
        let granularity_bytes = if page { 4096 } else { 1 };
        let features = Policy { write_modes, early_grant, early_revocation, upgrading, ..Policy::SEQDLM };
        play(Policy { expansion, granularity_bytes, ..features }, &history);
    }
}
