//! What a stub says of its file while nobody writes it, and that it never says so while somebody does.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod names_world;

use ccpfs_client::{Client, Contents, File, OpenOptions, StubState};
use ccpfs_types::Extent;
use names_world::{RW, World, as_user, create, here, name, open, read};
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

fn state(client: &Client, path: &Path) -> StubState {
    client.stub(path).unwrap().state
}

fn sealed_size(client: &Client, path: &Path) -> Option<u64> {
    match state(client, path) {
        StubState::Sealed(Contents { size, .. }) => Some(size),
        StubState::Unsealed { .. } | StubState::Unwatched => None,
    }
}

fn size(client: &Client, path: &Path) -> i64 {
    client.stat(path, true).unwrap().st_size
}

//= semantics.md#S3 type=test
#[test]
fn nobody_is_asked_about_a_file_that_nobody_writes() {
    let mut world = World::start();
    let (one, two) = (world.client(), world.client());
    let path = world.path("f");
    let file = create(&one, &path);
    file.write_at(&[7; 100_000], 0).unwrap();
    file.close().unwrap();
    let before = two.statistics();
    world.stop();
    let found = two.stat(&path, true).unwrap();
    assert_eq!(found.st_size, 100_000);
    assert!(found.st_blocks >= 100_000 / 512, "{}", found.st_blocks);
    let reader = two.open(&path, &OpenOptions { write: false, ..RW }).unwrap();
    assert_eq!(reader.stat().unwrap().st_size, 100_000);
    assert_eq!(sealed_size(&two, &path), Some(100_000), "reading unseals nothing");
    assert_eq!(two.statistics(), before);
    assert_eq!(size(&one, &path), 100_000);
}

#[test]
fn an_empty_file_needs_no_server() {
    let world = World::without_server();
    let client = world.client();
    let path = world.path("f");
    for round in 0..2 {
        let file = create(&client, &path);
        assert_eq!(file.stat().unwrap().st_size, 0);
        file.close().unwrap();
        assert_eq!(state(&client, &path), StubState::Sealed(Contents::NOTHING));
        assert_eq!(size(&world.client(), &path), 0);
        // Opened for writing again, and not written.
        open(&client, &path).close().unwrap();
        assert_eq!(state(&client, &path), StubState::Sealed(Contents::NOTHING), "round {round}");
        client.unlink(&path).unwrap();
    }
    assert!(client.create_at(here(), &name(&path), &RW).unwrap());
    assert!(!client.create_at(here(), &name(&path), &RW).unwrap());
    client.rename(&path, &world.path("g")).unwrap();
    let open_and_gone = open(&client, &world.path("g"));
    client.unlink(&world.path("g")).unwrap();
    assert_eq!(open_and_gone.stat().unwrap().st_nlink, 0);
    open_and_gone.close().unwrap();
    assert_eq!(client.statistics().glimpses, 0);
}

//= semantics.md#S3 type=test
#[test]
fn a_file_is_not_sealed_while_anybody_writes_it() {
    let world = World::start();
    let (one, two, third) = (world.client(), world.client(), world.client());
    let path = world.path("f");
    let first = create(&one, &path);
    let second = open(&two, &path);
    first.write_at(&[1; 10], 0).unwrap();
    first.close().unwrap();
    assert_eq!(sealed_size(&third, &path), None, "the second may write");
    second.write_at(&[2; 10], 10).unwrap();
    assert_eq!(size(&third, &path), 20);
    // Another one comes and goes.
    open(&third, &path).close().unwrap();
    assert_eq!(sealed_size(&third, &path), None);
    second.write_at(&[3; 10], 20).unwrap();
    assert_eq!(size(&one, &path), 30);
    second.close().unwrap();
    assert_eq!((sealed_size(&third, &path), size(&third, &path)), (Some(30), 30));
}

#[test]
fn many_clients_that_open_write_and_close_agree_on_the_size_at_every_moment() {
    let world = World::start();
    let path = world.path("f");
    let clients: Vec<Client> = (0..4).map(|_| world.client()).collect();
    create(&clients[0], &path).close().unwrap();
    std::thread::scope(|scope| {
        for (index, client) in clients.iter().enumerate() {
            let path = &path;
            scope.spawn(move || {
                for _ in 0..40 {
                    let file = open(client, path);
                    let end = file.append(&[IoSlice::new(&[index as u8; 100])]).unwrap();
                    assert!(size(client, path) >= end.cast_signed(), "the own bytes count");
                    file.close().unwrap();
                    assert!(size(client, path) >= end.cast_signed(), "the own bytes count after the close");
                }
            });
        }
    });
    for client in &clients {
        assert_eq!(size(client, &path), 16_000);
    }
    assert_eq!(sealed_size(&clients[0], &path), Some(16_000));
    assert_eq!(read(&open(&clients[1], &path)).len(), 16_000);
}

#[test]
fn a_killed_writer_leaves_a_file_that_others_ask_about() {
    let world = World::start();
    let client = world.client();
    let path = world.path("f");
    let file = create(&client, &path);
    file.write_at(&[1; 10], 0).unwrap();
    file.flush().unwrap();
    let mut child = world.process("child_writes_and_is_killed");
    child.expect("written");
    file.close().unwrap();
    child.child.kill().unwrap();
    child.child.wait().unwrap();
    assert_eq!(sealed_size(&client, &path), None);
    assert_eq!(size(&client, &path), 20);
    open(&client, &path).close().unwrap();
    assert_eq!(sealed_size(&client, &path), Some(20), "the next writer seals it");
}

#[test]
fn child_writes_and_is_killed() {
    let Some(directory) = names_world::from_parent() else { return };
    let client = names_world::client_in(&directory);
    let file = open(&client, &directory.join("ns/f"));
    file.write_at(&[2; 10], 10).unwrap();
    file.flush().unwrap();
    names_world::tell_parent("written");
}

#[test]
fn a_client_that_is_shut_down_seals_and_its_handles_go_on() {
    let world = World::start();
    let client = world.client();
    let path = world.path("f");
    let file = create(&client, &path);
    file.write_at(&[1; 10], 0).unwrap();
    client.shutdown().unwrap();
    assert_eq!(sealed_size(&client, &path), Some(10));
    file.write_at(&[2; 10], 10).unwrap();
    assert_eq!(sealed_size(&client, &path), None);
    assert_eq!(size(&world.client(), &path), 20);
    client.shutdown().unwrap();
    file.truncate(5).unwrap();
    assert_eq!(size(&world.client(), &path), 5);
    file.close().unwrap();
    assert_eq!(sealed_size(&client, &path), Some(5));
}

#[test]
fn what_is_not_flushed_at_the_close_is_not_vouched_for() {
    let mut world = World::start();
    let client = world.client();
    let path = world.path("f");
    let file = create(&client, &path);
    file.write_at(&[1; 10], 0).unwrap();
    file.sync().unwrap();
    file.write_at(&[1; 20], 0).unwrap();
    world.stop();
    assert!(file.close().is_err());
    assert_eq!(sealed_size(&client, &path), None);
}

#[test]
fn a_record_that_is_written_while_it_is_read_is_never_seen_half() {
    let world = World::start();
    let path = world.path("f");
    let (one, two) = (world.client(), world.client());
    let file = create(&one, &path);
    file.write_at(&[1; 10], 0).unwrap();
    file.close().unwrap();
    let modified = std::fs::metadata(&path).unwrap().mtime_nsec();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..300 {
                open(&one, &path).close().unwrap();
            }
        });
        while !writer.is_finished() {
            let found = two.stat(&path, true).unwrap();
            assert_eq!((found.st_size, found.st_mtime_nsec), (10, modified));
        }
    });
    let mut record = std::fs::read(&path).unwrap();
    record[50] ^= 1;
    std::fs::write(&path, record).unwrap();
    assert_eq!(two.stat(&path, true).unwrap_err().to_errno(), libc::EIO);
    assert_eq!(two.open(&path, &RW).map(drop).unwrap_err().to_errno(), libc::EIO);
}

//= semantics.md#S14 type=test
#[test]
fn whoever_makes_a_file_writes_it_although_it_may_not_be_written() {
    let world = World::start();
    as_user(4711, || {
        let client = world.client();
        let path = world.path("f");
        let file = client.open(&path, &OpenOptions { create: true, mode: 0o444, ..RW }).unwrap();
        file.write_at(b"data", 0).unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o444);
        assert_eq!(sealed_size(&client, &path), Some(4));
        assert_eq!(client.open(&path, &RW).map(drop).unwrap_err().to_errno(), libc::EACCES);
        let reader = client.open(&path, &OpenOptions { write: false, ..RW }).unwrap();
        assert_eq!(read(&reader), b"data");
        let file = client.open(&world.path("g"), &OpenOptions { create: true, mode: 0o444, ..RW }).unwrap();
        client.before_fork();
        client.after_fork_in_parent();
        // What a process does that has inherited the descriptor.
        let other = world.client();
        let inherited = other.attach(file.stub(), file.access()).unwrap();
        inherited.write_at(b"data", 0).unwrap();
        inherited.close().unwrap();
        file.close().unwrap();
        assert_eq!((sealed_size(&client, &world.path("g")), size(&client, &world.path("g"))), (Some(4), 4));
    });
}

#[test]
fn somebody_elses_file_is_opened_as_its_permissions_say() {
    let world = World::start();
    let root = world.client();
    for (name, mode) in [("shared", 0o666), ("read", 0o644), ("private", 0o600)] {
        let file = root.open(&world.path(name), &OpenOptions { create: true, ..RW }).unwrap();
        file.write_at(b"data", 0).unwrap();
        file.close().unwrap();
        std::fs::set_permissions(world.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }
    as_user(4711, || {
        let client = world.client();
        let shared = open(&client, &world.path("shared"));
        shared.write_at(b"more", 4).unwrap();
        shared.close().unwrap();
        assert_eq!(sealed_size(&client, &world.path("shared")), Some(8));
        let errno =
            |name, options| client.open(&world.path(name), &options).map(drop).unwrap_err().to_errno();
        let read_only = OpenOptions { write: false, ..RW };
        assert_eq!(errno("read", RW), libc::EACCES);
        assert_eq!(errno("private", read_only), libc::EACCES);
        assert_eq!(read(&client.open(&world.path("read"), &read_only).unwrap()), b"data");
        // Also when it is open in the same client already.
        let open_already = client.open(&world.path("read"), &read_only).unwrap();
        assert_eq!(errno("read", RW), libc::EACCES);
        assert_eq!(client.unlink(&world.path("private")).map_err(|e| e.to_errno()), Ok(()));
        drop(open_already);
    });
}

#[test]
fn lengthening_a_file_cuts_no_append() {
    let world = World::start();
    let path = world.path("f");
    let clients = [world.client(), world.client()];
    create(&clients[0], &path).close().unwrap();
    let files: Vec<File> = clients.iter().map(|client| open(client, &path)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                files[0].append(&[IoSlice::new(&[1; 1000])]).unwrap();
            }
        });
        scope.spawn(|| {
            for end in 1..100 {
                files[1].allocate(0, end * 700, false).unwrap();
            }
        });
    });
    let bytes = read(&files[1]);
    assert_eq!(bytes.iter().filter(|byte| **byte == 1).count(), 100_000, "no byte was cut");
    files[0].allocate(0, 1 << 30, true).unwrap();
    assert_eq!(files[0].size().unwrap(), bytes.len() as u64);
    files[0].allocate(1 << 20, 5, false).unwrap();
    assert_eq!(files[1].size().unwrap(), (1 << 20) + 5);
    assert_eq!(files[0].allocate(0, 0, false).unwrap_err().to_errno(), libc::EINVAL);
    assert_eq!(files[0].allocate(i64::MAX as u64, 9, false).unwrap_err().to_errno(), libc::EFBIG);
}

const PAST: libc::timespec = libc::timespec { tv_sec: 1_000_000, tv_nsec: 5 };

fn modified(client: &Client, path: &Path) -> (i64, i64) {
    let found = client.stat(path, true).unwrap();
    (found.st_mtime, found.st_mtime_nsec)
}

#[test]
fn times_set_by_hand_win_over_earlier_writes_and_later_writes_win_over_them() {
    let world = World::start();
    let (client, other) = (world.client(), world.client());
    let path = world.path("f");
    let file = create(&client, &path);
    for round in 0..20_u64 {
        file.write_at(b"data", round * 4).unwrap();
        client.set_times(file.stub(), &[PAST, PAST]).unwrap();
        assert_eq!(modified(&client, &path), (PAST.tv_sec, PAST.tv_nsec), "round {round}");
        assert_eq!(modified(&other, &path), (PAST.tv_sec, PAST.tv_nsec), "round {round}");
        file.write_at(b"more", round * 4).unwrap();
        assert!(modified(&other, &path).0 > PAST.tv_sec, "round {round}");
        assert!(modified(&client, &path).0 > PAST.tv_sec, "round {round}");
    }
    client.set_times(file.stub(), &[PAST, PAST]).unwrap();
    file.close().unwrap();
    assert_eq!(modified(&client, &path), (PAST.tv_sec, PAST.tv_nsec), "the close changes nothing");
    // An old file that is opened and not written stays old; a write of the same moment makes it young.
    let file = open(&other, &path);
    assert_eq!(modified(&client, &path), (PAST.tv_sec, PAST.tv_nsec));
    file.truncate(3).unwrap();
    assert!(modified(&client, &path).0 > PAST.tv_sec);
    file.close().unwrap();
    assert!(modified(&client, &path).0 > PAST.tv_sec);
}

#[test]
fn a_change_of_the_mode_does_not_hide_when_a_file_was_written() {
    let world = World::start();
    let client = world.client();
    let path = world.path("f");
    let file = create(&client, &path);
    client.set_times(file.stub(), &[PAST, PAST]).unwrap();
    file.write_at(b"data", 0).unwrap();
    let written = modified(&client, &path);
    assert!(written.0 > PAST.tv_sec);
    client.settle_times(file.stub()).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(modified(&client, &path), written);
    client.rename(&path, &world.path("g")).unwrap();
    assert_eq!(modified(&client, &world.path("g")), written);
    file.close().unwrap();
    assert_eq!(modified(&client, &world.path("g")), written);
    let directory = std::fs::File::open(world.path("")).unwrap();
    client.settle_times(directory.as_fd()).unwrap();
    client.set_times(directory.as_fd(), &[PAST, PAST]).unwrap();
    assert_eq!(std::fs::metadata(world.path("")).unwrap().mtime(), PAST.tv_sec);
}

//= semantics.md#S3 type=test
#[test]
fn times_set_by_hand_win_over_what_others_wrote_before_and_lose_against_what_they_write_next() {
    let world = World::start();
    let (one, two, third) = (world.client(), world.client(), world.client());
    let path = world.path("f");
    let (a, b) = (create(&one, &path), open(&two, &path));
    for round in 0..5_u64 {
        // What one has written is still in its cache when the other sets the time, and flushed afterwards.
        a.write_at(b"some", 70_000 * round).unwrap();
        two.set_times(b.stub(), &[PAST, PAST]).unwrap();
        a.sync().unwrap();
        for client in [&one, &two, &third] {
            assert_eq!(modified(client, &path), (PAST.tv_sec, PAST.tv_nsec), "round {round}");
        }
        a.write_at(b"x", 70_000 * round).unwrap();
        for client in [&two, &one, &third] {
            assert!(modified(client, &path).0 > PAST.tv_sec, "round {round}");
        }
    }
    // Also if only one writes, and whoever sets the time does not have the file open.
    b.close().unwrap();
    a.close().unwrap();
    let a = open(&one, &path);
    a.write_at(b"more", 0).unwrap();
    third.set_times(std::fs::File::open(&path).unwrap().as_fd(), &[PAST, PAST]).unwrap();
    assert_eq!(modified(&one, &path), (PAST.tv_sec, PAST.tv_nsec));
    a.close().unwrap();
    assert_eq!(modified(&third, &path), (PAST.tv_sec, PAST.tv_nsec), "flushing and closing write no time");
}

//= semantics.md#S3 type=test
#[test]
fn a_writer_that_only_makes_holes_changes_the_time_and_seals_what_is_true() {
    let world = World::start();
    let (client, other) = (world.client(), world.client());
    let path = world.path("f");
    let file = create(&client, &path);
    file.write_at(&[7; 1 << 20], 0).unwrap();
    file.close().unwrap();
    let file = open(&client, &path);
    client.set_times(file.stub(), &[PAST, PAST]).unwrap();
    file.punch(Extent::new(0, 1 << 19).unwrap()).unwrap();
    assert!(modified(&client, &path).0 > PAST.tv_sec && modified(&other, &path).0 > PAST.tv_sec);
    let truth = file.attributes().unwrap();
    file.close().unwrap();
    let found = other.stat(&path, true).unwrap();
    assert!(found.st_mtime > PAST.tv_sec && sealed_size(&other, &path) == Some(1 << 20));
    assert_eq!(u64::try_from(found.st_blocks).unwrap(), truth.stored_bytes.div_ceil(4096) * 8);
}

/// Whoever seals or unseals puts the stub's time back: also then, a time that is set meanwhile is not lost, nor is another seen.
//= semantics.md#S3 type=test
#[test]
fn a_time_set_by_hand_outlives_others_opening_and_closing_the_file() {
    let world = World::start();
    let path = world.path("f");
    let (one, two, third) = (world.client(), world.client(), world.client());
    let file = create(&one, &path);
    file.write_at(&[1; 10], 0).unwrap();
    file.close().unwrap();
    let stub = std::fs::File::open(&path).unwrap();
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| {
            for _ in 0..300 {
                open(&one, &path).close().unwrap();
            }
        });
        let mut second = 0;
        while !opener.is_finished() {
            second += 1;
            let time = libc::timespec { tv_sec: second, tv_nsec: 5 };
            two.set_times(stub.as_fd(), &[time, time]).unwrap();
            for client in [&two, &third, &third] {
                assert_eq!(modified(client, &path), (second, 5));
            }
        }
    });
}

#[test]
fn the_time_of_a_cut_is_not_lost_when_others_open_the_file_for_writing() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    let path = world.path("f");
    let file = create(&one, &path);
    file.write_at(&[1; 4096], 0).unwrap();
    let opened = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while opened.load(std::sync::atomic::Ordering::SeqCst) {
                open(&two, &path).close().unwrap();
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..300 {
                let long_ago = [libc::timespec { tv_sec: 1_000_000, tv_nsec: 0 }; 2];
                one.set_times(file.stub(), &long_ago).unwrap();
                assert_eq!(file.stat().unwrap().st_mtime, 1_000_000, "round {round}");
                file.truncate(round).unwrap();
                assert!(file.stat().unwrap().st_mtime > 1_000_000, "round {round}: the cut has no time");
            }
        }));
        opened.store(false, std::sync::atomic::Ordering::SeqCst);
        result.unwrap();
    });
}

#[test]
fn what_is_written_while_the_client_rests_is_vouched_for_in_the_end() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    for round in 0..40 {
        let path = world.path(&format!("f{round}"));
        let file = create(&one, &path);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for part in 0..20_u64 {
                    // A session that ends under a write takes it along, and says so.
                    let _ = file.write_at(&[7; 100], part * 100);
                }
            });
            one.shutdown().unwrap();
        });
        let written = file.write_at(&[8; 100], 5000);
        let closed = file.close();
        if written.is_ok() && closed.is_ok() {
            let all = open(&two, &path);
            assert_eq!((size(&two, &path), read(&all).len()), (5100, 5100), "round {round}");
        }
    }
}

//= semantics.md#S3 type=test
#[test]
fn the_time_of_a_write_stays_when_another_client_opens_the_file_for_writing_after_it() {
    let world = World::start();
    let (one, two) = (world.client(), world.client());
    let long_ago = [libc::timespec { tv_sec: 1_000_000, tv_nsec: 0 }; 2];
    let modified = |client: &Client, path: &Path| client.stat(path, true).unwrap().st_mtime;
    for (name, flushed) in [("f", true), ("g", false)] {
        let path = world.path(name);
        let file = create(&one, &path);
        file.write_at(&[1; 100], 0).unwrap();
        file.close().unwrap();
        let file = open(&one, &path);
        one.set_times(file.stub(), &long_ago).unwrap();
        file.write_at(&[2; 200], 0).unwrap();
        if flushed {
            file.sync().unwrap();
        }
        let written = modified(&one, &path);
        assert!(written > 1_000_000);
        let other = open(&two, &path);
        for client in [&one, &two] {
            assert!(modified(client, &path) >= written, "{name}: while both have it open");
        }
        file.close().unwrap();
        assert!(modified(&two, &path) >= written, "{name}: while the other one has it open");
        other.close().unwrap();
        assert!(sealed_size(&two, &path).is_some());
        assert!(modified(&one, &path) >= written, "{name}: when both are done");
        // A time that is set by hand after all writes stays as well.
        one.set_times(open(&one, &path).stub(), &long_ago).unwrap();
        open(&two, &path).close().unwrap();
        assert_eq!(modified(&two, &path), 1_000_000, "{name}: set by hand");
    }
}

/// A file whose registration is on the same shelf as that of `like`: their numbers begin with the same byte.
fn neighbour(world: &World, client: &Client, like: &Path) -> PathBuf {
    let first = |path: &Path| client.stub(path).unwrap().file.0[0];
    let wanted = first(like);
    loop {
        let path = world.path("neighbour");
        create(client, &path).close().unwrap();
        if first(&path) == wanted {
            return path;
        }
        client.unlink(&path).unwrap();
    }
}

#[test]
fn regression_a_server_that_does_not_answer_whoever_opens_for_writing_keeps_nobody_from_looking_at_other_files()
 {
    let world = World::without_server();
    let socket = world.directory.path().join("socket");
    let servers = UnixListener::bind(&socket).unwrap();
    let (one, two) = (world.client(), world.patient_client());
    let path = world.path("f");
    let _first = create(&one, &path);
    let other = neighbour(&world, &one, &path);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| open(&two, &path).close());
        // It asks when the first writer has written, and gets no answer.
        let unanswered = servers.accept().unwrap();
        assert_eq!(two.stat(&other, true).unwrap().st_size, 0);
        assert!(!opening.is_finished(), "the look did not wait for the server");
        drop((unanswered, servers));
        std::fs::remove_file(&socket).unwrap();
        let server = world.serve();
        opening.join().unwrap().unwrap();
        server.shutdown();
    });
    assert!(matches!(state(&one, &path), StubState::Unsealed { sole: false, .. }));
}
