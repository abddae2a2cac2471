//! Where doors are compared: a cluster, its mount, a plain directory, all on one file system; and the processes.

use super::plan::{Door, Plan};
use super::protocol::DoorJob;
use crate::bench::crew::Crew;
use crate::bench::environment::{ServerPlan, ServerSet, temporary};
use crate::cluster::servers::{log_tail, without_own_settings};
use crate::failure::{Context, Failure};
use crate::sys::{self, Signal};
use crate::{bare, exec};
use ccpfs_config::CONFIG_VARIABLE;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a mount may take to flush and end.
const PATIENCE: Duration = Duration::from_secs(30);
/// File name of the C interface.
const LIBRARY: &str = "libccpfs.so";

/// Everything that the measurement goes on in. It ends from top to bottom.
pub(super) struct Stage {
    mount: Option<MountProcess>,
    servers: ServerSet,
    folder: TempDir,
}

struct MountProcess {
    child: Child,
    directory: PathBuf,
}

/// Path of something in the stage.
fn create(path: PathBuf) -> Result<PathBuf, Failure> {
    std::fs::create_dir(&path).context(|| format!("cannot create {}", path.display()))?;
    Ok(path)
}

impl Stage {
    /// Starts the cluster and, if a door needs it, the mount.
    pub(super) fn start(plan: &Plan) -> Result<Stage, Failure> {
        let folder = temporary(plan.device_dir.as_deref())?;
        let server_plan = ServerPlan {
            policy: "seqdlm",
            servers: 1,
            shards: 1,
            tcp: false,
            device_bandwidth: None,
            settings: &plan.settings,
        };
        let servers =
            ServerSet::start(&folder.path().join("run"), &folder.path().join("data"), &server_plan)?;
        let mut stage = Stage { mount: None, servers, folder };
        create(stage.folder.path().join("mount"))?;
        for door in &plan.doors {
            create(stage.namespace_folder(*door))?;
        }
        if plan.doors.iter().any(|door| matches!(door, Door::Mount | Door::Passthrough)) {
            stage.mount(plan)?;
        }
        Ok(stage)
    }

    fn mount(&mut self, plan: &Plan) -> Result<(), Failure> {
        let directory = self.folder.path().join("mount");
        let log = self.folder.path().join("mount.log");
        let output = File::create(&log).context(|| log.display().to_string())?;
        let mut command = this_program()?;
        command.args(["mount", "--foreground", "--announce", "--log-file"]).arg(&log);
        command.arg("--config").arg(self.servers.config_path()).envs(plan.settings.iter().cloned());
        for options in &plan.mount_options {
            command.arg("-o").arg(options);
        }
        command.arg("--").arg(&directory).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(output);
        let mut child = command.spawn().context(|| "cannot start the mount".to_owned())?;
        let output = child.stdout.take().expect("it was asked for");
        let mut said = String::new();
        // An error, as no line at all, means that it has ended or will.
        let _ = BufReader::new(output).read_line(&mut said);
        self.mount = Some(MountProcess { child, directory });
        if said.is_empty() {
            return Err(Failure::new(format!("the mount has ended:\n{}", log_tail(&log))));
        }
        Ok(())
    }

    /// Directory of a door as the processes behind it see it.
    pub(super) fn folder(&self, door: Door) -> PathBuf {
        match door {
            Door::Mount | Door::Passthrough => self.folder.path().join("mount").join(door.name()),
            Door::Capi | Door::Preload | Door::Plain => self.namespace_folder(door),
        }
    }

    /// Directory of a door in the file system that all are on.
    pub(super) fn namespace_folder(&self, door: Door) -> PathBuf {
        match door {
            Door::Plain => self.folder.path().join(door.name()),
            Door::Capi | Door::Preload | Door::Mount | Door::Passthrough => {
                self.servers.config().namespace.join(door.name())
            }
        }
    }

    /// Starts the processes behind a door.
    pub(super) fn crew(&self, plan: &Plan, door: Door) -> Result<Crew, Failure> {
        let config = self.servers.config_path();
        let library = match door {
            Door::Capi => Some((installed(LIBRARY)?, config.to_owned())),
            Door::Preload | Door::Mount | Door::Passthrough | Door::Plain => None,
        };
        let call = |rank: u32| -> Result<(Command, DoorJob), Failure> {
            let mut command = this_program()?;
            if door == Door::Preload {
                // As `ccpfs exec` does it; and this command is not to begin anew without the library.
                command.env("LD_PRELOAD", installed(exec::LIBRARY)?).env(CONFIG_VARIABLE, config);
                command.env(bare::SWITCH_VARIABLE, "off");
            }
            command.args(["bench", "doors-client", "--parent"]).arg(std::process::id().to_string());
            command.envs(plan.settings.iter().cloned());
            let name = format!("{} process {rank}", door.name());
            Ok((command, DoorJob { name, library: library.clone(), spoil: plan.spoil && rank == 0 }))
        };
        let calls = (0..plan.members()).map(call).collect::<Result<Vec<_>, Failure>>()?;
        Crew::launch(calls.into_iter(), Duration::from_secs(plan.step_timeout_s))
    }

    /// Lets the device finish what runs before left to write.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        let path = self.folder.path();
        let synced = File::open(path).and_then(|folder| sys::sync_file_system(&folder));
        synced.context(|| format!("cannot sync {}", path.display()))
    }

    /// An error if a server or the mount has ended.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.servers.check()?;
        let log = self.folder.path().join("mount.log");
        match self.mount.as_mut().map(|mount| mount.child.try_wait()) {
            None | Some(Ok(None)) => Ok(()),
            Some(Ok(Some(status))) => {
                Err(Failure::new(format!("the mount ended ({status}):\n{}", log_tail(&log))))
            }
            Some(Err(error)) => Err(Failure::new(format!("cannot look after the mount: {error}"))),
        }
    }
}

/// This program, without settings that were meant for it.
fn this_program() -> Result<Command, Failure> {
    let binary = std::env::current_exe().context(|| "cannot find this program's file".to_owned())?;
    let mut command = Command::new(binary);
    without_own_settings(&mut command);
    Ok(command)
}

/// A library that is installed with this program.
fn installed(name: &str) -> Result<PathBuf, Failure> {
    let binary = std::env::current_exe().context(|| "cannot find this program's file".to_owned())?;
    let folder = binary.parent().unwrap_or(Path::new("/"));
    let places =
        [folder.join(name), folder.join("../lib").join(name), folder.join("../lib/ccpfs").join(name)];
    let found = places.iter().find(|place| place.exists()).cloned();
    found.ok_or_else(|| Failure::new(format!("{name} was not found in {} or ../lib", folder.display())))
}

/// Whether something is mounted on a directory, or was and is dead.
fn is_mounted(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| std::fs::symlink_metadata(path).map(|found| found.dev()).ok();
    device(directory) != directory.parent().and_then(device)
}

impl Drop for MountProcess {
    fn drop(&mut self) {
        let _ = sys::send_signal(self.child.id(), Signal::Terminate);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if is_mounted(&self.directory) {
            // Else the temporary directory could not be removed.
            let _ = ccpfs_fuse::unmount(&self.directory, ccpfs_fuse::Detach::Lazily);
        }
    }
}
