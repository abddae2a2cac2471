//! `ccpfs fsck`: what is wrong between names and servers is found and mended, and nothing else is touched.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ccpfs_e2e::{Cluster, Options, built, describe, finish, output_of};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

fn cluster() -> Cluster {
    let client = "connect_timeout_ms = 3000";
    Cluster::start(&Options { servers: 2, stripes: 3, stripe_size: "64KiB", client, ..Options::default() })
}

/// Runs a check, and expects this exit status. Returns what it printed.
fn fsck(cluster: &Cluster, options: &[&str], status: i32) -> String {
    let mut command = cluster.plain("env");
    command.arg(built("ccpfs")).arg("fsck").arg("--config").arg(cluster.config()).args(options);
    let output = finish(&mut command);
    assert_eq!(output.status.code(), Some(status), "{options:?}: {}", describe(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn expect(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

/// All object files of a server, or of all of them.
fn objects(cluster: &Cluster, below: &str) -> Vec<PathBuf> {
    let data = cluster.config().parent().unwrap().join("data").join(below);
    let found = output_of(Command::new("find").arg(data).args(["-path", "*/objects/*", "-type", "f"]));
    found.lines().map(PathBuf::from).collect()
}

fn make(cluster: &Cluster, name: &str, bytes: u32) {
    let _ = cluster.shell(&format!("head -c {bytes} /dev/urandom > $NS/{name}"));
}

fn sum(cluster: &Cluster, path: &str) -> String {
    cluster.shell(&format!("sha256sum < $NS/{path}"))
}

fn lost_and_found(cluster: &Cluster) -> Vec<String> {
    let entries = fs::read_dir(cluster.namespace().join("lost+found")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn stub(cluster: &Cluster, name: &str) -> PathBuf {
    cluster.namespace().join(name)
}

fn file_id(path: &Path) -> String {
    fs::read(path).unwrap()[12..28].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A Python program on ccPFS that has a file open for writing and does what it is told line by line.
struct Writer {
    child: Child,
    pid: String,
    answers: BufReader<ChildStdout>,
}

const WRITER: &str = r#"
import os, sys
f = os.open(os.environ["NS"] + "/" + sys.argv[1], os.O_RDWR | os.O_CREAT)
print(os.getpid(), flush=True)
for line in sys.stdin:
    what, letter = line.split()
    if what == "write":
        os.pwrite(f, letter.encode() * 200000, 0)
        os.fsync(f)
        print("done", flush=True)
    else:
        print(os.pread(f, 1, 199999).decode(), os.fstat(f).st_size, flush=True)
"#;

impl Writer {
    fn start(cluster: &Cluster, name: &str) -> Writer {
        let mut command = cluster.command("python3");
        command.args(["-c", WRITER, name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut writer = Writer { child, pid: String::new(), answers };
        writer.pid = writer.answer();
        writer
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        self.answer()
    }

    fn kill(mut self) {
        let _ = output_of(Command::new("kill").args(["-s", "KILL", &self.pid]));
        let _ = self.child.wait();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

#[test]
fn where_nothing_is_wrong_nothing_is_found_also_while_programs_write() {
    let cluster = cluster();
    let _ = cluster.shell(
        "mkdir -p $NS/a/b; for i in $(seq 20); do head -c $((i * 30000)) /dev/zero > $NS/a/b/$i; done; \
         : > $NS/empty; ln $NS/a/b/1 $NS/link; truncate -s 1G $NS/sparse; ln -s a/b $NS/symbolic",
    );
    fs::write(stub(&cluster, "ordinary"), "text").unwrap();
    let mut writer = Writer::start(&cluster, "written");
    for _ in 0..3 {
        assert_eq!(writer.ask("write x"), "done");
        expect(&fsck(&cluster, &["--repair", "--delete-orphans"], 0), &["23 files in 3 directories"]);
        assert_eq!(writer.ask("read 0"), "x 200000");
    }
    drop(writer);
    expect(&fsck(&cluster, &["--json"], 0), &["\"exit_status\": 0", "\"files\": 23"]);
    let below = stub(&cluster, "a");
    expect(&fsck(&cluster, &[below.to_str().unwrap()], 0), &["20 files in 2 directories"]);
    fsck(&cluster, &["/"], 2);
}

//= semantics.md#S21 type=test
#[test]
fn data_without_a_name_become_a_file_again() {
    let cluster = cluster();
    make(&cluster, "kept", 100_000);
    make(&cluster, "gone", 1_000_000);
    let (kept, gone) = (sum(&cluster, "kept"), sum(&cluster, "gone"));
    let id = file_id(&stub(&cluster, "gone"));
    fs::remove_file(stub(&cluster, "gone")).unwrap();
    let before = objects(&cluster, "");
    for _ in 0..2 {
        let report = fsck(&cluster, &[], 4);
        expect(&report, &["orphan", &id, "in 3 stripes", "3 stripes of 64KiB", "--delete-orphans"]);
    }
    assert_eq!(objects(&cluster, "").len(), before.len());
    expect(&fsck(&cluster, &["--repair"], 1), &["mended", "lost+found", "1000000"]);
    assert_eq!(lost_and_found(&cluster), [id.as_str()]);
    assert_eq!(sum(&cluster, &format!("lost+found/{id}")), gone);
    fsck(&cluster, &[], 0);
    let _ = cluster.shell(&format!("rm $NS/lost+found/{id}"));
    assert_eq!(objects(&cluster, "").len(), 2, "removed like any other file");
    assert_eq!(sum(&cluster, "kept"), kept);
    fsck(&cluster, &[], 0);
}

#[test]
fn data_without_a_name_go_when_asked_for() {
    let cluster = cluster();
    make(&cluster, "kept", 100_000);
    make(&cluster, "gone", 1_000_000);
    let kept = sum(&cluster, "kept");
    fs::remove_file(stub(&cluster, "gone")).unwrap();
    expect(&fsck(&cluster, &["--delete-orphans"], 1), &["orphan", "mended: removed"]);
    assert_eq!(objects(&cluster, "").len(), 2);
    assert_eq!(sum(&cluster, "kept"), kept);
    fsck(&cluster, &[], 0);
}

#[test]
fn a_wrong_stripe_size_is_doubted_and_the_right_one_can_be_said() {
    let cluster = cluster();
    let script = "mkdir $NS/d; ccpfs=$0; $ccpfs stripe set --config $CCPFS_CONFIG -c 2 -S 4KiB $NS/d; \
                  head -c 50000 /dev/urandom > $NS/d/f";
    let _ = output_of(cluster.command("bash").args(["-euo", "pipefail", "-c", script]).arg(built("ccpfs")));
    let (id, contents) = (file_id(&stub(&cluster, "d/f")), sum(&cluster, "d/f"));
    fs::remove_file(stub(&cluster, "d/f")).unwrap();
    expect(&fsck(&cluster, &["--repair"], 4), &["doubtful", "say --stripe-size"]);
    expect(&fsck(&cluster, &["--repair", "--stripe-size", "4KiB"], 1), &["mended"]);
    assert_eq!(sum(&cluster, &format!("lost+found/{id}")), contents);
}

//= semantics.md#S22 type=test
#[test]
fn a_removed_file_is_left_to_those_who_have_it_open_and_found_when_they_were_killed() {
    let cluster = cluster();
    let mut writer = Writer::start(&cluster, "f");
    assert_eq!(writer.ask("write y"), "done");
    let _ = cluster.shell("rm $NS/f");
    let report = fsck(&cluster, &["--repair", "--delete-orphans"], 0);
    expect(&report, &["removed and still open somewhere"]);
    assert_eq!(writer.ask("read 0"), "y 200000");
    writer.kill();
    let report = fsck(&cluster, &[], 4);
    expect(&report, &["orphan", "3 stripes of 64KiB, as noted when it lost its name"]);
    assert_eq!(fs::read_dir(stub(&cluster, ".ccpfs/orphans")).unwrap().count(), 1);
    expect(&fsck(&cluster, &["--delete-orphans"], 1), &["mended: removed"]);
    assert_eq!(fs::read_dir(stub(&cluster, ".ccpfs/orphans")).unwrap().count(), 0);
    assert_eq!(objects(&cluster, ""), Vec::<PathBuf>::new());
}

#[test]
fn a_note_without_data_is_removed() {
    let cluster = cluster();
    make(&cluster, "f", 10);
    let note = stub(&cluster, ".ccpfs/orphans").join("0123456789abcdef0123456789abcdef");
    let mut record = fs::read(stub(&cluster, "f")).unwrap();
    let named = stub(&cluster, ".ccpfs/orphans").join(file_id(&stub(&cluster, "f")));
    fs::write(&named, &record).unwrap();
    expect(&fsck(&cluster, &[], 4), &["note", "has a name"]);
    expect(&fsck(&cluster, &["--repair"], 1), &["note", "mended"]);
    assert!(!named.exists());
    // A record for a file that no server knows: its check sum is found by trying.
    record[12..28].copy_from_slice(&0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes());
    let sum = checksum(&record[..60]);
    record[60..64].copy_from_slice(&sum.to_le_bytes());
    fs::write(&note, &record).unwrap();
    expect(&fsck(&cluster, &[], 4), &["no server has anything of it"]);
    expect(&fsck(&cluster, &["--repair"], 1), &["note", "mended"]);
    assert!(!note.exists());
    fsck(&cluster, &[], 0);
}

/// CRC-32C.
fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[test]
fn damaged_and_copied_stubs_are_reported_and_nothing_of_theirs_is_touched() {
    let cluster = cluster();
    for name in ["broken", "longer", "copied"] {
        make(&cluster, name, 200_000);
    }
    let contents = sum(&cluster, "copied");
    let id = file_id(&stub(&cluster, "broken"));
    let open = |name| fs::OpenOptions::new().write(true).open(stub(&cluster, name)).unwrap();
    open("broken").write_all_at(b"oops", 40).unwrap();
    open("longer").write_all_at(b"more", 64).unwrap();
    fs::copy(stub(&cluster, "copied"), stub(&cluster, "copy")).unwrap();
    let before = objects(&cluster, "").len();
    let report = fsck(&cluster, &["--delete-orphans"], 4);
    expect(
        &report,
        &["damaged", "broken", "longer", "68 bytes", "shared", "copied", "copy", "name the same data"],
    );
    expect(&report, &["perhaps the data of", &id, "may be among them"]);
    assert_eq!(objects(&cluster, "").len(), before);
    assert_eq!(sum(&cluster, "copied"), contents);
    // The damaged ones go: their data can be had back.
    fs::remove_file(stub(&cluster, "broken")).unwrap();
    fs::remove_file(stub(&cluster, "longer")).unwrap();
    fs::remove_file(stub(&cluster, "copy")).unwrap();
    expect(&fsck(&cluster, &["--repair"], 1), &["orphan"]);
    assert_eq!(lost_and_found(&cluster).len(), 2);
    fsck(&cluster, &[], 0);
}

#[test]
fn a_lost_disk_is_told_file_by_file() {
    let mut cluster = cluster();
    make(&cluster, "whole", 1000);
    make(&cluster, "f", 400_000);
    let _ = cluster.shell("sync $NS/f");
    cluster.kill_server(1);
    for object in objects(&cluster, "server-1") {
        fs::remove_file(object).unwrap();
    }
    cluster.restart_server(1);
    let report = fsck(&cluster, &[], 4);
    expect(&report, &["incomplete", "400000", "nothing of stripe"]);
    expect(&fsck(&cluster, &["--repair"], 1), &["incomplete", "mended"]);
    fsck(&cluster, &[], 0);
    // Where the lost stripes ended the file it is shorter; else they are holes in it.
    let size: u64 = cluster.shell("cat $NS/f | wc -c").trim().parse().unwrap();
    assert!((1..=400_000).contains(&size), "{size}");
}

#[test]
fn the_file_of_a_killed_writer_is_sealed_again() {
    let cluster = cluster();
    let mut writer = Writer::start(&cluster, "f");
    assert_eq!(writer.ask("write z"), "done");
    fsck(&cluster, &["--repair"], 0);
    writer.kill();
    expect(&fsck(&cluster, &[], 4), &["unsealed"]);
    expect(&fsck(&cluster, &["--repair"], 1), &["unsealed", "200000 bytes"]);
    fsck(&cluster, &[], 0);
    assert_eq!(cluster.shell("stat -c %s $NS/f").trim(), "200000");
}

#[test]
fn a_record_that_says_less_than_the_servers_have_is_mended() {
    let cluster = cluster();
    make(&cluster, "f", 100);
    let before = fs::read(stub(&cluster, "f")).unwrap();
    make(&cluster, "f", 300_000);
    fs::write(stub(&cluster, "f"), before).unwrap();
    assert_eq!(cluster.shell("stat -c %s $NS/f").trim(), "100");
    expect(&fsck(&cluster, &[], 4), &["contradiction", "it says 100 bytes"]);
    expect(&fsck(&cluster, &["--repair"], 1), &["mended"]);
    assert_eq!(cluster.shell("stat -c %s $NS/f").trim(), "300000");
    fsck(&cluster, &[], 0);
}

//= semantics.md#S22 type=test
#[test]
fn with_a_server_away_the_rest_is_checked_and_no_orphan_is_touched() {
    let mut cluster = cluster();
    make(&cluster, "f", 400_000);
    make(&cluster, "gone", 400_000);
    fs::remove_file(stub(&cluster, "gone")).unwrap();
    cluster.kill_server(1);
    let before = objects(&cluster, "").len();
    let report = fsck(&cluster, &["--repair", "--delete-orphans"], 12);
    expect(&report, &["not looked at: server", "orphan", "not everything could be looked at"]);
    assert_eq!(objects(&cluster, "").len(), before);
}
