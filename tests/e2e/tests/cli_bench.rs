//! `ccpfs bench` as a user meets it: results, verification, and leaving nothing behind.

mod cli_support;

use cli_support::{Ended, Folder, signal};
use std::process::Stdio;

#[test]
fn every_byte_of_all_patterns_and_lock_managers_is_right() {
    let folder = Folder::new();
    let (json, plot) = (folder.text("out/ior.json"), folder.text("out/ior.svg"));
    let mut line = vec!["bench", "ior", "--clients", "3", "--servers", "2", "--stripes", "1,2", "--verify"];
    line.extend(["--policy", "seqdlm,basic,lustre,local,memcpy", "--transfer", "64KiB,47008"]);
    line.extend(["--per-client", "1MiB", "--rounds", "1", "--json", &json, "--plot", &plot]);
    let ended = folder.run(&line).ok();
    assert!(ended.out.contains("every byte right"), "{ended:?}");
    for part in ["seqdlm", "memcpy", "nn", "segmented", "strided", "47008", "PIO MiB/s", "ratio"] {
        assert!(ended.out.contains(part), "{part}: {ended:?}");
    }
    let results = std::fs::read_to_string(&json).unwrap();
    // 5 policies, 3 patterns, 2 transfers, 2 numbers of stripes.
    assert_eq!(results.matches("\"pio_seconds\"").count(), 60);
    assert_eq!(results.matches("\"pio_bytes_per_second_median\"").count(), 60);
    assert!(!results.contains("\"verified\": false"), "{results}");
    assert!(std::fs::read_to_string(&plot).unwrap().contains("</svg>"));
}

#[test]
fn small_transfers_and_tcp_are_right_too() {
    let folder = Folder::new();
    let mut line = vec!["bench", "ior", "--clients", "4", "--shards", "2", "--stripes", "3", "--tcp"];
    line.extend(["--stripe-size", "4KiB", "--transfer", "4KiB,1000", "--per-client", "100KiB"]);
    line.extend(["--rounds", "2", "--verify"]);
    assert!(folder.run(&line).ok().out.contains("every byte right"));
}

#[test]
fn overlapping_writes_leave_one_complete_write() {
    let folder = Folder::new();
    let mut line = vec!["bench", "ior", "--workload", "overlap", "--clients", "6", "--rounds", "3"];
    line.extend(["--per-client", "3MiB", "--policy", "seqdlm,basic"]);
    let ended = folder.run(&line).ok();
    assert!(ended.out.contains("every byte right"), "{ended:?}");
}

#[test]
fn the_micro_benchmarks_of_the_paper_run_and_verify() {
    let folder = Folder::new();
    for (workload, modes) in [
        ("conflict-sequential", "nbw,pw"),
        ("conflict-parallel", "nbw,bw,pw"),
        ("mixed-read-write", "nbw,pw"),
        ("two-stripe", "bw,pw"),
    ] {
        let mut line = vec!["bench", "ior", "--workload", workload, "--mode", modes, "--clients", "3"];
        line.extend(["--transfer", "16KiB", "--per-client", "512KiB", "--rounds", "1", "--verify"]);
        line.extend(["--policy", "seqdlm,seqdlm-no-early-revocation-no-upgrading-no-downgrading"]);
        let ended = folder.run(&line).ok();
        assert!(ended.out.contains("writes/s") && ended.out.contains(workload), "{ended:?}");
    }
}

#[test]
fn one_wrong_byte_fails_the_bench_and_is_named() {
    let folder = Folder::new();
    for (pattern, policy) in
        [("nn", "seqdlm"), ("strided", "basic"), ("segmented", "local"), ("nn", "memcpy")]
    {
        let mut line = vec!["bench", "ior", "--verify", "--spoil", "--clients", "2", "--rounds", "1"];
        line.extend([
            "--per-client",
            "256KiB",
            "--transfer",
            "64KiB",
            "--pattern",
            pattern,
            "--policy",
            policy,
        ]);
        let ended = folder.run(&line).failed(3, &["WRONG", "expected data of rank 0", "1 byte wrong"]);
        assert!(!ended.out.contains("every byte right"), "{ended:?}");
    }
    // A client alone is checked by another process too.
    let alone =
        ["bench", "ior", "--verify", "--spoil", "--clients", "1", "--rounds", "1", "--per-client", "1MiB"];
    folder
        .run(&[&alone[..], &["--pattern", "strided", "--policy", "seqdlm"]].concat())
        .failed(3, &["rank 0"]);
}

#[test]
fn lock_requests_per_second_are_measured() {
    let folder = Folder::new();
    let ended = folder.run(&["bench", "locks-rate", "--connections", "2", "--seconds", "1"]).ok();
    assert!(ended.out.contains("lock requests/s") && ended.out.contains("write:"), "{ended:?}");
}

#[test]
fn wrong_options_are_named() {
    let folder = Folder::new();
    folder.run(&["bench", "ior", "--policy", "gpfs"]).failed(2, &["gpfs", "memcpy"]);
    folder.run(&["bench", "ior", "--transfer", "1X"]).failed(2, &["1X"]);
    folder.run(&["bench", "ior", "--set", "client.cash=1"]).failed(2, &["CCPFS_CLIENT_CASH", "cache"]);
    folder.run(&["bench", "ior", "--device-dir", "/proc/nowhere"]).failed(1, &["/proc/nowhere"]);
    assert!(folder.processes().is_empty());
}

/// Starts a measurement that goes on until it is stopped, and waits until its server and clients run.
fn endless(folder: &Folder) -> std::process::Child {
    let mut command = folder.ccpfs(&["bench", "ior", "--clients", "2", "--rounds", "1000000"]);
    command.args(["--per-client", "4MiB", "--pattern", "strided", "--policy", "seqdlm"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
    folder.wait_for_processes(|count| count >= 1);
    child
}

#[test]
fn an_interrupted_bench_leaves_nothing_behind() {
    let folder = Folder::new();
    let child = endless(&folder);
    signal(child.id(), "INT");
    Ended::of(child.wait_with_output().unwrap()).failed(130, &["interrupted"]);
    assert!(folder.processes().is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_killed_bench_takes_its_servers_and_clients_along() {
    let folder = Folder::new();
    let mut child = endless(&folder);
    signal(child.id(), "KILL");
    child.wait().unwrap();
    folder.wait_for_processes(|count| count == 0);
}

#[test]
fn a_server_that_dies_ends_the_bench_and_is_named() {
    let folder = Folder::new();
    let child = endless(&folder);
    for pid in folder.wait_for_processes(|count| count >= 1) {
        signal(pid, "KILL");
    }
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("server 0"), "{ended:?}");
    assert!(folder.processes().is_empty());
}
