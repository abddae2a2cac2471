//! `cargo xtask canaries [NAME...]`: breaks the rules on purpose, one edit at a time, and sees to it that somebody notices.
//!
//! A canary is a file of lab/canaries: which text of which file is replaced by what, and who must notice: the simulator within so
//! many seeds, the model checker, or a test. No broken code is in the product: the edit is made in a copy of the crates
//! below `target/canaries`. Over the unbroken copy the simulator must find nothing.

mod copy;
mod spec;

use crate::verdict;
use copy::Copy;
use spec::{Canary, Tool};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The package that runs the simulator for the canaries, and its binary.
const EXPLORER: &str = "ccpfs-canary";
/// The package of the model checker, and its binary.
const MODEL: &str = "ccpfs-model";
/// What stands for the name of a canary where nothing is broken.
const UNBROKEN: &str = "(unbroken)";
/// A broken rule may also make a tool run for ever.
const RUN_MAX: Duration = Duration::from_secs(120);
/// Time between two looks at a running tool.
const LOOK: Duration = Duration::from_millis(5);

/// The cargo that runs us.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// A line of the table.
struct Line {
    canary: String,
    tool: Tool,
    found: Result<Found, String>,
    build: Duration,
}

/// What a tool found.
struct Found {
    /// In one line; `None` if it found nothing.
    what: Option<String>,
    run: Duration,
}

/// Runs the canaries of the workspace at `root`: all, or those that are named.
pub(crate) fn run(root: &Path, names: &[&str]) -> Result<String, String> {
    let began = Instant::now();
    let canaries = spec::load(root, names)?;
    let misfits: Vec<String> = canaries.iter().filter_map(|canary| misfit(root, canary)).collect();
    verdict("canaries", &misfits, String::new())?;
    let mut bench = Bench::new(root, &canaries)?;
    let mut lines = Vec::new();
    let mut runs: Vec<JoinHandle<Line>> = Vec::new();
    if let Some(canary) = furthest(&canaries) {
        runs.push(bench.start(UNBROKEN, None, Tool::Explore, canary)?);
    }
    for canary in &canaries {
        for tool in &canary.caught_by {
            runs.push(bench.start(&canary.name, Some(canary), *tool, canary)?);
        }
    }
    for run in runs {
        lines.push(run.join().map_err(|_| "a thread that watched a tool has panicked".to_owned())?);
    }
    let mut breaches = Vec::new();
    println!("{:28} {:8} {:>7} {:>7}  found", "canary", "by", "build", "run");
    for line in &lines {
        let (run, what) = match &line.found {
            Ok(found) => (found.run, found.what.clone().unwrap_or_else(|| "nothing".to_owned())),
            Err(error) => (Duration::ZERO, error.clone()),
        };
        let (build, run) = (line.build.as_secs_f64(), run.as_secs_f64());
        println!("{:28} {:8} {build:5.1} s {run:5.1} s  {what}", line.canary, line.tool.name());
        breaches.extend(breach(line));
    }
    let summary = format!("canaries: all {} caught in {} s", canaries.len(), began.elapsed().as_secs());
    verdict("canaries", &breaches, summary)
}

/// Why a canary cannot be made of the code as it is.
fn misfit(root: &Path, canary: &Canary) -> Option<String> {
    let text = std::fs::read_to_string(root.join(&canary.file));
    text.map_err(|e| format!("{}: {}: {e}", canary.name, canary.file)).and_then(|t| canary.edited(&t)).err()
}

/// What is wrong with a line of the table.
fn breach(line: &Line) -> Option<String> {
    let (canary, tool) = (&line.canary, line.tool.name());
    match (&line.found, canary == UNBROKEN) {
        (Err(error), _) => Some(format!("{canary}: {error}")),
        (Ok(Found { what: Some(what), .. }), true) => {
            Some(format!("{tool} finds something where nothing is broken: {what}"))
        }
        (Ok(Found { what: None, .. }), false) => Some(format!("{canary}: {tool} did not notice it")),
        (Ok(_), _) => None,
    }
}

/// The canary that takes the simulator furthest: so far it must find nothing in rules that are not broken. The other tools
/// run over those on their own.
fn furthest(canaries: &[Canary]) -> Option<&Canary> {
    canaries.iter().filter(|canary| canary.seeds_max > 0).max_by_key(|canary| canary.seeds_max)
}

/// Where canaries are built and run.
struct Bench {
    copy: Copy,
    target: PathBuf,
    runs: usize,
}

impl Bench {
    fn new(root: &Path, canaries: &[Canary]) -> Result<Bench, String> {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let target = target.join("canaries");
        let mut wanted = BTreeSet::new();
        for canary in canaries {
            for tool in &canary.caught_by {
                match tool {
                    Tool::Explore => wanted.insert(EXPLORER),
                    Tool::Model => wanted.insert(MODEL),
                    Tool::Test => match package_of(&canary.test) {
                        Some(package) => wanted.insert(package),
                        None => return Err(format!("{}: its test names no package (-p)", canary.name)),
                    },
                };
            }
        }
        let copy = Copy::of(root, target.join("src"), &wanted)?;
        Ok(Bench { copy, target, runs: 0 })
    }

    /// Builds a tool over broken rules, and lets it run while the next is built.
    fn start(
        &mut self,
        name: &str,
        broken: Option<&Canary>,
        tool: Tool,
        plan: &Canary,
    ) -> Result<JoinHandle<Line>, String> {
        let began = Instant::now();
        self.copy.write(broken)?;
        let built = self.build(tool, plan);
        let build = began.elapsed();
        let name = name.to_owned();
        Ok(std::thread::spawn(move || {
            let found = built.and_then(|(command, log)| watch(command, tool, &log));
            Line { canary: name, tool, found, build }
        }))
    }

    /// Builds a tool. The command to run it, and the file that takes what it says.
    fn build(&mut self, tool: Tool, plan: &Canary) -> Result<(Command, PathBuf), String> {
        let mut cargo = Command::new(cargo());
        cargo.current_dir(&self.copy.folder).env("CARGO_TARGET_DIR", self.target.join("build"));
        match tool {
            Tool::Explore => cargo.args(["build", "--quiet", "-p", EXPLORER, "--bin", EXPLORER]),
            Tool::Model => cargo.args(["build", "--quiet", "-p", MODEL, "--bin", MODEL]),
            Tool::Test => {
                cargo.args(["test", "--quiet", "--no-run", "--message-format=json"]).args(&plan.test)
            }
        };
        let output = cargo
            .args(["--profile", "canary"])
            .stdin(Stdio::null())
            .output()
            .map_err(|e| format!("cargo: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("error")).take(3).collect();
            return Err(format!("it does not build: {}", errors.join("; ")));
        }
        let built = match tool {
            Tool::Explore => self.target.join("build/canary").join(EXPLORER),
            Tool::Model => self.target.join("build/canary").join(MODEL),
            Tool::Test => test_binary(&output.stdout)?,
        };
        // The next build writes over it.
        self.runs += 1;
        let own = self.target.join(format!("run-{}", self.runs));
        std::fs::copy(&built, &own).map_err(|e| format!("{}: {e}", built.display()))?;
        let mut command = Command::new(&own);
        match tool {
            Tool::Explore => command.args(["explore", &plan.seeds_max.to_string()]),
            Tool::Model => command.args(&plan.model),
            Tool::Test => command.arg("--quiet"),
        };
        command.current_dir(&self.copy.folder);
        Ok((command, own.with_extension("log")))
    }
}

/// The package in the arguments of `cargo test`.
fn package_of(arguments: &[String]) -> Option<&str> {
    let at = arguments.iter().position(|argument| argument == "-p")?;
    arguments.get(at + 1).map(String::as_str)
}

/// The executable that `cargo test --no-run` has built.
fn test_binary(messages: &[u8]) -> Result<PathBuf, String> {
    let text = String::from_utf8_lossy(messages);
    let built = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut executables = built.filter_map(|message| Some(PathBuf::from(message["executable"].as_str()?)));
    executables.next_back().ok_or_else(|| "cargo test built no executable".to_owned())
}

/// Runs a tool to its end.
fn watch(mut command: Command, tool: Tool, log: &Path) -> Result<Found, String> {
    let wrong = |e: std::io::Error| format!("{}: {e}", log.display());
    let said = File::create(log).map_err(wrong)?;
    command.stdin(Stdio::null()).stdout(said.try_clone().map_err(wrong)?).stderr(said);
    let began = Instant::now();
    let mut child = command.spawn().map_err(wrong)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(wrong)? {
            break Some(status);
        }
        if began.elapsed() > RUN_MAX {
            child.kill().and_then(|()| child.wait()).map_err(wrong)?;
            break None;
        }
        std::thread::sleep(LOOK);
    };
    let run = began.elapsed();
    let said = std::fs::read_to_string(log).unwrap_or_default();
    match status.map(|status| status.code()) {
        Some(Some(0)) => Ok(Found { what: None, run }),
        Some(Some(1)) => Ok(Found { what: Some(headline(&said)), run }),
        Some(Some(101)) if tool == Tool::Test => Ok(Found { what: Some(headline(&said)), run }),
        Some(code) => Err(format!("{} ended with {code:?}:\n{said}", tool.name())),
        None => Err(format!("{} did not end within {} s", tool.name(), RUN_MAX.as_secs())),
    }
}

/// What a tool said, in one line.
fn headline(said: &str) -> String {
    const TELLING: [&str; 4] = ["caught after", "is broken:", "found after", "panicked at"];
    let mut telling: Vec<&str> =
        said.lines().filter(|line| TELLING.iter().any(|word| line.contains(word))).take(2).collect();
    telling.sort_by_key(|line| !line.contains("found after"));
    let all = if telling.is_empty() { said.trim().to_owned() } else { telling.join("; ") };
    all.lines().next().unwrap_or("something").chars().take(170).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(canary: &str, found: Result<Option<&str>, &str>) -> Line {
        let found = found.map(|what| Found { what: what.map(str::to_owned), run: Duration::ZERO });
        let found = found.map_err(str::to_owned);
        Line { canary: canary.to_owned(), tool: Tool::Explore, found, build: Duration::ZERO }
    }

    #[test]
    fn a_canary_must_be_caught_and_the_unbroken_rules_must_not() {
        assert_eq!(breach(&line("x", Ok(Some("I3")))), None);
        assert_eq!(breach(&line("(unbroken)", Ok(None))), None);
        assert!(breach(&line("x", Ok(None))).unwrap().contains("did not notice"));
        assert!(breach(&line("(unbroken)", Ok(Some("I3")))).unwrap().contains("nothing is broken"));
        assert!(breach(&line("x", Err("it does not build"))).unwrap().contains("build"));
    }

    #[test]
    fn the_telling_line_is_the_headline() {
        assert_eq!(
            headline("\nrunning 1 test\ncaught after 3 seeds: I3\nmore\n"),
            "caught after 3 seeds: I3"
        );
        assert_eq!(headline("thread 'x' panicked at y:\nz"), "thread 'x' panicked at y:");
        assert_eq!(
            headline("head\nx: I5: a read is broken: y\nfound after 7 states:\n1"),
            "found after 7 states:; x: I5: a read is broken: y"
        );
        assert_eq!(headline(""), "something");
    }
}
