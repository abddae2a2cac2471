//! The data service of a shard: flushes, reads, truncates, syncs and removals, each carried from its request to its answer.
//!
//! *What*: operations become inputs of stripes; effects of stripes become device tasks; the ends of tasks become inputs and answers.
//! *Invariants*: I9 (a sync waits for all that was admitted); the locks that come with a flush are free after its data are written.
//! *Not here*: which bytes are newest and what must wait for what (`ccpfs-extent-cache`); who may write ([`crate::locks`]).

mod endings;

use crate::counters::DataCounters;
use crate::interface::{BulkRef, Effect, TaskId, Work};
use crate::lost::Lost;
use crate::operations::{Operation, ReplyTo, written};
use crate::services::{Todo, Turn};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_extent_cache as extent_cache;
use ccpfs_extent_cache::{Arriving, Input, JobId, Stripe, WaitId, WriteId};
use ccpfs_types::{ClientId, Extent, ResourceId, Sn};
use ccpfs_wire::LockRef;

/// A flush as it arrived, its pieces checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Flush {
    pub(crate) reply: ReplyTo,
    pub(crate) urgent: bool,
    /// The pieces that are taken, by stripe.
    pub(crate) pieces: BTreeMap<ResourceId, Vec<Arriving>>,
    /// Why others are not taken.
    pub(crate) errno: Option<i32>,
    pub(crate) releases: Vec<LockRef>,
    pub(crate) bulk: Option<BulkRef>,
}

/// A job of a stripe that is at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StripeJob {
    resource: ResourceId,
    job: JobId,
    /// Whose write or truncate it belongs to.
    writer: ClientId,
}

/// The stripes of a shard and what is under way on them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct DataService {
    pub(crate) stripes: BTreeMap<ResourceId, Stripe>,
    /// Entries of all extent caches together.
    pub(crate) entries: usize,
    pub(crate) counters: DataCounters,
    operations: BTreeMap<u64, Operation>,
    /// Tasks that are jobs of stripes. The task of an operation has the number of the operation.
    jobs: BTreeMap<TaskId, StripeJob>,
    /// The number given out last, to an operation or to a task.
    last_number: u64,
    lost: Lost,
    /// Truncates taken: rises with each, in every life of the server from a higher number on.
    cuts: u64,
    /// Empty between two steps.
    effects: Vec<extent_cache::Effect>,
}

impl DataService {
    /// Nothing is known, in this life of the server.
    pub(crate) fn new(epoch: u64) -> DataService {
        DataService { cuts: Sn::first_of_epoch(epoch).0, ..DataService::default() }
    }

    /// Takes a flush.
    pub(crate) fn write(&mut self, flush: Flush, turn: &mut Turn<'_>) {
        let Flush { reply, urgent, pieces, errno, releases, bulk } = flush;
        self.counters.writes += 1;
        let stripes = pieces.len();
        let id = self.begin(Operation::Write { reply, urgent, stripes, errno, releases, bulk });
        if stripes == 0 {
            self.finish(id, turn);
        }
        for (resource, pieces) in pieces {
            self.counters.bytes_written += pieces.iter().map(|piece| piece.extent.length()).sum::<u64>();
            self.step(resource, Input::Arrived { write: WriteId(id), pieces }, turn);
        }
    }

    /// Takes a truncate of `resource` to `length` bytes.
    pub(crate) fn truncate(
        &mut self,
        reply: ReplyTo,
        resource: ResourceId,
        length: u64,
        sn: Sn,
        turn: &mut Turn<'_>,
    ) {
        self.counters.truncates += 1;
        self.cuts += 1;
        let id = self.begin(Operation::Truncate { reply });
        self.step(resource, Input::Hole { write: WriteId(id), from: length, sn }, turn);
    }

    /// Takes a hole that leaves the length.
    pub(crate) fn punch(
        &mut self,
        reply: ReplyTo,
        resource: ResourceId,
        (extent, sn): (Extent, Sn),
        turn: &mut Turn<'_>,
    ) {
        let id = self.begin(Operation::Truncate { reply });
        self.step(resource, Input::Punch { write: WriteId(id), extent, sn }, turn);
    }

    /// Takes a question for the map of a stripe: behind what was admitted before, as a read.
    pub(crate) fn map(&mut self, reply: ReplyTo, resource: ResourceId, extent: Extent, turn: &mut Turn<'_>) {
        let (id, asked) = (self.begin(Operation::Map { reply, resource, extent }), extent);
        self.wait(id, resource, asked, turn);
    }

    /// Takes a question for what is on the device.
    pub(crate) fn list(
        &mut self,
        reply: ReplyTo,
        after: Option<ResourceId>,
        count_max: u32,
        turn: &mut Turn<'_>,
    ) {
        let id = self.begin(Operation::List { reply });
        // Housekeeping: whoever reads or writes goes first.
        let work = Work::List { after, count_max };
        turn.out.push(Effect::Start { task: TaskId(id), work, urgent: false });
    }

    /// Takes a read of at most [`ccpfs_types::limits::READ_BYTES_MAX`] bytes.
    pub(crate) fn read(&mut self, reply: ReplyTo, resource: ResourceId, extent: Extent, turn: &mut Turn<'_>) {
        self.counters.reads += 1;
        let id = self.begin(Operation::Read { reply, resource, extent });
        //= protocol.md#I5
        // Behind what was admitted before: data of an evicted client may still be on their way to the device.
        self.wait(id, resource, extent, turn);
    }

    /// Takes a sync.
    pub(crate) fn sync(&mut self, reply: ReplyTo, resources: Vec<ResourceId>, turn: &mut Turn<'_>) {
        self.counters.syncs += 1;
        let resources = distinct(resources);
        let stripes = resources.len();
        let id = self.begin(Operation::Sync { reply, stripes, errno: None, resources: resources.clone() });
        //= protocol.md#I9
        // A write is acknowledged at once when a newer one covers it, even if that one is still on its way to the
        // device: so a sync waits for everything that was admitted.
        self.wait_for_all(id, &resources, turn);
    }

    /// Takes a removal. The lock table has been told before.
    pub(crate) fn destroy(&mut self, reply: ReplyTo, resources: Vec<ResourceId>, turn: &mut Turn<'_>) {
        self.counters.destroys += 1;
        let resources = distinct(resources);
        let stripes = resources.len();
        let id = self.begin(Operation::Destroy { reply, stripes, resources: resources.clone() });
        self.wait_for_all(id, &resources, turn);
    }

    /// Finds out how long a stripe is, counting what is on its way to the device.
    pub(crate) fn measure(&mut self, glimpse: u64, resource: ResourceId, turn: &mut Turn<'_>) {
        let (pending_end, cuts) = self.stripes.get(&resource).map(Stripe::pending_end).unwrap_or_default();
        if cuts {
            // After the wait the device's own length shows all of it; what a cut has taken away does not count.
            let id = self.begin(Operation::Measure { glimpse, resource, pending_end: 0 });
            self.wait(id, resource, Extent::WHOLE, turn);
        } else {
            let id = self.begin(Operation::Measure { glimpse, resource, pending_end });
            self.ready(id, None, turn);
        }
    }

    /// Truncates taken so far: who finds the same number twice knows that nothing was cut in between.
    pub(crate) const fn cuts(&self) -> u64 {
        self.cuts
    }

    /// Forgets the extent cache of a stripe for which no lock is held, unless jobs are under way.
    pub(crate) fn forget(&mut self, resource: ResourceId, turn: &mut Turn<'_>) {
        self.step_known(resource, Input::Trim { floors: vec![(Extent::WHOLE, None)] }, turn);
        if self.stripes.get(&resource).is_some_and(Stripe::is_idle) {
            self.stripes.remove(&resource);
        }
    }

    /// Trims a stripe by the floors of its candidates.
    pub(crate) fn trim(
        &mut self,
        resource: ResourceId,
        floors: Vec<(Extent, Option<Sn>)>,
        turn: &mut Turn<'_>,
    ) {
        let before = self.entries;
        self.step_known(resource, Input::Trim { floors }, turn);
        self.counters.entries_trimmed += (before - self.entries) as u64;
    }

    /// A client is gone for good.
    pub(crate) fn parted(&mut self, client: ClientId) {
        self.lost.parted(client);
    }

    /// Operations under way.
    pub(crate) fn operation_count(&self) -> usize {
        self.operations.len()
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn begin(&mut self, operation: Operation) -> u64 {
        let id = self.number();
        self.operations.insert(id, operation);
        id
    }

    /// Puts one input through a stripe.
    fn step(&mut self, resource: ResourceId, input: Input, turn: &mut Turn<'_>) {
        self.stripes.entry(resource).or_default();
        self.step_known(resource, input, turn);
    }

    fn step_known(&mut self, resource: ResourceId, input: Input, turn: &mut Turn<'_>) {
        let Some(stripe) = self.stripes.get_mut(&resource) else { return };
        let before = stripe.entries();
        let mut effects = core::mem::take(&mut self.effects);
        stripe.step(input, &mut effects);
        self.entries = self.entries - before + stripe.entries();
        for effect in effects.drain(..) {
            self.carry_out(resource, effect, turn);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, resource: ResourceId, effect: extent_cache::Effect, turn: &mut Turn<'_>) {
        match effect {
            extent_cache::Effect::Start { job, write, work: extent_cache::Work::Write { parts } } => {
                let Some(Operation::Write { reply, bulk: Some(bulk), urgent, .. }) =
                    self.operations.get(&write.0)
                else {
                    unreachable!("data are written for a flush that has not been answered");
                };
                let (writer, bulk, urgent) = (reply.client, *bulk, *urgent);
                self.counters.bytes_destaged += parts.iter().map(|part| part.extent.length()).sum::<u64>();
                let job = StripeJob { resource, job, writer };
                self.start_job(job, Work::Write { resource, bulk, parts }, urgent, turn);
            }
            extent_cache::Effect::Start { job, write, work: extent_cache::Work::Cut { holes, length } } => {
                let Some(Operation::Truncate { reply }) = self.operations.get(&write.0) else {
                    unreachable!("holes are made for a truncate that has not been answered");
                };
                let job = StripeJob { resource, job, writer: reply.client };
                self.start_job(job, Work::Cut { resource, holes, length }, true, turn);
            }
            extent_cache::Effect::Acknowledge { write, errno } => self.acknowledged(write.0, errno, turn),
            extent_cache::Effect::Ready { wait, errno } => self.ready(wait.0, errno, turn),
        }
    }

    fn start_job(&mut self, job: StripeJob, work: Work, urgent: bool, turn: &mut Turn<'_>) {
        let task = TaskId(self.number());
        self.jobs.insert(task, job);
        turn.out.push(Effect::Start { task, work, urgent });
    }

    /// Answers a flush of which every stripe has done its part.
    fn finish(&mut self, id: u64, turn: &mut Turn<'_>) {
        let Some(Operation::Write { reply, errno, releases, bulk, .. }) = self.operations.remove(&id) else {
            unreachable!("a flush is answered once");
        };
        self.counters.write_errors += u64::from(errno.is_some());
        if !releases.is_empty() {
            turn.todo.push_back(Todo::Release { client: reply.client, locks: releases });
        }
        turn.free(bulk);
        turn.send(reply.client, reply.channel, written(reply, errno));
    }

    /// Has an operation wait for the jobs on `extent` that were admitted before it.
    fn wait(&mut self, id: u64, resource: ResourceId, extent: Extent, turn: &mut Turn<'_>) {
        if self.stripes.contains_key(&resource) {
            self.step_known(resource, Input::Await { wait: WaitId(id), extent }, turn);
        } else {
            self.ready(id, None, turn);
        }
    }

    fn wait_for_all(&mut self, id: u64, resources: &[ResourceId], turn: &mut Turn<'_>) {
        if resources.is_empty() {
            self.waited(id, turn);
        }
        for resource in resources {
            self.wait(id, *resource, Extent::WHOLE, turn);
        }
    }

    /// The jobs before an operation have ended on one stripe.
    fn ready(&mut self, id: u64, errno: Option<i32>, turn: &mut Turn<'_>) {
        match self.operations.get_mut(&id) {
            Some(Operation::Read { resource, extent, .. }) => {
                let work = Work::Read { resource: *resource, extent: *extent };
                turn.out.push(Effect::Start { task: TaskId(id), work, urgent: true });
            }
            Some(Operation::Map { resource, extent, .. }) => {
                let work = Work::Map { resource: *resource, extent: *extent };
                turn.out.push(Effect::Start { task: TaskId(id), work, urgent: true });
            }
            Some(Operation::Sync { stripes, errno: first, .. }) => {
                *first = first.or(errno);
                *stripes -= 1;
                if *stripes == 0 {
                    self.waited(id, turn);
                }
            }
            Some(Operation::Destroy { stripes, .. }) => {
                *stripes -= 1;
                if *stripes == 0 {
                    self.waited(id, turn);
                }
            }
            Some(Operation::Measure { resource, .. }) => {
                let work = Work::Measure { resource: *resource };
                turn.out.push(Effect::Start { task: TaskId(id), work, urgent: true });
            }
            Some(Operation::Write { .. } | Operation::Truncate { .. } | Operation::List { .. }) | None => {
                unreachable!("only operations that wait become ready")
            }
        }
    }

    /// All stripes of a sync or removal are ready.
    fn waited(&mut self, id: u64, turn: &mut Turn<'_>) {
        match self.operations.get(&id) {
            Some(Operation::Sync { resources, .. }) => {
                let work = Work::Sync { resources: resources.clone() };
                turn.out.push(Effect::Start { task: TaskId(id), work, urgent: true });
            }
            Some(Operation::Destroy { resources, .. }) => {
                let resources = resources.clone();
                for resource in &resources {
                    if let Some(stripe) = self.stripes.remove(resource) {
                        self.entries -= stripe.entries();
                    }
                    self.lost.removed(*resource);
                }
                let work = Work::Remove { resources };
                turn.out.push(Effect::Start { task: TaskId(id), work, urgent: false });
            }
            Some(
                Operation::Write { .. }
                | Operation::Truncate { .. }
                | Operation::Map { .. }
                | Operation::List { .. }
                | Operation::Read { .. }
                | Operation::Measure { .. },
            )
            | None => unreachable!("only syncs and removals wait for several stripes"),
        }
    }
}

fn distinct(resources: Vec<ResourceId>) -> Vec<ResourceId> {
    resources.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
