//! The options that all benchmarks with operations of many pieces have, and the plan that they make.

use super::pattern::Pattern;
use super::way::Way;
use crate::bench::args::variables;
use crate::failure::Failure;
use ccpfs_config::{Bytes, BytesPerSecond};
use ccpfs_types::{Layout, Policy};
use std::path::PathBuf;

/// Options of the setting.
#[derive(Debug, clap::Args)]
pub(crate) struct RegionArguments {
    /// How calls are written, several compared in one run; a wrong name lists all.
    #[arg(long = "lock", value_delimiter = ',', value_name = "WAY")]
    ways: Vec<String>,
    /// Lock managers to compare: seqdlm, datatype (paper 000's DLM-datatype: exact, nothing early), basic, lustre, with switches like seqdlm-no-early-grant; also local (a
    /// local file, not for --lock with locks).
    #[arg(long, value_delimiter = ',', value_name = "POLICY", default_value = "seqdlm")]
    policy: Vec<String>,
    /// Server processes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    servers: u32,
    /// Shards of each server.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: u32,
    /// Stripes of the file; several numbers are measured one after the other.
    #[arg(long, value_delimiter = ',', value_name = "N", default_value = "1")]
    stripes: Vec<u32>,
    /// Bytes in one unit of a stripe (default 1MiB, or as the benchmark says).
    #[arg(long, value_name = "SIZE")]
    stripe_size: Option<Bytes>,
    /// How often each is measured; rounds interleave.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Limit each server's device to this bandwidth, for example 500MiB/s.
    #[arg(long, value_name = "BANDWIDTH")]
    device_bandwidth: Option<BytesPerSecond>,
    /// Directory for servers' data and local files (default: the system's temporary directory).
    #[arg(long, value_name = "DIR")]
    device_dir: Option<PathBuf>,
    /// Do not read what was written from another process, nor check whose it is and in which order calls took place.
    #[arg(long)]
    no_verify: bool,
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the bandwidths into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Use TCP on the loopback interface instead of Unix sockets.
    #[arg(long)]
    tcp: bool,
    /// A setting of the configuration, as section.key=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Let the first process write one wrong byte: proves that it is found.
    #[arg(long, hide = true, conflicts_with = "no_verify")]
    spoil: bool,
    /// Seconds that one step of a run may take.
    #[arg(long, value_name = "S", default_value_t = 600)]
    timeout: u64,
}

/// Who is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Contender {
    /// A lock manager's name, or `local`.
    pub(crate) policy: String,
    /// How it writes.
    pub(crate) way: Way,
}

impl Contender {
    /// Whether it is the local file system.
    pub(crate) fn is_local(&self) -> bool {
        self.policy == "local"
    }

    /// The name in legends.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.policy, self.way.name())
    }
}

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) pattern: Pattern,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) servers: u32,
    pub(crate) shards: u32,
    pub(crate) stripes: Vec<u32>,
    pub(crate) stripe_bytes: u64,
    pub(crate) rounds: u32,
    pub(crate) device_bandwidth: Option<BytesPerSecond>,
    pub(crate) device_dir: Option<PathBuf>,
    pub(crate) verify: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
    pub(crate) tcp: bool,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) spoil: bool,
    pub(crate) step_timeout_s: u64,
}

impl RegionArguments {
    /// Whether the unit of the stripes was asked for.
    pub(crate) fn says_stripe_size(&self) -> bool {
        self.stripe_size.is_some()
    }

    /// Checks the options together. Without `--lock` all of `ways` that are not much slower than the others are compared.
    pub(crate) fn plan(&self, pattern: Pattern, ways: &[Way]) -> Result<Plan, Failure> {
        let stripe_bytes = self.stripe_size.map_or(1 << 20, |size| size.0);
        for count in &self.stripes {
            if Layout::new(*count, stripe_bytes).is_none() {
                let size = Bytes(stripe_bytes);
                return Err(Failure::usage(format!(
                    "a file cannot have {count} stripes with units of {size}"
                )));
            }
        }
        // Whatever cannot be described is told here, not by a process.
        pattern.operations(0).map_err(|error| {
            Failure::usage(format!("{} cannot be written: {error:?}", pattern.describe()))
        })?;
        Ok(Plan {
            pattern,
            contenders: self.contenders(ways)?,
            servers: self.servers,
            shards: self.shards,
            stripes: self.stripes.clone(),
            stripe_bytes,
            rounds: self.rounds,
            device_bandwidth: self.device_bandwidth,
            device_dir: self.device_dir.clone(),
            verify: !self.no_verify,
            json: self.json.clone(),
            plot: self.plot.clone(),
            tcp: self.tcp,
            settings: variables(&self.settings)?,
            spoil: self.spoil,
            step_timeout_s: self.timeout,
        })
    }

    fn contenders(&self, ways: &[Way]) -> Result<Vec<Contender>, Failure> {
        let named = |name: &String| {
            Way::named(name, ways).ok_or_else(|| {
                let known: Vec<String> = ways.iter().map(|way| way.name()).collect();
                Failure::usage(format!("--lock: there is no '{name}'; there are {}", known.join(", ")))
            })
        };
        let wanted: Vec<Way> = if self.ways.is_empty() {
            ways.iter().copied().filter(|way| way.is_usual()).collect()
        } else {
            self.ways.iter().map(named).collect::<Result<_, _>>()?
        };
        let mut contenders = Vec::new();
        for policy in &self.policy {
            if policy != "local" {
                policy
                    .parse::<Policy>()
                    .map_err(|unknown| Failure::usage(format!("--policy: {unknown}; or 'local'")))?;
            }
            for way in &wanted {
                if policy != "local" || !way.needs_servers() {
                    contenders.push(Contender { policy: policy.clone(), way: *way });
                }
            }
        }
        if contenders.is_empty() {
            return Err(Failure::usage("nothing is measured: a local file has no locks"));
        }
        Ok(contenders)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::bench::tile_io::Tiles;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        common: RegionArguments,
    }

    /// A small picture of two tiles.
    pub(crate) fn picture() -> Pattern {
        Pattern::TileIo(Tiles { columns: 2, rows: 1, width: 4, height: 3, element_bytes: 4, overlap: 1 })
    }

    /// The plan of a command line.
    pub(crate) fn plan(more: &[&str]) -> Result<Plan, Failure> {
        Line::parse_from(["x"].into_iter().chain(more.iter().copied())).common.plan(picture(), &Way::atomic())
    }

    #[test]
    fn every_policy_meets_every_way_and_a_local_file_has_no_locks() {
        let plan = plan(&["--policy", "seqdlm,local"]).unwrap();
        let names: Vec<String> = plan.contenders.iter().map(Contender::name).collect();
        assert_eq!(names, ["seqdlm datatype-alt-try", "seqdlm pieces", "seqdlm group", "local pieces"]);
        assert!(plan.verify && plan.stripes == [1] && plan.stripe_bytes == 1 << 20);
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        for (line, parts) in [
            (&["--policy", "gpfs"][..], &["gpfs", "local"][..]),
            (&["--lock", "hope"], &["hope", "pieces"]),
            (&["--stripes", "0"], &["0 stripes"]),
            (&["--stripe-size", "5000"], &["5000"]),
            (&["--set", "cache=1"], &["section.key=value"]),
        ] {
            let message = plan(line).map(|_| ()).unwrap_err().to_string();
            assert!(parts.iter().all(|part| message.contains(part)), "{message}");
        }
    }
}
