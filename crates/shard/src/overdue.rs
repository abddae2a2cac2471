//! Clocks of what clients owe: locks that others wait for, and answers to glimpses (I8).
//!
//! *What*: a client has `revoke_timeout_ns` from the moment somebody waits. It gets as much again whenever it was heard from in the
//! meantime; a silent one is asked for a sign of life at half time, so a client that is alive but has a slow device behind it is
//! not taken for a dead one. A client that lives but neither gives back nor flushes is evicted after
//! [`PROLONGATIONS_MAX`] rounds.
//! *Invariants*: I8.
//! *Not here*: what is done to whom is evicted.

use crate::clients::Clients;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ccpfs_types::{ClientId, LockId, ResourceId};
use core::fmt;

/// Rounds that a client gets that answers but brings no data.
const PROLONGATIONS_MAX: u32 = 30;
/// Looks per timeout.
const SWEEPS_PER_TIMEOUT: u64 = 4;

/// What a client owes to those who wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Debt {
    /// A lock that it was asked to give back.
    Lock {
        /// Of which resource.
        resource: ResourceId,
        /// Which.
        lock: LockId,
    },
    /// An answer: how far what it holds of a stripe reaches.
    Glimpse {
        /// Of which stripe.
        resource: ResourceId,
        /// Number of the question.
        glimpse: u64,
        /// Who was asked.
        client: ClientId,
    },
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
    Evict { client: ClientId, what: Debt },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Clock {
    debtor: ClientId,
    since_ns: u64,
    prolongations: u32,
}

/// All running clocks of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Overdue {
    timeout_ns: u64,
    clocks: BTreeMap<Debt, Clock>,
    looked_at_ns: u64,
}

impl Overdue {
    pub(crate) fn new(timeout_ns: u64) -> Overdue {
        Overdue { timeout_ns, clocks: BTreeMap::new(), looked_at_ns: 0 }
    }

    pub(crate) fn arm(&mut self, debt: Debt, debtor: ClientId, now_ns: u64) {
        if debtor == ClientId::SERVER {
            return; // the server gives its own locks back at once
        }
        if self.clocks.is_empty() {
            self.looked_at_ns = now_ns;
        }
        self.clocks.insert(debt, Clock { debtor, since_ns: now_ns, prolongations: 0 });
    }

    pub(crate) fn disarm(&mut self, debt: Debt) {
        self.clocks.remove(&debt);
    }

    /// Forgets what a client owed.
    pub(crate) fn forgive(&mut self, client: ClientId) {
        self.clocks.retain(|_, clock| clock.debtor != client);
    }

    /// When to look next, if anything is owed.
    pub(crate) fn next_look_ns(&self) -> Option<u64> {
        (!self.clocks.is_empty()).then(|| self.looked_at_ns + self.timeout_ns / SWEEPS_PER_TIMEOUT)
    }

    /// Looks at the clocks if it is time to.
    pub(crate) fn look(&mut self, now_ns: u64, clients: &Clients) -> Vec<Action> {
        let Some(due_ns) = self.next_look_ns().filter(|due| *due <= now_ns) else { return Vec::new() };
        self.looked_at_ns = now_ns;
        if now_ns - due_ns > self.timeout_ns / 2 {
            // The shard itself was away (a stopped process, a suspended machine): what clients sent meanwhile has not
            // been read yet, so nobody is blamed.
            self.clocks.values_mut().for_each(|clock| clock.since_ns = now_ns);
            return Vec::new();
        }
        let mut actions = Vec::new();
        for (debt, clock) in &mut self.clocks {
            let Some(debtor) = clients.get(clock.debtor) else { continue };
            let waited_ns = now_ns - clock.since_ns;
            let heard = debtor.heard_at_ns > clock.since_ns;
            if waited_ns >= self.timeout_ns {
                if debtor.wrote_at_ns.is_some_and(|at| at > clock.since_ns) {
                    clock.prolongations = 0;
                }
                if heard && clock.prolongations < PROLONGATIONS_MAX {
                    clock.since_ns = now_ns;
                    clock.prolongations += 1;
                } else {
                    actions.push(Action::Evict { client: clock.debtor, what: *debt });
                }
            } else if waited_ns >= self.timeout_ns / 2
                && !heard
                && debtor.probed_at_ns.is_none_or(|at| at < clock.since_ns)
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
    use alloc::vec;
    use ccpfs_types::FileId;
    use ccpfs_wire::Channel;

    const HOLDER: ClientId = ClientId(5);
    const RESOURCE: ResourceId = ResourceId { file: FileId([1; 16]), stripe: 0 };
    const DEBT: Debt = Debt::Lock { resource: RESOURCE, lock: LockId(1) };
    const SECOND_NS: u64 = 1_000_000_000;

    /// A client that waits for a lock, and looks at the clock every quarter of the timeout.
    struct World {
        overdue: Overdue,
        clients: Clients,
    }

    impl World {
        fn new() -> World {
            let mut overdue = Overdue::new(4 * SECOND_NS);
            overdue.arm(DEBT, HOLDER, 0);
            let mut clients = Clients::new();
            clients.join(HOLDER, Channel::Control, 0);
            World { overdue, clients }
        }

        fn hear(&mut self, channel: Channel, seconds: u64) {
            assert!(self.clients.heard(HOLDER, channel, seconds * SECOND_NS));
        }

        fn look(&mut self, seconds: u64) -> Vec<Action> {
            let actions = self.overdue.look(seconds * SECOND_NS, &self.clients);
            if let [Action::Probe { .. }] = actions[..] {
                self.clients.probed(HOLDER, seconds * SECOND_NS);
            }
            actions
        }
    }

    fn probe() -> Vec<Action> {
        vec![Action::Probe { client: HOLDER, resource: RESOURCE }]
    }

    fn is_eviction(actions: &[Action]) -> bool {
        actions == [Action::Evict { client: HOLDER, what: DEBT }]
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
            world.hear(Channel::Control, seconds);
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
            world.hear(Channel::Bulk, seconds);
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
        world.overdue.disarm(DEBT);
        assert_eq!(world.overdue.next_look_ns(), None);
        assert_eq!(world.look(10), []);
    }
}
