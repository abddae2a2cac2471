//! Many clients on the same few names at once: they open, write, cut, look, set times, link, rename and remove. Whatever the schedule, sizes,
//! times and contents are those of somebody's call, and in the end nothing is left that has no name.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod names_world;

use ccpfs_client::{Client, Contents, File, OpenOptions, StubState};
use names_world::{RW, World, here, name};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Every write and every cut ends at a multiple of this.
const PART: u64 = 3000;
const CLIENTS: u64 = 5;
const ROUNDS: u64 = 60;
/// A time that nobody has but by hand; seconds since 1970.
const BY_HAND: i64 = 1_000_000;

/// Numbers that look random, the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// What is done at this moment may find no file, or one that goes.
fn there<T>(result: Result<T, ccpfs_client::FsError>, what: &str) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) if error.to_errno() == libc::ENOENT => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

fn check_attributes(found: &libc::stat, began: i64, what: &str) {
    assert_eq!(found.st_size.cast_unsigned() % PART, 0, "{what}: a size that nobody has made");
    let by_hand = (BY_HAND..BY_HAND + 100_000).contains(&found.st_mtime);
    assert!(by_hand || found.st_mtime >= began, "{what}: a time of nobody: {}", found.st_mtime);
}

fn check_contents(file: &File, what: &str) {
    let mut bytes = vec![0; 40 * usize::try_from(PART).unwrap()];
    let Some(count) = there(file.read_at(&mut bytes, 0), what) else { return };
    assert_eq!(count as u64 % PART, 0, "{what}: a part of a write");
    for part in bytes[..count].chunks(usize::try_from(PART).unwrap()) {
        assert!(part.iter().all(|byte| *byte == part[0]), "{what}: two writes in one");
    }
}

/// Names that all clients use alike.
fn share(world: &World, client: &Client, number: u64, removing: &Mutex<()>, began: i64) {
    let mut dice = Dice(number);
    let path = |dice: &mut Dice| world.path(&format!("shared-{}", dice.roll(3)));
    for round in 0..ROUNDS {
        let what = format!("client {number}, round {round}");
        let (one, two) = (path(&mut dice), path(&mut dice));
        match dice.roll(8) {
            0..=2 => {
                let file = client.open(&one, &OpenOptions { create: true, ..RW }).unwrap();
                let byte = u8::try_from(number * 40 + dice.roll(40)).unwrap();
                if dice.roll(4) == 0 {
                    file.truncate(PART * dice.roll(5)).unwrap();
                } else {
                    file.write_at(&vec![byte; usize::try_from(PART).unwrap()], PART * dice.roll(20)).unwrap();
                }
                check_attributes(&file.stat().unwrap(), began, &what);
                file.close().unwrap();
            }
            3 => {
                let reading = OpenOptions { read: true, ..OpenOptions::default() };
                if let Some(file) = there(client.open(&one, &reading), &what) {
                    check_contents(&file, &what);
                    file.close().unwrap();
                }
            }
            4 | 5 => {
                if let Some(found) = there(client.stat(&one, true), &what) {
                    check_attributes(&found, began, &what);
                }
            }
            // Who removes one name at the same time as somebody else may leave data to fsck (S16).
            6 => {
                let _turn = removing.lock().unwrap();
                there(client.unlink(&one), &what);
            }
            _ => {
                let _turn = removing.lock().unwrap();
                there(client.rename(&one, &two), &what);
            }
        }
    }
}

/// A file that one client changes, and the others open and look at.
fn own(world: &World, client: &Client, number: u64, began: i64) {
    let mut dice = Dice(number + 1000);
    let own = |owner: u64| world.path(&format!("own-{owner}"));
    let mut size = 0;
    for round in 0..ROUNDS {
        let what = format!("owner {number}, round {round}");
        let other = own(dice.roll(CLIENTS));
        if let Some(file) = there(client.open(&other, &RW), &what) {
            check_attributes(&file.stat().unwrap(), began, &what);
            file.close().unwrap();
        }
        let found = |path: &PathBuf| client.stat(path, true).unwrap();
        let mine = own(number);
        let file = client.open(&mine, &OpenOptions { create: true, ..RW }).unwrap();
        let time = BY_HAND + i64::try_from(round).unwrap();
        let by_hand = [libc::timespec { tv_sec: time, tv_nsec: 5 }; 2];
        match dice.roll(4) {
            0 => {
                file.write_at(&vec![1; usize::try_from(PART).unwrap()], size).unwrap();
                size += PART;
                assert!(file.stat().unwrap().st_mtime >= began, "{what}: written, and without a time");
            }
            1 => {
                size = PART * dice.roll(10);
                file.truncate(size).unwrap();
                assert!(file.stat().unwrap().st_mtime >= began, "{what}: cut, and without a time");
            }
            2 => {
                client.set_times(file.stub(), &by_hand).unwrap();
                let now = file.stat().unwrap();
                assert_eq!(
                    (now.st_mtime, now.st_mtime_nsec),
                    (time, 5),
                    "{what}: a time set by hand is lost"
                );
            }
            _ => {
                file.write_at(&vec![2; usize::try_from(PART).unwrap()], 0).unwrap();
                size = size.max(PART);
                file.close().unwrap();
                let now = found(&mine);
                assert_eq!(now.st_size.cast_unsigned(), size, "{what}: closed, and of another size");
                assert!(now.st_mtime >= began, "{what}: closed, and without a time");
                let named = std::fs::File::open(&mine).unwrap();
                client.set_times(std::os::fd::AsFd::as_fd(&named), &by_hand).unwrap();
                let now = found(&mine);
                assert_eq!(
                    (now.st_mtime, now.st_mtime_nsec),
                    (time, 5),
                    "{what}: a time set by hand is lost"
                );
                continue;
            }
        }
        assert_eq!(file.stat().unwrap().st_size.cast_unsigned(), size, "{what}: another size");
        file.close().unwrap();
        assert_eq!(found(&mine).st_size.cast_unsigned(), size, "{what}: closed, and of another size");
    }
}

/// Nobody has anything open: every stub says what there is.
fn check_rest(client: &Client, path: &Path) -> bool {
    let StubState::Sealed(Contents { size, virgin, .. }) = client.stub(path).unwrap().state else {
        panic!("{} is not sealed", path.display());
    };
    let file = client.open(path, &OpenOptions { read: true, ..OpenOptions::default() }).unwrap();
    let mut bytes = vec![0; 200 * usize::try_from(PART).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap() as u64, size, "{}", path.display());
    file.close().unwrap();
    !virgin
}

//= semantics.md#S3 type=test
#[test]
fn clients_that_use_the_same_names_at_once_see_nothing_that_nobody_has_done_and_leave_nothing() {
    let world = World::start();
    let clients: Vec<Client> = (0..CLIENTS).map(|_| world.client()).collect();
    let removing = Mutex::new(());
    // One tick of the clock and a moment: of times only seconds are compared.
    let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let began = i64::try_from(began).unwrap() - 1;
    let (world_of_all, removing) = (&world, &removing);
    std::thread::scope(|scope| {
        for (client, number) in clients.iter().zip(0..) {
            scope.spawn(move || share(world_of_all, client, number, removing, began));
            scope.spawn(move || own(world_of_all, client, number, began));
        }
    });
    let last = world.client();
    let names = std::fs::read_dir(world.path("")).unwrap().map(|entry| entry.unwrap().path());
    let names: Vec<PathBuf> = names.filter(|path| !path.ends_with(".ccpfs")).collect();
    let known = names.iter().filter(|path| check_rest(&last, path)).count();
    assert_eq!(clients[0].orphans().unwrap(), []);
    for path in &names {
        last.unlink_at(here(), &name(path)).unwrap();
    }
    assert!(known > 0, "somebody has written");
    assert_eq!(world.objects(), 0, "data without a name are left");
}
