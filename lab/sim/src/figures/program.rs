//! What the applications of the figures do, as data: which thread writes which bytes, one after the other.

use super::noncontiguous::{Search, checkpoint, tile};
use crate::history::{Call, Comb};
use crate::random::Random;
use crate::workload::Work;
use ccpfs_region::Region;
use ccpfs_types::Extent;
use std::rc::Rc;

/// An access pattern. Sizes in bytes, `writes` per thread or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pattern {
    /// IOR, a file per client.
    Separate {
        /// Bytes of one write.
        block: u64,
        /// Writes of each client.
        writes: u64,
    },
    /// IOR, one file, each client a contiguous part.
    Segmented {
        /// Bytes of one write.
        block: u64,
        /// Writes of each client.
        writes: u64,
    },
    /// IOR, one file, the clients' blocks by turns.
    Strided {
        /// Bytes of one write.
        block: u64,
        /// Writes of each client.
        writes: u64,
    },
    /// Fig. 16(a): as strided, one client after the other.
    RoundRobin {
        /// Bytes of one write.
        block: u64,
        /// Writes of each client.
        writes: u64,
    },
    /// Fig. 19(a): a write and a read of the same bytes, by turns.
    Mixed {
        /// Bytes of one call.
        block: u64,
        /// Calls of each client, half of them reads.
        calls: u64,
    },
    /// Fig. 19(b): each write spans two stripes of 1 MiB units.
    TwoStripes {
        /// Bytes of one write, at most 2 MiB.
        block: u64,
        /// Writes of each client.
        writes: u64,
    },
    /// Tile-IO: each client writes one tile of a picture with one atomic call.
    Tiles {
        /// Tiles in a row.
        columns: u64,
        /// Rows of tiles.
        rows: u64,
        /// Pixels of a side of a tile; a pixel has 4 bytes.
        side: u64,
        /// Pixels that neighbours have in common.
        overlap: u64,
    },
    /// S3D: each client writes its block of four arrays with an atomic call for each.
    Checkpoint {
        /// Points of the mesh along each axis.
        side: u64,
    },
    /// S3aSim: for each query each client writes its results with one atomic call, and flushes.
    Results(Search),
    /// VPIC-IO: in each iteration each process writes 8 variables, each contiguous over all processes.
    Particles {
        /// Bytes of one write: particles per process and iteration, times 4.
        block: u64,
        /// Iterations.
        iterations: u64,
        /// Processes of each client; its threads serve them by turns.
        processes: u64,
        /// All processes wait for each other before each iteration, and then for so long, nanoseconds; 0: nobody waits.
        pause_ns: u64,
        /// Ranks go round the nodes by turns, instead of a node's processes being neighbours.
        cyclic: bool,
    },
}

/// Time of the message by which the round-robin test passes its turn on, nanoseconds.
pub const TURN_NS: u64 = 2_000;
/// Variables of a particle.
const VARIABLES: u64 = 8;
/// Bytes of a stripe's unit wherever a file has several stripes.
pub const STRIPE_BYTES: u64 = 1 << 20;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The client.
    pub client: u64,
    /// How many there are.
    pub clients: u64,
    /// The thread of this client.
    pub thread: u64,
    /// How many a client has.
    pub threads: u64,
}

impl Pattern {
    /// Number of calls of one thread.
    #[must_use]
    pub fn calls(&self, place: Place) -> u64 {
        match *self {
            Pattern::Separate { writes, .. }
            | Pattern::Segmented { writes, .. }
            | Pattern::Strided { writes, .. }
            | Pattern::RoundRobin { writes, .. }
            | Pattern::TwoStripes { writes, .. } => writes,
            Pattern::Mixed { calls, .. } => calls,
            Pattern::Tiles { .. } => 1,
            Pattern::Checkpoint { side } => checkpoint(side, place.clients, place.client).len() as u64,
            // One write and one flush.
            Pattern::Results(search) => 2 * search.operations(place.client).len() as u64,
            Pattern::Particles { iterations, processes, .. } => {
                served(processes, place) * VARIABLES * iterations
            }
        }
    }

    /// Number of files, for so many clients.
    #[must_use]
    pub fn files(&self, clients: u64) -> u64 {
        match self {
            Pattern::Separate { .. } => clients,
            Pattern::Segmented { .. }
            | Pattern::Strided { .. }
            | Pattern::RoundRobin { .. }
            | Pattern::Mixed { .. }
            | Pattern::TwoStripes { .. }
            | Pattern::Tiles { .. }
            | Pattern::Checkpoint { .. }
            | Pattern::Results(_)
            | Pattern::Particles { .. } => 1,
        }
    }

    /// How often all threads wait for each other while they work, with the time that passes then, nanoseconds.
    #[must_use]
    pub fn rounds(&self, clients: u64) -> (u64, u64) {
        match *self {
            Pattern::RoundRobin { writes, .. } => (writes * clients, TURN_NS),
            Pattern::Particles { iterations, pause_ns, .. } if pause_ns > 0 => (iterations, pause_ns),
            Pattern::Separate { .. }
            | Pattern::Segmented { .. }
            | Pattern::Strided { .. }
            | Pattern::Mixed { .. }
            | Pattern::TwoStripes { .. }
            | Pattern::Tiles { .. }
            | Pattern::Checkpoint { .. }
            | Pattern::Results(_)
            | Pattern::Particles { .. } => (0, 0),
        }
    }

    /// How many calls of a thread may have begun in round `round`.
    #[must_use]
    pub fn calls_until(&self, place: Place, round: u64) -> u64 {
        match *self {
            Pattern::RoundRobin { .. } => (round + place.clients - place.client) / place.clients,
            Pattern::Particles { processes, .. } => (round + 1) * served(processes, place) * VARIABLES,
            Pattern::Separate { .. }
            | Pattern::Segmented { .. }
            | Pattern::Strided { .. }
            | Pattern::Mixed { .. }
            | Pattern::TwoStripes { .. }
            | Pattern::Checkpoint { .. }
            | Pattern::Results(_)
            | Pattern::Tiles { .. } => u64::MAX,
        }
    }

    /// Whether every call locks whole stripes, as the paper's micro-benchmarks do.
    #[must_use]
    pub fn locks_whole(&self) -> bool {
        match self {
            Pattern::RoundRobin { .. } | Pattern::Mixed { .. } | Pattern::TwoStripes { .. } => true,
            Pattern::Separate { .. }
            | Pattern::Segmented { .. }
            | Pattern::Strided { .. }
            | Pattern::Tiles { .. }
            | Pattern::Checkpoint { .. }
            | Pattern::Results(_)
            | Pattern::Particles { .. } => false,
        }
    }

    /// The call number `at` of a thread.
    #[must_use]
    pub fn call(&self, place: Place, at: u64) -> Work {
        let Place { client, clients, .. } = place;
        let write = |start: u64, block: u64| {
            Work::Call(Call::Write { file: 0, extent: extent(start, block), comb: Comb::NONE })
        };
        match *self {
            Pattern::Separate { block, .. } => {
                let file = u32::try_from(client).expect("clients are few");
                Work::Call(Call::Write { file, extent: extent(at * block, block), comb: Comb::NONE })
            }
            Pattern::Segmented { block, writes } => write((client * writes + at) * block, block),
            Pattern::Strided { block, .. } | Pattern::RoundRobin { block, .. } => {
                write((at * clients + client) * block, block)
            }
            Pattern::Mixed { block, .. } => {
                let pair = extent(at / 2 * block, block);
                let read = Work::Call(Call::Read { file: 0, extent: pair, comb: Comb::NONE });
                if at.is_multiple_of(2) { write(pair.start(), block) } else { read }
            }
            Pattern::TwoStripes { block, .. } => {
                write((2 * (at * clients + client) + 1) * STRIPE_BYTES - block / 2, block)
            }
            Pattern::Tiles { columns, rows: _, side, overlap } => {
                let region = Rc::new(tile(client, columns, side, overlap));
                Work::WriteRegion { file: 0, region }
            }
            Pattern::Checkpoint { side } => {
                Work::WriteRegion { file: 0, region: nth(checkpoint(side, clients, client), at) }
            }
            Pattern::Results(_) if !at.is_multiple_of(2) => Work::Flush { file: 0 },
            Pattern::Results(search) => {
                Work::WriteRegion { file: 0, region: nth(search.operations(client), at / 2) }
            }
            Pattern::Particles { block, processes, cyclic, .. } => {
                let mine = served(processes, place);
                let process = place.thread + at % mine * place.threads;
                let rank = if cyclic { process * clients + client } else { client * processes + process };
                write((at / mine * clients * processes + rank) * block, block)
            }
        }
    }
}

/// The order in which clients make their first call: they begin together, and who comes first is luck, as on a real network.
/// The same for every lock manager.
#[must_use]
pub fn arrivals(clients: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..clients).collect();
    let mut random = Random::new(1);
    for at in (1..order.len()).rev() {
        let other = usize::try_from(random.below(at as u64 + 1)).expect("a small index");
        order.swap(at, other);
    }
    order
}

/// One of several regions.
fn nth(regions: Vec<Region>, at: u64) -> Rc<Region> {
    let found = usize::try_from(at).ok().and_then(|at| regions.into_iter().nth(at));
    Rc::new(found.expect("a thread makes as many calls as it has regions"))
}

/// How many of a client's processes a thread serves.
fn served(processes: u64, place: Place) -> u64 {
    (processes + place.threads - 1 - place.thread) / place.threads
}

fn extent(start: u64, length: u64) -> Extent {
    Extent::with_length(start, length).expect("patterns have bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn place(client: u64, thread: u64, threads: u64) -> Place {
        Place { client, clients: 4, thread, threads }
    }

    fn written(work: &Work) -> Vec<Extent> {
        match work {
            Work::Call(Call::Write { extent, .. }) => vec![*extent],
            Work::WriteRegion { region, .. } => region.pieces().collect(),
            Work::Call(_) | Work::Flush { .. } => Vec::new(),
        }
    }

    /// All writes of 4 clients.
    fn all(pattern: Pattern, threads: u64) -> Vec<Extent> {
        let places = (0..4).flat_map(|client| (0..threads).map(move |thread| place(client, thread, threads)));
        places
            .flat_map(|place| (0..pattern.calls(place)).flat_map(move |at| written(&pattern.call(place, at))))
            .collect()
    }

    #[test]
    fn segmented_and_strided_cover_the_file_once() {
        let (block, writes) = (47_008, 5);
        for pattern in [Pattern::Segmented { block, writes }, Pattern::Strided { block, writes }] {
            let starts: BTreeSet<u64> = all(pattern, 1).iter().map(|extent| extent.start()).collect();
            assert_eq!(starts, (0..20).map(|at| at * block).collect());
        }
    }

    #[test]
    fn particles_of_one_variable_are_contiguous_over_all_processes() {
        for cyclic in [false, true] {
            let pattern = Pattern::Particles { block: 100, iterations: 2, processes: 6, pause_ns: 0, cyclic };
            let writes = all(pattern, 4);
            let starts: BTreeSet<u64> = writes.iter().map(|extent| extent.start()).collect();
            assert_eq!(writes.len(), 4 * 6 * 8 * 2);
            assert_eq!(starts, (0..writes.len() as u64).map(|at| at * 100).collect());
        }
    }

    #[test]
    fn results_are_flushed_after_each_query() {
        let search = Search { workers: 4, queries: 3, results: 50, mean_bytes: 100 };
        let pattern = Pattern::Results(search);
        assert_eq!(pattern.calls(place(1, 0, 1)), 6);
        assert_eq!(pattern.call(place(1, 0, 1), 3), Work::Flush { file: 0 });
        assert_eq!(
            written(&pattern.call(place(1, 0, 1), 4)),
            search.operations(1)[2].pieces().collect::<Vec<_>>()
        );
        let bytes: u64 = all(Pattern::Checkpoint { side: 4 }, 1).iter().map(|extent| extent.length()).sum();
        assert_eq!(bytes, 4 * 4 * 4 * 128);
    }

    #[test]
    fn writes_over_two_stripes_span_a_border() {
        for extent in all(Pattern::TwoStripes { block: 65_536, writes: 3 }, 1) {
            assert_eq!(extent.start() / STRIPE_BYTES + 1, (extent.end() - 1) / STRIPE_BYTES);
        }
    }

    #[test]
    fn mixed_calls_read_what_was_written() {
        let pattern = Pattern::Mixed { block: 10, calls: 4 };
        let calls: Vec<Work> = (0..4).map(|at| pattern.call(place(0, 0, 1), at)).collect();
        assert_eq!(written(&calls[2]), [extent(10, 10)]);
        assert_eq!(calls[3], Work::Call(Call::Read { file: 0, extent: extent(10, 10), comb: Comb::NONE }));
    }
}
