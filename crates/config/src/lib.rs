//! The configuration of ccPFS: one TOML file for clients and servers, with overrides from the environment.
//!
//! *What*: the file format ([`ConfigFile`]), and what a client and a server make of it ([`ClientConfig`],
//! [`ServerConfig`]): plain numbers, checked once, when they are loaded.
//! *Invariants*: a value that was loaded satisfies every range and relation that its documentation states.
//! *Not here*: command lines (the `ccpfs` command), decisions.
//!
//! Any setting can be given by the environment as `CCPFS_<SECTION>_<KEY>` (`CCPFS_CLIENT_DIRTY_MAX=1GiB`); it wins
//! over the file. Lists are separated by commas.
#![forbid(unsafe_code)]

mod client;
mod error;
mod file;
mod noncontiguous;
mod section;
mod server;
mod size;

pub use client::ClientConfig;
pub use error::{ConfigError, Origin};
pub use file::{ClientSection, ClusterSection, ConfigFile, ServerSection, StripeSection};
pub use noncontiguous::{LockKind, LockProtocol, UnknownName};
pub use server::ServerConfig;
pub use size::{Bytes, BytesPerSecond, InvalidSize, format_bytes};

/// Environment variable with the path of the configuration file.
pub const CONFIG_VARIABLE: &str = "CCPFS_CONFIG";

#[cfg(test)]
mod tests;
