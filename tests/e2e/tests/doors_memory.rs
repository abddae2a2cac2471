//! Clients with the default settings in a control group that has not room for the caches of all of them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_e2e::{Cluster, Options};
use ccpfs_test_support::skip;
use std::fs;
use std::path::{Path, PathBuf};

/// Memory of the group.
const LIMIT_BYTES: u64 = 256 << 20;
const PROCESSES: usize = 6;
/// What each process writes, in MiB: all of it is less than a client flushes from by itself, so that nothing but the lack of memory makes
/// it flush.
const WRITTEN_MIB: usize = 100;

/// A control group with a limit of memory; removed when it is dropped.
struct Group(PathBuf);

impl Group {
    /// Makes one, of whichever version this system has. `None` if that cannot be done here.
    fn make() -> Option<Group> {
        let name = format!("ccpfs-test-{}", std::process::id());
        let versions = [("memory", "memory.limit_in_bytes"), ("", "memory.max"), ("unified", "memory.max")];
        versions.iter().find_map(|(top, limit)| {
            let group = Group(Path::new("/sys/fs/cgroup").join(top).join(&name));
            fs::create_dir(&group.0).ok()?;
            // The file is there only if groups have limits of memory here.
            let limit = group.0.join(limit);
            (limit.exists() && fs::write(limit, LIMIT_BYTES.to_string()).is_ok()).then_some(group)
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn caches_of_many_processes_together_do_not_exhaust_the_memory_of_their_group() {
    let Some(group) = Group::make() else {
        skip("doors_memory", "control groups with a limit of memory cannot be made here");
        return;
    };
    let cluster = Cluster::start(&Options::default());
    let script = format!(
        "echo $$ > '{}/cgroup.procs'; exec dd if=/dev/zero of=\"$NS/f$1\" bs=1M count={WRITTEN_MIB} status=none",
        group.0.display()
    );
    let writers: Vec<_> = (0..PROCESSES)
        .map(|number| {
            let mut command = cluster.command("bash");
            command.args(["-euc", &script, "bash", &number.to_string()]);
            (command.spawn().unwrap(), number)
        })
        .collect();
    for (mut writer, number) in writers {
        let status = writer.wait().unwrap();
        assert!(status.success(), "writer {number}: {status}");
    }
    let sizes = cluster.shell("cat \"$NS\"/f* | tr -d '\\0' | wc -c; cat \"$NS\"/f* | wc -c");
    assert_eq!(sizes, format!("0\n{}\n", PROCESSES * (WRITTEN_MIB << 20)));
}
