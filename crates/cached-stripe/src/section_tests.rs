//! Locks of sections in one client: whose bytes they flush and forget, and what is kept when a part is wanted.

use crate::{CachedStripe, Effect, Input, PUT_OFF_MAX, Settings};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_dlm::client as dlm;
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{
    Extent, FileId, LockId, LockMode, LockState, OperationId, Policy, RequestId, ResourceId, Sn, Terms,
};
use ccpfs_wire::{Channel, GrantedLock, Message};
use ccpfs_writeback::JobId;

const RESOURCE: ResourceId = ResourceId { file: FileId([5; 16]), stripe: 0 };

fn extent(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

/// Ten bytes of every thirty from `offset` on, to the end of any file.
fn section(offset: u64) -> Region {
    Section::new(offset, 10, &[(30, UNBOUNDED)]).unwrap().into()
}

struct World(CachedStripe);

impl World {
    fn new() -> World {
        let locks = dlm::Settings { policy: Policy::SEQDLM, locks_max: 64, age_ticks_max: 8 };
        let mut world = World(CachedStripe::new(RESOURCE));
        world.step(Input::Begin { settings: Settings { locks, put_off_max: PUT_OFF_MAX, epoch: 1 } });
        world
    }

    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        self.0.step(input, &mut out);
        out
    }

    fn acquire(&mut self, number: u64, mode: LockMode, required: impl Into<Region>) -> Vec<Effect> {
        let (required, operation, request) = (required.into(), OperationId(number), RequestId(number));
        let desired = required.clone();
        self.step(Input::Acquire { operation, mode, required, desired, request, terms: Terms::WAIT })
    }

    /// Operation `number` gets lock `number` of this region.
    fn hold(&mut self, number: u64, mode: LockMode, region: &Region) {
        let first = region.piece_from(0).unwrap();
        self.acquire(number, mode, first);
        let granted = GrantedLock {
            lock: LockId(number),
            mode,
            region: region.clone(),
            sn: Sn(number),
            state: LockState::Granted,
            replaces: Vec::new(),
            early: false,
        };
        let message = Message::Grant { request: RequestId(number), resource: RESOURCE, granted };
        let answer = Ok((LockId(number), Sn(number)));
        assert_eq!(
            self.step(Input::Message(message)),
            [Effect::Answer { operation: OperationId(number), answer }]
        );
    }

    fn written(&mut self, number: u64, extent: Extent) {
        let operation = OperationId(number);
        assert_eq!(self.step(Input::Written { operation, extent, now_ns: 1 }), []);
    }

    fn finish(&mut self, number: u64) {
        assert_eq!(self.step(Input::Finish { operation: OperationId(number) }), []);
    }

    fn revoke(&mut self, number: u64, wanted: LockMode, region: impl Into<Region>) -> Vec<Effect> {
        let (lock, region) = (LockId(number), region.into());
        self.step(Input::Message(Message::Revoke { resource: RESOURCE, lock, wanted, region }))
    }

    fn take(&mut self, job: u64) -> Vec<Effect> {
        let (bytes_max, pieces_max) = (1 << 20, 64);
        self.step(Input::Take { job: JobId(job), bytes_max, pieces_max, urgent_only: false })
    }
}

fn on_callback(message: Message) -> Effect {
    Effect::Send { channel: Channel::Callback, message }
}

fn narrowed(number: u64, taken: Extent) -> Effect {
    on_callback(Message::Narrow { resource: RESOURCE, lock: LockId(number), taken })
}

fn acknowledged(number: u64, mode: LockMode) -> Effect {
    on_callback(Message::RevokeAck { resource: RESOURCE, lock: LockId(number), mode })
}

#[test]
fn a_section_that_goes_takes_no_bytes_from_between_its_pieces_along() {
    let mut world = World::new();
    world.hold(1, LockMode::Pw, &section(0));
    for piece in [extent(0, 10), extent(30, 40)] {
        world.written(1, piece);
    }
    world.finish(1);
    world.hold(2, LockMode::Pw, &extent(10, 30).into());
    world.written(2, extent(10, 30));
    world.finish(2);
    assert_eq!(world.revoke(1, LockMode::Pr, extent(0, 5)), [acknowledged(1, LockMode::Pw)]);
    let pieces = vec![(extent(0, 10), Sn(1)), (extent(30, 40), Sn(1))];
    let job = Effect::Job { job: JobId(9), pieces, releases: vec![LockId(1)], urgent: true };
    assert_eq!(world.take(9), [job]);
    world.step(Input::Answered { job: JobId(9), errno: None });
    assert!(!world.0.cache().needs_pages(extent(0, 10)), "its bytes are not valid any longer");
    assert_eq!(world.0.cache().dirty_bytes(), 20, "those of the other lock are as they were");
    // What is clean of the other lock stays valid as well when the next section goes.
    world.hold(3, LockMode::Pr, &section(0));
    world.step(Input::Fetched { operation: OperationId(3), extent: extent(30, 40) });
    world.finish(3);
    world.take(10);
    world.step(Input::Answered { job: JobId(10), errno: None });
    world.revoke(3, LockMode::Nbw, Region::WHOLE);
    assert!(!world.0.cache().needs_pages(extent(30, 40)));
    assert!(world.0.cache().needs_pages(extent(10, 11)) && world.0.cache().needs_pages(extent(29, 30)));
}

#[test]
fn a_holder_keeps_the_part_of_a_section_that_is_not_wanted() {
    let mut world = World::new();
    world.hold(1, LockMode::Nbw, &section(0));
    world.written(1, extent(0, 10));
    // Still in use, but not there.
    assert_eq!(world.revoke(1, LockMode::Nbw, extent(95, 200)), [narrowed(1, Extent::to_eof(95))]);
    world.finish(1);
    let answer = Ok((LockId(1), Sn(1)));
    let used = Effect::Answer { operation: OperationId(2), answer };
    assert_eq!(world.acquire(2, LockMode::Nbw, extent(60, 70)), [used]);
    let asked = world.acquire(3, LockMode::Nbw, extent(120, 130));
    assert!(matches!(asked[..], [Effect::Send { message: Message::Enqueue { .. }, .. }]), "{asked:?}");
    // The rest is wanted next: what is written of it makes the lock go as a whole.
    world.written(2, extent(60, 70));
    world.finish(2);
    assert_eq!(world.revoke(1, LockMode::Pr, extent(35, 36)), [acknowledged(1, LockMode::Nbw)]);
    let pieces = vec![(extent(0, 10), Sn(1)), (extent(60, 70), Sn(1))];
    let job = Effect::Job { job: JobId(9), pieces, releases: vec![LockId(1)], urgent: true };
    assert_eq!(world.take(9), [job]);
}

#[test]
fn a_part_below_is_given_up_when_nothing_was_written_there() {
    let mut world = World::new();
    world.hold(1, LockMode::Nbw, &section(0));
    world.written(1, extent(90, 100));
    world.finish(1);
    assert_eq!(world.revoke(1, LockMode::Pr, extent(0, 35)), [narrowed(1, extent(0, 35))]);
    assert_eq!(world.0.cache().dirty_bytes(), 10);
}

#[test]
fn regression_who_comes_for_one_piece_after_the_other_gets_the_rest_instead_of_each() {
    // Whoever read what another had written at a stride asked for every piece: data at the end were not flushed yet, and so the
    // piece that was wanted was given up, and the others kept.
    let mut world = World::new();
    world.hold(1, LockMode::Nbw, &section(0));
    world.written(1, extent(900, 910));
    world.finish(1);
    for piece in [extent(0, 10), extent(30, 40)] {
        assert_eq!(world.revoke(1, LockMode::Pr, piece), [narrowed(1, piece)]);
    }
    assert_eq!(world.revoke(1, LockMode::Pr, extent(60, 70)), [acknowledged(1, LockMode::Nbw)]);
}

#[test]
fn a_part_that_somebody_uses_or_that_is_dirty_is_not_given_up() {
    for uses in [true, false] {
        let mut world = World::new();
        let whole: Region = Section::new(0, 10, &[(30, 2)]).unwrap().into();
        world.hold(1, LockMode::Nbw, &whole);
        world.finish(1);
        world.acquire(2, LockMode::Nbw, extent(30, 40));
        if !uses {
            world.written(2, extent(30, 40));
            world.finish(2);
        }
        assert_eq!(world.revoke(1, LockMode::Nbw, whole.clone()), [acknowledged(1, LockMode::Nbw)]);
    }
}

#[test]
fn clean_bytes_of_a_part_that_is_given_up_are_not_valid_any_longer() {
    let mut world = World::new();
    world.hold(1, LockMode::Pr, &section(0));
    for piece in [extent(0, 10), extent(60, 70)] {
        assert_eq!(world.step(Input::Fetched { operation: OperationId(1), extent: piece }), []);
    }
    // A reader may be reading ahead: its lock goes as a whole, and not before it has ended.
    let mut other = World(world.0.clone());
    assert_eq!(other.revoke(1, LockMode::Nbw, extent(65, 66)), [acknowledged(1, LockMode::Pr)]);
    world.finish(1);
    let effects = world.revoke(1, LockMode::Nbw, extent(65, 66));
    assert!(effects.contains(&narrowed(1, Extent::to_eof(65))), "{effects:?}");
    assert!(world.0.cache().needs_pages(extent(60, 65)) && world.0.cache().needs_pages(extent(0, 10)));
    assert!(!world.0.cache().needs_pages(extent(65, 70)));
}
