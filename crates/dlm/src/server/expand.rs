//! How far a grant grows beyond what was required.

use super::request::{Claim, Request};
use super::resource::Resource;
use ccpfs_region::Region;
use ccpfs_types::{Expansion, Extent, LockId};

/// Lustre's limit of growth under contention, half-open (ANCHORS S5: 32 MiB - 1, inclusive).
const LUSTRE_GROWN_BYTES_MAX: u64 = 32 << 20;
/// Number of conflicting locks or waiters above which Lustre limits growth.
const LUSTRE_CONTENDED: usize = 32;
/// Number of conflicting waiters above which Lustre does not grow downward.
const LUSTRE_DOWNWARD: usize = 4;
/// Lustre never splits a page between two locks.
const LUSTRE_PAGE_BYTES: u64 = 4096;

impl Resource {
    /// `base` and as much of the desired range as conflicts with nobody, granted or waiting.
    pub(super) fn expanded(&self, base: &Region, claim: Claim, request: &Request) -> Region {
        let desired = &request.desired;
        let (Some(extent), Some(wish)) = (base.as_extent(), desired.as_extent()) else {
            return match self.policy.expansion {
                Expansion::Exact | Expansion::Lustre => base.clone(),
                Expansion::Greedy | Expansion::PastWaiting => self.with_desired(base, claim, desired),
            };
        };
        let grown = match self.policy.expansion {
            Expansion::Exact => extent,
            Expansion::Greedy | Expansion::PastWaiting => {
                let end = self.free_until(extent.end(), wish.end().max(extent.end()), claim);
                Extent::new(extent.start(), end).expect("not smaller than the base")
            }
            Expansion::Lustre if wish == extent => extent,
            Expansion::Lustre => self.expanded_as_lustre(extent, claim),
        };
        Region::from(grown)
    }

    /// `base` and as much of a desired region that holds it as nobody stands against: all of it, or what lies before the first byte
    /// behind `base` that somebody has; without what lies before `base`, if there is somebody.
    fn with_desired(&self, base: &Region, claim: Claim, desired: &Region) -> Region {
        let bounds = base.bounds();
        // Somebody among the pieces of the base leaves nothing but the base.
        let kept = |region: Region| (region.is_lockable() && region.contains_region(base)).then_some(region);
        let from_base = || desired.in_extent(Extent::to_eof(bounds.start()));
        let up_to = |end: u64| desired.in_extent(Extent::new(bounds.start(), end)?);
        let grown = match self.first_limit(claim, desired) {
            None => Some(desired.clone()),
            Some(limit) if limit >= bounds.end() => {
                desired.in_extent(Extent::new(0, limit).expect("behind the base"))
            }
            Some(limit) if limit < bounds.start() => {
                from_base().and_then(|rest| match self.first_limit(claim, &rest) {
                    None => Some(rest),
                    Some(limit) if limit >= bounds.end() => up_to(limit),
                    Some(_) => None,
                })
            }
            Some(_) => None,
        };
        grown
            .and_then(kept)
            .filter(|grown| self.first_limit(claim, grown).is_none())
            .unwrap_or_else(|| base.clone())
    }

    /// The first byte of `region` beyond which a grant must not grow.
    fn first_limit(&self, claim: Claim, region: &Region) -> Option<u64> {
        match self.policy.expansion == Expansion::PastWaiting {
            true => self.first_granted_in_the_way(claim, region),
            false => self.first_in_the_way(claim, region),
        }
    }

    /// The least offset in `[from, to]` where somebody stands against a claim.
    fn free_until(&self, from: u64, to: u64, claim: Claim) -> u64 {
        let Some(next) = Extent::new(from, from.saturating_add(1).min(to)) else { return from };
        let (mode, stands) = (claim.mode, |id| self.stands_against(id, claim));
        let past_waiting = self.policy.expansion == Expansion::PastWaiting;
        // Who begins before has a byte here, or further on.
        let mut free = to;
        for id in self.near(mode, &next.into()).filter(|id| stands(*id)) {
            free = self.locks[&id].region.piece_from(from).map_or(free, |piece| free.min(piece.start()));
            if free == from {
                return from;
            }
        }
        if !past_waiting {
            free = self.waiting.first_around(claim, from).map_or(free, |first| free.min(first));
            if free == from {
                return from;
            }
        }
        let next = |id: LockId| {
            let held = stands(id).then(|| &self.locks[&id].region)?;
            held.piece_from(from).map(Extent::start)
        };
        let free = self.by_region.first_start(from, free, next).unwrap_or(free);
        let free = match mode.is_blind_write() {
            true => free,
            false => self.aside.first_start(from, free, next).unwrap_or(free),
        };
        let free = match mode.writes() {
            true => self.reads.first_start(from, free, next).unwrap_or(free),
            false => free,
        };
        match past_waiting {
            true => free,
            false => self.waiting.first_start(claim, from, free).unwrap_or(free),
        }
    }

    /// The greatest offset at or below `to` down to which nobody stands against a claim.
    fn free_from(&self, to: u64, claim: Claim) -> u64 {
        let Some(below) = Extent::new(0, to) else { return to };
        let below = Region::from(below);
        let granted = self
            .near(claim.mode, &below)
            .filter(|id| self.stands_against(*id, claim))
            .map(|id| self.locks[&id].region.bounds())
            .filter(|bounds| bounds.start() < to)
            .map(Extent::end);
        let waiting = self.waiting.conflicting(claim, &below).map(|other| other.required.bounds().end());
        granted.chain(waiting).max().unwrap_or(0).min(to)
    }

    /// The rule of ANCHORS S5.
    fn expanded_as_lustre(&self, base: Extent, claim: Claim) -> Extent {
        let mode = claim.mode;
        // More than these need not be counted.
        let granted = self
            .locks
            .values()
            .filter(|lock| !mode.compatible(lock.mode, lock.state()))
            .take(LUSTRE_CONTENDED + 1)
            .count();
        let waiting = self
            .waiting
            .iter()
            .filter(|(_, other)| !mode.compatible(other.mode, ccpfs_types::LockState::Granted))
            .take(LUSTRE_CONTENDED + 1)
            .count();
        let start = match granted == 0 && waiting <= LUSTRE_DOWNWARD {
            true => self.free_from(base.start(), claim),
            false => base.start(),
        };
        let mut end = self.free_until(base.end(), Extent::EOF, claim);
        if mode.writes() && (granted > LUSTRE_CONTENDED || waiting > LUSTRE_CONTENDED) {
            end = end.min(base.start().saturating_add(LUSTRE_GROWN_BYTES_MAX)).max(base.end());
        }
        if (start, end) == (0, Extent::EOF) {
            return Extent::WHOLE;
        }
        // Shrink to the largest power of two that both ends of the request are multiples of, but at least a page.
        let ends = if base.end() == Extent::EOF { base.start() } else { base.start() | base.end() };
        let unit = match ends.trailing_zeros() {
            zeros if zeros >= 63 => 1 << 62,
            zeros => (1_u64 << zeros).max(LUSTRE_PAGE_BYTES),
        };
        let start = start.next_multiple_of(unit).min(base.start());
        let end = if end == Extent::EOF { end } else { (end - end % unit).max(base.end()) };
        Extent::new(start, end).expect("not smaller than the base")
    }
}
