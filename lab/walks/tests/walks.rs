//! Every script of `testdata` and of `docs/walks` gives the output that is written in it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};

/// The scripts of a folder below the root of the workspace, by name.
fn scripts(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "txt"));
    paths.sort();
    paths
}

/// The lines around the first difference.
fn difference(expected: &str, found: &str) -> String {
    let (expected, found): (Vec<&str>, Vec<&str>) = (expected.lines().collect(), found.lines().collect());
    let same = expected.iter().zip(&found).take_while(|(a, b)| a == b).count();
    let part = |lines: &[&str], mark: &str| -> String {
        lines.iter().skip(same).take(12).map(|line| format!("{mark} {line}\n")).collect()
    };
    let before: String =
        expected[same.saturating_sub(5)..same].iter().map(|line| format!("  {line}\n")).collect();
    format!("line {}:\n{before}{}{}", same + 1, part(&expected, "-"), part(&found, "+"))
}

/// Runs the scripts of a folder; with `UPDATE=1` in the environment rewrites those that differ.
fn check(folder: &str) {
    let update = std::env::var_os("UPDATE").is_some_and(|value| value == "1");
    let mut failures = String::new();
    let paths = scripts(folder);
    assert!(!paths.is_empty(), "{folder} has no scripts");
    for path in paths {
        let expected = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // A broken invariant of the rules is told with the name of the script.
        let Ok(found) = std::panic::catch_unwind(|| ccpfs_walks::run(&expected)) else {
            failures.push_str(&format!("{folder}/{name}: a rule has panicked, see above\n"));
            continue;
        };
        if found == expected {
            continue;
        }
        if update {
            std::fs::write(&path, found).unwrap();
        } else {
            failures.push_str(&format!("{folder}/{name}, {}\n", difference(&expected, &found)));
        }
    }
    assert!(failures.is_empty(), "walks differ (UPDATE=1 rewrites them):\n{failures}");
}

#[test]
fn golden_conversations_are_as_written() {
    check("lab/walks/testdata");
}

#[test]
fn the_walks_of_the_documentation_are_as_written() {
    check("docs/walks");
}

#[test]
fn no_walk_contains_a_command_that_could_not_be_carried_out() {
    for path in ["lab/walks/testdata", "docs/walks"].into_iter().flat_map(scripts) {
        let text = std::fs::read_to_string(&path).unwrap();
        let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("error in line")).collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
    }
}

#[test]
fn a_wrong_command_is_told_with_its_line() {
    let output = ccpfs_walks::run("cluster clients=1\n\nc1 sing\n----\n");
    assert!(output.ends_with("error in line 3: a client does not know 'sing'\n"), "{output}");
    let output = ccpfs_walks::run("settle\n----\n");
    assert!(output.contains("a walk begins with a cluster"), "{output}");
}

/// The text of a file below the root of the workspace.
fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_race_of_the_protocol_is_told_by_a_script_or_says_where_it_is_tested() {
    let protocol = text("docs/protocol.md");
    let races: Vec<&str> = protocol
        .lines()
        .filter_map(|line| line.strip_prefix("| R")?.split_once(' '))
        .map(|(n, _)| n)
        .collect();
    assert!(races.len() >= 33, "the table of races was found");
    let scripts: Vec<String> = scripts("lab/walks/testdata")
        .iter()
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect();
    let readme = text("lab/walks/README.md");
    let elsewhere: Vec<&str> = readme.lines().filter(|line| line.starts_with("| R")).collect();
    for (at, race) in races.iter().enumerate() {
        assert!(!races[..at].contains(race), "R{race} is there twice");
        let told = scripts.iter().any(|name| name.starts_with(&format!("r{race:0>2}_")));
        let named = elsewhere
            .iter()
            .any(|line| line.starts_with(&format!("| R{race} ")) || line.starts_with(&format!("| R{race},")));
        assert!(
            told != named,
            "R{race} is told by a script or listed in the README, not both: {told} {named}"
        );
    }
}

#[test]
fn tests_that_the_readme_names_exist() {
    let readme = text("lab/walks/README.md");
    for line in readme.lines().filter(|line| line.starts_with("| R")) {
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        let mut file = String::new();
        for name in quoted {
            if name.ends_with(".rs") {
                file = text(name);
            } else if name.contains('_') {
                assert!(file.contains(&format!("fn {name}(")), "{name} is not in the file named before it");
            }
        }
    }
}
