//! What is kept and what is said when programs are killed, mounts end, servers lose power and devices are full.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Agent, Door, Random, Settings, World, flags, skip};
use std::path::Path;

/// Makes a test of a function for each door: the mount and the preload library.
macro_rules! each_door {
    ($($scenario:ident),* $(,)?) => { $(
        mod $scenario {
            use ccpfs_semantics::Door;

            #[test]
            fn on_a_mount() {
                if super::can_mount(stringify!($scenario)) {
                    super::$scenario(Door::Mount(0));
                }
            }

            #[test]
            fn under_the_preload_library() {
                super::$scenario(Door::Preload);
            }
        }
    )* };
}

each_door! {
    a_power_cut_keeps_every_byte_that_was_synced,
    a_power_cut_keeps_what_synchronous_writes_wrote,
    syncs_that_a_power_cut_belies_are_noticed,
    a_full_device_is_reported_and_loses_nothing_when_there_is_space_again,
    a_full_device_is_reported_by_close,
    a_killed_program_loses_only_what_it_had_not_synced,
    a_killed_program_holds_nobody_up,
    a_server_that_comes_back_has_what_was_synced,
}

/// Whether mounts can be tested; says so if not.
fn can_mount(test: &str) -> bool {
    let can = World::can_mount();
    if !can {
        skip(test, "this build cannot mount");
    }
    can
}

/// A door whose client has nothing to do with that of `door`.
fn another(door: Door) -> Door {
    match door {
        Door::Mount(0) => Door::Mount(1),
        Door::Plain | Door::Mount(_) | Door::Preload => Door::Preload,
    }
}

/// A file, and which of its bytes must be there after a power cut: `None` where either may be.
struct Known {
    name: String,
    bytes: Vec<Option<u8>>,
}

/// What is broken in a world, to show that the tests of power cuts notice it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The devices of the servers say that they synced and did not.
    Devices,
    /// Programs believe that they synced and did not.
    Programs,
}

/// Whether a file is as a power cut may leave it.
fn check(seen: &[u8], known: &Known) -> Result<(), String> {
    for (at, expected) in known.bytes.iter().enumerate() {
        let found = seen.get(at).copied();
        if expected.is_some() && *expected != found {
            let (name, length) = (&known.name, seen.len());
            return Err(format!("{name}: byte {at} of {length} is {found:?} instead of {expected:?}"));
        }
    }
    Ok(())
}

/// Writes and syncs here and there, cuts the power, and looks whether something is lost.
fn cut_while_writing(door: Door, seed: u64, broken: Broken) -> Result<(), String> {
    let mut world = World::start_inside(&Settings::default());
    if broken == Broken::Devices {
        world.power().swallow_syncs();
    }
    let agent = world.agent(door);
    let mut random = Random::new(seed);
    let files: Vec<Known> = (0..4).map(|number| write_some(&agent, number, &mut random, broken)).collect();
    world.power().cut();
    let reader = world.agent(another(door));
    for file in &files {
        let seen = reader.get(&file.name).map_err(|error| format!("{}: {error:?}", file.name))?;
        check(&seen, file)?;
    }
    Ok(())
}

//= semantics.md#S8 type=test
fn a_power_cut_keeps_every_byte_that_was_synced(door: Door) {
    for seed in 0..3 {
        assert_eq!(cut_while_writing(door, seed, Broken::Nothing), Ok(()), "seed {seed}");
    }
}

fn syncs_that_a_power_cut_belies_are_noticed(door: Door) {
    for broken in [Broken::Devices, Broken::Programs] {
        assert!(cut_while_writing(door, 0, broken).is_err(), "{broken:?} are broken, and nothing is lost");
        let lost = cut_after_synchronous_writes(door, broken);
        assert!(lost.is_err(), "{broken:?} are broken, and no synchronous write is lost");
    }
}

/// Writes and syncs here and there.
fn write_some(agent: &Agent, number: u64, random: &mut Random, broken: Broken) -> Known {
    let name = format!("f{number}");
    let fd = agent.open(&name, flags::NEW).unwrap();
    let mut now: Vec<u8> = Vec::new();
    let mut known: Vec<Option<u8>> = Vec::new();
    for _ in 0..60 {
        match random.below(10) {
            0 => {
                let length = usize::try_from(random.below(300_000)).unwrap();
                agent.ftruncate(fd, length as u64).unwrap();
                // Until the next sync a cut or grown part may be there or not.
                let start = length.min(now.len());
                known.iter_mut().skip(start).for_each(|byte| *byte = None);
                known.truncate(now.len().min(known.len()));
                now.resize(length, 0);
            }
            1 | 2 => {
                match (broken, random.chance(1, 2)) {
                    (Broken::Programs, _) => {}
                    (Broken::Nothing | Broken::Devices, true) => agent.fsync(fd).unwrap(),
                    (Broken::Nothing | Broken::Devices, false) => agent.fdatasync(fd).unwrap(),
                }
                known = now.iter().copied().map(Some).collect();
            }
            _ => {
                let length = usize::try_from(1 + random.below(50_000)).unwrap();
                let (at, bytes) = (usize::try_from(random.below(200_000)).unwrap(), random.bytes(length));
                agent.pwrite(fd, &bytes, at as u64).unwrap();
                if now.len() < at + length {
                    now.resize(at + length, 0);
                }
                now[at..at + length].copy_from_slice(&bytes);
                known.iter_mut().skip(at).take(length).for_each(|byte| *byte = None);
            }
        }
    }
    Known { name, bytes: known }
}

/// Writes through descriptors that sync at each write, cuts the power, and looks whether something is lost.
fn cut_after_synchronous_writes(door: Door, broken: Broken) -> Result<(), String> {
    let mut world = World::start_inside(&Settings::default());
    if broken == Broken::Devices {
        world.power().swallow_syncs();
    }
    let agent = world.agent(door);
    let mut random = Random::new(1);
    let mut expected = Vec::new();
    for (name, flag) in [("sync", libc::O_SYNC), ("dsync", libc::O_DSYNC)] {
        let flag = if broken == Broken::Programs { 0 } else { flag };
        let fd = agent.open(name, flags::APPEND | flag).unwrap();
        let bytes = random.bytes(200_000);
        for part in bytes.chunks(30_000) {
            agent.write(fd, part).unwrap();
        }
        expected.push((name, bytes));
    }
    world.power().cut();
    let reader = world.agent(another(door));
    for (name, bytes) in expected {
        let seen = reader.get(name).map_err(|error| format!("{name}: {error:?}"))?;
        if seen != bytes {
            return Err(format!("{name}: {} bytes are there, not all as written", seen.len()));
        }
    }
    Ok(())
}

//= semantics.md#S8 type=test
fn a_power_cut_keeps_what_synchronous_writes_wrote(door: Door) {
    assert_eq!(cut_after_synchronous_writes(door, Broken::Nothing), Ok(()));
}

/// Room on each of the two devices.
const ROOM: u64 = 400_000;

//= semantics.md#S12 type=test
fn a_full_device_is_reported_and_loses_nothing_when_there_is_space_again(door: Door) {
    let mut world = World::start_inside(&Settings::default());
    let agent = world.agent(door);
    let fd = agent.open("f", flags::NEW).unwrap();
    agent.pwrite(fd, b"reached", 0).unwrap();
    agent.fsync(fd).unwrap();
    world.power().limit(ROOM);
    let bytes = Random::new(1).bytes(2_000_000);
    let mut accepted = 0;
    let mut told = None;
    for part in bytes.chunks(50_000) {
        match agent.pwrite(fd, part, accepted) {
            Ok(length) => accepted += u64::try_from(length).unwrap(),
            Err(error) => {
                told = Some(error.0);
                break;
            }
        }
    }
    let told = told.or_else(|| agent.fsync(fd).err().map(|error| error.0));
    assert_eq!(told, Some(libc::ENOSPC), "the loss is told");
    world.power().unlimit();
    // Each open file reports an error once; then the data that were kept are stored.
    if agent.fsync(fd).is_err() {
        agent.fsync(fd).unwrap();
    }
    world.power().cut();
    let seen = world.agent(another(door)).get("f").unwrap();
    let accepted = usize::try_from(accepted).unwrap();
    assert!(accepted >= 50_000 && seen[..accepted] == bytes[..accepted], "{accepted} bytes were accepted");
}

//= semantics.md#S9 type=test
//= semantics.md#S12 type=test
fn a_full_device_is_reported_by_close(door: Door) {
    let mut world = World::start_inside(&Settings::default());
    let agent = world.agent(door);
    let fd = agent.open("f", flags::NEW).unwrap();
    agent.pwrite(fd, b"reached", 0).unwrap();
    agent.fsync(fd).unwrap();
    world.power().limit(1_000);
    let written = agent.pwrite(fd, &vec![1; 1_000_000], 0);
    let told = written.err().or_else(|| agent.close(fd).err());
    assert_eq!(told.map(|error| error.0), Some(libc::ENOSPC));
    // Other files are not concerned.
    world.power().unlimit();
    agent.put("g", b"well").unwrap();
    assert_eq!(world.agent(another(door)).get("g").unwrap(), b"well");
    agent.unlink("f").unwrap();
}

//= semantics.md#S10 type=test
fn a_killed_program_loses_only_what_it_had_not_synced(door: Door) {
    let world = World::start(&Settings::default());
    let (agent, other) = (world.agent(door), world.agent(another(door)));
    let fd = agent.open("f", flags::NEW).unwrap();
    agent.pwrite(fd, &vec![1; 300_000], 0).unwrap();
    agent.fsync(fd).unwrap();
    agent.pwrite(fd, &vec![2; 100_000], 100_000).unwrap();
    agent.pwrite(fd, &vec![3; 100_000], 400_000).unwrap();
    agent.kill();
    let seen = other.get("f").unwrap();
    assert!(seen.len() >= 300_000);
    let allowed = |at: usize| -> &[u8] {
        match at {
            100_000..200_000 => &[1, 2],
            0..300_000 => &[1],
            300_000..400_000 => &[0],
            _ => &[0, 3],
        }
    };
    let wrong = seen.iter().enumerate().find(|(at, byte)| !allowed(*at).contains(byte));
    assert_eq!(wrong, None);
    if let Door::Mount(_) = door {
        // The mount has the data, not the program.
        assert!(seen.len() == 500_000 && seen[150_000] == 2 && seen[450_000] == 3);
    }
}

//= semantics.md#S10 type=test
fn a_killed_program_holds_nobody_up(door: Door) {
    let world = World::start(&Settings::default());
    let other = world.agent(another(door));
    for round in 0..10_u8 {
        let agent = world.agent(door);
        let fd = agent.open("f", flags::MAKE).unwrap();
        let writes: Vec<_> =
            (0..20).map(|n| agent.queue(&format!("pwrite {fd} {}", n * 5_000), &[round; 5_000])).collect();
        writes.into_iter().next().unwrap().wait().unwrap();
        agent.kill();
        other.put("f", &[round + 100; 120_000]).unwrap();
        assert_eq!(other.get("f").unwrap(), [round + 100; 120_000]);
    }
}

//= semantics.md#S11 type=test
fn a_server_that_comes_back_has_what_was_synced(door: Door) {
    let settings =
        Settings { client: "cache = \"256MiB\"\nconnect_timeout_ms = 20000", ..Settings::default() };
    let mut world = World::start(&settings);
    let agent = world.agent(door);
    let bytes = Random::new(5).bytes(700_000);
    let fd = agent.open("f", flags::NEW).unwrap();
    agent.pwrite(fd, &bytes, 0).unwrap();
    agent.fsync(fd).unwrap();
    world.kill_server(0);
    world.restart_server(0);
    let other = world.agent(another(door));
    assert!(other.get("f").unwrap() == bytes);
    // The one who had locks there goes on as well.
    assert!(agent.get("f").unwrap() == bytes);
    agent.put("g", &bytes).unwrap();
    assert!(other.get("g").unwrap() == bytes);
}

/// How long servers wait for a client: so long that one that runs answers however busy the machine is.
const PATIENCE: &str = "revoke_timeout_ms = 3000";

//= semantics.md#S2 type=test
//= semantics.md#S12 type=test
#[test]
fn a_stopped_client_is_passed_over_and_learns_it() {
    let settings = Settings { server: PATIENCE, ..Settings::default() };
    let world = World::start(&settings);
    let (agent, other) = (world.agent(Door::Preload), world.agent(Door::Preload));
    let fd = agent.open("f", flags::NEW).unwrap();
    agent.pwrite(fd, b"synced", 0).unwrap();
    agent.fsync(fd).unwrap();
    agent.pwrite(fd, b"CACHED", 0).unwrap();
    agent.signal(libc::SIGSTOP);
    let fo = other.open("f", flags::BOTH).unwrap();
    assert_eq!(other.pread(fo, 6, 0).unwrap(), b"synced");
    other.pwrite(fo, b"others", 0).unwrap();
    agent.signal(libc::SIGCONT);
    assert_eq!(agent.fsync(fd).unwrap_err().0, libc::EIO);
    assert_eq!(agent.pread(fd, 6, 0).unwrap(), b"others");
    agent.pwrite(fd, b"again!", 0).unwrap();
    assert_eq!(other.pread(fo, 6, 0).unwrap(), b"again!");
}

//= semantics.md#S12 type=test
#[test]
fn a_stopped_mount_is_passed_over_and_learns_it() {
    if !can_mount("a_stopped_mount_is_passed_over_and_learns_it") {
        return;
    }
    let settings = Settings { server: PATIENCE, ..Settings::default() };
    let world = World::start(&settings);
    let (agent, other) = (world.agent(Door::Mount(0)), world.agent(Door::Preload));
    agent.put("f", &[1; 20_000]).unwrap();
    let fd = agent.open("f", flags::BOTH).unwrap();
    agent.fsync(fd).unwrap();
    let map = agent.mmap(fd, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, 0, 20_000).unwrap();
    assert_eq!(agent.load(map, 10_000, 4).unwrap(), [1; 4]);
    agent.store(map, 15_000, &[9; 4]).unwrap();
    agent.pwrite(fd, &[2; 4], 0).unwrap();
    world.mount(0).as_ref().unwrap().signal(libc::SIGSTOP);
    let fo = other.open("f", flags::BOTH).unwrap();
    assert_eq!(other.pread(fo, 4, 0).unwrap(), [1; 4], "what was in the stopped client's cache only is lost");
    other.pwrite(fo, &[3; 20_000], 0).unwrap();
    world.mount(0).as_ref().unwrap().signal(libc::SIGCONT);
    assert_eq!(agent.fsync(fd).unwrap_err().0, libc::EIO);
    assert_eq!(agent.pread(fd, 4, 0).unwrap(), [3; 4]);
    assert_eq!(agent.load(map, 10_000, 4).unwrap(), [3; 4], "old pages are gone");
    // Two things were lost, the page's and the write's; each is told once.
    if agent.pwrite(fd, &[4; 4], 0).is_err() {
        agent.pwrite(fd, &[4; 4], 0).unwrap();
    }
    assert_eq!(other.pread(fo, 4, 0).unwrap(), [4; 4]);
}

/// A world with a mount, and an agent on it that has written without syncing and is busy.
fn busy_mount(world: &World) -> (Agent, i64, Vec<u8>) {
    let agent = world.agent(Door::Mount(0));
    let fd = agent.open("f", flags::NEW).unwrap();
    let bytes = Random::new(9).bytes(3_000_000);
    let writes: Vec<_> = bytes
        .chunks(100_000)
        .zip(0_u64..)
        .map(|(part, n)| agent.queue(&format!("pwrite {fd} {}", n * 100_000), part))
        .collect();
    for write in writes {
        write.wait().unwrap();
    }
    (agent, fd, bytes)
}

#[test]
fn a_busy_mount_is_not_unmounted_and_then_flushes() {
    if !can_mount("a_busy_mount_is_not_unmounted_and_then_flushes") {
        return;
    }
    let world = World::start(&Settings::default());
    let (agent, _, bytes) = busy_mount(&world);
    let folder = world.mount_point(0);
    let busy = std::process::Command::new("umount").arg(&folder).output().unwrap();
    assert!(!busy.status.success() && String::from_utf8_lossy(&busy.stderr).contains("busy"), "{busy:?}");
    agent.kill();
    assert!(world.mount(0).as_mut().unwrap().unmount().success());
    assert!(world.agent(Door::Preload).get("f").unwrap() == bytes);
}

#[test]
fn a_mount_that_is_told_to_end_under_load_flushes_everything() {
    if !can_mount("a_mount_that_is_told_to_end_under_load_flushes_everything") {
        return;
    }
    let world = World::start(&Settings::default());
    let (agent, fd, bytes) = busy_mount(&world);
    let more: Vec<_> = (0..200)
        .map(|n| agent.queue(&format!("pwrite {fd} {}", 3_000_000 + n * 10_000), &[7; 10_000]))
        .collect();
    assert!(world.mount(0).as_mut().unwrap().terminate().success());
    let done = more.into_iter().map(ccpfs_semantics::Pending::wait).take_while(Result::is_ok).count();
    let seen = world.agent(Door::Preload).get("f").unwrap();
    assert!(seen[..3_000_000] == bytes);
    assert!(
        seen.len() >= 3_000_000 + done * 10_000,
        "{done} writes were acknowledged, {} bytes are there",
        seen.len()
    );
    assert!(seen[3_000_000..3_000_000 + done * 10_000].iter().all(|byte| *byte == 7));
}

//= semantics.md#S10 type=test
#[test]
fn a_killed_mount_says_so_and_can_be_made_again() {
    if !can_mount("a_killed_mount_says_so_and_can_be_made_again") {
        return;
    }
    let world = World::start(&Settings::default());
    let (agent, fd, bytes) = busy_mount(&world);
    agent.fsync(fd).unwrap();
    world.mount(0).as_mut().unwrap().kill();
    // What the kernel was about to hand over at that moment is cancelled.
    let cancelled = [libc::ECANCELED, libc::ECONNABORTED];
    let first =
        (0..100).map(|_| agent.pread(fd, 1, 0).unwrap_err().0).find(|errno| !cancelled.contains(errno));
    assert_eq!(first, Some(libc::ENOTCONN));
    assert_eq!(agent.stat(".").unwrap_err().0, libc::ENOTCONN);
    let folder = world.mount_point(0);
    assert!(std::fs::metadata(&folder).is_err());
    agent.kill();
    let ccpfs = ccpfs_semantics::built("ccpfs");
    let status = std::process::Command::new(ccpfs).arg("umount").arg(&folder).status().unwrap();
    assert!(status.success() && Path::new(&folder).is_dir());
    drop(world.mount(0).take());
    let again = world.agent(Door::Mount(0));
    assert!(again.get("f").unwrap() == bytes);
}
