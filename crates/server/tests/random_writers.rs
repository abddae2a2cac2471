//! Many clients at once on one stripe, some of which vanish: what readers see is always what the lock order says.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_transport::Address;
use ccpfs_types::{Extent, LockMode, ResourceId, Sn};
use ccpfs_wire::{LockRef, Message, Status, WritePiece};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use support::{Client, config, extent, resource, serve};

const CELLS: u64 = 64;
const CELL_BYTES: u64 = 8;
const WRITERS: u64 = 6;
const OPERATIONS: u64 = 150;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn cells(&mut self) -> Extent {
        let start = self.below(CELLS - 1);
        let end = start + 1 + self.below((CELLS - start).min(12));
        extent(start * CELL_BYTES, end * CELL_BYTES)
    }
}

/// A write as the lock server has ordered it.
#[derive(Clone, Copy, Debug)]
struct Write {
    extent: Extent,
    /// Whether its writer lived to see it acknowledged.
    certain: bool,
}

/// All writes so far, by sequence number.
type History = Arc<Mutex<BTreeMap<Sn, Write>>>;

/// What a reader saw under a lock with this number.
struct Seen {
    sn: Sn,
    extent: Extent,
    cells: Vec<u64>,
}

/// Each cell written holds the sequence number of its write.
fn contents(extent: Extent, sn: Sn) -> Vec<u8> {
    let cells = usize::try_from(extent.length() / CELL_BYTES).unwrap();
    sn.0.to_le_bytes().repeat(cells)
}

fn write(client: &Client, id: ResourceId, random: &mut Random, history: &History) -> bool {
    let extent = random.cells();
    let lock = client.lock(id, LockMode::Nbw, extent);
    let vanishes = random.below(40) == 0;
    history.lock().unwrap().insert(lock.sn, Write { extent, certain: !vanishes });
    if random.below(2) == 0 {
        // Lets younger writes be granted and flushed before this one.
        client.acknowledge(id, &lock);
        client.ping_past_revocations();
    }
    let pieces = vec![WritePiece { resource: id, extent, sn: lock.sn }];
    let releases = vec![LockRef { resource: id, lock: lock.lock }];
    let urgent = random.below(2) == 0;
    let message = Message::Write { request: client.request(), urgent, pieces, releases };
    if vanishes {
        let _any_part_may_arrive = client.bulk.try_send(&message, &contents(extent, lock.sn));
        client.drop_connections();
        return false;
    }
    client.bulk.send_with(&message, &contents(extent, lock.sn));
    assert_eq!(client.flushed(), Status::Ok);
    true
}

fn read(client: &Client, id: ResourceId, random: &mut Random) -> Seen {
    let extent = random.cells();
    let lock = client.lock(id, LockMode::Pr, extent);
    let (status, data, _) = client.read(id, extent);
    assert_eq!(status, Status::Ok);
    client.release(id, lock.lock);
    let mut cells: Vec<u64> =
        data.chunks(8).map(|cell| u64::from_le_bytes(cell.try_into().unwrap())).collect();
    cells.resize(usize::try_from(extent.length() / CELL_BYTES).unwrap(), 0);
    Seen { sn: lock.sn, extent, cells }
}

fn work(address: &Address, id: ResourceId, seed: u64, history: &History) -> Vec<Seen> {
    let mut random = Random(seed);
    let mut client = Client::connect(address);
    let mut seen = Vec::new();
    for _ in 0..OPERATIONS {
        if random.below(3) == 0 {
            seen.push(read(&client, id, &mut random));
        } else if !write(&client, id, &mut random, history) {
            client = Client::connect(address);
        }
    }
    seen
}

//= protocol.md#I5 type=test
fn check(seen: &Seen, history: &BTreeMap<Sn, Write>) {
    for (at, found) in seen.cells.iter().enumerate() {
        let offset = seen.extent.start() + at as u64 * CELL_BYTES;
        let cell = extent(offset, offset + CELL_BYTES);
        let mut allowed = Vec::new();
        for (sn, write) in history.range(..seen.sn).rev() {
            if write.extent.overlaps(cell) {
                allowed.push(sn.0);
                if write.certain {
                    break;
                }
            }
        }
        if !allowed.iter().any(|sn| history[&Sn(*sn)].certain) {
            allowed.push(0);
        }
        assert!(allowed.contains(found), "cell {cell} read under {}: {found}, not of {allowed:?}", seen.sn);
    }
}

#[test]
fn readers_see_the_newest_write_before_their_lock_while_writers_vanish() {
    for round in 0..3 {
        let mut config = config();
        config.device_threads = 3;
        config.extent_entries_max = 16;
        let server = serve(config);
        let address = &server.addresses()[0];
        let (id, history) = (resource(), History::default());
        let mut all: Vec<Seen> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let history = history.clone();
                    scope.spawn(move || work(address, id, round * 100 + writer, &history))
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let last = Client::connect(address);
        all.push(read(&last, id, &mut Random(1)));
        let history = history.lock().unwrap();
        for seen in &all {
            check(seen, &history);
        }
    }
}
