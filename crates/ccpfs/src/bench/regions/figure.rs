//! The figure: bandwidths as grouped bars, PIO above and total below.

use super::args::{Contender, Plan};
use super::result::Summary;
use crate::bench::plot::{BAR_PIXELS, Bar, Drawn, Group, LEGEND_PIXELS, PANEL_PIXELS, key, panel};
use crate::bench::report::create_parent;
use crate::bench::speeds::Speeds;
use crate::bench::table::counted;
use crate::failure::{Context, Failure};
use plotters::prelude::*;
use std::path::Path;

/// A group of bars for each number of stripes.
fn groups(plan: &Plan, lines: &[Summary], bar: fn(&Speeds) -> Bar) -> Vec<Group> {
    let of = |stripes: u32, contender: &Contender| {
        let lock = contender.way.name();
        let is =
            |line: &&Summary| line.stripes == stripes && line.policy == contender.policy && line.lock == lock;
        lines.iter().find(is).map(|line| bar(&line.speeds))
    };
    let group = |stripes: &u32| Group {
        label: counted(u64::from(*stripes), "stripe"),
        bars: plan.contenders.iter().map(|contender| of(*stripes, contender)).collect(),
    };
    plan.stripes.iter().map(group).collect()
}

/// Draws the figure as SVG.
pub(crate) fn draw(path: &Path, plan: &Plan, lines: &[Summary]) -> Result<(), Failure> {
    create_parent(path)?;
    let width = plan.stripes.len() * (plan.contenders.len() + 1) * BAR_PIXELS + 110;
    let size = (u32::try_from(width.max(900)).unwrap_or(u32::MAX), LEGEND_PIXELS + 2 * PANEL_PIXELS);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = (|| -> Drawn {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(LEGEND_PIXELS);
        let names: Vec<String> = plan.contenders.iter().map(Contender::name).collect();
        key(&head, &plan.pattern.describe(), &names)?;
        let panels = body.split_evenly((2, 1));
        panel(&panels[0], "PIO MiB/s: until the last call returned", &groups(plan, lines, Speeds::pio))?;
        panel(&panels[1], "total MiB/s: with flush and sync", &groups(plan, lines, Speeds::total))?;
        root.present()
    })();
    drawn.context(|| format!("cannot draw {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::args::tests::plan;
    use crate::bench::regions::result::{summaries, tests::run_of};

    #[test]
    fn the_figure_names_every_contender_and_shows_the_medians() {
        let plan = plan(&["--policy", "seqdlm,basic", "--lock", "pieces"]).unwrap();
        let runs = [run_of(&plan.contenders[0], 0, 1234 << 20), run_of(&plan.contenders[1], 0, 321 << 20)];
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/figure.svg");
        draw(&path, &plan, &summaries(&plan, &runs)).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["seqdlm pieces", "basic pieces", "1 stripe", "1234", "321", "PIO", "total"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
