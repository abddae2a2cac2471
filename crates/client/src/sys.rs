//! System calls on names and stubs, made directly: in a process with an interposer the C library's functions would lead back to us.
//!
//! Opening and closing go through the C library on purpose: an interposer keeps a list of the descriptors that are ours.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The directory that names are relative to if nothing else is said.
pub(crate) const WORKING_DIRECTORY: BorrowedFd<'static> =
    // SAFETY: not a descriptor, and not -1: what the kernel takes for the working directory.
    unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };

/// A name in a directory; it may be a path, also an absolute one.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
}

impl<'a> Place<'a> {
    /// For messages.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(std::ffi::OsStr::from_bytes(self.name.to_bytes())).to_owned()
    }

    /// The name without its last component, and the last component. The directory is "." if there is only one.
    pub(crate) fn split(&self) -> (CString, CString) {
        let bytes = self.name.to_bytes();
        let (parent, name) = match bytes.iter().rposition(|byte| *byte == b'/') {
            Some(0) => (&b"/"[..], &bytes[1..]),
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (&b"."[..], bytes),
        };
        let text = |bytes| CString::new(bytes).expect("a part of a string without zero bytes");
        (text(parent), text(name))
    }
}

/// A path as the kernel takes it.
///
/// # Errors
/// EINVAL with a zero byte inside.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The path that leads to what a descriptor has open.
pub(crate) fn path_of_descriptor(fd: BorrowedFd<'_>) -> CString {
    CString::new(format!("/proc/self/fd/{}", fd.as_raw_fd())).expect("no zero byte")
}

fn checked(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `openat`. Always close-on-exec.
pub(crate) fn open(place: Place<'_>, flags: libc::c_int, mode: u32) -> io::Result<File> {
    // Looking at a record is no access to the file. Only its owner, or root, may say so.
    let mut quietly = libc::O_NOATIME;
    loop {
        let flags = flags | quietly | libc::O_CLOEXEC;
        // SAFETY: a valid name and flags; the result is checked.
        let fd: RawFd = unsafe { libc::openat(place.dir.as_raw_fd(), place.name.as_ptr(), flags, mode) };
        if fd >= 0 {
            // SAFETY: just opened, owned by nobody else.
            return Ok(unsafe { File::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() == Some(libc::EPERM) && quietly != 0 {
            quietly = 0;
        } else if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Opens what a descriptor has open once more, with other flags.
pub(crate) fn reopen(fd: BorrowedFd<'_>, flags: libc::c_int) -> io::Result<File> {
    let name = path_of_descriptor(fd);
    open(Place { dir: WORKING_DIRECTORY, name: &name }, flags, 0)
}

/// Opens what a descriptor has open once more for reading, as a program does whose reading is an access to the file.
pub(crate) fn open_loudly(fd: BorrowedFd<'_>) -> io::Result<File> {
    let name = path_of_descriptor(fd);
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: a valid name and flags; the result is checked.
    let fd: RawFd = unsafe { libc::openat(WORKING_DIRECTORY.as_raw_fd(), name.as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// `fstatat`.
pub(crate) fn stat_at(place: Place<'_>, flags: libc::c_int) -> io::Result<libc::stat> {
    // SAFETY: all zeros is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let (fd, name) = (place.dir.as_raw_fd(), place.name.as_ptr());
    // SAFETY: a valid name and our own structure, which is the kernel's on 64-bit systems.
    checked(unsafe { libc::syscall(libc::SYS_newfstatat, fd, name, &raw mut found, flags) })?;
    Ok(found)
}

/// `fstat`; the descriptor may be one for the name only (`O_PATH`).
pub(crate) fn stat(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    stat_at(Place { dir: fd, name: c"" }, libc::AT_EMPTY_PATH)
}

/// Reads from the start of a file until the buffer is full or the file ends.
pub(crate) fn read_start(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        let left = &mut bytes[length..];
        let (to, count) = (left.as_mut_ptr(), left.len());
        // SAFETY: a valid descriptor and a buffer of ours of that length.
        match checked(unsafe { libc::syscall(libc::SYS_pread64, fd.as_raw_fd(), to, count, length) }) {
            // Regular files give less than was asked for only at their end.
            Ok(read) if read < count => return Ok(length + read),
            Ok(read) => length += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(length)
}

/// Writes all bytes at the start of a file.
pub(crate) fn write_start(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let left = &bytes[done..];
        let (from, count) = (left.as_ptr(), left.len());
        // SAFETY: a valid descriptor and a buffer of ours of that length.
        match checked(unsafe { libc::syscall(libc::SYS_pwrite64, fd.as_raw_fd(), from, count, done) }) {
            Ok(0) => return Err(io::Error::from_raw_os_error(libc::EIO)),
            Ok(written) => done += written,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// `linkat`.
pub(crate) fn link(from: Place<'_>, to: Place<'_>, flags: libc::c_int) -> io::Result<()> {
    let (from_fd, from_name) = (from.dir.as_raw_fd(), from.name.as_ptr());
    let (to_fd, to_name) = (to.dir.as_raw_fd(), to.name.as_ptr());
    // SAFETY: two valid names.
    checked(unsafe { libc::syscall(libc::SYS_linkat, from_fd, from_name, to_fd, to_name, flags) }).map(drop)
}

/// Gives an open file without a name one.
pub(crate) fn link_open(fd: BorrowedFd<'_>, to: Place<'_>) -> io::Result<()> {
    let name = path_of_descriptor(fd);
    link(Place { dir: WORKING_DIRECTORY, name: &name }, to, libc::AT_SYMLINK_FOLLOW)
}

/// `unlinkat`.
pub(crate) fn unlink(place: Place<'_>, flags: libc::c_int) -> io::Result<()> {
    let (fd, name) = (place.dir.as_raw_fd(), place.name.as_ptr());
    // SAFETY: a valid name.
    checked(unsafe { libc::syscall(libc::SYS_unlinkat, fd, name, flags) }).map(drop)
}

/// `renameat2`. Without flags the older call, which more file systems have.
pub(crate) fn rename(from: Place<'_>, to: Place<'_>, flags: u32) -> io::Result<()> {
    let (from_fd, from_name) = (from.dir.as_raw_fd(), from.name.as_ptr());
    let (to_fd, to_name) = (to.dir.as_raw_fd(), to.name.as_ptr());
    // SAFETY: two valid names.
    checked(unsafe { libc::syscall(libc::SYS_renameat2, from_fd, from_name, to_fd, to_name, flags) })
        .map(drop)
}

/// `mkdirat`.
pub(crate) fn make_directory(place: Place<'_>, mode: u32) -> io::Result<()> {
    let (fd, name) = (place.dir.as_raw_fd(), place.name.as_ptr());
    // SAFETY: a valid name.
    checked(unsafe { libc::syscall(libc::SYS_mkdirat, fd, name, mode) }).map(drop)
}

/// `readlinkat`.
pub(crate) fn read_link(place: Place<'_>) -> io::Result<CString> {
    let mut target = vec![0_u8; libc::PATH_MAX as usize];
    let (fd, name) = (place.dir.as_raw_fd(), place.name.as_ptr());
    let (to, count) = (target.as_mut_ptr(), target.len());
    // SAFETY: a valid name and a buffer of ours of that length.
    let length = checked(unsafe { libc::syscall(libc::SYS_readlinkat, fd, name, to, count) })?;
    target.truncate(length);
    CString::new(target).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// Whether the effective user may use a file so (`libc::W_OK` and the like).
pub(crate) fn may_access(place: Place<'_>, how: libc::c_int) -> io::Result<()> {
    // SAFETY: a valid name.
    let done = unsafe { libc::faccessat(place.dir.as_raw_fd(), place.name.as_ptr(), how, libc::AT_EACCESS) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `fchmod`.
pub(crate) fn change_mode(fd: BorrowedFd<'_>, mode: u32) -> io::Result<()> {
    // SAFETY: a valid descriptor.
    checked(unsafe { libc::syscall(libc::SYS_fchmod, fd.as_raw_fd(), mode) }).map(drop)
}

/// `fchown`; `u32::MAX` leaves a number as it is.
pub(crate) fn change_owner(fd: BorrowedFd<'_>, user: u32, group: u32) -> io::Result<()> {
    // SAFETY: a valid descriptor.
    checked(unsafe { libc::syscall(libc::SYS_fchown, fd.as_raw_fd(), user, group) }).map(drop)
}

/// `futimens`, also on a descriptor for the name only.
pub(crate) fn set_times(fd: BorrowedFd<'_>, times: &[libc::timespec; 2]) -> io::Result<()> {
    let (number, null) = (fd.as_raw_fd(), std::ptr::null::<libc::c_char>());
    // SAFETY: a valid descriptor, no name (which means the descriptor itself), and two times.
    let done = unsafe { libc::syscall(libc::SYS_utimensat, number, null, times.as_ptr(), 0) };
    match checked(done) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => {
            let name = path_of_descriptor(fd);
            // SAFETY: a valid name and two times.
            let done = unsafe {
                libc::syscall(libc::SYS_utimensat, libc::AT_FDCWD, name.as_ptr(), times.as_ptr(), 0)
            };
            checked(done).map(drop)
        }
        other => other.map(drop),
    }
}

/// Whether a path is on NFS.
pub(crate) fn is_nfs(path: &Path) -> bool {
    let Ok(name) = c_path(path) else { return false };
    // SAFETY: all zeros is a valid structure.
    let mut found: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a valid name and our own structure.
    let done = unsafe { libc::syscall(libc::SYS_statfs, name.as_ptr(), &raw mut found) };
    done == 0 && found.f_type == libc::NFS_SUPER_MAGIC
}

/// Fills `bytes` (at most 256) from the system's random numbers.
pub(crate) fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the buffer is ours and as long as said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(got) == Ok(bytes.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Nanoseconds of a time of the kernel.
pub(crate) fn nanoseconds(seconds: i64, nanoseconds: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)
}

/// When the attributes of a file were changed last, nanoseconds since 1970.
pub(crate) fn changed_ns(found: &libc::stat) -> i64 {
    nanoseconds(found.st_ctime, found.st_ctime_nsec)
}
