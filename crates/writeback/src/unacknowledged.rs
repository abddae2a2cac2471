//! What the server does not have yet, or may not have.

use crate::Stripe;
use alloc::vec::Vec;
use ccpfs_types::Extent;

impl Stripe {
    /// What of `extent` the server has not acknowledged, in ascending order; parts that touch may come one by one.
    #[must_use]
    pub fn unacknowledged(&self, extent: Extent) -> Vec<Extent> {
        let dirty = self.dirty.overlapping(extent).map(|(part, _)| part);
        let in_flight = self.in_flight.overlapping(extent).map(|(part, _)| part);
        let mut parts: Vec<Extent> =
            dirty.chain(in_flight).filter_map(|part| part.intersection(extent)).collect();
        parts.sort_unstable();
        parts
    }

    /// Whether anything within `extent` is on its way to the server.
    #[must_use]
    pub fn is_in_flight(&self, extent: Extent) -> bool {
        self.in_flight.overlapping(extent).next().is_some()
    }
}
