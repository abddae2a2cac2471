//! What happens while device writes are under way: a device that holds them until the test lets go.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_device::{Device, DeviceError, Map, MemoryDevice, ObjectName};
use ccpfs_types::{Extent, LockMode};
use ccpfs_wire::{LockRef, Message, Status, WritePiece};
use std::sync::{Arc, Condvar, Mutex};
use support::{Client, config, extent, resource, serve_on};

/// Writes wait at the gate until it opens.
#[derive(Default)]
struct GateDevice {
    inner: MemoryDevice,
    gate: Mutex<Gate>,
    changed: Condvar,
}

#[derive(Default)]
struct Gate {
    closed: bool,
    /// Pieces of writes that wait at the gate.
    waiting: usize,
    /// First byte of each piece that has passed, in order.
    passed: Vec<u8>,
}

impl GateDevice {
    fn close(&self) {
        self.gate.lock().unwrap().closed = true;
    }

    fn open(&self) {
        self.gate.lock().unwrap().closed = false;
        self.changed.notify_all();
    }

    /// Returns when so many pieces wait at the gate: how many of them are one write is up to the server.
    fn until_waiting(&self, count: usize) {
        let mut gate = self.gate.lock().unwrap();
        while gate.waiting != count {
            gate = self.changed.wait(gate).unwrap();
        }
    }

    fn passed(&self) -> Vec<u8> {
        self.gate.lock().unwrap().passed.clone()
    }
}

impl Device for GateDevice {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        let mut gate = self.gate.lock().unwrap();
        gate.waiting += pieces.len();
        self.changed.notify_all();
        while gate.closed {
            gate = self.changed.wait(gate).unwrap();
        }
        gate.waiting -= pieces.len();
        gate.passed.extend(pieces.iter().map(|(_, bytes)| bytes[0]));
        drop(gate);
        self.inner.write(object, pieces)
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        self.inner.read(object, offset, buffer)
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        self.inner.punch(object, extent)
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        self.inner.map(object, extent, extents_max)
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        self.inner.truncate(object, length)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.inner.length(object)
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.inner.modified_ns(object)
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.inner.sync(object)
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.inner.remove(object)
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        self.inner.sync_all()
    }
}

//= protocol.md#I5 type=test
#[test]
fn a_reader_waits_for_what_an_evicted_client_had_delivered() {
    let device = Arc::new(GateDevice::default());
    let server = serve_on(config(), device.clone(), 1);
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, extent(0, 100));
    device.close();
    a.send_flush(id, 0, b"delivered", lock.sn, &[]);
    device.until_waiting(1);
    a.drop_connections();
    b.lock(id, LockMode::Pr, extent(0, 100));
    b.control.send(&Message::Read { request: b.request(), resource: id, extent: extent(0, 100) });
    b.send_glimpse(id);
    assert_eq!(b.glimpsed(), 9, "what is on its way counts, and a glimpse does not wait for it");
    device.open();
    let (reply, data) = b.control.receive_with();
    assert!(matches!(reply, Message::ReadReply { status: Status::Ok, stripe_bytes: 9, .. }), "{reply:?}");
    assert_eq!(data, b"delivered");
}

//= protocol.md#I9 type=test
#[test]
fn a_sync_waits_for_the_newer_write_that_stands_for_an_older_one() {
    let device = Arc::new(GateDevice::default());
    let server = serve_on(config(), device.clone(), 1);
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let old = a.lock(id, LockMode::Nbw, extent(0, 3));
    b.enqueue(id, LockMode::Nbw, extent(0, 3));
    a.revoked(old.lock);
    a.acknowledge(id, &old);
    let new = b.granted();
    device.close();
    b.send_flush(id, 0, b"new", new.sn, &[]);
    device.until_waiting(1);
    assert_eq!(a.flush(id, 0, b"old", old.sn), Status::Ok, "acknowledged without being written");
    let sync = a.request();
    a.control.send(&Message::Sync { request: sync, resources: vec![id] });
    let ping = a.request();
    a.control.send(&Message::Ping { request: ping });
    assert_eq!(a.control.receive(), Message::Pong { request: ping }, "the sync is not answered yet");
    device.open();
    assert_eq!(a.control.receive(), Message::Done { request: sync, status: Status::Ok });
}

#[test]
fn flushes_that_somebody_waits_for_reach_the_device_first() {
    let device = Arc::new(GateDevice::default());
    let mut config = config();
    config.device_threads = 1;
    let server = serve_on(config, device.clone(), 1);
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    device.close();
    let send = |content: u8, urgent| {
        let at = u64::from(content) * 10;
        let pieces = vec![WritePiece { resource: id, extent: extent(at, at + 1), sn: lock.sn }];
        let message = Message::Write { request: a.request(), urgent, pieces, releases: vec![] };
        a.bulk.send_with(&message, &[content]);
    };
    send(1, false);
    device.until_waiting(1);
    send(2, false);
    send(3, false);
    send(4, true);
    send(5, true);
    while a.status("writes") < 5 {}
    device.open();
    for _ in 0..5 {
        assert_eq!(a.flushed(), Status::Ok);
    }
    assert_eq!(device.passed(), [1, 4, 5, 2, 3]);
}

#[test]
fn overlapping_writes_reach_the_device_in_the_order_of_their_numbers() {
    let device = Arc::new(GateDevice::default());
    let mut config = config();
    config.device_threads = 4;
    let server = serve_on(config, device.clone(), 1);
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    device.close();
    a.send_flush(id, 0, b"1111", lock.sn, &[]);
    a.send_flush(id, 100, b"2222", lock.sn, &[]);
    a.send_flush(id, 2, b"3333", lock.sn, &[]);
    device.until_waiting(2);
    while a.status("writes") < 3 {}
    device.until_waiting(2);
    device.open();
    for _ in 0..3 {
        assert_eq!(a.flushed(), Status::Ok);
    }
    assert_eq!(a.read(id, extent(0, 6)).1, b"113333");
}

#[test]
fn a_lock_travelling_with_a_flush_is_free_only_when_the_data_are_in() {
    let device = Arc::new(GateDevice::default());
    let server = serve_on(config(), device.clone(), 1);
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    b.enqueue(id, LockMode::Pr, Extent::WHOLE);
    a.revoked(lock.lock);
    device.close();
    a.send_flush(id, 0, b"data", lock.sn, &[lock.lock]);
    device.until_waiting(1);
    assert_eq!(b.status("locks_waiting"), 1);
    device.open();
    b.granted();
    assert_eq!(b.read(id, extent(0, 4)).1, b"data");
}

#[test]
fn data_in_flight_stay_within_the_memory_limit() {
    let device = Arc::new(GateDevice::default());
    let mut config = config();
    config.memory_bytes = 32 << 20;
    let server = serve_on(config, device.clone(), 1);
    let address = &server.addresses()[0];
    let clients: Vec<Client> = (0..6).map(|_| Client::connect(address)).collect();
    let data = vec![7; 4 << 20];
    device.close();
    std::thread::scope(|scope| {
        for client in &clients {
            let data = &data;
            scope.spawn(move || {
                let id = resource();
                let lock = client.lock(id, LockMode::Nbw, Extent::WHOLE);
                for at in 0..3 {
                    client.send_flush(id, at << 22, data, lock.sn, &[]);
                }
                for _ in 0..3 {
                    assert_eq!(client.flushed(), Status::Ok);
                }
            });
        }
        let watcher = Client::connect(address);
        let max = watcher.status("buffer_bytes_max");
        while watcher.status("buffer_bytes") + (4 << 20) <= max {}
        assert!(watcher.status("buffer_bytes") <= max);
        device.open();
    });
    let watcher = Client::connect(address);
    assert_eq!(watcher.status("bytes_written"), 6 * 3 * (4 << 20));
}

#[test]
fn a_server_that_ends_finishes_what_it_has_admitted() {
    let device = Arc::new(GateDevice::default());
    let server = serve_on(config(), device.clone(), 1);
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    device.close();
    a.send_flush(id, 0, b"first", lock.sn, &[]);
    a.send_flush(id, 2, b"second", lock.sn, &[]);
    while a.status("writes") < 2 {}
    server.shutdown();
    device.open();
    assert_eq!([a.flushed(), a.flushed()], [Status::Ok; 2]);
    server.wait().unwrap();
    let server = serve_on(config(), device, 2);
    assert_eq!(Client::connect(&server.addresses()[0]).read(id, extent(0, 10)).1, b"fisecond");
}

#[test]
fn a_removal_waits_for_writes_under_way() {
    let device = Arc::new(GateDevice::default());
    let server = serve_on(config(), device.clone(), 1);
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    device.close();
    let releases = vec![LockRef { resource: id, lock: lock.lock }];
    let pieces = vec![WritePiece { resource: id, extent: extent(0, 4), sn: lock.sn }];
    a.bulk.send_with(&Message::Write { request: a.request(), urgent: true, pieces, releases }, b"data");
    device.until_waiting(1);
    let destroy = a.request();
    a.control.send(&Message::Destroy { request: destroy, resources: vec![id] });
    assert_eq!(a.status("locks"), 0);
    device.open();
    assert_eq!(a.flushed(), Status::Ok);
    assert_eq!(a.control.receive(), Message::Done { request: destroy, status: Status::Ok });
    assert_eq!(device.length(object(id)).unwrap(), None, "nothing came back");
}

fn object(id: ccpfs_types::ResourceId) -> ObjectName {
    let mut name = [0; 20];
    name[..16].copy_from_slice(&id.file.0);
    name[16..].copy_from_slice(&id.stripe.to_be_bytes());
    ObjectName(name)
}
