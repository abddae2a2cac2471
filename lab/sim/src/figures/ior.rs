//! Figs. 4, 20, 21, 22 and Table III: IOR's patterns under each lock manager.

use super::hardware::{Hardware, Knob};
use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series, Table, bytes, number};
use super::run::{Outcome, Outcomes, Spec, over, policy};
use super::{Size, measured};

const KIB: u64 = 1024;
const GIB: u64 = 1 << 30;
const GIGA: f64 = 1e9;
/// Clients of Fig. 4, Table III and Fig. 20.
const CLIENTS: u64 = 16;
/// The paper's three lock managers with their ranges of 4 KiB.
pub(super) const MANAGERS: [(&str, &str); 3] =
    [("SeqDLM", "seqdlm-page"), ("DLM-basic", "basic"), ("DLM-Lustre", "lustre")];
const SIZES: [u64; 5] = [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB];

fn bandwidth(outcome: &Outcome) -> f64 {
    outcome.bandwidth() / GIGA
}

fn in_kib(sizes: &[u64]) -> Vec<String> {
    sizes.iter().map(|block| (block / KIB).to_string()).collect()
}

// ---------------------------------------------------------------------------------------------- Fig. 4

/// A pattern of so many writes of so many bytes.
type Shape = fn(u64, u64) -> Pattern;

const FIG4: [(&str, Shape); 3] = [
    ("N-N", |block, writes| Pattern::Separate { block, writes }),
    ("N-1 segmented", |block, writes| Pattern::Segmented { block, writes }),
    ("N-1 strided", |block, writes| Pattern::Strided { block, writes }),
];

fn spec4(size: Size, at: usize, block: u64) -> Spec {
    let pattern = (FIG4[at].1)(block, size.of(GIB, GIB / 64) / block);
    let array = Hardware::default().with(Knob::DeviceRate, 2e9, "a disk array of 2 GB/s");
    Spec { dirty_bytes_max: 2 * GIB, hardware: array, ..Spec::new(policy("lustre"), pattern, CLIENTS) }
}

/// The runs of Fig. 4.
pub(super) fn specs4(size: Size) -> Vec<Spec> {
    (0..3).flat_map(|at| SIZES.map(|block| spec4(size, at, block))).collect()
}

/// Fig. 4.
pub(super) fn figure4(size: Size, runs: &Outcomes) -> Figure {
    let of = |at: usize, block: u64| bandwidth(runs.of(&spec4(size, at, block)));
    let series = (0..3).map(|at| Series {
        name: FIG4[at].0.to_owned(),
        values: SIZES.iter().map(|block| Some(of(at, *block))).collect(),
    });
    Figure {
        name: "4",
        title: "Fig. 4: access patterns under a traditional lock manager".to_owned(),
        part: 1,
        text: vec![format!(
            "{CLIENTS} clients write {} each into files of one stripe under DLM-Lustre; a device of 2 GB/s, at most 2 GiB of \
             dirty data per client. The paper measured Lustre itself on other machines and states no numbers: compare shapes.",
            bytes(size.of(GIB, GIB / 64))
        )],
        plots: vec![Plot {
            title: "Write bandwidth".to_owned(),
            x_label: "write size in KiB".to_owned(),
            y_label: "GB/s by PIO time".to_owned(),
            kind: PlotKind::Lines,
            logarithmic: true,
            categories: in_kib(&SIZES),
            series: series.collect(),
        }],
        tables: Vec::new(),
        measured: Vec::new(),
    }
}

// ---------------------------------------------------------------------------------------------- Table III

/// Bytes that each client of IOR writes: 2 GB in the paper.
fn client_bytes(size: Size) -> u64 {
    size.of(2 * GIB, GIB / 64)
}

/// A segmented run with one stripe.
pub(super) fn segmented(size: Size, manager: &str, block: u64) -> Spec {
    let pattern = Pattern::Segmented { block, writes: client_bytes(size) / block };
    Spec::new(policy(manager), pattern, CLIENTS)
}

/// The runs of Table III.
pub(super) fn specs_table3(size: Size) -> Vec<Spec> {
    MANAGERS.map(|(_, name)| segmented(size, name, 64 * KIB)).to_vec()
}

/// Table III.
pub(super) fn table3(size: Size, runs: &Outcomes) -> Figure {
    let mut table = Table::new(
        "N-1 segmented, 1 stripe",
        &["", "bandwidth GB/s", "PIO s", "F s", "total s", "lock requests"],
    );
    let mut values = Vec::new();
    for (name, manager) in MANAGERS {
        let outcome = runs.of(&segmented(size, manager, 64 * KIB));
        table.row(vec![
            name.to_owned(),
            number(bandwidth(outcome)),
            number(outcome.pio_s),
            number(outcome.flush_s),
            number(outcome.total_s()),
            number(outcome.requests as f64),
        ]);
        // Of a part of the writes, as long as all of them would take.
        let whole = outcome.total_s() * (2 * GIB) as f64 / client_bytes(size) as f64;
        values.push((bandwidth(outcome), whole));
    }
    let names = [
        ("t3.bandwidth.seqdlm", "t3.total.seqdlm"),
        ("t3.bandwidth.basic", "t3.total.basic"),
        ("t3.bandwidth.lustre", "t3.total.lustre"),
    ];
    let measured =
        names.iter().zip(values).flat_map(|((b, t), value)| [measured(b, value.0), measured(t, value.1)]);
    Figure {
        name: "table3",
        title: "Table III: IOR N-1 segmented on a file with one stripe".to_owned(),
        part: 1,
        text: vec![format!(
            "{CLIENTS} clients write {} each in writes of 64 KiB, each into a part of the file of its own.",
            bytes(client_bytes(size))
        )],
        plots: Vec::new(),
        tables: vec![table],
        measured: measured.collect(),
    }
}

// ---------------------------------------------------------------------------------------------- Fig. 20

/// A strided run with one stripe; `bytes` by each client.
pub(super) fn strided(manager: &str, block: u64, bytes: u64) -> Spec {
    Spec::new(policy(manager), Pattern::Strided { block, writes: bytes / block }, CLIENTS)
}

/// A strided run of SeqDLM with one stripe, as in Fig. 20.
pub(super) fn strided_of(size: Size, block: u64) -> Spec {
    strided("seqdlm-page", block, client_bytes(size))
}

/// The runs of Fig. 20.
pub(super) fn specs20(size: Size) -> Vec<Spec> {
    let strided =
        MANAGERS.iter().flat_map(|(_, name)| SIZES.map(|block| strided(name, block, client_bytes(size))));
    let bytewise = SIZES.map(|block| strided_bytewise(size, block));
    let uneven = SIZES.map(|block| strided_uneven(size, block));
    strided
        .chain(bytewise)
        .chain(uneven)
        .chain(SIZES.map(|block| segmented(size, "seqdlm-page", block)))
        .collect()
}

fn strided_bytewise(size: Size, block: u64) -> Spec {
    strided("seqdlm", block, client_bytes(size))
}

/// A copy takes up to so much longer where clients are not in step, nanoseconds: see the explanation.
const UNEVEN_NS: u64 = 10_000;

fn strided_uneven(size: Size, block: u64) -> Spec {
    Spec { jitter_ns: UNEVEN_NS, ..strided_of(size, block) }
}

/// Fig. 20.
pub(super) fn figure20(size: Size, runs: &Outcomes) -> Figure {
    let of = |manager: &str, block: u64| runs.of(&strided(manager, block, client_bytes(size)));
    let reference = |block: u64| runs.of(&segmented(size, "seqdlm-page", block));
    let mut series = vec![Series {
        name: "SeqDLM segmented".to_owned(),
        values: SIZES.iter().map(|block| Some(bandwidth(reference(*block)))).collect(),
    }];
    series.extend(MANAGERS.iter().map(|(name, manager)| Series {
        name: (*name).to_owned(),
        values: SIZES.iter().map(|block| Some(bandwidth(of(manager, *block)))).collect(),
    }));
    let uneven = |block: u64| runs.of(&strided_uneven(size, block));
    series.push(Series {
        name: "SeqDLM, copies up to 10 µs longer".to_owned(),
        values: SIZES.iter().map(|block| Some(bandwidth(uneven(*block)))).collect(),
    });
    let mut rows: Vec<(String, &Outcome)> = Vec::new();
    for block in SIZES {
        rows.push((format!("{} SeqDLM segmented", bytes(block)), reference(block)));
        rows.extend(
            MANAGERS.iter().map(|(name, manager)| (format!("{} {name}", bytes(block)), of(manager, block))),
        );
        rows.push((
            format!("{} SeqDLM, locks by byte", bytes(block)),
            runs.of(&strided_bytewise(size, block)),
        ));
        rows.push((format!("{} SeqDLM, copies up to 10 µs longer", bytes(block)), uneven(block)));
    }
    let best = |manager: &str| {
        let ratios =
            SIZES.map(|block| over(bandwidth(of("seqdlm-page", block)), bandwidth(of(manager, block))));
        ratios.into_iter().fold(0.0, f64::max)
    };
    let share = |block| 100.0 * over(bandwidth(of("seqdlm-page", block)), bandwidth(reference(block)));
    let pio = |manager: &str| SIZES.map(|block| 100.0 * of(manager, block).pio_share());
    Figure {
        name: "20",
        title: "Fig. 20: IOR N-1 strided on a file with one stripe".to_owned(),
        part: 1,
        text: vec![format!(
            "{CLIENTS} clients write {} each, their blocks by turns.",
            bytes(client_bytes(size))
        )],
        plots: vec![
            Plot {
                title: "(a) Write bandwidth".to_owned(),
                x_label: "write size in KiB".to_owned(),
                y_label: "GB/s by PIO time".to_owned(),
                kind: PlotKind::Lines,
                logarithmic: true,
                categories: in_kib(&SIZES),
                series,
            },
            times(
                "(b) Time",
                SIZES.map(|block| (in_kib(&[block]).concat(), block)).as_slice(),
                &|name, block| of(name, block),
            ),
        ],
        tables: vec![details(&rows)],
        measured: vec![
            measured("20.strided.64k", share(64 * KIB)),
            measured("20.strided.1024k", share(1024 * KIB)),
            measured("20.basic", best("basic")),
            measured("20.lustre", best("lustre")),
            measured("20.share.seqdlm", pio("seqdlm-page").iter().sum::<f64>() / SIZES.len() as f64),
            measured("20.share.basic", pio("basic").into_iter().fold(0.0, f64::max)),
            measured("20.share.lustre", pio("lustre").into_iter().fold(0.0, f64::max)),
        ],
    }
}

/// PIO and F on top of each other, for each size and lock manager.
fn times<'a>(title: &str, sizes: &[(String, u64)], of: &dyn Fn(&str, u64) -> &'a Outcome) -> Plot {
    let bars = sizes.iter().flat_map(|size| MANAGERS.iter().map(move |manager| (size, manager)));
    let outcomes: Vec<(String, &Outcome)> = bars
        .map(|((label, block), (name, manager))| {
            let short = name.trim_start_matches("DLM-").trim_end_matches("DLM");
            (format!("{short}\n{label}"), of(manager, *block))
        })
        .collect();
    stacked_times(title, &outcomes)
}

/// PIO and F of each run on top of each other.
pub(super) fn stacked_times(title: &str, runs: &[(String, &Outcome)]) -> Plot {
    let series = |name: &str, value: &dyn Fn(&Outcome) -> f64| Series {
        name: name.to_owned(),
        values: runs.iter().map(|(_, outcome)| Some(value(outcome))).collect(),
    };
    Plot {
        title: title.to_owned(),
        x_label: String::new(),
        y_label: "seconds".to_owned(),
        kind: PlotKind::Stacked,
        logarithmic: false,
        categories: runs.iter().map(|(label, _)| label.clone()).collect(),
        series: vec![
            series("PIO: until the last write returned", &|outcome| outcome.pio_s),
            series("F: until all was flushed", &|outcome| outcome.flush_s),
        ],
    }
}

/// What happened in each run.
pub(super) fn details(rows: &[(String, &Outcome)]) -> Table {
    let columns = [
        "run",
        "GB/s",
        "PIO s",
        "F s",
        "PIO %",
        "writes",
        "lock requests",
        "revocations",
        "flushes",
        "locking/IO %",
        "busy %",
    ];
    let mut table = Table::new("Runs (busy: the busiest server's request queue during PIO and F)", &columns);
    for (name, outcome) in rows {
        table.row(vec![
            name.clone(),
            number(bandwidth(outcome)),
            number(outcome.pio_s),
            number(outcome.flush_s),
            number(100.0 * outcome.pio_share()),
            number(outcome.calls as f64),
            number(outcome.requests as f64),
            number(outcome.revocations as f64),
            number(outcome.flushes as f64),
            number(100.0 * over(outcome.locking_s, outcome.calling_s)),
            number(100.0 * over(outcome.server_busy_s, outcome.total_s())),
        ]);
    }
    table
}

// ---------------------------------------------------------------------------------------------- Figs. 21 and 22

/// IO500's size, and four and sixteen of it.
pub(super) const HARD: [u64; 3] = [47_008, 4 * 47_008, 16 * 47_008];
const STRIPES: [u32; 2] = [4, 8];
/// The part of the writes that Figs. 21 and 22 make, by their size, so that all make about as many; the explanation shows the
/// ratios at half of it.
const HARD_PARTS: [u64; 3] = [32, 16, 4];
/// Clients of Figs. 21 to 23: all nodes.
const ALL: u64 = 96;

/// One run of Figs. 21 and 22; `bytes` by each client.
pub(super) fn hard(manager: &str, block: u64, stripes: u32, bytes: u64) -> Spec {
    let pattern = Pattern::Strided { block, writes: bytes / block };
    Spec { stripes, ..Spec::new(policy(manager), pattern, ALL) }
}

/// The part of the writes of this size that is made.
pub(super) fn hard_size(size: Size, block: u64) -> Size {
    let parts = HARD.iter().zip(HARD_PARTS);
    parts.filter(|(known, _)| **known == block).fold(size, |size, (_, part)| size.at_least(part))
}

/// One run of Figs. 21 and 22, at exactly this part of the writes.
pub(super) fn hard_at(size: Size, manager: &str, block: u64, stripes: u32) -> Spec {
    hard(manager, block, stripes, size.of(2 * GIB, GIB / 128))
}

/// One run of Figs. 21 and 22, at the part that they have.
fn hard_of(size: Size, manager: &str, block: u64, stripes: u32) -> Spec {
    hard_at(hard_size(size, block), manager, block, stripes)
}

/// Which part of the writes they make, in words.
fn hard_words(size: Size) -> String {
    let words = HARD.map(|block| hard_size(size, block).words());
    format!(
        "Of the 2 GiB of each client the runs write {}, {} and {} with writes of 47,008 bytes, 4 and 16 times that.",
        words[0], words[1], words[2]
    )
}

/// Ours beside the paper's three.
const HARD_MANAGERS: [(&str, &str); 4] = [
    ("SeqDLM", "seqdlm-page"),
    ("DLM-basic", "basic"),
    ("DLM-Lustre", "lustre"),
    ("SeqDLM, locks by byte", "seqdlm"),
];

/// The runs of Figs. 21 and 22.
pub(super) fn specs21(size: Size) -> Vec<Spec> {
    let mut specs = Vec::new();
    for stripes in STRIPES {
        for block in HARD {
            specs.extend(HARD_MANAGERS.map(|(_, name)| hard_of(size, name, block, stripes)));
        }
    }
    specs
}

/// Fig. 21.
pub(super) fn figure21(size: Size, runs: &Outcomes) -> Figure {
    let of = |manager: &str, block: u64, stripes| runs.of(&hard_of(size, manager, block, stripes));
    let plot = |stripes: u32| Plot {
        title: format!("{stripes} stripes"),
        x_label: "write size in bytes".to_owned(),
        y_label: "GB/s by PIO time".to_owned(),
        kind: PlotKind::Bars,
        logarithmic: true,
        categories: HARD.map(|block| format!("47,008 × {}", block / HARD[0])).to_vec(),
        series: HARD_MANAGERS
            .iter()
            .map(|(name, manager)| Series {
                name: (*name).to_owned(),
                values: HARD.iter().map(|block| Some(bandwidth(of(manager, *block, stripes)))).collect(),
            })
            .collect(),
    };
    let mut rows = Vec::new();
    for stripes in STRIPES {
        for block in HARD {
            for (name, manager) in HARD_MANAGERS {
                rows.push((format!("{stripes} stripes, {block} B, {name}"), of(manager, block, stripes)));
            }
        }
    }
    let ratio = |stripes, block| {
        over(of("seqdlm-page", block, stripes).bandwidth(), of("lustre", block, stripes).bandwidth())
    };
    let ours = |claim, stripes, block| {
        let part = hard_size(size, block).part;
        super::result::Measured { part, ..measured(claim, ratio(stripes, block)) }
    };
    Figure {
        name: "21",
        title: "Fig. 21: N-1 strided on a file with several stripes".to_owned(),
        part: 1,
        text: vec![
            format!(
                "{ALL} clients write in IO500's size of 47,008 bytes and multiples of it; stripes have units of 1 MiB, \
                 locks are multiples of 4 KiB, so neighbours conflict, and some writes span two stripes. Beside the paper's \
                 three: ours, with locks of single bytes."
            ),
            hard_words(size),
        ],
        plots: STRIPES.map(plot).to_vec(),
        tables: vec![details(&rows)],
        measured: vec![
            ours("21.s4.small", 4, HARD[0]),
            ours("21.s4.large", 4, HARD[2]),
            ours("21.s8.small", 8, HARD[0]),
            ours("21.s8.large", 8, HARD[2]),
        ],
    }
}

/// Fig. 22.
pub(super) fn figure22(size: Size, runs: &Outcomes) -> Figure {
    let plot = |stripes: u32| {
        let of = |manager: &str, block: u64| runs.of(&hard_of(size, manager, block, stripes));
        let sizes = HARD.map(|block| (format!("× {}", block / HARD[0]), block));
        times(&format!("{stripes} stripes, 47,008 bytes × 1, 4, 16"), &sizes, &of)
    };
    Figure {
        name: "22",
        title: "Fig. 22: total time of N-1 strided".to_owned(),
        part: 1,
        text: vec!["The runs of Fig. 21.".to_owned(), hard_words(size)],
        plots: STRIPES.map(plot).to_vec(),
        tables: Vec::new(),
        measured: Vec::new(),
    }
}
