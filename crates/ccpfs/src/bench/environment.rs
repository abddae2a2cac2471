//! Directories and servers of a measurement; all of them go away with it.

use super::plan::{Contender, Plan};
use crate::cluster::servers::{self, Launch, Lifetime};
use crate::failure::{Context, Failure, say};
use crate::sys::{self, Signal};
use ccpfs_config::{BytesPerSecond, ClientConfig, ConfigFile};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Seconds that servers have to come up, and to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that runs go on in.
pub(crate) struct Environment {
    /// First: servers end before their directories go.
    sets: Vec<(String, ServerSet)>,
    /// Configurations, sockets, logs, namespaces.
    run: TempDir,
    /// Data of servers, local files.
    device: TempDir,
    keep: bool,
}

/// The servers of one cluster.
pub(crate) struct ServerSet {
    config_path: PathBuf,
    config: ClientConfig,
    children: Vec<(Child, PathBuf)>,
}

/// What a measurement's servers are like.
#[derive(Clone, Debug)]
pub(crate) struct ServerPlan<'a> {
    pub(crate) policy: &'a str,
    pub(crate) servers: u32,
    pub(crate) shards: u32,
    pub(crate) tcp: bool,
    pub(crate) device_bandwidth: Option<BytesPerSecond>,
    pub(crate) settings: &'a [(String, String)],
}

/// A temporary directory, below `parent` if one is given (which is created).
pub(crate) fn temporary(parent: Option<&Path>) -> Result<TempDir, Failure> {
    let parent = parent.map_or_else(std::env::temp_dir, Path::to_owned);
    let parent = std::path::absolute(&parent).context(|| parent.display().to_string())?;
    let failed = || format!("cannot create a directory in {}", parent.display());
    std::fs::create_dir_all(&parent).context(failed)?;
    tempfile::Builder::new().prefix("ccpfs-bench-").tempdir_in(&parent).context(failed)
}

impl Environment {
    /// Creates the directories and starts one cluster for each lock manager of the plan.
    pub(crate) fn start(plan: &Plan) -> Result<Environment, Failure> {
        let run = temporary(None)?;
        let device = temporary(plan.device_dir.as_deref())?;
        let mut environment = Environment { sets: Vec::new(), run, device, keep: plan.keep };
        for contender in &plan.contenders {
            let Contender::Servers(policy) = contender else { continue };
            let server_plan = ServerPlan {
                policy,
                servers: plan.servers,
                shards: plan.shards,
                tcp: plan.tcp,
                device_bandwidth: plan.device_bandwidth,
                settings: &plan.settings,
            };
            let number = environment.sets.len();
            let folder = environment.run.path().join(number.to_string());
            let data = environment.device.path().join(number.to_string());
            let set = ServerSet::start(&folder, &data, &server_plan)?;
            environment.sets.push((policy.clone(), set));
        }
        Ok(environment)
    }

    /// The cluster with this lock manager.
    pub(crate) fn servers(&mut self, policy: &str) -> &mut ServerSet {
        let set = self.sets.iter_mut().find(|(name, _)| name == policy);
        &mut set.expect("one was started for each policy").1
    }

    /// A new directory for the sockets by which the clients of a run take turns.
    pub(crate) fn turns(&self, run: usize) -> Result<PathBuf, Failure> {
        let path = self.run.path().join(format!("turns-{run}"));
        std::fs::create_dir(&path).context(|| format!("cannot create {}", path.display()))?;
        Ok(path)
    }

    /// Lets the device finish what runs before left to write: their data are gone, but not yet its work.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        let path = self.device.path();
        let synced = File::open(path).and_then(|folder| sys::sync_file_system(&folder));
        synced.context(|| format!("cannot sync {}", path.display()))
    }

    /// Where local files go.
    pub(crate) fn device_path(&self) -> &Path {
        self.device.path()
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        self.sets.clear();
        if self.keep {
            self.run.disable_cleanup(true);
            self.device.disable_cleanup(true);
            let (run, device) = (self.run.path().display(), self.device.path().display());
            say(format!("kept configurations and logs in {run}, data in {device}"));
        }
    }
}

impl ServerSet {
    /// Starts servers whose files are below `folder` and `data`, and waits until they answer.
    pub(crate) fn start(folder: &Path, data: &Path, plan: &ServerPlan<'_>) -> Result<ServerSet, Failure> {
        let namespace = folder.join("ns");
        for path in [folder, data, &namespace] {
            std::fs::create_dir_all(path).context(|| format!("cannot create {}", path.display()))?;
        }
        let mut file = ConfigFile::default();
        file.cluster.namespace = Some(namespace);
        file.cluster.servers = Some(addresses(folder, plan)?);
        file.cluster.shards = Some(plan.shards);
        file.cluster.policy = Some(plan.policy.to_owned());
        file.server.data = Some(data.to_owned());
        file.server.device_bandwidth = plan.device_bandwidth;
        let text = file.to_toml().context(|| "cannot write the configuration".to_owned())?;
        let config_path = folder.join("ccpfs.toml");
        std::fs::write(&config_path, &text).context(|| format!("cannot write {}", config_path.display()))?;
        // With the settings of the command line, so that a wrong one is told here and once.
        let variables: BTreeMap<String, String> = plan.settings.iter().cloned().collect();
        let file = ConfigFile::parse(&text, Some(&config_path), variables)?;
        file.validate()?;
        let config = ClientConfig::from_file(&file)?;
        let mut set = ServerSet { config_path, config, children: Vec::new() };
        set.spawn(folder, plan)?;
        Ok(set)
    }

    fn spawn(&mut self, folder: &Path, plan: &ServerPlan<'_>) -> Result<(), Failure> {
        let indices: Vec<usize> = (0..self.config.servers.len()).collect();
        for index in &indices {
            let log = folder.join(format!("server-{index}.log"));
            let launch = Launch {
                config: self.config_path.clone(),
                index: *index,
                log: log.clone(),
                lifetime: Lifetime::WithParent,
                variables: plan.settings.to_vec(),
            };
            self.children.push((servers::spawn(&launch)?, log));
        }
        let children = &mut self.children;
        servers::wait_until_up(&self.config, &indices, PATIENCE, |index| {
            let (child, log) = &mut children[index];
            servers::check_running(child, index, log)
        })
    }

    /// The configuration file.
    pub(crate) fn config_path(&self) -> &Path {
        &self.config_path
    }

    /// What the configuration says.
    pub(crate) fn config(&self) -> &ClientConfig {
        &self.config
    }

    /// An error if one of the servers has ended.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        let mut children = self.children.iter_mut().enumerate();
        children.try_for_each(|(index, (child, log))| servers::check_running(child, index, log))
    }
}

impl Drop for ServerSet {
    fn drop(&mut self) {
        for (child, _) in &self.children {
            let _ = sys::send_signal(child.id(), Signal::Terminate);
        }
        let deadline = Instant::now() + PATIENCE;
        for (child, _) in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline && !sys::interrupted() {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn addresses(folder: &Path, plan: &ServerPlan<'_>) -> Result<Vec<String>, Failure> {
    if plan.tcp {
        let first = u32::from(servers::free_ports(plan.servers * plan.shards)?);
        let port = |index| first + index * plan.shards;
        return Ok((0..plan.servers).map(|index| format!("tcp://127.0.0.1:{}", port(index))).collect());
    }
    let socket = |index: u32| {
        let path = folder.join(format!("s{index}"));
        servers::check_socket_path(&path)?;
        Ok(format!("unix:{}", path.display()))
    };
    (0..plan.servers).map(socket).collect()
}
