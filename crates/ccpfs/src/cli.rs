//! The command line of `ccpfs`.

use crate::bench::BenchCommand;
use crate::cluster::{DownArguments, StatusArguments, UpArguments};
use crate::exec::ExecArguments;
use crate::fsck::FsckArguments;
use crate::group_lock::GroupLockArguments;
use crate::ladvise::LadviseArguments;
use crate::mount::{MountArguments, UmountArguments};
use crate::server::ServerArguments;
use crate::sim::SimCommand;
use crate::stripe::StripeCommand;
use ccpfs_wire::version::PROTOCOL_VERSION;
use clap::{Parser, Subcommand};
use std::sync::LazyLock;

/// Version of the program and of the protocol it speaks; builds may name their commit in `CCPFS_GIT_DESCRIBE`.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("CCPFS_GIT_DESCRIBE").map(|text| format!(", {text}")).unwrap_or_default();
    format!("{} (protocol {PROTOCOL_VERSION}{commit})", env!("CARGO_PKG_VERSION"))
});

/// ccPFS: a burst-buffer file system that gives one shared file the speed of one file per process.
///
/// Exit status: 0 success; 1 failure; 2 wrong options or configuration; 3 wrong data found; 126 and 127 as in shells
/// for 'exec'; 130 interrupted. 'fsck' has a sum of its own: 'ccpfs fsck --help'.
#[derive(Debug, Parser)]
#[command(name = "ccpfs", version = VERSION.as_str(), max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Log filter as in RUST_LOG: 'info', 'ccpfs_server=debug', … (default: RUST_LOG, else 'warn'). Logs go to
    /// standard error.
    #[arg(long, global = true, value_name = "FILTER", display_order = 1000)]
    pub(crate) log: Option<String>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one server in the foreground until SIGTERM or SIGINT.
    Server(ServerArguments),
    /// Start a cluster on this machine, or say that it is up.
    Up(UpArguments),
    /// Stop the cluster; its data stay.
    Down(DownArguments),
    /// Show servers, counters and space; exit status 0 only if all servers are up.
    Status(StatusArguments),
    /// Run a program on ccPFS: with the preload library and its configuration.
    Exec(ExecArguments),
    /// Mount: all programs on ccPFS, under a directory.
    Mount(MountArguments),
    /// Unmount, and wait until everything is with the servers.
    Umount(UmountArguments),
    /// Check names against servers, and mend what is wrong, while the cluster runs.
    Fsck(FsckArguments),
    /// Show or set how files are striped.
    #[command(subcommand)]
    Stripe(StripeCommand),
    /// Say how files will be accessed: locks ahead, ranges that will be read or not.
    Ladvise(LadviseArguments),
    /// Keep everybody out of a file who is not a member of a group.
    GroupLock(GroupLockArguments),
    /// Measure.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Simulate a whole cluster in one process: search for errors, reproduce the figures of SeqDLM's paper.
    #[command(subcommand)]
    Sim(SimCommand),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_version_names_the_protocol() {
        assert!(VERSION.contains(&format!("protocol {PROTOCOL_VERSION}")));
    }
}
