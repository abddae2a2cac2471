//! The suite `pjdfstest`: what fails on ccPFS must be what fails on the local file system.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Door, Settings, World, described, finish, skip, tool};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

/// Every feature that Linux has; two users that every Debian has.
const CONFIGURATION: &str = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n\
    [settings]\nnaptime = 0.02\nallow_remount = false\n\
    [dummy_auth]\nentries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]\n";

/// What failed and what passed behind a door.
struct Verdict {
    failed: BTreeSet<String>,
    passed: BTreeSet<String>,
    /// Lines about those that failed.
    said: String,
}

/// Who runs the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Root: all cases, and those that are about users switch to them.
    Root,
    /// Somebody else: the suite leaves out what only root can do, 145 of 398 cases.
    User,
}

/// Runs the cases of these names, or all.
fn run(world: &World, door: Door, names: &BTreeSet<String>) -> Option<Verdict> {
    let name = format!("pjdfstest on {door:?}");
    let Some(suite) = tool("pjdfstest") else {
        skip(&name, "pjdfstest is not installed: scripts/install-tools.sh");
        return None;
    };
    if matches!(door, Door::Mount(_)) && !World::can_mount() {
        skip(&name, "this build cannot mount");
        return None;
    }
    let settings = world.config().with_file_name("pjd.toml");
    std::fs::write(&settings, CONFIGURATION).unwrap();
    let root = world.root(door);
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = world.command(door, &suite);
    command.arg("-c").arg(&settings).arg("-p").arg(&root);
    command.args(names);
    let output = finish(&mut command);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Summary:"), "{}", described(&output));
    let results = |word: &'static str| {
        let found = said.lines().filter_map(move |line| line.strip_suffix(word));
        found.map(|name| name.trim().to_owned()).filter(|name| name.contains("::")).collect::<BTreeSet<_>>()
    };
    let (failed, passed) = (results("FAILED"), results(" ok"));
    let summary = said.lines().find(|line| line.starts_with("Summary:")).unwrap_or_default();
    assert!(summary.contains(&format!("Summary: {} failed", failed.len())), "{summary}, read as {failed:?}");
    let about = said.lines().filter(|line| line.ends_with("FAILED") || line.starts_with('\t'));
    let said = about.collect::<Vec<_>>().join("\n");
    Some(Verdict { failed, passed, said })
}

fn compare_with_local(door: Door, by: By) {
    let world = World::start(&Settings::default());
    let world = match by {
        // SAFETY: it has no arguments and cannot fail.
        By::Root if unsafe { libc::geteuid() } != 0 => None,
        By::Root => Some(world),
        By::User => world.of_user(),
    };
    let Some(world) = world else { return skip("pjdfstest", "the test does not run as root") };
    let Some(local) = run(&world, Door::Plain, &BTreeSet::new()) else { return };
    // The kernel does not know that a program runs whose file it has been given as a copy (S19).
    let is_beyond = |name: &str| door == Door::Preload && name.contains("::etxtbsy");
    let names = local.passed.iter().filter(|name| !is_beyond(name)).cloned().collect();
    let Some(ours) = run(&world, door, &names) else { return };
    let more: Vec<&String> = ours.failed.difference(&local.failed).collect();
    let said = &ours.said;
    assert!(more.is_empty(), "{} fail here and not on the local file system: {more:#?}\n{said}", more.len());
    // The C library knows by the type of a file system how many links there may be, and ccPFS is none that it knows.
    let skipped = names.difference(&ours.passed).filter(|name| *name != "link::link_count_max");
    let skipped: Vec<&String> = skipped.collect();
    assert!(skipped.is_empty(), "skipped here and not on the local file system: {skipped:#?}");
}

//= semantics.md#S14 type=test
#[test]
fn a_mount_fails_in_nothing_in_which_the_local_file_system_does_not() {
    compare_with_local(Door::Mount(0), By::Root);
}

#[test]
fn the_preload_library_fails_in_nothing_in_which_the_local_file_system_does_not() {
    compare_with_local(Door::Preload, By::Root);
}

//= semantics.md#S14 type=test
#[test]
fn a_mount_fails_an_ordinary_user_in_nothing_in_which_the_local_file_system_does_not() {
    compare_with_local(Door::Mount(0), By::User);
}

#[test]
fn the_preload_library_fails_an_ordinary_user_in_nothing_in_which_the_local_file_system_does_not() {
    compare_with_local(Door::Preload, By::User);
}
