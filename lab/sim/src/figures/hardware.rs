//! The simulated hardware: every number with where it comes from. Nothing here was fitted to a result.

use crate::config::Config;
use serde::Serialize;

/// Where a number comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The paper states it.
    Given,
    /// It follows from other numbers of the paper, in the way that is written beside it.
    Derived,
    /// The paper does not say: chosen, with a reason.
    Chosen,
    /// It is how our product works.
    Ours,
}

/// What a parameter sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Knob {
    /// RPCs that a server handles per second.
    RpcRate,
    /// Flush requests that a server handles per second, their bytes apart.
    FlushRate,
    /// Bytes per second of a network card, each direction.
    NicRate,
    /// Microseconds from sending a request until the answer is there, with idle machines.
    RoundTrip,
    /// Bytes per second at which one thread of a client copies into its cache, the cost of the call included.
    CopyRate,
    /// Bytes per second at which a server's thread copies a flush on its way to the device.
    ServerCopyRate,
    /// Bytes per second that a device takes.
    DeviceRate,
    /// Microseconds that a device needs for one request beside its bytes.
    DeviceLatency,
    /// Microseconds of a device that one write takes from all others, beside its bytes.
    DeviceRequest,
}

/// One number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// What it sets.
    pub knob: Knob,
    /// What it is.
    pub what: &'static str,
    /// Its value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: Source,
    /// Which sentence, or which computation.
    pub because: &'static str,
}

/// Bytes that each client of IOR writes: 2 GB, read as IOR reads `2g`.
const IOR_BYTES: f64 = 2_147_483_648.0;
/// Table III, SeqDLM: bytes per second by PIO time.
const TABLE3_RATE: f64 = 33.2e9;
/// Table III, SeqDLM: PIO and F, seconds.
const TABLE3_TOTAL: f64 = 18.1;
/// V-A: clients of that test.
const TABLE3_CLIENTS: f64 = 16.0;
/// V-A: RPCs per second of one server.
const RPC_RATE: f64 = 213e3;

/// All parameters of the machines, with their values.
pub const PARAMETERS: [Parameter; 9] = [
    Parameter {
        knob: Knob::RpcRate,
        what: "RPCs that a server handles per second",
        value: RPC_RATE,
        unit: "1/s",
        source: Source::Given,
        because: "V-A: CaRT over verbs;ofi_rxm achieves about 213 kOPS for a server. Every message of a lock that a server receives, and every revocation that it sends, costs it 1/213,000 s.",
    },
    Parameter {
        knob: Knob::FlushRate,
        what: "flush requests that a server handles per second",
        value: RPC_RATE,
        unit: "1/s",
        source: Source::Chosen,
        because: "The paper moves data with IB verbs and says nothing about the cost of a request: we count it as another RPC, in the same queue. Its bytes cost what the network card, the copy and the device cost.",
    },
    Parameter {
        knob: Knob::NicRate,
        what: "network card, each direction",
        value: 12.5e9,
        unit: "B/s",
        source: Source::Given,
        because: "V-A: 100 Gb/s HDR (Table I has the same number).",
    },
    Parameter {
        knob: Knob::RoundTrip,
        what: "request and answer between idle machines, software included",
        value: 30.0,
        unit: "µs",
        source: Source::Derived,
        because: "From Fig. 17's text alone. Of the locking time, revocation has 33.5 % at 16 KiB and 4.3 % at 1,024 KiB; locking has 67.9 to 69.3 % of the total; the rest is one request and answer and the copy (at Table III's rate). With the copy of 1,024 KiB (505 µs) this gives 50 to 54 µs, with that of 16 KiB (8 µs) and up to 3 µs for the test's own message 19 to 34 µs. 30 µs lies in the middle on a logarithmic scale; halved and doubled it covers all of them. Table I's 1 µs is the bare network's.",
    },
    Parameter {
        knob: Knob::CopyRate,
        what: "one thread of a client copying into its cache",
        value: TABLE3_RATE / TABLE3_CLIENTS,
        unit: "B/s",
        source: Source::Derived,
        because: "Table III: 33.2 GB/s over 16 clients, almost without conflicts: 2.08 GB/s each, with the cost of the call.",
    },
    Parameter {
        knob: Knob::ServerCopyRate,
        what: "a server's thread handing a flush to the device",
        value: TABLE3_RATE / TABLE3_CLIENTS,
        unit: "B/s",
        source: Source::Derived,
        because: "From Fig. 17's text: at 1,024 KiB cancel takes 22 times as long as revocation, 1.1 to 1.2 ms. Round trips (45 µs), network (84 µs) and device (552 µs) explain 0.7 ms; what is missing is one copy of the data at the rate of the client's copy. Flushes are copied in parallel, so the rate of many is not limited by it.",
    },
    Parameter {
        knob: Knob::DeviceRate,
        what: "device",
        value: TABLE3_CLIENTS * IOR_BYTES / TABLE3_TOTAL,
        unit: "B/s",
        source: Source::Derived,
        because: "Table III: 16 × 2 GiB take 18.1 s until all are flushed: 1.9 GB/s. Table I's 3 GB/s are called approximate.",
    },
    Parameter {
        knob: Knob::DeviceLatency,
        what: "device, one request beside its bytes",
        value: 10.0,
        unit: "µs",
        source: Source::Chosen,
        because: "An NVMe drive takes a write into its cache in about 10 µs; the paper says nothing.",
    },
    Parameter {
        knob: Knob::DeviceRequest,
        what: "device, time that one write takes from all others beside its bytes",
        value: 0.0,
        unit: "µs",
        source: Source::Chosen,
        because: "V-C2 says that a larger write size is favourable to devices, but not how much: none here. The explanation of Fig. 21 tries 10 and 20 µs.",
    },
];

/// Settings that are not speeds, for the page.
pub const SETTINGS: [(&str, &str, Source, &str); 9] = [
    ("background flushing begins at", "256 MiB dirty per client", Source::Given, "IV-C1"),
    ("writers wait at", "4 GiB dirty per client", Source::Given, "IV-C1 and V-C"),
    (
        "lock ranges",
        "multiples of 4 KiB in all three lock managers",
        Source::Given,
        "V-C2; byte-granular beside it where said",
    ),
    (
        "DLM-Lustre's expansion",
        "to at most 32 MB once more than 32 locks are granted",
        Source::Given,
        "V-A; the product's rule",
    ),
    ("extent cache", "256 K entries before trimming", Source::Given, "IV-B"),
    (
        "a flush request",
        "at most 4 MiB and 1,024 pieces, 8 under way per client and server",
        Source::Ours,
        "as in the product",
    ),
    (
        "a network card",
        "takes connections by turns, packet by packet: a message without data waits for no data of other connections",
        Source::Chosen,
        "InfiniBand does so, and the paper's RPCs and data go by connections of their own (IV); data wait for data, whole messages \
         one after the other. The explanation of Fig. 21 tries whole messages for all",
    ),
    ("a message beside its data", "128 bytes", Source::Ours, "about what ours have"),
    (
        "a data server",
        "one shard: one queue for RPCs and flushes, one device",
        Source::Chosen,
        "the paper's 213 kOPS are those of a whole server",
    ),
];

/// A set of values for the parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    values: Vec<(Knob, f64)>,
    /// How it differs from [`PARAMETERS`]; empty if it does not.
    pub name: String,
}

impl Default for Hardware {
    fn default() -> Hardware {
        Hardware {
            values: PARAMETERS.iter().map(|parameter| (parameter.knob, parameter.value)).collect(),
            name: String::new(),
        }
    }
}

impl Hardware {
    /// The value of a parameter.
    #[must_use]
    pub fn get(&self, knob: Knob) -> f64 {
        self.values.iter().find(|(known, _)| *known == knob).map_or(0.0, |(_, value)| *value)
    }

    /// The same with one parameter changed.
    #[must_use]
    pub fn with(&self, knob: Knob, value: f64, name: &str) -> Hardware {
        let mut changed = self.clone();
        changed.values.iter_mut().filter(|(known, _)| *known == knob).for_each(|known| known.1 = value);
        changed.name = if self.name.is_empty() { name.to_owned() } else { format!("{}, {name}", self.name) };
        changed
    }

    /// The same with one parameter multiplied.
    #[must_use]
    pub fn scaled(&self, knob: Knob, factor: f64, name: &str) -> Hardware {
        self.with(knob, self.get(knob) * factor, name)
    }

    /// Table I's network and device: a round trip of 1 µs, 3 GB/s, and no copy in the server.
    #[must_use]
    pub fn nominal(&self) -> Hardware {
        let fast = self.with(Knob::RoundTrip, 1.0, "Table I's values");
        let mut nominal = fast.with(Knob::DeviceRate, 3e9, "").with(Knob::ServerCopyRate, 0.0, "");
        nominal.name = "Table I's values".to_owned();
        nominal
    }

    /// Puts the values into a configuration.
    pub fn apply(&self, config: &mut Config) {
        config.server.rpc_ns = per(self.get(Knob::RpcRate));
        config.server.send_ns = per(self.get(Knob::RpcRate));
        config.server.write_ns = per(self.get(Knob::FlushRate));
        config.server.copy_bytes_per_s = whole(self.get(Knob::ServerCopyRate));
        config.net.nic_bytes_per_s = whole(self.get(Knob::NicRate));
        config.net.latency_ns = whole(self.get(Knob::RoundTrip) * 500.0);
        config.client.copy_bytes_per_s = whole(self.get(Knob::CopyRate));
        config.disk.bytes_per_s = whole(self.get(Knob::DeviceRate));
        config.disk.latency_ns = whole(self.get(Knob::DeviceLatency) * 1000.0);
        config.disk.request_ns = whole(self.get(Knob::DeviceRequest) * 1000.0);
    }
}

/// Nanoseconds of one when there are so many per second.
fn per(rate: f64) -> u64 {
    if rate > 0.0 { whole(1e9 / rate) } else { 0 }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "parameters are positive and far below 2^53"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_a_configuration() {
        let mut config = Config::default();
        Hardware::default().apply(&mut config);
        assert_eq!(config.server.rpc_ns, 4695);
        assert_eq!(config.net.latency_ns, 15_000);
        assert_eq!(config.client.copy_bytes_per_s, 2_075_000_000);
        assert_eq!(config.disk.bytes_per_s / 1_000_000, 1898);
        let slow = Hardware::default().scaled(Knob::DeviceRate, 0.5, "half");
        slow.apply(&mut config);
        assert_eq!(config.disk.bytes_per_s / 1_000_000, 949);
        assert_eq!(slow.name, "half");
    }
}
