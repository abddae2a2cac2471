//! `read`, `write` and their relatives.

use super::same;
use crate::reply::{Errno, reply};
use crate::{real, table, translate};
use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};
use std::slice;

/// Most buffers of one call, as in Linux.
const BUFFERS_MAX: c_int = 1024;

/// The program's buffer to read into.
///
/// # Safety
/// `to` leads to `count` bytes that may be written, or is null.
unsafe fn buffer_mut<'a>(to: *mut c_void, count: size_t) -> Result<IoSliceMut<'a>, Errno> {
    if count == 0 {
        return Ok(IoSliceMut::new(&mut []));
    }
    if to.is_null() {
        return Err(libc::EFAULT);
    }
    let count = count.min(0x7fff_f000);
    // SAFETY: as the caller promises; the client writes the bytes and reads none.
    Ok(IoSliceMut::new(unsafe { slice::from_raw_parts_mut(to.cast(), count) }))
}

/// The program's buffer to write from.
///
/// # Safety
/// `from` leads to `count` bytes that may be read, or is null.
unsafe fn buffer<'a>(from: *const c_void, count: size_t) -> Result<IoSlice<'a>, Errno> {
    if count == 0 {
        return Ok(IoSlice::new(&[]));
    }
    if from.is_null() {
        return Err(libc::EFAULT);
    }
    let count = count.min(0x7fff_f000);
    // SAFETY: as the caller promises.
    Ok(IoSlice::new(unsafe { slice::from_raw_parts(from.cast(), count) }))
}

/// The program's list of buffers.
///
/// # Safety
/// `list` leads to `count` entries, each with a buffer that may be read.
unsafe fn buffers<'a>(list: *const iovec, count: c_int) -> Result<Vec<IoSlice<'a>>, Errno> {
    // SAFETY: as the caller promises.
    unsafe { entries(list, count) }?
        .iter()
        // SAFETY: as the caller promises.
        .map(|entry| unsafe { buffer(entry.iov_base, entry.iov_len) })
        .collect()
}

/// The program's list of buffers to read into.
///
/// # Safety
/// `list` leads to `count` entries, each with a buffer that may be written.
unsafe fn buffers_mut<'a>(list: *const iovec, count: c_int) -> Result<Vec<IoSliceMut<'a>>, Errno> {
    // SAFETY: as the caller promises.
    unsafe { entries(list, count) }?
        .iter()
        // SAFETY: as the caller promises.
        .map(|entry| unsafe { buffer_mut(entry.iov_base, entry.iov_len) })
        .collect()
}

/// # Safety
/// `list` leads to `count` entries.
unsafe fn entries<'a>(list: *const iovec, count: c_int) -> Result<&'a [iovec], Errno> {
    if !(0..=BUFFERS_MAX).contains(&count) {
        return Err(libc::EINVAL);
    }
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(libc::EFAULT);
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { slice::from_raw_parts(list, usize::try_from(count).expect("not negative")) })
}

/// Catches `read`.
///
/// # Safety
/// As `read`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::read(fd, to, count) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::read(&open, fd, &mut [unsafe { buffer_mut(to, count) }?])),
    }
}

/// Catches `write`.
///
/// # Safety
/// As `write`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::write(fd, from, count) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::write(&open, fd, &[unsafe { buffer(from, count) }?])),
    }
}

/// # Safety
/// As `pread`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pread64(fd: c_int, to: *mut c_void, count: size_t, at: off_t) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::pread64(fd, to, count, at) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::read_at(&open, fd, &mut [unsafe { buffer_mut(to, count) }?], at)),
    }
}

/// # Safety
/// As `pwrite`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pwrite64(
    fd: c_int,
    from: *const c_void,
    count: size_t,
    at: off_t,
) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::pwrite64(fd, from, count, at) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::write_at(&open, fd, &[unsafe { buffer(from, count) }?], at)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::readv(fd, list, count) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::read(&open, fd, &mut unsafe { buffers_mut(list, count) }?)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, list: *const iovec, count: c_int) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::writev(fd, list, count) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::write(&open, fd, &unsafe { buffers(list, count) }?)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn preadv64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::preadv64(fd, list, count, at) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::read_at(&open, fd, &mut unsafe { buffers_mut(list, count) }?, at)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::pwritev64(fd, list, count, at) },
        // SAFETY: as the caller promises.
        Some(open) => reply(|| translate::write_at(&open, fd, &unsafe { buffers(list, count) }?, at)),
    }
}

/// Offset -1 means the descriptor's own; a read is never refused for having to wait.
#[unsafe(no_mangle)]
unsafe extern "C" fn preadv64v2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::preadv64v2(fd, list, count, at, flags) },
        Some(open) => reply(|| {
            if flags & !libc::RWF_HIPRI != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            // SAFETY: as the caller promises.
            let mut list = unsafe { buffers_mut(list, count) }?;
            if at == -1 {
                translate::read(&open, fd, &mut list)
            } else {
                translate::read_at(&open, fd, &mut list, at)
            }
        }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    list: *const iovec,
    count: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    match table::find(fd) {
        // SAFETY: as the caller promises.
        None => unsafe { real::pwritev64v2(fd, list, count, at, flags) },
        Some(open) => reply(|| {
            let known = libc::RWF_HIPRI | libc::RWF_SYNC | libc::RWF_DSYNC | libc::RWF_APPEND;
            if flags & !known != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            // SAFETY: as the caller promises.
            let list = unsafe { buffers(list, count) }?;
            let written = if flags & libc::RWF_APPEND != 0 {
                translate::append(&open, fd, &list, at == -1)?
            } else if at == -1 {
                translate::write(&open, fd, &list)?
            } else {
                translate::write_at(&open, fd, &list, at)?
            };
            if flags & (libc::RWF_SYNC | libc::RWF_DSYNC) != 0 {
                translate::sync(&open, fd)?;
            }
            Ok(written)
        }),
    }
}

/// What programs compiled with checks for overflowing buffers call; `room` is the size of the buffer.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(fd: c_int, to: *mut c_void, count: size_t, room: size_t) -> ssize_t {
    if count > room || !table::is_known(fd) {
        // SAFETY: as the caller promises; the original ends the program when the buffer is too small.
        return unsafe { real::__read_chk(fd, to, count, room) };
    }
    // SAFETY: as the caller promises.
    unsafe { read(fd, to, count) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __pread64_chk(
    fd: c_int,
    to: *mut c_void,
    count: size_t,
    at: off_t,
    room: size_t,
) -> ssize_t {
    if count > room || !table::is_known(fd) {
        // SAFETY: as the caller promises; the original ends the program when the buffer is too small.
        return unsafe { real::__pread64_chk(fd, to, count, at, room) };
    }
    // SAFETY: as the caller promises.
    unsafe { pread64(fd, to, count, at) }
}

same! {
    pread = pread64(fd: c_int, to: *mut c_void, count: size_t, at: off_t) -> ssize_t;
    pwrite = pwrite64(fd: c_int, from: *const c_void, count: size_t, at: off_t) -> ssize_t;
    preadv = preadv64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev = pwritev64(fd: c_int, list: *const iovec, count: c_int, at: off_t) -> ssize_t;
    preadv2 = preadv64v2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    pwritev2 = pwritev64v2(fd: c_int, list: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    __read = read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t;
    __write = write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t;
    __pread64 = pread64(fd: c_int, to: *mut c_void, count: size_t, at: off_t) -> ssize_t;
    __pwrite64 = pwrite64(fd: c_int, from: *const c_void, count: size_t, at: off_t) -> ssize_t;
    __pread_chk = __pread64_chk(fd: c_int, to: *mut c_void, count: size_t, at: off_t, room: size_t) -> ssize_t;
}
