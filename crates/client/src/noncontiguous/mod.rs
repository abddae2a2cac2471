//! Noncontiguous operations: reads and writes of a region of a file, each atomic as a whole.
//!
//! *What*: the region is cut into lock requests (`cut`), all locks are taken by a protocol (`locks`), and only then are bytes
//! copied, piece by piece (`walk`, `write`, `read`).
//! *Invariants*: no byte is copied before all locks are held, and none goes before the last byte was copied; so every other
//! operation sees all of this one or nothing (I5). A write under several locks takes BW, which lets nobody in before it is lowered.
//! *Not here*: who may have a lock, and what a region is.

mod ahead;
mod cut;
mod locks;
mod read;
mod walk;
mod write;

use crate::error::FsError;
use crate::file::File;
use ccpfs_config::{LockKind, LockProtocol};
use ccpfs_dlm::client::Intent;
use ccpfs_region::Region;
use ccpfs_types::limits::FILE_BYTES_MAX;

pub(crate) use locks::Locked;
pub(crate) use walk::Walk;

/// How a noncontiguous operation asks for its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockStyle {
    /// How the region is cut into requests.
    pub kind: LockKind,
    /// In which order they are made.
    pub protocol: LockProtocol,
}

/// What a noncontiguous operation needs locked, and how.
pub(crate) struct Wanted<'a> {
    pub(crate) intent: Intent,
    /// Bytes of the file.
    pub(crate) region: &'a Region,
    pub(crate) style: LockStyle,
}

impl File {
    /// Writes `buffer` into the bytes of `region`, in the order of their offsets, as one atomic write: every other read or write
    /// sees all of it or nothing.
    ///
    /// The locks are asked for as the configuration says (`client.lock_kind`, `client.lock_protocol`).
    ///
    /// # Errors
    /// EINVAL if the buffer is not as long as the region, EBADF if not open for writing, EFBIG beyond 2^63 - 1, EIO if a server is lost (a part
    /// may then be written), the error of an earlier flush once.
    pub fn write_region(&self, region: &Region, buffer: &[u8]) -> Result<usize, FsError> {
        self.write_region_with(region, buffer, self.lock_style())
    }

    /// As [`File::write_region`], asking for the locks in a style of its own.
    ///
    /// # Errors
    /// As [`File::write_region`].
    pub fn write_region_with(
        &self,
        region: &Region,
        buffer: &[u8],
        style: LockStyle,
    ) -> Result<usize, FsError> {
        fits(region, buffer.len())?;
        if let Some(extent) = region.as_extent() {
            return self.write_at(buffer, extent.start());
        }
        self.begin_change()?;
        let wanted = Wanted { intent: Intent::Write, region, style };
        let written = write::write(&self.client().inner, self.shared(), &wanted, buffer)?;
        self.end_change()?;
        Ok(written)
    }

    /// Reads the bytes of `region` into `buffer`, in the order of their offsets, as one atomic read; fewer only at the end of the file: then
    /// what was read is the beginning of the buffer, and the rest is left as it was.
    ///
    /// # Errors
    /// EINVAL if the buffer is not as long as the region, EBADF if not open for reading, EIO if a server is lost, ESTALE if the file was
    /// removed elsewhere.
    pub fn read_region(&self, region: &Region, buffer: &mut [u8]) -> Result<usize, FsError> {
        self.read_region_with(region, buffer, self.lock_style())
    }

    /// As [`File::read_region`], asking for the locks in a style of its own.
    ///
    /// # Errors
    /// As [`File::read_region`].
    pub fn read_region_with(
        &self,
        region: &Region,
        buffer: &mut [u8],
        style: LockStyle,
    ) -> Result<usize, FsError> {
        fits(region, buffer.len())?;
        if let Some(extent) = region.as_extent() {
            return self.read_at(buffer, extent.start());
        }
        if !self.access().read {
            return Err(FsError::argument("the file is not open for reading", libc::EBADF));
        }
        let wanted = Wanted { intent: Intent::Read, region, style };
        read::read(&self.client().inner, self.shared(), &wanted, buffer)
    }

    /// The style that the configuration says.
    fn lock_style(&self) -> LockStyle {
        let config = &self.client().inner.config;
        LockStyle { kind: config.lock_kind, protocol: config.lock_protocol }
    }
}

fn fits(region: &Region, length: usize) -> Result<(), FsError> {
    if region.bounds().end() > FILE_BYTES_MAX {
        return Err(FsError::argument("the region ends beyond the largest file", libc::EFBIG));
    }
    if region.length_bytes() != length as u64 {
        return Err(FsError::argument("the buffer is not as long as the region", libc::EINVAL));
    }
    Ok(())
}
