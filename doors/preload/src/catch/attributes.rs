//! Modes, owners and extended attributes: they are the stub's. Before they change, the time of the last write is kept in
//! the stub, because the change moves the stub's own times past it; after it, later writes must be later still.

use super::stat::{note_descriptor, note_path, settle_descriptor, settle_path};
use crate::real;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_void, gid_t, mode_t, size_t, uid_t};

/// Functions on a path: the time of the data is settled, then the C library's own is called.
macro_rules! on_paths {
    ($($name:ident($path:ident $(, $argument:ident: $kind:ty)*) $follow:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($path: *const c_char $(, $argument: $kind)*) -> c_int {
            // SAFETY: as the caller promises.
            unsafe {
                settle_path(AT_FDCWD, $path, $follow);
                let answer = real::$name($path $(, $argument)*);
                note_path(AT_FDCWD, $path, $follow);
                answer
            }
        }
    )* };
}

on_paths! {
    chmod(path, mode: mode_t) 0;
    lchmod(path, mode: mode_t) AT_SYMLINK_NOFOLLOW;
    chown(path, owner: uid_t, group: gid_t) 0;
    lchown(path, owner: uid_t, group: gid_t) AT_SYMLINK_NOFOLLOW;
    setxattr(path, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) 0;
    lsetxattr(path, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) AT_SYMLINK_NOFOLLOW;
    removexattr(path, name: *const c_char) 0;
    lremovexattr(path, name: *const c_char) AT_SYMLINK_NOFOLLOW;
}

/// The same on a descriptor.
macro_rules! on_descriptors {
    ($($name:ident($fd:ident $(, $argument:ident: $kind:ty)*);)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($fd: c_int $(, $argument: $kind)*) -> c_int {
            settle_descriptor($fd);
            // SAFETY: as the caller promises.
            let answer = unsafe { real::$name($fd $(, $argument)*) };
            note_descriptor($fd);
            answer
        }
    )* };
}

on_descriptors! {
    fchmod(fd, mode: mode_t);
    fchown(fd, owner: uid_t, group: gid_t);
    fsetxattr(fd, name: *const c_char, value: *const c_void, size: size_t, flags: c_int);
    fremovexattr(fd, name: *const c_char);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        settle_path(at, path, flags);
        let answer = real::fchmodat(at, path, mode, flags);
        note_path(at, path, flags);
        answer
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fchownat(
    at: c_int,
    path: *const c_char,
    owner: uid_t,
    group: gid_t,
    flags: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        settle_path(at, path, flags);
        let answer = real::fchownat(at, path, owner, group, flags);
        note_path(at, path, flags);
        answer
    }
}
