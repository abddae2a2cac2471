//! `ccpfs ladvise` and `group-lock` as a user meets them.

mod cli_support;

use cli_support::{Ended, Folder, signal};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn advice_is_given_for_each_file_and_says_what_became_of_it() {
    let folder = Folder::new();
    folder.run(&["up", "--servers", "2"]).ok();
    let (one, other) = (folder.text("s/ns/one"), folder.text("s/ns/other"));
    for file in [&one, &other] {
        folder.run(&["stripe", "set", "--count", "2", file]).ok();
    }
    let lockahead = ["ladvise", "-a", "lockahead", "-m", "WRITE", "-s", "4KiB", "-l", "1MiB"];
    let said = folder.run(&[&lockahead[..], &[&one, &other]].concat()).ok();
    assert_eq!(said.out, format!("{one}: granted\n{other}: granted\n"));
    let said = folder.run(&[&lockahead[..], &["-b", &one]].concat()).ok();
    assert_eq!(said.out, format!("{one}: sent\n"));
    let said = folder.run(&["ladvise", "-a", "lockahead", "-m", "read", "-s", "0", "-e", "1", &one]).ok();
    assert_eq!(said.out, format!("{one}: granted\n"));
    for (advice, expected) in
        [("willread", "read"), ("dontneed", "written back"), ("noexpand", "do not expand")]
    {
        let said = folder.run(&["ladvise", "-a", advice, &one]).ok();
        assert!(said.out.contains(expected), "{said:?}");
    }
    folder.run(&["ladvise", "-a", "noexpand", "-u", &one]).ok();
    folder.run(&["ladvise", "-a", "lockahead", &one]).failed(2, &["--mode READ"]);
    folder.run(&["ladvise", "-a", "willread", "-m", "READ", &one]).failed(2, &["lockahead"]);
    folder.run(&["ladvise", "-a", "willread", "-u", &one]).failed(2, &["noexpand"]);
    folder
        .run(&["ladvise", "-a", "willread", "-s", "5", "-e", "5", &one])
        .failed(2, &["one past the last byte"]);
    let missing = folder.text("s/ns/missing");
    let said =
        folder.run(&["ladvise", "-a", "willread", &one, &missing]).failed(1, &["1 of 2 files", "missing"]);
    assert_eq!(said.out, format!("{one}: read\n"));
    folder.run(&["down"]).ok();
    folder.wait_for_processes(|count| count == 0);
    assert!(folder.path().is_dir());
}

#[test]
fn a_group_lock_keeps_others_out_until_it_ends() {
    let folder = Folder::new();
    folder.run(&["up"]).ok();
    let file = folder.text("s/ns/shared");
    folder.run(&["stripe", "set", "--count", "1", &file]).ok();
    let mut command = folder.ccpfs(&["group-lock", "--id", "7", &file]);
    let mut member = command.stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut line = String::new();
    BufReader::new(member.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says so");
    assert!(line.contains("member of group 7"), "{line}");
    let lockahead = ["ladvise", "-a", "lockahead", "-m", "READ", &file];
    assert!(folder.run(&lockahead).ok().out.contains("denied"));
    // Another member does not wait.
    folder.run(&["group-lock", "-g", "7", &file, "true"]).ok();
    folder.run(&["group-lock", "-g", "7", &file, "false"]).failed(1, &["status 1"]);
    folder.run(&["group-lock", "-g", "0", &file]).failed(2, &["0"]);
    signal(member.id(), "TERM");
    let ended = Ended::of(member.wait_with_output().expect("it ends"));
    ended.ok();
    assert!(folder.run(&lockahead).ok().out.contains("granted"));
    folder.run(&["down"]).ok();
    folder.wait_for_processes(|count| count == 0);
    assert!(folder.path().is_dir());
}
