//! Explores seeds and ends with an error if a promise is broken; replays and shrinks one seed or plan.
//!
//! `explore [--first N] [--seeds N] [--minutes M] [--threads T] [--failures N]`, `explore --replay SEED`,
//! `explore --plan FILE`, `explore --shrink SEED`.

use ccpfs_sim::explore::{Exploration, Found, expected_gaps, explore, not_explored, quiet_panics};
use ccpfs_sim::replay::{replay, replay_plan};
use ccpfs_sim::shrink::shrink;
use ccpfs_sim::swarm;
use ccpfs_sim::workload::plan::Plan;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    match act() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::from(2)
        }
    }
}

fn act() -> Result<bool, String> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut what = Exploration { seeds: 0..10_000, time_max: None, threads, failures_max: 10 };
    let mut count = 10_000;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number and not {value}"));
        match name.as_str() {
            "--first" => what.seeds.start = number()?,
            "--seeds" => count = number()?,
            "--minutes" => what.time_max = Some(Duration::from_secs(number()? * 60)),
            "--threads" => what.threads = usize::try_from(number()?).unwrap_or(1),
            "--failures" => what.failures_max = usize::try_from(number()?).unwrap_or(1),
            "--replay" => {
                let (text, report) = replay(number()?);
                print!("{text}");
                return Ok(report.failure.is_none());
            }
            "--plan" => {
                let text = std::fs::read_to_string(&value).map_err(|error| format!("{value}: {error}"))?;
                let (text, report) = replay_plan(&Plan::read(&text)?);
                print!("{text}");
                return Ok(report.failure.is_none());
            }
            "--shrink" => {
                quiet_panics();
                let Some(shrunk) = shrink(&swarm::plan(number()?), &mut |_, _| {}) else { return Ok(true) };
                println!("# {}\n# after {} runs\n{}", shrunk.failure, shrunk.runs, shrunk.plan.to_text());
                return Ok(false);
            }
            _ => return Err(format!("unknown: {name}")),
        }
    }
    quiet_panics();
    what.seeds.end = what.seeds.start.saturating_add(count);
    let found = explore(&what, &|seeds| {
        if seeds.is_multiple_of(1000) {
            eprint!("\r{seeds} seeds ");
        }
    });
    eprintln!();
    print(&found);
    Ok(found.failures.is_empty())
}

fn print(found: &Found) {
    for (seed, failure) in &found.failures {
        println!("seed {seed}: {failure}\n  again: ccpfs sim replay {seed} --trace");
    }
    let seconds = found.elapsed.as_secs_f64();
    println!(
        "{} seeds in {seconds:.1} s ({:.0} per second): {} events, {} broken",
        found.seeds,
        found.seeds as f64 / seconds.max(1e-9),
        found.events,
        found.failures.len()
    );
    for (name, count, why) in expected_gaps(&found.gaps) {
        println!("expected: {count} {name}: {why}");
    }
    for (name, why) in not_explored() {
        println!("not explored: {name}: {why}");
    }
}
