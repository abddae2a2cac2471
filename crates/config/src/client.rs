//! What a client makes of the configuration file.

use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::noncontiguous::{LockKind, LockProtocol, named};
use crate::size::Bytes;
use ccpfs_transport::Address;
use ccpfs_types::limits::LOCKS_PER_RESOURCE_MAX;
use ccpfs_types::{Layout, LockMode};
use std::path::{Path, PathBuf};

/// Settings of one client process: numbers in their ranges. [`crate::ClientSection`] says what each is for, its
/// default, and what it costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Directory where the files are seen; absolute.
    pub namespace: PathBuf,
    /// Address of each server, in the order that places the stripes; at least one.
    pub servers: Vec<Address>,
    /// Shards of each server; at least one.
    pub shards: u32,
    /// Layout of new files where nothing else is said.
    pub layout: Layout,
    /// Dirty bytes from which a client flushes in the background.
    pub dirty_bytes_min: u64,
    /// Dirty bytes at which writers wait; above `dirty_bytes_min`, at most `cache_bytes`.
    pub dirty_bytes_max: u64,
    /// Size of the page pool in bytes.
    pub cache_bytes: u64,
    /// Bytes of the pool touched at start.
    pub prefault_bytes: u64,
    /// Locks kept per stripe.
    pub lock_count_max: usize,
    /// Seconds after which an unused lock is given back.
    pub lock_age_max_s: u64,
    /// Bytes fetched ahead of a sequential reader; 0 is off.
    pub read_ahead_bytes: u64,
    /// Milliseconds during which an unreachable server is tried again.
    pub connect_timeout_ms: u64,
    /// Milliseconds of silence after which a connected server counts as lost.
    pub server_timeout_ms: u64,
    /// Microseconds for which a waiting thread polls before it sleeps.
    pub busy_poll_us: u64,
    /// Whether closing a file waits until its data are with the servers.
    pub flush_on_close: bool,
    /// Whether regular access asks for the section that it seems to be.
    pub desired_sections: bool,
    /// How the locks of a noncontiguous operation are asked for, unless it says so itself.
    pub lock_kind: LockKind,
    /// In which order they are asked for, unless the operation says so itself.
    pub lock_protocol: LockProtocol,
    /// For measurements: every write takes this mode instead of the one that serves. Not in the file.
    pub force_write_mode: Option<LockMode>,
    /// For measurements: every operation locks `[0, EOF)` of each stripe it touches (paper Fig. 16). Not in the file.
    pub lock_whole: bool,
}

impl ClientConfig {
    /// Reads the file at `path` (or the one that `CCPFS_CONFIG` names) and the environment, and checks all.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: Option<&Path>) -> Result<ClientConfig, ConfigError> {
        ClientConfig::from_file(&ConfigFile::load(path)?)
    }

    /// Checks a file that was read.
    ///
    /// # Errors
    /// The first setting that is missing or has a value that is not allowed.
    pub fn from_file(file: &ConfigFile) -> Result<ClientConfig, ConfigError> {
        from_file(file)
    }

    /// A configuration with every setting at its default, for tests and programs that know their servers.
    ///
    /// # Panics
    /// When `servers` is empty.
    #[must_use]
    pub fn with_defaults(namespace: &Path, servers: Vec<Address>) -> ClientConfig {
        assert!(!servers.is_empty(), "a client needs a server");
        let file = ConfigFile::default();
        limits(&file, namespace.to_owned(), servers).expect("the defaults are in their ranges")
    }

    /// Address of each target (shard) in target order: all shards of the first server, then of the second, and so on.
    #[must_use]
    pub fn targets(&self) -> Vec<Address> {
        let shards = 0..self.shards;
        self.servers.iter().flat_map(|server| shards.clone().map(|shard| server.shard(shard))).collect()
    }
}

/// Checks what clients use.
pub(crate) fn from_file(file: &ConfigFile) -> Result<ClientConfig, ConfigError> {
    const NAMESPACE: &str = "the absolute path of a directory";
    let namespace =
        file.cluster.namespace.clone().ok_or_else(|| file.missing("cluster.namespace", NAMESPACE))?;
    if !namespace.is_absolute() {
        let value = format!("'{}'", namespace.display());
        return Err(file.wrong("cluster.namespace", value, NAMESPACE));
    }
    let servers = file.servers()?;
    limits(file, namespace, servers)
}

fn limits(file: &ConfigFile, namespace: PathBuf, servers: Vec<Address>) -> Result<ClientConfig, ConfigError> {
    let client = &file.client;
    let locks_max = u32::try_from(LOCKS_PER_RESOURCE_MAX).expect("a small constant");
    let (dirty_min, dirty_max, cache, prefault, read_ahead) = amounts(file)?;
    let hour_ms = 3_600_000;
    Ok(ClientConfig {
        namespace,
        servers,
        shards: file.shards()?,
        layout: file.layout()?,
        dirty_bytes_min: dirty_min.0,
        dirty_bytes_max: dirty_max.0,
        cache_bytes: cache.0,
        prefault_bytes: prefault.0,
        lock_count_max: usize::try_from(file.number(
            "client.lock_count_max",
            client.lock_count_max,
            locks_max,
            16..=locks_max,
        )?)
        .expect("32 bits fit"),
        lock_age_max_s: file.number("client.lock_age_max_s", client.lock_age_max_s, 600, 1..=2_592_000)?,
        read_ahead_bytes: read_ahead.0,
        connect_timeout_ms: file.number(
            "client.connect_timeout_ms",
            client.connect_timeout_ms,
            10_000,
            0..=hour_ms,
        )?,
        server_timeout_ms: file.number(
            "client.server_timeout_ms",
            client.server_timeout_ms,
            30_000,
            1_000..=hour_ms,
        )?,
        busy_poll_us: file.number("client.busy_poll_us", client.busy_poll_us, 0, 0..=10_000)?,
        flush_on_close: client.flush_on_close.unwrap_or(true),
        desired_sections: client.desired_sections.unwrap_or(true),
        lock_kind: named(file, "client.lock_kind", client.lock_kind.as_deref(), LockKind::KINDS)?,
        lock_protocol: named(
            file,
            "client.lock_protocol",
            client.lock_protocol.as_deref(),
            LockProtocol::PROTOCOLS,
        )?,
        force_write_mode: None,
        lock_whole: false,
    })
}

/// The sizes of the cache and their relations: dirty_min, dirty_max, cache, prefault, read_ahead.
fn amounts(file: &ConfigFile) -> Result<(Bytes, Bytes, Bytes, Bytes, Bytes), ConfigError> {
    let client = &file.client;
    let (kib, mib, gib) = (1_u64 << 10, 1_u64 << 20, 1_u64 << 30);
    let cache = file.number("client.cache", client.cache, Bytes(4 * gib), Bytes(mib)..=Bytes(1024 * gib))?;
    // A small cache alone must be a valid configuration: what is not said follows it.
    let max_default = Bytes((4 * gib).min(cache.0));
    let dirty_max = client.dirty_max.unwrap_or(max_default);
    let min_default = Bytes((256 * mib).min(dirty_max.0 / 4));
    let dirty_min =
        file.number("client.dirty_min", client.dirty_min, min_default, Bytes(64 * kib)..=Bytes(1024 * gib))?;
    if dirty_max > cache {
        let allowed = format!("at most client.cache, which is {cache}");
        return Err(file.wrong("client.dirty_max", dirty_max, allowed));
    }
    if dirty_min >= dirty_max {
        let allowed = format!("below client.dirty_max, which is {dirty_max}");
        return Err(file.wrong("client.dirty_min", dirty_min, allowed));
    }
    let prefault = client.prefault.unwrap_or(Bytes(0));
    if prefault > cache {
        let allowed = format!("at most client.cache, which is {cache}");
        return Err(file.wrong("client.prefault", prefault, allowed));
    }
    let ahead_max = Bytes((256 * mib).min(cache.0));
    let ahead_default = Bytes((4 * mib).min(cache.0 / 4));
    let read_ahead =
        file.number("client.read_ahead", client.read_ahead, ahead_default, Bytes(0)..=ahead_max)?;
    Ok((dirty_min, dirty_max, cache, prefault, read_ahead))
}
