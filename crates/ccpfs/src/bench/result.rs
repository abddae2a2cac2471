//! Results: what one run measured, and medians over the rounds.

use super::plan::{Case, Contender, Mode};
use super::protocol::{Counters, Report, WrongPart};
use super::speeds::{Speed, Speeds};
use serde::Serialize;

/// What one run measured. The names are those of the JSON file.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Run {
    pub(crate) policy: String,
    /// Name of the workload.
    pub(crate) pattern: String,
    /// Mode of write locks, when it was forced.
    pub(crate) mode: Option<&'static str>,
    pub(crate) transfer_bytes: u64,
    pub(crate) clients: u32,
    pub(crate) servers: u32,
    pub(crate) stripes: u32,
    /// From 0.
    pub(crate) round: u32,
    /// Bytes that all clients wrote.
    pub(crate) bytes: u64,
    /// Write calls of all clients.
    pub(crate) writes: u64,
    /// From the first client's begin to the last client's end of writing.
    pub(crate) pio_seconds: f64,
    /// The same for flush, sync and close.
    pub(crate) flush_seconds: f64,
    pub(crate) pio_bytes_per_second: f64,
    pub(crate) total_bytes_per_second: f64,
    pub(crate) lock_requests: u64,
    pub(crate) revocations: u64,
    pub(crate) early_grants: u64,
    pub(crate) early_revocations: u64,
    /// Sum over the clients, during writing.
    pub(crate) lock_wait_seconds: f64,
    /// Sum over the clients of the time that each wrote.
    pub(crate) client_pio_seconds: f64,
    /// Whether every byte was read back from another process and is right. False without `--verify`.
    pub(crate) verified: bool,
    /// From the first reader's begin to the last one's end; absent without `--verify`.
    pub(crate) verify_seconds: Option<f64>,
    /// Bytes that are wrong; absent without `--verify`.
    pub(crate) wrong_bytes: Option<u64>,
    /// Further counts of the clients during writing.
    pub(crate) counters: Counters,
}

/// Times of one phase over all clients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Phase {
    /// From the first begin to the last end.
    pub(crate) seconds: f64,
    /// Sum of what each client took.
    pub(crate) client_seconds: f64,
}

/// Nanoseconds as seconds.
#[expect(clippy::cast_precision_loss, reason = "53 bits of nanoseconds are 104 days")]
pub(crate) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// An amount as a floating-point number.
#[expect(clippy::cast_precision_loss, reason = "for ratios that are printed with three digits")]
pub(crate) fn float(amount: u64) -> f64 {
    amount as f64
}

impl Phase {
    /// Of the clients' reports about one step.
    pub(crate) fn of(reports: &[Report]) -> Phase {
        let start = reports.iter().map(|report| report.start_ns).min().unwrap_or(0);
        let end = reports.iter().map(|report| report.end_ns).max().unwrap_or(0);
        let sum = reports.iter().map(|report| report.end_ns - report.start_ns).sum();
        Phase { seconds: seconds(end - start), client_seconds: seconds(sum) }
    }
}

/// Sums over all clients.
pub(crate) fn sum(reports: &[Report]) -> Counters {
    reports.iter().fold(Counters::default(), |sum, report| sum.plus(&report.counters))
}

/// What is known of one contender in one case over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Summary {
    pub(crate) policy: String,
    pub(crate) pattern: String,
    pub(crate) mode: Option<&'static str>,
    pub(crate) transfer_bytes: u64,
    pub(crate) stripes: u32,
    pub(crate) rounds: u32,
    #[serde(flatten)]
    pub(crate) speeds: Speeds,
    pub(crate) writes_per_second_median: f64,
    pub(crate) lock_requests_median: f64,
    pub(crate) revocations_median: f64,
    pub(crate) early_grants_median: f64,
    pub(crate) early_revocations_median: f64,
    /// Time that clients waited for locks, as a share of the time that they wrote; 0 to 1.
    pub(crate) lock_wait_share_median: f64,
    /// PIO bandwidth over that of the last policy of the list; absent when that was not measured.
    pub(crate) ratio_to_last: Option<f64>,
    /// Whether all rounds were verified.
    pub(crate) verified: bool,
}

/// The middle of some values; the mean of both when there are two middles.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

/// A quotient, 0 if there is nothing to divide by.
pub(crate) fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
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

    fn belongs_to(&self, case: &Case, policy: &str) -> bool {
        self.policy == policy
            && self.pattern == case.workload.name()
            && self.mode == case.mode.map(Mode::name)
            && self.stripes == case.stripes
            && self.transfer_bytes == case.transfer_bytes
    }
}

/// One line of the table: a contender in a case. `None` when no round was measured.
fn summarise(runs: &[Run], case: &Case, policy: &str) -> Option<Summary> {
    let runs: Vec<&Run> = runs.iter().filter(|run| run.belongs_to(case, policy)).collect();
    let all = |value: fn(&Run) -> f64| runs.iter().map(|run| value(run)).collect::<Vec<f64>>();
    let middle = |value: fn(&Run) -> f64| median(all(value));
    let first = runs.first()?;
    Some(Summary {
        policy: first.policy.clone(),
        pattern: first.pattern.clone(),
        mode: first.mode,
        transfer_bytes: first.transfer_bytes,
        stripes: first.stripes,
        rounds: u32::try_from(runs.len()).expect("as many as rounds"),
        speeds: Speeds::of(&runs.iter().map(|run| run.speed()).collect::<Vec<_>>()),
        writes_per_second_median: middle(|run| ratio(float(run.writes), run.pio_seconds)),
        lock_requests_median: middle(|run| float(run.lock_requests)),
        revocations_median: middle(|run| float(run.revocations)),
        early_grants_median: middle(|run| float(run.early_grants)),
        early_revocations_median: middle(|run| float(run.early_revocations)),
        lock_wait_share_median: middle(|run| ratio(run.lock_wait_seconds, run.client_pio_seconds)),
        ratio_to_last: None,
        verified: runs.iter().all(|run| run.verified),
    })
}

/// All lines of the table, case by case, contenders in their order, with ratios to the last of them.
pub(crate) fn summaries(runs: &[Run], cases: &[Case], contenders: &[Contender]) -> Vec<Summary> {
    let mut lines = Vec::new();
    for case in cases {
        let of_case = contenders.iter().filter_map(|contender| summarise(runs, case, &contender.name()));
        let mut of_case: Vec<Summary> = of_case.collect();
        let last = contenders.last().map(Contender::name);
        let base = of_case.iter().find(|line| Some(&line.policy) == last.as_ref());
        let base = base.map(|line| line.speeds.pio_bytes_per_second_median);
        for line in &mut of_case {
            line.ratio_to_last = base.map(|base| ratio(line.speeds.pio_bytes_per_second_median, base));
        }
        lines.append(&mut of_case);
    }
    lines
}

/// A part of a file with wrong bytes, for a person.
pub(crate) fn describe_wrong(part: &WrongPart) -> String {
    let (file, offset, rank) = (part.file.display(), part.offset, part.expected_rank);
    format!("{file} at byte {offset}: expected data of rank {rank}, found {}", part.found)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::plan::Workload;

    /// A run with the given figures; everything else is made up.
    pub(crate) fn run(policy: &str, workload: Workload, round: u32, mib_per_second: f64) -> Run {
        let bytes = 64 << 20;
        let pio_seconds = 64.0 / mib_per_second;
        Run {
            policy: policy.to_owned(),
            pattern: workload.name().to_owned(),
            mode: None,
            transfer_bytes: 1 << 20,
            clients: 4,
            servers: 1,
            stripes: 1,
            round,
            bytes,
            writes: 64,
            pio_seconds,
            flush_seconds: pio_seconds,
            pio_bytes_per_second: float(bytes) / pio_seconds,
            total_bytes_per_second: float(bytes) / pio_seconds / 2.0,
            lock_requests: 12,
            revocations: 3,
            early_grants: 2,
            early_revocations: 1,
            lock_wait_seconds: pio_seconds,
            client_pio_seconds: pio_seconds * 4.0,
            verified: true,
            verify_seconds: Some(pio_seconds),
            wrong_bytes: Some(0),
            counters: Counters::default(),
        }
    }

    /// A case of runs made by [`run`].
    pub(crate) fn case(workload: Workload) -> Case {
        Case { workload, mode: None, stripes: 1, transfer_bytes: 1 << 20 }
    }

    #[test]
    fn the_median_is_the_middle_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(vec![4.0, 1.0]).to_bits(), 2.5_f64.to_bits());
        assert_eq!(median(vec![]).to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn phases_last_from_the_first_begin_to_the_last_end() {
        let report = |start_ns, end_ns| Report { start_ns, end_ns, ..Report::default() };
        let phase = Phase::of(&[report(2_000_000_000, 5_000_000_000), report(1_000_000_000, 3_000_000_000)]);
        assert!((phase.seconds - 4.0).abs() < 1e-9 && (phase.client_seconds - 5.0).abs() < 1e-9);
    }

    #[test]
    fn summaries_hold_medians_and_ratios_to_the_last_policy() {
        let mut runs = Vec::new();
        for (round, speed) in [(0, 800.0), (1, 1000.0), (2, 900.0)] {
            runs.push(run("seqdlm", Workload::Strided, round, speed));
            runs.push(run("lustre", Workload::Strided, round, 100.0));
        }
        let contenders = ["seqdlm", "lustre"].map(|name| Contender::named(name).unwrap());
        let cases = [case(Workload::Strided), case(Workload::Nn)];
        let lines = summaries(&runs, &cases, &contenders);
        assert_eq!(lines.len(), 2, "what was not measured has no line");
        assert!((lines[0].speeds.pio_bytes_per_second_median - 900.0 * 1_048_576.0).abs() < 1.0);
        assert!((lines[0].ratio_to_last.unwrap() - 9.0).abs() < 1e-6);
        assert!((lines[1].ratio_to_last.unwrap() - 1.0).abs() < 1e-6);
        assert!((lines[0].lock_wait_share_median - 0.25).abs() < 1e-6);
        assert!(lines[0].verified && lines[0].rounds == 3);
    }

    #[test]
    fn wrong_parts_are_told_with_file_offset_and_ranks() {
        let part = WrongPart {
            file: "/ns/f".into(),
            offset: 7,
            expected_rank: 1,
            found: "data of rank 2".to_owned(),
        };
        assert_eq!(describe_wrong(&part), "/ns/f at byte 7: expected data of rank 1, found data of rank 2");
    }
}
