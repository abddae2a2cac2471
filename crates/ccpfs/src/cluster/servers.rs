//! Starting server processes and waiting until they answer.

use crate::failure::{Context, Failure};
use crate::sys;
use ccpfs_client::Client;
use ccpfs_config::{Bytes, ClientConfig};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server that is started lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Until it is stopped, in a session of its own.
    Background,
    /// At most as long as this process.
    WithParent,
}

/// One server process to start.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// Configuration file of the cluster.
    pub(crate) config: PathBuf,
    /// Which server.
    pub(crate) index: usize,
    /// Where its output goes.
    pub(crate) log: PathBuf,
    /// How long it lives.
    pub(crate) lifetime: Lifetime,
    /// Variables of its environment.
    pub(crate) variables: Vec<(String, String)>,
}

/// Longest path that fits into the address of a Unix socket, with room for the number of a shard.
const SOCKET_PATH_BYTES_MAX: usize = 104;

/// Refuses a socket path that the system would refuse, with what to do about it.
pub(crate) fn check_socket_path(path: &Path) -> Result<(), Failure> {
    if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::usage(format!(
        "{path} is too long for a Unix socket ({SOCKET_PATH_BYTES_MAX} bytes): use a shorter directory, or --tcp"
    )))
}

/// A port of this machine's loopback interface such that it and the `count - 1` after it are free now.
pub(crate) fn free_ports(count: u32) -> Result<u16, Failure> {
    let failed = || "cannot find free TCP ports".to_owned();
    for _ in 0..100 {
        let first = TcpListener::bind(("127.0.0.1", 0)).context(failed)?;
        let port = first.local_addr().context(failed)?.port();
        let last = u32::from(port) + count - 1;
        if u16::try_from(last).is_ok_and(|last| {
            (port..=last).skip(1).all(|next| TcpListener::bind(("127.0.0.1", next)).is_ok())
        }) {
            return Ok(port);
        }
    }
    Err(Failure::new(format!("{}: no {count} in a row", failed())))
}

/// Starts one server.
pub(crate) fn spawn(launch: &Launch) -> Result<Child, Failure> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(&launch.log)
        .context(|| format!("cannot write {}", launch.log.display()))?;
    let second = log.try_clone().context(|| format!("cannot write {}", launch.log.display()))?;
    let binary = std::env::current_exe().context(|| "cannot find this program's file".to_owned())?;
    let mut command = Command::new(binary);
    command.arg("server").arg("--config").arg(&launch.config);
    command.arg("--index").arg(launch.index.to_string());
    match launch.lifetime {
        Lifetime::Background => command.arg("--detach"),
        // Not reached by the terminal's Ctrl-C: the parent stops it in good order.
        Lifetime::WithParent => {
            std::os::unix::process::CommandExt::process_group(&mut command, 0);
            without_own_settings(&mut command);
            command.arg("--parent").arg(std::process::id().to_string())
        }
    };
    command.envs(launch.variables.iter().cloned());
    command.stdin(Stdio::null()).stdout(log).stderr(second);
    command.spawn().context(|| format!("cannot start server {}", launch.index))
}

/// Keeps settings that this process was given from one that it starts: a measurement has its own.
pub(crate) fn without_own_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let sections = ["CCPFS_CLUSTER_", "CCPFS_STRIPE_", "CCPFS_CLIENT_", "CCPFS_SERVER_", "CCPFS_CONFIG"];
        if sections.iter().any(|section| text.starts_with(section)) {
            command.env_remove(&name);
        }
    }
}

/// A client that only asks servers for their status: small, and impatient.
pub(crate) fn prober(config: &ClientConfig) -> Result<Client, Failure> {
    let small = ClientConfig {
        cache_bytes: 4 << 20,
        dirty_bytes_max: 4 << 20,
        dirty_bytes_min: 1 << 20,
        read_ahead_bytes: 0,
        prefault_bytes: 0,
        connect_timeout_ms: 200,
        server_timeout_ms: 2_000,
        ..config.clone()
    };
    Client::start(small).context(|| "cannot start a client".to_owned())
}

/// The targets of server `index`.
pub(crate) fn targets_of(config: &ClientConfig, index: usize) -> std::ops::Range<u32> {
    let index = u32::try_from(index).expect("a list in a file is shorter than 2^32");
    index * config.shards..(index + 1) * config.shards
}

/// Waits until all shards of `servers` answer. `alive` is asked again and again whether waiting makes sense.
pub(crate) fn wait_until_up(
    config: &ClientConfig,
    servers: &[usize],
    patience: Duration,
    mut alive: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let deadline = Instant::now() + patience;
    let client = prober(config)?;
    for server in servers {
        for target in targets_of(config, *server) {
            while let Err(error) = client.status(target) {
                alive(*server)?;
                if sys::interrupted() {
                    return Err(Failure::interrupted());
                }
                if Instant::now() >= deadline {
                    let address = &config.servers[*server];
                    let seconds = patience.as_secs();
                    return Err(Failure::new(format!(
                        "server {server} at {address} does not answer within {seconds} s: {error}"
                    )));
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
    Ok(())
}

/// An error if the server's process has ended: with the last lines that it logged.
pub(crate) fn check_running(child: &mut Child, index: usize, log: &Path) -> Result<(), Failure> {
    match child.try_wait().context(|| format!("cannot look after server {index}"))? {
        None => Ok(()),
        Some(status) => Err(Failure::new(format!("server {index} ended ({status}):\n{}", log_tail(log)))),
    }
}

/// The last lines of a log.
pub(crate) fn log_tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(5)..].join("\n  ");
    if tail.is_empty() { format!("  (nothing in {})", log.display()) } else { format!("  {tail}") }
}

/// A counter for people: sizes with their unit.
pub(crate) fn describe_counter(name: &str, value: u64) -> String {
    let is_size = name.contains("bytes");
    if is_size { format!("{name}={}", readable_bytes(value)) } else { format!("{name}={value}") }
}

/// A size for people, with one digit after the point.
pub(crate) fn readable_bytes(bytes: u64) -> String {
    if bytes < 1 << 10 || bytes.is_multiple_of(1 << 30) {
        return Bytes(bytes).to_string();
    }
    let (unit, shift) = match bytes {
        0..0x10_0000 => ("KiB", 10),
        0x10_0000..0x4000_0000 => ("MiB", 20),
        0x4000_0000..0x100_0000_0000 => ("GiB", 30),
        0x100_0000_0000.. => ("TiB", 40),
    };
    let tenths = (u128::from(bytes) * 10) >> shift;
    format!("{}.{}{unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_paths_that_do_not_fit_are_refused_with_advice() {
        assert!(check_socket_path(Path::new("/tmp/s0.sock")).is_ok());
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        assert!(check_socket_path(&long).unwrap_err().to_string().contains("--tcp"));
    }

    #[test]
    fn free_ports_can_be_bound() {
        let port = free_ports(3).unwrap();
        for next in port..port + 3 {
            TcpListener::bind(("127.0.0.1", next)).unwrap();
        }
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        assert!(log_tail(&path).contains("nothing in"));
        std::fs::write(&path, "1\n2\n3\n4\n5\n6\n").unwrap();
        assert_eq!(log_tail(&path), "  2\n  3\n  4\n  5\n  6");
    }

    #[test]
    fn counters_of_bytes_are_shown_with_units() {
        assert_eq!(describe_counter("locks", 5_000_000), "locks=5000000");
        assert_eq!(describe_counter("written_bytes", 1 << 30), "written_bytes=1GiB");
        assert_eq!(describe_counter("written_bytes", 3 << 19), "written_bytes=1.5MiB");
        assert_eq!(describe_counter("written_bytes", 17), "written_bytes=17");
    }
}
