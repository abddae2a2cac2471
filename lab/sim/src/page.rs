//! The page of all figures: one HTML file that needs nothing else.

use crate::figures::explain::Explanation;
use crate::figures::hardware::{PARAMETERS, SETTINGS, Source};
use crate::figures::paper::{self, Claim, Unit};
use crate::figures::result::{Figure, Table, number};
use crate::figures::{Report, Size};
use crate::plot::{draw, escape};
use std::fmt::Write as _;

/// How far ours may be from the paper's without an explanation.
pub const TOLERANCE: f64 = 0.25;

const STYLE: &str = "body{font:15px/1.5 'DejaVu Sans',Arial,sans-serif;color:#222;max-width:1060px;margin:2em auto;padding:0 1em}\
h1{font-size:26px}h2{font-size:20px;margin-top:2.2em;border-bottom:1px solid #ccc}h3{font-size:16px}\
table{border-collapse:collapse;margin:1em 0;font-size:13px}caption{text-align:left;font-weight:bold;padding:4px 0}\
th,td{border-bottom:1px solid #ddd;padding:3px 9px;text-align:right;vertical-align:top}th{background:#f3f3f3}\
th:first-child,td:first-child{text-align:left}td.l,th.l{text-align:left}.good{color:#00664a}.off{color:#a33c00;font-weight:bold}\
.input{color:#666}.wide{overflow-x:auto}figure{margin:1em 0}svg{max-width:100%;height:auto;border:1px solid #eee}\
summary{cursor:pointer;color:#0057a0}nav a{margin-right:1em}";

/// One of the paper's numbers beside ours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The paper's.
    pub claim: &'static Claim,
    /// Ours.
    pub ours: f64,
    /// Which part of the writes its runs made.
    pub size: Size,
}

impl Comparison {
    /// Ours over the paper's.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.ours / self.claim.paper
    }

    /// Whether ours is as near as it should be.
    #[must_use]
    pub fn is_near(&self) -> bool {
        (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&self.ratio())
    }
}

/// All of the paper's numbers that the figures have measured.
#[must_use]
pub fn comparisons(figures: &[Figure]) -> Vec<Comparison> {
    let measured = figures.iter().flat_map(|figure| figure.measured.iter().map(move |one| (figure, one)));
    measured
        .filter_map(|(figure, measured)| {
            let size = Size { part: if measured.part > 0 { measured.part } else { figure.part } };
            paper::find(measured.claim).map(|claim| Comparison { claim, ours: measured.ours, size })
        })
        .collect()
}

/// A number with its unit.
#[must_use]
pub fn with_unit(value: f64, unit: Unit) -> String {
    format!("{}{}", number(value), unit.suffix())
}

/// The whole page.
#[must_use]
pub fn page(report: &Report) -> String {
    let mut html = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>SeqDLM's figures, simulated</title>\
         <style>{STYLE}</style></head><body><h1>SeqDLM's figures, simulated</h1>"
    );
    introduction(&mut html, report);
    summary(&mut html, report);
    explanations(&mut html, &report.explanations);
    inputs(&mut html);
    if let Some(sensitivity) = &report.sensitivity {
        let _ = write!(
            html,
            "<h2 id=\"sensitivity\">How much depends on the inputs</h2><p>{}</p>",
            escape(&sensitivity.text)
        );
        table(&mut html, &sensitivity.table);
    }
    report.figures.iter().for_each(|one| figure(&mut html, one));
    html.push_str("</body></html>\n");
    html
}

fn introduction(html: &mut String, report: &Report) {
    let size = match report.size.part {
        1 => String::new(),
        part => format!(" <b>Smaller runs: clients make one of {part} of the paper's writes.</b>"),
    };
    let near = comparisons(&report.figures).iter().filter(|one| one.is_near()).count();
    let all = comparisons(&report.figures).len();
    let _ = write!(
        html,
        "<p>The evaluation of the SeqDLM paper on a simulated cluster that runs ccPFS's own rules: the same code for locks, write-back \
         and extent caches as the product, with virtual time, network, devices and memory around it.{size} {near} of {all} numbers \
         of the paper are within {:.0} %; the others are explained below. The column 'writes' says which part of the paper's writes the \
         clients make in these runs; for Figs. 21, 23, 24 and 25 the explanations show the same ratios at smaller parts, so that \
         one sees how much depends on it. {} events in {:.0} s of processor time.</p><nav>",
        TOLERANCE * 100.0,
        number(report.events as f64),
        report.simulation_s
    );
    html.push_str("<a href=\"#summary\">paper and ours</a><a href=\"#inputs\">inputs</a>");
    for one in &report.figures {
        let _ = write!(
            html,
            "<a href=\"#{}\">{}</a>",
            one.name,
            escape(one.title.split(':').next().unwrap_or(one.name))
        );
    }
    html.push_str("</nav>");
}

fn summary(html: &mut String, report: &Report) {
    html.push_str(
        "<h2 id=\"summary\">Paper and ours</h2><div class=\"wide\"><table><tr><th>place</th><th class=\"l\">what</th><th>paper</th>\
         <th>ours</th><th>ratio</th><th>writes</th><th class=\"l\">how ours is computed</th><th class=\"l\">why it differs</th></tr>",
    );
    for one in comparisons(&report.figures) {
        let Claim { name, figure, place, what, paper, unit, how, is_input } = *one.claim;
        let class = if one.is_near() { "good" } else { "off" };
        let why = report.explanations.iter().position(|explanation| explanation.claims.contains(&name));
        let why = match (why, one.is_near()) {
            (Some(at), _) => format!("<a href=\"#why{0}\">explanation {0}</a>", at + 1),
            (None, true) => String::new(),
            (None, false) => "not explained".to_owned(),
        };
        let note = if is_input { " <span class=\"input\">(an input was derived from it)</span>" } else { "" };
        let _ = write!(
            html,
            "<tr><td><a href=\"#{figure}\">{}</a></td><td class=\"l\">{}{note}</td><td>{}</td><td>{}</td>\
             <td class=\"{class}\">{}</td><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{why}</td></tr>",
            escape(place),
            escape(what),
            with_unit(paper, unit),
            with_unit(one.ours, unit),
            number(one.ratio()),
            one.size.words(),
            escape(how)
        );
    }
    html.push_str("</table></div>");
}

fn explanations(html: &mut String, explanations: &[Explanation]) {
    if explanations.is_empty() {
        return;
    }
    html.push_str("<h2>Why some differ</h2>");
    for (at, explanation) in explanations.iter().enumerate() {
        let claims = explanation.claims.join(", ");
        let number = at + 1;
        let _ = write!(html, "<h3 id=\"why{number}\">Explanation {number}: {}</h3>", escape(&claims));
        for part in explanation.text.split("\n\n") {
            let _ = write!(html, "<p>{}</p>", escape(part));
        }
        if let Some(evidence) = &explanation.evidence {
            table(html, evidence);
        }
    }
}

fn source(source: Source) -> &'static str {
    match source {
        Source::Given => "given",
        Source::Derived => "derived",
        Source::Chosen => "chosen",
        Source::Ours => "ours",
    }
}

fn inputs(html: &mut String) {
    html.push_str(
        "<h2 id=\"inputs\">Inputs</h2><p>Given: the paper states it. Derived: it follows from other numbers of the paper, as written. \
         Chosen: the paper does not say. Ours: how the product works. There are no other parameters, and none was fitted to a \
         result.</p><table><tr><th>what</th><th>value</th><th class=\"l\">source</th><th class=\"l\">because</th></tr>",
    );
    for parameter in PARAMETERS {
        let value = match parameter.unit {
            "B/s" => format!("{} GB/s", number(parameter.value / 1e9)),
            unit => format!("{} {unit}", number(parameter.value)),
        };
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{value}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            escape(parameter.what),
            source(parameter.source),
            escape(parameter.because)
        );
    }
    for (what, value, from, because) in SETTINGS {
        let _ = write!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
            escape(what),
            escape(value),
            source(from),
            escape(because)
        );
    }
    html.push_str("</table>");
}

fn figure(html: &mut String, figure: &Figure) {
    let _ = write!(html, "<h2 id=\"{}\">{}</h2>", figure.name, escape(&figure.title));
    for paragraph in &figure.text {
        let _ = write!(html, "<p>{}</p>", escape(paragraph));
    }
    for plot in &figure.plots {
        let _ = write!(html, "<figure>{}</figure>", draw(plot));
    }
    for one in &figure.tables {
        if one.rows.len() > 12 {
            html.push_str("<details><summary>Table</summary>");
            table(html, one);
            html.push_str("</details>");
        } else {
            table(html, one);
        }
    }
}

fn table(html: &mut String, table: &Table) {
    let _ = write!(html, "<div class=\"wide\"><table><caption>{}</caption><tr>", escape(&table.title));
    for column in &table.columns {
        let _ = write!(html, "<th>{}</th>", escape(column));
    }
    html.push_str("</tr>");
    for row in &table.rows {
        html.push_str("<tr>");
        for cell in row {
            let _ = write!(html, "<td>{}</td>", escape(cell));
        }
        html.push_str("</tr>");
    }
    html.push_str("</table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::result::Measured;
    use crate::figures::run::Outcomes;

    fn report(ours: f64) -> Report {
        let figure = Figure {
            name: "18",
            title: "Fig. 18: a title".into(),
            part: 1,
            text: vec!["text <here>".into()],
            plots: Vec::new(),
            tables: Vec::new(),
            measured: vec![Measured { claim: "18.er.64k", ours, part: 0 }],
        };
        Report {
            figures: vec![figure],
            sensitivity: None,
            explanations: Vec::new(),
            size: Size::QUICK,
            events: 5,
            simulation_s: 1.0,
            outcomes: Outcomes::default(),
        }
    }

    #[test]
    fn the_page_shows_the_papers_number_beside_ours_and_every_input_with_its_source() {
        let html = page(&report(13.02));
        for text in [
            "12.9×",
            "13.0×",
            "1.01",
            "text &lt;here&gt;",
            "one of 32",
            "213 kOPS",
            "given",
            "derived",
            "chosen",
        ] {
            assert!(html.contains(text), "{text}");
        }
        assert!(!html.contains("not explained"));
    }

    #[test]
    fn what_is_far_off_and_not_explained_is_called_so() {
        let mut far = report(30.0);
        assert!(page(&far).contains("not explained"));
        far.explanations.push(Explanation {
            claims: vec!["18.er.64k"],
            text: "because".into(),
            evidence: None,
        });
        let html = page(&far);
        assert!(
            html.contains("href=\"#why1\"") && html.contains("because") && !html.contains("not explained")
        );
    }
}
