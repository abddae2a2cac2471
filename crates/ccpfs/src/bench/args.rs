//! Options of `ccpfs bench ior`, and the plan that they make.

use super::plan::{Contender, Mode, Plan, Workload};
use crate::failure::Failure;
use ccpfs_config::{Bytes, BytesPerSecond};
use ccpfs_types::Layout;
use std::path::PathBuf;

/// Options of `ccpfs bench ior`.
#[derive(Debug, clap::Args)]
pub(crate) struct IorArguments {
    /// Access patterns of IOR: nn (a file per client), segmented and strided (one shared file).
    #[arg(long, value_delimiter = ',', value_name = "PATTERN", default_value = "nn,segmented,strided")]
    #[arg(value_parser = ["nn", "segmented", "strided"])]
    pattern: Vec<String>,
    /// A workload of the paper instead of patterns: every write locks the whole file (Figs. 16 to 19); overlap checks
    /// data safety (Fig. 7).
    #[arg(long, value_name = "WORKLOAD", conflicts_with = "pattern")]
    #[arg(value_parser = ["conflict-sequential", "conflict-parallel", "mixed-read-write", "two-stripe", "overlap"])]
    workload: Option<String>,
    /// Lock modes of writes in those workloads: nbw, bw, pw (default: as the client chooses).
    #[arg(long, value_delimiter = ',', value_name = "MODE", value_enum, requires = "workload")]
    mode: Vec<Mode>,
    /// Client processes.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    clients: u32,
    /// Server processes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    servers: u32,
    /// Shards of each server.
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: u32,
    /// Stripes of the files; several numbers are measured one after the other (default 1; overlap: 1,2;
    /// two-stripe: 2).
    #[arg(long, value_delimiter = ',', value_name = "N")]
    stripes: Vec<u32>,
    /// Bytes in one unit of a stripe.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    stripe_size: Bytes,
    /// Bytes of one write call; several are measured one after the other (default 1MiB).
    #[arg(long, value_delimiter = ',', value_name = "SIZE", default_value = "1MiB")]
    transfer: Vec<Bytes>,
    /// Bytes that each client writes, rounded down to whole transfers.
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    per_client: Bytes,
    /// Lock managers to compare: seqdlm, basic, lustre, with switches like seqdlm-no-early-revocation; also local (a
    /// local file) and memcpy (copies into memory).
    #[arg(long, value_delimiter = ',', value_name = "POLICY", default_value = "seqdlm,basic,lustre")]
    policy: Vec<String>,
    /// How often each is measured; rounds of the policies interleave (default 3; overlap: 10).
    #[arg(long, value_name = "R")]
    rounds: Option<u32>,
    /// Limit each server's device to this bandwidth, for example 500MiB/s.
    #[arg(long, value_name = "BANDWIDTH")]
    device_bandwidth: Option<BytesPerSecond>,
    /// Directory for servers' data and local files (default: the system's temporary directory).
    #[arg(long, value_name = "DIR")]
    device_dir: Option<PathBuf>,
    /// Read every byte back from another process and check who wrote it.
    #[arg(long)]
    verify: bool,
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the bandwidths into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Use TCP on the loopback interface instead of Unix sockets.
    #[arg(long)]
    tcp: bool,
    /// Bytes of each client's cache that are touched before the clock runs (default: what it writes, as far as
    /// memory allows).
    #[arg(long, value_name = "BYTES")]
    prefault: Option<Bytes>,
    /// A setting of the configuration, as section.key=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Keep servers' data, logs and configurations.
    #[arg(long)]
    keep: bool,
    /// Let the first client write one wrong byte: proves that --verify finds it.
    #[arg(long, hide = true, requires = "verify")]
    spoil: bool,
    /// Seconds that one step of a run may take.
    #[arg(long, value_name = "S", default_value_t = 600)]
    timeout: u64,
}

impl IorArguments {
    /// Checks the options together.
    pub(crate) fn plan(&self) -> Result<Plan, Failure> {
        let workloads = match &self.workload {
            Some(name) => vec![Workload::named(name).expect("clap lists the names")],
            None => self.pattern.iter().map(|name| Workload::named(name).expect("clap does")).collect(),
        };
        let contenders =
            self.policy.iter().map(|name| Contender::named(name)).collect::<Result<Vec<_>, _>>()?;
        let modes =
            if self.mode.is_empty() { vec![None] } else { self.mode.iter().copied().map(Some).collect() };
        let plan = Plan {
            stripes: self.stripe_counts(&workloads),
            transfers_bytes: self.transfers(&workloads)?,
            workloads,
            modes,
            contenders,
            clients: self.clients,
            servers: self.servers,
            shards: self.shards,
            stripe_bytes: self.stripe_size.0,
            per_client_bytes: self.per_client.0,
            rounds: self.rounds.unwrap_or(if self.is_overlap() { 10 } else { 3 }),
            device_bandwidth: self.device_bandwidth,
            device_dir: self.device_dir.clone(),
            verify: self.verify || self.is_overlap(),
            json: self.json.clone(),
            plot: self.plot.clone(),
            tcp: self.tcp,
            prefault_bytes: self.prefault.map(|bytes| bytes.0),
            settings: variables(&self.settings)?,
            keep: self.keep,
            spoil: self.spoil,
            step_timeout_s: self.timeout,
        };
        check(&plan)?;
        Ok(plan)
    }

    fn is_overlap(&self) -> bool {
        self.workload.as_deref() == Some("overlap")
    }

    fn stripe_counts(&self, workloads: &[Workload]) -> Vec<u32> {
        match (self.stripes.is_empty(), workloads) {
            (true, [Workload::Overlap]) => vec![1, 2],
            (true, [Workload::TwoStripe]) => vec![2],
            (true, _) => vec![1],
            (false, _) => self.stripes.clone(),
        }
    }

    /// In the overlap workload a write is the whole range.
    fn transfers(&self, workloads: &[Workload]) -> Result<Vec<u64>, Failure> {
        if workloads == [Workload::Overlap] {
            return Ok(vec![self.per_client.0]);
        }
        let transfers: Vec<u64> = self.transfer.iter().map(|bytes| bytes.0).collect();
        match transfers.iter().find(|bytes| !(1..=1 << 30).contains(*bytes) || **bytes > self.per_client.0) {
            Some(bytes) => {
                let (bytes, most) = (Bytes(*bytes), self.per_client);
                Err(Failure::usage(format!("--transfer {bytes} is not allowed: 1 to --per-client ({most})")))
            }
            None => Ok(transfers),
        }
    }
}

/// Settings as variables of the environment, which is how they reach servers and clients.
pub(crate) fn variables(settings: &[String]) -> Result<Vec<(String, String)>, Failure> {
    let variable = |text: &String| {
        let (key, value) = text.split_once('=')?;
        let (section, key) = key.split_once('.')?;
        Some((format!("CCPFS_{}_{}", section.to_uppercase(), key.to_uppercase()), value.to_owned()))
    };
    settings
        .iter()
        .map(|text| {
            let wrong = || Failure::usage(format!("--set {text}: write section.key=value"));
            variable(text).ok_or_else(wrong)
        })
        .collect()
}

/// Relations between options.
fn check(plan: &Plan) -> Result<(), Failure> {
    for count in &plan.stripes {
        if Layout::new(*count, plan.stripe_bytes).is_none() {
            let size = Bytes(plan.stripe_bytes);
            return Err(Failure::usage(format!(
                "{count} stripes of {size} are not allowed: 1 to 2048 stripes, a multiple of 4KiB"
            )));
        }
    }
    if plan.workloads == [Workload::TwoStripe] {
        let wide = plan.transfers_bytes.iter().any(|bytes| bytes.div_ceil(2) > plan.stripe_bytes);
        if wide || plan.stripes.iter().any(|count| *count < 2) {
            let advice =
                "two-stripe needs at least 2 stripes, and transfers of at most two units of a stripe";
            return Err(Failure::usage(advice));
        }
    }
    if plan.rounds == 0 {
        return Err(Failure::usage("--rounds 0 measures nothing"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        ior: IorArguments,
    }

    /// The plan of a command line.
    pub(crate) fn plan(more: &[&str]) -> Result<Plan, Failure> {
        Line::parse_from(["ior"].into_iter().chain(more.iter().copied())).ior.plan()
    }

    #[test]
    fn the_defaults_are_a_small_comparison_of_all_patterns_and_lock_managers() {
        let plan = plan(&[]).unwrap();
        assert_eq!(plan.workloads, [Workload::Nn, Workload::Segmented, Workload::Strided]);
        let names: Vec<String> = plan.contenders.iter().map(Contender::name).collect();
        assert_eq!(names, ["seqdlm", "basic", "lustre"]);
        assert_eq!((plan.stripes, plan.rounds, plan.transfers_bytes), (vec![1], 3, vec![1 << 20]));
    }

    #[test]
    fn the_overlap_workload_is_the_test_of_the_paper() {
        let plan = plan(&["--workload", "overlap", "--clients", "16"]).unwrap();
        assert_eq!((plan.stripes, plan.rounds, plan.verify), (vec![1, 2], 10, true));
        assert_eq!(plan.transfers_bytes, [64 << 20]);
    }

    #[test]
    fn wrong_combinations_are_refused_by_name() {
        for (line, part) in [
            (&["--policy", "gpfs"][..], "'gpfs'"),
            (&["--transfer", "2MiB", "--per-client", "1MiB"], "2MiB"),
            (&["--stripes", "0"], "0 stripes"),
            (&["--stripe-size", "5000"], "5000"),
            (&["--workload", "two-stripe", "--stripes", "1"], "two-stripe"),
            (&["--rounds", "0"], "--rounds"),
            (&["--set", "cache=1GiB"], "section.key=value"),
        ] {
            let message = plan(line).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn settings_become_variables() {
        let plan =
            plan(&["--set", "client.dirty_max=1GiB", "--mode", "nbw,pw", "--workload", "conflict-parallel"]);
        let plan = plan.unwrap();
        assert_eq!(plan.settings, [("CCPFS_CLIENT_DIRTY_MAX".to_owned(), "1GiB".to_owned())]);
        assert_eq!(plan.modes, [Some(Mode::Nbw), Some(Mode::Pw)]);
    }
}
