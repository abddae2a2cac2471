//! Clients that keep to the protocol, a device that ends its tasks in any order: the newest bytes win, readers see them, and
//! nothing is left over.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for some kinds of messages among all")]

use ccpfs_region::Region;
use ccpfs_shard::{BulkRef, Effect, Input, Measure, Note, Settings, Shard, TaskId, TaskResult, Work};
use ccpfs_types::{ClientId, Extent, FileId, LockId, LockMode, Policy, RequestId, ResourceId, Sn, Terms};
use ccpfs_wire::{Channel, LockRef, Message, WritePiece};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Where clients write, from 0.
const BYTES: u64 = 48;
/// Where what they write ends at the latest.
const REACH: u64 = BYTES + 12;
const CLIENTS: usize = 3;
const SEEDS: u64 = 150;
const TURNS: usize = 600;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { Some(from[index(self.below(from.len() as u64))].clone()) }
    }

    /// Something short of `[start, end)`.
    fn within(&mut self, start: u64, end: u64) -> Extent {
        let start = start + self.below(end - start);
        Extent::with_length(start, 1 + self.below((end - start).min(12))).unwrap()
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

fn resource(stripe: u32) -> ResourceId {
    ResourceId { file: FileId([3; 16]), stripe }
}

#[derive(Clone, Debug)]
struct Held {
    holder: ClientId,
    resource: ResourceId,
    lock: LockId,
    sn: Sn,
    mode: LockMode,
    bounds: Extent,
}

/// The newest write of a byte that was taken: its lock's number and its own turn. What it writes is its turn, or 0 for a hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Newest {
    sn: Sn,
    turn: u64,
    value: u64,
}

struct World {
    random: Random,
    shard: Shard,
    clients: Vec<ClientId>,
    held: Vec<Held>,
    tasks: BTreeMap<TaskId, Work>,
    bulks: BTreeSet<u64>,
    device: BTreeMap<ResourceId, Vec<u64>>,
    newest: BTreeMap<ResourceId, Vec<Newest>>,
    /// Reads under way: sent under which lock, of what.
    reads: BTreeMap<RequestId, (LockId, ResourceId, Extent)>,
    /// What the read that has just ended has found.
    found: Vec<u64>,
    /// Highest number granted to a writer.
    granted: BTreeMap<ResourceId, Sn>,
    /// What clients will say.
    answers: VecDeque<(ClientId, Message)>,
    last_number: u64,
    out: Vec<Effect>,
    reads_checked: u64,
}

impl World {
    fn new(seed: u64, policy: Policy) -> World {
        let settings =
            Settings { policy, epoch: 1, revoke_timeout_ns: 1 << 40, entries_max: 3, operations_max: 1000 };
        let mut world = World {
            random: Random(seed),
            shard: Shard::new(settings),
            clients: Vec::new(),
            held: Vec::new(),
            tasks: BTreeMap::new(),
            bulks: BTreeSet::new(),
            device: BTreeMap::new(),
            newest: BTreeMap::new(),
            reads: BTreeMap::new(),
            found: Vec::new(),
            granted: BTreeMap::new(),
            answers: VecDeque::new(),
            last_number: 0,
            out: Vec::new(),
            reads_checked: 0,
        };
        (0..CLIENTS).for_each(|_| world.join());
        world
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn join(&mut self) {
        let client = ClientId(self.number());
        for channel in [Channel::Control, Channel::Callback, Channel::Bulk] {
            self.step(Input::Joined { client, channel });
        }
        self.clients.push(client);
    }

    fn say(&mut self, from: ClientId, channel: Channel, message: Message) {
        self.step(Input::Message { from, channel, message, bulk: None });
    }

    fn step(&mut self, input: Input) {
        let now_ns = self.number();
        let mut out = std::mem::take(&mut self.out);
        self.shard.step(input, now_ns, &mut out);
        for effect in out.drain(..) {
            match effect {
                Effect::Send { to, message, .. } | Effect::SendData { to, message, .. } => {
                    self.told(to, message);
                }
                Effect::Start { task, work, .. } => {
                    assert!(self.tasks.insert(task, work).is_none(), "each task has a number of its own");
                }
                Effect::Free { bulk } => assert!(self.bulks.remove(&bulk.id), "let go once"),
                Effect::Note(Note::Refused { resource, errno, .. }) => panic!("{resource}: {errno}"),
                Effect::Part { client, why } => panic!("{client}: {why}"),
                Effect::Status { .. } | Effect::Note(_) => {}
            }
        }
        self.out = out;
    }

    fn told(&mut self, to: ClientId, message: Message) {
        if !self.clients.contains(&to) {
            return;
        }
        match message {
            Message::Grant { resource, granted, .. } => {
                if granted.mode.writes() {
                    let last = self.granted.insert(resource, granted.sn);
                    assert!(last < Some(granted.sn), "numbers rise: {last:?} {granted:?}");
                }
                self.held.retain(|held| held.resource != resource || !granted.replaces.contains(&held.lock));
                let (lock, sn, mode, bounds) =
                    (granted.lock, granted.sn, granted.mode, granted.region.bounds());
                self.held.push(Held { holder: to, resource, lock, sn, mode, bounds });
            }
            Message::Revoke { resource, lock, .. } => {
                if let Some(held) = self.find(resource, lock) {
                    self.answers.push_back((to, Message::RevokeAck { resource, lock, mode: held.mode }));
                }
            }
            Message::GlimpseAsk { glimpse, resource } => {
                self.answers
                    .push_back((to, Message::GlimpseTell { glimpse, resource, end: 0, modified_ns: 0 }));
            }
            Message::ReadReply { request, .. } => self.has_read(request),
            _ => {}
        }
    }

    /// A lock that is held. Numbers of locks are per resource.
    fn find(&self, resource: ResourceId, lock: LockId) -> Option<&Held> {
        self.held.iter().find(|held| held.resource == resource && held.lock == lock)
    }

    fn drop_lock(&mut self, held: &Held) {
        self.held.retain(|other| other.resource != held.resource || other.lock != held.lock);
    }

    /// Whoever still holds the lock under which it has read has read the newest bytes.
    fn has_read(&mut self, request: RequestId) {
        let (lock, resource, extent) = self.reads.remove(&request).unwrap();
        if self.find(resource, lock).is_none() {
            return;
        }
        let newest = self.newest.get(&resource).map_or(&[][..], Vec::as_slice);
        for (at, found) in (extent.start()..extent.end()).zip(&self.found) {
            let expected = newest.get(index(at)).map_or(0, |newest| newest.value);
            assert_eq!(*found, expected, "byte {at} of {resource}");
        }
        self.reads_checked += 1;
    }

    fn take_newest(&mut self, resource: ResourceId, extent: Extent, sn: Sn, turn: u64, value: u64) {
        let newest = self.newest.entry(resource).or_insert_with(|| vec![Newest::default(); index(REACH)]);
        for at in extent.start()..extent.end().min(REACH) {
            let byte = &mut newest[index(at)];
            *byte = (*byte).max(Newest { sn, turn, value });
        }
    }

    /// Ends a task as a device does it.
    fn end(&mut self, task: TaskId) {
        let work = self.tasks.remove(&task).unwrap();
        let result = match work {
            Work::Write { resource, bulk, parts } => {
                let stripe = self.device.entry(resource).or_default();
                for part in parts {
                    assert!(part.bulk_offset + part.extent.length() <= bulk.bytes);
                    let end = index(part.extent.end());
                    stripe.resize(stripe.len().max(end), 0);
                    stripe[index(part.extent.start())..end].fill(bulk.id);
                }
                TaskResult::Done
            }
            Work::Cut { resource, holes, length } => {
                let stripe = self.device.entry(resource).or_default();
                for hole in holes {
                    let end = index(hole.end()).min(stripe.len());
                    stripe[index(hole.start()).min(end)..end].fill(0);
                }
                if let Some(length) = length {
                    stripe.resize(index(length), 0);
                }
                TaskResult::Done
            }
            Work::Read { resource, extent } => {
                let stripe = self.device.entry(resource).or_default();
                let bytes = |at| stripe.get(index(at)).copied();
                self.found = (extent.start()..extent.end()).map_while(bytes).collect();
                let bytes = self.found.len() as u64;
                self.found.resize(index(extent.length()), 0);
                TaskResult::Read { bytes, stripe_bytes: stripe.len() as u64 }
            }
            Work::Measure { resource } => {
                let length_bytes = self.device.get(&resource).map_or(0, Vec::len) as u64;
                TaskResult::Measured(Measure { length_bytes, modified_ns: 0 })
            }
            Work::Map { .. } | Work::List { .. } => panic!("nobody asks for it"),
            Work::Sync { .. } => TaskResult::Done,
            Work::Remove { .. } => panic!("nobody removes anything"),
        };
        self.step(Input::Ended { task, result });
    }

    fn enqueue(&mut self) {
        let Some(from) = self.random.pick(&self.clients) else { return };
        let request = RequestId(self.number());
        let resource = resource(u32::try_from(self.random.below(2)).unwrap());
        let mode = self.random.pick(&LockMode::ALL).unwrap();
        let required = match self.random.below(5) {
            0 => Extent::to_eof(self.random.below(BYTES)),
            _ => self.random.within(0, BYTES),
        };
        let required = Region::from(required);
        let desired = if self.random.below(2) == 0 { Region::WHOLE } else { required.clone() };
        let terms = Terms { try_only: self.random.below(10) == 0, ..Terms::WAIT };
        let message = Message::Enqueue { request, resource, mode, required, desired, terms };
        self.say(from, Channel::Control, message);
    }

    fn flush(&mut self) {
        let Some(held) = self.random.pick(&self.held) else { return };
        if !held.mode.writes() || held.bounds.start() >= BYTES {
            return;
        }
        let turn = self.number();
        let pieces: Vec<WritePiece> = (0..self.random.below(3))
            .map(|_| {
                let extent = self.random.within(held.bounds.start(), held.bounds.end().min(BYTES));
                let end = extent.end().min(held.bounds.end());
                let extent = Extent::new(extent.start(), end).unwrap();
                WritePiece { resource: held.resource, extent, sn: held.sn }
            })
            .collect();
        for piece in &pieces {
            self.take_newest(held.resource, piece.extent, held.sn, turn, turn);
        }
        let bytes = pieces.iter().map(|piece| piece.extent.length()).sum();
        let mut releases = Vec::new();
        if self.random.below(3) == 0 {
            releases.push(LockRef { resource: held.resource, lock: held.lock });
            self.drop_lock(&held);
        }
        let urgent = self.random.below(2) == 0;
        let message = Message::Write { request: RequestId(turn), urgent, pieces, releases };
        let bulk = (bytes > 0).then_some(BulkRef { id: turn, offset: 0, bytes });
        self.bulks.extend(bulk.map(|bulk| bulk.id));
        self.step(Input::Message { from: held.holder, channel: Channel::Bulk, message, bulk });
    }

    fn truncate(&mut self) {
        let Some(held) = self.random.pick(&self.held) else { return };
        if held.mode != LockMode::Pw || held.bounds.end() != Extent::EOF || held.bounds.start() >= BYTES {
            return;
        }
        let turn = self.number();
        let length = held.bounds.start() + self.random.below(BYTES - held.bounds.start());
        self.take_newest(held.resource, Extent::to_eof(length), held.sn, turn, 0);
        let (request, resource, sn) = (RequestId(turn), held.resource, held.sn);
        self.say(held.holder, Channel::Control, Message::Truncate { request, resource, length, sn });
    }

    fn read(&mut self) {
        let Some(held) = self.random.pick(&self.held) else { return };
        if held.mode != LockMode::Pr || held.bounds.start() >= BYTES {
            return;
        }
        let extent = self.random.within(held.bounds.start(), held.bounds.end().min(BYTES));
        let extent = Extent::new(extent.start(), extent.end().min(held.bounds.end())).unwrap();
        let (request, resource) = (RequestId(self.number()), held.resource);
        self.reads.insert(request, (held.lock, resource, extent));
        self.say(held.holder, Channel::Control, Message::Read { request, resource, extent });
    }

    fn release(&mut self) {
        let Some(held) = self.random.pick(&self.held) else { return };
        self.drop_lock(&held);
        let locks = vec![LockRef { resource: held.resource, lock: held.lock }];
        self.say(held.holder, Channel::Callback, Message::Release { locks });
    }

    fn ask(&mut self) {
        let Some(from) = self.random.pick(&self.clients) else { return };
        let (request, resource) = (RequestId(self.number()), resource(0));
        let message = match self.random.below(2) {
            0 => Message::Glimpse { request, resource },
            _ => Message::Sync { request, resources: vec![resource] },
        };
        self.say(from, Channel::Control, message);
    }

    fn evict(&mut self) {
        let Some(client) = self.random.pick(&self.clients) else { return };
        self.leave(client);
        self.join();
    }

    fn leave(&mut self, client: ClientId) {
        self.clients.retain(|other| *other != client);
        self.held.retain(|held| held.holder != client);
        self.step(Input::Parted { client, goodbye: false });
    }

    fn turn(&mut self) {
        match self.random.below(40) {
            0..10 => self.enqueue(),
            10..18 => self.flush(),
            18..20 => self.truncate(),
            20..23 => self.read(),
            23..26 => self.release(),
            26..28 => self.ask(),
            28..32 => {
                if let Some((from, message)) = self.answers.pop_front() {
                    self.say(from, Channel::Callback, message);
                }
            }
            32..39 => {
                let tasks: Vec<TaskId> = self.tasks.keys().copied().collect();
                if let Some(task) = self.random.pick(&tasks) {
                    self.end(task);
                }
            }
            _ if self.random.below(8) == 0 => self.evict(),
            _ => self.step(Input::Clock),
        }
    }

    /// Lets everything come to its end, and checks what is left: the newest bytes, and nothing else.
    fn finish(mut self) -> u64 {
        for client in self.clients.clone() {
            self.leave(client);
        }
        while let Some(task) = self.tasks.keys().next().copied() {
            self.end(task);
        }
        for (resource, newest) in &self.newest {
            let stripe = self.device.get(resource).cloned().unwrap_or_default();
            for (at, newest) in newest.iter().enumerate() {
                assert_eq!(stripe.get(at).copied().unwrap_or(0), newest.value, "byte {at} of {resource}");
            }
        }
        let shard = &self.shard;
        assert_eq!((shard.client_count(), shard.lock_count(), shard.waiting_count()), (0, 0, 0));
        assert_eq!((shard.operation_count(), shard.glimpse_count(), shard.entry_count()), (0, 0, 0));
        assert_eq!((shard.resources().count(), shard.stripes().count(), self.bulks.len()), (0, 0, 0));
        self.step(Input::Clock);
        assert_eq!(self.shard.next_look_ns(), None);
        self.reads_checked
    }
}

//= protocol.md#I2 type=test
//= protocol.md#I3 type=test
//= protocol.md#I5 type=test
//= protocol.md#I6 type=test
#[test]
fn the_newest_bytes_win_and_readers_see_them_whatever_the_device_does_first() {
    let mut reads = 0;
    for seed in 0..SEEDS {
        let policy = [Policy::SEQDLM, Policy::BASIC][index(seed % 2)];
        let mut world = World::new(seed, policy);
        (0..TURNS).for_each(|_| world.turn());
        reads += world.finish();
    }
    assert!(reads > SEEDS, "only {reads} reads were checked");
}
