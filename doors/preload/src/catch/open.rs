//! `open` and its relatives.

use super::same;
use crate::inside;
use crate::open::open_at;
use crate::real;
use crate::strings;
use libc::{AT_FDCWD, c_char, c_int, c_uint, mode_t};

/// A path of the program; the kernel answers for one that cannot be read.
///
/// # Safety
/// `path` is null or a string.
unsafe fn open_path(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { strings::path(path) } {
        Some(name) => open_at(at, name, flags, mode),
        // SAFETY: the kernel looks at the pointer itself.
        None => unsafe { real::openat64(at, path, flags, mode) },
    }
}

/// `mode` is variadic in C; on this kind of machine it arrives like a plain argument, and is only looked at with
/// `O_CREAT`.
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { open_path(AT_FDCWD, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { open_path(at, path, flags, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { open_path(AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { open_path(AT_FDCWD, path, flags, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { open_path(at, path, flags, 0) }
}

same! {
    __open = open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __open64 = open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    __pipe = pipe(ends: *mut c_int) -> c_int;
    open = open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat = openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    creat = creat64(path: *const c_char, mode: mode_t) -> c_int;
    __open_2 = __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2 = __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
}

/// A descriptor that is no file: the client library's are put out of the way, the program's are forgotten in the table
/// in case their number was known.
fn sorted(fd: c_int) -> c_int {
    if inside::is_inside() { inside::adopt(fd) } else { crate::open::entered_plain(fd) }
}

/// # Safety
/// `ends` leads to two descriptors when `answer` is 0.
unsafe fn sorted_pair(answer: c_int, ends: *mut c_int) -> c_int {
    if answer == 0 {
        for at in 0..2 {
            // SAFETY: as the caller promises.
            unsafe { ends.add(at).write(sorted(ends.add(at).read())) };
        }
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: plain integers.
    sorted(unsafe { real::socket(domain, kind, protocol) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_create1(flags: c_int) -> c_int {
    // SAFETY: plain integers.
    sorted(unsafe { real::epoll_create1(flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn eventfd(value: c_uint, flags: c_int) -> c_int {
    // SAFETY: plain integers.
    sorted(unsafe { real::eventfd(value, flags) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pipe2(ends: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { sorted_pair(real::pipe2(ends, flags), ends) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pipe(ends: *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { sorted_pair(real::pipe2(ends, 0), ends) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { sorted_pair(real::socketpair(domain, kind, protocol, ends), ends) }
}
