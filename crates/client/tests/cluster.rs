//! Clients and servers in one process, over loopback: what callers see.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Layout, Policy};
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

struct Cluster {
    directory: tempfile::TempDir,
    addresses: Vec<Address>,
    servers: Vec<RunningServer>,
    policy: Policy,
}

impl Cluster {
    fn start(servers: u32, policy: Policy) -> Cluster {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let addresses: Vec<Address> =
            (0..servers).map(|i| format!("loopback:client-{number}-{i}").parse().unwrap()).collect();
        let mut cluster = Cluster { directory, addresses, servers: Vec::new(), policy };
        cluster.start_servers();
        cluster
    }

    fn start_servers(&mut self) {
        for (index, address) in self.addresses.iter().enumerate() {
            let data = self.directory.path().join(format!("data-{index}"));
            let mut config = ServerConfig::with_defaults(address.clone(), &data);
            config.policy = self.policy;
            config.server_count = u32::try_from(self.addresses.len()).unwrap();
            config.index = u32::try_from(index).unwrap();
            self.servers.push(ccpfs_server::start(config).unwrap());
        }
    }

    fn stop_servers(&mut self) {
        for server in self.servers.drain(..) {
            server.shutdown();
            server.wait().unwrap();
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("ns").join(name)
    }

    fn client(&self) -> Client {
        self.client_with(|_| {})
    }

    fn client_with(&self, change: impl FnOnce(&mut ClientConfig)) -> Client {
        let mut config =
            ClientConfig::with_defaults(&self.directory.path().join("ns"), self.addresses.clone());
        config.cache_bytes = 64 << 20;
        config.dirty_bytes_max = 32 << 20;
        config.dirty_bytes_min = 8 << 20;
        config.connect_timeout_ms = 1000;
        change(&mut config);
        Client::start(config).unwrap()
    }

    fn open(&self, client: &Client, name: &str, stripes: u32) -> File {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            layout: Layout::new(stripes, 64 << 10),
            ..OpenOptions::default()
        };
        client.open(&self.path(name), &options).unwrap()
    }
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(31) as u8).wrapping_add((i >> 8) as u8) ^ seed).collect()
}

fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    let got = file.read_at(&mut buffer, offset).unwrap();
    buffer.truncate(got);
    buffer
}

#[test]
fn what_one_client_writes_another_reads() {
    for policy in ["seqdlm", "basic", "lustre"] {
        let cluster = Cluster::start(2, policy.parse().unwrap());
        let (one, two) = (cluster.client(), cluster.client());
        for stripes in [1, 3] {
            let name = format!("f{stripes}");
            let file = cluster.open(&one, &name, stripes);
            let data = pattern(1, 300_000);
            assert_eq!(file.write_at(&data, 12_345).unwrap(), data.len());
            assert_eq!(file.size().unwrap(), 312_345);
            let other = cluster.open(&two, &name, stripes);
            assert_eq!(other.size().unwrap(), 312_345, "size is visible without a flush");
            assert_eq!(read(&other, 12_345, 300_000), data);
            assert_eq!(read(&other, 0, 12_345), vec![0; 12_345], "a hole");
            assert_eq!(read(&other, 312_000, 1000).len(), 345);
            assert_eq!(read(&other, 400_000, 10), []);
            // And back: the reader's cache must not hide what is written now.
            other.write_at(b"changed", 20_000).unwrap();
            assert_eq!(read(&file, 20_000, 7), b"changed");
            file.write_at(b"again", 20_000).unwrap();
            assert_eq!(read(&other, 20_000, 7), b"agained");
        }
    }
}

#[test]
fn overlapping_writers_leave_one_writers_data() {
    for (policy, stripes) in
        [("seqdlm", 1), ("seqdlm", 2), ("basic", 2), ("lustre", 1), ("seqdlm-no-downgrading", 3)]
    {
        let cluster = Cluster::start(2, policy.parse().unwrap());
        let length = 400_000;
        for round in 0..5 {
            let name = format!("f{round}");
            let clients: Vec<Client> = (0..4).map(|_| cluster.client()).collect();
            std::thread::scope(|scope| {
                for (i, client) in clients.iter().enumerate() {
                    let file = cluster.open(client, &name, stripes);
                    scope.spawn(move || {
                        for turn in 0..2_u8 {
                            file.write_at(&vec![u8::try_from(i).unwrap() * 2 + turn; length], 0).unwrap();
                        }
                    });
                }
            });
            let mut seen = Vec::new();
            for client in &clients {
                let data = read(&cluster.open(client, &name, stripes), 0, length);
                assert!(data.iter().all(|byte| *byte == data[0]), "{policy} {stripes}: torn write");
                seen.push(data[0]);
            }
            assert!(seen.iter().all(|s| *s == seen[0]), "{policy} {stripes}: readers disagree: {seen:?}");
            assert_eq!(seen[0] % 2, 1, "the second write of some client");
        }
    }
}

#[test]
fn strided_writers_and_readers_of_many_sizes_agree() {
    for policy in ["seqdlm", "seqdlm-page", "seqdlm-with-adaptive-range", "basic", "lustre"] {
        let cluster = Cluster::start(2, policy.parse().unwrap());
        for (stripes, transfer) in [(1, 4096), (2, 47_008), (4, 100_000)] {
            let name = format!("f{stripes}-{transfer}");
            let (clients, turns) = (4_usize, 20_usize);
            std::thread::scope(|scope| {
                for rank in 0..clients {
                    let (cluster, name) = (&cluster, &name);
                    scope.spawn(move || {
                        let client = cluster.client();
                        let file = cluster.open(&client, name, stripes);
                        for turn in 0..turns {
                            let at = (turn * clients + rank) * transfer;
                            file.write_at(&pattern(rank as u8 * 32 + turn as u8, transfer), at as u64)
                                .unwrap();
                        }
                        file.close().unwrap();
                    });
                }
            });
            let client = cluster.client();
            let file = cluster.open(&client, &name, stripes);
            for turn in 0..turns {
                for rank in 0..clients {
                    let at = (turn * clients + rank) * transfer;
                    let expected = pattern(rank as u8 * 32 + turn as u8, transfer);
                    assert!(read(&file, at as u64, transfer) == expected, "{policy} rank {rank} turn {turn}");
                }
            }
        }
    }
}

#[test]
fn appends_of_many_clients_lose_nothing() {
    let cluster = Cluster::start(2, Policy::SEQDLM);
    let records = 40;
    std::thread::scope(|scope| {
        for rank in 0..4_u8 {
            let cluster = &cluster;
            scope.spawn(move || {
                let client = cluster.client();
                let file = cluster.open(&client, "log", 2);
                for record in 0..records {
                    let text = [rank, record].repeat(50 + usize::from(record));
                    file.append(&[IoSlice::new(&text)]).unwrap();
                }
            });
        }
    });
    let client = cluster.client();
    let file = cluster.open(&client, "log", 2);
    let expected: usize = 4 * (0..usize::from(records)).map(|r| 2 * (50 + r)).sum::<usize>();
    let data = read(&file, 0, expected + 100);
    assert_eq!(data.len(), expected);
    let mut at = 0;
    let mut next = [0_u8; 4];
    while at < data.len() {
        let (rank, record) = (data[at], data[at + 1]);
        assert_eq!(record, next[usize::from(rank)], "records of one writer are in order");
        next[usize::from(rank)] += 1;
        let length = 2 * (50 + usize::from(record));
        assert!(data[at..at + length].chunks(2).all(|pair| pair == [rank, record]), "not interleaved");
        at += length;
    }
}

#[test]
fn truncation_cuts_and_lengthens_for_everybody() {
    let cluster = Cluster::start(2, Policy::SEQDLM);
    let (one, two) = (cluster.client(), cluster.client());
    for stripes in [1, 3] {
        let name = format!("t{stripes}");
        let (a, b) = (cluster.open(&one, &name, stripes), cluster.open(&two, &name, stripes));
        a.write_at(&pattern(3, 500_000), 0).unwrap();
        b.truncate(100_000).unwrap();
        assert_eq!((a.size().unwrap(), b.size().unwrap()), (100_000, 100_000));
        assert_eq!(read(&a, 90_000, 50_000), pattern(3, 500_000)[90_000..100_000]);
        a.truncate(200_000).unwrap();
        assert_eq!(read(&b, 99_990, 20)[10..], [0; 10], "what was cut does not come back");
        assert_eq!(b.size().unwrap(), 200_000);
        b.write_at(b"x", 300_000).unwrap();
        a.truncate(0).unwrap();
        assert_eq!((a.size().unwrap(), read(&b, 0, 10).len()), (0, 0));
    }
}

#[test]
fn threads_of_one_client_write_one_file_at_once() {
    let cluster = Cluster::start(1, Policy::SEQDLM);
    let client = cluster.client();
    let file = cluster.open(&client, "threads", 2);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let file = file.clone();
            scope.spawn(move || {
                for turn in 0..50_usize {
                    let at = (turn * 4 + thread) * 10_000;
                    file.write_at(&pattern((turn * 4 + thread) as u8, 10_000), at as u64).unwrap();
                    assert_eq!(read(&file, at as u64, 10_000), pattern((turn * 4 + thread) as u8, 10_000));
                }
            });
        }
    });
    let other = cluster.client();
    let file = cluster.open(&other, "threads", 2);
    for block in 0..200_usize {
        assert_eq!(
            read(&file, (block * 10_000) as u64, 10_000),
            pattern(block as u8, 10_000),
            "block {block}"
        );
    }
}

#[test]
fn a_small_pool_makes_writers_wait_and_loses_nothing() {
    let cluster = Cluster::start(1, Policy::SEQDLM);
    let client = cluster.client_with(|config| {
        config.cache_bytes = 2 << 20;
        config.dirty_bytes_max = 1 << 20;
        config.dirty_bytes_min = 256 << 10;
    });
    let file = cluster.open(&client, "big", 1);
    let data = pattern(9, 300_000);
    for turn in 0..40_u64 {
        file.write_at(&data, turn * 300_000).unwrap();
    }
    for turn in 0..40_u64 {
        assert!(read(&file, turn * 300_000, 300_000) == data, "turn {turn}");
    }
}

#[test]
//= protocol.md#I9 type=test
fn fsynced_data_survive_a_restart_of_the_servers() {
    let mut cluster = Cluster::start(2, Policy::SEQDLM);
    let client = cluster.client();
    let file = cluster.open(&client, "kept", 2);
    let data = pattern(5, 250_000);
    file.write_at(&data, 0).unwrap();
    file.sync().unwrap();
    cluster.stop_servers();
    cluster.start_servers();
    let after = cluster.client();
    let again = cluster.open(&after, "kept", 2);
    assert_eq!(read(&again, 0, 250_000), data);
    // The old client notices the loss, and can go on with a new session.
    let _ = file.read_at(&mut [0; 10], 0);
    assert_eq!(read(&file, 0, 250_000), data);
    file.write_at(b"new", 0).unwrap();
    assert_eq!(read(&again, 0, 3), b"new");
}

#[test]
fn data_that_were_not_flushed_when_the_server_went_are_reported_lost() {
    let mut cluster = Cluster::start(1, Policy::SEQDLM);
    let client = cluster.client();
    let file = cluster.open(&client, "lost", 1);
    file.write_at(b"precious", 0).unwrap();
    cluster.stop_servers();
    cluster.start_servers();
    assert_eq!(file.sync().unwrap_err().to_errno(), libc::EIO);
    file.write_at(b"again", 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn unlinked_files_live_until_their_last_close_and_leave_nothing() {
    let cluster = Cluster::start(1, Policy::SEQDLM);
    let client = cluster.client();
    let file = cluster.open(&client, "gone", 1);
    file.write_at(b"still here", 0).unwrap();
    client.unlink(&cluster.path("gone")).unwrap();
    assert_eq!(read(&file, 0, 20), b"still here");
    file.close().unwrap();
    let again = cluster.open(&client, "gone", 1);
    assert_eq!(again.size().unwrap(), 0, "a new file of that name");
}

#[test]
fn many_random_operations_of_many_clients_match_a_plain_file() {
    let cluster = Cluster::start(2, Policy::SEQDLM);
    let clients: Arc<Vec<Client>> = Arc::new((0..3).map(|_| cluster.client()).collect());
    let mut seed: u64 = 99;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for stripes in [1, 2, 3] {
        let name = format!("random{stripes}");
        let files: Vec<File> = clients.iter().map(|client| cluster.open(client, &name, stripes)).collect();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..1500_u64 {
            let file = &files[usize::try_from(random(3)).unwrap()];
            let (at, length) =
                (usize::try_from(random(300_000)).unwrap(), 1 + usize::try_from(random(70_000)).unwrap());
            match random(12) {
                0..5 => {
                    let data = pattern(step as u8, length);
                    file.write_at(&data, at as u64).unwrap();
                    model.resize(model.len().max(at + length), 0);
                    model[at..at + length].copy_from_slice(&data);
                }
                5..9 => {
                    let end = model.len().min(at + length);
                    let expected = if at < end { &model[at..end] } else { &[] };
                    assert!(read(file, at as u64, length) == expected, "step {step} at {at} length {length}");
                }
                9 => {
                    file.truncate(at as u64).unwrap();
                    model.resize(at, 0);
                }
                10 => {
                    let data = pattern(step as u8, length.min(5000));
                    file.append(&[IoSlice::new(&data)]).unwrap();
                    model.extend_from_slice(&data);
                }
                _ => file.sync().unwrap(),
            }
            assert_eq!(file.size().unwrap(), model.len() as u64, "step {step}");
        }
    }
}

#[test]
fn servers_listed_in_another_order_are_refused_by_name() {
    let cluster = Cluster::start(2, Policy::SEQDLM);
    let client = cluster.client();
    cluster.open(&client, "placed", 2).write_at(b"here", 0).unwrap();
    let mistaken = cluster.client_with(|config| config.servers.reverse());
    let error = cluster.open(&mistaken, "placed", 2).size().unwrap_err().to_string();
    assert!(error.contains("cluster.servers") && error.contains("loopback:"), "{error}");
}
