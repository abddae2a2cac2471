//! The tables on the terminal: a column for each door, and its ratio to another.

use super::plan::{Door, Plan};
use super::result::{Figure, Key, PAIRS, Summary, find, keys, ratio_of, sharing_of};
use crate::bench::table::{align, counted, mib, number, widths};
use ccpfs_config::{Bytes, format_bytes};

/// What a figure counts.
fn unit(figure: Figure) -> &'static str {
    match figure {
        Figure::Write => "MiB/s until the last write returned",
        Figure::WriteAndSync => "MiB/s with sync and close",
        Figure::Read => "MiB/s, other processes read what was written",
        Figure::Reread => "MiB/s, they read it once more",
        Figure::Create => "files/s, made and closed",
        Figure::Stat => "files/s, attributes",
        Figure::Open => "files/s, opened and closed",
        Figure::Unlink => "files/s, removed",
    }
}

fn cell(line: Option<&Summary>) -> String {
    match line {
        None => "-".to_owned(),
        Some(line) if line.key.transfer_bytes > 0 => mib(line.median_per_second),
        Some(line) => number(line.median_per_second),
    }
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"))
}

/// The pairs of which both are measured.
fn pairs(plan: &Plan) -> Vec<(Door, Door)> {
    let has = |door: &Door| plan.doors.contains(door);
    PAIRS.into_iter().filter(|(one, other)| has(one) && has(other)).collect()
}

/// Medians and ratios of one figure.
fn block(plan: &Plan, lines: &[Summary], figure: Figure) -> Option<String> {
    let keys = keys(lines, figure);
    let is_data = keys.first()?.transfer_bytes > 0;
    let pairs = pairs(plan);
    let mut headers: Vec<String> = ["pattern", "transfer", "processes"].map(str::to_owned).to_vec();
    headers.extend(plan.doors.iter().map(|door| door.name().to_owned()));
    headers.extend(pairs.iter().map(|(one, other)| format!("{}/{}", one.name(), other.name())));
    let row = |key: &Key| {
        let transfer = if is_data { format_bytes(key.transfer_bytes) } else { "-".to_owned() };
        let mut row = vec![key.pattern.to_owned(), transfer, key.processes.to_string()];
        row.extend(plan.doors.iter().map(|door| cell(find(lines, key, door.name()))));
        row.extend(pairs.iter().map(|pair| ratio(ratio_of(lines, key, *pair))));
        row
    };
    Some(print(&format!("{}: {}", figure.name(), unit(figure)), &headers, keys.iter().map(row).collect()))
}

fn print(title: &str, headers: &[String], rows: Vec<Vec<String>>) -> String {
    let widths = widths(headers, &rows);
    let mut text = format!("{title}\n{}\n", align(headers, &widths));
    for row in rows {
        text.push_str(&align(&row, &widths));
        text.push('\n');
    }
    text
}

/// What processes reach with one file over what they reach with a file each.
fn sharing(plan: &Plan, lines: &[Summary]) -> Option<String> {
    let mut headers: Vec<String> = ["figure", "transfer", "processes"].map(str::to_owned).to_vec();
    headers.extend(plan.doors.iter().map(|door| door.name().to_owned()));
    let row = |key: Key| {
        let mut row =
            vec![key.figure.name().to_owned(), format_bytes(key.transfer_bytes), key.processes.to_string()];
        row.extend(plan.doors.iter().map(|door| ratio(sharing_of(lines, &key, door.name()))));
        row
    };
    let strided = Figure::DATA.into_iter().flat_map(|figure| keys(lines, figure));
    let rows: Vec<_> = strided.filter(|key| key.pattern == "strided").map(row).collect();
    (!rows.is_empty()).then(|| print("strided/nn: one file over a file for each process", &headers, rows))
}

/// All tables.
pub(super) fn render(plan: &Plan, lines: &[Summary]) -> String {
    let mut text = format!(
        "1 server of 1 shard over Unix sockets, {} and {} per process, medians of {}\n",
        Bytes(plan.per_process_bytes),
        counted(plan.names, "name"),
        counted(plan.rounds.into(), "round"),
    );
    let figures = Figure::DATA.into_iter().chain(Figure::NAMES);
    let blocks = figures.filter_map(|figure| block(plan, lines, figure)).chain(sharing(plan, lines));
    for block in blocks {
        text.push('\n');
        text.push_str(&block);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::doors::args::tests::plan;
    use crate::bench::doors::result::{summaries, tests::sample};

    #[test]
    fn a_line_has_the_doors_and_their_ratios() {
        let plan = plan(&["--door", "capi,preload"]).unwrap();
        let mib = f64::from(1 << 20);
        let samples = [
            sample(Door::Capi, "nn", 0, 1000.0 * mib),
            sample(Door::Preload, "nn", 0, 950.0 * mib),
            sample(Door::Capi, "strided", 0, 500.0 * mib),
        ];
        let text = render(&plan, &summaries(&samples));
        let words = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<String>>()
        };
        assert_eq!(words("nn"), ["nn", "1MiB", "4", "1000", "950", "0.95"]);
        assert_eq!(words("strided "), ["strided", "1MiB", "4", "500", "-", "-"]);
        assert_eq!(words("write "), ["write", "1MiB", "4", "0.50", "-"]);
    }
}
