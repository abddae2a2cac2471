//! Paper 001, Figs. 8 to 12: S3D's checkpoint and S3aSim's results, written atomically by every kind of locks and protocol.

use super::Size;
use super::ior::details;
use super::noncontiguous::Search;
use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series, Table, number};
use super::run::{Outcome, Outcomes, Spec, over, policy};
use crate::taking::{Kind, Protocol};

/// Servers, and PVFS's unit of a stripe.
const SERVERS: u32 = 16;
const STRIPE_BYTES: u64 = 65_536;
/// Processes of S3D.
const PROCESSES: [u64; 4] = [8, 16, 32, 64];
/// Workers of S3aSim: one process less than the paper counts, the master.
const WORKERS: [u64; 6] = [1, 3, 7, 15, 31, 63];
/// Points of S3D's mesh along each axis: 1.19 GB.
const SIDE: u64 = 210;

/// How a call is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    /// Name of the policy.
    policy: &'static str,
    kind: Kind,
    protocol: Protocol,
    /// One group lock for each client: nobody waits for anybody, and nothing is atomic.
    is_off: bool,
}

impl Way {
    const OFF: Way =
        Way { policy: "datatype", kind: Kind::Datatype, protocol: Protocol::AltTry, is_off: true };

    /// No locks, then the paper's lock manager by kinds and protocols, then SeqDLM by kinds.
    fn all(kinds: &[Kind]) -> Vec<Way> {
        let of = |policy, kind, protocol| Way { policy, kind, protocol, is_off: false };
        let paper =
            kinds.iter().flat_map(|kind| Protocol::ALL.map(|protocol| of("datatype", *kind, protocol)));
        let seqdlm = kinds.iter().map(|kind| of("seqdlm", *kind, Protocol::AltTry));
        std::iter::once(Way::OFF).chain(paper).chain(seqdlm).collect()
    }

    fn name(self) -> String {
        if self.is_off {
            return "no locks".to_owned();
        }
        let manager = if self.policy == "seqdlm" { "SeqDLM, " } else { "" };
        format!("{manager}{}-{}", self.kind.name(), self.protocol.name())
    }

    fn spec(self, pattern: Pattern, clients: u64) -> Spec {
        Spec {
            stripes: SERVERS,
            stripe_bytes: STRIPE_BYTES,
            kind: Some(self.kind),
            protocol: self.protocol,
            group: self.is_off,
            ..Spec::new(policy(self.policy), pattern, clients)
        }
    }
}

/// Points along each axis. A part of the bytes, and with a request for each piece one of eight of those.
fn side(size: Size, kind: Kind) -> u64 {
    let parts = (1..).find(|edge| edge * edge * edge >= size.part).unwrap_or(1);
    match kind {
        Kind::Posix => SIDE / parts / 2,
        Kind::List | Kind::Datatype => SIDE / parts,
    }
}

/// A run of S3D; what nobody locks is as large as what `like` locks.
fn one_s3d(size: Size, way: Way, like: Kind, processes: u64) -> Spec {
    way.spec(Pattern::Checkpoint { side: side(size, like) }, processes)
}

/// The runs of S3D.
pub(super) fn specs_s3d(size: Size) -> Vec<Spec> {
    let mut specs = Vec::new();
    for processes in PROCESSES {
        specs.extend(Way::all(&Kind::ALL).iter().map(|way| one_s3d(size, *way, way.kind, processes)));
        specs.push(one_s3d(size, Way::OFF, Kind::Posix, processes));
    }
    specs
}

/// Bytes per second until all is with the servers' devices: PVFS caches nothing in clients.
fn total(outcome: &Outcome) -> f64 {
    over(outcome.bytes as f64, outcome.total_s())
}

fn percent(of: f64, whole: f64) -> f64 {
    100.0 * over(of, whole)
}

/// Percent of no locks, way by way, over the numbers of processes.
fn percents(
    title: &str,
    ways: &[Way],
    processes: &[u64],
    of: &dyn Fn(Way, Kind, u64) -> f64,
) -> (Plot, Table) {
    let locked: Vec<Way> = ways.iter().copied().filter(|way| !way.is_off).collect();
    let value =
        |way: Way, processes| percent(of(way, way.kind, processes), of(Way::OFF, way.kind, processes));
    let columns: Vec<String> = std::iter::once("locks".to_owned())
        .chain(processes.iter().map(|count| format!("{count} processes")))
        .collect();
    let mut table = Table::new(title, &columns);
    let mut series = Vec::new();
    for way in locked {
        let values: Vec<f64> = processes.iter().map(|count| value(way, *count)).collect();
        table.row(std::iter::once(way.name()).chain(values.iter().map(|value| number(*value))).collect());
        series.push(Series { name: way.name(), values: values.into_iter().map(Some).collect() });
    }
    let plot = Plot {
        title: title.to_owned(),
        x_label: "processes".to_owned(),
        y_label: "percent".to_owned(),
        kind: PlotKind::Lines,
        logarithmic: true,
        categories: processes.iter().map(ToString::to_string).collect(),
        series,
    };
    (plot, table)
}

fn about() -> String {
    format!(
        "{SERVERS} servers, units of {} KiB (PVFS's default). 'No locks' is one group lock for each client, which it asks for first. Locks are the product's under policy \
         'datatype' (exact, normal grant: the paper's lock manager), by kinds of requests and protocols; beside them SeqDLM. The machines are those \
         of the SeqDLM paper, because paper 001 does not say enough about its own, and clients cache, which PVFS's do not: so only ratios can be \
         compared, and what is compared is the time until all is with the devices. One-try and alt-try are the same where nobody shares a byte.",
        STRIPE_BYTES >> 10
    )
}

/// S3D.
pub(super) fn s3d(size: Size, runs: &Outcomes) -> Figure {
    let ways = Way::all(&Kind::ALL);
    let of = |way: Way, like: Kind, processes: u64| runs.of(&one_s3d(size, way, like, processes));
    let until_stored = |way: Way, like: Kind, processes: u64| total(of(way, like, processes));
    let until_returned = |way: Way, like: Kind, processes: u64| of(way, like, processes).bandwidth();
    let (plot, table) =
        percents("S3D: percent of the bandwidth without locks (Fig. 9)", &ways, &PROCESSES, &until_stored);
    let (cached_plot, cached) = percents(
        "S3D: the same until the last call returned, into caches",
        &ways,
        &PROCESSES,
        &until_returned,
    );
    let range = |policy: &str, kind: Kind, protocol: Protocol| {
        let way = Way {
            kind,
            protocol,
            policy: if policy == "seqdlm" { "seqdlm" } else { "datatype" },
            is_off: false,
        };
        let values = PROCESSES
            .map(|count| percent(until_stored(way, kind, count), until_stored(Way::OFF, kind, count)));
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        format!("{} to {}", number(least), number(most))
    };
    let mut claims =
        Table::new("Fig. 9: percent of no locks, 8 to 64 processes", &["what", "paper 001", "simulated"]);
    for (what, paper, policy, kind) in [
        ("datatype-one-try", "76 to 100", "datatype", Kind::Datatype),
        ("list-one-try", "73 to 100", "datatype", Kind::List),
        ("POSIX-one-try", "at best 35", "datatype", Kind::Posix),
    ] {
        let ours = range(policy, kind, Protocol::OneTry);
        claims.row(vec![what.to_owned(), paper.to_owned(), ours]);
    }
    let ours = range("seqdlm", Kind::Datatype, Protocol::AltTry);
    claims.row(vec!["SeqDLM, datatype-alt-try".to_owned(), "-".to_owned(), ours]);
    let rows: Vec<(String, &Outcome)> = PROCESSES
        .iter()
        .flat_map(|count| {
            ways.iter()
                .map(move |way| (format!("{count} processes, {}", way.name()), of(*way, way.kind, *count)))
        })
        .collect();
    let (whole, pieces) = (side(size, Kind::Datatype), side(size, Kind::Posix));
    Figure {
        name: "001-s3d",
        title: "Paper 001, Figs. 8 and 9: S3D's checkpoint".to_owned(),
        part: 1,
        text: vec![
            format!(
                "A mesh of {whole} × {whole} × {whole} points with 16 numbers of 8 bytes each ({} GB), cut into blocks; each process writes its part of \
                 four arrays with an atomic call each, of as many pieces as its block has rows. Nobody shares a byte. With a request for each piece \
                 the mesh has {pieces} points along each axis, without locks beside it as well.",
                number((whole * whole * whole * 128) as f64 / 1e9)
            ),
            about(),
        ],
        plots: vec![plot, cached_plot],
        tables: vec![claims, table, cached, details(&rows)],
        measured: Vec::new(),
    }
}

const SEARCH_KINDS: [Kind; 2] = [Kind::List, Kind::Posix];

fn one_s3asim(size: Size, way: Way, workers: u64) -> Spec {
    let search = Search { workers, queries: size.of(20, 2), results: 1000, mean_bytes: 6933 };
    way.spec(Pattern::Results(search), workers)
}

/// The runs of S3aSim.
pub(super) fn specs_s3asim(size: Size) -> Vec<Spec> {
    let ways = Way::all(&SEARCH_KINDS);
    WORKERS.iter().flat_map(|workers| ways.iter().map(|way| one_s3asim(size, *way, *workers))).collect()
}

/// S3aSim.
pub(super) fn s3asim(size: Size, runs: &Outcomes) -> Figure {
    let ways = Way::all(&SEARCH_KINDS);
    let of = |way: Way, workers: u64| runs.of(&one_s3asim(size, way, workers));
    let bandwidth = |way: Way, _: Kind, processes: u64| total(of(way, processes - 1));
    let processes = WORKERS.map(|workers| workers + 1);
    let (plot, table) =
        percents("S3aSim: percent of the bandwidth without locks (Fig. 12b)", &ways, &processes, &bandwidth);
    let list = Way { policy: "datatype", kind: Kind::List, protocol: Protocol::OneTry, is_off: false };
    let values = processes[1..]
        .iter()
        .map(|count| percent(bandwidth(list, Kind::List, *count), bandwidth(Way::OFF, Kind::List, *count)));
    let (least, most) = values.fold((f64::MAX, 0.0_f64), |(a, b), value| (a.min(value), b.max(value)));
    let mut claims = Table::new("Fig. 12b: percent of no locks", &["what", "paper 001", "simulated"]);
    claims.row(vec![
        "list-one-try, 4 to 64 processes ('70 % to 87 %')".to_owned(),
        "70 to 87".to_owned(),
        format!("{} to {}", number(least), number(most)),
    ]);
    let rows: Vec<(String, &Outcome)> = WORKERS
        .iter()
        .flat_map(|count| {
            ways.iter().map(move |way| (format!("{count} workers, {}", way.name()), of(*way, *count)))
        })
        .collect();
    Figure {
        name: "001-s3asim",
        title: "Paper 001, Figs. 11 and 12: S3aSim".to_owned(),
        part: 1,
        text: vec![
            format!(
                "{} queries of 1,000 to 2,000 results of {} bytes on average (208 MB in all with 20 queries), which are written in no order by whoever \
                 found them: one atomic call for each query and worker, then a flush, which the worker waits for. The search itself is left out. \
                 Descriptions would be lists here: there is nothing to describe.",
                size.of(20, 2),
                6933
            ),
            about(),
        ],
        plots: vec![plot],
        tables: vec![claims, table, details(&rows)],
        measured: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::run::run;

    #[test]
    fn every_way_writes_all_bytes_and_kinds_differ_in_requests_alone() {
        let outcome = |kind, is_off| {
            let way = Way { kind, is_off, ..Way::OFF };
            run(&way.spec(Pattern::Checkpoint { side: 24 }, 8)).expect("all calls return")
        };
        let off = outcome(Kind::Datatype, true);
        assert_eq!((off.bytes, off.revocations), (24 * 24 * 24 * 128, 0));
        let [posix, list, datatype] = Kind::ALL.map(|kind| outcome(kind, false));
        assert!(
            posix.requests > 8 * list.requests && list.requests >= datatype.requests,
            "{posix:?} {list:?}"
        );
        for atomic in [&posix, &list, &datatype] {
            assert_eq!((atomic.bytes, atomic.revocations, atomic.destaged_bytes), (off.bytes, 0, off.bytes));
        }
    }

    #[test]
    fn results_of_a_search_are_written_and_flushed_whatever_the_locks() {
        let search = Search { workers: 3, queries: 2, results: 40, mean_bytes: 500 };
        let ways = Way::all(&SEARCH_KINDS);
        let bytes = ways.iter().map(|way| {
            let outcome = run(&way.spec(Pattern::Results(search), 3)).expect("all calls return");
            assert_eq!(outcome.destaged_bytes, outcome.bytes, "{way:?}");
            outcome.bytes
        });
        let bytes: Vec<u64> = bytes.collect();
        assert!(bytes.iter().all(|count| *count == bytes[0]), "{bytes:?}");
    }
}
