//! Exploration: seed after seed on all cores, until the seeds or the time are used up, or enough was found.

use crate::Seen;
use crate::checkers::Gaps;
use crate::run::{Failure, run};
use crate::swarm;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What to explore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exploration {
    /// The seeds.
    pub seeds: Range<u64>,
    /// Wall-clock time after which no seed is begun.
    pub time_max: Option<Duration>,
    /// Threads that run seeds, at least one.
    pub threads: usize,
    /// Failures after which no seed is begun.
    pub failures_max: usize,
}

/// What came of an exploration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
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
    /// What was met of what is rare.
    pub seen: Seen,
    /// Seeds that broke a promise, and how, in order.
    pub failures: Vec<(u64, Failure)>,
}

/// Gaps that the documents admit, as they were met: name, how often, and why they are none of the product's mistakes.
#[must_use]
pub fn expected_gaps(gaps: &Gaps) -> Vec<(&'static str, u64, &'static str)> {
    vec![
        (
            "reads by clients that were cut off",
            gaps.reads_while_evicted,
            "until a client hears of its eviction it may read its own cache",
        ),
        (
            "writes lost",
            gaps.writes_lost,
            "with a session, a device or a server's power; no fsync had vouched for them, and there is no recovery by replay in this release",
        ),
    ]
}

/// How often what is rare was met: what it is, and how often.
#[must_use]
pub fn met(seen: &Seen) -> Vec<(&'static str, u64)> {
    vec![
        ("locks asked for as one of several on a stripe", seen.parts),
        ("locks asked for without waiting", seen.tried),
        ("refusals of those", seen.refused),
        ("locks given up because one before them was refused", seen.given_up),
        ("locks asked for while one before them was waited for", seen.ahead),
        ("locks narrowed", seen.narrowed),
    ]
}

/// What an exploration does not look at, and why: name and reason.
#[must_use]
pub const fn not_explored() -> &'static [(&'static str, &'static str)] {
    &[
        ("recovery by replay", "the product has none in this release: a lost connection is an eviction"),
        (
            "bytes under a flush that failed",
            "a newer flush that fails hides the older one that it covered (R12)",
        ),
        ("destroyed files", "calls of plans do not unlink"),
        ("operations larger than half of the cache", "pages are not counted; such calls work in chunks"),
        (
            "groups",
            "the checkers know one file for all; among members of a group nothing of that holds but the order of their own writes",
        ),
        ("advice", "no call of a plan asks for locks that it does not use: the product's own tests do"),
        ("damaged data", "links and devices lose and delay; they do not flip bits"),
    ]
}

/// Runs seeds. `progress` is told how many have been run.
pub fn explore(what: &Exploration, progress: &(dyn Fn(u64) + Sync)) -> Found {
    let began = Instant::now();
    let next = AtomicU64::new(what.seeds.start);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..what.threads.max(1) {
            scope.spawn(|| {
                while let Some(seed) = next_seed(what, &next, began, &found) {
                    let report = run(&swarm::plan(seed), false);
                    let mut found = found.lock().expect("no code panics under this lock");
                    found.seeds += 1;
                    found.events += report.events;
                    found.virtual_ns += report.virtual_ns;
                    found.gaps.reads_while_evicted += report.gaps.reads_while_evicted;
                    found.gaps.writes_lost += report.gaps.writes_lost;
                    found.seen.add(report.seen);
                    found.failures.extend(report.failure.map(|failure| (seed, failure)));
                    progress(found.seeds);
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no code panics under this lock");
    found.failures.sort_by_key(|(seed, _)| *seed);
    found.elapsed = began.elapsed();
    found
}

/// The next seed to run, unless it is enough.
fn next_seed(what: &Exploration, next: &AtomicU64, began: Instant, found: &Mutex<Found>) -> Option<u64> {
    let failures = found.lock().expect("no code panics under this lock").failures.len();
    let late = what.time_max.is_some_and(|most| began.elapsed() >= most);
    let seed = next.fetch_add(1, Ordering::Relaxed);
    (seed < what.seeds.end && !late && failures < what.failures_max.max(1)).then_some(seed)
}

/// Keeps panics of rules from being printed as they happen: a run reports them like other failures. For commands.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}
