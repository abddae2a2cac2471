//! Why some of our numbers are not the paper's: each explanation with runs in which the suspected effect is added or removed.

use super::hardware::{Hardware, Knob};
use super::program::Pattern;
use super::result::{Table, number};
use super::run::{Outcomes, Spec, WriteMode, over};
use super::{Size, conflict, ior, paper, sensitivity, tiles, vpic};
use ccpfs_types::{Expansion, Policy};

/// An explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The claims it is about.
    pub claims: Vec<&'static str>,
    /// What it says.
    pub text: String,
    /// The runs that show it.
    pub evidence: Option<Table>,
}

/// A change of a run, with its name in the table.
pub(super) struct Change {
    pub(super) name: &'static str,
    pub(super) apply: fn(Spec) -> Spec,
}

pub(super) fn machines(spec: Spec, knobs: &[(Knob, f64)]) -> Spec {
    let mut hardware: Hardware = spec.hardware.clone();
    for (knob, value) in knobs {
        hardware = hardware.with(*knob, *value, &format!("{knob:?} {value}"));
    }
    Spec { hardware, ..spec }
}

/// What is changed in the runs of Figs. 18 and 19.
const CHANGES: [Change; 7] = [
    Change { name: "as listed", apply: |spec| spec },
    Change {
        name: "round trip of 50 µs (Fig. 17's row of 1,024 KiB)",
        apply: |spec| machines(spec, &[(Knob::RoundTrip, 50.0)]),
    },
    Change {
        name: "each canceled lock flushed at once and alone",
        apply: |spec| Spec { eager: true, ..spec },
    },
    Change {
        name: "the same, and the release a request of its own",
        apply: |spec| machines(Spec { eager: true, ..spec }, &[(Knob::FlushRate, 213e3 / 2.0)]),
    },
    Change {
        name: "writes into memory that is in the processor's cache (10 GB/s)",
        apply: |spec| machines(spec, &[(Knob::CopyRate, 10e9)]),
    },
    Change {
        name: "the same, and copies of a release as above",
        apply: |spec| {
            machines(Spec { eager: true, ..spec }, &[(Knob::CopyRate, 10e9), (Knob::FlushRate, 213e3 / 2.0)])
        },
    },
    Change {
        name: "clients' copies take no time (1 TB/s)",
        apply: |spec| machines(spec, &[(Knob::CopyRate, 1e12)]),
    },
];

/// Time that an iteration of HDF5 takes beside its writes: new datasets, and 1,280 processes that wait for each other.
const PAUSE_NS: u64 = 50_000_000;

/// Every lock flushed and released as the paper's clients do: at once, alone, with a release of its own.
fn plain_release(spec: Spec) -> Spec {
    machines(Spec { eager: true, ..spec }, &[(Knob::FlushRate, 213e3 / 2.0)])
}

/// A run of VPIC-IO with another placement of ranks or with pauses.
fn particles_with(spec: Spec, cyclic: bool, pause_ns: u64) -> Spec {
    let pattern = match spec.pattern {
        Pattern::Particles { block, iterations, processes, .. } => {
            Pattern::Particles { block, iterations, processes, pause_ns, cyclic }
        }
        other @ (Pattern::Separate { .. }
        | Pattern::Segmented { .. }
        | Pattern::Strided { .. }
        | Pattern::RoundRobin { .. }
        | Pattern::Mixed { .. }
        | Pattern::TwoStripes { .. }
        | Pattern::Checkpoint { .. }
        | Pattern::Results(_)
        | Pattern::Tiles { .. }) => other,
    };
    Spec { pattern, ..spec }
}

/// What is changed in the runs of VPIC-IO.
const PARTICLES: [Change; 7] = [
    Change { name: "as simulated", apply: |spec| spec },
    Change { name: "ranks round the nodes by turns", apply: |spec| particles_with(spec, true, 0) },
    Change {
        name: "the same, and each lock flushed at once and released alone",
        apply: |spec| plain_release(particles_with(spec, true, 0)),
    },
    Change { name: "50 ms between iterations", apply: |spec| particles_with(spec, false, PAUSE_NS) },
    Change {
        name: "50 ms between iterations, ranks round the nodes by turns",
        apply: |spec| particles_with(spec, true, PAUSE_NS),
    },
    Change {
        name: "ranks round the nodes by turns, ranges grow past requests that wait",
        apply: |spec| past_waiting(particles_with(spec, true, 0)),
    },
    Change {
        name: "the same, and 50 ms between iterations",
        apply: |spec| past_waiting(particles_with(spec, true, PAUSE_NS)),
    },
];
/// Shapes and stripes of the paper's four ratios.
const PARTICLE_RUNS: [(usize, u32); 4] = [(0, 1), (0, 16), (1, 1), (1, 16)];

/// What is changed in the runs of Fig. 21.
const HARD: [Change; 6] = [
    Change { name: "as simulated", apply: |spec| spec },
    Change {
        name: "copies take up to 10 µs longer, at random",
        apply: |spec| Spec { jitter_ns: 10_000, ..spec },
    },
    Change {
        name: "network cards send and receive whole messages",
        apply: |spec| Spec { in_line: true, ..spec },
    },
    Change {
        name: "each write takes 10 µs of the device beside its bytes",
        apply: |spec| machines(spec, &[(Knob::DeviceRequest, 10.0)]),
    },
    Change {
        name: "each write takes 20 µs of the device beside its bytes",
        apply: |spec| machines(spec, &[(Knob::DeviceRequest, 20.0)]),
    },
    Change { name: "each canceled lock flushed at once and released alone", apply: plain_release },
];
/// Size of a write and stripes of the paper's four ratios.
const HARD_RUNS: [(u64, u32); 4] =
    [(ior::HARD[0], 4), (ior::HARD[2], 4), (ior::HARD[0], 8), (ior::HARD[2], 8)];

/// SeqDLM over DLM-Lustre: the two runs at the part of the writes that the figure makes, or at one of `less` of that.
fn hard(size: Size, less: u64, block: u64, stripes: u32) -> [Spec; 2] {
    let of = Size { part: ior::hard_size(size, block).part * less };
    MANAGERS.map(|manager| ior::hard_at(of, manager, block, stripes))
}

fn particle_pair(size: Size, shape: usize, stripes: u32) -> [Spec; 2] {
    MANAGERS.map(|manager| vpic::spec(size, manager, shape, stripes))
}

const MANAGERS: [&str; 2] = ["seqdlm-page", "lustre"];
/// SeqDLM's ranges grow past requests that wait; DLM-Lustre's are as ever.
fn past_waiting(spec: Spec) -> Spec {
    match spec.policy.expansion {
        Expansion::Greedy => expanding(spec, Expansion::PastWaiting),
        Expansion::Exact | Expansion::PastWaiting | Expansion::Lustre => spec,
    }
}

pub(super) fn expanding(spec: Spec, expansion: Expansion) -> Spec {
    Spec { policy: Policy { expansion, ..spec.policy }, ..spec }
}

/// The sizes of the runs of VPIC-IO that are compared: the figure's, half of it, and a quarter for what is changed.
fn particle_sizes(size: Size) -> [Size; 3] {
    let of = size.at_least(vpic::PART);
    [1, 2, 4].map(|less| Size { part: of.part * less })
}

/// The runs that explanations need beside those of the figures.
#[must_use]
pub fn specs(size: Size) -> Vec<Spec> {
    let mut specs: Vec<Spec> =
        CHANGES.iter().flat_map(|change| sensitivity::conflict_specs(size, &change.apply)).collect();
    specs.push(conflict::sequential(size, WriteMode::Pw, 16 << 10));
    for (block, stripes) in HARD_RUNS {
        specs.extend(hard(size, 1, block, stripes));
        for change in &HARD {
            specs.extend(hard(size, 2, block, stripes).map(change.apply));
        }
    }
    specs.extend(SHARES.iter().flat_map(|change| share_specs(size, change)));
    let sizes = particle_sizes(size);
    for (shape, stripes) in PARTICLE_RUNS {
        specs.extend(sizes.iter().flat_map(|size| particle_pair(*size, shape, stripes)));
        for change in &PARTICLES {
            specs.extend(particle_pair(sizes[2], shape, stripes).map(change.apply));
        }
    }
    specs.extend(tiles::explanation_specs(size));
    specs
}

/// All explanations.
#[must_use]
pub fn explanations(size: Size, runs: &Outcomes) -> Vec<Explanation> {
    vec![
        cancel(size, runs),
        conflicts(size, runs),
        shares(size, runs),
        strided(size, runs),
        tiles::explanation(size, runs),
        particles(size, runs),
    ]
}

/// Fig. 17 at 16 KiB.
fn cancel(size: Size, runs: &Outcomes) -> Explanation {
    let outcome = runs.of(&conflict::sequential(size, WriteMode::Pw, 16 << 10));
    let trip_s = outcome.calls as f64 * Hardware::default().get(Knob::RoundTrip) / 1e6;
    let share = |canceling_s: f64| 100.0 * over(canceling_s, outcome.revoking_s + canceling_s);
    Explanation {
        claims: vec!["17.cancel.16k", "17.locking.16k"],
        text: format!(
            "In the paper a client flushes, waits for the answer, and then sends the release. In ours the flush request carries the \
             release of the lock whose last data it brings: cancel is one message and the device, without the answer's way back \
             and the release's way there. At 16 KiB that is most of it. With one more round trip per write, computed from the same \
             run, cancel has {} % of the locking time instead of {} %, and locking {} % of the total instead of {} %.",
            number(share(outcome.canceling_s + trip_s)),
            number(share(outcome.canceling_s)),
            number(100.0 * over(outcome.revoking_s + outcome.canceling_s + trip_s, outcome.pio_s + trip_s)),
            number(100.0 * over(outcome.revoking_s + outcome.canceling_s, outcome.pio_s))
        ),
        evidence: None,
    }
}

/// Figs. 18 and 19.
fn conflicts(size: Size, runs: &Outcomes) -> Explanation {
    let mut table = sensitivity::conflict_table("The ratios of Figs. 18 and 19 with one thing changed");
    for change in &CHANGES {
        table.row(sensitivity::conflict_row(size, runs, change.name, &change.apply));
    }
    let last = |at: usize| table.rows[at].last().cloned().unwrap_or_default();
    // Below the paper's row: as listed, and the bound.
    let (listed, bound) = (last(1), last(CHANGES.len()));
    Explanation {
        claims: vec!["18.noer.64k", "18.noer.1024k", "18.er.64k", "18.er.1024k", "19.bw.64k", "19.bw.1024k"],
        text: format!(
            "NBW without early revocation is limited by one round trip per lock. Fig. 17's text allows 19 to 54 µs for it, and its \
               row of 1,024 KiB says 50: with that, the ratio at 1,024 KiB is the paper's.\n\n\
               NBW with early revocation at 64 KiB is limited by the server's requests. Ours flushes canceled locks that nobody waits \
               for later and many at a time, with their releases, so a lock costs the server little more than its own request; \
               flushed at once, one by one, as the paper's clients do, the ratio comes to the paper's.\n\n\
               BW with downgrading cannot be faster than one copy after the other, because a BW lock is lowered only when its write \
               is over (III-D2). At Table III's rate a copy of 1,024 KiB takes 505 µs, so that no round trip whatever gives 9.4 times \
               PW's rate unless PW took 4.8 ms per MiB. The paper's micro-benchmark must copy faster than its IOR test, which writes \
               2 GB of fresh pages per client: the table has writes into memory that the processor's cache holds, and as a bound \
               copies that take no time. Between {listed} and {bound} times the model has every value, by the rate of the copy alone; \
               which rate the paper's clients had it does not say. At 64 KiB the copy is a small part: a write \
               waits for its second lock after its first, and only shorter round trips bring the ratio nearer (see how much depends on the \
               inputs)."
        ),
        evidence: Some(table),
    }
}

/// What is changed in SeqDLM's runs of Fig. 20.
const SHARES: [Change; 7] = [
    Change { name: "as simulated", apply: |spec| spec },
    Change {
        name: "copies take up to 10 µs longer, at random",
        apply: |spec| Spec { jitter_ns: 10_000, ..spec },
    },
    Change {
        name: "copies take up to 30 µs longer, at random",
        apply: |spec| Spec { jitter_ns: 30_000, ..spec },
    },
    Change {
        name: "network cards send and receive whole messages",
        apply: |spec| Spec { in_line: true, ..spec },
    },
    Change { name: "round trip × 0.5", apply: |spec| machines(spec, &[(Knob::RoundTrip, 15.0)]) },
    Change { name: "round trip of 1 µs", apply: |spec| machines(spec, &[(Knob::RoundTrip, 1.0)]) },
    Change { name: "each canceled lock flushed at once and released alone", apply: plain_release },
];
/// The sizes of writes that are compared, with their claims.
const SHARE_RUNS: [(u64, &str); 2] = [(64 << 10, "20.strided.64k"), (1024 << 10, "20.strided.1024k")];
/// The part of the writes in these runs.
const SHARE_PART: u64 = 4;

/// Strided and segmented writes under SeqDLM, of each size.
fn share_specs(size: Size, change: &Change) -> Vec<Spec> {
    let size = size.at_least(SHARE_PART);
    let pair = |(block, _)| {
        [ior::strided_of(size, block), ior::segmented(size, "seqdlm-page", block)].map(change.apply)
    };
    SHARE_RUNS.into_iter().flat_map(pair).collect()
}

fn share_table(size: Size, runs: &Outcomes) -> Table {
    let mut table = Table::new(
        &format!("SeqDLM on one stripe, {} of the writes", size.at_least(SHARE_PART).words()),
        &[
            "runs",
            "64 KiB: strided as % of segmented",
            "1,024 KiB: strided as % of segmented",
            "64 KiB: lock requests per write",
            "1,024 KiB: lock requests per write",
            "64 KiB: PIO %, strided / segmented",
            "1,024 KiB: PIO %, strided / segmented",
        ],
    );
    for change in &SHARES {
        let specs = share_specs(size, change);
        let of = |at: usize| runs.of(&specs[at]);
        let speed = |at: usize| number(100.0 * over(of(at).bandwidth(), of(at + 1).bandwidth()));
        let pio = |at: usize| {
            let share = |at: usize| number(100.0 * of(at).pio_share());
            format!("{} / {}", share(at), share(at + 1))
        };
        let asked = |at: usize| number(over(of(at).requests as f64, of(at).calls as f64));
        table.row(vec![change.name.to_owned(), speed(0), speed(2), asked(0), asked(2), pio(0), pio(2)]);
    }
    table
}

/// Fig. 20.
fn shares(size: Size, runs: &Outcomes) -> Explanation {
    Explanation {
        claims: vec!["20.share.seqdlm", "20.strided.64k", "20.strided.1024k", "20.lustre"],
        text: "PIO: the paper's own Table III has PIO / total = (16 × 2 GiB / 33.2 GB/s) / 18.1 s = 5.7 % for segmented writes; at 81.7 to \
               96.9 % of that bandwidth strided writes are at 5.9 to 7.0 %. 'About 5 %' is read from a plot. In ours segmented writes, \
               which never conflict, have as much.\n\n\
               Strided as a share of segmented: what strided writes lose is the time until each has its lock, a round trip and more at 64 \
               KiB, whose copy takes 32 µs. At 81.7 % of 33.2 GB/s the paper's clients made 414,000 writes per second with a lock server of \
               213,000 requests per second: a lock must have served several writes. In ours every write asks for a lock of its own, because \
               clients that all need exactly the same time stay in step for ever. Real ones do not: with copies that differ by \
               microseconds, or with requests that wait behind other messages, some get ahead, and a lock that was expanded serves them \
               until another client comes by. The table has both, and the figure has the first beside what is compared.\n\n\
               Up to 18.1 times DLM-Lustre means 32.2 over 1.8 GB/s at 1,024 KiB. DLM-Lustre has more than the device's 1.9 GB/s in ours while \
               what it wrote last is still in caches, and SeqDLM has less of what segmented writes have."
            .to_owned(),
        evidence: Some(share_table(size, runs)),
    }
}

/// A table of ratios of bandwidths: a row per change.
fn ratios<const N: usize>(
    runs: &Outcomes,
    title: &str,
    columns: [&str; N],
    rows: &[(String, [[Spec; 2]; N])],
) -> Table {
    let columns: Vec<&str> = std::iter::once("runs").chain(columns).collect();
    let mut table = Table::new(title, &columns);
    let claims = columns[1..].iter().map(|claim| paper::find(claim).map_or(0.0, |claim| claim.paper));
    table.row(std::iter::once("the paper".to_owned()).chain(claims.map(number)).collect());
    for (name, pairs) in rows {
        let cells = pairs.each_ref().map(|pair| {
            let [above, below] = pair.each_ref().map(|spec| runs.of(spec).bandwidth() / 1e9);
            format!("{} ({} / {})", number(over(above, below)), number(above), number(below))
        });
        table.row(std::iter::once(name.clone()).chain(cells).collect());
    }
    table
}

/// Fig. 21.
fn strided(size: Size, runs: &Outcomes) -> Explanation {
    let of = |less: u64, change: &Change| {
        HARD_RUNS.map(|(block, stripes)| hard(size, less, block, stripes).map(change.apply))
    };
    let mut rows = vec![("as simulated, the writes of the figure".to_owned(), of(1, &HARD[0]))];
    rows.extend(HARD.iter().map(|change| (format!("{}, half of them", change.name), of(2, change))));
    let claims = ["21.s4.small", "21.s4.large", "21.s8.small", "21.s8.large"];
    Explanation {
        claims: claims.to_vec(),
        text: "At 47,008 bytes SeqDLM's limit is its lock servers' 213,000 requests per second, in ours as in the paper's account. \
               DLM-Lustre's is the devices: in ours it has all of their 1.9 GB/s each already with the smallest writes, while the \
               paper says that a larger write size is favourable to devices, so that the small ones do not get so much. When \
               each write takes 20 µs of its device beside its bytes, DLM-Lustre slows down at 47,008 bytes and hardly at 16 times that. \
               The paper does not say how much it is, so the figure has none of it. \
               Where network cards take whole messages one after the other, requests for locks wait behind data; InfiniBand goes by \
               packets. Ratios at the largest size depend on how much is written, as the first two rows show: caches and network hold a \
               part of what DLM-Lustre revokes, and the less is written the more that part counts."
            .to_owned(),
        evidence: Some(ratios(runs, "SeqDLM over DLM-Lustre (GB/s of each)", claims, &rows)),
    }
}

/// Figs. 24 and 25.
fn particles(size: Size, runs: &Outcomes) -> Explanation {
    let sizes = particle_sizes(size);
    let of = |size: Size, change: &Change| {
        PARTICLE_RUNS.map(|(shape, stripes)| particle_pair(size, shape, stripes).map(change.apply))
    };
    let row = |size: Size, change: &Change| {
        (format!("{}, {} of the iterations", change.name, size.words()), of(size, change))
    };
    let rows: Vec<_> = [row(sizes[0], &PARTICLES[0]), row(sizes[1], &PARTICLES[0])]
        .into_iter()
        .chain(PARTICLES.iter().map(|change| row(sizes[2], change)))
        .collect();
    let claims = ["24.small.s1", "24.small.s16", "24.large.s1", "24.large.s16"];
    let others = ["25.small.s1", "25.small.s16", "25.large.s1", "25.large.s4", "25.large.s16"];
    Explanation {
        claims: claims.into_iter().chain(others).collect(),
        text: "If DLM-Lustre is bound by the device (1.9 GB/s), the paper's ratios put SeqDLM on one stripe at 12 GB/s with writes of \
               256 KiB and 66 GB/s with 1 MiB: 45,000 and 63,000 locks per second, a lock per write and about four of its server's 213,000 \
               requests per lock. Ours needs less of both. First, the paper does not say which process writes next to which. With a \
               node's 16 ranks side by side (ours: the usual placement), a node's lock is expanded over its other processes' \
               writes, and one request serves several of them; when ranks go round the nodes by turns, every write needs a lock of its \
               own. Second, ours flushes locks that nobody waits for later, many at a time, with their releases (see the explanation of Fig. 18).\n\n\
               On sixteen stripes the paper's ratios mean 45 and 270 GB/s: with 128 and 32 iterations of 320 GiB in all, 40 to \
               60 ms per iteration whatever its writes are, which is not the cost of locks. Only the writes are simulated; the paper's \
               processes go through HDF5 and IO forwarding, and each iteration creates eight datasets, which all 1,280 take part in. With \
               50 ms before each iteration in which nobody writes, the table shows what is left.\n\n\
               On one stripe, what is left is the number of messages per lock. In ours a grant grows only to the next request that \
               waits. With 640 threads that wait, every one gets its own block and nothing else, conflicts with nobody, and is never \
               revoked: one message per write, so that the server's 213,000 requests per second are 54 and 214 GB/s with ranks by \
               turns. If a grant grows past requests that wait, as far as the next lock that somebody holds, it conflicts with the next \
               of them: request, revocation and reply are three messages per write, which is 18.7 and 74 GB/s, or 9 and 37 times the \
               device's 1.9 GB/s; the paper's ratios are 6.2 and 34.8, and its four messages per lock would be these and the release. \
               So its locks on one stripe were revoked, each one, and ours are not. The paper calls a grown range the 'largest \
               compatible' one and does not say whether requests that wait count. It cannot be as simple as growing past all of them, \
               though: in the test of Fig. 20 this costs a round trip per write (1.8 GB/s with writes of 64 KiB, where the paper has 27). A \
               server whose threads enqueue requests in parallel, each of which is granted or waits before the others are seen, would \
               lie between the two.\n\n\
               How much is written matters here: DLM-Lustre is bound by devices only when more is revoked than caches and network \
               hold, so that small parts of the iterations flatter it, by far on sixteen stripes."
            .to_owned(),
        evidence: Some(ratios(runs, "VPIC-IO: SeqDLM over DLM-Lustre (GB/s of each)", claims, &rows)),
    }
}
