//! A device in memory: what is written, and what of it would survive a crash.

use crate::bytes::{Byte, Bytes, copied, overlay};
use ccpfs_types::{Extent, ResourceId};
use std::collections::BTreeMap;

/// The data of one stripe.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    pub(crate) bytes: Bytes,
    pub(crate) length: u64,
}

/// The stripes of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Device {
    pub(crate) live: BTreeMap<ResourceId, Stored>,
    synced: BTreeMap<ResourceId, Stored>,
}

impl Device {
    /// Puts bytes at their offsets in the stripe.
    pub(crate) fn write(&mut self, resource: ResourceId, bytes: &Bytes) {
        let stored = self.live.entry(resource).or_default();
        overlay(&mut stored.bytes, bytes);
        stored.length = stored.length.max(bytes.end().unwrap_or(0));
    }

    /// Makes zeros, then sets the length.
    pub(crate) fn cut(&mut self, resource: ResourceId, holes: &[Extent], length: Option<u64>) {
        let stored = self.live.entry(resource).or_default();
        for hole in holes {
            stored.bytes.remove(*hole);
        }
        if let Some(length) = length {
            stored.length = length;
            stored.bytes.remove(Extent::to_eof(length));
        }
    }

    /// What there is of `extent`, from offset 0 on, short where the stripe ends; and the stripe's length.
    pub(crate) fn read(&self, resource: ResourceId, extent: Extent) -> (Bytes, u64) {
        let Some(stored) = self.live.get(&resource) else { return (Bytes::new(), 0) };
        let mut bytes = Bytes::new();
        if let Some(there) = Extent::new(extent.start(), extent.end().min(stored.length)) {
            bytes.insert(Extent::with_length(0, there.length()).expect("not empty"), Byte::Zero);
            overlay(&mut bytes, &copied(&stored.bytes, there, 0));
        }
        (bytes, stored.length)
    }

    pub(crate) fn length(&self, resource: ResourceId) -> u64 {
        self.live.get(&resource).map_or(0, |stored| stored.length)
    }

    pub(crate) fn sync(&mut self, resources: &[ResourceId]) {
        for resource in resources {
            match self.live.get(resource) {
                Some(stored) => self.synced.insert(*resource, stored.clone()),
                None => self.synced.remove(resource),
            };
        }
    }

    pub(crate) fn remove(&mut self, resources: &[ResourceId]) {
        for resource in resources {
            self.live.remove(resource);
            self.synced.remove(resource);
        }
    }

    /// Loses what has not been synced.
    pub(crate) fn crash(&mut self) {
        self.live.clone_from(&self.synced);
    }
}
