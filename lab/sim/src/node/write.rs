//! Writing: copy into the pages, mark dirty stripe by stripe.

use super::client::{Client, EIO};
use super::operation::{Op, Phase, Progress};
use super::stripe::to_u32;
use crate::engine::Engine;
use crate::history::{Call, Outcome, StripeUse};
use crate::workload::Work;
use ccpfs_cached_stripe::Input;
use ccpfs_types::Extent;

impl Client {
    /// Puts the bytes into the pages, then lets time pass.
    pub(super) fn copy(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        if op.complete {
            op.complete = false;
            op.at = 0;
            let mut bytes = 0;
            let (layout, tag) = (self.files[op.file].layout, op.tag());
            for extent in op.extents.clone() {
                bytes += extent.length();
                if !engine.is_tagged() {
                    continue;
                }
                for piece in layout.pieces(extent) {
                    let stripe = piece.stripe as usize;
                    let place = self.stripe(op.file, stripe);
                    place.memory.insert(piece.extent, tag);
                    place.pins.push(piece.extent);
                    op.pins.push((stripe, piece.extent));
                }
            }
            // A flush of what was there before may take the bytes along from here on, whatever becomes of the call.
            self.take_effect(engine, op);
            if self.spend_copying(engine, thread, bytes) {
                return Progress::Wait;
            }
            return op.enter(Phase::Commit);
        }
        if self.take_timer(thread) { op.enter(Phase::Commit) } else { Progress::Wait }
    }

    /// Where the call stands among others: nobody else writes these bytes until it ends, whatever is flushed when.
    fn take_effect(&self, engine: &mut Engine, op: &Op) {
        for part in &op.parts {
            let stripe = to_u32(part.stripe);
            let used =
                StripeUse { stripe, extent: part.share(), session: part.session, sn: part.sn, order: 0 };
            engine.took_effect(op.id, used);
        }
    }

    /// Marks the bytes of one stripe dirty and ends the use of its lock.
    pub(super) fn commit(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let Some(part) = op.parts.get(op.at).cloned() else {
            return Progress::Return(match (op.errno, &op.work) {
                (Some(errno), _) => Err(errno),
                (None, Work::Call(Call::Append { .. })) => {
                    Ok(Outcome::Appended { offset: op.hull().start() })
                }
                (None, Work::Call(_) | Work::WriteRegion { .. } | Work::Flush { .. }) => Ok(Outcome::Written),
            });
        };
        if op.at > 0 && op.pending.is_empty() && engine.random.chance(300) {
            // Other threads may run between two stripes.
            op.pending.push(0);
            if self.spend_copying(engine, thread, 0) {
                return Progress::Wait;
            }
        } else if !op.pending.is_empty()
            && engine.config.client.wake_jitter_ns > 0
            && !self.take_timer(thread)
        {
            return Progress::Wait;
        }
        op.pending.clear();
        op.at += 1;
        let now_ns = i64::try_from(engine.now_ns()).expect("a run is shorter than 292 years");
        if op.shares.is_empty() {
            op.shares = self.shares(op);
        }
        for extent in std::mem::take(&mut op.shares[op.at - 1]) {
            let input = Input::Written { operation: part.operation, extent, now_ns };
            self.step(engine, op.file, part.stripe, input);
        }
        if self.take_void(thread, part.operation).is_some() {
            op.errno = Some(EIO);
        }
        self.finish_part(engine, op.file, &part);
        Progress::Again
    }

    /// The bytes of a call that each of its locks holds, in offsets of the stripe. Locks are in the order of stripes and offsets.
    pub(super) fn shares(&self, op: &Op) -> Vec<Vec<Extent>> {
        let layout = self.files[op.file].layout;
        let mut shares: Vec<Vec<Extent>> = vec![Vec::new(); op.parts.len()];
        let mut at: Vec<usize> = (0..layout.stripe_count() as usize)
            .map(|stripe| op.parts.partition_point(|part| part.stripe < stripe))
            .collect();
        for piece in op.extents.iter().flat_map(|extent| layout.pieces(*extent)) {
            let at = &mut at[piece.stripe as usize];
            let mut rest = Some(piece.extent);
            while let Some(left) = rest {
                while op.parts[*at].extent.end() <= left.start() {
                    *at += 1;
                }
                let end = left.end().min(op.parts[*at].extent.end());
                let extent = Extent::new(left.start(), end).expect("parts hold all bytes of the call");
                match shares[*at].last_mut() {
                    Some(last) if last.end() == extent.start() => *last = last.hull(extent),
                    Some(_) | None => shares[*at].push(extent),
                }
                rest = Extent::new(end, left.end());
            }
        }
        shares
    }
}
