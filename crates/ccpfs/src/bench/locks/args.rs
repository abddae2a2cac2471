//! Options of `ccpfs bench locks`, and the plan that they make.

use crate::bench::args::variables;
use crate::failure::Failure;
use ccpfs_config::Bytes;
use ccpfs_region::{Region, Section};
use ccpfs_sim::figures::taking::{Kind, Protocol};
use ccpfs_types::{Layout, Policy};
use std::path::PathBuf;

/// Options of `ccpfs bench locks`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
Each client wants LOCKS locks of one byte, GAP bytes from each other, in a file with a stripe on each server, all of them before it lets
go of any. --kind says what one request to a server asks for:

  datatype   one description of all of its locks there: start, distance, count
  list       64 of them
  posix      one

--protocol says in which order:

  two-phase  one request after the other
  one-try    all at once, without waiting for others; then those that are missing, one after the other
  alt-try    by turns: all that are missing at once, then the first that still is, waiting for it; those behind it are asked for
             as well meanwhile, and given to whoever wants them before their turn has come

If nobody is in another's way, 'acquire' is the time until the last client has all its locks, and 'release' that of giving all back, a
phase of its own. 'both' is the time until the last client has taken all its locks and given them back, where each gives back at once:
clients with locks in common (--overlap: the part that each shares with the next) have to wait for each other, so there 'acquire' is the
same. 'kept' is the rate of both over that with the least overlap: what contention leaves. --rules measures the tables of locks alone,
without processes.

Paper 001: --locks 131072 --gap 64 (and 4096) --clients 32 --servers 32 --overlap 0,25,50,75,100")]
pub(crate) struct LocksArguments {
    /// Clients, each with connections and a thread of its own.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Server processes of one shard each; the file has a stripe on each.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    servers: u32,
    /// Locks of each client.
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    locks: u64,
    /// Bytes from one lock to the next; several are measured one after the other.
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_value = "64,4096")]
    gap: Vec<Bytes>,
    /// Percent of its locks that each client has in common with the next; several are measured one after the other.
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", default_value = "0")]
    #[arg(value_parser = clap::value_parser!(u64).range(0..=100))]
    overlap: Vec<u64>,
    /// What one request asks for.
    #[arg(long, value_delimiter = ',', value_name = "KIND", default_value = "datatype,list,posix")]
    #[arg(value_parser = ["datatype", "list", "posix"])]
    kind: Vec<String>,
    /// In which order requests are made.
    #[arg(long, value_delimiter = ',', value_name = "PROTOCOL", default_value = "two-phase,one-try,alt-try")]
    #[arg(value_parser = ["two-phase", "one-try", "alt-try"])]
    protocol: Vec<String>,
    /// Measure the rules alone: the tables of all servers in this process, one request after the other.
    #[arg(long, conflicts_with_all = ["tcp", "settings"])]
    rules: bool,
    /// The lock manager.
    #[arg(long, value_name = "POLICY", default_value = "datatype")]
    policy: String,
    /// Bytes in one unit of a stripe.
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    stripe_size: Bytes,
    /// How often each is measured; rounds interleave.
    #[arg(long, value_name = "R", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Use TCP on the loopback interface instead of Unix sockets.
    #[arg(long)]
    tcp: bool,
    /// A setting of the configuration, as section.key=value; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
    /// Write all results to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the rates into this SVG file.
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// What is measured in one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) gap_bytes: u64,
    pub(super) overlap_percent: u64,
    pub(super) kind: Kind,
    /// None of the rules alone.
    pub(super) protocol: Option<Protocol>,
}

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) clients: u32,
    pub(super) layout: Layout,
    pub(super) locks: u64,
    pub(super) cases: Vec<Case>,
    pub(super) rules: bool,
    pub(super) policy: String,
    pub(super) rounds: u32,
    pub(super) tcp: bool,
    pub(super) settings: Vec<(String, String)>,
    pub(super) json: Option<PathBuf>,
    pub(super) plot: Option<PathBuf>,
}

impl Case {
    /// What `rank` wants. Clients lie one after the other, less what they share.
    pub(super) fn region(&self, rank: u32, locks: u64) -> Region {
        let step = locks - locks * self.overlap_percent / 100;
        let offset = u64::from(rank) * step * self.gap_bytes;
        Section::new(offset, 1, &[(self.gap_bytes, locks)]).expect("checked with the options").into()
    }

    /// Kind and protocol, for tables.
    pub(super) fn name(&self) -> String {
        match self.protocol {
            None => self.kind.name().to_owned(),
            Some(protocol) => format!("{}-{}", self.kind.name(), protocol.name()),
        }
    }
}

impl LocksArguments {
    /// Checks the options together.
    pub(super) fn plan(&self) -> Result<Plan, Failure> {
        if let Err(unknown) = self.policy.parse::<Policy>() {
            return Err(Failure::usage(format!("--policy: {unknown}")));
        }
        let size = self.stripe_size;
        let layout = Layout::new(self.servers, size.0).ok_or_else(|| {
            Failure::usage(format!("--stripe-size {size} is not allowed: multiples of 4KiB"))
        })?;
        for gap in &self.gap {
            let last = u128::from(gap.0) * u128::from(self.locks) * u128::from(self.clients);
            if gap.0 == 0 || last > 1 << 62 {
                return Err(Failure::usage(format!(
                    "--gap {gap} is not allowed with so many locks and clients"
                )));
            }
        }
        if self.rules && self.overlap.iter().any(|percent| *percent > 0) {
            return Err(Failure::usage("--rules has no clients that could wait: only --overlap 0"));
        }
        Ok(Plan {
            clients: self.clients,
            layout,
            locks: self.locks,
            cases: self.cases(),
            rules: self.rules,
            policy: self.policy.clone(),
            rounds: self.rounds,
            tcp: self.tcp,
            settings: variables(&self.settings)?,
            json: self.json.clone(),
            plot: self.plot.clone(),
        })
    }

    fn cases(&self) -> Vec<Case> {
        let kinds = |name: &String| Kind::ALL.into_iter().find(|kind| kind.name() == name);
        let protocols = |name: &String| Protocol::ALL.into_iter().find(|protocol| protocol.name() == name);
        let mut cases = Vec::new();
        for gap in &self.gap {
            for overlap_percent in &self.overlap {
                for kind in self.kind.iter().filter_map(kinds) {
                    let case = |protocol| Case {
                        gap_bytes: gap.0,
                        overlap_percent: *overlap_percent,
                        kind,
                        protocol,
                    };
                    if self.rules {
                        cases.push(case(None));
                    } else {
                        cases.extend(
                            self.protocol.iter().filter_map(protocols).map(|known| case(Some(known))),
                        );
                    }
                }
            }
        }
        cases
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        locks: LocksArguments,
    }

    /// The plan of a command line.
    pub(in crate::bench::locks) fn plan(more: &[&str]) -> Result<Plan, Failure> {
        Line::parse_from(["locks"].into_iter().chain(more.iter().copied())).locks.plan()
    }

    #[test]
    fn clients_share_the_part_of_their_locks_that_was_asked_for() {
        for (percent, common) in [(0, 0), (25, 25), (50, 50), (100, 100)] {
            let case = Case { gap_bytes: 64, overlap_percent: percent, kind: Kind::Datatype, protocol: None };
            let (one, next) = (case.region(0, 100), case.region(1, 100));
            let shared = one.pieces().filter(|piece| next.contains(piece.start())).count();
            assert_eq!((shared, one.piece_count()), (common, 100), "{percent} %");
        }
    }

    #[test]
    fn all_kinds_meet_all_protocols_and_rules_have_none() {
        let all = plan(&["--overlap", "0,100"]).unwrap();
        assert_eq!(all.cases.len(), 2 * 2 * 3 * 3);
        assert_eq!(all.cases[1].name(), "datatype-one-try");
        let rules = plan(&["--rules", "--gap", "64"]).unwrap();
        assert_eq!(rules.cases.iter().map(Case::name).collect::<Vec<_>>(), ["datatype", "list", "posix"]);
    }

    #[test]
    fn wrong_options_are_refused_by_name() {
        for (line, part) in [
            (&["--gap", "0"][..], "--gap 0"),
            (&["--rules", "--overlap", "50"], "--overlap 0"),
            (&["--policy", "gpfs"], "gpfs"),
            (&["--stripe-size", "5000"], "5000"),
        ] {
            let message = plan(line).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
