//! A device in memory that keeps durable and live contents apart, for tests of what survives a crash.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ccpfs_types::Extent;

use crate::device::{Device, DeviceError, Listed, Map};
use crate::memory::Objects;
use crate::object::ObjectName;

/// A device in memory whose [`CrashDevice::crash`] drops whatever was not synced.
#[derive(Debug, Default)]
pub struct CrashDevice {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    /// What reads see.
    live: Objects,
    /// What a crash leaves.
    durable: Objects,
}

impl CrashDevice {
    /// An empty device.
    pub fn new() -> CrashDevice {
        CrashDevice::default()
    }

    /// The machine loses power: every object goes back to what it was at its last sync.
    pub fn crash(&self) {
        let mut contents = self.contents();
        contents.live = contents.durable.clone();
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for CrashDevice {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        self.contents().live.write(object, pieces)
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        Ok(self.contents().live.read(object, offset, buffer))
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        self.contents().live.punch(object, extent);
        Ok(())
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        Ok(self.contents().live.map(object, extent, extents_max))
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        self.contents().live.truncate(object, length)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        Ok(self.contents().live.length(object))
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        Ok(self.contents().live.modified_ns(object))
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        let mut contents = self.contents();
        match contents.live.0.get(&object).cloned() {
            Some(stored) => contents.durable.0.insert(object, stored),
            None => contents.durable.0.remove(&object),
        };
        Ok(())
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.contents().live.0.remove(&object);
        Ok(())
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        let mut contents = self.contents();
        contents.durable = contents.live.clone();
        Ok(())
    }

    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        Ok(self.contents().live.list(after, count_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_keeps_what_was_synced_and_nothing_else() {
        let device = CrashDevice::new();
        let (a, b, c) = (ObjectName([1; 20]), ObjectName([2; 20]), ObjectName([3; 20]));
        device.write(a, &[(0, b"old")]).unwrap();
        device.write(c, &[(0, b"gone?")]).unwrap();
        device.sync_all().unwrap();
        device.write(a, &[(0, b"new")]).unwrap();
        device.write(b, &[(0, b"never synced")]).unwrap();
        device.remove(c).unwrap();
        assert_eq!(device.length(c), Ok(None));
        device.crash();
        let mut bytes = [0; 3];
        assert_eq!(device.read(a, 0, &mut bytes), Ok(3));
        assert_eq!(&bytes, b"old");
        assert_eq!(device.length(b), Ok(None));
        assert_eq!(device.length(c), Ok(Some(5)));
        device.remove(c).unwrap();
        device.sync(c).unwrap();
        device.crash();
        assert_eq!(device.length(c), Ok(None));
    }
}
