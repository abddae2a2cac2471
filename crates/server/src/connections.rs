//! Who is connected: connections by number, clients by identity, and what is on its way to each.
//!
//! A client is all connections of one [`ClientId`]; whether it may be one is decided in `ccpfs-shard`. Replies are collected per
//! connection and leave together, one frame per turn of the shard.

use ccpfs_transport::{Bulk, ConnectionId, SendError, ServerPort};
use ccpfs_types::ClientId;
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, encode_into};
use std::collections::{HashMap, VecDeque};
use thiserror::Error;

/// A batch of replies that grows beyond this leaves as a frame of its own, so that frames stay below their limit.
const BATCH_BYTES_MAX: usize = 256 << 10;

/// Characters of a client's name that are kept for the logs.
const NAME_CHARS_MAX: usize = 200;

/// Whose a connection is, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) client: ClientId,
    pub(crate) channel: Channel,
}

/// Why a Hello is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("protocol version {theirs} is not spoken here: this server speaks {PROTOCOL_VERSION}")]
    Version { theirs: u32 },
    #[error("{0}")]
    Client(ccpfs_shard::Refusal),
}

/// Why a client is no longer one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Parting {
    #[error("{0}")]
    Rules(ccpfs_shard::Parting),
    #[error("a connection was lost: {reason}")]
    Lost { reason: String },
    #[error("it broke the protocol: {what}")]
    Malformed { what: String },
    #[error("it does not read what it is sent: {0}")]
    NotReading(SendError),
}

/// One connection.
#[derive(Debug)]
struct Link {
    peer: String,
    role: Option<Role>,
    /// Encoded messages that leave with the next flush.
    batch: Vec<u8>,
    /// Frames that cannot be batched further: full ones, and those with bulk.
    frames: Vec<(Vec<u8>, Option<Bulk>)>,
    listed: bool,
}

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) name: String,
    links: [Option<ConnectionId>; 3],
}

/// All connections of a shard.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    links: HashMap<ConnectionId, Link>,
    clients: HashMap<ClientId, Client>,
    /// Connections with something to send.
    listed: Vec<ConnectionId>,
    /// Clients that have to go, in the order in which it was found out.
    doomed: VecDeque<(ClientId, Parting)>,
}

const fn slot(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Callback => 1,
        Channel::Bulk => 2,
    }
}

impl Connections {
    /// A connection has been accepted.
    pub(crate) fn opened(&mut self, connection: ConnectionId, peer: String) {
        let link = Link { peer, role: None, batch: Vec::new(), frames: Vec::new(), listed: false };
        self.links.insert(connection, link);
    }

    /// A connection is gone: so is its client.
    pub(crate) fn closed(&mut self, connection: ConnectionId, reason: String) {
        if let Some(link) = self.links.remove(&connection)
            && let Some(role) = link.role
        {
            self.doom(role.client, Parting::Lost { reason });
        }
    }

    /// From now on the connection is a client's; it was asked whether it may be.
    pub(crate) fn introduced(&mut self, connection: ConnectionId, role: Role, name: &str) {
        let new = || Client { name: name.chars().take(NAME_CHARS_MAX).collect(), links: [None; 3] };
        self.clients.entry(role.client).or_insert_with(new).links[slot(role.channel)] = Some(connection);
        let link = self.links.get_mut(&connection).expect("a Hello comes over an open connection");
        link.role = Some(role);
    }

    /// Whose the connection is: `None` if it is gone, `Some(None)` before its Hello.
    pub(crate) fn role(&self, connection: ConnectionId) -> Option<Option<Role>> {
        self.links.get(&connection).map(|link| link.role)
    }

    /// Who is at the other end, for people.
    pub(crate) fn peer(&self, connection: ConnectionId) -> &str {
        self.links.get(&connection).map_or("a closed connection", |link| &link.peer)
    }

    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Queues a message; nothing happens if the connection is gone.
    pub(crate) fn send(&mut self, connection: ConnectionId, message: &Message) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        encode_into(message, &mut link.batch);
        if link.batch.len() > BATCH_BYTES_MAX {
            let batch = std::mem::take(&mut link.batch);
            link.frames.push((batch, None));
        }
        self.list(connection);
    }

    /// Queues a message on a client's channel; nothing happens if the client has no such connection.
    pub(crate) fn send_to(&mut self, client: ClientId, channel: Channel, message: &Message) {
        if let Some(connection) = self.connection_of(client, channel) {
            self.send(connection, message);
        }
    }

    /// Queues a message with bulk on a client's channel, in a frame of its own; nothing happens if the client has no such connection.
    pub(crate) fn send_bulk_to(&mut self, client: ClientId, channel: Channel, message: &Message, bulk: Bulk) {
        let Some(connection) = self.connection_of(client, channel) else { return };
        let Some(link) = self.links.get_mut(&connection) else { return };
        if !link.batch.is_empty() {
            let batch = std::mem::take(&mut link.batch);
            link.frames.push((batch, None));
        }
        let mut bytes = Vec::new();
        encode_into(message, &mut bytes);
        link.frames.push((bytes, Some(bulk)));
        self.list(connection);
    }

    fn connection_of(&self, client: ClientId, channel: Channel) -> Option<ConnectionId> {
        self.clients.get(&client)?.links[slot(channel)]
    }

    /// Notes that a client has to go.
    pub(crate) fn doom(&mut self, client: ClientId, why: Parting) {
        if self.clients.contains_key(&client) {
            self.doomed.push_back((client, why));
        }
    }

    /// The next client that has to go.
    pub(crate) fn next_doomed(&mut self) -> Option<(ClientId, Parting)> {
        self.doomed.pop_front()
    }

    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Closes all connections of a client. `None` if it has gone before.
    pub(crate) fn remove(&mut self, client: ClientId, port: &mut dyn ServerPort) -> Option<Client> {
        let gone = self.clients.remove(&client)?;
        for connection in gone.links.into_iter().flatten() {
            self.close(connection, port);
        }
        Some(gone)
    }

    /// Closes a connection, after what is queued for it.
    pub(crate) fn close(&mut self, connection: ConnectionId, port: &mut dyn ServerPort) {
        if let Some(link) = self.links.remove(&connection) {
            // Whether the last words arrive is up to the peer.
            let _unheard = hand_over(connection, link, port);
            port.close(connection);
        }
    }

    /// Hands what is queued to the port.
    pub(crate) fn flush(&mut self, port: &mut dyn ServerPort) {
        for connection in std::mem::take(&mut self.listed) {
            let Some(link) = self.links.get_mut(&connection) else { continue };
            link.listed = false;
            let mut sent = Ok(());
            for (message, bulk) in link.frames.drain(..) {
                sent = sent.and_then(|()| port.send(connection, &message, bulk));
            }
            if sent.is_ok() && !link.batch.is_empty() {
                sent = port.send(connection, &link.batch, None);
                link.batch.clear();
            }
            match (sent, link.role) {
                // The Closed event of a connection that is gone is on its way and ends the client.
                (Ok(()) | Err(SendError::Gone), _) => {}
                (Err(error @ (SendError::Overflow { .. } | SendError::TooLarge(_))), Some(role)) => {
                    self.doom(role.client, Parting::NotReading(error));
                }
                (Err(SendError::Overflow { .. } | SendError::TooLarge(_)), None) => port.close(connection),
            }
        }
    }

    fn list(&mut self, connection: ConnectionId) {
        if let Some(link) = self.links.get_mut(&connection)
            && !link.listed
        {
            link.listed = true;
            self.listed.push(connection);
        }
    }
}

fn hand_over(connection: ConnectionId, link: Link, port: &mut dyn ServerPort) -> Result<(), SendError> {
    for (message, bulk) in link.frames {
        port.send(connection, &message, bulk)?;
    }
    if link.batch.is_empty() { Ok(()) } else { port.send(connection, &link.batch, None) }
}
