//! Opening: what is ordinary, what is ccPFS's, and what has to be created.

use crate::inside;
use crate::open_file::{AttachError, OpenFile, attach, attach_found};
use crate::paths::Place;
use crate::real::{self, checked};
use crate::reply::{Errno, reply};
use crate::session::{self, Settings};
use crate::table::{self, OpenRef};
use crate::{descriptors, marks, paths, stdio};
use ccpfs_client::{Access, File, FsError, OpenOptions, STUB_BYTES};
use libc::{c_int, mode_t};
use std::ffi::{CStr, CString};
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

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

/// Whether an error says that a file is not a stub.
pub(crate) fn is_no_stub(error: &FsError) -> bool {
    matches!(error, FsError::CorruptStub { .. })
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

/// Whether what a path leads to looks like a stub.
pub(crate) fn leads_to_stub(at: c_int, path: &CStr) -> bool {
    stat_at(at, path, 0).is_ok_and(|found| may_be_stub(&found))
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
        return inside::adopt_opened(open_plain(at, path, flags, mode), flags & libc::O_CLOEXEC != 0);
    }
    let named_only = flags & (libc::O_PATH | libc::O_DIRECTORY) != 0 && !is_temporary(flags);
    let settings = if named_only { None } else { session::settings() };
    let Some(settings) = settings else { return entered_plain(open_plain(at, path, flags, mode)) };
    if paths::is_in_namespace(settings, at, path) || is_stub_by_another_name(settings, at, path, flags) {
        return reply(|| open_in_namespace(at, path, flags, mode, 0));
    }
    let fd = entered_plain(open_plain(at, path, flags, mode));
    if fd >= 0
        && flags & libc::O_ACCMODE == libc::O_RDONLY
        && real::stat_of(fd).is_ok_and(|s| may_be_stub(&s))
    {
        return reply(|| take_over(fd, flags));
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

/// As [`open_plain`], of what may be a pipe: that waits for its other end, unless a signal comes.
fn open_or_wait(at: c_int, path: &CStr, flags: c_int, mode: mode_t) -> c_int {
    inside::outside(|| open_plain(at, path, flags, mode))
}

/// A descriptor that is not ccPFS's. What the table says of its number is out of date (it was closed by the C library
/// itself or by a bare system call).
pub(crate) fn entered_plain(fd: c_int) -> c_int {
    if fd >= 0 && table::is_known(fd) {
        descriptors::end(table::remove(fd));
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
        return open_temporary(at, path, flags, mode);
    }
    let exclusive = flags & libc::O_EXCL != 0;
    let create = flags & libc::O_CREAT != 0;
    if create && exclusive {
        return make_file(at, path, flags, mode);
    }
    if flags & !PASSED_FLAGS == 0 {
        return open_for_reading(at, path, flags);
    }
    for _ in 0..ATTEMPTS {
        match stat_at(at, path, flags) {
            Ok(found) if !is_shaped_like_a_stub(&found) => {
                return checked(open_or_wait(at, path, flags, mode)).map(entered_plain);
            }
            Ok(_) => match open_stub(at, path, flags) {
                Err(libc::ENOENT) if create => {}
                Err(libc::ESTALE) => {}
                answer => return answer,
            },
            Err(libc::ENOENT) if create => {
                if let Some(target) = paths::link_target(at, path) {
                    if flags & libc::O_NOFOLLOW != 0 || links >= LINKS_MAX {
                        return Err(libc::ELOOP);
                    }
                    return open_in_namespace(at, &target, flags, mode, links + 1);
                }
                match make_file(at, path, flags, mode) {
                    Err(libc::EEXIST) => {}
                    answer => return answer,
                }
            }
            Err(errno) => return Err(errno),
        }
    }
    Err(libc::ESTALE)
}

/// What the client wants to know of a file that is made.
fn options(flags: c_int, mode: mode_t) -> OpenOptions {
    let access = flags & libc::O_ACCMODE;
    OpenOptions {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        exclusive: flags & libc::O_EXCL != 0,
        mode: (mode & 0o7777) | libc::S_IFREG,
        ..OpenOptions::default()
    }
}

/// Makes a file that is not there, and opens it.
fn make_file(at: c_int, path: &CStr, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
    let client = session::client()?;
    let options = OpenOptions { create: true, exclusive: true, ..options(flags, mode) };
    let place = Place::of(at, path)?;
    let file = client.open_at(place.folder(), place.name(), &options).map_err(|e| session::failed(&e))?;
    descriptor_of(file, flags, Some((at, path)))
}

/// `O_TMPFILE`: a file without a name.
fn open_temporary(at: c_int, path: &CStr, flags: c_int, mode: mode_t) -> Result<c_int, Errno> {
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(libc::EINVAL);
    }
    let how = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let folder = checked(open_plain(at, path, how, 0))?;
    let made = session::client().and_then(|client| {
        // SAFETY: it is open until the end of this function.
        let place = unsafe { BorrowedFd::borrow_raw(folder) };
        client.temporary_at(place, &options(flags, mode)).map_err(|e| session::failed(&e))
    });
    real::close_plain(folder);
    descriptor_of(made?, flags, None)
}

/// A descriptor of the program's own for a file that the client has just made. By its name if it still has that, because
/// the kernel tells programs by which name a descriptor was opened.
fn descriptor_of(made: File, flags: c_int, named: Option<(c_int, &CStr)>) -> Result<c_int, Errno> {
    let stub = made.stub().as_raw_fd();
    let inode = made.stub_inode();
    let kept = libc::O_RDONLY | (flags & PASSED_FLAGS & !libc::O_NOATIME);
    let by_name = named.map_or(-1, |(at, path)| open_plain(at, path, kept | libc::O_NOFOLLOW, 0));
    let is_the_same = real::stat_of(by_name).is_ok_and(|found| (found.st_dev, found.st_ino) == inode);
    let fd = if is_the_same {
        by_name
    } else {
        if by_name >= 0 {
            real::close_plain(by_name);
        }
        open_again(stub, kept & !libc::O_NOFOLLOW)?
    };
    entered_plain(fd);
    let file = OpenFile::allocate(flags, inode.0, inode.1);
    file.set_attached(made);
    enter(fd, file).inspect_err(|_| real::close_plain(fd))?;
    marks::set(fd, flags);
    Ok(fd)
}

/// A second open file description of a stub that this process has just made, with a mode that may keep even its owner from
/// reading it.
fn open_again(stub: c_int, flags: c_int) -> Result<c_int, Errno> {
    let name = CString::new(format!("/proc/self/fd/{stub}")).expect("no zero byte");
    let open = || checked(open_plain(libc::AT_FDCWD, &name, flags, 0));
    match open() {
        Err(libc::EACCES) => {
            let mode = real::stat_of(stub)?.st_mode & 0o7777;
            // SAFETY: plain integers.
            checked(unsafe { real::fchmod(stub, mode | libc::S_IRUSR) })?;
            let opened = open();
            // SAFETY: plain integers.
            unsafe { real::fchmod(stub, mode) };
            opened
        }
        answer => answer,
    }
}

/// Opens for nothing but reading, by no other flags than those that mean the same for a stub: the kernel does that, whatever
/// is there, and then it turns out what it is.
fn open_for_reading(at: c_int, path: &CStr, flags: c_int) -> Result<c_int, Errno> {
    for _ in 0..ATTEMPTS {
        let fd = entered_plain(checked(open_or_wait(at, path, flags, 0))?);
        let found = real::stat_of(fd).inspect_err(|_| real::close_plain(fd))?;
        if !is_shaped_like_a_stub(&found) {
            return Ok(fd);
        }
        match enter_stub(at, path, flags, (fd, &found)) {
            Err(libc::ESTALE) => {}
            answer => return answer,
        }
    }
    Err(libc::ESTALE)
}

/// Opens a file that is there.
fn open_stub(at: c_int, path: &CStr, flags: c_int) -> Result<c_int, Errno> {
    let for_writing = flags & libc::O_ACCMODE != libc::O_RDONLY || flags & libc::O_TRUNC != 0;
    if for_writing {
        // SAFETY: the path is a string.
        checked(unsafe { libc::faccessat(at, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) })?;
    }
    let fd = checked(open_plain(at, path, libc::O_RDONLY | (flags & PASSED_FLAGS), 0))?;
    entered_plain(fd);
    let found = real::stat_of(fd).inspect_err(|_| real::close_plain(fd))?;
    enter_stub(at, path, flags, (fd, &found))
}

/// Makes a descriptor ccPFS's that was opened by a path and looks like a stub's.
///
/// # Errors
/// As opening; `ESTALE` when the file has lost its name meanwhile. The descriptor is closed then.
fn enter_stub(
    at: c_int,
    path: &CStr,
    flags: c_int,
    (fd, found): (c_int, &libc::stat),
) -> Result<c_int, Errno> {
    let file = OpenFile::allocate(flags, found.st_dev, found.st_ino);
    // The name may go, and perhaps the data, before anybody knows that this process has the file open: the name may lead to another one.
    let found = (found, found.st_nlink > 0 || paths::is_ours(at, path));
    let attached = attach_found(fd, found, path, file.access());
    let attached = attached.and_then(|attached| {
        if flags & libc::O_TRUNC != 0 {
            let writable = Access { read: false, write: true, append: false };
            let target =
                if file.is_writable() { attached.clone() } else { attach_found(fd, found, path, writable)? };
            target.truncate(0).map_err(AttachError::File)?;
        }
        Ok(attached)
    });
    match attached {
        Ok(attached) => file.set_attached(attached),
        Err(AttachError::File(error)) if is_no_stub(&error) && !paths::is_ours(at, path) => {
            real::close_plain(fd);
            return checked(open_or_wait(at, path, flags, 0)).map(entered_plain);
        }
        Err(error) => {
            real::close_plain(fd);
            return Err(error.to_errno());
        }
    }
    enter(fd, file).inspect_err(|_| real::close_plain(fd))?;
    marks::set(fd, flags);
    Ok(fd)
}

/// Takes a descriptor that another process has passed on: when it is a stub's, it is ccPFS's here, too.
pub(crate) fn received(fd: c_int) {
    entered_plain(fd);
    let Some(flags) = marks::get(fd) else { return };
    if let Ok(found) = real::stat_of(fd)
        && may_be_stub(&found)
    {
        let file = OpenFile::allocate(flags, found.st_dev, found.st_ino);
        // Beyond the table the descriptor stays the stub's, which cannot be written through it.
        let _ = enter(fd, file);
    }
}

/// As [`take_over`], for a descriptor that was not opened by a name: for what `flags` say.
///
/// # Errors
/// `EACCES` without permission; as attaching; the descriptor is closed then.
pub(crate) fn take_over_for(fd: c_int, flags: c_int) -> Result<c_int, Errno> {
    let found = real::stat_of(fd).inspect_err(|_| real::close_plain(fd))?;
    let file = OpenFile::allocate(flags, found.st_dev, found.st_ino);
    if file.is_writable() || flags & libc::O_TRUNC != 0 {
        let name = CString::new(format!("/proc/self/fd/{fd}")).expect("no zero byte");
        // SAFETY: the path is a string.
        let allowed = unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK, libc::AT_EACCESS) };
        checked(allowed).inspect_err(|_| real::close_plain(fd))?;
    }
    enter(fd, file.clone()).inspect_err(|_| real::close_plain(fd))?;
    marks::set(fd, flags);
    if flags & libc::O_TRUNC != 0 {
        file.file(fd)?.truncate(0).map_err(|e| session::failed(&e))?;
    }
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
            marks::set(fd, flags);
            Ok(fd)
        }
        Err(AttachError::File(error)) if is_no_stub(&error) => Ok(fd),
        Err(error) => {
            real::close_plain(fd);
            Err(error.to_errno())
        }
    }
}

/// Enters a descriptor, and closes what its number led to.
///
/// # Errors
/// `EMFILE` when the number is larger than the table.
pub(crate) fn enter(fd: c_int, file: OpenRef) -> Result<(), Errno> {
    descriptors::end(table::enter(fd, file)?);
    stdio::descriptor_changed(fd);
    Ok(())
}
