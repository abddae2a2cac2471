//! How far a grant grows beyond what was required.

use super::resource::{Request, Resource};
use ccpfs_types::{Expansion, Extent, LockMode, Region};

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
    pub(super) fn expanded(&self, base: &Region, mode: LockMode, request: &Request) -> Region {
        let (base, desired) = (base.bounds(), request.desired.bounds());
        let grown = match self.policy.expansion {
            Expansion::Exact => base,
            Expansion::Greedy => {
                let end = self.free_until(base.end(), desired.end().max(base.end()), mode);
                Extent::new(base.start(), end).expect("not smaller than the base")
            }
            Expansion::Lustre if desired == base => base,
            Expansion::Lustre => self.expanded_as_lustre(base, mode),
        };
        Region::Extent(grown)
    }

    /// The least offset in `[from, to]` where somebody stands against `mode`.
    fn free_until(&self, from: u64, to: u64, mode: LockMode) -> u64 {
        let Some(next) = Extent::new(from, from.saturating_add(1).min(to)) else { return from };
        let stands = |id| self.stands_against(id, mode);
        let blocked = self.near(mode, next).any(|(_, id)| stands(id))
            || self.waiting.conflicting(mode, &Region::Extent(next)).next().is_some();
        if blocked {
            return from;
        }
        let granted = self.by_extent.first_start(from, to, stands).unwrap_or(to);
        let granted = match mode.is_blind_write() {
            true => granted,
            false => self.aside.first_start(from, granted, stands).unwrap_or(granted),
        };
        let granted = match mode.writes() {
            true => self.reads.first_start(from, granted, stands).unwrap_or(granted),
            false => granted,
        };
        self.waiting.first_start(mode, from, granted).unwrap_or(granted)
    }

    /// The greatest offset at or below `to` down to which nobody stands against `mode`.
    fn free_from(&self, to: u64, mode: LockMode) -> u64 {
        let Some(below) = Extent::new(0, to) else { return to };
        let granted = self
            .near(mode, below)
            .filter(|(_, id)| self.stands_against(*id, mode))
            .map(|(extent, _)| extent.end());
        let below = Region::Extent(below);
        let waiting = self.waiting.conflicting(mode, &below).map(|(extent, _)| extent.end());
        granted.chain(waiting).max().unwrap_or(0).min(to)
    }

    /// The rule of ANCHORS S5.
    fn expanded_as_lustre(&self, base: Extent, mode: LockMode) -> Extent {
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
            true => self.free_from(base.start(), mode),
            false => base.start(),
        };
        let mut end = self.free_until(base.end(), Extent::EOF, mode);
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
