//! `syscall`: programs that name a system call by its number, for want of a function or out of habit.

use crate::inside;
use crate::real;
use libc::{c_int, c_long, c_uint, c_void, iovec, mode_t, off_t};
use std::ffi::c_char;

/// Arguments of a system call, in order.
type Arguments = [usize; 6];

/// The argument as a C `int`: its lower half, as the kernel takes it.
fn int(value: usize) -> c_int {
    (value & 0xffff_ffff) as u32 as c_int
}

/// The argument as a C `unsigned`.
fn unsigned(value: usize) -> c_uint {
    (value & 0xffff_ffff) as u32
}

fn text(value: usize) -> *const c_char {
    value as *const c_char
}

/// Numbers of calls that may concern a file go the way of the function of that name; others are made as they are.
///
/// The arguments are variadic in C; on this kind of machine they arrive as those of a plain function do.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    if !inside::is_inside() {
        let arguments = [a, b, c, d, e, f];
        // SAFETY: as the caller promises.
        let routed = unsafe {
            bytes(number, &arguments)
                .or_else(|| names(number, &arguments))
                .or_else(|| descriptors(number, &arguments))
        };
        if let Some(answer) = routed {
            return answer;
        }
    }
    // SAFETY: as the caller promises.
    unsafe { real::syscall(number, a, b, c, d, e, f) }
}

/// Calls that move bytes, offsets and sizes.
///
/// # Safety
/// As the system call.
unsafe fn bytes(number: c_long, [a, b, c, d, e, f]: &Arguments) -> Option<c_long> {
    let (a, b, c, d, e, f) = (*a, *b, *c, *d, *e, *f);
    let (to, list) = (b as *mut c_void, b as *const iovec);
    let (at, next) = (d as off_t, c as off_t);
    // SAFETY: as the caller promises.
    Some(unsafe {
        match number {
            libc::SYS_read => libc::read(int(a), to, c) as c_long,
            libc::SYS_write => libc::write(int(a), to, c) as c_long,
            libc::SYS_pread64 => libc::pread64(int(a), to, c, at) as c_long,
            libc::SYS_pwrite64 => libc::pwrite64(int(a), to, c, at) as c_long,
            libc::SYS_readv => libc::readv(int(a), list, int(c)) as c_long,
            libc::SYS_writev => libc::writev(int(a), list, int(c)) as c_long,
            // The kernel takes the offset in two halves, of which the first is the whole on this kind of machine.
            libc::SYS_preadv => libc::preadv64(int(a), list, int(c), at) as c_long,
            libc::SYS_pwritev => libc::pwritev64(int(a), list, int(c), at) as c_long,
            libc::SYS_preadv2 => libc::preadv64v2(int(a), list, int(c), at, int(f)) as c_long,
            libc::SYS_pwritev2 => libc::pwritev64v2(int(a), list, int(c), at, int(f)) as c_long,
            libc::SYS_lseek => libc::lseek64(int(a), b as off_t, int(c)),
            libc::SYS_ftruncate => c_long::from(libc::ftruncate64(int(a), b as off_t)),
            libc::SYS_truncate => c_long::from(libc::truncate64(text(a), b as off_t)),
            libc::SYS_fallocate => c_long::from(libc::fallocate64(int(a), int(b), next, at)),
            libc::SYS_fsync => c_long::from(libc::fsync(int(a))),
            libc::SYS_fdatasync => c_long::from(libc::fdatasync(int(a))),
            libc::SYS_syncfs => c_long::from(libc::syncfs(int(a))),
            libc::SYS_sync_file_range => {
                c_long::from(libc::sync_file_range(int(a), b as off_t, next, unsigned(d)))
            }
            libc::SYS_copy_file_range => {
                libc::copy_file_range(int(a), b as *mut off_t, int(c), d as *mut off_t, e, unsigned(f))
                    as c_long
            }
            libc::SYS_splice => {
                libc::splice(int(a), b as *mut off_t, int(c), d as *mut off_t, e, unsigned(f)) as c_long
            }
            libc::SYS_sendfile => libc::sendfile64(int(a), int(b), c as *mut off_t, d) as c_long,
            libc::SYS_mmap => libc::mmap64(a as *mut c_void, b, int(c), int(d), int(e), f as off_t) as c_long,
            _ => return None,
        }
    })
}

/// Calls that name files.
///
/// # Safety
/// As the system call.
unsafe fn names(number: c_long, [a, b, c, d, e, _]: &Arguments) -> Option<c_long> {
    let (a, b, c, d, e) = (*a, *b, *c, *d, *e);
    let mode = |value: usize| unsigned(value) as mode_t;
    // SAFETY: as the caller promises.
    Some(c_long::from(unsafe {
        match number {
            libc::SYS_openat => libc::openat64(int(a), text(b), int(c), mode(d)),
            libc::SYS_openat2 => return open_how(int(a), text(b), c, d),
            libc::SYS_statx => libc::statx(int(a), text(b), int(c), unsigned(d), e as *mut libc::statx),
            libc::SYS_newfstatat => libc::fstatat64(int(a), text(b), c as *mut libc::stat64, int(d)),
            libc::SYS_fstat => libc::fstat64(int(a), b as *mut libc::stat64),
            libc::SYS_statfs => libc::statfs64(text(a), b as *mut libc::statfs64),
            libc::SYS_fstatfs => libc::fstatfs64(int(a), b as *mut libc::statfs64),
            libc::SYS_unlinkat => libc::unlinkat(int(a), text(b), int(c)),
            libc::SYS_renameat2 => libc::renameat2(int(a), text(b), int(c), text(d), unsigned(e)),
            libc::SYS_linkat => libc::linkat(int(a), text(b), int(c), text(d), int(e)),
            libc::SYS_mknodat => libc::mknodat(int(a), text(b), mode(c), d as libc::dev_t),
            libc::SYS_utimensat => libc::utimensat(int(a), text(b), c as *const libc::timespec, int(d)),
            libc::SYS_chdir => libc::chdir(text(a)),
            libc::SYS_fchdir => libc::fchdir(int(a)),
            libc::SYS_chroot => libc::chroot(text(a)),
            libc::SYS_fchmodat => libc::fchmodat(int(a), text(b), mode(c), 0),
            libc::SYS_fchownat => libc::fchownat(int(a), text(b), unsigned(c), unsigned(d), int(e)),
            libc::SYS_inotify_add_watch => libc::inotify_add_watch(int(a), text(b), unsigned(c)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => libc::open64(text(a), int(b), mode(c)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => libc::creat64(text(a), mode(b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_stat => libc::stat64(text(a), b as *mut libc::stat64),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_lstat => libc::lstat64(text(a), b as *mut libc::stat64),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_unlink => libc::unlink(text(a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => libc::rename(text(a), text(b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => libc::link(text(a), text(b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_chmod => libc::chmod(text(a), mode(b)),
            _ => return None,
        }
    }))
}

/// `openat2`, for which this C library has no function. Whatever limits the steps of the path is for the kernel, which
/// opens a file of ours only to look; other files are its own.
///
/// # Safety
/// As the system call.
unsafe fn open_how(at: c_int, path: *const c_char, how: usize, size: usize) -> Option<c_long> {
    // SAFETY: as the caller promises.
    let wanted = unsafe { (how as *const libc::open_how).as_ref() }?;
    if size < size_of::<libc::open_how>() {
        return None;
    }
    // SAFETY: as the caller promises.
    let name = unsafe { crate::strings::path(path) }?;
    if !crate::open::concerns(at, name) {
        return None;
    }
    if wanted.resolve != 0 {
        real::set_errno(libc::ENOSYS); // As a kernel without the call: the program opens in another way.
        return Some(-1);
    }
    let flags = c_int::try_from(wanted.flags).ok()?;
    let mode = mode_t::try_from(wanted.mode).ok()?;
    Some(c_long::from(crate::open::open_at(at, name, flags, mode)))
}

/// Calls about descriptors and processes.
///
/// # Safety
/// As the system call.
unsafe fn descriptors(number: c_long, [a, b, c, d, e, _]: &Arguments) -> Option<c_long> {
    let (a, b, c, d, e) = (*a, *b, *c, *d, *e);
    let strings = |value: usize| value as *const *const c_char;
    // SAFETY: as the caller promises.
    Some(c_long::from(unsafe {
        match number {
            libc::SYS_close => libc::close(int(a)),
            libc::SYS_close_range => libc::close_range(unsigned(a), unsigned(b), int(c)),
            libc::SYS_dup => libc::dup(int(a)),
            libc::SYS_dup3 => libc::dup3(int(a), int(b), int(c)),
            libc::SYS_fcntl => libc::fcntl(int(a), int(b), c),
            libc::SYS_ioctl => libc::ioctl(int(a), b as libc::c_ulong, c),
            libc::SYS_fchmod => libc::fchmod(int(a), unsigned(b)),
            libc::SYS_fchown => libc::fchown(int(a), unsigned(b), unsigned(c)),
            libc::SYS_execve => libc::execve(text(a), strings(b), strings(c)),
            libc::SYS_execveat => super::process::execveat(int(a), text(b), strings(c), strings(d), int(e)),
            libc::SYS_exit_group => libc::_exit(int(a)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => libc::dup2(int(a), int(b)),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => libc::fork(),
            _ => return None,
        }
    }))
}
