//! Clients that only take and release locks, over the machines of [`super::hardware`]: the product's tables, no data (paper 001, 6.1).
//!
//! Every message to a server costs it one RPC, as everywhere in these figures; one release is a message, as in the paper (the product
//! puts up to 1,024 into one). What the tables themselves cost is left out: [`super::lock_rules`] measures it.

use super::hardware::{Hardware, Knob};
use super::taking::{Kind, Protocol, Request, Round, Taking, cut};
use crate::clock::Clock;
use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_region::{Region, Section};
use ccpfs_types::{ClientId, Layout, LockId, LockMode, Policy, RequestId, Sn, Terms};

/// A test of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// Clients.
    pub clients: u32,
    /// Servers; the file has a stripe on each.
    pub servers: u32,
    /// Bytes in one unit of a stripe.
    pub stripe_bytes: u64,
    /// Locks of one byte that each client takes.
    pub locks: u64,
    /// Bytes from one to the next.
    pub gap_bytes: u64,
    /// Percent of them that each client has in common with the next.
    pub overlap_percent: u64,
    /// What a request says.
    pub kind: Kind,
    /// How requests are made.
    pub protocol: Protocol,
}

/// What came out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Seconds until the last client had all its locks.
    pub acquire_s: f64,
    /// Seconds from then until servers had taken all back; 0 where each client releases at once.
    pub release_s: f64,
    /// Requests for locks.
    pub requests: u64,
}

impl Test {
    /// All locks of all clients.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.locks * u64::from(self.clients)
    }

    fn region(&self, client: u32) -> Region {
        let step = self.locks - self.locks * self.overlap_percent / 100;
        let offset = u64::from(client) * step * self.gap_bytes;
        Section::new(offset, 1, &[(self.gap_bytes, self.locks)]).expect("tests are small").into()
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request for a lock is with its server.
    Requested { client: usize, number: usize, try_only: bool },
    /// An answer is with its client.
    Answered { client: usize, number: usize, lock: Option<LockId> },
    /// A release is with its server.
    Released { client: usize, number: usize, lock: LockId },
    /// The server's word that it has it is with its client.
    Confirmed { client: usize },
}

struct Client {
    requests: Vec<Request>,
    held: Vec<Option<LockId>>,
    taking: Taking,
    /// Answers and confirmations that are still to come.
    expected: usize,
    /// First request of the round that was refused.
    missing: usize,
    has_all: bool,
}

struct Server {
    table: Resource,
    free_ns: u64,
}

struct World {
    clock: Clock<Event>,
    half_trip_ns: u64,
    rpc_ns: u64,
    clients: Vec<Client>,
    servers: Vec<Server>,
    /// Clients that do not have all yet.
    taking: usize,
    acquired_ns: u64,
    /// Everybody releases when all have all; otherwise each at once.
    together: bool,
    found: Found,
    effects: Vec<Effect>,
}

fn nanoseconds(value: f64) -> u64 {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "times are positive and far below 2^53"
    )]
    let whole = value.round() as u64;
    whole
}

/// Simulates a test.
///
/// # Errors
///
/// If nothing happens any more and a client still waits.
pub fn run(test: &Test, policy: Policy, hardware: &Hardware) -> Result<Found, String> {
    let layout = Layout::new(test.servers, test.stripe_bytes).ok_or("no such layout")?;
    let origin = Origin { sn: Sn(1), lock: LockId(1) };
    let client = |number| {
        let requests = cut(&test.region(number), &layout, test.kind);
        let taking = Taking::new(test.protocol, requests.len());
        let (held, missing) = (vec![None; requests.len()], requests.len());
        Client { requests, held, taking, expected: 0, missing, has_all: false }
    };
    let mut world = World {
        clock: Clock::new(),
        half_trip_ns: nanoseconds(hardware.get(Knob::RoundTrip) * 500.0),
        rpc_ns: nanoseconds(1e9 / hardware.get(Knob::RpcRate)),
        clients: (0..test.clients).map(client).collect(),
        servers: (0..test.servers)
            .map(|_| Server { table: Resource::new(policy, origin), free_ns: 0 })
            .collect(),
        taking: test.clients as usize,
        acquired_ns: 0,
        together: test.overlap_percent == 0,
        found: Found::default(),
        effects: Vec::new(),
    };
    (0..world.clients.len()).for_each(|client| world.next_round(client));
    while let Some(event) = world.clock.next() {
        world.happen(event)?;
    }
    if world.taking > 0 || world.servers.iter().any(|server| !server.table.is_idle()) {
        return Err(format!("{} clients wait for ever", world.taking));
    }
    world.found.acquire_s = world.acquired_ns as f64 / 1e9;
    if world.together {
        world.found.release_s = (world.clock.now_ns() - world.acquired_ns) as f64 / 1e9;
    }
    Ok(world.found)
}

impl World {
    /// A message to a server: on its way, then in the queue of requests.
    fn tell(&mut self, client: usize, number: usize, event: Event) {
        let server = &mut self.servers[self.clients[client].requests[number].stripe as usize];
        let arrives = self.clock.now_ns() + self.half_trip_ns;
        server.free_ns = server.free_ns.max(arrives) + self.rpc_ns;
        self.clock.at(server.free_ns, event);
    }

    fn ask(&mut self, client: usize, number: usize, try_only: bool) {
        self.found.requests += 1;
        self.clients[client].expected += 1;
        self.tell(client, number, Event::Requested { client, number, try_only });
    }

    fn next_round(&mut self, client: usize) {
        let requests = self.clients[client].requests.len();
        self.clients[client].missing = requests;
        match self.clients[client].taking.round() {
            Some(Round::Try { from }) => (from..requests).for_each(|number| self.ask(client, number, true)),
            Some(Round::Wait { number }) => {
                self.clients[client].missing = number + 1;
                self.ask(client, number, false);
            }
            None => self.all_held(client),
        }
    }

    fn all_held(&mut self, client: usize) {
        self.clients[client].has_all = true;
        self.taking -= 1;
        self.acquired_ns = self.clock.now_ns();
        if !self.together {
            self.give_back(client, 0);
        } else if self.taking == 0 {
            (0..self.clients.len()).for_each(|client| self.give_back(client, 0));
        }
    }

    /// Releases what a client holds from a request on.
    fn give_back(&mut self, client: usize, from: usize) {
        for number in from..self.clients[client].requests.len() {
            if let Some(lock) = self.clients[client].held[number].take() {
                self.clients[client].expected += 1;
                self.tell(client, number, Event::Released { client, number, lock });
            }
        }
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Requested { client, number, try_only } => self.requested(client, number, try_only)?,
            Event::Released { client, number, lock } => {
                let server = self.clients[client].requests[number].stripe as usize;
                self.step(server, Input::Release { from: name(client), lock })?;
                self.clock.at(self.clock.now_ns() + self.half_trip_ns, Event::Confirmed { client });
            }
            Event::Answered { client, number, lock } => {
                let asker = &mut self.clients[client];
                asker.held[number] = lock;
                if lock.is_none() {
                    asker.missing = asker.missing.min(number);
                }
                asker.expected -= 1;
                if asker.expected == 0 {
                    self.round_over(client);
                }
            }
            Event::Confirmed { client } => {
                self.clients[client].expected -= 1;
                if self.clients[client].expected == 0 && !self.clients[client].has_all {
                    self.settle(client);
                }
            }
        }
        Ok(())
    }

    /// All answers are here: what was got out of order goes back first.
    fn round_over(&mut self, client: usize) {
        self.give_back(client, self.clients[client].missing);
        if self.clients[client].expected == 0 {
            self.settle(client);
        }
    }

    fn settle(&mut self, client: usize) {
        let missing = self.clients[client].missing;
        self.clients[client].taking.settle(missing);
        self.next_round(client);
    }

    fn requested(&mut self, client: usize, number: usize, try_only: bool) -> Result<(), String> {
        let request = &self.clients[client].requests[number];
        let (server, region) = (request.stripe as usize, request.region.clone());
        let input = Input::Enqueue {
            from: name(client),
            request: RequestId(number as u64),
            mode: LockMode::Pw,
            required: region.clone(),
            desired: region,
            terms: Terms { try_only, part: request.part, ..Terms::WAIT },
        };
        self.step(server, input)
    }

    /// Puts an input through a table, and sends what follows. Revocations change nothing: everybody releases as soon as it can.
    fn step(&mut self, server: usize, input: Input) -> Result<(), String> {
        let mut effects = std::mem::take(&mut self.effects);
        self.servers[server].table.step(input, &mut effects);
        let at_ns = self.clock.now_ns() + self.half_trip_ns;
        for effect in effects.drain(..) {
            let (to, request, lock) = match effect {
                Effect::Grant { to, request, granted } => (to, request, Some(granted.lock)),
                Effect::Deny { to, request, first_common: Some(_), .. } => (to, request, None),
                Effect::Deny { errno, .. } => return Err(format!("a server refused with errno {errno}")),
                Effect::Revoke { .. } | Effect::Arm { .. } | Effect::Disarm { .. } => continue,
            };
            let index = |number: u64| usize::try_from(number).expect("numbers are small");
            let (client, number) = (index(to.0 - 1), index(request.0));
            self.clock.at(at_ns, Event::Answered { client, number, lock });
        }
        self.effects = effects;
        Ok(())
    }
}

fn name(client: usize) -> ClientId {
    ClientId(client as u64 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(kind: Kind, protocol: Protocol, overlap_percent: u64) -> Test {
        Test {
            clients: 4,
            servers: 3,
            stripe_bytes: 65_536,
            locks: 3000,
            gap_bytes: 64,
            overlap_percent,
            kind,
            protocol,
        }
    }

    fn found(test: &Test) -> Found {
        run(test, "datatype".parse().expect("a policy"), &Hardware::default()).expect("nobody waits for ever")
    }

    #[test]
    fn everybody_gets_all_locks_under_every_kind_protocol_and_overlap() {
        for kind in Kind::ALL {
            for protocol in Protocol::ALL {
                for overlap in [0, 50, 100] {
                    let found = found(&test(kind, protocol, overlap));
                    assert!(found.acquire_s > 0.0, "{kind:?} {protocol:?} {overlap}");
                    assert_eq!(found.release_s > 0.0, overlap == 0);
                }
            }
        }
    }

    #[test]
    fn descriptions_take_one_request_and_one_round_trip() {
        let free = found(&test(Kind::Datatype, Protocol::OneTry, 0));
        // 3,000 locks every 64 bytes are three units of 64 KiB.
        assert_eq!(free.requests, 4 * 3);
        assert!((30e-6..60e-6).contains(&free.acquire_s), "{free:?}");
        let in_order = found(&test(Kind::Datatype, Protocol::TwoPhase, 0));
        assert!(in_order.acquire_s > 1.8 * free.acquire_s, "{in_order:?}");
        let single = found(&test(Kind::Posix, Protocol::OneTry, 0));
        assert_eq!(single.requests, 12_000);
    }
}
