//! Open file descriptions, and how opening makes them.

use crate::inside::{self, Inside};
use crate::real::{self, checked};
use crate::reply::{Errno, guarded};
use crate::session::{self, Held, Settings};
use crate::table::{self, OpenRef};
use crate::{paths, stdio};
use ccpfs_client::{Access, File, FsError, STUB_BYTES};
use libc::{c_int, mode_t};
use std::ffi::CStr;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Status flags that the descriptor of the stub does not have although the program asked for them.
pub(crate) const KEPT_FLAGS: c_int = libc::O_SYNC | libc::O_DSYNC | libc::O_DIRECT;
/// Flags that mean the same for the stub.
const PASSED_FLAGS: c_int = libc::O_CLOEXEC
    | libc::O_NOFOLLOW
    | libc::O_NOCTTY
    | libc::O_NONBLOCK
    | libc::O_NOATIME
    | libc::O_APPEND
    | libc::O_LARGEFILE;
/// How often a file that others create and remove at the same time is tried.
const ATTEMPTS: u32 = 32;
/// Symbolic links that are followed to a file that does not exist yet.
const LINKS_MAX: u32 = 40;

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
                drop(file.close());
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

    fn access(&self) -> Access {
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
        self.set_attached(attach(fd, self.access()).map_err(|e| session_errno(&e))?);
        Ok(())
    }

    /// Gives the open file the client's file. What an earlier life had is left alone.
    fn set_attached(&self, file: File) {
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

    /// Forgets the hidden descriptor, which a forked child has closed.
    fn forget_lock_fd(&self) {
        self.lock_fd.store(-1, Ordering::Release);
    }
}

/// Why a file could not be attached.
enum AttachError {
    Client(Errno),
    File(FsError),
}

fn session_errno(error: &AttachError) -> Errno {
    match error {
        AttachError::Client(errno) => *errno,
        AttachError::File(error) => session::failed(error),
    }
}

fn attach(fd: c_int, access: Access) -> Result<File, AttachError> {
    let client = session::client().map_err(AttachError::Client)?;
    let _inside = Inside::enter();
    // SAFETY: the caller keeps the descriptor open during the call.
    let stub = unsafe { BorrowedFd::borrow_raw(fd) };
    client.attach(stub, access).map_err(AttachError::File)
}

/// Whether an error says that a file is not a stub.
pub(crate) fn is_no_stub(error: &FsError) -> bool {
    matches!(error, FsError::CorruptStub { .. })
}

/// Hidden lock descriptors are gone: after a fork, in the child.
pub(crate) fn forget_all_locks() {
    for fd in table::known(0, c_int::MAX) {
        if let Some(file) = table::find_always(fd) {
            file.forget_lock_fd();
        }
    }
}

/// Whether a file has the kind and the size of a stub. Other files in the namespace are ordinary ones.
fn is_shaped_like_a_stub(found: &libc::stat) -> bool {
    found.st_mode & libc::S_IFMT == libc::S_IFREG && usize::try_from(found.st_size) == Ok(STUB_BYTES)
}

/// Whether a file anywhere could be a stub, going by what the kernel says of it.
pub(crate) fn may_be_stub(found: &libc::stat) -> bool {
    is_shaped_like_a_stub(found)
        && session::settings().is_some_and(|settings| found.st_dev == settings.device)
}

/// Whether opening this path could concern ccPFS, by its name or by what is there.
pub(crate) fn concerns(at: c_int, path: &CStr) -> bool {
    let Some(settings) = session::settings() else { return false };
    paths::is_in_namespace(settings, at, path) || stat_at(at, path, 0).is_ok_and(|found| may_be_stub(&found))
}

/// Closes the files whose names are gone, so that their data go, too. At the end of the process; nobody is left to use
/// them.
pub(crate) fn close_removed() {
    for fd in table::known(0, c_int::MAX) {
        let is_removed = real::stat_of(fd).is_ok_and(|found| found.st_nlink == 0);
        if is_removed && table::find_always(fd).is_some() {
            drop(table::remove(fd));
        }
    }
}

/// `openat` with everything that ccPFS adds. Sets `errno` as the system call does.
pub(crate) fn open_at(at: c_int, path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    if inside::is_inside() {
        return inside::adopt(open_plain(at, path, flags, mode));
    }
    let named_only = flags & (libc::O_PATH | libc::O_DIRECTORY) != 0 && !is_temporary(flags);
    let settings = if named_only { None } else { session::settings() };
    let Some(settings) = settings else { return entered_plain(open_plain(at, path, flags, mode)) };
    if paths::is_in_namespace(settings, at, path) || is_stub_by_another_name(settings, at, path, flags) {
        return crate::reply::reply(|| open_in_namespace(at, path, flags, mode, 0));
    }
    let fd = entered_plain(open_plain(at, path, flags, mode));
    if fd >= 0
        && flags & libc::O_ACCMODE == libc::O_RDONLY
        && real::stat_of(fd).is_ok_and(|s| may_be_stub(&s))
    {
        return crate::reply::reply(|| take_over(fd, flags));
    }
    fd
}

fn is_temporary(flags: c_int) -> bool {
    flags & libc::O_TMPFILE == libc::O_TMPFILE
}

fn open_plain(at: c_int, path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the path is a string.
    unsafe { real::openat64(at, path.as_ptr(), flags, mode) }
}

/// A descriptor that is not ccPFS's. What the table says of its number is out of date (it was closed by the C library
/// itself or by a bare system call).
pub(crate) fn entered_plain(fd: c_int) -> c_int {
    if fd >= 0 && table::is_known(fd) {
        drop(table::remove(fd));
        stdio::descriptor_changed(fd);
    }
    fd
}

/// Whether a path outside leads, by a symbolic link or `/proc/self/fd`, to a stub that this open could damage.
fn is_stub_by_another_name(settings: &Settings, at: c_int, path: &CStr, flags: c_int) -> bool {
    if flags & (libc::O_ACCMODE | libc::O_TRUNC) == 0 {
        return false; // A look after opening for reading is cheaper.
    }
    match stat_at(at, path, flags) {
        Ok(found) => found.st_dev == settings.device && may_be_stub(&found),
        Err(_) => false,
    }
}

fn stat_at(at: c_int, path: &CStr, open_flags: c_int) -> Result<libc::stat, Errno> {
    let follow = if open_flags & libc::O_NOFOLLOW != 0 { libc::AT_SYMLINK_NOFOLLOW } else { 0 };
    // SAFETY: all-zero bytes are a value of the plain structure.
    let mut found: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: the path is a string, the structure is ours.
    checked(unsafe { real::fstatat(at, path.as_ptr(), &raw mut found, follow) })?;
    Ok(found)
}

fn open_in_namespace(at: c_int, path: &CStr, flags: c_int, mode: mode_t, links: u32) -> Result<c_int, Errno> {
    if is_temporary(flags) {
        return Err(libc::EOPNOTSUPP);
    }
    let exclusive = flags & libc::O_EXCL != 0;
    let create = flags & libc::O_CREAT != 0;
    for _ in 0..ATTEMPTS {
        match stat_at(at, path, flags) {
            Ok(_) if create && exclusive => return Err(libc::EEXIST),
            Ok(found) if !is_shaped_like_a_stub(&found) => {
                return checked(open_plain(at, path, flags, mode)).map(entered_plain);
            }
            Ok(_) => match open_stub(at, path, flags, false) {
                Err(libc::ENOENT) if create => {}
                answer => return answer,
            },
            Err(libc::ENOENT) if create => {
                if !exclusive && let Some(target) = paths::link_target(at, path) {
                    if flags & libc::O_NOFOLLOW != 0 || links >= LINKS_MAX {
                        return Err(libc::ELOOP);
                    }
                    return open_in_namespace(libc::AT_FDCWD, &target, flags, mode, links + 1);
                }
                let full = paths::absolute_path(at, path)?;
                let client = session::client()?;
                let created =
                    client.create_stub(&full, mode, exclusive, None).map_err(|e| session::failed(&e))?;
                match open_stub(at, path, flags, created) {
                    Err(libc::ENOENT) => {}
                    answer => return answer,
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Err(libc::ESTALE)
}

/// Opens a file that is there. Whoever has just created it may write it whatever its permissions say.
fn open_stub(at: c_int, path: &CStr, flags: c_int, created: bool) -> Result<c_int, Errno> {
    let for_writing = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    if for_writing && !created {
        // SAFETY: the path is a string.
        checked(unsafe { libc::faccessat(at, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) })?;
    }
    let fd = checked(open_plain(at, path, libc::O_RDONLY | (flags & PASSED_FLAGS), 0))?;
    entered_plain(fd);
    let found = real::stat_of(fd).inspect_err(|_| real::close_plain(fd))?;
    let file = OpenFile::allocate(flags, found.st_dev, found.st_ino);
    let attached = attach(fd, file.access()).and_then(|attached| {
        if flags & libc::O_TRUNC != 0 && !created {
            let writable = Access { read: false, write: true, append: false };
            let target = if file.is_writable() { attached.clone() } else { attach(fd, writable)? };
            target.truncate(0).map_err(AttachError::File)?;
        }
        Ok(attached)
    });
    match attached {
        Ok(attached) => file.set_attached(attached),
        Err(AttachError::File(error)) if is_no_stub(&error) && !paths::is_ours(at, path) => {
            real::close_plain(fd);
            return checked(open_plain(at, path, flags, 0)).map(entered_plain);
        }
        Err(error) => {
            real::close_plain(fd);
            return Err(session_errno(&error));
        }
    }
    enter(fd, file).inspect_err(|_| real::close_plain(fd))?;
    Ok(fd)
}

/// Makes a descriptor that was opened for reading, and turned out to be of a stub, ccPFS's.
fn take_over(fd: c_int, flags: c_int) -> Result<c_int, Errno> {
    match attach(fd, Access { read: true, write: false, append: false }) {
        Ok(attached) => {
            let found = real::stat_of(fd)?;
            let file = OpenFile::allocate(flags, found.st_dev, found.st_ino);
            file.set_attached(attached);
            enter(fd, file)?;
            Ok(fd)
        }
        Err(AttachError::File(error)) if is_no_stub(&error) => Ok(fd),
        Err(error) => {
            real::close_plain(fd);
            Err(session_errno(&error))
        }
    }
}

/// Enters a descriptor, and closes what its number led to.
///
/// # Errors
/// `EMFILE` when the number is larger than the table.
pub(crate) fn enter(fd: c_int, file: OpenRef) -> Result<(), Errno> {
    drop(table::enter(fd, file)?);
    stdio::descriptor_changed(fd);
    Ok(())
}
