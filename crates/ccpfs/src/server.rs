//! `ccpfs server`: one server in the foreground.

use crate::failure::{Context, Failure};
use crate::sys;
use ccpfs_config::{BytesPerSecond, ServerConfig};
use ccpfs_transport::Address;
use std::path::PathBuf;

/// How often a server that runs looks whether it still does, in milliseconds.
const LOOK_AROUND_MS: u32 = 500;

/// Options of `ccpfs server`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServerArguments {
    /// Configuration file of the cluster.
    #[arg(long, env = "CCPFS_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// Which server of the configuration's list this is, from 0.
    #[arg(long, value_name = "N")]
    index: u32,
    /// Listen here instead of at the address of the list (which clients use).
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<Address>,
    /// Directory for the data of this server (default: server-N in the configuration's directory).
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Limit the device to this bandwidth, for example 500MiB/s.
    #[arg(long, value_name = "BANDWIDTH")]
    device_bandwidth: Option<BytesPerSecond>,
    /// Lock manager: seqdlm, basic, lustre, with switches like -no-early-grant.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Start a session of one's own, so that a terminal's signals do not arrive.
    #[arg(long, hide = true)]
    detach: bool,
    /// End when this process ends.
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<u32>,
}

/// Settings of the server: the file's, with what the command line says instead.
fn settings(arguments: &ServerArguments) -> Result<ServerConfig, Failure> {
    let mut config = ServerConfig::load(Some(&arguments.config), arguments.index)?;
    if let Some(listen) = &arguments.listen {
        config.listen = listen.clone();
    }
    if let Some(data) = &arguments.data {
        config.data.clone_from(data);
    }
    if let Some(bandwidth) = arguments.device_bandwidth {
        config.device_bandwidth_bytes_per_s = Some(bandwidth.0);
    }
    if let Some(policy) = &arguments.policy {
        config.policy = policy.parse().map_err(|error| Failure::usage(format!("--policy: {error}")))?;
    }
    Ok(config)
}

/// Runs the server until a signal asks it to stop, or it fails.
pub(crate) fn run(arguments: &ServerArguments) -> Result<(), Failure> {
    if let Some(parent) = arguments.parent {
        sys::die_with_parent(parent);
    }
    if arguments.detach {
        sys::start_session().context(|| "cannot start a session".to_owned())?;
    }
    let config = settings(arguments)?;
    let index = config.index;
    // Before any thread starts: all of them inherit the mask.
    sys::block_termination();
    let server = ccpfs_server::start(config).context(|| format!("server {index}"))?;
    for address in server.addresses() {
        tracing::info!("server {index} listens on {address}");
    }
    // When one shard has ended the others end too.
    while !sys::termination_within(LOOK_AROUND_MS) && !server.has_ended() {}
    tracing::info!("server {index} stops");
    server.shutdown();
    server.wait().context(|| format!("server {index}"))
}
