//! From frames to services: checks what may come over which connection, and in which order, and calls who takes it.

use crate::connections::{Parting, Role};
use crate::data_service::Flush;
use crate::operations::{ReplyTo, by_lock, done, unread};
use crate::overdue::Debt;
use crate::shard::Shard;
use crate::status;
use ccpfs_dlm::server::Input;
use ccpfs_extent_cache::Arriving;
use ccpfs_transport::{Buffer, ConnectionId};
use ccpfs_types::limits::{FILE_BYTES_MAX, READ_BYTES_MAX};
use ccpfs_types::{ClientId, Extent, ResourceId, Sn};
use ccpfs_wire::{Channel, LockRef, Message, WritePiece, decode_batch};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Why a frame ends its connection.
type Violation = String;

/// Where a message may come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    On(Channel),
    Anywhere,
    First,
    Never,
}

fn allowed(message: &Message) -> Allowed {
    match message {
        Message::Hello { .. } => Allowed::First,
        Message::Goodbye {} | Message::Ping { .. } => Allowed::Anywhere,
        Message::Enqueue { .. }
        | Message::Read { .. }
        | Message::Truncate { .. }
        | Message::Sync { .. }
        | Message::Destroy { .. }
        | Message::Glimpse { .. }
        | Message::Status { .. } => Allowed::On(Channel::Control),
        Message::RevokeAck { .. }
        | Message::Convert { .. }
        | Message::Release { .. }
        | Message::GlimpseTell { .. } => Allowed::On(Channel::Callback),
        Message::Write { .. } => Allowed::On(Channel::Bulk),
        Message::Welcome { .. }
        | Message::Refused { .. }
        | Message::Pong { .. }
        | Message::Grant { .. }
        | Message::Denied { .. }
        | Message::Revoke { .. }
        | Message::GlimpseAsk { .. }
        | Message::WriteReply { .. }
        | Message::ReadReply { .. }
        | Message::Done { .. }
        | Message::GlimpseReply { .. }
        | Message::StatusReply { .. } => Allowed::Never,
    }
}

/// The bulk of a frame and how much of it the messages so far have used.
struct FrameBulk {
    bulk: Option<Arc<Buffer>>,
    used: usize,
}

impl FrameBulk {
    fn bytes(&self) -> usize {
        self.bulk.as_ref().map_or(0, |bulk| bulk.len())
    }
}

impl Shard {
    /// Takes a frame. What breaks the protocol ends the connection, and with it its client.
    pub(crate) fn frame(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        bulk: Option<Buffer>,
        now: Instant,
    ) {
        let mut bulk = FrameBulk { bulk: bulk.map(Arc::new), used: 0 };
        let mut result = Ok(());
        for message in decode_batch(bytes) {
            // A message before may have ended the connection.
            let Some(role) = self.connections.role(connection) else { return };
            result = match (message, role) {
                (Ok(message), Some(role)) => self.message(connection, role, message, &mut bulk, now),
                (Ok(message), None) => self.first_message(connection, message, now),
                (Err(error), _) => Err(format!("malformed message: {error}")),
            };
            if result.is_err() {
                break;
            }
        }
        if result.is_ok() && bulk.used != bulk.bytes() {
            result = Err(format!("{} bulk bytes that belong to no message", bulk.bytes() - bulk.used));
        }
        if let Err(what) = result {
            self.violated(connection, what);
        }
    }

    fn violated(&mut self, connection: ConnectionId, what: Violation) {
        let peer = self.connections.peer(connection).to_owned();
        match self.connections.role(connection) {
            Some(Some(role)) => {
                tracing::warn!(%peer, channel = ?role.channel, %what, "a connection broke the protocol");
                self.connections.doom(role.client, Parting::Violation { what });
            }
            Some(None) => {
                tracing::warn!(%peer, %what, "a connection without a Hello broke the protocol");
                self.connections.close(connection, &mut *self.port);
            }
            None => {}
        }
    }

    fn first_message(
        &mut self,
        connection: ConnectionId,
        message: Message,
        now: Instant,
    ) -> Result<(), Violation> {
        let name_of_kind = message.name();
        let Message::Hello { version, client, channel, name } = message else {
            return Err(format!("the first message is {name_of_kind} and not Hello"));
        };
        let role = Role { client, channel };
        match self.connections.hello(connection, version, role, &name, now) {
            Ok(()) => {
                let welcome = self.welcome.message();
                self.connections.send(connection, &welcome);
            }
            Err(refusal) => {
                let peer = self.connections.peer(connection).to_owned();
                tracing::warn!(%peer, ?name, %refusal, "a client was refused");
                let message = Message::Refused { reason: refusal.to_string() };
                self.connections.send(connection, &message);
                self.connections.close(connection, &mut *self.port);
            }
        }
        Ok(())
    }

    /// Whether this message may come over this connection, and now.
    fn check_message(&self, role: Role, message: &Message) -> Result<(), Violation> {
        match allowed(message) {
            Allowed::Anywhere => Ok(()),
            Allowed::On(Channel::Callback) if role.channel == Channel::Callback => Ok(()),
            Allowed::On(channel) if channel == role.channel => {
                if self.data.is_full() || self.glimpses.is_full() {
                    return Err(String::from("too many operations are under way"));
                }
                Ok(())
            }
            Allowed::On(_) | Allowed::First | Allowed::Never => {
                Err(format!("{} does not belong here", message.name()))
            }
        }
    }

    fn message(
        &mut self,
        connection: ConnectionId,
        role: Role,
        message: Message,
        bulk: &mut FrameBulk,
        now: Instant,
    ) -> Result<(), Violation> {
        self.check_message(role, &message)?;
        let client = role.client;
        let to = |request| ReplyTo { connection, request };
        match message {
            Message::Goodbye {} => self.connections.doom(client, Parting::Goodbye),
            Message::Ping { request } => self.connections.send(connection, &Message::Pong { request }),
            Message::Enqueue { request, resource, mode, required, desired, try_only } => {
                let input = Input::Enqueue { from: client, request, mode, required, desired, try_only };
                self.locks.enqueue(resource, input, &mut self.connections, now);
            }
            Message::RevokeAck { resource, lock, mode } => {
                self.lock_step(resource, Input::RevokeAck { from: client, lock, mode }, now);
            }
            Message::Convert { resource, lock, mode } => {
                self.lock_step(resource, Input::Convert { from: client, lock, mode }, now);
            }
            Message::Release { locks } => self.release(client, locks, now),
            Message::GlimpseTell { glimpse, end, modified_ns, resource } => {
                self.overdue_told(resource, glimpse, client);
                let next = self.glimpses.told(glimpse, client, end, modified_ns);
                self.glimpse_goes_on(glimpse, next, now);
            }
            Message::Write { request, urgent, pieces, releases } => {
                self.write(to(request), client, urgent, &pieces, releases, bulk)?;
            }
            Message::Read { request, resource, extent } => self.read(to(request), resource, extent),
            Message::Truncate { request, resource, length, sn } => {
                self.truncate(to(request), resource, length, sn);
            }
            Message::Sync { request, resources } => {
                self.data.sync(to(request), client, resources, &mut self.outcomes);
            }
            Message::Destroy { request, resources } => self.destroy(to(request), resources, now),
            Message::Glimpse { request, resource } => self.glimpse(to(request), resource, client),
            Message::Status { request } => {
                let reply = status::reply(self, request);
                self.connections.send(connection, &reply);
            }
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
            | Message::Done { .. }
            | Message::GlimpseReply { .. }
            | Message::StatusReply { .. } => unreachable!("turned away above"),
        }
        Ok(())
    }

    fn glimpse(&mut self, reply: ReplyTo, resource: ResourceId, asker: ClientId) {
        let holders = self.locks.write_holders(resource, 0);
        let glimpse = self.glimpses.begin(reply, resource, asker, &holders);
        self.data.measure(glimpse, resource, &mut self.outcomes);
    }

    fn lock_step(&mut self, resource: ResourceId, input: Input, now: Instant) {
        self.locks.step(resource, input, &mut self.connections, now);
    }

    /// Takes locks back.
    pub(crate) fn release(&mut self, client: ClientId, locks: Vec<LockRef>, now: Instant) {
        for (resource, lock) in by_lock(locks) {
            self.locks.counters.releases += 1;
            self.lock_step(resource, Input::Release { from: client, lock }, now);
        }
    }

    fn overdue_told(&mut self, resource: ResourceId, glimpse: u64, client: ClientId) {
        self.locks.overdue.disarm(Debt::Glimpse { resource, glimpse, client });
    }

    fn write(
        &mut self,
        reply: ReplyTo,
        client: ClientId,
        urgent: bool,
        pieces: &[WritePiece],
        releases: Vec<LockRef>,
        bulk: &mut FrameBulk,
    ) -> Result<(), Violation> {
        let base = bulk.used;
        let left = u64::try_from(bulk.bytes() - base).expect("a frame is small");
        let mut taken: BTreeMap<ResourceId, Vec<Arriving>> = BTreeMap::new();
        let mut errno = None;
        let mut bulk_offset = 0_u64;
        for piece in pieces {
            let after = bulk_offset.checked_add(piece.extent.length()).filter(|after| *after <= left);
            let Some(after) = after else {
                return Err(String::from("a flush with less data than its pieces name"));
            };
            match self.may_write(piece) {
                Ok(()) => {
                    let arriving = Arriving { extent: piece.extent, sn: piece.sn, bulk_offset };
                    taken.entry(piece.resource).or_default().push(arriving);
                }
                Err(refused) => {
                    tracing::debug!(%client, resource = %piece.resource, refused, "a piece was refused");
                    errno = errno.or(Some(refused));
                }
            }
            bulk_offset = after;
        }
        bulk.used += usize::try_from(bulk_offset).expect("at most the length of the bulk");
        let bulk = bulk.bulk.clone();
        let flush = Flush { reply, client, urgent, pieces: taken, errno, releases, bulk, base };
        self.data.write(flush, &mut self.outcomes);
        Ok(())
    }

    fn may_write(&self, piece: &WritePiece) -> Result<(), i32> {
        if piece.extent.end() > FILE_BYTES_MAX {
            return Err(libc::EFBIG);
        }
        self.locks.may_write(piece.resource, piece.extent, piece.sn)
    }

    fn read(&mut self, reply: ReplyTo, resource: ResourceId, extent: Extent) {
        let refused = if self.locks.is_destroyed(resource) {
            Some(libc::ESTALE)
        } else if extent.length() > READ_BYTES_MAX || extent.end() > FILE_BYTES_MAX {
            Some(libc::EINVAL)
        } else {
            None
        };
        match refused {
            Some(errno) => self.outcomes.push(unread(reply, errno)),
            None => self.data.read(reply, resource, extent, &mut self.outcomes),
        }
    }

    fn truncate(&mut self, reply: ReplyTo, resource: ResourceId, length: u64, sn: Sn) {
        let refused = match Extent::new(length, Extent::EOF) {
            Some(hole) if length <= FILE_BYTES_MAX => self.locks.may_write(resource, hole, sn).err(),
            Some(_) | None => Some(libc::EFBIG),
        };
        match refused {
            Some(errno) => self.outcomes.push(done(reply, Some(errno))),
            None => self.data.truncate(reply, resource, length, sn, &mut self.outcomes),
        }
    }

    fn destroy(&mut self, reply: ReplyTo, resources: Vec<ResourceId>, now: Instant) {
        for resource in &resources {
            self.locks.destroy(*resource, &mut self.connections, now);
            self.trimming.unforced(*resource);
        }
        self.data.destroy(reply, resources, &mut self.outcomes);
    }
}
