//! Tests of the server half: one conversation each.

use super::queue::Standing;
use super::{Effect, Input, Origin, Resource};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, LockId, LockMode, LockState, Policy, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;

const MIB: u64 = 1 << 20;

struct Server {
    resource: Resource,
    requests: u64,
}

fn server(policy: Policy) -> Server {
    Server { resource: Resource::new(policy, Origin { sn: Sn(1), lock: LockId(1) }), requests: 0 }
}

fn region(start: u64, end: u64) -> Region {
    Extent::new(start, end).unwrap().into()
}

impl Server {
    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        self.resource.step(input, &mut out);
        out
    }

    /// A request that would like everything to the end of the file.
    fn ask(&mut self, client: u64, mode: LockMode, start: u64, end: u64) -> Vec<Effect> {
        self.requests += 1;
        let (from, request) = (ClientId(client), RequestId(self.requests));
        let (required, desired) = (region(start, end), Extent::to_eof(start).into());
        self.step(Input::Enqueue { from, request, mode, required, desired, terms: Terms::WAIT })
    }

    fn ack(&mut self, client: u64, lock: u64, mode: LockMode) -> Vec<Effect> {
        self.step(Input::RevokeAck { from: ClientId(client), lock: LockId(lock), mode })
    }

    fn release(&mut self, client: u64, lock: u64) -> Vec<Effect> {
        self.step(Input::Release { from: ClientId(client), lock: LockId(lock) })
    }
}

fn grants(effects: &[Effect]) -> Vec<(u64, GrantedLock)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Grant { to, granted, .. } => Some((to.0, granted.clone())),
            Effect::Deny { .. } | Effect::Revoke { .. } | Effect::Arm { .. } | Effect::Disarm { .. } => None,
        })
        .collect()
}

fn grant(effects: &[Effect]) -> GrantedLock {
    let all = grants(effects);
    assert_eq!(all.len(), 1, "one grant in {effects:?}");
    all[0].1.clone()
}

fn revoked(effects: &[Effect]) -> Vec<(u64, u64)> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Revoke { to, lock, .. } => Some((to.0, lock.0)),
            Effect::Deny { .. } | Effect::Grant { .. } | Effect::Arm { .. } | Effect::Disarm { .. } => None,
        })
        .collect()
}

#[test]
fn a_lone_write_is_granted_to_the_end_of_the_file() {
    let mut s = server(Policy::SEQDLM);
    let lock = grant(&s.ask(1, LockMode::Nbw, 10, 20));
    assert_eq!((lock.region, lock.sn, lock.state), (Extent::to_eof(10).into(), Sn(1), LockState::Granted));
}

#[test]
//= protocol.md#I2 type=test
fn write_grants_raise_the_number_and_read_grants_do_not() {
    let mut s = server(Policy::SEQDLM);
    assert_eq!(grant(&s.ask(1, LockMode::Pr, 0, 10)).sn, Sn(1));
    s.release(1, 1);
    assert_eq!(grant(&s.ask(1, LockMode::Nbw, 0, 10)).sn, Sn(1));
    s.release(1, 2);
    assert_eq!(grant(&s.ask(1, LockMode::Pw, 0, 10)).sn, Sn(2));
    assert_eq!(s.resource.origin(), Origin { sn: Sn(3), lock: LockId(4) });
}

#[test]
fn a_write_is_granted_early_once_the_revocation_is_acknowledged() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    let asked = s.ask(2, LockMode::Nbw, 5, 15);
    assert_eq!(revoked(&asked), [(1, 1)]);
    assert_eq!(grants(&asked), []);
    let lock = grant(&s.ack(1, 1, LockMode::Nbw));
    assert!(lock.early);
    assert_eq!(lock.sn, Sn(2));
    assert_eq!(s.resource.unreleased_up_to(Extent::WHOLE, Sn(1)), Some(Sn(1)));
}

#[test]
fn without_early_grant_a_write_waits_for_the_release() {
    let mut s = server("seqdlm-no-early-grant".parse().unwrap());
    s.ask(1, LockMode::Nbw, 0, 10);
    s.ask(2, LockMode::Nbw, 5, 15);
    assert_eq!(grants(&s.ack(1, 1, LockMode::Nbw)), []);
    assert!(!grant(&s.release(1, 1)).early);
}

#[test]
fn a_reader_waits_for_the_flush_of_a_canceling_write() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    s.ask(2, LockMode::Pr, 5, 15);
    assert_eq!(grants(&s.ack(1, 1, LockMode::Nbw)), []);
    assert_eq!(grant(&s.release(1, 1)).mode, LockMode::Pr);
}

#[test]
fn with_early_revocation_a_queue_of_whole_file_writes_drains_at_once() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, Extent::EOF);
    for client in 2..=5 {
        s.ask(client, LockMode::Nbw, 0, Extent::EOF);
    }
    let all = grants(&s.ack(1, 1, LockMode::Nbw));
    let states: Vec<_> = all.iter().map(|(to, lock)| (*to, lock.sn.0, lock.state)).collect();
    let c = LockState::Canceling;
    // Nothing can grow and the next in the queue wants the same; only the last may be kept.
    assert_eq!(states, [(2, 2, c), (3, 3, c), (4, 4, c), (5, 5, LockState::Granted)]);
}

#[test]
fn a_lock_that_could_grow_is_not_revoked_early() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    s.ask(2, LockMode::Nbw, 0, 10);
    s.ask(3, LockMode::Nbw, 0, 10);
    let effects = s.ack(1, 1, LockMode::Nbw);
    assert_eq!(grant(&effects).state, LockState::Granted);
    assert_eq!(revoked(&effects), [(2, 2)]);
}

#[test]
fn without_early_revocation_each_is_revoked_by_message() {
    let mut s = server("seqdlm-no-early-revocation".parse().unwrap());
    s.ask(1, LockMode::Nbw, 0, 10);
    s.ask(2, LockMode::Nbw, 0, 10);
    s.ask(3, LockMode::Nbw, 0, 10);
    let effects = s.ack(1, 1, LockMode::Nbw);
    assert_eq!(grant(&effects).state, LockState::Granted);
    assert_eq!(revoked(&effects), [(2, 2)]);
}

#[test]
fn growth_stops_at_granted_and_at_waiting_ranges() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pw, 100, 200);
    assert_eq!(grant(&s.ask(2, LockMode::Nbw, 0, 10)).region, region(0, 100));
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pw, 0, 10);
    s.ask(2, LockMode::Nbw, 0, 10);
    s.ask(3, LockMode::Nbw, 10, 20);
    let all = grants(&s.release(1, 1));
    assert_eq!(all[0].1.region, region(0, 10), "bounded by the waiting request");
    assert_eq!(all[1].1.region, Extent::to_eof(10).into());
}

#[test]
fn byte_granular_neighbours_do_not_conflict_and_pages_do() {
    let mut s = server("seqdlm-no-expansion".parse().unwrap());
    s.ask(1, LockMode::Nbw, 0, 47_008);
    assert_eq!(grant(&s.ask(2, LockMode::Nbw, 47_008, 94_016)).region, region(47_008, 94_016));
    let mut s = server("seqdlm-no-expansion-page".parse().unwrap());
    s.ask(1, LockMode::Nbw, 0, 47_008);
    assert_eq!(revoked(&s.ask(2, LockMode::Nbw, 47_008, 94_016)), [(1, 1)]);
}

#[test]
fn requests_are_served_in_the_order_they_came() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pr, 0, 10);
    s.ask(2, LockMode::Nbw, 0, 10);
    // A reader is compatible with the granted reader, but may not overtake the waiting writer.
    assert_eq!(s.ask(3, LockMode::Pr, 0, 10), []);
    assert_eq!(grants(&s.release(1, 1)).first().unwrap().0, 2);
}

#[test]
fn a_clients_own_conflict_is_an_upgrade() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 10, 30);
    let lock = grant(&s.ask(1, LockMode::Pr, 0, 20));
    assert_eq!((lock.mode, lock.replaces.clone()), (LockMode::Pw, vec![LockId(1)]));
    assert_eq!(lock.region, Extent::WHOLE.into());
    assert_eq!(lock.sn, Sn(2));
    assert_eq!(
        s.resource.unreleased_up_to(Extent::WHOLE, Sn(1)),
        Some(Sn(1)),
        "what it replaced counts (I6)"
    );
    assert_eq!(s.resource.lock_count(), 1);
}

#[test]
fn an_upgrade_first_revokes_the_locks_of_others() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pr, 0, 10);
    s.ask(2, LockMode::Pr, 0, 10);
    assert_eq!(revoked(&s.ask(1, LockMode::Nbw, 0, 10)), [(2, 2)]);
    assert_eq!(grant(&s.release(2, 2)).mode, LockMode::Pw);
}

#[test]
fn two_upgrades_at_once_do_not_deadlock() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pr, 0, 10);
    s.ask(2, LockMode::Pr, 0, 10);
    assert_eq!(revoked(&s.ask(1, LockMode::Nbw, 0, 10)), [(2, 2)]);
    assert_eq!(s.ask(2, LockMode::Nbw, 0, 10), []);
    let effects = s.release(2, 2);
    assert_eq!(grant(&effects).mode, LockMode::Pw);
}

#[test]
fn without_upgrading_the_own_lock_is_revoked() {
    let mut s = server(Policy::BASIC);
    s.ask(1, LockMode::Pr, 0, 10);
    assert_eq!(revoked(&s.ask(1, LockMode::Nbw, 0, 10)), [(1, 1)]);
}

#[test]
fn a_downgraded_blocking_write_lets_the_next_one_in_early() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Bw, 0, 10);
    s.ask(2, LockMode::Bw, 0, 10);
    assert_eq!(grants(&s.ack(1, 1, LockMode::Bw)), []);
    let converted = s.step(Input::Convert { from: ClientId(1), lock: LockId(1), mode: LockMode::Nbw });
    assert!(grant(&converted).early);
}

#[test]
fn a_conversion_never_raises_a_mode_and_strangers_change_nothing() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    assert_eq!(s.ack(2, 1, LockMode::Nbw), [], "not the holder");
    assert_eq!(s.release(2, 1), []);
    assert_eq!(s.release(1, 99), []);
    s.ask(2, LockMode::Bw, 0, 10);
    assert!(grant(&s.ack(1, 1, LockMode::Pw)).early, "the lock stayed NBW");
}

#[test]
fn a_try_lock_is_answered_at_once_and_revokes_nobody() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pw, 0, 10);
    let (from, request) = (ClientId(2), RequestId(50));
    let ask = |start, end| Input::Enqueue {
        from,
        request,
        mode: LockMode::Nbw,
        required: region(start, end),
        desired: region(start, end),
        terms: Terms::TRY,
    };
    let before = s.resource.clone();
    assert_eq!(s.step(ask(5, 8)), [Effect::Deny { to: from, request, errno: 11, first_common: Some(5) }]);
    assert_eq!(s.resource, before);
}

#[test]
//= protocol.md#I8 type=test
fn whoever_is_waited_for_has_a_clock_running_until_the_release() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pw, 0, 10);
    let armed = s.ask(2, LockMode::Nbw, 0, 10);
    assert!(armed.contains(&Effect::Arm { lock: LockId(1), holder: ClientId(1) }));
    assert!(s.release(1, 1).contains(&Effect::Disarm { lock: LockId(1) }));
}

#[test]
fn regression_nobody_is_blamed_for_a_put_off_flush_that_nobody_waits_for() {
    let disarmed = Effect::Disarm { lock: LockId(1) };
    let ack = Input::RevokeAck { from: ClientId(1), lock: LockId(1), mode: LockMode::Nbw };
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    s.ask(2, LockMode::Nbw, 0, 10);
    assert!(s.step(ack.clone()).contains(&disarmed), "its waiter was granted beside it");
    let armed = s.ask(3, LockMode::Pr, 0, 10);
    assert!(armed.contains(&Effect::Arm { lock: LockId(1), holder: ClientId(1) }), "{armed:?}");
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    s.ask(2, LockMode::Nbw, 0, 10);
    s.ask(3, LockMode::Pr, 0, 10);
    assert!(!s.step(ack).contains(&disarmed), "a reader waits as well");
}

#[test]
fn a_crowd_on_the_same_bytes_stands_in_a_line_and_readers_side_by_side() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Nbw, 0, 10);
    for client in 2..=4 {
        s.ask(client, LockMode::Nbw, 0, 10);
    }
    for client in 5..=6 {
        s.ask(client, LockMode::Pr, 0, 10);
    }
    s.ask(7, LockMode::Pw, 0, 10);
    let standing =
        |s: &Server| s.resource.waiting.iter().map(|(a, _)| s.resource.waiting.standing(a)).collect();
    let all: Vec<Standing> = standing(&s);
    let line = [Standing::Blocked(LockId(1)), Standing::Behind(1), Standing::Behind(2)];
    assert_eq!(all[..3], line);
    assert_eq!(all[3..], [Standing::Behind(3), Standing::Behind(3), Standing::Behind(5)]);
    s.step(Input::Evict { client: ClientId(4) });
    let all: Vec<Standing> = standing(&s);
    assert_eq!(all[2..], [Standing::Behind(2), Standing::Behind(2), Standing::Behind(5)], "one less");
}

#[test]
fn a_lock_that_is_not_the_one_a_reader_stands_behind_is_released_without_a_look() {
    let mut s = server("seqdlm-no-expansion".parse().unwrap());
    let ask = |s: &mut Server, client, start| grant(&s.ask(client, LockMode::Nbw, start, start + 10));
    for client in 1..=3 {
        assert_eq!(ask(&mut s, client, client * 10).lock, LockId(client));
    }
    s.ask(9, LockMode::Pr, 0, 100);
    assert_eq!(s.resource.waiting.standing(3), Standing::Blocked(LockId(3)));
    assert_eq!(s.release(1, 1), [Effect::Disarm { lock: LockId(1) }]);
    assert_eq!(s.release(3, 3), [Effect::Disarm { lock: LockId(3) }]);
    assert_eq!(s.resource.waiting.standing(3), Standing::Blocked(LockId(2)), "the next one");
    assert_eq!(grant(&s.release(2, 2)).mode, LockMode::Pr);
}

#[test]
fn eviction_frees_the_waiters() {
    let mut s = server(Policy::SEQDLM);
    s.ask(1, LockMode::Pw, 0, 10);
    s.ask(1, LockMode::Pw, 100, 110);
    s.ask(2, LockMode::Nbw, 0, 10);
    assert_eq!(grants(&s.step(Input::Evict { client: ClientId(1) }))[0].0, 2);
    assert!(!s.resource.involves(ClientId(1)));
}

#[test]
fn lustre_grows_in_both_directions_without_conflict_and_is_limited_under_contention() {
    let mut s = server(Policy::LUSTRE);
    assert_eq!(grant(&s.ask(1, LockMode::Pw, 4096, 8192)).region, Region::WHOLE);
    let mut s = server(Policy::LUSTRE);
    for client in 0..33_u64 {
        let from = ClientId(100 + client);
        let required = region((1000 + client) * 64 * MIB, (1000 + client) * 64 * MIB + 4096);
        let input = Input::Enqueue {
            from,
            request: RequestId(client),
            mode: LockMode::Pw,
            desired: required.clone(),
            required,
            terms: Terms::WAIT,
        };
        s.step(input);
    }
    assert_eq!(
        grant(&s.ask(1, LockMode::Pw, MIB, 2 * MIB)).region,
        region(MIB, 33 * MIB),
        "34th lock: 32 MiB"
    );
}
