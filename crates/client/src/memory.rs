//! How much more memory a client may take: what the node and the process's control group have left, less a reserve for everybody else.
//!
//! Each process has a client of its own, which knows nothing of the others on its node. So none may rely on a number that was right
//! at the start: whoever takes more looks at what is left just then.

use std::fs;
use std::path::{Path, PathBuf};

/// The part of all memory, of the node or of a control group, that is left to others: one in so many.
const RESERVE_PART: u64 = 8;

/// Bytes that may be taken at this moment; `u64::MAX` where nobody says.
pub(crate) fn left_bytes() -> u64 {
    let node = fs::read_to_string("/proc/meminfo").ok().and_then(|text| left_of_node(&text));
    let groups = fs::read_to_string("/proc/self/cgroup")
        .map(|text| left_of_groups(&text, Path::new("/sys/fs/cgroup")));
    node.unwrap_or(u64::MAX).min(groups.unwrap_or(u64::MAX))
}

/// What is left of `total`, of which `available` could be had.
fn beyond_reserve(total: u64, available: u64) -> u64 {
    available.saturating_sub(total / RESERVE_PART)
}

fn left_of_node(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(beyond_reserve(kib("MemTotal:")? << 10, kib("MemAvailable:")? << 10))
}

/// What is left in the control groups that a process is in (`/proc/self/cgroup`), of either version.
fn left_of_groups(groups: &str, root: &Path) -> u64 {
    let mut left = u64::MAX;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (top, files) = match controllers {
            "" => (root.to_owned(), ["memory.max", "memory.current", "inactive_file "]),
            _ if controllers.split(',').any(|name| name == "memory") => {
                let files = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "];
                (root.join("memory"), files)
            }
            _ => continue,
        };
        // A group is bound by those above it; inside a container the path may be one of outside, and only the top be seen.
        let mut group: PathBuf = top.join(path.trim_start_matches('/'));
        loop {
            left = left.min(left_of_group(&group, files));
            if group == top || !group.pop() {
                break;
            }
        }
    }
    left
}

/// What is left in one group: by its limit, what is used, and what of that is pages of files that nobody misses.
fn left_of_group(group: &Path, [limit, used, spare]: [&str; 3]) -> u64 {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    let (Some(limit), Some(used)) = (number(limit), number(used)) else { return u64::MAX };
    let details = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let spare = details.lines().find_map(|line| line.strip_prefix(spare)?.trim().parse::<u64>().ok());
    let available = limit.saturating_sub(used.saturating_sub(spare.unwrap_or(0)));
    beyond_reserve(limit, available)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_an_eighth_for_others() {
        let text = "MemTotal:       8000 kB\nMemFree:  1 kB\nMemAvailable:   3000 kB\n";
        assert_eq!(left_of_node(text), Some(2000 << 10));
        assert_eq!(left_of_node("MemTotal: 8000 kB\nMemAvailable: 900 kB\n"), Some(0));
        assert_eq!(left_of_node("nothing"), None);
    }

    #[test]
    fn the_narrowest_group_above_a_process_counts_in_either_version() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("a/memory.max", "8000\n");
        write("a/memory.current", "6000\n");
        write("a/memory.stat", "anon 1\ninactive_file 2000\n");
        write("a/b/memory.max", "max\n");
        write("a/b/memory.current", "10\n");
        write("memory/j/memory.limit_in_bytes", "800\n");
        write("memory/j/memory.usage_in_bytes", "500\n");
        write("memory/j/memory.stat", "total_inactive_file 0\n");
        let left = |groups: &str| left_of_groups(groups, root.path());
        assert_eq!(left("0::/a/b\n"), 3000);
        assert_eq!(left("4:memory:/j\n0::/a/b\n"), 200);
        assert_eq!(left("4:memory:/elsewhere\n1:cpu:/j\n0::/\n"), u64::MAX);
    }
}
