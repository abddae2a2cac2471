//! Conversations with one server: locks, flushes, reads, truncates, sizes, removal.
#![allow(clippy::unwrap_used, reason = "tests")]

mod support;

use ccpfs_types::{Extent, LockMode, Policy, RequestId};
use ccpfs_wire::{LockRef, Message, Status, WritePiece};
use support::{Client, config, extent, is_canceling, resource, serve};

#[test]
fn a_lock_is_granted_revoked_and_granted_on() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let first = a.lock(id, LockMode::Pw, Extent::WHOLE);
    b.enqueue(id, LockMode::Pr, extent(0, 10));
    a.revoked(first.lock);
    a.acknowledge(id, &first);
    a.release(id, first.lock);
    let second = b.granted();
    assert!(second.sn > first.sn && !second.early);
}

#[test]
fn what_was_flushed_is_read_back_by_another_client() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, extent(0, 100));
    a.send_flush(id, 10, b"hello", lock.sn, &[lock.lock]);
    assert_eq!(a.flushed(), Status::Ok);
    b.lock(id, LockMode::Pr, extent(0, 100));
    let (status, data, stripe_bytes) = b.read(id, extent(8, 100));
    assert_eq!((status, data.as_slice(), stripe_bytes), (Status::Ok, &b"\0\0hello"[..], 15));
    assert_eq!(b.read(id, extent(15, 100)), (Status::Ok, vec![], 15));
}

//= protocol.md#I3 type=test
#[test]
fn an_early_granted_write_wins_over_the_older_flush_that_arrives_late() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let old = a.lock(id, LockMode::Nbw, extent(0, 8));
    b.enqueue(id, LockMode::Nbw, extent(4, 12));
    a.revoked(old.lock);
    a.acknowledge(id, &old);
    let new = b.granted();
    assert!(new.early && new.sn > old.sn, "granted before the first one is flushed");
    assert_eq!(b.flush(id, 4, b"BBBBBBBB", new.sn), Status::Ok);
    a.send_flush(id, 0, b"aaaaaaaa", old.sn, &[old.lock]);
    assert_eq!(a.flushed(), Status::Ok);
    b.release(id, new.lock);
    b.lock(id, LockMode::Pr, extent(0, 12));
    assert_eq!(b.read(id, extent(0, 12)).1, b"aaaaBBBBBBBB");
}

#[test]
fn a_wanted_lock_that_cannot_grow_is_granted_canceling_and_needs_no_revocation() {
    let server = serve(config());
    let clients: Vec<Client> = (0..3).map(|_| Client::connect(&server.addresses()[0])).collect();
    let id = resource();
    let first = clients[0].lock(id, LockMode::Nbw, extent(0, 10));
    clients[1].enqueue(id, LockMode::Nbw, extent(0, 10));
    clients[0].revoked(first.lock);
    clients[2].enqueue(id, LockMode::Nbw, extent(0, 10));
    while clients[0].status("locks_waiting") < 2 {}
    clients[0].acknowledge(id, &first);
    let second = clients[1].granted();
    let third = clients[2].granted();
    assert!(is_canceling(&second), "{second:?}");
    assert!(!is_canceling(&third) && third.sn > second.sn, "{third:?}");
    assert_eq!(clients[2].status("revocations"), 1);
}

#[test]
fn a_flush_of_many_pieces_over_two_stripes_is_answered_once() {
    let server = serve(config());
    let a = Client::connect(&server.addresses()[0]);
    let ids = [resource(), resource()];
    let locks = ids.map(|id| a.lock(id, LockMode::Bw, Extent::WHOLE));
    let mut pieces = Vec::new();
    let mut bulk = Vec::new();
    for k in 0..100_u64 {
        let which = usize::try_from(k % 2).unwrap();
        pieces.push(WritePiece {
            resource: ids[which],
            extent: extent(k * 10, k * 10 + 5),
            sn: locks[which].sn,
        });
        bulk.extend([u8::try_from(k).unwrap(); 5]);
    }
    let releases = (0..2).map(|at| LockRef { resource: ids[at], lock: locks[at].lock }).collect();
    let request = RequestId(77);
    a.bulk.send_with(&Message::Write { request, urgent: true, pieces, releases }, &bulk);
    assert_eq!(a.bulk.receive(), Message::WriteReply { request, status: Status::Ok });
    assert_eq!(a.status("locks"), 0);
    for k in 0..100_u64 {
        let id = ids[usize::try_from(k % 2).unwrap()];
        let (_, data, _) = a.read(id, extent(k * 10, k * 10 + 5));
        assert_eq!(data, [u8::try_from(k).unwrap(); 5]);
    }
}

#[test]
fn several_flushes_may_share_a_frame() {
    let server = serve(config());
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    let mut bytes = Vec::new();
    for (request, start) in [(1, 0), (2, 4)] {
        let pieces = vec![WritePiece { resource: id, extent: extent(start, start + 4), sn: lock.sn }];
        let message = Message::Write { request: RequestId(request), urgent: false, pieces, releases: vec![] };
        ccpfs_wire::encode_into(&message, &mut bytes);
    }
    a.bulk.connection.send(&bytes, &[std::io::IoSlice::new(b"onetwo!!")]).unwrap();
    assert_eq!([a.flushed(), a.flushed()], [Status::Ok; 2]);
    assert_eq!(a.read(id, extent(0, 8)).1, b"onetwo!!");
}

#[test]
fn a_late_flush_does_not_bring_truncated_bytes_back() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let old = a.lock(id, LockMode::Nbw, extent(0, 100));
    assert_eq!(a.flush(id, 0, &[1; 100], old.sn), Status::Ok);
    b.enqueue(id, LockMode::Nbw, extent(40, 60));
    a.revoked(old.lock);
    a.acknowledge(id, &old);
    let new = b.granted();
    assert_eq!(b.flush(id, 40, &[2; 20], new.sn), Status::Ok);
    a.release(id, old.lock);
    b.release(id, new.lock);
    let cut = b.lock(id, LockMode::Pw, Extent::WHOLE);
    assert_eq!(b.truncate(id, 50, cut.sn), Status::Ok);
    let (_, data, stripe_bytes) = b.read(id, extent(0, 200));
    assert_eq!((data.len(), stripe_bytes, data[39], data[49]), (50, 50, 1, 2));
    assert_eq!(a.flush(id, 0, &[3; 100], old.sn), Status::Errno(1), "no lock from which it could come");
    assert_eq!(b.truncate(id, 120, cut.sn), Status::Ok);
    let (_, data, _) = b.read(id, extent(0, 200));
    assert_eq!((data.len(), data[49], data[50], data[119]), (120, 2, 0, 0), "lengthened with a hole");
}

#[test]
fn a_glimpse_counts_what_others_hold_unflushed() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    b.send_glimpse(id);
    assert_eq!(b.glimpsed(), 0);
    let lock = a.lock(id, LockMode::Nbw, Extent::WHOLE);
    assert_eq!(a.flush(id, 0, &[1; 10], lock.sn), Status::Ok);
    b.send_glimpse(id);
    let Message::GlimpseAsk { glimpse, resource } = a.callback.receive() else { panic!("a is asked") };
    assert_eq!(resource, id);
    a.callback.send(&Message::GlimpseTell { glimpse, resource, end: 500, modified_ns: 7 });
    assert_eq!(b.glimpsed(), 500);
    a.send_glimpse(id);
    assert_eq!(a.glimpsed(), 10, "the asker is not asked");
}

#[test]
fn a_glimpse_does_not_wait_for_a_client_that_goes_away() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    a.lock(id, LockMode::Nbw, Extent::WHOLE);
    b.send_glimpse(id);
    assert!(matches!(a.callback.receive(), Message::GlimpseAsk { .. }));
    a.drop_connections();
    assert_eq!(b.glimpsed(), 0);
}

#[test]
fn a_removed_file_is_gone_for_everybody() {
    let server = serve(config());
    let (a, b) = (Client::connect(&server.addresses()[0]), Client::connect(&server.addresses()[0]));
    let id = resource();
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    assert_eq!(a.flush(id, 0, b"data", lock.sn), Status::Ok);
    let waiting = b.enqueue(id, LockMode::Pr, Extent::WHOLE);
    a.revoked(lock.lock);
    assert_eq!(a.destroy(id), Status::Ok);
    let stale = Status::Errno(116);
    assert_eq!(
        b.control.receive(),
        Message::Denied { request: waiting, resource: id, status: stale, first_common: None }
    );
    let late = b.enqueue(id, LockMode::Pr, Extent::WHOLE);
    assert_eq!(
        b.control.receive(),
        Message::Denied { request: late, resource: id, status: stale, first_common: None }
    );
    assert_eq!(a.flush(id, 0, b"late", lock.sn), stale);
    assert_eq!(a.read(id, extent(0, 4)).0, stale);
    assert_eq!(a.truncate(id, 0, lock.sn), stale);
    assert_eq!(a.destroy(id), Status::Ok, "removing twice is no error");
}

#[test]
fn requests_out_of_range_are_refused_and_do_no_harm() {
    let server = serve(config());
    let a = Client::connect(&server.addresses()[0]);
    let id = resource();
    let lock = a.lock(id, LockMode::Pw, Extent::WHOLE);
    assert_eq!(a.read(id, extent(0, 1 << 40)).0, Status::Errno(22));
    assert_eq!(a.read(id, extent(u64::MAX - 5, u64::MAX)).0, Status::Errno(22));
    assert_eq!(a.truncate(id, u64::MAX, lock.sn), Status::Errno(27));
    assert_eq!(a.truncate(id, 1 << 63, lock.sn), Status::Errno(27));
    assert_eq!(a.flush(id, u64::MAX - 8, b"12345678", lock.sn), Status::Errno(27));
    assert_eq!(a.flush(id, 0, b"x", lock.sn.next()), Status::Errno(1), "a number nobody was given");
    assert_eq!(a.done(&Message::Sync { request: RequestId(1), resources: vec![] }), Status::Ok);
    let twice = vec![id, id];
    assert_eq!(a.done(&Message::Sync { request: RequestId(1), resources: twice.clone() }), Status::Ok);
    assert_eq!(a.done(&Message::Destroy { request: RequestId(1), resources: twice }), Status::Ok);
}

#[test]
fn a_policy_is_told_to_clients_and_kept() {
    let mut config = config();
    config.policy = Policy::BASIC;
    let server = serve(config);
    let a = Client::connect(&server.addresses()[0]);
    let lock = a.lock(resource(), LockMode::Nbw, extent(1, 2));
    assert_eq!(lock.mode, LockMode::Pw);
    assert!(lock.region.bounds().contains(extent(0, 4096)));
}
