//! Paper 004: aggregators of collective writes and the files of a weather forecast, by how their locks are asked for.

use super::Size;
use super::hardware::{Hardware, Knob};
use super::ior::details;
use super::program::{Pattern, STRIPE_BYTES};
use super::result::{Figure, Plot, PlotKind, Series, Table, number};
use super::run::{Outcome, Outcomes, Spec, over, policy};
use ccpfs_region::UNBOUNDED;

/// How locks are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A file for each aggregator.
    OwnFiles,
    /// DLM-Lustre: locks grow, but not over what somebody waits for.
    Default,
    /// As the paper describes its default (II-A): every grant is the whole file, until the next client wants some of it.
    WholeFile,
    /// DLM-Lustre, nobody is kept apart.
    Group,
    /// DLM-basic, the locks of the next 500 units at once, exactly these.
    Lockahead,
    /// SeqDLM, locks grow.
    SeqDlm,
    /// SeqDLM, the desired section: all units that will follow.
    Sections,
}

const WAYS: [Way; 7] =
    [Way::OwnFiles, Way::Default, Way::WholeFile, Way::Group, Way::Lockahead, Way::SeqDlm, Way::Sections];

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Way::OwnFiles => "own files",
            Way::Default => "default",
            Way::WholeFile => "default, whole files",
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
            Way::WholeFile => policy("basic-past-waiting"),
            // Grants nothing early either, and what is desired, which DLM-Lustre does not look at.
            Way::Lockahead => policy("basic"),
            Way::SeqDlm | Way::Sections => policy("seqdlm"),
        };
        let pattern = match self {
            Way::OwnFiles => Pattern::Separate { block: STRIPE_BYTES, writes },
            Way::Default | Way::WholeFile | Way::Group | Way::Lockahead | Way::SeqDlm | Way::Sections => {
                Pattern::Strided { block: STRIPE_BYTES, writes }
            }
        };
        // From one unit of an aggregator on its stripe to the next one there.
        let stride = aggregators / u64::from(stripes) * STRIPE_BYTES;
        let desired = match self {
            Way::OwnFiles | Way::Default | Way::WholeFile | Way::Group | Way::SeqDlm => (0, 0),
            Way::Lockahead => (stride, AHEAD),
            Way::Sections => (stride, UNBOUNDED),
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
        ("default, whole files, over own files", "0.2 to 0.65", Way::WholeFile, Way::OwnFiles),
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
         storage in under 3 minutes' (252 nodes of 64 GB, 24 servers). Own files, default and group run under DLM-Lustre, default with whole files under DLM-basic, SeqDLM and sections under \
         SeqDLM. Lockahead is one request for {AHEAD} units, under DLM-basic because ours of Lustre grants no more than an extent (Lustre itself \
         sends a request for each unit, without waiting).",
        number(machines().get(Knob::DeviceRate) / 1e9)
    )
}

/// Bytes that a client of Lustre keeps dirty for each server at most, as released in these years: 32 MiB.
const DIRTY_BYTES: u64 = 32 << 20;
/// Microseconds of a device beside the bytes of a request: the SeqDLM paper's drives, and arrays of disks, where half a turn at
/// 7,200 a minute is 4 ms.
const LATENCIES: [f64; 4] = [10.0, 1_000.0, 2_000.0, 4_000.0];
/// Ways that are simulated with all of them.
const SLOWED: [Way; 4] = [Way::Default, Way::WholeFile, Way::Lockahead, Way::SeqDlm];

fn one_wrf(size: Size, way: Way, latency_us: f64) -> Spec {
    let spec = way.spec(WRF_AGGREGATORS, WRF_SERVERS, size.of(WRF_UNITS / WRF_AGGREGATORS, 16));
    let hardware = spec.hardware.with(Knob::DeviceLatency, latency_us, "");
    Spec { hardware, dirty_bytes_max: DIRTY_BYTES * u64::from(WRF_SERVERS), ..spec }
}

/// The runs of the forecast's files.
pub(super) fn specs_wrf(size: Size) -> Vec<Spec> {
    let slowed = SLOWED.iter().flat_map(|way| LATENCIES.map(|latency_us| one_wrf(size, *way, latency_us)));
    WAYS.iter().map(|way| one_wrf(size, *way, LATENCIES[0])).chain(slowed).collect()
}

/// What the paper says of a way: seconds in writes of a file, and of all files.
const fn papers(way: Way) -> Option<(f64, f64)> {
    match way {
        Way::Default | Way::WholeFile => Some((61.69, 743.0)),
        Way::Lockahead => Some((4.72, 150.0)),
        Way::OwnFiles | Way::Group | Way::SeqDlm | Way::Sections => None,
    }
}

/// Seconds until the last write of so many bytes has returned, by a run of fewer.
fn scaled(outcome: &Outcome, bytes: f64) -> f64 {
    bytes * over(outcome.pio_s, outcome.bytes as f64)
}

/// What is simulated, and which default; with the parts of their times that lockahead takes.
fn about_wrf(whole_file: String, default: String) -> Vec<String> {
    vec![
            format!(
                "{WRF_SERVERS} servers, {WRF_AGGREGATORS} aggregators, units of 1 MiB (Listing 4). One file of 82,192 MiB is simulated, and taken for all \
                 bytes of 11 files of 28 GB and 10 of 81 GB. What the paper times is the calls, while the forecast is computed between them: so \
                 ours is the time until the last write returned. A client has at most 32 MiB dirty for each server, Lustre's default then, so \
                 that most of a file is with the servers when its last write returns, as in the paper: its slowest writer under lockahead took \
                 6.31 s (Listing 6), which is 3.4 GB/s for each server."
            ),
            format!(
                "Which default? The paper says (II-A) that each lock request calls back the lock that the one before was granted on the whole \
                 file, and is granted the whole file itself: 'this continues throughout write operations'. Under that rule (DLM-basic whose \
                 grants grow past requests that wait) every unit waits until the unit before it has been flushed and given back, one at a \
                 time on each server, and lockahead takes {} of its time (paper: 150 / 743 = 0.20). Lustre's source has a milder rule, \
                 which DLM-Lustre here has: a grant does not grow over what somebody waits for. Aggregators that wait together are then \
                 granted their units together, and lockahead takes {} of its time.",
                whole_file,
                default
            ),
            "The paper's servers have disks, and it does not say what one request takes of them: the second table tries it. Writes under lockahead, many at a time, \
             hide it; under the default each of them is waited for. The paper's 61.69 s a file are 3.0 ms for each unit of a server. Its totals also \
             hold the exchange between ranks and PnetCDF, which in Listing 6 take as long as the writes, and which is why 150 s is more than ours."
                .to_owned(),
            about_machines(),
        ]
}

/// The files of a weather forecast.
pub(super) fn wrf(size: Size, runs: &Outcomes) -> Figure {
    let of = |way: Way| runs.of(&one_wrf(size, way, LATENCIES[0]));
    let one_file = WRF_UNITS as f64 * STRIPE_BYTES as f64;
    let text = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), number);
    let mut table = Table::new(
        "Seconds in calls: one file of 82,192 MiB (Listings 5 and 6: average over writers), and all 1,118 GB",
        &["locks", "paper: file", "simulated", "paper: all", "simulated", "until stored"],
    );
    for way in WAYS {
        let stored = WRF_BYTES * over(of(way).total_s(), of(way).bytes as f64);
        table.row(vec![
            way.name().to_owned(),
            text(papers(way).map(|(file, _)| file)),
            number(scaled(of(way), one_file)),
            text(papers(way).map(|(_, all)| all)),
            number(scaled(of(way), WRF_BYTES)),
            number(stored),
        ]);
    }
    let columns = std::iter::once("locks".to_owned());
    let columns: Vec<String> =
        columns.chain(LATENCIES.map(|latency_us| format!("{} ms", number(latency_us / 1000.0)))).collect();
    let mut slowed = Table::new(
        "Seconds in calls for all 1,118 GB, by what a device takes for a request beside its bytes (paper: 743 and 150)",
        &columns,
    );
    for way in SLOWED {
        let cells =
            LATENCIES.map(|latency_us| number(scaled(runs.of(&one_wrf(size, way, latency_us)), WRF_BYTES)));
        slowed.row(std::iter::once(way.name().to_owned()).chain(cells).collect());
    }
    let rows: Vec<(String, &Outcome)> = WAYS.iter().map(|way| (way.name().to_owned(), of(*way))).collect();
    let values = WAYS.map(|way| Some(scaled(of(way), WRF_BYTES))).to_vec();
    let papers = WAYS.map(|way| papers(way).map(|(_, all)| all)).to_vec();
    let series = |name: &str, values| Series { name: name.to_owned(), values };
    let mut plot = bars(
        "Seconds in the writes of a forecast",
        WAYS.map(|way| way.name().to_owned()).to_vec(),
        vec![series("simulated", values), series("paper 004", papers)],
        "seconds",
    );
    plot.x_label = "locks".to_owned();
    let share = |way: Way| number(over(of(Way::Lockahead).pio_s, of(way).pio_s));
    Figure {
        name: "004-wrf",
        title: "Paper 004: WRF, 743 s and 150 s".to_owned(),
        part: 1,
        text: about_wrf(share(Way::WholeFile), share(Way::Default)),
        plots: vec![plot],
        tables: vec![table, slowed, details(&rows)],
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
        let [own_files, default, whole_file, group, lockahead, _, sections] = requests;
        assert_eq!((own_files.1, group.1, lockahead.1, sections.1), (0, 0, 0, 0), "{requests:?}");
        assert!(default.1 > 50 && default.0 > 50, "{requests:?}");
        // Every write but the first of each stripe calls somebody's lock back.
        assert!(whole_file.1 > 8 * 32 - 10, "{requests:?}");
        assert!(group.0 <= 32 && lockahead.0 <= 16 && sections.0 <= 16, "{requests:?}");
    }
}
