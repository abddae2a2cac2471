//! A limit on everything, with the relations between them checked when compiling.

/// Largest offset of a byte in a file plus one (as `off_t`).
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;
/// Most stripes of one file.
pub const STRIPES_MAX: u32 = 2048;
/// Smallest and largest stripe size.
pub const STRIPE_BYTES_MIN: u64 = 4096;
/// Largest stripe size.
pub const STRIPE_BYTES_MAX: u64 = 1 << 40;
/// Most bytes of messages in one frame.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Most bulk bytes in one frame.
pub const BULK_BYTES_MAX: u32 = 16 << 20;
/// Most data in one flush RPC.
pub const FLUSH_BYTES_MAX: u64 = 4 << 20;
/// Most extents in one flush RPC.
pub const FLUSH_EXTENTS_MAX: usize = 1024;
/// Most locks released by one message.
pub const RELEASES_MAX: usize = 4096;
/// Most data asked for by one read RPC.
pub const READ_BYTES_MAX: u64 = 4 << 20;
/// Most extents in one answer to a question for the map of a stripe.
pub const MAP_EXTENTS_MAX: usize = 1024;
/// Most stripes in one page of the list of what a shard has.
pub const LIST_STRIPES_MAX: u32 = 4096;
/// Locks a client keeps per resource before it gives back the least recently used ones.
pub const LOCKS_PER_RESOURCE_MAX: usize = 8192;
/// Requests that may wait for one resource; more are refused.
pub const WAITING_MAX: usize = 1 << 16;
/// Entries of the extent caches of a shard above which they are trimmed (paper IV-B).
pub const EXTENT_ENTRIES_MAX: usize = 256 * 1024;
/// Entries looked at by one trimming step (paper IV-B).
pub const TRIM_ENTRIES_MAX: usize = 1024;

/// Bytes of one extent with its sequence number and resource in a flush message.
pub const FLUSH_EXTENT_BYTES: usize = 48;
/// Bytes of one lock with its resource in a release list.
pub const RELEASE_BYTES: usize = 32;

// A flush message with a full list of extents and releases fits into one frame.
const _: () = assert!(
    FLUSH_EXTENTS_MAX * FLUSH_EXTENT_BYTES + RELEASES_MAX * RELEASE_BYTES < MESSAGE_BYTES_MAX as usize
);
const _: () = assert!(FLUSH_BYTES_MAX <= BULK_BYTES_MAX as u64);
const _: () = assert!(MAP_EXTENTS_MAX * 16 < MESSAGE_BYTES_MAX as usize / 2);
const _: () = assert!(LIST_STRIPES_MAX as usize * 48 < MESSAGE_BYTES_MAX as usize / 2);
const _: () = assert!(READ_BYTES_MAX <= BULK_BYTES_MAX as u64);
