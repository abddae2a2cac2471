//! Fig. 23: Tile-IO. SeqDLM locks the smallest range per stripe that takes a tile in, or exactly the tile; DLM-datatype exactly the tile.

use super::explain::{Change, Explanation, expanding, machines};
use super::hardware::{Hardware, Knob};
use super::ior::details;
use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series, Table, number};
use super::run::{Outcomes, Spec, WriteMode, over, policy};
use super::{Size, measured};
use crate::taking::Kind;
use ccpfs_types::Expansion;

const STRIPES: [u32; 5] = [1, 2, 4, 8, 16];
const CLIENTS: u64 = 96;
/// The part of the pixels that are written.
pub(super) const PART: u64 = 4;

/// How a tile is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// SeqDLM, as the paper says: on each stripe one range of pages around all of the tile.
    Bounds,
    /// SeqDLM, on each stripe the tile itself, as sections.
    Sections,
    /// The same by a traditional lock manager: the paper's baseline.
    Datatype,
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::Bounds, Way::Sections, Way::Datatype];

    const fn name(self) -> &'static str {
        match self {
            Way::Bounds => "SeqDLM",
            Way::Sections => "SeqDLM, sections",
            Way::Datatype => "DLM-datatype",
        }
    }

    const fn short(self) -> &'static str {
        match self {
            Way::Bounds => "bounds",
            Way::Sections => "sections",
            Way::Datatype => "datatype",
        }
    }
}

/// Pixels of a side: 20,480 in the paper, less for a part of its bytes.
fn side(size: Size) -> u64 {
    20_480 / size.part.isqrt()
}

/// One run; the paper's tiles have sides of 20,480 pixels.
pub(super) fn spec(size: Size, way: Way, stripes: u32) -> Spec {
    let pattern = Pattern::Tiles { columns: 8, rows: 12, side: side(size), overlap: 100 };
    let (manager, kind) = match way {
        Way::Bounds => ("seqdlm-page", None),
        Way::Sections => ("seqdlm", Some(Kind::Datatype)),
        Way::Datatype => ("datatype", Some(Kind::Datatype)),
    };
    Spec { stripes, kind, ..Spec::new(policy(manager), pattern, CLIENTS) }
}

/// The runs of Fig. 23.
pub(super) fn specs(size: Size) -> Vec<Spec> {
    Way::ALL.iter().flat_map(|way| STRIPES.map(|stripes| spec(size, *way, stripes))).collect()
}

/// What the locks of sections are worth, beside the paper's numbers for ranges around tiles.
fn sections(size: Size, runs: &Outcomes) -> Table {
    let mut table = Table::new(
        "Over DLM-datatype, by PIO time and until all is flushed",
        &["stripes", "paper: SeqDLM", "SeqDLM", "SeqDLM, sections", "until flushed: SeqDLM", "sections"],
    );
    for stripes in STRIPES {
        let of = |way| runs.of(&spec(size, way, stripes));
        let datatype = of(Way::Datatype);
        let paper = match stripes {
            1 => "51.0",
            16 => "4.1",
            _ => "-",
        };
        let pio = |way| number(over(of(way).bandwidth(), datatype.bandwidth()));
        let total = |way| number(over(datatype.total_s(), of(way).total_s()));
        table.row(vec![
            stripes.to_string(),
            paper.to_owned(),
            pio(Way::Bounds),
            pio(Way::Sections),
            total(Way::Bounds),
            total(Way::Sections),
        ]);
    }
    table
}

/// Fig. 23.
pub(super) fn figure(size: Size, runs: &Outcomes) -> Figure {
    let of = |way: Way, stripes: u32| runs.of(&spec(size, way, stripes));
    let series = Way::ALL.map(|way| Series {
        name: way.name().to_owned(),
        values: STRIPES.iter().map(|stripes| Some(of(way, *stripes).bandwidth() / 1e9)).collect(),
    });
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    for stripes in STRIPES {
        for way in Way::ALL {
            rows.push((format!("{stripes} stripes, {}", way.name()), of(way, stripes)));
            bars.push((format!("{}\n{stripes}", way.short()), of(way, stripes)));
        }
    }
    let ratio = |stripes| over(of(Way::Bounds, stripes).bandwidth(), of(Way::Datatype, stripes).bandwidth());
    let side = side(size);
    Figure {
        name: "23",
        title: "Fig. 23: Tile-IO".to_owned(),
        part: 1,
        text: vec![
            format!(
                "{CLIENTS} clients write 8 × 12 tiles of {side} × {side} pixels of 4 bytes, neighbours with 100 pixels in common, \
                 each with one atomic call. SeqDLM locks per stripe the smallest range around the tile, as in the paper; with one stripe \
                 NBW, with more BW. With sections it locks exactly the tile, which the paper does not have: one lock on one stripe, on \
                 several as many as it takes to describe it there (see requests below). Which client comes first is drawn at random, once."
            ),
            "DLM-datatype is the product under policy 'datatype': exact ranges of any form, normal grant, no expansion. Locks of several \
             stripes are taken alternately: all at once, then the next one in order (alt-try)."
                .to_owned(),
        ],
        plots: vec![
            Plot {
                title: "Write bandwidth".to_owned(),
                x_label: "stripes".to_owned(),
                y_label: "GB/s by PIO time".to_owned(),
                kind: PlotKind::Bars,
                logarithmic: true,
                categories: STRIPES.map(|stripes| stripes.to_string()).to_vec(),
                series: series.to_vec(),
            },
            super::ior::stacked_times("Time, by locks and stripes", &bars),
        ],
        tables: vec![sections(size, runs), details(&rows)],
        measured: vec![measured("23.s1", ratio(1)), measured("23.s16", ratio(16))],
    }
}

/// Stripes of Tile-IO.
const TILES: [u32; 3] = [1, 4, 16];

fn slow(spec: Spec) -> Spec {
    let rate = Hardware::default().get(Knob::CopyRate) / 2.0;
    machines(spec, &[(Knob::CopyRate, rate)])
}

/// What is changed in SeqDLM's runs of Tile-IO.
const TILE_CHANGES: [Change; 5] = [
    Change { name: "as simulated", apply: |spec| spec },
    Change { name: "copies at half of the rate", apply: slow },
    Change {
        name: "copies of 10 GB/s (several threads)",
        apply: |spec| machines(spec, &[(Knob::CopyRate, 10e9)]),
    },
    Change { name: "locks are not expanded", apply: exact },
    Change { name: "NBW instead of BW", apply: |spec| Spec { mode: WriteMode::Nbw, ..spec } },
];

/// Those that are made with locks of sections as well.
fn section_changes() -> impl Iterator<Item = &'static Change> {
    [&TILE_CHANGES[0], &TILE_CHANGES[2]].into_iter()
}

fn exact(spec: Spec) -> Spec {
    expanding(spec, Expansion::Exact)
}

/// The part of the pixels in the runs that explain Tile-IO; the figure shows more.
const TILES_PART: u64 = 16;

fn tile(size: Size, way: Way, stripes: u32) -> Spec {
    spec(size.at_least(TILES_PART), way, stripes)
}

/// The runs that the explanation needs beside those of the figure.
pub(super) fn explanation_specs(size: Size) -> Vec<Spec> {
    let mut specs = Vec::new();
    for stripes in TILES {
        let of = tile(size, Way::Bounds, stripes);
        specs.extend(TILE_CHANGES.iter().map(|change| (change.apply)(of.clone())));
        specs.extend(section_changes().map(|change| (change.apply)(tile(size, Way::Sections, stripes))));
        specs.push(tile(size, Way::Datatype, stripes));
    }
    specs
}

/// Fig. 23.
pub(super) fn explanation(size: Size, runs: &Outcomes) -> Explanation {
    let mut table = Table::new(
        "Tile-IO: SeqDLM over DLM-datatype (GB/s of each)",
        &["SeqDLM's runs", "1 stripe", "4 stripes", "16 stripes"],
    );
    let bounds = TILE_CHANGES.iter().map(|change| (Way::Bounds, "", change));
    for (way, name, change) in
        bounds.chain(section_changes().map(|change| (Way::Sections, "sections, ", change)))
    {
        let cells = TILES.map(|stripes| {
            let specs = [(change.apply)(tile(size, way, stripes)), tile(size, Way::Datatype, stripes)];
            let [above, below] = specs.map(|spec| runs.of(&spec).bandwidth() / 1e9);
            format!("{} ({} / {})", number(over(above, below)), number(above), number(below))
        });
        table.row(std::iter::once(format!("{name}{}", change.name)).chain(cells).collect());
    }
    Explanation {
        claims: vec!["23.s1", "23.s16"],
        text: "With one stripe SeqDLM takes NBW and all clients copy at the same time, at Table III's rate. The paper's ratio asks for \
               half of that rate: Tile-IO gathers a tile from memory line by line. DLM-datatype is bound by the device in both.\n\n\
               With several stripes the paper's rules ask for BW, and the smallest range around a tile overlaps those of its whole row of \
               tiles and of the rows above and below. A BW lock is lowered only when its write is over (III-D2), so the copies of tiles \
               that overlap so go on one after the other on any number of stripes, in the order in which the clients came; \
               whether locks are expanded makes little difference. (In an order of luck, the same for both lock managers. If the clients come \
               in the order of their tiles, every one waits for the one before, and SeqDLM has a fifth of DLM-datatype's bandwidth.) \
               What then counts is how long a copy takes: with faster copies BW gains, and DLM-datatype, bound by devices, does not. \
               NBW in place of BW, which would not keep the write atomic, has no such limit. The paper's ratio at 16 stripes lies between \
               these; its text does not say how its clients copy.\n\n\
               With sections, which the paper does not have, only tiles that share pixels are in each other's way, as under DLM-datatype: \
               what is left of the difference is what SeqDLM is about, a flush that nobody waits for. Its ratio falls with the number of \
               stripes because DLM-datatype gets more devices, while the copies of neighbours still go on one after the other."
            .to_owned(),
        evidence: Some(table),
    }
}
