//! Both halves together, every message order that one seed gives: three clients, one resource.
//!
//! Each client has three channels to the server, each in order, any order between them. Checked after each step: no two
//! operations in use at the same time conflict (I1). At the end everybody has been served (I8) and all is released.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_dlm::{client, server};
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, LockId, LockMode, LockState, OperationId, Policy, RequestId, Sn, Terms};
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
    Revoked(LockId, LockMode),
}

struct InUse {
    mode: LockMode,
    region: Region,
    lock: LockId,
}

struct Client {
    locks: client::Locks,
    /// Control and callback from the server; control, callback and bulk to it.
    down: [VecDeque<ToClient>; 2],
    up: [VecDeque<server::Input>; 3],
    wanted: BTreeMap<OperationId, (LockMode, Region)>,
    in_use: BTreeMap<OperationId, InUse>,
    flushes: VecDeque<(LockId, bool)>,
    /// Flushes that nobody waits for: not done before somebody does.
    put_off: Vec<LockId>,
    to_do: u64,
}

struct World {
    random: Random,
    server: server::Resource,
    clients: Vec<Client>,
    next: u64,
    served: u64,
    /// Modes of locks as the clients were told.
    modes: BTreeMap<LockId, LockMode>,
    /// Locks whose holders' time is running.
    armed: BTreeSet<LockId>,
}

impl World {
    fn new(policy: Policy, seed: u64) -> World {
        let settings = client::Settings { policy, locks_max: 4, age_ticks_max: 3 };
        let client = || Client {
            locks: client::Locks::new(settings),
            down: Default::default(),
            up: Default::default(),
            wanted: BTreeMap::new(),
            in_use: BTreeMap::new(),
            flushes: VecDeque::new(),
            put_off: Vec::new(),
            to_do: 12,
        };
        World {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            server: server::Resource::new(policy, server::Origin { sn: Sn(1), lock: LockId(1) }),
            clients: (0..3).map(|_| client()).collect(),
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
        for effect in out {
            let c = &mut self.clients[who];
            match effect {
                client::Effect::Use { operation, lock, .. } => {
                    let (mode, region) = c.wanted.remove(&operation).expect("used once");
                    c.in_use.insert(operation, InUse { mode, region, lock });
                    self.served += 1;
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
                server::Effect::Revoke { to, lock, wanted, region: _ } => {
                    let to = usize::try_from(to.0 - 1).unwrap();
                    self.clients[to].down[1].push_back(ToClient::Revoked(lock, wanted));
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
        let start = self.random.below(8) as u64;
        let end =
            if self.random.below(6) == 0 { Extent::EOF } else { start + 1 + self.random.below(4) as u64 };
        let required: Region = Extent::new(start, end).unwrap().into();
        let desired = if self.random.below(3) == 0 { required.clone() } else { Extent::to_eof(start).into() };
        let (operation, request) = (OperationId(self.next), RequestId(self.next));
        self.clients[who].wanted.insert(operation, (mode, required.clone()));
        let terms = Terms { try_only: self.random.below(10) == 0, ..Terms::WAIT };
        self.client_step(who, client::Input::Acquire { operation, mode, required, desired, request, terms });
    }

    /// One random thing happens; false if nothing can.
    fn happen(&mut self) -> bool {
        let mut can: Vec<(usize, u8)> = Vec::new();
        for (who, c) in self.clients.iter().enumerate() {
            can.extend((0..2).filter(|i| !c.down[usize::from(*i)].is_empty()).map(|i| (who, i)));
            can.extend((0..3).filter(|i| !c.up[usize::from(*i)].is_empty()).map(|i| (who, 10 + i)));
            can.extend((!c.in_use.is_empty()).then_some((who, 20)));
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
                ToClient::Revoked(lock, wanted) => {
                    self.client_step(who, client::Input::Revoked { lock, wanted })
                }
            },
            10..=12 => {
                let input = self.clients[who].up[usize::from(what - 10)].pop_front().unwrap();
                self.server_step(input);
            }
            20 => {
                let which = self.random.below(self.clients[who].in_use.len());
                let operation = *self.clients[who].in_use.keys().nth(which).unwrap();
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

fn explore(policy: &str, seeds: u64) {
    for seed in 1..=seeds {
        let result = std::panic::catch_unwind(|| World::new(policy.parse().unwrap(), seed).run());
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
        explore(policy, 3000);
    }
}
