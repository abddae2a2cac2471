//! The table on the terminal, and the figure.

use super::args::{Case, Plan};
use super::result::Summary;
use crate::bench::plot::{BAR_PIXELS, Bar, Drawn, Group, LEGEND_PIXELS, PANEL_PIXELS, key, panel};
use crate::bench::report::create_parent;
use crate::bench::table::{align, counted, widths};
use crate::failure::{Context, Failure};
use plotters::prelude::*;
use std::path::Path;

/// A rate with three digits and its thousands as letters.
fn rate(value: f64) -> String {
    match value {
        value if value >= 1e9 => format!("{:.2} G", value / 1e9),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e3 => format!("{:.1} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

fn cells(line: &Summary) -> Vec<String> {
    let some = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), rate);
    vec![
        line.name.clone(),
        line.gap_bytes.to_string(),
        format!("{}%", line.overlap_percent),
        format!("{:.0}", line.requests_median),
        rate(line.acquired_per_second_median),
        format!("{}..{}", rate(line.acquired_per_second_min), rate(line.acquired_per_second_max)),
        some(line.released_per_second_median),
        some(line.both_per_second_median),
        line.kept.map_or_else(|| "-".to_owned(), |kept| format!("{kept:.2}")),
        some(line.acquired_with_cut_per_second_median),
        format!("{:.2}", line.ratio_to_last),
    ]
}

/// The whole table.
pub(super) fn render(plan: &Plan, lines: &[Summary]) -> String {
    let headers = [
        "requests by",
        "gap",
        "overlap",
        "requests",
        "acquire/s",
        "min..max",
        "release/s",
        "both/s",
        "kept",
        "with cut",
        "ratio",
    ];
    let headers: Vec<String> = headers.map(str::to_owned).to_vec();
    let rows: Vec<Vec<String>> = lines.iter().map(cells).collect();
    let widths = widths(&headers, &rows);
    let place = if plan.rules {
        "the rules alone, locks per second and server; 'with cut': with the clients' part".to_owned()
    } else {
        format!("over {}, locks per second of all servers", if plan.tcp { "TCP" } else { "Unix sockets" })
    };
    let mut text = format!(
        "{} and {} ({}), {} locks of one byte each; {place}\nMedians of {}. Ratio: acquire rate over that of the last line of the group.\n\n{}\n",
        counted(plan.clients.into(), "client"),
        counted(plan.layout.stripe_count().into(), "server"),
        plan.policy,
        plan.locks,
        counted(plan.rounds.into(), "round"),
        align(&headers, &widths),
    );
    let mut before = None;
    for (line, row) in lines.iter().zip(&rows) {
        let group = (line.gap_bytes, line.overlap_percent);
        if before.is_some_and(|before| before != group) {
            text.push('\n');
        }
        text.push_str(&align(row, &widths));
        text.push('\n');
        before = Some(group);
    }
    text
}

/// Bars of the logarithms: rates are orders of magnitude apart.
fn bar(line: &Summary) -> Bar {
    let log = |value: f64| value.max(1.0).log10();
    Bar {
        middle: log(line.acquired_per_second_median),
        least: log(line.acquired_per_second_min),
        most: log(line.acquired_per_second_max),
    }
}

/// Names of the bars, in the order of the cases.
fn names(plan: &Plan) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in plan.cases.iter().map(Case::name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Draws the figure as SVG.
pub(super) fn draw(path: &Path, plan: &Plan, lines: &[Summary]) -> Result<(), Failure> {
    create_parent(path)?;
    let names = names(plan);
    let mut groups: Vec<Group> = Vec::new();
    for line in lines {
        let label = format!("every {} B, {}% shared", line.gap_bytes, line.overlap_percent);
        let at = groups.iter().position(|group| group.label == label).unwrap_or_else(|| {
            groups.push(Group { label, bars: vec![None; names.len()] });
            groups.len() - 1
        });
        if let Some(place) = names.iter().position(|name| *name == line.name) {
            groups[at].bars[place] = Some(bar(line));
        }
    }
    let width = (groups.len() * (names.len() + 1) * BAR_PIXELS + 110).max(1200);
    let size = (u32::try_from(width).unwrap_or(u32::MAX), LEGEND_PIXELS + PANEL_PIXELS);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = (|| -> Drawn {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(LEGEND_PIXELS);
        key(&head, &format!("ccPFS: locks acquired, {}", counted(plan.clients.into(), "client")), &names)?;
        panel(&body, "powers of ten of locks per second", &groups)?;
        root.present()
    })();
    drawn.context(|| format!("cannot draw {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::locks::args::tests::plan;
    use crate::bench::locks::result::{summaries, tests::run_of};

    #[test]
    fn table_and_figure_have_a_line_for_each_kind_and_protocol() {
        let plan = plan(&["--protocol", "one-try", "--kind", "datatype,posix", "--overlap", "0,50"]).unwrap();
        let runs: Vec<_> = plan.cases.iter().map(|case| run_of(case, 0, 2.5e6)).collect();
        let lines = summaries(&plan, &runs);
        let text = render(&plan, &lines);
        for part in ["4 clients and 2 servers", "datatype-one-try", "50%", "2.50 M", "5.00 M"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/figure.svg");
        draw(&path, &plan, &lines).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        assert!(svg.contains("posix-one-try") && svg.contains("every 4096 B, 50% shared"));
    }
}
