//! The threads that talk to a shard's device: tasks in, outcomes back. Device calls block; the shard thread never makes one.
//!
//! *What*: writes of one stripe that wait at the same time go to the device as one write, in the order of the file: pieces of several
//! clients that lie side by side become one.
//! *Invariants*: writes that are here together share no byte (the rules start no such two), so their order is free. Nothing waits
//! for more to come: a thread that is free takes what there is.

use ccpfs_device::{Device, DeviceError, Map, ObjectName};
use ccpfs_shard::{Measure, Part, TaskId, TaskResult};
use ccpfs_transport::{Buffer, Waker};
use ccpfs_types::limits::MAP_EXTENTS_MAX;
use ccpfs_types::{Extent, FileId, ResourceId};
use ccpfs_wire::StoredStripe;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Of so many tasks at least one is taken from the queue of those that nobody waits for.
const URGENT_IN_A_ROW_MAX: u32 = 8;

/// Most tasks, and most bytes, that are written in one go: who waits for the first waits for the last as well.
const BATCH_TASKS_MAX: usize = 8;
const BATCH_BYTES_MAX: u64 = 16 << 20;

/// So many tasks of a queue are looked at for others of the same stripe.
const LOOK_MAX: usize = 256;

/// The name under which the device keeps a stripe.
pub(crate) fn object_name(resource: ResourceId) -> ObjectName {
    let mut name = [0; 20];
    name[..16].copy_from_slice(&resource.file.0);
    name[16..].copy_from_slice(&resource.stripe.to_be_bytes());
    ObjectName(name)
}

/// The stripe that has this name.
fn resource_of(object: ObjectName) -> ResourceId {
    let (mut file, mut stripe) = ([0; 16], [0; 4]);
    file.copy_from_slice(&object.0[..16]);
    stripe.copy_from_slice(&object.0[16..]);
    ResourceId { file: FileId(file), stripe: u32::from_be_bytes(stripe) }
}

/// Something for the device to do.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) id: TaskId,
    pub(crate) call: Call,
}

/// What is called, and with what.
#[derive(Debug)]
pub(crate) enum Call {
    Write { resource: ResourceId, bulk: Arc<Buffer>, base: usize, parts: Vec<Part> },
    Cut { resource: ResourceId, holes: Vec<Extent>, length: Option<u64> },
    Read { resource: ResourceId, offset: u64, buffer: Buffer },
    Measure { resource: ResourceId },
    Map { resource: ResourceId, extent: Extent },
    List { after: Option<ResourceId>, count_max: u32 },
    Sync { resources: Vec<ResourceId> },
    Remove { resources: Vec<ResourceId> },
}

/// How a task ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) task: TaskId,
    pub(crate) result: TaskResult,
    /// What a read has read.
    pub(crate) buffer: Option<Buffer>,
}

impl Call {
    /// If it is a write: of which stripe, and of how many bytes.
    fn writes(&self) -> Option<(ResourceId, u64)> {
        match self {
            Call::Write { resource, parts, .. } => {
                Some((*resource, parts.iter().map(|part| part.extent.length()).sum()))
            }
            Call::Cut { .. }
            | Call::Read { .. }
            | Call::Measure { .. }
            | Call::Map { .. }
            | Call::List { .. }
            | Call::Sync { .. }
            | Call::Remove { .. } => None,
        }
    }
}

#[derive(Debug, Default)]
struct Queues {
    urgent: VecDeque<Task>,
    others: VecDeque<Task>,
    urgent_in_a_row: u32,
    closed: bool,
}

impl Queues {
    /// What to do next: urgent tasks first, but not for ever. A write brings others of its stripe along, none of them less urgent.
    fn take(&mut self) -> Option<Vec<Task>> {
        let others_turn = self.urgent_in_a_row >= URGENT_IN_A_ROW_MAX && !self.others.is_empty();
        let urgent = !others_turn && !self.urgent.is_empty();
        self.urgent_in_a_row = if urgent { self.urgent_in_a_row + 1 } else { 0 };
        let queue = if urgent { &mut self.urgent } else { &mut self.others };
        let mut batch = vec![queue.pop_front()?];
        if let Some((resource, bytes)) = batch[0].call.writes() {
            gather(queue, resource, BATCH_BYTES_MAX.saturating_sub(bytes), &mut batch);
        }
        Some(batch)
    }
}

/// Takes writes of a stripe out of a queue, as far as there is room.
fn gather(queue: &mut VecDeque<Task>, resource: ResourceId, mut room: u64, batch: &mut Vec<Task>) {
    let mut at = 0;
    while at < queue.len().min(LOOK_MAX) && batch.len() < BATCH_TASKS_MAX {
        match queue[at].call.writes() {
            Some((other, bytes)) if other == resource && bytes <= room => {
                room -= bytes;
                batch.extend(queue.remove(at));
            }
            Some(_) | None => at += 1,
        }
    }
}

struct Shared {
    device: Arc<dyn Device>,
    queues: Mutex<Queues>,
    tasks: Condvar,
    done: Mutex<Vec<Done>>,
    ended: Condvar,
    waker: Waker,
    failures: Failures,
}

/// The device threads of one shard. Dropping it ends them after the tasks that they have begun.
pub(crate) struct DevicePool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    in_flight: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No statement between two that can panic leaves a queue half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DevicePool {
    /// Starts `threads` threads named after `shard`. Ended tasks wake the shard through `waker`.
    pub(crate) fn start(
        device: Arc<dyn Device>,
        threads: u32,
        shard: u32,
        waker: Waker,
    ) -> io::Result<DevicePool> {
        let shared = Arc::new(Shared {
            device,
            queues: Mutex::default(),
            tasks: Condvar::new(),
            done: Mutex::default(),
            ended: Condvar::new(),
            waker,
            failures: Failures::default(),
        });
        let mut pool = DevicePool { shared: shared.clone(), threads: Vec::new(), in_flight: 0 };
        for thread in 0..threads.max(1) {
            let shared = shared.clone();
            let name = format!("device-{shard}.{thread}");
            pool.threads.push(std::thread::Builder::new().name(name).spawn(move || work(&shared))?);
        }
        Ok(pool)
    }

    /// Queues a task; an urgent one goes before those that are not.
    pub(crate) fn submit(&mut self, task: Task, urgent: bool) {
        self.in_flight += 1;
        let mut queues = lock(&self.shared.queues);
        if urgent {
            queues.urgent.push_back(task);
        } else {
            queues.others.push_back(task);
        }
        drop(queues);
        self.shared.tasks.notify_one();
    }

    /// Takes what has ended since the last call.
    pub(crate) fn take_done(&mut self, into: &mut Vec<Done>) {
        into.append(&mut lock(&self.shared.done));
        self.in_flight -= into.len();
    }

    /// Tasks that were submitted and not yet taken back.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Blocks until something has ended. Only with tasks in flight.
    pub(crate) fn wait_done(&self) {
        assert!(self.in_flight > 0, "nothing would ever end the wait");
        let mut done = lock(&self.shared.done);
        while done.is_empty() {
            done = self.shared.ended.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The device, for calls while the shard does not serve.
    pub(crate) fn device(&self) -> &dyn Device {
        &*self.shared.device
    }
}

impl Drop for DevicePool {
    fn drop(&mut self) {
        lock(&self.shared.queues).closed = true;
        self.shared.tasks.notify_all();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a device thread has panicked");
            }
        }
    }
}

fn work(shared: &Shared) {
    while let Some(batch) = next(shared) {
        let ended = execute(&*shared.device, &shared.failures, batch);
        lock(&shared.done).extend(ended);
        shared.ended.notify_one();
        shared.waker.wake();
    }
}

fn next(shared: &Shared) -> Option<Vec<Task>> {
    let mut queues = lock(&shared.queues);
    loop {
        if queues.closed {
            return None;
        }
        if let Some(batch) = queues.take() {
            return Some(batch);
        }
        queues = shared.tasks.wait(queues).unwrap_or_else(PoisonError::into_inner);
    }
}

/// Reports failures of a device: the first one loudly, until it has done something right again.
#[derive(Debug, Default)]
struct Failures {
    reported: AtomicBool,
}

impl Failures {
    /// Runs device calls. An error becomes an `errno` that can be sent; a panic becomes an input/output error, so that nobody waits
    /// for ever.
    fn guard<T>(&self, call: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, i32> {
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(Ok(value)) => {
                if self.reported.load(Ordering::Relaxed) {
                    self.reported.store(false, Ordering::Relaxed);
                }
                Ok(value)
            }
            Ok(Err(error)) => {
                if self.reported.swap(true, Ordering::Relaxed) {
                    tracing::debug!(%error, "the device failed again");
                } else {
                    tracing::warn!(%error, "the device failed");
                }
                Err(if (1..4096).contains(&error.errno) { error.errno } else { libc::EIO })
            }
            Err(_) => {
                tracing::error!("a device call has panicked");
                Err(libc::EIO)
            }
        }
    }
}

/// Does what was taken together.
fn execute(device: &dyn Device, failures: &Failures, batch: Vec<Task>) -> Vec<Done> {
    if batch.len() > 1 && write_together(device, &batch).is_ok() {
        return batch
            .into_iter()
            .map(|task| Done { task: task.id, result: TaskResult::Done, buffer: None })
            .collect();
    }
    // What failed together is done again one by one, so that each is told what became of it.
    batch.into_iter().map(|task| execute_one(device, failures, task)).collect()
}

fn execute_one(device: &dyn Device, failures: &Failures, task: Task) -> Done {
    let mut read = None;
    let result = match task.call {
        Call::Write { resource, bulk, base, parts } => {
            failures.guard(|| write(device, resource, &bulk[base..], &parts)).map(done)
        }
        Call::Cut { resource, holes, length } => {
            failures.guard(|| cut(device, resource, &holes, length)).map(done)
        }
        Call::Read { resource, offset, mut buffer } => {
            let object = object_name(resource);
            let result = failures.guard(|| {
                let bytes = device.read(object, offset, &mut buffer)?;
                Ok((bytes, device.length(object)?.unwrap_or(0)))
            });
            result.map(|(bytes, stripe_bytes)| {
                buffer.truncate(bytes);
                let bytes = u64::try_from(buffer.len()).expect("a read is small");
                read = Some(buffer);
                TaskResult::Read { bytes, stripe_bytes }
            })
        }
        Call::Measure { resource } => failures.guard(|| measure(device, resource)).map(TaskResult::Measured),
        Call::Map { resource, extent } => failures.guard(|| {
            let Map { data, known_to } = device.map(object_name(resource), extent, MAP_EXTENTS_MAX)?;
            Ok(TaskResult::Mapped { data, known_to })
        }),
        Call::List { after, count_max } => failures.guard(|| list(device, after, count_max)),
        Call::Sync { resources } => {
            failures.guard(|| resources.iter().try_for_each(|id| device.sync(object_name(*id)))).map(done)
        }
        Call::Remove { resources } => {
            failures.guard(|| resources.iter().try_for_each(|id| device.remove(object_name(*id)))).map(done)
        }
    };
    let result = result.unwrap_or_else(|errno| TaskResult::Failed { errno });
    Done { task: task.id, result, buffer: read }
}

fn done((): ()) -> TaskResult {
    TaskResult::Done
}

fn write(device: &dyn Device, resource: ResourceId, bulk: &[u8], parts: &[Part]) -> Result<(), DeviceError> {
    let pieces: Vec<(u64, &[u8])> =
        parts.iter().map(|part| (part.extent.start(), &bulk[place(part)])).collect();
    device.write(object_name(resource), &pieces)
}

/// Writes what several writes of one stripe bring, in the order of the file.
fn write_together(device: &dyn Device, batch: &[Task]) -> Result<(), ()> {
    let mut pieces: Vec<(u64, &[u8])> = Vec::new();
    let mut written = None;
    for task in batch {
        let Call::Write { resource, bulk, base, parts } = &task.call else { return Err(()) };
        let bulk = &bulk[*base..];
        pieces.extend(parts.iter().map(|part| (part.extent.start(), &bulk[place(part)])));
        written = Some(*resource);
    }
    pieces.sort_unstable_by_key(|(start, _)| *start);
    let object = object_name(written.ok_or(())?);
    match catch_unwind(AssertUnwindSafe(|| device.write(object, &pieces))) {
        Ok(Ok(())) => Ok(()),
        // Whoever writes them one by one tells.
        Ok(Err(_)) | Err(_) => Err(()),
    }
}

/// Where the data of a part are in the bulk of its write.
fn place(part: &Part) -> Range<usize> {
    let start = index(part.bulk_offset);
    start..start + index(part.extent.length())
}

fn cut(
    device: &dyn Device,
    resource: ResourceId,
    holes: &[Extent],
    length: Option<u64>,
) -> Result<(), DeviceError> {
    let object = object_name(resource);
    for hole in holes {
        device.punch(object, *hole)?;
    }
    match length {
        Some(length) => device.truncate(object, length),
        None => Ok(()),
    }
}

fn measure(device: &dyn Device, resource: ResourceId) -> Result<Measure, DeviceError> {
    let object = object_name(resource);
    let modified_ns = device.modified_ns(object)?.unwrap_or(0);
    Ok(Measure {
        length_bytes: device.length(object)?.unwrap_or(0),
        modified_ns: i64::try_from(modified_ns).unwrap_or(i64::MAX),
    })
}

fn list(device: &dyn Device, after: Option<ResourceId>, count_max: u32) -> Result<TaskResult, DeviceError> {
    let count_max = usize::try_from(count_max).expect("32 bits fit");
    let listed = device.list(after.map(object_name), count_max)?;
    let more = listed.len() == count_max;
    let stripes = listed.into_iter().map(|found| StoredStripe {
        resource: resource_of(found.object),
        length_bytes: found.length_bytes,
        stored_bytes: found.stored_bytes,
        modified_ns: i64::try_from(found.modified_ns).unwrap_or(i64::MAX),
    });
    Ok(TaskResult::Listed { stripes: stripes.collect(), more })
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("offsets in a frame's bulk were checked against its length")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_device::{FailPoint, FaultyDevice, MemoryDevice};
    use ccpfs_transport::BufferPool;

    fn stripe(number: u32) -> ResourceId {
        ResourceId { file: FileId([7; 16]), stripe: number }
    }

    fn write_task(id: u64, stripe_number: u32, start: u64, bytes: &[u8]) -> Task {
        let mut bulk = BufferPool::new(1 << 20).try_take(bytes.len()).unwrap();
        bulk.copy_from_slice(bytes);
        let extent = Extent::with_length(start, bytes.len() as u64).unwrap();
        let parts = vec![Part { extent, bulk_offset: 0 }];
        Task {
            id: TaskId(id),
            call: Call::Write { resource: stripe(stripe_number), bulk: Arc::new(bulk), base: 0, parts },
        }
    }

    fn ids(batch: &[Task]) -> Vec<u64> {
        batch.iter().map(|task| task.id.0).collect()
    }

    #[test]
    fn writes_of_one_stripe_go_together_and_none_that_is_less_urgent() {
        let mut queues = Queues::default();
        let sync = Task { id: TaskId(9), call: Call::Sync { resources: vec![stripe(0)] } };
        queues.urgent.extend([write_task(1, 0, 40, b"urgent"), sync, write_task(2, 0, 0, b"urgent")]);
        queues.others.extend([write_task(3, 1, 0, b"other"), write_task(4, 0, 30, b"before")]);
        queues.others.extend((10..20).map(|id| write_task(id, 0, id * 100, b"more")));
        assert_eq!(ids(&queues.take().unwrap()), [1, 2]);
        assert_eq!(ids(&queues.take().unwrap()), [9]);
        assert_eq!(ids(&queues.take().unwrap()), [3]);
        assert_eq!(ids(&queues.take().unwrap()), [4, 10, 11, 12, 13, 14, 15, 16], "as many as may");
        assert_eq!(ids(&queues.take().unwrap()), [17, 18, 19]);
        assert!(queues.take().is_none());
    }

    #[test]
    fn what_fails_together_is_done_one_by_one_and_each_is_told_what_became_of_it() {
        let device = FaultyDevice::new(MemoryDevice::new());
        let failures = Failures::default();
        let batch = |first: u64| vec![write_task(first, 0, 4, b"efgh"), write_task(first + 1, 0, 0, b"abcd")];
        let ended = execute(&device, &failures, batch(1));
        assert_eq!(ended.iter().map(|done| done.task.0).collect::<Vec<_>>(), [1, 2]);
        assert!(ended.iter().all(|done| matches!(done.result, TaskResult::Done)));
        let mut bytes = [0; 9];
        assert_eq!(device.read(object_name(stripe(0)), 0, &mut bytes), Ok(8));
        assert_eq!(&bytes[..8], b"abcdefgh");
        device.faults().set(FailPoint::NoSpaceAfter { bytes: 5 });
        let ended = execute(&device, &failures, batch(3));
        assert!(matches!(ended[0].result, TaskResult::Done));
        assert!(matches!(ended[1].result, TaskResult::Failed { errno: libc::ENOSPC }));
    }
}
