//! `ccpfs group-lock`: keeps everybody out of a file who is not a member of a group.

use crate::cluster::ClusterChoice;
use crate::failure::{Context, Failure, say};
use crate::sys;
use ccpfs_client::{Client, OpenOptions};
use ccpfs_config::ClientConfig;
use std::ffi::OsString;
use std::num::NonZeroU64;
use std::path::PathBuf;

/// How often it is looked whether to end, in milliseconds.
const LOOK_MS: u32 = 200;

/// Options of `ccpfs group-lock`.
///
/// Members of a group (all who have a group lock with the same number) read and write the file without any further lock traffic;
/// everybody else waits until the last member has left. This command is a member for as long as COMMAND runs, or until it is
/// interrupted. Programs become members by ccpfs_group_lock() of <ccpfs.h>.
///
/// What members give up: their reads and writes are not atomic beside each other; what one writes, another may not see before both
/// have left; of bytes that two write, or that one writes and another cuts off, it is not said which stay. Use it where each member
/// has its own part of the file.
///
/// Who is kept out waits for as long as the members stay: a COMMAND that touches the file without being a member never ends. If others
/// wait for longer than 31 times server.revoke_timeout_ms, members that write nothing back meanwhile are given up by the servers,
/// and lose what they have not written back.
#[derive(Debug, clap::Args)]
pub(crate) struct GroupLockArguments {
    #[command(flatten)]
    cluster: ClusterChoice,
    /// Number of the group: any but 0.
    #[arg(long, short = 'g', value_name = "N")]
    id: NonZeroU64,
    /// A file of the namespace.
    file: PathBuf,
    /// A program to run meanwhile, and its arguments (default: none; end it by Ctrl-C).
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Takes the lock, waits, and gives it back.
pub(crate) fn run(arguments: &GroupLockArguments) -> Result<(), Failure> {
    let path = &arguments.file;
    let config = ClientConfig::load(Some(&arguments.cluster.config_path()?))?;
    if arguments.command.is_empty() {
        sys::block_termination();
    }
    let client = Client::start(config).context(|| "cannot start a client".to_owned())?;
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let file = client.open(path, &options).context(|| format!("cannot open {}", path.display()))?;
    let failed = || format!("no group lock of {}", path.display());
    file.group_lock(arguments.id).context(failed)?;
    let ended = match arguments.command.split_first() {
        Some((program, rest)) => {
            let status = std::process::Command::new(program).args(rest).status();
            status.context(|| format!("cannot run {}", program.display())).map(|status| status.code())
        }
        None => {
            say(format!("{}: member of group {} until this is interrupted", path.display(), arguments.id));
            while !sys::termination_within(LOOK_MS) {}
            Ok(Some(0))
        }
    };
    file.group_unlock(arguments.id).context(failed)?;
    drop(file);
    client.shutdown().context(|| "cannot end the client".to_owned())?;
    match ended? {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::new(format!("the command ended with status {code}"))),
        None => Err(Failure::new("the command was ended by a signal")),
    }
}
