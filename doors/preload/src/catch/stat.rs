//! `stat` and its relatives: the kernel's answer for the stub, with size, blocks and modification time of the file.

use super::same;
use crate::inside;
use crate::open::{is_no_stub, may_be_stub};
use crate::paths::{self, Place};
use crate::real::{self, checked};
use crate::reply::{Errno, guarded};
use crate::{session, strings, table, translate};
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint, timespec, timeval};

use std::ffi::CStr;
use std::mem;
use std::os::fd::BorrowedFd;
use std::ptr;

/// The structure, apart from the function of the same name.
type Stat = libc::stat;

/// Completes what the kernel said of the file at a path. Returns whether it was a stub.
///
/// # Errors
/// The errno of asking the servers.
fn complete(at: c_int, path: &CStr, found: &mut Stat, flags: c_int) -> Result<bool, Errno> {
    if let Some((fd, open)) = table::find_stub(found.st_dev, found.st_ino) {
        // Not through another descriptor of the stub: closing that would drop the record locks of the program.
        *found = translate::stat(&open, fd)?;
        return Ok(true);
    }
    let client = session::client()?;
    let completed = if path.is_empty() {
        // SAFETY: the program keeps it open during its call. It may be one that only names the stub (`O_PATH`).
        client.stat_stub(unsafe { BorrowedFd::borrow_raw(at) }, found)
    } else {
        let place = Place::of(at, path)?;
        client.complete_at(place.folder(), place.name(), flags & AT_SYMLINK_NOFOLLOW, found)
    };
    match completed {
        Err(error) if is_no_stub(&error) => Ok(false),
        // A process that may open no more files is still told of those that are not ccPFS's.
        Err(error)
            if matches!(error.to_errno(), libc::EMFILE | libc::ENFILE) && !paths::is_ours(at, path) =>
        {
            Ok(false)
        }
        answer => answer.map_err(|error| session::failed(&error)),
    }
}

/// `fstatat`.
///
/// # Safety
/// As `fstatat`.
unsafe fn stat_at(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    let name = || unsafe { strings::path(path) };
    if flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || name().is_some_and(CStr::is_empty)) {
        // SAFETY: as the caller promises.
        return unsafe { stat_fd(at, to) };
    }
    // SAFETY: as the caller promises.
    let answer = unsafe { real::fstatat(at, path, to, flags) };
    // SAFETY: the kernel has filled the structure.
    if answer != 0 || inside::is_inside() || !may_be_stub(unsafe { &*to }) {
        return answer;
    }
    // SAFETY: the kernel has filled the structure.
    crate::reply::reply(|| complete(at, name().unwrap_or_default(), unsafe { &mut *to }, flags).map(|_| 0))
}

/// `fstat`.
///
/// # Safety
/// As `fstat`.
unsafe fn stat_fd(fd: c_int, to: *mut Stat) -> c_int {
    if let Some(open) = table::find(fd) {
        return crate::reply::reply(|| {
            let known = translate::stat(&open, fd)?;
            // SAFETY: as the caller promises.
            unsafe { to.write(known) };
            Ok(0)
        });
    }
    // SAFETY: as the caller promises.
    let answer = unsafe { real::fstatat(fd, c"".as_ptr(), to, libc::AT_EMPTY_PATH) };
    // SAFETY: the kernel has filled the structure.
    if answer != 0 || inside::is_inside() || !may_be_stub(unsafe { &*to }) {
        return answer;
    }
    // SAFETY: the kernel has filled the structure.
    crate::reply::reply(|| complete(fd, c"", unsafe { &mut *to }, 0).map(|_| 0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn stat64(path: *const c_char, to: *mut Stat) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stat_at(AT_FDCWD, path, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lstat64(path: *const c_char, to: *mut Stat) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stat_at(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstat64(fd: c_int, to: *mut Stat) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stat_fd(fd, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatat64(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stat_at(at, path, to, flags) }
}

/// The names that programs built against older C libraries call.
mod older {
    use super::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, Stat, c_char, c_int, stat_at, stat_fd};

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __xstat64(_version: c_int, path: *const c_char, to: *mut Stat) -> c_int {
        // SAFETY: as the caller promises; there is one version of the structure.
        unsafe { stat_at(AT_FDCWD, path, to, 0) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __lxstat64(_version: c_int, path: *const c_char, to: *mut Stat) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { stat_at(AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __fxstat64(_version: c_int, fd: c_int, to: *mut Stat) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { stat_fd(fd, to) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __fxstatat64(
        _version: c_int,
        at: c_int,
        path: *const c_char,
        to: *mut Stat,
        flags: c_int,
    ) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { stat_at(at, path, to, flags) }
    }

    super::same! {
        __xstat = __xstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int;
        __lxstat = __lxstat64(version: c_int, path: *const c_char, to: *mut Stat) -> c_int;
        __fxstat = __fxstat64(version: c_int, fd: c_int, to: *mut Stat) -> c_int;
        __fxstatat = __fxstatat64(
            version: c_int, at: c_int, path: *const c_char, to: *mut Stat, flags: c_int
        ) -> c_int;
    }
}

/// # Safety
/// As `statx`.
#[unsafe(no_mangle)]
unsafe extern "C" fn statx(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    // SAFETY: as the caller promises.
    let answer = unsafe { real::statx(at, path, flags, mask | libc::STATX_BASIC_STATS, to) };
    if answer != 0 || inside::is_inside() {
        return answer;
    }
    // SAFETY: the kernel has filled the structure.
    let found = unsafe { &mut *to };
    // SAFETY: all-zero bytes are a value of the plain structure.
    let mut plain: Stat = unsafe { mem::zeroed() };
    plain.st_mode = u32::from(found.stx_mode);
    plain.st_dev = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    plain.st_ino = found.stx_ino;
    plain.st_size = found.stx_size.cast_signed();
    (plain.st_ctime, plain.st_ctime_nsec) = (found.stx_ctime.tv_sec, i64::from(found.stx_ctime.tv_nsec));
    (plain.st_mtime, plain.st_mtime_nsec) = (found.stx_mtime.tv_sec, i64::from(found.stx_mtime.tv_nsec));
    if !may_be_stub(&plain) {
        return answer;
    }
    // SAFETY: as the caller promises.
    let name = unsafe { strings::path(path) }.unwrap_or_default();
    crate::reply::reply(|| {
        if complete(at, name, &mut plain, flags)? {
            found.stx_size = plain.st_size.cast_unsigned();
            found.stx_blocks = plain.st_blocks.cast_unsigned();
            found.stx_blksize = u32::try_from(plain.st_blksize).unwrap_or(4096);
            found.stx_mtime.tv_sec = plain.st_mtime;
            found.stx_mtime.tv_nsec = u32::try_from(plain.st_mtime_nsec).unwrap_or(0);
            found.stx_ctime.tv_sec = plain.st_ctime;
            found.stx_ctime.tv_nsec = u32::try_from(plain.st_ctime_nsec).unwrap_or(0);
        }
        Ok(0)
    })
}

/// Seconds and nanoseconds become what the client takes.
///
/// # Safety
/// `times` is null, for now, or leads to two times.
unsafe fn two_times(times: *const timespec) -> [timespec; 2] {
    let now = timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW };
    // SAFETY: as the caller promises.
    if times.is_null() { [now, now] } else { unsafe { [*times, *times.add(1)] } }
}

/// Sets the times of the file that a descriptor names.
fn set_times(fd: c_int, times: &[timespec; 2]) -> Result<c_int, Errno> {
    // SAFETY: the caller keeps the descriptor open.
    let stub = unsafe { BorrowedFd::borrow_raw(fd) };
    session::client()?.set_times(stub, times).map_err(|e| e.to_errno())?;
    Ok(0)
}

/// Does `work` with a descriptor that only names the file at a path. Closing such a one drops no locks.
fn with_named<T>(
    at: c_int,
    path: &CStr,
    flags: c_int,
    work: impl FnOnce(c_int) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if path.is_empty() {
        return work(at);
    }
    let follow = if flags & AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
    // SAFETY: the path is a string.
    let fd =
        checked(unsafe { real::openat64(at, path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC | follow, 0) })?;
    let answer = work(fd);
    real::close_plain(fd);
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimens(fd: c_int, times: *const timespec) -> c_int {
    if table::find(fd).is_none() {
        // SAFETY: as the caller promises.
        return unsafe { real::futimens(fd, times) };
    }
    // SAFETY: as the caller promises.
    crate::reply::reply(|| set_times(fd, &unsafe { two_times(times) }))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utimensat(
    at: c_int,
    path: *const c_char,
    times: *const timespec,
    flags: c_int,
) -> c_int {
    if path.is_null() {
        // SAFETY: as the caller promises; a null path means the descriptor itself.
        return unsafe { futimens(at, times) };
    }
    let known = AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH;
    // SAFETY: as the caller promises.
    let Some(name) = unsafe { strings::path(path) }.filter(|name| {
        flags & !known == 0
            && !inside::is_inside()
            && stub_at(at, name, flags).is_some_and(|found| may_be_stub(&found))
            && (times.is_null() || strings::are_readable(times, 2))
    }) else {
        // SAFETY: as the caller promises.
        return unsafe { real::utimensat(at, path, times, flags) };
    };
    // SAFETY: as the caller promises.
    let times = unsafe { two_times(times) };
    crate::reply::reply(|| with_named(at, name, flags, |fd| set_times(fd, &times)))
}

/// `utimes` and the like, in terms of `utimensat`.
///
/// # Safety
/// `path` is a string; `times` is null or leads to two times.
unsafe fn set_microseconds(at: c_int, path: *const c_char, times: *const timeval, flags: c_int) -> c_int {
    if times.is_null() {
        // SAFETY: as the caller promises.
        return unsafe { utimensat(at, path, ptr::null(), flags) };
    }
    let exact = |index: usize| {
        // SAFETY: as the caller promises.
        let time = unsafe { &*times.add(index) };
        // A wrong number of microseconds becomes a wrong number of nanoseconds, which the kernel refuses.
        timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec.saturating_mul(1000) }
    };
    let exact = [exact(0), exact(1)];
    // SAFETY: as the caller promises.
    unsafe { utimensat(at, path, exact.as_ptr(), flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { set_microseconds(AT_FDCWD, path, times, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { set_microseconds(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
    // SAFETY: as the caller promises.
    let Some(given) = (unsafe { times.as_ref() }) else {
        // SAFETY: as the caller promises.
        return unsafe { utimensat(AT_FDCWD, path, ptr::null(), 0) };
    };
    let exact = [given.actime, given.modtime].map(|tv_sec| timespec { tv_sec, tv_nsec: 0 });
    // SAFETY: as the caller promises.
    unsafe { utimensat(AT_FDCWD, path, exact.as_ptr(), 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimes(fd: c_int, times: *const timeval) -> c_int {
    // SAFETY: as the caller promises; a null path means the descriptor itself.
    unsafe { set_microseconds(fd, ptr::null(), times, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn futimesat(at: c_int, path: *const c_char, times: *const timeval) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { set_microseconds(at, path, times, 0) }
}

/// Completes what the C library found of a file by itself. When servers cannot be asked, what it found stays.
pub(super) fn complete_entry(at: c_int, path: &CStr, found: &mut Stat, flags: c_int) {
    if may_be_stub(found) && !inside::is_inside() {
        let saved = real::errno();
        // A walk has no way to report it; opening the file does.
        let _ = guarded(|| complete(at, path, found, flags));
        real::set_errno(saved);
    }
}

/// Before the file at a path changes in another way than by writing: the time of the last write is put into the stub.
///
/// # Safety
/// `path` is null or a string.
pub(super) unsafe fn settle_path(at: c_int, path: *const c_char, flags: c_int) {
    // SAFETY: as the caller promises.
    unsafe { with_stub(at, path, flags, settle) };
}

/// After such a change: later writes of this process are later than it.
///
/// # Safety
/// `path` is null or a string.
pub(super) unsafe fn note_path(at: c_int, path: *const c_char, flags: c_int) {
    // SAFETY: as the caller promises.
    unsafe { with_stub(at, path, flags, note) };
}

/// Does something with a file at a path that may be a stub; `errno` stays as it was.
///
/// # Safety
/// `path` is null or a string.
unsafe fn with_stub(
    at: c_int,
    path: *const c_char,
    flags: c_int,
    act: impl FnOnce(c_int) -> Result<(), Errno>,
) {
    if inside::is_inside() {
        return;
    }
    // SAFETY: as the caller promises.
    let Some(name) = (unsafe { strings::path(path) }) else { return };
    let flags = flags & (AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH);
    let saved = real::errno();
    if stub_at(at, name, flags).is_some_and(|found| may_be_stub(&found)) {
        // Who may not look at the file may not change it, and is told by the call itself.
        let _ = guarded(|| with_named(at, name, flags, act));
    }
    real::set_errno(saved);
}

/// As [`settle_path`], by a descriptor.
pub(super) fn settle_descriptor(fd: c_int) {
    with_descriptor(fd, settle);
}

/// As [`note_path`], by a descriptor.
pub(super) fn note_descriptor(fd: c_int) {
    with_descriptor(fd, note);
}

fn with_descriptor(fd: c_int, act: impl FnOnce(c_int) -> Result<(), Errno>) {
    if table::find(fd).is_some() {
        let saved = real::errno();
        let _ = guarded(|| act(fd));
        real::set_errno(saved);
    }
}

fn settle(fd: c_int) -> Result<(), Errno> {
    // SAFETY: the caller keeps the descriptor open.
    let stub = unsafe { BorrowedFd::borrow_raw(fd) };
    session::client()?.settle_times(stub).map_err(|e| session::failed(&e))
}

fn note(fd: c_int) -> Result<(), Errno> {
    // SAFETY: the caller keeps the descriptor open.
    session::client()?.note_change(unsafe { BorrowedFd::borrow_raw(fd) });
    Ok(())
}

/// What the kernel says of the file at a path.
fn stub_at(at: c_int, path: &CStr, flags: c_int) -> Option<Stat> {
    // SAFETY: all-zero bytes are a value of the plain structure.
    let mut found: Stat = unsafe { mem::zeroed() };
    // SAFETY: the path is a string, the structure is ours.
    let answer = unsafe { real::fstatat(at, path.as_ptr(), &raw mut found, flags) };
    checked(answer).ok().map(|_| found)
}

/// What the kernel says of the file that a path leads to.
pub(super) fn identity_followed(at: c_int, path: &CStr) -> Option<Stat> {
    stub_at(at, path, 0)
}

/// What the kernel says of the file that is meant with these flags of `linkat`.
pub(super) fn named_by_descriptor(at: c_int, path: &CStr, flags: c_int) -> Option<Stat> {
    stub_at(at, path, flags & libc::AT_EMPTY_PATH)
}

/// What the kernel says of the file at a path itself, whether or not it is a symbolic link.
pub(super) fn identity(at: c_int, path: &CStr) -> Option<Stat> {
    stub_at(at, path, AT_SYMLINK_NOFOLLOW)
}

same! {
    stat = stat64(path: *const c_char, to: *mut Stat) -> c_int;
    lstat = lstat64(path: *const c_char, to: *mut Stat) -> c_int;
    fstat = fstat64(fd: c_int, to: *mut Stat) -> c_int;
    fstatat = fstatat64(at: c_int, path: *const c_char, to: *mut Stat, flags: c_int) -> c_int;
}
