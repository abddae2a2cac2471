//! The trait that all storage implements, and its error.

use std::fmt;
use std::io;
use std::sync::Arc;

use ccpfs_types::Extent;
use thiserror::Error;

use crate::object::ObjectName;

/// Storage of objects. Calls block, and may be made from many threads at once, also on one object.
///
/// A missing object reads as empty; the first write creates it. What a write has done survives a crash
/// of the machine only after `sync` or `sync_all` has returned without error.
pub trait Device: Send + Sync {
    /// Writes every piece (offset in bytes, contents) completely. After an error any part may be written.
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError>;

    /// Reads from byte `offset`; holes read as zeros. Less than the whole buffer comes only at the object's end, and
    /// zero past it.
    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError>;

    /// Makes the extent read as zeros and gives its space back where possible. Never changes the length.
    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError>;

    /// Where data are within the extent, in at most `extents_max` (not 0) extents. What an older call of `punch` or `truncate`
    /// has made, or nobody has written, may be called data; data are never called a hole. A device that does not know better calls
    /// everything up to the end of the object data.
    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        let _ = extents_max;
        let length = self.length(object)?.unwrap_or(0);
        let data = Extent::new(extent.start(), extent.end().min(length)).into_iter().collect();
        Ok(Map { data, known_to: extent.end() })
    }

    /// Sets the length in bytes: cuts off, or adds a hole.
    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError>;

    /// The length in bytes, or `None` for a missing object.
    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError>;

    /// When the contents last changed, in nanoseconds since 1970, or `None` for a missing object.
    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError>;

    /// Makes everything that was done to this object before the call (its creation or removal included) durable.
    ///
    /// After an error the system may have dropped what it could not write: a later success
    /// does not mean that older writes are durable.
    fn sync(&self, object: ObjectName) -> Result<(), DeviceError>;

    /// Removes the object; a missing one is no error.
    fn remove(&self, object: ObjectName) -> Result<(), DeviceError>;

    /// Makes everything that was done before the call durable.
    fn sync_all(&self) -> Result<(), DeviceError>;

    /// The next objects behind `after` in the order of their names (the first ones if there is none), at most `count_max` (not 0):
    /// fewer only if there are no more. An object that is made or removed meanwhile may be among them or not.
    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        let _ = (after, count_max);
        Err(DeviceError { operation: Operation::List, object: None, errno: libc::EOPNOTSUPP })
    }
}

/// An object of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub object: ObjectName,
    /// Its length in bytes.
    pub length_bytes: u64,
    /// Space that it takes, in bytes.
    pub stored_bytes: u64,
    /// When its contents last changed, in nanoseconds since 1970.
    pub modified_ns: u64,
}

/// Where data are within an extent of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// What may be other than zeros, in ascending order and disjoint.
    pub data: Vec<Extent>,
    /// From the start of the extent to here, what is not named is a hole; the end of the extent if nothing was left out.
    pub known_to: u64,
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn write(&self, object: ObjectName, pieces: &[(u64, &[u8])]) -> Result<(), DeviceError> {
        (**self).write(object, pieces)
    }

    fn read(&self, object: ObjectName, offset: u64, buffer: &mut [u8]) -> Result<usize, DeviceError> {
        (**self).read(object, offset, buffer)
    }

    fn punch(&self, object: ObjectName, extent: Extent) -> Result<(), DeviceError> {
        (**self).punch(object, extent)
    }

    fn map(&self, object: ObjectName, extent: Extent, extents_max: usize) -> Result<Map, DeviceError> {
        (**self).map(object, extent, extents_max)
    }

    fn truncate(&self, object: ObjectName, length: u64) -> Result<(), DeviceError> {
        (**self).truncate(object, length)
    }

    fn length(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        (**self).length(object)
    }

    fn modified_ns(&self, object: ObjectName) -> Result<Option<u64>, DeviceError> {
        (**self).modified_ns(object)
    }

    fn sync(&self, object: ObjectName) -> Result<(), DeviceError> {
        (**self).sync(object)
    }

    fn remove(&self, object: ObjectName) -> Result<(), DeviceError> {
        (**self).remove(object)
    }

    fn sync_all(&self) -> Result<(), DeviceError> {
        (**self).sync_all()
    }

    fn list(&self, after: Option<ObjectName>, count_max: usize) -> Result<Vec<Listed>, DeviceError> {
        (**self).list(after, count_max)
    }
}

/// What a device was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Opening or creating an object.
    Open,
    /// Writing.
    Write,
    /// Reading.
    Read,
    /// Making a hole.
    Punch,
    /// Looking for data.
    Map,
    /// Changing the length.
    Truncate,
    /// Asking for length or times.
    Status,
    /// Making durable.
    Sync,
    /// Removing.
    Remove,
    /// Telling which objects there are.
    List,
}

impl fmt::Display for Operation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Operation::Open => "open",
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Punch => "punch",
            Operation::Map => "map",
            Operation::Truncate => "truncate",
            Operation::Status => "status",
            Operation::Sync => "sync",
            Operation::Remove => "remove",
            Operation::List => "list",
        })
    }
}

/// A failed call, with the system's error number (`ENOSPC`, `EDQUOT`, `EIO`, ...).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{operation} of {} failed: {}", ShownObject(*object), io::Error::from_raw_os_error(*errno))]
pub struct DeviceError {
    /// What failed.
    pub operation: Operation,
    /// On which object; `None` for the whole device.
    pub object: Option<ObjectName>,
    /// The system's error number, for the writer.
    pub errno: i32,
}

impl DeviceError {
    /// An error of `object` from what the system said.
    pub(crate) fn new(operation: Operation, object: ObjectName, error: &io::Error) -> DeviceError {
        DeviceError { operation, object: Some(object), errno: error.raw_os_error().unwrap_or(libc::EIO) }
    }
}

/// Writes the object's name for people.
struct ShownObject(Option<ObjectName>);

impl fmt::Display for ShownObject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(object) => write!(out, "object {object}"),
            None => out.write_str("the device"),
        }
    }
}
