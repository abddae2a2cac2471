//! What a shard tells about itself: names and values for [`Message::StatusReply`].

use crate::shard::Shard;
use ccpfs_types::RequestId;
use ccpfs_wire::Message;

/// The answer to a status request.
pub(crate) fn reply(shard: &Shard, request: RequestId) -> Message {
    let (names, values) = rows(shard).into_iter().unzip();
    Message::StatusReply { request, names, values }
}

fn rows(shard: &Shard) -> Vec<(String, u64)> {
    let (resources, locks, waiting) = shard.locks.sizes();
    let lock = shard.locks.counters;
    let data = shard.data.counters;
    let size = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let uptime_s = shard.started.elapsed().as_secs();
    [
        ("uptime_s", uptime_s),
        ("epoch", shard.welcome.epoch),
        ("connections", size(shard.connections.link_count())),
        ("clients", size(shard.connections.client_count())),
        ("evictions", shard.evictions),
        ("lock_resources", size(resources)),
        ("locks", size(locks)),
        ("locks_waiting", size(waiting)),
        ("lock_requests", lock.requests),
        ("grants", lock.grants),
        ("early_grants", lock.early_grants),
        ("early_revocations", lock.early_revocations),
        ("upgrades", lock.upgrades),
        ("denials", lock.denials),
        ("revocations", lock.revocations),
        ("releases", lock.releases),
        ("glimpses", shard.glimpses.count),
        ("writes", data.writes),
        ("write_errors", data.write_errors),
        ("bytes_written", data.bytes_written),
        ("bytes_destaged", data.bytes_destaged),
        ("reads", data.reads),
        ("bytes_read", data.bytes_read),
        ("truncates", data.truncates),
        ("syncs", data.syncs),
        ("destroys", data.destroys),
        ("extent_entries", size(shard.data.entries)),
        ("extent_entries_trimmed", data.entries_trimmed),
        ("forced_flushes", shard.trimming.forced_count),
        ("device_tasks", size(shard.data.tasks())),
        ("buffer_bytes", size(shard.buffers.used_bytes())),
        ("buffer_bytes_max", size(shard.buffers.bytes_max())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
