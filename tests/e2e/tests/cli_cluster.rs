//! `ccpfs server`, `up`, `down`, `status`, `exec` and `stripe` as a user meets them.

mod cli_support;

use cli_support::{Folder, signal};
use std::net::TcpListener;
use std::process::Stdio;

/// The processes that `ccpfs status` names, in the order of the servers.
fn pids(folder: &Folder) -> Vec<u32> {
    let status = folder.run(&["status", "--json"]);
    let numbers = status.out.lines().filter_map(|line| line.trim().strip_prefix("\"pid\": "));
    numbers.map(|text| text.trim_end_matches(',').parse().expect("a number")).collect()
}

#[test]
fn up_starts_a_cluster_a_second_up_says_so_and_down_stops_it() {
    let folder = Folder::new();
    let first = folder.run(&["up", "--servers", "2"]).ok();
    assert!(first.out.contains("ccpfs is up: 2 servers"), "{first:?}");
    let second = folder.run(&["up"]).ok();
    assert!(second.out.contains("is up already: 2 servers"), "{second:?}");
    let status = folder.run(&["status"]).ok();
    for part in ["server 0 shard 0  up", "server 1 shard 0  up", "locks=0", "space", " free of ", "s/ns"] {
        assert!(status.out.contains(part), "{part}: {status:?}");
    }
    folder.run(&["up", "--servers", "3"]).failed(2, &["2 for --servers, not 3", "ccpfs down"]);
    let down = folder.run(&["down"]).ok();
    assert!(down.out.contains("2 servers stopped"), "{down:?}");
    assert!(folder.processes().is_empty());
    assert!(folder.run(&["down"]).ok().out.contains("was not up"));
    folder.run(&["status"]).failed(1, &["2 of 2 shards do not answer"]);
}

#[test]
fn up_says_and_repairs_what_is_half_dead() {
    let folder = Folder::new();
    folder.run(&["up", "--servers", "2", "--tcp"]).ok();
    let before = pids(&folder);
    signal(before[1], "KILL");
    folder.wait_for_processes(|count| count == 1);
    let status = folder.run(&["status"]).failed(1, &["1 of 2 shards do not answer"]);
    assert!(status.out.contains("server 1 shard 0  DOWN"), "{status:?}");
    let again = folder.run(&["up"]).ok();
    assert!(again.out.contains("server 1 is down: starting it again"), "{again:?}");
    folder.run(&["status"]).ok();
    let after = pids(&folder);
    assert!(after[0] == before[0] && after[1] != before[1], "{before:?} {after:?}");
    folder.run(&["down"]).ok();
}

#[test]
fn what_up_is_told_wrong_is_named() {
    let folder = Folder::new();
    folder.run(&["up", "--policy", "gpfs"]).failed(2, &["cluster.policy", "'gpfs'", "seqdlm"]);
    folder.run(&["up", "--stripes", "0"]).failed(2, &["stripe.count = 0", "1 to 2048"]);
    folder.run(&["up", "--stripe-size", "5000"]).failed(2, &["stripe.size = 5000", "4KiB"]);
    std::fs::create_dir(folder.path().join("device")).unwrap();
    std::fs::write(folder.path().join("device/server-0"), "").unwrap();
    let device = folder.text("device");
    folder.run(&["up", "--device-dir", &device]).failed(1, &["server 0 ended", "device/server-0"]);
    assert!(folder.processes().is_empty(), "a cluster that did not come up leaves nothing running");
    let long = format!("{}/{}", folder.path().display(), "x".repeat(120));
    folder.run(&["up", "--state", &long]).failed(2, &["too long for a Unix socket", "--tcp"]);
}

#[test]
fn purging_asks_first_and_leaves_what_was_there_before() {
    let folder = Folder::new();
    let namespace = folder.path().join("mine");
    std::fs::create_dir(&namespace).unwrap();
    folder.run(&["up", "--namespace", &folder.text("mine")]).ok();
    let mut asked = folder.ccpfs(&["down", "--purge"]);
    let output = asked.stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(folder.path().join("s/data").is_dir(), "nobody agreed to remove the data");
    let purged = folder.run(&["down", "--purge", "--yes"]).ok();
    assert!(purged.out.contains("left") && namespace.is_dir(), "{purged:?}");
    assert!(!folder.path().join("s").exists(), "{purged:?}");
}

#[test]
fn a_server_says_why_it_does_not_start() {
    let folder = Folder::new();
    let config = folder.text("c.toml");
    folder.run(&["server", "--config", &config, "--index", "0"]).failed(2, &["c.toml", "cannot read"]);
    let busy = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp://127.0.0.1:{}", busy.local_addr().unwrap().port());
    let text = format!(
        "[cluster]\nnamespace = '{}'\nservers = ['{address}']\n[server]\ndata = '{}'\n",
        folder.path().display(),
        folder.text("data")
    );
    std::fs::write(&config, &text).unwrap();
    let server = ["server", "--config", &config, "--index", "0"];
    folder.run(&server).failed(1, &["server 0", &address, "in use"]);
    folder.run(&["server", "--config", &config, "--index", "1"]).failed(2, &["cluster.servers", "server 1"]);
    let elsewhere = ["--listen", "unix:/proc/nowhere/s", "--data", "/proc/nowhere"];
    folder.run(&[&server[..], &elsewhere[..]].concat()).failed(1, &["/proc/nowhere"]);
    std::fs::write(&config, text.replace("data =", "dat =")).unwrap();
    folder.run(&server).failed(2, &["c.toml", "unknown field", "dat"]);
}

#[test]
fn striping_is_set_and_shown_per_file_and_directory() {
    let folder = Folder::new();
    folder.run(&["up", "--servers", "2"]).ok();
    let namespace = folder.path().join("s/ns");
    std::fs::create_dir(namespace.join("wide")).unwrap();
    let (wide, file) = (folder.text("s/ns/wide"), folder.text("s/ns/file"));
    let inner = folder.text("s/ns/wide/inner");
    folder.run(&["stripe", "set", "--count", "4", &wide]).ok();
    folder.run(&["stripe", "set", "--size", "64KiB", &inner]).ok();
    folder.run(&["stripe", "set", "-c", "2", &file]).ok();
    folder.run(&["stripe", "set", "-c", "3", &file]).failed(1, &["exists"]);
    folder.run(&["stripe", "set", &wide]).failed(2, &["--count"]);
    let shown = folder.run(&["stripe", "get", &wide, &inner, &file]).ok().out;
    let numbers: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("stripe_"))
        .map(|line| line.split_whitespace().last().unwrap())
        .collect();
    assert_eq!(numbers, ["4", "1048576", "4", "65536", "2", "1048576"]);
    folder.run(&["stripe", "get", &folder.text("s/ns/none")]).failed(1, &["none"]);
    folder.run(&["down"]).ok();
}

#[test]
fn exec_explains_what_is_missing() {
    let folder = Folder::new();
    folder.run(&["exec", "--", "true"]).failed(2, &["no cluster configuration", "ccpfs up"]);
    folder.run(&["up"]).ok();
    let mut command = folder.ccpfs(&["exec", "--", "true"]);
    let output = command.env("CCPFS_PRELOAD_LIB", "/nowhere/lib.so").output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && message.contains("/nowhere/lib.so"), "{message}");
    // A library that does nothing is enough to see what becomes of the program.
    let nothing = ["/lib", "/usr/lib"].iter().find_map(|root| find_library(root.as_ref(), "libm.so.6"));
    let nothing = nothing.expect("every system has libm");
    let run = |arguments: &[&str]| {
        let mut command = folder.ccpfs(&[&["exec", "--"], arguments].concat());
        command.env("CCPFS_PRELOAD_LIB", &nothing).output().unwrap()
    };
    assert_eq!(run(&["/nowhere/program"]).status.code(), Some(127));
    assert_eq!(run(&["/etc/passwd"]).status.code(), Some(126));
    assert_eq!(run(&["sh", "-c", "exit 7"]).status.code(), Some(7));
    let shown = run(&["sh", "-c", "echo $LD_PRELOAD $CCPFS_CONFIG"]).stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.contains("libm") && shown.contains("s/ccpfs.toml"), "{shown}");
    folder.run(&["down"]).ok();
}

/// A library below one of the system's folders.
fn find_library(root: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(root).ok()?.flatten().map(|entry| entry.path());
    let folders: Vec<_> = entries.filter(|path| path.is_dir() && !path.is_symlink()).collect();
    let here = root.join(name);
    if here.exists() { Some(here) } else { folders.iter().find_map(|folder| find_library(folder, name)) }
}

#[test]
fn version_help_and_completions_are_printed() {
    let folder = Folder::new();
    assert!(folder.run(&["--version"]).ok().out.contains("protocol 5"));
    assert!(folder.run(&["--help"]).ok().out.contains("exec"));
    for shell in ["bash", "zsh", "fish"] {
        assert!(folder.run(&["completions", shell]).ok().out.contains("ccpfs"));
    }
    folder.run(&["up", "--no-such-option"]).failed(2, &["--no-such-option"]);
    folder.run(&["status", "--log", "=="]).failed(2, &["=="]);
}
