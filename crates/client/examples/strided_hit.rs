//! What it costs that a client looks for sections: `cargo run --release -p ccpfs-client --example strided_hit`.
//!
//! One client writes blocks of 4 KiB into its cache, again and again over the same few MiB, in several orders, with and without looking
//! (`client.desired_sections`); at last under a lock on its section, because another client has the rest. The least processor time of many rounds.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_server::ServerConfig;
use ccpfs_transport::Address;
use std::path::Path;

const BLOCK: usize = 4096;
const BLOCKS: u64 = 512;
const ROUNDS: usize = 400;

/// Where write number `k` goes, in blocks.
type Order = fn(u64) -> u64;

const ORDERS: [(&str, Order); 4] = [
    ("one after the other", |k| k),
    ("every fourth", |k| 4 * k),
    ("shrinking strides", |k| k * (2 * BLOCKS - k) / 128),
    ("random", |k| k.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55),
];

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = directory.path().join("ns");
    std::fs::create_dir(&namespace).unwrap();
    let address: Address = "loopback:strided".parse().unwrap();
    let config = ServerConfig::with_defaults(address.clone(), &directory.path().join("data"));
    let server = ccpfs_server::start(config).unwrap();
    let client = |sections: bool| {
        let mut config = ClientConfig::with_defaults(&namespace, vec![address.clone()]);
        config.desired_sections = sections;
        // Nothing is flushed meanwhile.
        (config.dirty_bytes_min, config.dirty_bytes_max) = (1 << 30, 2 << 30);
        Client::start(config).unwrap()
    };
    for (name, order) in ORDERS {
        let [off, on] = compare([&client(false), &client(true)], &namespace, name, order);
        println!(
            "{name:20} {off:5.0} ns a write without looking, {on:5.0} with: {:+.1} %",
            (on / off - 1.0) * 100.0
        );
    }
    let (ours, theirs) = (client(true), client(true));
    let (mine, other) = (open(&ours, &namespace.join("shared")), open(&theirs, &namespace.join("shared")));
    for k in 0..8 {
        write(&mine, 4 * k);
        write(&other, 4 * k + 1);
    }
    let best = (0..ROUNDS).map(|_| round(&mine, |k| 4 * k)).fold(f64::MAX, f64::min);
    println!("{:20} {best:5.0} ns a write under a lock on the section", "every fourth");
    server.shutdown();
    server.wait().unwrap();
}

/// Nanoseconds of a write for each client, whose rounds take turns.
fn compare(clients: [&Client; 2], namespace: &Path, name: &str, order: Order) -> [f64; 2] {
    let mut number = 0;
    let files = clients.map(|client| {
        number += 1;
        open(client, &namespace.join(format!("{name} {number}")))
    });
    let mut best = [f64::MAX; 2];
    for _ in 0..ROUNDS {
        for (file, best) in files.iter().zip(&mut best) {
            *best = best.min(round(file, order));
        }
    }
    best
}

fn open(client: &Client, path: &Path) -> File {
    let options = OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
    client.open(path, &options).unwrap()
}

fn round(file: &File, order: Order) -> f64 {
    let began = thread_ns();
    (0..BLOCKS).for_each(|k| write(file, order(k)));
    (thread_ns() - began) as f64 / BLOCKS as f64
}

/// The time that this thread has had a processor.
fn thread_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid and writable.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn write(file: &File, block: u64) {
    file.write_at(&[7; BLOCK], block * BLOCK as u64).unwrap();
}
