//! Links: how long a message takes, in order within a connection, with nothing promised between two.

use crate::config::NetConfig;
use crate::random::Random;
use ccpfs_types::ClientId;
use ccpfs_wire::{Channel, Message};

/// Who wrote a byte: an operation's number plus one; 0 = nobody (a hole).
pub type Tag = u32;

/// The bytes of a frame, as runs of tags: where each run ends, counted from the start of the bulk, and whose it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bulk {
    /// Number of bytes.
    pub bytes: u64,
    /// Ends and tags, ascending; empty if contents are not kept.
    pub runs: Vec<(u64, Tag)>,
}

impl Bulk {
    /// Appends `bytes` bytes of one tag.
    pub fn push(&mut self, bytes: u64, tag: Tag) {
        self.bytes += bytes;
        match self.runs.last_mut() {
            Some((end, last)) if *last == tag => *end = self.bytes,
            Some(_) | None => self.runs.push((self.bytes, tag)),
        }
    }

    /// The bytes in words: how many of whom.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut from = 0;
        let mut text = format!(" + {} bytes:", self.bytes);
        for (to, tag) in &self.runs {
            let length = to - from;
            text += &match tag {
                0 => format!(" {length} zeros"),
                &Tag::MAX => format!(" {length} garbage"),
                tag => format!(" {length} of op{}", tag - 1),
            };
            from = *to;
        }
        text
    }

    /// The runs of `length` bytes from `offset`: where each begins (counted from `offset`), how long it is, whose it is.
    pub fn slice(&self, offset: u64, length: u64) -> impl Iterator<Item = (u64, u64, Tag)> + '_ {
        let end = offset + length;
        let mut from = 0;
        self.runs.iter().filter_map(move |(to, tag)| {
            let (start, stop) = (from.max(offset), (*to).min(end));
            from = *to;
            (start < stop).then(|| (start - offset, stop - start, *tag))
        })
    }
}

/// What travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A message.
    Message(Message),
    /// The sender has closed the connection; nothing follows.
    Close,
}

/// One message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// By which connection.
    pub connection: u32,
    /// From client to server.
    pub up: bool,
    /// What.
    pub payload: Payload,
    /// The bytes that belong to it.
    pub bulk: Option<Box<Bulk>>,
    /// The bytes are read from the sender's pages when the frame arrives.
    pub live: bool,
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// When the last message arrives.
    last_ns: u64,
    /// When the last message has been received in full.
    received_ns: u64,
    /// The receiver takes messages.
    open: bool,
}

/// One connection between a client and a shard.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client node.
    pub client: u32,
    /// The shard.
    pub target: u32,
    /// What it is for.
    pub channel: Channel,
    /// Under which number.
    pub id: ClientId,
    up: Way,
    down: Way,
}

#[derive(Clone, Copy, Debug, Default)]
struct Nic {
    out_free_ns: u64,
    in_free_ns: u64,
}

/// When a message gets where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Travel {
    /// It is with its receiver then.
    Delivered {
        /// When, nanoseconds.
        at_ns: u64,
    },
    /// Its first byte is at the receiver's network card then: ask [`Net::receive`] at that time.
    Arriving {
        /// When, nanoseconds.
        at_ns: u64,
        /// When its last byte can be there at the earliest.
        last_ns: u64,
    },
}

/// All connections and network cards.
#[derive(Debug)]
pub struct Net {
    config: NetConfig,
    random: Random,
    connections: Vec<Connection>,
    nics: Vec<Nic>,
    clients: u32,
    shards_per_server: u32,
    /// Partitions: client node, server node, until when.
    partitions: Vec<(u32, u32, u64)>,
    /// Delays and reordering are over.
    calm: bool,
    /// Messages sent.
    pub messages: u64,
    /// Bytes sent.
    pub bytes: u64,
}

impl Net {
    /// No connections yet.
    #[must_use]
    pub fn new(config: NetConfig, clients: u32, servers: u32, shards_per_server: u32, random: Random) -> Net {
        let nodes = usize::try_from(clients + servers).expect("nodes are few");
        Net {
            config,
            random,
            connections: Vec::new(),
            nics: vec![Nic::default(); nodes],
            clients,
            shards_per_server,
            partitions: Vec::new(),
            calm: false,
            messages: 0,
            bytes: 0,
        }
    }

    /// Opens a connection.
    pub fn open(&mut self, client: u32, target: u32, channel: Channel, id: ClientId) -> u32 {
        let way = Way { last_ns: 0, received_ns: 0, open: true };
        self.connections.push(Connection { client, target, channel, id, up: way, down: way });
        u32::try_from(self.connections.len() - 1).expect("fewer than 2^32 connections")
    }

    /// A connection by number.
    #[must_use]
    pub fn connection(&self, connection: u32) -> &Connection {
        &self.connections[connection as usize]
    }

    /// Whether the receiver of this direction still takes messages.
    #[must_use]
    pub fn is_open(&self, connection: u32, up: bool) -> bool {
        let connection = self.connection(connection);
        if up { connection.up.open } else { connection.down.open }
    }

    /// The receiver of this direction takes nothing any more; what is on its way to it is dropped.
    pub fn shut(&mut self, connection: u32, up: bool) {
        let connection = &mut self.connections[connection as usize];
        let way = if up { &mut connection.up } else { &mut connection.down };
        way.open = false;
    }

    /// The connection is gone: whatever is on its way is dropped, in both directions.
    pub fn lose(&mut self, connection: u32) {
        self.shut(connection, true);
        self.shut(connection, false);
    }

    /// The server node of a shard.
    #[must_use]
    pub fn server_of(&self, target: u32) -> u32 {
        target / self.shards_per_server
    }

    /// Nothing passes between a client and a server until then.
    pub fn partition(&mut self, client: u32, server: u32, until_ns: u64) {
        self.partitions.push((client, server, until_ns));
    }

    /// No more delays at random.
    pub fn calm(&mut self) {
        self.calm = true;
        self.partitions.clear();
    }

    /// How long a message with so many bulk bytes takes. Messages of one direction of a connection arrive in order.
    pub fn send(&mut self, now_ns: u64, connection: u32, up: bool, bulk_bytes: u64) -> Travel {
        let bytes = bulk_bytes + self.config.message_bytes;
        self.messages += 1;
        self.bytes += bytes;
        let mut delay = self.config.latency_ns;
        if !self.calm {
            if self.config.jitter_ns > 0 {
                delay += self.random.below(self.config.jitter_ns);
            }
            if self.random_spike() {
                delay += self.random.below(self.config.spike_ns);
            }
        }
        let Connection { client, target, .. } = self.connections[connection as usize];
        let server = self.server_of(target);
        let mut start_ns = now_ns;
        if !self.partitions.is_empty() {
            let ends = self
                .partitions
                .iter()
                .filter(|(c, s, until)| *c == client && *s == server && *until > now_ns);
            start_ns = ends.map(|(_, _, until)| *until).max().unwrap_or(now_ns);
        }
        let from = if up { client } else { self.clients + server };
        let mut sent_ns = start_ns;
        if self.config.nic_bytes_per_s > 0 {
            let passes = self.passes(bulk_bytes);
            let nic = &mut self.nics[from as usize];
            let transfer_ns = transfer_ns(bytes, self.config.nic_bytes_per_s);
            nic.out_free_ns = start_ns.max(nic.out_free_ns) + transfer_ns;
            sent_ns = if passes { start_ns + transfer_ns } else { nic.out_free_ns };
            start_ns = sent_ns - transfer_ns;
        }
        let connection = &mut self.connections[connection as usize];
        let way = if up { &mut connection.up } else { &mut connection.down };
        let at_ns = (start_ns + delay).max(way.last_ns);
        way.last_ns = at_ns;
        if self.config.nic_bytes_per_s > 0 {
            Travel::Arriving { at_ns, last_ns: sent_ns + delay }
        } else {
            Travel::Delivered { at_ns }
        }
    }

    /// When a message whose first byte is here has been received in full.
    pub fn receive(&mut self, now_ns: u64, connection: u32, up: bool, bulk_bytes: u64, last_ns: u64) -> u64 {
        let bytes = bulk_bytes + self.config.message_bytes;
        let Connection { client, target, .. } = self.connections[connection as usize];
        let to = if up { self.clients + self.server_of(target) } else { client };
        let passes = self.passes(bulk_bytes);
        let nic = &mut self.nics[to as usize];
        let transfer_ns = transfer_ns(bytes, self.config.nic_bytes_per_s);
        nic.in_free_ns = now_ns.max(nic.in_free_ns) + transfer_ns;
        let mut received_ns = if passes { now_ns + transfer_ns } else { nic.in_free_ns }.max(last_ns);
        if !passes {
            nic.in_free_ns = received_ns;
        }
        // Within its connection every message keeps its place.
        let connection = &mut self.connections[connection as usize];
        let way = if up { &mut connection.up } else { &mut connection.down };
        received_ns = received_ns.max(way.received_ns);
        way.received_ns = received_ns;
        received_ns
    }

    /// Whether a message goes between the packets of others.
    const fn passes(&self, bulk_bytes: u64) -> bool {
        self.config.by_packets > 0 && bulk_bytes == 0
    }

    fn random_spike(&mut self) -> bool {
        self.config.spike_per_mille > 0 && self.random.chance(self.config.spike_per_mille)
    }
}

/// Time for so many bytes at so many bytes per second, in nanoseconds.
#[must_use]
pub fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    if bytes_per_s == 0 {
        return 0;
    }
    let ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s);
    u64::try_from(ns).expect("fewer than 2^64 nanoseconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(config: NetConfig) -> Net {
        Net::new(config, 2, 1, 1, Random::new(3))
    }

    #[test]
    fn one_connection_keeps_its_order_and_two_do_not_keep_theirs() {
        let config = NetConfig { latency_ns: 10, jitter_ns: 1000, ..NetConfig::default() };
        let mut net = net(config);
        let first = net.open(0, 0, Channel::Control, ClientId(1));
        let second = net.open(0, 0, Channel::Bulk, ClientId(1));
        let mut at = |connection| match net.send(0, connection, true, 0) {
            Travel::Delivered { at_ns } => at_ns,
            Travel::Arriving { .. } => unreachable!("unlimited cards"),
        };
        let times: Vec<u64> = (0..20).map(|_| at(first)).collect();
        assert!(times.is_sorted());
        assert!(at(second) < times[19]);
    }

    #[test]
    fn cards_send_and_receive_one_message_after_the_other() {
        let config = NetConfig {
            latency_ns: 100,
            nic_bytes_per_s: 1_000_000_000,
            message_bytes: 0,
            ..NetConfig::default()
        };
        let mut net = net(config);
        let one = net.open(0, 0, Channel::Bulk, ClientId(1));
        let two = net.open(1, 0, Channel::Bulk, ClientId(2));
        assert_eq!(net.send(0, one, true, 1000), Travel::Arriving { at_ns: 100, last_ns: 1100 });
        assert_eq!(net.send(0, two, true, 1000), Travel::Arriving { at_ns: 100, last_ns: 1100 });
        assert_eq!(net.receive(100, one, true, 1000, 1100), 1100);
        assert_eq!(net.receive(100, two, true, 1000, 1100), 2100, "behind the other at the server's card");
    }

    #[test]
    fn by_packets_a_message_without_bulk_waits_for_no_bulk_but_that_of_its_own_connection() {
        let config = NetConfig {
            latency_ns: 100,
            nic_bytes_per_s: 1_000_000_000,
            message_bytes: 10,
            by_packets: 1,
            ..NetConfig::default()
        };
        let mut net = net(config);
        let (one, two) =
            (net.open(0, 0, Channel::Bulk, ClientId(1)), net.open(1, 0, Channel::Control, ClientId(2)));
        assert_eq!(net.send(0, one, true, 990), Travel::Arriving { at_ns: 100, last_ns: 1100 });
        assert_eq!(net.send(0, two, true, 0), Travel::Arriving { at_ns: 100, last_ns: 110 });
        assert_eq!(net.send(0, one, true, 0), Travel::Arriving { at_ns: 100, last_ns: 110 });
        assert_eq!(net.receive(100, one, true, 990, 1100), 1100);
        assert_eq!(net.receive(100, two, true, 0, 110), 110, "between the packets of the other");
        assert_eq!(net.receive(100, one, true, 0, 110), 1100, "in order");
        assert_eq!(
            net.send(0, one, true, 990),
            Travel::Arriving { at_ns: 1110, last_ns: 2110 },
            "it took its part"
        );
    }

    #[test]
    fn bulk_is_cut_by_bytes() {
        let mut bulk = Bulk::default();
        bulk.push(10, 1);
        bulk.push(5, 1);
        bulk.push(5, 2);
        assert_eq!(bulk.slice(12, 6).collect::<Vec<_>>(), [(0, 3, 1), (3, 3, 2)]);
    }
}
