//! File systems as a whole, and those who want to be told of changes.

use super::same;
use super::stat::identity_followed;
use crate::open::may_be_stub;
use crate::{inside, paths, real, strings, table};
use libc::{AT_FDCWD, c_char, c_int, c_uint, statfs64 as Answer};

/// What mounted ccPFS says it is: a file system in user space. Programs that ask want to know whether the kernel tells
/// them of changes by others, and whether its blocks can be cloned.
const KIND: i64 = 0x6573_5546;

/// Whether a path leads to a file of ours, or to a directory that has such.
///
/// # Safety
/// `path` is null or a string.
unsafe fn leads_to_ours(at: c_int, path: *const c_char) -> bool {
    if inside::is_inside() {
        return false;
    }
    // SAFETY: as the caller promises.
    let Some(name) = (unsafe { strings::path(path) }) else { return false };
    let Some(found) = identity_followed(at, name) else { return false };
    may_be_stub(&found) || (found.st_mode & libc::S_IFMT == libc::S_IFDIR && paths::is_ours(at, name))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn statfs64(path: *const c_char, to: *mut Answer) -> c_int {
    // SAFETY: as the caller promises; the kernel fills the structure when it answers 0.
    unsafe {
        let answer = real::statfs64(path, to);
        if answer == 0 && leads_to_ours(AT_FDCWD, path) {
            (*to).f_type = KIND;
        }
        answer
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fstatfs64(fd: c_int, to: *mut Answer) -> c_int {
    // SAFETY: as the caller promises; the kernel fills the structure when it answers 0.
    unsafe {
        let answer = real::fstatfs64(fd, to);
        if answer == 0 && (table::find(fd).is_some() || leads_to_ours(fd, c".".as_ptr())) {
            (*to).f_type = KIND;
        }
        answer
    }
}

/// Events about contents. The kernel sees the stub, whose contents nobody reads or writes.
const CONTENT_EVENTS: u32 = libc::IN_ACCESS | libc::IN_MODIFY | libc::IN_CLOSE_WRITE;

/// Whoever wants to be told of changed contents is refused; names and attributes are the kernel's to tell.
#[unsafe(no_mangle)]
unsafe extern "C" fn inotify_add_watch(watcher: c_int, path: *const c_char, mask: u32) -> c_int {
    // SAFETY: as the caller promises.
    if mask & CONTENT_EVENTS != 0 && unsafe { leads_to_ours(AT_FDCWD, path) } {
        real::set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { real::inotify_add_watch(watcher, path, mask) }
}

/// As [`inotify_add_watch`]; also refuses to be asked for permission, because reads and writes do not ask.
#[unsafe(no_mangle)]
unsafe extern "C" fn fanotify_mark(
    watcher: c_int,
    flags: c_uint,
    mask: u64,
    at: c_int,
    path: *const c_char,
) -> c_int {
    let contents = libc::FAN_ACCESS | libc::FAN_MODIFY | libc::FAN_CLOSE_WRITE | libc::FAN_ACCESS_PERM;
    let adds = flags & libc::FAN_MARK_ADD != 0;
    // SAFETY: as the caller promises.
    if adds && mask & contents != 0 && unsafe { leads_to_ours(at, path) } {
        real::set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    // SAFETY: as the caller promises.
    unsafe { real::fanotify_mark(watcher, flags, mask, at, path) }
}

same! {
    statfs = statfs64(path: *const c_char, to: *mut Answer) -> c_int;
    fstatfs = fstatfs64(fd: c_int, to: *mut Answer) -> c_int;
    __statfs = statfs64(path: *const c_char, to: *mut Answer) -> c_int;
}
