//! DLM-datatype, held by the simulator alone: locks that are exact lists of ranges, granted when nothing of them is locked.
//!
//! The product has no lists of ranges yet, so this is a model of its own: a traditional lock manager (normal grant, no expansion)
//! over the same machines as [`super::hardware`]. A client locks its list stripe by stripe, copies, keeps its locks until somebody
//! wants them, and then flushes and gives them back.

use super::hardware::{Hardware, Knob};
use super::program::{Pattern, STRIPE_BYTES, arrivals, tile};
use super::run::{Outcome, Spec};
use crate::clock::Clock;
use ccpfs_types::Extent;
use std::collections::VecDeque;

/// Bytes of one flush request, and how many of a client and server are under way at a time: as in the product.
const CHUNK_BYTES: u64 = 4 << 20;
const CHUNKS_MAX: u64 = 8;
/// Dirty bytes at which background flushing begins.
const DIRTY_BYTES_MIN: u64 = 256 << 20;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request for a lock is with its server.
    Requested { client: usize, stripe: usize },
    /// A grant is with its client.
    Granted { client: usize, stripe: usize },
    /// A revocation is with its client.
    Revoked { client: usize, stripe: usize },
    /// A release is with its server.
    Released { client: usize, stripe: usize },
    /// A client has copied its tile into the cache.
    Copied { client: usize },
    /// A flush request is ready for the device.
    Arrived { client: usize, stripe: usize, bytes: u64 },
    /// The device has taken a flush request.
    Written { stripe: usize },
    /// A client knows that a flush request is done.
    Answered { client: usize, stripe: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    Free,
    Waiting,
    Held,
}

/// One client's part of one stripe.
#[derive(Clone, Debug)]
struct Part {
    /// The ranges it locks: bytes of the stripe, by unit of the file.
    bytes: u64,
    lock: Lock,
    revoked: bool,
    dirty: u64,
    under_way: u64,
}

#[derive(Clone, Debug)]
struct Node {
    parts: Vec<Part>,
    /// Which others have bytes in common with it, in any stripe.
    neighbours: Vec<usize>,
    has_copied: bool,
}

#[derive(Clone, Debug, Default)]
struct Server {
    /// Requests in the order of arrival, granted or not, until released.
    queue: Vec<usize>,
    device: VecDeque<(usize, u64)>,
    urgent: VecDeque<(usize, u64)>,
    busy: Option<usize>,
    /// When its request queue is free.
    free_ns: u64,
}

/// The speeds that matter here.
#[derive(Clone, Copy, Debug)]
struct Speeds {
    half_trip_ns: u64,
    rpc_ns: u64,
    copy: f64,
    server_copy: f64,
    nic: f64,
    device: f64,
    device_latency_ns: u64,
}

impl Speeds {
    fn of(hardware: &Hardware) -> Speeds {
        Speeds {
            half_trip_ns: nanoseconds(hardware.get(Knob::RoundTrip) * 500.0),
            rpc_ns: nanoseconds(1e9 / hardware.get(Knob::RpcRate)),
            copy: hardware.get(Knob::CopyRate),
            server_copy: hardware.get(Knob::ServerCopyRate),
            nic: hardware.get(Knob::NicRate),
            device: hardware.get(Knob::DeviceRate),
            device_latency_ns: nanoseconds(hardware.get(Knob::DeviceLatency) * 1000.0),
        }
    }
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

/// Time for so many bytes, nothing at no speed.
fn transfer(bytes: u64, rate: f64) -> u64 {
    if rate > 0.0 { nanoseconds(bytes as f64 * 1e9 / rate) } else { 0 }
}

struct World {
    clock: Clock<Event>,
    speeds: Speeds,
    nodes: Vec<Node>,
    servers: Vec<Server>,
    outcome: Outcome,
    /// Clients that still have to copy.
    copying: usize,
}

/// Simulates Tile-IO under DLM-datatype.
///
/// # Errors
///
/// If the pattern is not Tile-IO's.
pub fn run(spec: &Spec) -> Result<Outcome, String> {
    let Pattern::Tiles { columns, rows, side, overlap } = spec.pattern else {
        return Err(format!("DLM-datatype runs Tile-IO only, not {:?}", spec.pattern));
    };
    let tiles = columns * rows;
    if tiles != spec.clients {
        return Err(format!("{tiles} tiles for {} clients", spec.clients));
    }
    let stripes = spec.stripes as usize;
    let nodes = (0..tiles).map(|number| node(number, tiles, (columns, side, overlap), stripes)).collect();
    let mut world = World {
        clock: Clock::new(),
        speeds: Speeds::of(&spec.hardware),
        nodes,
        servers: vec![Server::default(); stripes],
        outcome: Outcome::default(),
        copying: usize::try_from(tiles).expect("tiles are few"),
    };
    for client in arrivals(tiles) {
        let client = usize::try_from(client).expect("tiles are few");
        world.request(client, 0);
    }
    while let Some(event) = world.clock.next() {
        world.outcome.events += 1;
        world.happen(event);
    }
    world.outcome.calls = tiles;
    world.outcome.bytes = tiles * spec.pattern.client_bytes();
    Ok(world.outcome)
}

/// One client: how many bytes it has in each stripe, and with whom it shares some.
fn node(number: u64, tiles: u64, shape: (u64, u64, u64), stripes: usize) -> Node {
    let (columns, side, overlap) = shape;
    let mut bytes = vec![0; stripes];
    for extent in tile(number, columns, side, overlap).iter() {
        for (stripe, part) in units(*extent, stripes) {
            bytes[stripe] += part;
        }
    }
    let apart = |a: u64, b: u64| a.abs_diff(b) <= 1;
    let near = |other: u64| {
        other != number
            && overlap > 0
            && apart(number % columns, other % columns)
            && apart(number / columns, other / columns)
    };
    let neighbours =
        (0..tiles).filter(|other| near(*other)).map(|other| usize::try_from(other).expect("few")).collect();
    let part = |bytes| Part { bytes, lock: Lock::Free, revoked: false, dirty: 0, under_way: 0 };
    Node { parts: bytes.into_iter().map(part).collect(), neighbours, has_copied: false }
}

/// The bytes of an extent by stripe.
fn units(extent: Extent, stripes: usize) -> impl Iterator<Item = (usize, u64)> {
    let mut at = extent.start();
    std::iter::from_fn(move || {
        (at < extent.end()).then(|| {
            let end = (at / STRIPE_BYTES + 1).saturating_mul(STRIPE_BYTES).min(extent.end());
            let unit = usize::try_from(at / STRIPE_BYTES).expect("a file in memory's range");
            let part = (unit % stripes, end - at);
            at = end;
            part
        })
    })
}

impl World {
    fn after(&mut self, delay_ns: u64, event: Event) {
        self.clock.at(self.clock.now_ns() + delay_ns, event);
    }

    /// A message to a server: on its way, then in the queue of requests.
    fn tell_server(&mut self, stripe: usize, event: Event) {
        let server = &mut self.servers[stripe];
        let arrives = self.clock.now_ns() + self.speeds.half_trip_ns;
        server.free_ns = server.free_ns.max(arrives) + self.speeds.rpc_ns;
        self.clock.at(server.free_ns, event);
    }

    fn request(&mut self, client: usize, stripe: usize) {
        self.outcome.requests += 1;
        self.tell_server(stripe, Event::Requested { client, stripe });
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Requested { client, stripe } => {
                self.nodes[client].parts[stripe].lock = Lock::Waiting;
                self.servers[stripe].queue.push(client);
                self.grant(stripe);
            }
            Event::Granted { client, stripe } => self.granted(client, stripe),
            Event::Revoked { client, stripe } => {
                self.nodes[client].parts[stripe].revoked = true;
                self.flush(client, stripe);
            }
            Event::Released { client, stripe } => {
                self.nodes[client].parts[stripe].lock = Lock::Free;
                self.servers[stripe].queue.retain(|waiting| *waiting != client);
                self.grant(stripe);
            }
            Event::Copied { client } => self.copied(client),
            Event::Arrived { client, stripe, bytes } => {
                let urgent = self.nodes[client].parts[stripe].revoked;
                let server = &mut self.servers[stripe];
                if urgent { &mut server.urgent } else { &mut server.device }.push_back((client, bytes));
                self.feed(stripe);
            }
            Event::Written { stripe } => self.written(stripe),
            Event::Answered { client, stripe } => {
                self.nodes[client].parts[stripe].under_way -= 1;
                self.outcome.flush_s = self.clock.now_ns() as f64 / 1e9 - self.outcome.pio_s;
                self.flush(client, stripe);
            }
        }
    }

    /// Grants what nothing earlier is in the way of, and asks holders in the way to let go.
    fn grant(&mut self, stripe: usize) {
        let queue = self.servers[stripe].queue.clone();
        for (at, client) in queue.iter().copied().enumerate() {
            if self.nodes[client].parts[stripe].lock != Lock::Waiting {
                continue;
            }
            let neighbours = &self.nodes[client].neighbours;
            let in_the_way: Vec<usize> =
                queue[..at].iter().copied().filter(|earlier| neighbours.contains(earlier)).collect();
            if in_the_way.is_empty() {
                self.nodes[client].parts[stripe].lock = Lock::Held;
                self.after(self.speeds.half_trip_ns, Event::Granted { client, stripe });
            }
            for holder in in_the_way {
                let part = &self.nodes[holder].parts[stripe];
                if part.lock == Lock::Held && !part.revoked {
                    self.outcome.revocations += 1;
                    self.after(self.speeds.half_trip_ns, Event::Revoked { client: holder, stripe });
                }
            }
        }
    }

    fn granted(&mut self, client: usize, stripe: usize) {
        if stripe + 1 < self.servers.len() {
            return self.request(client, stripe + 1);
        }
        self.outcome.locking_s += self.clock.now_ns() as f64 / 1e9;
        let bytes = self.nodes[client].parts.iter().map(|part| part.bytes).sum();
        self.after(transfer(bytes, self.speeds.copy), Event::Copied { client });
    }

    fn copied(&mut self, client: usize) {
        self.outcome.pio_s = self.clock.now_ns() as f64 / 1e9;
        self.outcome.calling_s += self.outcome.pio_s;
        let node = &mut self.nodes[client];
        node.has_copied = true;
        node.parts.iter_mut().for_each(|part| part.dirty = part.bytes);
        self.copying -= 1;
        // The last one ends the phase of writing: what is dirty anywhere is flushed.
        let clients = if self.copying == 0 { 0..self.nodes.len() } else { client..client + 1 };
        for client in clients {
            (0..self.servers.len()).for_each(|stripe| self.flush(client, stripe));
        }
    }

    /// Sends what may be sent, and gives the lock back when all is done.
    fn flush(&mut self, client: usize, stripe: usize) {
        let node = &self.nodes[client];
        if !node.has_copied {
            return;
        }
        let dirty: u64 = node.parts.iter().map(|part| part.dirty).sum();
        let wanted = node.parts[stripe].revoked || dirty >= DIRTY_BYTES_MIN || self.copying == 0;
        let half_trip_ns = self.speeds.half_trip_ns;
        let part = &mut self.nodes[client].parts[stripe];
        let mut sent = Vec::new();
        while wanted && part.dirty > 0 && part.under_way < CHUNKS_MAX {
            let bytes = part.dirty.min(CHUNK_BYTES);
            part.dirty -= bytes;
            part.under_way += 1;
            sent.push(bytes);
        }
        let is_done = part.dirty == 0 && part.under_way == 0;
        if part.revoked && is_done && part.lock == Lock::Held {
            part.revoked = false;
            self.tell_server(stripe, Event::Released { client, stripe });
        }
        for bytes in sent {
            self.outcome.flushes += 1;
            let travel = transfer(bytes, self.speeds.nic) + transfer(bytes, self.speeds.server_copy);
            self.after(half_trip_ns + travel, Event::Arrived { client, stripe, bytes });
        }
    }

    fn feed(&mut self, stripe: usize) {
        let server = &mut self.servers[stripe];
        if server.busy.is_some() {
            return;
        }
        let Some((client, bytes)) = server.urgent.pop_front().or_else(|| server.device.pop_front()) else {
            return;
        };
        server.busy = Some(client);
        self.outcome.destaged_bytes += bytes;
        self.after(transfer(bytes, self.speeds.device), Event::Written { stripe });
    }

    fn written(&mut self, stripe: usize) {
        let client = self.servers[stripe].busy.take().expect("the device was busy");
        let delay_ns = self.speeds.device_latency_ns + self.speeds.half_trip_ns;
        self.after(delay_ns, Event::Answered { client, stripe });
        self.feed(stripe);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::run::Manager;

    fn spec(columns: u64, rows: u64, overlap: u64, stripes: u32) -> Spec {
        let pattern = Pattern::Tiles { columns, rows, side: 2048, overlap };
        Spec { stripes, ..Spec::new(Manager::Datatype, pattern, columns * rows) }
    }

    #[test]
    fn tiles_that_do_not_touch_wait_for_nobody_and_those_that_overlap_do() {
        let free = run(&spec(2, 2, 0, 2)).unwrap();
        assert_eq!(free.revocations, 0);
        let copy_s = 2048.0 * 2048.0 * 4.0 / 2.075e9;
        assert!((free.pio_s - copy_s) / copy_s < 0.05, "{free:?}");
        let tight = run(&spec(2, 2, 10, 2)).unwrap();
        assert!(tight.revocations > 0 && tight.pio_s > 3.0 * free.pio_s, "{tight:?}");
        assert_eq!(tight.destaged_bytes, tight.bytes);
    }

    #[test]
    fn other_patterns_are_refused_by_name() {
        let wrong = Spec::new(Manager::Datatype, Pattern::Strided { block: 1, writes: 1 }, 1);
        assert!(run(&wrong).unwrap_err().contains("Strided"));
    }
}
