//! Open file descriptions: what descriptors made by `dup`, and their offset, have in common.

use crate::inside::{self, Inside};
use crate::real::{self, checked};
use crate::reply::{Errno, guarded};
use crate::session::{self, Held};
use crate::table::{self, OpenRef};
use ccpfs_client::{Access, File, FsError};
use libc::c_int;
use std::ffi::{CStr, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Status flags that the descriptor of the stub does not have although the program asked for them.
pub(crate) const KEPT_FLAGS: c_int = libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT;

/// A file attached in one life of the process.
struct Attached {
    life: u32,
    file: File,
}

/// An open file description: what descriptors made by `dup`, and their offset, have in common.
pub(crate) struct OpenFile {
    /// References: one for each descriptor, one for each call in progress. Zero: not in use.
    references: AtomicU32,
    descriptors: AtomicU32,
    attached: AtomicPtr<Attached>,
    /// Access mode, `O_APPEND` and [`KEPT_FLAGS`].
    flags: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// A writable descriptor of the stub, for record locks; -1 until the first.
    lock_fd: AtomicI32,
    /// The next one that is not in use.
    next_free: AtomicPtr<OpenFile>,
}

static FREE: AtomicPtr<OpenFile> = AtomicPtr::new(ptr::null_mut());

impl OpenFile {
    /// One that is not in use.
    pub(crate) const fn new() -> OpenFile {
        OpenFile {
            references: AtomicU32::new(0),
            descriptors: AtomicU32::new(0),
            attached: AtomicPtr::new(ptr::null_mut()),
            flags: AtomicI32::new(0),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            lock_fd: AtomicI32::new(-1),
            next_free: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A new open file for the stub with this device and inode, without descriptors, attached at its first use.
    pub(crate) fn allocate(flags: c_int, device: u64, inode: u64) -> OpenRef {
        let file = {
            let _held = Held::take();
            let free = FREE.load(Ordering::Acquire);
            // SAFETY: open files are never freed.
            match unsafe { free.as_ref() } {
                Some(file) => {
                    FREE.store(file.next_free.load(Ordering::Acquire), Ordering::Release);
                    file
                }
                None => Box::leak(Box::new(OpenFile::new())),
            }
        };
        file.flags.store(flags & (libc::O_ACCMODE | libc::O_APPEND | KEPT_FLAGS), Ordering::Release);
        file.device.store(device, Ordering::Release);
        file.inode.store(inode, Ordering::Release);
        file.references.store(1, Ordering::Release);
        OpenRef::from_counted(file)
    }

    /// Counts a reference, unless the file is not in use.
    pub(crate) fn try_reference(&self) -> bool {
        let counted = self
            .references
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count > 0).then_some(count + 1));
        counted.is_ok()
    }

    /// Gives a reference back; with the last one the file is closed.
    pub(crate) fn drop_reference(&'static self) {
        if self.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.retire();
        }
    }

    fn retire(&'static self) {
        let saved = real::errno();
        // An error of this flush has been reported by the call that took the last descriptor away.
        let _ = guarded(|| {
            if let Some(file) = self.take_attached() {
                // Not `close`: that is for the moment when the program closes the descriptor.
                drop(file.flush());
            }
            Ok(())
        });
        let lock_fd = self.lock_fd.swap(-1, Ordering::AcqRel);
        if lock_fd >= 0 {
            table::remove(lock_fd);
            real::close_plain(lock_fd);
        }
        let _held = Held::take();
        self.next_free.store(FREE.load(Ordering::Acquire), Ordering::Release);
        FREE.store(ptr::from_ref(self).cast_mut(), Ordering::Release);
        real::set_errno(saved);
    }

    /// Closes the client's file after the last descriptor is gone, and waits for what was written. While another call
    /// still uses the file, it is only flushed; that call closes it.
    ///
    /// # Errors
    /// The errno of the flush, and of earlier writes in the background.
    pub(crate) fn close_file(&self) -> Result<(), Errno> {
        let closed = if self.references.load(Ordering::Acquire) == 1 {
            self.take_attached().map_or(Ok(()), File::close)
        } else {
            self.attached_file().map_or(Ok(()), File::flush)
        };
        closed.map_err(|e| session::failed(&e))
    }

    /// Takes the client's file out. One of an earlier life is left alone.
    fn take_attached(&self) -> Option<File> {
        let attached = self.attached.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: files are freed only here, and this call has taken the pointer.
        let life = unsafe { attached.as_ref() }?.life;
        if life != session::life() {
            return None;
        }
        // SAFETY: made from a box by `attach`, and taken by this call alone.
        Some(unsafe { Box::from_raw(attached) }.file)
    }

    /// Counts a descriptor.
    pub(crate) fn add_descriptor(&self) {
        self.descriptors.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a descriptor less; whether it was the last.
    pub(crate) fn drop_descriptor(&self) -> bool {
        self.descriptors.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether the stub is this one.
    pub(crate) fn is_stub(&self, device: u64, inode: u64) -> bool {
        self.device.load(Ordering::Acquire) == device && self.inode.load(Ordering::Acquire) == inode
    }

    /// Device and inode of the stub.
    pub(crate) fn stub(&self) -> (u64, u64) {
        (self.device.load(Ordering::Acquire), self.inode.load(Ordering::Acquire))
    }

    /// Access mode, `O_APPEND` and [`KEPT_FLAGS`].
    pub(crate) fn flags(&self) -> c_int {
        self.flags.load(Ordering::Acquire)
    }

    /// Changes the flags that `mask` names.
    pub(crate) fn set_flags(&self, mask: c_int, flags: c_int) {
        let changed = |old: c_int| Some((old & !mask) | (flags & mask));
        let changed = self.flags.fetch_update(Ordering::AcqRel, Ordering::Acquire, changed);
        assert!(changed.is_ok(), "every value can be changed");
    }

    /// Whether it may be read.
    pub(crate) fn is_readable(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Whether it may be written.
    pub(crate) fn is_writable(&self) -> bool {
        self.flags() & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Access mode and `O_APPEND` as the client wants them.
    pub(crate) fn access(&self) -> Access {
        Access {
            read: self.is_readable(),
            write: self.is_writable(),
            append: self.flags() & libc::O_APPEND != 0,
        }
    }

    /// The client's file. `fd` is any descriptor of this open file; it serves when the file must be attached first (after
    /// `fork` and `exec`).
    ///
    /// # Errors
    /// The errno of attaching.
    pub(crate) fn file(&self, fd: c_int) -> Result<&File, Errno> {
        loop {
            // SAFETY: freed only when there is no reference to this open file, and the caller has one.
            if let Some(attached) = unsafe { self.attached.load(Ordering::Acquire).as_ref() }
                && attached.life == session::life()
            {
                return Ok(&attached.file);
            }
            self.attach(fd)?;
        }
    }

    /// The client's file if it is attached in this life.
    pub(crate) fn attached_file(&self) -> Option<&File> {
        // SAFETY: as in `file`.
        let attached = unsafe { self.attached.load(Ordering::Acquire).as_ref() }?;
        (attached.life == session::life()).then_some(&attached.file)
    }

    fn attach(&self, fd: c_int) -> Result<(), Errno> {
        let _held = Held::take();
        if self.attached_file().is_some() {
            return Ok(());
        }
        self.set_attached(attach(fd, self.access()).map_err(|e| e.to_errno())?);
        Ok(())
    }

    /// Gives the open file the client's file. What an earlier life had is left alone.
    pub(crate) fn set_attached(&self, file: File) {
        let attached = Box::new(Attached { life: session::life(), file });
        self.attached.store(Box::into_raw(attached), Ordering::Release);
    }

    /// The hidden descriptor that carries record locks; opened on first use, kept until the file is closed.
    ///
    /// # Errors
    /// The errno of opening the stub.
    pub(crate) fn lock_fd(&self, fd: c_int) -> Result<c_int, Errno> {
        let _held = Held::take();
        let known = self.lock_fd.load(Ordering::Acquire);
        if known >= 0 {
            return Ok(known);
        }
        let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).expect("no zero byte");
        let access = if self.is_writable() { libc::O_RDWR } else { libc::O_RDONLY };
        // SAFETY: the path is a string of ours.
        let opened = checked(unsafe { real::open64(path.as_ptr(), access | libc::O_CLOEXEC, 0) })?;
        let opened = inside::adopt(opened);
        self.lock_fd.store(opened, Ordering::Release);
        Ok(opened)
    }
}

/// Why a file could not be attached.
pub(crate) enum AttachError {
    /// There is no client.
    Client(Errno),
    /// The client refuses.
    File(FsError),
}

impl AttachError {
    /// The errno that the program sees.
    pub(crate) fn to_errno(&self) -> Errno {
        match self {
            AttachError::Client(errno) => *errno,
            AttachError::File(error) => session::failed(error),
        }
    }
}

/// Attaches the stub behind a descriptor.
///
/// # Errors
/// When there is no client, or it refuses.
pub(crate) fn attach(fd: c_int, access: Access) -> Result<File, AttachError> {
    let client = session::client().map_err(AttachError::Client)?;
    let _inside = Inside::enter();
    // SAFETY: the caller keeps the descriptor open during the call.
    let stub = unsafe { BorrowedFd::borrow_raw(fd) };
    client.attach(stub, access).map_err(AttachError::File)
}

/// As [`attach`], when the kernel has said already what the descriptor's file is (`found`), and whether a name has led to it, which it must
/// have still (else `ESTALE`); `path` is for messages.
///
/// # Errors
/// As [`attach`].
pub(crate) fn attach_found(
    fd: c_int,
    found: (&libc::stat, bool),
    path: &CStr,
    access: Access,
) -> Result<File, AttachError> {
    let client = session::client().map_err(AttachError::Client)?;
    let _inside = Inside::enter();
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    // Another description of the stub costs as much as all the rest; to write the record, one is needed.
    if !access.write
        && let Ok(copy) = inside::duplicate(fd)
    {
        return client.attach_lent(copy, found, path).map_err(AttachError::File);
    }
    // SAFETY: the caller keeps the descriptor open during the call.
    let stub = unsafe { BorrowedFd::borrow_raw(fd) };
    client.attach_found(stub, found, path, access).map_err(AttachError::File)
}

/// The hidden descriptors that carry locks.
pub(crate) fn lock_descriptors() -> Vec<c_int> {
    table::known(0, c_int::MAX)
        .filter_map(|fd| table::find_always(fd).map(|file| file.lock_fd.load(Ordering::Acquire)))
        .filter(|fd| *fd >= 0)
        .collect()
}
