//! Well-formed messages with any contents, over any channel, from clients that come and go; a device that fails at times: whatever
//! clients say, the shard stands, lets go of all data, and is empty in the end.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_shard::{
    BulkRef, Effect, Input, Measure, OPERATIONS_MAX, Settings, Shard, TaskId, TaskResult, Work, bulk_bytes,
};
use ccpfs_types::limits::{BULK_BYTES_MAX, LIST_STRIPES_MAX};
use ccpfs_types::{
    ClientId, Extent, FileId, GroupId, Layout, LockId, LockMode, Part, Policy, RequestId, ResourceId, Sn,
    Terms,
};
use ccpfs_wire::{Channel, LockRef, Message, WritePiece};
use std::collections::{BTreeMap, BTreeSet};

const SEEDS: u64 = 60;
const TURNS: usize = 1500;
const CHANNELS: [Channel; 3] = [Channel::Control, Channel::Callback, Channel::Bulk];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }

    fn number(&mut self) -> u64 {
        match self.below(120) {
            0 => u64::MAX - self.below(3),
            1 => (1 << 63) - 2 + self.below(4),
            _ => self.below(60),
        }
    }

    fn extent(&mut self) -> Extent {
        let (a, b) = (self.number(), self.number());
        Extent::new(a.min(b), a.max(b)).unwrap_or(Extent::WHOLE)
    }

    /// An extent, a list, sections, or what some sections of a file have on a stripe.
    fn region(&mut self) -> Region {
        let extent = Region::from(self.extent());
        match self.below(6) {
            0 => {
                let extents = (0..=self.below(5)).map(|_| self.extent()).collect();
                Region::from_extents(extents).unwrap_or(extent)
            }
            form @ 1..=3 => {
                let mut sections = Vec::new();
                for _ in 0..=self.below(3) {
                    let (offset, length) = (self.below(60), 1 + self.below(9));
                    let stride = length + 1 + self.below(30);
                    let inner = (stride, if self.below(4) == 0 { UNBOUNDED } else { 1 + self.below(5) });
                    let outer = (stride * 5 + self.below(50), 1 + self.below(3));
                    sections.extend(Section::new(offset, length, &[inner, outer]).ok());
                }
                if form == 1 {
                    return Region::from_sections(sections).unwrap_or(extent);
                }
                let layout = Layout::new(if form == 2 { 3 } else { 2 }, 4096).unwrap();
                Region::of_stripe(sections, &layout, 0).ok().flatten().unwrap_or(extent)
            }
            _ => extent,
        }
    }

    fn terms(&mut self) -> Terms {
        let part = self.pick(&[Part::Only, Part::Only, Part::Only, Part::First, Part::Next]);
        Terms { try_only: self.below(5) == 0, part, group: GroupId(self.below(12).saturating_sub(9)) }
    }

    fn resource(&mut self) -> ResourceId {
        ResourceId { file: FileId([9; 16]), stripe: u32::try_from(self.below(3)).unwrap() }
    }

    fn sn(&mut self) -> Sn {
        if self.below(8) == 0 { Sn(self.number()) } else { Sn((1 << 40) + self.below(40)) }
    }

    fn locks(&mut self) -> Vec<LockRef> {
        (0..self.below(4))
            .map(|_| LockRef { resource: self.resource(), lock: LockId(self.below(60)) })
            .collect()
    }

    fn resources(&mut self) -> Vec<ResourceId> {
        (0..self.below(4)).map(|_| self.resource()).collect()
    }

    /// A message, and mostly the channel it belongs to.
    fn message(&mut self) -> (Channel, Message) {
        let (request, resource) = (RequestId(self.below(50)), self.resource());
        let (lock, mode) = (LockId(self.below(60)), self.pick(&LockMode::ALL));
        let (channel, message) = match self.below(600) {
            0..150 => {
                let (required, desired) = (self.region(), self.region());
                let terms = self.terms();
                let enqueue = Message::Enqueue { request, resource, mode, required, desired, terms };
                (Channel::Control, enqueue)
            }
            150..185 => (Channel::Callback, Message::RevokeAck { resource, lock, mode }),
            185..200 => (Channel::Callback, Message::Narrow { resource, lock, taken: self.extent() }),
            200..230 => (Channel::Callback, Message::Convert { resource, lock, mode }),
            230..290 => (Channel::Callback, Message::Release { locks: self.locks() }),
            290..320 => {
                let (glimpse, end, modified_ns) = (self.below(30), self.number(), 1);
                (Channel::Callback, Message::GlimpseTell { glimpse, resource, end, modified_ns })
            }
            320..460 => {
                let piece = |random: &mut Random| WritePiece {
                    resource: random.resource(),
                    extent: random.extent(),
                    sn: random.sn(),
                };
                let pieces = (0..self.below(4)).map(|_| piece(self)).collect();
                let (urgent, releases) = (self.below(2) == 0, self.locks());
                (Channel::Bulk, Message::Write { request, urgent, pieces, releases })
            }
            460..500 => (Channel::Control, Message::Read { request, resource, extent: self.extent() }),
            500..508 => {
                let (extent, sn) = (self.extent(), self.sn());
                (Channel::Control, Message::Punch { request, resource, extent, sn })
            }
            508..510 => {
                let after = Some(resource).filter(|_| self.below(2) == 0);
                let count_max = u32::try_from(self.below(9000)).unwrap();
                (Channel::Control, Message::List { request, after, count_max })
            }
            510..515 => (Channel::Control, Message::Map { request, resource, extent: self.extent() }),
            515..530 => {
                let (length, sn) = (self.number(), self.sn());
                (Channel::Control, Message::Truncate { request, resource, length, sn })
            }
            530..550 => (Channel::Control, Message::Sync { request, resources: self.resources() }),
            550..580 => (Channel::Control, Message::Glimpse { request, resource }),
            580..597 => (Channel::Control, Message::Ping { request }),
            597 => (Channel::Control, Message::Destroy { request, resources: self.resources() }),
            598 => (Channel::Control, Message::Goodbye {}),
            _ => (Channel::Control, Message::Pong { request }),
        };
        (if self.below(400) == 0 { self.pick(&CHANNELS) } else { channel }, message)
    }
}

struct World {
    random: Random,
    shard: Shard,
    clients: Vec<ClientId>,
    parting: Vec<ClientId>,
    tasks: BTreeMap<TaskId, Work>,
    bulks: BTreeSet<u64>,
    now_ns: u64,
    last_number: u64,
}

impl World {
    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn join(&mut self) {
        let client = ClientId(self.number());
        for channel in CHANNELS {
            if self.random.below(20) > 0 {
                self.step(Input::Joined { client, channel });
            }
        }
        self.clients.push(client);
    }

    fn step(&mut self, input: Input) {
        self.now_ns += self.random.below(20);
        let mut out = Vec::new();
        self.shard.step(input, self.now_ns, &mut out);
        for effect in out {
            match effect {
                Effect::Start { task, work, .. } => assert!(self.tasks.insert(task, work).is_none()),
                Effect::Free { bulk } => assert!(self.bulks.remove(&bulk.id), "let go once"),
                Effect::Part { client, .. } => self.parting.push(client),
                Effect::Send { .. } | Effect::SendData { .. } | Effect::Status { .. } | Effect::Note(_) => {}
            }
        }
    }

    fn part(&mut self, client: ClientId) {
        self.clients.retain(|other| *other != client);
        self.step(Input::Parted { client, goodbye: false });
    }

    fn say(&mut self) {
        let from = self.random.pick(&self.clients);
        let (channel, message) = self.random.message();
        let bytes = bulk_bytes(&message).unwrap_or(5).min(u64::from(BULK_BYTES_MAX));
        let bytes = if self.random.below(200) == 0 { bytes / 2 } else { bytes };
        let bulk = (bytes > 0).then(|| BulkRef { id: self.number(), offset: 0, bytes });
        self.bulks.extend(bulk.map(|bulk| bulk.id));
        self.step(Input::Message { from, channel, message, bulk });
    }

    fn end(&mut self, task: TaskId) {
        let result = match self.tasks.remove(&task).unwrap() {
            _ if self.random.below(10) == 0 => TaskResult::Failed { errno: 5 },
            Work::Read { extent, .. } => {
                TaskResult::Read { bytes: self.random.below(extent.length() + 1), stripe_bytes: 7 }
            }
            Work::Map { extent, .. } => {
                TaskResult::Mapped { data: Vec::from([extent]), known_to: extent.end() }
            }
            Work::List { count_max, .. } => {
                assert!((1..=LIST_STRIPES_MAX).contains(&count_max));
                TaskResult::Listed { stripes: Vec::new(), more: self.random.below(2) == 0 }
            }
            Work::Measure { .. } => {
                TaskResult::Measured(Measure { length_bytes: self.random.number(), modified_ns: 1 })
            }
            Work::Write { .. } | Work::Cut { .. } | Work::Sync { .. } | Work::Remove { .. } => {
                TaskResult::Done
            }
        };
        self.step(Input::Ended { task, result });
    }

    fn turn(&mut self) {
        match self.random.below(10) {
            0..6 => self.say(),
            6..9 => {
                let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
                if !tasks.is_empty() {
                    let task = self.random.pick(&tasks);
                    self.end(task);
                }
            }
            _ => self.step(Input::Clock),
        }
        // Connections close some time after they are told to.
        if self.random.below(3) == 0
            && let Some(client) = self.parting.pop()
        {
            self.part(client);
            self.join();
        }
    }
}

#[test]
fn whatever_clients_say_the_shard_stands_and_is_empty_in_the_end() {
    for seed in 0..SEEDS {
        let settings = Settings {
            policy: Policy::SEQDLM,
            epoch: 1,
            revoke_timeout_ns: 3000,
            entries_max: 4,
            operations_max: OPERATIONS_MAX,
        };
        let mut world = World {
            random: Random(seed),
            shard: Shard::new(settings),
            clients: Vec::new(),
            parting: Vec::new(),
            tasks: BTreeMap::new(),
            bulks: BTreeSet::new(),
            now_ns: 0,
            last_number: 0,
        };
        (0..4).for_each(|_| world.join());
        (0..TURNS).for_each(|_| world.turn());
        for client in world.clients.clone() {
            world.part(client);
        }
        while let Some(task) = world.tasks.keys().next().copied() {
            world.end(task);
        }
        world.step(Input::Clock);
        let shard = &world.shard;
        assert_eq!((shard.client_count(), shard.lock_count(), shard.waiting_count()), (0, 0, 0));
        assert_eq!((shard.operation_count(), shard.glimpse_count(), shard.entry_count()), (0, 0, 0));
        assert_eq!((shard.resources().count(), shard.stripes().count(), world.bulks.len()), (0, 0, 0));
        assert_eq!(shard.next_look_ns(), None);
    }
}
