//! Tests of the composition.

use crate::{CachedStripe, EIO, Effect, Input, PUT_OFF_MAX, Settings};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_dlm::client as dlm;
use ccpfs_region::Region;
use ccpfs_types::{
    Extent, FileId, LockId, LockMode, LockState, OperationId, Policy, RequestId, ResourceId, Sn, Terms,
};
use ccpfs_wire::{Channel, GrantedLock, LockRef, Message, Status};
use ccpfs_writeback::{BarrierId, JobId};

const RESOURCE: ResourceId = ResourceId { file: FileId([7; 16]), stripe: 0 };

fn extent(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

fn settings(epoch: u64) -> Settings {
    let locks = dlm::Settings { policy: Policy::SEQDLM, locks_max: 64, age_ticks_max: 8 };
    Settings { locks, put_off_max: PUT_OFF_MAX, epoch }
}

fn begun() -> CachedStripe {
    let mut stripe = CachedStripe::new(RESOURCE);
    assert_eq!(step(&mut stripe, Input::Begin { settings: settings(1) }), []);
    stripe
}

fn step(stripe: &mut CachedStripe, input: Input) -> Vec<Effect> {
    let mut out = Vec::new();
    stripe.step(input, &mut out);
    out
}

fn acquire(number: u64, mode: LockMode, required: Extent) -> Input {
    Input::Acquire {
        operation: OperationId(number),
        mode,
        required: required.into(),
        desired: required.into(),
        request: RequestId(number),
        terms: Terms::WAIT,
    }
}

fn lock(number: u64, mode: LockMode, region: Extent) -> GrantedLock {
    GrantedLock {
        lock: LockId(number),
        mode,
        region: region.into(),
        sn: Sn(number),
        state: LockState::Granted,
        replaces: Vec::new(),
        early: false,
    }
}

fn grant(request: u64, granted: GrantedLock) -> Input {
    Input::Message(Message::Grant { request: RequestId(request), resource: RESOURCE, granted })
}

fn revoke(number: u64, wanted: LockMode) -> Input {
    Input::Message(Message::Revoke {
        resource: RESOURCE,
        lock: LockId(number),
        wanted,
        region: Region::WHOLE,
    })
}

fn take(job: u64, urgent_only: bool) -> Input {
    Input::Take { job: JobId(job), bytes_max: 1 << 20, pieces_max: 64, urgent_only }
}

fn answered(job: u64, errno: Option<i32>) -> Input {
    Input::Answered { job: JobId(job), errno }
}

fn finish(number: u64) -> Input {
    Input::Finish { operation: OperationId(number) }
}

fn written(number: u64, extent: Extent) -> Input {
    Input::Written { operation: OperationId(number), extent, now_ns: 100 + i64::try_from(number).unwrap() }
}

/// Operation `number` gets lock `number` in this mode; it is not finished.
fn hold(stripe: &mut CachedStripe, number: u64, mode: LockMode, region: Extent) {
    step(stripe, acquire(number, mode, region));
    let answer = Effect::Answer { operation: OperationId(number), answer: Ok((LockId(number), Sn(number))) };
    assert_eq!(step(stripe, grant(number, lock(number, mode, region))), [answer]);
}

/// As [`hold`]; then all of it is written, and the operation ends.
fn write(stripe: &mut CachedStripe, number: u64, mode: LockMode, region: Extent) {
    hold(stripe, number, mode, region);
    assert_eq!(step(stripe, written(number, region)), []);
    assert_eq!(step(stripe, finish(number)), []);
}

fn told(glimpse: u64, end: u64, modified_ns: i64) -> Effect {
    let message = Message::GlimpseTell { glimpse, resource: RESOURCE, end, modified_ns };
    Effect::Send { channel: Channel::Callback, message }
}

fn ask(glimpse: u64) -> Input {
    Input::Message(Message::GlimpseAsk { glimpse, resource: RESOURCE })
}

fn acknowledgement(number: u64, mode: LockMode) -> Effect {
    let message = Message::RevokeAck { resource: RESOURCE, lock: LockId(number), mode };
    Effect::Send { channel: Channel::Callback, message }
}

fn release(number: u64) -> Effect {
    Effect::Release { lock: LockRef { resource: RESOURCE, lock: LockId(number) } }
}

fn job(number: u64, piece: (Extent, u64), releases: &[u64], urgent: bool) -> Effect {
    Effect::Job {
        job: JobId(number),
        pieces: vec![(piece.0, Sn(piece.1))],
        releases: releases.iter().map(|lock| LockId(*lock)).collect(),
        urgent,
    }
}

#[test]
fn a_write_asks_for_a_lock_once_and_then_finds_it() {
    let mut stripe = begun();
    let region = extent(0, 10);
    let asked = step(&mut stripe, acquire(1, LockMode::Nbw, region));
    let message = Message::Enqueue {
        request: RequestId(1),
        resource: RESOURCE,
        mode: LockMode::Nbw,
        required: region.into(),
        desired: region.into(),
        terms: Terms::WAIT,
    };
    assert_eq!(asked, [Effect::Send { channel: Channel::Control, message }]);
    step(&mut stripe, grant(1, lock(1, LockMode::Nbw, region)));
    assert_eq!(step(&mut stripe, written(1, region)), []);
    assert_eq!(step(&mut stripe, finish(1)), []);
    let answer = Effect::Answer { operation: OperationId(2), answer: Ok((LockId(1), Sn(1))) };
    assert_eq!(step(&mut stripe, acquire(2, LockMode::Nbw, extent(2, 4))), [answer]);
    assert!(!stripe.wants_flush());
    assert_eq!(stripe.modified_ns(), 101);
}

#[test]
fn a_revoked_lock_is_acknowledged_and_leaves_with_its_last_data() {
    let mut stripe = begun();
    let region = extent(0, 10);
    write(&mut stripe, 1, LockMode::Nbw, region);
    assert_eq!(step(&mut stripe, revoke(1, LockMode::Pr)), [acknowledgement(1, LockMode::Nbw)]);
    assert!(stripe.wants_flush());
    assert_eq!(step(&mut stripe, take(9, true)), [job(9, (region, 1), &[1], true)]);
    assert_eq!(step(&mut stripe, answered(9, None)), [Effect::Forgotten { extent: region }]);
    assert!(stripe.is_idle());
}

#[test]
fn a_glimpse_is_answered_only_after_a_flush_that_carries_a_release() {
    let mut stripe = begun();
    let region = extent(0, 10);
    write(&mut stripe, 1, LockMode::Nbw, region);
    assert_eq!(step(&mut stripe, ask(1)), [told(1, 10, 101)]);
    step(&mut stripe, revoke(1, LockMode::Pr));
    assert_eq!(step(&mut stripe, ask(2)), [told(2, 10, 101)]);
    step(&mut stripe, take(9, true));
    assert_eq!(step(&mut stripe, ask(3)), []);
    assert_eq!(step(&mut stripe, Input::Measure { operation: OperationId(4) }), []);
    let measured = Effect::Measured { operation: OperationId(4), end: 0, modified_ns: 101 };
    let forgotten = Effect::Forgotten { extent: region };
    assert_eq!(step(&mut stripe, answered(9, None)), [forgotten, told(3, 0, 101), measured]);
}

//= protocol.md#I8 type=test
#[test]
fn regression_a_sign_of_life_is_given_although_a_flush_that_carries_a_release_is_unanswered() {
    let mut stripe = begun();
    write(&mut stripe, 1, LockMode::Nbw, extent(0, 10));
    step(&mut stripe, revoke(1, LockMode::Pr));
    step(&mut stripe, take(9, true));
    assert_eq!(step(&mut stripe, ask(3)), []);
    // The device behind the server is slow, and the server wonders whether this client is alive.
    assert_eq!(step(&mut stripe, ask(0)), [told(0, 10, 101)]);
}

#[test]
fn a_glimpse_waits_for_no_flush_that_was_taken_after_it() {
    let mut stripe = begun();
    write(&mut stripe, 1, LockMode::Nbw, extent(0, 10));
    write(&mut stripe, 2, LockMode::Nbw, extent(10, 20));
    step(&mut stripe, revoke(1, LockMode::Pr));
    step(&mut stripe, take(8, true));
    assert_eq!(step(&mut stripe, ask(1)), []);
    step(&mut stripe, revoke(2, LockMode::Pr));
    step(&mut stripe, take(9, true));
    assert_eq!(step(&mut stripe, answered(8, None)).last(), Some(&told(1, 20, 102)));
}

#[test]
fn hurry_makes_a_put_off_flush_urgent() {
    let mut stripe = begun();
    let region = extent(0, 10);
    write(&mut stripe, 1, LockMode::Nbw, region);
    assert_eq!(step(&mut stripe, revoke(1, LockMode::Nbw)), [acknowledgement(1, LockMode::Nbw)]);
    assert!(!stripe.wants_flush());
    assert_eq!(step(&mut stripe, take(8, true)), []);
    assert_eq!(step(&mut stripe, revoke(1, LockMode::Pr)), [acknowledgement(1, LockMode::Nbw)]);
    assert!(stripe.wants_flush());
    assert_eq!(step(&mut stripe, take(9, true)), [job(9, (region, 1), &[1], true)]);
}

#[test]
fn a_put_off_flush_whose_data_are_overwritten_releases_its_lock_at_once() {
    let mut stripe = begun();
    let region = extent(0, 10);
    write(&mut stripe, 1, LockMode::Nbw, region);
    step(&mut stripe, revoke(1, LockMode::Nbw));
    hold(&mut stripe, 2, LockMode::Nbw, region);
    assert_eq!(step(&mut stripe, written(2, region)), [release(1)]);
    assert_eq!(stripe.locks().unwrap().count(), 1);
}

#[test]
fn many_put_off_flushes_ask_to_be_sent() {
    let mut stripe = begun();
    let count = PUT_OFF_MAX as u64 + 1;
    for number in 1..=count {
        assert!(!stripe.wants_flush_soon());
        write(&mut stripe, number, LockMode::Nbw, extent(number * 10, number * 10 + 10));
        step(&mut stripe, revoke(number, LockMode::Nbw));
    }
    assert!(stripe.wants_flush_soon());
    assert!(!stripe.wants_flush());
}

#[test]
fn loss_answers_everybody_and_sends_nothing() {
    let mut stripe = begun();
    let region = extent(0, 10);
    write(&mut stripe, 1, LockMode::Nbw, region);
    step(&mut stripe, revoke(1, LockMode::Pr));
    step(&mut stripe, take(9, true));
    hold(&mut stripe, 2, LockMode::Pr, extent(0, 30));
    step(&mut stripe, ask(1));
    step(&mut stripe, Input::Measure { operation: OperationId(4) });
    step(&mut stripe, Input::Barrier { barrier: BarrierId(5), next_job: JobId(10) });
    step(&mut stripe, acquire(6, LockMode::Pw, Extent::WHOLE));
    let look = Input::Look { operation: OperationId(2), extent: region, ahead_bytes: 0 };
    assert_eq!(step(&mut stripe, look), []);
    let effects = step(&mut stripe, Input::Lost);
    let expected = [
        Effect::Failed { errno: EIO },
        Effect::Answer { operation: OperationId(6), answer: Err(EIO) },
        Effect::BarrierDone { barrier: BarrierId(5), errno: Some(EIO) },
        Effect::DataLost { extent: Extent::WHOLE, errno: EIO },
        Effect::Forgotten { extent: Extent::WHOLE },
        Effect::Void { operation: OperationId(2) },
        Effect::Measured { operation: OperationId(4), end: 0, modified_ns: 101 },
    ];
    assert_eq!(effects, expected);
    assert!(stripe.is_idle());
    // What comes late concerns nobody.
    assert_eq!(step(&mut stripe, answered(9, None)), []);
    assert_eq!(step(&mut stripe, grant(6, lock(3, LockMode::Pw, Extent::WHOLE))), []);
}

#[test]
fn an_operation_whose_lock_was_lost_marks_nothing_even_when_a_new_session_has_begun() {
    let mut stripe = begun();
    let region = extent(0, 10);
    hold(&mut stripe, 1, LockMode::Pw, region);
    step(&mut stripe, Input::Begin { settings: settings(2) });
    assert!(!stripe.holds(OperationId(1)));
    let void = [Effect::Void { operation: OperationId(1) }];
    assert_eq!(step(&mut stripe, written(1, region)), void);
    assert_eq!(step(&mut stripe, Input::Fetched { operation: OperationId(1), extent: region }), void);
    let cut = Input::Truncate { operation: OperationId(1), length: 0, request: RequestId(8) };
    assert_eq!(step(&mut stripe, cut), void);
    assert_eq!(step(&mut stripe, finish(1)), []);
    assert!(stripe.is_idle());
}

#[test]
fn a_truncate_waits_for_flushes_above_the_cut() {
    let mut stripe = begun();
    hold(&mut stripe, 1, LockMode::Pw, Extent::WHOLE);
    step(&mut stripe, written(1, extent(0, 10)));
    let barrier = Input::Barrier { barrier: BarrierId(5), next_job: JobId(6) };
    assert_eq!(step(&mut stripe, barrier), []);
    // A barrier's data go although only what is urgent was asked for.
    assert_eq!(step(&mut stripe, take(6, true)), [job(6, (extent(0, 10), 1), &[], false)]);
    let cut = Input::Truncate { operation: OperationId(1), length: 4, request: RequestId(8) };
    assert_eq!(step(&mut stripe, cut), []);
    let effects = step(&mut stripe, answered(6, None));
    let message = Message::Truncate { request: RequestId(8), resource: RESOURCE, length: 4, sn: Sn(1) };
    assert!(effects.contains(&Effect::BarrierDone { barrier: BarrierId(5), errno: None }));
    assert!(effects.contains(&Effect::Ask { operation: OperationId(1), message }));
    assert!(effects.contains(&Effect::Forgotten { extent: extent(4, Extent::EOF) }));
}

#[test]
fn regression_until_a_truncate_has_ended_the_size_is_what_it_was() {
    let mut stripe = begun();
    hold(&mut stripe, 1, LockMode::Pw, Extent::WHOLE);
    step(&mut stripe, written(1, extent(3, 4)));
    let cut = Input::Truncate { operation: OperationId(1), length: 1, request: RequestId(8) };
    step(&mut stripe, cut);
    // The server has 3 bytes of others and is not cut yet: 0 would make a size of 3, which there never was.
    let found = step(&mut stripe, Input::Measure { operation: OperationId(9) });
    let [Effect::Measured { end: 4, .. }] = found[..] else { panic!("{found:?}") };
    step(&mut stripe, Input::Cut { operation: OperationId(1) });
    step(&mut stripe, finish(1));
    let found = step(&mut stripe, Input::Measure { operation: OperationId(9) });
    let [Effect::Measured { end: 0, .. }] = found[..] else { panic!("{found:?}") };
}

//= protocol.md#I9 type=test
#[test]
fn regression_an_fsync_does_not_vouch_for_a_cut_that_an_earlier_life_of_the_server_acknowledged() {
    let mut stripe = begun();
    hold(&mut stripe, 1, LockMode::Pw, Extent::WHOLE);
    step(&mut stripe, Input::Truncate { operation: OperationId(1), length: 1, request: RequestId(8) });
    step(&mut stripe, Input::Cut { operation: OperationId(1) });
    step(&mut stripe, finish(1));
    step(&mut stripe, Input::Lost);
    step(&mut stripe, Input::Begin { settings: settings(2) });
    let sync = Input::Sync { operation: OperationId(2), epoch: 2 };
    assert_eq!(step(&mut stripe, sync), [Effect::Failed { errno: EIO }]);
}

//= protocol.md#I9 type=test
#[test]
fn regression_a_cut_counts_for_fsync_although_the_session_ended_before_its_answer_was_looked_at() {
    let mut stripe = begun();
    hold(&mut stripe, 1, LockMode::Pw, Extent::WHOLE);
    step(&mut stripe, Input::Truncate { operation: OperationId(1), length: 1, request: RequestId(8) });
    step(&mut stripe, Input::Lost);
    step(&mut stripe, Input::Cut { operation: OperationId(1) });
    step(&mut stripe, finish(1));
    step(&mut stripe, Input::Begin { settings: settings(2) });
    let sync = Input::Sync { operation: OperationId(2), epoch: 2 };
    assert_eq!(step(&mut stripe, sync), [Effect::Failed { errno: EIO }]);
}

#[test]
fn reading_ahead_stays_below_the_lock_in_use() {
    let mut stripe = begun();
    let region = extent(0, 100);
    hold(&mut stripe, 1, LockMode::Pr, region);
    let operation = OperationId(1);
    let look = |end, ahead_bytes| Input::Look { operation, extent: extent(0, end), ahead_bytes };
    let missing = |extents| [Effect::Missing { operation, extents }];
    assert_eq!(step(&mut stripe, look(10, 0)), missing(vec![extent(0, 10)]));
    assert_eq!(step(&mut stripe, look(10, 20)), missing(vec![extent(0, 10), extent(10, 30)]));
    assert_eq!(step(&mut stripe, look(10, 91)), missing(vec![extent(0, 10)]));
    step(&mut stripe, Input::Fetched { operation, extent: extent(0, 10) });
    assert_eq!(step(&mut stripe, look(10, 20)), missing(vec![]));
}

#[test]
fn a_failed_flush_is_reported_once_and_before_its_barrier() {
    let mut stripe = begun();
    let region = extent(0, 10);
    write(&mut stripe, 1, LockMode::Nbw, region);
    step(&mut stripe, Input::Barrier { barrier: BarrierId(5), next_job: JobId(6) });
    step(&mut stripe, take(6, false));
    let expected =
        [Effect::Failed { errno: 28 }, Effect::BarrierDone { barrier: BarrierId(5), errno: Some(28) }];
    assert_eq!(step(&mut stripe, answered(6, Some(28))), expected);
    assert_eq!(stripe.cache().dirty_bytes(), 10);
    assert_eq!(step(&mut stripe, take(7, false)), []);
    step(&mut stripe, Input::Retry);
    assert_eq!(step(&mut stripe, take(8, false)), [job(8, (region, 1), &[], false)]);
}

#[test]
fn an_fsync_does_not_vouch_for_what_an_earlier_life_of_the_server_acknowledged() {
    let mut stripe = begun();
    write(&mut stripe, 1, LockMode::Nbw, extent(0, 10));
    step(&mut stripe, take(6, false));
    step(&mut stripe, answered(6, None));
    step(&mut stripe, Input::Lost);
    step(&mut stripe, Input::Begin { settings: settings(2) });
    let sync = Input::Sync { operation: OperationId(2), epoch: 2 };
    assert_eq!(step(&mut stripe, sync), [Effect::Failed { errno: EIO }]);
    assert_eq!(step(&mut stripe, Input::Synced { operation: OperationId(2), stored: true }), []);
    assert_eq!(step(&mut stripe, Input::Sync { operation: OperationId(3), epoch: 2 }), []);
}

#[test]
fn messages_that_do_not_belong_here_are_ignored() {
    let mut stripe = begun();
    hold(&mut stripe, 1, LockMode::Nbw, extent(0, 10));
    let before = stripe.clone();
    let other = ResourceId { stripe: 1, ..RESOURCE };
    let messages = [
        Message::Revoke { resource: other, lock: LockId(1), wanted: LockMode::Pr, region: Region::WHOLE },
        Message::GlimpseAsk { glimpse: 1, resource: other },
        Message::Denied {
            request: RequestId(99),
            resource: RESOURCE,
            status: Status::Errno(11),
            first_common: None,
        },
        Message::Done { request: RequestId(1), status: Status::Ok },
        Message::Goodbye {},
    ];
    for message in messages {
        assert_eq!(step(&mut stripe, Input::Message(message)), []);
    }
    assert_eq!(stripe, before);
}

#[test]
fn without_a_session_nobody_gets_a_lock() {
    let mut stripe = CachedStripe::new(RESOURCE);
    let answer = Effect::Answer { operation: OperationId(1), answer: Err(EIO) };
    assert_eq!(step(&mut stripe, acquire(1, LockMode::Pr, extent(0, 1))), [answer]);
    assert_eq!(step(&mut stripe, ask(1)), [told(1, 0, 0)]);
}

fn join(number: u64, under: u64, writes: bool) -> Input {
    Input::Join { operation: OperationId(number), under: OperationId(under), writes }
}

fn watch(number: u64) -> Input {
    Input::Watch { operation: OperationId(number) }
}

fn wanted(number: u64) -> Effect {
    Effect::Wanted { operation: OperationId(number) }
}

fn used(number: u64, lock: u64, sn: u64) -> Effect {
    Effect::Answer { operation: OperationId(number), answer: Ok((LockId(lock), Sn(sn))) }
}

fn on_callback(message: Message) -> Effect {
    Effect::Send { channel: Channel::Callback, message }
}

/// An operation with number 1 that uses lock 1 in this mode on bytes 0 to 100, and wants to know.
fn held(mode: LockMode) -> CachedStripe {
    let mut stripe = begun();
    step(&mut stripe, acquire(1, mode, extent(0, 100)));
    assert_eq!(step(&mut stripe, grant(1, lock(1, mode, extent(0, 100)))), [used(1, 1, 1)]);
    assert_eq!(step(&mut stripe, watch(1)), []);
    stripe
}

//= protocol.md#I1 type=test
#[test]
fn a_hold_hears_of_the_revocation_once_and_its_lock_stays_until_it_ends() {
    let mut stripe = held(LockMode::Pw);
    let acknowledged = |wanted| {
        let message = Message::RevokeAck { resource: RESOURCE, lock: LockId(1), mode: LockMode::Pw };
        assert_ne!(wanted, LockMode::Bw);
        on_callback(message)
    };
    let first = step(&mut stripe, revoke(1, LockMode::Pr));
    assert_eq!(first, [wanted(1), acknowledged(LockMode::Pr)]);
    assert_eq!(step(&mut stripe, revoke(1, LockMode::Pw)), [acknowledged(LockMode::Pw)]);
    // The pages come back through the hold while somebody waits, and take as long as they take.
    for number in 2..5 {
        assert_eq!(step(&mut stripe, join(number, 1, true)), [used(number, 1, 1)]);
        step(&mut stripe, written(number, extent(0, 100)));
        assert_eq!(step(&mut stripe, finish(number)), []);
        assert_eq!(step(&mut stripe, take(number + 10, true)), [], "not before the hold ends");
    }
    assert_eq!(step(&mut stripe, finish(1)), []);
    let sent = step(&mut stripe, take(20, true));
    let (pieces, releases) = (vec![(extent(0, 100), Sn(1))], vec![LockId(1)]);
    assert_eq!(sent, [Effect::Job { job: JobId(20), pieces, releases, urgent: true }]);
}

#[test]
fn a_hold_that_is_granted_with_early_revocation_hears_of_it_at_once() {
    let mut stripe = begun();
    step(&mut stripe, acquire(1, LockMode::Pw, extent(0, 100)));
    let granted = GrantedLock { state: LockState::Canceling, ..lock(1, LockMode::Pw, extent(0, 100)) };
    assert_eq!(step(&mut stripe, grant(1, granted)), [used(1, 1, 1)]);
    assert_eq!(step(&mut stripe, watch(1)), [wanted(1)]);
    assert_eq!(step(&mut stripe, join(2, 1, true)), [used(2, 1, 1)]);
}

#[test]
fn a_hold_whose_lock_was_revoked_before_its_grant_came_hears_of_it_at_once() {
    let mut stripe = begun();
    step(&mut stripe, acquire(1, LockMode::Pr, extent(0, 100)));
    assert_eq!(step(&mut stripe, revoke(1, LockMode::Nbw)), []);
    step(&mut stripe, grant(1, lock(1, LockMode::Pr, extent(0, 100))));
    assert_eq!(step(&mut stripe, watch(1)), [wanted(1)]);
}

//= protocol.md#I3 type=test
#[test]
fn regression_what_a_hold_writes_after_its_lock_was_replaced_is_newer_than_what_others_wrote_under_the_new_one()
 {
    let mut stripe = held(LockMode::Pw);
    step(&mut stripe, acquire(2, LockMode::Nbw, extent(0, 200)));
    let joined = GrantedLock { replaces: vec![LockId(1)], ..lock(9, LockMode::Pw, extent(0, 200)) };
    assert_eq!(step(&mut stripe, grant(2, joined)), [used(2, 9, 9)]);
    step(&mut stripe, written(2, extent(0, 200)));
    step(&mut stripe, finish(2));
    assert_eq!(step(&mut stripe, join(3, 1, true)), [used(3, 9, 9)]);
    step(&mut stripe, written(3, extent(50, 60)));
    step(&mut stripe, finish(3));
    // An operation that began under the old lock as well: it comes to write only now.
    step(&mut stripe, written(1, extent(70, 80)));
    let sent = step(&mut stripe, take(20, false));
    let [Effect::Job { pieces, .. }] = &sent[..] else { panic!("{sent:?}") };
    assert!(pieces.iter().all(|(_, sn)| *sn == Sn(9)), "{pieces:?}");
    // And the new lock's revocation is the hold's.
    let effects = step(&mut stripe, revoke(9, LockMode::Pr));
    assert!(effects.contains(&wanted(1)), "{effects:?}");
}

#[test]
fn a_hold_hears_of_the_loss_of_its_session_and_nothing_joins_it_any_more() {
    let mut stripe = held(LockMode::Pr);
    assert_eq!(step(&mut stripe, Input::Lost)[0], wanted(1));
    let refused = Effect::Answer { operation: OperationId(2), answer: Err(EIO) };
    assert_eq!(step(&mut stripe, join(2, 1, false)), [refused]);
    assert_eq!(step(&mut stripe, watch(1)), [wanted(1)]);
    step(&mut stripe, Input::Begin { settings: settings(2) });
    let refused = Effect::Answer { operation: OperationId(3), answer: Err(EIO) };
    assert_eq!(step(&mut stripe, join(3, 1, false)), [refused]);
    assert_eq!(step(&mut stripe, watch(1)), [wanted(1)]);
}

#[test]
fn a_reader_elsewhere_waits_for_a_hold_that_writes_and_shares_with_one_that_reads() {
    // Writes: nothing is flushed or lowered while it lasts.
    let mut stripe = held(LockMode::Pw);
    step(&mut stripe, join(2, 1, true));
    step(&mut stripe, written(2, extent(0, 10)));
    step(&mut stripe, finish(2));
    let effects = step(&mut stripe, revoke(1, LockMode::Pr));
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert_eq!(step(&mut stripe, take(20, true)), []);
    // Reads, under a lock that was got for a writer: lowered once the data are flushed, with the hold in place.
    let mut stripe = begun();
    step(&mut stripe, acquire(1, LockMode::Pw, extent(0, 100)));
    step(&mut stripe, grant(1, lock(1, LockMode::Pw, extent(0, 100))));
    step(&mut stripe, written(1, extent(0, 10)));
    step(&mut stripe, finish(1));
    assert_eq!(step(&mut stripe, acquire(2, LockMode::Pr, extent(0, 100))), [used(2, 1, 1)]);
    step(&mut stripe, watch(2));
    assert!(step(&mut stripe, revoke(1, LockMode::Pr)).contains(&wanted(2)));
    step(&mut stripe, take(20, true));
    let lowered = Message::Convert { resource: RESOURCE, lock: LockId(1), mode: LockMode::Pr };
    assert_eq!(step(&mut stripe, answered(20, None)), [on_callback(lowered)]);
    assert_eq!(step(&mut stripe, join(3, 2, false)), [used(3, 1, 1)]);
}

#[test]
fn a_hold_does_not_grow_old() {
    let mut stripe = held(LockMode::Pr);
    for _ in 0..20 {
        assert_eq!(step(&mut stripe, Input::Tick), []);
    }
    assert_eq!(step(&mut stripe, Input::Shrink { count: 10 }), []);
    assert_eq!(step(&mut stripe, finish(1)), []);
    assert_eq!(step(&mut stripe, Input::Tick).len(), 1);
}
