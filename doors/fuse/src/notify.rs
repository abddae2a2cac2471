//! Messages to the kernel that nobody asked for: drop pages, take a size.

use crate::abi::{
    InvalEntryOut, InvalInodeOut, NOTIFY_INVAL_ENTRY, NOTIFY_INVAL_INODE, NOTIFY_STORE, OutHeader, StoreOut,
};
use crate::exchange::Errno;
use crate::sys;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use zerocopy::IntoBytes;

/// The way of messages to the kernel. Sending waits until the kernel has done what it was told, which may take requests to
/// us: a thread that serves a request sends only if the kernel needs nothing of that request for it (decision 0026).
pub(crate) struct Notifier {
    device: OwnedFd,
}

impl Notifier {
    /// Messages over this open device.
    pub(crate) fn new(device: OwnedFd) -> Notifier {
        Notifier { device }
    }

    fn send(&self, code: i32, message: &[u8], data: &[u8]) -> Result<(), Errno> {
        let bytes = size_of::<OutHeader>() + message.len() + data.len();
        let header =
            OutHeader { len: u32::try_from(bytes).map_err(|_| libc::E2BIG)?, error: code, unique: 0 };
        let mut all = Vec::with_capacity(bytes);
        all.extend_from_slice(header.as_bytes());
        all.extend_from_slice(message);
        all.extend_from_slice(data);
        // SAFETY: an open device and a buffer of the length that is given.
        let sent = unsafe { libc::write(self.device.as_raw_fd(), all.as_ptr().cast(), all.len()) };
        if sent < 0 { Err(sys::errno()) } else { Ok(()) }
    }

    /// Writes back and drops the kernel's pages of a file from `offset` on; a length of 0 means to the end. Attributes are
    /// asked for again as well.
    ///
    /// # Errors
    /// `ENOENT` when the kernel does not know the file any more.
    pub(crate) fn drop_pages(&self, nodeid: u64, offset: u64, length: u64) -> Result<(), Errno> {
        let word = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let message = InvalInodeOut { ino: nodeid, off: word(offset), len: word(length) };
        self.send(NOTIFY_INVAL_INODE, message.as_bytes(), &[])
    }

    /// Makes the kernel forget a name, and with it the file, if nothing else uses it there.
    ///
    /// # Errors
    /// `ENOENT` when the kernel does not know the name any more.
    pub(crate) fn forget_name(&self, parent: u64, name: &CStr) -> Result<(), Errno> {
        let namelen = u32::try_from(name.to_bytes().len()).map_err(|_| libc::ENAMETOOLONG)?;
        let message = InvalEntryOut { parent, namelen, flags: 0 };
        self.send(NOTIFY_INVAL_ENTRY, message.as_bytes(), name.to_bytes_with_nul())
    }

    /// Raises the size that the kernel knows to `size`, by giving it a byte just before; the byte is not used as long as its page
    /// is not the file's first.
    ///
    /// # Errors
    /// `ENOENT` when the kernel does not know the file any more.
    pub(crate) fn raise_size(&self, nodeid: u64, size: u64) -> Result<(), Errno> {
        let message = StoreOut { nodeid, offset: size - 1, size: 1, padding: 0 };
        self.send(NOTIFY_STORE, message.as_bytes(), &[0])
    }
}
