//! Who is connected: connections by number, clients by identity, and what is on its way to each.
//!
//! A client is all connections of one [`ClientId`]; it is known from its first Hello until it says goodbye or is evicted, and never
//! again after that (I7). Replies are collected per connection and leave together, one frame per turn of the shard.

use crate::recent::Recent;
use ccpfs_transport::{Bulk, ConnectionId, SendError, ServerPort};
use ccpfs_types::ClientId;
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, encode_into};
use std::collections::HashMap;
use std::time::Instant;
use thiserror::Error;

/// Evicted and departed clients that are remembered. Identities are 64 random bits and never used again, so the
/// list only has to outlive the connections that a client opened before its end.
const FENCED_MAX: usize = 1 << 16;
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

/// Why a client's Hello is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Refusal {
    #[error("protocol version {theirs} is not spoken here: this server speaks {PROTOCOL_VERSION}")]
    Version { theirs: u32 },
    #[error("client {client} has been evicted or has left: it must come back under a new identity")]
    Fenced { client: ClientId },
    #[error("client {client} is a reserved identity")]
    Reserved { client: ClientId },
    #[error("client {client} has a connection for this channel already")]
    Taken { client: ClientId },
}

/// Why a client is no longer one.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum Parting {
    #[error("it said goodbye")]
    Goodbye,
    #[error("a connection was lost: {reason}")]
    Lost { reason: String },
    #[error("it broke the protocol: {what}")]
    Violation { what: String },
    #[error("it does not read what it is sent: {0}")]
    NotReading(SendError),
    #[error("it did not give back {what} in time")]
    Overdue { what: String },
    #[error("it has no callback connection to be asked on")]
    Unreachable,
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
    /// When anything came from it last.
    pub(crate) heard_at: Instant,
    /// When data came from it last.
    pub(crate) wrote_at: Option<Instant>,
    /// When it was asked for a sign of life last.
    pub(crate) probed_at: Option<Instant>,
}

impl Client {
    /// A client without connections, heard from `now`.
    pub(crate) fn new(name: &str, now: Instant) -> Client {
        let name = name.chars().take(NAME_CHARS_MAX).collect();
        Client { name, links: [None; 3], heard_at: now, wrote_at: None, probed_at: None }
    }
}

/// All connections of a shard.
#[derive(Debug)]
pub(crate) struct Connections {
    links: HashMap<ConnectionId, Link>,
    clients: HashMap<ClientId, Client>,
    fenced: Recent<ClientId>,
    /// Connections with something to send.
    listed: Vec<ConnectionId>,
    /// Clients that have to go, in the order in which it was found out.
    doomed: Vec<(ClientId, Parting)>,
}

const fn slot(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Callback => 1,
        Channel::Bulk => 2,
    }
}

impl Connections {
    pub(crate) fn new() -> Connections {
        Connections {
            links: HashMap::new(),
            clients: HashMap::new(),
            fenced: Recent::new(FENCED_MAX),
            listed: Vec::new(),
            doomed: Vec::new(),
        }
    }

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

    /// Takes the first message of a connection.
    pub(crate) fn hello(
        &mut self,
        connection: ConnectionId,
        version: u32,
        role: Role,
        name: &str,
        now: Instant,
    ) -> Result<(), Refusal> {
        let client = role.client;
        if version != PROTOCOL_VERSION {
            return Err(Refusal::Version { theirs: version });
        }
        if client == ClientId::SERVER {
            return Err(Refusal::Reserved { client });
        }
        //= protocol.md#I7
        if self.fenced.contains(&client) {
            return Err(Refusal::Fenced { client });
        }
        let entry = self.clients.entry(client).or_insert_with(|| Client::new(name, now));
        let place = &mut entry.links[slot(role.channel)];
        if place.is_some() {
            return Err(Refusal::Taken { client });
        }
        *place = Some(connection);
        let link = self.links.get_mut(&connection).expect("a Hello comes over an open connection");
        link.role = Some(role);
        Ok(())
    }

    /// Whose the connection is: `None` if it is gone, `Some(None)` before its Hello.
    pub(crate) fn role(&self, connection: ConnectionId) -> Option<Option<Role>> {
        self.links.get(&connection).map(|link| link.role)
    }

    /// Who is at the other end, for people.
    pub(crate) fn peer(&self, connection: ConnectionId) -> &str {
        self.links.get(&connection).map_or("a closed connection", |link| &link.peer)
    }

    pub(crate) fn client(&self, client: ClientId) -> Option<&Client> {
        self.clients.get(&client)
    }

    pub(crate) fn client_count(&self) -> usize {
        self.clients.len()
    }

    pub(crate) fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Notes a sign of life.
    pub(crate) fn heard(&mut self, client: ClientId, wrote: bool, now: Instant) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.heard_at = now;
            if wrote {
                client.wrote_at = Some(now);
            }
        }
    }

    /// Notes that a client was asked for a sign of life.
    pub(crate) fn probed(&mut self, client: ClientId, now: Instant) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.probed_at = Some(now);
        }
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

    /// Queues a message with bulk, in a frame of its own.
    pub(crate) fn send_bulk(&mut self, connection: ConnectionId, message: &Message, bulk: Bulk) {
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

    /// Queues a message on a client's channel. False if the client has no such connection.
    pub(crate) fn send_to(&mut self, client: ClientId, channel: Channel, message: &Message) -> bool {
        let connection = self.clients.get(&client).and_then(|client| client.links[slot(channel)]);
        if let Some(connection) = connection {
            self.send(connection, message);
        }
        connection.is_some()
    }

    /// Notes that a client has to go.
    pub(crate) fn doom(&mut self, client: ClientId, why: Parting) {
        if self.clients.contains_key(&client) {
            self.doomed.push((client, why));
        }
    }

    /// The next client that has to go.
    pub(crate) fn next_doomed(&mut self) -> Option<(ClientId, Parting)> {
        if self.doomed.is_empty() { None } else { Some(self.doomed.remove(0)) }
    }

    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }

    /// Ends a client: fences it and closes its connections. `None` if it has gone before.
    pub(crate) fn remove(&mut self, client: ClientId, port: &mut dyn ServerPort) -> Option<Client> {
        let gone = self.clients.remove(&client)?;
        self.fenced.insert(client);
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
