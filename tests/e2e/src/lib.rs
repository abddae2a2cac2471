//! Helpers for end-to-end tests: a small cluster of real processes, and programs that run on it.

pub use ccpfs_test_support::{
    Options, binary_folder, built, described as describe, finish, output_of, signal, workspace,
};
use ccpfs_test_support::{Servers, forget_variables};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Seconds after which a program that hangs is ended, so that the test fails instead of hanging, too.
const PROGRAM_TIMEOUT_S: &str = "120";

/// A cluster in a directory of its own, on Unix sockets. It ends, and its directory goes, when this is dropped.
pub struct Cluster {
    folder: PathBuf,
    servers: Servers,
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
        std::fs::create_dir_all(folder.join("out")).expect("the temporary directory can be written");
        let servers = Servers::start(&folder, options);
        Cluster { folder, servers }
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
        self.servers.kill(index);
    }

    /// Starts a server that was ended.
    pub fn restart_server(&mut self, index: usize) {
        self.servers.restart(index);
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
        if std::thread::panicking() {
            eprintln!("the cluster's directory is kept: {}", self.folder.display());
        } else {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A source file of `programs/`.
#[must_use]
pub fn program_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}
