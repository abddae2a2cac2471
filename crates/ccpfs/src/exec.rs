//! `ccpfs exec`: an unmodified program on ccPFS.

use crate::bare::SWITCH_VARIABLE;
use crate::cluster::ClusterChoice;
use crate::failure::{Failure, Kind};
use ccpfs_config::{CONFIG_VARIABLE, ClientConfig};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

/// File name of the preload library.
pub(crate) const LIBRARY: &str = "libccpfs_preload.so";
/// Environment variable that names the preload library.
const LIBRARY_VARIABLE: &str = "CCPFS_PRELOAD_LIB";

/// Options of `ccpfs exec`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    cluster: ClusterChoice,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Places where the library may be, best first.
fn candidates(binary: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = binary.and_then(Path::parent) else { return Vec::new() };
    let mut places = vec![folder.join(LIBRARY)];
    if let Some(prefix) = folder.parent() {
        places.push(prefix.join("lib").join(LIBRARY));
        places.push(prefix.join("lib").join("ccpfs").join(LIBRARY));
    }
    places
}

/// The preload library: the one that the environment names, else the one installed with this program.
fn library() -> Result<PathBuf, Failure> {
    if let Some(path) = std::env::var_os(LIBRARY_VARIABLE).filter(|path| !path.is_empty()) {
        let path = PathBuf::from(path);
        return std::fs::canonicalize(&path).map_err(|error| {
            Failure::new(format!(
                "{LIBRARY_VARIABLE} names {}, which cannot be used: {error}",
                path.display()
            ))
        });
    }
    let binary = std::env::current_exe().ok();
    let places = candidates(binary.as_deref());
    places.iter().find_map(|place| std::fs::canonicalize(place).ok()).ok_or_else(|| {
        let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let looked = looked.join(", ");
        Failure::new(format!(
            "{LIBRARY} was not found; looked for {looked}. Set {LIBRARY_VARIABLE} to its path"
        ))
    })
}

/// The list of libraries to load: ours before those that are there.
fn preload_list(library: &Path, before: Option<OsString>) -> OsString {
    let mut list = OsString::from(library);
    if let Some(before) = before.filter(|list| !list.is_empty()) {
        if before.to_string_lossy().split([':', ' ']).any(|entry| OsStr::new(entry) == list) {
            return before;
        }
        list.push(":");
        list.push(before);
    }
    list
}

/// Becomes the program. Returns only when that fails.
pub(crate) fn run(arguments: &ExecArguments) -> Result<(), Failure> {
    let config = arguments.cluster.config_path()?;
    // A broken configuration is told here, once, and not by each process of the program.
    ClientConfig::load(Some(&config))?;
    let library = library()?;
    // The loader splits the list at these, and knows no escape.
    if library.to_string_lossy().contains([':', ' ']) {
        let path = library.display();
        return Err(Failure::new(format!(
            "the loader cannot preload {path}: its path has a space or a colon"
        )));
    }
    let (program, rest) = arguments.command.split_first().expect("clap requires one");
    let error = std::process::Command::new(program)
        .args(rest)
        .env("LD_PRELOAD", preload_list(&library, std::env::var_os("LD_PRELOAD")))
        .env(CONFIG_VARIABLE, &config)
        .env_remove(SWITCH_VARIABLE)
        .exec();
    let kind = if error.kind() == ErrorKind::NotFound { Kind::NotFound } else { Kind::NotExecutable };
    Err(Failure::of(kind, format!("{}: {error}", program.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_looked_for_beside_the_binary_and_in_lib() {
        let places = candidates(Some(Path::new("/opt/ccpfs/bin/ccpfs")));
        let expected = ["bin", "lib", "lib/ccpfs"].map(|f| Path::new("/opt/ccpfs").join(f).join(LIBRARY));
        assert_eq!(places, expected);
    }

    #[test]
    fn other_preloaded_libraries_stay_and_ours_is_not_listed_twice() {
        let ours = Path::new("/lib/ours.so");
        assert_eq!(preload_list(ours, None), "/lib/ours.so");
        assert_eq!(preload_list(ours, Some("/a.so".into())), "/lib/ours.so:/a.so");
        assert_eq!(preload_list(ours, Some("/a.so:/lib/ours.so".into())), "/a.so:/lib/ours.so");
    }
}
