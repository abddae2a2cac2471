//! Many clients and threads at once on one file, with every byte saying who wrote it; checked afterwards against time.
//!
//! The file is a row of cells of eight bytes, none of them aligned to a page. A write fills some cells in a row with its own
//! number. Everybody notes when a call began and ended, by one counter. At the end every read is checked:
//! it is a snapshot (a write it saw anywhere it saw wherever nothing newer covers it), and it is never older than what had
//! been written, or read by somebody else, before it began.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Layout, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::io::IoSlice;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

/// Where the first cell begins.
const SHIFT: u64 = 3;
const CELL: u64 = 8;
/// Cells that are only ever overwritten; behind them lie those that truncates and appends change.
const FIRM_CELLS: u64 = 24_000;
const WRITE_CELLS_MAX: u64 = 9_000;
/// Nothing here takes as long, so a test that does hangs.
const HANGS: Duration = Duration::from_secs(120);

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

struct Cluster {
    directory: tempfile::TempDir,
    addresses: Vec<Address>,
    policy: Policy,
    servers: Mutex<Vec<Option<RunningServer>>>,
}

impl Cluster {
    fn start(unix: bool, policy: &str) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let address = |index: usize| match unix {
            true => format!("unix:{}", directory.path().join(format!("socket-{index}")).display()),
            false => format!("loopback:stress-{number}-{index}"),
        };
        let addresses = (0..2).map(|index| address(index).parse().unwrap()).collect();
        let policy = policy.parse().unwrap();
        let cluster = Cluster { directory, addresses, policy, servers: Mutex::new(vec![None, None]) };
        (0..2).for_each(|index| cluster.start_server(index));
        cluster
    }

    fn start_server(&self, index: usize) {
        let data = self.directory.path().join(format!("data-{index}"));
        let mut config = ServerConfig::with_defaults(self.addresses[index].clone(), &data);
        config.policy = self.policy;
        config.server_count = 2;
        config.index = u32::try_from(index).unwrap();
        self.servers.lock().unwrap()[index] = Some(ccpfs_server::start(config).unwrap());
    }

    fn restart_server(&self, index: usize) {
        let server = self.servers.lock().unwrap()[index].take().unwrap();
        server.shutdown();
        server.wait().unwrap();
        self.start_server(index);
    }

    fn client(&self, cache_bytes: u64) -> Client {
        let mut config =
            ClientConfig::with_defaults(&self.directory.path().join("ns"), self.addresses.clone());
        config.cache_bytes = cache_bytes;
        config.dirty_bytes_max = cache_bytes / 2;
        config.dirty_bytes_min = cache_bytes / 8;
        config.read_ahead_bytes = 64 << 10;
        Client::start(config).unwrap()
    }

    fn open(&self, client: &Client, stripes: u32) -> File {
        open(client, &self.directory.path().join("ns").join("file"), stripes)
    }
}

fn open(client: &Client, path: &Path, stripes: u32) -> File {
    let options = OpenOptions {
        read: true,
        write: true,
        create: true,
        layout: Layout::new(stripes, 64 << 10),
        ..OpenOptions::default()
    };
    client.open(path, &options).unwrap()
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

#[derive(Clone, Debug)]
struct Write {
    cells: Range<u64>,
    began: u64,
    /// `u64::MAX` if it failed: it may take effect at any time, or never.
    ended: u64,
    /// When an fsync that began after it had ended.
    synced: u64,
}

#[derive(Debug)]
struct Read {
    first: u64,
    found: Vec<u64>,
    began: u64,
    ended: u64,
}

#[derive(Default)]
struct Log {
    clock: AtomicU64,
    writes: Mutex<BTreeMap<u64, Write>>,
    reads: Mutex<Vec<Read>>,
    /// Numbers of appends and of writes behind the firm cells.
    loose: Mutex<BTreeSet<u64>>,
}

impl Log {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether every read was a snapshot, and newer than whatever was known when it began. With `lossy` only what was synced
    /// counts as known.
    fn check(&self, lossy: bool, context: &str) {
        let (writes, reads) = (self.writes.lock().unwrap(), self.reads.lock().unwrap());
        let mut known: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
        for write in writes.values() {
            let since = if lossy { write.synced } else { write.ended };
            for cell in write.cells.clone().filter(|_| since < u64::MAX) {
                known.entry(cell).or_default().push((since, write.began));
            }
        }
        for read in reads.iter().filter(|_| !lossy) {
            for (cell, number) in (read.first..).zip(&read.found).filter(|(_, number)| **number != 0) {
                let began = writes.get(number).map_or(0, |write| write.began);
                known.entry(cell).or_default().push((read.ended, began));
            }
        }
        for events in known.values_mut() {
            events.sort_unstable();
            let mut newest = 0;
            for (_, began) in events {
                newest = newest.max(*began);
                *began = newest;
            }
        }
        for read in reads.iter() {
            self.check_age(read, &writes, &known, context);
            if !lossy {
                check_snapshot(read, &writes, context);
            }
        }
    }

    fn check_age(
        &self,
        read: &Read,
        writes: &BTreeMap<u64, Write>,
        known: &BTreeMap<u64, Vec<(u64, u64)>>,
        context: &str,
    ) {
        for (cell, number) in (read.first..).zip(&read.found) {
            let ended = match writes.get(number) {
                Some(write) => {
                    assert!(write.cells.contains(&cell), "{context}: {number:x} never wrote cell {cell}");
                    assert!(write.began < read.ended, "{context}: read before it was written");
                    write.ended
                }
                None => {
                    assert_eq!(*number, 0, "{context}: cell {cell} holds what nobody wrote");
                    0
                }
            };
            let Some(events) = known.get(&cell) else { continue };
            let before = events.partition_point(|(time, _)| *time < read.began);
            if before > 0 {
                let floor = events[before - 1].1;
                assert!(
                    ended >= floor,
                    "{context}: cell {cell} holds {number:x}, which ended at {ended}, but at {floor} a later one began that was \
                     known before the read began at {}",
                    read.began
                );
            }
        }
    }
}

/// Whatever is seen of a write is seen of all of it, but for what is newer.
fn check_snapshot(read: &Read, writes: &BTreeMap<u64, Write>, context: &str) {
    // For each pair that is seen: where one could be seen, is the other one?
    let mut beats: BTreeSet<(u64, u64)> = BTreeSet::new();
    let seen: BTreeSet<u64> = read.found.iter().copied().filter(|number| *number != 0).collect();
    for (cell, number) in (read.first..).zip(&read.found) {
        for other in seen.iter().filter(|other| *other != number && writes[*other].cells.contains(&cell)) {
            assert_ne!(*number, 0, "{context}: cell {cell} lacks {other:x}, which is seen elsewhere");
            beats.insert((*number, *other));
        }
    }
    for (newer, older) in &beats {
        assert!(!beats.contains(&(*older, *newer)), "{context}: a torn read of {newer:x} and {older:x}");
    }
}

/// One thread's calls on its client's file.
struct Worker {
    log: Arc<Log>,
    file: File,
    random: Random,
    next: u64,
    /// Whether calls may fail, and what was written may be lost, because servers restart.
    lossy: bool,
    /// Numbers of the writes that no fsync has covered.
    unsynced: Vec<u64>,
    /// Errors that were reported to this worker's handle.
    errors: u64,
}

impl Worker {
    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            match self.random.below(20) {
                0..8 => self.write(),
                8..15 => self.read(),
                15 | 16 => self.append(),
                17 => self.truncate(),
                18 => self.sync(),
                _ => self.size(),
            }
        }
    }

    fn expect<T>(&mut self, result: Result<T, ccpfs_client::FsError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) if self.lossy => {
                tracing::debug!(%error, "a call failed while a server was away");
                self.errors += 1;
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn write(&mut self) {
        let number = self.number();
        let first = self.random.below(FIRM_CELLS - 1);
        let most = if self.random.below(3) == 0 { WRITE_CELLS_MAX } else { 300 };
        let cells = first..(first + 1 + self.random.below(most)).min(FIRM_CELLS);
        let data = number.to_le_bytes().repeat(usize::try_from(cells.end - cells.start).unwrap());
        let write = Write { cells, began: self.log.now(), ended: u64::MAX, synced: u64::MAX };
        self.log.writes.lock().unwrap().insert(number, write);
        let written = self.file.write_at(&data, SHIFT + first * CELL);
        let now = self.log.now();
        if let Some(written) = self.expect(written) {
            assert!(written == data.len() || self.lossy);
            if written == data.len() {
                self.log.writes.lock().unwrap().get_mut(&number).unwrap().ended = now;
                self.unsynced.push(number);
            }
        }
    }

    fn read(&mut self) {
        let first = self.random.below(FIRM_CELLS - 1);
        let count = (1 + self.random.below(WRITE_CELLS_MAX)).min(FIRM_CELLS - first);
        let mut bytes = vec![0xee; usize::try_from(count * CELL).unwrap()];
        let began = self.log.now();
        let read = self.file.read_at(&mut bytes, SHIFT + first * CELL);
        let ended = self.log.now();
        if let Some(read) = self.expect(read) {
            // What is behind the end of the file has never been written.
            bytes[read..].fill(0);
            let found =
                bytes.chunks_exact(8).map(|cell| u64::from_le_bytes(cell.try_into().unwrap())).collect();
            self.log.reads.lock().unwrap().push(Read { first, found, began, ended });
        }
    }

    fn append(&mut self) {
        let number = self.number();
        self.log.loose.lock().unwrap().insert(number);
        let count = usize::try_from(1 + self.random.below(2000)).unwrap();
        let appended = self.file.append(&[IoSlice::new(&number.to_le_bytes().repeat(count))]);
        if let Some(end) = self.expect(appended) {
            assert!(end >= count as u64 * CELL);
        }
    }

    /// Cuts or lengthens, but never into the firm cells.
    fn truncate(&mut self) {
        let cells = FIRM_CELLS + self.random.below(4000);
        let cut = self.file.truncate(SHIFT + cells * CELL);
        self.expect(cut);
    }

    fn sync(&mut self) {
        let covered = std::mem::take(&mut self.unsynced);
        let synced = self.file.sync();
        let now = self.log.now();
        // An error of what was written before says that some of it is lost, and not which.
        if self.expect(synced).is_some() && self.errors == 0 {
            let mut writes = self.log.writes.lock().unwrap();
            for number in covered {
                writes.get_mut(&number).unwrap().synced = now;
            }
        }
        self.errors = 0;
    }

    fn size(&mut self) {
        let ends = |write: &Write| if write.ended < u64::MAX { SHIFT + write.cells.end * CELL } else { 0 };
        let least = self.log.writes.lock().unwrap().values().map(ends).max().unwrap_or(0);
        let size = self.file.size();
        if let Some(size) = self.expect(size) {
            assert!(size >= least || self.lossy, "{size} bytes, but {least} have been written");
        }
    }
}

/// What one run is like.
#[derive(Clone, Copy)]
struct Scene {
    policy: &'static str,
    unix: bool,
    stripes: u32,
    cache_bytes: u64,
    restarts: usize,
    steps: u64,
    seed: u64,
}

impl Scene {
    fn play(self) {
        let (done, watch) = mpsc::channel();
        let player = std::thread::spawn(move || {
            self.act();
            done.send(()).unwrap();
        });
        if watch.recv_timeout(HANGS) == Err(mpsc::RecvTimeoutError::Timeout) {
            panic!("{} hangs", self.name());
        }
        player.join().unwrap();
    }

    fn name(&self) -> String {
        let Scene { policy, unix, stripes, cache_bytes, restarts, .. } = self;
        format!("{policy}, unix {unix}, {stripes} stripes, cache {cache_bytes}, {restarts} restarts")
    }

    fn act(mut self) {
        self.seed += seed_offset();
        let cluster = Cluster::start(self.unix, self.policy);
        let clients: Vec<Client> = (0..3).map(|_| cluster.client(self.cache_bytes)).collect();
        // Appends go behind the firm cells.
        cluster.open(&clients[0], self.stripes).truncate(SHIFT + FIRM_CELLS * CELL).unwrap();
        let log = Arc::new(Log::default());
        let lossy = self.restarts > 0;
        let start = Arc::new(Barrier::new(7));
        std::thread::scope(|scope| {
            for worker in 0..6_u64 {
                let file = cluster.open(&clients[usize::try_from(worker % 3).unwrap()], self.stripes);
                let mut worker = Worker {
                    log: Arc::clone(&log),
                    file,
                    random: Random(self.seed * 100 + worker),
                    next: (worker + 1) << 32,
                    lossy,
                    unsynced: Vec::new(),
                    errors: 0,
                };
                let start = Arc::clone(&start);
                scope.spawn(move || {
                    start.wait();
                    worker.run(self.steps);
                    worker.sync();
                });
            }
            start.wait();
            for turn in 0..self.restarts {
                // Not before the clients have done something since the last time.
                let goal = log.clock.load(Ordering::SeqCst) + 150;
                while log.clock.load(Ordering::SeqCst) < goal && Arc::strong_count(&start) > 1 {
                    std::thread::yield_now();
                }
                cluster.restart_server(turn % 2);
            }
        });
        self.read_all(&cluster, &log, &clients);
        log.check(lossy, &self.name());
    }

    /// The end as each client sees it, and one that comes new.
    fn read_all(self, cluster: &Cluster, log: &Log, clients: &[Client]) {
        let late = cluster.client(16 << 20);
        for client in clients.iter().chain([&late]) {
            let file = cluster.open(client, self.stripes);
            let mut bytes = vec![0xee; usize::try_from(FIRM_CELLS * CELL).unwrap()];
            let began = log.now();
            // A session that ended with its server is noticed by the first call.
            let read = (0..3).find_map(|_| file.read_at(&mut bytes, SHIFT).ok()).unwrap();
            bytes[read..].fill(0);
            let found =
                bytes.chunks_exact(8).map(|cell| u64::from_le_bytes(cell.try_into().unwrap())).collect();
            log.reads.lock().unwrap().push(Read { first: 0, found, began, ended: log.now() });
            let mut tail = vec![0; 1 << 20];
            let read = file.read_at(&mut tail, SHIFT + FIRM_CELLS * CELL).unwrap();
            if self.restarts > 0 {
                continue; // of an append a part may be lost
            }
            let loose = log.loose.lock().unwrap();
            for cell in tail[..read].chunks_exact(8) {
                let number = u64::from_le_bytes(cell.try_into().unwrap());
                assert!(number == 0 || loose.contains(&number), "{}: {number:x} in the tail", self.name());
            }
        }
    }
}

/// Added to every seed: other runs of the same scenes, from the environment.
fn seed_offset() -> u64 {
    std::env::var("CCPFS_STRESS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

const CALM: Scene = Scene {
    policy: "seqdlm",
    unix: false,
    stripes: 3,
    cache_bytes: 8 << 20,
    restarts: 0,
    steps: 60,
    seed: 1,
};

//= protocol.md#I5 type=test
#[test]
fn every_read_is_a_snapshot_and_never_old_under_every_policy() {
    let policies = [
        "seqdlm",
        "seqdlm-no-early-grant",
        "seqdlm-no-early-revocation",
        "seqdlm-no-upgrading",
        "seqdlm-no-downgrading",
        "seqdlm-no-write-modes",
        "seqdlm-no-expansion",
        "seqdlm-with-adaptive-range-page",
        "basic",
        "lustre",
    ];
    for (seed, policy) in (1..).zip(policies) {
        Scene { policy, seed, unix: seed % 2 == 0, stripes: 1 + u32::try_from(seed).unwrap() % 4, ..CALM }
            .play();
    }
}

#[test]
fn small_pools_change_nothing_but_speed() {
    // The largest operation needs more pages than the smallest pool has.
    for (seed, policy, cache_bytes) in [
        (21, "seqdlm", 128 << 10),
        (22, "basic", 192 << 10),
        (23, "lustre", 512 << 10),
        (21, "seqdlm", 128 << 10),
        (22, "basic", 192 << 10),
        (23, "lustre", 512 << 10),
        (24, "seqdlm", 64 << 10),
    ] {
        Scene { policy, seed, cache_bytes, unix: seed % 2 == 0, ..CALM }.play();
    }
}

//= protocol.md#I9 type=test
#[test]
fn servers_that_restart_cost_errors_but_nothing_that_was_synced() {
    for (seed, policy) in [(31, "seqdlm"), (32, "basic"), (33, "seqdlm-no-upgrading"), (34, "lustre")] {
        let unix = seed % 2 == 0;
        Scene { policy, seed, unix, restarts: 5, steps: 150, cache_bytes: 1 << 20, ..CALM }.play();
    }
}
