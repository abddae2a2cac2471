//! Figs. 24 and 25: VPIC-IO, 1,280 processes writing particles into one file.

use super::ior::{details, stacked_times};
use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series, bytes};
use super::run::{Outcome, Outcomes, Spec, over, policy};
use super::{Size, measured};

const STRIPES: [u32; 3] = [1, 4, 16];
/// The part of the iterations; at less, DLM-Lustre's writes still fit into the caches, see the explanation.
pub(super) const PART: u64 = 2;
/// Client nodes, processes of each, and IO threads that serve them.
const CLIENTS: u64 = 80;
const PROCESSES: u64 = 16;
const THREADS: u64 = 8;
/// Bytes of a write, iterations: 65,536 and 262,144 particles of 4 bytes.
const SHAPES: [(u64, u64); 2] = [(256 * 1024, 128), (1024 * 1024, 32)];
const MANAGERS: [(&str, &str); 2] = [("SeqDLM", "seqdlm-page"), ("DLM-Lustre", "lustre")];

/// One run, by its place among the shapes.
pub(super) fn spec(size: Size, manager: &str, shape: usize, stripes: u32) -> Spec {
    let (block, iterations) = SHAPES[shape];
    let pattern = Pattern::Particles {
        block,
        iterations: size.of(iterations, 1),
        processes: PROCESSES,
        pause_ns: 0,
        cyclic: false,
    };
    Spec { stripes, threads: THREADS, ..Spec::new(policy(manager), pattern, CLIENTS) }
}

/// The runs of Figs. 24 and 25.
pub(super) fn specs(size: Size) -> Vec<Spec> {
    let mut specs = Vec::new();
    for shape in 0..SHAPES.len() {
        for stripes in STRIPES {
            specs.extend(MANAGERS.map(|(_, name)| spec(size, name, shape, stripes)));
        }
    }
    specs
}

/// What the runs of a shape make.
fn words(size: Size, shape: usize) -> String {
    let (block, iterations) = SHAPES[shape];
    format!("writes of {}, {} of {iterations} iterations", bytes(block), size.of(iterations, 1))
}

/// Fig. 24.
pub(super) fn figure24(size: Size, runs: &Outcomes) -> Figure {
    let of = |manager: &str, shape: usize, stripes: u32| runs.of(&spec(size, manager, shape, stripes));
    let plot = |shape: usize| Plot {
        title: words(size, shape),
        x_label: "stripes".to_owned(),
        y_label: "GB/s by PIO time".to_owned(),
        kind: PlotKind::Bars,
        logarithmic: true,
        categories: STRIPES.map(|stripes| stripes.to_string()).to_vec(),
        series: MANAGERS
            .iter()
            .map(|(name, manager)| Series {
                name: (*name).to_owned(),
                values: STRIPES
                    .iter()
                    .map(|stripes| Some(of(manager, shape, *stripes).bandwidth() / 1e9))
                    .collect(),
            })
            .collect(),
    };
    let mut rows = Vec::new();
    for (shape, (block, _)) in SHAPES.iter().enumerate() {
        for stripes in STRIPES {
            for (name, manager) in MANAGERS {
                rows.push((
                    format!("{}, {stripes} stripes, {name}", bytes(*block)),
                    of(manager, shape, stripes),
                ));
            }
        }
    }
    let ratio = |shape, stripes| {
        over(of("seqdlm-page", shape, stripes).bandwidth(), of("lustre", shape, stripes).bandwidth())
    };
    Figure {
        name: "24",
        title: "Fig. 24: VPIC-IO".to_owned(),
        part: 1,
        text: vec![format!(
            "{} processes on {CLIENTS} nodes write 8 variables of 4 bytes for each of their particles, iteration by iteration; a \
             variable of one iteration is contiguous in the file over all processes. {THREADS} IO threads per node serve its \
             {PROCESSES} processes by turns. Of HDF5 only the writes are simulated, not its metadata; iterations are not \
             synchronised. {} and {} iterations.",
            CLIENTS * PROCESSES,
            size.of(SHAPES[0].1, 1),
            size.of(SHAPES[1].1, 1)
        )],
        plots: vec![plot(0), plot(1)],
        tables: vec![details(&rows)],
        measured: vec![
            measured("24.small.s1", ratio(0, 1)),
            measured("24.small.s16", ratio(0, 16)),
            measured("24.large.s1", ratio(1, 1)),
            measured("24.large.s16", ratio(1, 16)),
        ],
    }
}

/// Fig. 25.
pub(super) fn figure25(size: Size, runs: &Outcomes) -> Figure {
    let of = |manager: &str, shape: usize, stripes: u32| runs.of(&spec(size, manager, shape, stripes));
    let plot = |shape: usize| {
        let bars: Vec<(String, &Outcome)> = STRIPES
            .iter()
            .flat_map(|stripes| {
                MANAGERS
                    .iter()
                    .map(move |(name, manager)| (format!("{name}\n{stripes}"), of(manager, shape, *stripes)))
            })
            .collect();
        stacked_times(&format!("{}: seconds by lock manager and stripes", words(size, shape)), &bars)
    };
    let ratio = |shape, stripes| {
        over(of("seqdlm-page", shape, stripes).total_s(), of("lustre", shape, stripes).total_s())
    };
    Figure {
        name: "25",
        title: "Fig. 25: VPIC-IO, PIO time and F time".to_owned(),
        part: 1,
        text: vec!["The runs of Fig. 24.".to_owned()],
        plots: vec![plot(0), plot(1)],
        tables: Vec::new(),
        measured: vec![
            measured("25.small.s1", ratio(0, 1)),
            measured("25.small.s16", ratio(0, 16)),
            measured("25.large.s1", ratio(1, 1)),
            measured("25.large.s4", ratio(1, 4)),
            measured("25.large.s16", ratio(1, 16)),
        ],
    }
}
