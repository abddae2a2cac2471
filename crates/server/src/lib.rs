//! The ccPFS server: lock service and data service for the stripes that hash to it.
//!
//! [`start`] opens the device directories, listens, and runs one thread per shard; [`RunningServer`] stops it again. A resource
//! lives on exactly one shard, which does both its locks and its data: so a client that was evicted there is fenced for that
//! resource before anybody else is granted anything (I7).
//!
//! What is decided is decided in `ccpfs-shard`; this crate has the connections, the memory, the threads and the time.

pub mod config;
mod connections;
mod device_pool;
mod frames;
mod memory;
mod shard;
mod status;
mod storage;

pub use config::ServerConfig;
pub use shard::ShardError;
pub use storage::ShardStorage;

use ccpfs_device::DeviceOpenError;
use ccpfs_transport::{Address, BufferPool, ListenError, PortOptions, Waker, listen};
use connections::Connections;
use device_pool::DevicePool;
use memory::{Bulks, Reads};
use shard::{Shard, Welcome};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Of the memory for data, so much is for data on their way to readers.
const READ_SHARE: u64 = 4;
/// Least memory for data per shard and direction, in bytes: room for some of the largest frames.
const SHARD_MEMORY_MIN: u64 = 16 << 20;

/// Why a server does not start, or has ended. Every message names the address or the directory.
#[derive(Debug, Error)]
pub enum ServerError {
    /// A device directory cannot be used.
    #[error(transparent)]
    Data(DeviceOpenError),
    /// A shard cannot listen.
    #[error(transparent)]
    Listen(ListenError),
    /// A thread could not be started.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
    /// The devices that were given do not fit the configuration.
    #[error("{shards} shards are configured and {devices} devices were given")]
    Devices {
        /// Shards by the configuration.
        shards: u32,
        /// Devices given.
        devices: usize,
    },
    /// A device directory has seen more starts than sequence numbers can tell apart.
    #[error("shard {shard}: start number {epoch} of its device directory is above the largest one, 16777215")]
    Epoch {
        /// The shard.
        shard: u32,
        /// The number of this start.
        epoch: u64,
    },
    /// A shard has failed while serving, or could not make everything durable at its end.
    #[error("shard {shard}: {source}")]
    Shard {
        /// The shard.
        shard: u32,
        /// Why.
        source: ShardError,
    },
    /// A shard's thread has panicked: a bug.
    #[error("shard {shard} has panicked")]
    Panicked {
        /// The shard.
        shard: u32,
    },
}

/// A server that serves until it is told to stop. Dropping it stops it as well.
pub struct RunningServer {
    addresses: Vec<Address>,
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
    threads: Vec<JoinHandle<Result<(), ShardError>>>,
}

impl RunningServer {
    /// Where the shards listen, in their order; a TCP port 0 is resolved.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Tells all shards to stop: they take nothing more, finish what they have admitted, and make it durable. Returns at
    /// once; see [`RunningServer::wait`].
    pub fn shutdown(&self) {
        self.stop.store(true, Ordering::Release);
        for waker in &self.wakers {
            waker.wake();
        }
    }

    /// Whether a shard has ended, for whatever reason: told to, failed, or panicked. One whose thread has not run yet has not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Waits until all shards have ended.
    ///
    /// # Errors
    /// The first shard that did not end well; the others have ended too.
    pub fn wait(mut self) -> Result<(), ServerError> {
        self.join()
    }

    fn join(&mut self) -> Result<(), ServerError> {
        let mut result = Ok(());
        for (shard, thread) in self.threads.drain(..).enumerate() {
            let shard = u32::try_from(shard).expect("shards are counted in 32 bits");
            let ended = match thread.join() {
                Ok(ended) => ended.map_err(|source| ServerError::Shard { shard, source }),
                Err(_) => Err(ServerError::Panicked { shard }),
            };
            result = result.and(ended);
        }
        result
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shutdown();
        if let Err(error) = self.join() {
            tracing::error!(%error, "the server ended badly");
        }
    }
}

/// Starts a server on its device directories.
///
/// # Errors
/// See [`ServerError`]; nothing is left running then.
pub fn start(config: ServerConfig) -> Result<RunningServer, ServerError> {
    let storage = storage::open(&config)?;
    start_on(config, storage)
}

/// Starts a server on devices of the caller's choice, one per shard; `config.data` and the device settings but
/// `device_threads` are not used. For tests.
///
/// # Errors
/// See [`ServerError`]; nothing is left running then.
pub fn start_on(config: ServerConfig, storage: Vec<ShardStorage>) -> Result<RunningServer, ServerError> {
    let devices = storage.len();
    if usize::try_from(config.shards).ok() != Some(devices) {
        return Err(ServerError::Devices { shards: config.shards, devices });
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut shards = Vec::new();
    for (number, storage) in (0_u32..).zip(storage) {
        shards.push(open_shard(&config, number, storage, stop.clone())?);
    }
    let mut server = RunningServer {
        addresses: shards.iter().map(|shard| shard.port.local_address()).collect(),
        wakers: shards.iter().map(|shard| shard.port.waker()).collect(),
        stop: stop.clone(),
        threads: Vec::new(),
    };
    for (number, shard) in shards.into_iter().enumerate() {
        let wakers = server.wakers.clone();
        let stop = stop.clone();
        let run = move || {
            let _last = StopAll { stop, wakers };
            ccpfs_transport::prefer_latency();
            shard.run()
        };
        let thread = std::thread::Builder::new().name(format!("shard-{number}")).spawn(run);
        server.threads.push(thread.map_err(ServerError::Thread)?);
    }
    Ok(server)
}

/// When one shard ends, for whatever reason, the server ends.
struct StopAll {
    stop: Arc<AtomicBool>,
    wakers: Vec<Waker>,
}

impl Drop for StopAll {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.wakers.iter().for_each(Waker::wake);
    }
}

fn open_shard(
    config: &ServerConfig,
    number: u32,
    storage: ShardStorage,
    stop: Arc<AtomicBool>,
) -> Result<Shard, ServerError> {
    let ShardStorage { device, epoch } = storage;
    if epoch > storage::EPOCH_MAX {
        return Err(ServerError::Epoch { shard: number, epoch });
    }
    let memory = config.memory_bytes / u64::from(config.shards.max(1));
    let read_bytes = (memory / READ_SHARE).max(SHARD_MEMORY_MIN);
    let write_bytes = memory.saturating_sub(read_bytes).max(SHARD_MEMORY_MIN);
    let buffers = BufferPool::new(usize::try_from(write_bytes).expect("64-bit addresses"));
    let options =
        PortOptions { busy_poll: Duration::from_micros(config.busy_poll_us), ..PortOptions::default() };
    let port = listen(&config.listen.shard(number), buffers.clone(), options).map_err(ServerError::Listen)?;
    let pool = DevicePool::start(device, config.device_threads, number, port.waker())
        .map_err(ServerError::Thread)?;
    let rules = ccpfs_shard::Settings {
        policy: config.policy,
        epoch,
        revoke_timeout_ns: config.revoke_timeout_ms.saturating_mul(1_000_000).max(1),
        entries_max: config.extent_entries_max,
        operations_max: ccpfs_shard::OPERATIONS_MAX,
    };
    let target = config.target_first() + number;
    tracing::info!(address = %port.local_address(), target, epoch, "a shard listens");
    Ok(Shard {
        connections: Connections::default(),
        rules: ccpfs_shard::Shard::new(rules),
        pool,
        bulks: Bulks::default(),
        reads: Reads::new(usize::try_from(read_bytes).expect("64-bit addresses")),
        buffers,
        welcome: Welcome { policy: config.policy, target, epoch },
        started: Instant::now(),
        stop,
        effects: Vec::new(),
        done: Vec::new(),
        port,
    })
}
