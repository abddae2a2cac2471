//! The tables of docs/interposer.md against the built library and the installed C library.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_e2e::{built, output_of, workspace};
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The functions and variables that a library exports, without versions.
fn exported(library: &Path) -> BTreeSet<String> {
    let listed = output_of(Command::new("nm").args(["-D", "--defined-only"]).arg(library));
    let symbols = listed.lines().filter_map(|line| line.split_whitespace().nth(2));
    symbols
        .filter(|name| !name.contains("@GLIBC_PRIVATE") && !name.contains("@@GLIBC_PRIVATE"))
        .map(|name| name.split('@').next().unwrap_or(name).to_owned())
        .filter(|name| !name.starts_with("GLIBC_"))
        .collect()
}

/// The symbols in the tables of a document, by the title above them.
fn tables(document: &str) -> BTreeMap<String, Vec<String>> {
    let mut tables: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut title = String::new();
    for line in document.lines() {
        if let Some(name) = line.strip_prefix("## ") {
            title = name.to_owned();
        }
        let cells: Vec<&str> = line.split('|').collect();
        if cells.len() == 5 {
            let names = cells[2].split('`').skip(1).step_by(2).map(str::to_owned);
            tables.entry(title.clone()).or_default().extend(names);
        }
    }
    tables
}

fn installed_libc() -> std::path::PathBuf {
    output_of(Command::new("gcc").arg("-print-file-name=libc.so.6")).trim().into()
}

#[test]
fn every_function_of_the_c_library_is_caught_or_said_not_to_be() {
    let document = std::fs::read_to_string(workspace().join("docs/interposer.md")).unwrap();
    let others =
        std::fs::read_to_string(workspace().join("doors/preload/symbols/without-files.txt")).unwrap();
    let tables = tables(&document);
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    for (title, names) in &tables {
        for name in names {
            assert_eq!(known.insert(name, title), None, "{name} stands in the tables twice");
        }
    }
    for name in others.lines().filter(|line| !line.starts_with('#')).flat_map(str::split_whitespace) {
        assert_eq!(known.insert(name, "without files"), None, "{name} is said to reach files and not to");
    }
    let unknown: Vec<String> =
        exported(&installed_libc()).into_iter().filter(|name| !known.contains_key(&**name)).collect();
    assert!(unknown.is_empty(), "new in the C library, and in no table of docs/interposer.md: {unknown:?}");
}

#[test]
fn what_is_said_to_be_caught_is_what_the_library_exports() {
    let document = std::fs::read_to_string(workspace().join("docs/interposer.md")).unwrap();
    let caught: BTreeSet<String> = tables(&document).remove("Caught").unwrap().into_iter().collect();
    let exported = exported(&built("libccpfs_preload.so"));
    let only_said: Vec<_> = caught.difference(&exported).collect();
    let not_said: Vec<_> = exported.difference(&caught).collect();
    assert!(only_said.is_empty() && not_said.is_empty(), "said only: {only_said:?}; not said: {not_said:?}");
}
