//! `ccpfs bench collective`: what the aggregators of collective writes send to a shared file (paper 004).

use super::regions::args::RegionArguments;
use super::regions::pattern::{Operation, Pattern};
use super::regions::way::Way;
use crate::failure::Failure;
use ccpfs_config::{Bytes, format_bytes};
use ccpfs_region::Region;
use ccpfs_types::Extent;
use serde::{Deserialize, Serialize};

/// Options of `ccpfs bench collective`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
When all ranks of an MPI program write together, its library gathers their data at a few aggregators. Aggregator k of n writes
units k, k + n, k + 2n, ... of the file, one unit with each call: no two write the same bytes, but each stripe has several writers by
turns. The modes are those of paper 004, and ours:

  default    ordinary writes: each asks for a lock, which the server lets grow
  group      all share a group lock: nobody is kept apart from anybody; the best that locks can come to
  lockahead  locks of the next 500 units are asked for ahead, exactly these, without waiting for them
  sections   the client notices by itself that the writes are strided and asks for all of them
  own-files  a file for each process

The ranks and their exchange of data are not there: only what reaches the file system.
Paper 004 has 24 stripes and 8 aggregators for each: --processes 192 --stripes 24 --unit 16MiB")]
pub(crate) struct CollectiveArguments {
    /// Aggregators, each a process. A multiple of the stripes lets each have a stripe of its own, or share it with the same others.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    processes: u32,
    /// Bytes of one call; the unit of the stripes is the same if --stripe-size does not say otherwise.
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    unit: Bytes,
    /// Bytes that each aggregator writes, rounded down to whole units.
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    per_process: Bytes,
    #[command(flatten)]
    common: RegionArguments,
}

/// Aggregators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aggregators {
    pub(crate) processes: u32,
    pub(crate) unit_bytes: u64,
    /// Units of each process.
    pub(crate) units: u64,
    /// A file for each process, without gaps, instead of one for all.
    pub(crate) own_files: bool,
}

impl Aggregators {
    pub(crate) fn describe(&self) -> String {
        let Aggregators { processes, unit_bytes, units, .. } = self;
        format!(
            "collective writes: {processes} aggregators by turns, {units} units of {} each",
            format_bytes(*unit_bytes)
        )
    }

    /// The unit number `at` of a process.
    pub(crate) fn unit(&self, rank: u32, at: u64) -> Extent {
        let turn = if self.own_files { at } else { at * u64::from(self.processes) + u64::from(rank) };
        Extent::with_length(turn * self.unit_bytes, self.unit_bytes).expect("checked with the options")
    }

    /// One operation for each unit.
    pub(crate) fn operations(&self, rank: u32) -> Vec<Operation> {
        let operation = |at| Operation { region: Region::from(self.unit(rank, at)), sync: false };
        (0..self.units).map(operation).collect()
    }
}

/// Measures and prints.
pub(crate) fn run(arguments: &CollectiveArguments) -> Result<(), Failure> {
    let (unit, most) = (arguments.unit, arguments.per_process);
    if !(1..=1 << 30).contains(&unit.0) || unit.0 > most.0 || most.0 > 1 << 50 {
        return Err(Failure::usage(format!(
            "--unit {unit} is not allowed: 1 to 1GiB and to --per-process ({most})"
        )));
    }
    let pattern = Pattern::Collective(Aggregators {
        processes: arguments.processes,
        unit_bytes: unit.0,
        units: most.0 / unit.0,
        own_files: false,
    });
    let mut plan = arguments.common.plan(pattern, &Way::collective())?;
    if !arguments.common.says_stripe_size() {
        plan.stripe_bytes = unit.0.max(4096).next_multiple_of(4096);
    }
    super::regions::run(&plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::pattern::tests::fills_the_file_once;

    #[test]
    fn aggregators_fill_the_file_by_turns_and_keep_to_their_stripe() {
        let aggregators = Aggregators { processes: 4, unit_bytes: 100, units: 3, own_files: false };
        assert_eq!(fills_the_file_once(&Pattern::Collective(aggregators)), 1200);
        for rank in 0..4 {
            let stripes: Vec<u64> = (0..3).map(|at| aggregators.unit(rank, at).start() / 100 % 2).collect();
            assert_eq!(stripes, vec![u64::from(rank % 2); 3]);
        }
        let own = Aggregators { own_files: true, ..aggregators };
        assert_eq!(own.operations(3)[2].region.bounds().start(), 200);
    }
}
