//! Streams: `fopen` and its relatives, and the makers of temporary files.

use super::same;
use crate::stdio;
use libc::{FILE, c_char, c_int};

#[unsafe(no_mangle)]
unsafe extern "C" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    unsafe { stdio::open_stream(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    // SAFETY: as the caller promises.
    unsafe { stdio::reopen_stream(path, mode, stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    unsafe { stdio::open_table(path, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    unsafe { stdio::stream_on(fd, mode) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fileno(stream: *mut FILE) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stdio::descriptor_of(stream) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stdio::open_temporary(template, suffix, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stdio::open_temporary(template, 0, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkstemps64(template: *mut c_char, suffix: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stdio::open_temporary(template, suffix, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkstemp64(template: *mut c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { stdio::open_temporary(template, 0, 0) }
}

same! {
    __setmntent = setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fopen = fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    _IO_fdopen = fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    fopen = fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    freopen = freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fileno_unlocked = fileno(stream: *mut FILE) -> c_int;
    mkostemps = mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    mkostemp = mkostemp64(template: *mut c_char, flags: c_int) -> c_int;
    mkstemps = mkstemps64(template: *mut c_char, suffix: c_int) -> c_int;
    mkstemp = mkstemp64(template: *mut c_char) -> c_int;
}
