//! The `ccpfs` command: servers, local clusters, programs on ccPFS, measurements.

mod bare;
mod bench;
mod cli;
mod cluster;
mod exec;
mod failure;
mod fsck;
mod group_lock;
mod ladvise;
mod mount;
mod server;
mod sim;
mod stripe;
mod sys;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};
use failure::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    bare::begin_anew();
    let given: Vec<_> = std::env::args_os().collect();
    let cli = Cli::parse_from(mount::helper_arguments(&given).unwrap_or(given));
    match start_log(&cli).and_then(|()| run(cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("ccpfs: {failure}");
            failure.exit_code()
        }
    }
}

/// Sends logs to standard error: those of `--log`, else of `RUST_LOG`, else warnings.
fn start_log(cli: &Cli) -> Result<(), Failure> {
    use tracing_subscriber::EnvFilter;
    let from_environment = || std::env::var("RUST_LOG").ok().filter(|text| !text.is_empty());
    let text = cli.log.clone().or_else(from_environment).unwrap_or_else(|| "warn".to_owned());
    let filter = EnvFilter::try_new(&text)
        .map_err(|error| Failure::usage(format!("log filter '{text}' is not understood: {error}")))?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    Ok(())
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Server(arguments) => server::run(&arguments),
        Command::Up(arguments) => cluster::up::run(&arguments),
        Command::Down(arguments) => cluster::down::run(&arguments),
        Command::Status(arguments) => cluster::status::run(&arguments),
        Command::Exec(arguments) => exec::run(&arguments),
        Command::Mount(arguments) => mount::run(&arguments),
        Command::Umount(arguments) => mount::run_umount(&arguments),
        Command::Fsck(arguments) => fsck::run(&arguments),
        Command::Stripe(command) => stripe::run(&command),
        Command::Ladvise(arguments) => ladvise::run(&arguments),
        Command::GroupLock(arguments) => group_lock::run(&arguments),
        Command::Bench(command) => bench::run(command),
        Command::Sim(command) => sim::run(&command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "ccpfs", &mut std::io::stdout());
            Ok(())
        }
    }
}
