//! The format of the configuration file.

use crate::error::{ConfigError, Origin};
use crate::section::{Variables, section};
use crate::size::{Bytes, BytesPerSecond};
use crate::{CONFIG_VARIABLE, client, server};
use ccpfs_transport::Address;
use ccpfs_types::Layout;
use ccpfs_types::limits::{STRIPE_BYTES_MAX, STRIPE_BYTES_MIN, STRIPES_MAX};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

section! {
    /// `[cluster]`: what clients and servers must agree about.
    ClusterSection "cluster" {
        /// Directory where the files are seen; an absolute path that all nodes have. Required.
        namespace: PathBuf,
        /// One address per server: `tcp://host:port` or `unix:/path`. Their order places the stripes: it must be the same
        /// for all, and must not change while files exist. Required.
        servers: Vec<String>,
        /// Shards of each server: threads that lock and move data independently of each other. Default 1 (one thread
        /// serves about 200,000 lock requests per second); 1 to 64. Shard `i` listens on the server's port plus `i`.
        shards: u32,
        /// Lock manager of the servers: `seqdlm` (default), `basic` or `lustre`, with switches like `-no-early-grant`.
        policy: String,
    }
}

section! {
    /// `[stripe]`: how new files are laid out where nothing else is said.
    StripeSection "stripe" {
        /// Stripes of a new file. Default 1; 1 to 2048. More stripes spread one file over more servers.
        count: u32,
        /// Bytes in one unit of a stripe. Default 1 MiB; a multiple of 4 KiB, 4 KiB to 1 TiB.
        size: Bytes,
    }
}

section! {
    /// `[client]`: caches and patience of each client process.
    ClientSection "client" {
        /// Dirty data from which a client flushes in the background. Default 256 MiB (paper IV-C1): less keeps the servers'
        /// devices busy earlier, more merges more overwrites. At least 64 KiB, below `dirty_max`.
        dirty_min: Bytes,
        /// Dirty data at which writers wait for flushes. Default 4 GiB (paper IV-C1). At most `cache`.
        dirty_max: Bytes,
        /// The page pool at most. Default 4 GiB: address space, which costs memory only as far as it was used. The pool grows with
        /// its use, and beyond 16 MiB (or `prefault`) only while an eighth of the memory of the node, and of the control group,
        /// is left. 1 MiB to 1 TiB.
        cache: Bytes,
        /// Bytes of the pool touched when the client starts. Default 0. First writes into touched memory are two to
        /// three times as fast; it costs that much memory from the start. At most `cache`.
        prefault: Bytes,
        /// Locks kept per stripe before the least recently used are given back. Default 8192 (about 200 bytes each); 16
        /// to 8192.
        lock_count_max: u32,
        /// Seconds after which an unused lock is given back. Default 600, as Lustre's; 1 to 2,592,000.
        lock_age_max_s: u64,
        /// Bytes fetched ahead of a sequential reader. Default 4 MiB (one read RPC); 0 switches it off; at most 256 MiB,
        /// and at most `cache`.
        read_ahead: Bytes,
        /// Milliseconds during which a server that does not answer is tried again before a file operation fails.
        /// Default 10,000 (a server restarts in that time); 0 to 3,600,000.
        connect_timeout_ms: u64,
        /// Milliseconds without any sign of life after which a connected server counts as lost. Default 30,000; 1,000 to
        /// 3,600,000.
        server_timeout_ms: u64,
        /// Microseconds for which a waiting thread polls before it sleeps. Default 0; at most 10,000. Saves a wake-up
        /// (25 to 45 us) on nodes with idle cores and does harm where cores are shared.
        busy_poll_us: u64,
        /// Whether closing a file waits until its data are with the servers. Default true: another client then sees
        /// errors of the flush at the latest in `close`.
        flush_on_close: bool,
        /// Whether a client that sees itself reading or writing at regular distances asks for all of such a section at once. Default
        /// true: strided access to one shared file then takes a few lock requests instead of many.
        desired_sections: bool,
        /// How the locks of a noncontiguous operation are asked for: `datatype` (default; one description for each stripe),
        /// `list` (64 pieces a request), `posix` (a request for each piece). The last two are for comparison.
        lock_kind: String,
        /// In which order: `alt-try` (default; all at once without waiting, then the first that is missing, and so by turns),
        /// `one-try` (all at once without waiting, then one after the other), `two-phase` (one after the other).
        lock_protocol: String,
    }
}

section! {
    /// `[server]`: storage and patience of each server process.
    ServerSection "server" {
        /// Directory for the data; server `i` uses the sub-directory `server-<i>`. Required for servers.
        data: PathBuf,
        /// Memory for data on their way to the device. Default 256 MiB; 32 MiB to 1 TiB. When it is used up, flushing
        /// clients wait.
        memory: Bytes,
        /// Limits the device to this bandwidth, for measurements. Default: no limit; at least 64 KiB/s.
        device_bandwidth: BytesPerSecond,
        /// Threads of a shard that write to the device. Default 2 (one syncs while one writes); 1 to 64.
        device_threads: u32,
        /// Milliseconds that a client has to give back a lock; prolonged while it flushes. Then it is evicted and loses
        /// what it has not flushed. Default 10,000; 100 to 3,600,000.
        revoke_timeout_ms: u64,
        /// Entries of a shard's extent caches above which they are trimmed. Default 262,144 (paper IV-B; about 100
        /// bytes each); 1,024 to 67,108,864.
        extent_entries_max: u64,
        /// Microseconds for which a shard polls before it sleeps. Default 0; at most 10,000.
        busy_poll_us: u64,
    }
}

/// A configuration file with the overrides of the environment: everything as written, nothing checked but its form.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigFile {
    /// What clients and servers must agree about.
    pub cluster: ClusterSection,
    /// Layout of new files.
    pub stripe: StripeSection,
    /// Settings of clients.
    pub client: ClientSection,
    /// Settings of servers.
    pub server: ServerSection,
    /// Where it was read from.
    #[serde(skip)]
    pub(crate) path: Option<PathBuf>,
    /// Keys whose values come from the environment, with the variable.
    #[serde(skip)]
    overridden: BTreeMap<String, String>,
}

impl ConfigFile {
    /// Reads `path`, or the file that `CCPFS_CONFIG` names, then the environment.
    ///
    /// # Errors
    /// No path, an unreadable or malformed file, a malformed or unknown variable.
    pub fn load(path: Option<&Path>) -> Result<ConfigFile, ConfigError> {
        let named = std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
        let path = path.map(Path::to_owned).or(named).ok_or(ConfigError::NoFile)?;
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ConfigError::Unreadable { path: path.clone(), source })?;
        // Not `vars()`: it panics when any variable of the process is no Unicode.
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        });
        ConfigFile::parse(&text, Some(&path), variables.collect())
    }

    /// Reads `text`, which came from `path`, then `variables` by name, for tests and tools.
    ///
    /// # Errors
    /// As [`ConfigFile::load`].
    pub fn parse(
        text: &str,
        path: Option<&Path>,
        mut variables: BTreeMap<String, String>,
    ) -> Result<ConfigFile, ConfigError> {
        let mut file: ConfigFile = toml::from_str(text).map_err(|error| ConfigError::Malformed {
            path: path.unwrap_or(Path::new("configuration")).to_owned(),
            message: error.to_string().trim_end().to_owned(),
        })?;
        file.path = path.map(Path::to_owned);
        file.apply(&mut variables)?;
        Ok(file)
    }

    fn apply(&mut self, variables: &mut Variables) -> Result<(), ConfigError> {
        self.cluster.take_overrides(variables, &mut self.overridden)?;
        self.stripe.take_overrides(variables, &mut self.overridden)?;
        self.client.take_overrides(variables, &mut self.overridden)?;
        self.server.take_overrides(variables, &mut self.overridden)
    }

    /// The file as TOML, without what is not set.
    ///
    /// # Errors
    /// When a path is no Unicode text.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(self)
    }

    /// Checks every setting of clients and servers, whether this process uses it or not.
    ///
    /// # Errors
    /// The first setting with a value out of its range, or in conflict with another.
    pub fn validate(&self) -> Result<(), ConfigError> {
        client::from_file(self)?;
        if self.server.data.is_some() {
            server::from_file(self, 0)?;
        }
        Ok(())
    }

    /// Where the value of `key` (`section.key`) comes from.
    pub(crate) fn origin(&self, key: &str) -> Origin {
        match (self.overridden.get(key), &self.path) {
            (Some(name), _) => Origin::Variable(name.clone()),
            (None, Some(path)) => Origin::File(path.clone()),
            (None, None) => Origin::Program,
        }
    }

    /// An error about the value of `key`.
    pub(crate) fn wrong(&self, key: &str, value: impl ToString, allowed: impl Into<String>) -> ConfigError {
        ConfigError::Value {
            origin: self.origin(key),
            key: key.to_owned(),
            value: value.to_string(),
            allowed: allowed.into(),
        }
    }

    /// An error about a key that is not there.
    pub(crate) fn missing(&self, key: &'static str, allowed: &str) -> ConfigError {
        ConfigError::Missing { origin: self.origin(key), key, allowed: allowed.to_owned() }
    }

    /// The value of a number, or its default, in its range.
    pub(crate) fn number<T: PartialOrd + Copy + ToString>(
        &self,
        key: &str,
        value: Option<T>,
        default: T,
        range: std::ops::RangeInclusive<T>,
    ) -> Result<T, ConfigError> {
        let value = value.unwrap_or(default);
        if range.contains(&value) {
            return Ok(value);
        }
        let allowed = format!("{} to {}", range.start().to_string(), range.end().to_string());
        Err(self.wrong(key, value, allowed))
    }

    /// The number of shards per server.
    pub(crate) fn shards(&self) -> Result<u32, ConfigError> {
        self.number("cluster.shards", self.cluster.shards, 1, 1..=64)
    }

    /// The addresses of the servers.
    pub(crate) fn servers(&self) -> Result<Vec<Address>, ConfigError> {
        const KEY: &str = "cluster.servers";
        const ALLOWED: &str = "a list of addresses, each tcp://host:port or unix:/path";
        let texts = self.cluster.servers.as_ref().ok_or_else(|| self.missing(KEY, ALLOWED))?;
        if texts.is_empty() {
            return Err(self.missing(KEY, ALLOWED));
        }
        let mut addresses: Vec<Address> = Vec::with_capacity(texts.len());
        for text in texts {
            let address: Address = text
                .parse()
                .map_err(|error| self.wrong(KEY, format!("'{text}'"), format!("{ALLOWED} ({error})")))?;
            if addresses.contains(&address) {
                return Err(self.wrong(KEY, format!("'{text}'"), "each server only once"));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// The layout of new files.
    pub(crate) fn layout(&self) -> Result<Layout, ConfigError> {
        let count = self.number("stripe.count", self.stripe.count, 1, 1..=STRIPES_MAX)?;
        let size = self.stripe.size.unwrap_or(Bytes(1 << 20));
        Layout::new(count, size.0).ok_or_else(|| {
            let (min, max) = (Bytes(STRIPE_BYTES_MIN), Bytes(STRIPE_BYTES_MAX));
            self.wrong("stripe.size", size, format!("a multiple of 4KiB, {min} to {max}"))
        })
    }
}
