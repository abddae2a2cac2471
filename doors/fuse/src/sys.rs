//! System calls on descriptors of the namespace, with errno as the error.

use crate::exchange::Errno;
use libc::c_int;
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The errno that the last system call left.
pub(crate) fn errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// The errno of a result of a system call.
pub(crate) fn checked(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(errno()) } else { Ok(result) }
}

fn checked_length(result: isize) -> Result<usize, Errno> {
    usize::try_from(result).map_err(|_| errno())
}

/// A path to whatever a descriptor is open on, also one that is open as a path only.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("digits hold no zero byte")
}

/// Opens a name of a directory.
pub(crate) fn open_at(
    directory: BorrowedFd<'_>,
    name: &CStr,
    flags: c_int,
    mode: u32,
) -> Result<OwnedFd, Errno> {
    // SAFETY: an open directory and a string.
    let fd = checked(unsafe {
        libc::openat(directory.as_raw_fd(), name.as_ptr(), flags | libc::O_CLOEXEC, mode as libc::c_uint)
    })?;
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Opens what a descriptor is open on once more.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: a string of ours.
    let fd = checked(unsafe { libc::open(path_of(fd).as_ptr(), flags | libc::O_CLOEXEC) })?;
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attributes of what a descriptor is open on.
pub(crate) fn stat(fd: BorrowedFd<'_>) -> Result<libc::stat, Errno> {
    stat_at(fd, c"", libc::AT_EMPTY_PATH)
}

/// Attributes of a name in a directory; links are not followed.
pub(crate) fn stat_at(fd: BorrowedFd<'_>, name: &CStr, flags: c_int) -> Result<libc::stat, Errno> {
    // SAFETY: all zeros is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let flags = flags | libc::AT_SYMLINK_NOFOLLOW;
    // SAFETY: an open descriptor, a string, and our own structure.
    checked(unsafe { libc::fstatat(fd.as_raw_fd(), name.as_ptr(), &raw mut found, flags) })?;
    Ok(found)
}

/// The device that a descriptor's file is on, as far as it is known without asking anybody.
pub(crate) fn device(fd: BorrowedFd<'_>) -> Option<u64> {
    // SAFETY: all zeros is a valid statx.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (name, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC);
    // SAFETY: an open descriptor, an empty name, and our own structure.
    let done = unsafe { libc::statx(fd.as_raw_fd(), name, flags, 0, &raw mut found) };
    (done == 0).then(|| libc::makedev(found.stx_dev_major, found.stx_dev_minor))
}

/// When what a descriptor is open on came into being: seconds and nanoseconds, if its file system knows.
pub(crate) fn born(fd: BorrowedFd<'_>) -> Option<(i64, u32)> {
    // SAFETY: all zeros is a valid statx.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    let (name, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: an open descriptor, an empty name, and our own structure.
    let done = unsafe { libc::statx(fd.as_raw_fd(), name, flags, libc::STATX_BTIME, &raw mut found) };
    let known = done == 0 && found.stx_mask & libc::STATX_BTIME != 0;
    known.then_some((found.stx_btime.tv_sec, found.stx_btime.tv_nsec))
}

/// Space of the file system that a descriptor is on.
pub(crate) fn stat_fs(fd: BorrowedFd<'_>) -> Result<libc::statvfs, Errno> {
    // SAFETY: all zeros is a valid statvfs.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: an open descriptor and our own structure.
    checked(unsafe { libc::fstatvfs(fd.as_raw_fd(), &raw mut found) })?;
    Ok(found)
}

/// Makes a directory.
pub(crate) fn make_directory(directory: BorrowedFd<'_>, name: &CStr, mode: u32) -> Result<(), Errno> {
    // SAFETY: an open directory and a string.
    checked(unsafe { libc::mkdirat(directory.as_raw_fd(), name.as_ptr(), mode) }).map(drop)
}

/// Makes a special file.
pub(crate) fn make_node(
    directory: BorrowedFd<'_>,
    name: &CStr,
    mode: u32,
    device: libc::dev_t,
) -> Result<(), Errno> {
    // SAFETY: an open directory and a string.
    checked(unsafe { libc::mknodat(directory.as_raw_fd(), name.as_ptr(), mode, device) }).map(drop)
}

/// Makes a symbolic link.
pub(crate) fn make_link(directory: BorrowedFd<'_>, name: &CStr, target: &CStr) -> Result<(), Errno> {
    // SAFETY: an open directory and two strings.
    checked(unsafe { libc::symlinkat(target.as_ptr(), directory.as_raw_fd(), name.as_ptr()) }).map(drop)
}

/// Reads where a symbolic link leads.
pub(crate) fn read_link(link: BorrowedFd<'_>, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: an open link, an empty name, and a buffer of the length that is given.
    let length =
        unsafe { libc::readlinkat(link.as_raw_fd(), c"".as_ptr(), to.as_mut_ptr().cast(), to.len()) };
    checked_length(length)
}

/// Gives what a descriptor is open on another name.
pub(crate) fn link(from: BorrowedFd<'_>, directory: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let path = path_of(from);
    let (at, to, follow) = (libc::AT_FDCWD, directory.as_raw_fd(), libc::AT_SYMLINK_FOLLOW);
    // SAFETY: two strings and an open directory. What is followed is the link in /proc, not one of the namespace.
    checked(unsafe { libc::linkat(at, path.as_ptr(), to, name.as_ptr(), follow) }).map(drop)
}

/// Sets permissions. Symbolic links have none.
pub(crate) fn change_mode(fd: BorrowedFd<'_>, mode: u32) -> Result<(), Errno> {
    // SAFETY: a string of ours.
    checked(unsafe { libc::chmod(path_of(fd).as_ptr(), mode) }).map(drop)
}

/// Sets the owners; `u32::MAX` leaves one as it is.
pub(crate) fn change_owner(fd: BorrowedFd<'_>, user: u32, group: u32) -> Result<(), Errno> {
    // SAFETY: an open descriptor and an empty name.
    checked(unsafe { libc::fchownat(fd.as_raw_fd(), c"".as_ptr(), user, group, libc::AT_EMPTY_PATH) })
        .map(drop)
}

/// Waits until a descriptor's file, or only its data, is on its device.
pub(crate) fn sync(fd: BorrowedFd<'_>, data_only: bool) -> Result<(), Errno> {
    let fd = fd.as_raw_fd();
    // SAFETY: an open descriptor.
    checked(unsafe { if data_only { libc::fdatasync(fd) } else { libc::fsync(fd) } }).map(drop)
}

/// Waits until the whole file system of a descriptor is on its device.
pub(crate) fn sync_file_system(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: an open descriptor.
    checked(unsafe { libc::syncfs(fd.as_raw_fd()) }).map(drop)
}

/// `pread`.
pub(crate) fn read_at(fd: BorrowedFd<'_>, to: &mut [u8], offset: i64) -> Result<usize, Errno> {
    // SAFETY: an open descriptor and a buffer of the length that is given.
    checked_length(unsafe { libc::pread(fd.as_raw_fd(), to.as_mut_ptr().cast(), to.len(), offset) })
}

/// `pwrite`.
pub(crate) fn write_at(fd: BorrowedFd<'_>, from: &[u8], offset: i64) -> Result<usize, Errno> {
    // SAFETY: an open descriptor and a buffer of the length that is given.
    checked_length(unsafe { libc::pwrite(fd.as_raw_fd(), from.as_ptr().cast(), from.len(), offset) })
}

/// `ftruncate`.
pub(crate) fn truncate(fd: BorrowedFd<'_>, size: i64) -> Result<(), Errno> {
    // SAFETY: an open descriptor.
    checked(unsafe { libc::ftruncate(fd.as_raw_fd(), size) }).map(drop)
}

/// `fallocate`.
pub(crate) fn allocate(fd: BorrowedFd<'_>, mode: c_int, offset: i64, length: i64) -> Result<(), Errno> {
    // SAFETY: an open descriptor.
    checked(unsafe { libc::fallocate(fd.as_raw_fd(), mode, offset, length) }).map(drop)
}

/// `lseek`.
pub(crate) fn seek(fd: BorrowedFd<'_>, offset: i64, whence: c_int) -> Result<i64, Errno> {
    // SAFETY: an open descriptor.
    let position = unsafe { libc::lseek(fd.as_raw_fd(), offset, whence) };
    if position < 0 { Err(errno()) } else { Ok(position) }
}

/// The next entries of a directory, as the kernel packs them; 0 at its end.
pub(crate) fn entries(directory: BorrowedFd<'_>, to: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: an open directory and a buffer of the length that is given.
    let length =
        unsafe { libc::syscall(libc::SYS_getdents64, directory.as_raw_fd(), to.as_mut_ptr(), to.len()) };
    checked_length(length as isize)
}

/// `getxattr` on whatever the descriptor is open on; an empty buffer asks for the size.
pub(crate) fn get_xattr(fd: BorrowedFd<'_>, name: &CStr, to: &mut [u8]) -> Result<usize, Errno> {
    let path = path_of(fd);
    // SAFETY: two strings and a buffer of the length that is given.
    checked_length(unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), to.as_mut_ptr().cast(), to.len()) })
}

/// `listxattr`, as [`get_xattr`].
pub(crate) fn list_xattr(fd: BorrowedFd<'_>, to: &mut [u8]) -> Result<usize, Errno> {
    let path = path_of(fd);
    // SAFETY: a string and a buffer of the length that is given.
    checked_length(unsafe { libc::listxattr(path.as_ptr(), to.as_mut_ptr().cast(), to.len()) })
}

/// `setxattr`.
pub(crate) fn set_xattr(fd: BorrowedFd<'_>, name: &CStr, value: &[u8], flags: c_int) -> Result<(), Errno> {
    let path = path_of(fd);
    // SAFETY: two strings and a buffer of the length that is given.
    checked(unsafe {
        libc::setxattr(path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), flags)
    })
    .map(drop)
}

/// `removexattr`.
pub(crate) fn remove_xattr(fd: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    // SAFETY: two strings.
    checked(unsafe { libc::removexattr(path_of(fd).as_ptr(), name.as_ptr()) }).map(drop)
}

/// Whether this process is the machine's administrator.
pub(crate) fn is_root() -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::geteuid() == 0 }
}

/// Raises the number of descriptors as far as it goes: the kernel's cached inodes take one each.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: our own structure.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let most = std::fs::read_to_string("/proc/sys/fs/nr_open").ok().and_then(|text| text.trim().parse().ok());
    if is_root()
        && let Some(most) = most
    {
        let wanted = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: our own structure. If it is refused the limit stays what it is.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) } == 0 {
            return;
        }
    }
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
}

/// How many descriptors this process may have.
pub(crate) fn descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: our own structure.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0;
    if known { usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX) } else { 1024 }
}
