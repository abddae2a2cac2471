//! Clients that die, fall silent, speak nonsense, or come back after their eviction; devices that fail.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_device::{FailPoint, FaultyDevice, MemoryDevice};
use ccpfs_types::{ClientId, Extent, LockMode, RequestId, Sn};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, Status, WritePiece, encode_into};
use std::sync::Arc;
use support::{Client, Line, config, extent, resource, serve, serve_on, unique};

#[test]
fn losing_any_connection_frees_the_clients_locks() {
    let server = serve(config());
    let address = &server.addresses()[0];
    for channel in 0..3 {
        let (a, b) = (Client::connect(address), Client::connect(address));
        let id = resource();
        let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
        b.enqueue(id, LockMode::Pw, Extent::WHOLE);
        a.revoked(lock.lock);
        [&a.control, &a.callback, &a.bulk][channel].connection.close();
        assert!(b.granted().sn > lock.sn);
    }
}

#[test]
fn a_goodbye_frees_the_clients_locks_and_ends_its_identity() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let (a, b) = (Client::connect(address), Client::connect(address));
    let id = resource();
    a.lock(id, LockMode::Pw, Extent::WHOLE);
    b.enqueue(id, LockMode::Pw, Extent::WHOLE);
    a.control.send(&Message::Goodbye {});
    b.granted();
    assert_eq!(a.bulk.until_closed(), []);
    let again = Line::hello(address, a.id, Channel::Control, PROTOCOL_VERSION);
    assert!(matches!(again.receive(), Message::Refused { .. }));
}

//= protocol.md#I8 type=test
#[test]
fn a_client_that_never_answers_a_revocation_is_evicted() {
    let mut config = config();
    config.revoke_timeout_ms = 100;
    let server = serve(config);
    let address = &server.addresses()[0];
    let (a, b) = (Client::connect(address), Client::connect(address));
    let id = resource();
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    b.enqueue(id, LockMode::Pr, Extent::WHOLE);
    a.revoked(lock.lock);
    b.granted();
    assert_eq!(b.status("evictions"), 1);
    assert!(a.control.until_closed().is_empty());
}

#[test]
fn a_client_that_answers_but_keeps_its_lock_is_evicted_in_the_end() {
    let mut config = config();
    config.revoke_timeout_ms = 100;
    let server = serve(config);
    let address = &server.addresses()[0];
    let (a, b) = (Client::connect(address), Client::connect(address));
    let id = resource();
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    b.enqueue(id, LockMode::Pr, Extent::WHOLE);
    a.revoked(lock.lock);
    // How often it is asked before depends on when the threads run; that answers prolong its time is a rule of `shard::overdue`.
    while let Ok((message, _)) = a.callback.try_receive() {
        let Message::GlimpseAsk { glimpse, resource } = message else { panic!("{message:?}") };
        let _lost =
            a.callback.try_send(&Message::GlimpseTell { glimpse, resource, end: 0, modified_ns: 0 }, &[]);
    }
    b.granted();
    assert_eq!(b.status("evictions"), 1);
}

#[test]
fn a_client_without_callback_connection_cannot_keep_others_waiting() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let a = Line::hello(address, ClientId(500 + unique()), Channel::Control, PROTOCOL_VERSION);
    let id = resource();
    assert!(matches!(a.receive(), Message::Welcome { .. }));
    let whole = ccpfs_region::Region::WHOLE;
    a.send(&Message::Enqueue {
        request: RequestId(1),
        resource: id,
        mode: LockMode::Pw,
        required: whole.clone(),
        desired: whole,
        terms: ccpfs_types::Terms::WAIT,
    });
    assert!(matches!(a.receive(), Message::Grant { .. }));
    Client::connect(address).lock(id, LockMode::Pw, Extent::WHOLE);
}

//= protocol.md#I7 type=test
#[test]
fn a_flush_of_an_evicted_client_changes_nothing() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let (a, b) = (Client::connect(address), Client::connect(address));
    let id = resource();
    let old = a.lock(id, LockMode::Pw, Extent::WHOLE);
    a.callback.connection.close();
    let new = b.lock(id, LockMode::Pw, Extent::WHOLE);
    assert_eq!(b.flush(id, 0, b"new", new.sn), Status::Ok);
    // Over the connection that it still believes to have, and over a new one.
    let late = WritePiece { resource: id, extent: extent(0, 3), sn: old.sn };
    let late = Message::Write { request: RequestId(9), urgent: true, pieces: vec![late], releases: vec![] };
    let _lost = a.bulk.try_send(&late, b"old");
    assert_eq!(a.bulk.until_closed(), []);
    let again = Line::hello(address, a.id, Channel::Bulk, PROTOCOL_VERSION);
    let _refused_already = again.try_send(&late, b"old");
    let answers = again.until_closed();
    assert!(matches!(answers[..], [Message::Refused { .. }]), "{answers:?}");
    assert_eq!(b.read(id, extent(0, 10)).1, b"new");
}

#[test]
fn another_protocol_version_is_refused_with_the_reason() {
    let server = serve(config());
    let line = Line::hello(&server.addresses()[0], ClientId(7), Channel::Control, PROTOCOL_VERSION + 1);
    let Message::Refused { reason } = line.receive() else { panic!("refused") };
    let (theirs, ours) = ((PROTOCOL_VERSION + 1).to_string(), PROTOCOL_VERSION.to_string());
    assert!(reason.contains(&theirs) && reason.contains(&ours), "{reason}");
    assert_eq!(line.until_closed(), []);
}

#[test]
fn identities_that_are_reserved_or_taken_are_refused() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let line = Line::hello(address, ClientId::SERVER, Channel::Control, PROTOCOL_VERSION);
    assert!(matches!(line.receive(), Message::Refused { .. }));
    let a = Client::connect(address);
    let line = Line::hello(address, a.id, Channel::Bulk, PROTOCOL_VERSION);
    assert!(matches!(line.receive(), Message::Refused { .. }));
    a.lock(resource(), LockMode::Pr, Extent::WHOLE);
}

#[test]
fn messages_on_the_wrong_channel_end_the_client() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let id = resource();
    let wrong: [fn(&Client) -> &Line; 3] = [|c| &c.control, |c| &c.callback, |c| &c.bulk];
    for (at, line) in wrong.iter().enumerate() {
        let a = Client::connect(address);
        a.lock(id, LockMode::Pr, Extent::WHOLE);
        let message = match at {
            0 => Message::Release { locks: vec![] },
            1 => Message::Sync { request: RequestId(1), resources: vec![id] },
            _ => Message::Hello {
                version: PROTOCOL_VERSION,
                client: a.id,
                channel: Channel::Bulk,
                name: String::new(),
            },
        };
        line(&a).send(&message);
        assert_eq!(a.control.until_closed(), []);
    }
    Client::connect(address).lock(id, LockMode::Pw, Extent::WHOLE);
}

#[test]
fn garbage_on_any_channel_ends_the_client_and_nobody_else() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let good = Client::connect(address);
    let mut seed = 12345_u64;
    for round in 0..60_usize {
        let mut garbage: Vec<u8> = (0..1 + round * 7)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                u8::try_from(seed >> 56).unwrap()
            })
            .collect();
        if round % 2 == 1 {
            // A good message first, then a cut one.
            garbage.clear();
            encode_into(&Message::Ping { request: RequestId(1) }, &mut garbage);
            encode_into(&Message::Ping { request: RequestId(2) }, &mut garbage);
            garbage.pop();
        }
        let line = match round % 4 {
            0 => Line::open(address),
            at => {
                let channel = [Channel::Control, Channel::Callback, Channel::Bulk][at - 1];
                Line::hello(address, ClientId(9_000 + unique()), channel, PROTOCOL_VERSION)
            }
        };
        line.connection.send(&garbage, &[]).unwrap();
        line.until_closed();
    }
    good.lock(resource(), LockMode::Pw, Extent::WHOLE);
    assert_eq!(good.status("clients"), 1);
}

#[test]
fn bulk_that_fits_no_message_ends_the_client() {
    let server = serve(config());
    let address = &server.addresses()[0];
    let id = resource();
    for (length, bulk) in [(4_u64, &b"too long"[..]), (100, b"too short"), (4, b"")] {
        let a = Client::connect(address);
        let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
        let pieces = vec![WritePiece { resource: id, extent: extent(0, length), sn: lock.sn }];
        let message = Message::Write { request: RequestId(1), urgent: false, pieces, releases: vec![] };
        a.bulk.send_with(&message, bulk);
        a.control.until_closed();
    }
    let a = Client::connect(address);
    a.control.send_with(&Message::Ping { request: RequestId(1) }, b"bulk");
    a.bulk.until_closed();
    let huge = Extent::new(0, u64::MAX - 1).unwrap();
    let a = Client::connect(address);
    let pieces = vec![WritePiece { resource: id, extent: huge, sn: Sn(1) }; 3];
    a.bulk
        .send_with(&Message::Write { request: RequestId(1), urgent: false, pieces, releases: vec![] }, b"x");
    a.control.until_closed();
}

#[test]
fn a_full_device_is_told_to_the_writer_who_may_try_again() {
    let device = FaultyDevice::new(MemoryDevice::new());
    let faults = device.faults();
    let server = serve_on(config(), Arc::new(device), 1);
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    assert_eq!(a.flush(id, 0, b"first", lock.sn), Status::Ok);
    faults.set(FailPoint::NoSpaceAfter { bytes: 2 });
    a.send_flush(id, 5, b"second", lock.sn, &[]);
    assert_eq!(a.flushed(), Status::Errno(28));
    faults.clear();
    assert_eq!(a.flush(id, 5, b"second", lock.sn), Status::Ok, "the same number is no obstacle");
    assert_eq!(a.read(id, extent(0, 100)).1, b"firstsecond");
}

#[test]
fn device_errors_reach_readers_and_syncs_and_releases_are_done_all_the_same() {
    let device = FaultyDevice::new(MemoryDevice::new());
    let faults = device.faults();
    let server = serve_on(config(), Arc::new(device), 1);
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    faults.set(FailPoint::NextWriteFails);
    a.send_flush(id, 0, b"lost", lock.sn, &[lock.lock]);
    assert_eq!(a.flushed(), Status::Errno(5));
    b.lock(id, LockMode::Pr, Extent::WHOLE);
    faults.set(FailPoint::NextReadFails);
    assert_eq!(b.read(id, extent(0, 4)).0, Status::Errno(5));
    assert_eq!(b.read(id, extent(0, 4)), (Status::Ok, vec![], 0));
    let lock = a.lock(resource(), LockMode::Nbw, Extent::WHOLE);
    assert!(lock.sn.0 > 0);
    faults.set(FailPoint::NextSyncFails);
    assert_eq!(a.sync(id), Status::Errno(5));
    assert_eq!(a.sync(id), Status::Ok);
}
