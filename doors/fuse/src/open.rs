//! Opening and closing.

use crate::abi::{
    FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FOPEN_PARALLEL_DIRECT_WRITES, FlushIn, InHeader, OPEN_KILL_SUIDGID,
    OpenIn, OpenOut, ReleaseIn,
};
use crate::exchange::Errno;
use crate::handles::{Content, Handle, Listing};
use crate::inodes::Inode;
use crate::mount::{Mount, failed};
use crate::names::is_ordinary;
use crate::sys;
use ccpfs_client::{Access, OpenOptions};
use ccpfs_types::Extent;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Whether flags of open ask for reading.
pub(crate) fn is_readable(flags: u32) -> bool {
    flags.cast_signed() & libc::O_ACCMODE != libc::O_WRONLY
}

/// Whether flags of open ask for writing.
pub(crate) fn is_writable(flags: u32) -> bool {
    flags.cast_signed() & libc::O_ACCMODE != libc::O_RDONLY
}

fn has(flags: u32, flag: i32) -> bool {
    flags.cast_signed() & flag != 0
}

/// What the client is to do for flags of open.
pub(crate) fn options(flags: u32) -> OpenOptions {
    let Access { read, write, append } = access(flags);
    OpenOptions { read, write, append, ..OpenOptions::default() }
}

fn access(flags: u32) -> Access {
    Access { read: is_readable(flags), write: is_writable(flags), append: has(flags, libc::O_APPEND) }
}

/// How the kernel treats an open file.
pub(crate) fn kernel_flags(content: &Content) -> u32 {
    match content {
        Content::Data { .. } => FOPEN_DIRECT_IO | FOPEN_KEEP_CACHE | FOPEN_PARALLEL_DIRECT_WRITES,
        Content::Plain(_) => FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES,
        Content::Directory(_) => 0,
    }
}

impl Mount {
    /// OPEN.
    pub(crate) fn open(&self, header: &InHeader, asked: &OpenIn) -> Result<OpenOut, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        if has(asked.flags, libc::O_TRUNC) && asked.open_flags & OPEN_KILL_SUIDGID != 0 {
            self.drop_privileges(&inode)?;
        }
        self.open_inode(&inode, asked.flags)
    }

    /// Opens a file that the kernel has a reference to.
    pub(crate) fn open_inode(&self, inode: &Arc<Inode>, flags: u32) -> Result<OpenOut, Errno> {
        inode.pages.cuts.wait();
        let writable = is_writable(flags);
        let content = match self.client.attach(inode.fd(), access(flags)) {
            // The name went, and with it the data, after the kernel had looked: it looks again when it hears so.
            Ok(_) if inode.pages.any_handle().is_none() && sys::stat(inode.fd())?.st_nlink == 0 => {
                return Err(libc::ESTALE);
            }
            Ok(file) => {
                let truncated = writable && has(flags, libc::O_TRUNC);
                if truncated {
                    let clear = |extent: Extent| self.clear(inode, extent);
                    file.truncate_after(0, clear).map_err(|e| failed(&e))?;
                }
                Content::Data { file, written: AtomicBool::new(truncated) }
            }
            Err(error) if is_ordinary(&error) => {
                let kept = libc::O_ACCMODE | libc::O_TRUNC | libc::O_NOATIME | libc::O_NONBLOCK;
                Content::Plain(sys::reopen(inode.fd(), flags.cast_signed() & kept)?)
            }
            Err(error) => return Err(failed(&error)),
        };
        Ok(self.opened(Handle::new(Arc::clone(inode), content, flags)))
    }

    /// OPENDIR.
    pub(crate) fn open_directory(&self, header: &InHeader) -> Result<OpenOut, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let fd = sys::reopen(inode.fd(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        let listing = Mutex::new(Listing { fd, position: 0 });
        Ok(self.opened(Handle::new(inode, Content::Directory(listing), 0)))
    }

    /// FLUSH: one of the descriptors is closed.
    pub(crate) fn flush(&self, asked: &FlushIn) -> Result<(), Errno> {
        let handle = self.handles.get(asked.fh)?;
        handle.inode.pages.cuts.wait();
        self.locks.end_owner(&handle.inode, asked.lock_owner);
        match &handle.content {
            Content::Data { file, written } if handle.writable && self.flush_on_close() => {
                // Also without a write of its own: what a mapping wrote came through any handle.
                written.store(false, Ordering::Relaxed);
                file.flush().map_err(|e| failed(&e))
            }
            Content::Data { .. } | Content::Plain(_) | Content::Directory(_) => Ok(()),
        }
    }

    /// RELEASE and RELEASEDIR: the last descriptor is closed.
    pub(crate) fn release(&self, asked: &ReleaseIn) -> Result<(), Errno> {
        let handle = self.handles.remove(asked.fh)?;
        self.locks.end_handle(&handle.inode, asked.fh);
        self.after_release(handle);
        Ok(())
    }
}
