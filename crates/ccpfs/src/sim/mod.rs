//! `ccpfs sim`: a whole cluster in one process, with virtual time: search for errors, and the figures of SeqDLM's paper.

mod explore;
mod figures;

use crate::failure::Failure;
use indicatif::{ProgressBar, ProgressStyle};

/// Subcommands of `ccpfs sim`.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum SimCommand {
    /// Run random small clusters with faults, one per seed, and check every promise.
    ///
    /// Each seed is a plan: clients, servers, files, policy, cache sizes, delays, calls, and faults (lost connections, partitions,
    /// frozen and killed processes, power failures, device errors). The simulated nodes run the product's own rules. A seed
    /// that breaks a promise is printed with the command that runs it again; the exit status is 3.
    Explore(explore::ExploreArguments),
    /// Run one seed again, or a plan from a file, and say what happened.
    Replay(explore::ReplayArguments),
    /// Make the plan of a failing seed as small as it can be and still fail, and print it.
    Shrink(explore::ShrinkArguments),
    /// Simulate one figure of the paper: 4, 17 to 25, table3; or 'scale', which goes beyond it.
    ///
    /// Prints the tables, and the paper's numbers beside ours.
    Figure(figures::FigureArguments),
    /// Simulate all figures into a directory: a page (index.html), and each figure as JSON and SVG.
    Figures(figures::FiguresArguments),
}

/// Runs one of the subcommands.
pub(crate) fn run(command: &SimCommand) -> Result<(), Failure> {
    match command {
        SimCommand::Explore(arguments) => explore::explore(arguments),
        SimCommand::Replay(arguments) => explore::replay(arguments),
        SimCommand::Shrink(arguments) => explore::shrink(arguments),
        SimCommand::Figure(arguments) => figures::figure(arguments),
        SimCommand::Figures(arguments) => figures::figures(arguments),
    }
}

/// Threads to use when nobody says how many: all processors.
fn all_processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A bar on standard error while something long is going on; invisible where it is no terminal.
fn progress(length: u64, what: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed} (about {eta} left)");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style).with_message(what.to_owned())
}
