//! Lock requests per second of one shard over TCP: connections that each keep some requests under way.
//!
//! `cargo run --release -p ccpfs-server --example lock_rate [connections] [requests under way] [seconds]`
#![allow(clippy::unwrap_used, reason = "an example")]

use ccpfs_config::ServerConfig;
use ccpfs_device::MemoryDevice;
use ccpfs_region::Region;
use ccpfs_server::{ShardStorage, start_on};
use ccpfs_transport::{Address, FrameSink, Wait, connect};
use ccpfs_types::{ClientId, Extent, FileId, LockMode, RequestId, ResourceId, Terms};
use ccpfs_wire::version::PROTOCOL_VERSION;
use ccpfs_wire::{Channel, LockRef, Message, decode_batch, encode_into};
use std::io::IoSliceMut;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Counts grants and gives every lock back.
struct Grants {
    resource: ResourceId,
    releases: Vec<LockRef>,
}

impl FrameSink for Grants {
    fn bulk_target(&mut self, _message: &[u8], _bulk_bytes: usize) -> Vec<IoSliceMut<'_>> {
        Vec::new()
    }

    fn frame(&mut self, message: &[u8], _bulk_bytes: usize) {
        for message in decode_batch(message) {
            if let Message::Grant { granted, .. } = message.unwrap() {
                self.releases.push(LockRef { resource: self.resource, lock: granted.lock });
            }
        }
    }
}

fn client(address: &Address, number: u64, under_way: u64, until: Instant) -> u64 {
    let patience = Duration::from_secs(10);
    let [control, callback] = [Channel::Control, Channel::Callback].map(|channel| {
        let line = connect(address, patience).unwrap();
        let mut hello = Vec::new();
        let name = String::from("lock_rate");
        let hello_message =
            Message::Hello { version: PROTOCOL_VERSION, client: ClientId(number), channel, name };
        encode_into(&hello_message, &mut hello);
        line.send(&hello, &[]).unwrap();
        line
    });
    let mut file = [0; 16];
    file[..8].copy_from_slice(&number.to_le_bytes());
    let resource = ResourceId { file: FileId(file), stripe: 0 };
    let mut grants = Grants { resource, releases: Vec::new() };
    let (mut asked, mut granted, mut next) = (0, 0, 0);
    while Instant::now() < until {
        let mut batch = Vec::new();
        while asked < granted + under_way {
            let region = Region::from(Extent::with_length(next * 10, 10).unwrap());
            next = (next + 1) % 100_000;
            let request = Message::Enqueue {
                request: RequestId(asked),
                resource,
                mode: LockMode::Nbw,
                required: region.clone(),
                desired: region,
                terms: Terms::WAIT,
            };
            encode_into(&request, &mut batch);
            asked += 1;
        }
        if !batch.is_empty() {
            control.send(&batch, &[]).unwrap();
        }
        control.receive(Wait::Forever, &mut grants).unwrap();
        granted += grants.releases.len() as u64;
        let mut release = Vec::new();
        encode_into(&Message::Release { locks: std::mem::take(&mut grants.releases) }, &mut release);
        callback.send(&release, &[]).unwrap();
    }
    granted
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap());
    let connections = arguments.next().unwrap_or(16);
    let under_way = arguments.next().unwrap_or(8);
    let seconds = arguments.next().unwrap_or(3);
    let listen = Address::Tcp { host: "127.0.0.1".into(), port: 0 };
    let config = ServerConfig::with_defaults(listen, Path::new("unused"));
    let storage = ShardStorage { device: Arc::new(MemoryDevice::new()), epoch: 1 };
    let server = start_on(config, vec![storage]).unwrap();
    let address = server.addresses()[0].clone();
    let until = Instant::now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (1..=connections)
        .map(|number| {
            let address = address.clone();
            std::thread::spawn(move || client(&address, number, under_way, until))
        })
        .collect();
    let granted: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    println!(
        "{connections} connections, {under_way} requests under way each: {} lock requests/s",
        granted / seconds
    );
}
