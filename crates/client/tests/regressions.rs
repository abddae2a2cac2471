//! Faults that were found once.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_client::{AheadMode, Client, ClientConfig, File, OpenOptions};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Extent, Layout};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// One server.
struct World {
    directory: tempfile::TempDir,
    address: Address,
    server: Option<RunningServer>,
}

impl World {
    fn start() -> World {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let address: Address = format!("loopback:regressions-{number}").parse().unwrap();
        let mut world = World { directory, address, server: None };
        world.restart();
        world
    }

    /// Ends the server's life and begins another one on the same data.
    fn restart(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
            server.wait().unwrap();
        }
        let config = ServerConfig::with_defaults(self.address.clone(), &self.directory.path().join("data"));
        self.server = Some(ccpfs_server::start(config).unwrap());
    }

    fn client(&self, cache_bytes: u64) -> Client {
        let mut config =
            ClientConfig::with_defaults(&self.directory.path().join("ns"), vec![self.address.clone()]);
        config.cache_bytes = cache_bytes;
        config.dirty_bytes_max = cache_bytes / 2;
        config.dirty_bytes_min = cache_bytes / 8;
        Client::start(config).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("ns").join(name)
    }

    fn open(&self, client: &Client, name: &str) -> File {
        let layout = Layout::new(2, 64 << 10);
        let options = OpenOptions { read: true, write: true, create: true, layout, ..OpenOptions::default() };
        client.open(&self.path(name), &options).unwrap()
    }
}

/// Runs `body` in a thread of its own: what it hangs in is not waited for.
fn must_end(body: impl FnOnce() + Send + 'static) {
    let (done, watch) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        done.send(()).unwrap();
    });
    assert_ne!(watch.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().unwrap();
}

fn read(file: &File, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    let got = file.read_at(&mut buffer, offset).unwrap();
    buffer.truncate(got);
    buffer
}

#[test]
fn regression_an_operation_larger_than_the_cache_is_done_in_parts() {
    must_end(|| {
        let world = World::start();
        let client = world.client(256 << 10);
        let file = world.open(&client, "large");
        let data: Vec<u8> = (0..3_000_000_u32).map(|i| (i / 7) as u8).collect();
        assert_eq!(file.write_at(&data, 77).unwrap(), data.len());
        assert!(read(&file, 77, 4_000_000) == data);
        let end = file.append(&[std::io::IoSlice::new(&data)]).unwrap();
        assert_eq!(end, 77 + 6_000_000);
        assert!(read(&world.open(&world.client(256 << 10), "large"), 3_000_077, 3_000_000) == data);
    });
}

#[test]
fn regression_large_operations_do_not_wait_for_each_others_pages() {
    must_end(|| {
        let world = World::start();
        let client = world.client(256 << 10);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let file = world.open(&client, "shared");
                scope.spawn(move || {
                    let at = u64::from(thread) * 200_000;
                    for turn in 0..20 {
                        file.write_at(&vec![thread * 20 + turn; 200_000], at).unwrap();
                        assert_eq!(read(&file, at, 200_000), vec![thread * 20 + turn; 200_000]);
                    }
                });
            }
        });
    });
}

//= protocol.md#I9 type=test
#[test]
fn regression_an_fsync_after_a_restart_does_not_vouch_for_what_was_only_flushed() {
    must_end(|| {
        let mut world = World::start();
        let client = world.client(1 << 20);
        let (file, calm) = (world.open(&client, "flushed"), world.open(&client, "synced"));
        file.write_at(&[1; 300_000], 0).unwrap();
        file.flush().unwrap();
        calm.write_at(&[1; 300_000], 0).unwrap();
        calm.sync().unwrap();
        world.restart();
        // Notices the end of the session.
        let _ = file.read_at(&mut [0; 1], 0);
        let _ = calm.read_at(&mut [0; 1], 0);
        assert_eq!(file.sync().unwrap_err().to_errno(), libc::EIO, "the server may have crashed");
        file.sync().unwrap();
        calm.sync().unwrap();
    });
}

#[test]
fn regression_a_file_removed_elsewhere_says_so_and_leaves_nothing_behind() {
    must_end(|| {
        let world = World::start();
        // Nobody can see who has a file open.
        std::fs::write(world.path(".ccpfs"), "in the way of the registry").unwrap();
        // Less than what starts a flush by itself: that one could be there before the file is removed.
        let (one, two) = (world.client(4 << 20), world.client(1 << 20));
        let file = world.open(&one, "gone");
        file.write_at(&[1; 300_000], 0).unwrap();
        two.unlink(&world.path("gone")).unwrap();
        assert_eq!(file.sync().unwrap_err().to_errno(), libc::ESTALE);
        file.sync().unwrap();
        // The bytes that could not be stored are not in the way of others.
        let other = world.open(&one, "other");
        for turn in 0..60 {
            other.write_at(&[2; 100_000], turn * 100_000).unwrap();
        }
        other.close().unwrap();
    });
}

#[test]
fn regression_a_handle_that_outlives_the_data_gets_errors_and_does_not_hang() {
    must_end(|| {
        let world = World::start();
        let client = world.client(1 << 20);
        let file = world.open(&client, "attached");
        file.write_at(b"x", 0).unwrap();
        let stub = std::fs::File::open(world.path("attached")).unwrap();
        client.unlink(&world.path("attached")).unwrap();
        file.close().unwrap();
        let access = ccpfs_client::Access { read: true, write: true, append: false };
        let late = client.attach(std::os::fd::AsFd::as_fd(&stub), access).unwrap();
        assert_eq!(late.write_at(b"y", 0).unwrap_err().to_errno(), libc::ESTALE);
    });
}

#[test]
fn regression_pages_of_removed_files_come_back() {
    must_end(|| {
        let world = World::start();
        let client = world.client(1 << 20);
        // Removed while flushes are under way: the pool would be used up after a few.
        for turn in 0..40 {
            let name = format!("brief-{turn}");
            let file = world.open(&client, &name);
            file.write_at(&[3; 400_000], 0).unwrap();
            client.unlink(&world.path(&name)).unwrap();
            drop(file);
        }
        let file = world.open(&client, "last");
        file.write_at(&[4; 900_000], 0).unwrap();
        assert_eq!(read(&file, 0, 900_000), [4; 900_000]);
    });
}

#[test]
fn regression_files_that_are_opened_and_closed_by_many_threads_keep_their_locks_and_data() {
    must_end(|| {
        let world = World::start();
        let client = world.client(4 << 20);
        std::thread::scope(|scope| {
            for thread in 0..3_u64 {
                let (world, client) = (&world, &client);
                scope.spawn(move || {
                    // More files than are remembered after their close.
                    for turn in 0..500_u64 {
                        world.open(client, &format!("{thread}-{turn}")).write_at(b"x", 0).unwrap();
                        let shared = world.open(client, "shared");
                        shared.write_at(&turn.to_le_bytes(), thread * 8).unwrap();
                        assert_eq!(read(&shared, thread * 8, 8), turn.to_le_bytes());
                    }
                });
            }
        });
        let other = world.client(1 << 20);
        for thread in 0..3 {
            assert_eq!(read(&world.open(&other, "shared"), thread * 8, 8), 499_u64.to_le_bytes());
        }
    });
}

#[test]
fn regression_a_client_that_was_shut_down_can_be_used_again() {
    must_end(|| {
        let world = World::start();
        let (one, two) = (world.client(1 << 20), world.client(1 << 20));
        let (file, other) = (world.open(&one, "again"), world.open(&two, "again"));
        for turn in 0..10_u8 {
            file.write_at(&[turn; 100_000], 0).unwrap();
            one.shutdown().unwrap();
            assert_eq!(read(&other, 0, 100_000), [turn; 100_000]);
            file.write_at(&[turn + 100; 10], 0).unwrap();
            // The lock is given back although the connections are new.
            assert_eq!(read(&other, 0, 10), [turn + 100; 10]);
            other.write_at(&[0; 10], 50).unwrap();
            assert_eq!(read(&file, 50, 10), [0; 10]);
        }
    });
}

#[test]
fn regression_offsets_at_the_end_of_the_largest_file_are_told_from_too_large_ones() {
    must_end(|| {
        let world = World::start();
        let client = world.client(1 << 20);
        let file = world.open(&client, "far");
        let end = i64::MAX as u64;
        assert_eq!(file.write_at(b"xx", end - 1).unwrap_err().to_errno(), libc::EFBIG);
        assert_eq!(file.write_at(b"x", u64::MAX).unwrap_err().to_errno(), libc::EFBIG);
        assert_eq!(file.truncate(end + 1).unwrap_err().to_errno(), libc::EFBIG);
        assert_eq!(read(&file, end - 1, 10), []);
        assert_eq!(read(&file, u64::MAX, 10), []);
        assert_eq!((file.write_at(b"", 5).unwrap(), file.append(&[]).unwrap()), (0, 0));
        assert_eq!(file.size().unwrap(), 0);
    });
}

//= protocol.md#I5 type=test
#[test]
fn regression_data_that_are_forgotten_while_the_size_is_asked_for_are_not_read_as_zeros() {
    must_end(|| {
        let world = World::start();
        let writer = world.client(4 << 20);
        // Stripe 0 ends after 40,000 bytes, the file does not: who reads on has to ask for the file's size.
        let file = world.open(&writer, "short stripe");
        file.write_at(&[7; 40_000], 0).unwrap();
        file.write_at(&[8; 1000], 64 << 10).unwrap();
        file.sync().unwrap();
        let other = world.open(&writer, "other");
        other.write_at(&[9; 1 << 20], 0).unwrap();
        other.sync().unwrap();
        let client = world.client(256 << 10);
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let file = world.open(&client, if thread < 4 { "other" } else { "short stripe" });
                scope.spawn(move || {
                    for turn in 0..1000 {
                        if thread < 4 {
                            // Whoever needs room forgets what is clean.
                            read(&file, (turn + thread * 3) % 7 * (128 << 10) + 5000, 100 << 10);
                        } else {
                            let got = read(&file, 0, 50_000);
                            assert!(got[..40_000].iter().all(|byte| *byte == 7), "turn {turn}");
                            assert_eq!(got[40_000..], [0; 10_000]);
                        }
                    }
                });
            }
        });
    });
}

//= protocol.md#I1 type=test
#[test]
fn regression_a_member_whose_group_lock_is_lost_learns_of_it_before_others_are_at_its_file() {
    let mut world = World::start();
    let client = world.client(8 << 20);
    let file = world.open(&client, "member");
    let group = NonZeroU64::new(7).unwrap();
    file.group_lock(group).unwrap();
    file.write_at(b"kept", 0).unwrap();
    file.flush().unwrap();
    world.restart();
    // Asks the server, and so notices the end of the session.
    assert_eq!(file.sync().unwrap_err().to_errno(), libc::EIO, "the server may have crashed");
    for _ in 0..3 {
        assert_eq!(file.write_at(b"lost", 0).unwrap_err().to_errno(), libc::EIO);
    }
    let ahead = file.lockahead(&[Extent::new(0, 4096).unwrap()], AheadMode::Write).unwrap();
    assert_eq!(
        ahead[0].as_ref().unwrap_err().to_errno(),
        libc::EIO,
        "nothing is asked for on behalf of the group"
    );
    assert_eq!(file.group_unlock(group).unwrap_err().to_errno(), libc::EIO);
    assert_eq!(file.flush().unwrap_err().to_errno(), libc::EIO, "the handle says so, once");
    file.group_lock(group).unwrap();
    file.write_at(b"anew", 4).unwrap();
    file.group_unlock(group).unwrap();
    assert_eq!(read(&file, 0, 8), b"keptanew");
}
