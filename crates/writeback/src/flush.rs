//! What to flush, in which order, and who waits for it.

use crate::parts::parts;
use crate::stripe::{Barrier, BarrierId, Cancel, Canceled, Effect, JobId, State, Stripe, Tag};
use alloc::vec::Vec;
use ccpfs_region::Region;
use ccpfs_types::{Extent, ExtentMap, LockId, Sn};
use core::ops::Bound;

/// Whether the server will never take the data, however often it is asked.
const fn is_final(errno: i32) -> bool {
    /// No lock covers the data.
    const EPERM: i32 = 1;
    /// Beyond the largest file of the server's file system.
    const EFBIG: i32 = 27;
    /// The file was removed.
    const ESTALE: i32 = 116;
    matches!(errno, EPERM | EFBIG | ESTALE)
}

/// The smallest extent around pieces that are in order; `None` if there are none.
fn hull(pieces: &[(Extent, Sn)]) -> Option<Extent> {
    Some(pieces.first()?.0.hull(pieces.last()?.0))
}

impl Cancel {
    /// Whether the lock covered all of an extent; a `false` may be wrong if its region has very many pieces there.
    fn holds(&self, extent: Extent) -> bool {
        self.region.contains_region(&extent.into())
    }

    /// Lets its data begin where what is left of them does; false if nothing is left.
    ///
    /// So what has been overwritten from the front on, as one write of a region does piece by piece, is not looked through again.
    fn keep_left(&mut self, in_flight: &ExtentMap<Sn>, dirty: &ExtentMap<Sn>) -> bool {
        let first = |map: &ExtentMap<Sn>, within: Extent| {
            let old = parts(map, &self.region, within).find(|(_, sn)| *sn <= self.sn);
            old.map(|(part, _)| part.start())
        };
        // What is on its way is older, and found first: where locks overlap there may be many of both.
        let flying = first(in_flight, self.data);
        let before = Extent::new(self.data.start(), flying.unwrap_or(self.data.end()));
        let unsent = before.and_then(|before| first(dirty, before));
        let left = unsent.or(flying).and_then(|start| Extent::new(start, self.data.end()));
        self.data = left.unwrap_or(self.data);
        left.is_some()
    }

    /// Whether the lock covered a byte of an extent.
    fn has_bytes_in(&self, extent: Extent) -> bool {
        self.region.overlaps_extent(extent)
    }
}

impl Stripe {
    pub(super) fn flush(&mut self, lock: LockId, canceled: Canceled, urgent: bool, out: &mut Vec<Effect>) {
        let Canceled { region, sn, release } = &canceled;
        let (sn, release) = (*sn, *release);
        if release {
            self.forget_clean(region, sn, out);
            // What a voluntary flush is sending just now goes for good.
            self.change(region, |tag| match tag.state {
                State::Flushing if tag.sn <= sn => Some(Tag { state: State::Leaving, ..tag }),
                State::Flushing | State::Clean | State::Dirty | State::Leaving => Some(tag),
            });
        }
        self.stalled = false;
        // A lock that was lowered before may be given back now: only the later counts.
        self.forget_cancel(lock);
        // Nobody else's data or barrier is any nearer to its end by this: a client may have thousands of locks to give back.
        let Some(data) = self.data_of(region, sn) else { return self.finish(lock, &canceled, out) };
        // The highest of those that have been there since there were none: nothing is looked through to lower it.
        let highest = if self.cancels.is_empty() { Sn(0) } else { self.newest_canceled };
        self.newest_canceled = highest.max(sn);
        let region = canceled.region;
        self.cancels.insert(lock, Cancel { region, sn, data, release, travels_with: None });
        if urgent {
            self.urgent.insert(lock);
            self.unsent.insert(lock);
        }
    }

    fn forget_cancel(&mut self, lock: LockId) -> Option<Cancel> {
        self.urgent.remove(&lock);
        self.unsent.remove(&lock);
        self.cancels.remove(&lock)
    }

    /// The smallest extent around what is dirty or on its way of `region` with numbers up to `sn`.
    fn data_of(&self, region: &Region, sn: Sn) -> Option<Extent> {
        let own = |map: &ExtentMap<Sn>| {
            let parts = parts(map, region, Extent::WHOLE);
            let mut parts = parts.filter(|(_, number)| *number <= sn).map(|(part, _)| part);
            let first = parts.next()?;
            Some(parts.last().map_or(first, |last| first.hull(last)))
        };
        match (own(&self.dirty), own(&self.in_flight)) {
            (Some(dirty), Some(flying)) => Some(dirty.hull(flying)),
            (one, other) => one.or(other),
        }
    }

    /// Bytes were written that may belong to a lock that is canceled already: one that is lowered may still be in use.
    pub(super) fn note_late(&mut self, extent: Extent, sn: Sn) {
        for (lock, cancel) in self.cancels.iter_mut().filter(|(_, cancel)| sn <= cancel.sn) {
            if let Some(part) = cancel.region.in_extent(extent).map(|part| part.bounds()) {
                cancel.data = cancel.data.hull(part);
                if self.urgent.contains(lock) {
                    self.unsent.insert(*lock);
                }
            }
        }
    }

    /// Whether a canceled lock waits for dirty data that could be sent now.
    pub(super) fn has_urgent(&self) -> bool {
        self.unsent.iter().filter_map(|lock| self.cancels.get(lock)).any(|cancel| {
            parts(&self.dirty, &cancel.region, cancel.data)
                .any(|(part, sn)| sn <= cancel.sn && !self.in_flight.gaps(part).is_empty())
        })
    }

    pub(super) fn take(
        &mut self,
        job: JobId,
        bytes_max: u64,
        pieces_max: usize,
        urgent_only: bool,
        out: &mut Vec<Effect>,
    ) {
        let mut pieces: Vec<(Extent, Sn)> = Vec::new();
        let mut room = bytes_max;
        self.collect_urgent(&mut room, pieces_max, &mut pieces);
        let urgent = !pieces.is_empty();
        if !urgent && !urgent_only && !self.stalled {
            self.collect(&Region::WHOLE, Extent::WHOLE, Sn(u64::MAX), &mut room, pieces_max, &mut pieces);
        }
        if pieces.is_empty() {
            return;
        }
        pieces.sort_unstable();
        // What two locks wait for is one piece where it is one lock's data: the release of the second travels along as well.
        pieces.dedup_by(|next, last| {
            let joined = last.1 == next.1 && last.0.end() == next.0.start();
            if joined {
                last.0 = last.0.hull(next.0);
            }
            joined
        });
        for (extent, sn) in &pieces {
            self.in_flight.insert(*extent, *sn);
            self.send(*extent, *sn);
        }
        self.jobs.insert(job, pieces.clone());
        let releases = self.released_by(job, &pieces);
        out.push(Effect::Job { job, pieces, releases, urgent });
    }

    /// Marks what is being sent. What a lock that goes covers of it may not be read any longer: its release may travel along.
    fn send(&mut self, extent: Extent, sn: Sn) {
        let leaves = |c: &&Cancel| c.release && sn <= c.sn;
        if self.cancels.values().filter(leaves).any(|c| c.holds(extent)) {
            self.cache.insert(extent, Tag { sn, state: State::Leaving });
            return;
        }
        self.cache.insert(extent, Tag { sn, state: State::Flushing });
        // A part of it, or all, in more pieces than were looked at.
        for cancel in self.cancels.values().filter(leaves).filter(|c| c.has_bytes_in(extent)) {
            for (part, _) in parts(&self.in_flight, &cancel.region, extent) {
                self.cache.insert(part, Tag { sn, state: State::Leaving });
            }
        }
    }

    /// Collects for the locks that somebody waits for, one after the other, as far as there is room.
    fn collect_urgent(&mut self, room: &mut u64, pieces_max: usize, pieces: &mut Vec<(Extent, Sn)>) {
        let mut sent = Vec::new();
        let mut from = Bound::Unbounded;
        while *room > 0
            && pieces.len() < pieces_max
            && let Some(lock) = self.unsent.range((from, Bound::Unbounded)).next().copied()
        {
            from = Bound::Excluded(lock);
            let Some(Cancel { region, data, sn, .. }) = self.cancels.get(&lock).cloned() else { continue };
            self.collect(&region, data, sn, room, pieces_max, pieces);
            if parts(&self.dirty, &region, data).all(|(_, number)| number > sn) {
                sent.push(lock);
            }
        }
        for lock in sent {
            self.unsent.remove(&lock);
        }
    }

    /// Moves dirty bytes of `region` and `within` with numbers up to `sn` from the dirty set to `pieces`, except those that are in
    /// flight already (I4).
    //= protocol.md#I4
    fn collect(
        &mut self,
        region: &Region,
        within: Extent,
        sn: Sn,
        room: &mut u64,
        pieces_max: usize,
        pieces: &mut Vec<(Extent, Sn)>,
    ) {
        let first = pieces.len();
        'full: for (part, number) in parts(&self.dirty, region, within) {
            if number > sn {
                continue;
            }
            for free in self.in_flight.gaps(part) {
                if *room == 0 || pieces.len() >= pieces_max {
                    break 'full;
                }
                let length = free.length().min(*room);
                *room -= length;
                pieces.push((Extent::with_length(free.start(), length).expect("room is left"), number));
            }
        }
        for (part, _) in &pieces[first..] {
            self.dirty.remove(*part);
        }
    }

    /// The locks for which `pieces` are the last data: their release travels along.
    fn released_by(&mut self, job: JobId, pieces: &[(Extent, Sn)]) -> Vec<LockId> {
        let Some(hull) = hull(pieces) else { return Vec::new() };
        let done: Vec<LockId> = self
            .cancels
            .iter()
            .filter(|(_, c)| c.release && c.travels_with.is_none() && c.data.overlaps(hull))
            .filter(|(_, c)| parts(&self.dirty, &c.region, c.data).all(|(_, sn)| sn > c.sn))
            .filter(|(_, c)| {
                let ours = |part: Extent| pieces.iter().any(|(piece, _)| piece.contains(part));
                let mut flying =
                    parts(&self.in_flight, &c.region, c.data).filter(|(_, sn)| *sn <= c.sn).peekable();
                flying.peek().is_some() && flying.all(|(part, _)| ours(part))
            })
            .map(|(lock, _)| *lock)
            .collect();
        for lock in &done {
            self.cancels.get_mut(lock).expect("just found").travels_with = Some(job);
        }
        done
    }

    pub(super) fn acknowledged(&mut self, job: JobId, errno: Option<i32>, out: &mut Vec<Effect>) {
        let Some(pieces) = self.jobs.remove(&job) else {
            return; // sent before the server was lost
        };
        for (extent, _) in &pieces {
            self.in_flight.remove(*extent);
        }
        for (extent, _) in &pieces {
            match errno {
                None => self.stored(*extent),
                Some(errno) => self.failed(*extent, errno, out),
            }
            if !self.cache.covers(*extent) {
                // What left with its lock, or was cut while it was on its way.
                out.push(Effect::Forgotten { extent: *extent });
            }
        }
        for barrier in self.barriers.values_mut() {
            for (extent, _) in &pieces {
                barrier.pending.update(*extent, |first| (job < first).then_some(first));
            }
            barrier.errno = barrier.errno.or(errno);
        }
        let traveled: Vec<LockId> =
            self.cancels.iter().filter(|(_, c)| c.travels_with == Some(job)).map(|(lock, _)| *lock).collect();
        for lock in traveled {
            let Cancel { region, sn, .. } = self.forget_cancel(lock).expect("just found");
            // What was cleaned since the cancel began.
            self.forget_clean(&region, sn, out);
            out.push(Effect::Flushed { lock, released: true });
        }
        if let Some(within) = hull(&pieces) {
            self.settle(within, out);
        }
    }

    fn stored(&mut self, extent: Extent) {
        self.cache.update(extent, |tag| match tag.state {
            State::Flushing => Some(Tag { state: State::Clean, ..tag }),
            State::Leaving => None,
            State::Clean | State::Dirty => Some(tag),
        });
    }

    /// A voluntary flush failed: the data stay dirty and are tried again when somebody asks. With a lock that is gone, or
    /// when the server will never take them, they are lost.
    fn failed(&mut self, extent: Extent, errno: i32, out: &mut Vec<Effect>) {
        let mut lost = false;
        let mut again: Vec<(Extent, Sn)> = Vec::new();
        for (part, tag) in self.cache.within(extent) {
            match tag.state {
                State::Flushing if !is_final(errno) => again.push((part, tag.sn)),
                State::Flushing | State::Leaving => lost = true,
                State::Clean | State::Dirty => {}
            }
        }
        for (part, sn) in again {
            self.cache.insert(part, Tag { sn, state: State::Dirty });
            self.dirty.insert(part, sn);
            self.stalled = true;
            for (lock, cancel) in self.cancels.iter().filter(|(_, c)| sn <= c.sn && c.has_bytes_in(part)) {
                // A lock that is lowered waits for its readers to end, and then goes with its data: no flush after the other.
                if !cancel.release {
                    self.urgent.remove(lock);
                    self.unsent.remove(lock);
                } else if self.urgent.contains(lock) {
                    self.unsent.insert(*lock);
                }
            }
        }
        self.cache.update(extent, |tag| match tag.state {
            State::Flushing | State::Leaving => None,
            State::Clean | State::Dirty => Some(tag),
        });
        if lost {
            out.push(Effect::DataLost { extent, errno });
        }
    }

    pub(super) fn set_barrier(&mut self, barrier: BarrierId, next_job: JobId, out: &mut Vec<Effect>) {
        let mut pending = ExtentMap::new();
        for (extent, _) in self.in_flight.iter() {
            pending.insert(extent, JobId(0));
        }
        for (extent, _) in self.dirty.iter() {
            pending.insert(extent, next_job);
        }
        self.stalled = false;
        self.barriers.insert(barrier, Barrier { pending, errno: None });
        self.settle(Extent::WHOLE, out);
    }

    /// Reports a lock that has nothing left to wait for.
    fn finish(&mut self, lock: LockId, canceled: &Canceled, out: &mut Vec<Effect>) {
        if canceled.release {
            // What was cleaned since the cancel began.
            self.forget_clean(&canceled.region, canceled.sn, out);
        }
        out.push(Effect::Flushed { lock, released: false });
    }

    /// Reports the locks and barriers that have nothing left to wait for, after something has changed in `within`.
    pub(super) fn settle(&mut self, within: Extent, out: &mut Vec<Effect>) {
        let mut done: Vec<LockId> = Vec::new();
        for (lock, cancel) in self.cancels.iter_mut().filter(|(_, cancel)| cancel.data.overlaps(within)) {
            if cancel.travels_with.is_none() && !cancel.keep_left(&self.in_flight, &self.dirty) {
                done.push(*lock);
            }
        }
        for lock in done {
            let Cancel { region, sn, release, .. } = self.forget_cancel(lock).expect("just found");
            self.finish(lock, &Canceled { region, sn, release }, out);
        }
        // A barrier with an error does not wait for data that nobody tries to send.
        let stalled = self.stalled;
        let done: Vec<BarrierId> = self
            .barriers
            .iter()
            .filter(|(_, b)| {
                b.pending.is_empty() || (b.errno.is_some() && stalled && self.in_flight.is_empty())
            })
            .map(|(id, _)| *id)
            .collect();
        for id in done {
            let barrier = self.barriers.remove(&id).expect("just found");
            out.push(Effect::BarrierDone { barrier: id, errno: barrier.errno });
        }
    }
}
