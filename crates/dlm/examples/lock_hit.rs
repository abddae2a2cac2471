//! How long a client takes to lock and unlock when it holds a lock that serves: no message, no system call.
//!
//! `cargo run --release -p ccpfs-dlm --example lock_hit`

use ccpfs_dlm::client::{Effect, Input, Locks, Settings};
use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, LockState, OperationId, Policy, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;
use std::time::Instant;

/// The fastest of so many series is reported: other work on the machine makes none faster.
const SERIES: u64 = 50;
const ROUNDS: u64 = 100_000;

/// A cache of `count` disjoint write locks of 64 KiB.
fn cache(count: u64) -> Locks {
    let settings = Settings { policy: Policy::SEQDLM, locks_max: 8192, age_ticks_max: 60 };
    let mut locks = Locks::new(settings);
    let mut out = Vec::new();
    for number in 1..=count {
        let region = region(number - 1);
        let (operation, request) = (OperationId(number), RequestId(number));
        let acquire = Input::Acquire {
            operation,
            mode: LockMode::Nbw,
            required: region.clone(),
            desired: region.clone(),
            request,
            terms: Terms::WAIT,
        };
        locks.step(acquire, &mut out);
        let granted = GrantedLock {
            lock: LockId(number),
            mode: LockMode::Nbw,
            region,
            sn: Sn(number),
            state: LockState::Granted,
            replaces: Vec::new(),
            early: false,
        };
        locks.step(Input::Granted { request, granted }, &mut out);
        locks.step(Input::Finish { operation }, &mut out);
        out.clear();
    }
    locks
}

fn region(index: u64) -> Region {
    Extent::with_length(index * 65_536, 65_536).expect("not empty").into()
}

fn main() {
    for count in [1, 100, 8000] {
        let mut locks = cache(count);
        let mut out: Vec<Effect> = Vec::new();
        let mut ns = f64::INFINITY;
        for series in 1..=SERIES {
            let mut hits = 0_u64;
            let began = Instant::now();
            for round in series * ROUNDS..(series + 1) * ROUNDS {
                let operation = OperationId(1_000_000 + round);
                let acquire = Input::Acquire {
                    operation,
                    mode: LockMode::Nbw,
                    required: region(round * 7919 % count),
                    desired: Region::WHOLE,
                    request: RequestId(1_000_000 + round),
                    terms: Terms::WAIT,
                };
                locks.step(acquire, &mut out);
                hits += u64::from(matches!(out.as_slice(), [Effect::Use { .. }]));
                out.clear();
                locks.step(Input::Finish { operation }, &mut out);
            }
            ns = ns.min(began.elapsed().as_secs_f64() * 1e9 / ROUNDS as f64);
            assert_eq!(hits, ROUNDS, "every round must be a hit");
        }
        println!("{count} cached locks: {ns:.0} ns for lock and unlock");
    }
}
