//! `ccpfs-canary explore SEEDS`: runs the simulator until it finds something. Exits with 1 if it does, with 0 if not.
//!
//! `cargo xtask canaries` builds this over rules that it has broken, and expects 1; over the rules as they are, 0.

use ccpfs_sim::{run, swarm};
use std::process::ExitCode;

const USAGE: &str = "usage: ccpfs-canary explore SEEDS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["explore", seeds] => match seeds.parse() {
            Ok(seeds) => explore(seeds),
            Err(error) => usage(&format!("{seeds}: {error}")),
        },
        _ => usage(USAGE),
    }
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}");
    ExitCode::from(2)
}

fn explore(seeds: u64) -> ExitCode {
    // A rule that panics is a finding like others.
    std::panic::set_hook(Box::new(|_| {}));
    for seed in 0..seeds {
        if let Some(failure) = run::run(&swarm::plan(seed), false).failure {
            println!("caught after {} seeds: {failure}", seed + 1);
            return ExitCode::from(1);
        }
    }
    println!("nothing in {seeds} seeds");
    ExitCode::SUCCESS
}
