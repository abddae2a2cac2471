//! What is compared: doors, and the cases in which each is measured.

use ccpfs_config::format_bytes;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A way for a program to reach files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Door {
    /// `libccpfs.so`.
    Capi,
    /// `libccpfs_preload.so` under unchanged calls of the C library.
    Preload,
    /// The mount.
    Mount,
    /// Ordinary files through the same mount: they are handed to the local file system, call by call.
    Passthrough,
    /// The local file system.
    Plain,
}

impl Door {
    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Door::Capi => "capi",
            Door::Preload => "preload",
            Door::Mount => "mount",
            Door::Passthrough => "passthrough",
            Door::Plain => "plain",
        }
    }

    /// Whether making and removing names through it means anything: what is made through the mount is no ordinary file.
    pub(crate) fn has_names(self) -> bool {
        match self {
            Door::Capi | Door::Preload | Door::Mount | Door::Plain => true,
            Door::Passthrough => false,
        }
    }
}

/// Whose file a process writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pattern {
    /// A file for each process.
    Nn,
    /// One file; transfers of the processes take turns.
    Strided,
}

impl Pattern {
    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::Nn => "nn",
            Pattern::Strided => "strided",
        }
    }
}

/// What processes do at once with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Whose file.
    pub(crate) pattern: Pattern,
    /// How many processes.
    pub(crate) processes: u32,
    /// Bytes of one call.
    pub(crate) transfer_bytes: u64,
}

impl Case {
    /// For messages.
    pub(crate) fn label(&self) -> String {
        format!("{} x{} {}", self.pattern.name(), self.processes, format_bytes(self.transfer_bytes))
    }
}

/// A measurement as asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What is compared, each once.
    pub(crate) doors: Vec<Door>,
    /// Numbers of processes.
    pub(crate) processes: Vec<u32>,
    /// Patterns of data.
    pub(crate) patterns: Vec<Pattern>,
    /// Bytes of one call.
    pub(crate) transfers_bytes: Vec<u64>,
    /// Bytes that each process writes, at most; whole transfers are.
    pub(crate) per_process_bytes: u64,
    /// Names that each process makes; 0 leaves names out.
    pub(crate) names: u64,
    /// Whether data are measured.
    pub(crate) data: bool,
    /// How often everything is measured.
    pub(crate) rounds: u32,
    /// Where everything is put.
    pub(crate) device_dir: Option<PathBuf>,
    /// Options of the mount.
    pub(crate) mount_options: Vec<String>,
    /// Settings of the configuration, as variables of the environment.
    pub(crate) settings: Vec<(String, String)>,
    /// The JSON file.
    pub(crate) json: Option<PathBuf>,
    /// The figure.
    pub(crate) plot: Option<PathBuf>,
    /// Write a wrong byte.
    pub(crate) spoil: bool,
    /// Seconds that one step may take.
    pub(crate) step_timeout_s: u64,
}

impl Plan {
    /// All cases with data. One process alone has a file of its own in every pattern: it is measured once.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        if !self.data {
            return cases;
        }
        for transfer_bytes in &self.transfers_bytes {
            for processes in &self.processes {
                for pattern in &self.patterns {
                    let pattern = if *processes == 1 { Pattern::Nn } else { *pattern };
                    let case = Case { pattern, processes: *processes, transfer_bytes: *transfer_bytes };
                    if !cases.contains(&case) {
                        cases.push(case);
                    }
                }
            }
        }
        cases
    }

    /// Processes behind each door: somebody else checks what one wrote.
    pub(crate) fn members(&self) -> u32 {
        self.processes.iter().copied().max().unwrap_or(1).max(2)
    }
}

/// Which bytes of a file are a process's, and what they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Span {
    /// Who writes them.
    pub(crate) rank: u32,
    /// How many processes write at the same time.
    pub(crate) processes: u32,
    /// In which run: their content depends on it.
    pub(crate) run: u32,
    /// Bytes of one call.
    pub(crate) transfer_bytes: u64,
    /// Number of calls.
    pub(crate) count: u64,
    /// Where the first transfer begins.
    pub(crate) first_offset: u64,
    /// From the beginning of one transfer to that of the next, bytes.
    pub(crate) stride_bytes: u64,
}

impl Span {
    /// What `rank` writes in a case.
    pub(crate) fn of(case: &Case, per_process_bytes: u64, rank: u32, run: u32) -> Span {
        let transfer_bytes = case.transfer_bytes;
        let (first_offset, stride_bytes) = match case.pattern {
            Pattern::Nn => (0, transfer_bytes),
            Pattern::Strided => {
                (u64::from(rank) * transfer_bytes, u64::from(case.processes) * transfer_bytes)
            }
        };
        let count = per_process_bytes / transfer_bytes;
        let processes = case.processes;
        Span { rank, processes, run, transfer_bytes, count, first_offset, stride_bytes }
    }

    /// Where a transfer begins.
    pub(crate) fn offset(&self, transfer: u64) -> u64 {
        self.first_offset + transfer * self.stride_bytes
    }

    /// Bytes of all its transfers.
    pub(crate) fn bytes(&self) -> u64 {
        self.count * self.transfer_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_all_processes_fill_the_file_without_overlap() {
        let case = Case { pattern: Pattern::Strided, processes: 3, transfer_bytes: 10 };
        let spans: Vec<Span> = (0..3).map(|rank| Span::of(&case, 45, rank, 0)).collect();
        let mut starts: Vec<u64> =
            spans.iter().flat_map(|span| (0..span.count).map(|k| span.offset(k))).collect();
        starts.sort_unstable();
        assert_eq!(starts, (0..12).map(|k| k * 10).collect::<Vec<u64>>());
        assert_eq!(spans[1].bytes(), 40);
    }
}
