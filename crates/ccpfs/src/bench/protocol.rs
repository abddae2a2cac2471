//! What coordinator and client processes tell each other: one JSON object per line, over standard input and output.

use super::member::Task;
use super::plan::{Mode, Shape, Workload};
use ccpfs_client::Statistics;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Where a client writes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    /// ccPFS with this configuration file.
    Ccpfs {
        /// Configuration file of the cluster.
        config: PathBuf,
        /// Bytes of the client's cache that are touched before the clock runs.
        prefault_bytes: u64,
    },
    /// The local file system.
    Local,
    /// Touched memory.
    Memory,
}

/// First line to a client process: who it is, and what it will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// Which client this is. A reader that takes no part in writing has a number beyond the clients.
    pub(crate) rank: u32,
    /// What the clients do.
    pub(crate) workload: Workload,
    /// The numbers of the run.
    pub(crate) shape: Shape,
    /// Number of stripes of the files.
    pub(crate) stripes: u32,
    /// Mode of write locks, when it is not the client's choice.
    pub(crate) mode: Option<Mode>,
    /// Where to write to.
    pub(crate) backend: Backend,
    /// The shared file; a client's own has its rank appended.
    pub(crate) path: PathBuf,
    /// Write a wrong byte.
    pub(crate) spoil: bool,
    /// Directory for sockets through which clients take turns.
    pub(crate) turns: PathBuf,
}

/// Further lines to a client process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// Create the file and open it.
    Create,
    /// Open the file that another client created.
    Open,
    /// Do the writes (and reads) of the workload.
    Write,
    /// Flush, make persistent, close.
    Flush,
    /// Read what the client of this rank wrote, and compare.
    Verify {
        /// Whose data.
        of: u32,
    },
    /// Read the whole range and tell whose it is (overlap).
    Identify,
    /// Remove the file.
    Remove,
    /// End.
    Quit,
}

/// A step, and when it begins: a barrier that lets nobody go earlier than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order<S> {
    /// What to do.
    pub(crate) step: S,
    /// When, by this machine's monotonic clock.
    pub(crate) at_ns: u64,
}

impl Task for Step {
    fn name(&self) -> &'static str {
        match *self {
            Step::Create => "create",
            Step::Open => "open",
            Step::Write => "write",
            Step::Flush => "flush",
            Step::Verify { .. } => "verify",
            Step::Identify => "read",
            Step::Remove => "remove",
            Step::Quit => "quit",
        }
    }

    fn is_last(&self) -> bool {
        *self == Step::Quit
    }
}

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// What a client counted during a step; the names are those of the client's statistics.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: u64),*
        }

        impl Counters {
            /// The counts of two clients together.
            pub(crate) fn plus(&self, other: &Counters) -> Counters {
                Counters { $($name: self.$name + other.$name),* }
            }
        }

        impl From<Statistics> for Counters {
            fn from(statistics: Statistics) -> Counters {
                Counters { $($name: statistics.$name),* }
            }
        }
    };
}
counters! {
    lock_requests,
    lock_hits,
    revocations,
    early_grants,
    early_revocations,
    upgrades,
    downgrades,
    lock_wait_ns,
    bytes_flushed,
    flush_rpcs,
    flush_extents,
}

/// A part of a file with wrong bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WrongPart {
    /// The file.
    pub(crate) file: PathBuf,
    /// First wrong byte of the file.
    pub(crate) offset: u64,
    /// Who should have written it.
    pub(crate) expected_rank: u32,
    /// What is there.
    pub(crate) found: String,
}

/// Lines from a client process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Event {
    /// The job is understood and prepared.
    Ready,
    /// A step is done.
    Done(Box<Report>),
    /// A step failed.
    Failed {
        /// Why.
        message: String,
    },
}

/// How a step went.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Report {
    /// When it began, on the machine's monotonic clock.
    pub(crate) start_ns: u64,
    /// When it ended.
    pub(crate) end_ns: u64,
    /// What the client counted meanwhile.
    pub(crate) counters: Counters,
    /// Bytes that are not as expected.
    pub(crate) wrong_bytes: u64,
    /// The first of them.
    pub(crate) wrong_parts: Vec<WrongPart>,
    /// Rank and number of the write whose data fill the whole range (overlap).
    pub(crate) winner: Option<(u32, u64)>,
    /// Pairs of ranks: the first one's bytes are where the second wrote too (operations of many pieces).
    pub(crate) beats: Vec<(u32, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_one_object_and_is_read_as_written() {
        for step in [Step::Create, Step::Verify { of: 3 }, Step::Quit] {
            let line = serde_json::to_string(&step).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Step>(&line).unwrap(), step);
        }
        let report = Report { winner: Some((1, 2)), wrong_bytes: 9, ..Report::default() };
        for event in
            [Event::Ready, Event::Failed { message: "a\nb".to_owned() }, Event::Done(Box::new(report))]
        {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }
}
