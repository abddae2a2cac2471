//! `ccpfs-model`: searches the worlds of the table and prints what came of it.

use ccpfs_model::check::Limits;
use ccpfs_model::endless::{Circles, circles};
use ccpfs_model::{CONFIGS, Config, Outcome, Report, check};
use clap::Parser;
use std::process::ExitCode;
use std::time::Duration;

/// Searches small worlds for states that break an invariant. Exits with 1 if one is found.
#[derive(Debug, Parser)]
#[command(name = "ccpfs-model")]
struct Options {
    /// Only configurations whose name begins so; may be repeated.
    #[arg(long = "config", value_name = "NAME")]
    configs: Vec<String>,
    /// Only the small ones, which the tests run.
    #[arg(long)]
    small: bool,
    /// Say what there is.
    #[arg(long)]
    list: bool,
    /// Unique states per configuration, in place of those of the table; 0 for no limit.
    #[arg(long, value_name = "N")]
    states_max: Option<usize>,
    /// Seconds per configuration.
    #[arg(long, value_name = "N")]
    seconds_max: Option<u64>,
    /// Threads of a search.
    #[arg(long, value_name = "N", default_value_t = 2)]
    threads: usize,
    /// Look for runs without an end instead: circles of states.
    #[arg(long)]
    circles: bool,
    /// Stop at the first configuration that is broken.
    #[arg(long)]
    fail_fast: bool,
    /// One line of JSON for each configuration.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        CONFIGS.iter().for_each(|config| println!("{:28} {}", config.name, config.about));
        return ExitCode::SUCCESS;
    }
    // What rules panic with is a finding and told with its path.
    std::panic::set_hook(Box::new(|_| {}));
    let chosen = chosen(&options);
    if chosen.is_empty() {
        eprintln!("no configuration is named like this; --list shows them");
        return ExitCode::from(2);
    }
    if options.circles {
        return look_for_circles(&chosen, options.states_max.unwrap_or(1_000_000));
    }
    let time_max = options.seconds_max.map(Duration::from_secs);
    let limits = Limits { states_max: options.states_max, time_max, threads: options.threads.max(1) };
    let mut broken = false;
    let mut all = Vec::new();
    if !options.json {
        println!("{HEAD}");
    }
    for config in chosen {
        let report = check(config, &limits);
        print(&report, options.json);
        broken |= matches!(report.outcome, Outcome::Violation { .. });
        all.push(report);
        if broken && options.fail_fast {
            break;
        }
    }
    if !options.json {
        let (states, unique) = (sum(&all, |r| r.states), sum(&all, |r| r.unique));
        let seconds: f64 = all.iter().map(|report| report.took.as_secs_f64()).sum();
        println!("{:28} {states:>12} {unique:>12} {:>6} {seconds:>8.1}", "all", "");
    }
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Looks for circles in each world, and says what there is.
fn look_for_circles(chosen: &[&'static Config], states_max: usize) -> ExitCode {
    let mut broken = false;
    for config in chosen {
        let said = match circles(config, states_max) {
            Circles::None { states } => format!("{states:>12} states, no circle"),
            Circles::Unknown { states } => format!("{states:>12} states, no circle among these"),
            Circles::Found { path } => {
                broken = true;
                format!("a run without an end:\n    {}", path.join("\n    "))
            }
        };
        println!("{:28} {said}", config.name);
    }
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

const HEAD: &str = "configuration                      states       unique  depth  seconds  result";

fn sum(all: &[Report], of: impl Fn(&Report) -> usize) -> usize {
    all.iter().map(of).sum()
}

fn chosen(options: &Options) -> Vec<&'static Config> {
    let named = |config: &&Config| {
        options.configs.is_empty()
            || options.configs.iter().any(|name| config.name.starts_with(name.as_str()))
    };
    CONFIGS.iter().filter(|config| !options.small || config.small).filter(named).collect()
}

fn print(report: &Report, json: bool) {
    let result = match &report.outcome {
        Outcome::Exhausted => "exhausted",
        Outcome::Bounded => "bounded",
        Outcome::Violation { .. } => "VIOLATION",
    };
    let marks: Vec<String> = report.marks.iter().map(|mark| format!("{mark:?}")).collect();
    let seconds = report.took.as_secs_f64();
    let Report { config, states, unique, depth, .. } = report;
    if json {
        let what = match &report.outcome {
            Outcome::Violation { what, .. } => Some(what),
            Outcome::Exhausted | Outcome::Bounded => None,
        };
        let value = serde_json::json!({
            "config": config, "states": states, "unique": unique, "depth": depth,
            "seconds": seconds, "result": result, "violation": what, "marks": marks,
        });
        println!("{value}");
    } else {
        println!(
            "{config:28} {states:>12} {unique:>12} {depth:>6} {seconds:>8.1}  {result}  {}",
            marks.join(" ")
        );
    }
    if let Outcome::Violation { what, path } = &report.outcome {
        eprintln!("\n{config}: {what}\nfound after {unique} different states, in {} steps:", path.len());
        path.iter().enumerate().for_each(|(at, step)| eprintln!("{:4}  {step}", at + 1));
    }
}
