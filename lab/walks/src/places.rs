//! Which file decides what: the right-hand column of the walks. A test checks that the files exist.

use ccpfs_wire::Message;

pub(crate) const NOWHERE: &str = "";
pub(crate) const WRITE: &str = "crates/client/src/write.rs";
pub(crate) const READ: &str = "crates/client/src/read.rs";
pub(crate) const SHARED: &str = "crates/client/src/shared.rs";
pub(crate) const SESSION: &str = "crates/client/src/session.rs";
pub(crate) const MAP: &str = "crates/client/src/map.rs";
pub(crate) const INVENTORY: &str = "crates/client/src/inventory.rs";
pub(crate) const BACKGROUND: &str = "crates/client/src/background.rs";
pub(crate) const ACQUIRE: &str = "crates/dlm/src/client/acquire.rs";
pub(crate) const CANCEL: &str = "crates/dlm/src/client/revoke.rs";
pub(crate) const CACHE: &str = "crates/writeback/src/stripe.rs";
pub(crate) const FLUSH: &str = "crates/writeback/src/flush.rs";
pub(crate) const WAIT: &str = "crates/cached-stripe/src/wait.rs";
pub(crate) const STRIPE: &str = "crates/cached-stripe/src/stripe.rs";
pub(crate) const MESSAGES: &str = "crates/shard/src/messages.rs";
pub(crate) const CLIENTS: &str = "crates/shard/src/clients.rs";
pub(crate) const DATA: &str = "crates/shard/src/data.rs";
pub(crate) const GLIMPSE: &str = "crates/shard/src/glimpse.rs";
pub(crate) const OVERDUE: &str = "crates/shard/src/overdue.rs";
pub(crate) const TRIMMING: &str = "crates/shard/src/trimming.rs";
pub(crate) const GRANT: &str = "crates/dlm/src/server/grant.rs";
pub(crate) const ADMIT: &str = "crates/extent-cache/src/admit.rs";
pub(crate) const DEVICE: &str = "crates/device/src/file.rs";

/// Every place.
#[cfg(test)]
const ALL: [&str; 22] = [
    WRITE, READ, MAP, INVENTORY, SHARED, SESSION, BACKGROUND, ACQUIRE, CANCEL, CACHE, FLUSH, WAIT, STRIPE,
    MESSAGES, CLIENTS, DATA, GLIMPSE, OVERDUE, TRIMMING, GRANT, ADMIT, DEVICE,
];

/// Where it is decided that a message is sent.
pub(crate) const fn sender(message: &Message) -> &'static str {
    match message {
        Message::Enqueue { .. } => ACQUIRE,
        Message::RevokeAck { .. }
        | Message::Convert { .. }
        | Message::Narrow { .. }
        | Message::Release { .. } => CANCEL,
        Message::GlimpseTell { .. } | Message::Truncate { .. } | Message::Punch { .. } => WAIT,
        Message::Write { .. } => FLUSH,
        Message::Read { .. } => READ,
        Message::Map { .. } => MAP,
        Message::List { .. } => INVENTORY,
        Message::Glimpse { .. } | Message::Sync { .. } | Message::Destroy { .. } => SHARED,
        Message::Grant { .. } | Message::Denied { .. } | Message::Revoke { .. } => GRANT,
        Message::GlimpseAsk { .. } | Message::GlimpseReply { .. } => GLIMPSE,
        Message::WriteReply { .. }
        | Message::ReadReply { .. }
        | Message::MapReply { .. }
        | Message::ListReply { .. }
        | Message::Done { .. } => DATA,
        Message::Hello { .. }
        | Message::Welcome { .. }
        | Message::Refused { .. }
        | Message::Goodbye {}
        | Message::Ping { .. }
        | Message::Pong { .. }
        | Message::Status { .. }
        | Message::StatusReply { .. } => SESSION,
    }
}

/// Who receives a message in a client: the thread that waits for the answer, or the one in the background.
pub(crate) const fn receiver(message: &Message) -> &'static str {
    match message {
        Message::Revoke { .. } | Message::GlimpseAsk { .. } | Message::WriteReply { .. } => BACKGROUND,
        Message::Grant { .. }
        | Message::Denied { .. }
        | Message::ReadReply { .. }
        | Message::MapReply { .. }
        | Message::ListReply { .. }
        | Message::Done { .. }
        | Message::GlimpseReply { .. }
        | Message::Hello { .. }
        | Message::Welcome { .. }
        | Message::Refused { .. }
        | Message::Ping { .. }
        | Message::Pong { .. }
        | Message::Goodbye {}
        | Message::Enqueue { .. }
        | Message::RevokeAck { .. }
        | Message::Convert { .. }
        | Message::Narrow { .. }
        | Message::Release { .. }
        | Message::GlimpseTell { .. }
        | Message::Write { .. }
        | Message::Read { .. }
        | Message::Truncate { .. }
        | Message::Map { .. }
        | Message::List { .. }
        | Message::Punch { .. }
        | Message::Sync { .. }
        | Message::Destroy { .. }
        | Message::Glimpse { .. }
        | Message::Status { .. }
        | Message::StatusReply { .. } => SESSION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_named_in_a_walk_exists() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
        for place in ALL {
            assert!(std::path::Path::new(&format!("{root}{place}")).is_file(), "{place} is named in walks");
        }
    }
}
