//! `ccpfs bench`: measurements with servers and client processes of their own.

mod args;
mod collective;
mod coordinator;
mod crew;
mod data;
mod doors;
mod environment;
mod locks;
mod locks_rate;
mod member;
mod overlap;
mod plan;
mod plot;
mod protocol;
mod regions;
mod report;
mod result;
mod s3asim;
mod s3d;
mod speeds;
mod table;
mod target;
mod tile_io;
mod worker;

use crate::failure::Failure;

/// Subcommands of `ccpfs bench`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum BenchCommand {
    /// Compare lock managers with the access patterns of IOR, or with the micro-benchmarks of SeqDLM's paper.
    Ior(Box<args::IorArguments>),
    /// One client process of a measurement.
    #[command(hide = true)]
    IorClient(member::MemberArguments),
    /// Compare the doors: C interface, preload library, mount, and beside them the local file system and a pass-through of it.
    Doors(Box<doors::DoorsArguments>),
    /// One program behind a door.
    #[command(hide = true)]
    DoorsClient(member::MemberArguments),
    /// Measure lock requests per second of one shard, and the cost of a cached lock in a client.
    LocksRate(locks_rate::LocksRateArguments),
    /// Take and release many small strided locks, without data.
    Locks(locks::LocksArguments),
    /// Write overlapping tiles of a picture, each with one atomic call of many pieces.
    TileIo(Box<tile_io::TileIoArguments>),
    /// Write a checkpoint of four arrays, cut into blocks along three axes, with atomic calls.
    S3d(Box<s3d::S3dArguments>),
    /// Write results of a search, pieces without any pattern, with atomic calls.
    S3asim(Box<s3asim::S3asimArguments>),
    /// Write a shared file as the aggregators of collective writes do.
    Collective(Box<collective::CollectiveArguments>),
    /// One process of the four before.
    #[command(hide = true)]
    RegionsClient(member::MemberArguments),
}

/// Runs one of the subcommands.
pub(crate) fn run(command: BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Ior(arguments) => coordinator::run(&arguments),
        BenchCommand::IorClient(arguments) => member::serve::<worker::Worker>(&arguments),
        BenchCommand::Doors(arguments) => doors::run(&arguments),
        BenchCommand::DoorsClient(arguments) => member::serve::<doors::Worker>(&arguments),
        BenchCommand::LocksRate(arguments) => locks_rate::run(&arguments),
        BenchCommand::Locks(arguments) => locks::run(&arguments),
        BenchCommand::TileIo(arguments) => tile_io::run(&arguments),
        BenchCommand::S3d(arguments) => s3d::run(&arguments),
        BenchCommand::S3asim(arguments) => s3asim::run(&arguments),
        BenchCommand::Collective(arguments) => collective::run(&arguments),
        BenchCommand::RegionsClient(arguments) => member::serve::<regions::Worker>(&arguments),
    }
}
