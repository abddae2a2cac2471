//! Tests of the server half where locks cover more than extents: one conversation each.

use super::{Effect, Input, Origin, Resource};
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{
    ClientId, Extent, GroupId, LockId, LockMode, LockState, Part, Policy, RequestId, Sn, Terms,
};
use ccpfs_wire::GrantedLock;

struct Server {
    resource: Resource,
    requests: u64,
}

fn server() -> Server {
    server_with(Policy::SEQDLM)
}

fn server_with(policy: Policy) -> Server {
    Server { resource: Resource::new(policy, Origin { sn: Sn(1), lock: LockId(1) }), requests: 0 }
}

fn extent(start: u64, end: u64) -> Region {
    Extent::new(start, end).unwrap().into()
}

fn section(offset: u64, length: u64, stride: u64, count: u64) -> Region {
    Section::new(offset, length, &[(stride, count)]).unwrap().into()
}

impl Server {
    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        self.resource.step(input, &mut out);
        out
    }

    fn ask_for(
        &mut self,
        client: u64,
        mode: LockMode,
        required: &Region,
        desired: &Region,
        terms: Terms,
    ) -> Vec<Effect> {
        self.requests += 1;
        let (from, request) = (ClientId(client), RequestId(self.requests));
        let (required, desired) = (required.clone(), desired.clone());
        self.step(Input::Enqueue { from, request, mode, required, desired, terms })
    }

    /// A request for exactly this.
    fn ask(&mut self, client: u64, mode: LockMode, required: &Region) -> Vec<Effect> {
        self.ask_for(client, mode, required, required, Terms::WAIT)
    }

    fn part(&mut self, client: u64, required: &Region, part: Part) -> Vec<Effect> {
        self.ask_for(client, LockMode::Bw, required, required, Terms { part, ..Terms::WAIT })
    }

    fn narrow(&mut self, client: u64, lock: u64, start: u64, end: u64) -> Vec<Effect> {
        let (from, lock) = (ClientId(client), LockId(lock));
        self.step(Input::Narrow { from, lock, taken: Extent::new(start, end).unwrap() })
    }

    fn release(&mut self, client: u64, lock: u64) -> Vec<Effect> {
        self.step(Input::Release { from: ClientId(client), lock: LockId(lock) })
    }
}

fn grants(effects: &[Effect]) -> Vec<(u64, GrantedLock)> {
    let grant = |effect: &Effect| match effect {
        Effect::Grant { to, granted, .. } => Some((to.0, granted.clone())),
        Effect::Deny { .. } | Effect::Revoke { .. } | Effect::Arm { .. } | Effect::Disarm { .. } => None,
    };
    effects.iter().filter_map(grant).collect()
}

/// The range of the only grant.
fn granted(effects: &[Effect]) -> Region {
    match &grants(effects)[..] {
        [(_, granted)] => granted.region.clone(),
        other => panic!("one grant in {other:?}"),
    }
}

/// Who is asked for which lock.
fn revoked(effects: &[Effect]) -> Vec<(u64, u64)> {
    let revoke = |effect: &Effect| match effect {
        Effect::Revoke { to, lock, .. } => Some((to.0, lock.0)),
        Effect::Deny { .. } | Effect::Grant { .. } | Effect::Arm { .. } | Effect::Disarm { .. } => None,
    };
    effects.iter().filter_map(revoke).collect()
}

#[test]
fn writers_at_a_stride_have_all_they_desire_beside_each_other() {
    let mut s = server();
    for client in 0..16 {
        let (piece, comb) = (extent(client * 10, client * 10 + 10), section(client * 10, 10, 160, UNBOUNDED));
        let effects = s.ask_for(client + 1, LockMode::Nbw, &piece, &comb, Terms::WAIT);
        assert_eq!(granted(&effects), comb);
    }
    assert_eq!(s.resource.lock_count(), 16);
}

#[test]
fn what_is_desired_ends_at_the_first_byte_of_somebody_else() {
    let mut s = server();
    s.ask(1, LockMode::Nbw, &extent(325, 400));
    let comb = section(0, 10, 40, UNBOUNDED);
    let effects = s.ask_for(2, LockMode::Nbw, &extent(40, 50), &comb, Terms::WAIT);
    assert_eq!(granted(&effects).to_string(), "0+10 each 40 x 8 | 320..325");
    // Below what is required there is somebody, behind it nobody for a while.
    let comb = section(20, 10, 40, UNBOUNDED);
    s.ask(1, LockMode::Nbw, &extent(25, 26));
    let effects = s.ask_for(3, LockMode::Nbw, &extent(60, 70), &comb, Terms::WAIT);
    assert_eq!(granted(&effects), section(60, 10, 40, 7));
}

#[test]
fn an_extent_grows_to_the_first_piece_of_somebody_and_fits_into_a_gap() {
    let mut s = server();
    s.ask(1, LockMode::Nbw, &section(100, 10, 100, UNBOUNDED));
    s.ask(2, LockMode::Nbw, &extent(130, 140));
    let effects = s.ask_for(3, LockMode::Nbw, &extent(150, 160), &Extent::to_eof(150).into(), Terms::WAIT);
    assert_eq!(granted(&effects), extent(150, 200));
    let effects = s.ask_for(3, LockMode::Nbw, &extent(0, 1), &Region::WHOLE, Terms::WAIT);
    assert_eq!(granted(&effects), extent(0, 100));
}

#[test]
fn the_baseline_for_datatypes_grants_exactly_what_is_required() {
    let mut s = server_with(Policy::DATATYPE);
    let comb = section(3, 10, 40, 9);
    let effects = s.ask_for(1, LockMode::Nbw, &comb, &Region::WHOLE, Terms::WAIT);
    assert_eq!((granted(&effects), grants(&effects)[0].1.mode), (comb, LockMode::Pw));
}

#[test]
fn a_narrowed_lock_lets_in_who_waited_for_the_part_and_is_asked_for_again() {
    let mut s = server();
    s.ask(1, LockMode::Nbw, &section(0, 10, 40, UNBOUNDED));
    assert_eq!(revoked(&s.ask(2, LockMode::Nbw, &extent(400, 410))), [(1, 1)]);
    assert!(revoked(&s.ask(3, LockMode::Nbw, &extent(40, 45))).is_empty(), "it has been asked");
    let effects = s.narrow(1, 1, 400, Extent::EOF);
    assert_eq!(grants(&effects).iter().map(|(to, _)| *to).collect::<Vec<_>>(), [2]);
    assert_eq!(revoked(&effects), [(1, 1)], "somebody waits for the rest (R44)");
    assert!(
        effects.contains(&Effect::Disarm { lock: LockId(1) }) && s.resource.holds(ClientId(1), LockId(1))
    );
    assert_eq!(s.resource.unreleased_up_to(Extent::new(400, 410).unwrap(), Sn(1)), None);
    let effects = s.step(Input::RevokeAck { from: ClientId(1), lock: LockId(1), mode: LockMode::Nbw });
    assert_eq!(granted(&effects), extent(40, 45));
    // What has been acknowledged, is somebody else's, or would leave nothing, is not narrowed.
    let before = s.resource.clone();
    assert!(s.narrow(1, 1, 40, 50).is_empty() && s.narrow(3, 2, 0, 1).is_empty());
    assert!(s.narrow(2, 2, 0, Extent::EOF).is_empty());
    assert_eq!(s.resource, before);
}

//= protocol.md#I8 type=test
#[test]
fn regression_a_lock_that_is_narrowed_but_for_what_was_asked_for_is_still_asked_for() {
    let mut s = server();
    s.ask(1, LockMode::Nbw, &section(0, 10, 40, UNBOUNDED));
    let unasked = s.resource.clone();
    assert!(s.narrow(1, 1, 80, 90).is_empty(), "nobody wants anything");
    assert_eq!(s.resource, unasked);
    assert_eq!(revoked(&s.ask(2, LockMode::Nbw, &extent(400, 410))), [(1, 1)]);
    let asked = s.resource.clone();
    for (start, end) in [(0, 10), (800, Extent::EOF), (400, 405), (0, 405), (405, Extent::EOF)] {
        assert!(s.narrow(1, 1, start, end).is_empty(), "the clock runs on");
    }
    assert_eq!(s.resource, asked);
    let effects = s.narrow(1, 1, 0, 410);
    assert_eq!((granted(&effects), revoked(&effects)), (extent(400, 410), vec![]));
}

#[test]
fn own_locks_are_joined_if_one_holds_the_other_and_revoked_if_not() {
    let mut s = server();
    let comb = section(0, 10, 40, 8);
    s.ask(1, LockMode::Pr, &comb);
    let effects = s.ask(1, LockMode::Nbw, &extent(40, 50));
    let (_, upgraded) = grants(&effects)[0].clone();
    assert_eq!((upgraded.mode, upgraded.region, upgraded.replaces), (LockMode::Pw, comb, vec![LockId(1)]));
    let effects = s.ask(1, LockMode::Nbw, &section(5, 10, 40, 8));
    assert_eq!((revoked(&effects), grants(&effects)), (vec![(1, 2)], vec![]));
}

#[test]
fn regression_a_lock_that_somebody_asks_for_is_not_taken_in_and_neither_is_what_only_it_would_have_reached() {
    // R48: client 3 would have taken in its locks 2 and 3, of which only lock 2 reaches lock 3.
    let mut s = server();
    let held = [Extent::to_eof(1).into(), Extent::to_eof(3).into(), section(4, 1, 2, UNBOUNDED)];
    for (client, region) in [1, 3, 3].into_iter().zip(held) {
        s.ask(client, LockMode::Pr, &region);
    }
    assert_eq!(revoked(&s.ask(3, LockMode::Pw, &extent(1, 5))), [(1, 1)]);
    assert!(
        revoked(&s.ask(2, LockMode::Pw, &section(2, 1, 4, UNBOUNDED))).is_empty(),
        "it waits for client 3"
    );
    let mut asked = revoked(&s.ask(2, LockMode::Nbw, &extent(7, 8)));
    asked.sort_unstable();
    assert_eq!(asked, [(3, 2), (3, 3)]);
}

//= protocol.md#I8 type=test
#[test]
fn regression_a_next_part_waits_for_no_request_that_waits_for_the_part_before() {
    // R47: 1 holds [0,10), 2 holds [10,20); 3 wants [0,30), which nobody can have before 1 and 2 have ended.
    let mut s = server();
    s.part(1, &extent(0, 10), Part::First);
    s.part(2, &extent(10, 20), Part::First);
    assert_eq!(revoked(&s.ask(3, LockMode::Bw, &extent(0, 30))), [(1, 1), (2, 2)]);
    assert_eq!(granted(&s.part(2, &extent(20, 30), Part::Next)), extent(20, 30));
    assert!(grants(&s.part(1, &extent(10, 20), Part::Next)).is_empty(), "2 has it");
    let effects = s.release(2, 2);
    assert_eq!(granted(&effects), extent(10, 20));
    assert_eq!(grants(&effects)[0].0, 1);
}

#[test]
fn parts_are_what_is_required_whatever_the_policy_and_the_wish() {
    for policy in [Policy::SEQDLM, Policy::BASIC, Policy::LUSTRE] {
        let mut s = server_with(policy);
        let terms = Terms { part: Part::First, ..Terms::WAIT };
        let effects = s.ask_for(1, LockMode::Bw, &extent(5, 10), &Region::WHOLE, terms);
        assert_eq!(granted(&effects), extent(5, 10));
        // Nor are they joined with others of their client.
        let effects = s.ask(1, LockMode::Bw, &extent(0, 20));
        assert_eq!((revoked(&effects), grants(&effects)), (vec![(1, 1)], vec![]));
    }
}

#[test]
fn members_of_a_group_are_in_the_way_of_others_only_and_wait_for_nobody_who_waits() {
    let mut s = server();
    let of = |group| Terms { group: GroupId(group), ..Terms::WAIT };
    for client in [1, 2] {
        let effects = s.ask_for(client, LockMode::Pw, &Region::WHOLE, &Region::WHOLE, of(7));
        assert_eq!((granted(&effects), grants(&effects)[0].1.state), (Region::WHOLE, LockState::Granted));
    }
    assert_eq!(revoked(&s.ask(3, LockMode::Pr, &extent(0, 1))), [(1, 1), (2, 2)]);
    // A third member passes who waits; another group waits for this one.
    assert_eq!(granted(&s.ask_for(4, LockMode::Pw, &extent(0, 1), &extent(0, 1), of(7))), extent(0, 1));
    assert!(grants(&s.ask_for(5, LockMode::Pw, &extent(0, 1), &extent(0, 1), of(8))).is_empty());
    assert!(grants(&[s.release(1, 1), s.release(2, 2)].concat()).is_empty());
    let effects = s.release(4, 3);
    assert_eq!(grants(&effects).iter().map(|(to, _)| *to).collect::<Vec<_>>(), [3], "who came first");
    assert_eq!(revoked(&effects), [(3, 4)], "and the other group waits for nobody else");
}

#[test]
fn a_try_for_a_section_says_where_it_is_stopped() {
    let mut s = server();
    s.ask(1, LockMode::Nbw, &extent(95, 125));
    let comb = section(0, 10, 40, 9);
    let effects = s.ask_for(2, LockMode::Nbw, &comb, &comb, Terms::TRY);
    let [Effect::Deny { first_common, .. }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(first_common, Some(120));
}
