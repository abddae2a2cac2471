//! Programs that tests run, and which of them are there.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// Whether the long form of tests is wanted: the variable `CCPFS_SEMANTICS_LONG` is set and not empty.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("CCPFS_SEMANTICS_LONG").is_some_and(|value| !value.is_empty())
}

/// The root of the workspace.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A program of `target/tools`, where `scripts/install-tools.sh` puts them, or of `CCPFS_TOOLS_DIR`.
#[must_use]
pub fn tool(name: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("CCPFS_TOOLS_DIR").map_or_else(|| workspace().join("target/tools"), PathBuf::from);
    let path = folder.join("bin").join(name);
    path.exists().then_some(path)
}

/// Whether a program of the system is there; if not, says that `test` is skipped.
#[must_use]
pub fn have(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !found {
        skip(test, &format!("{program} is not installed"));
    }
    found
}

/// Says that a test does not run here, past the capturing of the test runner.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// Runs a command to its end and returns its standard output.
///
/// # Panics
/// When it does not succeed; says what it printed.
#[must_use]
pub fn output_of(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", described(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command to its end.
///
/// # Panics
/// When it cannot be started.
#[must_use]
pub fn finish(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// All that is known about how a program ended.
#[must_use]
pub fn described(output: &Output) -> String {
    let mut text = format!("{}\n", output.status);
    for (name, bytes) in [("output", &output.stdout), ("errors", &output.stderr)] {
        let _ = writeln!(text, "-- {name}\n{}", String::from_utf8_lossy(bytes));
    }
    text
}

/// Sends a signal to a child that has not been waited for. `SIGSTOP` does not stop a process at once: its threads run on until
/// each of them has noticed. This returns when they have.
///
/// # Panics
/// When the child cannot be signalled, or does not stop.
pub(crate) fn signal(child: &Child, number: i32) {
    let process = i32::try_from(child.id()).expect("a process number");
    // SAFETY: the child has not been waited for, so the number is its own.
    let sent = unsafe { libc::kill(process, number) };
    assert_eq!(sent, 0, "process {process} has ended");
    if number == libc::SIGSTOP {
        // SAFETY: all zeros is a valid structure, and there is room for one.
        let stopped = unsafe {
            let mut what: libc::siginfo_t = std::mem::zeroed();
            libc::waitid(libc::P_PID, child.id(), &raw mut what, libc::WSTOPPED)
        };
        assert_eq!(stopped, 0, "process {process} does not stop");
    }
}
