//! Where a shard keeps its stripes: opens the device directories of a server and counts its starts.

use crate::ServerError;
use ccpfs_config::ServerConfig;
use ccpfs_device::{Device, FileDevice, FileDeviceOptions, LimitedDevice};
use std::num::NonZeroU64;
use std::sync::Arc;

/// The largest epoch for which sequence numbers can be made.
pub(crate) const EPOCH_MAX: u64 = (1 << 24) - 1;
/// Descriptors that are left to connections and everything else.
const DESCRIPTORS_RESERVED: usize = 256;

/// What one shard stores its stripes on.
#[derive(Clone)]
pub struct ShardStorage {
    /// The device; nobody else uses it.
    pub device: Arc<dyn Device>,
    /// A number that rises with every start of a server on this device, at most 16,777,215.
    pub epoch: u64,
}

/// Opens the sub-directory of every shard.
pub(crate) fn open(config: &ServerConfig) -> Result<Vec<ShardStorage>, ServerError> {
    let shards = config.shards.max(1);
    let open_files_max = open_files_max(usize::try_from(shards).expect("32 bits fit"));
    let mut storage = Vec::new();
    for shard in 0..shards {
        let directory = config.data.join(format!("shard-{shard}"));
        let files = FileDevice::open_with(&directory, config.index, FileDeviceOptions { open_files_max })
            .map_err(ServerError::Data)?;
        let epoch = files.next_epoch().map_err(ServerError::Data)?;
        // The shards of a server share one physical device, of which each gets its part.
        let bandwidth =
            config.device_bandwidth_bytes_per_s.and_then(|limit| NonZeroU64::new(limit / u64::from(shards)));
        let device: Arc<dyn Device> = match bandwidth {
            Some(bandwidth) => Arc::new(LimitedDevice::new(files, bandwidth)),
            None => Arc::new(files),
        };
        storage.push(ShardStorage { device, epoch });
    }
    Ok(storage)
}

/// How many object files a shard may keep open, by this process's limit of descriptors.
fn open_files_max(shards: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let descriptors = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))
        .and_then(|rest| rest.split_whitespace().next())
        .map_or(1024, |soft| soft.parse().unwrap_or(usize::MAX));
    let default = FileDeviceOptions::default().open_files_max;
    (descriptors.saturating_sub(DESCRIPTORS_RESERVED) / 2 / shards).clamp(16, default)
}
