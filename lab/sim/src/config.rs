//! What a simulated cluster is made of: sizes, speeds, costs, limits. All numbers are plain, so that a plan can be written down.

use ccpfs_types::{Expansion, Policy};
use std::fmt::Write as _;

/// How one file is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileConfig {
    /// Number of stripes.
    pub stripes: u32,
    /// Bytes of one unit of a stripe; a multiple of 4096.
    pub stripe_bytes: u64,
}

macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $( $(#[$field_doc:meta])* $field:ident = $default:expr, )* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name { $( $(#[$field_doc])* pub $field: u64, )* }

        impl Default for $name {
            fn default() -> $name {
                $name { $( $field: $default, )* }
            }
        }

        impl $name {
            /// Names and values of all fields.
            fn fields(&self) -> Vec<(&'static str, u64)> {
                vec![$( (stringify!($field), self.$field), )*]
            }

            /// Sets one field by name; false if there is none of that name.
            fn set(&mut self, name: &str, value: u64) -> bool {
                match name {
                    $( stringify!($field) => self.$field = value, )*
                    _ => return false,
                }
                true
            }
        }
    };
}

numbers! {
    /// How many of everything.
    Sizes {
        /// Client nodes.
        clients = 2,
        /// Application threads of one client.
        threads = 1,
        /// Server nodes.
        servers = 1,
        /// Shards of one server.
        shards = 1,
        /// 1: bytes are tagged with who wrote them, and history is kept. 0: only lengths are known (figures).
        contents = 1,
        /// 1: every message is encoded and decoded on its way.
        codec = 0,
    }
}

numbers! {
    /// What a client is set to, and what its work costs. Times in nanoseconds.
    ClientConfig {
        /// Locks kept per stripe.
        locks_max = 8192,
        /// Ticks after which an unused lock is given back.
        age_ticks_max = 30,
        /// Canceled locks of a stripe whose flush is put off before some are flushed.
        put_off_max = 256,
        /// Most bytes of one flush.
        flush_bytes_max = 4 << 20,
        /// Most pieces of one flush.
        flush_pieces_max = 1024,
        /// Flushes of one session without an answer.
        flush_jobs_max = 8,
        /// Dirty bytes above which flushing begins.
        dirty_bytes_min = 256 << 20,
        /// Dirty bytes at which writers wait.
        dirty_bytes_max = 1 << 30,
        /// What a reader that goes on where it stopped fetches ahead, in bytes.
        read_ahead_bytes = 0,
        /// Time between two looks at ages and silent servers.
        tick_ns = 1_000_000_000,
        /// Silence after which a server that owes an answer is given up.
        server_timeout_ns = 60_000_000_000,
        /// How long connecting is tried.
        connect_timeout_ns = 10_000_000_000,
        /// Cost of one call before it does anything.
        call_ns = 0,
        /// Speed of copying into and out of the cache, bytes per second; 0 = at once.
        copy_bytes_per_s = 0,
        /// Cost of one message that the background thread receives.
        callback_ns = 0,
        /// A woken thread begins up to so much later.
        wake_jitter_ns = 0,
        /// What was decided under a stripe's mutex is sent up to so much later, in any order.
        send_jitter_ns = 0,
        /// 1: every call locks whole stripes, as the product's setting of this name.
        lock_whole = 0,
        /// Above 0: a call for one piece asks for all that lie so many bytes behind each other from it on: in the file, or in the
        /// stripe if it is said how many.
        desired_stride_bytes = 0,
        /// Above 0: of those, so many.
        desired_copies = 0,
        /// Above 0: all locks are of the group with this number, whose members stand in nobody's way among themselves.
        group = 0,
        /// What requests of noncontiguous calls say: 0 the smallest range of a stripe around all, 1 a description, 2 a list, 3 an extent.
        lock_kind = 1,
        /// How they are made: 0 one after the other, 1 all at once first, 2 both by turns.
        lock_protocol = 2,
        /// Extents of one list.
        lock_list_max = 64,
        /// Sections of one description.
        lock_sections_max = 128,
        /// Requests made at once, first.
        lock_at_once = 64,
        /// Lock mode of writes: 0 the least restrictive one that serves, 1 NBW, 2 BW, 3 PW.
        write_mode = 0,
        /// Of a thousand flushes, so many carry what the pages hold on arrival, and not when they were taken.
        live_pages_per_mille = 0,
    }
}

numbers! {
    /// What a server is set to, and what its work costs. Times in nanoseconds.
    ServerConfig {
        /// How long a lock that others wait for may stay.
        revoke_timeout_ns = 30_000_000_000,
        /// Entries of the extent caches of a shard above which they are trimmed.
        entries_max = 256 * 1024,
        /// Operations under way at a time.
        operations_max = 1 << 16,
        /// Time a shard takes for one message on the control or callback connection.
        rpc_ns = 0,
        /// Time a shard takes for one flush, without its bytes.
        write_ns = 0,
        /// Speed at which a flush is copied on its way to the device, bytes per second, all flushes at the same time; 0 = at once.
        copy_bytes_per_s = 0,
        /// Time a shard takes for one message that it sends unasked (revocations, glimpses).
        send_ns = 0,
    }
}

numbers! {
    /// Links between clients and servers.
    NetConfig {
        /// One way, nanoseconds.
        latency_ns = 10_000,
        /// Added at random to each message, up to so much, nanoseconds.
        jitter_ns = 0,
        /// Of a thousand messages, so many are delayed by much more.
        spike_per_mille = 0,
        /// By up to so much, nanoseconds.
        spike_ns = 0,
        /// Speed of a network card, each direction, bytes per second; 0 = unlimited.
        nic_bytes_per_s = 0,
        /// Bytes of a message beside its bulk.
        message_bytes = 128,
        /// 1: a network card takes connections by turns, packet by packet, so that a message without bulk waits for no bulk of
        /// other connections; 0: whole messages, one after the other.
        by_packets = 0,
    }
}

numbers! {
    /// The device of one shard.
    DiskConfig {
        /// Bytes per second; 0 = unlimited.
        bytes_per_s = 0,
        /// Bytes per second of reads; 0 = as writes.
        read_bytes_per_s = 0,
        /// Time of one task besides its bytes, nanoseconds; others go on meanwhile.
        latency_ns = 20_000,
        /// Time of one write besides its bytes in which no other goes on, nanoseconds.
        request_ns = 0,
        /// Added at random to each task, up to so much, nanoseconds.
        jitter_ns = 0,
        /// Time of one sync, nanoseconds.
        sync_ns = 50_000,
        /// Of a thousand changes that were not synced, so many survive a crash whole.
        survive_per_mille = 400,
        /// Of a thousand changes that were not synced and do not survive whole, so many survive in part.
        torn_per_mille = 300,
    }
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Config {
    /// How many of everything.
    pub sizes: Sizes,
    /// The files, all open in every client.
    pub files: Vec<FileConfig>,
    /// The lock policy.
    pub policy: Policy,
    /// Clients.
    pub client: ClientConfig,
    /// Servers.
    pub server: ServerConfig,
    /// Network.
    pub net: NetConfig,
    /// Devices.
    pub disk: DiskConfig,
}

impl Config {
    /// Number of shards of all servers.
    #[must_use]
    pub fn targets(&self) -> u32 {
        u32::try_from(self.sizes.servers * self.sizes.shards).expect("shards are few")
    }

    /// As lines `set group.name value`, those that differ from the defaults.
    #[must_use]
    pub fn to_text(&self) -> String {
        let plain = Config::default();
        let mut text = format!("policy {}\n", policy_text(&self.policy));
        for file in &self.files {
            let _ = writeln!(text, "file {} {}", file.stripes, file.stripe_bytes);
        }
        for ((name, value), (_, default)) in self.settings().into_iter().zip(plain.settings()) {
            if value != default {
                let _ = writeln!(text, "set {name} {value}");
            }
        }
        text
    }

    /// Takes in one line of [`Config::to_text`]; `None` if it is none.
    pub fn read_line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split_whitespace();
        match words.next()? {
            "policy" => self.policy = read_policy(words.next()?)?,
            "file" => {
                let (stripes, stripe_bytes) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                self.files.push(FileConfig { stripes, stripe_bytes });
            }
            "set" => {
                let (group, name) = words.next()?.split_once('.')?;
                let value = words.next()?.parse().ok()?;
                let known = match group {
                    "sizes" => self.sizes.set(name, value),
                    "client" => self.client.set(name, value),
                    "server" => self.server.set(name, value),
                    "net" => self.net.set(name, value),
                    "disk" => self.disk.set(name, value),
                    _ => false,
                };
                return known.then_some(());
            }
            _ => return None,
        }
        Some(())
    }

    /// Names (as [`Config::read_line`] takes them) and values of all numbers.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, u64)> {
        let groups = [
            ("sizes", self.sizes.fields()),
            ("client", self.client.fields()),
            ("server", self.server.fields()),
            ("net", self.net.fields()),
            ("disk", self.disk.fields()),
        ];
        let name = |group: &str, field: &str| format!("{group}.{field}");
        groups
            .into_iter()
            .flat_map(|(group, fields)| {
                fields.into_iter().map(move |(field, value)| (name(group, field), value))
            })
            .collect()
    }
}

/// A policy as its eight switches.
fn policy_text(policy: &Policy) -> String {
    let Policy {
        write_modes,
        early_grant,
        early_revocation,
        upgrading,
        downgrading,
        adaptive_range,
        expansion,
        granularity_bytes,
    } = *policy;
    let expansion = match expansion {
        Expansion::Exact => "exact",
        Expansion::Greedy => "greedy",
        Expansion::PastWaiting => "past-waiting",
        Expansion::Lustre => "lustre",
    };
    let switches = [write_modes, early_grant, early_revocation, upgrading, downgrading, adaptive_range];
    let digits: String = switches.iter().map(|on| if *on { '1' } else { '0' }).collect();
    format!("{digits}:{expansion}:{granularity_bytes}")
}

fn read_policy(text: &str) -> Option<Policy> {
    let mut parts = text.split(':');
    let on: Vec<bool> = parts.next()?.chars().map(|digit| digit == '1').collect();
    let expansion = match parts.next()? {
        "exact" => Expansion::Exact,
        "greedy" => Expansion::Greedy,
        "past-waiting" => Expansion::PastWaiting,
        "lustre" => Expansion::Lustre,
        _ => return None,
    };
    let granularity_bytes = parts.next()?.parse().ok()?;
    let [write_modes, early_grant, early_revocation, upgrading, downgrading, adaptive_range] = on[..] else {
        return None;
    };
    Some(Policy {
        write_modes,
        early_grant,
        early_revocation,
        upgrading,
        downgrading,
        adaptive_range,
        expansion,
        granularity_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_back_from_its_text() {
        let mut config = Config { policy: Policy::LUSTRE, ..Config::default() };
        config.files.push(FileConfig { stripes: 3, stripe_bytes: 8192 });
        config.net.latency_ns = 77;
        config.sizes.clients = 5;
        let mut back = Config::default();
        config.to_text().lines().for_each(|line| back.read_line(line).unwrap());
        assert_eq!(back, config);
        assert_eq!(back.read_line("set net.nonsense 3"), None);
    }
}
