//! A cluster with mounts, and programs behind its doors.

use crate::agent::Agent;
use crate::mount::{Mount, sweep};
use crate::power::Power;
use ccpfs_test_support::{Options, Servers, built, forget_variables};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// What the directories of worlds are called, before the number of the process.
const PREFIX: &str = "ccpfs-sem-";
/// Mounts of a world.
const MOUNTS: usize = 2;
/// Seconds after which a program that hangs is ended.
const PROGRAM_TIMEOUT_S: &str = "300";

/// A user who is not root, and a group, that every Debian has: `nobody` and `nogroup`.
const USER: u32 = 65534;

/// How a program reaches files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// A directory of the local file system, without ccPFS.
    Plain,
    /// A mount: 0 or 1.
    Mount(usize),
    /// The preload library.
    Preload,
}

/// What a world shall be like.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Servers, at least one.
    pub servers: u32,
    /// Stripes of new files.
    pub stripes: u32,
    /// Bytes of a unit, as the configuration file has them.
    pub stripe_size: &'static str,
    /// Lines for the section `[client]`.
    pub client: &'static str,
    /// Lines for the section `[server]`.
    pub server: &'static str,
}

impl Default for Settings {
    /// Two servers, and stripes so small that most operations cross them.
    fn default() -> Settings {
        Settings { servers: 2, stripes: 2, stripe_size: "64KiB", client: "cache = \"256MiB\"", server: "" }
    }
}

impl Settings {
    fn options(&self) -> Options {
        let Settings { servers, stripes, stripe_size, client, server } = self.clone();
        Options { servers, stripes, stripe_size, client, server, ..Options::default() }
    }
}

/// Who serves a world.
enum Serving {
    Nobody,
    Processes(Servers),
    Inside(Power),
}

/// A cluster in a directory of its own, on Unix sockets. It ends, and its directory goes, when this is dropped.
pub struct World {
    folder: PathBuf,
    serving: Serving,
    mounts: [Mutex<Option<Mount>>; MOUNTS],
    is_of_user: bool,
}

/// The agent's program: beside the tests that run.
fn agent_program() -> PathBuf {
    let tests = std::env::current_exe().expect("the test has a file");
    let folder = tests.parent().and_then(Path::parent).expect("tests lie in a sub-directory of the build");
    let path = folder.join("ccpfs-agent");
    assert!(path.exists(), "{} is missing", path.display());
    path
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl World {
    /// A world without servers: only the plain directory can be used.
    ///
    /// # Panics
    /// When the temporary directory cannot be written.
    #[must_use]
    pub fn plain() -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        static SWEPT: OnceLock<()> = OnceLock::new();
        SWEPT.get_or_init(|| sweep(&std::env::temp_dir(), PREFIX));
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // A short path, because those of sockets are limited.
        let folder = std::env::temp_dir().join(format!("{PREFIX}{}-{number}", std::process::id()));
        for part in ["ns/work", "out"] {
            std::fs::create_dir_all(folder.join(part)).expect("the temporary directory can be written");
        }
        World { folder, serving: Serving::Nobody, mounts: Default::default(), is_of_user: false }
    }

    /// Starts servers, one process each. Clients wait for them by themselves.
    ///
    /// # Panics
    /// When something has not been built or cannot be started.
    #[must_use]
    pub fn start(settings: &Settings) -> World {
        let mut world = World::plain();
        let servers = Servers::start(&world.folder, &settings.options());
        servers.wait();
        world.serving = Serving::Processes(servers);
        world
    }

    /// Starts servers in this process, on devices that can lose power or be full.
    ///
    /// # Panics
    /// When they cannot be started.
    #[must_use]
    pub fn start_inside(settings: &Settings) -> World {
        let mut world = World::plain();
        Servers::configure(&world.folder, &settings.options());
        world.serving = Serving::Inside(Power::start(&world.config(), settings.servers));
        world
    }

    /// From now on programs run as a user who is not root, and to whom the doors' directories belong; root still mounts. `None`
    /// if the test does not run as root: then programs are of an ordinary user as they are.
    ///
    /// # Panics
    /// When the temporary directory cannot be written.
    #[must_use]
    pub fn of_user(mut self) -> Option<World> {
        for part in ["ns/work", "out"] {
            match std::os::unix::fs::chown(self.folder.join(part), Some(USER), Some(USER)) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => return None,
                changed => changed.expect("the temporary directory can be written"),
            }
        }
        self.is_of_user = true;
        Some(self)
    }

    /// A copy of a program, or library, that all users can reach, wherever it was built.
    ///
    /// # Panics
    /// When it cannot be copied.
    #[must_use]
    pub fn for_everybody(&self, program: &Path) -> PathBuf {
        let folder = self.folder.join("bin");
        std::fs::create_dir_all(&folder).expect("the temporary directory can be written");
        let copy = folder.join(program.file_name().expect("a program has a name"));
        if !copy.exists() {
            std::fs::copy(program, &copy).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
        }
        copy
    }

    /// Ends a server process at once, as a crash does.
    ///
    /// # Panics
    /// When it is not there.
    pub fn kill_server(&mut self, index: usize) {
        self.processes().kill(index);
    }

    /// Starts a server process that was ended.
    ///
    /// # Panics
    /// When servers are no processes.
    pub fn restart_server(&mut self, index: usize) {
        self.processes().restart(index);
    }

    fn processes(&mut self) -> &mut Servers {
        let Serving::Processes(servers) = &mut self.serving else { panic!("the servers are no processes") };
        servers
    }

    /// The power supply of servers in this process.
    ///
    /// # Panics
    /// When the world was not started so.
    pub fn power(&mut self) -> &mut Power {
        let Serving::Inside(power) = &mut self.serving else { panic!("the servers are processes") };
        power
    }

    /// The namespace directory, where stubs are.
    #[must_use]
    pub fn namespace(&self) -> PathBuf {
        self.folder.join("ns")
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.join("ccpfs.toml")
    }

    /// Where a mount is, or will be.
    #[must_use]
    pub fn mount_point(&self, index: usize) -> PathBuf {
        self.folder.join(format!("m{index}"))
    }

    /// Whether the build under test can mount. If not, tests of mounts say that they are skipped.
    #[must_use]
    pub fn can_mount() -> bool {
        static CAN: OnceLock<bool> = OnceLock::new();
        *CAN.get_or_init(|| {
            let output = Command::new(built("ccpfs")).args(["mount", "--help"]).output();
            output.is_ok_and(|output| output.status.success()) && Path::new("/dev/fuse").exists()
        })
    }

    /// Mount 0 or 1, made at its first use. `None` after its end.
    pub fn mount(&self, index: usize) -> MutexGuard<'_, Option<Mount>> {
        let mut mount = locked(&self.mounts[index]);
        if mount.is_none() {
            let folder = self.mount_point(index);
            let mut command = Command::new(built("ccpfs"));
            command.args(["mount", "--foreground", "--config"]).arg(self.config()).arg(&folder);
            forget_variables(&mut command);
            *mount = Some(Mount::start(command, &folder));
        }
        mount
    }

    /// The directory where a door's programs work: one of the namespace, or the plain one.
    #[must_use]
    pub fn root(&self, door: Door) -> PathBuf {
        match door {
            Door::Plain => self.folder.join("out"),
            Door::Preload => self.namespace().join("work"),
            Door::Mount(index) => {
                drop(self.mount(index));
                self.mount_point(index).join("work")
            }
        }
    }

    /// A program that runs behind a door, in the door's directory, with `LC_ALL=C`.
    #[must_use]
    pub fn command(&self, door: Door, program: &Path) -> Command {
        let reachable = |path: PathBuf| if self.is_of_user { self.for_everybody(&path) } else { path };
        // A name without a path is one of the system's programs.
        let of_system = program.components().count() == 1;
        let program = if of_system { program.to_owned() } else { reachable(program.to_owned()) };
        let root = self.root(door);
        let mut command = Command::new(program);
        forget_variables(&mut command);
        if self.is_of_user {
            command.uid(USER).gid(USER).env("HOME", &root).env("TMPDIR", &root);
        }
        command.current_dir(root).env("LC_ALL", "C").stdin(Stdio::null());
        if door == Door::Preload {
            let library = reachable(built("libccpfs_preload.so"));
            command.env("CCPFS_CONFIG", self.config()).env("LD_PRELOAD", library);
        }
        command
    }

    /// A shell script behind a door, in the door's directory; it stops at the first command that fails, and when it hangs.
    #[must_use]
    pub fn script(&self, door: Door, script: &str) -> Command {
        let mut command = self.command(door, Path::new("timeout"));
        command.args(["--kill-after=5", PROGRAM_TIMEOUT_S, "bash", "-euo", "pipefail", "-c", script]);
        command
    }

    /// An agent behind a door.
    #[must_use]
    pub fn agent(&self, door: Door) -> Agent {
        Agent::start(&format!("{door:?}"), self.command(door, &agent_program()))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for mount in &self.mounts {
            drop(locked(mount).take());
        }
        self.serving = Serving::Nobody;
        if std::thread::panicking() {
            eprintln!("the world's directory is kept: {}", self.folder.display());
        } else {
            // Hundreds of files take a while on a busy disk; nobody waits for it.
            let _ = Command::new("rm").arg("-rf").arg(&self.folder).stdin(Stdio::null()).spawn();
        }
    }
}
