//! House-keeping commands: `cargo xtask layers | tidy [--bless] | cites | canaries [NAME...]`.
//!
//! Each command prints every breach with the reason for the rule, and exits with status 1 when there is one.

mod canaries;
mod cites;
mod layers;
mod ratchet;
mod source;
mod tidy;
mod tree;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  layers          every crate has a floor and imports only what its floor may import
  tidy            first lines, lengths, bans, links; `--bless` rewrites the list of length exceptions
  cites           for each invariant of docs/protocol.md: where it is asserted and where it is tested
  canaries        breaks the rules on purpose, one edit at a time, and sees to it that somebody notices";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = workspace_root();
    let outcome = match arguments.as_slice() {
        ["layers"] => layers::run(&root),
        ["tidy"] => tidy::run(&root, false),
        ["tidy", "--bless"] => tidy::run(&root, true),
        ["cites"] => cites::run(&root),
        ["canaries", names @ ..] => canaries::run(&root, names),
        _ => Err(USAGE.to_owned()),
    };
    match outcome {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::SUCCESS
        }
        Err(report) => {
            eprintln!("{report}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above `xtask`, known since compile time.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask lies in the workspace").to_path_buf()
}

/// `Ok(summary)` when there is no breach, else the list of breaches under the name of the command.
fn verdict(command: &str, breaches: &[String], summary: String) -> Result<String, String> {
    if breaches.is_empty() {
        return Ok(summary);
    }
    let plural = if breaches.len() == 1 { "breach" } else { "breaches" };
    Err(format!("{}\n{command}: {} {plural}", breaches.join("\n"), breaches.len()))
}
