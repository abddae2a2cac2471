//! The table on the terminal.

use super::args::Plan;
use super::result::{Amount, Summary};
use crate::bench::table::{align, counted, widths};
use ccpfs_config::Bytes;

const HEADERS: [&str; 12] = [
    "policy",
    "lock",
    "stripes",
    "PIO MiB/s",
    "min..max",
    "F s",
    "total MiB/s",
    "min..max",
    "lock req",
    "revoked",
    "lock wait",
    "ratio",
];

fn cells(line: &Summary) -> Vec<String> {
    let [pio, pio_spread, flush, total, total_spread] = line.speeds.cells();
    vec![
        line.policy.clone(),
        line.lock.clone(),
        line.stripes.to_string(),
        pio,
        pio_spread,
        flush,
        total,
        total_spread,
        format!("{:.0}", line.lock_requests_median),
        format!("{:.0}", line.revocations_median),
        format!("{:.1}%", line.lock_wait_share_median * 100.0),
        line.ratio_to_last.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
    ]
}

/// The whole table.
pub(crate) fn render(plan: &Plan, amount: Amount, lines: &[Summary]) -> String {
    let limit = plan.device_bandwidth.map(|limit| format!(", device limit {limit}")).unwrap_or_default();
    let network = if plan.tcp { "TCP" } else { "Unix sockets" };
    let rows: Vec<Vec<String>> = lines.iter().map(cells).collect();
    let headers: Vec<String> = HEADERS.iter().map(|header| (*header).to_owned()).collect();
    let widths = widths(&headers, &rows);
    let mut text = format!(
        "{}\n{}, {} of {} over {network}, stripe unit {}, {}{limit}; {} in {} of {}\n\
         PIO: until the last call returned. F: flush, sync and close. Medians over the rounds. Ratio: PIO over that of {}.\n\n{}\n",
        plan.pattern.describe(),
        counted(plan.pattern.ranks().into(), "process").replace("processs", "processes"),
        counted(plan.servers.into(), "server"),
        counted(plan.shards.into(), "shard"),
        Bytes(plan.stripe_bytes),
        counted(plan.rounds.into(), "round"),
        Bytes(amount.bytes),
        counted(amount.operations, "call"),
        counted(amount.pieces, "piece"),
        plan.contenders.last().map(super::args::Contender::name).unwrap_or_default(),
        align(&headers, &widths),
    );
    let mut before = None;
    for (line, row) in lines.iter().zip(&rows) {
        if before.is_some_and(|stripes| stripes != line.stripes) {
            text.push('\n');
        }
        text.push_str(&align(row, &widths));
        text.push('\n');
        before = Some(line.stripes);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::args::tests::plan;
    use crate::bench::regions::result::{summaries, tests::run_of};

    #[test]
    fn the_table_says_what_was_written_and_has_a_line_for_each_contender() {
        let plan = plan(&["--policy", "seqdlm,basic", "--lock", "pieces"]).unwrap();
        let runs = [run_of(&plan.contenders[0], 0, 4 << 20), run_of(&plan.contenders[1], 0, 1 << 20)];
        let amount = Amount { bytes: 1 << 20, operations: 2, pieces: 6 };
        let text = render(&plan, amount, &summaries(&plan, &runs));
        assert!(text.contains("2 x 1 tiles") && text.contains("1MiB in 2 calls of 6 pieces"), "{text}");
        let last: Vec<Vec<&str>> =
            text.lines().skip(5).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(last[0][..4], ["seqdlm", "pieces", "1", "4.00"]);
        assert_eq!((last[0].last(), last[1].last()), (Some(&"4.00"), Some(&"1.00")));
    }
}
