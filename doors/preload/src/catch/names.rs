//! `unlink`, `rename`, `link` and the working directory.

use super::stat::{identity, named_by_descriptor, note_path, settle_path};
use crate::open::may_be_stub;
use crate::paths::Place;
use crate::reply::{Errno, reply};
use crate::session::{self, failed};
use crate::table::OpenRef;
use crate::{inside, paths, real, strings, table};
use ccpfs_client::OpenOptions;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_uint, dev_t, mode_t};
use std::ffi::CStr;

/// Whether the client removes a name: it removes any, and what is not known to be in the namespace is looked at first.
fn is_removed_by_client(at: c_int, path: &CStr) -> bool {
    (session::started().is_some() && paths::is_ours(at, path)) || is_stub(at, path)
}

/// Whether the file at a path (not what a symbolic link there leads to) looks like a stub.
fn is_stub(at: c_int, path: &CStr) -> bool {
    identity(at, path).is_some_and(|found| may_be_stub(&found))
}

fn unlink_stub(at: c_int, path: &CStr) -> Result<c_int, Errno> {
    let place = Place::of(at, path)?;
    session::client()?.unlink_at(place.folder(), place.name()).map_err(|e| failed(&e))?;
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int {
    if flags & libc::AT_REMOVEDIR == 0
        && !inside::is_inside()
        // SAFETY: as the caller promises.
        && let Some(name) = unsafe { strings::path(path) }
        && is_removed_by_client(at, name)
    {
        return reply(|| unlink_stub(at, name));
    }
    // SAFETY: as the caller promises.
    let answer = unsafe { real::unlinkat(at, path, flags) };
    // SAFETY: as the caller promises.
    if answer != 0 && flags & libc::AT_REMOVEDIR != 0 && unsafe { is_left_with_layout(at, path) } {
        // SAFETY: as the caller promises.
        return reply(|| remove_folder(at, unsafe { CStr::from_ptr(path) }));
    }
    answer
}

/// Whether a directory that could not be removed is one of ours, which may hold nothing but its layout.
///
/// # Safety
/// `path` is null or a string.
unsafe fn is_left_with_layout(at: c_int, path: *const c_char) -> bool {
    let errno = real::errno();
    let full = matches!(errno, libc::ENOTEMPTY | libc::EEXIST) && !path.is_null() && !inside::is_inside();
    // SAFETY: as the caller promises.
    let ours = full && paths::is_ours(at, unsafe { CStr::from_ptr(path) });
    real::set_errno(errno);
    ours
}

fn remove_folder(at: c_int, path: &CStr) -> Result<c_int, Errno> {
    let place = Place::of(at, path)?;
    session::client()?.rmdir_at(place.folder(), place.name()).map_err(|e| failed(&e))?;
    Ok(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { unlinkat(AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    if !inside::is_inside()
        // SAFETY: as the caller promises.
        && let Some(name) = unsafe { strings::path(path) }
        && is_stub(AT_FDCWD, name)
    {
        // SAFETY: as the caller promises.
        return unsafe { unlink(path) };
    }
    // SAFETY: as the caller promises.
    let answer = unsafe { real::remove(path) };
    // SAFETY: as the caller promises.
    if answer != 0 && unsafe { is_left_with_layout(AT_FDCWD, path) } {
        // SAFETY: as the caller promises.
        return unsafe { rmdir(path) };
    }
    answer
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

/// Both paths of a call; `None` when one of them cannot be read.
///
/// # Safety
/// As [`strings::path`].
unsafe fn two_paths<'a>(from: *const c_char, to: *const c_char) -> Option<(&'a CStr, &'a CStr)> {
    // SAFETY: as the caller promises.
    unsafe { Some((strings::path(from)?, strings::path(to)?)) }
}

/// `rename` without flags.
///
/// # Safety
/// As `renameat`.
unsafe fn rename_at(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    let plain = || unsafe { real::renameat(from_at, from, to_at, to) };
    if inside::is_inside() {
        return plain();
    }
    // SAFETY: as the caller promises.
    let Some((old, new)) = (unsafe { two_paths(from, to) }) else { return plain() };
    match kind_of_move(from_at, old, to_at, new) {
        Move::Plain => plain(),
        Move::AcrossBorder => {
            real::set_errno(libc::EXDEV);
            -1
        }
        Move::Stub => reply(|| {
            let (old, new) = (Place::of(from_at, old)?, Place::of(to_at, new)?);
            let renamed = session::client()?.rename_at(old.folder(), old.name(), new.folder(), new.name(), 0);
            renamed.map_err(|e| failed(&e)).map(|()| 0)
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
    unsafe {
        settle_path(from_at, from, AT_SYMLINK_NOFOLLOW);
        if flags & libc::RENAME_EXCHANGE != 0 {
            settle_path(to_at, to, AT_SYMLINK_NOFOLLOW);
        }
        let answer = real::renameat2(from_at, from, to_at, to, flags);
        note_path(to_at, to, AT_SYMLINK_NOFOLLOW);
        if flags & libc::RENAME_EXCHANGE != 0 {
            note_path(from_at, from, AT_SYMLINK_NOFOLLOW);
        }
        answer
    }
}

/// Whether a name would enter or leave the namespace; sets `errno` then.
fn crosses_border(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> bool {
    if inside::is_inside() {
        return false;
    }
    // SAFETY: the callers pass strings of the program.
    let Some((old, new)) = (unsafe { two_paths(from, to) }) else { return false };
    let crosses = matches!(kind_of_move(from_at, old, to_at, new), Move::AcrossBorder);
    if crosses {
        real::set_errno(libc::EXDEV);
    }
    crosses
}

/// The file without a name that a descriptor names, if this process has it open.
///
/// # Safety
/// `path` is null or a string.
unsafe fn unnamed(at: c_int, path: *const c_char, flags: c_int) -> Option<(c_int, OpenRef)> {
    // SAFETY: as the caller promises.
    let found = named_by_descriptor(at, unsafe { strings::path(path) }?, flags)?;
    if found.st_nlink == 0 { table::find_stub(found.st_dev, found.st_ino) } else { None }
}

/// Whether a stub that is named by its descriptor would get a name outside the namespace.
///
/// # Safety
/// As `linkat`.
unsafe fn links_out(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> bool {
    if inside::is_inside() {
        return false;
    }
    // SAFETY: as the caller promises.
    let Some((old, new)) = (unsafe { two_paths(from, to) }) else { return false };
    named_by_descriptor(from_at, old, flags).is_some_and(|found| may_be_stub(&found))
        && !paths::is_ours(to_at, new)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_at: c_int,
    from: *const c_char,
    to_at: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // A name of a descriptor leads to a file wherever the file is; the kernel says when that is another file system.
    let by_descriptor = flags & (libc::AT_SYMLINK_FOLLOW | libc::AT_EMPTY_PATH) != 0;
    if !by_descriptor && crosses_border(from_at, from, to_at, to) {
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe {
        if by_descriptor && links_out(from_at, from, to_at, to, flags) {
            real::set_errno(libc::EXDEV);
            return -1;
        }
        if by_descriptor
            && !inside::is_inside()
            && let Some((fd, open)) = unnamed(from_at, from, flags)
            && let Some(name) = strings::path(to)
        {
            return reply(|| {
                let file = open.file(fd)?;
                let place = Place::of(to_at, name)?;
                let linked = session::client()?.link_temporary(file, place.folder(), place.name());
                linked.map_err(|e| failed(&e)).map(|()| 0)
            });
        }
        let follow = if flags & libc::AT_SYMLINK_FOLLOW != 0 { 0 } else { AT_SYMLINK_NOFOLLOW };
        settle_path(from_at, from, follow | (flags & libc::AT_EMPTY_PATH));
        let answer = real::linkat(from_at, from, to_at, to, flags);
        note_path(from_at, from, follow | (flags & libc::AT_EMPTY_PATH));
        answer
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// A regular file that is made in the namespace is a ccPFS file.
#[unsafe(no_mangle)]
unsafe extern "C" fn mknodat(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    let is_file = matches!(mode & libc::S_IFMT, 0 | libc::S_IFREG);
    // SAFETY: as the caller promises.
    let name = unsafe { strings::path(path) }.unwrap_or_default();
    if is_file && !inside::is_inside() && paths::is_ours(at, name) {
        return reply(|| {
            let mode = (mode & 0o7777) | libc::S_IFREG;
            let options = OpenOptions { mode, exclusive: true, ..OpenOptions::default() };
            let place = Place::of(at, name)?;
            let created = session::client()?.create_at(place.folder(), place.name(), &options);
            created.map_err(|e| failed(&e)).map(|_| 0)
        });
    }
    // SAFETY: as the caller promises.
    unsafe { real::mknodat(at, path, mode, device) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { mknodat(AT_FDCWD, path, mode, device) }
}

/// What programs built against older C libraries call.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknod(
    _version: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { mknodat(AT_FDCWD, path, mode, *device) }
}

/// What programs built against older C libraries call.
#[unsafe(no_mangle)]
unsafe extern "C" fn __xmknodat(
    _version: c_int,
    at: c_int,
    path: *const c_char,
    mode: mode_t,
    device: *const dev_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { mknodat(at, path, mode, *device) }
}

/// Names begin elsewhere from now on, so where the namespace is changes with them.
#[unsafe(no_mangle)]
unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let root = strings::path(path).and_then(paths::resolved);
        let answer = real::chroot(path);
        if answer == 0 {
            session::root_changed(&root.unwrap_or_default());
            paths::forget_working_directory();
        }
        answer
    }
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
