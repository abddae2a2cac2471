//! Plots as SVG: lines, bars and stacked bars over categories, to stand in a page or in a file of their own.

use crate::figures::result::{Plot, PlotKind, Series, number};
use std::fmt::Write as _;

/// Colours that are told apart with any kind of sight (Okabe and Ito).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#777777", "#b8a800"];
/// Marks of lines, so that they are told apart without colours.
const DASHES: [&str; 4] = ["", "6 3", "2 3", "8 3 2 3"];
const WIDTH: f64 = 720.0;
const PLOT_HEIGHT: f64 = 260.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 16.0;
const LEGEND_LINE: f64 = 20.0;
const STYLE: &str = "text{font:12px 'DejaVu Sans',Arial,sans-serif;fill:#222}.t{font-size:14px;font-weight:bold}.v{font-size:10px}\
.g{stroke:#ddd;stroke-width:1}.a{stroke:#555;stroke-width:1}";

/// Where values are on the y axis.
struct Scale {
    least: f64,
    most: f64,
    logarithmic: bool,
    top: f64,
}

impl Scale {
    fn of(plot: &Plot, top: f64) -> Scale {
        let sums: Vec<f64> = match plot.kind {
            PlotKind::Stacked => (0..plot.categories.len())
                .map(|at| plot.series.iter().filter_map(|s| s.values[at]).sum())
                .collect(),
            PlotKind::Lines | PlotKind::Bars => {
                plot.series.iter().flat_map(|s| s.values.iter().flatten().copied()).collect()
            }
        };
        let most = sums.iter().copied().fold(0.0, f64::max);
        let least = sums.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
        if plot.logarithmic && most > 0.0 {
            let (low, high) = (least.log10().floor(), (most * 1.05).log10());
            return Scale { least: low, most: high.max(low + 1.0), logarithmic: true, top };
        }
        let head = if plot.kind == PlotKind::Lines { 1.08 } else { 1.12 };
        Scale { least: 0.0, most: if most > 0.0 { most * head } else { 1.0 }, logarithmic: false, top }
    }

    fn y(&self, value: f64) -> f64 {
        let place = if self.logarithmic { value.max(1e-12).log10() } else { value };
        let share = ((place - self.least) / (self.most - self.least)).clamp(0.0, 1.0);
        self.top + PLOT_HEIGHT * (1.0 - share)
    }

    /// Values with a line across the plot.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = self.most.floor() - self.least;
            let steps: &[f64] = if decades < 2.5 { &[1.0, 2.0, 5.0] } else { &[1.0] };
            let mut ticks = Vec::new();
            let mut exponent = self.least;
            while exponent <= self.most {
                ticks.extend(steps.iter().map(|step| step * 10_f64.powf(exponent)));
                exponent += 1.0;
            }
            ticks.retain(|tick| tick.log10() <= self.most + 1e-9);
            return ticks;
        }
        let rough = self.most / 6.0;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].iter().map(|s| s * unit).find(|s| *s >= rough).unwrap_or(rough);
        let mut ticks = Vec::new();
        let mut tick = 0.0;
        while tick <= self.most {
            ticks.push(tick);
            tick += step;
        }
        ticks
    }
}

/// The plot as an SVG element.
#[must_use]
pub fn draw(plot: &Plot) -> String {
    let legend_lines = legend_places(plot).last().map_or(0.0, |(_, line)| f64::from(*line) + 1.0);
    let top = 34.0 + legend_lines * LEGEND_LINE + 12.0;
    let scale = Scale::of(plot, top);
    let label_lines = plot.categories.iter().map(|label| label.lines().count()).max().unwrap_or(1);
    let bottom = top + PLOT_HEIGHT;
    let height = bottom + 34.0 + 14.0 * (label_lines as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\
         <style>{STYLE}</style><rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\
         <text class=\"t\" x=\"{LEFT}\" y=\"22\">{}</text>",
        escape(&plot.title)
    );
    legend(&mut svg, plot);
    axes(&mut svg, plot, &scale, bottom, height);
    match plot.kind {
        PlotKind::Lines => {
            plot.series.iter().enumerate().for_each(|(at, s)| line(&mut svg, plot, &scale, at, s))
        }
        PlotKind::Bars => bars(&mut svg, plot, &scale, bottom),
        PlotKind::Stacked => stacks(&mut svg, plot, &scale, bottom),
    }
    svg.push_str("</svg>");
    svg
}

/// Left end and line of each series in the legend.
fn legend_places(plot: &Plot) -> Vec<(f64, u16)> {
    let (mut left, mut line) = (LEFT, 0);
    let mut places = Vec::new();
    for series in &plot.series {
        let width = 36.0 + 7.2 * series.name.chars().count() as f64;
        if left + width > WIDTH - RIGHT && left > LEFT {
            left = LEFT;
            line += 1;
        }
        places.push((left, line));
        left += width;
    }
    places
}

fn legend(svg: &mut String, plot: &Plot) {
    for (at, ((left, line), series)) in legend_places(plot).into_iter().zip(&plot.series).enumerate() {
        let y = 36.0 + f64::from(line) * LEGEND_LINE;
        let colour = COLOURS[at % COLOURS.len()];
        if plot.kind == PlotKind::Lines {
            let dash = DASHES[at % DASHES.len()];
            let (middle, right) = (y + 6.0, left + 20.0);
            let _ = write!(
                svg,
                "<line x1=\"{left}\" y1=\"{middle}\" x2=\"{right}\" y2=\"{middle}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/>"
            );
            mark(svg, at, left + 10.0, middle, "");
        } else {
            let _ =
                write!(svg, "<rect x=\"{left}\" y=\"{y}\" width=\"14\" height=\"12\" fill=\"{colour}\"/>");
        }
        let _ = write!(svg, "<text x=\"{}\" y=\"{}\">{}</text>", left + 25.0, y + 10.0, escape(&series.name));
    }
}

/// Middle of a category.
fn middle(plot: &Plot, at: usize) -> f64 {
    LEFT + (WIDTH - LEFT - RIGHT) * (at as f64 + 0.5) / plot.categories.len().max(1) as f64
}

fn axes(svg: &mut String, plot: &Plot, scale: &Scale, bottom: f64, height: f64) {
    let right = WIDTH - RIGHT;
    for tick in scale.ticks() {
        let y = scale.y(tick);
        let _ = write!(
            svg,
            "<line class=\"g\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            y + 4.0,
            tick_text(tick)
        );
    }
    let _ = write!(
        svg,
        "<line class=\"a\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\
         <text transform=\"rotate(-90)\" x=\"{}\" y=\"16\" text-anchor=\"middle\">{}</text>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        -(scale.top + PLOT_HEIGHT / 2.0),
        escape(&plot.y_label),
        f64::midpoint(LEFT, right),
        height - 8.0,
        escape(&plot.x_label)
    );
    for (at, label) in plot.categories.iter().enumerate() {
        for (line, text) in label.lines().enumerate() {
            let y = bottom + 16.0 + 14.0 * line as f64;
            let x = middle(plot, at);
            let _ =
                write!(svg, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", escape(text));
        }
    }
}

fn tick_text(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        v if v >= 1e6 => format!("{} M", trimmed(v / 1e6)),
        v if v >= 1e4 => format!("{} k", trimmed(v / 1e3)),
        v => trimmed(v),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn line(svg: &mut String, plot: &Plot, scale: &Scale, at: usize, series: &Series) {
    let colour = COLOURS[at % COLOURS.len()];
    let points: Vec<(f64, f64, f64)> = series
        .values
        .iter()
        .enumerate()
        .filter_map(|(place, value)| value.map(|value| (middle(plot, place), scale.y(value), value)))
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y, _)| format!("{x:.1},{y:.1}")).collect();
    let _ = write!(
        svg,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
        path.join(" "),
        DASHES[at % DASHES.len()]
    );
    for (x, y, value) in points {
        mark(svg, at, x, y, &format!("{}: {}", series.name, number(value)));
    }
}

/// The mark of a series: round, square, diamond or triangle.
fn mark(svg: &mut String, at: usize, x: f64, y: f64, title: &str) {
    let colour = COLOURS[at % COLOURS.len()];
    let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) };
    if at.is_multiple_of(4) {
        let _ =
            write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\">{title}</circle>");
        return;
    }
    let shape = match at % 4 {
        1 => [(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)].as_slice(),
        2 => &[(0.0, -4.5), (4.5, 0.0), (0.0, 4.5), (-4.5, 0.0)],
        _ => &[(0.0, -4.5), (4.5, 3.5), (-4.5, 3.5)],
    };
    let corners: Vec<String> = shape.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
    let _ = write!(svg, "<polygon points=\"{}\" fill=\"{colour}\">{title}</polygon>", corners.join(" "));
}

fn bars(svg: &mut String, plot: &Plot, scale: &Scale, bottom: f64) {
    let room = (WIDTH - LEFT - RIGHT) / plot.categories.len().max(1) as f64 * 0.84;
    let width = room / plot.series.len().max(1) as f64;
    for (at, series) in plot.series.iter().enumerate() {
        for (place, value) in series.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let left = middle(plot, place) - room / 2.0 + width * at as f64;
            let y = scale.y(*value);
            let text = if width > 22.0 { number(*value) } else { String::new() };
            let _ = write!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}: {}</title></rect>\
                 <text class=\"v\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>",
                width * 0.92,
                (bottom - y).max(0.5),
                COLOURS[at % COLOURS.len()],
                escape(&series.name),
                number(*value),
                left + width * 0.46,
                y - 3.0
            );
        }
    }
}

fn stacks(svg: &mut String, plot: &Plot, scale: &Scale, bottom: f64) {
    let width = (WIDTH - LEFT - RIGHT) / plot.categories.len().max(1) as f64 * 0.7;
    for place in 0..plot.categories.len() {
        let left = middle(plot, place) - width / 2.0;
        let (mut sum, mut below) = (0.0, bottom);
        for (at, series) in plot.series.iter().enumerate() {
            let Some(value) = series.values[place] else { continue };
            sum += value;
            let y = scale.y(sum);
            let _ = write!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}: {}</title></rect>",
                (below - y).max(0.0),
                COLOURS[at % COLOURS.len()],
                escape(&series.name),
                number(value)
            );
            below = y;
        }
        if width > 18.0 {
            let _ = write!(
                svg,
                "<text class=\"v\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                left + width / 2.0,
                below - 3.0,
                number(sum)
            );
        }
    }
}

/// Text that stands in XML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(kind: PlotKind, logarithmic: bool) -> Plot {
        let series =
            |name: &str, values: [f64; 2]| Series { name: name.into(), values: values.map(Some).to_vec() };
        Plot {
            title: "speed <by> size".into(),
            x_label: "write size".into(),
            y_label: "GB/s".into(),
            kind,
            logarithmic,
            categories: vec!["64 KiB".into(), "1 MiB\nbig".into()],
            series: vec![series("seqdlm", [10.0, 30.0]), series("basic", [0.5, 1.5])],
        }
    }

    #[test]
    fn every_kind_names_its_series_and_escapes_its_text() {
        for kind in [PlotKind::Lines, PlotKind::Bars, PlotKind::Stacked] {
            for logarithmic in [false, true] {
                let svg = draw(&plot(kind, logarithmic));
                for text in ["seqdlm: 30<", "basic: 0.50", "speed &lt;by&gt; size", ">big<", ">GB/s<"] {
                    assert!(svg.contains(text), "{kind:?}: {text}");
                }
                assert!(!svg.contains("NaN") && svg.ends_with("</svg>"));
            }
        }
    }

    #[test]
    fn larger_values_stand_higher() {
        for logarithmic in [false, true] {
            let scale = Scale::of(&plot(PlotKind::Lines, logarithmic), 50.0);
            assert!(scale.y(30.0) < scale.y(10.0) && scale.y(10.0) < scale.y(0.5));
            assert!(scale.ticks().iter().all(|tick| (50.0..=310.0).contains(&scale.y(*tick))));
        }
        assert_eq!([0.0, 0.5, 20_000.0, 2e6].map(tick_text), ["0", "0.5", "20 k", "2 M"]);
    }

    #[test]
    fn what_was_not_measured_leaves_a_gap() {
        let mut gaps = plot(PlotKind::Bars, false);
        gaps.series[0].values[1] = None;
        assert!(!draw(&gaps).contains("seqdlm: 30<"));
    }
}
