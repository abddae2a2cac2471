//! `show`: the state of the rules, as tables.

use crate::bytes::describe;
use crate::client::ClientNode;
use crate::cluster::Context;
use crate::debug_tree::Tree;
use crate::server::ServerNode;
use crate::text;
use ccpfs_types::{ClientId, Extent, Sn};
use std::collections::BTreeMap;

/// `0..8192` or `0..EOF`, as `Debug` writes it.
fn extent_in(tree: &Tree) -> Option<Extent> {
    let word = tree.word();
    let (start, end) = word.split_once("..")?;
    let end = if end == "EOF" { Extent::EOF } else { end.parse().ok()? };
    Extent::new(start.parse().ok()?, end)
}

fn extent_text(tree: &Tree) -> String {
    extent_in(tree).map_or_else(|| tree.word(), text::extent)
}

fn mode_text(tree: &Tree) -> String {
    tree.word().to_uppercase()
}

fn sn_text(tree: &Tree) -> String {
    text::sn(Sn(tree.number()))
}

/// The lowest number under which data may still come, if any may.
fn data_text(tree: &Tree) -> String {
    if tree.word() == "None" { String::new() } else { format!(", data from {}", sn_text(tree)) }
}

/// The entries of an `ExtentMap`.
fn extent_map(tree: &Tree) -> Vec<(Extent, Tree)> {
    let entries = tree.field("entries").entries();
    entries
        .into_iter()
        .filter_map(|(start, rest)| {
            let [end, value] = &rest.members()[..] else { return None };
            let end = end.number();
            Some((Extent::new(start.number(), end)?, value.clone()))
        })
        .collect()
}

/// The newest number of each byte that an extent cache knows.
pub(crate) fn newest(stripe: &ccpfs_extent_cache::Stripe) -> Vec<(Extent, Sn)> {
    let entries = extent_map(&Tree::of(stripe).field("newest"));
    entries.into_iter().map(|(extent, sn)| (extent, Sn(sn.number()))).collect()
}

/// Locks that are granted and requests that wait.
pub(crate) fn locks(server: &ServerNode, cx: &mut Context) {
    let mut any = false;
    for (id, resource) in server.shard.resources() {
        let which = cx.writer.stripe_words(id.stripe);
        let tree = Tree::of(resource);
        let awaited: Vec<String> = tree.field("awaited").members().iter().map(Tree::word).collect();
        for (lock, held) in tree.field("locks").entries() {
            let state = match held.field("phase").word().as_str() {
                "Canceling" => "CANCELING",
                "Revoking" => "GRANTED, asked back",
                _ => "GRANTED",
            };
            let holder = text::client(ClientId(held.field("holder").number()));
            let line = format!(
                "{which}{} {holder} {} {} {state}{}{}",
                lock.word(),
                mode_text(&held.field("mode")),
                extent_text(&held.field("region")),
                data_text(&held.field("lowest_sn")),
                if awaited.contains(&lock.word()) || held.field("awaited").is_true() {
                    ", awaited"
                } else {
                    ""
                },
            );
            cx.log.say("", line);
            any = true;
        }
        for (_, request) in tree.field("waiting").entries() {
            let from = text::client(ClientId(request.field("from").number()));
            let line = format!(
                "{which}{from} {} waits for {} {}",
                request.field("request").word(),
                mode_text(&request.field("mode")),
                extent_text(&request.field("required")),
            );
            cx.log.say("", line);
            any = true;
        }
    }
    if !any {
        cx.log.say("", "no locks");
    }
}

/// The extent caches.
pub(crate) fn extents(server: &ServerNode, cx: &mut Context) {
    let mut any = false;
    for (id, stripe) in server.shard.stripes() {
        for (extent, sn) in newest(stripe) {
            cx.log.say(
                "",
                format!("{}{} {}", cx.writer.stripe_words(id.stripe), text::extent(extent), text::sn(sn)),
            );
            any = true;
        }
    }
    if !any {
        cx.log.say("", "no entries");
    }
}

/// What is on the device.
pub(crate) fn device(server: &ServerNode, cx: &mut Context) {
    for (id, stored) in &server.device.live {
        let what = describe(&stored.bytes, Extent::WHOLE, true);
        let which = cx.writer.stripe_words(id.stripe);
        cx.log.say("", format!("{which}{what}; length {}", text::size(stored.length)));
    }
    if server.device.live.is_empty() {
        cx.log.say("", "nothing");
    }
}

/// What a client holds and caches.
pub(crate) fn cache(node: &ClientNode, cx: &mut Context) {
    let mut any = false;
    for stripe in &node.stripes {
        let which = cx.writer.stripe_words(stripe.machine.resource().stripe);
        let held = stripe.machine.locks().map(|locks| Tree::of(locks).field("held").entries());
        for (lock, held) in held.unwrap_or_default() {
            let phase = match held.field("phase").word().as_str() {
                "Granted" => "GRANTED",
                "Draining" => "CANCELING, in use",
                "Lowering" => "CANCELING, to be lowered",
                "Flushing" => "CANCELING, to be flushed",
                _ => "unknown",
            };
            let line = format!(
                "{which}{} {} {} {} {phase}",
                lock.word(),
                mode_text(&held.field("mode")),
                extent_text(&held.field("region")),
                sn_text(&held.field("sn")),
            );
            cx.log.say("", line);
            any = true;
        }
        let names: BTreeMap<&str, &str> = BTreeMap::from([
            ("Clean", "clean"),
            ("Dirty", "dirty"),
            ("Flushing", "being flushed"),
            ("Leaving", "being flushed, its lock goes along"),
        ]);
        for (extent, tag) in extent_map(&Tree::of(stripe.machine.cache()).field("cache")) {
            let state = tag.field("state").word();
            let state = names.get(state.as_str()).copied().unwrap_or("unknown");
            let contents = describe(&stripe.memory, extent, false);
            let line =
                format!("{which}{} {} ({contents}) {state}", text::extent(extent), sn_text(&tag.field("sn")));
            cx.log.say("", line);
            any = true;
        }
    }
    if !any {
        cx.log.say("", "nothing");
    }
}

/// Messages under way.
pub(crate) fn net(cx: &mut Context) {
    let mut lines = Vec::new();
    for (link, packet) in cx.net.under_way() {
        let (from, to) = match link.to_server {
            true => (text::client(link.client), format!("s{}", link.shard)),
            false => (format!("s{}", link.shard), text::client(link.client)),
        };
        let channel = text::channel(link.channel.into());
        lines.push(format!(
            "{from} -> {to} {channel:<8} {}",
            cx.writer.message(&packet.message, packet.bulk.as_ref())
        ));
    }
    if lines.is_empty() {
        lines.push(String::from("nothing is under way"));
    }
    for line in lines {
        cx.log.say("", line);
    }
}
