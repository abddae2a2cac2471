//! What the server's half costs when thousands of clients want one resource: real time per request that was served.
//!
//! `cargo run --release -p ccpfs-dlm --example crowd -- [CLIENTS] [REQUESTS PER CLIENT]`

use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, LockId, LockMode, LockState, Policy, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

const BLOCK_BYTES: u64 = 65_536;

/// What the clients ask for, one request after the other.
#[derive(Clone, Copy, Debug)]
enum Crowd {
    /// Client after client writes a block of its own, then the next that nobody has (N-1 strided).
    Strided,
    /// Everybody writes the same block.
    OneBlock,
    /// Everybody writes all of the file: nothing can grow, so locks are revoked early.
    WholeFile,
    /// Everybody reads and writes the same block.
    ReadWrite,
    /// Blocks in the middle of each other's, in no order.
    Scattered,
    /// Everybody reads the file.
    Readers,
    /// Everybody writes a block of its own, then reads that of a neighbour.
    ReadBack,
    /// As strided; the last client reads all of the file each time.
    OneReader,
}

const CROWDS: [Crowd; 8] = [
    Crowd::Strided,
    Crowd::OneBlock,
    Crowd::WholeFile,
    Crowd::ReadWrite,
    Crowd::Scattered,
    Crowd::Readers,
    Crowd::ReadBack,
    Crowd::OneReader,
];

impl Crowd {
    /// Mode, required and desired range of a client's request.
    fn wish(self, client: u64, clients: u64, round: u64) -> (LockMode, Extent, Extent) {
        let block = |index: u64| Extent::with_length(index * BLOCK_BYTES, BLOCK_BYTES).expect("not empty");
        let strided = block(round * clients + client);
        let (mode, required) = match self {
            Crowd::Strided => (LockMode::Nbw, strided),
            Crowd::OneBlock => (LockMode::Nbw, block(1)),
            Crowd::WholeFile => (LockMode::Nbw, Extent::WHOLE),
            Crowd::ReadWrite => (LockMode::Pw, block(1)),
            Crowd::Scattered => {
                let start = (client * 7919 + round * 104_729) % (clients * BLOCK_BYTES);
                (LockMode::Nbw, Extent::with_length(start, BLOCK_BYTES).expect("not empty"))
            }
            Crowd::Readers => (LockMode::Pr, strided),
            Crowd::ReadBack if round.is_multiple_of(2) => (LockMode::Nbw, block(client)),
            Crowd::ReadBack => (LockMode::Pr, block((client + 1) % clients)),
            Crowd::OneReader if client + 1 == clients => (LockMode::Pr, Extent::WHOLE),
            Crowd::OneReader => (LockMode::Nbw, strided),
        };
        (mode, required, Extent::to_eof(required.start()))
    }
}

struct World {
    crowd: Crowd,
    clients: u64,
    resource: Resource,
    to_server: VecDeque<Input>,
    /// Locks whose flush nobody has waited for yet: they are released when there is nothing else to do, or too many.
    put_off: VecDeque<(ClientId, LockId)>,
    held: BTreeMap<LockId, LockMode>,
    rounds_left: Vec<u64>,
    rounds: u64,
    served: u64,
    busiest_ns: u128,
}

impl World {
    fn new(crowd: Crowd, clients: u64, rounds: u64) -> World {
        let origin = Origin { sn: Sn(1), lock: LockId(1) };
        let mut world = World {
            crowd,
            clients,
            resource: Resource::new(Policy::SEQDLM, origin),
            to_server: VecDeque::new(),
            put_off: VecDeque::new(),
            held: BTreeMap::new(),
            rounds_left: (0..clients).map(|_| rounds).collect(),
            rounds,
            served: 0,
            busiest_ns: 0,
        };
        (0..clients).for_each(|client| world.ask(ClientId(client)));
        world
    }

    fn ask(&mut self, client: ClientId) {
        let left = &mut self.rounds_left[usize::try_from(client.0).expect("clients are few")];
        if *left == 0 {
            return;
        }
        *left -= 1;
        let round = self.rounds - 1 - *left;
        let (mode, required, desired) = self.crowd.wish(client.0, self.clients, round);
        self.to_server.push_back(Input::Enqueue {
            from: client,
            request: RequestId(round),
            mode,
            required: Region::from(required),
            desired: Region::from(desired),
            terms: Terms::WAIT,
        });
    }

    /// A client writes at once and goes on; what it must give back, it flushes when somebody waits for that.
    fn granted(&mut self, to: ClientId, granted: &GrantedLock) {
        self.served += 1;
        for replaced in &granted.replaces {
            self.held.remove(replaced);
        }
        match granted.state {
            LockState::Granted => {
                self.held.insert(granted.lock, granted.mode);
            }
            LockState::Canceling => self.put_off.push_back((to, granted.lock)),
        }
        self.ask(to);
    }

    fn revoked(&mut self, to: ClientId, lock: LockId, wanted: LockMode) {
        let Some(mode) = self.held.remove(&lock) else {
            // Somebody waits for the release.
            self.to_server.push_back(Input::Release { from: to, lock });
            return;
        };
        let mode = if mode.writes() { LockMode::Nbw } else { mode };
        self.to_server.push_back(Input::RevokeAck { from: to, lock, mode });
        if wanted.is_blind_write() && mode.writes() {
            self.put_off.push_back((to, lock));
        } else {
            self.to_server.push_back(Input::Release { from: to, lock });
        }
    }

    fn happen(&mut self) -> bool {
        let many = u64::try_from(self.put_off.len()).expect("counts fit") > self.clients;
        let late = if many || self.to_server.is_empty() { self.put_off.pop_front() } else { None };
        let input = late.map(|(from, lock)| Input::Release { from, lock });
        let Some(input) = input.or_else(|| self.to_server.pop_front()) else { return false };
        let mut out = Vec::new();
        let began = Instant::now();
        self.resource.step(input, &mut out);
        self.busiest_ns = self.busiest_ns.max(began.elapsed().as_nanos());
        for effect in out {
            match effect {
                Effect::Grant { to, granted, .. } => self.granted(to, &granted),
                Effect::Revoke { to, lock, wanted, region: _ } => self.revoked(to, lock, wanted),
                Effect::Deny { .. } => self.served += 1,
                Effect::Arm { .. } | Effect::Disarm { .. } => {}
            }
        }
        true
    }
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let clients = numbers.next().unwrap_or(1000);
    let rounds = numbers.next().unwrap_or(4);
    for crowd in CROWDS {
        let mut world = World::new(crowd, clients, rounds);
        let began = Instant::now();
        while world.happen() {}
        let us = began.elapsed().as_secs_f64() * 1e6 / world.served as f64;
        assert!(world.resource.is_idle() || !world.held.is_empty(), "whatever is left is held by somebody");
        println!(
            "{crowd:?}: {clients} clients, {} served, {us:.2} us each, longest step {:.1} ms",
            world.served,
            world.busiest_ns as f64 / 1e6
        );
    }
}
