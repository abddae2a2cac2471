//! Options of `ccpfs bench doors`, and the plan that they make.

use super::plan::{Door, Pattern, Plan};
use crate::bench::args::variables;
use crate::failure::Failure;
use ccpfs_config::Bytes;
use std::path::PathBuf;

/// Options of `ccpfs bench doors`.
#[derive(Debug, clap::Args)]
pub(crate) struct DoorsArguments {
    /// What is compared: capi (C interface), preload, mount, passthrough (ordinary files through the same mount), plain
    /// (the local file system).
    #[arg(long, value_delimiter = ',', value_name = "DOOR", value_enum)]
    #[arg(default_value = "capi,preload,mount,passthrough,plain")]
    door: Vec<Door>,
    /// What is measured: data (bandwidths) and names (create, stat, open, unlink).
    #[arg(long, value_delimiter = ',', value_name = "WHAT", default_value = "data,names")]
    #[arg(value_parser = ["data", "names"])]
    what: Vec<String>,
    /// Processes that work at the same time; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1,4")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=64))]
    processes: Vec<u32>,
    /// A file for each process, or one for all.
    #[arg(long, value_delimiter = ',', value_name = "PATTERN", value_enum, default_value = "nn,strided")]
    pattern: Vec<Pattern>,
    /// Bytes of one call; several are measured one after the other.
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "4KiB,64KiB,128KiB,1MiB,4MiB")]
    transfer: Vec<Bytes>,
    /// Bytes that each process writes, rounded down to whole transfers.
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    per_process: Bytes,
    /// Names that each process makes.
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    names: u64,
    /// How often everything is measured; rounds of the doors interleave.
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Directory for everything (default: the system's temporary directory).
    #[arg(long, value_name = "DIR")]
    device_dir: Option<PathBuf>,
    /// Mount options, as of `ccpfs mount -o`.
    #[arg(long, value_name = "OPTIONS")]
    mount_options: Vec<String>,
    /// A setting of the configuration, as section.key=value; may be repeated. client.cache is 1GiB here if it is not set, or four
    /// times --per-process: clients of all doors keep theirs until the end.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the figures into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Let the first process of each door write one wrong byte: proves that it is found.
    #[arg(long, hide = true)]
    spoil: bool,
    /// Seconds that one step of a run may take.
    #[arg(long, value_name = "S", default_value_t = 600)]
    timeout: u64,
}

/// Each once, in the order of the first time.
fn once<T: PartialEq + Copy>(values: &[T]) -> Vec<T> {
    let mut kept: Vec<T> = Vec::with_capacity(values.len());
    for value in values {
        if !kept.contains(value) {
            kept.push(*value);
        }
    }
    kept
}

impl DoorsArguments {
    /// Checks the options together.
    pub(super) fn plan(&self) -> Result<Plan, Failure> {
        let transfers: Vec<u64> = self.transfer.iter().map(|bytes| bytes.0).collect();
        if let Some(bytes) = transfers.iter().find(|bytes| !(1..=self.per_process.0).contains(*bytes)) {
            let (bytes, most) = (Bytes(*bytes), self.per_process);
            return Err(Failure::usage(format!(
                "--transfer {bytes} is not allowed: 1 to --per-process ({most})"
            )));
        }
        let wants = |what: &str| self.what.iter().any(|wanted| wanted == what);
        Ok(Plan {
            doors: once(&self.door),
            processes: once(&self.processes),
            patterns: once(&self.pattern),
            transfers_bytes: once(&transfers),
            per_process_bytes: self.per_process.0,
            names: if wants("names") { self.names } else { 0 },
            data: wants("data"),
            rounds: self.rounds,
            device_dir: self.device_dir.clone(),
            mount_options: self.mount_options.clone(),
            settings: with_cache(variables(&self.settings)?, self.per_process.0),
            json: self.json.clone(),
            plot: self.plot.clone(),
            spoil: self.spoil,
            step_timeout_s: self.timeout,
        })
    }
}

/// The settings, with a cache for each client that a node has room for as often as there are processes.
fn with_cache(mut settings: Vec<(String, String)>, per_process_bytes: u64) -> Vec<(String, String)> {
    const CACHE: &str = "CCPFS_CLIENT_CACHE";
    const LEAST: u64 = 1 << 30;
    if !settings.iter().any(|(name, _)| name == CACHE) {
        settings
            .push((CACHE.to_owned(), per_process_bytes.saturating_mul(4).clamp(LEAST, 1 << 40).to_string()));
    }
    settings
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::doors::plan::Case;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        doors: DoorsArguments,
    }

    /// The plan of a command line.
    pub(crate) fn plan(more: &[&str]) -> Result<Plan, Failure> {
        Line::parse_from(["doors"].into_iter().chain(more.iter().copied())).doors.plan()
    }

    #[test]
    fn a_cache_is_as_large_as_said_or_four_times_what_a_process_writes() {
        let cache = |more: &[&str]| plan(more).unwrap().settings;
        let is = |value: &str| vec![("CCPFS_CLIENT_CACHE".to_owned(), value.to_owned())];
        assert_eq!(cache(&[]), is("1073741824"));
        assert_eq!(cache(&["--per-process", "512MiB"]), is("2147483648"));
        assert_eq!(cache(&["--set", "client.cache=3GiB"]), is("3GiB"));
    }

    #[test]
    fn the_defaults_are_all_doors_and_one_process_is_measured_once() {
        let plan = plan(&[]).unwrap();
        let names: Vec<&str> = plan.doors.iter().map(|door| door.name()).collect();
        assert_eq!(names, ["capi", "preload", "mount", "passthrough", "plain"]);
        assert_eq!((plan.rounds, plan.names, plan.members()), (5, 2000, 4));
        let cases: Vec<String> = plan.cases().iter().take(4).map(Case::label).collect();
        assert_eq!(cases, ["nn x1 4KiB", "nn x4 4KiB", "strided x4 4KiB", "nn x1 64KiB"]);
    }

    #[test]
    fn a_part_can_be_asked_for() {
        let plan = plan(&["--what", "names", "--door", "mount,plain,mount", "--processes", "1"]).unwrap();
        assert_eq!((plan.doors.len(), plan.cases().len(), plan.members()), (2, 0, 2));
    }

    #[test]
    fn transfers_that_do_not_fit_are_refused() {
        let message = plan(&["--transfer", "2MiB", "--per-process", "1MiB"]).map(|_| ()).unwrap_err();
        assert!(message.to_string().contains("2MiB"), "{message}");
    }
}
