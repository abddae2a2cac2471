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
    let rules = &shard.rules;
    let counters = rules.counters();
    let (lock, data) = (counters.locks, counters.data);
    let size = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let uptime_s = shard.started.elapsed().as_secs();
    [
        ("uptime_s", uptime_s),
        ("epoch", shard.welcome.epoch),
        ("connections", size(shard.connections.link_count())),
        ("clients", size(rules.client_count())),
        ("evictions", counters.evictions),
        ("lock_resources", size(rules.resources().count())),
        ("locks", size(rules.lock_count())),
        ("locks_waiting", size(rules.waiting_count())),
        ("lock_requests", lock.requests),
        ("grants", lock.grants),
        ("early_grants", lock.early_grants),
        ("early_revocations", lock.early_revocations),
        ("upgrades", lock.upgrades),
        ("denials", lock.denials),
        ("revocations", lock.revocations),
        ("releases", lock.releases),
        ("glimpses", counters.glimpses),
        ("writes", data.writes),
        ("write_errors", data.write_errors),
        ("bytes_written", data.bytes_written),
        ("bytes_destaged", data.bytes_destaged),
        ("reads", data.reads),
        ("bytes_read", data.bytes_read),
        ("truncates", data.truncates),
        ("syncs", data.syncs),
        ("destroys", data.destroys),
        ("extent_entries", size(rules.entry_count())),
        ("extent_entries_trimmed", data.entries_trimmed),
        ("forced_flushes", counters.forced_flushes),
        ("device_tasks", size(shard.pool.in_flight())),
        ("buffer_bytes", size(shard.buffers.used_bytes())),
        ("buffer_bytes_max", size(shard.buffers.bytes_max())),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
