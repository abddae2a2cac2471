//! The shell of a server: carries messages and device tasks between its shard, its device and the network.

use crate::client::{freeze, place, stripe_of};
use crate::config::BYTES;
use crate::mark::Mark;
use crate::rule::{Found, Rule, broken};
use crate::state::{Bytes, Data, Frame, POISON, Server, State, Tag, Task, Waiting, range};
use crate::world::World;
use ccpfs_shard::{BulkRef, Effect, Input, Measure, Note, TaskId, TaskResult, Work};
use ccpfs_types::{ClientId, LockState};
use ccpfs_wire::{Channel, Message};
use std::collections::VecDeque;
use std::sync::Arc;

/// The time of a server: nothing here depends on it.
const NOW_NS: u64 = 0;

/// The channels by their places.
const CHANNELS: [Channel; 3] = [Channel::Control, Channel::Callback, Channel::Bulk];

fn server(state: &mut State, shard: u8) -> &mut Server {
    Arc::make_mut(&mut state.servers[usize::from(shard)])
}

/// A client's three connections are taken.
pub(crate) fn join(state: &mut State, shard: u8, client: ClientId) {
    for channel in CHANNELS {
        server(state, shard).shard.step(Input::Joined { client, channel }, NOW_NS, &mut Vec::new());
    }
}

/// A message arrives at a server.
pub(crate) fn deliver(world: &World, state: &mut State, link: usize, channel: u8, at: u8) -> Found {
    let (incarnation, shard) = world.ends(link);
    let (from, node) = (World::client(incarnation), world.node_of(incarnation));
    let l = Arc::make_mut(&mut state.links[link]);
    let Some(mut frame) = l.up[usize::from(channel)].remove(usize::from(at)) else { return Ok(()) };
    if l.cut {
        world.mark(Mark::LateMessage);
    }
    freeze(&state.nodes[node], &mut frame);
    let Frame { message, data } = frame;
    let mut bulk = None;
    if let Data::Bytes(bytes) = data {
        arrive(world, server(state, shard), &message, &bytes);
        let server = server(state, shard);
        let id = (0..).find(|id| !server.bulks.contains_key(id)).expect("there is a number left");
        bulk = Some(BulkRef { id, offset: 0, bytes: bytes.len() as u64 });
        server.bulks.insert(id, bytes);
    }
    if let Message::Truncate { resource, length, sn, .. } = &message {
        let shadow = &mut server(state, shard).stripes[usize::from(stripe_of(*resource))].shadow;
        let from = usize::try_from(*length).unwrap_or(BYTES).min(BYTES);
        shadow[from..]
            .iter_mut()
            .filter(|(newest, _)| *newest <= sn.0)
            .for_each(|newest| *newest = (sn.0, 0));
    }
    if let Message::Enqueue { request, resource, mode, required, terms, .. } = &message {
        let (stripe, required) = (stripe_of(*resource), required.bounds());
        let is_next = terms.part == ccpfs_types::Part::Next;
        let waiting = Waiting { stripe, client: from, request: *request, mode: *mode, required, is_next };
        server(state, shard).waiting.push(waiting);
    }
    let channel = CHANNELS[usize::from(channel)];
    step(world, state, shard, Input::Message { from, channel, message, bulk })
}

/// The shadow extent cache takes a flush.
fn arrive(world: &World, server: &mut Server, message: &Message, bytes: &[Tag]) {
    let Message::Write { pieces, .. } = message else { return };
    let mut bytes = bytes.iter();
    for piece in pieces {
        let shadow = &mut server.stripes[usize::from(stripe_of(piece.resource))].shadow;
        for byte in range(piece.extent) {
            let tag = *bytes.next().expect("a flush has the bytes of its pieces");
            if shadow[byte].0 <= piece.sn.0 {
                shadow[byte] = (piece.sn.0, tag);
            } else {
                world.mark(Mark::OlderBytes);
            }
        }
    }
}

/// A device task ends.
pub(crate) fn end(world: &World, state: &mut State, shard: u8, task: u64) -> Found {
    let Some(work) = server(state, shard).tasks.remove(&task) else { return Ok(()) };
    let (result, read) = perform(server(state, shard), &work);
    run(world, state, shard, (Input::Ended { task: TaskId(task), result }, read))
}

/// The shard trims a little.
pub(crate) fn trim(world: &World, state: &mut State, shard: u8) -> Found {
    let before = server(state, shard).shard.entry_count();
    step(world, state, shard, Input::Clock)?;
    let server = server(state, shard);
    if server.shard.entry_count() < before && server.shard.lock_count() > 0 {
        world.mark(Mark::Trimmed);
    }
    Ok(())
}

/// The server finds the connections of a client gone: they are closed, then the shard is told.
pub(crate) fn part(world: &World, state: &mut State, link: usize) -> Found {
    let (incarnation, shard) = world.ends(link);
    let l = Arc::make_mut(&mut state.links[link]);
    l.open = false;
    if l.up.iter().any(|queue| !queue.is_empty()) {
        world.mark(Mark::Fenced);
    }
    l.up.iter_mut().chain(&mut l.down).for_each(VecDeque::clear);
    server(state, shard).waiting.retain(|waiting| waiting.client != World::client(incarnation));
    step(world, state, shard, Input::Parted { client: World::client(incarnation), goodbye: false })
}

fn step(world: &World, state: &mut State, shard: u8, input: Input) -> Found {
    run(world, state, shard, (input, Vec::new()))
}

/// Puts an input through the shard, and all that follows at once. The second of a pair is what a read has brought.
fn run(world: &World, state: &mut State, shard: u8, first: (Input, Vec<Tag>)) -> Found {
    let mut todo = VecDeque::from([first]);
    while let Some((input, read)) = todo.pop_front() {
        let mut out = Vec::new();
        server(state, shard).shard.step(input, NOW_NS, &mut out);
        for effect in out {
            carry_out(world, state, shard, (effect, &read), &mut todo)?;
        }
    }
    check_quiet(world, &state.servers[usize::from(shard)], shard)
}

fn carry_out(
    world: &World,
    state: &mut State,
    shard: u8,
    (effect, read): (Effect, &[Tag]),
    todo: &mut VecDeque<(Input, Vec<Tag>)>,
) -> Found {
    match effect {
        Effect::Send { to, channel, message } => {
            watch(world, state, &message)?;
            served(world, server(state, shard), to, &message)?;
            send(world, state, shard, (to, channel), Frame { message, data: Data::Nothing });
        }
        Effect::SendData { to, channel, message, .. } => {
            send(world, state, shard, (to, channel), Frame { message, data: Data::Bytes(read.to_vec()) });
        }
        Effect::Start { task, work, .. } => {
            let server = server(state, shard);
            let work = taken(server, work);
            if world.config.options.slow_device {
                if server.tasks.values().any(|other| stripe_of_task(other) == stripe_of_task(&work)) {
                    world.mark(Mark::TwoTasks);
                }
                server.tasks.insert(task.0, work);
            } else {
                let (result, read) = perform(server, &work);
                todo.push_back((Input::Ended { task, result }, read));
            }
        }
        Effect::Free { bulk } => {
            server(state, shard).bulks.remove(&bulk.id);
        }
        Effect::Part { client, why } => {
            let node = world.node_of(incarnation_of(client));
            return broken(Rule::Protocol, format!("the server ends c{node}: {why}"));
        }
        Effect::Note(Note::Refused { client, resource, errno }) => {
            let what =
                format!("a flush of {client} to stripe {} is refused with errno {errno}", resource.stripe);
            return broken(Rule::Protocol, what);
        }
        Effect::Note(Note::Forced { .. }) => world.mark(Mark::Forced),
        Effect::Note(Note::Gone { .. } | Note::Failed { .. }) | Effect::Status { .. } => {}
    }
    Ok(())
}

fn incarnation_of(client: ClientId) -> u8 {
    u8::try_from(client.0 - 1).expect("a client of this world")
}

/// A request is answered: none that came before it and stands against it may be left waiting (I8).
fn served(world: &World, server: &mut Server, to: ClientId, message: &Message) -> Found {
    let (Message::Grant { request, .. } | Message::Denied { request, .. }) = message else { return Ok(()) };
    let answered = |waiting: &Waiting| waiting.client == to && waiting.request == *request;
    let Some(place) = server.waiting.iter().position(answered) else { return Ok(()) };
    let served = server.waiting.remove(place);
    if let Message::Denied { .. } = message {
        world.mark(Mark::Refused);
        return Ok(());
    }
    if served.is_next {
        return Ok(());
    }
    let passed = server.waiting[..place].iter().find(|earlier| {
        earlier.stripe == served.stripe
            && earlier.required.overlaps(served.required)
            && !served.mode.compatible(earlier.mode, LockState::Granted)
    });
    let Some(passed) = passed else { return Ok(()) };
    let (late, early) = (world.node_of(incarnation_of(to)), world.node_of(incarnation_of(passed.client)));
    let stripe = served.stripe;
    broken(Rule::I8, format!("stripe {stripe}: c{late} has passed c{early}, which came before and waits"))
}

/// Watches what goes to clients.
fn watch(world: &World, state: &mut State, message: &Message) -> Found {
    if let Message::Grant { resource, granted, .. } = message {
        if granted.mode.writes() {
            Arc::make_mut(&mut state.ghost).sn_granted(stripe_of(*resource), granted.sn.0)?;
        }
        if granted.early {
            world.mark(Mark::EarlyGrant);
        }
        if granted.state == LockState::Canceling {
            world.mark(Mark::EarlyRevocation);
        }
        if !granted.replaces.is_empty() {
            world.mark(Mark::Upgrade);
        }
    }
    Ok(())
}

fn send(world: &World, state: &mut State, shard: u8, (to, channel): (ClientId, Channel), frame: Frame) {
    let link = &mut state.links[world.link(incarnation_of(to), shard)];
    if link.open && !link.cut {
        let link = Arc::make_mut(link);
        if let Message::Revoke { resource, lock, .. } = &frame.message {
            let names = |frame: &Frame| {
                matches!(&frame.message, Message::Grant { resource: of, granted, .. }
                    if of == resource && granted.lock == *lock)
            };
            if link.down[place(Channel::Control)].iter().any(names) {
                world.mark(Mark::RevokeFirst);
            }
        }
        link.down[place(channel)].push_back(frame);
    }
}

/// The task of some work, with its data.
fn taken(server: &Server, work: Work) -> Task {
    match work {
        Work::Write { resource, bulk, parts } => {
            let bytes = &server.bulks[&bulk.id];
            let parts = parts.iter().map(|part| {
                let offset = usize::try_from(bulk.offset + part.bulk_offset).expect("a few");
                let bytes = range(part.extent);
                (bytes.start, offset, bytes.len())
            });
            let parts = parts.map(|(start, offset, length)| (start, bytes[offset..offset + length].to_vec()));
            Task::Write { stripe: stripe_of(resource), parts: parts.collect() }
        }
        Work::Cut { resource, holes, length } => Task::Cut { stripe: stripe_of(resource), holes, length },
        Work::Read { resource, extent } => Task::Read { stripe: stripe_of(resource), extent },
        Work::Map { .. } | Work::List { .. } => unreachable!("no client of the model asks for it"),
        Work::Measure { resource } => Task::Measure { stripe: stripe_of(resource) },
        Work::Sync { resources } | Work::Remove { resources } => {
            Task::Sync { stripes: resources.into_iter().map(stripe_of).collect() }
        }
    }
}

fn stripe_of_task(task: &Task) -> Option<u8> {
    match task {
        Task::Write { stripe, .. }
        | Task::Cut { stripe, .. }
        | Task::Read { stripe, .. }
        | Task::Measure { stripe } => Some(*stripe),
        Task::Sync { .. } => None,
    }
}

/// The device does a task.
fn perform(server: &mut Server, task: &Task) -> (TaskResult, Vec<Tag>) {
    match task {
        Task::Write { stripe, parts } => {
            let stored = &mut server.stripes[usize::from(*stripe)];
            for (start, bytes) in parts {
                stored.live[*start..start + bytes.len()].copy_from_slice(bytes);
                stored.length = stored.length.max((start + bytes.len()) as u64);
            }
            (TaskResult::Done, Vec::new())
        }
        Task::Cut { stripe, holes, length } => {
            let stored = &mut server.stripes[usize::from(*stripe)];
            holes.iter().for_each(|hole| stored.live[range(*hole)].fill(0));
            if let Some(length) = length {
                let from = usize::try_from(*length).unwrap_or(BYTES).min(BYTES);
                stored.live[from..].fill(0);
                stored.length = *length;
            }
            (TaskResult::Done, Vec::new())
        }
        Task::Read { stripe, extent } => {
            let stored = &server.stripes[usize::from(*stripe)];
            let end = usize::try_from(stored.length).expect("a few");
            let read = range(*extent);
            let bytes = stored.live[read.start.min(end)..read.end.min(end)].to_vec();
            (TaskResult::Read { bytes: bytes.len() as u64, stripe_bytes: stored.length }, bytes)
        }
        Task::Measure { stripe } => {
            let stored = &server.stripes[usize::from(*stripe)];
            (TaskResult::Measured(Measure { length_bytes: stored.length, modified_ns: 0 }), Vec::new())
        }
        Task::Sync { stripes } => {
            for stripe in stripes {
                let stored = &mut server.stripes[usize::from(*stripe)];
                stored.durable = stored.live;
            }
            (TaskResult::Done, Vec::new())
        }
    }
}

/// When nothing is on its way to the device, it has what the shadow has (I3, I6).
fn check_quiet(world: &World, server: &Server, shard: u8) -> Found {
    for stripe in (0..world.config.stripes).filter(|stripe| world.shard_of(*stripe) == shard) {
        if server.shard.stripe(world.resource(stripe)).is_some_and(|stripe| stripe.jobs() > 0) {
            continue;
        }
        let stored = &server.stripes[usize::from(stripe)];
        let shadow: Bytes = stored.shadow.map(|(_, tag)| tag);
        if stored.live != shadow {
            let byte = (0..BYTES).find(|byte| stored.live[*byte] != shadow[*byte]).unwrap_or(0);
            let name = |tag: Tag| match tag {
                0 => String::from("a zero"),
                POISON => String::from("a byte of a page that nothing valid is in"),
                tag => world.title(tag),
            };
            let what = format!(
                "byte {byte} of stripe {stripe} is that of {} on the device, but the newest that arrived is that of {}",
                name(stored.live[byte]),
                name(shadow[byte])
            );
            return broken(Rule::I3, what);
        }
    }
    Ok(())
}
