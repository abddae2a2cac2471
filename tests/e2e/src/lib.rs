//! Helpers for end-to-end tests: a small cluster of real processes, and programs that run on it.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds after which a program that hangs is ended, so that the test fails instead of hanging, too.
const PROGRAM_TIMEOUT_S: &str = "120";

/// Where the programs under test are: `CCPFS_BIN_DIR`, else the release build of this workspace.
#[must_use]
pub fn binary_folder() -> PathBuf {
    let folder =
        std::env::var_os("CCPFS_BIN_DIR").map_or_else(|| PathBuf::from("target/release"), PathBuf::from);
    // Cargo runs tests in the package's folder; a relative path is meant from the root.
    if folder.is_absolute() { folder } else { workspace().join(folder) }
}

/// The root of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of the build.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let path = binary_folder().join(name);
    assert!(path.exists(), "{} is missing: build it, or set CCPFS_BIN_DIR", path.display());
    path
}

/// What a cluster shall be like.
#[derive(Clone, Debug)]
pub struct Options {
    /// Servers, at least one.
    pub servers: u32,
    /// Stripes of new files.
    pub stripes: u32,
    /// Size of a unit, as the configuration file has it.
    pub stripe_size: &'static str,
    /// Lock manager.
    pub policy: &'static str,
    /// Lines for the section `[client]`.
    pub client: &'static str,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            servers: 1,
            stripes: 1,
            stripe_size: "1MiB",
            policy: "seqdlm",
            client: "connect_timeout_ms = 10000",
        }
    }
}

/// A cluster in a directory of its own, on Unix sockets. It ends, and its directory goes, when this is dropped.
pub struct Cluster {
    folder: PathBuf,
    servers: Vec<Option<Child>>,
}

impl Cluster {
    /// Starts the servers. Clients wait for them by themselves.
    ///
    /// # Panics
    /// When something has not been built or cannot be started.
    #[must_use]
    pub fn start(options: &Options) -> Cluster {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // A short path, because those of sockets are limited.
        let folder = std::env::temp_dir().join(format!("ccpfs-e2e-{}-{number}", std::process::id()));
        for part in ["ns", "out", "data"] {
            std::fs::create_dir_all(folder.join(part)).expect("the temporary directory can be written");
        }
        let mut cluster = Cluster { folder, servers: Vec::new() };
        let addresses: Vec<String> =
            (0..options.servers).map(|n| format!("\"unix:{}\"", cluster.socket(n))).collect();
        let text = format!(
            "[cluster]\nnamespace = \"{}\"\nservers = [{}]\npolicy = \"{}\"\n\n[stripe]\ncount = {}\nsize = \"{}\"\n\n\
             [client]\n{}\n\n[server]\ndata = \"{}\"\n",
            cluster.namespace().display(),
            addresses.join(", "),
            options.policy,
            options.stripes,
            options.stripe_size,
            options.client,
            cluster.folder.join("data").display(),
        );
        std::fs::write(cluster.config(), text).expect("the temporary directory can be written");
        for index in 0..options.servers {
            let server = cluster.spawn_server(index);
            cluster.servers.push(Some(server));
        }
        cluster
    }

    fn socket(&self, index: u32) -> String {
        self.folder.join(format!("s{index}")).display().to_string()
    }

    fn spawn_server(&self, index: u32) -> Child {
        let mut command = Command::new(built("ccpfs"));
        command
            .args(["server", "--config"])
            .arg(self.config())
            .args(["--index", &index.to_string(), "--parent", &std::process::id().to_string()])
            .stdin(Stdio::null());
        forget_variables(&mut command);
        command.spawn().expect("the server can be started")
    }

    /// The namespace directory.
    #[must_use]
    pub fn namespace(&self) -> PathBuf {
        self.folder.join("ns")
    }

    /// A directory beside the namespace, on the same file system, that has nothing to do with ccPFS.
    #[must_use]
    pub fn outside(&self) -> PathBuf {
        self.folder.join("out")
    }

    /// The configuration file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder.join("ccpfs.toml")
    }

    /// Ends a server at once, as a crash does.
    ///
    /// # Panics
    /// When it has been ended before.
    pub fn kill_server(&mut self, index: usize) {
        let mut server = self.servers[index].take().expect("the server runs");
        server.kill().expect("the server is ours");
        server.wait().expect("the server is ours");
    }

    /// Starts a server that was ended.
    pub fn restart_server(&mut self, index: usize) {
        let number = u32::try_from(index).expect("a small number");
        let server = self.spawn_server(number);
        self.servers[index] = Some(server);
    }

    /// A program without ccPFS, in the cluster's directory, with the variables `NS` and `OUT` for the two directories. It
    /// is ended when it hangs.
    #[must_use]
    pub fn plain(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        forget_variables(&mut command);
        command
            .args(["--kill-after=5", PROGRAM_TIMEOUT_S, program])
            .current_dir(&self.folder)
            .env("NS", self.namespace())
            .env("OUT", self.outside())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    /// As [`Cluster::plain`], on ccPFS.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = self.plain(program);
        command.env("CCPFS_CONFIG", self.config()).env("LD_PRELOAD", built("libccpfs_preload.so"));
        command
    }

    /// Runs a shell script on ccPFS; it stops at the first command that fails. Returns what it printed.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn shell(&self, script: &str) -> String {
        output_of(self.command("bash").args(["-euo", "pipefail", "-c", script]))
    }

    /// Runs a shell script without ccPFS.
    ///
    /// # Panics
    /// When it fails.
    #[must_use]
    pub fn plain_shell(&self, script: &str) -> String {
        output_of(self.plain("bash").args(["-euo", "pipefail", "-c", script]))
    }

    /// Compiles a C or C++ program of `programs/` into the directory beside the namespace. Returns where it is.
    ///
    /// # Panics
    /// When it does not compile, or with a warning.
    #[must_use]
    pub fn compile(&self, compiler: &str, source: &Path, flags: &[String]) -> PathBuf {
        let name = source.file_stem().expect("a source file has a name");
        let program = self.outside().join(name);
        let mut command = self.plain(compiler);
        command.args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"]).arg(&program).arg(source).args(flags);
        let _ = output_of(&mut command);
        program
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut server in self.servers.drain(..).flatten() {
            let _ = server.kill();
            let _ = server.wait();
        }
        if std::thread::panicking() {
            eprintln!("the cluster's directory is kept: {}", self.folder.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Takes variables out that would reach a program from the environment of the tests.
fn forget_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CCPFS_") {
            command.env_remove(name);
        }
    }
}

/// A source file of `programs/`.
#[must_use]
pub fn program_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

/// Runs a command to its end and returns its standard output.
///
/// # Panics
/// When it does not succeed; says what it printed.
#[must_use]
pub fn output_of(command: &mut Command) -> String {
    let output = finish(command);
    assert!(output.status.success(), "{command:?}\n{}", describe(&output));
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
pub fn describe(output: &Output) -> String {
    let mut text = format!("{}\n", output.status);
    for (name, bytes) in [("output", &output.stdout), ("errors", &output.stderr)] {
        let _ = writeln!(text, "-- {name}\n{}", String::from_utf8_lossy(bytes));
    }
    text
}
