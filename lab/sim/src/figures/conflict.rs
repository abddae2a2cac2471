//! Figs. 17, 18 and 19: writes that all conflict, under each lock mode and with each feature on and off.

use super::program::Pattern;
use super::result::{Figure, Plot, PlotKind, Series, Table, bytes, number};
use super::run::{Outcome, Outcomes, Spec, WriteMode, over, policy};
use super::{Size, measured};
use ccpfs_types::Policy;

const KIB: u64 = 1024;
/// Clients of Figs. 17, 18 and 19(b).
const CLIENTS: u64 = 16;

/// The sizes of Fig. 17, "from 16KB to 1,024KB".
const SEQUENTIAL: [u64; 7] = [16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB];
/// The sizes of Figs. 18 and 19(b).
const PARALLEL: [u64; 5] = [64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, 1024 * KIB];

fn seqdlm() -> Policy {
    policy("seqdlm-page")
}

/// Writes of each client: 4,000, as the paper says.
fn writes(size: Size) -> u64 {
    size.of(4000, 50)
}

// ---------------------------------------------------------------------------------------------- Fig. 17

/// One run of Fig. 17.
pub(super) fn sequential(size: Size, mode: WriteMode, block: u64) -> Spec {
    let pattern = Pattern::RoundRobin { block, writes: writes(size) };
    Spec { mode, ..Spec::new(seqdlm(), pattern, CLIENTS) }
}

/// The runs of Fig. 17.
pub(super) fn specs17(size: Size) -> Vec<Spec> {
    let modes = [WriteMode::Pw, WriteMode::Nbw];
    modes.iter().flat_map(|mode| SEQUENTIAL.map(|block| sequential(size, *mode, block))).collect()
}

/// Revocation, cancel and the rest, in seconds.
fn parts(outcome: &Outcome) -> [f64; 3] {
    let others = outcome.pio_s - outcome.revoking_s - outcome.canceling_s;
    [outcome.revoking_s, outcome.canceling_s, others.max(0.0)]
}

/// Fig. 17.
pub(super) fn figure17(size: Size, runs: &Outcomes) -> Figure {
    let mut table = Table::new(
        "Time of the sequential test",
        &[
            "mode, size",
            "total s",
            "revocation s",
            "cancel s",
            "others s",
            "locking %",
            "cancel of locking %",
        ],
    );
    let mut categories = Vec::new();
    let mut series: Vec<Series> = ["revocation", "cancel (flush and release)", "others"]
        .map(|name| Series { name: name.to_owned(), values: Vec::new() })
        .to_vec();
    for (mode, name) in [(WriteMode::Nbw, "NBW"), (WriteMode::Pw, "PW")] {
        for block in SEQUENTIAL {
            let outcome = runs.of(&sequential(size, mode, block));
            let parts = parts(outcome);
            let locking = parts[0] + parts[1];
            categories.push(format!("{name}\n{}", block / KIB));
            series.iter_mut().zip(parts).for_each(|(series, part)| series.values.push(Some(part)));
            let mut row = vec![format!("{name}, {}", bytes(block)), number(outcome.pio_s)];
            row.extend(parts.map(number));
            row.extend([
                number(100.0 * over(locking, outcome.pio_s)),
                number(100.0 * over(parts[1], locking)),
            ]);
            table.row(row);
        }
    }
    let shares = |block: u64| {
        let outcome = runs.of(&sequential(size, WriteMode::Pw, block));
        let parts = parts(outcome);
        let locking = parts[0] + parts[1];
        (100.0 * over(locking, outcome.pio_s), 100.0 * over(parts[1], locking))
    };
    let (small, large) = (shares(16 * KIB), shares(1024 * KIB));
    Figure {
        name: "17",
        title: "Fig. 17: time of totally conflicting writes, one after the other".to_owned(),
        part: 1,
        text: vec![format!(
            "{CLIENTS} clients write by turns, {} writes each, each under a lock of the whole range. Revocation: from \
             sending it until the server has the reply. Cancel: from there until the waiting lock is granted. Others: \
             requests, grants, the copy into the cache, and the message that passes the turn on.",
            writes(size)
        )],
        plots: vec![Plot {
            title: "Seconds, by write size in KiB".to_owned(),
            x_label: "write size in KiB".to_owned(),
            y_label: "seconds".to_owned(),
            kind: PlotKind::Stacked,
            logarithmic: false,
            categories,
            series,
        }],
        tables: vec![table],
        measured: vec![
            measured("17.locking.16k", small.0),
            measured("17.locking.1024k", large.0),
            measured("17.cancel.16k", small.1),
            measured("17.cancel.1024k", large.1),
        ],
    }
}

// ---------------------------------------------------------------------------------------------- Fig. 18

/// The four contenders of Fig. 18.
const CONTENDERS: [(&str, &str, WriteMode); 4] = [
    ("NBW + ER", "seqdlm-page", WriteMode::Nbw),
    ("NBW", "seqdlm-page-no-early-revocation", WriteMode::Nbw),
    ("PW + ER", "seqdlm-page", WriteMode::Pw),
    ("PW", "seqdlm-page-no-early-revocation", WriteMode::Pw),
];

/// One run of Fig. 18, contender by its place in the list; `writes` by each client.
pub(super) fn parallel(contender: usize, block: u64, writes: u64) -> Spec {
    let (_, name, mode) = CONTENDERS[contender];
    let pattern = Pattern::Strided { block, writes };
    Spec { mode, locks_whole: true, ..Spec::new(policy(name), pattern, CLIENTS) }
}

/// The runs of Fig. 18.
pub(super) fn specs18(size: Size) -> Vec<Spec> {
    let all = (0..CONTENDERS.len()).flat_map(|at| PARALLEL.map(|block| (at, block)));
    all.map(|(at, block)| parallel(at, block, writes(size))).collect()
}

/// Fig. 18.
pub(super) fn figure18(size: Size, runs: &Outcomes) -> Figure {
    let of = |at: usize, block: u64| runs.of(&parallel(at, block, writes(size)));
    let lines = |value: &dyn Fn(&Outcome) -> f64| -> Vec<Series> {
        let one = |(at, (name, _, _)): (usize, &(&str, &str, WriteMode))| Series {
            name: (*name).to_owned(),
            values: PARALLEL.iter().map(|block| Some(value(of(at, *block)))).collect(),
        };
        CONTENDERS.iter().enumerate().map(one).collect()
    };
    let categories: Vec<String> = PARALLEL.iter().map(|block| (block / KIB).to_string()).collect();
    let plot = |title: &str, y_label: &str, series, logarithmic| Plot {
        title: title.to_owned(),
        x_label: "write size in KiB".to_owned(),
        y_label: y_label.to_owned(),
        kind: PlotKind::Lines,
        logarithmic,
        categories: categories.clone(),
        series,
    };
    let mut table = Table::new(
        "Parallel conflicting writes",
        &[
            "contender, size",
            "writes/s",
            "locking/IO %",
            "lock requests",
            "revocations",
            "flushes",
            "server busy %",
        ],
    );
    for (at, (name, _, _)) in CONTENDERS.iter().enumerate() {
        for block in PARALLEL {
            let outcome = of(at, block);
            table.row(vec![
                format!("{name}, {}", bytes(block)),
                number(outcome.rate()),
                number(100.0 * over(outcome.locking_s, outcome.calling_s)),
                number(outcome.requests as f64),
                number(outcome.revocations as f64),
                number(outcome.flushes as f64),
                number(100.0 * over(outcome.server_busy_s, outcome.total_s())),
            ]);
        }
    }
    let ratio = |a: usize, b: usize, block: u64| over(of(a, block).rate(), of(b, block).rate());
    Figure {
        name: "18",
        title: "Fig. 18: throughput of one lock under parallel conflicting writes".to_owned(),
        part: 1,
        text: vec![format!(
            "{CLIENTS} clients write independently, {} writes each, each under a lock of the whole range. ER: early revocation. \
             The locking/IO ratio is the time that calls wait for their lock as a part of the time of all calls. Server busy: \
             its request queue, as a part of PIO and F.",
            writes(size)
        )],
        plots: vec![
            plot("Throughput", "writes per second", lines(&Outcome::rate), true),
            plot("Locking/IO ratio", "%", lines(&|o| 100.0 * over(o.locking_s, o.calling_s)), false),
        ],
        tables: vec![table],
        measured: vec![
            measured("18.noer.64k", ratio(1, 3, 64 * KIB)),
            measured("18.noer.1024k", ratio(1, 3, 1024 * KIB)),
            measured("18.er.64k", ratio(0, 3, 64 * KIB)),
            measured("18.er.1024k", ratio(0, 3, 1024 * KIB)),
            measured("18.pw.er", ratio(2, 3, 64 * KIB)),
        ],
    }
}

// ---------------------------------------------------------------------------------------------- Fig. 19

/// Fig. 19(a): who, under which policy, in which mode.
const UPGRADERS: [(&str, &str, WriteMode); 3] = [
    ("PW", "seqdlm-page", WriteMode::Pw),
    ("NBW", "seqdlm-page-no-upgrading", WriteMode::Nbw),
    ("NBW+U", "seqdlm-page", WriteMode::Nbw),
];
/// Fig. 19(b).
const DOWNGRADERS: [(&str, &str, WriteMode); 3] = [
    ("PW", "seqdlm-page-no-downgrading", WriteMode::Pw),
    ("BW-D", "seqdlm-page-no-downgrading", WriteMode::Bw),
    ("BW+D", "seqdlm-page", WriteMode::Bw),
];

fn mixed(at: usize, block: u64) -> Spec {
    let (_, name, mode) = UPGRADERS[at];
    Spec { mode, ..Spec::new(policy(name), Pattern::Mixed { block, calls: 1000 }, 1) }
}

/// One run of Fig. 19(b), contender by its place in the list; `writes` by each client.
pub(super) fn two_stripes(at: usize, block: u64, writes: u64) -> Spec {
    let (_, name, mode) = DOWNGRADERS[at];
    let pattern = Pattern::TwoStripes { block, writes };
    Spec { mode, stripes: 2, ..Spec::new(policy(name), pattern, CLIENTS) }
}

fn two_stripe_writes(size: Size) -> u64 {
    size.of(1000, 50)
}

/// The runs of Fig. 19.
pub(super) fn specs19(size: Size) -> Vec<Spec> {
    let mixed = (0..3).flat_map(|at| PARALLEL.map(|block| mixed(at, block)));
    let two = (0..3).flat_map(|at| PARALLEL.map(|block| two_stripes(at, block, two_stripe_writes(size))));
    mixed.chain(two).collect()
}

/// Fig. 19.
pub(super) fn figure19(size: Size, runs: &Outcomes) -> Figure {
    let writes = two_stripe_writes(size);
    let upgrade = |at: usize, block: u64| runs.of(&mixed(at, block)).rate();
    let downgrade = |at: usize, block: u64| runs.of(&two_stripes(at, block, writes)).rate();
    let plot = |title: &str, names: [&str; 3], rate: &dyn Fn(usize, u64) -> f64| Plot {
        title: title.to_owned(),
        x_label: "size in KiB".to_owned(),
        y_label: "calls per second".to_owned(),
        kind: PlotKind::Bars,
        logarithmic: true,
        categories: PARALLEL.iter().map(|block| (block / KIB).to_string()).collect(),
        series: names
            .iter()
            .enumerate()
            .map(|(at, name)| Series {
                name: (*name).to_owned(),
                values: PARALLEL.iter().map(|block| Some(rate(at, *block))).collect(),
            })
            .collect(),
    };
    let ratio = |at: usize, block: u64| over(downgrade(at, block), downgrade(0, block));
    Figure {
        name: "19",
        title: "Fig. 19: the benefits of lock conversion".to_owned(),
        part: 1,
        text: vec![
            "(a) One client makes 1,000 calls, a write and a read of the same bytes by turns, each under a lock of the whole \
             range. U: upgrading."
                .to_owned(),
            format!(
                "(b) {CLIENTS} clients write {writes} times each, over the border of two stripes, under locks of both stripes \
                 whole. D: downgrading. The paper does not say how many writes; the rates do not depend on it."
            ),
        ],
        plots: vec![
            plot("(a) upgrading: mixed reads and writes", UPGRADERS.map(|(name, _, _)| name), &upgrade),
            plot("(b) downgrading: writes over two stripes", DOWNGRADERS.map(|(name, _, _)| name), &downgrade),
        ],
        tables: Vec::new(),
        measured: vec![
            measured("19.upgrade", over(upgrade(2, 64 * KIB), upgrade(0, 64 * KIB))),
            measured("19.same.64k", ratio(1, 64 * KIB)),
            measured("19.bw.64k", ratio(2, 64 * KIB)),
            measured("19.bw.1024k", ratio(2, 1024 * KIB)),
        ],
    }
}
