//! Results of operations of many pieces: what one run measured, and medians over the rounds.

use super::args::{Contender, Plan};
use crate::bench::protocol::{Counters, Report};
use crate::bench::result::{Phase, float, median, ratio, seconds, sum};
use crate::bench::speeds::{Speed, Speeds};
use serde::Serialize;

/// What one run measured. The names are those of the JSON file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Run {
    pub(crate) policy: String,
    /// The name of the way.
    pub(crate) lock: String,
    pub(crate) stripes: u32,
    /// From 0.
    pub(crate) round: u32,
    /// Bytes that all processes wrote; those that several wrote count for each.
    pub(crate) bytes: u64,
    /// Calls of all processes.
    pub(crate) operations: u64,
    /// Pieces of all calls.
    pub(crate) pieces: u64,
    /// From the first process's begin to the last one's end of writing.
    pub(crate) pio_seconds: f64,
    /// The same for flush, sync and close.
    pub(crate) flush_seconds: f64,
    pub(crate) pio_bytes_per_second: f64,
    pub(crate) total_bytes_per_second: f64,
    /// Time that processes waited for locks, as a share of the time that they wrote; 0 to 1.
    pub(crate) lock_wait_share: f64,
    /// Whether all was read back by other processes and is right.
    pub(crate) verified: bool,
    /// Counts of the clients during writing, summed.
    pub(crate) counters: Counters,
}

/// How much a pattern writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    pub(crate) bytes: u64,
    pub(crate) operations: u64,
    pub(crate) pieces: u64,
}

/// Of the reports about writing and flushing.
pub(crate) fn measured(
    contender: &Contender,
    stripes: u32,
    round: u32,
    amount: Amount,
    written: &[Report],
    flushed: &[Report],
) -> Run {
    let (pio, flush) = (Phase::of(written), Phase::of(flushed));
    let speed = |seconds: f64| ratio(float(amount.bytes), seconds);
    let counters = sum(written);
    Run {
        policy: contender.policy.clone(),
        lock: contender.way.name(),
        stripes,
        round,
        bytes: amount.bytes,
        operations: amount.operations,
        pieces: amount.pieces,
        pio_seconds: pio.seconds,
        flush_seconds: flush.seconds,
        pio_bytes_per_second: speed(pio.seconds),
        total_bytes_per_second: speed(pio.seconds + flush.seconds),
        lock_wait_share: ratio(seconds(counters.lock_wait_ns), pio.client_seconds),
        verified: false,
        counters,
    }
}

impl Run {
    /// How fast it was.
    fn speed(&self) -> Speed {
        Speed {
            pio_bytes_per_second: self.pio_bytes_per_second,
            flush_seconds: self.flush_seconds,
            total_bytes_per_second: self.total_bytes_per_second,
        }
    }
}

/// What is known of one contender with so many stripes over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) policy: String,
    pub(crate) lock: String,
    pub(crate) stripes: u32,
    pub(crate) rounds: u32,
    #[serde(flatten)]
    pub(crate) speeds: Speeds,
    /// Of all processes together.
    pub(crate) lock_requests_median: f64,
    pub(crate) revocations_median: f64,
    pub(crate) lock_wait_share_median: f64,
    /// PIO bandwidth over that of the last contender of the list with as many stripes.
    pub(crate) ratio_to_last: Option<f64>,
    pub(crate) verified: bool,
}

fn summarise(runs: &[Run], stripes: u32, contender: &Contender) -> Option<Summary> {
    let (policy, lock) = (&contender.policy, contender.way.name());
    let belongs = |run: &&Run| run.stripes == stripes && run.policy == *policy && run.lock == lock;
    let runs: Vec<&Run> = runs.iter().filter(belongs).collect();
    let all = |value: fn(&Run) -> f64| runs.iter().map(|run| value(run)).collect::<Vec<f64>>();
    let middle = |value: fn(&Run) -> f64| median(all(value));
    (!runs.is_empty()).then(|| Summary {
        policy: policy.clone(),
        lock: lock.clone(),
        stripes,
        rounds: u32::try_from(runs.len()).expect("as many as rounds"),
        speeds: Speeds::of(&runs.iter().map(|run| run.speed()).collect::<Vec<_>>()),
        lock_requests_median: middle(|run| float(run.counters.lock_requests)),
        revocations_median: middle(|run| float(run.counters.revocations)),
        lock_wait_share_median: middle(|run| run.lock_wait_share),
        ratio_to_last: None,
        verified: runs.iter().all(|run| run.verified),
    })
}

/// All lines of the table: stripes by stripes, contenders in their order, with ratios to the last of them.
pub(crate) fn summaries(plan: &Plan, runs: &[Run]) -> Vec<Summary> {
    let mut lines = Vec::new();
    for stripes in &plan.stripes {
        let group = plan.contenders.iter().filter_map(|contender| summarise(runs, *stripes, contender));
        let mut group: Vec<Summary> = group.collect();
        let base = group.last().map(|line| line.speeds.pio_bytes_per_second_median);
        for line in &mut group {
            line.ratio_to_last = base.map(|base| ratio(line.speeds.pio_bytes_per_second_median, base));
        }
        lines.append(&mut group);
    }
    lines
}

/// The JSON file. Further fields may be added; these stay.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    pub(crate) setup: Setup<'a>,
    /// One entry per run, in the order of measuring.
    pub(crate) runs: &'a [Run],
    /// One entry per line of the table.
    pub(crate) summary: &'a [Summary],
}

/// What was asked for.
#[derive(Serialize)]
pub(crate) struct Setup<'a> {
    version: &'static str,
    pattern: &'a super::pattern::Pattern,
    processes: u32,
    servers: u32,
    shards: u32,
    stripe_bytes: u64,
    rounds: u32,
    device_bandwidth_bytes_per_second: Option<u64>,
    transport: &'static str,
    verify: bool,
}

impl<'a> Setup<'a> {
    /// Of a plan.
    pub(crate) fn of(plan: &'a Plan) -> Setup<'a> {
        Setup {
            version: env!("CARGO_PKG_VERSION"),
            pattern: &plan.pattern,
            processes: plan.pattern.ranks(),
            servers: plan.servers,
            shards: plan.shards,
            stripe_bytes: plan.stripe_bytes,
            rounds: plan.rounds,
            device_bandwidth_bytes_per_second: plan.device_bandwidth.map(|limit| limit.0),
            transport: if plan.tcp { "tcp" } else { "unix" },
            verify: plan.verify,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::regions::args::tests::plan;

    /// A run of a contender that reached so many bytes per second.
    pub(crate) fn run_of(contender: &Contender, round: u32, bytes_per_second: u64) -> Run {
        let amount = Amount { bytes: bytes_per_second, operations: 1, pieces: 3 };
        let report = |end_ns| Report { start_ns: 0, end_ns, ..Report::default() };
        measured(contender, 1, round, amount, &[report(1_000_000_000)], &[report(3_000_000_000)])
    }

    #[test]
    fn lines_hold_medians_and_ratios_to_the_last_contender() {
        let plan = plan(&["--policy", "seqdlm,basic", "--lock", "pieces"]).unwrap();
        let mut runs = Vec::new();
        for (round, speed) in [(0, 800), (1, 1000), (2, 900)] {
            runs.push(run_of(&plan.contenders[0], round, speed));
            runs.push(run_of(&plan.contenders[1], round, 300));
        }
        let lines = summaries(&plan, &runs);
        let figures = |line: &Summary| {
            (
                line.speeds.pio_bytes_per_second_median,
                line.speeds.total_bytes_per_second_median,
                line.ratio_to_last,
            )
        };
        assert_eq!(figures(&lines[0]), (900.0, 225.0, Some(3.0)));
        assert_eq!(figures(&lines[1]), (300.0, 75.0, Some(1.0)));
    }
}
