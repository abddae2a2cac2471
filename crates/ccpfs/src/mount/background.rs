//! A mount in the background: a process of its own, which says when the mount is there.

use super::{MountArguments, name_of};
use crate::failure::{Context, Failure};
use crate::sys;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the child says.
const READY: &str = "mounted";

/// Starts the process and waits until the mount is there.
pub(super) fn start(arguments: &MountArguments, config: &Path) -> Result<(), Failure> {
    let binary = std::env::current_exe().context(|| "cannot find this program".to_owned())?;
    let mut command = Command::new(binary);
    command.args(["mount", "--foreground", "--announce", "--config"]).arg(config);
    for options in &arguments.options {
        command.arg("-o").arg(options);
    }
    if let Some(log) = &arguments.log_file {
        let log = std::path::absolute(log).context(|| log.display().to_string())?;
        command.arg("--log-file").arg(log);
    }
    let directory = std::path::absolute(&arguments.directory).context(|| name_of(&arguments.directory))?;
    command.arg("--").arg(directory).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context(|| "cannot start the mount".to_owned())?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        // An error, as no line at all, means that the child has ended or will.
        let _ = BufReader::new(output).read_line(&mut said);
    }
    if said.trim() == READY {
        return Ok(());
    }
    let status = child.wait().context(|| "cannot wait for the mount".to_owned())?;
    // The child has said why.
    Err(Failure::new(format!("{} has failed ({status})", name_of(&arguments.directory))))
}

/// In the child: tells the parent, and lets go of its terminal and directory.
pub(super) fn announce(log: Option<&Path>, directory: &Path) {
    let default = super::record::log_path(directory);
    let log = log.map(Path::to_owned).or(default);
    let log = log.and_then(|path| File::options().create(true).append(true).open(path).ok());
    let _ = writeln!(std::io::stdout(), "{READY}");
    // Both can fail without harm: the mount works, and keeps a terminal or a directory busy.
    let _ = sys::start_session();
    let _ = std::env::set_current_dir("/");
    sys::leave_terminal(log.as_ref());
}
