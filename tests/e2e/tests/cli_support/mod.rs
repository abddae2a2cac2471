//! What the tests of the command line share: where the programs are, a directory per test, and looking at processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the programs under test are: `CCPFS_BIN_DIR`, else the release build of this workspace.
pub(crate) fn binary_folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = std::env::var_os("CCPFS_BIN_DIR").map_or_else(|| root.join("target/release"), PathBuf::from);
    // Cargo runs tests in the package's folder; a relative path is meant from the root.
    if folder.is_absolute() { folder } else { root.join(folder) }
}

/// A directory of its own for one test, removed with everything that still runs in it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A new one, with a path short enough for sockets.
    pub(crate) fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ccpfs-cli-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Folder(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of something in it, as text.
    pub(crate) fn text(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// The command, in an environment that says nothing about ccPFS and uses only this directory.
    pub(crate) fn ccpfs(&self, arguments: &[&str]) -> Command {
        let binary = binary_folder().join("ccpfs");
        assert!(binary.exists(), "{} is missing: build it, or set CCPFS_BIN_DIR", binary.display());
        let mut command = Command::new(binary);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CCPFS_"))
        {
            command.env_remove(name);
        }
        command.env("TMPDIR", &self.0).env("HOME", &self.0).env("CCPFS_STATE", self.0.join("s"));
        command.args(arguments);
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        Ended::of(self.ccpfs(arguments).output().expect("the command starts"))
    }

    /// Numbers of the processes whose command lines name this directory.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let name = self.0.display().to_string();
        let processes = std::fs::read_dir("/proc").expect("Linux has /proc").filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            String::from_utf8_lossy(&line).contains(&name).then_some(pid)
        });
        processes.collect()
    }

    /// Waits until as many processes as `wanted` accepts name this directory.
    pub(crate) fn wait_for_processes(&self, wanted: impl Fn(usize) -> bool) -> Vec<u32> {
        loop {
            let found = self.processes();
            if wanted(found.len()) {
                return found;
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, "KILL");
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit status; `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

impl Ended {
    /// What a command that was waited for left.
    pub(crate) fn of(output: Output) -> Ended {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The same, after checking that it succeeded.
    pub(crate) fn ok(self) -> Ended {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// The same, after checking its exit status and that its error names all `parts`.
    pub(crate) fn failed(self, code: i32, parts: &[&str]) -> Ended {
        assert_eq!(self.code, Some(code), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "'{part}' is not in: {self:?}");
        }
        self
    }
}

/// Sends a signal by name to one process; one that has ended is fine.
pub(crate) fn signal(pid: u32, name: &str) {
    let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).output();
}
