//! From a seed to a plan: a random small cluster, random calls, random faults, random features switched on and off.

use crate::config::{ClientConfig, Config, DiskConfig, FileConfig, NetConfig, ServerConfig, Sizes};
use crate::history::{Call, Comb};
use crate::random::Random;
use crate::workload::Thread;
use crate::workload::plan::{FaultPlan, Plan, PlannedCall, PlannedFault};
use ccpfs_types::{Expansion, Extent, Policy};

/// Bytes of a stripe's unit: the smallest that a layout may have.
const UNIT: u64 = 4096;
/// No call reaches beyond this offset.
const REACH: u64 = 6 * UNIT;
const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;

/// The plan of a seed.
#[must_use]
pub fn plan(seed: u64) -> Plan {
    let root = Random::new(seed);
    let mut random = root.split("world");
    let config = config(&mut random);
    let mut plan = Plan { seed, config, calls: Vec::new(), faults: Vec::new() };
    let mut random = root.split("calls");
    calls(&mut plan, &mut random);
    let mut random = root.split("faults");
    faults(&mut plan, &mut random);
    let mut random = root.split("combs");
    combs(&mut plan, &mut random);
    let mut random = root.split("terms");
    terms(&mut plan.config.client, &mut random);
    plan
}

fn config(random: &mut Random) -> Config {
    let sizes = Sizes {
        clients: random.range(2, 4),
        threads: *random.pick(&[1, 1, 2, 3]),
        servers: *random.pick(&[1, 1, 1, 2]),
        shards: *random.pick(&[1, 1, 2]),
        contents: 1,
        codec: u64::from(random.chance(50)),
    };
    let files = (0..*random.pick(&[1, 1, 1, 2]))
        .map(|_| FileConfig {
            stripes: *random.pick(&[1, 1, 2, 3]),
            stripe_bytes: *random.pick(&[UNIT, UNIT, 2 * UNIT]),
        })
        .collect();
    let latency_ns = *random.pick(&[1, 10, 50]) * MICROSECOND;
    let net = NetConfig {
        latency_ns,
        jitter_ns: *random.pick(&[0, latency_ns, 5 * latency_ns, 30 * latency_ns]),
        spike_per_mille: *random.pick(&[0, 0, 5, 30]),
        spike_ns: 2 * MILLISECOND,
        ..NetConfig::default()
    };
    let disk = DiskConfig {
        latency_ns: *random.pick(&[1, 20, 200]) * MICROSECOND,
        jitter_ns: *random.pick(&[0, 20, 500, 500, 40_000]) * MICROSECOND,
        ..DiskConfig::default()
    };
    let mut client = client(random);
    if disk.jitter_ns > 10 * MILLISECOND {
        // A flush takes longer than the revocation timeout. Many of them one after the other would use up even the patience that
        // a server has with clients that answer.
        client.flush_bytes_max = 1 << 20;
        client.flush_pieces_max = 1024;
    }
    Config { sizes, files, policy: policy(random), client, server: server(random), net, disk }
}

fn policy(random: &mut Random) -> Policy {
    let mut policy =
        *random.pick(&[Policy::SEQDLM, Policy::SEQDLM, Policy::SEQDLM, Policy::BASIC, Policy::LUSTRE]);
    if random.chance(400) {
        for switch in [
            &mut policy.write_modes,
            &mut policy.early_grant,
            &mut policy.early_revocation,
            &mut policy.upgrading,
            &mut policy.downgrading,
            &mut policy.adaptive_range,
        ] {
            *switch ^= random.chance(300);
        }
        policy.expansion =
            *random.pick(&[Expansion::Exact, Expansion::Greedy, Expansion::PastWaiting, Expansion::Lustre]);
        policy.granularity_bytes = *random.pick(&[1, 512, 4096]);
    }
    policy
}

fn client(random: &mut Random) -> ClientConfig {
    ClientConfig {
        locks_max: *random.pick(&[1, 2, 3, 8, 8192]),
        age_ticks_max: *random.pick(&[0, 1, 3, 30]),
        put_off_max: *random.pick(&[0, 1, 3, 256]),
        flush_bytes_max: *random.pick(&[512, UNIT, 1 << 20]),
        flush_pieces_max: *random.pick(&[1, 2, 1024]),
        flush_jobs_max: *random.pick(&[1, 2, 8]),
        dirty_bytes_min: *random.pick(&[0, 2000, 1 << 30]),
        dirty_bytes_max: *random.pick(&[4000, 1 << 31, 1 << 31]),
        read_ahead_bytes: *random.pick(&[0, 0, 3000]),
        tick_ns: *random.pick(&[1, 3, 10]) * MILLISECOND,
        server_timeout_ns: 60 * MILLISECOND,
        connect_timeout_ns: 100 * MILLISECOND,
        wake_jitter_ns: *random.pick(&[0, 1, 20, 200]) * MICROSECOND,
        send_jitter_ns: *random.pick(&[0, 0, 5, 50]) * MICROSECOND,
        live_pages_per_mille: *random.pick(&[0, 500, 1000]),
        ..ClientConfig::default()
    }
}

fn server(random: &mut Random) -> ServerConfig {
    ServerConfig {
        revoke_timeout_ns: 30 * MILLISECOND,
        entries_max: *random.pick(&[0, 1, 3, 1 << 18, 1 << 18]),
        ..ServerConfig::default()
    }
}

/// What kinds of calls a plan has, each so many times as likely as others.
struct Mix {
    weights: [u64; 6],
    grid: u64,
}

fn calls(plan: &mut Plan, random: &mut Random) {
    let count = random.range(8, 40);
    let weight = |random: &mut Random| *random.pick(&[0, 1, 3]);
    let mut mix = Mix { weights: [1; 6], grid: *random.pick(&[1, 256, 1024, UNIT]) };
    // write, read, append, truncate, size, fsync
    mix.weights = std::array::from_fn(|_| weight(random));
    mix.weights[0] += 2;
    mix.weights[1] += 1;
    let bursts = *random.pick(&[0, 20, 300]) * MICROSECOND;
    for _ in 0..count {
        let thread = Thread {
            client: small(random.below(plan.config.sizes.clients)),
            thread: small(random.below(plan.config.sizes.threads)),
        };
        let after_ns = if random.chance(600) { 0 } else { random.below(bursts + 1) };
        let file = small(random.below(plan.config.files.len() as u64));
        let call = call(&mix, file, random);
        plan.calls.push(PlannedCall { thread, after_ns, call });
    }
}

fn call(mix: &Mix, file: u32, random: &mut Random) -> Call {
    let mut luck = random.below(mix.weights.iter().sum());
    let mut kind = 0;
    while luck >= mix.weights[kind] {
        luck -= mix.weights[kind];
        kind += 1;
    }
    match kind {
        0 => Call::Write { file, extent: extent(mix, random), comb: Comb::NONE },
        1 => Call::Read { file, extent: extent(mix, random), comb: Comb::NONE },
        2 => Call::Append { file, length: random.range(1, 2 * UNIT) },
        3 => Call::Truncate { file, length: random.below(REACH / mix.grid) * mix.grid },
        4 => Call::Size { file },
        _ => Call::Fsync { file },
    }
}

/// Some worlds have calls for pieces at a stride, and clients that ask for more of the kind. Drawn apart from the rest, which is
/// the same with and without.
fn combs(plan: &mut Plan, random: &mut Random) {
    if !random.chance(350) {
        return;
    }
    plan.config.client.desired_stride_bytes = *random.pick(&[0, 600, UNIT, 2 * UNIT + 100]);
    let grid = *random.pick(&[1, 64, 256]);
    for planned in &mut plan.calls {
        let (Call::Write { extent, comb, .. } | Call::Read { extent, comb, .. }) = &mut planned.call else {
            continue;
        };
        if random.chance(400) {
            continue;
        }
        let length = random.range(1, 3) * grid;
        let stride = length + random.range(1, 12) * grid;
        let count = (extent.length() / stride).min(12);
        if count > 0 {
            *extent = Extent::with_length(extent.start(), count * stride + length).expect("some bytes");
            *comb = Comb { length, stride };
        }
    }
}

/// How calls for pieces ask for their locks: as one for each stripe, as several, one after the other or without waiting.
fn terms(client: &mut ClientConfig, random: &mut Random) {
    client.lock_kind = *random.pick(&[0, 1, 1, 2, 2, 3]);
    client.lock_protocol = random.below(3);
    client.lock_list_max = *random.pick(&[1, 2, 3, 64]);
    client.lock_sections_max = *random.pick(&[1, 2, 128]);
    client.lock_at_once = *random.pick(&[1, 2, 64]);
}

fn extent(mix: &Mix, random: &mut Random) -> Extent {
    let longest = *random.pick(&[100, UNIT, 3 * UNIT, REACH]);
    let start = random.below(REACH / mix.grid) * mix.grid;
    let length = random.range(1, longest).next_multiple_of(mix.grid).min(REACH);
    Extent::with_length(start, length).expect("some bytes")
}

fn faults(plan: &mut Plan, random: &mut Random) {
    // Memory and lock pressure is no fault, and harms nobody.
    for _ in 0..*random.pick(&[0, 0, 1, 4]) {
        let client = random.below(plan.config.sizes.clients);
        let kind = *random.pick(&[FaultPlan::Shrink { client }, FaultPlan::Reclaim { client }]);
        plan.faults.push(PlannedFault { at_ns: random.below(4 * MILLISECOND), kind });
    }
    if random.chance(400) {
        return;
    }
    let kinds: Vec<u64> = (0..9).filter(|_| random.chance(350)).collect();
    if kinds.is_empty() {
        return;
    }
    let span = *random.pick(&[1, 5, 40]) * MILLISECOND;
    for _ in 0..random.range(1, 4) {
        let kind = fault(*random.pick(&kinds), plan, random);
        plan.faults.push(PlannedFault { at_ns: random.below(span), kind });
    }
}

fn fault(kind: u64, plan: &Plan, random: &mut Random) -> FaultPlan {
    let sizes = &plan.config.sizes;
    let (client, server) = (random.below(sizes.clients), random.below(sizes.servers));
    let for_ns = *random.pick(&[MILLISECOND / 10, MILLISECOND, 10 * MILLISECOND, 100 * MILLISECOND]);
    let for_ns = random.range(for_ns / 10, for_ns);
    match kind {
        0 => FaultPlan::Cut {
            client,
            target: random.below(sizes.servers * sizes.shards),
            channel: random.below(3),
        },
        1 => FaultPlan::Partition { client, server, for_ns },
        2 => FaultPlan::FreezeClient { client, for_ns },
        3 => FaultPlan::FreezeServer { server, for_ns },
        4 => FaultPlan::CrashClient { client, for_ns },
        5 => FaultPlan::KillServer { server, for_ns },
        6 => FaultPlan::LosePower { server, for_ns },
        7 => FaultPlan::Leave { client },
        _ => FaultPlan::DeviceErrors { per_mille: *random.pick(&[50, 300, 1000]), for_ns: for_ns / 10 },
    }
}

fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a small number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan_and_its_text_is_the_same_plan() {
        for seed in 0..200 {
            let plan = plan(seed);
            assert_eq!(plan, super::plan(seed));
            assert_eq!(Plan::read(&plan.to_text()), Ok(plan));
        }
    }
}
