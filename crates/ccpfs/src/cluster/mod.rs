//! Clusters on this machine: where their state is kept, and which one a command means.

pub(crate) mod down;
pub(crate) mod process;
pub(crate) mod servers;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod up;

pub(crate) use down::DownArguments;
pub(crate) use status::StatusArguments;
pub(crate) use up::UpArguments;

use crate::failure::Failure;
use ccpfs_config::CONFIG_VARIABLE;
use state::{StateChoice, StateDirectory};
use std::path::PathBuf;

/// Which cluster a command is for.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ClusterChoice {
    #[command(flatten)]
    state: StateChoice,
    /// Configuration file of the cluster (default: CCPFS_CONFIG, else the file in the state directory).
    #[arg(long, value_name = "FILE", conflicts_with = "state")]
    config: Option<PathBuf>,
}

impl ClusterChoice {
    /// The configuration file, as an absolute path: `--config`, `--state`, `CCPFS_CONFIG`, the default state.
    pub(crate) fn config_path(&self) -> Result<PathBuf, Failure> {
        let named = || std::env::var_os(CONFIG_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
        let from_state = self.state.is_given();
        let given = self.config.clone().or_else(|| if from_state { None } else { named() });
        let (path, hint) = match given {
            Some(path) => (path, ""),
            None => (self.state.open()?.config_path(), ": 'ccpfs up' starts a cluster"),
        };
        std::fs::canonicalize(&path).map_err(|error| {
            Failure::usage(format!("no cluster configuration at {}: {error}{hint}", path.display()))
        })
    }

    /// The state directory, when the cluster was started by `ccpfs up` on this machine.
    pub(crate) fn state_directory(&self) -> Result<Option<StateDirectory>, Failure> {
        let config = self.config_path()?;
        let state = config.parent().map(|folder| StateDirectory::at(folder.to_owned()));
        Ok(state.filter(|state| state.config_path() == config && state.is_ours()))
    }
}
