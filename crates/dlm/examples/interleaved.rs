//! What strided locks cost the server's half: real time per request, and per piece.
//!
//! `cargo run --release -p ccpfs-dlm --example interleaved`
#![allow(clippy::cast_precision_loss, reason = "figures for people")]

use ccpfs_dlm::server::{Effect, Input, Origin, Resource};
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{ClientId, Extent, LockId, LockMode, Policy, RequestId, Sn, Terms};
use std::time::Instant;

/// Paper 001, section 6.1: so many locks of one byte, so far apart.
const LOCKS: u64 = 128 * 1024;
const APART_BYTES: [u64; 2] = [64, 4096];
/// Extents of one list request.
const LIST: u64 = 64;

fn section(offset: u64, length: u64, stride: u64, count: u64) -> Region {
    Section::new(offset, length, &[(stride, count)]).expect("a stride is longer than a piece").into()
}

fn resource() -> Resource {
    Resource::new(Policy::SEQDLM, Origin { sn: Sn(1), lock: LockId(1) })
}

/// Enqueues for a client; what it was granted at once.
fn enqueue(
    resource: &mut Resource,
    client: u64,
    required: Region,
    desired: Region,
    out: &mut Vec<Effect>,
) -> LockId {
    out.clear();
    let input = Input::Enqueue {
        from: ClientId(client),
        request: RequestId(client),
        mode: LockMode::Nbw,
        required,
        desired,
        terms: Terms::WAIT,
    };
    resource.step(input, out);
    match out.as_slice() {
        [Effect::Grant { granted, .. }] => granted.lock,
        other => panic!("nobody is in the way: {other:?}"),
    }
}

fn release(resource: &mut Resource, client: u64, lock: LockId, out: &mut Vec<Effect>) {
    out.clear();
    resource.step(Input::Release { from: ClientId(client), lock }, out);
}

/// All locks of one client, in requests of these regions: locks acquired and released in a second.
fn rates(what: &str, regions: &[Region]) {
    let mut out = Vec::new();
    let (mut acquire, mut give_back, mut rounds) = (0.0, 0.0, 0_u64);
    let began = Instant::now();
    while rounds < 3 || began.elapsed().as_millis() < 300 {
        let mut resource = resource();
        let begin = Instant::now();
        let locks: Vec<LockId> = regions
            .iter()
            .map(|region| enqueue(&mut resource, 1, region.clone(), region.clone(), &mut out))
            .collect();
        acquire += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        for lock in locks {
            release(&mut resource, 1, lock, &mut out);
        }
        give_back += begin.elapsed().as_secs_f64();
        rounds += 1;
    }
    let rate = |seconds: f64| (LOCKS * rounds) as f64 / seconds;
    println!("{what:<10} {:>15.0} acquired/s  {:>15.0} released/s", rate(acquire), rate(give_back));
}

/// `clients` have a section each, all in between each other: what one more costs, and who writes into the gap that is left.
fn crowd(clients: u64) {
    let piece = 64;
    let stride = piece * (clients + 2);
    let mut out = Vec::new();
    let mut resource = resource();
    for client in 0..clients {
        let first = Extent::with_length(client * piece, piece).expect("not empty").into();
        enqueue(
            &mut resource,
            client + 1,
            first,
            section(client * piece, piece, stride, UNBOUNDED),
            &mut out,
        );
    }
    let mut time = |required: &Region, desired: &Region| {
        let (mut rounds, begin) = (0_u32, Instant::now());
        while begin.elapsed().as_millis() < 100 {
            for _ in 0..16 {
                let lock = enqueue(&mut resource, clients + 1, required.clone(), desired.clone(), &mut out);
                release(&mut resource, clients + 1, lock, &mut out);
            }
            rounds += 16;
        }
        begin.elapsed().as_secs_f64() * 1e6 / f64::from(rounds)
    };
    let at = 1000 * stride + clients * piece;
    let one: Region = Extent::with_length(at, piece).expect("not empty").into();
    let free = section(clients * piece, piece, stride, UNBOUNDED);
    let other_stride = section(clients * piece, 1, 2 * stride, 1000);
    println!(
        "{clients:>5} holders: exact extent {:>7.2} us, extent that grows {:>7.2} us, section {:>7.2} us, \
         with desired section {:>7.2} us, section of another stride {:>7.2} us",
        time(&one, &one),
        time(&one, &Extent::to_eof(at).into()),
        time(&free, &free),
        time(&one, &free),
        time(&other_stride, &other_stride),
    );
}

fn main() {
    for apart in APART_BYTES {
        println!("{LOCKS} locks of one byte, every {apart} bytes:");
        let piece = |at: u64| Extent::with_length(at * apart, 1).expect("not empty");
        rates("posix", &(0..LOCKS).map(|at| piece(at).into()).collect::<Vec<_>>());
        // Not evenly apart, or they would be sections.
        let uneven = |at: u64| Extent::with_length(at * apart + at % 3, 1).expect("not empty");
        let list = |first: u64| Region::from_extents((first..first + LIST).map(uneven).collect());
        rates("list", &(0..LOCKS).step_by(64).filter_map(list).collect::<Vec<_>>());
        rates("datatype", &[section(0, 1, apart, LOCKS)]);
    }
    for clients in [1, 10, 100, 1000] {
        crowd(clients);
    }
}
