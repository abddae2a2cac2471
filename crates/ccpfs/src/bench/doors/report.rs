//! The results as a JSON file.

use super::plan::{Door, Plan};
use super::result::{Ratio, Sample, Summary, ratios};
use super::run::Measured;
use crate::bench::report::create_parent;
use crate::failure::{Context, Failure};
use serde::Serialize;
use std::path::Path;

/// The file. Further fields may be added; these stay.
#[derive(Serialize)]
struct Document<'a> {
    /// What was asked for.
    setup: Setup<'a>,
    /// Bytes that were written, read by another process and compared.
    verified_bytes: u64,
    /// Bytes that were not as written.
    wrong_bytes: u64,
    /// One entry per number, in the order of measuring.
    samples: &'a [Sample],
    /// One entry per door in a line of a table.
    summary: &'a [Summary],
    /// Doors over others, and one file over many.
    ratios: Vec<Ratio>,
}

#[derive(Serialize)]
struct Setup<'a> {
    version: &'static str,
    doors: Vec<&'static str>,
    per_process_bytes: u64,
    names: u64,
    rounds: u32,
    mount_options: &'a [String],
    settings: &'a [(String, String)],
}

/// Writes the file; directories that are missing are created.
pub(super) fn write(path: &Path, plan: &Plan, measured: &Measured, lines: &[Summary]) -> Result<(), Failure> {
    let setup = Setup {
        version: env!("CARGO_PKG_VERSION"),
        doors: plan.doors.iter().copied().map(Door::name).collect(),
        per_process_bytes: plan.per_process_bytes,
        names: plan.names,
        rounds: plan.rounds,
        mount_options: &plan.mount_options,
        settings: &plan.settings,
    };
    let document = Document {
        setup,
        verified_bytes: measured.bytes,
        wrong_bytes: measured.wrong_bytes,
        samples: &measured.samples,
        summary: lines,
        ratios: ratios(lines, &plan.doors),
    };
    let failed = || format!("cannot write {}", path.display());
    let text = serde_json::to_string_pretty(&document).context(failed)?;
    create_parent(path)?;
    std::fs::write(path, text + "\n").context(failed)
}
