//! The figure: bandwidths as grouped bars, PIO above and total below.

use super::plan::Plan;
use super::report::create_parent;
use super::result::Summary;
use super::speeds::Speeds;
use super::table::{counted, limit};
use crate::failure::{Context, Failure};
use ccpfs_config::format_bytes;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::path::Path;

/// Colours that are told apart with any kind of sight (Okabe and Ito), also in grey.
pub(crate) const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
];
const FONT: &str = "DejaVu Sans, Arial, sans-serif";
pub(crate) const BAR_PIXELS: usize = 46;
pub(crate) const PANEL_PIXELS: u32 = 330;
pub(crate) const LEGEND_PIXELS: u32 = 64;

/// A part of a figure.
pub(crate) type Panel<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// One bar: height, and how far the rounds spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) middle: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

/// Bars of one case, one per contender; `None` where nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) label: String,
    pub(crate) bars: Vec<Option<Bar>>,
}

/// What a panel shows of a line of the table.
type Figure = fn(&Speeds) -> Bar;

fn label(line: &Summary, plan: &Plan) -> String {
    let mode = line.mode.map(|mode| format!(" {mode}")).unwrap_or_default();
    let stripes = match (plan.stripes.len(), line.stripes) {
        (1, _) => String::new(),
        (_, 1) => ", 1 stripe".to_owned(),
        (_, count) => format!(", {count} stripes"),
    };
    format!("{}{mode}, {}{stripes}", line.pattern, format_bytes(line.transfer_bytes))
}

/// The lines of the table as groups of bars.
fn groups(plan: &Plan, lines: &[Summary], figure: Figure) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let names: Vec<String> = plan.contenders.iter().map(super::plan::Contender::name).collect();
    for line in lines {
        let label = label(line, plan);
        let at = groups.iter().position(|group| group.label == label).unwrap_or_else(|| {
            groups.push(Group { label, bars: vec![None; names.len()] });
            groups.len() - 1
        });
        if let Some(place) = names.iter().position(|name| *name == line.policy) {
            groups[at].bars[place] = Some(figure(&line.speeds));
        }
    }
    groups
}

/// Draws the figure as SVG.
pub(crate) fn draw(path: &Path, plan: &Plan, lines: &[Summary]) -> Result<(), Failure> {
    create_parent(path)?;
    let upper = groups(plan, lines, Speeds::pio);
    // Memory is never flushed: beside the others it would only set the scale.
    let flushed: Vec<Summary> = lines.iter().filter(|line| line.policy != "memcpy").cloned().collect();
    let lower = groups(plan, &flushed, Speeds::total);
    let widest = upper.iter().map(|group| group.label.len() * 8).max().unwrap_or(0);
    let group_pixels = (plan.contenders.len() * BAR_PIXELS + BAR_PIXELS).max(widest + 16);
    let width = u32::try_from((upper.len() * group_pixels + 110).max(760)).unwrap_or(u32::MAX);
    let size = (width, LEGEND_PIXELS + 2 * PANEL_PIXELS);
    let root = SVGBackend::new(path, size).into_drawing_area();
    let drawn = (|| {
        root.fill(&WHITE)?;
        let (head, body) = root.split_vertically(LEGEND_PIXELS);
        legend(&head, plan)?;
        let panels = body.split_evenly((2, 1));
        panel(&panels[0], "PIO MiB/s: until the last write returned", &upper)?;
        panel(&panels[1], "total MiB/s: with flush and sync", &lower)?;
        root.present()
    })();
    drawn.context(|| format!("cannot draw {}", path.display()))
}

/// Whether drawing worked.
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A style of black text.
pub(crate) fn text(pixels: u32, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    (FONT, pixels).into_font().color(&BLACK).pos(Pos::new(horizontal, vertical))
}

/// A number of pixels.
pub(crate) fn pixels(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

/// The title, and which colour is whose.
fn legend(area: &Panel<'_>, plan: &Plan) -> Drawn {
    let limit = limit(plan);
    let counts = [(plan.clients, "client"), (plan.servers, "server"), (plan.rounds, "round")]
        .map(|(count, noun)| counted(u64::from(count), noun));
    let title = format!("ccPFS: {}, {}{limit}; medians of {}", counts[0], counts[1], counts[2]);
    let names: Vec<String> = plan.contenders.iter().map(super::plan::Contender::name).collect();
    key(area, &title, &names)
}

/// A title, and which colour is whose.
pub(crate) fn key(area: &Panel<'_>, title: &str, names: &[String]) -> Drawn {
    area.draw(&Text::new(title.to_owned(), (16, 10), text(16, HPos::Left, VPos::Top)))?;
    let mut left = 16;
    for (place, name) in names.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        area.draw(&Rectangle::new([(left, 38), (left + 14, 52)], colour.filled()))?;
        area.draw(&Text::new(name.clone(), (left + 20, 45), text(14, HPos::Left, VPos::Center)))?;
        left += 44 + pixels(name.len()) * 8;
    }
    Ok(())
}

/// Groups of bars over one axis.
pub(crate) fn panel(area: &Panel<'_>, title: &str, groups: &[Group]) -> Drawn {
    let bars = groups.iter().flat_map(|group| group.bars.iter().flatten());
    let highest = bars.map(|bar| bar.most).fold(1.0, f64::max);
    let count = f64::from(pixels(groups.len().max(1)));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .caption(title, (FONT, 15))
        .y_label_area_size(64)
        .x_label_area_size(28)
        .build_cartesian_2d(0.0..count, 0.0..highest * 1.15)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_label_style((FONT, 12))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .draw()?;
    for (number, group) in groups.iter().enumerate() {
        draw_group(&mut chart, f64::from(pixels(number)), group)?;
        let (x, y) = chart.plotting_area().map_coordinate(&(f64::from(pixels(number)) + 0.5, 0.0));
        let (left, top) = area.get_base_pixel();
        let place = (x - left, y - top + 8);
        area.draw(&Text::new(group.label.clone(), place, text(13, HPos::Center, VPos::Top)))?;
    }
    Ok(())
}

/// Bars side by side, with a tenth of the group free at both ends; each with its value, and its spread as a thin line.
fn draw_group(chart: &mut Chart<'_, '_>, left: f64, group: &Group) -> Drawn {
    let width = 0.8 / f64::from(pixels(group.bars.len().max(1)));
    for (place, bar) in group.bars.iter().enumerate() {
        let Some(bar) = bar else { continue };
        let start = left + 0.1 + width * f64::from(pixels(place));
        let end = start + width * 0.9;
        let middle = f64::midpoint(start, end);
        let colour = COLOURS[place % COLOURS.len()];
        chart.draw_series([Rectangle::new([(start, 0.0), (end, bar.middle)], colour.filled())])?;
        chart.draw_series([PathElement::new(vec![(middle, bar.least), (middle, bar.most)], BLACK)])?;
        let style = text(11, HPos::Center, VPos::Bottom);
        let value = format!("{:.0}", bar.middle);
        chart.draw_series([
            EmptyElement::at((middle, bar.most.max(bar.middle))) + Text::new(value, (0, -3), style)
        ])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::tests::plan;
    use crate::bench::plan::{Contender, Workload};
    use crate::bench::result::{summaries, tests::case, tests::run};

    #[test]
    fn the_figure_names_every_policy_and_case_and_shows_the_medians() {
        let plan = plan(&["--policy", "seqdlm,lustre,memcpy"]).unwrap();
        let contenders = ["seqdlm", "lustre", "memcpy"].map(|name| Contender::named(name).unwrap());
        let mut runs = Vec::new();
        for (policy, speed) in [("seqdlm", 1234.0), ("lustre", 321.0), ("memcpy", 9876.0)] {
            runs.push(run(policy, Workload::Strided, 0, speed));
            runs.push(run(policy, Workload::Nn, 0, speed));
        }
        let lines = summaries(&runs, &[case(Workload::Nn), case(Workload::Strided)], &contenders);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/figure.svg");
        draw(&path, &plan, &lines).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for text in ["seqdlm", "lustre", "strided, 1MiB", "nn, 1MiB", "1234", "321", "9876", "PIO", "total"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("4938"), "memory has no total");
    }

    #[test]
    fn what_was_not_measured_leaves_a_gap() {
        let plan = plan(&["--policy", "seqdlm,lustre"]).unwrap();
        let contenders = ["seqdlm", "lustre"].map(|name| Contender::named(name).unwrap());
        let runs = [run("lustre", Workload::Strided, 0, 100.0)];
        let groups = groups(&plan, &summaries(&runs, &[case(Workload::Strided)], &contenders), Speeds::pio);
        assert_eq!(groups.len(), 1);
        assert!(groups[0].bars[0].is_none() && groups[0].bars[1].is_some());
    }
}
