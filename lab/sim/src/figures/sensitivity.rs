//! How much the headline ratios depend on each parameter of the machines: everything as it is, each halved and doubled.

use super::hardware::{Hardware, Knob, PARAMETERS};
use super::result::{Table, number};
use super::run::{Outcomes, Spec, over};
use super::{Size, conflict, ior, paper};

/// A ratio of the speeds of two runs.
struct Headline {
    claim: &'static str,
    above: fn(Size) -> Spec,
    below: fn(Size) -> Spec,
}

const KIB: u64 = 1024;
/// The largest part of the writes that these runs make: rates and ratios do not need more, see the first two rows.
const PART: u64 = 16;

/// Writes of each client in the runs of Figs. 18 and 19(b) here: enough for the rates, which do not depend on it.
fn writes(size: Size) -> u64 {
    size.at_least(PART).of(500, 50)
}

/// Bytes of each client in the runs of Figs. 20 and 21 here.
fn bytes(size: Size) -> u64 {
    size.at_least(PART).of(512 << 20, 16 << 20)
}

const HEADLINES: [Headline; 9] = [
    Headline {
        claim: "18.noer.64k",
        above: |size| conflict::parallel(1, 64 * KIB, writes(size)),
        below: |size| conflict::parallel(3, 64 * KIB, writes(size)),
    },
    Headline {
        claim: "18.noer.1024k",
        above: |size| conflict::parallel(1, 1024 * KIB, writes(size)),
        below: |size| conflict::parallel(3, 1024 * KIB, writes(size)),
    },
    Headline {
        claim: "18.er.64k",
        above: |size| conflict::parallel(0, 64 * KIB, writes(size)),
        below: |size| conflict::parallel(3, 64 * KIB, writes(size)),
    },
    Headline {
        claim: "18.er.1024k",
        above: |size| conflict::parallel(0, 1024 * KIB, writes(size)),
        below: |size| conflict::parallel(3, 1024 * KIB, writes(size)),
    },
    Headline {
        claim: "19.bw.64k",
        above: |size| conflict::two_stripes(2, 64 * KIB, writes(size)),
        below: |size| conflict::two_stripes(0, 64 * KIB, writes(size)),
    },
    Headline {
        claim: "19.bw.1024k",
        above: |size| conflict::two_stripes(2, 1024 * KIB, writes(size)),
        below: |size| conflict::two_stripes(0, 1024 * KIB, writes(size)),
    },
    Headline {
        claim: "20.basic",
        above: |size| ior::strided("seqdlm-page", 1024 * KIB, bytes(size)),
        below: |size| ior::strided("basic", 1024 * KIB, bytes(size)),
    },
    Headline {
        claim: "21.s4.large",
        above: |size| ior::hard("seqdlm-page", 16 * 47_008, 4, bytes(size) / 2),
        below: |size| ior::hard("lustre", 16 * 47_008, 4, bytes(size) / 2),
    },
    Headline {
        claim: "21.s8.large",
        above: |size| ior::hard("seqdlm-page", 16 * 47_008, 8, bytes(size) / 2),
        below: |size| ior::hard("lustre", 16 * 47_008, 8, bytes(size) / 2),
    },
];

/// The machines as they are, and every variant.
fn variants() -> Vec<Hardware> {
    let plain = Hardware::default();
    let mut variants = vec![plain.clone()];
    for parameter in PARAMETERS.iter().filter(|parameter| parameter.value > 0.0) {
        variants.push(plain.scaled(parameter.knob, 0.5, &format!("{} × 0.5", parameter.what)));
        variants.push(plain.scaled(parameter.knob, 2.0, &format!("{} × 2", parameter.what)));
    }
    variants.push(plain.with(Knob::ServerCopyRate, 0.0, "no copy in the server"));
    variants.push(plain.nominal());
    variants
}

/// The runs.
#[must_use]
pub fn specs(size: Size) -> Vec<Spec> {
    let mut specs = Vec::new();
    for hardware in variants() {
        for headline in &HEADLINES {
            for spec in [(headline.above)(size), (headline.below)(size)] {
                specs.push(Spec { hardware: hardware.clone(), ..spec });
            }
        }
    }
    specs
}

/// What a table of variants shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Sensitivity {
    /// A row per variant, a column per ratio.
    pub table: Table,
    /// What it was computed from.
    pub text: String,
}

/// Runs of the first six ratios (Figs. 18 and 19) with a change, for explanations.
pub(super) fn conflict_specs(size: Size, change: &dyn Fn(Spec) -> Spec) -> Vec<Spec> {
    let headlines = HEADLINES.iter().take(CONFLICT);
    headlines.flat_map(|headline| [change((headline.above)(size)), change((headline.below)(size))]).collect()
}

/// A row of the first six ratios with a change.
pub(super) fn conflict_row(
    size: Size,
    runs: &Outcomes,
    name: &str,
    change: &dyn Fn(Spec) -> Spec,
) -> Vec<String> {
    let ratio = |headline: &Headline| {
        let rate = |spec: Spec| runs.of(&change(spec)).rate();
        number(over(rate((headline.above)(size)), rate((headline.below)(size))))
    };
    std::iter::once(name.to_owned()).chain(HEADLINES.iter().take(CONFLICT).map(ratio)).collect()
}

/// An empty table of the first six ratios, with the paper's in its first row.
pub(super) fn conflict_table(title: &str) -> Table {
    let headlines = || HEADLINES.iter().take(CONFLICT);
    let columns: Vec<String> = std::iter::once("runs".to_owned())
        .chain(headlines().map(|headline| headline.claim.to_owned()))
        .collect();
    let mut table = Table::new(title, &columns);
    let papers = headlines().map(|headline| paper::find(headline.claim).map_or(0.0, |claim| claim.paper));
    table.row(std::iter::once("the paper".to_owned()).chain(papers.map(number)).collect());
    table
}

/// How many of the ratios are of conflicting writes.
const CONFLICT: usize = 6;

/// The table.
#[must_use]
pub fn table(size: Size, runs: &Outcomes) -> Sensitivity {
    let mut columns = vec!["machines".to_owned()];
    columns.extend(HEADLINES.iter().map(|headline| headline.claim.to_owned()));
    let mut table = Table::new("Headline ratios when one parameter changes", &columns);
    let papers =
        HEADLINES.iter().map(|headline| paper::find(headline.claim).map_or(0.0, |claim| claim.paper));
    table.row(std::iter::once("the paper".to_owned()).chain(papers.map(number)).collect());
    for hardware in variants() {
        let name = if hardware.name.is_empty() { "as listed".to_owned() } else { hardware.name.clone() };
        let mut row = vec![name];
        for headline in &HEADLINES {
            let rate = |spec: Spec| runs.of(&Spec { hardware: hardware.clone(), ..spec }).rate();
            row.push(number(over(rate((headline.above)(size)), rate((headline.below)(size)))));
        }
        table.row(row);
    }
    let text = format!(
        "Shorter runs than those of the figures: {} writes per client for Figs. 18 and 19, {} and {} MiB per client for Figs. 20 and \
         21. The row 'as listed' shows what that alone changes.",
        writes(size),
        bytes(size) >> 20,
        bytes(size) >> 21
    );
    Sensitivity { table, text }
}
