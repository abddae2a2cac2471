//! The data service of a shard: flushes, reads, truncates, syncs and removals, each carried from its request to its answer.
//!
//! Which bytes are newest and what must wait for what is decided in `ccpfs-extent-cache`; here its effects become device tasks, and
//! the ends of tasks become inputs and answers.

use crate::device_pool::{DevicePool, Done, Measure, Task};
use crate::lost::Lost;
use crate::operations::{Operation, Outcome, ReplyTo, done, unread, written};
use ccpfs_device::DeviceError;
use ccpfs_extent_cache::{Arriving, Effect, Input, Stripe, WaitId, Work, WriteId};
use ccpfs_transport::{Buffer, BufferPool};
use ccpfs_types::{ClientId, Extent, ResourceId, Sn};
use ccpfs_wire::{LockRef, Message, Status};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Operations under way at a time; more are refused. Flushes are bounded by the memory for their data before that.
const OPERATIONS_MAX: usize = 1 << 16;

/// What the data service has counted since it started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DataCounters {
    pub(crate) writes: u64,
    pub(crate) bytes_written: u64,
    pub(crate) bytes_destaged: u64,
    pub(crate) write_errors: u64,
    pub(crate) reads: u64,
    pub(crate) bytes_read: u64,
    pub(crate) truncates: u64,
    pub(crate) syncs: u64,
    pub(crate) destroys: u64,
    pub(crate) entries_trimmed: u64,
}

/// A flush as it arrived, its pieces checked.
#[derive(Debug)]
pub(crate) struct Flush {
    pub(crate) reply: ReplyTo,
    pub(crate) client: ClientId,
    pub(crate) urgent: bool,
    /// The pieces that are taken, by stripe.
    pub(crate) pieces: BTreeMap<ResourceId, Vec<Arriving>>,
    /// Why others are not taken.
    pub(crate) errno: Option<i32>,
    pub(crate) releases: Vec<LockRef>,
    pub(crate) bulk: Option<Arc<Buffer>>,
    /// Where its bytes begin in the bulk.
    pub(crate) base: usize,
}

/// The stripes of a shard and what is under way on them.
pub(crate) struct DataService {
    pub(crate) stripes: BTreeMap<ResourceId, Stripe>,
    /// Entries of all extent caches together.
    pub(crate) entries: usize,
    pub(crate) counters: DataCounters,
    operations: HashMap<u64, Operation>,
    next_operation: u64,
    pool: DevicePool,
    /// Memory for data on their way to readers.
    read_buffers: BufferPool,
    /// Reads that wait for memory.
    starved: VecDeque<u64>,
    lost: Lost,
    effects: Vec<Effect>,
    done: Vec<Done>,
}

impl DataService {
    pub(crate) fn new(pool: DevicePool, read_bytes_max: usize) -> DataService {
        DataService {
            stripes: BTreeMap::new(),
            entries: 0,
            counters: DataCounters::default(),
            operations: HashMap::new(),
            next_operation: 1,
            pool,
            read_buffers: BufferPool::new(read_bytes_max),
            starved: VecDeque::new(),
            lost: Lost::default(),
            effects: Vec::new(),
            done: Vec::new(),
        }
    }

    /// Takes a flush.
    pub(crate) fn write(&mut self, flush: Flush, out: &mut Vec<Outcome>) {
        let Flush { reply, client, urgent, pieces, errno, releases, bulk, base } = flush;
        self.counters.writes += 1;
        let stripes = pieces.len();
        let write =
            Operation::Write { reply, client, urgent, stripes, errno, releases, bulk: bulk.clone(), base };
        let id = self.begin(write);
        if stripes == 0 {
            self.finish(id, out);
        }
        for (resource, pieces) in pieces {
            self.counters.bytes_written += pieces.iter().map(|piece| piece.extent.length()).sum::<u64>();
            self.step(resource, Input::Arrived { write: WriteId(id), pieces }, out);
        }
    }

    /// Takes a truncate of `resource` to `length` bytes.
    pub(crate) fn truncate(
        &mut self,
        reply: ReplyTo,
        resource: ResourceId,
        length: u64,
        sn: Sn,
        out: &mut Vec<Outcome>,
    ) {
        self.counters.truncates += 1;
        let id = self.begin(Operation::Truncate { reply });
        self.step(resource, Input::Hole { write: WriteId(id), from: length, sn }, out);
    }

    /// Takes a read of at most [`ccpfs_types::limits::READ_BYTES_MAX`] bytes.
    pub(crate) fn read(
        &mut self,
        reply: ReplyTo,
        resource: ResourceId,
        extent: Extent,
        out: &mut Vec<Outcome>,
    ) {
        self.counters.reads += 1;
        let id = self.begin(Operation::Read { reply, resource, extent });
        // Behind what was admitted before: data of an evicted client may still be on their way to the device.
        self.wait(id, resource, extent, out);
    }

    /// Takes a sync.
    pub(crate) fn sync(
        &mut self,
        reply: ReplyTo,
        client: ClientId,
        resources: Vec<ResourceId>,
        out: &mut Vec<Outcome>,
    ) {
        self.counters.syncs += 1;
        let resources = distinct(resources);
        let id = self.begin(Operation::Sync {
            reply,
            client,
            stripes: resources.len(),
            errno: None,
            resources: resources.clone(),
        });
        //= protocol.md#I9
        // A write is acknowledged at once when a newer one covers it, even if that one is still on its way to the
        // device: so a sync waits for everything that was admitted.
        self.wait_for_all(id, &resources, out);
    }

    /// Takes a removal. The lock service has been told before.
    pub(crate) fn destroy(&mut self, reply: ReplyTo, resources: Vec<ResourceId>, out: &mut Vec<Outcome>) {
        self.counters.destroys += 1;
        let resources = distinct(resources);
        let id =
            self.begin(Operation::Destroy { reply, stripes: resources.len(), resources: resources.clone() });
        self.wait_for_all(id, &resources, out);
    }

    /// Finds out how long a stripe is, counting what is on its way to the device.
    pub(crate) fn measure(&mut self, glimpse: u64, resource: ResourceId, out: &mut Vec<Outcome>) {
        let (pending_end, cuts) = self.stripes.get(&resource).map(Stripe::pending_end).unwrap_or_default();
        let id = self.begin(Operation::Measure { glimpse, resource, pending_end });
        if cuts {
            self.wait(id, resource, Extent::WHOLE, out);
        } else {
            self.ready(id, None, out);
        }
    }

    /// Takes in what the device threads have ended.
    pub(crate) fn collect(&mut self, out: &mut Vec<Outcome>) {
        let mut all = std::mem::take(&mut self.done);
        self.pool.take_done(&mut all);
        for done in all.drain(..) {
            self.ended(done, out);
        }
        self.done = all;
    }

    /// Gives memory that has come back to reads that wait for it.
    pub(crate) fn retry_reads(&mut self) {
        while let Some(id) = self.starved.pop_front() {
            if !self.start_read(id) {
                self.starved.push_front(id);
                return;
            }
        }
    }

    /// Forgets the extent cache of a stripe for which no lock is held, unless jobs are under way.
    pub(crate) fn forget(&mut self, resource: ResourceId, out: &mut Vec<Outcome>) {
        self.step_known(resource, Input::Trim { floors: vec![(Extent::WHOLE, None)] }, out);
        if self.stripes.get(&resource).is_some_and(Stripe::is_idle) {
            self.stripes.remove(&resource);
        }
    }

    /// Trims a stripe by the floors of its candidates.
    pub(crate) fn trim(&mut self, resource: ResourceId, floors: Vec<(Extent, Option<Sn>)>) {
        let before = self.entries;
        self.step_known(resource, Input::Trim { floors }, &mut Vec::new());
        self.counters.entries_trimmed += (before - self.entries) as u64;
    }

    /// Whether no more operations are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.operations.len() >= OPERATIONS_MAX
    }

    /// Tasks at the device.
    pub(crate) fn tasks(&self) -> usize {
        self.pool.in_flight()
    }

    /// Finishes everything that was admitted and makes it durable. For the end of the shard.
    pub(crate) fn shut_down(&mut self, out: &mut Vec<Outcome>) -> Result<(), DeviceError> {
        while self.pool.in_flight() > 0 {
            self.pool.wait_done();
            self.collect(out);
        }
        self.pool.device().sync_all()
    }

    fn begin(&mut self, operation: Operation) -> u64 {
        let id = self.next_operation;
        self.next_operation += 1;
        self.operations.insert(id, operation);
        id
    }

    /// Puts one input through a stripe.
    fn step(&mut self, resource: ResourceId, input: Input, out: &mut Vec<Outcome>) {
        self.stripes.entry(resource).or_default();
        self.step_known(resource, input, out);
    }

    fn step_known(&mut self, resource: ResourceId, input: Input, out: &mut Vec<Outcome>) {
        let Some(stripe) = self.stripes.get_mut(&resource) else { return };
        let before = stripe.entries();
        let mut effects = std::mem::take(&mut self.effects);
        stripe.step(input, &mut effects);
        self.entries = self.entries - before + stripe.entries();
        for effect in effects.drain(..) {
            self.carry_out(resource, effect, out);
        }
        self.effects = effects;
    }

    fn carry_out(&mut self, resource: ResourceId, effect: Effect, out: &mut Vec<Outcome>) {
        match effect {
            Effect::Start { job, write, work: Work::Write { parts } } => {
                let Some(Operation::Write { bulk: Some(bulk), base, urgent, .. }) =
                    self.operations.get(&write.0)
                else {
                    unreachable!("data are written for a flush that has not been answered");
                };
                self.counters.bytes_destaged += parts.iter().map(|part| part.extent.length()).sum::<u64>();
                let task = Task::Write { resource, job, bulk: bulk.clone(), base: *base, parts };
                self.pool.submit(task, *urgent);
            }
            Effect::Start { job, work: Work::Cut { holes, length }, .. } => {
                self.pool.submit(Task::Cut { resource, job, holes, length }, true);
            }
            Effect::Acknowledge { write, errno } => self.acknowledged(write.0, errno, out),
            Effect::Ready { wait, errno } => self.ready(wait.0, errno, out),
        }
    }

    /// A stripe has done its part of a write or truncate.
    fn acknowledged(&mut self, id: u64, errno: Option<i32>, out: &mut Vec<Outcome>) {
        match self.operations.get_mut(&id) {
            Some(Operation::Write { stripes, errno: first, .. }) => {
                *first = first.or(errno);
                *stripes -= 1;
                if *stripes == 0 {
                    self.finish(id, out);
                }
            }
            Some(Operation::Truncate { reply }) => {
                out.push(done(*reply, errno));
                self.operations.remove(&id);
            }
            Some(
                Operation::Read { .. }
                | Operation::Sync { .. }
                | Operation::Destroy { .. }
                | Operation::Measure { .. },
            )
            | None => unreachable!("stripes acknowledge writes and truncates, once"),
        }
    }

    /// Answers a flush of which every stripe has done its part.
    fn finish(&mut self, id: u64, out: &mut Vec<Outcome>) {
        let Some(Operation::Write { reply, client, errno, releases, .. }) = self.operations.remove(&id)
        else {
            unreachable!("a flush is answered once");
        };
        self.counters.write_errors += u64::from(errno.is_some());
        if !releases.is_empty() {
            out.push(Outcome::Release { client, locks: releases });
        }
        out.push(written(reply, errno));
    }

    /// Has an operation wait for the jobs on `extent` that were admitted before it.
    fn wait(&mut self, id: u64, resource: ResourceId, extent: Extent, out: &mut Vec<Outcome>) {
        if self.stripes.contains_key(&resource) {
            self.step_known(resource, Input::Await { wait: WaitId(id), extent }, out);
        } else {
            self.ready(id, None, out);
        }
    }

    fn wait_for_all(&mut self, id: u64, resources: &[ResourceId], out: &mut Vec<Outcome>) {
        if resources.is_empty() {
            self.waited(id);
        }
        for resource in resources {
            self.wait(id, *resource, Extent::WHOLE, out);
        }
    }

    /// The jobs before an operation have ended on one stripe.
    fn ready(&mut self, id: u64, errno: Option<i32>, out: &mut Vec<Outcome>) {
        match self.operations.get_mut(&id) {
            Some(Operation::Read { .. }) => {
                if !self.starved.is_empty() || !self.start_read(id) {
                    self.starved.push_back(id);
                }
            }
            Some(Operation::Sync { stripes, errno: first, .. }) => {
                *first = first.or(errno);
                *stripes -= 1;
                if *stripes == 0 {
                    self.waited(id);
                }
            }
            Some(Operation::Destroy { stripes, .. }) => {
                *stripes -= 1;
                if *stripes == 0 {
                    self.waited(id);
                }
            }
            Some(Operation::Measure { resource, .. }) => {
                let task = Task::Measure { operation: id, resource: *resource };
                self.pool.submit(task, true);
            }
            Some(Operation::Write { .. } | Operation::Truncate { .. }) | None => {
                unreachable!("only operations that wait become ready: {out:?}")
            }
        }
    }

    /// All stripes of a sync or removal are ready.
    fn waited(&mut self, id: u64) {
        match self.operations.get(&id) {
            Some(Operation::Sync { resources, .. }) => {
                let task = Task::Sync { operation: id, resources: resources.clone() };
                self.pool.submit(task, true);
            }
            Some(Operation::Destroy { resources, .. }) => {
                let resources = resources.clone();
                for resource in &resources {
                    if let Some(stripe) = self.stripes.remove(resource) {
                        self.entries -= stripe.entries();
                    }
                }
                self.pool.submit(Task::Remove { operation: id, resources }, false);
            }
            Some(
                Operation::Write { .. }
                | Operation::Truncate { .. }
                | Operation::Read { .. }
                | Operation::Measure { .. },
            )
            | None => unreachable!("only syncs and removals wait for several stripes"),
        }
    }

    /// Sends a read to the device if there is memory for it.
    fn start_read(&mut self, id: u64) -> bool {
        let Some(Operation::Read { resource, extent, .. }) = self.operations.get(&id) else {
            unreachable!("a read starts before it is answered");
        };
        let bytes = usize::try_from(extent.length()).expect("the length of a read was checked");
        let Some(buffer) = self.read_buffers.try_take(bytes) else { return false };
        let task = Task::Read { operation: id, resource: *resource, offset: extent.start(), buffer };
        self.pool.submit(task, true);
        true
    }

    fn ended(&mut self, done: Done, out: &mut Vec<Outcome>) {
        match done {
            Done::Job { resource, job, result } => {
                let input = match result {
                    Ok(()) => Input::Persisted { job },
                    Err(errno) => {
                        tracing::debug!(%resource, errno, "a device write failed");
                        Input::Failed { job, errno }
                    }
                };
                self.step_known(resource, input, out);
                if self.stripes.get(&resource).is_some_and(|stripe| stripe.jobs() == 0) {
                    out.push(Outcome::Quiet { resource });
                }
            }
            Done::Read { operation, buffer, result } => self.read_ended(operation, buffer, result, out),
            Done::Measured { operation, result } => self.measured(operation, result, out),
            Done::Finished { operation, result } => match self.operations.remove(&operation) {
                Some(Operation::Sync { reply, client, errno, resources, .. }) => {
                    let lost = self.lost.synced(client, &resources, result.err());
                    out.push(self::done(reply, errno.or(lost)));
                }
                Some(Operation::Destroy { reply, .. }) => out.push(self::done(reply, result.err())),
                Some(
                    Operation::Write { .. }
                    | Operation::Truncate { .. }
                    | Operation::Read { .. }
                    | Operation::Measure { .. },
                )
                | None => unreachable!("only syncs and removals end like this, once"),
            },
        }
    }

    fn read_ended(&mut self, id: u64, bulk: Buffer, result: Result<u64, i32>, out: &mut Vec<Outcome>) {
        let Some(Operation::Read { reply, .. }) = self.operations.remove(&id) else {
            unreachable!("a read ends once");
        };
        match result {
            Ok(stripe_bytes) => {
                self.counters.bytes_read += bulk.len() as u64;
                let message = Message::ReadReply { request: reply.request, status: Status::Ok, stripe_bytes };
                out.push(if bulk.is_empty() {
                    Outcome::Reply { connection: reply.connection, message }
                } else {
                    Outcome::Data { connection: reply.connection, message, bulk }
                });
            }
            Err(errno) => out.push(unread(reply, errno)),
        }
    }

    fn measured(&mut self, id: u64, result: Result<Measure, i32>, out: &mut Vec<Outcome>) {
        let Some(Operation::Measure { glimpse, pending_end, .. }) = self.operations.remove(&id) else {
            unreachable!("a measurement ends once");
        };
        let result =
            result.map(|measure| Measure { length_bytes: measure.length_bytes.max(pending_end), ..measure });
        out.push(Outcome::Measured { glimpse, result });
    }
}

fn distinct(resources: Vec<ResourceId>) -> Vec<ResourceId> {
    resources.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}
