//! Paper 004: aggregators of collective writes and the files of a weather forecast, by how their locks are asked for.

use super::Size;
use super::hardware::{Hardware, Knob};
use super::ior::details;
use super::program::{Pattern, STRIPE_BYTES};
use super::result::{Figure, Plot, PlotKind, Series, Table, number};
use super::run::{Outcome, Outcomes, Spec, over, policy};

/// How locks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A file for each aggregator.
    OwnFiles,
    /// DLM-Lustre: locks grow.
    Default,
    /// DLM-Lustre, nobody is kept apart.
    Group,
    /// DLM-basic, the locks of the next 500 units at once, exactly these.
    Lockahead,
    /// SeqDLM, locks grow.
    SeqDlm,
    /// SeqDLM, the desired section: all units that will follow.
    Sections,
}

const WAYS: [Way; 6] = [Way::OwnFiles, Way::Default, Way::Group, Way::Lockahead, Way::SeqDlm, Way::Sections];

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Way::OwnFiles => "own files",
            Way::Default => "default",
            Way::Group => "group",
            Way::Lockahead => "lockahead",
            Way::SeqDlm => "SeqDLM",
            Way::Sections => "sections",
        }
    }

    /// Aggregators that write so many units each.
    fn spec(self, aggregators: u64, stripes: u32, writes: u64) -> Spec {
        let manager = match self {
            Way::OwnFiles | Way::Default | Way::Group => policy("lustre"),
            // Grants nothing early either, and what is desired, which DLM-Lustre does not look at.
            Way::Lockahead => policy("basic"),
            Way::SeqDlm | Way::Sections => policy("seqdlm"),
        };
        let pattern = match self {
            Way::OwnFiles => Pattern::Separate { block: STRIPE_BYTES, writes },
            Way::Default | Way::Group | Way::Lockahead | Way::SeqDlm | Way::Sections => {
                Pattern::Strided { block: STRIPE_BYTES, writes }
            }
        };
        // From one unit of an aggregator on its stripe to the next one there.
        let stride = aggregators / u64::from(stripes) * STRIPE_BYTES;
        let desired = match self {
            Way::OwnFiles | Way::Default | Way::Group | Way::SeqDlm => (0, 0),
            Way::Lockahead => (stride, AHEAD),
            Way::Sections => (stride, 0),
        };
        Spec {
            stripes,
            hardware: machines(),
            desired,
            group: self == Way::Group,
            ..Spec::new(manager, pattern, aggregators)
        }
    }
}

/// Units that are locked ahead at a time: the paper's default.
const AHEAD: u64 = 500;
/// Object servers of the paper's system.
const SERVERS: u32 = 24;
/// Aggregators for each of them.
const MULTIPLIERS: [u64; 4] = [1, 2, 4, 8];
/// WRF: 4 servers and 16 aggregators for each (Listing 4).
const WRF_SERVERS: u32 = 4;
const WRF_AGGREGATORS: u64 = 64;
/// Its largest file, of 81 GB, in units (Listing 4: 82,192 MiB).
const WRF_UNITS: u64 = 82_192;
/// All of its files: 11 of 28 GB and 10 of 81 GB.
const WRF_BYTES: f64 = 11.0 * 28e9 + 10.0 * 81e9;
/// One of the largest files, all of it.
pub(super) const WRF_PART: u64 = 1;

/// The machines of the SeqDLM paper, with the device that paper 004 gives: 252 nodes with 64 GB each are written in under 3 minutes by
/// 24 servers.
fn machines() -> Hardware {
    Hardware::default().with(Knob::DeviceRate, 252.0 * 64e9 / 180.0 / 24.0, "devices of paper 004")
}

fn one(size: Size, way: Way, multiplier: u64) -> Spec {
    way.spec(u64::from(SERVERS) * multiplier, SERVERS, size.of(64, 8))
}

/// The runs of the collective writes.
pub(super) fn specs_collective(size: Size) -> Vec<Spec> {
    MULTIPLIERS.iter().flat_map(|multiplier| WAYS.map(|way| one(size, way, *multiplier))).collect()
}

/// Bytes per second until all is with the servers' devices.
fn total(outcome: &Outcome) -> f64 {
    over(outcome.bytes as f64, outcome.total_s())
}

fn bars(title: &str, categories: Vec<String>, series: Vec<Series>, y_label: &str) -> Plot {
    Plot {
        title: title.to_owned(),
        x_label: "aggregators for each server".to_owned(),
        y_label: y_label.to_owned(),
        kind: PlotKind::Bars,
        logarithmic: false,
        categories,
        series,
    }
}

/// Collective writes.
pub(super) fn collective(size: Size, runs: &Outcomes) -> Figure {
    let of = |way: Way, multiplier: u64| runs.of(&one(size, way, multiplier));
    let categories = || MULTIPLIERS.map(|multiplier| multiplier.to_string()).to_vec();
    let series = |value: fn(&Outcome) -> f64| {
        let line = |way: Way| Series {
            name: way.name().to_owned(),
            values: MULTIPLIERS.map(|multiplier| Some(value(of(way, multiplier)) / 1e9)).to_vec(),
        };
        WAYS.map(line).to_vec()
    };
    let mut rows = Vec::new();
    for multiplier in MULTIPLIERS {
        for way in WAYS {
            rows.push((format!("{multiplier} for each, {}", way.name()), of(way, multiplier)));
        }
    }
    let mut table = Table::new(
        "With 8 aggregators for each server",
        &["what", "paper 004", "simulated: PIO", "simulated: PIO + F"],
    );
    for (what, paper, a, b) in [
        (
            "default over own files (Fig. 4: typically 0.2, not above 0.65)",
            "0.2 to 0.65",
            Way::Default,
            Way::OwnFiles,
        ),
        ("lockahead over own files ('more than 80 %')", "> 0.8", Way::Lockahead, Way::OwnFiles),
        ("lockahead over group ('similar')", "1.0", Way::Lockahead, Way::Group),
        (
            "lockahead over default ('over 100 % to more than 200 %' better)",
            "2 to 3",
            Way::Lockahead,
            Way::Default,
        ),
        ("sections over group", "-", Way::Sections, Way::Group),
        ("SeqDLM over group", "-", Way::SeqDlm, Way::Group),
    ] {
        let ratio = |value: fn(&Outcome) -> f64| number(over(value(of(a, 8)), value(of(b, 8))));
        table.row(vec![what.to_owned(), paper.to_owned(), ratio(Outcome::bandwidth), ratio(total)]);
    }
    Figure {
        name: "004-collective",
        title: "Paper 004: collective writes of a shared file".to_owned(),
        part: 1,
        text: vec![
            format!(
                "{SERVERS} servers; aggregator k of n writes units k, k + n, k + 2n, ... of 1 MiB, {} each. With one for each server nobody shares a \
                 stripe; with more, their units take turns on it. Ranks and their exchange of data are left out, so that numbers of the paper with \
                 few large transfers cannot be compared, and its figures' values are not in the text.",
                size.of(64, 8)
            ),
            about_machines(),
        ],
        plots: vec![
            bars("PIO: until the last write returned", categories(), series(Outcome::bandwidth), "GB/s"),
            bars("PIO and F: until all is with the devices", categories(), series(total), "GB/s"),
        ],
        tables: vec![table, details(&rows)],
        measured: Vec::new(),
    }
}

fn about_machines() -> String {
    format!(
        "Machines of the SeqDLM paper (figures/hardware.rs), but for the device: {} GB/s for each server, from 'all nodes write memory to stable \
         storage in under 3 minutes' (252 nodes of 64 GB, 24 servers). Own files, default and group run under DLM-Lustre, SeqDLM and sections under \
         SeqDLM. Lockahead is one request for {AHEAD} units, under DLM-basic because ours of Lustre grants no more than an extent (Lustre itself \
         sends a request for each unit, without waiting).",
        number(machines().get(Knob::DeviceRate) / 1e9)
    )
}

fn one_wrf(size: Size, way: Way) -> Spec {
    way.spec(WRF_AGGREGATORS, WRF_SERVERS, size.of(WRF_UNITS / WRF_AGGREGATORS, 16))
}

/// The runs of the forecast's files.
pub(super) fn specs_wrf(size: Size) -> Vec<Spec> {
    WAYS.map(|way| one_wrf(size, way)).to_vec()
}

/// What writing one file takes until the last write returned.
fn one_file(size: Size, runs: &Outcomes) -> Table {
    let mut table = Table::new(
        "Seconds in writes of one file of 82,192 MiB, until the last one returned (Listings 5 and 6: average over writers)",
        &["locks", "paper 004", "simulated", "ratio"],
    );
    for (way, paper) in [(Way::Default, 61.69), (Way::Lockahead, 4.72)] {
        let outcome = runs.of(&one_wrf(size, way));
        let ours = WRF_UNITS as f64 * STRIPE_BYTES as f64 * over(outcome.pio_s, outcome.bytes as f64);
        table.row(vec![way.name().to_owned(), number(paper), number(ours), number(over(ours, paper))]);
    }
    table
}

/// The files of a weather forecast.
pub(super) fn wrf(size: Size, runs: &Outcomes) -> Figure {
    let seconds = |way: Way| {
        let outcome = runs.of(&one_wrf(size, way));
        WRF_BYTES * over(outcome.total_s(), outcome.bytes as f64)
    };
    let pio = |way: Way| runs.of(&one_wrf(size, way)).pio_s;
    let mut table =
        Table::new("Seconds to write all 1,118 GB", &["locks", "paper 004", "simulated", "ratio"]);
    for (way, paper) in WAYS.map(|way| {
        let paper = match way {
            Way::Default => Some(743.0),
            Way::Lockahead => Some(150.0),
            Way::OwnFiles | Way::Group | Way::SeqDlm | Way::Sections => None,
        };
        (way, paper)
    }) {
        let ours = seconds(way);
        table.row(vec![
            way.name().to_owned(),
            paper.map_or_else(|| "-".to_owned(), number),
            number(ours),
            paper.map_or_else(|| "-".to_owned(), |paper| number(over(ours, paper))),
        ]);
    }
    let share = over(seconds(Way::Lockahead), seconds(Way::Default));
    table.row(vec![
        "lockahead over default".to_owned(),
        number(150.0 / 743.0),
        number(share),
        number(share * 743.0 / 150.0),
    ]);
    let rows: Vec<(String, &Outcome)> =
        WAYS.iter().map(|way| (way.name().to_owned(), runs.of(&one_wrf(size, *way)))).collect();
    let values = WAYS.map(|way| Some(seconds(way))).to_vec();
    let papers = vec![None, Some(743.0), None, Some(150.0), None, None];
    let series = |name: &str, values| Series { name: name.to_owned(), values };
    let mut plot = bars(
        "Write time of a forecast",
        WAYS.map(|way| way.name().to_owned()).to_vec(),
        vec![series("simulated", values), series("paper 004", papers)],
        "seconds",
    );
    plot.x_label = "locks".to_owned();
    Figure {
        name: "004-wrf",
        title: "Paper 004: WRF, 743 s and 150 s".to_owned(),
        part: 1,
        text: vec![
            format!(
                "{WRF_SERVERS} servers, {WRF_AGGREGATORS} aggregators, units of 1 MiB (Listing 4). One file is simulated, and its time until all is with the \
                 devices taken for all bytes of 11 files of 28 GB and 10 of 81 GB. The paper's times are those of collective calls as ranks see them, with \
                 the exchange between ranks and PnetCDF (in Listing 6 the writes themselves are 11 % of them): ours are the file system's part alone."
            ),
            format!(
                "What comes out: the last write returns {} times as late with default locks as with lockahead (Listings 5 and 6: 13.1 times), but the \
                 times until all is with the devices are alike: here a revoked lock's flush keeps the device busy, so that nothing is lost while others \
                 wait. The paper's default leaves it idle (743 s are 1.5 GB/s of 4 servers); what its revocations cost is not said, and not fitted here.",
                number(over(pio(Way::Default), pio(Way::Lockahead)))
            ),
            about_machines(),
        ],
        plots: vec![plot],
        tables: vec![table, one_file(size, runs), details(&rows)],
        measured: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::run::run;

    #[test]
    fn who_asks_for_its_units_is_in_nobodys_way_and_who_lets_locks_grow_is() {
        let outcome = |way: Way| run(&way.spec(8, 2, 32)).expect("all calls return");
        let requests = WAYS.map(|way| {
            let outcome = outcome(way);
            assert_eq!(outcome.bytes, 8 * 32 * STRIPE_BYTES, "{way:?}");
            (outcome.requests, outcome.revocations)
        });
        let [own_files, default, group, lockahead, _, sections] = requests;
        assert_eq!((own_files.1, group.1, lockahead.1, sections.1), (0, 0, 0, 0), "{requests:?}");
        assert!(default.1 > 50 && default.0 > 50, "{requests:?}");
        assert!(group.0 <= 32 && lockahead.0 <= 16 && sections.0 <= 16, "{requests:?}");
    }
}
