//! `ccpfs fsck`: finds where names and servers disagree about files, and mends it, while the cluster runs.

mod check;
mod guess;
mod orphans;
mod report;
mod stock;
mod walk;

use crate::cluster::ClusterChoice;
use crate::failure::{Failure, Kind};
use ccpfs_client::{Client, ClientConfig};
use ccpfs_config::Bytes;
use check::Check;
use report::{EXIT_OPERATIONAL, Report};
use std::path::{Path, PathBuf};

const HELP: &str = "\
What is looked for:
  orphan        data on servers that no stub names: left by a client that was killed between removing a name
                and removing the data, or by somebody who removed stubs without ccPFS. --repair links them as
                files below <namespace>/lost+found; --delete-orphans removes them. Files that were removed and
                that somebody still has open are not orphans: they go with the last close.
  damaged       a stub that cannot be read, or of a cluster with another number of servers. Restore it from a
                backup of the namespace, or remove it; its data are then an orphan.
  shared        two files that name the same data, because a stub was copied. Removing either one removes the
                data of both: copy the contents through ccPFS, then remove the copied stub without ccPFS.
  incomplete    a file that says it is longer than what its servers have: a server has lost its disk. --repair
                lets the file say what is left.
  contradiction a file that says something else than its servers and that nobody writes. --repair lets it say
                what the servers have.
  unsealed      a file whose last writer was killed: asking for its size costs messages until somebody writes
                and closes it. --repair asks once and notes the answer.
  beyond        data of a stripe that the file does not have. --delete-orphans removes them.
  misplaced     data on another server than they belong to: is the list of servers as it was? Nothing is done.
  note          a note about a removed file whose data are gone, or that has a name. --repair removes it.

Programs may go on meanwhile: whatever looks wrong is looked at twice, and nothing is changed that somebody has
open. Without PATH the whole namespace is checked; with PATH only what is there, and orphans are not looked for.
All files of these servers must be in this one namespace, otherwise those of another one look like orphans.

Exit status, as that of fsck(8), is a sum: 0 nothing wrong, 1 mended, 4 something is left as it was,
8 something could not be looked at or done; 2 alone: wrong options or configuration.";

/// Options of `ccpfs fsck`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct FsckArguments {
    #[command(flatten)]
    cluster: ClusterChoice,
    /// Mend what can be mended without removing data; without it everything is only reported.
    #[arg(long)]
    repair: bool,
    /// Remove the data of orphans, for good. Look at the report without this option first.
    #[arg(long, conflicts_with = "paths")]
    delete_orphans: bool,
    /// Stripe size of orphans of which nothing is known (default: as configured for new files).
    #[arg(long, value_name = "SIZE")]
    stripe_size: Option<Bytes>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Check only these files, and what is below these directories, of the namespace.
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

/// What is to be done about what is found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    repair: bool,
    delete_orphans: bool,
    stripe_bytes: Option<u64>,
}

/// Checks, mends, and reports.
pub(crate) fn run(arguments: &FsckArguments) -> Result<(), Failure> {
    let config = ClientConfig::load(Some(&arguments.cluster.config_path()?))?;
    let namespace = config.namespace.clone();
    let operational =
        |error: &dyn std::fmt::Display| Failure::of(Kind::Fsck(EXIT_OPERATIONAL), error.to_string());
    let namespace = std::fs::canonicalize(&namespace)
        .map_err(|error| operational(&format!("namespace {}: {error}", namespace.display())))?;
    let paths = arguments.paths.iter().map(|path| inside(path, &namespace)).collect::<Result<Vec<_>, _>>()?;
    let wish = Wish {
        repair: arguments.repair,
        delete_orphans: arguments.delete_orphans,
        stripe_bytes: arguments.stripe_size.map(|size| size.0),
    };
    if wish.stripe_bytes.is_some_and(|bytes| ccpfs_types::Layout::new(1, bytes).is_none()) {
        return Err(Failure::usage("--stripe-size: a multiple of 4KiB, 4KiB to 1TiB"));
    }
    let client = Client::start(config).map_err(|error| operational(&error))?;
    let mut check = Check::new(client, namespace, wish, Report::new(arguments.json));
    check.run(&paths);
    check.into_report().finish()
}

/// The path without symbolic links; it must be in the namespace.
fn inside(path: &Path, namespace: &Path) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let whole = std::fs::canonicalize(path).map_err(|error| Failure::usage(format!("{shown}: {error}")))?;
    if whole.starts_with(walk::hidden(namespace)) {
        Err(Failure::usage(format!("{shown} belongs to ccPFS itself")))
    } else if whole.starts_with(namespace) {
        Ok(whole)
    } else {
        Err(Failure::usage(format!("{shown} is not in the namespace {}", namespace.display())))
    }
}
