//! A mount that an ordinary user makes for himself, as far as fusermount3 lets him, and what he can do on it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Settings, World, built, have, output_of, skip, tool};
use std::path::Path;
use std::process::Command;

/// In a mount namespace of its own, so that nothing of it is seen outside: where only root may open `/dev/fuse`, puts one there that all
/// may open, as udev makes it on most machines. Then `SCRIPT` runs as the user `nobody`.
const PREPARE: &str = r#"
    if ! setpriv --reuid=65534 --regid=65534 --clear-groups sh -c ': <> /dev/fuse'; then
        mkdir -p dev; mount -t tmpfs none dev; mknod -m 666 dev/fuse c 10 229; mount --bind dev/fuse /dev/fuse
    fi 2> prepared
    exec setpriv --reuid=65534 --regid=65534 --clear-groups bash -euo pipefail -c "$SCRIPT"
"#;

/// Runs a shell script of the user `nobody`, to whom the directories `mine` and `ns/work` belong. `None` where that cannot be.
fn said(test: &str, script: &str) -> Option<String> {
    for program in ["fusermount3", "unshare", "setpriv"] {
        if !have(test, program) {
            return None;
        }
    }
    if !World::can_mount() {
        skip(test, "this build cannot mount");
        return None;
    }
    let Some(world) = World::start(&Settings::default()).of_user() else {
        skip(test, "only root can make a user's world");
        return None;
    };
    let folder = world.config().parent().unwrap().to_owned();
    std::fs::create_dir_all(folder.join("mine/mount")).unwrap();
    for part in ["mine", "mine/mount"] {
        std::os::unix::fs::chown(folder.join(part), Some(65534), Some(65534)).unwrap();
    }
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        "300",
        "unshare",
        "--mount",
        "--propagation=private",
        "bash",
        "-euc",
        PREPARE,
    ]);
    command.current_dir(&folder).env("SCRIPT", script).env("LC_ALL", "C");
    command.env("CCPFS", world.for_everybody(&built("ccpfs"))).env("CCPFS_CONFIG", world.config());
    command.env("HOME", folder.join("mine")).env_remove("XDG_RUNTIME_DIR").env("TMPDIR", folder.join("mine"));
    let copied = |name: &str| tool(name).map(|program| world.for_everybody(&program));
    for (variable, name) in [("FSX", "fsx"), ("SUITE", "pjdfstest")] {
        command.env(variable, copied(name).as_deref().unwrap_or(Path::new("")));
    }
    Some(output_of(&mut command))
}

/// Runs a script as [`said`] does; it must say `expected`.
fn check(test: &str, script: &str, expected: &str) {
    if let Some(said) = said(test, script) {
        assert_eq!(said, expected);
    }
}

#[test]
fn a_user_mounts_for_himself_and_unmounts() {
    check(
        "a_user_mounts_for_himself_and_unmounts",
        r#"$CCPFS mount mine/mount; cd mine/mount/work
        echo written > f; cat f; cp /bin/true program; ./program; ln f g; mv g h; stat -c '%U %h %s' h; rm h
        mkfifo pipe; chmod 4755 f; stat -c %a f; ! chown daemon f 2> /dev/null; ! mknod device c 1 3 2> /dev/null
        grep -c "$PWD/../.. fuse.ccpfs\|mine/mount fuse.ccpfs .*nosuid.*user_id=65534" /proc/self/mounts
        cd ../../..; $CCPFS umount mine/mount; ls mine/mount | wc -l
        $CCPFS mount mine/mount; cd mine/mount/work; cat f; cd ../../..; umount mine/mount"#,
        "written\nnobody 2 8\n4755\n1\n0\nwritten\n",
    );
}

#[test]
fn a_users_mount_that_is_killed_is_replaced() {
    check(
        "a_users_mount_that_is_killed_is_replaced",
        r#"$CCPFS mount --foreground mine/mount & first=$!
        work=mine/mount/work; until [ -d $work ]; do :; done; echo kept > $work/f; sync $work/f
        kill -9 $first; wait $first || true
        { cat $work/f || true; } 2>&1 | grep -o 'Transport endpoint is not connected'
        $CCPFS mount mine/mount; cat $work/f; $CCPFS umount mine/mount"#,
        "Transport endpoint is not connected\nkept\n",
    );
}

#[test]
fn the_exerciser_and_the_suite_find_nothing_on_a_users_mount() {
    let test = "the_exerciser_and_the_suite_find_nothing_on_a_users_mount";
    if tool("fsx").is_none() || tool("pjdfstest").is_none() {
        return skip(test, "fsx or pjdfstest is not installed: scripts/install-tools.sh");
    }
    check(
        test,
        r#"printf '[features]\nposix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n[settings]\n' > mine/toml
        printf 'naptime = 0.02\nallow_remount = false\n[dummy_auth]\nentries = [["nobody", "nogroup"], ["daemon", "daemon"]]\n' >> mine/toml
        $CCPFS mount mine/mount; cd mine/mount/work; $FSX -N 3000 -S 7 exercised | grep -o 'All operations completed'
        passed() { (cd $1; $SUITE -c $HOME/toml -p . || true) | awk '$2 == "ok" { print $1 }' | sort; }
        cd; passed mount/work > on-mount; passed ../out > plain; [ $(wc -l < plain) -gt 200 ]
        diff plain on-mount | grep '^[<>]' || true; umount mount"#,
        // The C library knows by the type of a file system how many links there may be.
        "All operations completed\n< link::link_count_max\n",
    );
}
