//! `ccpfs bench`: measurements with servers and client processes of their own.

mod args;
mod coordinator;
mod crew;
mod data;
mod doors;
mod environment;
mod locks_rate;
mod overlap;
mod plan;
mod plot;
mod protocol;
mod report;
mod result;
mod table;
mod target;
mod worker;

use crate::failure::Failure;

/// Subcommands of `ccpfs bench`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare lock managers with the access patterns of IOR, or with the micro-benchmarks of SeqDLM's paper.
    Ior(Box<args::IorArguments>),
    /// One client process of a measurement.
    #[command(hide = true)]
    IorClient(worker::WorkerArguments),
    /// Compare the doors: C interface, preload library, mount, and beside them the local file system and a pass-through of it.
    Doors(Box<doors::DoorsArguments>),
    /// One program behind a door.
    #[command(hide = true)]
    DoorsClient(worker::WorkerArguments),
    /// Measure lock requests per second of one shard, and the cost of a cached lock in a client.
    LocksRate(locks_rate::LocksRateArguments),
}

/// Runs one of the subcommands.
pub(crate) fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Ior(arguments) => coordinator::run(&arguments),
        BenchCommand::IorClient(arguments) => worker::run(&arguments),
        BenchCommand::Doors(arguments) => doors::run(&arguments),
        BenchCommand::DoorsClient(arguments) => doors::run_client(&arguments),
        BenchCommand::LocksRate(arguments) => locks_rate::run(&arguments),
    }
}
