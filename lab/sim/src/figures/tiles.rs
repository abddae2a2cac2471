//! Fig. 23: Tile-IO. SeqDLM locks the smallest range per stripe that takes a tile in, DLM-datatype exactly the tile.

use super::ior::details;
use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series};
use super::run::{Manager, Outcomes, Spec, over, policy};
use super::{Size, measured};

const STRIPES: [u32; 5] = [1, 2, 4, 8, 16];
const CLIENTS: u64 = 96;
/// The part of the pixels that are written.
pub(super) const PART: u64 = 4;

/// Pixels of a side: 20,480 in the paper, less for a part of its bytes.
fn side(size: Size) -> u64 {
    20_480 / size.part.isqrt()
}

/// One run; the paper's tiles have sides of 20,480 pixels.
pub(super) fn spec(size: Size, manager: Manager, stripes: u32) -> Spec {
    let pattern = Pattern::Tiles { columns: 8, rows: 12, side: side(size), overlap: 100 };
    Spec { stripes, ..Spec::new(manager, pattern, CLIENTS) }
}

fn managers() -> [(&'static str, Manager); 2] {
    [("SeqDLM", policy("seqdlm-page")), ("DLM-datatype", Manager::Datatype)]
}

/// The runs of Fig. 23.
pub(super) fn specs(size: Size) -> Vec<Spec> {
    managers().iter().flat_map(|(_, manager)| STRIPES.map(|stripes| spec(size, *manager, stripes))).collect()
}

/// Fig. 23.
pub(super) fn figure(size: Size, runs: &Outcomes) -> Figure {
    let of = |manager: Manager, stripes: u32| runs.of(&spec(size, manager, stripes));
    let series = managers().map(|(name, manager)| Series {
        name: name.to_owned(),
        values: STRIPES.iter().map(|stripes| Some(of(manager, *stripes).bandwidth() / 1e9)).collect(),
    });
    let mut rows = Vec::new();
    for stripes in STRIPES {
        for (name, manager) in managers() {
            rows.push((format!("{stripes} stripes, {name}"), of(manager, stripes)));
        }
    }
    let [seqdlm, datatype] = managers().map(|(_, manager)| manager);
    let ratio = |stripes| over(of(seqdlm, stripes).bandwidth(), of(datatype, stripes).bandwidth());
    let side = side(size);
    let mut bars = Vec::new();
    for stripes in STRIPES {
        bars.push((format!("SeqDLM\n{stripes}"), of(seqdlm, stripes)));
        bars.push((format!("datatype\n{stripes}"), of(datatype, stripes)));
    }
    Figure {
        name: "23",
        title: "Fig. 23: Tile-IO".to_owned(),
        part: 1,
        text: vec![
            format!(
                "{CLIENTS} clients write 8 × 12 tiles of {side} × {side} pixels of 4 bytes, neighbours with 100 pixels in common, \
                 each with one atomic call. SeqDLM locks per stripe the smallest range around the tile; with one stripe NBW, with \
                 more BW."
            ),
            "DLM-datatype is the simulator's own model of exact lists of ranges (figures/datatype.rs): normal grant, no \
             expansion, the same machines; the product has no lists yet. Which client comes first is drawn at random, once."
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
            super::ior::stacked_times("Time, by lock manager and stripes", &bars),
        ],
        tables: vec![details(&rows)],
        measured: vec![measured("23.s1", ratio(1)), measured("23.s16", ratio(16))],
    }
}
