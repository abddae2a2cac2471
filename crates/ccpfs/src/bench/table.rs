//! The table on the terminal, in the manner of IOR's.

use super::plan::{Contender, Plan, Workload};
use super::result::Summary;
use ccpfs_config::{Bytes, format_bytes};

const HEADERS: [&str; 15] = [
    "policy",
    "pattern",
    "transfer",
    "stripes",
    "PIO MiB/s",
    "min..max",
    "F s",
    "total MiB/s",
    "min..max",
    "lock req",
    "revoked",
    "early gr",
    "early rev",
    "lock wait",
    "ratio",
];

/// A number with as many digits as it needs to be read.
pub(crate) fn number(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// Bytes per second as MiB/s.
pub(crate) fn mib(bytes_per_second: f64) -> String {
    number(bytes_per_second / f64::from(1 << 20))
}

/// The cells of one line.
fn cells(plan: &Plan, line: &Summary) -> Vec<String> {
    let mode = line.mode.map(|mode| format!(" {mode}")).unwrap_or_default();
    let [pio, pio_spread, flush, total, total_spread] = line.speeds.cells();
    let mut cells = vec![
        line.policy.clone(),
        format!("{}{mode}", line.pattern),
        format_bytes(line.transfer_bytes),
        line.stripes.to_string(),
        pio,
        pio_spread,
        flush,
        total,
        total_spread,
        format!("{:.0}", line.lock_requests_median),
        format!("{:.0}", line.revocations_median),
        format!("{:.0}", line.early_grants_median),
        format!("{:.0}", line.early_revocations_median),
        format!("{:.1}%", line.lock_wait_share_median * 100.0),
        line.ratio_to_last.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
    ];
    if shows_writes(plan) {
        cells.push(format!("{:.0}", line.writes_per_second_median));
    }
    cells
}

/// The micro-benchmarks count writes.
fn shows_writes(plan: &Plan) -> bool {
    plan.workloads.iter().any(|workload| match workload {
        Workload::Nn | Workload::Segmented | Workload::Strided | Workload::Overlap => false,
        Workload::ConflictSequential
        | Workload::ConflictParallel
        | Workload::MixedReadWrite
        | Workload::TwoStripe => true,
    })
}

/// "1 server", "2 servers".
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// The limit of the servers' devices, for headings.
pub(crate) fn limit(plan: &Plan) -> String {
    match plan.device_bandwidth {
        None => String::new(),
        Some(limit) if plan.contenders.contains(&Contender::Local) => {
            format!(", device limit {limit} (not for local)")
        }
        Some(limit) => format!(", device limit {limit}"),
    }
}

/// What the figures are of.
fn heading(plan: &Plan) -> String {
    let limit = limit(plan);
    let network = if plan.tcp { "TCP" } else { "Unix sockets" };
    format!(
        "{}, {} of {} over {network}, {} per client, stripe unit {}, {}{limit}\n\
         PIO: until the last write returned. F: flush, sync and close. Medians over the rounds. Ratio: PIO over that of {}.",
        counted(plan.clients.into(), "client"),
        counted(plan.servers.into(), "server"),
        counted(plan.shards.into(), "shard"),
        Bytes(plan.per_client_bytes),
        Bytes(plan.stripe_bytes),
        counted(plan.rounds.into(), "round"),
        plan.contenders.last().map(Contender::name).unwrap_or_default()
    )
}

/// The whole table.
pub(crate) fn render(plan: &Plan, lines: &[Summary]) -> String {
    let mut headers: Vec<String> = HEADERS.iter().map(|header| (*header).to_owned()).collect();
    if shows_writes(plan) {
        headers.push("writes/s".to_owned());
    }
    let rows: Vec<Vec<String>> = lines.iter().map(|line| cells(plan, line)).collect();
    let widths = widths(&headers, &rows);
    let mut text = format!("{}\n\n{}\n", heading(plan), align(&headers, &widths));
    let mut before: Option<&Summary> = None;
    for (line, row) in lines.iter().zip(&rows) {
        if before.is_some_and(|before| !same_case(before, line)) {
            text.push('\n');
        }
        text.push_str(&align(row, &widths));
        text.push('\n');
        before = Some(line);
    }
    text
}

fn same_case(a: &Summary, b: &Summary) -> bool {
    (&a.pattern, a.mode, a.transfer_bytes, a.stripes) == (&b.pattern, b.mode, b.transfer_bytes, b.stripes)
}

/// The widest cell of each column.
pub(crate) fn widths(headers: &[String], rows: &[Vec<String>]) -> Vec<usize> {
    let width = |at: usize| rows.iter().map(|row| row[at].len()).max().unwrap_or(0);
    headers.iter().enumerate().map(|(at, header)| header.len().max(width(at))).collect()
}

/// Texts to the left, numbers to the right.
pub(crate) fn align(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
        if at < 2 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::plan;
    use crate::bench::result::{summaries, tests::case, tests::run};

    #[test]
    fn the_table_has_a_line_per_policy_and_a_gap_between_cases() {
        let plan = plan(&["--policy", "seqdlm,lustre", "--servers", "2"]).unwrap();
        let contenders = ["seqdlm", "lustre"].map(|name| Contender::named(name).unwrap());
        let mut runs = Vec::new();
        for (policy, speed) in [("seqdlm", 1000.0), ("lustre", 40.0)] {
            runs.push(run(policy, Workload::Nn, 0, speed));
            runs.push(run(policy, Workload::Strided, 0, speed));
        }
        let cases = [case(Workload::Nn), case(Workload::Strided)];
        let text = render(&plan, &summaries(&runs, &cases, &contenders));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("4 clients, 2 servers of 1 shard over Unix sockets"), "{text}");
        assert!(lines[3].starts_with("policy") && lines[6].is_empty(), "{text}");
        let words: Vec<&str> = lines[4].split_whitespace().collect();
        assert_eq!(words[..5], ["seqdlm", "nn", "1MiB", "1", "1000"]);
        assert_eq!(words.last(), Some(&"25.00"));
        assert!(lines[8].ends_with("1.00"), "{text}");
    }

    #[test]
    fn numbers_have_as_many_digits_as_are_read() {
        assert_eq!([0.5, 12.34, 1234.5].map(number), ["0.50", "12.3", "1234"]);
        assert_eq!(
            (counted(1, "client"), counted(2, "client")),
            ("1 client".to_owned(), "2 clients".to_owned())
        );
    }
}
