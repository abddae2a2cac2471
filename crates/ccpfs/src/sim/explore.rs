//! `ccpfs sim explore`, `replay` and `shrink`.

use super::{all_processors, progress};
use crate::failure::{Context, Failure, Kind, say};
use ccpfs_sim::explore::{Exploration, Found, expected_gaps, explore as search, met, not_explored};
use ccpfs_sim::run::run;
use ccpfs_sim::shrink::shrink as make_small;
use ccpfs_sim::swarm;
use ccpfs_sim::workload::plan::Plan;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Violations after which the search stops.
const FAILURES_MAX: usize = 20;

/// Options of `ccpfs sim explore`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExploreArguments {
    /// How many seeds.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// Stop after so many minutes, whatever is left.
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    minutes: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Threads that search (default: all processors). The result does not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `ccpfs sim replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// The seed; its plan is made again.
    #[arg(value_name = "SEED", required_unless_present = "plan", conflicts_with = "plan")]
    seed: Option<u64>,
    /// A plan from a file instead, as 'ccpfs sim shrink' prints it; '-' is standard input.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Print a line for everything that happens: time, who, what.
    #[arg(long)]
    trace: bool,
}

/// Options of `ccpfs sim shrink`.
#[derive(Debug, clap::Args)]
pub(crate) struct ShrinkArguments {
    /// The seed that fails.
    #[arg(value_name = "SEED", required_unless_present = "plan", conflicts_with = "plan")]
    seed: Option<u64>,
    /// A plan that fails, from a file; '-' is standard input.
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
}

#[derive(Serialize)]
struct Document {
    first_seed: u64,
    seeds: u64,
    events: u64,
    seconds: f64,
    seeds_per_second: f64,
    reads_while_evicted: u64,
    writes_lost: u64,
    violations: Vec<Violation>,
}

#[derive(Serialize)]
struct Violation {
    seed: u64,
    rule: String,
    what: String,
    replay: String,
}

/// Searches.
pub(crate) fn explore(arguments: &ExploreArguments) -> Result<(), Failure> {
    let end = arguments.first.checked_add(arguments.seeds).ok_or_else(|| {
        Failure::usage(format!("--first {} is too large for so many seeds", arguments.first))
    })?;
    let what = Exploration {
        seeds: arguments.first..end,
        time_max: arguments.minutes.map(|minutes| Duration::from_secs(minutes * 60)),
        threads: arguments.threads.map_or_else(all_processors, usize::from),
        failures_max: FAILURES_MAX,
    };
    let bar = progress(arguments.seeds, "seeds");
    // A rule that panics is a violation with its message; its backtrace would only spoil the screen.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = search(&what, &|done| bar.set_position(done));
    std::panic::set_hook(hook);
    bar.finish_and_clear();
    if arguments.json {
        print_json(arguments.first, &found)?;
    } else {
        print(&found);
    }
    match found.failures.len() {
        0 => Ok(()),
        1 => Err(Failure::of(Kind::WrongData, "a seed broke a promise")),
        count => Err(Failure::of(Kind::WrongData, format!("{count} seeds broke a promise"))),
    }
}

fn speed(found: &Found) -> f64 {
    let seconds = found.elapsed.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "counts of seeds are far below 2^53")]
    let seeds = found.seeds as f64;
    if seconds > 0.0 { seeds / seconds } else { 0.0 }
}

fn print(found: &Found) {
    for (seed, failure) in &found.failures {
        say(format!(
            "seed {seed}: {failure}\n    ccpfs sim replay {seed} --trace\n    ccpfs sim shrink {seed}"
        ));
    }
    say(format!(
        "{} seeds, {} violations, {} events, {:.1} s, {:.0} seeds/s",
        found.seeds,
        found.failures.len(),
        found.events,
        found.elapsed.as_secs_f64(),
        speed(found)
    ));
    for (name, count) in met(&found.seen) {
        say(format!("met: {count} {name}"));
    }
    for (name, count, why) in expected_gaps(&found.gaps) {
        say(format!("expected: {count} {name}: {why}"));
    }
    for (name, why) in not_explored() {
        say(format!("not explored: {name}: {why}"));
    }
}

fn print_json(first_seed: u64, found: &Found) -> Result<(), Failure> {
    let violation = |(seed, failure): &(u64, ccpfs_sim::run::Failure)| Violation {
        seed: *seed,
        rule: failure.rule.clone(),
        what: failure.what.clone(),
        replay: format!("ccpfs sim replay {seed}"),
    };
    let document = Document {
        first_seed,
        seeds: found.seeds,
        events: found.events,
        seconds: found.elapsed.as_secs_f64(),
        seeds_per_second: speed(found),
        reads_while_evicted: found.gaps.reads_while_evicted,
        writes_lost: found.gaps.writes_lost,
        violations: found.failures.iter().map(violation).collect(),
    };
    say(serde_json::to_string_pretty(&document).context(|| "--json".to_owned())?);
    Ok(())
}

/// The plan of a seed, or of a file.
fn plan_of(seed: Option<u64>, file: Option<&Path>) -> Result<Plan, Failure> {
    let Some(path) = file else {
        return Ok(swarm::plan(seed.ok_or_else(|| Failure::usage("a seed or --plan FILE is needed"))?));
    };
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.context(|| format!("--plan {}", path.display()))?;
    Plan::read(&text).map_err(|error| Failure::usage(format!("--plan {}: {error}", path.display())))
}

/// Runs one plan again.
pub(crate) fn replay(arguments: &ReplayArguments) -> Result<(), Failure> {
    let plan = plan_of(arguments.seed, arguments.plan.as_deref())?;
    if arguments.trace {
        say(plan.to_text().trim_end());
    }
    let report = run(&plan, arguments.trace);
    if arguments.trace {
        say(report.trace.trim_end());
    }
    #[allow(clippy::cast_precision_loss, reason = "shown with three digits")]
    let milliseconds = report.virtual_ns as f64 / 1e6;
    say(format!(
        "{} events in {milliseconds:.3} ms of virtual time; digest {:016x}",
        report.events, report.digest
    ));
    match report.failure {
        None => Ok(()),
        Some(failure) => Err(Failure::of(Kind::WrongData, failure.to_string())),
    }
}

/// Makes a failing plan small.
pub(crate) fn shrink(arguments: &ShrinkArguments) -> Result<(), Failure> {
    let plan = plan_of(arguments.seed, arguments.plan.as_deref())?;
    let bar = progress(0, "shrinking");
    let shrunk = make_small(&plan, &mut |calls, faults| {
        bar.set_message(format!("{calls} calls and {faults} faults are left"));
    });
    bar.finish_and_clear();
    let shrunk = shrunk.ok_or_else(|| Failure::new("the plan does not fail: there is nothing to shrink"))?;
    say(format!("# {}", shrunk.failure.to_string().replace('\n', " ")));
    say(format!("# {} runs; run it again with: ccpfs sim replay --plan FILE --trace", shrunk.runs));
    say(shrunk.plan.to_text().trim_end());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_with_a_line_that_means_nothing_is_refused_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.txt");
        std::fs::write(&path, "seed 5\nnonsense 7\n").unwrap();
        let error = plan_of(None, Some(&path)).unwrap_err().to_string();
        assert!(error.contains("--plan") && error.contains("nonsense 7"), "{error}");
    }

    #[test]
    fn a_few_seeds_are_explored_and_one_is_run_again_from_its_text() {
        let arguments = ExploreArguments { seeds: 20, minutes: None, first: 0, threads: Some(1), json: true };
        explore(&arguments).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.txt");
        std::fs::write(&path, swarm::plan(3).to_text()).unwrap();
        replay(&ReplayArguments { seed: None, plan: Some(path), trace: true }).unwrap();
    }
}
