//! The services of a shard together, without device and connections: every effect is looked at.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of effect among all")]

use super::Shard;
use crate::{
    BulkRef, Debt, Effect, Input, Measure, Note, PROBE, Parting, Settings, TaskId, TaskResult, Work,
};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, FileId, LockId, LockMode, Policy, RequestId, ResourceId, Sn, Terms};
use ccpfs_wire::{Channel, GrantedLock, LockRef, Message, Status, WritePiece};

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const C: ClientId = ClientId(3);
const R: ResourceId = ResourceId { file: FileId([7; 16]), stripe: 0 };
const SECOND_NS: u64 = 1_000_000_000;

fn extent(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

/// A shard with clients; tasks are kept until the test ends them.
struct World {
    shard: Shard,
    now_ns: u64,
    next_request: u64,
    out: Vec<Effect>,
}

impl World {
    fn new() -> World {
        World::with(100, 1000)
    }

    fn with(entries_max: usize, operations_max: usize) -> World {
        let settings = Settings {
            policy: Policy::SEQDLM,
            epoch: 1,
            revoke_timeout_ns: 4 * SECOND_NS,
            entries_max,
            operations_max,
        };
        let mut world = World { shard: Shard::new(settings), now_ns: 1, next_request: 0, out: Vec::new() };
        for client in [A, B, C] {
            for channel in [Channel::Control, Channel::Callback, Channel::Bulk] {
                assert_eq!(world.shard.refusal(client, channel), None);
                assert_eq!(world.step(Input::Joined { client, channel }), []);
            }
        }
        world
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        self.shard.step(input, self.now_ns, &mut self.out);
        core::mem::take(&mut self.out)
    }

    fn request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn control(&mut self, from: ClientId, message: Message) -> Vec<Effect> {
        self.step(Input::Message { from, channel: Channel::Control, message, bulk: None })
    }

    fn callback(&mut self, from: ClientId, message: Message) -> Vec<Effect> {
        self.step(Input::Message { from, channel: Channel::Callback, message, bulk: None })
    }

    fn enqueue(
        &mut self,
        from: ClientId,
        resource: ResourceId,
        mode: LockMode,
        range: Extent,
    ) -> Vec<Effect> {
        let (request, region) = (self.request(), Region::from(range));
        let (required, desired) = (region.clone(), region);
        self.control(
            from,
            Message::Enqueue { request, resource, mode, required, desired, terms: Terms::WAIT },
        )
    }

    fn lock(&mut self, from: ClientId, mode: LockMode, range: Extent) -> GrantedLock {
        let effects = self.enqueue(from, R, mode, range);
        granted(&effects, from).expect("a lock nobody else wants")
    }

    /// Sends a flush of one piece, with the name `bulk` for its data.
    fn flush(
        &mut self,
        from: ClientId,
        range: Extent,
        sn: Sn,
        releases: &[LockId],
        bulk: u64,
    ) -> Vec<Effect> {
        let pieces = vec![WritePiece { resource: R, extent: range, sn }];
        let releases = releases.iter().map(|lock| LockRef { resource: R, lock: *lock }).collect();
        let message = Message::Write { request: self.request(), urgent: false, pieces, releases };
        let bulk = Some(BulkRef { id: bulk, offset: 0, bytes: range.length() });
        self.step(Input::Message { from, channel: Channel::Bulk, message, bulk })
    }

    fn glimpse(&mut self, from: ClientId) -> Vec<Effect> {
        let request = self.request();
        self.control(from, Message::Glimpse { request, resource: R })
    }

    fn read(&mut self, from: ClientId, range: Extent) -> Vec<Effect> {
        let request = self.request();
        self.control(from, Message::Read { request, resource: R, extent: range })
    }

    fn ended(&mut self, task: TaskId, result: TaskResult) -> Vec<Effect> {
        self.step(Input::Ended { task, result })
    }

    fn measured(&mut self, task: TaskId, length_bytes: u64) -> Vec<Effect> {
        self.ended(task, TaskResult::Measured(Measure { length_bytes, modified_ns: 0 }))
    }

    fn part(&mut self, client: ClientId) -> Vec<Effect> {
        self.step(Input::Parted { client, goodbye: false })
    }

    fn tick(&mut self, seconds: u64) -> Vec<Effect> {
        self.now_ns += seconds * SECOND_NS;
        self.step(Input::Clock)
    }
}

fn granted(effects: &[Effect], client: ClientId) -> Option<GrantedLock> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: Message::Grant { granted, .. }, .. } if *to == client => {
            Some(granted.clone())
        }
        _ => None,
    })
}

fn task(effects: &[Effect]) -> TaskId {
    let mut started = effects.iter().filter_map(|effect| match effect {
        Effect::Start { task, .. } => Some(*task),
        _ => None,
    });
    let task = started.next().expect("a task");
    assert_eq!(started.next(), None, "one task");
    task
}

/// The messages that a client is sent, by name.
fn told(effects: &[Effect], client: ClientId) -> Vec<&'static str> {
    let name = |effect: &Effect| match effect {
        Effect::Send { to, message, .. } | Effect::SendData { to, message, .. } if *to == client => {
            Some(message.name())
        }
        _ => None,
    };
    effects.iter().filter_map(name).collect()
}

fn frees(effects: &[Effect], id: u64) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Free { bulk } if bulk.id == id))
}

fn length_told(effects: &[Effect]) -> u64 {
    match effects {
        [
            ..,
            Effect::Send { message: Message::GlimpseReply { status: Status::Ok, stripe_bytes, .. }, .. },
        ] => *stripe_bytes,
        other => panic!("{other:?}"),
    }
}

fn violation(effects: &[Effect], who: ClientId) -> bool {
    effects.iter().any(
        |effect| matches!(effect, Effect::Part { client, why: Parting::Violation { .. } } if *client == who),
    )
}

#[test]
fn a_lock_that_comes_with_a_flush_is_free_only_when_the_data_are_written() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Pw, extent(0, 10));
    let asked = world.enqueue(B, R, LockMode::Pr, extent(0, 10));
    assert_eq!(told(&asked, A), ["Revoke"]);
    let flushed = world.flush(A, extent(0, 10), lock.sn, &[lock.lock], 5);
    assert_eq!((told(&flushed, A), told(&flushed, B)), (vec![], vec![]));
    assert!(!frees(&flushed, 5), "the device still needs the data");
    let written = world.ended(task(&flushed), TaskResult::Done);
    assert_eq!((told(&written, A), told(&written, B)), (vec!["WriteReply"], vec!["Grant"]));
    assert!(frees(&written, 5));
}

#[test]
fn a_lock_that_comes_with_a_flush_is_free_although_the_device_failed() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Pw, extent(0, 10));
    world.enqueue(B, R, LockMode::Pr, extent(0, 10));
    let flushed = world.flush(A, extent(0, 10), lock.sn, &[lock.lock], 5);
    let failed = world.ended(task(&flushed), TaskResult::Failed { errno: 28 });
    let reply = |effect: &Effect| {
        matches!(
            effect,
            Effect::Send { to: A, message: Message::WriteReply { status: Status::Errno(28), .. }, .. }
        )
    };
    assert!(failed.iter().any(reply), "{failed:?}");
    assert_eq!(told(&failed, B), ["Grant"]);
    assert_eq!(world.shard.counters().data.write_errors, 1);
}

//= protocol.md#I5 type=test
#[test]
fn a_glimpse_measures_again_after_the_clients_have_answered() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, extent(0, 100));
    let measure = task(&world.glimpse(B));
    let asked = world.measured(measure, 0);
    let [Effect::Send { to: A, channel: Channel::Callback, message: Message::GlimpseAsk { glimpse, .. } }] =
        asked[..]
    else {
        panic!("{asked:?}")
    };
    // The flush is done before A answers, so A does not answer for it any more.
    let flushed = world.flush(A, extent(0, 100), lock.sn, &[], 5);
    world.ended(task(&flushed), TaskResult::Done);
    let again = world.callback(A, Message::GlimpseTell { glimpse, resource: R, end: 0, modified_ns: 0 });
    assert_eq!(length_told(&world.measured(task(&again), 100)), 100);
}

//= protocol.md#I5 type=test
#[test]
fn a_glimpse_measures_again_when_a_holder_let_go_during_the_first_measurement() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, extent(0, 100));
    let first = task(&world.glimpse(B));
    let flushed = world.flush(A, extent(0, 100), lock.sn, &[lock.lock], 5);
    world.ended(task(&flushed), TaskResult::Done);
    let again = world.measured(first, 0);
    assert_eq!(told(&again, B), [""; 0], "what was measured is old");
    assert_eq!(length_told(&world.measured(task(&again), 100)), 100);
}

#[test]
fn a_glimpse_goes_on_without_a_client_that_is_gone() {
    let mut world = World::new();
    world.lock(A, LockMode::Nbw, extent(0, 100));
    let first = task(&world.glimpse(B));
    world.measured(first, 0);
    let parted = world.part(A);
    assert_eq!(length_told(&world.measured(task(&parted), 0)), 0);
}

//= protocol.md#I5 type=test
#[test]
fn regression_what_a_waiting_truncate_takes_away_is_not_measured() {
    let mut world = World::new();
    let old = world.lock(A, LockMode::Nbw, extent(0, 100));
    let written = task(&world.flush(A, extent(0, 100), old.sn, &[], 5));
    world.part(A);
    let new = world.lock(B, LockMode::Pw, Extent::WHOLE);
    let request = world.request();
    world.control(B, Message::Truncate { request, resource: R, length: 50, sn: new.sn });
    assert_eq!(world.glimpse(B), [], "behind the truncate");
    let cut = task(&world.ended(written, TaskResult::Done));
    let ended = world.ended(cut, TaskResult::Done);
    assert_eq!(told(&ended, B), ["Done"]);
    assert_eq!(length_told(&world.measured(task(&ended), 50)), 50);
}

#[test]
fn regression_what_comes_while_the_device_measures_counts_with_what_came_before_it() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, Extent::WHOLE);
    let measuring = task(&world.glimpse(A));
    // [2, 4) was written before [0, 2); the measurement sees only the later one.
    world.flush(A, extent(2, 4), lock.sn, &[], 1);
    let second = task(&world.flush(A, extent(0, 2), lock.sn, &[], 2));
    world.ended(second, TaskResult::Done);
    assert_eq!(length_told(&world.measured(measuring, 2)), 4);
}

//= protocol.md#I7 type=test
#[test]
fn a_client_is_evicted_in_order_and_never_heard_again() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Pw, extent(0, 10));
    world.enqueue(B, R, LockMode::Pw, extent(0, 10));
    let pong = world.control(A, Message::Pong { request: RequestId(1) });
    assert!(violation(&pong, A));
    assert_eq!(told(&pong, B), [""; 0], "its connections are still open");
    assert_eq!(told(&world.control(A, Message::Ping { request: RequestId(1) }), A), [""; 0]);
    assert!(world.shard.refusal(A, Channel::Bulk).is_some());
    let parted = world.part(A);
    assert!(world.shard.refusal(A, Channel::Control).is_some());
    assert_eq!(told(&parted, B), ["Grant"]);
    assert!(parted.contains(&Effect::Note(Note::Gone { client: A, resources: 1 })), "{parted:?}");
    let late = world.flush(A, extent(0, 10), lock.sn, &[], 9);
    assert_eq!(late, [Effect::Free { bulk: BulkRef { id: 9, offset: 0, bytes: 10 } }]);
    assert_eq!(world.part(A), [], "once");
    assert_eq!(world.shard.counters().evictions, 1);
}

//= protocol.md#I5 type=test
#[test]
fn a_read_waits_for_what_an_evicted_client_had_delivered() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, extent(0, 10));
    let write = task(&world.flush(A, extent(0, 10), lock.sn, &[], 5));
    world.part(A);
    world.lock(B, LockMode::Pr, extent(0, 10));
    assert_eq!(world.read(B, extent(0, 10)), []);
    let written = world.ended(write, TaskResult::Done);
    let read = task(&written);
    let ended = world.ended(read, TaskResult::Read { bytes: 10, stripe_bytes: 10 });
    assert!(matches!(ended[..], [Effect::SendData { to: B, task, .. }] if task == read), "{ended:?}");
}

#[test]
fn a_goodbye_is_no_eviction() {
    let mut world = World::new();
    world.lock(A, LockMode::Pw, extent(0, 10));
    let leaves = world.control(A, Message::Goodbye {});
    assert_eq!(leaves, [Effect::Part { client: A, why: Parting::Goodbye }]);
    world.step(Input::Parted { client: A, goodbye: true });
    assert_eq!(world.shard.counters().evictions, 0);
    assert_eq!((world.shard.client_count(), world.shard.lock_count()), (2, 0));
}

//= protocol.md#I8 type=test
#[test]
fn who_never_answers_a_revocation_must_go() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Pw, extent(0, 10));
    world.enqueue(B, R, LockMode::Pw, extent(0, 10));
    assert_eq!(world.shard.next_look_ns(), Some(1 + SECOND_NS));
    assert_eq!(world.tick(1), []);
    let message = Message::GlimpseAsk { glimpse: PROBE, resource: R };
    assert_eq!(world.tick(1), [Effect::Send { to: A, channel: Channel::Callback, message }]);
    assert_eq!(world.tick(1), []);
    let what = Debt::Lock { resource: R, lock: lock.lock };
    assert_eq!(world.tick(1), [Effect::Part { client: A, why: Parting::Overdue { what } }]);
    assert_eq!(told(&world.part(A), B), ["Grant"]);
    assert_eq!(world.shard.next_look_ns(), None);
}

//= protocol.md#I8 type=test
#[test]
fn who_cannot_be_asked_must_go() {
    let mut world = World::new();
    let d = ClientId(9);
    world.step(Input::Joined { client: d, channel: Channel::Control });
    world.lock(d, LockMode::Pw, extent(0, 10));
    let asked = world.enqueue(A, R, LockMode::Pw, extent(0, 10));
    assert_eq!(asked, [Effect::Part { client: d, why: Parting::Unreachable }]);
    assert_eq!(told(&world.part(d), A), ["Grant"]);
}

#[test]
fn messages_on_the_wrong_channel_and_data_that_do_not_fit_are_violations() {
    let sync = Message::Sync { request: RequestId(1), resources: vec![R] };
    let release = Message::Release { locks: vec![] };
    let pieces = vec![WritePiece { resource: R, extent: extent(0, 10), sn: Sn(1) }];
    let write = Message::Write { request: RequestId(1), urgent: false, pieces, releases: vec![] };
    let huge = WritePiece { resource: R, extent: Extent::WHOLE, sn: Sn(1) };
    let pieces = vec![huge; 3];
    let huge = Message::Write { request: RequestId(1), urgent: false, pieces, releases: vec![] };
    let bulk = |bytes| Some(BulkRef { id: 1, offset: 0, bytes });
    let hello = Message::Hello { version: 1, client: A, channel: Channel::Control, name: String::new() };
    for (channel, message, bulk) in [
        (Channel::Callback, sync.clone(), None),
        (Channel::Control, release, None),
        (Channel::Control, hello, None),
        (Channel::Control, sync, bulk(1)),
        (Channel::Bulk, write.clone(), bulk(9)),
        (Channel::Bulk, write.clone(), bulk(11)),
        (Channel::Bulk, write, None),
        (Channel::Bulk, huge, bulk(1)),
    ] {
        let mut world = World::new();
        let effects = world.step(Input::Message { from: A, channel, message, bulk });
        assert!(violation(&effects, A), "{effects:?}");
        assert_eq!(frees(&effects, 1), bulk.is_some(), "{effects:?}");
    }
}

#[test]
fn too_many_operations_at_a_time_are_a_violation() {
    let mut world = World::with(100, 3);
    for _ in 0..3 {
        assert!(!violation(&world.read(A, extent(0, 10)), A));
    }
    assert!(violation(&world.read(A, extent(0, 10)), A));
}

//= protocol.md#I6 type=test
#[test]
fn data_under_no_lock_are_refused_and_free_their_memory() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, extent(0, 10));
    for (sn, errno) in [(Sn(lock.sn.0 - 1), 1), (Sn(lock.sn.0 + 1), 1)] {
        let refused = world.flush(A, extent(0, 10), sn, &[], 5);
        let [
            Effect::Note(Note::Refused { errno: why, .. }),
            Effect::Free { .. },
            Effect::Send { message, .. },
        ] = &refused[..]
        else {
            panic!("{refused:?}")
        };
        assert_eq!(*why, errno);
        assert!(matches!(message, Message::WriteReply { status: Status::Errno(1), .. }));
    }
}

#[test]
fn a_destroyed_stripe_is_denied_refused_and_removed_behind_its_writes() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, extent(0, 10));
    let write = task(&world.flush(A, extent(0, 10), lock.sn, &[], 5));
    let request = world.request();
    let destroy = world.control(B, Message::Destroy { request, resources: vec![R, R] });
    assert_eq!(destroy, [], "a write is under way");
    assert_eq!(told(&world.enqueue(C, R, LockMode::Pr, extent(0, 1)), C), ["Denied"]);
    let written = world.ended(write, TaskResult::Done);
    let remove = |effect: &Effect| match effect {
        Effect::Start { work: Work::Remove { resources }, .. } => *resources == [R],
        _ => false,
    };
    assert!(written.iter().any(remove), "{written:?}");
    assert_eq!(told(&world.ended(task(&written), TaskResult::Done), B), ["Done"]);
    assert!(told(&world.read(C, extent(0, 10)), C) == ["ReadReply"], "gone");
    assert_eq!((world.shard.entry_count(), world.shard.stripe(R)), (0, None));
}

//= protocol.md#I6 type=test
#[test]
fn what_trimming_cannot_forget_is_flushed_by_force_and_then_forgotten() {
    let mut world = World::with(2, 1000);
    let old = world.lock(A, LockMode::Nbw, extent(0, 1000));
    let asked = world.enqueue(B, R, LockMode::Nbw, extent(0, 1000));
    assert_eq!(told(&asked, A), ["Revoke"]);
    let ack = Message::RevokeAck { resource: R, lock: old.lock, mode: LockMode::Nbw };
    let new = granted(&world.callback(A, ack), B).expect("early grant");
    for at in 0..4 {
        let write = world.flush(B, extent(at * 20, at * 20 + 10), new.sn, &[], at);
        world.ended(task(&write), TaskResult::Done);
    }
    assert_eq!(world.shard.next_look_ns(), Some(0));
    let forced = world.tick(0);
    assert!(forced.contains(&Effect::Note(Note::Forced { resource: R })), "{forced:?}");
    assert_eq!((told(&forced, A), told(&forced, B)), (vec!["Revoke"], vec!["Revoke"]));
    assert_eq!(world.shard.entry_count(), 4, "A may still flush what is older");
    for (client, lock) in [(A, old.lock), (B, new.lock)] {
        world.callback(client, Message::Release { locks: vec![LockRef { resource: R, lock }] });
    }
    assert_eq!((world.shard.entry_count(), world.shard.lock_count()), (0, 0));
    assert_eq!((world.shard.resources().count(), world.shard.stripes().count()), (0, 0));
    assert_eq!(world.shard.counters().forced_flushes, 1);
}

//= protocol.md#I2 type=test
#[test]
fn a_resource_that_comes_back_starts_above_what_it_gave_out() {
    let mut world = World::new();
    let mut last = Sn(0);
    for _ in 0..3 {
        let lock = world.lock(A, LockMode::Nbw, extent(0, 10));
        assert!(lock.sn > last);
        last = lock.sn;
        world.callback(A, Message::Release { locks: vec![LockRef { resource: R, lock: lock.lock }] });
        assert_eq!(world.shard.resources().count(), 0);
        assert!(world.shard.sn_floor() > last);
    }
}

//= protocol.md#I9 type=test
#[test]
fn a_sync_waits_for_all_that_was_admitted_and_tells_what_failed() {
    let mut world = World::new();
    let lock = world.lock(A, LockMode::Nbw, extent(0, 10));
    let write = task(&world.flush(A, extent(0, 10), lock.sn, &[], 5));
    let request = world.request();
    assert_eq!(world.control(B, Message::Sync { request, resources: vec![R] }), []);
    let failed = world.ended(write, TaskResult::Failed { errno: 5 });
    let synced = world.ended(task(&failed), TaskResult::Done);
    let status = Status::Errno(5);
    let message = Message::Done { request, status };
    assert_eq!(synced, [Effect::Send { to: B, channel: Channel::Control, message }]);
}

/// B writes beside A's CANCELING lock, what it flushes cannot be stored, and then A flushes what is older.
fn shadowed_by_a_failed_write(fails_first: bool) -> World {
    let mut world = World::new();
    let old = world.lock(A, LockMode::Nbw, extent(0, 10));
    world.enqueue(B, R, LockMode::Nbw, extent(0, 10));
    let ack = Message::RevokeAck { resource: R, lock: old.lock, mode: LockMode::Nbw };
    let new = granted(&world.callback(A, ack), B).expect("early grant");
    let write = task(&world.flush(B, extent(0, 10), new.sn, &[], 5));
    let failed = TaskResult::Failed { errno: 28 };
    if fails_first {
        world.ended(write, failed.clone());
    }
    let flushed = world.flush(A, extent(0, 10), old.sn, &[], 6);
    assert_eq!(told(&flushed, A), ["WriteReply"], "a newer write stands for it");
    if !fails_first {
        world.ended(write, failed);
    }
    world
}

//= protocol.md#I9 type=test
#[test]
fn regression_a_sync_does_not_vouch_for_data_that_a_failed_newer_write_stands_for() {
    for fails_first in [false, true] {
        let mut world = shadowed_by_a_failed_write(fails_first);
        for (client, status) in [(A, Status::Errno(28)), (A, Status::Ok), (B, Status::Ok)] {
            let request = world.request();
            let sync = world.control(client, Message::Sync { request, resources: vec![R] });
            let synced = world.ended(task(&sync), TaskResult::Done);
            let message = Message::Done { request, status };
            assert_eq!(synced, [Effect::Send { to: client, channel: Channel::Control, message }]);
        }
    }
}
