//! Exploration: seed after seed on all cores, until the seeds or the time are used up, or enough was found.

use crate::checkers::Gaps;
use crate::run::{Failure, run};
use crate::swarm;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to explore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The first seed.
    pub first: u64,
    /// How many seeds, one after the other.
    pub seeds: u64,
    /// Wall-clock time after which no seed is begun.
    pub time_max: Option<Duration>,
    /// Threads that run seeds, at least one.
    pub threads: usize,
    /// Failures after which no seed is begun.
    pub failures_max: usize,
}

impl Default for Options {
    fn default() -> Options {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Options { first: 0, seeds: 10_000, time_max: None, threads, failures_max: 10 }
    }
}

/// A seed whose run broke a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which seed.
    pub seed: u64,
    /// What was broken.
    pub failure: Failure,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {0}: {1}\n  again: ccpfs sim replay {0}", self.seed, self.failure)
    }
}

/// What came of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Events that happened in all of them.
    pub events: u64,
    /// Virtual time that passed in all of them, nanoseconds.
    pub virtual_ns: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
    /// Gaps that the documents admit.
    pub gaps: Gaps,
    /// What was broken, by seed.
    pub found: Vec<Found>,
}

impl Summary {
    /// Seeds per second of wall-clock time.
    #[must_use]
    pub fn seeds_per_s(&self) -> f64 {
        self.seeds as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for found in &self.found {
            writeln!(f, "{found}")?;
        }
        writeln!(
            f,
            "{} seeds in {:.1} s ({:.0} per second): {} events, {:.1} s of virtual time, {} broken",
            self.seeds,
            self.elapsed.as_secs_f64(),
            self.seeds_per_s(),
            self.events,
            self.virtual_ns as f64 / 1e9,
            self.found.len()
        )?;
        writeln!(
            f,
            "admitted by the documents: {} reads by clients that did not know yet that they were evicted, {} writes lost with a \
             session, a device or a server's power",
            self.gaps.reads_while_evicted, self.gaps.writes_lost
        )?;
        writeln!(f, "expected gaps, not explored:")?;
        for gap in expected_gaps() {
            writeln!(f, "  {}: {}", gap.name, gap.reason)?;
        }
        Ok(())
    }
}

/// Something that the product does not do, or the laboratory does not look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedGap {
    /// In a few words.
    pub name: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// What an exploration cannot find, and why.
#[must_use]
pub const fn expected_gaps() -> &'static [ExpectedGap] {
    &[
        ExpectedGap {
            name: "recovery by replay",
            reason: "the product has none in this release: a lost connection is an eviction, unflushed data are lost and reported",
        },
        ExpectedGap {
            name: "reads of a client that is cut off",
            reason: "until it hears of its eviction it may read its cache; counted above, not a violation",
        },
        ExpectedGap {
            name: "device errors",
            reason: "a newer flush that fails hides the older one that it covered (R12); who syncs is told",
        },
        ExpectedGap { name: "destroyed files", reason: "calls of plans do not unlink" },
        ExpectedGap {
            name: "page pool",
            reason: "operations larger than half of the cache, which work in chunks, are not simulated",
        },
        ExpectedGap { name: "damaged data", reason: "links and devices lose and delay, they do not flip bits" },
    ]
}

/// Runs seeds. `progress` is told now and then how many have been run.
pub fn explore(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Summary {
    let began = Instant::now();
    let next = AtomicU64::new(0);
    let summary = Mutex::new(Summary::default());
    let lock = || summary.lock().expect("no code panics under this lock");
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let late = options.time_max.is_some_and(|most| began.elapsed() >= most);
                    if index >= options.seeds || late || lock().found.len() >= options.failures_max.max(1) {
                        return;
                    }
                    let seed = options.first.wrapping_add(index);
                    let report = run(&swarm::plan(seed), false);
                    let mut summary = lock();
                    summary.seeds += 1;
                    summary.events += report.events;
                    summary.virtual_ns += report.virtual_ns;
                    summary.gaps.reads_while_evicted += report.gaps.reads_while_evicted;
                    summary.gaps.writes_lost += report.gaps.writes_lost;
                    summary.found.extend(report.failure.map(|failure| Found { seed, failure }));
                    let seeds = summary.seeds;
                    drop(summary);
                    if seeds.is_multiple_of(1000) {
                        progress(seeds);
                    }
                }
            });
        }
    });
    let mut summary = summary.into_inner().expect("no code panics under this lock");
    summary.found.sort_by_key(|found| found.seed);
    summary.elapsed = began.elapsed();
    summary
}

/// Keeps panics of rules from being printed as they happen: a run reports them like other failures. For commands.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
