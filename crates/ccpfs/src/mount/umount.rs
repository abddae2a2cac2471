//! `ccpfs umount`.

use super::{name_of, record::Record};
use crate::failure::Failure;
use crate::sys;
use ccpfs_fuse::Detach;
use std::path::PathBuf;

/// Options of `ccpfs umount`.
#[derive(Debug, clap::Args)]
pub(crate) struct UmountArguments {
    /// Where it is mounted.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Take it out of the tree even if it is used; it ends when nobody uses it any more.
    #[arg(long, short = 'l')]
    lazy: bool,
}

/// Unmounts and, unless lazily, waits until everything is with the servers.
pub(crate) fn run(arguments: &UmountArguments) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let dead = ccpfs_fuse::is_dead_mount(directory);
    let process = if dead { None } else { Record::process(directory) };
    let detach = if arguments.lazy || dead { Detach::Lazily } else { Detach::IfUnused };
    ccpfs_fuse::unmount(directory, detach).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(EBUSY) => ": programs use it (fuser -m shows them; --lazy unmounts all the same)",
            Some(EINVAL) => ": nothing is mounted there",
            Some(_) | None => "",
        };
        Failure::new(format!("cannot unmount {}: {error}{hint}", directory.display()))
    })?;
    let Some((record, pid)) = process.filter(|_| !arguments.lazy) else { return Ok(()) };
    sys::wait_for_process(pid);
    match record.failure() {
        Some(text) => Err(Failure::new(format!("{}: {text}", name_of(directory)))),
        None => Ok(()),
    }
}

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
