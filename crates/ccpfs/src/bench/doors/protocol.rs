//! What coordinator and processes behind a door tell each other; answers are those of the other measurements.

use super::plan::Span;
use crate::bench::member::Task;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// First line to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DoorJob {
    /// For messages.
    pub(crate) name: String,
    /// The C library and its configuration; `None` for the calls of the system.
    pub(crate) library: Option<(PathBuf, PathBuf)>,
    /// Write a wrong byte.
    pub(crate) spoil: bool,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum How {
    /// For reading and writing; it must not exist.
    Create,
    /// For reading and writing.
    Write,
    /// For reading.
    Read,
}

/// What is done with names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Action {
    /// Create for writing, and close.
    Create,
    /// Ask for attributes.
    Stat,
    /// Open for reading, and close.
    Open,
    /// Remove.
    Unlink,
}

impl Action {
    /// All, in the order in which they can be done.
    pub(crate) const ALL: [Action; 4] = [Action::Create, Action::Stat, Action::Open, Action::Unlink];

    /// The name in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Stat => "stat",
            Action::Open => "open",
            Action::Unlink => "unlink",
        }
    }
}

/// Further lines to a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DoorStep {
    /// Open a file and make ready for these bytes.
    Open {
        /// The file.
        path: PathBuf,
        /// For what.
        how: How,
        /// What will be written or read.
        span: Span,
    },
    /// Write the span.
    Write,
    /// Make it persistent and close.
    Finish,
    /// Read the span.
    Read,
    /// Read the span and compare it with what its rank wrote.
    Verify,
    /// Close.
    Close,
    /// Remove a file.
    Remove {
        /// The file.
        path: PathBuf,
    },
    /// Do the same with many names.
    Names {
        /// What.
        action: Action,
        /// A directory of the process's own.
        folder: PathBuf,
        /// How many.
        count: u64,
    },
    /// End.
    Quit,
}

impl Task for DoorStep {
    fn name(&self) -> &'static str {
        match self {
            DoorStep::Open { .. } => "open",
            DoorStep::Write => "write",
            DoorStep::Finish => "sync",
            DoorStep::Read => "read",
            DoorStep::Verify => "verify",
            DoorStep::Close => "close",
            DoorStep::Remove { .. } => "remove",
            DoorStep::Names { action, .. } => action.name(),
            DoorStep::Quit => "quit",
        }
    }

    fn is_last(&self) -> bool {
        *self == DoorStep::Quit
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::protocol::Step;

    #[test]
    fn quitting_is_the_same_word_for_all_measurements() {
        let word = serde_json::to_string(&Step::Quit).unwrap();
        assert_eq!(serde_json::to_string(&DoorStep::Quit).unwrap(), word);
    }
}
