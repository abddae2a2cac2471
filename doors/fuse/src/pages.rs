//! The kernel's pages of a file: which locks keep them true, and when they must go.

use crate::exchange::Errno;
use crate::handles::Handle;
use crate::inodes::Inode;
use crate::mount::{Mount, failed};
use ccpfs_client::File;

/// What is known of the kernel's pages of one file.
#[derive(Default)]
pub(crate) struct Pages {}

impl Pages {
    /// The kernel was told this size.
    pub(crate) fn told_size(&self, _size: i64) {}

    /// Somebody appends.
    pub(crate) fn note_append(&self) {}

    /// Another handle.
    pub(crate) fn note_open(&self, _writable: bool) {}
}

impl Mount {
    /// Before a handle may write.
    pub(crate) fn before_writable(&self, _inode: &Inode) -> Result<(), Errno> {
        Ok(())
    }

    /// A handle has gone.
    pub(crate) fn after_release(&self, _handle: &Handle) {}

    /// The file has been written up to here.
    pub(crate) fn note_extended(&self, _inode: &Inode, _end: u64) {}

    /// A READ that fills pages.
    pub(crate) fn read_page(
        &self,
        _handle: &Handle,
        file: &File,
        to: &mut [u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        file.read_at(to, offset).map_err(|e| failed(&e))
    }

    /// A WRITE of pages.
    pub(crate) fn write_page(
        &self,
        _handle: &Handle,
        file: &File,
        from: &[u8],
        offset: u64,
    ) -> Result<usize, Errno> {
        file.write_at(from, offset).map_err(|e| failed(&e))
    }
}
