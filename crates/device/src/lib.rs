//! ccPFS port: storage of stripe objects in files, in memory, and in variants for tests.
//!
//! A server keeps each stripe of a file as one object of a [`Device`]. Calls block; the server makes them
//! on threads of its own. This crate knows bytes and object names, nothing of locks or sequence numbers.

mod crash;
mod descriptors;
mod device;
mod fail;
mod file;
mod lanes;
mod layout;
mod limited;
mod memory;
mod object;
mod sys;

pub use crash::CrashDevice;
pub use device::{Device, DeviceError, Listed, Map, Operation};
pub use fail::{FailPoint, FailPointError, Faults, FaultyDevice};
pub use file::{FileDevice, FileDeviceOptions};
pub use layout::{DEVICE_FORMAT_VERSION, DeviceOpenError, EPOCH_FILE, IDENTITY_FILE, LOCK_FILE};
pub use limited::{BandwidthError, LimitedDevice, parse_bandwidth};
pub use memory::MemoryDevice;
pub use object::ObjectName;
