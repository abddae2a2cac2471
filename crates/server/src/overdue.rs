//! Clocks of what clients owe: locks that others wait for, and answers to glimpses (I8).
//!
//! A client has `revoke_timeout` from the moment somebody waits. It gets as much again whenever it was heard from in the
//! meantime; a silent one is asked for a sign of life at half time, so a client that is alive but has a slow device behind it is
//! not taken for a dead one. A client that lives but neither gives back nor flushes is evicted after
//! [`PROLONGATIONS_MAX`] rounds.

use crate::connections::Client;
use ccpfs_types::{ClientId, LockId, ResourceId};
use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// Rounds that a client gets that answers but brings no data.
const PROLONGATIONS_MAX: u32 = 30;
/// Looks per timeout.
const SWEEPS_PER_TIMEOUT: u32 = 4;

/// What is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Debt {
    Lock { resource: ResourceId, lock: LockId },
    Glimpse { resource: ResourceId, glimpse: u64, client: ClientId },
}

impl Debt {
    fn resource(&self) -> ResourceId {
        match self {
            Debt::Lock { resource, .. } | Debt::Glimpse { resource, .. } => *resource,
        }
    }
}

impl fmt::Display for Debt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Debt::Lock { resource, lock } => write!(f, "{lock} on {resource}"),
            Debt::Glimpse { resource, .. } => write!(f, "the size of {resource}"),
        }
    }
}

/// What a look at the clocks leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Ask for a sign of life.
    Probe { client: ClientId, resource: ResourceId },
    /// Time is up.
    Evict { client: ClientId, what: String },
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    debtor: ClientId,
    since: Instant,
    prolongations: u32,
}

/// All running clocks of a shard.
#[derive(Debug)]
pub(crate) struct Overdue {
    timeout: Duration,
    clocks: HashMap<Debt, Clock>,
    looked_at: Instant,
}

impl Overdue {
    pub(crate) fn new(timeout: Duration, now: Instant) -> Overdue {
        Overdue { timeout, clocks: HashMap::new(), looked_at: now }
    }

    pub(crate) fn arm(&mut self, debt: Debt, debtor: ClientId, now: Instant) {
        if debtor == ClientId::SERVER {
            return; // the server gives its own locks back at once
        }
        if self.clocks.is_empty() {
            self.looked_at = now;
        }
        self.clocks.insert(debt, Clock { debtor, since: now, prolongations: 0 });
    }

    pub(crate) fn disarm(&mut self, debt: Debt) {
        self.clocks.remove(&debt);
    }

    /// Forgets what a client owed.
    pub(crate) fn forgive(&mut self, client: ClientId) {
        self.clocks.retain(|_, clock| clock.debtor != client);
    }

    /// When to look next, if anything is owed.
    pub(crate) fn next_look(&self) -> Option<Instant> {
        (!self.clocks.is_empty()).then(|| self.looked_at + self.timeout / SWEEPS_PER_TIMEOUT)
    }

    /// Looks at the clocks if it is time to. `client` tells what is known of a client.
    pub(crate) fn look<'a>(
        &mut self,
        now: Instant,
        client: impl Fn(ClientId) -> Option<&'a Client>,
    ) -> Vec<Action> {
        let Some(due) = self.next_look().filter(|due| *due <= now) else { return Vec::new() };
        self.looked_at = now;
        if now - due > self.timeout / 2 {
            // This thread itself was away (a stopped process, a suspended machine): what clients sent meanwhile has not
            // been read yet, so nobody is blamed.
            self.clocks.values_mut().for_each(|clock| clock.since = now);
            return Vec::new();
        }
        let mut actions = Vec::new();
        for (debt, clock) in &mut self.clocks {
            let Some(debtor) = client(clock.debtor) else { continue };
            let waited = now - clock.since;
            let heard = debtor.heard_at > clock.since;
            if waited >= self.timeout {
                if debtor.wrote_at.is_some_and(|at| at > clock.since) {
                    clock.prolongations = 0;
                }
                if heard && clock.prolongations < PROLONGATIONS_MAX {
                    clock.since = now;
                    clock.prolongations += 1;
                } else {
                    actions.push(Action::Evict { client: clock.debtor, what: debt.to_string() });
                }
            } else if waited >= self.timeout / 2
                && !heard
                && debtor.probed_at.is_none_or(|at| at < clock.since)
            {
                actions.push(Action::Probe { client: clock.debtor, resource: debt.resource() });
            }
        }
        actions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_types::FileId;

    const HOLDER: ClientId = ClientId(5);
    const RESOURCE: ResourceId = ResourceId { file: FileId([1; 16]), stripe: 0 };

    /// A client that waits for a lock, and looks at the clock every quarter of the timeout.
    struct World {
        start: Instant,
        overdue: Overdue,
        client: Client,
    }

    impl World {
        fn new() -> World {
            let start = Instant::now();
            let mut overdue = Overdue::new(Duration::from_secs(4), start);
            overdue.arm(Debt::Lock { resource: RESOURCE, lock: LockId(1) }, HOLDER, start);
            World { start, overdue, client: Client::new("test", start) }
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn look(&mut self, seconds: u64) -> Vec<Action> {
            let now = self.at(seconds);
            let actions = self.overdue.look(now, |client| (client == HOLDER).then_some(&self.client));
            if let [Action::Probe { .. }] = actions[..] {
                self.client.probed_at = Some(now);
            }
            actions
        }
    }

    fn probe() -> Vec<Action> {
        vec![Action::Probe { client: HOLDER, resource: RESOURCE }]
    }

    fn is_eviction(actions: &[Action]) -> bool {
        matches!(actions, [Action::Evict { client: HOLDER, .. }])
    }

    #[test]
    fn a_silent_client_is_asked_at_half_time_and_evicted_at_the_end() {
        let mut world = World::new();
        assert_eq!(world.look(1), []);
        assert_eq!(world.look(2), probe());
        assert_eq!(world.look(3), [], "asked once");
        assert!(is_eviction(&world.look(4)));
    }

    #[test]
    fn a_sign_of_life_prolongs_the_time_but_not_for_ever() {
        let mut world = World::new();
        let mut seconds = 0;
        let evicted_at = loop {
            seconds += 1;
            world.client.heard_at = world.at(seconds);
            if is_eviction(&world.look(seconds)) {
                break seconds;
            }
        };
        assert_eq!(evicted_at, 4 * (u64::from(PROLONGATIONS_MAX) + 1));
    }

    #[test]
    fn who_brings_data_is_never_evicted() {
        let mut world = World::new();
        for seconds in 1..1000 {
            world.client.heard_at = world.at(seconds);
            world.client.wrote_at = Some(world.at(seconds));
            assert!(!is_eviction(&world.look(seconds)));
        }
    }

    #[test]
    fn nobody_is_blamed_when_the_shard_itself_was_away() {
        let mut world = World::new();
        assert_eq!(world.look(100), []);
        assert_eq!(world.look(102), probe());
        assert_eq!(world.look(103), []);
        assert!(is_eviction(&world.look(104)));
    }

    #[test]
    fn what_was_given_back_is_not_owed() {
        let mut world = World::new();
        world.overdue.disarm(Debt::Lock { resource: RESOURCE, lock: LockId(1) });
        assert_eq!(world.overdue.next_look(), None);
        assert_eq!(world.look(10), []);
    }
}
