//! `ccpfs up`: starts a cluster on this machine.

use super::process::ProcessId;
use super::servers::{self, Launch, Lifetime};
use super::state::{StateChoice, StateDirectory};
use crate::failure::{Context, Failure, say};
use crate::sys;
use ccpfs_config::{Bytes, BytesPerSecond, ClientConfig, ConfigFile, ServerConfig};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// Options of `ccpfs up`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpArguments {
    #[command(flatten)]
    state: StateChoice,
    /// Number of servers (default 1).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    servers: Option<u32>,
    /// Shards of each server: threads that serve independently (default 1).
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
    /// Lock manager: seqdlm (default), basic, lustre, with switches like -no-early-grant.
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,
    /// Stripes of new files (default 1).
    #[arg(long, value_name = "N")]
    stripes: Option<u32>,
    /// Bytes in one unit of a stripe (default 1MiB).
    #[arg(long, value_name = "SIZE")]
    stripe_size: Option<Bytes>,
    /// Limit each server's device to this bandwidth, for example 500MiB/s.
    #[arg(long, value_name = "BANDWIDTH")]
    device_bandwidth: Option<BytesPerSecond>,
    /// Directory for the servers' data (default: data in the state directory).
    #[arg(long, value_name = "DIR")]
    device_dir: Option<PathBuf>,
    /// Directory where the files are seen (default: ns in the state directory).
    #[arg(long, value_name = "DIR")]
    namespace: Option<PathBuf>,
    /// Listen on TCP ports of the loopback interface instead of Unix sockets.
    #[arg(long)]
    tcp: bool,
    /// Seconds to wait until all servers answer.
    #[arg(long, value_name = "S", default_value_t = 30)]
    timeout: u64,
}

/// Starts what does not run yet, and waits until all of it answers.
pub(crate) fn run(arguments: &UpArguments) -> Result<(), Failure> {
    let state = arguments.state.open()?;
    state.create()?;
    let _lock = state.lock()?;
    sys::catch_interrupts();
    let before = state.config()?;
    let count = before.as_ref().map_or(0, |file| file.cluster.servers.as_ref().map_or(0, Vec::len));
    let running = running_servers(&state, count)?;
    let any = running.iter().any(Option::is_some);
    let file = match before {
        Some(before) if any => {
            refuse_changes(arguments, &before)?;
            before
        }
        before => prepare(arguments, &state, before)?,
    };
    let config = ClientConfig::from_file(&file)?;
    let missing = missing_servers(&config, &running, any)?;
    if missing.is_empty() {
        say(format!("ccpfs is up already: {}", summary(&config)));
        return Ok(());
    }
    let path = state.config_path();
    start(&state, &config, &path, &missing, Duration::from_secs(arguments.timeout))?;
    say(format!("ccpfs is up: {}", summary(&config)));
    say(format!("configuration: {}", path.display()));
    Ok(())
}

fn summary(config: &ClientConfig) -> String {
    let (servers, shards) = (config.servers.len(), config.shards);
    let plural = if servers == 1 { "" } else { "s" };
    let shards = if shards == 1 { String::new() } else { format!(" of {shards} shards") };
    format!("{servers} server{plural}{shards}, namespace {}", config.namespace.display())
}

/// For each server of the cluster, its process if it runs.
pub(crate) fn running_servers(
    state: &StateDirectory,
    count: usize,
) -> Result<Vec<Option<ProcessId>>, Failure> {
    let process = |index| {
        let id = ProcessId::read(&state.process_path(index))?;
        Ok(id.filter(ProcessId::is_alive))
    };
    (0..count).map(process).collect()
}

/// Servers to start: those that do not run. One that runs and does not answer is ended first.
fn missing_servers(
    config: &ClientConfig,
    running: &[Option<ProcessId>],
    any: bool,
) -> Result<Vec<usize>, Failure> {
    let mut missing = Vec::new();
    for index in 0..config.servers.len() {
        match running.get(index).and_then(Option::as_ref) {
            None => {
                if any {
                    say(format!("server {index} is down: starting it again"));
                }
                missing.push(index);
            }
            Some(process) => {
                let patience = Duration::from_secs(5);
                if let Err(silent) = servers::wait_until_up(config, &[index], patience, |_| Ok(())) {
                    say(format!("{silent}; stopping process {} and starting it again", process.pid));
                    process.stop(Duration::from_secs(5))?;
                    missing.push(index);
                }
            }
        }
    }
    Ok(missing)
}

/// A running cluster is not changed: says what was asked for and what it has.
fn refuse_changes(arguments: &UpArguments, file: &ConfigFile) -> Result<(), Failure> {
    let servers = file.cluster.servers.as_ref().map_or(0, Vec::len);
    let shards = file.cluster.shards.unwrap_or(1);
    let text = |value: &Option<u32>| value.as_ref().map(ToString::to_string);
    let path = |value: &Option<PathBuf>| value.as_ref().map(|path| path.display().to_string());
    let policy = file.cluster.policy.clone().unwrap_or_else(|| "seqdlm".to_owned());
    let bandwidth = file.server.device_bandwidth.map(|value| value.to_string());
    let checks = [
        ("--servers", text(&arguments.servers), Some(servers.to_string())),
        ("--shards", text(&arguments.shards), Some(shards.to_string())),
        ("--policy", arguments.policy.clone(), Some(policy)),
        ("--stripes", text(&arguments.stripes), Some(file.stripe.count.unwrap_or(1).to_string())),
        (
            "--stripe-size",
            arguments.stripe_size.map(|size| size.to_string()),
            Some(file.stripe.size.unwrap_or(Bytes(1 << 20)).to_string()),
        ),
        ("--device-bandwidth", arguments.device_bandwidth.map(|value| value.to_string()), bandwidth),
        ("--device-dir", path(&absolute(arguments.device_dir.as_ref())?), path(&file.server.data)),
        ("--namespace", path(&absolute(arguments.namespace.as_ref())?), path(&file.cluster.namespace)),
    ];
    for (option, asked, has) in checks {
        if let Some(asked) = asked.filter(|asked| Some(asked) != has.as_ref()) {
            let has = has.unwrap_or_else(|| "none".to_owned());
            return Err(Failure::usage(format!(
                "ccpfs is up with {has} for {option}, not {asked}: 'ccpfs down' first"
            )));
        }
    }
    Ok(())
}

fn absolute(path: Option<&PathBuf>) -> Result<Option<PathBuf>, Failure> {
    path.map(|path| std::path::absolute(path).context(|| path.display().to_string())).transpose()
}

/// The configuration of a cluster that is to start: what it had, with what the command line says. Writes it.
fn prepare(
    arguments: &UpArguments,
    state: &StateDirectory,
    before: Option<ConfigFile>,
) -> Result<ConfigFile, Failure> {
    let mut file = before.clone().unwrap_or_default();
    let namespace = absolute(arguments.namespace.as_ref())?;
    let data = absolute(arguments.device_dir.as_ref())?;
    file.cluster.namespace = namespace.or(file.cluster.namespace).or_else(|| Some(state.namespace_path()));
    file.server.data = data.or(file.server.data).or_else(|| Some(state.data_path()));
    file.cluster.shards = arguments.shards.or(file.cluster.shards);
    file.cluster.policy = arguments.policy.clone().or(file.cluster.policy);
    file.stripe.count = arguments.stripes.or(file.stripe.count);
    file.stripe.size = arguments.stripe_size.or(file.stripe.size);
    file.server.device_bandwidth = arguments.device_bandwidth.or(file.server.device_bandwidth);
    let had = file.cluster.servers.take();
    let count = arguments.servers.map(|count| usize::try_from(count).expect("32 bits fit"));
    let count = count.or(had.as_ref().map(Vec::len)).unwrap_or(1);
    file.cluster.servers = match had {
        Some(had) if had.len() == count && !arguments.tcp => Some(had),
        Some(_) | None => Some(addresses(state, count, file.cluster.shards.unwrap_or(1), arguments.tcp)?),
    };
    if let Some(before) = &before {
        refuse_other_targets(before, &file)?;
    }
    ClientConfig::from_file(&file)?;
    ServerConfig::from_file(&file, 0)?;
    for folder in [&file.cluster.namespace, &file.server.data].into_iter().flatten() {
        create_noted(state, folder)?;
    }
    if let Some(namespace) = &file.cluster.namespace {
        ccpfs_client::prepare_namespace(namespace);
    }
    let text = file.to_toml().context(|| "cannot write the configuration".to_owned())?;
    write_whole(&state.config_path(), &text)?;
    Ok(file)
}

/// Data that exist were placed by the number of targets.
fn refuse_other_targets(before: &ConfigFile, after: &ConfigFile) -> Result<(), Failure> {
    let targets = |file: &ConfigFile| {
        let servers = file.cluster.servers.as_ref().map_or(0, Vec::len);
        (servers, file.cluster.shards.unwrap_or(1))
    };
    let data = before.server.data.as_deref().unwrap_or(Path::new(""));
    let is_used = std::fs::read_dir(data).is_ok_and(|mut entries| entries.next().is_some());
    let ((servers, shards), new) = (targets(before), targets(after));
    if !is_used || before.server.data != after.server.data || (servers, shards) == new {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "the data in {} belong to {servers} servers of {shards} shards: start as many, or remove the data by 'ccpfs down --purge'",
        data.display()
    )))
}

fn addresses(state: &StateDirectory, count: usize, shards: u32, tcp: bool) -> Result<Vec<String>, Failure> {
    if tcp {
        let total = u32::try_from(count).expect("clap limits it") * shards;
        let first = u32::from(servers::free_ports(total)?);
        return Ok((0..total)
            .step_by(usize::try_from(shards).expect("32 bits fit"))
            .map(|offset| format!("tcp://127.0.0.1:{}", first + offset))
            .collect());
    }
    (0..count)
        .map(|index| {
            let path = state.socket_path(index);
            servers::check_socket_path(&path)?;
            Ok(format!("unix:{}", path.display()))
        })
        .collect()
}

/// Creates a directory; one outside of the state directory is noted as ours.
fn create_noted(state: &StateDirectory, folder: &Path) -> Result<(), Failure> {
    let failed = || format!("cannot create {}", folder.display());
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder).context(failed)?;
    if !folder.starts_with(state.path()) {
        let path = state.created_path();
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        write_whole(&path, &format!("{before}{}\n", folder.display()))?;
    }
    Ok(())
}

/// Writes a file so that others see the old contents or the new.
fn write_whole(path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("new");
    std::fs::write(&new, text)
        .and_then(|()| std::fs::rename(&new, path))
        .context(|| format!("cannot write {}", path.display()))
}

/// Starts servers and waits for them; on failure those just started are stopped again.
fn start(
    state: &StateDirectory,
    config: &ClientConfig,
    path: &Path,
    missing: &[usize],
    patience: Duration,
) -> Result<(), Failure> {
    let mut children: Vec<(usize, Child)> = Vec::new();
    let started = (|| {
        for index in missing {
            let log = state.log_path(*index);
            let launch = Launch {
                config: path.to_owned(),
                index: *index,
                log,
                lifetime: Lifetime::Background,
                variables: Vec::new(),
            };
            let child = servers::spawn(&launch)?;
            if let Some(id) = ProcessId::running(child.id()) {
                id.write(&state.process_path(*index))?;
            }
            children.push((*index, child));
        }
        servers::wait_until_up(config, missing, patience, |index| {
            match children.iter_mut().find(|(number, _)| *number == index) {
                Some((_, child)) => servers::check_running(child, index, &state.log_path(index)),
                None => Ok(()),
            }
        })?;
        // One that could not listen may have found another server answering at its address.
        children
            .iter_mut()
            .try_for_each(|(index, child)| servers::check_running(child, *index, &state.log_path(*index)))
    })();
    if started.is_err() {
        for (index, mut child) in children {
            let _ = child.kill();
            let _ = child.wait();
            let _ = std::fs::remove_file(state.process_path(index));
        }
    }
    started
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        up: UpArguments,
    }

    fn arguments(state: &Path, more: &[&str]) -> UpArguments {
        let state = state.display().to_string();
        Line::parse_from(["up", "--state", &state].into_iter().chain(more.iter().copied())).up
    }

    #[test]
    fn a_new_cluster_lives_below_its_state_directory() {
        let folder = tempfile::tempdir().unwrap();
        let arguments = arguments(folder.path(), &["--servers", "2", "--shards", "2", "--stripes", "4"]);
        let state = arguments.state.open().unwrap();
        state.create().unwrap();
        let file = prepare(&arguments, &state, None).unwrap();
        let config = ClientConfig::from_file(&file).unwrap();
        assert_eq!((config.targets().len(), config.layout.stripe_count()), (4, 4));
        assert!(config.namespace.is_dir() && config.namespace.starts_with(folder.path()));
        assert_eq!(state.config().unwrap().unwrap().cluster, file.cluster);
        assert!(!state.created_path().exists(), "nothing was created elsewhere");
    }

    #[test]
    fn the_number_of_targets_stays_once_there_are_data() {
        let folder = tempfile::tempdir().unwrap();
        let first = arguments(folder.path(), &["--servers", "2"]);
        let state = first.state.open().unwrap();
        state.create().unwrap();
        let file = prepare(&first, &state, None).unwrap();
        let other = arguments(folder.path(), &["--servers", "3"]);
        prepare(&other, &state, Some(file.clone())).unwrap();
        std::fs::create_dir(state.data_path().join("server-0")).unwrap();
        let refused = prepare(&other, &state, Some(file.clone())).unwrap_err().to_string();
        assert!(refused.contains("2 servers of 1 shards") && refused.contains("--purge"), "{refused}");
        let same = arguments(folder.path(), &["--policy", "basic"]);
        assert_eq!(prepare(&same, &state, Some(file)).unwrap().cluster.policy.as_deref(), Some("basic"));
    }

    #[test]
    fn a_running_cluster_is_not_changed() {
        let folder = tempfile::tempdir().unwrap();
        let first = arguments(folder.path(), &["--servers", "2", "--policy", "lustre"]);
        let state = first.state.open().unwrap();
        state.create().unwrap();
        let file = prepare(&first, &state, None).unwrap();
        refuse_changes(&first, &file).unwrap();
        refuse_changes(&arguments(folder.path(), &[]), &file).unwrap();
        let other = refuse_changes(&arguments(folder.path(), &["--servers", "3"]), &file);
        let message = other.unwrap_err().to_string();
        assert!(message.contains("2 for --servers") && message.contains("ccpfs down"), "{message}");
    }

    #[test]
    fn tcp_servers_get_ports_for_all_shards() {
        let state = StateDirectory::at(PathBuf::from("/state"));
        let list = addresses(&state, 2, 3, true).unwrap();
        let ports: Vec<u16> = list.iter().map(|a| a.rsplit(':').next().unwrap().parse().unwrap()).collect();
        assert_eq!(ports[1], ports[0] + 3);
    }
}
