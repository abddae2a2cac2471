//! What a figure wants to know of a shard: how long its request queue was busy, and what revocations took.

use ccpfs_types::ResourceId;
use ccpfs_wire::Message;
use std::collections::BTreeMap;

/// A revocation that somebody waits for.
#[derive(Clone, Copy, Debug)]
struct Open {
    sent_ns: u64,
    acknowledged_ns: Option<u64>,
}

/// Sums over the life of a shard, nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    /// Time that the shard spent on messages.
    pub(crate) busy_ns: u64,
    /// From the first revocation that a request waits for until the last reply.
    pub(crate) revoking_ns: u64,
    /// From there until the next grant of that resource.
    pub(crate) canceling_ns: u64,
    open: BTreeMap<ResourceId, Open>,
}

impl Meter {
    pub(crate) fn received(&mut self, now_ns: u64, message: &Message) {
        if let Message::RevokeAck { resource, .. } = message
            && let Some(open) = self.open.get_mut(resource)
        {
            open.acknowledged_ns = Some(now_ns);
        }
    }

    pub(crate) fn sent(&mut self, now_ns: u64, message: &Message) {
        if let Message::Revoke { resource, .. } = message {
            self.open.entry(*resource).or_insert(Open { sent_ns: now_ns, acknowledged_ns: None });
        }
        if let Message::Grant { resource, .. } = message
            && let Some(open) = self.open.remove(resource)
        {
            let acknowledged_ns = open.acknowledged_ns.unwrap_or(now_ns);
            self.revoking_ns += acknowledged_ns - open.sent_ns;
            self.canceling_ns += now_ns - acknowledged_ns;
        }
    }
}
