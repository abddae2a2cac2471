//! Regions that are written and read atomically: who wrote what, and whether it can be so. For several test files.
//!
//! The file is a row of cells of eight bytes. A write fills the cells of its region with its own number; a read notes what it finds, and is
//! checked afterwards: there must be an order of the writes in which it saw all of each or nothing.

#![allow(dead_code, reason = "each test file uses its part")]

use ccpfs_client::{Client, ClientConfig, File, FsError, LockStyle, OpenOptions};
use ccpfs_region::{Region, Section};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Extent, Layout};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub(crate) const CELL: u64 = 8;
/// Bytes of a unit of a stripe.
const UNIT: u64 = 16 << 10;
/// Cells that are read and written; odd, so that regions lie anywhere.
pub(crate) const CELLS: u64 = 40_001;

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

/// Two servers in this process.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    pub(crate) addresses: Vec<Address>,
    policy: String,
    servers: Mutex<Vec<RunningServer>>,
}

impl Cluster {
    pub(crate) fn start(policy: &str) -> Cluster {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        Cluster::start_at(policy, |_, index| format!("loopback:pieces-{number}-{index}"))
    }

    /// With sockets that other processes can reach.
    pub(crate) fn start_for_processes(policy: &str) -> Cluster {
        Cluster::start_at(policy, |directory, index| format!("unix:{}/s{index}", directory.display()))
    }

    fn start_at(policy: &str, address: impl Fn(&Path, u32) -> String) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let addresses = (0..2).map(|index| address(directory.path(), index).parse().unwrap()).collect();
        let cluster = Cluster { directory, addresses, policy: policy.to_owned(), servers: Mutex::default() };
        let servers = vec![cluster.server(0), cluster.server(1)];
        *cluster.servers.lock().unwrap() = servers;
        cluster
    }

    fn server(&self, index: usize) -> RunningServer {
        let data = self.directory.path().join(format!("data-{index}"));
        let mut config = ServerConfig::with_defaults(self.addresses[index].clone(), &data);
        config.policy = self.policy.parse().unwrap();
        config.server_count = 2;
        config.index = u32::try_from(index).unwrap();
        ccpfs_server::start(config).unwrap()
    }

    /// Ends a server's life and begins another one on the same data.
    pub(crate) fn restart(&self, index: usize) {
        let mut servers = self.servers.lock().unwrap();
        let other = servers.remove(1 - index);
        for server in servers.drain(..) {
            server.shutdown();
            server.wait().unwrap();
        }
        servers.push(other);
        servers.insert(index, self.server(index));
    }

    pub(crate) fn namespace(&self) -> PathBuf {
        self.directory.path().join("ns")
    }

    pub(crate) fn client(&self, change: impl FnOnce(&mut ClientConfig)) -> Client {
        client_of(&self.namespace(), self.addresses.clone(), change)
    }

    pub(crate) fn open(&self, client: &Client, name: &str, stripes: u32) -> File {
        open_in(&self.namespace(), client, name, stripes)
    }

    pub(crate) fn stop(self) {
        for server in self.servers.into_inner().unwrap() {
            server.shutdown();
            server.wait().unwrap();
        }
    }
}

/// A client with a small cache.
pub(crate) fn client_of(
    namespace: &Path,
    addresses: Vec<Address>,
    change: impl FnOnce(&mut ClientConfig),
) -> Client {
    let mut config = ClientConfig::with_defaults(namespace, addresses);
    config.cache_bytes = 32 << 20;
    config.dirty_bytes_max = 16 << 20;
    config.dirty_bytes_min = 4 << 20;
    change(&mut config);
    Client::start(config).unwrap()
}

/// The file, which is made if it is not there.
pub(crate) fn open_in(namespace: &Path, client: &Client, name: &str, stripes: u32) -> File {
    try_open_in(namespace, client, name, stripes).unwrap()
}

/// As [`open_in`]; fails if a server is not there.
pub(crate) fn try_open_in(
    namespace: &Path,
    client: &Client,
    name: &str,
    stripes: u32,
) -> Result<File, FsError> {
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        layout: Layout::new(stripes, UNIT),
        ..OpenOptions::default()
    };
    client.open(&namespace.join(name), &options)
}

/// Numbers that look random.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A region of whole cells, which others will overlap in parts.
    pub(crate) fn region(&mut self) -> Region {
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
pub(crate) fn cells(region: &Region) -> impl Iterator<Item = u64> + '_ {
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

/// Numbers from here on are of writers that are killed: nothing is known of what they wrote.
pub(crate) const KILLED: u64 = 1 << 40;

/// What everybody did: a write's number is its own.
#[derive(Default)]
pub(crate) struct History {
    clock: AtomicU64,
    writes: Mutex<BTreeMap<u64, Write>>,
    reads: Mutex<Vec<Read>>,
    /// Writes that failed, or that a server may have lost since: any part of them may be there.
    torn: Mutex<BTreeSet<u64>>,
}

impl History {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// What fills a region with a number.
    pub(crate) fn buffer(number: u64, region: &Region) -> Vec<u8> {
        number.to_le_bytes().repeat(usize::try_from(region.length_bytes() / CELL).unwrap())
    }

    pub(crate) fn write(&self, file: &File, number: u64, region: &Region, style: LockStyle) {
        assert!(self.try_write(file, number, region, style), "write {number} failed");
    }

    /// Whether the write succeeded. If not, any part of it may be there.
    pub(crate) fn try_write(&self, file: &File, number: u64, region: &Region, style: LockStyle) -> bool {
        let buffer = History::buffer(number, region);
        let began = self.now();
        let written = file.write_region_with(region, &buffer, style);
        let write = Write { cells: cells(region).collect(), began, ended: self.now() };
        self.writes.lock().unwrap().insert(number, write);
        match written {
            Ok(length) => assert_eq!(length, buffer.len()),
            Err(_) => self.tear(number),
        }
        written.is_ok()
    }

    /// Any part of a write may be gone.
    pub(crate) fn tear(&self, number: u64) {
        self.torn.lock().unwrap().insert(number);
    }

    pub(crate) fn read(&self, file: &File, region: Region, style: LockStyle) {
        assert!(self.try_read(file, region, style, || true), "a read failed");
    }

    /// Whether the read succeeded, and `counts` afterwards.
    pub(crate) fn try_read(
        &self,
        file: &File,
        region: Region,
        style: LockStyle,
        counts: impl FnOnce() -> bool,
    ) -> bool {
        let mut buffer = vec![0; usize::try_from(region.length_bytes()).unwrap()];
        let began = self.now();
        let Ok(read) = file.read_region_with(&region, &mut buffer, style) else { return false };
        if !counts() {
            return false;
        }
        assert_eq!(read, buffer.len());
        let found = buffer.chunks(8).map(|cell| u64::from_le_bytes(cell.try_into().unwrap())).collect();
        self.reads.lock().unwrap().push(Read { region, found, began });
        true
    }

    /// How many writes may be torn, and how many reads succeeded.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.torn.lock().unwrap().len(), self.reads.lock().unwrap().len())
    }

    pub(crate) fn check(&self) {
        self.check_cells(|_| true);
    }

    /// As [`History::check`], where writes may be torn: a cell in two units may have the one half of a torn write.
    pub(crate) fn check_after_faults(&self) {
        self.check_cells(|cell| (3 + cell * CELL) / UNIT == (3 + cell * CELL + CELL - 1) / UNIT);
    }

    fn check_cells(&self, is_looked_at: impl Fn(u64) -> bool) {
        let (writes, torn) = (self.writes.lock().unwrap(), self.torn.lock().unwrap());
        let is_known = |number: &u64| *number < KILLED && !torn.contains(number);
        for read in self.reads.lock().unwrap().iter() {
            let found: BTreeMap<u64, u64> = cells(&read.region)
                .zip(read.found.iter().copied())
                .filter(|(cell, n)| is_known(n) && is_looked_at(*cell))
                .collect();
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
                let stale = writes.iter().find(|(of, write)| *of != number && is_known(of) && newer(write));
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

/// All cells, as a region that is no single extent.
pub(crate) fn whole_cells() -> Region {
    let half = CELLS / 2;
    let extents = [(0, half), (half + 1, CELLS - half - 1)];
    let extent = |(cell, count): (u64, u64)| Extent::with_length(3 + cell * CELL, count * CELL).unwrap();
    Region::from_extents(extents.map(extent).to_vec()).unwrap()
}

/// Fills all cells with 0, so that they can be read.
pub(crate) fn fill(file: &File) {
    let whole = Region::from(Extent::with_length(0, 3 + CELLS * CELL).unwrap());
    file.write_region(&whole, &vec![0; usize::try_from(whole.length_bytes()).unwrap()]).unwrap();
}
