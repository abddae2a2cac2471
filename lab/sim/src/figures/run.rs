//! One run: what is simulated, and what came out; many runs over several threads.

use super::applications::Applications;
use super::hardware::Hardware;
use super::program::{Pattern, STRIPE_BYTES};
use crate::config::{Config, FileConfig};
use crate::node::meter::Meter;
use crate::taking::{Kind, Protocol};
use crate::world::World;
use ccpfs_shard::Counters;
use ccpfs_types::Policy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Which lock mode writes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// What the product chooses.
    Chosen,
    /// NBW.
    Nbw,
    /// BW.
    Bw,
    /// PW.
    Pw,
}

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// Lock manager: the product's, under a policy.
    pub policy: Policy,
    /// Lock mode of writes.
    pub mode: WriteMode,
    /// What the applications do.
    pub pattern: Pattern,
    /// Client nodes.
    pub clients: u64,
    /// Threads of each.
    pub threads: u64,
    /// Stripes of a file, each on a server of its own.
    pub stripes: u32,
    /// Bytes of a unit of each.
    pub stripe_bytes: u64,
    /// Every call locks whole stripes, as in the paper's micro-benchmarks.
    pub locks_whole: bool,
    /// Dirty bytes at which writers wait.
    pub dirty_bytes_max: u64,
    /// The machines.
    pub hardware: Hardware,
    /// Every canceled lock is flushed at once and alone, instead of many together a little later.
    pub eager: bool,
    /// Network cards take whole messages one after the other: a request for a lock waits for megabytes of others' data.
    pub in_line: bool,
    /// A copy takes up to so much longer, nanoseconds: clients are not in step for ever.
    pub jitter_ns: u64,
    /// Clients see that their calls lie so far behind each other on a stripe, bytes, and desire so many of them; 0: not.
    pub desired: (u64, u64),
    /// All clients share a group lock.
    pub group: bool,
    /// What requests of noncontiguous calls say; nothing: one lock on each stripe around all of them.
    pub kind: Option<Kind>,
    /// How they are made.
    pub protocol: Protocol,
}

/// The product under a policy by name.
///
/// # Panics
///
/// If there is no policy of this name.
#[must_use]
pub fn policy(name: &str) -> Policy {
    name.parse().expect("figures name policies that exist")
}

impl Spec {
    /// One stripe, one thread per client, modes as the product chooses, the default machines.
    #[must_use]
    pub fn new(policy: Policy, pattern: Pattern, clients: u64) -> Spec {
        Spec {
            policy,
            mode: WriteMode::Chosen,
            pattern,
            clients,
            threads: 1,
            stripes: 1,
            stripe_bytes: STRIPE_BYTES,
            locks_whole: pattern.locks_whole(),
            dirty_bytes_max: 4 << 30,
            hardware: Hardware::default(),
            eager: false,
            in_line: false,
            jitter_ns: 0,
            desired: (0, 0),
            group: false,
            kind: None,
            protocol: Protocol::AltTry,
        }
    }

    fn key(&self) -> String {
        format!("{self:?}")
    }

    /// About how much work it is to simulate: calls.
    #[must_use]
    fn weight(&self) -> u64 {
        let calls = self.clients * self.threads * u64::from(self.stripes).isqrt();
        let place =
            super::program::Place { client: 0, clients: self.clients, thread: 0, threads: self.threads };
        // A tile or a block is much to copy for one call.
        let pieces = match self.pattern {
            Pattern::Tiles { side, .. } | Pattern::Checkpoint { side } => side,
            Pattern::Results(search) => search.results / search.workers + 1,
            Pattern::Separate { .. }
            | Pattern::Segmented { .. }
            | Pattern::Strided { .. }
            | Pattern::RoundRobin { .. }
            | Pattern::Mixed { .. }
            | Pattern::TwoStripes { .. }
            | Pattern::Particles { .. } => 1,
        };
        calls * self.pattern.calls(place).max(1) * pieces
    }

    /// As the simulator's configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        let mut config = Config { policy: self.policy, ..Config::default() };
        config.sizes.clients = self.clients;
        config.sizes.threads = self.threads;
        config.sizes.servers = u64::from(self.stripes);
        config.sizes.contents = 0;
        let file = FileConfig { stripes: self.stripes, stripe_bytes: self.stripe_bytes };
        config.files = (0..self.pattern.files(self.clients)).map(|_| file).collect();
        config.client.dirty_bytes_max = self.dirty_bytes_max;
        config.client.lock_whole = u64::from(self.locks_whole);
        config.client.write_mode = match self.mode {
            WriteMode::Chosen => 0,
            WriteMode::Nbw => 1,
            WriteMode::Bw => 2,
            WriteMode::Pw => 3,
        };
        if self.eager {
            config.client.put_off_max = 0;
            config.client.flush_pieces_max = 1;
        }
        config.net.by_packets = u64::from(!self.in_line);
        config.client.wake_jitter_ns = self.jitter_ns;
        (config.client.desired_stride_bytes, config.client.desired_copies) = self.desired;
        config.client.group = u64::from(self.group);
        config.client.lock_kind = match self.kind {
            None => 0,
            Some(Kind::Datatype) => 1,
            Some(Kind::List) => 2,
            Some(Kind::Posix) => 3,
        };
        config.client.lock_protocol = match self.protocol {
            Protocol::TwoPhase => 0,
            Protocol::OneTry => 1,
            Protocol::AltTry => 2,
        };
        self.hardware.apply(&mut config);
        config
    }
}

/// What came out of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// PIO: seconds until the last call returned.
    pub pio_s: f64,
    /// F: seconds from then until all was flushed.
    pub flush_s: f64,
    /// Bytes written.
    pub bytes: u64,
    /// Calls.
    pub calls: u64,
    /// Sum over the calls of the time until each had its locks, seconds.
    pub locking_s: f64,
    /// Sum of the time of all calls, seconds.
    pub calling_s: f64,
    /// Sum over the server's revocations of the time until the reply, seconds.
    pub revoking_s: f64,
    /// Sum over the grants that waited for a revocation of the time from the reply until the grant, seconds.
    pub canceling_s: f64,
    /// Requests for locks, all servers.
    pub requests: u64,
    /// Revocations that servers sent.
    pub revocations: u64,
    /// Flush requests.
    pub flushes: u64,
    /// Busy time of the busiest server's request queue, seconds.
    pub server_busy_s: f64,
    /// The same until the last call returned, seconds.
    pub server_busy_pio_s: f64,
    /// Busy time of the request queues of all servers, seconds.
    pub servers_busy_s: f64,
    /// Bytes given to devices: less than written where newer data were there already.
    pub destaged_bytes: u64,
    /// Events that were simulated.
    pub events: u64,
    /// Processor time that the simulation took, seconds.
    pub cpu_s: f64,
}

impl Outcome {
    /// Bytes per second by PIO time.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        over(self.bytes as f64, self.pio_s)
    }

    /// Calls per second by PIO time.
    #[must_use]
    pub fn rate(&self) -> f64 {
        over(self.calls as f64, self.pio_s)
    }

    /// PIO and F, seconds.
    #[must_use]
    pub fn total_s(&self) -> f64 {
        self.pio_s + self.flush_s
    }

    /// PIO as a part of the total.
    #[must_use]
    pub fn pio_share(&self) -> f64 {
        over(self.pio_s, self.total_s())
    }
}

/// A quotient, 0 if there is nothing to divide by.
#[must_use]
pub fn over(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// Simulates one run.
///
/// # Errors
///
/// If a call fails, or something that must never happen has happened.
pub fn run(spec: &Spec) -> Result<Outcome, String> {
    let start = Stopwatch::start();
    let mut outcome = simulate(spec)?;
    outcome.cpu_s = start.elapsed_s();
    Ok(outcome)
}

/// Processor time of this thread, so that a busy machine does not make the rules look slow; passing time where there is no
/// such clock.
struct Stopwatch {
    cpu_ns: Option<u64>,
    since: Instant,
}

impl Stopwatch {
    fn start() -> Stopwatch {
        Stopwatch { cpu_ns: thread_cpu_ns(), since: Instant::now() }
    }

    fn elapsed_s(&self) -> f64 {
        match (self.cpu_ns, thread_cpu_ns()) {
            (Some(before), Some(now)) => seconds(now.saturating_sub(before)),
            (None, _) | (_, None) => self.since.elapsed().as_secs_f64(),
        }
    }
}

/// The first number that Linux tells about a thread's schedule: nanoseconds on a processor.
fn thread_cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_ascii_whitespace().next()?.parse().ok()
}

fn simulate(spec: &Spec) -> Result<Outcome, String> {
    let config = spec.config();
    let applications = Applications::new(spec.pattern, spec.clients, spec.threads);
    let mut world = World::new(&config, 1, applications, &[], false);
    world.run_until(u64::MAX, |world| world.workload.has_worked());
    let busy_pio_ns = world.shards.iter().map(|shard| shard.meter.busy_ns).max().unwrap_or(0);
    let is_done = world.run(u64::MAX);
    if let Some(complaint) = world.complaint() {
        return Err(complaint.to_owned());
    }
    if !is_done {
        return Err(format!(
            "nothing happens any more, and some calls have not returned: {}",
            world.standing()
        ));
    }
    let times = world.workload.times.clone();
    if let Some(error) = times.error {
        return Err(error);
    }
    let sum = |value: fn(&Meter) -> u64| seconds(world.shards.iter().map(|shard| value(&shard.meter)).sum());
    let busiest_ns = world.shards.iter().map(|shard| shard.meter.busy_ns).max().unwrap_or(0);
    let count = |value: fn(&Counters) -> u64| world.counters().map(|counters| value(&counters)).sum();
    Ok(Outcome {
        pio_s: seconds(times.worked_ns - times.begin_ns),
        flush_s: seconds(times.flushed_ns - times.worked_ns),
        bytes: times.bytes,
        calls: times.calls,
        locking_s: seconds(times.locking_ns),
        calling_s: seconds(times.calling_ns),
        revoking_s: sum(|meter| meter.revoking_ns),
        canceling_s: sum(|meter| meter.canceling_ns),
        requests: count(|counters| counters.locks.requests),
        revocations: count(|counters| counters.locks.revocations),
        flushes: count(|counters| counters.data.writes),
        server_busy_s: seconds(busiest_ns),
        server_busy_pio_s: seconds(busy_pio_ns),
        servers_busy_s: sum(|meter| meter.busy_ns),
        destaged_bytes: world.device_bytes(),
        events: world.events(),
        cpu_s: 0.0,
    })
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Outcomes of many runs, by what was simulated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Outcomes {
    found: BTreeMap<String, Outcome>,
}

impl Outcomes {
    /// The outcome of a run.
    ///
    /// # Panics
    ///
    /// If it was not among the runs.
    #[must_use]
    pub fn of(&self, spec: &Spec) -> &Outcome {
        self.found.get(&spec.key()).expect("a figure lists every run that it reads")
    }

    /// Events and seconds of simulation of all of them.
    #[must_use]
    pub fn cost(&self) -> (u64, f64) {
        let events = self.found.values().map(|outcome| outcome.events).sum();
        (events, self.found.values().map(|outcome| outcome.cpu_s).sum())
    }
}

/// How far many runs are.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all.
    pub of: usize,
    /// All that has come out so far, with what was known before.
    pub found: &'a Outcomes,
}

/// Simulates all runs but those that are known, equal ones once, over so many threads.
///
/// # Errors
///
/// The first run that fails, with what it was.
pub fn run_all(
    specs: &[Spec],
    known: &Outcomes,
    threads: usize,
    progress: &(dyn Fn(Step<'_>) + Sync),
) -> Result<Outcomes, String> {
    let distinct: BTreeMap<String, &Spec> = specs.iter().map(|spec| (spec.key(), spec)).collect();
    let is_known = |key: &String| known.found.contains_key(key);
    let found =
        distinct.keys().filter(|key| is_known(key)).map(|key| (key.clone(), known.found[key].clone()));
    let found = Outcomes { found: found.collect() };
    let mut ordered: Vec<(String, &Spec)> = distinct.into_iter().filter(|(key, _)| !is_known(key)).collect();
    ordered.sort_by_key(|(_, spec)| std::cmp::Reverse(spec.weight()));
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let known = found.found.len();
    let outcomes: Mutex<Result<Outcomes, String>> = Mutex::new(Ok(found));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) {
                    let Some((key, spec)) = ordered.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    let outcome = run(spec);
                    failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                    let mut all = outcomes.lock().expect("no code panics under this lock");
                    note(&mut all, key, outcome);
                    if let Ok(found) = &*all {
                        progress(Step { done: found.found.len() - known, of: ordered.len(), found });
                    }
                }
            });
        }
    });
    outcomes.into_inner().expect("no code panics under this lock")
}

fn note(all: &mut Result<Outcomes, String>, key: &str, outcome: Result<Outcome, String>) {
    match (outcome, &mut *all) {
        (Ok(outcome), Ok(all)) => drop(all.found.insert(key.to_owned(), outcome)),
        (Err(error), Ok(_)) => *all = Err(format!("{key}: {error}")),
        (Ok(_) | Err(_), Err(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_known_from_a_file_are_not_simulated_again() {
        let spec =
            |clients| Spec::new(policy("seqdlm"), Pattern::Strided { block: 4096, writes: 2 }, clients);
        let first = run_all(&[spec(2), spec(2)], &Outcomes::default(), 2, &|_| ()).unwrap();
        assert_eq!(first.of(&spec(2)).calls, 4);
        let known: Outcomes = serde_json::from_str(&serde_json::to_string(&first).unwrap()).unwrap();
        let simulated = AtomicUsize::new(0);
        let count = |step: Step<'_>| {
            assert_eq!((step.done, step.of, step.found.found.len()), (1, 1, 2));
            simulated.fetch_add(1, Ordering::Relaxed);
        };
        let both = run_all(&[spec(2), spec(3)], &known, 2, &count).unwrap();
        assert_eq!(simulated.load(Ordering::Relaxed), 1);
        assert_eq!((both.of(&spec(2)), both.of(&spec(3)).calls), (known.of(&spec(2)), 6));
    }
}
