//! Settings of a client: the part of the cluster's configuration file that clients read.

pub use ccpfs_config::{ClientConfig, ConfigError, ConfigFile};
