//! Connections: each keeps its messages in order, and nothing moves between two of them until the script says so.

use crate::bytes::Bytes;
use ccpfs_types::ClientId;
use ccpfs_wire::{Channel, Message};
use std::collections::{BTreeMap, VecDeque};

/// One direction of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Link {
    /// The life of the client that opened it.
    pub(crate) client: ClientId,
    pub(crate) shard: usize,
    pub(crate) channel: Wire,
    /// Client to server, or back.
    pub(crate) to_server: bool,
}

/// A channel, in the order in which walks list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wire {
    Control,
    Callback,
    Bulk,
}

impl From<Channel> for Wire {
    fn from(channel: Channel) -> Wire {
        match channel {
            Channel::Control => Wire::Control,
            Channel::Callback => Wire::Callback,
            Channel::Bulk => Wire::Bulk,
        }
    }
}

impl From<Wire> for Channel {
    fn from(wire: Wire) -> Channel {
        match wire {
            Wire::Control => Channel::Control,
            Wire::Callback => Channel::Callback,
            Wire::Bulk => Channel::Bulk,
        }
    }
}

/// A message under way with the contents of its bulk.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Counts all messages of the walk.
    pub(crate) order: u64,
    pub(crate) message: Message,
    pub(crate) bulk: Option<Bytes>,
}

/// All connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net {
    links: BTreeMap<Link, VecDeque<Packet>>,
    /// The last message that each connection has delivered.
    delivered: BTreeMap<Link, Packet>,
    sent: u64,
}

impl Net {
    pub(crate) fn send(&mut self, link: Link, message: Message, bulk: Option<Bytes>) {
        self.sent += 1;
        self.links.entry(link).or_default().push_back(Packet { order: self.sent, message, bulk });
    }

    /// Takes the first message of a connection.
    pub(crate) fn take(&mut self, link: Link) -> Option<Packet> {
        let packet = self.links.get_mut(&link)?.pop_front()?;
        self.delivered.insert(link, packet.clone());
        Some(packet)
    }

    /// Exchanges the first two messages of a connection: two threads have sent them in another order than it was decided.
    /// Returns whether there were two.
    pub(crate) fn swap(&mut self, link: Link) -> bool {
        match self.links.get_mut(&link) {
            Some(queue) if queue.len() >= 2 => {
                queue.swap(0, 1);
                true
            }
            Some(_) | None => false,
        }
    }

    /// Sends once more what a connection has delivered last. Returns whether there was anything.
    pub(crate) fn repeat(&mut self, link: Link) -> bool {
        let Some(Packet { message, bulk, .. }) = self.delivered.get(&link).cloned() else { return false };
        self.send(link, message, bulk);
        true
    }

    /// The connection whose first message was sent before all others.
    pub(crate) fn oldest(&self) -> Option<Link> {
        let firsts = self.links.iter().filter_map(|(link, queue)| Some((queue.front()?.order, *link)));
        firsts.min().map(|(_, link)| link)
    }

    /// The connections that `wanted` chooses and that have messages, oldest first message first.
    pub(crate) fn waiting(&self, wanted: impl Fn(&Link) -> bool) -> Vec<Link> {
        let mut links: Vec<(u64, Link)> = self
            .links
            .iter()
            .filter(|(link, _)| wanted(link))
            .filter_map(|(link, queue)| Some((queue.front()?.order, *link)))
            .collect();
        links.sort_unstable();
        links.into_iter().map(|(_, link)| link).collect()
    }

    /// Everything under way, in the order in which it was sent.
    pub(crate) fn under_way(&self) -> Vec<(Link, &Packet)> {
        let mut packets: Vec<(Link, &Packet)> =
            self.links.iter().flat_map(|(link, queue)| queue.iter().map(|packet| (*link, packet))).collect();
        packets.sort_unstable_by_key(|(_, packet)| packet.order);
        packets
    }

    /// Loses what is under way on the connections that `wanted` chooses. Returns how many messages.
    pub(crate) fn lose(&mut self, wanted: impl Fn(&Link) -> bool) -> usize {
        let mut lost = 0;
        for (_, queue) in self.links.iter_mut().filter(|(link, _)| wanted(link)) {
            lost += queue.len();
            queue.clear();
        }
        lost
    }
}
