//! What coordinator and processes tell each other, beside what all measurements share.

use super::pattern::Pattern;
use super::way::Way;
use crate::bench::member::Task;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// First line to a process: who it is, and what it will do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegionJob {
    /// Which process this is. One that only reads has a number beyond those that write.
    pub(crate) rank: u32,
    pub(crate) pattern: Pattern,
    pub(crate) way: Way,
    /// Makes the data of rounds differ.
    pub(crate) round: u32,
    pub(crate) stripes: u32,
    pub(crate) stripe_bytes: u64,
    /// The cluster's configuration file; none for a local file.
    pub(crate) config: Option<PathBuf>,
    /// The shared file; a process's own has its rank appended.
    pub(crate) path: PathBuf,
    /// Write a wrong byte.
    pub(crate) spoil: bool,
    /// Bytes of the client's cache that are touched before the clock runs, at most.
    pub(crate) prefault_bytes_max: u64,
}

/// Further lines to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RegionStep {
    /// Create the file and open it.
    Create,
    /// Open the file that another process created.
    Open,
    /// Write all operations.
    Write,
    /// Flush, make persistent, close.
    Flush,
    /// Read what the process of this rank wrote, and see whose it is.
    Verify {
        /// Whose region.
        of: u32,
    },
    /// Remove the file.
    Remove,
    /// End.
    Quit,
}

impl Task for RegionStep {
    fn name(&self) -> &'static str {
        match *self {
            RegionStep::Create => "create",
            RegionStep::Open => "open",
            RegionStep::Write => "write",
            RegionStep::Flush => "flush",
            RegionStep::Verify { .. } => "verify",
            RegionStep::Remove => "remove",
            RegionStep::Quit => "quit",
        }
    }

    fn is_last(&self) -> bool {
        *self == RegionStep::Quit
    }
}
