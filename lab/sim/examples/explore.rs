//! Explores seeds and ends with an error if a promise is broken; replays and shrinks one seed or plan.
//!
//! `explore [--first N] [--seeds N] [--minutes M] [--threads T] [--failures N]`, `explore --replay SEED`,
//! `explore --plan FILE`, `explore --shrink SEED`.

use ccpfs_sim::explore::{Options, explore, quiet_panics};
use ccpfs_sim::replay::{replay, replay_plan};
use ccpfs_sim::shrink::shrink;
use ccpfs_sim::swarm;
use ccpfs_sim::workload::plan::Plan;
use std::process::ExitCode;
use std::time::Duration;

/// Runs that shrinking may take.
const SHRINK_RUNS_MAX: u64 = 20_000;

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
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number and not {value}"));
        match name.as_str() {
            "--first" => options.first = number()?,
            "--seeds" => options.seeds = number()?,
            "--minutes" => options.time_max = Some(Duration::from_secs(number()? * 60)),
            "--threads" => options.threads = usize::try_from(number()?).unwrap_or(1),
            "--failures" => options.failures_max = usize::try_from(number()?).unwrap_or(1),
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
                let Some(shrunk) = shrink(&swarm::plan(number()?), SHRINK_RUNS_MAX) else { return Ok(true) };
                println!("# {}\n# after {} runs\n{}", shrunk.failure, shrunk.runs, shrunk.plan.to_text());
                return Ok(false);
            }
            _ => return Err(format!("unknown: {name}")),
        }
    }
    quiet_panics();
    let summary = explore(&options, &|seeds| eprint!("\r{seeds} seeds "));
    eprintln!();
    print!("{summary}");
    Ok(summary.found.is_empty())
}
