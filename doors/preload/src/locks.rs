//! Record locks of a ccPFS file: the kernel's own, on a hidden writable descriptor of the stub.
//!
//! They exclude the processes of one machine, or of all machines where the file system of the namespace carries record
//! locks; ccPFS adds nothing. The hidden descriptor stays open until the file's last descriptor is closed, because
//! closing any descriptor of a file drops all record locks that the process has on it.

use crate::inside;
use crate::real::{self, checked};
use crate::reply::Errno;
use crate::table::OpenRef;
use crate::translate;
use libc::{c_int, off_t};

/// `fcntl` with one of the lock commands.
///
/// # Errors
/// `EFAULT` without a lock; as the system call.
pub(crate) fn control(open: &OpenRef, fd: c_int, command: c_int, argument: usize) -> Result<c_int, Errno> {
    let lock = argument as *mut libc::flock;
    // SAFETY: the program gives a lock or nothing with these commands.
    let lock = unsafe { lock.as_mut() }.ok_or(libc::EFAULT)?;
    let wanted = c_int::from(lock.l_type);
    if (wanted == libc::F_WRLCK && !open.is_writable()) || (wanted == libc::F_RDLCK && !open.is_readable()) {
        let asks = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
        if !asks {
            return Err(libc::EBADF);
        }
    }
    let mut absolute = *lock;
    absolute.l_start = start_of(open, fd, lock)?;
    absolute.l_whence = 0;
    let hidden = open.lock_fd(fd)?;
    // A signal may end the wait for a lock.
    // SAFETY: the lock is ours.
    checked(inside::outside(|| unsafe { real::fcntl64(hidden, command, &raw mut absolute as usize) }))?;
    if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        if c_int::from(absolute.l_type) == libc::F_UNLCK {
            lock.l_type = absolute.l_type;
        } else {
            *lock = absolute;
        }
    }
    Ok(0)
}

/// Where a lock starts, from the start of the file; the hidden descriptor knows neither the offset nor the size.
fn start_of(open: &OpenRef, fd: c_int, lock: &libc::flock) -> Result<off_t, Errno> {
    let base = match c_int::from(lock.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => translate::seek(open, fd, 0, libc::SEEK_CUR)?,
        libc::SEEK_END => translate::size(open, fd)?,
        _ => return Err(libc::EINVAL),
    };
    base.checked_add(lock.l_start).ok_or(libc::EOVERFLOW)
}

/// `lockf`.
///
/// # Errors
/// `EINVAL` for an unknown command; as the system call.
pub(crate) fn section(open: &OpenRef, fd: c_int, command: c_int, count: off_t) -> Result<c_int, Errno> {
    // SAFETY: all-zero bytes are a value of the plain structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_whence = libc::c_short::try_from(libc::SEEK_CUR).expect("a small constant");
    lock.l_len = count;
    let kind = |kind: c_int| libc::c_short::try_from(kind).expect("a small constant");
    let (how, wanted) = match command {
        libc::F_LOCK => (libc::F_SETLKW, libc::F_WRLCK),
        libc::F_TLOCK => (libc::F_SETLK, libc::F_WRLCK),
        libc::F_ULOCK => (libc::F_SETLK, libc::F_UNLCK),
        libc::F_TEST => (libc::F_GETLK, libc::F_WRLCK),
        _ => return Err(libc::EINVAL),
    };
    lock.l_type = kind(wanted);
    control(open, fd, how, &raw mut lock as usize)?;
    let free = command != libc::F_TEST || c_int::from(lock.l_type) == libc::F_UNLCK;
    if free { Ok(0) } else { Err(libc::EACCES) }
}
