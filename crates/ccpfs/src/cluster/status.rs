//! `ccpfs status`: which servers are up, and what they have counted.

use super::ClusterChoice;
use super::servers::{describe_counter, prober, readable_bytes, targets_of};
use super::up::running_servers;
use crate::failure::{Failure, say};
use crate::sys;
use ccpfs_config::{ClientConfig, ConfigFile, format_bytes};
use serde::Serialize;
use std::path::Path;

/// Options of `ccpfs status`.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    cluster: ClusterChoice,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// What is known of one shard.
#[derive(Debug, Serialize)]
struct ShardStatus {
    server: usize,
    shard: u32,
    address: String,
    up: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    counters: serde_json::Map<String, serde_json::Value>,
}

/// Asks all shards.
fn collect(config: &ClientConfig, pids: &[Option<u32>]) -> Result<Vec<ShardStatus>, Failure> {
    let client = prober(config)?;
    let mut found = Vec::new();
    for (server, address) in config.servers.iter().enumerate() {
        for (shard, target) in (0..).zip(targets_of(config, server)) {
            let answer = client.status(target);
            let error = answer.as_ref().err().map(ToString::to_string);
            let counters = answer.unwrap_or_default();
            found.push(ShardStatus {
                server,
                shard,
                address: address.shard(shard).to_string(),
                up: error.is_none(),
                pid: pids.get(server).copied().flatten(),
                error,
                counters: counters.into_iter().map(|(name, value)| (name, value.into())).collect(),
            });
        }
    }
    Ok(found)
}

/// `data` is where the servers of this machine keep their data.
fn print(config: &ClientConfig, data: Option<&Path>, shards: &[ShardStatus]) {
    say(format!("namespace  {}", config.namespace.display()));
    let (count, size) = (config.layout.stripe_count(), config.layout.stripe_bytes());
    say(format!("new files  {count} stripe(s) in units of {}", format_bytes(size)));
    if let Some((folder, (free, total))) = data.and_then(|path| Some((path, sys::space_bytes(path)?))) {
        let (free, total) = (readable_bytes(free), readable_bytes(total));
        say(format!("space      {free} free of {total} at {}", folder.display()));
    }
    for shard in shards {
        let state = if shard.up { "up  " } else { "DOWN" };
        let pid = shard.pid.map(|pid| format!("  process {pid}")).unwrap_or_default();
        let (server, number, address) = (shard.server, shard.shard, &shard.address);
        say(format!("server {server} shard {number}  {state}  {address}{pid}"));
        if let Some(error) = &shard.error {
            say(format!("    {error}"));
        }
        let counters: Vec<String> = shard
            .counters
            .iter()
            .map(|(name, value)| describe_counter(name, value.as_u64().unwrap_or_default()))
            .collect();
        for line in counters.chunks(5) {
            say(format!("    {}", line.join("  ")));
        }
    }
}

/// Prints the status; succeeds only if all shards answer.
pub(crate) fn run(arguments: &StatusArguments) -> Result<(), Failure> {
    let file = ConfigFile::load(Some(&arguments.cluster.config_path()?))?;
    let config = ClientConfig::from_file(&file)?;
    let state = arguments.cluster.state_directory()?;
    let processes = state.map(|state| running_servers(&state, config.servers.len())).transpose()?;
    let pids: Vec<Option<u32>> =
        processes.unwrap_or_default().into_iter().map(|process| process.map(|id| id.pid)).collect();
    let shards = collect(&config, &pids)?;
    if arguments.json {
        let text = serde_json::to_string_pretty(&shards).expect("plain values");
        say(text);
    } else {
        print(&config, file.server.data.as_deref(), &shards);
    }
    let down = shards.iter().filter(|shard| !shard.up).count();
    match down {
        0 => Ok(()),
        count => Err(Failure::new(format!("{count} of {} shards do not answer", shards.len()))),
    }
}
