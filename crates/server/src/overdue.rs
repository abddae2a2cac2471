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
        if now - due > self.timeout / SWEEPS_PER_TIMEOUT {
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
