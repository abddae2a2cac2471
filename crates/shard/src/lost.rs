//! Stripes that failed to sync: every client hears of it, and not only the one that asked first.
//!
//! *What*: the failures since the start, and who has been told.
//! *Invariants*: I9: the system tells an error of delayed writing once, and may then have dropped what it could not write. A client
//! that syncs later must not be told that its data are safe.
//! *Not here*: when a sync is done.

use alloc::collections::{BTreeMap, BTreeSet};
use ccpfs_types::{ClientId, ResourceId};

/// Stripes that are remembered.
const LOST_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Failure {
    errno: i32,
    told: BTreeSet<ClientId>,
}

/// The stripes that failed to sync since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lost {
    failures: BTreeMap<ResourceId, Failure>,
}

impl Lost {
    /// A client has synced these stripes, with this error if any. Returns the error to tell it.
    //= protocol.md#I9
    pub(crate) fn synced(
        &mut self,
        client: ClientId,
        resources: &[ResourceId],
        errno: Option<i32>,
    ) -> Option<i32> {
        if let Some(errno) = errno {
            for resource in resources {
                self.failures.insert(*resource, Failure { errno, told: BTreeSet::from([client]) });
            }
            while self.failures.len() > LOST_MAX {
                self.failures.pop_first();
            }
            return Some(errno);
        }
        let mut first = None;
        for resource in resources {
            if let Some(failure) = self.failures.get_mut(resource)
                && failure.told.insert(client)
            {
                first = first.or(Some(failure.errno));
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_types::FileId;

    //= protocol.md#I9 type=test
    #[test]
    fn every_client_hears_of_a_failed_sync_once() {
        let resource = |stripe| ResourceId { file: FileId([0; 16]), stripe };
        let mut lost = Lost::default();
        assert_eq!(lost.synced(ClientId(1), &[resource(0)], None), None);
        assert_eq!(lost.synced(ClientId(1), &[resource(0), resource(1)], Some(5)), Some(5));
        assert_eq!(lost.synced(ClientId(1), &[resource(0)], None), None);
        assert_eq!(lost.synced(ClientId(2), &[resource(2), resource(1)], None), Some(5));
        assert_eq!(lost.synced(ClientId(2), &[resource(1)], None), None);
        assert_eq!(lost.synced(ClientId(2), &[resource(0)], None), Some(5));
    }
}
