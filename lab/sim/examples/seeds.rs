//! Runs worlds from one seed to another, without the command around it.
//!
//! `cargo run --release -p ccpfs-sim --example seeds -- FROM TO`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use ccpfs_sim::explore::{Exploration, explore};

fn main() {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<u64>().unwrap());
    let seeds = numbers.next().unwrap_or(0)..numbers.next().unwrap_or(10_000);
    let found = explore(&Exploration { seeds, time_max: None, threads: 2, failures_max: 3 }, &|_| {});
    println!("{} seeds in {:?}", found.seeds, found.elapsed);
    for (seed, failure) in &found.failures {
        println!("seed {seed}: {}: {}", failure.rule, failure.what);
    }
    assert!(found.failures.is_empty());
}
