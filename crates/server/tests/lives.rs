//! Starts, ends, crashes and long lives of servers.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_config::ServerConfig;
use ccpfs_device::{CrashDevice, IDENTITY_FILE};
use ccpfs_server::{ServerError, start};
use ccpfs_transport::Address;
use ccpfs_types::{Extent, LockMode, Sn};
use ccpfs_wire::{Message, Status, WritePiece};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use support::{Client, address, config, extent, resource, serve_on};

fn message(result: Result<ccpfs_server::RunningServer, ServerError>) -> String {
    match result {
        Ok(_) => panic!("the server has started"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn regression_a_server_whose_threads_have_not_run_yet_has_not_ended() {
    for _ in 0..5 {
        let directory = tempfile::tempdir().unwrap();
        let server = start(ServerConfig::with_defaults(address(), directory.path())).unwrap();
        assert!(!server.has_ended());
        server.shutdown();
        while !server.has_ended() {
            std::thread::yield_now();
        }
        server.wait().unwrap();
    }
}

//= protocol.md#I2 type=test
#[test]
fn a_restart_keeps_data_and_raises_numbers_over_every_kind_of_address() {
    let directory = tempfile::tempdir().unwrap();
    let unix = Address::Unix(directory.path().join("socket"));
    let tcp = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    for (at, listen) in [address(), unix, tcp].into_iter().enumerate() {
        let mut config = ServerConfig::with_defaults(listen, &directory.path().join(at.to_string()));
        config.shards = 2;
        let id = resource();
        let mut last = Sn(0);
        for life in 1..=3_u8 {
            let server = start(config.clone()).unwrap();
            let a = Client::connect(&server.addresses()[1]);
            assert_eq!(a.epoch, u64::from(life));
            let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
            assert!(lock.sn > last);
            last = lock.sn;
            let expected: Vec<u8> = (1..life).collect();
            assert_eq!(a.read(id, extent(0, 100)).1, expected);
            assert_eq!(a.flush(id, u64::from(life) - 1, &[life], lock.sn), Status::Ok);
            server.shutdown();
            server.wait().unwrap();
        }
    }
    assert!(!directory.path().join("socket").exists(), "sockets are removed at the end");
    assert!(!directory.path().join("socket.1").exists());
}

#[test]
fn numbers_rise_when_a_forgotten_resource_comes_back() {
    let server = support::serve(config());
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let mut last = (Sn(0), ccpfs_types::LockId(0));
    for _ in 0..5 {
        let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
        assert!(lock.sn > last.0 && lock.lock > last.1);
        last = (lock.sn, lock.lock);
        assert_eq!(a.flush(id, 0, b"x", lock.sn), Status::Ok);
        a.release(id, lock.lock);
        a.ping();
        assert_eq!(
            [a.status("lock_resources"), a.status("extent_entries")],
            [0, 0],
            "nothing is left behind"
        );
    }
}

//= protocol.md#I9 type=test
#[test]
fn what_was_synced_survives_a_crash_and_the_rest_need_not() {
    let device = Arc::new(CrashDevice::new());
    let id = resource();
    let first = serve_on(config(), device.clone(), 1);
    let a = Client::connect(&first.addresses()[0]);
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    assert_eq!(a.flush(id, 0, b"synced", lock.sn), Status::Ok);
    assert_eq!(a.sync(id), Status::Ok);
    assert_eq!(a.flush(id, 0, b"unsync", lock.sn), Status::Ok);
    device.crash();
    let second = serve_on(config(), device.clone(), 2);
    let b = Client::connect(&second.addresses()[0]);
    b.lock(id, LockMode::Pr, Extent::WHOLE);
    assert_eq!(b.read(id, extent(0, 10)).1, b"synced");
}

#[test]
fn a_clean_end_makes_everything_acknowledged_durable() {
    let device = Arc::new(CrashDevice::new());
    let id = resource();
    let server = serve_on(config(), device.clone(), 1);
    let a = Client::connect(&server.addresses()[0]);
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    assert_eq!(a.flush(id, 0, b"kept", lock.sn), Status::Ok);
    server.shutdown();
    server.wait().unwrap();
    device.crash();
    let server = serve_on(config(), device, 2);
    let b = Client::connect(&server.addresses()[0]);
    assert_eq!(b.read(id, extent(0, 10)).1, b"kept");
}

#[test]
fn extent_caches_are_trimmed_to_their_limit() {
    let mut config = config();
    config.extent_entries_max = 1024;
    let server = support::serve(config);
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let keep = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    for round in 0..20_u64 {
        let mut pieces = Vec::new();
        for k in 0..400_u64 {
            let start = (round * 400 + k) * 10;
            pieces.push(WritePiece { resource: id, extent: extent(start, start + 5), sn: keep.sn });
        }
        let message = Message::Write { request: a.request(), urgent: false, pieces, releases: vec![] };
        a.bulk.send_with(&message, &[7; 2000]);
        assert_eq!(a.flushed(), Status::Ok);
    }
    while a.status("extent_entries") > 1024 {}
    assert!(a.status("extent_entries_trimmed") > 6000);
    assert_eq!(a.read(id, extent(79_990, 80_000)).1, [7; 5]);
}

//= protocol.md#I6 type=test
#[test]
fn locks_that_stand_in_the_way_of_trimming_are_called_back() {
    let mut config = config();
    config.extent_entries_max = 1024;
    let server = support::serve(config);
    let (old, new) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let first = old.lock(id, LockMode::Nbw, Extent::WHOLE);
    new.enqueue(id, LockMode::Nbw, Extent::WHOLE);
    old.revoked(first.lock);
    old.acknowledge(id, &first);
    let second = new.granted();
    let pieces = (0..4000_u64)
        .map(|k| WritePiece { resource: id, extent: extent(k * 10, k * 10 + 5), sn: second.sn })
        .collect();
    let message = Message::Write { request: new.request(), urgent: false, pieces, releases: vec![] };
    new.bulk.send_with(&message, &[2; 20_000]);
    assert_eq!(new.flushed(), Status::Ok);
    // The entries must stay while the first lock may flush over them; so the server asks for everything.
    new.revoked(second.lock);
    assert!(new.status("extent_entries") >= 4000);
    old.send_flush(id, 0, &[1; 100], first.sn, &[first.lock]);
    assert_eq!(old.flushed(), Status::Ok);
    new.release(id, second.lock);
    new.ping();
    while new.status("extent_entries") > 0 {}
    assert_eq!(new.status("forced_flushes"), 1);
    assert_eq!(new.read(id, extent(0, 12)).1, [2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 2, 2]);
}

#[test]
fn a_server_that_cannot_start_says_which_address_or_directory_is_to_blame() {
    let directory = tempfile::tempdir().unwrap();
    let socket = Address::Unix(directory.path().join("socket"));
    let config = |data: &str| ServerConfig::with_defaults(socket.clone(), &directory.path().join(data));
    let running = start(config("one")).unwrap();
    let in_use = message(start(config("two")));
    assert!(in_use.contains("in use") && in_use.contains("socket"), "{in_use}");
    let shared = ServerConfig::with_defaults(address(), &directory.path().join("one"));
    let shared = message(start(shared));
    assert!(shared.contains("in use") && shared.contains("one"), "{shared}");
    drop(running);
    let mut other = config("one");
    (other.index, other.server_count) = (1, 2);
    let other = message(start(other));
    assert!(other.contains("server 0"), "{other}");
    let unwritable = message(start(ServerConfig::with_defaults(address(), Path::new("/proc/nothing"))));
    assert!(unwritable.contains("/proc/nothing"), "{unwritable}");
    fs::write(directory.path().join("one/shard-0").join(IDENTITY_FILE), "nonsense").unwrap();
    let corrupt = message(start(config("one")));
    assert!(corrupt.contains(IDENTITY_FILE), "{corrupt}");
}

#[test]
fn a_server_ends_while_clients_are_connected_and_wait_for_locks() {
    let server = support::serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    a.lock(id, LockMode::Pw, Extent::WHOLE);
    b.enqueue(id, LockMode::Pw, Extent::WHOLE);
    b.control.send(&Message::Ping { request: b.request() });
    b.control.receive();
    server.shutdown();
    server.wait().unwrap();
    assert_eq!(b.control.until_closed(), []);
}
