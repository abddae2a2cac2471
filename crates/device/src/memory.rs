//! Objects in memory, for tests and simulations.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use ccpfs_types::Extent;

use crate::device::{Device, DeviceError, Listed, Map, Operation};
use crate::object::ObjectName;

/// Longest object kept in memory, in bytes; longer ones fail with `EFBIG`.
const OBJECT_BYTES_MAX: u64 = 1 << 32;

/// Zeros that fill so many bytes, at a multiple of it, are called a hole.
const BLOCK_BYTES: u64 = 4096;

/// All objects of a device in memory. Holes are zeros that take memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(pub(crate) BTreeMap<ObjectName, Stored>);

/// One object in memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stored {
    bytes: Vec<u8>,
    modified_ns: u64,
}

impl Objects {
    pub(crate) fn write(&mut self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        for (offset, bytes) in pieces.iter().filter(|(_, bytes)| !bytes.is_empty()) {
            let end = checked_end(Operation::Write, object, *offset, bytes.len() as u64)?;
            let stored = self.touched(object);
            if stored.bytes.len() < end {
                stored.bytes.resize(end, 0);
            }
            stored.bytes[end - bytes.len()..end].copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(crate) fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(stored) = self.0.get(&object) else { return 0 };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(stored.bytes.len());
        let found = &stored.bytes[start..];
        let count = found.len().min(buffer.len());
        buffer[..count].copy_from_slice(&found[..count]);
        count
    }

    pub(crate) fn punch(&mut self, object: ObjectName, extent: Extent) {
        let Some(stored) = self.0.get_mut(&object) else { return };
        let length = stored.bytes.len() as u64;
        let (start, end) = (extent.start().min(length), extent.end().min(length));
        stored.bytes[start as usize..end as usize].fill(0);
        stored.modified_ns = now_ns();
    }

    /// Blocks that are nothing but zeros are holes.
    pub(crate) fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Map {
        let bytes = self.0.get(&object).map_or(&[][..], |stored| &stored.bytes);
        let mut map = Map { data: Vec::new(), known_to: extent.end() };
        let end = extent.end().min(bytes.len() as u64);
        let mut at = extent.start();
        while at < end {
            let next = (at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES).min(end);
            let block = Extent::new(at, next).expect("a block ends behind its start");
            if bytes[at as usize..next as usize].iter().any(|byte| *byte != 0) {
                let full = map.data.len() == extents_max;
                match map.data.last_mut() {
                    Some(last) if last.end() == at => *last = last.hull(block),
                    Some(_) | None if full => {
                        map.known_to = at;
                        break;
                    }
                    Some(_) | None => map.data.push(block),
                }
            }
            at = next;
        }
        map
    }

    pub(crate) fn truncate(&mut self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        let end = checked_end(Operation::Truncate, object, length, 0)?;
        if end > 0 || self.0.contains_key(&object) {
            self.touched(object).bytes.resize(end, 0);
        }
        Ok(())
    }

    pub(crate) fn length(&self, object: ObjectName) -> Option<u64> {
        self.0.get(&object).map(|stored| stored.bytes.len() as u64)
    }

    pub(crate) fn modified_ns(&self, object: ObjectName) -> Option<u64> {
        self.0.get(&object).map(|stored| stored.modified_ns)
    }

    pub(crate) fn list(&self, after: Option<ObjectName>, count_max: usize) -> Vec<Listed> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let listed = |(object, stored): (&ObjectName, &Stored)| Listed {
            object: *object,
            length_bytes: stored.bytes.len() as u64,
            stored_bytes: stored.bytes.len() as u64,
            modified_ns: stored.modified_ns,
        };
        self.0.range((from, Bound::Unbounded)).take(count_max).map(listed).collect()
    }

    fn touched(&mut self, object: ObjectName) -> &mut Stored {
        let stored = self.0.entry(object).or_default();
        stored.modified_ns = now_ns();
        stored
    }
}

fn checked_end(
    operation: Operation,
    object: ObjectName,
    offset: u64,
    bytes: u64,
) -> Result<usize, DeviceError> {
    let end = offset.checked_add(bytes).filter(|end| *end <= OBJECT_BYTES_MAX);
    let end = end.and_then(|end| usize::try_from(end).ok());
    end.ok_or(DeviceError { operation, object: Some(object), errno: libc::EFBIG })
}

fn now_ns() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_1970.as_nanos()).unwrap_or(u64::MAX)
}

/// A device in memory. Everything is lost with the value, so syncing does nothing.
#[derive(Debug, Default)]
pub struct MemoryDevice {
    objects: Mutex<Objects>,
}

impl MemoryDevice {
    /// An empty device.
    pub fn new() -> MemoryDevice {
        MemoryDevice::default()
    }

    fn objects(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for MemoryDevice {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        self.objects().write(object, pieces)
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        Ok(self.objects().read(object, offset, buffer))
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        self.objects().punch(object, extent);
        Ok(())
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        Ok(self.objects().map(object, extent, extents_max))
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        self.objects().truncate(object, length)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        Ok(self.objects().length(object))
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        Ok(self.objects().modified_ns(object))
    }

    fn sync(&self, _object: ObjectName) -> Result<(), DeviceError> {
        Ok(())
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.objects().0.remove(&object);
        Ok(())
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        Ok(self.objects().list(after, count_max))
    }
}
