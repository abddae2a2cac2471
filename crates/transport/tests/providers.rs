//! What every provider promises: round trips, order, wake-ups, back pressure, ends of connections.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

mod common;

use std::io::IoSlice;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use ccpfs_transport::{
    BufferPool, CloseReason, Event, FRAME_BULK_BYTES_MAX, FRAME_MESSAGE_BYTES_MAX, LinkError, ListenError,
    PortOptions, Received, SendError, Wait, connect, listen, set_descriptor_minimum,
};
use common::{Collector, Echo, PATIENCE, addresses, dial, open, pattern, poll_until, receive_one};

fn on_every_provider(test: impl Fn(&ccpfs_transport::Address)) {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        test(&address);
    }
}

fn frames(events: &[Event]) -> Vec<(Vec<u8>, usize)> {
    let mut found = Vec::new();
    for event in events {
        if let Event::Frame { message, bulk, .. } = event {
            found.push((message.clone(), bulk.as_ref().map_or(0, |bulk| bulk.len())));
        }
    }
    found
}

fn is_closed(event: &Event) -> bool {
    matches!(event, Event::Closed { .. })
}

#[test]
fn frames_of_all_sizes_come_back_as_they_were_sent() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        let connection = dial(&echo.address);
        let sizes =
            [(0, 0), (1, 0), (100, 1), (0, 47_008), (70_000, 300_000), (FRAME_MESSAGE_BYTES_MAX as usize, 5)];
        for (message_bytes, bulk_bytes) in sizes {
            let message = pattern(message_bytes, 1);
            let bulk = pattern(bulk_bytes, 2);
            let (head, tail) = bulk.split_at(bulk_bytes / 3);
            connection.send(&message, &[IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)]).unwrap();
            let answer = receive_one(&*connection);
            assert!(answer == (message, bulk), "{address}: {message_bytes} + {bulk_bytes} bytes");
        }
    });
}

#[test]
fn the_largest_bulk_travels_from_thousands_of_pages_and_back() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        let connection = dial(&echo.address);
        let bulk = pattern(FRAME_BULK_BYTES_MAX as usize, 9);
        let pages: Vec<IoSlice<'_>> = bulk.chunks(4096).map(IoSlice::new).collect();
        connection.send(b"all", &pages).unwrap();
        let mut sink = Collector::new();
        sink.parts = 4096;
        assert_eq!(connection.receive(Wait::For(PATIENCE), &mut sink), Ok(Received::Frame));
        assert!(sink.frames == [(b"all".to_vec(), bulk)]);
    });
}

#[test]
fn bulk_past_the_end_of_the_target_is_dropped_and_the_next_frame_is_intact() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        let connection = dial(&echo.address);
        let bulk = pattern(1 << 20, 3);
        for bulk_room in [0, 1, 5000, 200_000] {
            connection.send(b"long", &[IoSlice::new(&bulk)]).unwrap();
            connection.send(b"next", &[IoSlice::new(b"xyz")]).unwrap();
            let mut sink = Collector::new();
            sink.bulk_room = bulk_room;
            for _ in 0..2 {
                assert_eq!(connection.receive(Wait::For(PATIENCE), &mut sink), Ok(Received::Frame));
                sink.bulk_room = usize::MAX;
            }
            assert!(sink.frames[0] == (b"long".to_vec(), bulk[..bulk_room].to_vec()));
            assert_eq!(sink.frames[1], (b"next".to_vec(), b"xyz".to_vec()));
        }
    });
}

#[test]
fn many_threads_share_one_connection_and_no_frame_is_torn() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        let connection = dial(&echo.address);
        let senders: Vec<_> = (0..4u8)
            .map(|sender| {
                let connection = connection.clone();
                thread::spawn(move || {
                    for round in 0..100u8 {
                        let bulk = vec![sender; 1000 * usize::from(round)];
                        connection.send(&[sender, round], &[IoSlice::new(&bulk)]).unwrap();
                    }
                })
            })
            .collect();
        let mut next = [0u8; 4];
        for _ in 0..400 {
            let (message, bulk) = receive_one(&*connection);
            let sender = message[0];
            assert_eq!(message[1], next[usize::from(sender)]);
            next[usize::from(sender)] += 1;
            assert_eq!(bulk.len(), 1000 * usize::from(message[1]));
            assert!(bulk.iter().all(|byte| *byte == sender));
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

#[test]
fn a_poll_driven_thread_gets_all_frames_of_a_batch_without_blocking() {
    on_every_provider(|address| {
        let mut port = open(address);
        let connection = dial(&port.local_address());
        let mut sink = Collector::new();
        assert_eq!(connection.receive_ready(&mut sink), Ok(0));
        let events = poll_until(&mut *port, |events| !events.is_empty());
        let Event::Opened { connection: id, .. } = events[0] else { panic!("{events:?}") };
        for number in 0..1000u32 {
            let bulk = (number % 100 == 0).then(|| pattern(9000, number as u8).into());
            port.send(id, &number.to_le_bytes(), bulk).unwrap();
        }
        port.flush();
        while sink.frames.len() < 1000 {
            readable(connection.readiness());
            connection.receive_ready(&mut sink).unwrap();
            port.flush();
        }
        for (number, (message, bulk)) in (0u32..).zip(&sink.frames) {
            assert_eq!(message[..], number.to_le_bytes());
            assert_eq!(bulk.len(), if number % 100 == 0 { 9000 } else { 0 });
        }
    });
}

fn readable(fd: std::os::fd::RawFd) {
    let mut entry = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd that lives across the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, PATIENCE.as_millis() as i32) };
    assert_eq!(ready, 1);
}

#[test]
fn a_receive_with_a_limit_comes_back_without_a_frame() {
    on_every_provider(|address| {
        let port = open(address);
        let connection = dial(&port.local_address());
        for limit in [Duration::ZERO, Duration::from_millis(5)] {
            assert_eq!(connection.receive(Wait::For(limit), &mut Collector::new()), Ok(Received::TimedOut));
        }
    });
}

#[test]
fn close_wakes_a_blocked_receiver_and_the_server_learns_of_it() {
    on_every_provider(|address| {
        let mut port = open(address);
        let connection = dial(&port.local_address());
        let blocked = {
            let connection = connection.clone();
            thread::spawn(move || connection.receive(Wait::Forever, &mut Collector::new()))
        };
        poll_until(&mut *port, |events| !events.is_empty());
        connection.close();
        connection.close();
        assert_eq!(blocked.join().unwrap(), Err(LinkError::Closed));
        assert_eq!(connection.send(b"x", &[]), Err(LinkError::Closed));
        let events = poll_until(&mut *port, |events| events.iter().any(is_closed));
        let [Event::Closed { reason: CloseReason::PeerClosed, .. }] = &events[..] else {
            panic!("{address}: {events:?}")
        };
    });
}

#[test]
fn close_wakes_a_sender_that_the_server_does_not_read() {
    on_every_provider(|address| {
        let port = open(address);
        let connection = dial(&port.local_address());
        let blocked = {
            let connection = connection.clone();
            let bulk = vec![0; 8 << 20];
            thread::spawn(move || {
                loop {
                    if let Err(error) = connection.send(b"", &[IoSlice::new(&bulk)]) {
                        return error;
                    }
                }
            })
        };
        assert_eq!(
            connection.receive(Wait::For(Duration::from_millis(50)), &mut Collector::new()).unwrap(),
            Received::TimedOut
        );
        connection.close();
        assert_eq!(blocked.join().unwrap(), LinkError::Closed);
    });
}

#[test]
fn a_server_that_goes_away_is_noticed_after_its_last_frames() {
    on_every_provider(|address| {
        let mut port = open(address);
        let connection = dial(&port.local_address());
        let events = poll_until(&mut *port, |events| !events.is_empty());
        let Event::Opened { connection: id, .. } = events[0] else { panic!("{events:?}") };
        port.send(id, b"goodbye", None).unwrap();
        drop(port);
        assert_eq!(receive_one(&*connection).0, b"goodbye");
        let mut sink = Collector::new();
        assert_eq!(connection.receive(Wait::Forever, &mut sink), Err(LinkError::PeerClosed));
        assert_eq!(connection.receive_ready(&mut sink), Err(LinkError::PeerClosed));
        assert_eq!(connection.send(b"x", &[]), Err(LinkError::PeerClosed));
        assert!(connect(address, PATIENCE).is_err());
    });
}

#[test]
fn the_server_can_say_why_and_close() {
    on_every_provider(|address| {
        let mut port = open(address);
        let connection = dial(&port.local_address());
        connection.send(b"hello, version 99", &[]).unwrap();
        let events = poll_until(&mut *port, |events| frames(events).len() == 1);
        let Event::Frame { connection: id, .. } = events[1] else { panic!("{events:?}") };
        port.send(id, b"unknown version", None).unwrap();
        port.close(id);
        port.close(id);
        assert_eq!(port.send(id, b"more", None), Err(SendError::Gone));
        let events = poll_until(&mut *port, |events| !events.is_empty());
        let [Event::Closed { reason: CloseReason::ClosedHere, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(receive_one(&*connection).0, b"unknown version");
        assert_eq!(connection.receive(Wait::Forever, &mut Collector::new()), Err(LinkError::PeerClosed));
    });
}

#[test]
fn a_peer_that_does_not_read_overflows_its_own_queue_only() {
    on_every_provider(|address| {
        let options = PortOptions { queued_bytes_max: 1 << 20, ..PortOptions::default() };
        let mut port = listen(address, BufferPool::new(1 << 20), options).unwrap();
        let deaf = dial(&port.local_address());
        let events = poll_until(&mut *port, |events| !events.is_empty());
        let Event::Opened { connection: deaf_id, .. } = events[0] else { panic!("{events:?}") };
        let good = dial(&port.local_address());
        let events = poll_until(&mut *port, |events| !events.is_empty());
        let Event::Opened { connection: good_id, .. } = events[0] else { panic!("{events:?}") };
        let refused = (0..10_000).find_map(|_| {
            port.flush();
            port.send(deaf_id, b"m", Some(vec![7; 100_000].into())).err()
        });
        let Some(SendError::Overflow { queued_bytes }) = refused else { panic!("{refused:?}") };
        assert!(queued_bytes <= 1 << 20);
        port.send(good_id, b"fine", None).unwrap();
        port.flush();
        assert_eq!(receive_one(&*good).0, b"fine");
        port.close(deaf_id);
        let events = poll_until(&mut *port, |events| !events.is_empty());
        assert!(matches!(events[..], [Event::Closed { connection, .. }] if connection == deaf_id));
        drop(deaf);
    });
}

#[test]
fn an_exhausted_pool_holds_bulk_back_but_not_other_connections() {
    on_every_provider(|address| {
        let pool = BufferPool::new(64 << 10);
        let mut port = listen(address, pool.clone(), PortOptions::default()).unwrap();
        let (bulky, small) = (dial(&port.local_address()), dial(&port.local_address()));
        for number in 0..3u8 {
            bulky.send(&[number], &[IoSlice::new(&[number; 60_000])]).unwrap();
        }
        let mut events = poll_until(&mut *port, |events| frames(events).len() == 1);
        small.send(b"lock", &[]).unwrap();
        let later = poll_until(&mut *port, |events| !frames(events).is_empty());
        assert_eq!(frames(&later), [(b"lock".to_vec(), 0)], "{address}");
        for number in 0..3u8 {
            assert_eq!(frames(&events).last(), Some(&(vec![number], 60_000)));
            assert!(pool.used_bytes() > 0);
            // Another thread lets go while the port sleeps without a time limit.
            let release = thread::spawn(move || drop(events));
            events = Vec::new();
            while number < 2 && frames(&events).is_empty() {
                port.poll(&mut events, None).unwrap();
            }
            release.join().unwrap();
        }
        assert_eq!(pool.used_bytes(), 0);
    });
}

#[test]
fn wakers_wake_a_sleeping_port_and_coalesce() {
    on_every_provider(|address| {
        let mut port = open(address);
        let waker = port.waker();
        waker.wake();
        waker.wake();
        let mut events = Vec::new();
        port.poll(&mut events, None).unwrap();
        assert!(matches!(events[..], [Event::Woken]));
        let thread = thread::spawn(move || waker.wake());
        let events = poll_until(&mut *port, |events| !events.is_empty());
        assert!(matches!(events[..], [Event::Woken]));
        thread.join().unwrap();
    });
}

#[test]
fn frames_over_the_limits_are_refused_and_the_connection_lives_on() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        let connection = dial(&echo.address);
        let message = vec![0; FRAME_MESSAGE_BYTES_MAX as usize + 1];
        assert!(matches!(connection.send(&message, &[]), Err(LinkError::TooLarge(_))));
        let bulk = vec![0; FRAME_BULK_BYTES_MAX as usize + 1];
        assert!(matches!(connection.send(b"", &[IoSlice::new(&bulk)]), Err(LinkError::TooLarge(_))));
        connection.send(b"still here", &[]).unwrap();
        assert_eq!(receive_one(&*connection).0, b"still here");
    });
}

#[test]
fn a_busy_address_is_refused_by_name() {
    on_every_provider(|address| {
        let port = open(address);
        let taken = port.local_address();
        let Err(error) = listen(&taken, BufferPool::new(1), PortOptions::default()) else {
            panic!("two ports on {taken}")
        };
        assert!(matches!(error, ListenError::AddressInUse { .. }));
        assert!(error.to_string().contains(&taken.to_string()), "{error}");
    });
}

#[test]
fn nobody_listening_is_an_error_that_names_the_address() {
    let directory = tempfile::tempdir().unwrap();
    for address in addresses(&directory) {
        let Err(error) = connect(&address, Duration::from_secs(1)) else { panic!("connected to {address}") };
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}

#[test]
fn descriptors_keep_clear_of_low_numbers_on_request() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        for (minimum, at_least) in [(300, 300), (i32::MAX, 0), (0, 0)] {
            set_descriptor_minimum(minimum);
            let connection = dial(&echo.address);
            assert!(connection.readiness() >= at_least);
            connection.send(b"hi", &[]).unwrap();
            assert_eq!(receive_one(&*connection).0, b"hi");
        }
    });
}

#[test]
fn many_clients_are_served_by_one_thread() {
    on_every_provider(|address| {
        let echo = Echo::start(open(address));
        let clients: Vec<_> = (0..8u8)
            .map(|client| {
                let connection = dial(&echo.address);
                thread::spawn(move || {
                    for round in 0..50u8 {
                        let bulk = vec![client ^ round; usize::from(round) * 5000];
                        connection.send(&[client, round], &[IoSlice::new(&bulk)]).unwrap();
                        assert!(receive_one(&*connection) == (vec![client, round], bulk));
                    }
                    Arc::strong_count(&connection)
                })
            })
            .collect();
        clients.into_iter().for_each(|client| assert_eq!(client.join().unwrap(), 1));
    });
}
