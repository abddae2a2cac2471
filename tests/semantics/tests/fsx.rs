//! Random operations on one file: two agents in lock-step against an array of bytes, and the exerciser `fsx`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Agent, Door, Random, Settings, Stage, World, flags, is_long, output_of, skip, tool};
use std::fmt::Write as _;

/// The file never grows beyond this.
const LENGTH_MAX: u64 = 400_000;
/// The longest read or write.
const PIECE_MAX: u64 = 70_000;
/// Operations that are shown when something is wrong.
const SHOWN: usize = 25;

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read { at: u64, length: u64 },
    Write { at: u64, length: u64 },
    Append { length: u64 },
    Truncate { length: u64 },
    Size,
    Data { at: u64 },
    Load { at: u64, length: u64 },
    Store { at: u64, length: u64 },
    Allocate { at: u64, length: u64, keep: bool },
    Punch { at: u64, length: u64 },
    Copy { from: u64, to: u64, length: u64 },
    Sync,
    Reopen,
}

/// One of the two who take turns.
struct Player<'a> {
    agent: &'a Agent,
    fd: i64,
    appender: i64,
    map: Option<i64>,
    may_map: bool,
}

impl<'a> Player<'a> {
    fn new(agent: &'a Agent, may_map: bool) -> Player<'a> {
        let mut player = Player { agent, fd: -1, appender: -1, map: None, may_map };
        player.open();
        player
    }

    fn open(&mut self) {
        self.fd = self.agent.open("fsx", flags::MAKE).unwrap();
        self.appender = self.agent.open("fsx", flags::APPEND).unwrap();
        if self.may_map {
            let length = usize::try_from(LENGTH_MAX).unwrap();
            let both = libc::PROT_READ | libc::PROT_WRITE;
            self.map = Some(self.agent.mmap(self.fd, both, libc::MAP_SHARED, 0, length).unwrap());
        }
    }

    fn close(&mut self) {
        if let Some(map) = self.map.take() {
            self.agent.munmap(map).unwrap();
        }
        self.agent.close(self.fd).unwrap();
        self.agent.close(self.appender).unwrap();
    }
}

/// Chooses the next operation.
fn choose(random: &mut Random, size: u64, may_map: bool) -> Operation {
    let at = random.below(size + size / 4 + 1).min(LENGTH_MAX - 1);
    let long = if random.chance(1, 8) { PIECE_MAX } else { 5_000 };
    let length = (1 + random.below(long)).min(LENGTH_MAX - at);
    let inside = random.below(size.max(1));
    let within = (1 + random.below(long)).min(size.saturating_sub(inside));
    match random.below(100) {
        0..30 => Operation::Read { at, length },
        30..58 => Operation::Write { at, length },
        58..64 => Operation::Append { length: length.min(LENGTH_MAX.saturating_sub(size)) },
        64..68 => Operation::Truncate { length: random.below(LENGTH_MAX) },
        68..74 => Operation::Size,
        74..77 => Operation::Data { at: inside },
        77..84 if may_map && within > 0 => Operation::Load { at: inside, length: within },
        84..91 if may_map && within > 0 => Operation::Store { at: inside, length: within },
        91..93 => Operation::Allocate { at, length, keep: random.chance(1, 2) },
        93..95 => Operation::Punch { at, length },
        95..97 if within > 0 => {
            let to = random.below(LENGTH_MAX - within);
            if to + within > inside && inside + within > to {
                return Operation::Size;
            }
            Operation::Copy { from: inside, to, length: within }
        }
        97 => Operation::Sync,
        98 => Operation::Reopen,
        _ => Operation::Size,
    }
}

/// The bytes that the file has.
struct Twin {
    bytes: Vec<u8>,
    /// Set when a door cannot punch holes.
    is_without_holes: bool,
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Twin {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.grow(index(at) + bytes.len());
        self.bytes[index(at)..][..bytes.len()].copy_from_slice(bytes);
    }

    fn grow(&mut self, length: usize) {
        if self.bytes.len() < length {
            self.bytes.resize(length, 0);
        }
    }

    fn read(&self, at: u64, length: u64) -> &[u8] {
        let end = index(at + length).min(self.bytes.len());
        &self.bytes[index(at).min(end)..end]
    }
}

/// Carries out an operation and compares; says what is wrong.
fn perform(
    player: &mut Player<'_>,
    twin: &mut Twin,
    operation: Operation,
    random: &mut Random,
) -> Result<(), String> {
    let agent = player.agent;
    let wrong = |error: ccpfs_semantics::Errno| format!("{error:?}");
    match operation {
        Operation::Read { at, length } => {
            let seen = agent.pread(player.fd, index(length), at).map_err(wrong)?;
            compare(&seen, twin.read(at, length), at)?;
        }
        Operation::Load { at, length } => {
            // A kernel that mounts ccPFS learns at each look how long a file is; a page fault is no look.
            agent.fstat(player.fd).map_err(wrong)?;
            let map = player.map.ok_or("no mapping")?;
            compare(&agent.load(map, at, index(length)).map_err(wrong)?, twin.read(at, length), at)?;
        }
        Operation::Write { at, length } => {
            let bytes = random.bytes(index(length));
            agent.pwrite(player.fd, &bytes, at).map_err(wrong)?;
            twin.put(at, &bytes);
        }
        Operation::Store { at, length } => {
            let bytes = random.bytes(index(length));
            agent.fstat(player.fd).map_err(wrong)?;
            agent.store(player.map.ok_or("no mapping")?, at, &bytes).map_err(wrong)?;
            twin.put(at, &bytes);
        }
        Operation::Append { length } => {
            let bytes = random.bytes(index(length));
            agent.write(player.appender, &bytes).map_err(wrong)?;
            twin.bytes.extend_from_slice(&bytes);
        }
        Operation::Truncate { length } => {
            agent.ftruncate(player.fd, length).map_err(wrong)?;
            twin.bytes.resize(index(length), 0);
        }
        Operation::Size => {
            let (size, expected) = (agent.fstat(player.fd).map_err(wrong)?.size, twin.bytes.len());
            if index(size) != expected {
                return Err(format!("the size is {size} and should be {expected}"));
            }
        }
        Operation::Data { at } => find_data(player, twin, at)?,
        Operation::Allocate { at, length, keep } => {
            let mode = if keep { libc::FALLOC_FL_KEEP_SIZE } else { 0 };
            agent.fallocate(player.fd, mode, at, length).map_err(wrong)?;
            if !keep {
                twin.grow(index(at + length));
            }
        }
        Operation::Punch { at, length } => punch(player, twin, at, length)?,
        Operation::Copy { from, to, length } => {
            // As for pages: the kernel copies no further than the size that it knows.
            agent.fstat(player.fd).map_err(wrong)?;
            let mut done = 0;
            while done < length {
                let (from, to) = ((player.fd, from + done), (player.fd, to + done));
                let copied = agent.copy_file_range(from, to, length - done).map_err(wrong)?;
                if copied <= 0 {
                    return Err(format!("{done} bytes are copied"));
                }
                done += copied.unsigned_abs();
            }
            let bytes = twin.read(from, length).to_vec();
            twin.put(to, &bytes);
        }
        Operation::Sync => agent.fsync(player.fd).map_err(wrong)?,
        Operation::Reopen => {
            player.close();
            player.open();
        }
    }
    Ok(())
}

fn compare(seen: &[u8], expected: &[u8], at: u64) -> Result<(), String> {
    if seen == expected {
        return Ok(());
    }
    let first = seen.iter().zip(expected).position(|(one, other)| one != other);
    let first = first.unwrap_or(seen.len().min(expected.len()));
    let differ = seen.iter().zip(expected).filter(|(one, other)| one != other).count();
    Err(format!(
        "{} bytes instead of {}; {differ} differ, first at {}: {:?} instead of {:?}",
        seen.len(),
        expected.len(),
        at + u64::try_from(first).unwrap(),
        seen.get(first..(first + 4).min(seen.len())),
        expected.get(first..(first + 4).min(expected.len())),
    ))
}

/// What is called a hole must be zeros.
fn find_data(player: &Player<'_>, twin: &Twin, at: u64) -> Result<(), String> {
    let size = twin.bytes.len();
    let seek = |whence| player.agent.lseek(player.fd, i64::try_from(at).unwrap(), whence);
    let data = match seek(libc::SEEK_DATA) {
        Ok(data) => usize::try_from(data).unwrap(),
        Err(error) if error.0 == libc::ENXIO => size.max(index(at)),
        Err(error) => return Err(format!("{error:?}")),
    };
    let hole = match seek(libc::SEEK_HOLE) {
        Ok(hole) => usize::try_from(hole).unwrap(),
        Err(error) if error.0 == libc::ENXIO && index(at) >= size => size,
        Err(error) => return Err(format!("{error:?}")),
    };
    let zeros = twin.bytes.get(index(at)..data.min(size)).unwrap_or_default();
    match zeros.iter().position(|byte| *byte != 0) {
        Some(found) => Err(format!("data at {} are called a hole up to {data}", index(at) + found)),
        None if hole > size && index(at) < size => Err(format!("a hole at {hole}, beyond {size}")),
        None => Ok(()),
    }
}

fn punch(player: &Player<'_>, twin: &mut Twin, at: u64, length: u64) -> Result<(), String> {
    if twin.is_without_holes {
        return Ok(());
    }
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    match player.agent.fallocate(player.fd, mode, at, length) {
        Ok(()) => {
            let end = index(at + length).min(twin.bytes.len());
            let start = index(at).min(end);
            twin.bytes[start..end].fill(0);
            Ok(())
        }
        // A deviation that semantics.md lists.
        Err(error) if error.0 == libc::EOPNOTSUPP => {
            twin.is_without_holes = true;
            Ok(())
        }
        Err(error) => Err(format!("{error:?}")),
    }
}

/// Lets two agents take turns on one file.
fn play(stage: &Stage, seed: u64, turns: usize, maps: (bool, bool)) {
    let mut random = Random::new(seed);
    let mut twin = Twin { bytes: Vec::new(), is_without_holes: false };
    let mut players = [Player::new(&stage.a, maps.0), Player::new(&stage.b, maps.1)];
    let mut history: Vec<(usize, Operation)> = Vec::new();
    for turn in 0..turns {
        let who = index(random.below(2));
        let operation = choose(&mut random, twin.bytes.len() as u64, players[who].may_map);
        history.push((who, operation));
        if let Err(wrong) = perform(&mut players[who], &mut twin, operation, &mut random) {
            let mut text = String::new();
            for (who, operation) in &history[history.len().saturating_sub(SHOWN)..] {
                let _ = writeln!(text, "  {} {operation:?}", ["a", "b"][*who]);
            }
            panic!("seed {seed}, turn {turn}: {wrong}\nlast operations:\n{text}");
        }
    }
    for player in &players {
        compare(&player.agent.get("fsx").unwrap(), &twin.bytes, 0).unwrap();
    }
}

/// Turns of a game: many on two mounts, where the issue asks for them.
fn turns(many: bool) -> usize {
    if many || is_long() { 100_000 } else { 15_000 }
}

//= semantics.md#S2 type=test
//= semantics.md#S3 type=test
//= semantics.md#S5 type=test
//= semantics.md#S6 type=test
#[test]
fn two_mounts_in_lock_step_agree_with_an_array() {
    let doors = (Door::Mount(0), Door::Mount(1));
    Stage::play(doors, "lock-step on two mounts", |stage| play(stage, 1, turns(true), (true, true)));
}

#[test]
fn two_mounts_in_lock_step_without_mappings_agree_with_an_array() {
    let doors = (Door::Mount(0), Door::Mount(1));
    Stage::play(doors, "lock-step on two mounts", |stage| play(stage, 2, turns(false), (false, false)));
}

#[test]
fn a_mount_and_the_preload_library_in_lock_step_agree_with_an_array() {
    let doors = (Door::Mount(0), Door::Preload);
    Stage::play(doors, "lock-step on a mount and preload", |stage| {
        play(stage, 3, turns(false), (true, false))
    });
}

#[test]
fn two_programs_on_one_mount_in_lock_step_agree_with_an_array() {
    let doors = (Door::Mount(0), Door::Mount(0));
    Stage::play(doors, "lock-step on one mount", |stage| play(stage, 4, turns(false), (true, true)));
}

#[test]
fn two_preloaded_programs_in_lock_step_agree_with_an_array() {
    let doors = (Door::Preload, Door::Preload);
    Stage::play(doors, "lock-step of preloaded programs", |stage| {
        play(stage, 5, turns(false), (false, false))
    });
}

#[test]
fn the_local_file_system_in_lock_step_agrees_with_an_array() {
    let doors = (Door::Plain, Door::Plain);
    Stage::play(doors, "lock-step on a local file system", |stage| {
        play(stage, 6, turns(false), (true, true))
    });
}

/// What the exerciser shall do, and how often, but for mappings.
const CALLS: &str = "flen = 400000\n[opsize]\nmax = 70000\n[weights]\nread = 5\nwrite = 5\ntruncate = 1\n\
    close_open = 0.2\nfsync = 0.2\nfdatasync = 0.2\nposix_fallocate = 0.3\nsendfile = 1\nposix_fadvise = 0.2\n\
    copy_file_range = 1\n";

/// Runs the exerciser behind a door.
fn exercise(door: Door, configuration: &str) {
    let name = format!("fsx on {door:?}");
    let Some(fsx) = tool("fsx") else {
        skip(&name, "fsx is not installed: scripts/install-tools.sh");
        return;
    };
    if matches!(door, Door::Mount(_)) && !World::can_mount() {
        skip(&name, "this build cannot mount");
        return;
    }
    let world = World::start(&Settings::default());
    let settings = world.config().with_file_name("fsx.toml");
    std::fs::write(&settings, configuration).unwrap();
    let mut command = world.command(door, &fsx);
    command.args(["-N", "100000", "-S", "7", "-f"]).arg(&settings).arg("exercised");
    let said = output_of(&mut command);
    assert!(said.contains("All operations completed"), "{said}");
}

#[test]
fn the_exerciser_finds_nothing_on_a_mount() {
    exercise(Door::Mount(0), &format!("{CALLS}mapread = 2\nmapwrite = 2\ninvalidate = 0.2\n"));
}

#[test]
fn the_exerciser_finds_nothing_under_the_preload_library() {
    // Shared mappings are refused there (S19).
    exercise(Door::Preload, &format!("{CALLS}mapread = 0\nmapwrite = 0\n"));
}
