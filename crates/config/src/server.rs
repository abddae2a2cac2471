//! What a server makes of the configuration file.

use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::size::{Bytes, BytesPerSecond};
use ccpfs_transport::Address;
use ccpfs_types::Policy;
use ccpfs_types::limits::EXTENT_ENTRIES_MAX;
use std::path::{Path, PathBuf};

/// Settings of one server process: numbers in their ranges. [`crate::ServerSection`] says what each is for, its
/// default, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Position of the server in the cluster's list, from 0.
    pub index: u32,
    /// Number of servers in the cluster's list; above `index`.
    pub server_count: u32,
    /// Where the first shard listens; shard `i` listens on `listen.shard(i)`.
    pub listen: Address,
    /// Shards of each server; at least one.
    pub shards: u32,
    /// The lock manager.
    pub policy: Policy,
    /// Directory of this server's data, its own; shard `i` uses the sub-directory `shard-<i>`.
    pub data: PathBuf,
    /// Bytes of memory for data on their way to the device.
    pub memory_bytes: u64,
    /// Limit of the device, in bytes per second.
    pub device_bandwidth_bytes_per_s: Option<u64>,
    /// Threads of a shard that write to the device.
    pub device_threads: u32,
    /// Milliseconds that a client has to give back a lock.
    pub revoke_timeout_ms: u64,
    /// Entries of a shard's extent caches above which they are trimmed.
    pub extent_entries_max: usize,
    /// Microseconds for which a shard polls before it sleeps.
    pub busy_poll_us: u64,
}

impl ServerConfig {
    /// Reads the file at `path` (or the one that `CCPFS_CONFIG` names) and the environment, for server `index`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: Option<&Path>, index: u32) -> Result<ServerConfig, ConfigError> {
        from_file(&ConfigFile::load(path)?, index)
    }

    /// Checks a file that was read, for server `index`.
    ///
    /// # Errors
    /// The first setting that is missing or has a value that is not allowed.
    pub fn from_file(file: &ConfigFile, index: u32) -> Result<ServerConfig, ConfigError> {
        from_file(file, index)
    }

    /// A cluster of one server with every setting at its default, for tests.
    #[must_use]
    pub fn with_defaults(listen: Address, data: &Path) -> ServerConfig {
        let file = ConfigFile::default();
        limits(&file, 0, 1, listen, data.to_owned()).expect("the defaults are in their ranges")
    }

    /// The target number of the server's first shard; shard `i` is target `target_first() + i`.
    #[must_use]
    pub fn target_first(&self) -> u32 {
        self.index * self.shards
    }

    /// How many targets the cluster has.
    #[must_use]
    pub fn target_count(&self) -> u32 {
        self.server_count * self.shards
    }
}

/// Checks what servers use.
pub(crate) fn from_file(file: &ConfigFile, index: u32) -> Result<ServerConfig, ConfigError> {
    let servers = file.servers()?;
    let count = u32::try_from(servers.len()).expect("a list in a file is shorter than 2^32");
    let listen = servers.get(usize::try_from(index).expect("32 bits fit")).cloned().ok_or_else(|| {
        let value = format!("a list of {count}");
        file.wrong("cluster.servers", value, format!("a list with an address for server {index}"))
    })?;
    let data = file.server.data.as_ref().ok_or_else(|| file.missing("server.data", "a directory"))?;
    let data = data.join(format!("server-{index}"));
    limits(file, index, count, listen, data)
}

fn limits(
    file: &ConfigFile,
    index: u32,
    server_count: u32,
    listen: Address,
    data: PathBuf,
) -> Result<ServerConfig, ConfigError> {
    let server = &file.server;
    let (kib, mib, gib) = (1_u64 << 10, 1_u64 << 20, 1_u64 << 30);
    let name = file.cluster.policy.as_deref().unwrap_or("seqdlm");
    let policy: Policy = name.parse().map_err(|error: ccpfs_types::policy::UnknownPolicy| {
        file.wrong("cluster.policy", format!("'{name}'"), error.to_string())
    })?;
    let memory =
        file.number("server.memory", server.memory, Bytes(256 * mib), Bytes(32 * mib)..=Bytes(1024 * gib))?;
    let bandwidth_min = BytesPerSecond(64 * kib);
    if let Some(bandwidth) = server.device_bandwidth
        && bandwidth < bandwidth_min
    {
        let allowed = format!("at least {bandwidth_min}");
        return Err(file.wrong("server.device_bandwidth", bandwidth, allowed));
    }
    let entries_default = u64::try_from(EXTENT_ENTRIES_MAX).expect("a small constant");
    let entries = file.number(
        "server.extent_entries_max",
        server.extent_entries_max,
        entries_default,
        1_024..=67_108_864,
    )?;
    Ok(ServerConfig {
        index,
        server_count,
        listen,
        shards: file.shards()?,
        policy,
        data,
        memory_bytes: memory.0,
        device_bandwidth_bytes_per_s: server.device_bandwidth.map(|bandwidth| bandwidth.0),
        device_threads: file.number("server.device_threads", server.device_threads, 2, 1..=64)?,
        revoke_timeout_ms: file.number(
            "server.revoke_timeout_ms",
            server.revoke_timeout_ms,
            10_000,
            100..=3_600_000,
        )?,
        extent_entries_max: usize::try_from(entries).expect("at most 2^26"),
        busy_poll_us: file.number("server.busy_poll_us", server.busy_poll_us, 0, 0..=10_000)?,
    })
}
