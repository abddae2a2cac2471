//! A mount: the process that serves it, and its end in every case.

use ccpfs_test_support::{signal, spawn_for_good};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A mount is there, or gone, after this time, or something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// A mounted ccPFS. It is unmounted when this is dropped, whatever happens.
pub struct Mount {
    folder: PathBuf,
    child: Option<Child>,
}

impl Mount {
    /// Mounts with `command`, which serves `folder` until the mount's end, and waits until it is there.
    ///
    /// # Panics
    /// When it does not mount.
    #[must_use]
    pub fn start(mut command: Command, folder: &Path) -> Mount {
        std::fs::create_dir_all(folder).expect("the temporary directory can be written");
        // SAFETY: prctl is async-signal-safe and has no pointers here.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                Ok(())
            });
        }
        command.stdin(Stdio::null());
        let said = format!("{command:?}");
        let child = spawn_for_good(command).unwrap_or_else(|e| panic!("{said}: {e}"));
        let mut mount = Mount { folder: folder.to_owned(), child: Some(child) };
        let there = wait_for_mounts(|| {
            let ended = mount.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "{said} has ended: {ended:?}");
            is_mounted(folder)
        });
        assert!(there, "{said} has mounted nothing");
        mount
    }

    /// Where it is mounted.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sends a signal to the process that serves it. After `SIGSTOP` it stands still.
    ///
    /// # Panics
    /// When it has ended before.
    pub fn signal(&self, number: i32) {
        signal(self.child.as_ref().expect("the mount is served").id(), number);
    }

    /// Ends the process at once. The mount point stays, dead.
    ///
    /// # Panics
    /// When it has ended before.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("the mount is served");
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
    }

    /// Asks the process to end as `SIGTERM` does, and waits for it.
    ///
    /// # Panics
    /// When it does not end, or has ended before.
    pub fn terminate(&mut self) -> ExitStatus {
        let child = self.child.take().expect("the mount is served");
        signal(child.id(), libc::SIGTERM);
        wait(child).expect("the mount ends when it is told to")
    }

    /// Unmounts with umount(8) and waits for the process.
    ///
    /// # Panics
    /// When it cannot be unmounted, or the process does not end.
    pub fn unmount(&mut self) -> ExitStatus {
        let status = Command::new("umount").arg(&self.folder).status().expect("umount runs");
        assert!(status.success(), "umount {}: {status}", self.folder.display());
        wait(self.child.take().expect("the mount is served")).expect("the mount ends when it is unmounted")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            // In a failed test an orderly end may hang for the same reason as the test.
            if std::thread::panicking() {
                signal(child.id(), libc::SIGKILL);
            } else {
                signal(child.id(), libc::SIGTERM);
            }
            if let Err(mut child) = wait(child) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        detach(&self.folder);
    }
}

/// Whether something is mounted on `folder`.
fn is_mounted(folder: &Path) -> bool {
    mounts().iter().any(|mounted| mounted == folder)
}

/// All mount points.
fn mounts() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from).collect()
}

/// Takes the mount point away even if it is busy or dead.
fn detach(folder: &Path) {
    while is_mounted(folder) {
        let done = Command::new("umount").arg("-l").arg(folder).stderr(Stdio::null()).status();
        if !done.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// Takes away what tests that were killed left mounted below `folder` under names that begin with `prefix` and the number of a
/// process that is gone.
pub(crate) fn sweep(folder: &Path, prefix: &str) {
    for mounted in mounts() {
        let Ok(rest) = mounted.strip_prefix(folder) else { continue };
        let first = rest.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        let Some(process) = first.strip_prefix(prefix).and_then(|rest| rest.split('-').next()) else {
            continue;
        };
        if !Path::new("/proc").join(process).exists() {
            detach(&mounted);
        }
    }
}

/// Waits until `is_there`, asked again whenever a mount comes or goes, and sometimes in between.
fn wait_for_mounts(mut is_there: impl FnMut() -> bool) -> bool {
    let table = File::open("/proc/self/mounts").expect("proc is mounted");
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if is_there() {
            return true;
        }
        let mut change = libc::pollfd { fd: table.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one structure, as said.
        unsafe { libc::poll(&raw mut change, 1, 200) };
    }
    false
}

/// Waits for the end of a process; gives it back when it does not end.
fn wait(mut child: Child) -> Result<ExitStatus, Child> {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if let Ok(Some(status)) = child.try_wait() {
            return Ok(status);
        }
        // tidy: sleep. The standard library has no wait with a limit; nothing but the limit depends on it.
        std::thread::sleep(Duration::from_millis(2));
    }
    Err(child)
}
