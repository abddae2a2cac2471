//! What it costs to create, open, stat and unlink empty files: medians in microseconds, and the number of rounds for `strace -c`.
//!
//! `names_cost DIRECTORY ROUNDS [PART]`: a namespace is made in the directory; no server is asked, so none need run.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement says what it found or fails")]

use ccpfs_client::{Client, ClientConfig, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Instant;

const PARTS: [&str; 5] = ["create", "stat", "write", "read", "unlink"];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().unwrap());
    let rounds: usize = arguments.next().unwrap().parse().unwrap();
    let only = arguments.next();
    let namespace = directory.join("ns");
    std::fs::create_dir_all(&namespace).unwrap();
    let config = ClientConfig::with_defaults(&namespace, vec!["loopback:nobody".parse().unwrap()]);
    let client = Client::start(config).unwrap();
    for part in PARTS.into_iter().filter(|part| only.as_deref().is_none_or(|only| only == *part)) {
        let mut times: Vec<u128> = (0..rounds)
            .map(|round| {
                let path = namespace.join(format!("f{round}"));
                let began = Instant::now();
                act(&client, part, &path);
                began.elapsed().as_nanos()
            })
            .collect();
        times.sort_unstable();
        println!("{part}: {:.1} us", times[rounds / 2] as f64 / 1000.0);
    }
}

fn act(client: &Client, part: &str, path: &Path) {
    let read = OpenOptions { read: true, ..OpenOptions::default() };
    let write = OpenOptions { write: true, ..read };
    match part {
        "create" => {
            let create = OpenOptions { create: true, ..write };
            client.open(path, &create).unwrap().close().unwrap();
        }
        "stat" => assert_eq!(client.stat(path, false).unwrap().st_size, 0),
        "write" => client.open(path, &write).unwrap().close().unwrap(),
        "read" => client.open(path, &read).unwrap().close().unwrap(),
        _ => client.unlink(path).unwrap(),
    }
}
