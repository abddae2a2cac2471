//! Beyond the paper: N-1 strided with 16 to 10,000 clients and 1 to 256 stripes.

use super::Size;
use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series, Table, bytes, number};
use super::run::{Outcome, Outcomes, Spec, over, policy};

const CLIENTS: [u64; 4] = [16, 96, 1000, 10_000];
const STRIPES: [u32; 5] = [1, 4, 16, 64, 256];
/// The part of our own choice of writes: the time of the rules' cost with 10,000 clients.
pub(super) const PART: u64 = 8;
const BLOCKS: [u64; 2] = [64 * 1024, 47_008];

/// Writes of each client: fewer where there are many, so that a run stays short.
fn writes(size: Size, clients: u64) -> u64 {
    (size.of(200_000, 20_000) / clients).clamp(size.of(16, 4), 2_000)
}

fn spec(size: Size, block: u64, clients: u64, stripes: u32) -> Spec {
    let pattern = Pattern::Strided { block, writes: writes(size, clients) };
    Spec { stripes, ..Spec::new(policy("seqdlm"), pattern, clients) }
}

/// The runs.
pub(super) fn specs(size: Size) -> Vec<Spec> {
    let mut specs = Vec::new();
    for block in BLOCKS {
        for clients in CLIENTS {
            specs.extend(STRIPES.map(|stripes| spec(size, block, clients, stripes)));
        }
    }
    specs
}

/// Where the request queue of a server is busy this much, it is the server that limits.
const SATURATED: f64 = 0.9;

/// The plot, the table and the paragraph.
pub(super) fn figure(size: Size, runs: &Outcomes) -> Figure {
    let of = |block: u64, clients: u64, stripes: u32| runs.of(&spec(size, block, clients, stripes));
    let plot = |block: u64| Plot {
        title: format!("N-1 strided, writes of {}", bytes(block)),
        x_label: "stripes, each on a server of its own".to_owned(),
        y_label: "writes per second".to_owned(),
        kind: PlotKind::Lines,
        logarithmic: true,
        categories: STRIPES.map(|stripes| stripes.to_string()).to_vec(),
        series: CLIENTS
            .iter()
            .map(|clients| Series {
                name: format!("{} clients", number(*clients as f64)),
                values: STRIPES.iter().map(|stripes| Some(of(block, *clients, *stripes).rate())).collect(),
            })
            .collect(),
    };
    let mut table = Table::new(
        "Cost of a write (simulated; CPU: processor time of the rules and the simulator on this machine)",
        &[
            "run",
            "GB/s",
            "writes/s",
            "client ms/write",
            "server µs/write",
            "server busy %",
            "requests/write",
            "CPU µs/write",
            "CPU ns/event",
        ],
    );
    for block in BLOCKS {
        for clients in CLIENTS {
            for stripes in STRIPES {
                let name = format!("{}, {} clients, {stripes} stripes", bytes(block), number(clients as f64));
                table.row(row(name, of(block, clients, stripes), stripes));
            }
        }
    }
    let one = |clients| of(BLOCKS[0], clients, 1);
    Figure {
        name: "scale",
        title: "Beyond the paper: one shared file, 16 to 10,000 clients".to_owned(),
        part: 1,
        text: vec![
            format!(
                "N-1 strided under SeqDLM with locks of single bytes, writes of 64 KiB and of 47,008 bytes, stripes with units of \
                 1 MiB; {} writes per client with 16 clients, {} with 10,000.",
                number(writes(size, 16) as f64),
                writes(size, 10_000)
            ),
            paragraph(&CLIENTS.map(|clients| (clients, one(clients))), &|clients, stripes| {
                of(BLOCKS[0], clients, stripes)
            }),
        ],
        plots: BLOCKS.map(plot).to_vec(),
        tables: vec![table],
        measured: Vec::new(),
    }
}

fn busy(outcome: &Outcome) -> f64 {
    over(outcome.server_busy_pio_s, outcome.pio_s)
}

fn row(name: String, outcome: &Outcome, stripes: u32) -> Vec<String> {
    let calls = outcome.calls as f64;
    let servers_s = outcome.servers_busy_s;
    let _ = stripes;
    vec![
        name,
        number(outcome.bandwidth() / 1e9),
        number(outcome.rate()),
        number(1e3 * over(outcome.calling_s, calls)),
        number(1e6 * over(servers_s, calls)),
        number(100.0 * busy(outcome)),
        number(over(outcome.requests as f64, calls)),
        number(1e6 * over(outcome.cpu_s, calls)),
        number(1e9 * over(outcome.cpu_s, outcome.events as f64)),
    ]
}

/// What is seen, computed from the outcomes.
fn paragraph<'a>(one: &[(u64, &Outcome)], of: &dyn Fn(u64, u32) -> &'a Outcome) -> String {
    let saturated = one.iter().find(|(_, outcome)| busy(outcome) >= SATURATED);
    let first = match saturated {
        Some((clients, outcome)) => format!(
            "One lock server is saturated ({} % busy while clients write) from {} clients on, at {} writes of 64 KiB per second \
             ({} GB/s).",
            number(100.0 * busy(outcome)),
            number(*clients as f64),
            number(outcome.rate()),
            number(outcome.bandwidth() / 1e9)
        ),
        None => format!(
            "One lock server is not saturated by any number of clients here: at most {} % busy.",
            number(100.0 * one.iter().map(|(_, outcome)| busy(outcome)).fold(0.0, f64::max))
        ),
    };
    let (few, many) = (one[0], one[one.len() - 1]);
    let per_call = |outcome: &Outcome, s: f64| 1e6 * over(s, outcome.calls as f64);
    let enough = CLIENTS.iter().map(|clients| {
        let stripes = STRIPES.iter().find(|stripes| busy(of(*clients, **stripes)) < SATURATED / 2.0);
        let text = stripes.map_or_else(|| "more than 256".to_owned(), ToString::to_string);
        format!("{} clients: {text}", number(*clients as f64))
    });
    format!(
        "{first} From {} to {} clients on one stripe, a write costs the server {} and {} µs of its queue, the client {} and {} ms, \
         and the machine that simulates it {} and {} µs of CPU time: the rules' own cost per write. Stripes at which \
         the busiest server is less than half busy: {}.",
        number(few.0 as f64),
        number(many.0 as f64),
        number(per_call(few.1, few.1.servers_busy_s)),
        number(per_call(many.1, many.1.servers_busy_s)),
        number(per_call(few.1, few.1.calling_s) / 1e3),
        number(per_call(many.1, many.1.calling_s) / 1e3),
        number(per_call(few.1, few.1.cpu_s)),
        number(per_call(many.1, many.1.cpu_s)),
        enough.collect::<Vec<_>>().join("; ")
    )
}
