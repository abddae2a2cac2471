//! Device tasks of a shard: what they change, when that shows, and how they end.

use super::server::ShardNode;
use crate::disk::{Begun, Change, EIO, ENOSPC};
use crate::engine::{Engine, ShardEvent};
use crate::net::{Bulk, transfer_ns};
use ccpfs_shard::{BulkRef, Input, Measure, TaskId, TaskResult, Work};
use ccpfs_types::{Extent, ResourceId};

/// A task at the device.
#[derive(Debug)]
pub(crate) enum Task {
    /// Changes that show when it is done, if they have not shown already.
    Change { resource: ResourceId, changes: Vec<Change>, errno: Option<i32> },
    /// A read, with what it has read if it looked when it began.
    Read { resource: ResourceId, extent: Extent, found: Option<Box<Bulk>> },
    /// A measurement.
    Measure { resource: ResourceId },
    /// A sync, with where the logs stood when it began.
    Sync { marks: Vec<(ResourceId, usize)>, errno: Option<i32> },
    /// A removal.
    Remove { resources: Vec<ResourceId> },
    /// A read that is done and whose bytes are to be sent.
    Found { bulk: Box<Bulk> },
}

impl ShardNode {
    /// Gives a task to the device.
    pub(super) fn start_task(&mut self, engine: &mut Engine, task: TaskId, work: Work, urgent: bool) {
        let mut extra_ns = 0;
        let (cost, pending) = match work {
            Work::Write { resource, bulk, parts } => {
                let bytes = parts.iter().map(|part| part.extent.length()).sum();
                extra_ns = transfer_ns(bytes, engine.config.server.copy_bytes_per_s);
                let changes = self.changes(engine, bulk, &parts);
                ((bytes, true), self.begin_change(engine, resource, changes))
            }
            Work::Cut { resource, holes, length } => {
                let mut changes: Vec<Change> = holes.into_iter().map(Change::Hole).collect();
                changes.extend(length.map(Change::Length));
                ((0, true), self.begin_change(engine, resource, changes))
            }
            Work::Read { resource, extent } => {
                let found = engine.random.chance(500).then(|| self.read(engine, resource, extent));
                ((extent.length(), false), Task::Read { resource, extent, found })
            }
            Work::Map { .. } | Work::List { .. } => unreachable!("no simulated client asks for it"),
            Work::Measure { resource } => ((0, false), Task::Measure { resource }),
            Work::Sync { resources } => {
                extra_ns = engine.config.disk.sync_ns;
                let marks =
                    resources.into_iter().map(|resource| (resource, self.disk.mark(resource))).collect();
                ((0, false), Task::Sync { marks, errno: engine.device_error(false) })
            }
            Work::Remove { resources } => ((0, false), Task::Remove { resources }),
        };
        self.tasks.insert(task.0, pending);
        let begun = self.disk.submit(engine.now_ns(), task, cost, extra_ns, urgent);
        self.begun(engine, begun);
    }

    fn begun(&mut self, engine: &mut Engine, begun: Option<Begun>) {
        let Some(Begun { task, free_ns, done_ns }) = begun else { return };
        if let Some(free_ns) = free_ns {
            engine.shard_event(free_ns, self.target, self.life, ShardEvent::Free);
        }
        engine.shard_event(done_ns, self.target, self.life, ShardEvent::Done(task));
    }

    pub(super) fn device_free(&mut self, engine: &mut Engine) {
        let begun = self.disk.next(engine.now_ns());
        self.begun(engine, begun);
    }

    /// What the parts of a flush change.
    fn changes(&self, engine: &Engine, bulk: BulkRef, parts: &[ccpfs_extent_cache::Part]) -> Vec<Change> {
        let tagged = engine.is_tagged();
        let data = self.bulks.get(&bulk.id);
        let mut changes = Vec::with_capacity(parts.len());
        for part in parts {
            if !tagged {
                changes.push(Change::Write(part.extent, 1));
                continue;
            }
            let data = data.expect("data that are needed are kept");
            for (start, length, tag) in data.slice(bulk.offset + part.bulk_offset, part.extent.length()) {
                let run = Extent::with_length(part.extent.start() + start, length);
                changes.push(Change::Write(run.expect("runs have bytes"), tag));
            }
        }
        changes
    }

    /// A change shows when it begins or when it is done; of one that fails, a part may show.
    fn begin_change(&mut self, engine: &mut Engine, resource: ResourceId, mut changes: Vec<Change>) -> Task {
        let errno = engine.device_error(true);
        if errno.is_some() {
            let kept = engine.random.below(changes.len() as u64 + 1);
            changes.truncate(usize::try_from(kept).expect("an index"));
        }
        if engine.is_tagged() && engine.random.chance(500) {
            for change in changes.drain(..) {
                self.disk.apply(resource, change);
            }
        }
        Task::Change { resource, changes, errno }
    }

    fn read(&self, engine: &Engine, resource: ResourceId, extent: Extent) -> Box<Bulk> {
        let mut bulk = Bulk::default();
        if engine.is_tagged() {
            for (part, tag) in self.disk.read(resource, extent) {
                bulk.push(part.length(), tag);
            }
        } else {
            bulk.bytes = self.disk.length(resource).clamp(extent.start(), extent.end()) - extent.start();
        }
        Box::new(bulk)
    }

    pub(super) fn task_done(&mut self, engine: &mut Engine, task: TaskId) {
        let Some(pending) = self.tasks.remove(&task.0) else { return };
        let failed =
            |errno: Option<i32>| errno.map_or(TaskResult::Done, |errno| TaskResult::Failed { errno });
        let result = match pending {
            Task::Change { resource, changes, errno } => {
                for change in changes {
                    self.disk.apply(resource, change);
                }
                failed(errno)
            }
            Task::Read { resource, extent, found } => {
                let bulk = found.unwrap_or_else(|| self.read(engine, resource, extent));
                let bytes = bulk.bytes;
                self.tasks.insert(task.0, Task::Found { bulk });
                TaskResult::Read { bytes, stripe_bytes: self.disk.length(resource) }
            }
            Task::Measure { resource } => {
                TaskResult::Measured(Measure { length_bytes: self.disk.length(resource), modified_ns: 0 })
            }
            Task::Sync { marks, errno } => {
                if errno.is_none() {
                    for (resource, mark) in marks {
                        self.disk.synced(resource, mark);
                    }
                }
                failed(errno)
            }
            Task::Remove { resources } => {
                for resource in resources {
                    self.disk.remove(resource);
                }
                TaskResult::Done
            }
            Task::Found { .. } => unreachable!("a task ends once"),
        };
        self.step(engine, Input::Ended { task, result });
        self.tasks.remove(&task.0);
    }

    /// The bytes of a read that has ended in this step.
    pub(super) fn take_read(&mut self, task: TaskId) -> Option<Box<Bulk>> {
        match self.tasks.remove(&task.0) {
            Some(Task::Found { bulk }) => Some(bulk),
            Some(
                Task::Change { .. }
                | Task::Read { .. }
                | Task::Measure { .. }
                | Task::Sync { .. }
                | Task::Remove { .. },
            )
            | None => None,
        }
    }
}

impl Engine {
    /// The error of a task, if the device is to fail just now.
    fn device_error(&mut self, writes: bool) -> Option<i32> {
        if self.device_errors_per_mille == 0 || !self.random.chance(self.device_errors_per_mille) {
            return None;
        }
        Some(if writes && self.random.chance(500) { ENOSPC } else { EIO })
    }
}
