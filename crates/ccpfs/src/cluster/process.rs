//! Which process a server is: a number alone is not enough, since the system uses numbers again.

use crate::failure::{Context, Failure};
use crate::sys::{Signal, send_signal};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

/// One process, for good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    /// Its number.
    pub(crate) pid: u32,
    /// When it started, in ticks since the machine did.
    start_ticks: u64,
    /// Which start of the machine.
    boot: String,
}

/// State letter and start of a process; `None` when there is none.
fn stat_of(pid: u32) -> Option<(char, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// Field 3 (state) and 22 (start) of `/proc/<pid>/stat`. The name before them may hold anything, parentheses too.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

fn boot_name() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

impl ProcessId {
    /// The process with this number, if it runs now.
    pub(crate) fn running(pid: u32) -> Option<ProcessId> {
        let (_, start_ticks) = stat_of(pid)?;
        Some(ProcessId { pid, start_ticks, boot: boot_name() })
    }

    /// Reads a process file; `None` when there is none.
    pub(crate) fn read(path: &Path) -> Result<Option<ProcessId>, Failure> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let id = serde_json::from_str(&text);
                id.map(Some).context(|| format!("{} is damaged; remove it", path.display()))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Failure::new(format!("{}: {error}", path.display()))),
        }
    }

    /// Writes a process file.
    pub(crate) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string(self).expect("numbers and text");
        std::fs::write(path, text).context(|| format!("cannot write {}", path.display()))
    }

    /// Whether this very process runs. One that ended and was not collected does not.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot == boot_name()
            && stat_of(self.pid)
                .is_some_and(|(state, start)| start == self.start_ticks && !matches!(state, 'Z' | 'X'))
    }

    /// Asks it to end, waits, and ends it by force when `patience` is over. Tells whether force was needed.
    pub(crate) fn stop(&self, patience: Duration) -> Result<bool, Failure> {
        let failed = || format!("cannot stop process {}", self.pid);
        if !self.is_alive() {
            return Ok(false);
        }
        match send_signal(self.pid, Signal::Terminate) {
            Err(_) if !self.is_alive() => return Ok(false),
            sent => sent.context(failed)?,
        }
        if self.ends_within(patience) {
            return Ok(false);
        }
        match send_signal(self.pid, Signal::Kill) {
            Err(_) if !self.is_alive() => return Ok(true),
            sent => sent.context(failed)?,
        }
        if self.ends_within(Duration::from_secs(10)) {
            Ok(true)
        } else {
            Err(Failure::new(format!("process {} does not end, not even by force", self.pid)))
        }
    }

    /// Waits for its end. The process may be nobody's child any more, so there is only looking.
    fn ends_within(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn this_process_is_alive_and_one_with_another_start_is_not() {
        let own = ProcessId::running(std::process::id()).unwrap();
        assert!(own.is_alive());
        assert!(!ProcessId { start_ticks: own.start_ticks + 1, ..own.clone() }.is_alive());
        assert!(!ProcessId { boot: "another".to_owned(), ..own }.is_alive());
    }

    #[test]
    fn process_files_are_read_as_written_and_damage_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        assert_eq!(ProcessId::read(&path).unwrap(), None);
        let own = ProcessId::running(std::process::id()).unwrap();
        own.write(&path).unwrap();
        assert_eq!(ProcessId::read(&path).unwrap(), Some(own));
        std::fs::write(&path, "17").unwrap();
        assert!(ProcessId::read(&path).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn a_stopped_process_is_gone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let id = ProcessId::running(child.id()).unwrap();
        assert!(!id.stop(Duration::from_secs(60)).unwrap(), "cat ends when asked");
        assert!(!id.is_alive() && !id.stop(Duration::ZERO).unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn names_with_parentheses_do_not_confuse_the_fields() {
        let line = "7 (a) R (b)) S 1 1 1 0 -1 1 1 0 0 0 1 1 0 0 20 0 1 0 4242 5 6";
        assert_eq!(parse_stat(line), Some(('S', 4242)));
        assert_eq!(parse_stat(""), None);
    }
}
