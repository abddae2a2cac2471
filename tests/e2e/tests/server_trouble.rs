//! Servers and clients in trouble, as real processes: killed, stopped, talked nonsense to, out of space.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ccpfs_e2e::{Cluster, Options, describe, finish, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A Python program on ccPFS that does what it is told line by line, and says how it went.
struct Puppet {
    child: Child,
    /// Number of the Python process, which `timeout` has started.
    pid: u32,
    answers: BufReader<ChildStdout>,
}

const PUPPET: &str = r#"
import os, sys
print(os.getpid(), flush=True)
f = os.open(os.environ["NS"] + "/f", os.O_RDWR | os.O_CREAT)
for line in sys.stdin:
    try:
        what, *words = line.split()
        if what == "write":
            os.pwrite(f, words[0].encode() * int(words[1]), 0)
        elif what == "sync":
            os.fsync(f)
        print("done", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"#;

impl Puppet {
    fn start(cluster: &Cluster) -> Puppet {
        let mut command = cluster.command("python3");
        command.args(["-c", PUPPET]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut puppet = Puppet { child, pid: 0, answers };
        puppet.pid = puppet.answer().parse().unwrap();
        puppet
    }

    fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.answer()
    }

    fn signal(&self, number: i32) {
        signal(self.pid, number);
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn a_client_that_is_killed_with_a_lock_in_its_hands_stops_nobody() {
    let cluster = Cluster::start(&Options::default());
    let mut holder = Puppet::start(&cluster);
    assert_eq!(holder.ask("write A 100000"), "done");
    holder.signal(libc::SIGKILL);
    let out = cluster.shell(r#"printf BB | dd of="$NS/f" conv=notrunc,fsync status=none; head -c 2 "$NS/f""#);
    assert_eq!(out, "BB");
}

//= protocol.md#I7 type=test
//= protocol.md#I8 type=test
#[test]
fn a_client_that_is_stopped_is_evicted_and_hears_of_it_when_it_wakes_up() {
    let cluster = Cluster::start(&Options { server: "revoke_timeout_ms = 3000", ..Options::default() });
    let mut holder = Puppet::start(&cluster);
    assert_eq!(holder.ask("write A 100000"), "done");
    assert_eq!(holder.ask("sync"), "done");
    assert_eq!(holder.ask("write B 100000"), "done");
    holder.signal(libc::SIGSTOP);
    let _ = cluster.shell(r#"printf CC | dd of="$NS/f" conv=notrunc,fsync status=none"#);
    holder.signal(libc::SIGCONT);
    let told = holder.ask("sync");
    let out = cluster.shell(r#"head -c 4 "$NS/f"; wc -c < "$NS/f""#);
    assert_eq!(
        [told.as_str(), &out],
        ["Input/output error", "CCAA100000\n"],
        "what was not flushed is lost, and it is told"
    );
    assert_eq!(holder.ask("write D 3"), "done", "it comes back as a new client");
    assert_eq!(holder.ask("sync"), "done");
    assert_eq!(cluster.shell(r#"head -c 5 "$NS/f""#), "DDDAA");
}

#[test]
fn nonsense_on_a_socket_harms_nobody() {
    let cluster = Cluster::start(&Options::default());
    let _ = cluster.shell(r#"head -c 300000 /dev/urandom | tee "$OUT/f" > "$NS/f""#);
    let socket = cluster.config().with_file_name("s0");
    let mut random = fs::File::open("/dev/urandom").unwrap();
    for length in [0, 1, 3, 15, 16, 17, 100, 5000, 70_000] {
        let mut nonsense = vec![0; length];
        random.read_exact(&mut nonsense).unwrap();
        let mut stream = UnixStream::connect(&socket).unwrap();
        // The server may close the connection before it has read everything.
        let _closed_already = stream.write_all(&nonsense);
        let _closed_already = stream.shutdown(Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert_eq!(cluster.shell(r#"cmp "$OUT/f" "$NS/f" && echo same"#), "same\n");
}

//= protocol.md#I9 type=test
#[test]
fn what_was_synced_outlives_servers_that_are_killed() {
    let mut cluster = Cluster::start(&Options { servers: 2, stripes: 2, ..Options::default() });
    for round in 1..=3 {
        let script = format!(
            r#"head -c 5000000 /dev/urandom > "$OUT/{round}"
               dd if="$OUT/{round}" of="$NS/{round}" bs=47008 conv=fsync status=none"#
        );
        let _ = cluster.shell(&script);
        for server in [0, 1] {
            cluster.kill_server(server);
            cluster.restart_server(server);
        }
    }
    let same = r#"for f in 1 2 3; do cmp "$OUT/$f" "$NS/$f"; done; echo same"#;
    assert_eq!(cluster.shell(same), "same\n");
}

/// A small file system, mounted where a cluster keeps its data.
struct SmallDevice(PathBuf);

impl SmallDevice {
    /// `None` where mounting is not allowed.
    fn mount(at: PathBuf) -> Option<SmallDevice> {
        let mounted = finish(Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "none"]).arg(&at));
        if mounted.status.success() {
            return Some(SmallDevice(at));
        }
        eprintln!("not tested, because no file system can be mounted here: {}", describe(&mounted));
        None
    }
}

impl Drop for SmallDevice {
    fn drop(&mut self) {
        let _ = finish(Command::new("umount").arg("--lazy").arg(&self.0));
    }
}

#[test]
fn a_full_device_is_told_to_whoever_writes_and_nothing_synced_is_lost() {
    let mut cluster = Cluster::start(&Options::default());
    cluster.kill_server(0);
    let Some(_device) = SmallDevice::mount(cluster.config().with_file_name("data")) else { return };
    cluster.restart_server(0);
    let _ = cluster.shell(
        r#"head -c 1000000 /dev/urandom > "$OUT/good"
           dd if="$OUT/good" of="$NS/good" bs=64k conv=fsync status=none"#,
    );
    let full = finish(cluster.command("dd").args(["if=/dev/zero", "bs=1M", "count=9", "conv=fsync"]).arg({
        let mut of = std::ffi::OsString::from("of=");
        of.push(cluster.namespace().join("big"));
        of
    }));
    let text = describe(&full);
    assert!(!full.status.success() && text.contains("No space left on device"), "{text}");
    assert_eq!(cluster.shell(r#"cmp "$OUT/good" "$NS/good" && echo same"#), "same\n");
    let after = r#"rm "$NS/big"; cp "$OUT/good" "$NS/again"; cmp "$OUT/good" "$NS/again" && echo same"#;
    assert_eq!(cluster.shell(after), "same\n", "room that was given back is used");
}
