//! Stripes that failed to sync or to be written: every client hears of it, and not only the one that asked first.
//!
//! *What*: the failures since the start, and who has been told.
//! *Invariants*: I9: the system tells an error of delayed writing once, and may then have dropped what it could not write; and data
//! that were acknowledged because a newer write stands for them are lost with that one. A client that syncs later must not
//! be told that its data are safe.
//! *Not here*: when a sync is done; the error that a writer hears in the answer to its own flush.

use alloc::collections::{BTreeMap, BTreeSet};
use ccpfs_types::{ClientId, ResourceId};

/// Stripes that are remembered.
const LOST_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Failure {
    errno: i32,
    told: BTreeSet<ClientId>,
}

/// A write or cut that failed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Unwritten {
    errno: i32,
    /// Who was there and has not heard of it.
    untold: BTreeSet<ClientId>,
}

/// The stripes that failed since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lost {
    failures: BTreeMap<ResourceId, Failure>,
    unwritten: BTreeMap<ResourceId, Unwritten>,
}

impl Lost {
    /// The device could not write what was newest. Others may have been told that older data of theirs are in, because
    /// these stand for them: `others` are the clients but the writer, which hears of it anyway.
    //= protocol.md#I9
    pub(crate) fn unwritten(
        &mut self,
        resource: ResourceId,
        errno: i32,
        others: impl Iterator<Item = ClientId>,
    ) {
        let new = Unwritten { errno, untold: BTreeSet::new() };
        let failure = self.unwritten.entry(resource).or_insert(new);
        failure.errno = errno;
        failure.untold.extend(others);
        if failure.untold.is_empty() {
            self.unwritten.remove(&resource);
        }
        while self.unwritten.len() > LOST_MAX {
            self.unwritten.pop_first();
        }
    }

    /// A client is gone: it will not ask any more.
    pub(crate) fn parted(&mut self, client: ClientId) {
        self.unwritten.retain(|_, failure| {
            failure.untold.remove(&client);
            !failure.untold.is_empty()
        });
    }

    /// A file is gone, and with it whatever it has lost.
    pub(crate) fn removed(&mut self, resource: ResourceId) {
        self.failures.remove(&resource);
        self.unwritten.remove(&resource);
    }

    /// The error that a client has to hear of what was not written of a stripe, if it has not heard of it.
    fn hear_unwritten(&mut self, client: ClientId, resource: ResourceId) -> Option<i32> {
        let failure = self.unwritten.get_mut(&resource)?;
        let errno = failure.untold.remove(&client).then_some(failure.errno);
        if failure.untold.is_empty() {
            self.unwritten.remove(&resource);
        }
        errno
    }

    /// A client has synced these stripes, with this error if any. Returns the error to tell it.
    //= protocol.md#I9
    pub(crate) fn synced(
        &mut self,
        client: ClientId,
        resources: &[ResourceId],
        errno: Option<i32>,
    ) -> Option<i32> {
        let mut first = None;
        for resource in resources {
            first = first.or(self.hear_unwritten(client, *resource));
        }
        if let Some(errno) = errno {
            for resource in resources {
                self.failures.insert(*resource, Failure { errno, told: BTreeSet::from([client]) });
            }
            while self.failures.len() > LOST_MAX {
                self.failures.pop_first();
            }
            return Some(errno);
        }
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

    //= protocol.md#I9 type=test
    #[test]
    fn who_was_there_when_a_write_failed_hears_of_it_once() {
        let resource = |stripe| ResourceId { file: FileId([0; 16]), stripe };
        let mut lost = Lost::default();
        lost.unwritten(resource(0), 28, [ClientId(2), ClientId(3)].into_iter());
        lost.unwritten(resource(1), 28, [].into_iter());
        assert_eq!(lost.synced(ClientId(1), &[resource(0)], None), None, "it has heard as the writer");
        assert_eq!(lost.synced(ClientId(4), &[resource(0), resource(1)], None), None, "it came later");
        assert_eq!(lost.synced(ClientId(2), &[resource(1), resource(0)], None), Some(28));
        assert_eq!(lost.synced(ClientId(2), &[resource(0)], None), None);
        lost.parted(ClientId(3));
        assert_eq!(lost, Lost::default(), "nobody is left to hear of it");
    }
}
