//! Which programs are there: the build under test, tools that are crates, programs of the system.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The root of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where the programs under test are: `CCPFS_BIN_DIR`, else the release build of this workspace.
#[must_use]
pub fn binary_folder() -> PathBuf {
    let folder =
        std::env::var_os("CCPFS_BIN_DIR").map_or_else(|| PathBuf::from("target/release"), PathBuf::from);
    // Cargo runs tests in the package's folder; a relative path is meant from the root.
    if folder.is_absolute() { folder } else { workspace().join(folder) }
}

/// A file of the build under test.
///
/// # Panics
/// When it has not been built.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let path = binary_folder().join(name);
    assert!(path.exists(), "{} is missing: build it, or set CCPFS_BIN_DIR", path.display());
    path
}

/// A program of `target/tools`, where `scripts/install-tools.sh` puts them, or of `CCPFS_TOOLS_DIR`.
#[must_use]
pub fn tool(name: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("CCPFS_TOOLS_DIR").map_or_else(|| workspace().join("target/tools"), PathBuf::from);
    let path = folder.join("bin").join(name);
    path.exists().then_some(path)
}

/// Whether a program of the system is there; if not, says that `test` is skipped.
#[must_use]
pub fn have(test: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).exists());
    if !found {
        skip(test, &format!("{program} is not installed"));
    }
    found
}

/// Says that a test does not run here, past the capturing of the test runner.
pub fn skip(test: &str, reason: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
