//! `ccpfs down`: stops a cluster on this machine.

use super::process::ProcessId;
use super::state::{StateChoice, StateDirectory};
use crate::failure::{Context, Failure, say};
use crate::sys::{self, Signal};
use std::io::{BufRead, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of `ccpfs down`.
#[derive(Debug, clap::Args)]
pub(crate) struct DownArguments {
    #[command(flatten)]
    state: StateChoice,
    /// Seconds that servers have to end by themselves before they are killed.
    #[arg(long, value_name = "S", default_value_t = 30)]
    timeout: u64,
    /// Remove the data, the namespace and the configuration as well.
    #[arg(long)]
    purge: bool,
    /// Do not ask before removing.
    #[arg(long, requires = "purge")]
    yes: bool,
}

/// Stops all servers; removes what the options say.
pub(crate) fn run(arguments: &DownArguments) -> Result<(), Failure> {
    let state = arguments.state.open()?;
    if !state.path().is_dir() {
        say(format!("ccpfs is not up: there is no {}", state.path().display()));
        return Ok(());
    }
    let _lock = state.lock()?;
    let stopped = stop_all(&state, Duration::from_secs(arguments.timeout))?;
    say(match stopped {
        0 => "ccpfs was not up".to_owned(),
        1 => "ccpfs is down: 1 server stopped".to_owned(),
        count => format!("ccpfs is down: {count} servers stopped"),
    });
    if arguments.purge {
        purge(&state, arguments.yes)?;
    }
    Ok(())
}

/// The process files in the state directory, with the number of the server.
fn process_files(state: &StateDirectory) -> Result<Vec<(String, PathBuf)>, Failure> {
    let folder = state.run_path();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::new(format!("{}: {error}", folder.display()))),
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.context(|| format!("cannot read {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("server-").and_then(|rest| rest.strip_suffix(".pid")) {
            files.push((number.to_owned(), entry.path()));
        }
    }
    files.sort();
    Ok(files)
}

/// Stops all servers and removes what says that they run. Answers how many ran.
fn stop_all(state: &StateDirectory, patience: Duration) -> Result<usize, Failure> {
    let mut running = Vec::new();
    for (number, path) in process_files(state)? {
        // A damaged file names no process that could be stopped; the others still can.
        match ProcessId::read(&path) {
            Ok(Some(process)) if process.is_alive() => running.push((number, process)),
            Ok(_) => {}
            Err(damaged) => eprintln!("ccpfs: {damaged}"),
        }
    }
    // All at once: each may have data to write before it ends.
    for (_, process) in &running {
        let _ = sys::send_signal(process.pid, Signal::Terminate);
    }
    for (number, process) in &running {
        if process.stop(patience)? {
            let seconds = patience.as_secs();
            say(format!(
                "server {number} (process {}) did not end in {seconds} s and was killed",
                process.pid
            ));
        }
    }
    remove_folder(&state.run_path())?;
    Ok(running.len())
}

fn remove_folder(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Failure::new(format!("cannot remove {}: {error}", path.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Directories that hold the cluster's files: below the state directory, or created by `ccpfs up`.
fn folders_to_purge(state: &StateDirectory) -> Result<(Vec<PathBuf>, Vec<PathBuf>), Failure> {
    let noted = std::fs::read_to_string(state.created_path()).unwrap_or_default();
    let noted: Vec<&Path> = noted.lines().map(Path::new).collect();
    let config = state.config()?.unwrap_or_default();
    let known = [config.server.data, config.cluster.namespace].into_iter().flatten();
    let (ours, foreign): (Vec<PathBuf>, Vec<PathBuf>) = known
        .filter(|path| path.exists())
        .partition(|path| path.starts_with(state.path()) || noted.contains(&path.as_path()));
    Ok((ours, foreign))
}

/// Removes data, namespace and state, after asking.
fn purge(state: &StateDirectory, yes: bool) -> Result<(), Failure> {
    let (ours, foreign) = folders_to_purge(state)?;
    let list: Vec<String> = ours.iter().map(|path| path.display().to_string()).collect();
    if !yes && !confirm(&format!("Remove everything in {}?", list.join(" and ")))? {
        return Err(Failure::new("nothing was removed"));
    }
    for path in &ours {
        remove_folder(path)?;
        say(format!("removed {}", path.display()));
    }
    for path in &foreign {
        say(format!("left {}: it was there before 'ccpfs up'", path.display()));
    }
    remove_folder(&state.run_path())?;
    remove_folder(&state.path().join("log"))?;
    for path in [state.config_path(), state.created_path(), state.path().join("lock")] {
        let _ = std::fs::remove_file(path);
    }
    // Only if nothing else is in it.
    let _ = std::fs::remove_dir(state.path());
    Ok(())
}

fn confirm(question: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::usage("nobody can be asked here: give --yes to remove the data"));
    }
    eprint!("{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context(|| "cannot read the answer".to_owned())?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A state directory whose cluster has its namespace elsewhere.
    fn state_with_namespace(folder: &Path, noted: bool) -> (StateDirectory, PathBuf) {
        let namespace = folder.join("elsewhere");
        let state = StateDirectory::at(folder.join("state"));
        state.create().unwrap();
        std::fs::create_dir_all(&namespace).unwrap();
        std::fs::create_dir_all(state.data_path()).unwrap();
        let text = format!(
            "[cluster]\nnamespace = '{}'\nservers = ['unix:/s']\n[server]\ndata = '{}'\n",
            namespace.display(),
            state.data_path().display()
        );
        std::fs::write(state.config_path(), text).unwrap();
        if noted {
            std::fs::write(state.created_path(), format!("{}\n", namespace.display())).unwrap();
        }
        (state, namespace)
    }

    #[test]
    fn purging_removes_what_up_created_and_leaves_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let (state, namespace) = state_with_namespace(folder.path(), false);
        purge(&state, true).unwrap();
        assert!(namespace.is_dir() && !state.path().exists());
        let (state, namespace) = state_with_namespace(folder.path(), true);
        purge(&state, true).unwrap();
        assert!(!namespace.exists() && !state.path().exists());
    }

    #[test]
    fn stopping_an_empty_or_dead_cluster_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let (state, _) = state_with_namespace(folder.path(), false);
        std::fs::write(state.process_path(0), "damaged").unwrap();
        assert_eq!(stop_all(&state, Duration::ZERO).unwrap(), 0);
        assert!(!state.run_path().exists());
        assert_eq!(stop_all(&state, Duration::ZERO).unwrap(), 0);
    }
}
