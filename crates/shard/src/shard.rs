//! The state of one shard, and everything that can happen to it.

use crate::clients::{Clients, Refusal};
use crate::counters::Counters;
use crate::interface::{Effect, Input, Settings};
use crate::services::{Services, Todo, Turn};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ccpfs_dlm::server::Resource;
use ccpfs_extent_cache::Stripe;
use ccpfs_types::{ClientId, ResourceId, Sn};
use ccpfs_wire::Channel;

/// One shard of a server. See the head of the crate for how it is driven.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    clients: Clients,
    services: Services,
    /// What follows from an input; empty between two steps.
    todo: VecDeque<Todo>,
}

impl Shard {
    /// A shard that has no clients and knows nothing of what is on its device.
    #[must_use]
    pub fn new(settings: Settings) -> Shard {
        Shard { clients: Clients::new(), services: Services::new(settings), todo: VecDeque::new() }
    }

    /// Takes one thing that happened and appends what must be done, in order. `now_ns` is the time since any start, in nanoseconds; it
    /// never falls.
    ///
    /// Nothing that clients send makes it panic. A task that ends twice, or with the result of another kind of task, does: it is a bug
    /// of the shell.
    pub fn step(&mut self, input: Input, now_ns: u64, out: &mut Vec<Effect>) {
        let mut turn = Turn { now_ns, clients: &mut self.clients, todo: &mut self.todo, out };
        match input {
            Input::Joined { client, channel } => turn.clients.join(client, channel, now_ns),
            Input::Message { from, channel, message, bulk } => {
                self.services.hear(from, channel, message, bulk, &mut turn);
            }
            Input::Parted { client, goodbye } => self.services.parted(client, goodbye, &mut turn),
            Input::Ended { task, result } => self.services.data.ended(task, result, &mut turn),
            Input::Clock => self.services.clock(&mut turn),
        }
        self.services.settle(&mut turn);
        assert!(self.todo.is_empty(), "a step leaves nothing undone");
    }

    /// What speaks against taking a connection of `client` for `channel`.
    #[must_use]
    pub fn refusal(&self, client: ClientId, channel: Channel) -> Option<Refusal> {
        self.clients.refusal(client, channel)
    }

    /// When [`Input::Clock`] is due, on the clock of [`Shard::step`]: 0 for at once, `None` if there is nothing to look at.
    #[must_use]
    pub fn next_look_ns(&self) -> Option<u64> {
        if self.services.is_trimming() { Some(0) } else { self.services.locks.overdue.next_look_ns() }
    }

    /// What has been counted since the start.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.services.counters()
    }

    /// Clients that have joined and not parted.
    #[must_use]
    pub fn client_count(&self) -> usize {
        self.clients.count()
    }

    /// Granted locks of all resources.
    #[must_use]
    pub fn lock_count(&self) -> usize {
        self.services.locks.resources.values().map(Resource::lock_count).sum()
    }

    /// Waiting requests of all resources.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.services.locks.resources.values().map(Resource::waiting_count).sum()
    }

    /// Entries of all extent caches.
    #[must_use]
    pub fn entry_count(&self) -> usize {
        self.services.data.entries
    }

    /// Operations that have not been answered, measurements for glimpses included.
    #[must_use]
    pub fn operation_count(&self) -> usize {
        self.services.data.operation_count()
    }

    /// Glimpses that have not been answered.
    #[must_use]
    pub fn glimpse_count(&self) -> usize {
        self.services.glimpses.count()
    }

    /// The resources on which somebody holds or waits for a lock.
    pub fn resources(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.services.locks.resources.iter().map(|(id, resource)| (*id, resource))
    }

    /// One of [`Shard::resources`].
    #[must_use]
    pub fn resource(&self, id: ResourceId) -> Option<&Resource> {
        self.services.locks.resources.get(&id)
    }

    /// The stripes with entries in their extent cache, or jobs under way.
    pub fn stripes(&self) -> impl Iterator<Item = (ResourceId, &Stripe)> {
        self.services.data.stripes.iter().map(|(id, stripe)| (*id, stripe))
    }

    /// One of [`Shard::stripes`].
    #[must_use]
    pub fn stripe(&self, id: ResourceId) -> Option<&Stripe> {
        self.services.data.stripes.get(&id)
    }

    /// Whether the stripe's file was removed lately.
    #[must_use]
    pub fn is_destroyed(&self, id: ResourceId) -> bool {
        self.services.locks.is_destroyed(id)
    }

    /// Above every sequence number that was given out for a resource that is forgotten (I2).
    #[must_use]
    pub fn sn_floor(&self) -> Sn {
        self.services.locks.sn_floor()
    }
}

#[cfg(test)]
mod tests;
