//! Clients that share a file by turns ask for a few locks, whatever their records are and however long they go on.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod small_cluster;

use ccpfs_client::{Client, File};
use small_cluster::{Cluster, read};

const CLIENTS: u64 = 4;
/// Records of each client.
const RECORDS: u64 = 200;
/// Of these, so many until everybody has seen what the others do, on all stripes.
const FIRST: u64 = 80;
/// Lock requests of one client that are few: on four stripes.
const FEW: u64 = 20;

struct World {
    cluster: Cluster,
    clients: Vec<Client>,
    files: Vec<File>,
    length: usize,
    place: fn(u64) -> u64,
}

impl World {
    /// Clients that write records of `length` bytes, the next in the place that `place` says.
    fn new(stripes: u32, length: usize, place: fn(u64) -> u64) -> World {
        let cluster = Cluster::start(2);
        let client = |_| {
            cluster.client_with(|config| {
                config.desired_sections = true;
                // However long this takes, nobody gives back a lock unasked.
                config.lock_age_max_s = 100_000;
            })
        };
        let clients: Vec<Client> = (0..CLIENTS).map(client).collect();
        let files = clients.iter().map(|client| cluster.open(client, "shared", stripes)).collect();
        World { cluster, clients, files, length, place }
    }

    fn offset(&self, rank: u64, record: u64) -> u64 {
        ((self.place)(record) * CLIENTS + rank) * self.length as u64
    }

    fn contents(&self, rank: u64, record: u64) -> Vec<u8> {
        vec![u8::try_from((record * 7 + rank * 61) % 251).unwrap() + 1; self.length]
    }

    fn write(&self, records: std::ops::Range<u64>) {
        for record in records {
            for (rank, file) in (0..).zip(&self.files) {
                file.write_at(&self.contents(rank, record), self.offset(rank, record)).unwrap();
            }
        }
    }

    /// Everybody reads what the next one has written.
    fn read(&self, records: std::ops::Range<u64>) {
        for record in records {
            for (rank, file) in (0..).zip(&self.files) {
                let writer = (rank + 1) % CLIENTS;
                let found = read(file, self.offset(writer, record), self.length);
                assert!(found == self.contents(writer, record), "record {record} of {writer}");
            }
        }
    }

    fn requests(&self) -> Vec<u64> {
        self.clients.iter().map(|client| client.statistics().lock_requests).collect()
    }

    fn end(mut self) {
        for file in self.files.drain(..) {
            file.close().unwrap();
        }
        for client in self.clients.drain(..) {
            client.shutdown().unwrap();
        }
        self.cluster.stop_servers();
    }
}

/// All write; after the first records nobody asks for a lock again.
fn write_all(stripes: u32, length: usize, place: fn(u64) -> u64) -> World {
    let world = World::new(stripes, length, place);
    world.write(0..FIRST);
    let first = world.requests();
    assert!(first.iter().all(|count| *count < FEW), "{first:?} on {stripes}, {length}");
    world.write(FIRST..RECORDS);
    assert_eq!(world.requests(), first, "{length} bytes on {stripes} stripes");
    world
}

#[test]
fn records_that_have_nothing_to_do_with_the_stripes_need_one_lock_for_each_of_them() {
    for stripes in [1, 4] {
        for length in [4096, 12_345, 47_008] {
            let world = write_all(stripes, length, |record| record);
            let before = world.requests();
            world.read(0..RECORDS);
            let read: Vec<u64> =
                world.requests().iter().zip(&before).map(|(all, before)| all - before).collect();
            assert!(read.iter().all(|count| *count < FEW), "{read:?} for reads of {length} on {stripes}");
            world.end();
        }
    }
}

#[test]
fn going_backwards_needs_no_more_locks_than_going_forwards() {
    let world = write_all(4, 12_345, |record| RECORDS - 1 - record);
    world.read(0..RECORDS);
    world.end();
}

#[test]
fn rows_of_records_need_no_more_locks_than_records() {
    // Eight records, then as much is left out as makes up for three.
    let world = write_all(4, 4_099, |record| record / 8 * 11 + record % 8);
    world.read(0..RECORDS);
    world.end();
}
