//! Tests of the client half.

use super::{Effect, Input, Locks, Settings};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::{Region, Section};
use ccpfs_types::{
    Extent, GroupId, LockId, LockMode, LockState, OperationId, Part, Policy, RequestId, Sn, Terms,
};
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
fn regression_a_grant_of_more_than_can_be_seen_to_cover_its_request_is_used() {
    // The server may have got from one to the other by way of a lock that it joined.
    const UNIT: u64 = 1_000_000_000;
    let span = 9_999 * (10 * UNIT + 1) + 10 * UNIT - 1;
    let of =
        |offset, length, levels: &[(u64, u64)]| Region::from(Section::new(offset, length, levels).unwrap());
    let holder = of(0, UNIT - 1, &[(UNIT, 10), (10 * UNIT + 1, 10_000), (span + 1, 10_000)]);
    let required = of(UNIT / 2, 1, &[(3 * UNIT, 4), (12 * UNIT + 1, 8_000), (100_000 * UNIT + 1, 9_000)]);
    assert!(!holder.contains_region(&required), "it is too hard to see");
    let mut locks = Locks::new(Settings { policy: Policy::SEQDLM, locks_max: 8, age_ticks_max: 8 });
    let (operation, request, mode) = (OperationId(1), RequestId(1), LockMode::Nbw);
    let mut out = Vec::new();
    let desired = required.clone();
    let wish = Input::Acquire { operation, mode, required, desired, request, terms: Terms::WAIT };
    locks.step(wish, &mut out);
    out.clear();
    let (lock, sn, state) = (LockId(1), Sn(1), LockState::Granted);
    let granted = GrantedLock { lock, mode, region: holder, sn, state, replaces: vec![], early: false };
    locks.step(Input::Granted { request, granted }, &mut out);
    assert_eq!(out, vec![Effect::Use { operation, lock, sn }]);
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

/// A client that is granted what it asks for, as it asks.
struct Member {
    locks: Locks,
    group: GroupId,
    next: u64,
}

impl Member {
    fn new() -> Member {
        let settings = Settings { policy: Policy::SEQDLM, locks_max: 8, age_ticks_max: 8 };
        Member { locks: Locks::new(settings), group: GroupId(7), next: 0 }
    }

    /// What follows from the beginning of an operation, and whether it was granted a lock of its own for it: with its own number.
    fn begin(&mut self, mode: LockMode, region: Region, part: Part) -> (OperationId, bool, Vec<Effect>) {
        self.next += 1;
        let (operation, request) = (OperationId(self.next), RequestId(self.next));
        let (required, desired) = (region.clone(), region.clone());
        let terms = Terms { part, group: self.group, ..Terms::WAIT };
        let mut out = Vec::new();
        self.locks.step(Input::Acquire { operation, mode, required, desired, request, terms }, &mut out);
        let asked_for = match out[..] {
            [Effect::Enqueue { mode, .. }] => Some(mode),
            _ => None,
        };
        if let Some(mode) = asked_for {
            out.clear();
            let (lock, sn, state) = (LockId(self.next), Sn(self.next), LockState::Granted);
            let granted = GrantedLock { lock, mode, region, sn, state, replaces: vec![], early: false };
            self.locks.step(Input::Granted { request, granted }, &mut out);
        }
        (operation, asked_for.is_some(), out)
    }

    fn finish(&mut self, operation: OperationId) -> Vec<Effect> {
        let mut out = Vec::new();
        self.locks.step(Input::Finish { operation }, &mut out);
        out
    }
}

//= protocol.md#I3 type=test
#[test]
fn regression_a_part_of_a_member_is_served_by_the_lock_of_its_group() {
    let mut member = Member::new();
    assert!(member.begin(LockMode::Pw, Region::WHOLE, Part::Only).1);
    // A lock of its own would have a higher number than what is written under that of the group later.
    assert!(!member.begin(LockMode::Bw, region(0, 10), Part::First).1);
    assert!(!member.begin(LockMode::Bw, region(20, 30), Part::Next).1);
    assert!(!member.begin(LockMode::Nbw, region(0, 40), Part::Only).1);
}

//= protocol.md#I3 type=test
#[test]
fn regression_nothing_begins_under_a_group_lock_that_a_newer_one_has_been_granted_beside() {
    let mut member = Member::new();
    let (stays, ..) = member.begin(LockMode::Pw, Region::WHOLE, Part::Only);
    let mut out = Vec::new();
    member.locks.step(Input::Revoked { lock: LockId(1), wanted: LockMode::Pr }, &mut out);
    let (write, asked, _) = member.begin(LockMode::Nbw, region(0, 100), Part::Only);
    assert!(asked && member.finish(write).is_empty());
    let (beside, asked, _) = member.begin(LockMode::Nbw, region(200, 300), Part::Only);
    assert!(asked && member.finish(beside).is_empty(), "elsewhere nothing is in the way");
    let (part, asked, out) = member.begin(LockMode::Bw, region(50, 60), Part::First);
    let flush = |number, start, end| Effect::Flush {
        lock: LockId(number),
        region: region(start, end),
        sn: Sn(number),
        release: true,
        urgent: true,
    };
    let goes_on = Effect::Use { operation: part, lock: LockId(4), sn: Sn(4) };
    assert_eq!((asked, out), (true, vec![flush(2, 0, 100), goes_on]));
    let (again, asked, out) = member.begin(LockMode::Nbw, region(0, 100), Part::Only);
    let goes_on = Effect::Use { operation: again, lock: LockId(5), sn: Sn(5) };
    assert_eq!(
        (asked, out),
        (true, vec![goes_on]),
        "the lock of the part is in use, and goes when it is not"
    );
    assert_eq!(member.finish(part), [flush(4, 50, 60)]);
    let (under, asked, out) = member.begin(LockMode::Nbw, region(50, 60), Part::Only);
    assert_eq!((asked, out), (false, vec![Effect::Use { operation: under, lock: LockId(5), sn: Sn(5) }]));
    let _ = stays;
}

//= protocol.md#I5 type=test
#[test]
fn regression_no_lock_of_a_group_stays_when_its_last_operation_ends() {
    let mut member = Member::new();
    let (stays, ..) = member.begin(LockMode::Pw, Region::WHOLE, Part::Only);
    member.locks.step(Input::Revoked { lock: LockId(1), wanted: LockMode::Pr }, &mut Vec::new());
    let (read, asked, _) = member.begin(LockMode::Pr, region(0, 10), Part::Only);
    assert!(asked);
    let flush =
        Effect::Flush { lock: LockId(1), region: Region::WHOLE, sn: Sn(1), release: true, urgent: true };
    assert_eq!(member.finish(stays), [flush]);
    let mut out = Vec::new();
    member.locks.step(Input::Shrink { count: usize::MAX }, &mut out);
    assert!(out.is_empty(), "what is in use stays");
    let gone =
        Effect::Flush { lock: LockId(2), region: region(0, 10), sn: Sn(2), release: true, urgent: true };
    assert_eq!(member.finish(read), [gone]);
}

//= protocol.md#I5 type=test
#[test]
fn regression_a_reader_of_a_group_keeps_out_readers_that_are_not_of_it() {
    let mut member = Member::new();
    let terms = Terms { group: member.group, ..Terms::WAIT };
    let (required, desired, mode) = (region(0, 10), region(0, 10), LockMode::Pr);
    let (operation, request) = (OperationId(1), RequestId(1));
    let mut out = Vec::new();
    member.locks.step(Input::Acquire { operation, mode, required, desired, request, terms }, &mut out);
    // What it has read may be older than what others see once all have left; it may outlive the membership.
    let (required, desired) = (region(0, 10), region(0, 10));
    assert_eq!(out, [Effect::Enqueue { request, mode: LockMode::Pw, required, desired, terms }]);
}

//= protocol.md#I5 type=test
#[test]
fn regression_who_has_pages_under_a_lock_of_a_group_is_told_when_its_client_leaves() {
    let mut member = Member::new();
    let (stays, ..) = member.begin(LockMode::Pw, Region::WHOLE, Part::Only);
    let (hold, asked, _) = member.begin(LockMode::Pr, region(0, 10), Part::Only);
    assert!(!asked);
    let mut out = Vec::new();
    member.locks.step(Input::Watch { operation: hold }, &mut out);
    assert!(out.is_empty(), "a member need not be told");
    assert_eq!(member.finish(stays), [Effect::Wanted { operation: hold }]);
    let gone =
        Effect::Flush { lock: LockId(1), region: Region::WHOLE, sn: Sn(1), release: true, urgent: true };
    assert_eq!(member.finish(hold), [gone]);
    // And who comes to have pages only then.
    let (late, asked, _) = member.begin(LockMode::Pr, region(0, 10), Part::Only);
    assert!(asked);
    member.locks.step(Input::Watch { operation: late }, &mut out);
    assert_eq!(out, [Effect::Wanted { operation: late }]);
}

#[test]
fn regression_what_a_member_may_skip_asking_for_is_what_a_lock_of_its_group_covers() {
    let mut member = Member::new();
    let (_stays, ..) = member.begin(LockMode::Pw, Region::WHOLE, Part::Only);
    assert!(member.locks.covers(LockMode::Nbw, &region(0, 10), member.group));
    assert!(!member.locks.covers(LockMode::Nbw, &region(0, 10), GroupId::NONE));
}
