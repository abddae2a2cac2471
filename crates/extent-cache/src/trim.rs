//! Trimming: which entries of the extent cache may be forgotten.
//!
//! *What*: a round through the entries, some at a time.
//! *Invariants*: I6.
//! *Not here*: when to trim, and which locks are unreleased (the shell asks `ccpfs-dlm`).

use crate::Stripe;
use alloc::vec::Vec;
use ccpfs_types::{Extent, Sn};

/// The entries from the cursor on, at most `limit`; from the start again when the end was reached.
pub(crate) fn candidates(stripe: &Stripe, limit: usize) -> Vec<(Extent, Sn)> {
    let from_cursor: Vec<(Extent, Sn)> = match Extent::new(stripe.cursor, Extent::EOF) {
        Some(rest) => stripe.newest.overlapping(rest).take(limit).collect(),
        None => Vec::new(),
    };
    if from_cursor.is_empty() {
        return stripe.newest.iter().take(limit).collect();
    }
    from_cursor
}

/// Forgets what the floors allow and moves the cursor behind the last extent looked at.
pub(crate) fn trim(stripe: &mut Stripe, floors: &[(Extent, Option<Sn>)]) {
    for (extent, floor) in floors {
        let entries: Vec<(Extent, Sn)> = stripe.newest.within(*extent).collect();
        for (entry, sn) in entries {
            //= protocol.md#I6
            //# An extent-cache entry is forgotten only when no unreleased write lock overlapping it has a smaller SN.
            let nothing_older_can_come = floor.is_none_or(|floor| sn <= floor);
            if nothing_older_can_come && !stripe.queue.touches(entry) {
                stripe.newest.remove(entry);
            }
        }
        stripe.cursor = extent.end();
    }
}

#[cfg(test)]
mod tests {
    use crate::{Arriving, Effect, Input, JobId, Stripe, WriteId};
    use alloc::vec;
    use alloc::vec::Vec;
    use ccpfs_types::{Extent, Sn};

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    fn arrived(write: u64, start: u64, end: u64, sn: u64) -> Input {
        let piece = Arriving { extent: extent(start, end), sn: Sn(sn), bulk_offset: 0 };
        Input::Arrived { write: WriteId(write), pieces: vec![piece] }
    }

    fn stripe(entries: &[(u64, u64, u64)]) -> Stripe {
        let (mut stripe, mut out) = (Stripe::new(), Vec::new());
        for (at, (start, end, sn)) in entries.iter().enumerate() {
            stripe.step(arrived(at as u64, *start, *end, *sn), &mut out);
            stripe.step(Input::Persisted { job: JobId(at as u64) }, &mut out);
        }
        stripe
    }

    //= protocol.md#I6 type=test
    #[test]
    fn the_papers_example_forgets_what_no_unreleased_lock_is_older_than() {
        let mut stripe = stripe(&[(0, 2048, 8), (2048, 8192, 9), (8192, 9000, 10)]);
        let floors = vec![(extent(0, 2048), Some(Sn(9))), (extent(2048, 8192), Some(Sn(9)))];
        stripe.step(Input::Trim { floors }, &mut Vec::new());
        assert_eq!(stripe.candidates(10).iter().map(|one| one.0).collect::<Vec<_>>(), [extent(8192, 9000)]);
        stripe.step(Input::Trim { floors: vec![(extent(8192, 9000), Some(Sn(9)))] }, &mut Vec::new());
        assert_eq!(stripe.entries(), 1, "a lock with SN 9 may still flush over it");
        stripe.step(Input::Trim { floors: vec![(Extent::WHOLE, None)] }, &mut Vec::new());
        assert!(stripe.is_idle());
    }

    #[test]
    fn candidates_go_round() {
        let mut stripe = stripe(&[(0, 10, 1), (20, 30, 2), (40, 50, 3)]);
        let mut seen = Vec::new();
        for _ in 0..4 {
            let found = stripe.candidates(2);
            let floors = found.iter().map(|(extent, _)| (*extent, Some(Sn(0)))).collect();
            stripe.step(Input::Trim { floors }, &mut Vec::new());
            seen.push(found.len());
        }
        assert_eq!(seen, [2, 1, 2, 1]);
    }

    #[test]
    fn entries_of_jobs_at_the_device_stay() {
        let (mut stripe, mut out) = (Stripe::new(), Vec::new());
        stripe.step(arrived(1, 0, 10, 5), &mut out);
        stripe.step(Input::Trim { floors: vec![(Extent::WHOLE, None)] }, &mut out);
        assert_eq!(stripe.entries(), 1);
        stripe.step(Input::Persisted { job: JobId(0) }, &mut out);
        stripe.step(Input::Trim { floors: vec![(Extent::WHOLE, None)] }, &mut out);
        assert!(stripe.is_idle());
    }

    #[test]
    fn a_failed_write_may_be_retried_with_its_number_and_hides_older_ones() {
        let (mut stripe, mut out) = (Stripe::new(), Vec::new());
        stripe.step(arrived(1, 0, 10, 5), &mut out);
        stripe.step(Input::Failed { job: JobId(0), errno: 28 }, &mut out);
        assert_eq!(out.pop(), Some(Effect::Acknowledge { write: WriteId(1), errno: Some(28) }));
        out.clear();
        stripe.step(arrived(2, 0, 10, 4), &mut out);
        assert_eq!(out, [Effect::Acknowledge { write: WriteId(2), errno: None }]);
        out.clear();
        stripe.step(arrived(3, 0, 10, 5), &mut out);
        assert!(matches!(out[..], [Effect::Start { job: JobId(1), write: WriteId(3), .. }]), "{out:?}");
    }
}
