//! Data that the kernel would move by itself, and memory that it would fill.

use super::same;
use crate::copy::{End, copy};
use crate::reply::reply;
use crate::{inside, real, table};
use libc::{c_int, c_uint, c_void, off_t, size_t, ssize_t};

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
    unsafe { copy_by_hand(from, from_at, to, to_at, count) }
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

/// Programs that splice fall back to reading and writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_ours(from, to) {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { real::splice(from, from_at, to, to_at, count, flags) }
}

/// A file cannot be mapped: the kernel would map the stub.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    address: *mut c_void,
    count: size_t,
    access: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && table::find(fd).is_some() {
        real::set_errno(libc::ENODEV);
        return libc::MAP_FAILED;
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
