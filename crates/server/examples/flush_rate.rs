//! Flush bandwidth of one shard: clients that write a stripe each in strided pieces, several to a flush.
//!
//! `cargo run --release -p ccpfs-server --example flush_rate DIRECTORY [clients] [piece bytes] [flushes under way]`: to files
//! below the directory, over Unix sockets.
#![allow(clippy::unwrap_used, reason = "an example")]

use ccpfs_config::ServerConfig;
use ccpfs_device::{Device, FileDevice};
use ccpfs_region::Region;
use ccpfs_server::{ShardStorage, start_on};
use ccpfs_transport::{Address, Connection, FrameSink, Wait, connect};
use ccpfs_types::{ClientId, Extent, FileId, LockMode, RequestId, ResourceId, Sn, Terms};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, Message, Status, WritePiece, decode_batch, encode_into};
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const FLUSH_BYTES: u64 = 4 << 20;
const BYTES_PER_CLIENT: u64 = 512 << 20;

/// Remembers the last number granted and counts answers.
#[derive(Default)]
struct Answers {
    sn: Sn,
    written: u64,
}

impl FrameSink for Answers {
    fn bulk_target(&mut self, _message: &[u8], _bulk_bytes: usize) -> Vec<IoSliceMut<'_>> {
        Vec::new()
    }

    fn frame(&mut self, message: &[u8], _bulk_bytes: usize) {
        for message in decode_batch(message) {
            let message = message.unwrap();
            if let Message::Grant { granted, .. } = &message {
                self.sn = granted.sn;
            }
            if let Message::WriteReply { status, .. } = &message {
                assert_eq!(*status, Status::Ok);
                self.written += 1;
            }
        }
    }
}

fn line(address: &Address, client: u64, channel: Channel) -> Arc<dyn Connection> {
    let line = connect(address, Duration::from_secs(10)).unwrap();
    let name = String::from("flush_rate");
    send(&*line, &Message::Hello { version: PROTOCOL_VERSION, client: ClientId(client), channel, name }, &[]);
    line.receive(Wait::Forever, &mut Answers::default()).unwrap();
    line
}

fn send(line: &dyn Connection, message: &Message, bulk: &[u8]) {
    let mut bytes = Vec::new();
    encode_into(message, &mut bytes);
    let slices = [IoSlice::new(bulk)];
    line.send(&bytes, if bulk.is_empty() { &[] } else { &slices }).unwrap();
}

fn client(address: &Address, rank: u64, clients: u64, piece_bytes: u64, under_way: u64, start: &Barrier) {
    let lines = [Channel::Control, Channel::Callback, Channel::Bulk].map(|c| line(address, rank + 1, c));
    let mut answers = Answers::default();
    // A stripe each, so that nobody is revoked.
    let resource = ResourceId { file: FileId([7; 16]), stripe: u32::try_from(rank).unwrap() };
    let region = Region::WHOLE;
    let request = Message::Enqueue {
        request: RequestId(0),
        resource,
        mode: LockMode::Nbw,
        required: region.clone(),
        desired: region,
        terms: Terms::WAIT,
    };
    send(&*lines[0], &request, &[]);
    lines[0].receive(Wait::Forever, &mut answers).unwrap();
    let data = vec![u8::try_from(rank % 251).unwrap(); usize::try_from(FLUSH_BYTES).unwrap()];
    let pieces_per_flush = (FLUSH_BYTES / piece_bytes).clamp(1, 1024);
    let flushes = BYTES_PER_CLIENT / (pieces_per_flush * piece_bytes);
    let bulk = &data[..usize::try_from(pieces_per_flush * piece_bytes).unwrap()];
    start.wait();
    let mut piece = 0;
    for flush in 0..flushes {
        let pieces = (0..pieces_per_flush)
            .map(|_| {
                let at = (piece * clients + rank) * piece_bytes;
                piece += 1;
                let extent = Extent::with_length(at, piece_bytes).unwrap();
                WritePiece { resource, extent, sn: answers.sn }
            })
            .collect();
        let message = Message::Write { request: RequestId(flush), urgent: false, pieces, releases: vec![] };
        send(&*lines[2], &message, bulk);
        while flush + 1 - answers.written >= under_way {
            lines[2].receive(Wait::Forever, &mut answers).unwrap();
        }
    }
    while answers.written < flushes {
        lines[2].receive(Wait::Forever, &mut answers).unwrap();
    }
    start.wait();
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().expect("the first argument is a directory");
    let mut number = |default: u64| arguments.next().map_or(default, |text| text.parse().unwrap());
    let (clients, piece_bytes, under_way) = (number(4), number(1 << 20), number(4));
    let device: Arc<dyn Device> = Arc::new(FileDevice::open(Path::new(&directory), 0).unwrap());
    let socket = std::env::temp_dir().join(format!("flush-rate-{}", std::process::id()));
    let config = ServerConfig::with_defaults(Address::Unix(socket), Path::new("unused"));
    let server = start_on(config, vec![ShardStorage { device, epoch: 1 }]).unwrap();
    let start = Arc::new(Barrier::new(usize::try_from(clients).unwrap() + 1));
    let threads: Vec<_> = (0..clients)
        .map(|rank| {
            let (address, start) = (server.addresses()[0].clone(), start.clone());
            std::thread::spawn(move || client(&address, rank, clients, piece_bytes, under_way, &start))
        })
        .collect();
    start.wait();
    let begun = Instant::now();
    start.wait();
    let seconds = begun.elapsed().as_secs_f64();
    let mib = clients * (BYTES_PER_CLIENT >> 20);
    println!("{clients} clients, pieces of {piece_bytes} bytes: {mib} MiB in {seconds:.2} s");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}
