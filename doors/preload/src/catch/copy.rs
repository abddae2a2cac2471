//! Data that the kernel would move by itself, and memory that it would fill.

use super::same;
use crate::copy::{self, End, copy};
use crate::reply::reply;
use crate::table::OpenRef;
use crate::{inside, real, table, translate};
use libc::{c_int, c_uint, c_void, off_t, size_t, ssize_t};
use std::io::IoSliceMut;

/// A mapping of the client library from this size on is its page cache.
const CACHE_BYTES_MIN: size_t = 16 << 20;

fn is_ours(one: c_int, other: c_int) -> bool {
    table::find(one).is_some() || table::find(other).is_some()
}

/// Copies by reading and writing, and sets the offsets as the system call does.
///
/// # Safety
/// Each offset is null or leads to one.
unsafe fn copy_by_hand(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: as the caller promises.
    let (mut source, mut target) = unsafe { (End::new(from, from_at), End::new(to, to_at)) };
    let copied = reply(|| copy(&mut source, &mut target, count));
    for (at, end) in [(from_at, source), (to_at, target)] {
        if let Some(offset) = end.at {
            // SAFETY: as the caller promises; it is not null.
            unsafe { at.write(offset) };
        }
    }
    copied
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if !is_ours(from, to) {
        // SAFETY: as the caller promises.
        return unsafe { real::copy_file_range(from, from_at, to, to_at, count, flags) };
    }
    // SAFETY: as the caller promises.
    match unsafe { copy::refusal(from, from_at, to, to_at, count, flags) } {
        Some(errno) => {
            real::set_errno(errno);
            -1
        }
        // SAFETY: as the caller promises.
        None => unsafe { copy_by_hand(from, from_at, to, to_at, count) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, from_at: *mut off_t, count: size_t) -> ssize_t {
    if !is_ours(from, to) {
        // SAFETY: as the caller promises.
        return unsafe { real::sendfile64(to, from, from_at, count) };
    }
    // SAFETY: as the caller promises.
    unsafe { copy_by_hand(from, from_at, to, std::ptr::null_mut(), count) }
}

/// Between a pipe and a file of ours: what the pipe has, or has room for, goes through a buffer.
#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if !is_ours(from, to) {
        // SAFETY: as the caller promises.
        return unsafe { real::splice(from, from_at, to, to_at, count, flags) };
    }
    let wait = flags & libc::SPLICE_F_NONBLOCK == 0;
    let ready = match (copy::is_pipe(from), copy::is_pipe(to)) {
        (true, false) if from_at.is_null() => copy::wait_for_bytes(from, wait),
        (false, true) if to_at.is_null() => copy::wait_for_room(to, wait),
        (true, false) | (false, true) => Err(libc::ESPIPE),
        (true, true) | (false, false) => Err(libc::EINVAL),
    };
    match ready {
        Ok(ready) if ready > 0 && count > 0 => {
            // SAFETY: as the caller promises.
            unsafe { copy_by_hand(from, from_at, to, to_at, count.min(ready)) }
        }
        Ok(_) => 0,
        Err(errno) => {
            real::set_errno(errno);
            -1
        }
    }
}

/// A private mapping of a file of ours: memory of the program's own with the bytes the file has now. POSIX leaves open
/// whether later writes show in a private mapping; here they do not. A shared mapping needs page faults: refused, the
/// program reads and writes instead.
///
/// # Safety
/// As `mmap`.
unsafe fn map_copy(
    open: &OpenRef,
    address: *mut c_void,
    count: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> Result<*mut c_void, c_int> {
    const PAGE_BYTES: off_t = 4096;
    if flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        return Err(libc::ENODEV);
    }
    if offset < 0 || offset % PAGE_BYTES != 0 {
        return Err(libc::EINVAL);
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: as the caller promises; without a descriptor the mapping is plain memory.
    let mapped = unsafe { real::mmap64(address, count, writable, flags | libc::MAP_ANONYMOUS, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(real::errno());
    }
    // SAFETY: the mapping is as long as asked for, and nobody else knows it yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), count) };
    let mut filled = 0;
    while filled < count {
        let at = offset.saturating_add(off_t::try_from(filled).unwrap_or(off_t::MAX));
        match translate::read_at(open, fd, &mut [IoSliceMut::new(&mut bytes[filled..])], at) {
            Ok(read) if read > 0 => filled += read.cast_unsigned(),
            Ok(_) => break,
            Err(errno) => {
                // SAFETY: just mapped, and handed to nobody.
                unsafe { libc::munmap(mapped, count) };
                return Err(if errno == libc::EBADF { libc::EACCES } else { errno });
            }
        }
    }
    // SAFETY: the range has just been mapped.
    if access != writable && unsafe { libc::mprotect(mapped, count, access) } != 0 {
        let errno = real::errno();
        // SAFETY: as above.
        unsafe { libc::munmap(mapped, count) };
        return Err(errno);
    }
    Ok(mapped)
}

/// The kernel would map the stub.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    count: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0
        && let Some(open) = table::find(fd)
    {
        // SAFETY: as the caller promises.
        return reply(|| unsafe { map_copy(&open, address, count, access, flags, fd, offset) });
    }
    // SAFETY: as the caller promises.
    let mapped = unsafe { real::mmap64(address, count, access, flags, fd, offset) };
    if inside::is_inside() && count >= CACHE_BYTES_MIN && mapped != libc::MAP_FAILED {
        // The client's cache means nothing to a forked child, and would be copied page by page.
        // SAFETY: the range has just been mapped.
        unsafe { libc::madvise(mapped, count, libc::MADV_DONTFORK) };
    }
    mapped
}

same! {
    sendfile = sendfile64(to: c_int, from: c_int, from_at: *mut off_t, count: size_t) -> ssize_t;
    mmap = mmap64(
        address: *mut c_void, count: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void;
}
