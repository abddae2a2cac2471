//! A second workspace below `target`, with copies of the crates that are needed and one of them broken.
//!
//! Files are written only when they differ, so that cargo builds again only what an edit touches.

use super::spec::Canary;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How the copies are built: fast to compile, fast enough to run.
const PROFILE: &str = "
[profile.canary]
inherits = \"release\"
opt-level = 1
debug = false
debug-assertions = true
codegen-units = 16
incremental = true
";

/// The second workspace.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) folder: PathBuf,
    /// Path from the root and contents of every file, unbroken.
    files: BTreeMap<String, Vec<u8>>,
}

impl Copy {
    /// Copies these packages and whatever they depend on.
    pub(super) fn of(root: &Path, folder: PathBuf, wanted: &BTreeSet<&str>) -> Result<Copy, String> {
        let members = closure(root, wanted)?;
        let mut files = BTreeMap::new();
        for member in &members {
            collect(root, member, &mut files)?;
        }
        let read = |name: &str| fs::read(root.join(name)).map_err(|e| format!("{name}: {e}"));
        let manifest = String::from_utf8(read("Cargo.toml")?).map_err(|e| format!("Cargo.toml: {e}"))?;
        files.insert("Cargo.toml".to_owned(), workspace_manifest(&manifest, &members)?.into_bytes());
        let copy = Copy { folder, files };
        copy.write(None)?;
        let lock = copy.folder.join("Cargo.lock");
        // Cargo takes out of it what the copies do not need; written again it would seem to have changed.
        if !lock.exists() {
            fs::write(&lock, read("Cargo.lock")?).map_err(|e| format!("{}: {e}", lock.display()))?;
        }
        Ok(copy)
    }

    /// Makes the copies whole again, but for the edit of one canary.
    pub(super) fn write(&self, canary: Option<&Canary>) -> Result<(), String> {
        for (path, contents) in &self.files {
            let broken = match canary.filter(|canary| canary.file == *path) {
                Some(canary) => {
                    let text = std::str::from_utf8(contents).map_err(|e| format!("{path}: {e}"))?;
                    Some(canary.edited(text)?.into_bytes())
                }
                None => None,
            };
            write_if_different(&self.folder.join(path), broken.as_ref().unwrap_or(contents))?;
        }
        match canary {
            Some(canary) if !self.files.contains_key(&canary.file) => {
                Err(format!("{}: {} is in no crate that is built", canary.name, canary.file))
            }
            Some(_) | None => self.remove_strangers(&self.folder, ""),
        }
    }

    /// Removes files that were deleted or renamed since an earlier run.
    fn remove_strangers(&self, folder: &Path, prefix: &str) -> Result<(), String> {
        let wrong = |e: std::io::Error| format!("{}: {e}", folder.display());
        for entry in fs::read_dir(folder).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type().map_err(wrong)?.is_dir() {
                self.remove_strangers(&entry.path(), &format!("{path}/"))?;
            } else if path != "Cargo.lock" && !self.files.contains_key(&path) {
                fs::remove_file(entry.path()).map_err(wrong)?;
            }
        }
        Ok(())
    }
}

fn write_if_different(path: &Path, contents: &[u8]) -> Result<(), String> {
    if fs::read(path).is_ok_and(|before| before == contents) {
        return Ok(());
    }
    let wrong = |e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(path.parent().expect("files are in folders")).map_err(wrong)?;
    fs::write(path, contents).map_err(wrong)
}

/// Every file of a crate.
fn collect(root: &Path, path: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let wrong = |e: std::io::Error| format!("{path}: {e}");
    for entry in fs::read_dir(root.join(path)).map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let inside = format!("{path}/{name}");
        if entry.file_type().map_err(wrong)?.is_dir() {
            if name != "target" {
                collect(root, &inside, files)?;
            }
        } else {
            files.insert(inside, fs::read(entry.path()).map_err(wrong)?);
        }
    }
    Ok(())
}

/// Folders of the wanted packages and of all of ours that they depend on, also in tests.
fn closure(root: &Path, wanted: &BTreeSet<&str>) -> Result<BTreeSet<String>, String> {
    let output = Command::new(super::cargo())
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata printed no JSON: {e}"))?;
    let mut folders = BTreeMap::new();
    let mut needs = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
        let folder = manifest.parent().and_then(|folder| folder.strip_prefix(root).ok());
        let Some(folder) = folder else { continue };
        folders.insert(name, folder.to_string_lossy().into_owned());
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        needs.insert(name, dependencies.filter_map(|d| d["name"].as_str()).collect::<Vec<_>>());
    }
    let mut members = BTreeSet::new();
    let mut open: Vec<&str> = wanted.iter().copied().collect();
    while let Some(name) = open.pop() {
        match folders.get(name) {
            Some(folder) if members.insert(folder.clone()) => open.extend(&needs[name]),
            None if wanted.contains(name) => return Err(format!("the workspace has no package {name}")),
            Some(_) | None => {}
        }
    }
    Ok(members)
}

/// The manifest of the workspace, with these members only and a profile of its own.
fn workspace_manifest(text: &str, members: &BTreeSet<String>) -> Result<String, String> {
    let list: Vec<String> = members.iter().map(|member| format!("\"{member}\"")).collect();
    let mut found = false;
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.starts_with("members = ") {
            found = true;
            lines.push(format!("members = [{}]", list.join(", ")));
        } else {
            lines.push(line.to_owned());
        }
    }
    if found {
        Ok(format!("{}\n{PROFILE}", lines.join("\n")))
    } else {
        Err("Cargo.toml: no line begins with \"members = \"".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_has_its_own_members_and_profile() {
        let members = BTreeSet::from(["crates/a".to_owned(), "lab/b".to_owned()]);
        let text = "[workspace]\nmembers = [\"crates/*\"]\n[profile.release]\ndebug = 1";
        let manifest = workspace_manifest(text, &members).unwrap();
        assert!(manifest.contains("members = [\"crates/a\", \"lab/b\"]\n[profile.release]"));
        assert!(manifest.contains("[profile.canary]"));
        assert!(workspace_manifest("[workspace]", &members).is_err());
    }
}
