//! What the server has acknowledged and no Sync has covered, by the life of the server that did.

use alloc::collections::BTreeMap;
use ccpfs_types::OperationId;

/// A Sync under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Sync {
    /// The life of the server that was asked.
    epoch: u64,
    /// Syncs sent before: it covers what was acknowledged after no more than so many.
    covers: u64,
}

/// Acknowledged data that may not survive a crash of the server.
//= protocol.md#I9
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Unsynced {
    /// By life: how many Syncs had been sent before the last acknowledgement.
    epochs: BTreeMap<u64, u64>,
    syncs: BTreeMap<OperationId, Sync>,
    /// Syncs sent; begins again whenever all is covered.
    sent: u64,
}

impl Unsynced {
    pub(crate) fn acknowledged(&mut self, epoch: u64) {
        self.epochs.insert(epoch, self.sent);
    }

    /// A Sync is sent to a life of the server. False, once, if another life has acknowledged something that none has covered.
    /// Stays so until the Sync has ended well: a second fsync meanwhile must not find that all is covered.
    pub(crate) fn begin(&mut self, operation: OperationId, epoch: u64) -> bool {
        let before = self.epochs.len();
        self.epochs.retain(|life, _| *life == epoch);
        self.syncs.insert(operation, Sync { epoch, covers: self.sent });
        self.sent += 1;
        self.epochs.len() == before
    }

    pub(crate) fn end(&mut self, operation: OperationId, stored: bool) {
        let Some(sync) = self.syncs.remove(&operation) else { return };
        if stored {
            self.epochs.retain(|life, last| *life != sync.epoch || *last > sync.covers);
        }
        if self.epochs.is_empty() && self.syncs.is_empty() {
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: OperationId = OperationId(1);
    const B: OperationId = OperationId(2);

    #[test]
    fn a_life_that_ended_with_unsynced_data_is_reported_once() {
        let mut unsynced = Unsynced::default();
        unsynced.acknowledged(1);
        assert!(!unsynced.begin(A, 2));
        unsynced.end(A, true);
        assert!(unsynced.begin(B, 2));
    }

    #[test]
    fn what_is_synced_is_not_reported() {
        let mut unsynced = Unsynced::default();
        unsynced.acknowledged(1);
        assert!(unsynced.begin(A, 1));
        unsynced.end(A, true);
        assert!(unsynced.begin(B, 2));
        unsynced.end(B, true);
        assert_eq!(unsynced, Unsynced::default());
    }

    #[test]
    fn a_sync_does_not_cover_what_is_acknowledged_after_it_was_sent() {
        let mut unsynced = Unsynced::default();
        unsynced.acknowledged(1);
        assert!(unsynced.begin(A, 1));
        unsynced.acknowledged(1);
        unsynced.end(A, true);
        assert!(!unsynced.begin(B, 2));
    }

    #[test]
    fn regression_a_second_fsync_while_the_first_is_failing_does_not_vouch_for_the_earlier_life() {
        let mut unsynced = Unsynced::default();
        unsynced.acknowledged(1);
        assert!(unsynced.begin(A, 1));
        // The server restarts; another thread asks its new life while A has not noticed yet.
        assert!(!unsynced.begin(B, 2));
        unsynced.end(B, true);
        unsynced.end(A, false);
    }
}
