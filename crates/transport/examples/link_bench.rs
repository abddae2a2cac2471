//! Measures one port: small requests and replies from many connections, one at a time, and bulk.
//!
//! `cargo run --release -p ccpfs-transport --example link_bench [seconds per row [part of a load's name]]`

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ccpfs_transport::{
    Address, BufferPool, Connection, Event, FrameSink, PortOptions, Wait, connect, listen,
};

/// One load.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    connections: u32,
    /// Requests under way per connection.
    depth: u32,
    bulk_bytes: usize,
}

const ROWS: [Row; 5] = [
    Row { name: "one at a time", connections: 1, depth: 1, bulk_bytes: 0 },
    Row { name: "16 x 1", connections: 16, depth: 1, bulk_bytes: 0 },
    Row { name: "16 x 16", connections: 16, depth: 16, bulk_bytes: 0 },
    Row { name: "1 MiB up, 1 connection", connections: 1, depth: 4, bulk_bytes: 1 << 20 },
    Row { name: "4 MiB up, 4 connections", connections: 4, depth: 2, bulk_bytes: 4 << 20 },
];

/// Counts replies.
struct Count(u64);

impl FrameSink for Count {
    fn bulk_target(&mut self, _message: &[u8], _bulk_bytes: usize) -> Vec<IoSliceMut<'_>> {
        Vec::new()
    }

    fn frame(&mut self, _message: &[u8], _bulk_bytes: usize) {
        self.0 += 1;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1.0), |text| text.parse())?;
    let wanted = std::env::args().nth(2).unwrap_or_default();
    let run = Duration::from_secs_f64(seconds);
    let socket = std::env::temp_dir().join(format!("ccpfs-link-bench-{}.sock", std::process::id()));
    let addresses = [
        Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        Address::Unix(socket),
        Address::Loopback("bench".to_owned()),
    ];
    println!("{:<10} {:<26} {:>12} {:>12} {:>12}", "provider", "load", "requests/s", "us/request", "MiB/s");
    for address in &addresses {
        for row in ROWS.into_iter().filter(|row| row.name.contains(&wanted)) {
            measure(address, row, run)?;
        }
    }
    Ok(())
}

fn measure(address: &Address, row: Row, run: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let mut port = listen(address, BufferPool::new(64 << 20), PortOptions::default())?;
    let (bound, waker) = (port.local_address(), port.waker());
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let server = thread::spawn(move || {
        let mut events = Vec::new();
        while !stopped.load(Ordering::Relaxed) {
            if port.poll(&mut events, None).is_err() {
                return;
            }
            for event in events.drain(..) {
                if let Event::Frame { connection, message, .. } = event {
                    port.send(connection, &message, None).ok();
                }
            }
        }
    });
    let done = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let clients: Vec<_> = (0..row.connections)
        .map(|_| {
            let (bound, done) = (bound.clone(), done.clone());
            thread::spawn(move || {
                let connection =
                    connect(&bound, Duration::from_secs(5)).map_err(|error| error.to_string())?;
                done.fetch_add(drive(&*connection, row, start + run)?, Ordering::Relaxed);
                Ok::<(), String>(())
            })
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a client thread panicked")??;
    }
    let elapsed = start.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    waker.wake();
    server.join().map_err(|_| "the server thread panicked")?;
    let requests = done.load(Ordering::Relaxed) as f64;
    let provider = bound.to_string();
    let provider = provider.split(':').next().unwrap_or_default();
    println!(
        "{provider:<10} {:<26} {:>12.0} {:>12.2} {:>12.0}",
        row.name,
        requests / elapsed,
        elapsed * 1e6 / requests,
        requests * row.bulk_bytes as f64 / elapsed / f64::from(1 << 20)
    );
    Ok(())
}

/// Keeps `depth` requests under way until the time is over; returns how many were answered.
fn drive(connection: &dyn Connection, row: Row, until: Instant) -> Result<u64, String> {
    let message = [7; 100];
    let bulk = vec![3; row.bulk_bytes];
    let pages: Vec<IoSlice<'_>> = bulk.chunks(4096).map(IoSlice::new).collect();
    let mut count = Count(0);
    let mut sent = 0;
    while Instant::now() < until {
        while sent < count.0 + u64::from(row.depth) {
            connection.send(&message, &pages).map_err(|error| error.to_string())?;
            sent += 1;
        }
        connection.receive(Wait::Forever, &mut count).map_err(|error| error.to_string())?;
        // What came along is taken before the next requests go out together.
        connection.receive_ready(&mut count).map_err(|error| error.to_string())?;
    }
    while count.0 < sent {
        connection.receive(Wait::Forever, &mut count).map_err(|error| error.to_string())?;
    }
    Ok(sent)
}
