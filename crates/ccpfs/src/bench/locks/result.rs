//! Results of the lock tests: rates of one run, and medians over the rounds.

use super::args::{Case, Plan};
use crate::bench::result::median;
use serde::Serialize;

/// One run. The names are those of the JSON file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Run {
    /// Kind and protocol.
    pub(super) name: String,
    pub(super) gap_bytes: u64,
    pub(super) overlap_percent: u64,
    /// From 0.
    pub(super) round: u32,
    /// Messages that asked for locks, of all clients.
    pub(super) requests: u64,
    /// Locks of one byte per second, all clients and servers; of the rules alone: per server.
    pub(super) acquired_per_second: f64,
    /// The same; absent where clients release as soon as they have all.
    pub(super) released_per_second: Option<f64>,
    /// Locks taken and given back per second where each client gives back at once, contended or not; not of the rules alone.
    pub(super) both_per_second: Option<f64>,
    /// Of the rules alone: with the time in which clients cut their regions into requests.
    pub(super) acquired_with_cut_per_second: Option<f64>,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    pub(super) name: String,
    pub(super) gap_bytes: u64,
    pub(super) overlap_percent: u64,
    pub(super) rounds: u32,
    pub(super) requests_median: f64,
    pub(super) acquired_per_second_median: f64,
    pub(super) acquired_per_second_min: f64,
    pub(super) acquired_per_second_max: f64,
    pub(super) released_per_second_median: Option<f64>,
    pub(super) both_per_second_median: Option<f64>,
    pub(super) acquired_with_cut_per_second_median: Option<f64>,
    /// The rate of both over that of the same name and gap with the least overlap: what contention leaves.
    pub(super) kept: Option<f64>,
    /// Acquire rate over that of the last line with this gap and overlap.
    pub(super) ratio_to_last: f64,
}

fn summarise(runs: &[Run], case: &Case) -> Option<Summary> {
    let name = case.name();
    let belongs = |run: &&Run| {
        (run.gap_bytes, run.overlap_percent, &run.name) == (case.gap_bytes, case.overlap_percent, &name)
    };
    let runs: Vec<&Run> = runs.iter().filter(belongs).collect();
    let rates: Vec<f64> = runs.iter().map(|run| run.acquired_per_second).collect();
    let some = |value: fn(&Run) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
        (!values.is_empty()).then(|| median(values))
    };
    (!runs.is_empty()).then(|| Summary {
        name: name.clone(),
        gap_bytes: case.gap_bytes,
        overlap_percent: case.overlap_percent,
        rounds: u32::try_from(runs.len()).expect("as many as rounds"),
        requests_median: median(runs.iter().map(|run| crate::bench::result::float(run.requests)).collect()),
        acquired_per_second_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        acquired_per_second_max: rates.iter().copied().fold(0.0, f64::max),
        acquired_per_second_median: median(rates.clone()),
        released_per_second_median: some(|run| run.released_per_second),
        both_per_second_median: some(|run| run.both_per_second),
        kept: None,
        acquired_with_cut_per_second_median: some(|run| run.acquired_with_cut_per_second),
        ratio_to_last: 1.0,
    })
}

/// All lines, in the order of the cases.
pub(super) fn summaries(plan: &Plan, runs: &[Run]) -> Vec<Summary> {
    let mut lines: Vec<Summary> = plan.cases.iter().filter_map(|case| summarise(runs, case)).collect();
    let bases = lines.clone();
    for line in &mut lines {
        let same = |base: &&Summary| {
            (base.gap_bytes, base.overlap_percent) == (line.gap_bytes, line.overlap_percent)
        };
        let base = bases.iter().rfind(same).map_or(0.0, |base| base.acquired_per_second_median);
        let least = |base: &&Summary| (&base.name, base.gap_bytes) == (&line.name, line.gap_bytes);
        let free = bases.iter().filter(least).min_by_key(|base| base.overlap_percent);
        let free = free.and_then(|base| base.both_per_second_median).filter(|free| *free > 0.0);
        line.kept = free.zip(line.both_per_second_median).map(|(free, both)| both / free);
        line.ratio_to_last = if base > 0.0 { line.acquired_per_second_median / base } else { 0.0 };
    }
    lines
}

/// The JSON file. Further fields may be added; these stay.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) setup: Setup<'a>,
    /// One entry per run, in the order of measuring.
    pub(super) runs: &'a [Run],
    /// One entry per line of the table.
    pub(super) summary: &'a [Summary],
}

/// What was asked for.
#[derive(Serialize)]
pub(super) struct Setup<'a> {
    version: &'static str,
    rules_alone: bool,
    policy: &'a str,
    clients: u32,
    servers: u32,
    stripe_bytes: u64,
    locks_per_client: u64,
    rounds: u32,
    transport: &'static str,
}

impl<'a> Setup<'a> {
    /// Of a plan.
    pub(super) fn of(plan: &'a Plan) -> Setup<'a> {
        Setup {
            version: env!("CARGO_PKG_VERSION"),
            rules_alone: plan.rules,
            policy: &plan.policy,
            clients: plan.clients,
            servers: plan.layout.stripe_count(),
            stripe_bytes: plan.layout.stripe_bytes(),
            locks_per_client: plan.locks,
            rounds: plan.rounds,
            transport: if plan.rules {
                "none"
            } else if plan.tcp {
                "tcp"
            } else {
                "unix"
            },
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::locks::args::tests::plan;

    /// A run of a case at so many locks per second.
    pub(in crate::bench::locks) fn run_of(case: &Case, round: u32, rate: f64) -> Run {
        Run {
            name: case.name(),
            gap_bytes: case.gap_bytes,
            overlap_percent: case.overlap_percent,
            round,
            requests: 8,
            acquired_per_second: rate,
            released_per_second: (case.overlap_percent == 0).then_some(rate * 2.0),
            both_per_second: Some(
                rate * (100.0 - f64::from(u32::try_from(case.overlap_percent / 2).unwrap())) / 150.0,
            ),
            acquired_with_cut_per_second: None,
        }
    }

    #[test]
    fn lines_hold_medians_and_ratios_to_the_last_of_their_gap_and_overlap() {
        let plan = plan(&["--protocol", "one-try", "--kind", "datatype,posix", "--gap", "64"]).unwrap();
        let mut runs = Vec::new();
        for (round, rate) in [(0, 9e6), (1, 1e6), (2, 5e6)] {
            runs.push(run_of(&plan.cases[0], round, rate));
            runs.push(run_of(&plan.cases[1], round, 1e3));
        }
        let lines = summaries(&plan, &runs);
        let first = &lines[0];
        assert_eq!((first.acquired_per_second_median, first.released_per_second_median), (5e6, Some(1e7)));
        assert_eq!((first.ratio_to_last, lines[1].ratio_to_last), (5e3, 1.0));
    }

    #[test]
    fn what_contention_leaves_is_told_by_the_same_work_without_it() {
        let plan =
            plan(&["--protocol", "one-try", "--kind", "datatype", "--gap", "64", "--overlap", "100,0"])
                .unwrap();
        let runs: Vec<Run> = plan.cases.iter().map(|case| run_of(case, 0, 3e6)).collect();
        let kept: Vec<f64> = summaries(&plan, &runs).iter().filter_map(|line| line.kept).collect();
        assert_eq!(kept, [0.5, 1.0]);
    }
}
