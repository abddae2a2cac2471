//! Hand-made histories, good and bad.

use super::{Gaps, Rule, Violation, check};
use crate::history::{
    Call, Comb, Contents, Fault, FaultKind, FileShape, History, Loss, Moment, OpId, Operation, Outcome,
    Session, StripeUse, Tag,
};
use ccpfs_types::{Extent, Layout, Sn};

/// Stripe size of the files here.
pub(super) const UNIT: u64 = 4096;

pub(super) fn extent(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

fn at(step: u64) -> Moment {
    Moment { at_ns: step * 10, step }
}

/// A history under construction: one file, nodes 0 to 2, one session of each node with each server; stripe `s` is on server `s`.
pub(super) struct Scene {
    pub(super) history: History,
    stripes: u32,
}

impl Scene {
    pub(super) fn new(stripes: u32) -> Scene {
        let layout = Layout::new(stripes, UNIT).unwrap();
        let sessions =
            (0..3).flat_map(|node| (0..stripes).map(move |server| Session { node, server, ended: None }));
        let history = History {
            files: vec![FileShape { layout, servers: (0..stripes).collect() }],
            sessions: sessions.collect(),
            ..History::default()
        };
        Scene { history, stripes }
    }

    /// A call of `node` from step `from` to step `to`, at step `order` under locks with the number `sn` on every stripe.
    pub(super) fn call(
        &mut self,
        node: u32,
        (from, order, to): (u64, u64, u64),
        sn: u64,
        call: Call,
        outcome: Option<Result<Outcome, i32>>,
    ) -> OpId {
        let id = OpId(u32::try_from(self.history.operations.len()).unwrap());
        let uses = (0..self.stripes).map(|stripe| StripeUse {
            stripe,
            extent: Extent::WHOLE,
            session: node * self.stripes + stripe,
            sn: Sn(sn),
            order,
        });
        let offset = match &outcome {
            Some(Ok(Outcome::Appended { offset })) => Some(*offset),
            Some(_) | None => None,
        };
        let stripes = match call {
            Call::Fsync { .. } | Call::Size { .. } => Vec::new(),
            Call::Write { .. } | Call::Read { .. } | Call::Append { .. } | Call::Truncate { .. } => {
                uses.collect()
            }
        };
        let returned = outcome.is_some().then_some(at(to));
        let invoked = at(from);
        self.history.operations.push(Operation {
            id,
            node,
            call,
            invoked,
            returned,
            outcome,
            offset,
            stripes,
        });
        id
    }

    pub(super) fn write(&mut self, node: u32, steps: (u64, u64, u64), sn: u64, start: u64, end: u64) -> OpId {
        let call = Call::Write { file: 0, extent: extent(start, end), comb: Comb::NONE };
        self.call(node, steps, sn, call, Some(Ok(Outcome::Written)))
    }

    /// A read that asks for `start..end` and sees these runs.
    pub(super) fn read(
        &mut self,
        node: u32,
        steps: (u64, u64, u64),
        sn: u64,
        (start, end): (u64, u64),
        runs: &[(u64, u64, Tag)],
    ) -> OpId {
        let bytes: Vec<_> = runs.iter().map(|(start, end, tag)| (extent(*start, *end), *tag)).collect();
        let length = bytes.last().map_or(0, |(part, _)| part.end() - start);
        let call = Call::Read { file: 0, extent: extent(start, end), comb: Comb::NONE };
        self.call(node, steps, sn, call, Some(Ok(Outcome::Read { length, bytes })))
    }

    pub(super) fn truncate(&mut self, node: u32, steps: (u64, u64, u64), sn: u64, length: u64) -> OpId {
        self.call(node, steps, sn, Call::Truncate { file: 0, length }, Some(Ok(Outcome::Truncated)))
    }

    fn append(&mut self, node: u32, steps: (u64, u64, u64), sn: u64, offset: u64, length: u64) -> OpId {
        self.call(node, steps, sn, Call::Append { file: 0, length }, Some(Ok(Outcome::Appended { offset })))
    }

    fn size(&mut self, node: u32, (from, to): (u64, u64), length: u64) -> OpId {
        self.call(node, (from, from, to), 0, Call::Size { file: 0 }, Some(Ok(Outcome::Size { length })))
    }

    fn fsync(&mut self, node: u32, (from, to): (u64, u64), outcome: Result<Outcome, i32>) -> OpId {
        self.call(node, (from, from, to), 0, Call::Fsync { file: 0 }, Some(outcome))
    }

    fn end_sessions(&mut self, node: u32, step: u64) {
        for session in self.history.sessions.iter_mut().filter(|session| session.node == node) {
            session.ended = Some(at(step));
        }
    }

    fn fault(&mut self, step: u64, kind: FaultKind) {
        self.history.faults.push(Fault { at: at(step), kind });
    }

    pub(super) fn check(&self) -> Result<Gaps, Violation> {
        check(&self.history)
    }

    fn passes(&self) -> Gaps {
        self.check().unwrap_or_else(|violation| panic!("{violation}"))
    }

    fn fails(&self, rule: Rule, words: &str) {
        let violation = self.check().unwrap_err();
        assert!(violation.rule == rule && violation.to_string().contains(words), "{violation}");
    }
}

//= protocol.md#I5 type=test
#[test]
fn a_read_of_the_newest_bytes_is_fine_and_one_of_older_bytes_is_not() {
    for (seen, fine) in [(OpId(1), true), (OpId(0), false)] {
        let mut s = Scene::new(1);
        s.write(0, (1, 2, 3), 1, 0, 100);
        s.write(1, (4, 5, 6), 2, 0, 50);
        s.read(2, (7, 8, 9), 3, (0, 100), &[(0, 50, Some(seen)), (50, 100, Some(OpId(0)))]);
        if fine { assert_eq!(s.passes(), Gaps::default()) } else { s.fails(Rule::Order, "nothing happened") }
    }
}

#[test]
fn a_read_cannot_see_what_was_never_written_nor_what_is_written_later() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 100);
    s.read(2, (4, 5, 6), 2, (200, 201), &[(200, 201, Some(OpId(0)))]);
    s.fails(Rule::Order, "did not write there");
    let mut s = Scene::new(1);
    s.read(2, (1, 2, 9), 1, (0, 10), &[(0, 10, Some(OpId(1)))]);
    s.write(0, (3, 4, 5), 1, 0, 100);
    s.fails(Rule::Order, "not there");
}

#[test]
fn a_torn_write_over_two_stripes_is_a_cycle() {
    let mut s = Scene::new(2);
    let w0 = s.write(0, (1, 2, 20), 1, 0, 2 * UNIT);
    let w1 = s.write(1, (3, 4, 21), 2, 0, 2 * UNIT);
    s.read(2, (22, 23, 24), 3, (0, 2 * UNIT), &[(0, UNIT, Some(w1)), (UNIT, 2 * UNIT, Some(w1))]);
    s.passes();
    // The locks of the second stripe were granted the other way round.
    s.history.operations[0].stripes[1].sn = Sn(2);
    s.history.operations[1].stripes[1].sn = Sn(1);
    s.history.operations[2].outcome = Some(Ok(Outcome::Read {
        length: 2 * UNIT,
        bytes: vec![(extent(0, UNIT), Some(w1)), (extent(UNIT, 2 * UNIT), Some(w0))],
    }));
    s.fails(Rule::Order, "no order of these calls");
}

#[test]
fn a_read_that_sees_half_of_a_write_is_a_cycle() {
    let mut s = Scene::new(2);
    let w0 = s.write(0, (1, 4, 20), 2, 0, 2 * UNIT);
    let r = s.read(1, (2, 3, 21), 1, (0, 2 * UNIT), &[(0, UNIT, None), (UNIT, 2 * UNIT, Some(w0))]);
    // On stripe 1 the read had its lock after the write, on stripe 0 before it.
    s.history.operations[r.0 as usize].stripes[1] =
        StripeUse { stripe: 1, extent: Extent::WHOLE, session: 3, sn: Sn(3), order: 5 };
    s.fails(Rule::Order, "no order of these calls");
}

#[test]
fn a_stale_read_after_the_write_returned_is_a_cycle_even_if_the_locks_explain_it() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 5, 0, 10);
    s.read(1, (4, 5, 6), 1, (0, 10), &[(0, 10, None)]);
    s.fails(Rule::Order, "had returned before");
}

#[test]
fn unflushed_bytes_may_be_lost_with_their_session_and_never_come_back() {
    let mut s = Scene::new(1);
    let w = s.write(0, (1, 2, 3), 1, 0, 10);
    s.write(1, (4, 5, 6), 1, 20, 30);
    s.read(1, (10, 11, 12), 2, (0, 10), &[(0, 10, None)]);
    s.fails(Rule::Order, "nothing happened");
    s.end_sessions(0, 8);
    assert_eq!(s.passes().writes_lost, 1);
    s.read(2, (13, 14, 15), 3, (0, 10), &[(0, 10, Some(w))]);
    s.fails(Rule::Order, "lost and back again");
}

#[test]
fn what_another_client_has_seen_is_stored_and_not_lost_with_its_session() {
    let mut s = Scene::new(1);
    let w = s.write(0, (1, 2, 3), 1, 0, 10);
    s.read(1, (4, 5, 6), 2, (0, 10), &[(0, 10, Some(w))]);
    s.end_sessions(0, 8);
    s.read(2, (13, 14, 15), 3, (0, 10), &[(0, 10, None)]);
    s.fails(Rule::Order, "nothing happened");
    s.fault(9, FaultKind::ServerLostPower { server: 0 });
    s.passes();
}

//= protocol.md#I9 type=test
#[test]
fn what_fsync_promised_is_not_lost_unless_the_loss_had_been_reported() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.fsync(0, (4, 6), Ok(Outcome::Synced));
    s.fault(9, FaultKind::ServerLostPower { server: 0 });
    s.end_sessions(0, 9);
    s.read(1, (13, 14, 15), 3, (0, 10), &[(0, 10, None)]);
    s.fails(Rule::Durable, "vouched");
    s.history.operations[1].outcome = Some(Err(5));
    s.passes();
    s.fsync(0, (16, 17), Ok(Outcome::Synced));
    s.passes();
}

#[test]
fn an_fsync_of_another_client_promises_nothing() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.fsync(1, (4, 6), Ok(Outcome::Synced));
    s.end_sessions(0, 9);
    s.read(1, (13, 14, 15), 3, (0, 10), &[(0, 10, None)]);
    s.passes();
}

#[test]
fn a_client_that_was_cut_off_may_read_and_write_in_vain_until_it_knows() {
    let mut s = Scene::new(1);
    s.end_sessions(0, 5);
    let w = s.write(1, (6, 7, 8), 2, 0, 10);
    let z = s.write(0, (9, 10, 11), 1, 0, 10);
    s.read(0, (12, 13, 14), 1, (0, 10), &[(0, 10, Some(z))]);
    s.read(2, (15, 16, 17), 3, (0, 10), &[(0, 10, Some(w))]);
    let gaps = s.passes();
    assert_eq!((gaps.reads_while_evicted, gaps.writes_lost), (1, 1));
    s.read(2, (18, 19, 20), 3, (0, 10), &[(0, 10, Some(z))]);
    s.fails(Rule::Order, "newer");
}

#[test]
fn a_failed_or_unfinished_write_is_there_or_not_but_not_both() {
    for outcome in [None, Some(Err(5))] {
        let mut s = Scene::new(1);
        let call = Call::Write { file: 0, extent: extent(0, 10), comb: Comb::NONE };
        let w = s.call(0, (1, 2, 3), 1, call, outcome);
        s.fault(3, FaultKind::ClientCrashed { node: 0 });
        s.end_sessions(0, 4);
        s.read(1, (5, 6, 7), 2, (0, 10), &[(0, 4, None), (4, 10, Some(w))]);
        s.passes();
        s.read(1, (8, 9, 10), 2, (0, 10), &[(0, 5, Some(w)), (5, 10, Some(w))]);
        s.fails(Rule::Order, "lost and back again");
    }
}

#[test]
fn a_write_that_failed_before_it_took_effect_may_show_where_it_was_copying() {
    let mut s = Scene::new(1);
    let w = s.write(0, (1, 2, 3), 1, 0, 10);
    s.read(1, (6, 7, 8), 2, (0, 10), &[(0, 10, Some(w))]);
    s.history.operations[0].stripes.clear();
    s.fails(Rule::Laboratory, "without a lock");
    s.history.operations[0].outcome = Some(Err(5));
    s.passes();
}

#[test]
fn a_device_error_excuses_what_its_client_was_told_and_a_missing_lock_does_not() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.read(1, (6, 7, 8), 2, (0, 10), &[(0, 10, None)]);
    s.fails(Rule::Order, "nothing happened");
    s.history.losses.push(Loss { at: at(5), node: 0, file: 0, stripe: 0, extent: extent(0, 10), errno: 28 });
    s.passes();
    s.history.losses[0].errno = 1;
    s.fails(Rule::Order, "nothing happened");
}

#[test]
fn what_was_under_a_refused_write_may_be_missing_too_unless_it_was_synced() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.write(1, (4, 5, 6), 2, 0, 10);
    s.history.losses.push(Loss { at: at(7), node: 1, file: 0, stripe: 0, extent: extent(0, 10), errno: 28 });
    s.read(2, (8, 9, 10), 3, (0, 10), &[(0, 10, None)]);
    s.passes();
    s.history.losses[0].node = 0;
    s.fails(Rule::Order, "nothing happened");
    s.history.losses[0].node = 1;
    s.fsync(0, (11, 12), Ok(Outcome::Synced));
    s.fails(Rule::Durable, "vouched");
}

#[test]
fn what_went_with_its_session_may_have_been_refused_before() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.write(1, (4, 5, 6), 2, 0, 10);
    s.end_sessions(1, 7);
    s.read(2, (8, 9, 10), 3, (0, 10), &[(0, 10, None)]);
    s.fails(Rule::Order, "nothing happened");
    s.fault(6, FaultKind::DevicesFailed);
    s.passes();
}

#[test]
fn what_is_found_at_the_end_is_judged_like_a_read() {
    let mut s = Scene::new(1);
    let w0 = s.write(0, (1, 2, 3), 1, 0, 10);
    let w1 = s.write(1, (4, 5, 6), 2, 0, 10);
    for (call, fine) in [(w1, true), (w0, false)] {
        let mut contents = Contents { length: 10, ..Contents::default() };
        contents.bytes.insert(extent(0, 10), call);
        s.history.finals = vec![contents];
        if fine { assert_eq!(s.passes(), Gaps::default()) } else { s.fails(Rule::Order, "at the end") }
    }
}

#[test]
fn appends_take_their_turn_at_the_end() {
    let mut s = Scene::new(2);
    s.write(0, (1, 2, 3), 1, 0, 100);
    s.append(0, (4, 6, 20), 2, 100, 50);
    s.append(1, (5, 8, 21), 3, 150, 50);
    s.passes();
    s.history.operations[2].offset = Some(160);
    s.history.operations[2].outcome = Some(Ok(Outcome::Appended { offset: 160 }));
    s.fails(Rule::Size, "ended at 150");
}

#[test]
fn a_truncate_cuts_for_everybody_and_late_bytes_do_not_come_back() {
    let mut s = Scene::new(2);
    let w = s.write(0, (1, 2, 3), 1, 0, 100);
    s.truncate(1, (4, 5, 6), 2, 40);
    s.read(2, (7, 8, 9), 3, (0, 100), &[(0, 40, Some(w))]);
    s.size(0, (10, 11), 40);
    s.passes();
    s.read(2, (12, 13, 14), 3, (0, 100), &[(0, 41, Some(w))]);
    s.fails(Rule::Order, "cut them");
}

#[test]
fn a_hole_reads_as_zeros_below_the_size_only() {
    let mut s = Scene::new(1);
    s.read(2, (1, 2, 3), 1, (50, 60), &[]);
    let w = s.write(0, (4, 5, 6), 1, 100, 200);
    s.read(2, (7, 8, 9), 2, (50, 120), &[(50, 100, None), (100, 120, Some(w))]);
    s.read(2, (10, 11, 12), 2, (0, 10), &[(0, 10, None)]);
    s.passes();
    s.read(2, (13, 14, 15), 2, (20, 30), &[(20, 25, None)]);
    s.fails(Rule::Order, "no order");
}

#[test]
fn a_read_that_is_longer_than_the_file_ever_was_is_noticed() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.read(2, (4, 5, 6), 2, (20, 30), &[(20, 30, None)]);
    s.fails(Rule::Size, "nothing before it");
}

#[test]
fn a_size_is_neither_stale_nor_invented() {
    let mut s = Scene::new(1);
    s.write(0, (1, 2, 3), 1, 0, 10);
    s.size(1, (4, 5), 10);
    s.passes();
    s.size(1, (6, 7), 11);
    s.fails(Rule::Size, "never had");
    s.history.operations[2].outcome = Some(Ok(Outcome::Size { length: 0 }));
    s.fails(Rule::Size, "had written up to 10");
}

//= protocol.md#I8 type=test
#[test]
fn a_call_of_a_living_client_must_return() {
    let mut s = Scene::new(1);
    s.call(0, (1, 2, 3), 1, Call::Write { file: 0, extent: extent(0, 10), comb: Comb::NONE }, None);
    s.fails(Rule::Turn, "never returned");
    s.fault(2, FaultKind::ClientCrashed { node: 0 });
    s.passes();
}

//= protocol.md#I8 type=test
#[test]
fn nobody_is_evicted_without_a_cause() {
    let mut s = Scene::new(1);
    s.fault(2, FaultKind::Disturbed { node: 1 });
    s.fault(3, FaultKind::ClientEvicted { node: 0, server: 0 });
    s.fails(Rule::Turn, "evicted node 0");
    s.history.faults[0].kind = FaultKind::Disturbed { node: 0 };
    s.passes();
}

#[test]
fn a_history_that_contradicts_itself_is_the_laboratorys_mistake() {
    let mut s = Scene::new(2);
    s.write(0, (1, 2, 3), 1, 0, 2 * UNIT);
    s.history.operations[0].stripes.pop();
    s.fails(Rule::Laboratory, "without a lock on stripe 1");
    let mut s = Scene::new(1);
    s.read(0, (1, 2, 3), 1, (0, 10), &[(0, 4, None), (5, 10, None)]);
    s.fails(Rule::Laboratory, "does not say what it saw");
}
