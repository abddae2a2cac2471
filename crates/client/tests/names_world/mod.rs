//! A cluster in one process for tests of names: the directory, the servers, and processes besides.
#![allow(dead_code, reason = "every test file uses a part")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::Layout;
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// One server, and a namespace that everybody may write.
pub(crate) struct World {
    pub(crate) directory: tempfile::TempDir,
    server: Option<RunningServer>,
}

impl World {
    pub(crate) fn start() -> World {
        let mut world = World::without_server();
        world.server = Some(world.serve());
        for entry in std::fs::read_dir(world.directory.path()).unwrap().map(Result::unwrap) {
            if entry.file_name().as_bytes().starts_with(b"socket") {
                std::fs::set_permissions(entry.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
                    .unwrap();
            }
        }
        world
    }

    pub(crate) fn without_server() -> World {
        let directory = tempfile::tempdir().unwrap();
        let namespace = directory.path().join("ns");
        std::fs::create_dir(&namespace).unwrap();
        for path in [directory.path(), &namespace] {
            std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        }
        World { directory, server: None }
    }

    /// A server where clients look for one.
    pub(crate) fn serve(&self) -> RunningServer {
        let address = address_in(self.directory.path());
        let config = ServerConfig::with_defaults(address, &self.directory.path().join("data"));
        ccpfs_server::start(config).unwrap()
    }

    pub(crate) fn stop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
            server.wait().unwrap();
        }
    }

    pub(crate) fn client(&self) -> Client {
        client_in(self.directory.path())
    }

    /// A client that waits long for servers.
    pub(crate) fn patient_client(&self) -> Client {
        let mut config = config_in(self.directory.path());
        (config.connect_timeout_ms, config.server_timeout_ms) = (60_000, 60_000);
        Client::start(config).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("ns").join(name)
    }

    /// Objects that the server keeps.
    pub(crate) fn objects(&self) -> usize {
        fn count(path: &Path) -> usize {
            let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
            let is_object = |entry: &Path| entry.components().any(|part| part.as_os_str() == "objects");
            entries
                .map(|entry| if entry.is_dir() { count(&entry) } else { usize::from(is_object(&entry)) })
                .sum()
        }
        count(&self.directory.path().join("data"))
    }

    /// Runs the test `name` of this file in a process of its own, which finds the world by [`from_parent`].
    pub(crate) fn process(&self, name: &str) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env("CCPFS_NAMES_WORLD", self.directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Process { child, input, output }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The directory of the parent's world, in a process that it has made.
pub(crate) fn from_parent() -> Option<PathBuf> {
    std::env::var_os("CCPFS_NAMES_WORLD").map(PathBuf::from)
}

/// Says something to the parent, and waits for its answer.
pub(crate) fn tell_parent(word: &str) {
    println!("\nsays {word}");
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
}

pub(crate) struct Process {
    pub(crate) child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Waits until the process has said this.
    pub(crate) fn expect(&mut self, word: &str) {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended without saying {word}");
            if line.trim_end() == format!("says {word}") {
                return;
            }
        }
    }

    /// Lets it go on.
    pub(crate) fn go_on(&mut self) {
        self.input.write_all(b"\n").unwrap();
    }

    /// Waits for its good end.
    pub(crate) fn join(mut self) {
        let rest = std::io::read_to_string(&mut self.output).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }
}

fn address_in(directory: &Path) -> Address {
    format!("unix:{}", directory.join("socket").display()).parse().unwrap()
}

pub(crate) fn client_in(directory: &Path) -> Client {
    Client::start(config_in(directory)).unwrap()
}

fn config_in(directory: &Path) -> ClientConfig {
    let mut config = ClientConfig::with_defaults(&directory.join("ns"), vec![address_in(directory)]);
    config.cache_bytes = 16 << 20;
    config.dirty_bytes_max = 8 << 20;
    config.dirty_bytes_min = 2 << 20;
    config.connect_timeout_ms = 200;
    config.layout = Layout::new(2, 64 << 10).unwrap();
    config
}

pub(crate) const RW: OpenOptions = OpenOptions {
    read: true,
    write: true,
    append: false,
    create: false,
    exclusive: false,
    truncate: false,
    mode: 0o644,
    layout: None,
    owner: None,
    no_follow: false,
};

pub(crate) fn create(client: &Client, path: &Path) -> File {
    client.open(path, &OpenOptions { create: true, ..RW }).unwrap()
}

pub(crate) fn open(client: &Client, path: &Path) -> File {
    client.open(path, &RW).unwrap()
}

pub(crate) fn read(file: &File) -> Vec<u8> {
    let mut buffer = vec![0xee; 1 << 20];
    let got = file.read_at(&mut buffer, 0).unwrap();
    buffer.truncate(got);
    buffer
}

pub(crate) fn name(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// The directory that plain paths are relative to.
pub(crate) fn here() -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: not a descriptor, and not -1.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(libc::AT_FDCWD) }
}

/// Runs `body` in a thread that does what concerns files as another user. Not at all if that is not allowed.
pub(crate) fn as_user(user: u32, body: impl FnOnce() + Send) {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: two numbers; the call concerns this thread alone.
            unsafe { libc::syscall(libc::SYS_setfsgid, user) };
            // SAFETY: as above.
            unsafe { libc::syscall(libc::SYS_setfsuid, user) };
            body();
        });
        thread.join().unwrap();
    });
}
