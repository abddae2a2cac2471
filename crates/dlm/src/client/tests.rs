//! Tests of the client half.

use super::{Effect, Input, Locks, Settings};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, LockState, OperationId, Part, Policy, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;

fn region(start: u64, end: u64) -> Region {
    Extent::new(start, end).unwrap().into()
}

#[test]
fn regression_a_grant_that_does_not_cover_its_request_is_refused() {
    for (mode, granted) in [(LockMode::Nbw, region(0, 5)), (LockMode::Pr, region(0, 10))] {
        let mut locks = Locks::new(Settings { policy: Policy::SEQDLM, locks_max: 8, age_ticks_max: 8 });
        let (operation, request) = (OperationId(1), RequestId(1));
        let required = region(0, 10);
        let mut out = Vec::new();
        let desired = required.clone();
        let wish =
            Input::Acquire { operation, mode: LockMode::Nbw, required, desired, request, terms: Terms::WAIT };
        locks.step(wish, &mut out);
        out.clear();
        let granted = GrantedLock {
            lock: LockId(1),
            mode,
            region: granted,
            sn: Sn(1),
            state: LockState::Granted,
            replaces: Vec::new(),
            early: false,
        };
        locks.step(Input::Granted { request, granted }, &mut out);
        assert_eq!(out, vec![Effect::Refused { operation, errno: 71 }]);
        assert!(locks.is_idle());
    }
}

#[test]
fn regression_a_grant_that_takes_less_than_it_replaces_or_whose_number_has_not_risen_is_refused() {
    let mut locks = Locks::new(Settings { policy: Policy::SEQDLM, locks_max: 8, age_ticks_max: 8 });
    let mut out = Vec::new();
    let mut grant = |number: u64, required: Region, sn: u64, replaces: Vec<LockId>| {
        let (operation, request) = (OperationId(number), RequestId(number));
        let desired = required.clone();
        let mode = LockMode::Nbw;
        let region = required.clone();
        locks.step(
            Input::Acquire { operation, mode, required, desired, request, terms: Terms::WAIT },
            &mut out,
        );
        out.clear();
        let lock = LockId(number);
        let (state, sn) = (LockState::Granted, Sn(sn));
        let granted = GrantedLock { lock, mode, region, sn, state, replaces, early: false };
        locks.step(Input::Granted { request, granted }, &mut out);
        out.pop()
    };
    let used = |number| Some(Effect::Use { operation: OperationId(number), lock: LockId(number), sn: Sn(5) });
    let refused = |number| Some(Effect::Refused { operation: OperationId(number), errno: 71 });
    assert_eq!(grant(1, region(0, 10), 5, vec![]), used(1));
    assert_eq!(grant(2, region(5, 15), 6, vec![LockId(1)]), refused(2));
    assert_eq!(grant(3, region(20, 30), 5, vec![]), refused(3));
}

#[test]
fn regression_a_part_is_not_served_by_a_lock_that_reaches_into_the_next_one() {
    let mut locks = Locks::new(Settings { policy: Policy::SEQDLM, locks_max: 8, age_ticks_max: 8 });
    let mut out = Vec::new();
    let mut acquire = |number: u64, required: Region, part: Part, granted: Option<Region>| {
        out.clear();
        let (operation, request) = (OperationId(number), RequestId(number));
        let (mode, desired, terms) = (LockMode::Bw, required.clone(), Terms { part, ..Terms::WAIT });
        locks.step(Input::Acquire { operation, mode, required, desired, request, terms }, &mut out);
        let asked = matches!(out[..], [Effect::Enqueue { .. }]);
        if let Some(region) = granted {
            let (lock, sn, state) = (LockId(number), Sn(number), LockState::Granted);
            let granted = GrantedLock { lock, mode, region, sn, state, replaces: vec![], early: false };
            locks.step(Input::Granted { request, granted }, &mut out);
        }
        asked
    };
    assert!(acquire(1, region(0, 10), Part::Only, Some(region(0, 100))));
    assert!(!acquire(2, region(0, 10), Part::Only, None), "an operation that needs no other lock may use it");
    // Whoever waits for [20, 30) must not hold it: the lock may be on its way back by then.
    assert!(acquire(3, region(0, 10), Part::First, None));
    assert!(acquire(4, region(200, 210), Part::First, Some(region(200, 210))));
    assert!(
        !acquire(5, region(200, 210), Part::First, None) && !acquire(6, region(205, 210), Part::Next, None)
    );
    assert!(acquire(7, region(200, 205), Part::First, None));
}
