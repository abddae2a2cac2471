//! Who is connected, and who never will be again.
//!
//! *What*: a client is all connections of one [`ClientId`]; it is known from its first Hello until it parts.
//! *Invariants*: I7: a client that has parted is not heard and not taken again; it is fenced before what it held is free.
//! *Not here*: connections themselves, and what is on its way to a client.

use crate::recent::Recent;
use alloc::collections::BTreeMap;
use ccpfs_types::ClientId;
use ccpfs_wire::Channel;
use core::fmt;

/// Evicted and departed clients that are remembered. Identities are 64 random bits and never used again, so the
/// list only has to outlive the connections that a client opened before its end.
const FENCED_MAX: usize = 1 << 16;

/// Why a connection of a client is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The client has been evicted or has left.
    Fenced {
        /// Who.
        client: ClientId,
    },
    /// The number stands for the server itself.
    Reserved {
        /// Which.
        client: ClientId,
    },
    /// The client has such a connection already.
    Taken {
        /// Who.
        client: ClientId,
    },
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Fenced { client } => {
                write!(
                    f,
                    "client {client} has been evicted or has left: it must come back under a new identity"
                )
            }
            Refusal::Reserved { client } => write!(f, "client {client} is a reserved identity"),
            Refusal::Taken { client } => {
                write!(f, "client {client} has a connection for this channel already")
            }
        }
    }
}

/// One client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    /// Which connections it has.
    channels: [bool; 3],
    /// Whether it was told to go and its connections are not closed yet: it is not heard.
    leaving: bool,
    /// When anything came from it last.
    pub(crate) heard_at_ns: u64,
    /// When data came from it last.
    pub(crate) wrote_at_ns: Option<u64>,
    /// When it was asked for a sign of life last.
    pub(crate) probed_at_ns: Option<u64>,
}

/// The clients of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Clients {
    present: BTreeMap<ClientId, Client>,
    fenced: Recent<ClientId>,
}

const fn slot(channel: Channel) -> usize {
    match channel {
        Channel::Control => 0,
        Channel::Callback => 1,
        Channel::Bulk => 2,
    }
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients { present: BTreeMap::new(), fenced: Recent::new(FENCED_MAX) }
    }

    pub(crate) fn refusal(&self, client: ClientId, channel: Channel) -> Option<Refusal> {
        if client == ClientId::SERVER {
            return Some(Refusal::Reserved { client });
        }
        //= protocol.md#I7
        if self.fenced.contains(&client) {
            return Some(Refusal::Fenced { client });
        }
        let present = self.present.get(&client)?;
        if present.leaving {
            return Some(Refusal::Fenced { client });
        }
        present.channels[slot(channel)].then_some(Refusal::Taken { client })
    }

    pub(crate) fn join(&mut self, client: ClientId, channel: Channel, now_ns: u64) {
        assert!(self.refusal(client, channel).is_none(), "whoever takes a connection asks before");
        let new = Client {
            channels: [false; 3],
            leaving: false,
            heard_at_ns: now_ns,
            wrote_at_ns: None,
            probed_at_ns: None,
        };
        self.present.entry(client).or_insert(new).channels[slot(channel)] = true;
    }

    /// Notes a sign of life. False if the client is not to be heard.
    pub(crate) fn heard(&mut self, client: ClientId, channel: Channel, now_ns: u64) -> bool {
        let Some(client) = self.present.get_mut(&client).filter(|client| !client.leaving) else {
            return false;
        };
        client.heard_at_ns = now_ns;
        if channel == Channel::Bulk {
            client.wrote_at_ns = Some(now_ns);
        }
        true
    }

    /// Notes that a client was asked for a sign of life.
    pub(crate) fn probed(&mut self, client: ClientId, now_ns: u64) {
        if let Some(client) = self.present.get_mut(&client) {
            client.probed_at_ns = Some(now_ns);
        }
    }

    pub(crate) fn has(&self, client: ClientId, channel: Channel) -> bool {
        self.present.get(&client).is_some_and(|client| client.channels[slot(channel)])
    }

    pub(crate) fn get(&self, client: ClientId) -> Option<&Client> {
        self.present.get(&client)
    }

    /// All clients but one.
    pub(crate) fn others(&self, one: ClientId) -> impl Iterator<Item = ClientId> {
        self.present.keys().copied().filter(move |client| *client != one)
    }

    pub(crate) fn count(&self) -> usize {
        self.present.len()
    }

    /// From now on the client is not heard. False if it was so before.
    pub(crate) fn leaves(&mut self, client: ClientId) -> bool {
        match self.present.get_mut(&client) {
            Some(client) => !core::mem::replace(&mut client.leaving, true),
            None => false,
        }
    }

    /// The client is gone for good. False if it was so before.
    pub(crate) fn fence(&mut self, client: ClientId) -> bool {
        let was_there = self.present.remove(&client).is_some();
        if was_there {
            //= protocol.md#I7
            //# A flush from an evicted client incarnation changes nothing, whenever it arrives.
            self.fenced.insert(client);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: ClientId = ClientId(7);

    #[test]
    fn each_channel_is_taken_once_and_never_after_the_client_has_parted() {
        let mut clients = Clients::new();
        assert_eq!(clients.refusal(CLIENT, Channel::Bulk), None);
        clients.join(CLIENT, Channel::Bulk, 1);
        assert_eq!(clients.refusal(CLIENT, Channel::Bulk), Some(Refusal::Taken { client: CLIENT }));
        assert_eq!(clients.refusal(CLIENT, Channel::Control), None);
        assert!(clients.fence(CLIENT) && !clients.fence(CLIENT));
        assert_eq!(clients.refusal(CLIENT, Channel::Control), Some(Refusal::Fenced { client: CLIENT }));
        let server = ClientId::SERVER;
        assert_eq!(clients.refusal(server, Channel::Control), Some(Refusal::Reserved { client: server }));
    }

    #[test]
    fn who_was_told_to_go_is_not_heard_and_not_told_twice() {
        let mut clients = Clients::new();
        clients.join(CLIENT, Channel::Control, 1);
        assert!(clients.heard(CLIENT, Channel::Control, 2));
        assert!(clients.leaves(CLIENT) && !clients.leaves(CLIENT));
        assert!(!clients.heard(CLIENT, Channel::Control, 3));
        assert_eq!(clients.refusal(CLIENT, Channel::Bulk), Some(Refusal::Fenced { client: CLIENT }));
    }
}
