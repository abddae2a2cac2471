//! Strings of the program, read only where they can be read: a system call answers `EFAULT` for a pointer to nowhere, and
//! so does a function that stands for it.

use crate::{inside, real};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// Bytes of a path with its zero byte, at most; the kernel takes no longer one.
const PATH_BYTES_MAX: usize = libc::PATH_MAX as usize;
/// What is readable in one place is readable up to the next multiple of this. Pages may be larger.
const PAGE_BYTES: usize = 4096;

/// A path that the program has passed. `None` when it is null, cannot be read, or is longer than any path: then the kernel
/// says what is wrong with it.
///
/// # Safety
/// The memory, if there is any, stays as it is while the answer lives.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Option<&'a CStr> {
    if text.is_null() {
        return None;
    }
    if inside::is_inside() {
        // SAFETY: the client library passes strings.
        return Some(unsafe { CStr::from_ptr(text) });
    }
    let mut length = 0;
    while length < PATH_BYTES_MAX {
        let at = text.addr().checked_add(length)?;
        if !is_readable(at) {
            return None;
        }
        let part = (PAGE_BYTES - at % PAGE_BYTES).min(PATH_BYTES_MAX - length);
        // SAFETY: it has just been read from, and `part` stays in the page.
        let bytes = unsafe { std::slice::from_raw_parts(text.add(length).cast::<u8>(), part) };
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            // SAFETY: all pages up to the zero byte can be read.
            let whole = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length + end + 1) };
            return CStr::from_bytes_with_nul(whole).ok();
        }
        length += part;
    }
    None
}

/// Whether `count` values of the program can be read.
pub(crate) fn are_readable<T>(values: *const T, count: usize) -> bool {
    let start = values.addr();
    let Some(end) = start.checked_add(count * size_of::<T>()) else { return false };
    (start..end).step_by(PAGE_BYTES).chain(end.checked_sub(1)).all(is_readable)
}

/// Whether the byte at an address can be read. A change of the signal mask in no known way changes nothing, but the
/// kernel reads the new mask, eight bytes, before it looks at the way.
fn is_readable(address: usize) -> bool {
    const NO_KNOWN_WAY: usize = c_int::MAX as usize;
    const MASK_BYTES: usize = 8;
    let mask = address & !(MASK_BYTES - 1);
    if mask == 0 {
        return false; // For the kernel this is no mask; nothing is ever mapped there.
    }
    let saved = real::errno();
    // SAFETY: the kernel looks at the pointer before it is used, and changes nothing.
    unsafe { real::syscall(libc::SYS_rt_sigprocmask, NO_KNOWN_WAY, mask, 0, MASK_BYTES, 0, 0) };
    let readable = real::errno() != libc::EFAULT;
    real::set_errno(saved);
    readable
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    /// Two pages, of which the second cannot be read.
    fn page_before_nothing() -> *mut c_char {
        // SAFETY: new memory, never given back.
        unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let pages = libc::mmap(ptr::null_mut(), 2 * PAGE_BYTES, access, how, -1, 0);
            assert_ne!(pages, libc::MAP_FAILED);
            assert_eq!(libc::mprotect(pages.byte_add(PAGE_BYTES), PAGE_BYTES, libc::PROT_NONE), 0);
            pages.cast()
        }
    }

    fn read(text: *const c_char) -> Option<usize> {
        // SAFETY: nobody changes what the tests pass.
        unsafe { path(text) }.map(CStr::count_bytes)
    }

    #[test]
    fn pointers_to_nowhere_are_no_paths() {
        assert_eq!(read(ptr::null()), None);
        assert_eq!(read(ptr::without_provenance(1)), None);
        assert_eq!(read(ptr::without_provenance(usize::MAX)), None);
        assert_eq!(read(page_before_nothing().wrapping_add(PAGE_BYTES)), None);
    }

    #[test]
    fn a_path_may_end_just_before_memory_that_cannot_be_read_and_not_behind_it() {
        let page = page_before_nothing();
        // SAFETY: the first page can be written.
        unsafe {
            ptr::write_bytes(page, b'a', PAGE_BYTES);
            assert_eq!(read(page.add(PAGE_BYTES - 3)), None);
            page.add(PAGE_BYTES - 1).write(0);
            assert_eq!(read(page.add(PAGE_BYTES - 3)), Some(2));
            assert_eq!(read(page), Some(PAGE_BYTES - 1));
            assert!(are_readable(page, PAGE_BYTES) && !are_readable(page, PAGE_BYTES + 1));
        }
    }

    #[test]
    fn a_path_has_less_than_path_max_bytes() {
        let mut long = vec![b'a'; PATH_BYTES_MAX + 1];
        long.push(0);
        assert_eq!(read(long.as_ptr().cast()), None);
        assert_eq!(read(long[2..].as_ptr().cast()), Some(PATH_BYTES_MAX - 1));
    }
}
