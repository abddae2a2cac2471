//! Mounts as such: few descriptors, damaged stubs, many mapped pages, lost locks, requests over rings.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Agent, Door, Mount, Settings, World, built, finish, flags, have, output_of, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server gives up whoever lets others wait for longer.
const PATIENCE: &str = "revoke_timeout_ms = 500";
/// Makes the kernel take requests over rings.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether mounts can be tested; says so if not.
fn can_mount(test: &str) -> bool {
    let can = World::can_mount();
    if !can {
        skip(test, "this build cannot mount");
    }
    can
}

/// A third mount of a world, with options. It must go before the world.
struct Third<'a> {
    world: &'a World,
    mount: Mount,
}

impl<'a> Third<'a> {
    fn start(world: &'a World, options: &str) -> Third<'a> {
        let folder = world.mount_point(2);
        let mut command = world.command(Door::Plain, &built("ccpfs"));
        command.args(["mount", "--foreground", "-o", options, "--config"]).arg(world.config()).arg(&folder);
        Third { world, mount: Mount::start(command, &folder) }
    }

    fn folder(&self) -> PathBuf {
        self.mount.folder().join("work")
    }

    fn agent(&self) -> Agent {
        let tests = std::env::current_exe().unwrap();
        let program = tests.parent().and_then(Path::parent).unwrap().join("ccpfs-agent");
        let mut command = self.world.command(Door::Plain, &program);
        command.current_dir(self.folder());
        Agent::start("third mount", command)
    }

    fn script(&self, script: &str) -> String {
        let mut command = self.world.script(Door::Plain, script);
        output_of(command.current_dir(self.folder()))
    }

    /// The process that serves it.
    fn process(&self) -> i32 {
        let folder = self.mount.folder().to_string_lossy().into_owned();
        for entry in fs::read_dir("/proc").unwrap() {
            let path = entry.unwrap().path();
            let words = fs::read(path.join("cmdline")).unwrap_or_default();
            let mut words = words.split(|byte| *byte == 0);
            if words.clone().any(|word| word == b"--foreground")
                && words.any(|word| word == folder.as_bytes())
            {
                return path.file_name().unwrap().to_string_lossy().parse().unwrap();
            }
        }
        panic!("nobody serves {folder}");
    }
}

/// Sets how many descriptors a process may have.
fn limit(process: i32, descriptors: usize) {
    let most = descriptors as libc::rlim_t;
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: our own structure, and none to be filled.
    let set = unsafe { libc::prlimit(process, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

//= semantics.md#S23 type=test
#[test]
fn files_and_directories_need_no_descriptor_each() {
    let test = "files_and_directories_need_no_descriptor_each";
    if !can_mount(test) {
        return;
    }
    // SAFETY: no memory is involved.
    if unsafe { libc::geteuid() } != 0 {
        // A mount of root raises its limit by itself, and only root may lower that of another process for good.
        return skip(test, "only root can limit what root's mount may have");
    }
    let world = World::start(&Settings::default());
    let third = Third::start(&world, "io_uring=off");
    // Ordinary files, because those are made fast; the mount needs a descriptor for each name all the same.
    let work = world.namespace().join("work");
    fs::create_dir(work.join("stay")).unwrap();
    for number in 1..=400 {
        fs::create_dir(work.join(format!("d{number}"))).unwrap();
        fs::write(work.join(format!("f{number}")), format!("{number}\n")).unwrap();
    }
    let inside = third.agent();
    inside.name("chdir", "stay").unwrap();
    let open = inside.open("kept", flags::NEW).unwrap();
    let process = third.process();
    limit(process, 120);
    // Twice: what was forgotten is found again.
    for _ in 0..2 {
        let said = third.script("stat -c %F d* f* | sort | uniq -c | tr -s ' '; cat f* | sort -n | uniq | wc -l; ls -d d*/. | wc -l");
        assert_eq!(said, " 400 directory\n 400 regular file\n400\n400\n");
    }
    third.script("for n in $(seq 400); do mv f$n d$n/g; done; rm -r d*; ls | tr '\\n' ' '");
    // Whoever is in a directory, or has a file open, is not disturbed.
    assert_eq!(inside.write(open, b"here").unwrap(), 4);
    assert_eq!(inside.get("kept").unwrap(), b"here");
    let here = inside.readlink("/proc/self/cwd").unwrap();
    assert!(here.ends_with("/stay"), "{here}");
}

//= semantics.md#S21 type=test
#[test]
fn a_damaged_stub_is_seen_and_removed_but_not_opened() {
    if !can_mount("a_damaged_stub_is_seen_and_removed_but_not_opened") {
        return;
    }
    let world = World::start(&Settings::default());
    let (maker, agent) = (world.agent(Door::Preload), world.agent(Door::Mount(0)));
    for name in ["removed", "replaced", "kept"] {
        maker.put(name, &[7; 100_000]).unwrap();
        let stub = world.namespace().join("work").join(name);
        let mut bytes = fs::read(&stub).unwrap();
        bytes[20] ^= 1;
        fs::write(&stub, bytes).unwrap();
        assert_eq!(agent.open(name, flags::READ).unwrap_err().0, libc::EIO);
        assert_eq!(agent.truncate(name, 0).unwrap_err().0, libc::EIO);
        let seen = agent.stat(name).unwrap();
        assert_eq!((seen.mode & libc::S_IFMT, seen.nlink), (libc::S_IFREG, 1));
    }
    agent.put("new", b"new").unwrap();
    agent.rename("new", "replaced").unwrap();
    assert_eq!(agent.get("replaced").unwrap(), b"new");
    agent.unlink("removed").unwrap();
    agent.rename("kept", "moved").unwrap();
    assert_eq!(agent.readdir(".").unwrap(), ["moved", "replaced"]);
    let said = output_of(&mut world.script(Door::Mount(0), "rm moved; rm replaced; ls | wc -l"));
    assert_eq!(said, "0\n");
    let mut fsck = world.command(Door::Plain, &built("ccpfs"));
    let found = finish(fsck.args(["fsck", "--config"]).arg(world.config()));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(!found.status.success() && text.contains("orphan"), "{text}");
}

//= semantics.md#S23 type=test
#[test]
fn a_file_is_mapped_that_is_larger_than_all_windows_together() {
    if !can_mount("a_file_is_mapped_that_is_larger_than_all_windows_together") {
        return;
    }
    const WINDOWS: u64 = 4_300;
    const WINDOW: u64 = 1 << 20;
    let world = World::start(&Settings::default());
    let agent = world.agent(Door::Mount(0));
    let fd = agent.open("f", flags::NEW).unwrap();
    agent.ftruncate(fd, WINDOWS * WINDOW).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let map = agent.mmap(fd, both, libc::MAP_SHARED, 0, usize::try_from(WINDOWS * WINDOW).unwrap()).unwrap();
    for window in 0..WINDOWS {
        agent.store(map, window * WINDOW + window, &[u8::try_from(window % 251).unwrap() + 1]).unwrap();
    }
    // Those that had to make room were written back, and come again.
    let other = world.agent(Door::Mount(1));
    let fo = other.open("f", flags::READ).unwrap();
    for window in (0..WINDOWS).step_by(7) {
        let expected = [u8::try_from(window % 251).unwrap() + 1];
        assert_eq!(agent.load(map, window * WINDOW + window, 1).unwrap(), expected);
        assert_eq!(other.pread(fo, 1, window * WINDOW + window).unwrap(), expected);
    }
}

//= semantics.md#S12 type=test
#[test]
fn pages_whose_lock_was_lost_are_not_kept() {
    if !can_mount("pages_whose_lock_was_lost_are_not_kept") {
        return;
    }
    const PAGES: u64 = 64;
    let world = World::start(&Settings { server: PATIENCE, ..Settings::default() });
    let (agent, other) = (world.agent(Door::Mount(0)), world.agent(Door::Preload));
    agent.put("f", &vec![1; usize::try_from(PAGES).unwrap() * 4096]).unwrap();
    let fd = agent.open("f", flags::READ).unwrap();
    let map =
        agent.mmap(fd, libc::PROT_READ, libc::MAP_SHARED, 0, usize::try_from(PAGES).unwrap() * 4096).unwrap();
    let fo = other.open("f", flags::BOTH).unwrap();
    for round in 2..6_u8 {
        assert_eq!(agent.load(map, 0, 1).unwrap(), [round - 1]);
        world.mount(0).as_ref().unwrap().signal(libc::SIGSTOP);
        other.pwrite(fo, &vec![round; usize::try_from(PAGES).unwrap() * 4096], 0).unwrap();
        // It begins to look while the mount does not yet know that it has lost its locks.
        let looks: Vec<_> =
            (0..PAGES).map(|page| agent.queue(&format!("load {map} {} 1", page * 4096), &[])).collect();
        world.mount(0).as_ref().unwrap().signal(libc::SIGCONT);
        for look in looks {
            let _ = look.wait();
        }
        // A call that comes after all of them finds out, and from then on nothing is old.
        let _ = agent.pread(fd, 1, 0);
        other.pwrite(fo, &vec![round; usize::try_from(PAGES).unwrap() * 4096], 0).unwrap();
        for page in 0..PAGES {
            assert_eq!(agent.load(map, page * 4096, 1).unwrap(), [round], "page {page}");
        }
    }
}

/// The kernel takes requests over rings as long as it lives.
struct Switched {
    before: String,
}

impl Switched {
    /// `None`, and says so, where the kernel has no such switch or it cannot be turned.
    fn on(test: &str) -> Option<Switched> {
        let before = match fs::read_to_string(SWITCH) {
            Ok(before) => before.trim().to_owned(),
            Err(error) => {
                skip(test, &format!("{SWITCH}: {error}"));
                return None;
            }
        };
        if let Err(error) = fs::write(SWITCH, "1") {
            skip(test, &format!("{SWITCH} cannot be turned on: {error}"));
            return None;
        }
        Some(Switched { before })
    }
}

impl Drop for Switched {
    fn drop(&mut self) {
        if let Err(error) = fs::write(SWITCH, &self.before) {
            eprintln!("{SWITCH} stays on: {error}");
        }
    }
}

#[test]
fn a_mount_works_over_rings() {
    let test = "a_mount_works_over_rings";
    if !can_mount(test) {
        return;
    }
    let Some(_switched) = Switched::on(test) else { return };
    let world = World::start(&Settings::default());
    let mut third = Third::start(&world, "io_uring=on");
    let said = third.script(
        "mkdir -p a/b; seq 1 100000 > a/b/f; cp a/b/f a/g; cmp a/b/f a/g; sort -rn a/g -o a/g; head -n 1 a/g
        tar cf t.tar a; rm -r a; tar xf t.tar; md5sum < a/b/f; ln -s g a/l; ls a | tr '\\n' ' '
        dd if=/dev/zero of=big bs=3M count=9 status=none; stat -c %s big; truncate -s 5 big; wc -c < big",
    );
    let sum = output_of(Command::new("bash").args(["-c", "seq 1 100000 | md5sum"]));
    assert_eq!(said, format!("100000\n{sum}b g l 28311552\n5\n"));
    if have(test, "git") {
        let said = third.script(
            "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
            git init -q r; cd r; for n in $(seq 50); do seq $n > f$n; done; git add .; git commit -qm all
            cd ..; git clone -q --no-local r c; git -C c fsck --strict --no-progress; ls c | wc -l",
        );
        assert_eq!(said, "50\n");
    }
    let (agent, another) = (third.agent(), third.agent());
    let other = world.agent(Door::Preload);
    let fd = agent.open("f", flags::NEW).unwrap();
    let fd2 = another.open("f", flags::BOTH).unwrap();
    let fo = other.open("f", flags::BOTH).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    for round in 0..30_u64 {
        agent.pwrite(fd, &[b'a'; 3_000], round * 9_000).unwrap();
        another.pwrite(fd2, &[b'b'; 3_000], round * 9_000 + 3_000).unwrap();
        other.pwrite(fo, &[b'o'; 3_000], round * 9_000 + 6_000).unwrap();
        assert_eq!(agent.fstat(fd).unwrap().size, (round + 1) * 9_000);
        assert_eq!(another.pread(fd2, 2, round * 9_000 + 5_999).unwrap(), b"bo");
    }
    let map = agent.mmap(fd, both, libc::MAP_SHARED, 0, 270_000).unwrap();
    agent.store(map, 100_000, b"stored").unwrap();
    assert_eq!(other.pread(fo, 6, 100_000).unwrap(), b"stored");
    other.pwrite(fo, b"written", 200_000).unwrap();
    assert_eq!(agent.load(map, 200_000, 7).unwrap(), b"written");
    agent.lock("setlk", fd, libc::F_WRLCK, 0, 10).unwrap();
    assert_eq!(other.lock("setlk", fo, libc::F_WRLCK, 0, 10).unwrap_err().0, libc::EAGAIN);
    agent.fsync(fd).unwrap();
    // Its end, when nobody expects it: programs get an error, and what was synced is there.
    let waits = agent.begin(&format!("fsync {fd}"), &[]);
    third.mount.kill();
    let _ = waits.wait_or_death();
    let gone = agent.pread(fd, 1, 0).unwrap_err().0;
    // Over rings the kernel has several words for it, by what it is just about.
    assert!(matches!(gone, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED), "{gone}");
    assert_eq!(other.pread(fo, 6, 100_000).unwrap(), b"stored");
    drop((agent, another));
    drop(third);
    // Another one in its place.
    let third = Third::start(&world, "io_uring=on");
    assert_eq!(third.script("wc -c < f"), "270000\n");
}
