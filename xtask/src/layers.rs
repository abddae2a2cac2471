//! `cargo xtask layers`: every crate has a floor, and imports only what its floor may import.
//!
//! The table is the building of ARCHITECTURE.md. Normal and build dependencies follow it strictly. A
//! dev-dependency may also reach a neighbour on the same floor and wing, and any outside crate.

use crate::{source, tree, verdict};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Where a crate stands in the building.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    Words,
    Wire,
    Rules,
    /// Pure as well: the rules of one place put together, as its shell and the simulator run them.
    Machines,
    Ports,
    /// The configuration file, read by both shells.
    Settings,
    Shells,
    Doors,
    /// The command line: starts servers and clients, so it imports both shells.
    Command,
    /// Tests of the whole; they may also start the binaries.
    Tests,
    /// Simulator, model, fuzzers, benches.
    Lab,
    /// This program.
    Xtask,
}

/// A crate by its folder, from the root of the workspace.
const CRATES: [(&str, Floor); 17] = [
    ("crates/types", Floor::Words),
    ("crates/wire", Floor::Wire),
    ("crates/region", Floor::Wire),
    ("crates/dlm", Floor::Rules),
    ("crates/access", Floor::Rules),
    ("crates/writeback", Floor::Rules),
    ("crates/extent-cache", Floor::Rules),
    ("crates/namespace", Floor::Rules),
    ("crates/cached-stripe", Floor::Machines),
    ("crates/shard", Floor::Machines),
    ("crates/transport", Floor::Ports),
    ("crates/device", Floor::Ports),
    ("crates/config", Floor::Settings),
    ("crates/client", Floor::Shells),
    ("crates/server", Floor::Shells),
    ("crates/ccpfs", Floor::Command),
    ("xtask", Floor::Xtask),
];

/// The floor of the crate in a folder.
fn floor_of(folder: &str) -> Option<Floor> {
    let known = CRATES.iter().find(|(name, _)| *name == folder).map(|(_, floor)| *floor);
    known.or_else(|| match folder.split_once('/')?.0 {
        "doors" => Some(Floor::Doors),
        "tests" => Some(Floor::Tests),
        "lab" => Some(Floor::Lab),
        _ => None,
    })
}

/// Whether the crate in folder `from` may import the one in folder `to`.
fn may_import(from: &str, to: &str) -> bool {
    let (Some(floor), Some(target)) = (floor_of(from), floor_of(to)) else { return false };
    let low = matches!(target, Floor::Words | Floor::Wire | Floor::Rules | Floor::Machines);
    let middle = matches!(target, Floor::Ports | Floor::Settings | Floor::Shells);
    match floor {
        Floor::Words => false,
        // Messages say what locks cover.
        Floor::Wire => target == Floor::Words || (from, to) == ("crates/wire", "crates/region"),
        Floor::Rules => matches!(target, Floor::Words | Floor::Wire),
        Floor::Machines => matches!(target, Floor::Words | Floor::Wire | Floor::Rules),
        Floor::Ports => target == Floor::Words,
        Floor::Settings => target == Floor::Words || to == "crates/transport",
        Floor::Shells => {
            low || target == Floor::Settings
                || to == "crates/transport"
                || (from == "crates/server" && to == "crates/device")
        }
        Floor::Doors => target == Floor::Words || to == "crates/client",
        Floor::Command => {
            matches!(target, Floor::Words | Floor::Wire | Floor::Lab) || middle || to == "doors/fuse"
        }
        Floor::Tests => low || middle || to == "tests/support",
        Floor::Lab => low || middle || target == Floor::Lab,
        Floor::Xtask => false,
    }
}

/// Whether a test inside `from` may use `to` although the product may not: a neighbour on the same floor.
fn tests_may_import(from: &str, to: &str) -> bool {
    let (Some(floor), Some(target)) = (floor_of(from), floor_of(to)) else { return false };
    floor == target && matches!(floor, Floor::Rules | Floor::Ports | Floor::Shells)
}

/// Whether a floor is pure: no outside crate, no std, no unsafe.
fn is_pure(floor: Floor) -> bool {
    matches!(floor, Floor::Words | Floor::Wire | Floor::Rules | Floor::Machines)
}

/// One crate of the workspace as `cargo metadata` shows it.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    folder: String,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    /// Folder from the root when it is one of ours.
    folder: Option<String>,
    for_tests: bool,
}

/// Runs the check over the workspace at `root`.
pub(crate) fn run(root: &Path) -> Result<String, String> {
    let output = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo metadata: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value =
        serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata printed no JSON: {e}"))?;
    let packages = parse(&metadata)?;
    let mut breaches: Vec<String> = packages.iter().flat_map(breaches_of).collect();
    for file in tree::text_files(root)? {
        breaches.extend(fence_breaches(&file.path, &file.text));
    }
    let edges: usize = packages.iter().map(|package| package.dependencies.len()).sum();
    verdict(
        "layers",
        &breaches,
        format!("layers: {} crates, {edges} dependencies, all in order", packages.len()),
    )
}

/// Packages and dependencies from the JSON of `cargo metadata`.
fn parse(metadata: &Value) -> Result<Vec<Package>, String> {
    let root = metadata["workspace_root"].as_str().ok_or("cargo metadata names no workspace root")?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    packages.iter().map(|package| parse_package(package, root)).collect()
}

fn parse_package(package: &Value, root: &str) -> Result<Package, String> {
    let name = package["name"].as_str().ok_or("a package has no name")?.to_owned();
    let manifest = package["manifest_path"].as_str().ok_or_else(|| format!("{name} has no manifest"))?;
    let folder = manifest.strip_suffix("/Cargo.toml").and_then(|folder| below(folder, root));
    let folder = folder.ok_or_else(|| format!("{name} lies outside of the workspace"))?;
    let no_dependencies = Vec::new();
    let dependencies = package["dependencies"].as_array().unwrap_or(&no_dependencies);
    let dependencies = dependencies
        .iter()
        .map(|dependency| Dependency {
            name: dependency["name"].as_str().unwrap_or("?").to_owned(),
            folder: dependency["path"].as_str().and_then(|path| below(path, root)),
            for_tests: dependency["kind"].as_str() == Some("dev"),
        })
        .collect();
    Ok(Package { name, folder, dependencies })
}

fn below(path: &str, root: &str) -> Option<String> {
    Some(path.strip_prefix(root)?.strip_prefix('/')?.to_owned())
}

fn breaches_of(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(floor) = floor_of(&package.folder) else {
        return vec![format!(
            "{name} ({}): no floor; add its folder to the table in xtask/src/layers.rs and to ARCHITECTURE.md",
            package.folder
        )];
    };
    let mut breaches = Vec::new();
    for dependency in &package.dependencies {
        let allowed = match &dependency.folder {
            Some(to) => {
                may_import(&package.folder, to)
                    || (dependency.for_tests && tests_may_import(&package.folder, to))
            }
            None => dependency.for_tests || !is_pure(floor),
        };
        if !allowed {
            let rule = reason(floor);
            breaches.push(format!("{name} ({floor:?}) imports {}: {rule}", dependency.name));
        }
    }
    breaches
}

/// The sentence of the building that a forbidden import of this floor breaks.
fn reason(floor: Floor) -> &'static str {
    match floor {
        Floor::Words => "types imports nothing but core and alloc",
        Floor::Wire => "wire imports types only, and no outside crate",
        Floor::Rules => {
            "rules import types and wire only, and no outside crate, so that they run under a checker"
        }
        Floor::Machines => "machines put rules together: they import floors 0 to 2, and no outside crate",
        Floor::Ports => "ports import types only: they carry bytes they do not understand",
        Floor::Settings => "config imports types and transport (for addresses) only",
        Floor::Shells => {
            "a shell imports floors 0 to 2 and its ports; client and server do not see each other"
        }
        Floor::Doors => "a door is a translation: it imports client and types, and no other crate of ours",
        Floor::Command => {
            "the command imports types, wire, ports, config, shells and the mount; rules are the shells' business"
        }
        Floor::Tests => "tests of the whole import no door, lab or xtask; they start the binaries instead",
        Floor::Lab => "the lab imports no door and not xtask",
        Floor::Xtask => "xtask must build when nothing else does: it imports no crate of ours",
    }
}

/// Fences that stand in the source: the attributes of pure crates, and the two halves of the lock manager.
fn fence_breaches(path: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    if let Some(folder) = path.strip_suffix("/src/lib.rs")
        && floor_of(folder).is_some_and(is_pure)
    {
        let code = source::mask(text);
        for attribute in ["#![no_std]", "#![forbid(unsafe_code)]"] {
            if !code.contains(attribute) {
                breaches.push(format!("{path}: {attribute} is missing: it keeps clocks, IO and unsafe out"));
            }
        }
    }
    for (half, other) in [("server", "client"), ("client", "server")] {
        let import = format!("crate::{other}");
        if path.starts_with(&format!("crates/dlm/src/{half}")) && source::mask(text).contains(&import) {
            breaches.push(format!("{path}: uses {import}: the halves of dlm share only ids and messages"));
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, dependencies: &[(&str, Option<&str>, bool)]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, folder, for_tests)| Dependency {
                name: (*name).to_owned(),
                folder: folder.map(str::to_owned),
                for_tests: *for_tests,
            })
            .collect();
        Package { name: "planted".to_owned(), folder: folder.to_owned(), dependencies }
    }

    /// Whether importing one of our crates, or an outside one (`None`), is a breach.
    fn is_breach(from: &str, to: Option<&str>, for_tests: bool) -> bool {
        !breaches_of(&package(from, &[("it", to, for_tests)])).is_empty()
    }

    #[test]
    fn imports_of_the_building_are_allowed() {
        for (from, to) in [
            ("crates/wire", "crates/types"),
            ("crates/dlm", "crates/wire"),
            ("crates/transport", "crates/types"),
            ("crates/client", "crates/writeback"),
            ("crates/server", "crates/device"),
            ("doors/capi", "crates/client"),
            ("crates/config", "crates/transport"),
            ("crates/client", "crates/config"),
            ("crates/ccpfs", "crates/server"),
            ("tests/e2e", "crates/client"),
            ("tests/e2e", "tests/support"),
            ("lab/sim", "crates/server"),
            ("crates/ccpfs", "doors/fuse"),
        ] {
            assert!(!is_breach(from, Some(to), false), "{from} -> {to}");
        }
        assert!(!is_breach("crates/server", None, false) && !is_breach("doors/preload", None, false));
    }

    #[test]
    fn planted_upward_and_sideways_imports_are_breaches() {
        for (from, to) in [
            ("crates/types", "crates/wire"),
            ("crates/dlm", "crates/transport"),
            ("crates/dlm", "crates/extent-cache"),
            ("crates/transport", "crates/wire"),
            ("crates/device", "crates/extent-cache"),
            ("crates/device", "crates/transport"),
            ("crates/client", "crates/device"),
            ("crates/client", "crates/server"),
            ("crates/server", "crates/client"),
            ("doors/capi", "crates/wire"),
            ("doors/preload", "doors/capi"),
            ("crates/ccpfs", "crates/dlm"),
            ("crates/config", "crates/client"),
            ("crates/dlm", "crates/config"),
            ("tests/e2e", "doors/capi"),
            ("tests/e2e", "tests/semantics"),
            ("crates/client", "lab/sim"),
            ("crates/client", "xtask"),
            ("xtask", "crates/types"),
        ] {
            assert!(is_breach(from, Some(to), false), "{from} -> {to}");
        }
    }

    #[test]
    fn pure_crates_import_no_outside_crate_except_in_tests() {
        for folder in ["crates/types", "crates/wire", "crates/dlm", "crates/namespace"] {
            assert!(is_breach(folder, None, false), "{folder}");
            assert!(!is_breach(folder, None, true), "{folder}");
        }
    }

    #[test]
    fn tests_may_use_neighbours_of_their_floor_but_not_the_other_wing() {
        assert!(!is_breach("crates/client", Some("crates/server"), true));
        assert!(!is_breach("crates/dlm", Some("crates/extent-cache"), true));
        assert!(is_breach("crates/transport", Some("crates/wire"), true));
        assert!(is_breach("crates/dlm", Some("crates/client"), true));
        assert!(is_breach("doors/capi", Some("doors/preload"), true));
    }

    #[test]
    fn a_crate_without_a_floor_is_a_breach() {
        let breaches = breaches_of(&package("crates/attic", &[]));
        assert!(breaches[0].contains("no floor"), "{breaches:?}");
    }

    #[test]
    fn metadata_is_parsed_with_folders_and_kinds() {
        let metadata: Value = serde_json::from_str(
            r#"{"workspace_root": "/w", "packages": [{"name": "ccpfs-dlm", "manifest_path": "/w/crates/dlm/Cargo.toml",
                "dependencies": [{"name": "ccpfs-types", "path": "/w/crates/types", "kind": null},
                                 {"name": "proptest", "kind": "dev"}]}]}"#,
        )
        .unwrap();
        let expected =
            package("crates/dlm", &[("ccpfs-types", Some("crates/types"), false), ("proptest", None, true)]);
        let packages = parse(&metadata).unwrap();
        assert_eq!(packages, [Package { name: "ccpfs-dlm".to_owned(), ..expected }]);
        assert_eq!(breaches_of(&packages[0]), Vec::<String>::new());
    }

    #[test]
    fn pure_crates_must_carry_their_fences() {
        let fenced = "//! x\n#![no_std]\n#![forbid(unsafe_code)]\n";
        assert!(fence_breaches("crates/dlm/src/lib.rs", fenced).is_empty());
        assert_eq!(fence_breaches("crates/dlm/src/lib.rs", "//! #![no_std]\n").len(), 2);
        assert!(fence_breaches("crates/client/src/lib.rs", "//! x\n").is_empty());
    }

    #[test]
    fn the_halves_of_the_lock_manager_do_not_see_each_other() {
        let text = "//! x\nuse crate::client::Lock;\n";
        assert_eq!(fence_breaches("crates/dlm/src/server/grant.rs", text).len(), 1);
        assert!(fence_breaches("crates/dlm/src/client/locks.rs", text).is_empty());
        assert!(fence_breaches("crates/dlm/src/server/grant.rs", "//! x\n// crate::client\n").is_empty());
    }
}
