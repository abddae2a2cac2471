//! One server with one shard: its rules, its device, and the memory of what has arrived.
//!
//! As the product's shell it carries and does not decide: what arrives is given to the shard, and what the shard wants is done.

use crate::bytes::{Bytes, copied, describe, overlay};
use crate::cluster::Context;
use crate::device::Device;
use crate::net::{Link, Packet, Wire};
use crate::{places, show, text};
use ccpfs_shard::{
    BulkRef, Effect, Input, Measure, Note, Refusal, Settings, Shard, TaskId, TaskResult, Work, bulk_bytes,
};
use ccpfs_types::{ClientId, Extent};
use ccpfs_wire::{Channel, Message, WritePiece};
use std::collections::{BTreeMap, VecDeque};

/// Slices of trimming between two messages: more means that it does not end.
const SLICES_MAX: usize = 1000;

/// A task at the device.
#[derive(Clone, Debug)]
struct Task {
    id: TaskId,
    work: Work,
    /// What a write brings, at the offsets of the stripe.
    data: Bytes,
}

/// One server.
#[derive(Clone, Debug)]
pub(crate) struct ServerNode {
    pub(crate) index: usize,
    pub(crate) shard: Shard,
    pub(crate) device: Device,
    pub(crate) settings: Settings,
    tasks: VecDeque<Task>,
    /// Tasks wait for the script.
    pub(crate) held: bool,
    bulks: BTreeMap<u64, Bytes>,
    next_bulk: u64,
    /// What the read brought whose end is being told.
    read: Bytes,
}

impl ServerNode {
    pub(crate) fn new(index: usize, settings: Settings) -> ServerNode {
        ServerNode {
            index,
            shard: Shard::new(settings),
            device: Device::default(),
            settings,
            tasks: VecDeque::new(),
            held: false,
            bulks: BTreeMap::new(),
            next_bulk: 0,
            read: Bytes::new(),
        }
    }

    /// Takes the three connections of a client.
    pub(crate) fn join(&mut self, client: ClientId, cx: &mut Context) {
        for channel in [Channel::Control, Channel::Callback, Channel::Bulk] {
            match self.shard.refusal(client, channel) {
                None => self.step(Input::Joined { client, channel }, cx),
                Some(refusal) => cx.log.say(places::CLIENTS, format!("s{} refuses: {refusal}", self.index)),
            }
        }
    }

    /// Whether a client has connections and is not fenced.
    pub(crate) fn hears(&self, client: ClientId) -> bool {
        matches!(self.shard.refusal(client, Channel::Control), Some(Refusal::Taken { .. }))
    }

    /// Takes a message that has arrived.
    pub(crate) fn receive(&mut self, link: Link, packet: Packet, cx: &mut Context) {
        let Packet { message, bulk, .. } = packet;
        let (me, who) = (self.index, text::client(link.client));
        cx.log.say(places::MESSAGES, format!("s{me} takes {} of {who}", cx.writer.heading(&message)));
        cx.log.deeper();
        let bytes = bulk_bytes(&message).unwrap_or(0);
        let bulk = bulk.map(|bulk| {
            self.next_bulk += 1;
            self.bulks.insert(self.next_bulk, bulk);
            BulkRef { id: self.next_bulk, offset: 0, bytes }
        });
        let pieces = if let Message::Write { pieces, .. } = &message { pieces.clone() } else { Vec::new() };
        let mut effects = Vec::new();
        let input = Input::Message { from: link.client, channel: Channel::from(link.channel), message, bulk };
        self.shard.step(input, cx.now_ns, &mut effects);
        let refused = effects.iter().any(|effect| matches!(effect, Effect::Note(Note::Refused { .. })));
        let heard = self.hears(link.client);
        if !heard && effects.iter().all(|effect| matches!(effect, Effect::Free { .. })) {
            cx.log.say(places::CLIENTS, format!("s{me} does not hear {who}: it is fenced"));
        } else if !refused {
            self.say_admitted(&pieces, cx);
        }
        self.carry_out(effects, cx);
        cx.log.back();
    }

    /// Which parts of a flush were newest: those that the extent cache knows by its number afterwards.
    fn say_admitted(&self, pieces: &[WritePiece], cx: &mut Context) {
        for WritePiece { resource, extent, sn } in pieces {
            let newest = self.shard.stripe(*resource).map(show::newest).unwrap_or_default();
            let mut older = vec![*extent];
            let mut admitted = Vec::new();
            for (part, found) in &newest {
                if found == sn
                    && let Some(part) = part.intersection(*extent)
                {
                    admitted.push(text::extent(part));
                    older = older.into_iter().flat_map(|rest| without(rest, part)).collect();
                }
            }
            let dropped: Vec<String> = older.into_iter().map(text::extent).collect();
            let which = cx.writer.stripe_words(resource.stripe);
            let mut line = format!("s{} {which}{}", self.index, text::sn(*sn));
            if !admitted.is_empty() {
                line.push_str(&format!(" admits {}", admitted.join(", ")));
            }
            if !dropped.is_empty() {
                line.push_str(&format!(" drops {} (older)", dropped.join(", ")));
            }
            cx.log.say(places::ADMIT, line);
        }
    }

    /// Gives the shard an input, carries out what follows, and lets the device do what it was given.
    pub(crate) fn step(&mut self, input: Input, cx: &mut Context) {
        let mut effects = Vec::new();
        self.shard.step(input, cx.now_ns, &mut effects);
        self.carry_out(effects, cx);
    }

    fn carry_out(&mut self, effects: Vec<Effect>, cx: &mut Context) {
        for effect in effects {
            match effect {
                Effect::Send { to, channel, message } => self.send(to, channel, message, None, cx),
                Effect::SendData { to, channel, message, task: _ } => {
                    let bulk = std::mem::take(&mut self.read);
                    self.send(to, channel, message, Some(bulk), cx);
                }
                Effect::Status { .. } => {}
                Effect::Start { task, work, urgent: _ } => self.start(task, work, cx),
                Effect::Free { bulk } => {
                    self.bulks.remove(&bulk.id);
                }
                Effect::Part { client, why } => {
                    let why = cx.writer.without_file(&why.to_string());
                    let line = format!("s{} parts with {}: {why}", self.index, text::client(client));
                    cx.log.say(places::OVERDUE, line);
                    self.part(client, cx);
                }
                Effect::Note(note) => self.note(note, cx),
            }
        }
        while !self.held && self.next_task(None, cx) {}
    }

    fn note(&self, note: Note, cx: &mut Context) {
        let me = self.index;
        match note {
            Note::Gone { client, resources } if resources > 0 => {
                let who = text::client(client);
                cx.log.say(places::CLIENTS, format!("s{me} has taken back everything of {who}"));
            }
            Note::Gone { .. } => {}
            Note::Refused { client, resource: _, errno } => {
                let line = format!("s{me} refuses data of {}: {}", text::client(client), text::errno(errno));
                cx.log.say(places::MESSAGES, line);
            }
            Note::Failed { resource: _, errno } => {
                cx.log.say(places::DATA, format!("s{me} device error {}", text::errno(errno)));
            }
            Note::Forced { resource } => {
                let which = if cx.writer.stripes > 1 {
                    cx.writer.stripe(resource.stripe)
                } else {
                    String::from("the stripe")
                };
                cx.log.say(
                    places::TRIMMING,
                    format!("s{me} asks all clients to flush {which}, to trim its extent cache"),
                );
            }
        }
    }

    /// The connections of a client are closed.
    pub(crate) fn part(&mut self, client: ClientId, cx: &mut Context) {
        cx.log.deeper();
        self.step(Input::Parted { client, goodbye: false }, cx);
        cx.log.back();
    }

    fn send(
        &mut self,
        to: ClientId,
        channel: Channel,
        message: Message,
        bulk: Option<Bytes>,
        cx: &mut Context,
    ) {
        let line = cx.writer.message(&message, bulk.as_ref());
        let arrow = format!("s{} -> {} {:<8} {line}", self.index, text::client(to), text::channel(channel));
        cx.log.say(places::sender(&message), arrow);
        let link = Link { client: to, shard: self.index, channel: Wire::from(channel), to_server: false };
        cx.net.send(link, message, bulk);
    }

    fn start(&mut self, id: TaskId, work: Work, cx: &mut Context) {
        let mut data = Bytes::new();
        if let Work::Write { bulk, parts, .. } = &work {
            let arrived = self.bulks.get(&bulk.id).cloned().unwrap_or_default();
            for part in parts {
                let from = Extent::with_length(bulk.offset + part.bulk_offset, part.extent.length());
                let from = from.expect("a part of a flush has bytes");
                overlay(&mut data, &copied(&arrived, from, part.extent.start()));
            }
        }
        let task = Task { id, work, data };
        if self.held {
            cx.log
                .say(places::DATA, format!("s{} device task {}: {}", self.index, id.0, describe_task(&task)));
        }
        self.tasks.push_back(task);
    }

    /// Has the device do its next task, or fail at it. False if there is none.
    pub(crate) fn next_task(&mut self, failure: Option<i32>, cx: &mut Context) -> bool {
        self.do_task(0, failure, cx)
    }

    /// Likewise for the task at a place in the queue: the device may do tasks in any order.
    pub(crate) fn do_task(&mut self, at: usize, failure: Option<i32>, cx: &mut Context) -> bool {
        let Some(task) = self.tasks.remove(at) else { return false };
        let what = describe_task(&task);
        let how = failure.map(|errno| format!(" fails: {}", text::errno(errno))).unwrap_or_default();
        cx.log.say(places::DEVICE, format!("s{} device: {what}{how}", self.index));
        let result = match failure {
            Some(errno) => TaskResult::Failed { errno },
            None => self.perform(&task),
        };
        cx.log.deeper();
        self.step(Input::Ended { task: task.id, result }, cx);
        cx.log.back();
        true
    }

    /// The place in the queue of a task by its number.
    pub(crate) fn task_place(&self, number: u64) -> Option<usize> {
        self.tasks.iter().position(|task| task.id.0 == number)
    }

    fn perform(&mut self, task: &Task) -> TaskResult {
        match &task.work {
            Work::Write { resource, .. } => self.device.write(*resource, &task.data),
            Work::Cut { resource, holes, length } => self.device.cut(*resource, holes, *length),
            Work::Read { resource, extent } => {
                let (bytes, stripe_bytes) = self.device.read(*resource, *extent);
                let length = bytes.end().unwrap_or(0);
                self.read = bytes;
                return TaskResult::Read { bytes: length, stripe_bytes };
            }
            Work::Measure { resource } => {
                let length_bytes = self.device.length(*resource);
                return TaskResult::Measured(Measure { length_bytes, modified_ns: 0 });
            }
            Work::Map { .. } | Work::List { .. } => unreachable!("no script asks for it"),
            Work::Sync { resources } => self.device.sync(resources),
            Work::Remove { resources } => self.device.remove(resources),
        }
        TaskResult::Done
    }

    /// Time has passed, or there is something to trim.
    pub(crate) fn clock(&mut self, cx: &mut Context) {
        let before = self.shard.entry_count();
        self.step(Input::Clock, cx);
        let after = self.shard.entry_count();
        if after < before {
            let me = self.index;
            cx.log.say(
                places::TRIMMING,
                format!("s{me} trims its extent cache: {after} of {before} entries left"),
            );
        }
    }

    /// What a turn of the shard does after a message: trims as long as there is something to trim.
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        for _ in 0..SLICES_MAX {
            if self.shard.next_look_ns() != Some(0) {
                return;
            }
            self.clock(cx);
        }
    }

    /// Crashes and begins another life on the same device.
    pub(crate) fn restart(&mut self) {
        self.device.crash();
        self.settings.epoch += 1;
        let device = std::mem::take(&mut self.device);
        *self = ServerNode { device, ..ServerNode::new(self.index, self.settings) };
    }
}

/// `whole` without `part`.
fn without(whole: Extent, part: Extent) -> Vec<Extent> {
    let left = Extent::new(whole.start(), part.start().min(whole.end()));
    let right = Extent::new(part.end().max(whole.start()), whole.end());
    if whole.overlaps(part) { left.into_iter().chain(right).collect() } else { vec![whole] }
}

fn describe_task(task: &Task) -> String {
    match &task.work {
        Work::Write { .. } => format!("write {}", describe(&task.data, Extent::WHOLE, true)),
        Work::Cut { holes, length, .. } => {
            let zeros: Vec<String> =
                holes.iter().map(|hole| format!("zero {}", text::extent(*hole))).collect();
            let length = length.map(|length| format!("length {}", text::size(length)));
            zeros.into_iter().chain(length).collect::<Vec<_>>().join(", ")
        }
        Work::Read { extent, .. } => format!("read {}", text::extent(*extent)),
        Work::Map { extent, .. } => format!("map {}", text::extent(*extent)),
        Work::Measure { .. } => String::from("measure"),
        Work::List { .. } => String::from("list"),
        Work::Sync { .. } => String::from("sync"),
        Work::Remove { .. } => String::from("remove"),
    }
}
