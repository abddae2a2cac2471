//! Tests of the write-back rules.

use crate::{BarrierId, Effect, Input, JobId, Readable, Stripe};
use alloc::vec;
use alloc::vec::Vec;
use ccpfs_region::{Region, Section};
use ccpfs_types::{Extent, LockId, Sn};

fn e(start: u64, end: u64) -> Extent {
    Extent::new(start, end).unwrap()
}

struct Cache {
    stripe: Stripe,
    jobs: u64,
}

fn cache() -> Cache {
    Cache { stripe: Stripe::new(), jobs: 0 }
}

impl Cache {
    fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut out = Vec::new();
        self.stripe.step(input, &mut out);
        out
    }

    fn write(&mut self, start: u64, end: u64, sn: u64) {
        assert_eq!(self.step(Input::Written { extent: e(start, end), sn: Sn(sn) }), []);
    }

    fn take(&mut self) -> Vec<Effect> {
        self.jobs += 1;
        let job = JobId(self.jobs);
        self.step(Input::Take { job, bytes_max: 100, pieces_max: 4, urgent_only: false })
    }

    fn ack(&mut self, job: u64) -> Vec<Effect> {
        self.step(Input::Acknowledged { job: JobId(job), errno: None })
    }

    fn cancel(&mut self, lock: u64, start: u64, end: u64, sn: u64) -> Vec<Effect> {
        self.step(Input::Flush {
            lock: LockId(lock),
            region: e(start, end).into(),
            sn: Sn(sn),
            release: true,
            urgent: true,
        })
    }
}

fn job(number: u64, pieces: Vec<(Extent, Sn)>, releases: Vec<LockId>, urgent: bool) -> Effect {
    Effect::Job { job: JobId(number), pieces, releases, urgent }
}

#[test]
fn a_lock_without_dirty_data_is_flushed_at_once_and_its_clean_data_are_forgotten() {
    let mut c = cache();
    c.step(Input::Fetched { extent: e(0, 10), sn: Sn(1) });
    assert_eq!(
        c.cancel(1, 0, 100, 1),
        [Effect::Forgotten { extent: e(0, 100) }, Effect::Flushed { lock: LockId(1), released: false }]
    );
    assert_eq!(c.stripe.readable(e(0, 10)), Readable::Missing(vec![e(0, 10)]));
}

#[test]
fn the_release_travels_with_the_last_data() {
    let mut c = cache();
    c.write(0, 150, 1);
    assert_eq!(c.cancel(1, 0, 200, 1), []);
    assert_eq!(c.take(), [job(1, vec![(e(0, 100), Sn(1))], vec![], true)]);
    assert_eq!(c.take(), [job(2, vec![(e(100, 150), Sn(1))], vec![], true)], "job 1 is still under way");
    c.ack(1);
    let last = c.ack(2);
    assert!(last.contains(&Effect::Flushed { lock: LockId(1), released: false }));
    let mut c = cache();
    c.write(0, 50, 1);
    c.cancel(1, 0, 200, 1);
    assert_eq!(c.take(), [job(1, vec![(e(0, 50), Sn(1))], vec![LockId(1)], true)]);
    assert!(c.ack(1).contains(&Effect::Flushed { lock: LockId(1), released: true }));
    assert!(c.stripe.is_empty());
}

#[test]
fn leaving_bytes_are_not_read_and_not_fetched_before_they_have_arrived() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.cancel(1, 0, 200, 1);
    c.take();
    assert_eq!(c.stripe.readable(e(0, 10)), Readable::Wait);
    c.ack(1);
    assert_eq!(c.stripe.readable(e(0, 10)), Readable::Missing(vec![e(0, 10)]));
}

/// A region of two sections whose pieces of ten bytes lie side by side, `count` of them from 0 on.
fn side_by_side(count: u64) -> Region {
    let section = |offset, count| Section::new(offset, 10, &[(20, count)]).unwrap();
    Region::from_sections(vec![section(0, count.div_ceil(2)), section(10, count / 2)]).unwrap()
}

#[test]
//= protocol.md#I5 type=test
fn regression_bytes_of_very_many_pieces_that_touch_leave_with_their_lock() {
    // The second flush is one that nobody waits for, of more pieces than are looked at to see whether they are an extent.
    for (count, urgent) in [(599, true), (100_001, false)] {
        let mut c = cache();
        let all = e(0, 10 * count);
        let region = side_by_side(count);
        assert_eq!(region.sections().count(), 2, "it is no extent");
        c.write(0, all.end(), 1);
        c.step(Input::Flush { lock: LockId(1), region, sn: Sn(1), release: true, urgent });
        let take = Input::Take { job: JobId(1), bytes_max: 4 << 20, pieces_max: 1024, urgent_only: urgent };
        assert_eq!(c.step(take), [job(1, vec![(all, Sn(1))], vec![LockId(1)], urgent)]);
        assert_eq!(c.stripe.readable(all), Readable::Wait);
        c.ack(1);
        assert_eq!(c.stripe.readable(all), Readable::Missing(vec![all]));
        assert!(c.stripe.is_empty());
    }
}

#[test]
//= protocol.md#I5 type=test
fn regression_clean_bytes_do_not_outlive_a_release_that_traveled() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.cancel(1, 0, 200, 1);
    // An operation under the lock that had begun before.
    c.step(Input::Fetched { extent: e(60, 70), sn: Sn(1) });
    assert_eq!(c.take(), [job(1, vec![(e(0, 50), Sn(1))], vec![LockId(1)], true)]);
    c.ack(1);
    assert_eq!(c.stripe.readable(e(60, 70)), Readable::Missing(vec![e(60, 70)]));
    assert!(c.stripe.is_empty());
}

#[test]
//= protocol.md#I4 type=test
fn bytes_in_flight_are_not_sent_again_before_the_answer() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.take();
    c.write(10, 20, 1);
    assert_eq!(c.take(), [], "all dirty bytes are in flight");
    c.ack(1);
    assert_eq!(c.take(), [job(3, vec![(e(10, 20), Sn(1))], vec![], false)]);
}

#[test]
fn a_flush_that_nobody_waits_for_goes_with_the_next_one_or_when_somebody_does() {
    let put_off =
        Input::Flush { lock: LockId(1), region: e(0, 50).into(), sn: Sn(1), release: true, urgent: false };
    let urgent = |job| Input::Take { job: JobId(job), bytes_max: 100, pieces_max: 4, urgent_only: true };
    let mut c = cache();
    c.write(0, 50, 1);
    assert_eq!(c.step(put_off.clone()), []);
    assert!(!c.stripe.wants_flush());
    assert_eq!(c.step(urgent(1)), []);
    c.step(Input::Hurry { lock: LockId(1) });
    assert!(c.stripe.wants_flush());
    assert_eq!(c.step(urgent(2)), [job(2, vec![(e(0, 50), Sn(1))], vec![LockId(1)], true)]);
    let mut c = cache();
    c.write(0, 50, 1);
    c.step(put_off);
    assert_eq!(
        c.take(),
        [job(1, vec![(e(0, 50), Sn(1))], vec![LockId(1)], false)],
        "a voluntary flush takes it along"
    );
}

#[test]
fn newer_data_of_another_lock_stay_when_the_older_lock_goes() {
    // Paper Fig. 14: lock A (number 8) is being canceled, B (number 9) wrote over a part of it.
    let mut c = cache();
    c.write(0, 40, 8);
    c.cancel(1, 0, 100, 8);
    c.write(20, 80, 9);
    assert_eq!(c.take(), [job(1, vec![(e(0, 20), Sn(8))], vec![LockId(1)], true)]);
    c.ack(1);
    assert_eq!(c.stripe.readable(e(20, 80)), Readable::All);
    assert_eq!(c.stripe.dirty_bytes(), 60);
}

#[test]
fn regression_a_canceled_lock_whose_bytes_are_all_overwritten_goes_at_once() {
    let mut c = cache();
    c.write(0, 40, 1);
    assert_eq!(c.cancel(1, 0, 100, 1), []);
    let overwritten = c.step(Input::Written { extent: e(0, 40), sn: Sn(2) });
    assert_eq!(overwritten, [Effect::Flushed { lock: LockId(1), released: false }]);
}

#[test]
fn regression_a_put_off_lock_that_is_overwritten_piece_by_piece_is_not_looked_through_at_each() {
    // Looking through what has been overwritten already, at each of so many pieces, would take minutes.
    let count = 60_000;
    let mut c = cache();
    let region = Region::from(Section::new(0, 8, &[(64, count)]).unwrap());
    let piece = |at: u64| e(at * 64, at * 64 + 8);
    for at in 0..count {
        c.step(Input::Written { extent: piece(at), sn: Sn(1) });
    }
    let (lock, sn) = (LockId(1), Sn(1));
    assert_eq!(c.step(Input::Flush { lock, region, sn, release: true, urgent: false }), []);
    for at in 0..count - 1 {
        assert_eq!(c.step(Input::Written { extent: piece(at), sn: Sn(2) }), []);
    }
    let last = c.step(Input::Written { extent: piece(count - 1), sn: Sn(2) });
    assert_eq!(last, [Effect::Flushed { lock, released: false }]);
}

#[test]
fn an_overwritten_flush_in_flight_still_holds_its_lock() {
    let mut c = cache();
    c.write(0, 40, 1);
    c.take();
    c.write(0, 40, 2);
    assert_eq!(c.cancel(1, 0, 100, 1), [], "the data of lock 1 have not been acknowledged");
    assert!(c.ack(1).contains(&Effect::Flushed { lock: LockId(1), released: false }));
    assert_eq!(c.stripe.dirty_bytes(), 40);
}

#[test]
fn a_barrier_waits_for_what_was_dirty_and_not_for_what_comes_later() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.take();
    c.write(0, 10, 1);
    let set = c.step(Input::Barrier { barrier: BarrierId(1), next_job: JobId(2) });
    assert_eq!(set, []);
    c.write(60, 70, 1);
    assert_eq!(c.ack(1), [], "bytes 0..10 were dirty again");
    c.take();
    assert_eq!(c.ack(2), [Effect::BarrierDone { barrier: BarrierId(1), errno: None }]);
}

#[test]
fn a_failed_voluntary_flush_keeps_the_data_and_fails_the_barrier() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.step(Input::Barrier { barrier: BarrierId(1), next_job: JobId(1) });
    c.take();
    let failed = c.step(Input::Acknowledged { job: JobId(1), errno: Some(28) });
    assert_eq!(failed, [Effect::BarrierDone { barrier: BarrierId(1), errno: Some(28) }]);
    assert_eq!(c.stripe.dirty_bytes(), 50);
    assert_eq!(c.take(), [], "not tried again on its own");
    c.step(Input::Barrier { barrier: BarrierId(2), next_job: JobId(3) });
    c.take();
    assert_eq!(c.ack(3), [Effect::BarrierDone { barrier: BarrierId(2), errno: None }]);
}

#[test]
fn a_failed_flush_of_a_lock_that_goes_loses_the_data_and_says_so() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.cancel(1, 0, 100, 1);
    c.take();
    let failed = c.step(Input::Acknowledged { job: JobId(1), errno: Some(28) });
    assert!(failed.contains(&Effect::DataLost { extent: e(0, 50), errno: 28 }));
    assert!(failed.contains(&Effect::Flushed { lock: LockId(1), released: true }));
}

#[test]
fn truncation_forgets_what_lies_above_and_frees_who_waits_for_it() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.step(Input::Barrier { barrier: BarrierId(1), next_job: JobId(1) });
    let cut = c.step(Input::Truncated { length: 0 });
    assert!(cut.contains(&Effect::BarrierDone { barrier: BarrierId(1), errno: None }));
    assert!(c.stripe.is_empty());
}

#[test]
fn regression_bytes_cut_while_they_were_on_their_way_are_forgotten_with_the_answer() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.take();
    c.step(Input::Truncated { length: 0 });
    assert!(c.stripe.needs_pages(e(0, 50)), "they are being sent from there");
    assert_eq!(c.ack(1), [Effect::Forgotten { extent: e(0, 50) }]);
    assert!(!c.stripe.needs_pages(e(0, 50)));
}

#[test]
fn regression_what_a_server_will_never_take_is_given_up() {
    const ESTALE: i32 = 116;
    let mut c = cache();
    c.write(0, 50, 1);
    c.step(Input::Barrier { barrier: BarrierId(1), next_job: JobId(1) });
    c.take();
    let refused = c.step(Input::Acknowledged { job: JobId(1), errno: Some(ESTALE) });
    assert!(refused.contains(&Effect::DataLost { extent: e(0, 50), errno: ESTALE }));
    assert!(refused.contains(&Effect::BarrierDone { barrier: BarrierId(1), errno: Some(ESTALE) }));
    assert!(c.stripe.is_empty());
}

#[test]
fn regression_a_failed_flush_is_tried_again_for_those_who_wait_for_room() {
    let mut c = cache();
    c.write(0, 50, 1);
    c.take();
    c.step(Input::Acknowledged { job: JobId(1), errno: Some(28) });
    assert_eq!(c.take(), []);
    c.step(Input::Retry);
    assert_eq!(c.take(), [job(3, vec![(e(0, 50), Sn(1))], vec![], false)]);
}

#[test]
fn regression_a_lock_that_is_lowered_and_then_given_back_is_reported_once() {
    let mut cache = cache();
    cache.write(20, 30, 1);
    let lock = LockId(1);
    let flush = |extent: Extent, release| Input::Flush {
        lock,
        region: extent.into(),
        sn: Sn(1),
        release,
        urgent: true,
    };
    assert_eq!(cache.step(flush(e(0, 100), false)), []);
    let Some(Effect::Job { job: number, .. }) = cache.take().pop() else { panic!("a lock waits for it") };
    // It goes while that flush is on its way, and what is left of it has no data: nothing to wait for.
    let flushed = Effect::Flushed { lock, released: false };
    assert_eq!(cache.step(flush(e(50, 100), true)), [flushed]);
    assert_eq!(cache.ack(number.0), [], "the lock is gone already");
    assert!(!cache.stripe.wants_flush());
}

#[test]
fn regression_a_failed_flush_of_a_lock_that_is_lowered_is_not_repeated_until_the_lock_goes() {
    let mut cache = cache();
    cache.write(0, 10, 1);
    let lock = LockId(1);
    let flush = |release| Input::Flush { lock, region: e(0, 100).into(), sn: Sn(1), release, urgent: true };
    assert_eq!(cache.step(flush(false)), []);
    let Some(Effect::Job { job: number, .. }) = cache.take().pop() else { panic!("a lock waits for it") };
    assert_eq!(cache.step(Input::Acknowledged { job: number, errno: Some(28) }), []);
    assert!(!cache.stripe.wants_flush(), "no flush after the other on a full device");
    assert_eq!(cache.step(flush(true)), []);
    assert!(cache.stripe.wants_flush());
    let Some(Effect::Job { job: number, releases, .. }) = cache.take().pop() else { panic!("the lock goes") };
    assert_eq!(releases, [lock]);
    let lost = Effect::DataLost { extent: e(0, 10), errno: 28 };
    let out = cache.step(Input::Acknowledged { job: number, errno: Some(28) });
    assert!(out.contains(&lost) && out.contains(&Effect::Flushed { lock, released: true }), "{out:?}");
}

/// The dumb twin: for each byte, what the server has and what the cache should say.
#[test]
fn the_server_ends_with_every_byte_of_the_last_write() {
    let mut seed: u64 = 11;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let mut c = cache();
        let (mut written, mut server) = ([0_u64; 64], [0_u64; 64]);
        let mut flying: Vec<(u64, Vec<(Extent, Sn)>)> = Vec::new();
        for sn in 1..80_u64 {
            match random(3) {
                0 => {
                    let start = random(63);
                    let end = start + 1 + random(64 - start);
                    c.write(start, end, sn);
                    written[usize::try_from(start).unwrap()..usize::try_from(end).unwrap()].fill(sn);
                }
                1 => {
                    for effect in c.take() {
                        if let Effect::Job { pieces, .. } = effect {
                            for (_, other) in &flying {
                                assert!(
                                    other.iter().all(|(o, _)| pieces.iter().all(|(p, _)| !o.overlaps(*p)))
                                );
                            }
                            flying.push((c.jobs, pieces));
                        }
                    }
                }
                _ if flying.is_empty() => {}
                _ => {
                    let (number, pieces) =
                        flying.swap_remove(usize::try_from(random(flying.len() as u64)).unwrap());
                    for (piece, sn) in pieces {
                        for byte in piece.start()..piece.end() {
                            server[usize::try_from(byte).unwrap()] = sn.0;
                        }
                    }
                    c.ack(number);
                }
            }
        }
        loop {
            let number = flying.pop();
            if let Some((number, pieces)) = number {
                for (piece, sn) in pieces {
                    for byte in piece.start()..piece.end() {
                        server[usize::try_from(byte).unwrap()] = sn.0;
                    }
                }
                c.ack(number);
                continue;
            }
            match c.take().pop() {
                Some(Effect::Job { pieces, .. }) => flying.push((c.jobs, pieces)),
                _ => break,
            }
        }
        assert_eq!(server, written);
        assert_eq!(c.stripe.dirty_bytes(), 0);
    }
}
