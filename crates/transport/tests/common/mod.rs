//! Helpers of the transport tests: ports of all providers, an echo shard, a collecting sink.

#![allow(dead_code)]

use std::io::IoSliceMut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ccpfs_transport::{
    Address, BufferPool, Bulk, Connection, Event, FrameSink, PortOptions, Received, ServerPort, Wait, Waker,
    connect, listen,
};

/// No test waits longer than this for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// An address of each provider, all free.
pub(crate) fn addresses(directory: &tempfile::TempDir) -> [Address; 3] {
    static NAMES: AtomicU32 = AtomicU32::new(0);
    let name = NAMES.fetch_add(1, Ordering::Relaxed);
    [
        Address::Tcp { host: "127.0.0.1".to_owned(), port: 0 },
        Address::Unix(directory.path().join(format!("{name}.sock"))),
        Address::Loopback(format!("test-{name}")),
    ]
}

pub(crate) fn open(address: &Address) -> Box<dyn ServerPort> {
    listen(address, BufferPool::new(64 << 20), PortOptions::default()).unwrap()
}

pub(crate) fn dial(address: &Address) -> Arc<dyn Connection> {
    connect(address, PATIENCE).unwrap()
}

/// Keeps every frame it gets; bulk lands in `parts` pieces of memory, at most `bulk_room` bytes.
pub(crate) struct Collector {
    pub(crate) frames: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) bulk_room: usize,
    pub(crate) parts: usize,
    memory: Vec<u8>,
}

impl Collector {
    pub(crate) fn new() -> Collector {
        Collector { frames: Vec::new(), bulk_room: usize::MAX, parts: 3, memory: Vec::new() }
    }
}

impl FrameSink for Collector {
    fn bulk_target(&mut self, _message: &[u8], bulk_bytes: usize) -> Vec<IoSliceMut<'_>> {
        self.memory.resize(bulk_bytes.min(self.bulk_room), 0);
        let piece = self.memory.len().div_ceil(self.parts).max(1);
        self.memory.chunks_mut(piece).map(IoSliceMut::new).collect()
    }

    fn frame(&mut self, message: &[u8], bulk_bytes: usize) {
        let bulk = if bulk_bytes > 0 { std::mem::take(&mut self.memory) } else { Vec::new() };
        self.frames.push((message.to_vec(), bulk));
    }
}

/// Receives exactly one frame.
pub(crate) fn receive_one(connection: &dyn Connection) -> (Vec<u8>, Vec<u8>) {
    let mut sink = Collector::new();
    assert_eq!(connection.receive(Wait::For(PATIENCE), &mut sink), Ok(Received::Frame));
    sink.frames.remove(0)
}

/// Polls until `enough` says so; returns everything that happened.
pub(crate) fn poll_until(port: &mut dyn ServerPort, enough: impl Fn(&[Event]) -> bool) -> Vec<Event> {
    let start = std::time::Instant::now();
    let mut events = Vec::new();
    while !enough(&events) {
        assert!(start.elapsed() < PATIENCE, "gave up; so far: {events:?}");
        port.poll(&mut events, Some(Duration::from_millis(200))).unwrap();
    }
    events
}

/// A thread that answers every frame with itself until it is dropped.
pub(crate) struct Echo {
    pub(crate) address: Address,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start(mut port: Box<dyn ServerPort>) -> Echo {
        let stop = Arc::new(AtomicBool::new(false));
        let (address, waker, stopped) = (port.local_address(), port.waker(), stop.clone());
        let thread = thread::spawn(move || {
            let mut events = Vec::new();
            while !stopped.load(Ordering::SeqCst) {
                port.poll(&mut events, None).unwrap();
                for event in events.drain(..) {
                    if let Event::Frame { connection, message, bulk } = event {
                        port.send(connection, &message, bulk.map(Bulk::from)).ok();
                    }
                }
            }
        });
        Echo { address, stop, waker, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.waker.wake();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes).map(|index| (index as u8).wrapping_mul(31).wrapping_add((index >> 8) as u8) ^ seed).collect()
}
