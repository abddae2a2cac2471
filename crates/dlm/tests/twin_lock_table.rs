//! The lock server's [`Resource`] against its dumb twin: lists that are looked through from end to end, cell by cell, for every
//! waiting request after every event.
//!
//! Equal must be: who is granted what (with number, mode, range, state and what it replaces), who is denied, who is asked to
//! let go for which mode, all in order; which locks are unreleased, and whom a glimpse asks. Two things are left open, because
//! nobody may rely on them: the order among the holders that are asked in a row, and that among the locks that a grant replaces.
//! Clocks must run for all who are waited for; they may run longer.
//!
//! Ranges are sets of cells here, so that extents, lists and sections are all the same to the twin, but for what is said of extents
//! alone: they are rounded, grow and are joined by their bounds.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_region::{Region, Section};
use ccpfs_types::{
    ClientId, Expansion, Extent, GroupId, LockId, LockMode, LockState, Part, Policy, RequestId, Sn, Terms,
};
use ccpfs_wire::GrantedLock;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Cells of one unit of the policy's granularity; one more stands for all bytes from here to the end of any file.
const SPACE: u64 = 16;
const ALL: Cells = (1 << (SPACE + 1)) - 1;
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
    /// 0: exactly; 1: to the end of the file; 2: a little more; of sections: 2: all pieces that would go on with them.
    desired: u8,
    try_only: bool,
    shape: Shape,
    part: u8,
    group: u64,
}

/// What a wish is for: the bytes of `start` and `length`, or whole cells.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Extent,
    /// Pieces of a section from the cell of `start` on.
    Section {
        length: u64,
        stride: u64,
        count: u64,
    },
    /// One level around another.
    Nested {
        length: u64,
        stride: u64,
        count: u64,
    },
    /// Any cells.
    List(u32),
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
    /// A holder keeps its lock but for these cells.
    Narrow {
        which: usize,
        start: u64,
        end: u64,
    },
    Evict {
        client: u64,
    },
    Destroy,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let section = || (1_u64..3, 1_u64..4, 2_u64..5);
    prop_oneof![
        4 => Just(Shape::Extent),
        3 => section().prop_map(|(length, gap, count)| Shape::Section { length, stride: length + gap, count }),
        1 => section().prop_map(|(length, gap, count)| Shape::Nested { length, stride: length + gap, count }),
        1 => (1_u32..1 << SPACE).prop_map(Shape::List),
    ]
}

fn wishes(shape: impl Strategy<Value = Shape>) -> impl Strategy<Value = Wish> {
    let terms = (prop::bool::weighted(0.1), 0_u8..8, 0_u64..12);
    (1_u64..5, 0_usize..4, 0..SPACE * 1000, 1_u64..5000, 0_u8..3, terms, shape).prop_map(
        |(client, mode, start, length, desired, (try_only, part, group), shape)| Wish {
            client,
            mode,
            start,
            length,
            desired,
            try_only,
            shape,
            part,
            group: if group < 3 { group } else { 0 },
        },
    )
}

fn events() -> impl Strategy<Value = Event> {
    events_with(Just(Shape::Extent))
}

fn events_with(shape: impl Strategy<Value = Shape>) -> impl Strategy<Value = Event> {
    let which = any::<usize>;
    prop_oneof![
        30 => wishes(shape).prop_map(Event::Enqueue),
        20 => (which(), any::<bool>()).prop_map(|(which, lower)| Event::Acknowledge { which, lower }),
        5 => (which(), any::<bool>()).prop_map(|(which, lower)| Event::Convert { which, lower }),
        20 => which().prop_map(|which| Event::Release { which }),
        8 => (which(), 0..SPACE, 1..=SPACE + 1).prop_map(|(which, start, end)| Event::Narrow { which, start, end }),
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

/// A bit for each cell; the last one is the end of any file.
type Cells = u32;

fn cells(range: impl IntoIterator<Item = u64>) -> Cells {
    range.into_iter().fold(0, |cells, cell| cells | 1 << cell)
}

fn first(cells: Cells) -> u64 {
    u64::from(cells.trailing_zeros())
}

/// One past the last cell.
fn end(cells: Cells) -> u64 {
    u64::from(u32::BITS - cells.leading_zeros())
}

fn hull(cells: Cells) -> Cells {
    self::cells(first(cells)..end(cells))
}

fn is_extent(cells: Cells) -> bool {
    cells == hull(cells)
}

fn holds(cells: Cells, others: Cells) -> bool {
    others & !cells == 0
}

/// A range for both: extents by their bounds, others only if one holds the other.
fn joined(a: Cells, b: Cells) -> Option<Cells> {
    if is_extent(a) && is_extent(b) {
        return Some(hull(a | b));
    }
    (holds(a, b) || holds(b, a)).then_some(a | b)
}

#[derive(Clone, Debug)]
struct Lock {
    id: u64,
    holder: u64,
    mode: LockMode,
    cells: Cells,
    group: u64,
    of_several: bool,
    phase: Phase,
    lowest_sn: Option<u64>,
    hurried: bool,
    /// What its holder was asked to let go of.
    asked: Cells,
}

#[derive(Clone, Debug)]
struct Request {
    client: u64,
    number: u64,
    mode: LockMode,
    required: Cells,
    desired: Cells,
    part: Part,
    group: u64,
}

impl Request {
    fn passes(&self, other: &Request) -> bool {
        self.part == Part::Next || self.group != 0 && other.group == 0
    }
}

/// What can be told of an effect, comparable.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Granted {
        to: u64,
        request: u64,
        lock: u64,
        mode: LockMode,
        cells: Cells,
        sn: u64,
        canceling: bool,
        early: bool,
        replaces: BTreeSet<u64>,
    },
    Denied {
        to: u64,
        request: u64,
        errno: i32,
        at: Option<u64>,
    },
    Asked {
        lock: u64,
        to: u64,
        wanted: LockMode,
        cells: Cells,
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

fn same_group(a: u64, b: u64) -> bool {
    a != 0 && a == b
}

impl Twin {
    fn conflicts(&self, mode: LockMode, group: u64, lock: &Lock) -> bool {
        let canceling = self.policy.early_grant && lock.phase == Phase::Canceling;
        !compatible(mode, lock.mode, canceling) && !same_group(group, lock.group)
    }

    /// The order in which own locks are taken in.
    fn order(&self, lock: &Lock) -> (bool, u32, u64, u64) {
        let aside = self.policy.early_grant && lock.phase == Phase::Canceling && lock.mode == LockMode::Nbw;
        let unit = u64::from(self.policy.granularity_bytes);
        let start = first(lock.cells) * unit;
        let last = if end(lock.cells) > SPACE { Extent::EOF } else { end(lock.cells) * unit };
        (aside, (last - start).ilog2(), start, lock.id)
    }

    /// What stands against a request: mode and range that it would get, its own locks that these take in, others in the way.
    fn obstacles(&self, request: &Request) -> (LockMode, Cells, BTreeSet<u64>, BTreeSet<u64>) {
        let (mut mode, mut cells) = (request.mode, request.required);
        loop {
            let stands = |l: &&Lock| l.cells & cells != 0 && self.conflicts(mode, request.group, l);
            let mut against: Vec<&Lock> = self.locks.iter().filter(stands).collect();
            against.sort_by_key(|lock| self.order(lock));
            let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
            let mut grown = (mode, cells);
            for lock in against {
                let mine = lock.holder == request.client && lock.group == request.group;
                let may = self.policy.upgrading && mine && lock.phase == Phase::Granted;
                let several = lock.of_several || request.part != Part::Only;
                match joined(grown.1, lock.cells).filter(|_| may && !several) {
                    Some(cells) => {
                        grown = (grown.0.join(lock.mode), cells);
                        own.insert(lock.id);
                    }
                    None => {
                        others.insert(lock.id);
                    }
                }
            }
            if grown == (mode, cells) {
                return (mode, cells, own, others);
            }
            (mode, cells) = grown;
        }
    }

    /// Whether an earlier request is in the way.
    fn is_behind(&self, request: &Request, earlier: &[Request]) -> bool {
        earlier.iter().any(|other| !request.passes(other) && self.wait_for_each_other(request, other))
    }

    fn wait_for_each_other(&self, request: &Request, other: &Request) -> bool {
        other.required & request.required != 0
            && !compatible(request.mode, other.mode, false)
            && !same_group(request.group, other.group)
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
                // Whoever would have taken in what is asked for now may have others in the way.
                let began = self.ask(&others, (mode, cells), told);
                at = if began { 0 } else { at + 1 };
            }
        }
    }

    fn ask(
        &mut self,
        others: &BTreeSet<u64>,
        (wanted, cells): (LockMode, Cells),
        told: &mut Vec<Told>,
    ) -> bool {
        let blind = matches!(wanted, LockMode::Nbw | LockMode::Bw);
        let mut began = false;
        for lock in self.locks.iter_mut().filter(|lock| others.contains(&lock.id)) {
            let ask = match lock.phase {
                Phase::Granted => true,
                Phase::Asked => false,
                Phase::Canceling => !blind && !lock.hurried,
            };
            if ask {
                lock.hurried = !blind;
                told.push(Told::Asked { lock: lock.id, to: lock.holder, wanted, cells });
            }
            if lock.phase == Phase::Granted {
                (lock.phase, lock.asked) = (Phase::Asked, cells);
                began = true;
            }
        }
        began
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
        let cells = self.grown(base, mode, request);
        let wanted = |other: &Request| {
            other.required & cells != 0
                && !compatible(mode, other.mode, false)
                && !same_group(request.group, other.group)
        };
        let canceling = self.policy.early_revocation && cells == base && self.waiting.iter().any(wanted);
        let written = |lock: &Lock| lock.lowest_sn.is_some() && lock.cells & cells != 0;
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
            cells,
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
            group: request.group,
            of_several: request.part != Part::Only,
            phase: if canceling { Phase::Canceling } else { Phase::Granted },
            lowest_sn: inherited.or(own_sn),
            hurried: false,
            asked: 0,
        });
    }

    /// What is granted of what is desired.
    fn grown(&self, base: Cells, mode: LockMode, request: &Request) -> Cells {
        if self.policy.expansion == Expansion::Exact {
            return base;
        }
        let free = cells((0..SPACE + 1).filter(|cell| self.is_free(*cell, mode, request.group)));
        let desired = request.desired;
        if is_extent(base) && is_extent(desired) {
            let mut grown = base;
            while end(grown) < end(desired) && free & 1 << end(grown) != 0 {
                grown |= 1 << end(grown);
            }
            return grown;
        }
        if !holds(desired, base) {
            return base;
        }
        let from_base = desired & (ALL << first(base));
        for wish in [desired, from_base] {
            let taken = wish & !free;
            if taken == 0 {
                return wish;
            }
            if first(taken) >= end(base) {
                return wish & cells(0..first(taken));
            }
        }
        base
    }

    /// Whether nobody has, and nobody waits for (if that counts), a cell in a mode that conflicts.
    fn is_free(&self, cell: u64, mode: LockMode, group: u64) -> bool {
        let here = |cells: Cells| cells & 1 << cell != 0;
        let waits =
            |r: &Request| here(r.required) && !compatible(mode, r.mode, false) && !same_group(group, r.group);
        !self.locks.iter().any(|lock| here(lock.cells) && self.conflicts(mode, group, lock))
            && (self.policy.expansion == Expansion::PastWaiting || !self.waiting.iter().any(waits))
    }

    fn enqueue(&mut self, request: Request, try_only: bool, told: &mut Vec<Told>) {
        if try_only {
            let (mode, cells, own, others) = self.obstacles(&request);
            if self.is_behind(&request, &self.waiting) || !others.is_empty() {
                let at = self.first_in_the_way(&request);
                let (to, request) = (request.client, request.number);
                told.push(Told::Denied { to, request, errno: EAGAIN, at });
                return;
            }
            self.grant(&request, mode, cells, &own, told);
        } else {
            self.waiting.push(request);
        }
        self.serve_all(told);
    }

    fn first_in_the_way(&self, request: &Request) -> Option<u64> {
        let granted = self.locks.iter().filter(|lock| self.conflicts(request.mode, request.group, lock));
        let waiting = self.waiting.iter().filter(|other| self.wait_for_each_other(request, other));
        let all = granted.map(|lock| lock.cells).chain(waiting.map(|other| other.required));
        all.map(|cells| cells & request.required).filter(|cells| *cells != 0).map(first).min()
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

    fn cells(&self, region: &Region) -> Cells {
        region.pieces().fold(0, |all, piece| {
            assert!(piece.start() % self.unit == 0, "{region}");
            all | cells(self.cell(piece.start())..self.cell(piece.end()))
        })
    }

    fn told(&mut self, effect: Effect) -> Option<Told> {
        match effect {
            Effect::Grant { to, request, granted } => {
                let GrantedLock { lock, mode, region, sn, state, replaces, early } = granted;
                Some(Told::Granted {
                    to: to.0,
                    request: request.0,
                    lock: lock.0,
                    mode,
                    cells: self.cells(&region),
                    sn: sn.0,
                    canceling: state == LockState::Canceling,
                    early,
                    replaces: replaces.into_iter().map(|lock| lock.0).collect(),
                })
            }
            Effect::Deny { to, request, errno, first_common } => {
                let at = first_common.map(|byte| self.cell(byte));
                Some(Told::Denied { to: to.0, request: request.0, errno, at })
            }
            Effect::Revoke { to, lock, wanted, region } => {
                Some(Told::Asked { lock: lock.0, to: to.0, wanted, cells: self.cells(&region) })
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
            let over = self.twin.locks.iter().filter(|lock| lock.cells & cells(probe.clone()) != 0);
            let numbers: Vec<u64> = over.filter_map(|lock| lock.lowest_sn).collect();
            for sn in
                numbers.iter().flat_map(|number| [number.saturating_sub(1), *number, number + 1]).chain([0])
            {
                let found = self.resource.unreleased_up_to(extent, Sn(sn));
                assert_eq!(found.is_some(), numbers.iter().any(|number| *number <= sn));
                assert!(found.is_none_or(|found| found <= Sn(sn) && numbers.contains(&found.0)));
            }
            let above = self.twin.locks.iter().filter(|l| l.lowest_sn.is_some() && end(l.cells) > start);
            let holders: BTreeSet<ClientId> = above.map(|lock| ClientId(lock.holder)).collect();
            assert_eq!(self.resource.write_holders(start * self.unit), Vec::from_iter(holders));
        }
    }

    /// What a wish requires and desires, if it lies in the cells that there are.
    fn ranges(&self, wish: &Wish) -> Option<(Region, Region)> {
        let byte = |thousandths: u64| thousandths * self.unit / 1000;
        let start = byte(wish.start);
        let first = start / self.unit * self.unit;
        let section = |levels: &[(u64, u64)], length: u64| {
            let levels: Vec<_> = levels.iter().map(|(stride, count)| (stride * self.unit, *count)).collect();
            Some(Region::from(Section::new(first, length * self.unit, &levels).ok()?))
        };
        let exactly = |region: Region| {
            let desired = if wish.desired == 1 {
                Extent::to_eof(region.bounds().start()).into()
            } else {
                region.clone()
            };
            Some((region, desired))
        };
        let (required, desired): (Region, Region) = match wish.shape {
            Shape::Extent => {
                let required = Extent::new(start, byte(wish.start + wish.length).max(start + 1))?;
                let desired = match wish.desired {
                    0 => required,
                    1 => Extent::to_eof(start),
                    _ => Extent::new(start, required.end() + 3 * self.unit)?,
                };
                (required.into(), desired.into())
            }
            Shape::Section { length, stride, count } => {
                let all = section(&[(stride, count)], length)?;
                match wish.desired {
                    2 => (section(&[(stride, wish.length % count + 1)], length)?, all),
                    _ => exactly(all)?,
                }
            }
            Shape::Nested { length, stride, count } => {
                exactly(section(&[(stride, 2), (2 * stride + 1, count)], length)?)?
            }
            Shape::List(cells) => {
                let pieces = (0..SPACE).filter(|cell| cells & 1 << cell != 0);
                let piece = |cell| Extent::with_length(cell * self.unit, self.unit);
                exactly(Region::from_extents(pieces.filter_map(piece).collect())?)?
            }
        };
        // Beyond the last cell there is nothing but the end of the file.
        let fits = |region: &Region| {
            matches!(region.bounds().end(), Extent::EOF) || region.bounds().end() <= SPACE * self.unit
        };
        (fits(&required) && fits(&desired)).then_some((required, desired))
    }

    fn enqueue(&mut self, wish: Wish) {
        self.next_request += 1;
        let number = self.next_request;
        let Some((required, desired)) = self.ranges(&wish) else { return };
        // Every cell that a byte lies in.
        let rounded = |region: &Region| {
            region.pieces().fold(0, |all, piece| {
                let end = match piece.end() {
                    Extent::EOF => SPACE + 1,
                    end => (end - 1) / self.unit + 1,
                };
                all | cells(self.cell(piece.start())..end)
            })
        };
        let part = match wish.part {
            // Parts are not rounded to cells.
            6 if self.unit == 1 => Part::First,
            7 if self.unit == 1 => Part::Next,
            _ => Part::Only,
        };
        let mode = LockMode::ALL[wish.mode];
        let known = if mode.writes() && !self.policy.write_modes { LockMode::Pw } else { mode };
        let (least, most) = (rounded(&required), rounded(&desired));
        let request = Request {
            client: wish.client,
            number,
            mode: known,
            required: least,
            desired: joined(most, least).filter(|_| part == Part::Only).unwrap_or(least),
            part,
            group: wish.group,
        };
        let mut told = Vec::new();
        self.twin.enqueue(request, wish.try_only, &mut told);
        let input = Input::Enqueue {
            from: ClientId(wish.client),
            request: RequestId(number),
            mode,
            required,
            desired,
            terms: Terms { try_only: wish.try_only, part, group: GroupId(wish.group) },
        };
        self.compare(input, told);
    }

    /// A holder keeps its lock but for some cells, if something is left, and nothing of what it was asked for.
    fn narrow(&mut self, lock: &Lock, taken: std::ops::Range<u64>) {
        let end = if taken.end > SPACE { Extent::EOF } else { taken.end * self.unit };
        let Some(bytes) = Extent::new(taken.start * self.unit, end) else { return };
        let kept = lock.cells & !cells(taken);
        let mut told = Vec::new();
        if kept != 0 && lock.phase == Phase::Asked && kept & lock.asked == 0 {
            let held = self.twin.locks.iter_mut().find(|held| held.id == lock.id).unwrap();
            (held.cells, held.phase, held.hurried) = (kept, Phase::Granted, false);
            self.twin.serve_all(&mut told);
        }
        let (from, lock) = (ClientId(lock.holder), LockId(lock.id));
        self.compare(Input::Narrow { from, lock, taken: bytes }, told);
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
            Event::Narrow { which, start, end } => {
                let asked = self.choose(which, &[Asked]).filter(|_| which % 4 != 0);
                let Some(lock) = asked.or_else(|| self.choose(which, &[Granted, Asked, Canceling])) else {
                    return;
                };
                self.narrow(&lock, start..end);
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
                let denied =
                    |r: &Request| Told::Denied { to: r.client, request: r.number, errno: ESTALE, at: None };
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
    fn the_lock_table_agrees_with_lists_where_locks_cover_sections(
        history in prop::collection::vec(events_with(shapes()), 1..80),
    ) {
        play(Policy::SEQDLM, &history);
    }

    #[test]
    fn the_lock_table_agrees_with_lists_where_sections_are_exact_or_go_past_those_who_wait(
        history in prop::collection::vec(events_with(shapes()), 1..80),
        exact in any::<bool>(),
    ) {
        let expansion = if exact { Expansion::Exact } else { Expansion::PastWaiting };
        play(Policy { expansion, ..Policy::SEQDLM }, &history);
    }

    #[test]
    fn the_lock_table_agrees_with_lists_under_any_switches(
        history in prop::collection::vec(events_with(shapes()), 1..60),
        switches in any::<[bool; 6]>(),
    ) {
        let [write_modes, early_grant, early_revocation, upgrading, exact, page] = switches;
        let expansion = if exact { Expansion::Exact } else { Expansion::Greedy };
        let granularity_bytes = if page { 4096 } else { 1 };
        let features = Policy { write_modes, early_grant, early_revocation, upgrading, ..Policy::SEQDLM };
        play(Policy { expansion, granularity_bytes, ..features }, &history);
    }
}
