//! What `ccpfs umount` finds out about a mount: the process behind it, and why it failed.

use crate::cluster::process::ProcessId;
use crate::failure::Failure;
use crate::sys;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file in the run directory, named by the device number of the mount; it identifies the process.
pub(super) struct Record {
    path: PathBuf,
}

/// Directory for files of running processes: the system's for root, else the user's.
fn run_directory() -> Option<PathBuf> {
    let directory = if sys::is_root() {
        PathBuf::from("/run/ccpfs")
    } else {
        match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
            Some(path) => PathBuf::from(path).join("ccpfs"),
            None => return None,
        }
    };
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory)
}

fn path_for(device: u64, ending: &str) -> Option<PathBuf> {
    Some(run_directory()?.join(format!("mount-{device}{ending}")))
}

/// Where the log of a mount in the background goes.
pub(super) fn log_path(directory: &Path) -> Option<PathBuf> {
    path_for(std::fs::metadata(directory).ok()?.dev(), ".log")
}

impl Record {
    /// Notes this process as the one behind the mount on a directory. Without a run directory nothing is noted.
    pub(super) fn write(directory: &Path) -> Option<Record> {
        let device = std::fs::metadata(directory).ok()?.dev();
        let path = path_for(device, "")?;
        for ending in [".error", ".log"] {
            // Of an earlier mount with this number.
            let _ = std::fs::remove_file(path_for(device, ending)?);
        }
        ProcessId::running(std::process::id())?.write(&path).ok()?;
        Some(Record { path })
    }

    /// The mount has ended; what went wrong stays for whoever unmounted it.
    pub(super) fn close(self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            let _ = std::fs::write(self.path.with_extension("error"), failure.to_string());
        } else {
            let _ = std::fs::remove_file(self.path.with_extension("log"));
        }
        let _ = std::fs::remove_file(&self.path);
    }

    /// The process behind the mount on a directory.
    pub(super) fn process(directory: &Path) -> Option<(Record, u32)> {
        let path = path_for(std::fs::metadata(directory).ok()?.dev(), "")?;
        let process = ProcessId::read(&path).ok()?.filter(ProcessId::is_alive)?;
        Some((Record { path }, process.pid))
    }

    /// What went wrong, once the process has ended.
    pub(super) fn failure(&self) -> Option<String> {
        let path = self.path.with_extension("error");
        let text = std::fs::read_to_string(&path).ok()?;
        let _ = std::fs::remove_file(path);
        Some(text)
    }
}
