//! A path told for people: what happens, and what is sent because of it.

use crate::model::{Action, Way};
use crate::state::{Data, Frame, State, Tag};
use crate::world::World;
use ccpfs_types::Sn;
use ccpfs_wire::{LockRef, Message, WritePiece};

const CHANNELS: [&str; 3] = ["control", "callback", "bulk"];

/// The name of an incarnation.
fn client(world: &World, incarnation: u8) -> String {
    let again = if usize::from(incarnation) >= world.config.nodes.len() { "'" } else { "" };
    format!("c{}{again}", world.node_of(incarnation))
}

/// What happens.
#[must_use]
pub fn action(world: &World, before: &State, action: &Action) -> String {
    let thread = |node: &u8, thread: &u8| {
        let t = &before.nodes[usize::from(*node)].threads[usize::from(*thread)];
        world.title(world.tag(usize::from(*node), usize::from(*thread), t.next))
    };
    match action {
        Action::Deliver { link, way, channel, at } => {
            let (incarnation, shard) = world.ends(usize::from(*link));
            let l = &before.links[usize::from(*link)];
            let channel = usize::from(*channel);
            let (from, to, queue) = match way {
                Way::Up => (client(world, incarnation), format!("s{shard}"), &l.up[channel]),
                Way::Down => (format!("s{shard}"), client(world, incarnation), &l.down[channel]),
            };
            let message = queue.get(usize::from(*at)).map(frame).unwrap_or_default();
            format!("{from} -> {to}  {:8}  {message}", CHANNELS[channel])
        }
        Action::Start { node, thread: t } => format!("c{node}        calls     {}", thread(node, t)),
        Action::Run { node, thread: t } => format!("c{node}        goes on   {}", thread(node, t)),
        Action::Take { node, stripe } => {
            format!("c{node}        flushes   stripe {stripe}: somebody waits for it")
        }
        Action::Flush { node, stripe } => format!("c{node}        flushes   stripe {stripe}: unasked"),
        Action::End { shard, task } => {
            format!("s{shard}        device    {:?}", before.servers[usize::from(*shard)].tasks.get(task))
        }
        Action::Trim { shard } => format!("s{shard}        trims"),
        Action::Shrink { node, stripe } => format!("c{node}        gives back a lock of stripe {stripe}"),
        Action::Crash { node } => format!("c{node}        crashes"),
        Action::Lose { node } => format!("c{node}        loses its connections and comes back"),
        Action::Part { link } => {
            let (incarnation, shard) = world.ends(usize::from(*link));
            format!("s{shard}        evicts    {}", client(world, incarnation))
        }
    }
}

/// What was sent between two states.
#[must_use]
pub fn sent(world: &World, before: &State, after: &State) -> Vec<String> {
    let mut lines = Vec::new();
    for (link, (old, new)) in before.links.iter().zip(&after.links).enumerate() {
        let (incarnation, shard) = world.ends(link);
        let (c, s) = (client(world, incarnation), format!("s{shard}"));
        for (channel, name) in CHANNELS.iter().enumerate() {
            for (from, to, old, new) in [
                (&c, &s, &old.up[channel], &new.up[channel]),
                (&s, &c, &old.down[channel], &new.down[channel]),
            ] {
                let fresh = new.iter().filter(|frame| !old.contains(frame));
                lines.extend(fresh.map(|f| format!("{from} sends {to}  {name:8}  {}", frame(f))));
            }
        }
    }
    lines
}

/// A sequence number without the epoch.
fn short(sn: Sn) -> String {
    format!("sn{}", crate::state::counted(sn.0))
}

/// A message in a line.
fn frame(frame: &Frame) -> String {
    let text = match &frame.message {
        Message::Enqueue { resource, mode, required, desired, .. } => {
            format!("Enqueue {mode} stripe {} {required} of {desired}", resource.stripe)
        }
        Message::Grant { resource, granted: g, .. } => format!(
            "Grant {} {} stripe {} {} {} {}{}{}",
            g.lock,
            g.mode,
            resource.stripe,
            g.region,
            short(g.sn),
            g.state,
            if g.early { " early" } else { "" },
            if g.replaces.is_empty() { String::new() } else { format!(" replaces {:?}", g.replaces) }
        ),
        Message::Revoke { resource, lock, wanted, region } => {
            format!("Revoke {lock} stripe {} for {wanted} {region}", resource.stripe)
        }
        Message::RevokeAck { resource, lock, mode } => {
            format!("RevokeAck {lock} stripe {} {mode}", resource.stripe)
        }
        Message::Convert { resource, lock, mode } => {
            format!("Convert {lock} stripe {} to {mode}", resource.stripe)
        }
        Message::Narrow { resource, lock, taken } => {
            format!("Narrow {lock} stripe {} without {taken}", resource.stripe)
        }
        Message::Release { locks } => {
            let locks: Vec<String> =
                locks.iter().map(|l| format!("{} stripe {}", l.lock, l.resource.stripe)).collect();
            format!("Release {}", locks.join(", "))
        }
        Message::Write { urgent, pieces, releases, .. } => write(*urgent, pieces, releases),
        Message::Read { resource, extent, .. } => format!("Read stripe {} {extent}", resource.stripe),
        Message::ReadReply { stripe_bytes, .. } => format!("ReadReply length {stripe_bytes}"),
        Message::Truncate { resource, length, sn, .. } => {
            format!("Truncate stripe {} to {length} {}", resource.stripe, short(*sn))
        }
        Message::Denied { .. }
        | Message::Map { .. }
        | Message::MapReply { .. }
        | Message::List { .. }
        | Message::ListReply { .. }
        | Message::Punch { .. }
        | Message::GlimpseAsk { .. }
        | Message::GlimpseTell { .. }
        | Message::WriteReply { .. }
        | Message::Sync { .. }
        | Message::Done { .. }
        | Message::Destroy { .. }
        | Message::Glimpse { .. }
        | Message::GlimpseReply { .. }
        | Message::Status { .. }
        | Message::StatusReply { .. }
        | Message::Hello { .. }
        | Message::Welcome { .. }
        | Message::Refused { .. }
        | Message::Ping { .. }
        | Message::Pong { .. }
        | Message::Goodbye {} => format!("{:?}", frame.message),
    };
    match &frame.data {
        Data::Nothing => text,
        Data::Bytes(bytes) => format!("{text} bytes [{}]", tags(bytes)),
        Data::Late => format!("{text} bytes as the pages are on arrival"),
    }
}

fn write(urgent: bool, pieces: &[WritePiece], releases: &[LockRef]) -> String {
    let piece = |p: &WritePiece| format!("stripe {} {} {}", p.resource.stripe, p.extent, short(p.sn));
    let pieces: Vec<String> = pieces.iter().map(piece).collect();
    let locks: Vec<String> = releases.iter().map(|l| l.lock.to_string()).collect();
    let urgent = if urgent { " urgent" } else { "" };
    format!("Write {}{urgent} releases [{}]", pieces.join(", "), locks.join(", "))
}

fn tags(bytes: &[Tag]) -> String {
    let tags: Vec<String> = bytes.iter().map(|tag| format!("#{tag}")).collect();
    tags.join(" ")
}
