//! What can only happen on sockets: garbage, torn headers, stale socket files, kernel batches.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod common;

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use ccpfs_transport::{
    Address, BufferPool, CloseReason, ConnectOptions, Event, FRAME_BULK_BYTES_MAX, FrameError, FrameHeader,
    LinkError, ListenError, PortOptions, Received, Wait, connect_with, listen,
};
use common::{Collector, PATIENCE, dial, open, poll_until, receive_one};
use proptest::prelude::*;

fn unix_address(directory: &tempfile::TempDir) -> Address {
    Address::Unix(directory.path().join("port.sock"))
}

fn path(address: &Address) -> &std::path::Path {
    let Address::Unix(path) = address else { panic!("{address}") };
    path
}

/// Writes raw bytes to a port, closes, and returns why the port says the connection ended.
fn reason_after(bytes: &[u8]) -> CloseReason {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let mut port = open(&address);
    let mut stream = UnixStream::connect(path(&address)).unwrap();
    stream.write_all(bytes).unwrap();
    drop(stream);
    let mut events =
        poll_until(&mut *port, |events| events.iter().any(|event| matches!(event, Event::Closed { .. })));
    let Some(Event::Closed { reason, .. }) = events.pop() else { panic!("{events:?}") };
    // The port goes on serving.
    let good = dial(&address);
    good.send(b"ok", &[]).unwrap();
    poll_until(&mut *port, |events| events.iter().any(|event| matches!(event, Event::Frame { .. })));
    reason
}

#[test]
fn garbage_closes_the_connection_with_the_reason() {
    let reason = reason_after(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(matches!(reason, CloseReason::Malformed(FrameError::BadMagic { .. })), "{reason}");
}

#[test]
fn lengths_over_the_limit_close_the_connection() {
    let mut header = FrameHeader::new(0, 0).unwrap().encode();
    header[8..12].fill(0xff);
    assert!(matches!(
        reason_after(&header),
        CloseReason::Malformed(FrameError::MessageTooLarge { bytes: 0xffff_ffff })
    ));
    let mut header = FrameHeader::new(0, 0).unwrap().encode();
    header[12..16].copy_from_slice(&(FRAME_BULK_BYTES_MAX + 1).to_le_bytes());
    assert!(matches!(reason_after(&header), CloseReason::Malformed(FrameError::BulkTooLarge { .. })));
}

#[test]
fn another_frame_version_is_named() {
    let mut header = FrameHeader::new(0, 0).unwrap().encode();
    header[4] = 77;
    assert_eq!(reason_after(&header), CloseReason::Malformed(FrameError::UnsupportedVersion { found: 77 }));
}

#[test]
fn an_end_inside_a_header_a_message_or_a_bulk_is_told_from_an_end_between_frames() {
    let whole = [&FrameHeader::new(4, 4).unwrap().encode()[..], b"messbulk"].concat();
    for cut in 1..whole.len() {
        assert_eq!(reason_after(&whole[..cut]), CloseReason::Truncated, "{cut} bytes");
    }
    assert_eq!(reason_after(&[]), CloseReason::PeerClosed);
    assert_eq!(reason_after(&whole), CloseReason::PeerClosed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_bytes_never_hurt_the_port(bytes in proptest::collection::vec(any::<u8>(), 0..200), valid in any::<bool>()) {
        let mut stream = Vec::new();
        if valid {
            stream.extend(FrameHeader::new(3, 2).unwrap().encode());
        }
        stream.extend(bytes);
        reason_after(&stream);
    }
}

#[test]
fn garbage_from_a_server_ends_the_connection_for_everybody() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let listener = UnixListener::bind(path(&address)).unwrap();
    let connection = dial(&address);
    listener.accept().unwrap().0.write_all(&[0xab; 100]).unwrap();
    let failure = connection.receive(Wait::Forever, &mut Collector::new()).unwrap_err();
    assert!(matches!(failure, LinkError::Malformed(FrameError::BadMagic { found: 0xabab_abab })));
    assert_eq!(connection.send(b"x", &[]), Err(failure));
}

#[test]
fn a_send_to_a_server_that_never_reads_stalls_and_kills_the_connection() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let _listener = UnixListener::bind(path(&address)).unwrap();
    let options = ConnectOptions { stall_timeout: Duration::from_millis(20), ..ConnectOptions::default() };
    let connection = connect_with(&address, PATIENCE, options).unwrap();
    let bulk = vec![0; 16 << 20];
    let failure = connection.send(b"", &[std::io::IoSlice::new(&bulk)]).unwrap_err();
    assert_eq!(failure, LinkError::Stalled { waited: Duration::from_millis(20) });
    assert_eq!(connection.send(b"", &[]), Err(failure.clone()));
    assert_eq!(connection.receive(Wait::Forever, &mut Collector::new()), Err(failure));
}

#[test]
fn frames_that_arrive_together_are_all_there_after_one_turn() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let listener = UnixListener::bind(path(&address)).unwrap();
    let connection = dial(&address);
    let frame = [&FrameHeader::new(5, 0).unwrap().encode()[..], b"reply"].concat();
    let (mut stream, _) = listener.accept().unwrap();
    stream.write_all(&frame.repeat(1000)).unwrap();
    let mut sink = Collector::new();
    assert_eq!(connection.receive_ready(&mut sink), Ok(1000));
    assert_eq!(connection.receive_ready(&mut sink), Ok(0));
    // A torn frame waits for its rest, whoever receives it.
    stream.write_all(&frame[..7]).unwrap();
    assert_eq!(connection.receive_ready(&mut sink), Ok(0));
    assert_eq!(connection.receive(Wait::For(Duration::ZERO), &mut sink), Ok(Received::TimedOut));
    stream.write_all(&frame[7..]).unwrap();
    assert_eq!(receive_one(&*connection).0, b"reply");
}

#[test]
fn bulk_that_arrives_in_pieces_is_continued_by_later_calls() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let listener = UnixListener::bind(path(&address)).unwrap();
    let connection = dial(&address);
    let bulk = common::pattern(100_000, 5);
    let frame = [&FrameHeader::new(2, bulk.len()).unwrap().encode()[..], b"rd", &bulk].concat();
    let (mut stream, _) = listener.accept().unwrap();
    let mut sink = Collector::new();
    for piece in frame.chunks(9_999) {
        assert!(sink.frames.is_empty());
        stream.write_all(piece).unwrap();
        connection.receive_ready(&mut sink).unwrap();
    }
    assert!(sink.frames == [(b"rd".to_vec(), bulk)]);
}

#[test]
fn a_transfer_that_stops_half_way_is_ended_and_its_memory_returns() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let pool = BufferPool::new(1 << 20);
    let options = PortOptions { stall_timeout: Duration::from_millis(10), ..PortOptions::default() };
    let mut port = listen(&address, pool.clone(), options).unwrap();
    let mut stream = UnixStream::connect(path(&address)).unwrap();
    stream.write_all(&FrameHeader::new(0, 500_000).unwrap().encode()).unwrap();
    stream.write_all(&[0; 100]).unwrap();
    let events =
        poll_until(&mut *port, |events| events.iter().any(|event| matches!(event, Event::Closed { .. })));
    assert!(matches!(events.last(), Some(Event::Closed { reason: CloseReason::Stalled, .. })));
    assert_eq!(pool.used_bytes(), 0);
    assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
}

#[test]
fn what_a_client_sent_before_it_went_counts_even_if_it_takes_no_answer() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let mut port = open(&address);
    let stream = UnixStream::connect(path(&address)).unwrap();
    let events = poll_until(&mut *port, |events| !events.is_empty());
    let Event::Opened { connection, .. } = events[0] else { panic!("{events:?}") };
    let frame = [&FrameHeader::new(4, 3).unwrap().encode()[..], b"lastxyz"].concat();
    (&stream).write_all(&frame.repeat(2)).unwrap();
    drop(stream);
    port.send(connection, b"to nobody", None).unwrap();
    port.flush();
    let events =
        poll_until(&mut *port, |events| events.iter().any(|event| matches!(event, Event::Closed { .. })));
    let [Event::Frame { .. }, Event::Frame { .. }, Event::Closed { reason: CloseReason::PeerClosed, .. }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
}

#[test]
fn a_stale_socket_file_is_replaced_and_removed_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    drop(UnixListener::bind(path(&address)).unwrap());
    assert!(path(&address).exists());
    let port = open(&address);
    dial(&address);
    drop(port);
    assert!(!path(&address).exists());
}

#[test]
fn a_file_that_is_not_a_socket_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    std::fs::write(path(&address), "precious").unwrap();
    let Err(error) = listen(&address, BufferPool::new(1), PortOptions::default()) else {
        panic!("a port in place of a file")
    };
    assert!(matches!(error, ListenError::Os { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(path(&address)).unwrap(), "precious");
}

#[test]
fn more_connections_than_allowed_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let options = PortOptions { connections_max: 1, ..PortOptions::default() };
    let mut port = listen(&address, BufferPool::new(1), options).unwrap();
    let first = dial(&address);
    let second = dial(&address);
    let events = poll_until(&mut *port, |events| !events.is_empty());
    let [Event::Opened { connection, .. }] = events[..] else { panic!("{events:?}") };
    assert_eq!(second.receive(Wait::Forever, &mut Collector::new()), Err(LinkError::PeerClosed));
    port.send(connection, b"hi", None).unwrap();
    port.flush();
    assert_eq!(receive_one(&*first).0, b"hi");
}

#[test]
fn busy_polling_changes_nothing_but_the_wait() {
    let directory = tempfile::tempdir().unwrap();
    let address = unix_address(&directory);
    let busy_poll = Duration::from_micros(200);
    let options = PortOptions { busy_poll, ..PortOptions::default() };
    let echo = common::Echo::start(listen(&address, BufferPool::new(1), options).unwrap());
    let connection =
        connect_with(&echo.address, PATIENCE, ConnectOptions { busy_poll, ..ConnectOptions::default() })
            .unwrap();
    for round in 0..100u8 {
        connection.send(&[round], &[]).unwrap();
        assert_eq!(receive_one(&*connection).0, [round]);
    }
    let limit = Wait::For(Duration::from_millis(1));
    assert_eq!(connection.receive(limit, &mut Collector::new()), Ok(Received::TimedOut));
}
