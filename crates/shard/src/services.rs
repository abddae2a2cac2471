//! The services of a shard and what each wants of the others.
//!
//! *What*: one thing that happened leads from service to service, as a list of what is still to do, until nothing is left.
//! *Invariants*: I7: a client parts in this order: fenced, then what it held is free, then whoever waited goes on.
//! *Not here*: what each service does.

use crate::clients::Clients;
use crate::counters::Counters;
use crate::data::DataService;
use crate::glimpse::{Glimpses, Next};
use crate::interface::{BulkRef, Effect, Measure, Note, PROBE, Parting, Settings};
use crate::locks::LockTable;
use crate::operations::by_lock;
use crate::overdue::{Action, Debt};
use crate::trimming::Trimming;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ccpfs_dlm::server::Input;
use ccpfs_types::{ClientId, LockId, ResourceId};
use ccpfs_wire::{Channel, LockRef, Message};

/// What follows from what one service did, for others to see to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Todo {
    /// Nobody holds or waits for anything on the resource: it was forgotten.
    Idle(ResourceId),
    /// The server itself was granted its lock on the whole resource: nothing is left to flush to it.
    Whole(ResourceId, LockId),
    /// The server itself is not granted its lock.
    Refused(ResourceId),
    /// These locks came back with a flush that is done.
    Release { client: ClientId, locks: Vec<LockRef> },
    /// The length that a glimpse asked for.
    Measured { glimpse: u64, result: Result<Measure, i32> },
    /// No job of this stripe is left.
    Quiet(ResourceId),
}

/// One step of a shard: when it is, who is there, and where to put what follows.
pub(crate) struct Turn<'a> {
    pub(crate) now_ns: u64,
    pub(crate) clients: &'a mut Clients,
    pub(crate) todo: &'a mut VecDeque<Todo>,
    pub(crate) out: &'a mut Vec<Effect>,
}

impl Turn<'_> {
    /// Sends a message.
    pub(crate) fn send(&mut self, to: ClientId, channel: Channel, message: Message) {
        self.out.push(Effect::Send { to, channel, message });
    }

    /// Asks something of a client that others will wait for. One that cannot be asked must go.
    pub(crate) fn ask(&mut self, to: ClientId, message: Message) {
        if self.clients.has(to, Channel::Callback) {
            self.send(to, Channel::Callback, message);
        } else {
            self.part(to, Parting::Unreachable);
        }
    }

    /// Lets go of data that came with a message.
    pub(crate) fn free(&mut self, bulk: Option<BulkRef>) {
        if let Some(bulk) = bulk {
            self.out.push(Effect::Free { bulk });
        }
    }

    /// Has a client go.
    pub(crate) fn part(&mut self, client: ClientId, why: Parting) {
        if self.clients.leaves(client) {
            self.out.push(Effect::Part { client, why });
        }
    }
}

/// All services of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Services {
    pub(crate) locks: LockTable,
    pub(crate) data: DataService,
    pub(crate) glimpses: Glimpses,
    pub(crate) trimming: Trimming,
    operations_max: usize,
    evictions: u64,
}

impl Services {
    pub(crate) fn new(settings: Settings) -> Services {
        let Settings { policy, epoch, revoke_timeout_ns, entries_max, operations_max } = settings;
        assert!(revoke_timeout_ns > 0, "a client gets some time");
        Services {
            locks: LockTable::new(policy, epoch, revoke_timeout_ns),
            data: DataService::new(epoch),
            glimpses: Glimpses::default(),
            trimming: Trimming::new(entries_max),
            operations_max,
            evictions: 0,
        }
    }

    /// Whether no more operations are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.data.operation_count() >= self.operations_max || self.glimpses.count() >= self.operations_max
    }

    pub(crate) fn is_trimming(&self) -> bool {
        self.trimming.is_busy(&self.data)
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters {
            locks: self.locks.counters,
            data: self.data.counters,
            glimpses: self.glimpses.begun,
            evictions: self.evictions,
            forced_flushes: self.trimming.forced_count,
        }
    }

    /// Does what follows, and what follows from that, until nothing is left.
    pub(crate) fn settle(&mut self, turn: &mut Turn<'_>) {
        while let Some(todo) = turn.todo.pop_front() {
            match todo {
                Todo::Idle(resource) => {
                    self.trimming.unforced(resource);
                    self.data.forget(resource, turn);
                }
                Todo::Refused(resource) => self.trimming.unforced(resource),
                Todo::Whole(resource, lock) => {
                    self.trimming.unforced(resource);
                    self.data.forget(resource, turn);
                    let input = Input::Release { from: ClientId::SERVER, lock };
                    self.locks.step(resource, input, turn);
                }
                Todo::Release { client, locks } => self.release(client, locks, turn),
                Todo::Measured { glimpse, result } => {
                    let locks = &self.locks;
                    let holders = |id, beyond| locks.write_holders(id, beyond);
                    let next = self.glimpses.measured(glimpse, result, self.data.cuts(), holders);
                    self.glimpse_goes_on(glimpse, next, turn);
                }
                Todo::Quiet(resource) => {
                    if !self.locks.knows(resource) {
                        self.data.forget(resource, turn);
                    }
                }
            }
        }
    }

    /// Takes locks back.
    pub(crate) fn release(&mut self, client: ClientId, locks: Vec<LockRef>, turn: &mut Turn<'_>) {
        for (resource, lock) in by_lock(locks) {
            self.locks.counters.releases += 1;
            self.locks.step(resource, Input::Release { from: client, lock }, turn);
        }
    }

    /// Does the next step of a glimpse.
    pub(crate) fn glimpse_goes_on(&mut self, glimpse: u64, next: Next, turn: &mut Turn<'_>) {
        match next {
            Next::Wait => {}
            Next::Ask { resource, clients } => {
                for client in clients {
                    let debt = Debt::Glimpse { resource, glimpse, client };
                    self.locks.overdue.arm(debt, client, turn.now_ns);
                    turn.ask(client, Message::GlimpseAsk { glimpse, resource });
                }
            }
            Next::Measure { resource } => self.data.measure(glimpse, resource, turn),
            Next::Reply { to, message } => turn.send(to.client, to.channel, message),
        }
    }

    /// Ends a client whose connections are closed: fences it, then frees what it held, then whoever waited for it goes on.
    //= protocol.md#I7
    pub(crate) fn parted(&mut self, client: ClientId, goodbye: bool, turn: &mut Turn<'_>) {
        if !turn.clients.fence(client) {
            return;
        }
        self.data.parted(client);
        let resources = self.locks.evict(client, turn);
        for glimpse in self.glimpses.waiting_for(client) {
            let next = self.glimpses.told(glimpse, client, 0, 0);
            self.glimpse_goes_on(glimpse, next, turn);
        }
        self.evictions += u64::from(!goodbye && resources > 0);
        turn.out.push(Effect::Note(Note::Gone { client, resources }));
    }

    /// Looks at the clocks and trims a little.
    //= protocol.md#I8
    pub(crate) fn clock(&mut self, turn: &mut Turn<'_>) {
        for action in self.locks.overdue.look(turn.now_ns, turn.clients) {
            match action {
                Action::Probe { client, resource } => {
                    turn.clients.probed(client, turn.now_ns);
                    if turn.clients.has(client, Channel::Callback) {
                        turn.send(
                            client,
                            Channel::Callback,
                            Message::GlimpseAsk { glimpse: PROBE, resource },
                        );
                    }
                }
                Action::Evict { client, what } => turn.part(client, Parting::Overdue { what }),
            }
        }
        for resource in self.trimming.slice(&mut self.data, &self.locks, turn) {
            turn.out.push(Effect::Note(Note::Forced { resource }));
            self.locks.force_flush(resource, turn);
        }
    }
}
