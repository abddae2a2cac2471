//! What a strided write costs that finds its lock: `cargo run --release -p ccpfs-client --example strided_hit`.
//!
//! One client writes 4 KiB of each 16 KiB, into its cache, again and again over the same 16 MiB: under a lock to the end of the file, and under one on the section
//! that it was seen to write, because another client has the rest.
#![allow(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_server::ServerConfig;
use ccpfs_transport::Address;
use std::time::Instant;

const BLOCK: usize = 4096;
const STRIDE: u64 = 16 << 10;
const BLOCKS: u64 = 1024;

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let namespace = directory.path().join("ns");
    std::fs::create_dir(&namespace).unwrap();
    let address: Address = "loopback:strided".parse().unwrap();
    let config = ServerConfig::with_defaults(address.clone(), &directory.path().join("data"));
    let server = ccpfs_server::start(config).unwrap();
    let client = || Client::start(ClientConfig::with_defaults(&namespace, vec![address.clone()])).unwrap();
    let (one, other) = (client(), client());
    let open = |client: &Client, name: &str| {
        let options = OpenOptions { read: true, write: true, create: true, ..OpenOptions::default() };
        client.open(&namespace.join(name), &options).unwrap()
    };
    for shared in [false, true, false, true] {
        let name = if shared { "shared" } else { "alone" };
        let (ours, theirs) = (open(&one, name), open(&other, name));
        for k in 0..8 {
            write(&ours, k, 0);
            if shared {
                write(&theirs, k, BLOCK as u64);
            }
        }
        let before = one.statistics();
        let mut best = f64::MAX;
        for _ in 0..50 {
            let began = Instant::now();
            (0..BLOCKS).for_each(|k| write(&ours, k, 0));
            best = best.min(began.elapsed().as_secs_f64() * 1e9 / BLOCKS as f64);
        }
        let requests = one.statistics().since(&before).lock_requests;
        println!("{name}: {best:.0} ns a write, {requests} lock requests");
    }
    one.shutdown().unwrap();
    other.shutdown().unwrap();
    server.shutdown();
    server.wait().unwrap();
}

fn write(file: &File, block: u64, shift: u64) {
    file.write_at(&[7; BLOCK], block * STRIDE + shift).unwrap();
}
