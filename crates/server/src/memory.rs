//! Memory that the rules speak of by name: data of flushes that have not reached the device, and room for reads.

use crate::device_pool::{Call, DevicePool, Task};
use ccpfs_shard::TaskId;
use ccpfs_transport::{Buffer, BufferPool};
use ccpfs_types::{Extent, ResourceId};
use std::collections::VecDeque;
use std::sync::Arc;

/// Data of flushes, by the names that the rules use for them.
#[derive(Debug, Default)]
pub(crate) struct Bulks {
    kept: Vec<Option<Arc<Buffer>>>,
    /// Names without data.
    free: Vec<usize>,
}

impl Bulks {
    /// Keeps data under a new name.
    pub(crate) fn keep(&mut self, bulk: Arc<Buffer>) -> u64 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.kept.push(None);
            self.kept.len() - 1
        });
        self.kept[at] = Some(bulk);
        u64::try_from(at).expect("64-bit addresses")
    }

    /// What a name stands for.
    pub(crate) fn get(&self, name: u64) -> &Arc<Buffer> {
        self.kept[index(name)].as_ref().expect("the rules start nothing with data that they have let go")
    }

    /// The data are not needed under this name any more.
    pub(crate) fn free(&mut self, name: u64) {
        let at = index(name);
        assert!(self.kept[at].take().is_some(), "data are let go once");
        self.free.push(at);
    }
}

fn index(name: u64) -> usize {
    usize::try_from(name).expect("names are made from indices")
}

/// A read that the rules have started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    pub(crate) task: TaskId,
    pub(crate) resource: ResourceId,
    pub(crate) extent: Extent,
}

/// Memory for data on their way to readers, and the reads that wait for it.
#[derive(Debug)]
pub(crate) struct Reads {
    buffers: BufferPool,
    starved: VecDeque<Read>,
}

impl Reads {
    pub(crate) fn new(bytes_max: usize) -> Reads {
        Reads { buffers: BufferPool::new(bytes_max), starved: VecDeque::new() }
    }

    /// Sends a read to the device as soon as there is memory for it; those that have waited longer come first.
    pub(crate) fn start(&mut self, read: Read, pool: &mut DevicePool) {
        if !self.starved.is_empty() || !self.try_start(read, pool) {
            self.starved.push_back(read);
        }
    }

    /// Gives memory that has come back to reads that wait for it.
    pub(crate) fn retry(&mut self, pool: &mut DevicePool) {
        while let Some(read) = self.starved.front() {
            if !self.try_start(*read, pool) {
                return;
            }
            self.starved.pop_front();
        }
    }

    fn try_start(&self, read: Read, pool: &mut DevicePool) -> bool {
        let Read { task, resource, extent } = read;
        let bytes = usize::try_from(extent.length()).expect("the rules have checked the length of a read");
        let Some(buffer) = self.buffers.try_take(bytes) else { return false };
        pool.submit(Task { id: task, call: Call::Read { resource, offset: extent.start(), buffer } }, true);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_used_again_when_their_data_are_gone() {
        let pool = BufferPool::new(1 << 20);
        let mut bulks = Bulks::default();
        let buffer = |bytes| Arc::new(pool.try_take(bytes).unwrap());
        let (a, b) = (bulks.keep(buffer(1)), bulks.keep(buffer(2)));
        bulks.free(a);
        let c = bulks.keep(buffer(3));
        assert_eq!((bulks.get(b).len(), bulks.get(c).len(), c), (2, 3, a));
    }
}
