//! One search: a world, its limits, and what came of it.

use crate::config::Config;
use crate::mark::Mark;
use crate::state::State;
use crate::world::World;
use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How a search ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All states were looked at, and nothing is broken.
    Exhausted,
    /// The limit on states or time was reached, and nothing is broken so far.
    Bounded,
    /// Something is broken.
    Violation {
        /// What.
        what: String,
        /// How it comes to that, step by step.
        path: Vec<String>,
    },
}

/// What came of a search.
#[derive(Clone, Debug)]
pub struct Report {
    /// Which world.
    pub config: &'static str,
    /// States generated, those that were known included.
    pub states: usize,
    /// Different states.
    pub unique: usize,
    /// Longest way from the start, in steps.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// What was met.
    pub marks: Vec<Mark>,
    /// How it ended.
    pub outcome: Outcome,
}

/// How far to search.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Unique states after which the search ends; `None` for those of the configuration, `Some(0)` for none at all.
    pub states_max: Option<usize>,
    /// Time after which it ends.
    pub time_max: Option<Duration>,
    /// Threads.
    pub threads: usize,
}

/// Searches a world breadth first until something is broken, all states are known, or a limit is reached.
#[must_use]
pub fn check(config: &'static Config, limits: &Limits) -> Report {
    let world = World::new(config);
    let states_max = match limits.states_max {
        Some(0) => None,
        Some(states) => Some(states),
        None => config.states_max,
    };
    let began = Instant::now();
    let mut builder =
        world.clone().checker().threads(limits.threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(time) = limits.time_max {
        builder = builder.timeout(time);
    }
    // Stateright counts generated states: about three for each that is new.
    if let Some(states) = states_max {
        builder = builder.target_state_count(states.saturating_mul(GENERATED_PER_UNIQUE));
    }
    let checker = builder.spawn_bfs().join();
    let (states, unique) = (checker.state_count(), checker.unique_state_count());
    let bounded = states_max.is_some_and(|max| states >= max.saturating_mul(GENERATED_PER_UNIQUE))
        || limits.time_max.is_some_and(|time| began.elapsed() >= time);
    let shortest = checker.discoveries().into_values().min_by_key(|path| path.clone().into_vec().len());
    let outcome = match shortest {
        Some(path) => {
            let what = path.last_state().broken.as_ref().map(ToString::to_string).unwrap_or_default();
            Outcome::Violation { what, path: steps(&world, path.into_vec()) }
        }
        None if bounded => Outcome::Bounded,
        None => Outcome::Exhausted,
    };
    Report {
        config: config.name,
        states,
        unique,
        depth: checker.max_depth(),
        took: began.elapsed(),
        marks: world.marks(),
        outcome,
    }
}

/// States generated for each new one, by which a limit on new ones is turned into one that stateright knows.
const GENERATED_PER_UNIQUE: usize = 3;

fn steps(world: &World, path: Vec<(State, Option<crate::Action>)>) -> Vec<String> {
    let mut lines = Vec::new();
    for pair in path.windows(2) {
        let (before, after) = (&pair[0].0, &pair[1].0);
        let Some(action) = &pair[0].1 else { continue };
        let mut line = crate::story::action(world, before, action);
        for sent in crate::story::sent(world, before, after) {
            let _ = write!(line, "\n        {sent}");
        }
        lines.push(line);
    }
    lines
}
