//! The device of one shard: how long it takes, what it holds, and what of that a crash leaves.
//!
//! Contents are kept apart as the system sees them (*live*) and as a crash leaves them (*durable*). What was written since the last
//! sync survives a crash whole, in part or not at all, each change by its own luck.

use crate::config::DiskConfig;
use crate::net::{Tag, transfer_ns};
use crate::random::Random;
use ccpfs_shard::TaskId;
use ccpfs_types::{Extent, ExtentMap, ResourceId};
use std::collections::{BTreeMap, VecDeque};

/// EIO of Linux.
pub const EIO: i32 = 5;
/// ENOSPC of Linux.
pub const ENOSPC: i32 = 28;

/// One change of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// These bytes are somebody's now.
    Write(Extent, Tag),
    /// These bytes are zeros now.
    Hole(Extent),
    /// The stripe is so long now.
    Length(u64),
}

/// What one stripe holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Contents {
    bytes: ExtentMap<Tag>,
    length: u64,
}

impl Contents {
    fn apply(&mut self, change: Change, tagged: bool) {
        match change {
            Change::Write(extent, tag) => {
                self.length = self.length.max(extent.end());
                if tagged {
                    self.bytes.insert(extent, tag);
                }
            }
            Change::Hole(extent) => self.bytes.remove(extent),
            Change::Length(length) => {
                if let Some(above) = Extent::new(length, Extent::EOF) {
                    self.bytes.remove(above);
                }
                self.length = length;
            }
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Object {
    live: Contents,
    durable: Contents,
    /// Changes since the last sync, the oldest first.
    log: Vec<Change>,
    /// How many there were before these.
    before: usize,
}

/// A task that waits for the device.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    task: TaskId,
    busy_ns: u64,
    latency_ns: u64,
}

/// When a task that has just begun ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The task.
    pub task: TaskId,
    /// When the device can begin the next one: ask [`Disk::next`] then. `None` if it never was busy.
    pub free_ns: Option<u64>,
    /// When it is done.
    pub done_ns: u64,
}

/// One device.
#[derive(Debug)]
pub struct Disk {
    config: DiskConfig,
    random: Random,
    tagged: bool,
    objects: BTreeMap<ResourceId, Object>,
    urgent: VecDeque<Waiting>,
    normal: VecDeque<Waiting>,
    busy: bool,
    /// Bytes given to the device.
    pub bytes_written: u64,
}

impl Disk {
    /// An empty device. `tagged`: contents are kept, and not only lengths.
    #[must_use]
    pub fn new(config: DiskConfig, tagged: bool, random: Random) -> Disk {
        Disk {
            config,
            random,
            tagged,
            objects: BTreeMap::new(),
            urgent: VecDeque::new(),
            normal: VecDeque::new(),
            busy: false,
            bytes_written: 0,
        }
    }

    /// A task that moves so many bytes and takes `extra_ns` besides: begins now if nothing is in its way.
    pub fn submit(
        &mut self,
        now_ns: u64,
        task: TaskId,
        cost: (u64, bool),
        extra_ns: u64,
        urgent: bool,
    ) -> Option<Begun> {
        let (bytes, writes) = cost;
        let speed = match (writes, self.config.read_bytes_per_s) {
            (false, speed @ 1..) => speed,
            (true | false, _) => self.config.bytes_per_s,
        };
        if writes {
            self.bytes_written += bytes;
        }
        let jitter = if self.config.jitter_ns > 0 { self.random.below(self.config.jitter_ns) } else { 0 };
        let latency_ns = self.config.latency_ns + extra_ns + jitter;
        let request_ns = if writes && bytes > 0 { self.config.request_ns } else { 0 };
        let busy_ns = transfer_ns(bytes, speed) + request_ns;
        if busy_ns == 0 {
            return Some(Begun { task, free_ns: None, done_ns: now_ns + latency_ns });
        }
        let waiting = Waiting { task, busy_ns, latency_ns };
        if urgent {
            self.urgent.push_back(waiting)
        } else {
            self.normal.push_back(waiting)
        }
        if self.busy { None } else { self.next(now_ns) }
    }

    /// The device has moved the bytes of a task: begins the next one.
    pub fn next(&mut self, now_ns: u64) -> Option<Begun> {
        let next = self.urgent.pop_front().or_else(|| self.normal.pop_front());
        self.busy = next.is_some();
        next.map(|Waiting { task, busy_ns, latency_ns }| {
            let free_ns = now_ns + busy_ns;
            Begun { task, free_ns: Some(free_ns), done_ns: free_ns + latency_ns }
        })
    }

    /// Changes a stripe.
    pub fn apply(&mut self, resource: ResourceId, change: Change) {
        let object = self.objects.entry(resource).or_default();
        object.live.apply(change, self.tagged);
        if self.tagged {
            object.log.push(change);
        }
    }

    /// Removes a stripe, for good.
    pub fn remove(&mut self, resource: ResourceId) {
        self.objects.remove(&resource);
    }

    /// The length of a stripe.
    #[must_use]
    pub fn length(&self, resource: ResourceId) -> u64 {
        self.objects.get(&resource).map_or(0, |object| object.live.length)
    }

    /// The runs of tags within `extent`, up to the stripe's end, in order and without gaps (0 for holes).
    #[must_use]
    pub fn read(&self, resource: ResourceId, extent: Extent) -> Vec<(Extent, Tag)> {
        let Some(object) = self.objects.get(&resource) else { return Vec::new() };
        let Some(within) = Extent::new(extent.start(), extent.end().min(object.live.length)) else {
            return Vec::new();
        };
        let mut runs: Vec<(Extent, Tag)> = object.live.bytes.within(within).collect();
        runs.extend(object.live.bytes.gaps(within).into_iter().map(|gap| (gap, 0)));
        runs.sort_unstable_by_key(|(extent, _)| extent.start());
        runs
    }

    /// Where the log of a stripe stands: a sync that begins now covers what is before.
    #[must_use]
    pub fn mark(&self, resource: ResourceId) -> usize {
        self.objects.get(&resource).map_or(0, |object| object.before + object.log.len())
    }

    /// A sync that began at [`Disk::mark`] has ended.
    pub fn synced(&mut self, resource: ResourceId, mark: usize) {
        let Some(object) = self.objects.get_mut(&resource) else { return };
        let covered = mark.saturating_sub(object.before).min(object.log.len());
        object.before += covered;
        for change in object.log.drain(..covered) {
            object.durable.apply(change, true);
        }
    }

    /// Nothing is under way any more.
    pub fn abandon(&mut self) {
        self.urgent.clear();
        self.normal.clear();
        self.busy = false;
    }

    /// Nothing is under way any more, and what was not synced is subject to luck.
    pub fn crash(&mut self) {
        self.abandon();
        let (random, config) = (&mut self.random, self.config);
        for object in self.objects.values_mut() {
            let log = std::mem::take(&mut object.log);
            object.before += log.len();
            for change in log {
                if let Some(left) = what_is_left(change, config, random) {
                    object.durable.apply(left, true);
                }
            }
            object.live = object.durable.clone();
        }
    }
}

fn what_is_left(change: Change, config: DiskConfig, random: &mut Random) -> Option<Change> {
    if random.chance(config.survive_per_mille) {
        return Some(change);
    }
    if !random.chance(config.torn_per_mille) {
        return None;
    }
    match change {
        Change::Write(extent, tag) => {
            let cut = extent.start() + random.below(extent.length());
            let first = random.chance(500);
            let (from, to) = if first { (extent.start(), cut) } else { (cut, extent.end()) };
            Extent::new(from, to).map(|part| Change::Write(part, tag))
        }
        Change::Hole(_) | Change::Length(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_types::FileId;

    const STRIPE: ResourceId = ResourceId { file: FileId([1; 16]), stripe: 0 };

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    fn disk(survive_per_mille: u64) -> Disk {
        let config = DiskConfig { survive_per_mille, torn_per_mille: 0, ..DiskConfig::default() };
        Disk::new(config, true, Random::new(5))
    }

    #[test]
    fn a_crash_keeps_what_was_synced_and_may_lose_the_rest() {
        let mut disk = disk(0);
        disk.apply(STRIPE, Change::Write(extent(0, 10), 1));
        let mark = disk.mark(STRIPE);
        disk.apply(STRIPE, Change::Write(extent(5, 20), 2));
        disk.synced(STRIPE, mark);
        assert_eq!(disk.read(STRIPE, extent(0, 30)), [(extent(0, 5), 1), (extent(5, 20), 2)]);
        disk.crash();
        assert_eq!(disk.read(STRIPE, extent(0, 30)), [(extent(0, 10), 1)]);
        assert_eq!(disk.length(STRIPE), 10);
    }

    #[test]
    fn holes_read_as_nobodys_bytes() {
        let mut disk = disk(0);
        disk.apply(STRIPE, Change::Write(extent(0, 10), 1));
        disk.apply(STRIPE, Change::Hole(extent(2, 4)));
        disk.apply(STRIPE, Change::Length(6));
        let runs = [(extent(0, 2), 1), (extent(2, 4), 0), (extent(4, 6), 1)];
        assert_eq!(disk.read(STRIPE, extent(0, 30)), runs);
    }

    #[test]
    fn bytes_pass_one_after_the_other_and_urgent_ones_first() {
        let config = DiskConfig { bytes_per_s: 1_000_000_000, latency_ns: 5, ..DiskConfig::default() };
        let mut disk = Disk::new(config, false, Random::new(5));
        let first = disk.submit(0, TaskId(1), (1000, true), 0, false);
        assert_eq!(first, Some(Begun { task: TaskId(1), free_ns: Some(1000), done_ns: 1005 }));
        assert_eq!(disk.submit(0, TaskId(2), (1000, true), 0, false), None);
        assert_eq!(disk.submit(0, TaskId(3), (1000, true), 0, true), None);
        assert_eq!(disk.next(1000).map(|begun| begun.task), Some(TaskId(3)));
        assert_eq!(disk.next(2000).map(|begun| begun.task), Some(TaskId(2)));
        assert_eq!(disk.next(3000), None);
    }
}
