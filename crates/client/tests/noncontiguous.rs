//! Reads and writes of regions: atomic as a whole, whatever the kind and protocol of their locks, beside others that overlap.
//!
//! The file is a row of cells of eight bytes. A write fills the cells of its region with its own number; a read notes what it finds, and is
//! checked afterwards: there must be an order of the writes in which it saw all of each or nothing.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_client::{Client, ClientConfig, File, LockKind, LockProtocol, LockStyle, OpenOptions};
use ccpfs_region::{Region, Section};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Extent, Layout};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

const CELL: u64 = 8;
/// Cells that are read and written; odd, so that regions lie anywhere.
const CELLS: u64 = 40_001;

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

struct Cluster {
    directory: tempfile::TempDir,
    addresses: Vec<Address>,
    servers: Vec<RunningServer>,
}

impl Cluster {
    fn start(policy: &str) -> Cluster {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let addresses: Vec<Address> =
            (0..2).map(|i| format!("loopback:pieces-{number}-{i}").parse().unwrap()).collect();
        let server = |index: usize| {
            let data = directory.path().join(format!("data-{index}"));
            let mut config = ServerConfig::with_defaults(addresses[index].clone(), &data);
            config.policy = policy.parse().unwrap();
            config.server_count = 2;
            config.index = u32::try_from(index).unwrap();
            ccpfs_server::start(config).unwrap()
        };
        let servers = vec![server(0), server(1)];
        Cluster { directory, addresses, servers }
    }

    fn client(&self, change: impl FnOnce(&mut ClientConfig)) -> Client {
        let namespace = self.directory.path().join("ns");
        let mut config = ClientConfig::with_defaults(&namespace, self.addresses.clone());
        config.cache_bytes = 32 << 20;
        config.dirty_bytes_max = 16 << 20;
        config.dirty_bytes_min = 4 << 20;
        change(&mut config);
        Client::start(config).unwrap()
    }

    fn open(&self, client: &Client, name: &str, stripes: u32) -> File {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            layout: Layout::new(stripes, 16 << 10),
            ..OpenOptions::default()
        };
        client.open(&self.directory.path().join("ns").join(name), &options).unwrap()
    }

    fn stop(self) {
        for server in self.servers {
            server.shutdown();
            server.wait().unwrap();
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A region of whole cells, which others will overlap in parts.
    fn region(&mut self) -> Region {
        let section = |offset: u64, length: u64, levels: &[(u64, u64)]| {
            let levels: Vec<(u64, u64)> =
                levels.iter().map(|(stride, count)| (stride * CELL, *count)).collect();
            Region::from(Section::new(3 + offset * CELL, length * CELL, &levels).unwrap())
        };
        let start = self.below(1000);
        match self.below(5) {
            0 => section(start, 1 + self.below(3), &[(7 + self.below(500), 2 + self.below(30))]),
            1 => section(
                start,
                2,
                &[(5, 3), (40 + self.below(40), 2 + self.below(4)), (4000, 2 + self.below(6))],
            ),
            2 => section(start, 1 + self.below(2000), &[(2500 + self.below(3000), 2 + self.below(4))]),
            3 => section(start, 1 + self.below(20_000), &[]),
            _ => {
                let mut at = start;
                let mut extents = Vec::new();
                for _ in 0..2 + self.below(40) {
                    at += 1 + self.below(700);
                    let length = 1 + self.below(60);
                    extents.push(Extent::with_length(3 + at * CELL, length * CELL).unwrap());
                    at += length;
                }
                Region::from_extents(extents).unwrap()
            }
        }
    }
}

/// The cells of a region, in order.
fn cells(region: &Region) -> impl Iterator<Item = u64> + '_ {
    region.pieces().flat_map(|piece| (piece.start() - 3) / CELL..(piece.end() - 3) / CELL)
}

struct Write {
    cells: BTreeSet<u64>,
    began: u64,
    ended: u64,
}

struct Read {
    region: Region,
    found: Vec<u64>,
    began: u64,
}

/// What everybody did: a write's number is its index and one.
#[derive(Default)]
struct History {
    clock: AtomicU64,
    writes: Mutex<BTreeMap<u64, Write>>,
    reads: Mutex<Vec<Read>>,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn write(&self, file: &File, number: u64, region: Region, style: LockStyle) {
        let count = usize::try_from(region.length_bytes() / CELL).unwrap();
        let began = self.now();
        let buffer = number.to_le_bytes().repeat(count);
        assert_eq!(file.write_region_with(&region, &buffer, style).unwrap(), buffer.len());
        let write = Write { cells: cells(&region).collect(), began, ended: self.now() };
        self.writes.lock().unwrap().insert(number, write);
    }

    fn read(&self, file: &File, region: Region, style: LockStyle) {
        let mut buffer = vec![0; usize::try_from(region.length_bytes()).unwrap()];
        let began = self.now();
        let read = file.read_region_with(&region, &mut buffer, style).unwrap();
        assert_eq!(read, buffer.len());
        let found = buffer.chunks(8).map(|cell| u64::from_le_bytes(cell.try_into().unwrap())).collect();
        self.reads.lock().unwrap().push(Read { region, found, began });
    }

    fn check(&self) {
        let writes = self.writes.lock().unwrap();
        for read in self.reads.lock().unwrap().iter() {
            let found: BTreeMap<u64, u64> = cells(&read.region).zip(read.found.iter().copied()).collect();
            let seen: BTreeSet<u64> = found.values().copied().filter(|number| *number > 0).collect();
            // Who must come after whom.
            let mut after: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
            for number in &seen {
                for cell in &writes[number].cells {
                    let Some(other) = found.get(cell).filter(|other| *other != number) else { continue };
                    assert_ne!(*other, 0, "write {number} is missing in cell {cell}");
                    assert!(writes[other].cells.contains(cell), "cell {cell} has a foreign number");
                    after.entry(*number).or_default().insert(*other);
                }
            }
            assert!(!has_cycle(&after), "no order of the writes explains {after:?}");
            for (cell, number) in found.iter().step_by(97) {
                let newer = |write: &Write| {
                    let before = if *number == 0 { 0 } else { writes[number].ended };
                    write.cells.contains(cell) && write.began > before && write.ended < read.began
                };
                let stale = writes.iter().find(|(of, write)| *of != number && newer(write));
                assert!(
                    stale.is_none(),
                    "cell {cell} has {number}, which {:?} had overwritten",
                    stale.map(|(n, _)| n)
                );
            }
        }
    }
}

/// Whether somebody comes after itself.
fn has_cycle(after: &BTreeMap<u64, BTreeSet<u64>>) -> bool {
    let mut left = after.clone();
    loop {
        let last = left.iter().find(|(_, next)| next.iter().all(|next| !left.contains_key(next)));
        match last.map(|(number, _)| *number) {
            Some(number) => left.remove(&number),
            None => return !left.is_empty(),
        };
    }
}

/// Lets writers and readers, each a client of its own, loose on one file.
fn run(policy: &str, stripes: u32, kind: LockKind, protocol: LockProtocol, rounds: u64) {
    let cluster = Cluster::start(policy);
    let style = LockStyle { kind, protocol };
    let history = Arc::new(History::default());
    let first = cluster.client(|_| {});
    let file = cluster.open(&first, "f", stripes);
    let whole = Region::from(Extent::with_length(0, 3 + CELLS * CELL).unwrap());
    file.write_region(&whole, &vec![0; usize::try_from(whole.length_bytes()).unwrap()]).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..5_u64 {
            let (cluster, history) = (&cluster, Arc::clone(&history));
            scope.spawn(move || {
                let client = cluster.client(|_| {});
                let file = cluster.open(&client, "f", stripes);
                let mut random = Random(worker * 1000 + u64::from(stripes));
                for round in 0..rounds {
                    let region = random.region();
                    if worker < 3 {
                        history.write(&file, 1 + worker * rounds + round, region, style);
                    } else {
                        history.read(&file, region, style);
                    }
                }
                file.close().unwrap();
                client.shutdown().unwrap();
            });
        }
    });
    history.read(&file, whole_cells(), style);
    history.check();
    file.close().unwrap();
    first.shutdown().unwrap();
    cluster.stop();
}

/// All cells, as a region that is no single extent.
fn whole_cells() -> Region {
    let half = CELLS / 2;
    let extents = [(0, half), (half + 1, CELLS - half - 1)];
    let extent = |(cell, count): (u64, u64)| Extent::with_length(3 + cell * CELL, count * CELL).unwrap();
    Region::from_extents(extents.map(extent).to_vec()).unwrap()
}

//= protocol.md#I5 type=test
//= semantics.md#S1 type=test
#[test]
fn overlapping_regions_are_written_and_read_whole_or_not_at_all_by_every_protocol() {
    for (_, protocol) in LockProtocol::PROTOCOLS {
        for stripes in [1, 3] {
            run("seqdlm", stripes, LockKind::Datatype, *protocol, 60);
        }
    }
}

//= protocol.md#I5 type=test
#[test]
fn overlapping_lists_of_64_pieces_are_written_and_read_whole_or_not_at_all() {
    for (_, protocol) in LockProtocol::PROTOCOLS {
        for stripes in [1, 3] {
            run("seqdlm", stripes, LockKind::List, *protocol, 40);
        }
    }
}

//= protocol.md#I5 type=test
#[test]
fn regions_with_a_lock_for_each_piece_are_written_and_read_whole_or_not_at_all() {
    for (_, protocol) in LockProtocol::PROTOCOLS {
        for stripes in [1, 3] {
            run("seqdlm", stripes, LockKind::Posix, *protocol, 25);
        }
    }
}

//= protocol.md#I5 type=test
#[test]
fn regions_are_atomic_under_the_baselines_too() {
    for policy in ["basic", "lustre", "seqdlm-no-early-grant", "seqdlm-no-upgrading-no-downgrading"] {
        for (_, kind) in LockKind::KINDS {
            run(policy, 2, *kind, LockProtocol::AltTry, 15);
        }
    }
}

#[test]
fn a_region_is_read_back_by_others_byte_by_byte_and_what_lies_between_stays() {
    let cluster = Cluster::start("seqdlm");
    let (writer, reader) = (cluster.client(|_| {}), cluster.client(|_| {}));
    for stripes in [1, 2, 3] {
        let name = format!("bytes-{stripes}");
        let (ours, theirs) = (cluster.open(&writer, &name, stripes), cluster.open(&reader, &name, stripes));
        let mut expected = vec![b'.'; 200_000];
        theirs.write_at(&expected, 0).unwrap();
        let mut random = Random(7);
        for round in 0..40_u8 {
            let region = random.region().in_extent(Extent::new(0, 200_000).unwrap()).unwrap();
            let buffer: Vec<u8> = (0..region.length_bytes())
                .map(|at| round.wrapping_add(u8::try_from(at % 251).unwrap()))
                .collect();
            assert_eq!(ours.write_region(&region, &buffer).unwrap(), buffer.len());
            let mut at = 0;
            for piece in region.pieces() {
                let (start, end) =
                    (usize::try_from(piece.start()).unwrap(), usize::try_from(piece.end()).unwrap());
                expected[start..end].copy_from_slice(&buffer[at..at + end - start]);
                at += end - start;
            }
            let mut again = vec![0; buffer.len()];
            assert_eq!(theirs.read_region(&region, &mut again).unwrap(), again.len());
            assert!(again == buffer, "round {round} of {stripes} stripes: {region}");
        }
        let mut all = vec![0; expected.len()];
        assert_eq!(theirs.read_at(&mut all, 0).unwrap(), all.len());
        assert!(all == expected, "{stripes} stripes");
    }
    cluster.stop();
}

#[test]
fn a_region_ends_where_the_file_does_and_holes_read_as_zeros() {
    let cluster = Cluster::start("seqdlm");
    let (writer, reader) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let (ours, theirs) = (cluster.open(&writer, "short", 3), cluster.open(&reader, "short", 3));
    let every_fourth = |count: u64| Region::from(Section::new(0, 1000, &[(4000, count)]).unwrap());
    assert_eq!(ours.write_region(&every_fourth(10), &[1; 10_000]).unwrap(), 10_000);
    assert_eq!(theirs.size().unwrap(), 37_000);
    let mut buffer = vec![9; 20_000];
    assert_eq!(theirs.read_region(&every_fourth(20), &mut buffer).unwrap(), 10_000);
    assert!(buffer[..10_000].iter().all(|byte| *byte == 1) && buffer[10_000..].iter().all(|byte| *byte == 9));
    // What lies between was never written; the last piece is cut by the end of the file.
    let between = Region::from(Section::new(500, 1000, &[(4000, 10)]).unwrap());
    let mut buffer = vec![9; 10_000];
    assert_eq!(theirs.read_region(&between, &mut buffer).unwrap(), 9500);
    for (at, byte) in buffer.iter().enumerate() {
        let expected = if at >= 9500 { 9 } else { u8::from(at % 1000 < 500) };
        assert_eq!(*byte, expected, "byte {at}");
    }
    cluster.stop();
}

#[test]
fn a_large_region_goes_through_a_small_cache() {
    let cluster = Cluster::start("seqdlm");
    let small = |config: &mut ClientConfig| {
        (config.cache_bytes, config.dirty_bytes_max, config.dirty_bytes_min) = (1 << 20, 512 << 10, 64 << 10);
        config.read_ahead_bytes = 0;
    };
    let client = cluster.client(small);
    let file = cluster.open(&client, "large", 2);
    let region = Region::from(Section::new(77, 9000, &[(20_000, 400)]).unwrap());
    let buffer: Vec<u8> = (0..region.length_bytes()).map(|at| u8::try_from(at % 249).unwrap()).collect();
    assert_eq!(file.write_region(&region, &buffer).unwrap(), buffer.len());
    let mut again = vec![0; buffer.len()];
    assert_eq!(cluster.open(&client, "large", 2).read_region(&region, &mut again).unwrap(), again.len());
    assert!(again == buffer);
    drop(file);
    client.shutdown().unwrap();
    cluster.stop();
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let cluster = Cluster::start("seqdlm");
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "wrong", 1);
    let region = Region::from(Section::new(0, 10, &[(20, 5)]).unwrap());
    assert_eq!(file.write_region(&region, &[0; 49]).unwrap_err().to_errno(), libc::EINVAL);
    assert_eq!(file.read_region(&region, &mut [0; 51]).unwrap_err().to_errno(), libc::EINVAL);
    let far = Region::from(Section::new(1 << 62, 10, &[(1 << 62, 2)]).unwrap());
    assert_eq!(file.write_region(&far, &[0; 20]).unwrap_err().to_errno(), libc::EFBIG);
    let whole = Region::from(Section::new(0, 10, &[(20, ccpfs_region::UNBOUNDED)]).unwrap());
    assert_eq!(file.read_region(&whole, &mut [0; 20]).unwrap_err().to_errno(), libc::EFBIG);
    drop(file);
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let file = client.open(&cluster.directory.path().join("ns/wrong"), &options).unwrap();
    assert_eq!(file.write_region(&region, &[0; 50]).unwrap_err().to_errno(), libc::EBADF);
    cluster.stop();
}

#[test]
fn a_strided_region_takes_one_request_for_each_stripe() {
    let cluster = Cluster::start("seqdlm");
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "pieces", 2);
    let region = Region::from(Section::new(5, 1, &[(64, 131_072)]).unwrap());
    let before = client.statistics();
    file.write_region(&region, &vec![1; 131_072]).unwrap();
    file.write_region(&region, &vec![2; 131_072]).unwrap();
    assert_eq!(client.statistics().since(&before).lock_requests, 2);
    drop(file);
    client.shutdown().unwrap();
    cluster.stop();
}

#[test]
fn locks_that_another_client_keeps_on_all_stripes_are_wanted_back_at_once() {
    let cluster = Cluster::start("seqdlm");
    let (first, second) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let stripes = 8;
    let (ours, theirs) = (cluster.open(&first, "kept", stripes), cluster.open(&second, "kept", stripes));
    let region = Region::from(Section::new(5, 1, &[(64, 4096)]).unwrap());
    let style = LockStyle { kind: LockKind::Datatype, protocol: LockProtocol::AltTry };
    for round in 0..20 {
        ours.write_region_with(&region, &[1; 4096], style).unwrap();
        let before = second.statistics();
        theirs.write_region_with(&region, &[2; 4096], style).unwrap();
        let asked = second.statistics().since(&before).lock_requests;
        // Eight that are tried, and eight that wait: one for the first stripe, the others ahead of their turn.
        assert!(asked <= 16, "round {round}: {asked} requests");
        let mut found = [0; 4096];
        ours.read_region_with(&region, &mut found, style).unwrap();
        assert!(found.iter().all(|byte| *byte == 2), "round {round}");
    }
    cluster.stop();
}
