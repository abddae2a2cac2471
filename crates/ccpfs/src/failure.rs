//! How a command fails: a message for a person, and an exit status for a script.

use std::fmt;
use std::process::ExitCode;

/// What the exit status says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 1: it did not work.
    Failed,
    /// 2: it was asked for in a wrong way: options, configuration.
    Usage,
    /// 3: data are not what was written.
    WrongData,
    /// 126: the program to run cannot be executed (as shells say it).
    NotExecutable,
    /// 127: the program to run was not found (as shells say it).
    NotFound,
    /// The sum that `ccpfs fsck` ends with.
    Fsck(u8),
    /// 130: interrupted by a signal (as shells say it).
    Interrupted,
}

/// Why a command ends without success.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

impl Failure {
    /// It did not work.
    pub(crate) fn new(message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Failed, message: message.into() }
    }

    /// It was asked for in a wrong way.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { kind: Kind::Usage, message: message.into() }
    }

    /// Another kind.
    pub(crate) fn of(kind: Kind, message: impl Into<String>) -> Failure {
        Failure { kind, message: message.into() }
    }

    /// A signal asked the command to stop.
    pub(crate) fn interrupted() -> Failure {
        Failure::of(Kind::Interrupted, "interrupted")
    }

    /// The exit status.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self.kind {
            Kind::Failed => 1,
            Kind::Usage => 2,
            Kind::WrongData => 3,
            Kind::NotExecutable => 126,
            Kind::NotFound => 127,
            Kind::Fsck(sum) => sum,
            Kind::Interrupted => 130,
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ccpfs_config::ConfigError> for Failure {
    fn from(error: ccpfs_config::ConfigError) -> Failure {
        Failure::usage(error.to_string())
    }
}

/// Says what was being done when something failed.
pub(crate) trait Context<T> {
    /// Turns the error into a [`Failure`]: "`what`: error".
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{}: {error}", what())))
    }
}

/// Prints a line on standard output. A reader that went away (`ccpfs status | head`) is no error.
pub(crate) fn say(line: impl fmt::Display) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}
