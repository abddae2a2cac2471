//! Clients on a device that is full.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_client::{Client, ClientConfig, File, OpenOptions};
use ccpfs_device::{FailPoint, Faults, FaultyDevice, MemoryDevice};
use ccpfs_server::{RunningServer, ServerConfig, ShardStorage};
use ccpfs_transport::Address;
use ccpfs_types::Layout;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// One server in memory, whose device fails on command.
struct World {
    directory: tempfile::TempDir,
    address: Address,
    faults: Arc<Faults>,
    device: Arc<FaultyDevice<MemoryDevice>>,
    server: Option<RunningServer>,
    epoch: u64,
}

impl World {
    fn start() -> World {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let address: Address = format!("loopback:regressions-{number}").parse().unwrap();
        let device = Arc::new(FaultyDevice::new(MemoryDevice::new()));
        let faults = device.faults();
        let mut world = World { directory, address, faults, device, server: None, epoch: 0 };
        world.restart();
        world
    }

    /// Ends the server's life and begins another one on the same device.
    fn restart(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown();
            server.wait().unwrap();
        }
        self.epoch += 1;
        let config = ServerConfig::with_defaults(self.address.clone(), &self.directory.path().join("unused"));
        let storage = ShardStorage { device: Arc::clone(&self.device) as _, epoch: self.epoch };
        self.server = Some(ccpfs_server::start_on(config, vec![storage]).unwrap());
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
fn regression_writers_that_meet_a_full_device_fail_and_go_on_when_there_is_room() {
    must_end(|| {
        let world = World::start();
        let client = world.client(1 << 20);
        let file = world.open(&client, "full");
        world.faults.set(FailPoint::NoSpaceAfter { bytes: 100_000 });
        let mut errors = 0;
        for turn in 0..40_u64 {
            errors += u32::from(file.write_at(&[7; 100_000], turn * 100_000).is_err());
        }
        assert!(errors > 20, "each writer is told, none waits for ever: {errors}");
        world.faults.clear();
        // What was reported is not reported again, and nothing that was accepted is lost.
        let _ = file.sync();
        file.sync().unwrap();
        file.write_at(&[8; 100_000], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(read(&world.open(&world.client(1 << 20), "full"), 0, 100_000), [8; 100_000]);
    });
}

#[test]
fn regression_an_error_of_a_flush_is_reported_once_to_each_handle() {
    let world = World::start();
    let client = world.client(1 << 20);
    let (one, two) = (world.open(&client, "once"), world.open(&client, "once"));
    one.write_at(&[1; 300_000], 0).unwrap();
    world.faults.set(FailPoint::NoSpaceAfter { bytes: 0 });
    assert_eq!(one.sync().unwrap_err().to_errno(), libc::ENOSPC);
    world.faults.clear();
    one.sync().unwrap();
    assert_eq!(two.sync().unwrap_err().to_errno(), libc::ENOSPC);
    two.sync().unwrap();
    assert_eq!(read(&world.open(&world.client(1 << 20), "once"), 0, 300_000), [1; 300_000]);
}
