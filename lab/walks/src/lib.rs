//! Golden conversations: scripts, and every message that follows.
//!
//! *What*: a cluster of the product's own rules (`ccpfs-cached-stripe` in clients, `ccpfs-shard` in servers) in which nothing moves
//! unless a script says so: each message waits in its connection until it is delivered. [`run`] carries out a script and gives
//! it back with its output; a test compares that with the file, and `UPDATE=1` rewrites the file.
//! *Not here*: decisions (the rules take them), threads and sockets, random orders (`ccpfs-sim`), all orders (`ccpfs-model`).
//!
//! A script is made of paragraphs: comments (`#`), commands, one a line, then `----` and what followed. The README of this folder
//! lists the commands.

mod bytes;
mod call;
mod client;
mod cluster;
mod debug_tree;
mod device;
mod log;
mod net;
mod operation;
mod parse;
mod places;
mod script;
mod server;
mod show;
mod text;

use cluster::Cluster;

/// Carries out a script; returns it with the output of each paragraph. A command that cannot be carried out says so in the output.
#[must_use]
pub fn run(text: &str) -> String {
    let mut cluster: Option<Cluster> = None;
    let mut done = Vec::new();
    for block in script::parse(text) {
        let mut output = String::new();
        for (line, command) in block.commands() {
            let words: Vec<&str> = command.split_whitespace().collect();
            let result = match (&words[..], &mut cluster) {
                (["cluster", rest @ ..], _) => Cluster::new(rest).map(|new| cluster = Some(new)),
                (_, Some(cluster)) => cluster.command(&words),
                (_, None) => Err(String::from("a walk begins with a cluster")),
            };
            if let Some(cluster) = &mut cluster {
                output.push_str(&cluster.cx.log.take());
            }
            if let Err(error) = result {
                output.push_str(&format!("error in line {line}: {error}\n"));
            }
        }
        done.push((block, output));
    }
    script::render(&done)
}
