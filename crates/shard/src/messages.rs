//! What clients may say over which connection, and who takes it.
//!
//! *What*: each message is checked and goes to the service it is for.
//! *Invariants*: nothing a client sends panics; what breaks the protocol ends the client and nobody else; I7: a client that has
//! parted is not heard.
//! *Not here*: bytes on the wire (`ccpfs-wire`).

use crate::data::Flush;
use crate::errno::{EFBIG, EINVAL, ESTALE};
use crate::interface::{BulkRef, Effect, Note, Parting, bulk_bytes};
use crate::operations::{ReplyTo, done, unmapped, unread};
use crate::overdue::Debt;
use crate::services::{Services, Turn};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use ccpfs_dlm::server::Input;
use ccpfs_extent_cache::Arriving;
use ccpfs_types::limits::{FILE_BYTES_MAX, LIST_STRIPES_MAX, READ_BYTES_MAX};
use ccpfs_types::{ClientId, Extent, RequestId, ResourceId, Sn};
use ccpfs_wire::{Channel, LockRef, Message, WritePiece};

/// Where a message may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    On(Channel),
    Anywhere,
    Never,
}

fn allowed(message: &Message) -> Allowed {
    match message {
        Message::Goodbye {} | Message::Ping { .. } => Allowed::Anywhere,
        Message::Enqueue { .. }
        | Message::Read { .. }
        | Message::Truncate { .. }
        | Message::Punch { .. }
        | Message::Map { .. }
        | Message::List { .. }
        | Message::Sync { .. }
        | Message::Destroy { .. }
        | Message::Glimpse { .. }
        | Message::Status { .. } => Allowed::On(Channel::Control),
        Message::RevokeAck { .. }
        | Message::Convert { .. }
        | Message::Narrow { .. }
        | Message::Release { .. }
        | Message::GlimpseTell { .. } => Allowed::On(Channel::Callback),
        Message::Write { .. } => Allowed::On(Channel::Bulk),
        // A Hello is the first message of a connection and comes before there is a client.
        Message::Hello { .. }
        | Message::Welcome { .. }
        | Message::Refused { .. }
        | Message::Pong { .. }
        | Message::Grant { .. }
        | Message::Denied { .. }
        | Message::Revoke { .. }
        | Message::GlimpseAsk { .. }
        | Message::WriteReply { .. }
        | Message::ReadReply { .. }
        | Message::MapReply { .. }
        | Message::ListReply { .. }
        | Message::Done { .. }
        | Message::GlimpseReply { .. }
        | Message::StatusReply { .. } => Allowed::Never,
    }
}

impl Services {
    /// Takes a message. What breaks the protocol ends its client.
    pub(crate) fn hear(
        &mut self,
        from: ClientId,
        channel: Channel,
        message: Message,
        bulk: Option<BulkRef>,
        turn: &mut Turn<'_>,
    ) {
        //= protocol.md#I7
        let heard = turn.clients.heard(from, channel, turn.now_ns);
        if !heard {
            turn.free(bulk);
            return;
        }
        match self.check(channel, &message, bulk) {
            Ok(()) => self.take(from, channel, message, bulk, turn),
            Err(what) => {
                turn.free(bulk);
                turn.part(from, Parting::Violation { what });
            }
        }
    }

    /// Whether this message may come over this connection, and now; else what is wrong with it.
    fn check(&self, channel: Channel, message: &Message, bulk: Option<BulkRef>) -> Result<(), String> {
        match allowed(message) {
            Allowed::Anywhere => {}
            Allowed::On(Channel::Callback) if channel == Channel::Callback => {}
            Allowed::On(expected) if expected == channel => {
                if self.is_full() {
                    return Err(String::from("too many operations are under way"));
                }
            }
            Allowed::On(_) | Allowed::Never => {
                return Err(format!("{} does not belong here", message.name()));
            }
        }
        let brought = bulk.map_or(0, |bulk| bulk.bytes);
        if bulk_bytes(message) != Some(brought) {
            return Err(format!(
                "{} with {brought} bytes of data, which is not what it names",
                message.name()
            ));
        }
        Ok(())
    }

    fn take(
        &mut self,
        client: ClientId,
        channel: Channel,
        message: Message,
        bulk: Option<BulkRef>,
        turn: &mut Turn<'_>,
    ) {
        let to = |request: RequestId| ReplyTo { client, channel, request };
        match message {
            Message::Goodbye {} => turn.part(client, Parting::Goodbye),
            Message::Ping { request } => turn.send(client, channel, Message::Pong { request }),
            Message::Enqueue { request, resource, mode, required, desired, terms } => {
                let input = Input::Enqueue { from: client, request, mode, required, desired, terms };
                self.locks.enqueue(resource, input, turn);
            }
            Message::RevokeAck { resource, lock, mode } => {
                self.locks.step(resource, Input::RevokeAck { from: client, lock, mode }, turn);
            }
            Message::Convert { resource, lock, mode } => {
                self.locks.step(resource, Input::Convert { from: client, lock, mode }, turn);
            }
            Message::Narrow { resource, lock, taken } => {
                self.locks.step(resource, Input::Narrow { from: client, lock, taken }, turn);
            }
            Message::Release { locks } => self.release(client, locks, turn),
            Message::GlimpseTell { glimpse, end, modified_ns, resource } => {
                self.locks.overdue.disarm(Debt::Glimpse { resource, glimpse, client });
                let next = self.glimpses.told(glimpse, client, end, modified_ns);
                self.glimpse_goes_on(glimpse, next, turn);
            }
            Message::Write { request, urgent, pieces, releases } => {
                self.write(to(request), urgent, &pieces, releases, bulk, turn);
            }
            Message::Read { request, resource, extent } => self.read(to(request), resource, extent, turn),
            Message::Truncate { request, resource, length, sn } => {
                self.truncate(to(request), resource, length, sn, turn);
            }
            Message::Punch { request, resource, extent, sn } => {
                self.punch(to(request), resource, (extent, sn), turn);
            }
            Message::Map { request, resource, extent } => self.map(to(request), resource, extent, turn),
            Message::List { request, after, count_max } => {
                self.data.list(to(request), after, count_max.clamp(1, LIST_STRIPES_MAX), turn);
            }
            Message::Sync { request, resources } => self.data.sync(to(request), resources, turn),
            Message::Destroy { request, resources } => self.destroy(to(request), resources, turn),
            Message::Glimpse { request, resource } => self.glimpse(to(request), resource, turn),
            Message::Status { request } => turn.out.push(Effect::Status { to: client, request }),
            Message::Hello { .. }
            | Message::Welcome { .. }
            | Message::Refused { .. }
            | Message::Pong { .. }
            | Message::Grant { .. }
            | Message::Denied { .. }
            | Message::Revoke { .. }
            | Message::GlimpseAsk { .. }
            | Message::WriteReply { .. }
            | Message::ReadReply { .. }
            | Message::MapReply { .. }
            | Message::ListReply { .. }
            | Message::Done { .. }
            | Message::GlimpseReply { .. }
            | Message::StatusReply { .. } => unreachable!("turned away above"),
        }
    }

    fn glimpse(&mut self, reply: ReplyTo, resource: ResourceId, turn: &mut Turn<'_>) {
        let holders = self.locks.write_holders(resource, 0);
        let glimpse = self.glimpses.begin(reply, resource, &holders);
        self.data.measure(glimpse, resource, turn);
    }

    fn write(
        &mut self,
        reply: ReplyTo,
        urgent: bool,
        pieces: &[WritePiece],
        releases: Vec<LockRef>,
        bulk: Option<BulkRef>,
        turn: &mut Turn<'_>,
    ) {
        let mut taken: BTreeMap<ResourceId, Vec<Arriving>> = BTreeMap::new();
        let mut first_errno = None;
        let mut bulk_offset = 0_u64;
        for piece in pieces {
            let WritePiece { resource, extent, sn } = *piece;
            match self.may_write(piece) {
                Ok(()) => taken.entry(resource).or_default().push(Arriving { extent, sn, bulk_offset }),
                Err(errno) => {
                    turn.out.push(Effect::Note(Note::Refused { client: reply.client, resource, errno }));
                    first_errno = first_errno.or(Some(errno));
                }
            }
            bulk_offset += extent.length(); // their sum was found to be the length of the bulk
        }
        let flush = Flush { reply, urgent, pieces: taken, errno: first_errno, releases, bulk };
        self.data.write(flush, turn);
    }

    fn may_write(&self, piece: &WritePiece) -> Result<(), i32> {
        if piece.extent.end() > FILE_BYTES_MAX {
            return Err(EFBIG);
        }
        self.locks.may_write(piece.resource, piece.extent, piece.sn)
    }

    fn read(&mut self, reply: ReplyTo, resource: ResourceId, extent: Extent, turn: &mut Turn<'_>) {
        let refused = if self.locks.is_destroyed(resource) {
            Some(ESTALE)
        } else if extent.length() > READ_BYTES_MAX || extent.end() > FILE_BYTES_MAX {
            Some(EINVAL)
        } else {
            None
        };
        match refused {
            Some(errno) => turn.send(reply.client, reply.channel, unread(reply, errno)),
            None => self.data.read(reply, resource, extent, turn),
        }
    }

    fn truncate(&mut self, reply: ReplyTo, resource: ResourceId, length: u64, sn: Sn, turn: &mut Turn<'_>) {
        let refused = match Extent::new(length, Extent::EOF) {
            Some(hole) if length <= FILE_BYTES_MAX => self.locks.may_write(resource, hole, sn).err(),
            Some(_) | None => Some(EFBIG),
        };
        match refused {
            Some(errno) => turn.send(reply.client, reply.channel, done(reply, Some(errno))),
            None => self.data.truncate(reply, resource, length, sn, turn),
        }
    }

    fn punch(
        &mut self,
        reply: ReplyTo,
        resource: ResourceId,
        (extent, sn): (Extent, Sn),
        turn: &mut Turn<'_>,
    ) {
        let refused = if extent.end() > FILE_BYTES_MAX {
            Some(EFBIG)
        } else {
            self.locks.may_write(resource, extent, sn).err()
        };
        match refused {
            Some(errno) => turn.send(reply.client, reply.channel, done(reply, Some(errno))),
            None => self.data.punch(reply, resource, (extent, sn), turn),
        }
    }

    fn map(&mut self, reply: ReplyTo, resource: ResourceId, extent: Extent, turn: &mut Turn<'_>) {
        let refused = if self.locks.is_destroyed(resource) {
            Some(ESTALE)
        } else if extent.end() > FILE_BYTES_MAX {
            Some(EINVAL)
        } else {
            None
        };
        match refused {
            Some(errno) => turn.send(reply.client, reply.channel, unmapped(reply, errno)),
            None => self.data.map(reply, resource, extent, turn),
        }
    }

    fn destroy(&mut self, reply: ReplyTo, resources: Vec<ResourceId>, turn: &mut Turn<'_>) {
        for resource in &resources {
            self.locks.destroy(*resource, turn);
            self.trimming.unforced(*resource);
        }
        self.data.destroy(reply, resources, turn);
    }
}
