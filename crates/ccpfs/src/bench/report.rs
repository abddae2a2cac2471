//! The results as a JSON file.

use super::plan::Plan;
use super::result::{Run, Summary};
use crate::failure::{Context, Failure};
use serde::Serialize;
use std::path::Path;

/// The file. Further fields may be added; these stay.
#[derive(Serialize)]
struct Document<'a> {
    /// What was asked for.
    setup: Setup,
    /// One entry per run, in the order of measuring.
    runs: &'a [Run],
    /// One entry per line of the table.
    summary: &'a [Summary],
}

#[derive(Serialize)]
struct Setup {
    version: &'static str,
    clients: u32,
    servers: u32,
    shards: u32,
    stripe_bytes: u64,
    per_client_bytes: u64,
    rounds: u32,
    device_bandwidth_bytes_per_second: Option<u64>,
    transport: &'static str,
    verify: bool,
}

/// Writes the file; directories that are missing are created.
pub(crate) fn write(path: &Path, plan: &Plan, runs: &[Run], summary: &[Summary]) -> Result<(), Failure> {
    let setup = Setup {
        version: env!("CARGO_PKG_VERSION"),
        clients: plan.clients,
        servers: plan.servers,
        shards: plan.shards,
        stripe_bytes: plan.stripe_bytes,
        per_client_bytes: plan.per_client_bytes,
        rounds: plan.rounds,
        device_bandwidth_bytes_per_second: plan.device_bandwidth.map(|limit| limit.0),
        transport: if plan.tcp { "tcp" } else { "unix" },
        verify: plan.verify,
    };
    let failed = || format!("cannot write {}", path.display());
    let text = serde_json::to_string_pretty(&Document { setup, runs, summary }).context(failed)?;
    create_parent(path)?;
    std::fs::write(path, text + "\n").context(failed)
}

/// Creates the directory that a file is to be in.
pub(crate) fn create_parent(path: &Path) -> Result<(), Failure> {
    match path.parent() {
        Some(parent) => {
            std::fs::create_dir_all(parent).context(|| format!("cannot create {}", parent.display()))
        }
        None => Ok(()),
    }
}
