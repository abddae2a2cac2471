//! The directory that holds everything about a local cluster.

use crate::failure::{Context, Failure};
use ccpfs_config::ConfigFile;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Which state directory.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct StateChoice {
    /// Directory with the cluster's state (default: CCPFS_STATE, else ccpfs in XDG_STATE_HOME or ~/.local/state).
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
}

impl StateChoice {
    /// Whether it was named on the command line.
    pub(crate) fn is_given(&self) -> bool {
        self.state.is_some()
    }

    /// The directory, by an absolute path; it need not exist.
    pub(crate) fn open(&self) -> Result<StateDirectory, Failure> {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = self
            .state
            .clone()
            .or_else(|| variable("CCPFS_STATE"))
            .or_else(|| variable("XDG_STATE_HOME").map(|folder| folder.join("ccpfs")))
            .or_else(|| variable("HOME").map(|home| home.join(".local/state/ccpfs")))
            .ok_or_else(|| Failure::usage("no state directory: give --state, or set CCPFS_STATE or HOME"))?;
        let path = std::path::absolute(&path).context(|| format!("{}", path.display()))?;
        Ok(StateDirectory::at(path))
    }
}

/// A state directory and the names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateDirectory {
    path: PathBuf,
}

impl StateDirectory {
    /// The directory at `path`.
    pub(crate) fn at(path: PathBuf) -> StateDirectory {
        StateDirectory { path }
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The cluster's configuration file.
    pub(crate) fn config_path(&self) -> PathBuf {
        self.path.join("ccpfs.toml")
    }

    /// The namespace, unless another was asked for.
    pub(crate) fn namespace_path(&self) -> PathBuf {
        self.path.join("ns")
    }

    /// Data of all servers, unless another directory was asked for.
    pub(crate) fn data_path(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What runs: process files and sockets.
    pub(crate) fn run_path(&self) -> PathBuf {
        self.path.join("run")
    }

    /// Which process server `index` is.
    pub(crate) fn process_path(&self, index: usize) -> PathBuf {
        self.run_path().join(format!("server-{index}.pid"))
    }

    /// The socket of the first shard of server `index`.
    pub(crate) fn socket_path(&self, index: usize) -> PathBuf {
        self.run_path().join(format!("s{index}.sock"))
    }

    /// The log of server `index`.
    pub(crate) fn log_path(&self, index: usize) -> PathBuf {
        self.path.join("log").join(format!("server-{index}.log"))
    }

    /// Directories outside of this one that `up` created, one per line: `down --purge` may remove them.
    pub(crate) fn created_path(&self) -> PathBuf {
        self.path.join("created")
    }

    /// Whether `ccpfs up` made it.
    pub(crate) fn is_ours(&self) -> bool {
        self.run_path().is_dir() && self.config_path().is_file()
    }

    /// The configuration, if there is one.
    pub(crate) fn config(&self) -> Result<Option<ConfigFile>, Failure> {
        let path = self.config_path();
        match std::fs::read_to_string(&path) {
            // Without the environment: it belongs to the caller, not to the cluster.
            Ok(text) => Ok(Some(ConfigFile::parse(&text, Some(&path), std::collections::BTreeMap::new())?)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
        }
    }

    /// Creates the directory and those that always belong to it.
    pub(crate) fn create(&self) -> Result<(), Failure> {
        for folder in [self.path.clone(), self.run_path(), self.path.join("log")] {
            std::fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(())
    }

    /// Keeps other `up` and `down` commands out until the answer is dropped.
    pub(crate) fn lock(&self) -> Result<File, Failure> {
        let path = self.path.join("lock");
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.context(|| format!("cannot write {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(Failure::new(format!(
                "another 'ccpfs up' or 'ccpfs down' works on {}: try again when it is done",
                self.path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(Failure::new(format!("{}: {error}", path.display()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_commands_do_not_work_on_one_state_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(folder.path().to_owned());
        state.create().unwrap();
        let held = state.lock().unwrap();
        let refused = state.lock().unwrap_err().to_string();
        assert!(refused.contains("try again"), "{refused}");
        drop(held);
        state.lock().unwrap();
    }

    #[test]
    fn a_state_without_configuration_is_empty_and_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDirectory::at(folder.path().join("new"));
        assert!(!state.is_ours() && state.config().unwrap().is_none());
    }
}
