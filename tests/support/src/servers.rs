//! Server processes on Unix sockets, and the configuration file that they and their clients read.

use crate::{built, forget_variables, spawn_for_good};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What a cluster shall be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, at least one.
    pub servers: u32,
    /// Stripes of new files.
    pub stripes: u32,
    /// Bytes of a unit, as the configuration file has them.
    pub stripe_size: &'static str,
    /// Lock manager.
    pub policy: &'static str,
    /// Lines for the section `[client]`.
    pub client: &'static str,
    /// Lines for the section `[server]`.
    pub server: &'static str,
}

impl Default for Options {
    /// One server, and files in one piece.
    fn default() -> Options {
        Options {
            servers: 1,
            stripes: 1,
            stripe_size: "1MiB",
            policy: "seqdlm",
            client: "connect_timeout_ms = 10000",
            server: "",
        }
    }
}

/// The servers of a configuration file, one process each. They end when this is dropped; files stay.
pub struct Servers {
    folder: PathBuf,
    processes: Vec<Option<Child>>,
}

impl Servers {
    /// Writes the configuration file of a cluster whose files are all below `folder`: `ns`, the namespace, and `data`, which are
    /// made unless they exist, `ccpfs.toml`, and the sockets `s0`, `s1`, …. `folder` must be short: paths of sockets are limited.
    ///
    /// # Panics
    /// When the directory cannot be written.
    pub fn configure(folder: &Path, options: &Options) {
        for part in ["ns", "data"] {
            std::fs::create_dir_all(folder.join(part)).expect("the temporary directory can be written");
        }
        let sockets =
            (0..options.servers).map(|index| format!("\"unix:{}\"", socket(folder, index).display()));
        let text = format!(
            "[cluster]\nnamespace = \"{}\"\nservers = [{}]\npolicy = \"{}\"\n\n[stripe]\ncount = {}\nsize = \"{}\"\n\n\
             [client]\n{}\n\n[server]\ndata = \"{}\"\n{}\n",
            folder.join("ns").display(),
            sockets.collect::<Vec<_>>().join(", "),
            options.policy,
            options.stripes,
            options.stripe_size,
            options.client,
            folder.join("data").display(),
            options.server,
        );
        std::fs::write(configuration(folder), text).expect("the temporary directory can be written");
    }

    /// Writes the configuration file, as [`Servers::configure`], and starts the servers. Clients wait for them by themselves.
    ///
    /// # Panics
    /// When something has not been built or cannot be started.
    #[must_use]
    pub fn start(folder: &Path, options: &Options) -> Servers {
        Servers::configure(folder, options);
        let processes = (0..options.servers).map(|index| Some(spawn(folder, index))).collect();
        Servers { folder: folder.to_owned(), processes }
    }

    /// Waits until each server listens: clients wait for servers by themselves, but in long steps.
    ///
    /// # Panics
    /// When one does not.
    pub fn wait(&self) {
        for index in 0..self.processes.len() {
            let socket = socket(&self.folder, number(index));
            let listens = (0..30_000).any(|_| {
                let connected = UnixStream::connect(&socket).is_ok();
                if !connected {
                    // tidy: sleep. Nothing tells when a server listens; nothing but speed depends on it.
                    std::thread::sleep(Duration::from_millis(1));
                }
                connected
            });
            assert!(listens, "no server at {}", socket.display());
        }
    }

    /// Ends a server at once, as a crash does.
    ///
    /// # Panics
    /// When it has been ended before.
    pub fn kill(&mut self, index: usize) {
        let mut server = self.processes[index].take().expect("the server runs");
        server.kill().expect("the server is ours");
        server.wait().expect("the server is ours");
    }

    /// Starts a server that was ended.
    pub fn restart(&mut self, index: usize) {
        self.processes[index] = Some(spawn(&self.folder, number(index)));
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for mut server in self.processes.drain(..).flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("a small number")
}

fn configuration(folder: &Path) -> PathBuf {
    folder.join("ccpfs.toml")
}

fn socket(folder: &Path, index: u32) -> PathBuf {
    folder.join(format!("s{index}"))
}

fn spawn(folder: &Path, index: u32) -> Child {
    let mut command = Command::new(built("ccpfs"));
    command
        .args(["server", "--config"])
        .arg(configuration(folder))
        .args(["--index", &index.to_string(), "--parent", &std::process::id().to_string()])
        .stdin(Stdio::null());
    forget_variables(&mut command);
    // Users of all kinds may reach its socket.
    // SAFETY: umask is async-signal-safe.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0);
            Ok(())
        });
    }
    spawn_for_good(command).expect("the server can be started")
}
