//! Reading, writing and sizes.

use crate::abi::{
    FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, READ_LOCKOWNER, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID,
    WriteIn,
};
use crate::ahead::Place;
use crate::cut::{Cut, cut};
use crate::exchange::Errno;
use crate::handles::{Content, Handle};
use crate::inodes::Inode;
use crate::mount::{Mount, failed};
use crate::pages;
use crate::sys;
use ccpfs_client::{File, FsError};
use ccpfs_types::Extent;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn position(offset: u64) -> Result<i64, Errno> {
    i64::try_from(offset).map_err(|_| libc::EINVAL)
}

impl Mount {
    /// READ: into `to`; fewer bytes only at the end of the file.
    pub(crate) fn read(&self, asked: &ReadIn, to: &mut [u8]) -> Result<usize, Errno> {
        let handle = self.handles.get(asked.fh)?;
        match &handle.content {
            Content::Data { file, .. } if asked.read_flags & READ_LOCKOWNER != 0 => {
                handle.inode.pages.cuts.wait();
                let read = file.read_at(to, handle.inode.pages.ahead.real(asked.offset));
                self.note_access(&handle);
                read.map_err(|e| failed(&e))
            }
            Content::Data { .. } => {
                self.note_access(&handle);
                self.read_page(&handle, to, asked.offset)
            }
            Content::Plain(fd) => read_plain(fd.as_fd(), to, position(asked.offset)?),
            Content::Directory(_) => Err(libc::EISDIR),
        }
    }

    /// The first read of a handle may move the file's time of access: the namespace's file system decides.
    fn note_access(&self, handle: &Handle) {
        let noted = &handle.access_noted;
        if self.notes_access && !noted.load(Ordering::Relaxed) && !noted.swap(true, Ordering::Relaxed) {
            self.client.note_access(handle.inode.fd());
        }
    }

    /// WRITE, of this thread.
    pub(crate) fn write(&self, thread: u32, asked: &WriteIn, from: &[u8]) -> Result<usize, Errno> {
        let handle = self.handles.get(asked.fh)?;
        if asked.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_privileges(&handle.inode)?;
        }
        match &handle.content {
            Content::Data { file, written } => {
                if !written.load(Ordering::Relaxed) {
                    written.store(true, Ordering::Relaxed);
                }
                if asked.write_flags & WRITE_CACHE != 0 {
                    return self.write_page(&handle, from, asked.offset);
                }
                self.write_data(&handle.inode, file, (thread, asked), from)
            }
            Content::Plain(fd) => sys::write_at(fd.as_fd(), from, position(asked.offset)?),
            Content::Directory(_) => Err(libc::EISDIR),
        }
    }

    fn write_data(
        &self,
        inode: &Inode,
        file: &File,
        (thread, asked): (u32, &WriteIn),
        from: &[u8],
    ) -> Result<usize, Errno> {
        let flags = asked.flags.cast_signed();
        let (ahead, bytes) = (&inode.pages.ahead, from.len() as u64);
        inode.pages.cuts.wait();
        let appends = flags & libc::O_APPEND != 0;
        let clear = |extent: Extent| self.clear(inode, extent);
        let written = match if appends { Place::End } else { ahead.place(asked.offset) } {
            // The kernel's idea of the end may be old.
            Place::End => file.append_after(&[IoSlice::new(from)], clear).map(|end| {
                ahead.appended(asked.offset, bytes, end);
                from.len()
            }),
            Place::At(offset) => {
                self.note_write(inode, thread, offset.saturating_add(bytes));
                file.write_at_after(from, offset, clear)
            }
        };
        ahead.answers();
        let written = written.map_err(|e| failed(&e))?;
        if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 {
            file.sync().map_err(|e| failed(&e))?;
        }
        Ok(written)
    }

    /// Takes away what a writer without privileges may not leave on a file: set-user-id, set-group-id, capabilities.
    pub(crate) fn drop_privileges(&self, inode: &Inode) -> Result<(), Errno> {
        let mode = inode.stat()?.st_mode;
        let group_too = mode & libc::S_IXGRP != 0;
        let dropped = libc::S_ISUID | if group_too { libc::S_ISGID } else { 0 };
        if mode & dropped != 0 {
            self.settle_times(inode)?;
            sys::change_mode(inode.fd(), mode & !dropped & 0o7777)?;
            self.client.note_change(inode.fd());
        }
        if mode & 0o111 == 0 {
            return Ok(());
        }
        match sys::remove_xattr(inode.fd(), c"security.capability") {
            // A file system without them, or a user who could not have set any.
            Ok(()) | Err(libc::ENODATA | libc::EOPNOTSUPP | libc::EPERM | libc::EACCES) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// FSYNC and FSYNCDIR.
    pub(crate) fn sync(&self, asked: &FsyncIn) -> Result<(), Errno> {
        let handle = self.handles.get(asked.fh)?;
        handle.inode.pages.cuts.wait();
        let data_only = asked.fsync_flags & FSYNC_FDATASYNC != 0;
        match &handle.content {
            Content::Data { file, .. } => file.sync().map_err(|e| failed(&e)),
            Content::Plain(fd) => sys::sync(fd.as_fd(), data_only),
            Content::Directory(listing) => {
                let listing = listing.lock().expect("no code panics under this lock");
                sys::sync(listing.fd.as_fd(), data_only)
            }
        }
    }

    /// SYNCFS: everything that was written through this mount.
    pub(crate) fn sync_all(&self, nodeid: u64) -> Result<(), Errno> {
        let mut result = self.client.flush_all().map_err(|e| failed(&e));
        for handle in self.handles.all() {
            if let (true, Content::Data { file, .. }) = (handle.writable, &handle.content) {
                result = result.and(file.sync().map_err(|e| failed(&e)));
            }
        }
        let root = sys::reopen(self.inodes.get(nodeid)?.fd(), libc::O_RDONLY)?;
        result.and(sys::sync_file_system(root.as_fd()))
    }

    /// FALLOCATE.
    pub(crate) fn allocate(&self, asked: &FallocateIn) -> Result<(), Errno> {
        let handle = self.handles.get(asked.fh)?;
        handle.inode.pages.cuts.wait();
        let mode = asked.mode.cast_signed();
        let asked = &FallocateIn { offset: handle.inode.pages.ahead.real(asked.offset), ..*asked };
        handle.inode.pages.ahead.grows(asked.offset.saturating_add(asked.length));
        match &handle.content {
            Content::Data { file, written } => {
                written.store(true, Ordering::Relaxed);
                let clear = |extent: Extent| self.clear(&handle.inode, extent);
                allocate_data(file, asked, mode, clear).map_err(|e| failed(&e))
            }
            Content::Plain(fd) => {
                sys::allocate(fd.as_fd(), mode, position(asked.offset)?, position(asked.length)?)
            }
            Content::Directory(_) => Err(libc::EBADF),
        }
    }

    /// LSEEK: the next data or the next hole.
    pub(crate) fn seek(&self, asked: &LseekIn) -> Result<u64, Errno> {
        let handle = self.handles.get(asked.fh)?;
        handle.inode.pages.cuts.wait();
        let whence = asked.whence.cast_signed();
        match &handle.content {
            Content::Data { file, .. } => {
                let offset = handle.inode.pages.ahead.real(asked.offset);
                seek_data(file, &handle.inode.pages.written_windows(), offset, whence)
            }
            Content::Plain(fd) => {
                sys::seek(fd.as_fd(), position(asked.offset)?, whence).map(i64::cast_unsigned)
            }
            Content::Directory(_) => Err(libc::EINVAL),
        }
    }

    /// Sets the size, through a handle or without one.
    pub(crate) fn truncate(
        &self,
        inode: &Arc<Inode>,
        handle: Option<Arc<Handle>>,
        size: u64,
    ) -> Result<Cut, Errno> {
        let (notifier, cleared) = (Arc::clone(&self.notifier), Arc::clone(inode));
        let clear = move || {
            if let Some(end) = end_within_a_page(size) {
                drop(pages::clear(&notifier, &cleared, end));
            }
        };
        if let Some(handle) = handle {
            let work = move || match &handle.content {
                Content::Data { file, written } => {
                    written.store(true, Ordering::Relaxed);
                    file.truncate(size).map_err(|e| failed(&e))
                }
                Content::Plain(fd) => sys::truncate(fd.as_fd(), position(size)?),
                Content::Directory(_) => Err(libc::EISDIR),
            };
            return cut(inode, work, clear);
        }
        let access = ccpfs_client::Access { read: false, write: true, append: false };
        match self.client.attach(inode.fd(), access) {
            Ok(file) => {
                let work = move || {
                    file.truncate(size).map_err(|e| failed(&e))?;
                    file.close().map_err(|e| failed(&e))
                };
                cut(inode, work, clear)
            }
            Err(error) if crate::names::is_ordinary(&error) => {
                let fd = sys::reopen(inode.fd(), libc::O_WRONLY)?;
                sys::truncate(fd.as_fd(), position(size)?).map(|()| Cut::Done)
            }
            Err(error) => Err(failed(&error)),
        }
    }
}

/// The first byte behind a file's end, if it lies in a page with bytes of the file.
fn end_within_a_page(size: u64) -> Option<Extent> {
    // SAFETY: no pointers.
    let page_bytes = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1).max(1);
    Extent::with_length(size, 1).filter(|_| !size.is_multiple_of(page_bytes))
}

/// A descriptor's bytes, as many as there are: a short answer tells the kernel that the file ends.
fn read_plain(fd: std::os::fd::BorrowedFd<'_>, to: &mut [u8], offset: i64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < to.len() {
        let at = offset.checked_add(filled as i64).ok_or(libc::EINVAL)?;
        match sys::read_at(fd, &mut to[filled..], at)? {
            0 => break,
            read => filled += read,
        }
    }
    Ok(filled)
}

/// Grows a file, or makes a hole in it, or zeros, which are the same here: no space is set aside.
fn allocate_data<G>(
    file: &File,
    asked: &FallocateIn,
    mode: i32,
    clear: impl FnOnce(Extent) -> G,
) -> Result<(), FsError> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    let (offset, length) = (asked.offset, asked.length);
    let hole = || match Extent::with_length(offset, length) {
        Some(extent) => file.punch_after(extent, clear),
        None => Ok(()),
    };
    match mode {
        0 => file.allocate(offset, length, false),
        libc::FALLOC_FL_KEEP_SIZE => file.allocate(offset, length, true),
        PUNCH | ZERO_KEEP => hole(),
        libc::FALLOC_FL_ZERO_RANGE => hole().and_then(|()| file.allocate(offset, length, false)),
        _ => Err(FsError::Argument { what: "this way to allocate", errno: libc::EOPNOTSUPP }),
    }
}

/// The next data or hole. What is in mapped pages only counts as data: the client does not know it.
fn seek_data(file: &File, mapped: &[Extent], offset: u64, whence: i32) -> Result<u64, Errno> {
    let size = if mapped.is_empty() { 0 } else { file.size().map_err(|e| failed(&e))? };
    let mapped: Vec<Extent> =
        mapped.iter().filter_map(|window| Extent::new(window.start(), window.end().min(size))).collect();
    match whence {
        libc::SEEK_DATA => {
            let known = file.next_data(offset).map_err(|e| failed(&e))?;
            let stored = mapped.iter().find(|window| window.end() > offset);
            known.into_iter().chain(stored.map(|window| window.start().max(offset))).min().ok_or(libc::ENXIO)
        }
        libc::SEEK_HOLE => {
            let mut at = offset;
            loop {
                let hole = file.next_hole(at).map_err(|e| failed(&e))?;
                // Behind the last page: the file ends there, with the hole that every file ends with.
                let Some(hole) = hole.or(Some(size).filter(|_| at > offset)) else { return Err(libc::ENXIO) };
                match mapped.iter().find(|window| window.start() <= hole && hole < window.end()) {
                    Some(window) => at = window.end(),
                    None => return Ok(hole),
                }
            }
        }
        _ => Err(libc::EINVAL),
    }
}
