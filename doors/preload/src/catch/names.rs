//! `unlink`, `rename`, `link` and the working directory.

use super::stat::identity;
use crate::open::may_be_stub;
use crate::reply::{Errno, reply};
use crate::session::{self, failed};
use crate::{inside, paths, real};
use libc::{AT_FDCWD, c_char, c_int, c_uint};
use std::ffi::CStr;

/// Whether the file at a path (not what a symbolic link there leads to) looks like a stub.
fn is_stub(at: c_int, path: &CStr) -> bool {
    identity(at, path).is_some_and(|found| may_be_stub(&found))
}

fn unlink_stub(at: c_int, path: &CStr) -> Result<c_int, Errno> {
    let full = paths::absolute_path(at, path)?;
    session::client()?.unlink(&full).map_err(|e| failed(&e))?;
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    if flags & libc::AT_REMOVEDIR == 0 && !inside::is_inside() && !path.is_null() {
        // SAFETY: as the caller promises.
        let name = unsafe { CStr::from_ptr(path) };
        if is_stub(at, name) {
            return reply(|| unlink_stub(at, name));
        }
    }
    // SAFETY: as the caller promises.
    unsafe { real::unlinkat(at, path, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    if !inside::is_inside() && !path.is_null() && is_stub(AT_FDCWD, unsafe { CStr::from_ptr(path) }) {
        // SAFETY: as the caller promises.
        return unsafe { unlink(path) };
    }
    // SAFETY: as the caller promises.
    unsafe { real::remove(path) }
}

/// What a rename or link has to do with ccPFS.
enum Move {
    /// Nothing, or only with names that the directory keeps.
    Plain,
    /// A file would enter or leave the namespace, which only copying can do.
    AcrossBorder,
    /// A stub is moved or replaced.
    Stub,
}

fn kind_of_move(from_at: c_int, from: &CStr, to_at: c_int, to: &CStr) -> Move {
    let Some(source) = identity(from_at, from) else { return Move::Plain };
    if paths::is_ours(from_at, from) != paths::is_ours(to_at, to) {
        return Move::AcrossBorder;
    }
    if may_be_stub(&source) || is_stub(to_at, to) { Move::Stub } else { Move::Plain }
}

/// `rename` without flags.
///
/// # Safety
/// As `renameat`.
unsafe fn rename_at(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let plain = || unsafe { real::renameat(from_at, from, to_at, to) };
    if inside::is_inside() || from.is_null() || to.is_null() {
        return plain();
    }
    // SAFETY: as the caller promises.
    let (old, new) = unsafe { (CStr::from_ptr(from), CStr::from_ptr(to)) };
    match kind_of_move(from_at, old, to_at, new) {
        Move::Plain => plain(),
        Move::AcrossBorder => {
            real::set_errno(libc::EXDEV);
            -1
        }
        Move::Stub => reply(|| {
            let (old, new) = (paths::absolute_path(from_at, old)?, paths::absolute_path(to_at, new)?);
            session::client()?.rename(&old, &new).map_err(|e| failed(&e))?;
            Ok(0)
        }),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { rename_at(AT_FDCWD, from, AT_FDCWD, to) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { rename_at(from_at, from, to_at, to) }
}

/// With flags nothing is replaced (`RENAME_NOREPLACE`, `RENAME_EXCHANGE`), so names are all there is to it.
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    if flags == 0 {
        // SAFETY: as the caller promises.
        return unsafe { rename_at(from_at, from, to_at, to) };
    }
    if crosses_border(from_at, from, to_at, to) {
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { real::renameat2(from_at, from, to_at, to, flags) }
}

/// Whether a name would enter or leave the namespace; sets `errno` then.
fn crosses_border(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> bool {
    if inside::is_inside() || from.is_null() || to.is_null() {
        return false;
    }
    // SAFETY: the callers pass strings of the program.
    let (old, new) = unsafe { (CStr::from_ptr(from), CStr::from_ptr(to)) };
    let crosses = matches!(kind_of_move(from_at, old, to_at, new), Move::AcrossBorder);
    if crosses {
        real::set_errno(libc::EXDEV);
    }
    crosses
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    if crosses_border(from_at, from, to_at, to) {
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { real::linkat(from_at, from, to_at, to, flags) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let answer = unsafe { real::chdir(path) };
    paths::forget_working_directory();
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    // SAFETY: plain integers.
    let answer = unsafe { real::fchdir(fd) };
    paths::forget_working_directory();
    answer
}
