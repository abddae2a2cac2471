//! A device that fails on command, for tests of what callers do about it.

use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccpfs_types::Extent;
use thiserror::Error;

use crate::device::{Device, DeviceError, Listed, Map, Operation};
use crate::object::ObjectName;

/// A failure that can be ordered.
///
/// As text: `write-no-space-after-bytes=N`, `next-write-fails`, `next-read-fails`, `next-sync-fails`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailPoint {
    /// So many more bytes can be written; writes that go beyond fail with `ENOSPC`, until cleared.
    NoSpaceAfter {
        /// Bytes that still fit.
        bytes: u64,
    },
    /// The next write fails with `EIO`, once.
    NextWriteFails,
    /// The next read fails with `EIO`, once.
    NextReadFails,
    /// The next `sync` or `sync_all` fails with `EIO`, once.
    NextSyncFails,
}

/// Why a text is not a fail point.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{text:?} is not a fail point: write-no-space-after-bytes=N, next-write-fails, next-read-fails or \
     next-sync-fails"
)]
pub struct FailPointError {
    /// The rejected text.
    pub text: String,
}

impl FromStr for FailPoint {
    type Err = FailPointError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || FailPointError { text: text.to_owned() };
        match text {
            "next-write-fails" => Ok(FailPoint::NextWriteFails),
            "next-read-fails" => Ok(FailPoint::NextReadFails),
            "next-sync-fails" => Ok(FailPoint::NextSyncFails),
            other => {
                let bytes = other.strip_prefix("write-no-space-after-bytes=").ok_or_else(error)?;
                Ok(FailPoint::NoSpaceAfter { bytes: bytes.parse().map_err(|_| error())? })
            }
        }
    }
}

/// The failures of one device; shared with the test that orders them.
#[derive(Debug, Default)]
pub struct Faults {
    armed: Mutex<Armed>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Armed {
    space_bytes: Option<u64>,
    write: bool,
    read: bool,
    sync: bool,
}

impl Faults {
    /// Orders a failure, in addition to those ordered before.
    pub fn set(&self, point: FailPoint) {
        let mut armed = self.armed();
        match point {
            FailPoint::NoSpaceAfter { bytes } => armed.space_bytes = Some(bytes),
            FailPoint::NextWriteFails => armed.write = true,
            FailPoint::NextReadFails => armed.read = true,
            FailPoint::NextSyncFails => armed.sync = true,
        }
    }

    /// Takes all orders back.
    pub fn clear(&self) {
        *self.armed() = Armed::default();
    }

    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_write(&self, bytes: u64) -> Result<(), i32> {
        let mut armed = self.armed();
        if std::mem::take(&mut armed.write) {
            return Err(libc::EIO);
        }
        if let Some(space) = armed.space_bytes {
            armed.space_bytes = Some(space.checked_sub(bytes).ok_or(libc::ENOSPC)?);
        }
        Ok(())
    }

    fn check_sync(&self) -> Result<(), i32> {
        if std::mem::take(&mut self.armed().sync) { Err(libc::EIO) } else { Ok(()) }
    }
}

/// Wraps a device and fails as its [`Faults`] say.
#[derive(Debug)]
pub struct FaultyDevice<D> {
    inner: D,
    faults: Arc<Faults>,
}

impl<D> FaultyDevice<D> {
    /// `inner`, without failures for now.
    pub fn new(inner: D) -> FaultyDevice<D> {
        FaultyDevice { inner, faults: Arc::default() }
    }

    /// The handle to order failures with, also while the device is in use.
    pub fn faults(&self) -> Arc<Faults> {
        self.faults.clone()
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }
}

impl<D: Device> Device for FaultyDevice<D> {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        let bytes = pieces.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        let failed = |errno| DeviceError { operation: Operation::Write, object: Some(object), errno };
        self.faults.check_write(bytes).map_err(failed)?;
        self.inner.write(object, pieces)
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        if std::mem::take(&mut self.faults.armed().read) {
            return Err(DeviceError { operation: Operation::Read, object: Some(object), errno: libc::EIO });
        }
        self.inner.read(object, offset, buffer)
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        self.inner.punch(object, extent)
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        self.inner.map(object, extent, extents_max)
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        self.inner.truncate(object, length)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.inner.length(object)
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        self.inner.modified_ns(object)
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        let failed = |errno| DeviceError { operation: Operation::Sync, object: Some(object), errno };
        self.faults.check_sync().map_err(failed)?;
        self.inner.sync(object)
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        self.inner.remove(object)
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        let failed = |errno| DeviceError { operation: Operation::Sync, object: None, errno };
        self.faults.check_sync().map_err(failed)?;
        self.inner.sync_all()
    }

    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        self.inner.list(after, count_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryDevice;

    const OBJECT: ObjectName = ObjectName([4; 20]);

    #[test]
    fn a_full_device_stays_full_until_cleared() {
        let device = FaultyDevice::new(MemoryDevice::new());
        let faults = device.faults();
        faults.set("write-no-space-after-bytes=5".parse().unwrap());
        device.write(OBJECT, &[(0, b"abc")]).unwrap();
        for _ in 0..2 {
            let error = device.write(OBJECT, &[(3, b"def")]).unwrap_err();
            assert_eq!((error.operation, error.errno), (Operation::Write, libc::ENOSPC));
        }
        device.write(OBJECT, &[(3, b"de")]).unwrap();
        faults.clear();
        device.write(OBJECT, &[(5, b"more than before")]).unwrap();
    }

    #[test]
    fn ordered_failures_happen_once() {
        let device = FaultyDevice::new(MemoryDevice::new());
        for name in ["next-write-fails", "next-read-fails", "next-sync-fails"] {
            device.faults().set(name.parse().unwrap());
        }
        assert_eq!(device.write(OBJECT, &[(0, b"x")]).unwrap_err().errno, libc::EIO);
        assert_eq!(device.read(OBJECT, 0, &mut [0]).unwrap_err().errno, libc::EIO);
        assert_eq!(device.sync_all().unwrap_err().errno, libc::EIO);
        device.write(OBJECT, &[(0, b"x")]).unwrap();
        assert_eq!(device.read(OBJECT, 0, &mut [0]), Ok(1));
        device.sync(OBJECT).unwrap();
    }

    #[test]
    fn unknown_fail_points_are_named() {
        for text in ["", "next-write", "write-no-space-after-bytes=", "write-no-space-after-bytes=x"] {
            assert!(text.parse::<FailPoint>().unwrap_err().to_string().contains(&format!("{text:?}")));
        }
    }
}
