//! The threads that talk to a shard's device: tasks in, outcomes back. Device calls block; the shard thread never makes one.

use ccpfs_device::{Device, DeviceError, Map, ObjectName};
use ccpfs_shard::{Measure, Part, TaskId, TaskResult};
use ccpfs_transport::{Buffer, Waker};
use ccpfs_types::limits::MAP_EXTENTS_MAX;
use ccpfs_types::{Extent, FileId, ResourceId};
use ccpfs_wire::StoredStripe;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Of so many tasks at least one is taken from the queue of those that nobody waits for.
const URGENT_IN_A_ROW_MAX: u32 = 8;

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

#[derive(Debug, Default)]
struct Queues {
    urgent: VecDeque<Task>,
    others: VecDeque<Task>,
    urgent_in_a_row: u32,
    closed: bool,
}

impl Queues {
    /// The next task: urgent ones first, but not for ever.
    fn take(&mut self) -> Option<Task> {
        let others_turn = self.urgent_in_a_row >= URGENT_IN_A_ROW_MAX && !self.others.is_empty();
        if !others_turn && let Some(task) = self.urgent.pop_front() {
            self.urgent_in_a_row += 1;
            return Some(task);
        }
        self.urgent_in_a_row = 0;
        self.others.pop_front()
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
    while let Some(task) = next(shared) {
        let done = execute(&*shared.device, &shared.failures, task);
        lock(&shared.done).push(done);
        shared.ended.notify_one();
        shared.waker.wake();
    }
}

fn next(shared: &Shared) -> Option<Task> {
    let mut queues = lock(&shared.queues);
    loop {
        if queues.closed {
            return None;
        }
        if let Some(task) = queues.take() {
            return Some(task);
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

fn execute(device: &dyn Device, failures: &Failures, task: Task) -> Done {
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
    let pieces: Vec<(u64, &[u8])> = parts
        .iter()
        .map(|part| {
            let start = index(part.bulk_offset);
            (part.extent.start(), &bulk[start..start + index(part.extent.length())])
        })
        .collect();
    device.write(object_name(resource), &pieces)
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
