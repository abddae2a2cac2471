//! The figure: a panel for each way to work, in it the transfers, in them the doors.

use super::plan::Plan;
use super::result::{Figure, Key, Summary, find, keys};
use crate::bench::plot::{BAR_PIXELS, Bar, Drawn, Group, LEGEND_PIXELS, PANEL_PIXELS, key, panel};
use crate::bench::report::create_parent;
use crate::bench::table::counted;
use crate::failure::{Context, Failure};
use ccpfs_config::format_bytes;
use plotters::prelude::*;
use std::path::Path;

/// Bytes of data are shown as MiB, operations in thousands.
const MIB: f64 = 1_048_576.0;
const THOUSAND: f64 = 1000.0;

/// Groups of bars under a title.
type Titled = (String, Vec<Group>);

fn bars(plan: &Plan, lines: &[Summary], key: &Key, scale: f64) -> Vec<Option<Bar>> {
    let bar = |line: &Summary| Bar {
        middle: line.median_per_second / scale,
        least: line.min_per_second / scale,
        most: line.max_per_second / scale,
    };
    plan.doors.iter().map(|door| find(lines, key, door.name()).map(bar)).collect()
}

/// Panels of data: what processes do, and how many of them.
fn data_panels(plan: &Plan, lines: &[Summary]) -> Vec<Titled> {
    let mut panels: Vec<Titled> = Vec::new();
    for figure in [Figure::Write, Figure::Read] {
        for key in keys(lines, figure) {
            let processes = if key.processes == 1 {
                "1 process".to_owned()
            } else {
                format!("{} processes", key.processes)
            };
            let title = format!("{} MiB/s: {}, {processes}", figure.name(), key.pattern);
            let group = Group { label: format_bytes(key.transfer_bytes), bars: bars(plan, lines, &key, MIB) };
            match panels.iter_mut().find(|(name, _)| *name == title) {
                Some((_, groups)) => groups.push(group),
                None => panels.push((title, vec![group])),
            }
        }
    }
    panels
}

/// The panel of names.
fn names_panel(plan: &Plan, lines: &[Summary]) -> Option<Titled> {
    let keys = Figure::NAMES.into_iter().flat_map(|figure| keys(lines, figure));
    let group = |key: Key| Group {
        label: format!("{} x{}", key.figure.name(), key.processes),
        bars: bars(plan, lines, &key, THOUSAND),
    };
    let groups: Vec<Group> = keys.map(group).collect();
    (!groups.is_empty()).then(|| ("names, thousands per second".to_owned(), groups))
}

/// Draws the figure as SVG.
pub(super) fn draw(path: &Path, plan: &Plan, lines: &[Summary]) -> Result<(), Failure> {
    create_parent(path)?;
    let panels: Vec<Titled> = data_panels(plan, lines).into_iter().chain(names_panel(plan, lines)).collect();
    let most = panels.iter().map(|(_, groups)| groups.len()).max().unwrap_or(1);
    let width = most * (plan.doors.len() + 1) * BAR_PIXELS + 110;
    let count = u32::try_from(panels.len().max(1)).unwrap_or(u32::MAX);
    let size = (u32::try_from(width.max(760)).unwrap_or(u32::MAX), LEGEND_PIXELS + count * PANEL_PIXELS);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = (|| -> Drawn {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(LEGEND_PIXELS);
        let names: Vec<String> = plan.doors.iter().map(|door| door.name().to_owned()).collect();
        let title = format!("ccPFS: the doors; medians of {}", counted(plan.rounds.into(), "round"));
        key(&head, &title, &names)?;
        for (area, (title, groups)) in body.split_evenly((panels.len().max(1), 1)).iter().zip(&panels) {
            panel(area, title, groups)?;
        }
        root.present()
    })();
    drawn.context(|| format!("cannot draw {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::doors::args::tests::plan;
    use crate::bench::doors::plan::Door;
    use crate::bench::doors::result::{summaries, tests::sample};

    #[test]
    fn the_figure_names_every_door_and_way_and_shows_the_medians() {
        let plan = plan(&["--door", "capi,plain"]).unwrap();
        let samples = [
            sample(Door::Capi, "nn", 0, 1234.0 * MIB),
            sample(Door::Plain, "nn", 0, 321.0 * MIB),
            sample(Door::Capi, "strided", 0, 777.0 * MIB),
        ];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/figure.svg");
        draw(&path, &plan, &summaries(&samples)).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["capi", "plain", "1MiB", "nn, 4 processes", "strided, 4 processes", "1234", "321", "777"]
        {
            assert!(svg.contains(text), "{text}");
        }
    }
}
