//! Processes that tests start: how they are run to their end, and stopped.

use std::fmt::Write;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// Takes variables out that would reach a program from the environment of the tests.
pub fn forget_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CCPFS_") {
            command.env_remove(name);
        }
    }
}

/// A command to start, and where to tell how that went.
type Start = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as this process does: `PR_SET_PDEATHSIG`, which servers and mounts set, is about the
/// thread that started them, and a thread of a test may be the first to need one and end before the others.
///
/// # Errors
/// As [`Command::spawn`].
pub fn spawn_for_good(command: Command) -> io::Result<Child> {
    static STARTER: LazyLock<Mutex<mpsc::Sender<Start>>> = LazyLock::new(|| {
        let (sender, receiver) = mpsc::channel::<Start>();
        std::thread::spawn(move || {
            for (mut command, told) in receiver {
                // Nobody waits any longer: then the child is dropped, and ends with this process.
                let _ = told.send(command.spawn());
            }
        });
        Mutex::new(sender)
    });
    let (told, answer) = mpsc::channel();
    STARTER.lock().unwrap_or_else(PoisonError::into_inner).send((command, told)).map_err(io::Error::other)?;
    answer.recv().map_err(io::Error::other)?
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

/// Sends a signal to a process that has not been waited for. `SIGSTOP` does not stop a process at once: its threads run on
/// until each of them has noticed. This returns when they have.
///
/// # Panics
/// When there is no such process, or it does not stop within a minute.
pub fn signal(process: u32, number: i32) {
    let target = i32::try_from(process).expect("a process number");
    // SAFETY: it has no pointers; the process has not been waited for, so the number is its own.
    let sent = unsafe { libc::kill(target, number) };
    assert_eq!(sent, 0, "process {process} has ended");
    if number == libc::SIGSTOP {
        for _ in 0..60_000 {
            if stands_still(process) {
                return;
            }
            // tidy: sleep. Only the parent of a process is told that it has stopped; nothing but speed depends on it.
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("process {process} does not stop");
    }
}

/// Whether each thread of a process has stopped.
fn stands_still(process: u32) -> bool {
    let folder = PathBuf::from(format!("/proc/{process}/task"));
    let threads = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let states =
        threads.map(|thread| std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    // The state follows the name, which is in brackets and may have others in it. A thread that has ended says nothing.
    let mut states = states.filter_map(|text| text.rsplit(") ").next()?.chars().next()).peekable();
    states.peek().is_some() && states.all(|state| matches!(state, 'T' | 'Z' | 'X'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;

    #[test]
    fn a_process_outlives_the_thread_that_asked_for_it_first() {
        let mut command = Command::new("sleep");
        command.arg("1000");
        // SAFETY: prctl is async-signal-safe and has no pointers here.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = std::thread::spawn(|| spawn_for_good(command).unwrap()).join().unwrap();
        // The kernel tells a thread's children of its end before whoever waits for it.
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_was_stopped_stands_still_until_it_is_continued() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        assert!(!stands_still(child.id()));
        signal(child.id(), libc::SIGSTOP);
        assert!(stands_still(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!stands_still(child.id()));
    }
}
