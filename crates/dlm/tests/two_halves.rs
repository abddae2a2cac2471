//! Both halves together, every message order that one seed gives: three clients, one resource.
//!
//! Each client has three channels to the server, each in order, any order between them. Checked after each step: no two
//! operations in use at the same time conflict (I1). At the end everybody has been served (I8) and all is released.
//!
//! Where sections are in play, operations need extents, lists or sections, some of them in parts of which each but the first is asked
//! for while the others are held; and a holder that is asked for a part of a lock may keep the rest.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_dlm::{client, server};
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{
    ClientId, Extent, GroupId, Layout, LockId, LockMode, LockState, OperationId, Part, Policy, RequestId, Sn,
    Terms,
};
use ccpfs_wire::GrantedLock;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }
}

enum ToClient {
    Granted(RequestId, GrantedLock),
    Revoked(LockId, LockMode, Region),
}

struct InUse {
    mode: LockMode,
    region: Region,
    lock: LockId,
    group: GroupId,
}

/// An operation that needs several locks.
struct Chain {
    mode: LockMode,
    /// What it still needs, last first.
    left: Vec<Region>,
    held: BTreeSet<OperationId>,
    next: OperationId,
}

struct Client {
    locks: client::Locks,
    /// Control and callback from the server; control, callback and bulk to it.
    down: [VecDeque<ToClient>; 2],
    up: [VecDeque<server::Input>; 3],
    wanted: BTreeMap<OperationId, (LockMode, Region, GroupId)>,
    chains: Vec<Chain>,
    in_use: BTreeMap<OperationId, InUse>,
    flushes: VecDeque<(LockId, bool)>,
    /// Flushes that nobody waits for: not done before somebody does.
    put_off: Vec<LockId>,
    to_do: u64,
}

impl Client {
    /// Operations that have all that they need.
    fn can_end(&self) -> impl Iterator<Item = OperationId> + '_ {
        let waits = |operation: &OperationId| self.chains.iter().any(|chain| chain.held.contains(operation));
        self.in_use.keys().copied().filter(move |operation| !waits(operation))
    }
}

struct World {
    random: Random,
    server: server::Resource,
    clients: Vec<Client>,
    sections: bool,
    next: u64,
    served: u64,
    /// Modes of locks as the clients were told.
    modes: BTreeMap<LockId, LockMode>,
    /// Locks whose holders' time is running.
    armed: BTreeSet<LockId>,
}

impl World {
    fn new(policy: Policy, seed: u64, sections: bool) -> World {
        let settings = client::Settings { policy, locks_max: 4, age_ticks_max: 3 };
        let client = || Client {
            locks: client::Locks::new(settings),
            down: Default::default(),
            up: Default::default(),
            wanted: BTreeMap::new(),
            chains: Vec::new(),
            in_use: BTreeMap::new(),
            flushes: VecDeque::new(),
            put_off: Vec::new(),
            to_do: 12,
        };
        World {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            server: server::Resource::new(policy, server::Origin { sn: Sn(1), lock: LockId(1) }),
            clients: (0..3).map(|_| client()).collect(),
            sections,
            next: 0,
            served: 0,
            modes: BTreeMap::new(),
            armed: BTreeSet::new(),
        }
    }

    fn client_step(&mut self, who: usize, input: client::Input) {
        let mut out = Vec::new();
        self.clients[who].locks.step(input, &mut out);
        let from = ClientId(who as u64 + 1);
        let mut begun = Vec::new();
        for effect in out {
            let c = &mut self.clients[who];
            match effect {
                client::Effect::Use { operation, lock, .. } => {
                    let (mode, region, group) = c.wanted.remove(&operation).expect("used once");
                    c.in_use.insert(operation, InUse { mode, region, lock, group });
                    self.served += 1;
                    begun.push(operation);
                }
                client::Effect::Refused { operation, errno } => {
                    assert_eq!(errno, 11);
                    c.wanted.remove(&operation).expect("refused once");
                }
                client::Effect::Wanted { operation } => panic!("{operation} did not ask for this"),
                client::Effect::Enqueue { request, mode, required, desired, terms } => {
                    c.up[0].push_back(server::Input::Enqueue {
                        from,
                        request,
                        mode,
                        required,
                        desired,
                        terms,
                    });
                }
                client::Effect::RevokeAck { lock, mode } => {
                    c.up[1].push_back(server::Input::RevokeAck { from, lock, mode });
                }
                client::Effect::Convert { lock, mode } => {
                    c.up[1].push_back(server::Input::Convert { from, lock, mode });
                }
                client::Effect::Flush { lock, urgent: false, .. } => c.put_off.push(lock),
                client::Effect::Flush { lock, release, .. } => c.flushes.push_back((lock, release)),
                client::Effect::Hurry { lock } => {
                    if let Some(at) = c.put_off.iter().position(|waiting| *waiting == lock) {
                        c.put_off.remove(at);
                        c.flushes.push_back((lock, true));
                    }
                }
                client::Effect::Release { lock, .. } => {
                    c.up[1].push_back(server::Input::Release { from, lock });
                }
            }
        }
        self.check();
        for operation in begun {
            self.go_on(who, operation);
        }
    }

    /// Asks for the next part of an operation that has just got one.
    fn go_on(&mut self, who: usize, operation: OperationId) {
        let c = &mut self.clients[who];
        let Some(at) = c.chains.iter().position(|chain| chain.next == operation) else { return };
        let chain = &mut c.chains[at];
        chain.held.insert(operation);
        let Some(required) = chain.left.pop() else {
            c.chains.swap_remove(at);
            return;
        };
        self.next += 1;
        chain.next = OperationId(self.next);
        let mode = chain.mode;
        self.acquire(who, mode, (required.clone(), required), Terms { part: Part::Next, ..Terms::WAIT });
    }

    /// Acquires as operation number `next`.
    fn acquire(&mut self, who: usize, mode: LockMode, (required, desired): (Region, Region), terms: Terms) {
        let (operation, request) = (OperationId(self.next), RequestId(self.next));
        self.clients[who].wanted.insert(operation, (mode, required.clone(), terms.group));
        self.client_step(who, client::Input::Acquire { operation, mode, required, desired, request, terms });
    }

    fn server_step(&mut self, input: server::Input) {
        let mut out = Vec::new();
        self.server.step(input, &mut out);
        for effect in out {
            match effect {
                server::Effect::Grant { to, request, granted } => {
                    self.modes.insert(granted.lock, granted.mode);
                    let to = usize::try_from(to.0 - 1).unwrap();
                    self.clients[to].down[0].push_back(ToClient::Granted(request, granted));
                }
                server::Effect::Deny { to, request, errno, .. } => {
                    let to = usize::try_from(to.0 - 1).unwrap();
                    // Delivered at once: a refusal changes no lock.
                    self.client_step(to, client::Input::Denied { request, errno });
                }
                server::Effect::Revoke { to, lock, wanted, region } => {
                    let to = usize::try_from(to.0 - 1).unwrap();
                    self.clients[to].down[1].push_back(ToClient::Revoked(lock, wanted, region));
                }
                server::Effect::Arm { lock, .. } => assert!(self.armed.insert(lock), "armed once"),
                server::Effect::Disarm { lock } => assert!(self.armed.remove(&lock), "disarmed once"),
            }
        }
        //= protocol.md#I8 type=test
        assert!(self.server.waiting_count() == 0 || !self.armed.is_empty(), "who waits, waits for somebody");
        assert!(self.server.lock_count() >= self.armed.len(), "no clock runs for what is gone");
    }

    /// I1 as the users of locks see it. Writers under NBW may overlap: their locks have distinct numbers.
    //= protocol.md#I1 type=test
    fn check(&self) {
        for (i, a) in self.clients.iter().enumerate() {
            for b in &self.clients[i + 1..] {
                for x in a.in_use.values() {
                    for y in b.in_use.values() {
                        let both_nbw = x.mode == LockMode::Nbw && y.mode == LockMode::Nbw;
                        let fine = both_nbw
                            || x.mode.compatible(y.mode, LockState::Granted)
                            || (x.group != GroupId::NONE && x.group == y.group)
                            || !x.region.may_overlap(&y.region);
                        let upgraded = self.modes[&x.lock] != x.mode || self.modes[&y.lock] != y.mode;
                        let weak = matches!(
                            (x.mode, y.mode),
                            (LockMode::Nbw, LockMode::Bw) | (LockMode::Bw, LockMode::Nbw)
                        );
                        assert!(
                            fine || (upgraded && both_nbw) || weak,
                            "{:?} {} beside {:?} {}",
                            x.mode,
                            x.region,
                            y.mode,
                            y.region
                        );
                    }
                }
            }
        }
    }

    fn begin(&mut self, who: usize) {
        self.clients[who].to_do -= 1;
        self.next += 1;
        let mode = LockMode::ALL[self.random.below(4)];
        let (required, desired) = self.ranges();
        let try_only = self.random.below(10) == 0;
        let group = GroupId(if self.sections && self.random.below(12) == 0 { 1 } else { 0 });
        if self.sections && self.random.below(4) == 0 {
            return self.begin_parts(who, mode, &required);
        }
        self.acquire(who, mode, (required, desired), Terms { try_only, part: Part::Only, group });
    }

    /// Cuts what an operation needs into parts, and asks for the first.
    fn begin_parts(&mut self, who: usize, mode: LockMode, required: &Region) {
        // A write under several locks is no NBW.
        let mode = if mode == LockMode::Nbw { LockMode::Bw } else { mode };
        let cuts = [0, 2 + self.random.below(4) as u64, 6 + self.random.below(5) as u64, Extent::EOF];
        let window = |cut: &[u64]| required.in_extent(Extent::new(cut[0], cut[1]).unwrap());
        let mut left: Vec<Region> = cuts.windows(2).filter_map(window).collect();
        left.reverse();
        let first = left.pop().unwrap();
        let part = if left.is_empty() { Part::Only } else { Part::First };
        self.clients[who].chains.push(Chain {
            mode,
            left,
            held: BTreeSet::new(),
            next: OperationId(self.next),
        });
        self.acquire(who, mode, (first.clone(), first), Terms { part, ..Terms::WAIT });
    }

    /// What an operation needs, and what it would like.
    fn ranges(&mut self) -> (Region, Region) {
        let mut below = |limit| self.random.below(limit) as u64;
        let start = below(8);
        let end = if below(6) == 0 { Extent::EOF } else { start + 1 + below(4) };
        let extent: Region = Extent::new(start, end).unwrap().into();
        let to_eof: Region = Extent::to_eof(start).into();
        let shape = if self.sections { self.random.below(8) } else { 0 };
        let mut below = |limit| self.random.below(limit) as u64;
        let stride = 2 + below(3);
        let section = |count| Region::from(Section::new(start, 1, &[(stride, count)]).unwrap());
        // Cells at an odd stride, all on the second of four stripes of a file: many sections in its own offsets.
        let layout = Layout::new(4, 4096).unwrap();
        let odd = Section::new(4096 + start, 1, &[(stride + stride % 2 + 1, UNBOUNDED)]).unwrap();
        let of_file = || Region::of_stripe(vec![odd], &layout, 1).unwrap().unwrap();
        let required = match shape {
            0 | 1 => extent,
            6 => of_file(),
            7 => return (Extent::with_length(start, 1).unwrap().into(), of_file()),
            2 => section(2 + below(4)),
            3 => section(UNBOUNDED),
            4 => {
                let cell = |cell: u64| Extent::with_length(cell * 2 + cell % 3, 1).unwrap();
                Region::from_extents((0..6).filter(|_| below(2) == 0).map(cell).collect()).unwrap_or(extent)
            }
            // Writes at a stride: the first piece, and what it is the first of.
            _ => return (Extent::with_length(start, 1).unwrap().into(), section(UNBOUNDED)),
        };
        let desired = if self.random.below(3) == 0 { required.clone() } else { to_eof };
        let desired = if desired.contains_region(&required) { desired } else { required.clone() };
        (required, desired)
    }

    /// A holder keeps what it can of a lock, or goes on to give it back.
    fn revoked(&mut self, who: usize, lock: LockId, wanted: LockMode, region: &Region) {
        let keeps = self.clients[who].locks.keeps(lock, region);
        match keeps[self.random.below(2)].filter(|_| self.random.below(4) > 0) {
            Some(taken) => {
                let from = ClientId(who as u64 + 1);
                self.clients[who].up[1].push_back(server::Input::Narrow { from, lock, taken });
                self.client_step(who, client::Input::Narrow { lock, taken });
            }
            None => self.client_step(who, client::Input::Revoked { lock, wanted }),
        }
    }

    /// One random thing happens; false if nothing can.
    fn happen(&mut self) -> bool {
        let mut can: Vec<(usize, u8)> = Vec::new();
        for (who, c) in self.clients.iter().enumerate() {
            can.extend((0..2).filter(|i| !c.down[usize::from(*i)].is_empty()).map(|i| (who, i)));
            can.extend((0..3).filter(|i| !c.up[usize::from(*i)].is_empty()).map(|i| (who, 10 + i)));
            can.extend(c.can_end().next().map(|_| (who, 20)));
            can.extend((!c.flushes.is_empty()).then_some((who, 21)));
            can.extend((c.to_do > 0).then_some((who, 22)));
            can.extend((c.to_do > 0 && c.to_do % 4 == 0).then_some((who, 23)));
        }
        if can.is_empty() {
            return false;
        }
        let (who, what) = can[self.random.below(can.len())];
        match what {
            0 | 1 => match self.clients[who].down[usize::from(what)].pop_front().unwrap() {
                ToClient::Granted(request, granted) => {
                    self.client_step(who, client::Input::Granted { request, granted });
                }
                ToClient::Revoked(lock, wanted, region) => self.revoked(who, lock, wanted, &region),
            },
            10..=12 => {
                let input = self.clients[who].up[usize::from(what - 10)].pop_front().unwrap();
                self.server_step(input);
            }
            20 => {
                let which = self.random.below(self.clients[who].can_end().count());
                let operation = self.clients[who].can_end().nth(which).unwrap();
                self.clients[who].in_use.remove(&operation);
                self.client_step(who, client::Input::Finish { operation });
            }
            21 => {
                let (lock, release) = self.clients[who].flushes.pop_front().unwrap();
                let travels = release && self.random.below(2) == 0;
                if travels {
                    let from = ClientId(who as u64 + 1);
                    self.clients[who].up[2].push_back(server::Input::Release { from, lock });
                }
                self.client_step(who, client::Input::Flushed { lock, released: travels });
            }
            22 => self.begin(who),
            _ => self.client_step(who, client::Input::Tick),
        }
        true
    }

    fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.happen() {
                break;
            }
        }
        for (who, c) in self.clients.iter().enumerate() {
            assert!(
                c.wanted.is_empty(),
                "client {who} was never served: {:?}\n{:?}\n{:?}",
                c.wanted,
                c.locks,
                self.server
            );
        }
        assert_eq!(self.server.waiting_count(), 0);
        for who in 0..3 {
            self.client_step(who, client::Input::Shrink { count: 1000 });
            let put_off = std::mem::take(&mut self.clients[who].put_off);
            self.clients[who].flushes.extend(put_off.into_iter().map(|lock| (lock, true)));
        }
        while self.happen() {}
        assert!(self.server.is_idle(), "{:?}", self.server);
        assert!(self.clients.iter().all(|c| c.locks.is_idle()));
    }
}

fn explore(policy: &str, seeds: u64, sections: bool) {
    for seed in 1..=seeds {
        let world = || World::new(policy.parse().unwrap(), seed, sections);
        let result = std::panic::catch_unwind(|| world().run());
        assert!(result.is_ok(), "policy {policy}, seed {seed}");
    }
}

#[test]
fn everybody_is_served_under_every_policy() {
    for policy in [
        "seqdlm",
        "basic",
        "lustre",
        "seqdlm-no-early-grant",
        "seqdlm-no-early-revocation",
        "seqdlm-no-upgrading",
        "seqdlm-no-downgrading",
        "seqdlm-no-expansion",
        "seqdlm-no-write-modes",
        "seqdlm-with-adaptive-range",
        "seqdlm-page",
    ] {
        explore(policy, 3000, false);
    }
}

#[test]
fn everybody_is_served_where_locks_cover_sections_and_operations_need_several() {
    for policy in [
        "seqdlm",
        "basic",
        "lustre",
        "seqdlm-no-early-grant",
        "seqdlm-no-early-revocation",
        "seqdlm-no-upgrading",
        "seqdlm-no-downgrading",
        "seqdlm-no-expansion",
        "seqdlm-no-write-modes",
        "seqdlm-past-waiting",
    ] {
        explore(policy, 800, true);
    }
}
