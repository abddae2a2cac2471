//! Whether a world can go on for ever: a circle of states is a run in which nobody gets any further.
//!
//! The search for broken states finds a deadlock: a state in which nothing can happen and somebody has not returned. Where the graph of
//! states has no circle, every run ends in such a state of rest, whatever the order of events: then there is no livelock either.

use crate::config::Config;
use crate::model::Action;
use crate::state::State;
use crate::world::World;
use stateright::Model;
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

/// What came of a search for circles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Circles {
    /// There is none among so many states: all there are.
    None {
        /// How many.
        states: usize,
    },
    /// None was found among so many.
    Unknown {
        /// How many.
        states: usize,
    },
    /// There is one: how a run comes into it, step by step.
    Found {
        /// The steps.
        path: Vec<String>,
    },
}

/// A state on the way, and what has not been tried from there.
struct Visit {
    state: State,
    name: u64,
    left: Vec<Action>,
    by: Option<Action>,
}

/// Looks for a circle in the graph of states of a world, in at most so many of them (0: all).
#[must_use]
pub fn circles(config: &'static Config, states_max: usize) -> Circles {
    let world = World::new(config);
    let visit = |state: State, name: u64, by: Option<Action>| {
        let mut left = Vec::new();
        world.actions(&state, &mut left);
        Visit { state, name, left, by }
    };
    // Whether a state is on the way that is being looked at.
    let mut known: HashMap<u64, bool> = HashMap::new();
    let mut way: Vec<Visit> = Vec::new();
    for state in world.init_states() {
        let name = name_of(&state);
        known.insert(name, true);
        way.push(visit(state, name, None));
        while let Some(last) = way.last_mut() {
            let Some(action) = last.left.pop() else {
                known.insert(last.name, false);
                way.pop();
                continue;
            };
            let Some(next) = world.next_state(&last.state, action) else { continue };
            let name = name_of(&next);
            match known.entry(name) {
                Entry::Occupied(found) if *found.get() => {
                    return Circles::Found { path: told(&world, &way, action) };
                }
                Entry::Occupied(_) => continue,
                Entry::Vacant(place) => drop(place.insert(true)),
            }
            if states_max > 0 && known.len() > states_max {
                return Circles::Unknown { states: known.len() };
            }
            way.push(visit(next, name, Some(action)));
        }
    }
    Circles::None { states: known.len() }
}

fn name_of(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The steps of a way, and the one that closes the circle.
fn told(world: &World, way: &[Visit], last: Action) -> Vec<String> {
    let steps = way.windows(2).filter_map(|pair| Some((&pair[0].state, pair[1].by?)));
    let end = way.last().map(|visit| (&visit.state, last));
    steps.chain(end).map(|(before, action)| crate::story::action(world, before, &action)).collect()
}
