//! Settings of a server: the part of the cluster's configuration file that servers read.

pub use ccpfs_config::{ConfigError, ConfigFile, ServerConfig};
