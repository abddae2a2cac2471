//! What is measured: workloads and their offsets, contenders, and the list of cases.

use crate::failure::Failure;
use ccpfs_config::BytesPerSecond;
use ccpfs_types::{LockMode, Policy};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// IOR `-F`: a file per client.
    Nn,
    /// IOR `-b BYTES -s 1`: one file, each client writes one contiguous block.
    Segmented,
    /// IOR `-b TRANSFER -s N`: one file, the clients' transfers take turns.
    Strided,
    /// Paper Fig. 16(a): clients write one after the other, round robin; each write locks the whole file.
    ConflictSequential,
    /// Paper Fig. 16(b): clients write independently; each write locks the whole file.
    ConflictParallel,
    /// Paper Fig. 19(a): each client writes and reads in turn.
    MixedReadWrite,
    /// Paper Fig. 19(b): each write spans two stripes.
    TwoStripe,
    /// Paper Fig. 7 and V-B1: each client writes the full range twice.
    Overlap,
}

impl Workload {
    const ALL: [(Workload, &'static str); 8] = [
        (Workload::Nn, "nn"),
        (Workload::Segmented, "segmented"),
        (Workload::Strided, "strided"),
        (Workload::ConflictSequential, "conflict-sequential"),
        (Workload::ConflictParallel, "conflict-parallel"),
        (Workload::MixedReadWrite, "mixed-read-write"),
        (Workload::TwoStripe, "two-stripe"),
        (Workload::Overlap, "overlap"),
    ];

    /// The workload with this name.
    pub(crate) fn named(name: &str) -> Option<Workload> {
        Workload::ALL.iter().find(|(_, known)| *known == name).map(|(workload, _)| *workload)
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        Workload::ALL.iter().find(|(known, _)| *known == self).map_or("", |(_, name)| name)
    }

    /// Whether every operation locks the whole file, as the paper's micro-benchmarks do.
    pub(crate) fn locks_whole(self) -> bool {
        match self {
            Workload::Nn | Workload::Segmented | Workload::Strided | Workload::Overlap => false,
            Workload::ConflictSequential
            | Workload::ConflictParallel
            | Workload::MixedReadWrite
            | Workload::TwoStripe => true,
        }
    }

    /// Whether each client has a file of its own.
    pub(crate) fn has_own_files(self) -> bool {
        self == Workload::Nn
    }

    /// Where a client's transfer goes.
    pub(crate) fn offset(self, shape: &Shape, rank: u32, transfer: u64) -> u64 {
        let rank = u64::from(rank);
        let turn = transfer * u64::from(shape.clients) + rank;
        match self {
            Workload::Nn => transfer * shape.transfer_bytes,
            Workload::Segmented => (rank * shape.transfer_count + transfer) * shape.transfer_bytes,
            Workload::Strided
            | Workload::ConflictSequential
            | Workload::ConflictParallel
            | Workload::MixedReadWrite => turn * shape.transfer_bytes,
            // Across the border between an even unit and the odd one after it.
            Workload::TwoStripe => (2 * turn + 1) * shape.stripe_bytes - shape.transfer_bytes / 2,
            Workload::Overlap => 0,
        }
    }
}

/// The numbers of one run that decide who writes what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Client processes.
    pub(crate) clients: u32,
    /// Bytes of one write call.
    pub(crate) transfer_bytes: u64,
    /// Write calls of one client.
    pub(crate) transfer_count: u64,
    /// Bytes in one unit of a stripe.
    pub(crate) stripe_bytes: u64,
    /// Makes the data of rounds differ.
    pub(crate) round: u32,
}

/// Lock mode of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Non-blocking write.
    Nbw,
    /// Blocking write.
    Bw,
    /// Protective write.
    Pw,
}

impl Mode {
    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Nbw => "nbw",
            Mode::Bw => "bw",
            Mode::Pw => "pw",
        }
    }

    /// The mode as the lock manager knows it.
    pub(crate) fn lock_mode(self) -> LockMode {
        match self {
            Mode::Nbw => LockMode::Nbw,
            Mode::Bw => LockMode::Bw,
            Mode::Pw => LockMode::Pw,
        }
    }
}

/// What is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Contender {
    /// ccPFS with the lock manager of this name.
    Servers(String),
    /// A file of the local file system.
    Local,
    /// Copies into touched anonymous memory.
    Memcpy,
}

impl Contender {
    /// The contender with this name.
    pub(crate) fn named(name: &str) -> Result<Contender, Failure> {
        match name {
            "local" => Ok(Contender::Local),
            "memcpy" => Ok(Contender::Memcpy),
            policy => match policy.parse::<Policy>() {
                Ok(_) => Ok(Contender::Servers(policy.to_owned())),
                Err(unknown) => Err(Failure::usage(format!("--policy: {unknown}; or 'local', or 'memcpy'"))),
            },
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> String {
        match self {
            Contender::Servers(policy) => policy.clone(),
            Contender::Local => "local".to_owned(),
            Contender::Memcpy => "memcpy".to_owned(),
        }
    }
}

/// Everything that `ccpfs bench ior` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) modes: Vec<Option<Mode>>,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) clients: u32,
    pub(crate) servers: u32,
    pub(crate) shards: u32,
    pub(crate) stripes: Vec<u32>,
    pub(crate) stripe_bytes: u64,
    pub(crate) transfers_bytes: Vec<u64>,
    pub(crate) per_client_bytes: u64,
    pub(crate) rounds: u32,
    pub(crate) device_bandwidth: Option<BytesPerSecond>,
    pub(crate) device_dir: Option<PathBuf>,
    pub(crate) verify: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
    pub(crate) tcp: bool,
    pub(crate) prefault_bytes: Option<u64>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) keep: bool,
    pub(crate) spoil: bool,
    pub(crate) step_timeout_s: u64,
}

/// What is measured with one contender in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) mode: Option<Mode>,
    pub(crate) stripes: u32,
    pub(crate) transfer_bytes: u64,
}

impl Plan {
    /// The cases, in the order in which they are measured and shown.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for workload in &self.workloads {
            for stripes in &self.stripes {
                for transfer_bytes in &self.transfers_bytes {
                    for mode in &self.modes {
                        let (workload, mode, stripes) = (*workload, *mode, *stripes);
                        cases.push(Case { workload, mode, stripes, transfer_bytes: *transfer_bytes });
                    }
                }
            }
        }
        cases
    }

    /// How often a client writes in a case.
    pub(crate) fn transfer_count(&self, case: &Case) -> u64 {
        match case.workload {
            Workload::Overlap => 2,
            Workload::Nn
            | Workload::Segmented
            | Workload::Strided
            | Workload::ConflictSequential
            | Workload::ConflictParallel
            | Workload::MixedReadWrite
            | Workload::TwoStripe => self.per_client_bytes / case.transfer_bytes,
        }
    }

    /// The numbers of a case in a round.
    pub(crate) fn shape(&self, case: &Case, round: u32) -> Shape {
        Shape {
            clients: self.clients,
            transfer_bytes: case.transfer_bytes,
            transfer_count: self.transfer_count(case),
            stripe_bytes: self.stripe_bytes,
            round,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SHAPE: Shape =
        Shape { clients: 3, transfer_bytes: 100, transfer_count: 4, stripe_bytes: 4096, round: 0 };

    /// All offsets that all clients write.
    fn offsets(workload: Workload) -> Vec<u64> {
        (0..3).flat_map(|rank| (0..4).map(move |k| workload.offset(&SHAPE, rank, k))).collect()
    }

    #[test]
    fn shared_patterns_cover_the_file_once_and_without_gaps() {
        let expected: BTreeSet<u64> = (0..12).map(|n| n * 100).collect();
        for workload in [Workload::Segmented, Workload::Strided] {
            let found = offsets(workload);
            assert_eq!((found.len(), found.into_iter().collect::<BTreeSet<_>>()), (12, expected.clone()));
        }
    }

    #[test]
    fn offsets_are_those_of_ior() {
        assert_eq!(offsets(Workload::Segmented)[4..8], [400, 500, 600, 700]);
        assert_eq!(offsets(Workload::Strided)[4..8], [100, 400, 700, 1000]);
        assert_eq!(offsets(Workload::Nn)[4..8], [0, 100, 200, 300]);
    }

    #[test]
    fn two_stripe_writes_span_a_border_and_never_overlap() {
        let found: BTreeSet<u64> = offsets(Workload::TwoStripe).into_iter().collect();
        assert_eq!(found.len(), 12);
        for offset in found {
            assert_eq!((offset / 4096 % 2, (offset + 99) / 4096 % 2), (0, 1));
        }
    }

    #[test]
    fn names_lead_back_to_workloads() {
        for (workload, name) in Workload::ALL {
            assert_eq!((Workload::named(name), workload.name()), (Some(workload), name));
        }
        assert_eq!(Contender::named("local").unwrap(), Contender::Local);
        assert!(Contender::named("gpfs").is_err());
    }
}
