//! What a shard has counted since it started.

/// All counters of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Of the lock service.
    pub locks: LockCounters,
    /// Of the data service.
    pub data: DataCounters,
    /// Glimpses asked for.
    pub glimpses: u64,
    /// Clients that were ended while they held or waited for locks, other than by a goodbye.
    pub evictions: u64,
    /// Stripes that all clients were asked to flush, so that extent caches could be trimmed.
    pub forced_flushes: u64,
}

/// What the lock service has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LockCounters {
    /// Requests for locks.
    pub requests: u64,
    /// Locks granted to clients.
    pub grants: u64,
    /// Grants while CANCELING write locks overlapped them.
    pub early_grants: u64,
    /// Grants that were CANCELING from the start.
    pub early_revocations: u64,
    /// Grants that replaced locks of the same client.
    pub upgrades: u64,
    /// Requests that were not granted.
    pub denials: u64,
    /// Questions to holders.
    pub revocations: u64,
    /// Locks given back.
    pub releases: u64,
}

/// What the data service has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DataCounters {
    /// Flushes.
    pub writes: u64,
    /// Bytes of flushes that were taken.
    pub bytes_written: u64,
    /// Bytes given to the device: those that were newest.
    pub bytes_destaged: u64,
    /// Flushes that were answered with an error.
    pub write_errors: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes sent to readers.
    pub bytes_read: u64,
    /// Truncates.
    pub truncates: u64,
    /// Syncs.
    pub syncs: u64,
    /// Removals.
    pub destroys: u64,
    /// Entries of extent caches that trimming has forgotten.
    pub entries_trimmed: u64,
}
