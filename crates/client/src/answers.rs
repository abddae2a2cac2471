//! Which messages answer a request of ours.

use ccpfs_types::RequestId;
use ccpfs_wire::Message;

/// The request that a message answers, if it is one that a thread waits for by number.
pub(crate) fn reply_to(message: &Message) -> Option<RequestId> {
    match message {
        Message::ReadReply { request, .. }
        | Message::MapReply { request, .. }
        | Message::ListReply { request, .. }
        | Message::Done { request, .. }
        | Message::GlimpseReply { request, .. }
        | Message::StatusReply { request, .. } => Some(*request),
        Message::Hello { .. }
        | Message::Welcome { .. }
        | Message::Refused { .. }
        | Message::Ping { .. }
        | Message::Pong { .. }
        | Message::Goodbye {}
        | Message::Enqueue { .. }
        | Message::Grant { .. }
        | Message::Denied { .. }
        | Message::Revoke { .. }
        | Message::RevokeAck { .. }
        | Message::Convert { .. }
        | Message::Narrow { .. }
        | Message::Release { .. }
        | Message::GlimpseAsk { .. }
        | Message::GlimpseTell { .. }
        | Message::Write { .. }
        | Message::WriteReply { .. }
        | Message::Read { .. }
        | Message::Truncate { .. }
        | Message::Map { .. }
        | Message::List { .. }
        | Message::Punch { .. }
        | Message::Sync { .. }
        | Message::Destroy { .. }
        | Message::Glimpse { .. }
        | Message::Status { .. } => None,
    }
}
