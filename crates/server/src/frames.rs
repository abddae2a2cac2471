//! From frames to the rules: decodes messages, names their data, and introduces clients.
//!
//! What a message may be and who may send it is decided in `ccpfs-shard`; here only what cannot be decoded ends a client.

use crate::connections::{Parting, Refusal, Role};
use crate::shard::Shard;
use ccpfs_shard::{BulkRef, Input, bulk_bytes};
use ccpfs_transport::{Buffer, ConnectionId};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Message, decode_batch};
use std::sync::Arc;

/// The bulk of a frame and how much of it the messages so far have used.
struct FrameBulk {
    bulk: Option<Arc<Buffer>>,
    used: u64,
}

impl FrameBulk {
    fn bytes_left(&self) -> u64 {
        let bytes = self.bulk.as_ref().map_or(0, |bulk| bulk.len());
        u64::try_from(bytes).expect("a frame is small") - self.used
    }
}

impl Shard {
    /// Takes a frame. What cannot be decoded ends the connection, and with it its client.
    pub(crate) fn frame(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        bulk: Option<Buffer>,
        now_ns: u64,
    ) {
        let mut bulk = FrameBulk { bulk: bulk.map(Arc::new), used: 0 };
        for message in decode_batch(bytes) {
            // A message before may have ended the connection.
            let Some(role) = self.connections.role(connection) else { return };
            match (message, role) {
                (Ok(message), Some(role)) => self.message(role, message, &mut bulk, now_ns),
                (Ok(message), None) => self.first_message(connection, message, now_ns),
                (Err(error), _) => {
                    return self.malformed(connection, format!("malformed message: {error}"), now_ns);
                }
            }
        }
        if bulk.bytes_left() > 0 {
            let what = format!("{} bulk bytes that belong to no message", bulk.bytes_left());
            self.malformed(connection, what, now_ns);
        }
    }

    fn message(&mut self, role: Role, message: Message, bulk: &mut FrameBulk, now_ns: u64) {
        let named = self.name_bulk(&message, bulk);
        let Role { client: from, channel } = role;
        self.step(Input::Message { from, channel, message, bulk: named }, now_ns);
    }

    /// Takes the message's data off the frame's bulk: as many as it asks for, or as there are.
    fn name_bulk(&mut self, message: &Message, frame: &mut FrameBulk) -> Option<BulkRef> {
        let bulk = frame.bulk.as_ref()?;
        let bytes = bulk_bytes(message).unwrap_or(u64::MAX).min(frame.bytes_left());
        if bytes == 0 {
            return None;
        }
        let offset = frame.used;
        frame.used += bytes;
        Some(BulkRef { id: self.bulks.keep(bulk.clone()), offset, bytes })
    }

    fn first_message(&mut self, connection: ConnectionId, message: Message, now_ns: u64) {
        let name_of_kind = message.name();
        let Message::Hello { version, client, channel, name } = message else {
            let what = format!("the first message is {name_of_kind} and not Hello");
            return self.malformed(connection, what, now_ns);
        };
        let refusal = if version == PROTOCOL_VERSION {
            self.rules.refusal(client, channel).map(Refusal::Client)
        } else {
            Some(Refusal::Version { theirs: version })
        };
        let Some(refusal) = refusal else {
            self.connections.introduced(connection, Role { client, channel }, &name);
            self.step(Input::Joined { client, channel }, now_ns);
            let welcome = self.welcome.message();
            self.connections.send(connection, &welcome);
            return;
        };
        let peer = self.connections.peer(connection).to_owned();
        tracing::warn!(%peer, ?name, %refusal, "a client was refused");
        let message = Message::Refused { reason: refusal.to_string() };
        self.connections.send(connection, &message);
        self.connections.close(connection, &mut *self.port);
    }

    fn malformed(&mut self, connection: ConnectionId, what: String, now_ns: u64) {
        let peer = self.connections.peer(connection).to_owned();
        match self.connections.role(connection) {
            Some(Some(role)) => {
                tracing::warn!(%peer, channel = ?role.channel, %what, "a connection broke the protocol");
                self.connections.doom(role.client, Parting::Malformed { what });
                self.part_doomed(now_ns);
            }
            Some(None) => {
                tracing::warn!(%peer, %what, "a connection without a Hello broke the protocol");
                self.connections.close(connection, &mut *self.port);
            }
            None => {}
        }
    }
}
