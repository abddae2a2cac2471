//! Offsets, sizes and persistence of an open file.

use super::same;
use crate::reply::{guarded, reply};
use crate::{real, session, table, translate};
use libc::{c_char, c_int, c_uint, off_t, size_t, ssize_t};

/// Catches `lseek`.
///
/// # Safety
/// As `lseek`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::lseek64(fd, offset, whence) },
        Some(open) => reply(|| translate::seek(&open, fd, offset, whence)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::fsync(fd) },
        Some(open) => reply(|| translate::sync(&open, fd)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::fdatasync(fd) },
        Some(open) => reply(|| translate::sync(&open, fd)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync_file_range(fd: c_int, offset: off_t, count: off_t, flags: c_uint) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::sync_file_range(fd, offset, count, flags) },
        Some(open) => reply(|| translate::flush(&open)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::syncfs(fd) },
        Some(open) => reply(|| {
            session::flush_all()?;
            translate::sync(&open, fd)
        }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync() {
    if session::started().is_some() && !crate::inside::is_inside() {
        // The call has no way to report an error; fsync and close of the file do.
        let _ = guarded(session::flush_all);
    }
    // SAFETY: no arguments.
    unsafe { real::sync() }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(fd: c_int, size: off_t) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::ftruncate64(fd, size) },
        Some(open) => reply(|| translate::truncate(&open, fd, size)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate64(path: *const c_char, size: off_t) -> c_int {
    // SAFETY: as the caller promises.
    let plain = || unsafe { real::truncate64(path, size) };
    // SAFETY: as the caller promises.
    let Some(name) = (unsafe { crate::strings::path(path) }) else { return plain() };
    if crate::inside::is_inside() || !crate::open::concerns(libc::AT_FDCWD, name) {
        return plain();
    }
    if size < 0 {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    let fd =
        crate::open::open_at(libc::AT_FDCWD, name, libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NONBLOCK, 0);
    if fd < 0 {
        return -1;
    }
    // SAFETY: plain integers.
    let truncated = unsafe { ftruncate64(fd, size) };
    let errno = real::errno();
    let closed = crate::descriptors::close(fd);
    if truncated < 0 {
        real::set_errno(errno);
        return -1;
    }
    closed
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, count: off_t) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::fallocate64(fd, mode, offset, count) },
        Some(open) => reply(|| translate::allocate(&open, fd, mode, offset, count)),
    }
}

/// Returns the error number.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, count: off_t) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::posix_fallocate64(fd, offset, count) },
        Some(open) => match guarded(|| translate::allocate(&open, fd, 0, offset, count)) {
            Ok(_) => 0,
            Err(errno) => errno,
        },
    }
}

/// The client decides by itself what it keeps and what it reads ahead.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fadvise64(fd: c_int, offset: off_t, count: off_t, advice: c_int) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::posix_fadvise64(fd, offset, count, advice) },
        Some(_) if count < 0 || !(libc::POSIX_FADV_NORMAL..=libc::POSIX_FADV_NOREUSE).contains(&advice) => {
            libc::EINVAL
        }
        Some(_) => 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::readahead(fd, offset, count) },
        Some(_) => 0,
    }
}

same! {
    __lseek = lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    llseek = lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    lseek = lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    ftruncate = ftruncate64(fd: c_int, size: off_t) -> c_int;
    truncate = truncate64(path: *const c_char, size: off_t) -> c_int;
    fallocate = fallocate64(fd: c_int, mode: c_int, offset: off_t, count: off_t) -> c_int;
    posix_fallocate = posix_fallocate64(fd: c_int, offset: off_t, count: off_t) -> c_int;
    posix_fadvise = posix_fadvise64(fd: c_int, offset: off_t, count: off_t, advice: c_int) -> c_int;
}
