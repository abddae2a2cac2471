//! Mounting and unmounting: as root by the system call, else through `fusermount3`.

use crate::exchange::Errno;
use crate::options::MountOptions;
use crate::sys::{self, checked};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Command;

/// Type of the file system, as `mount` shows it.
pub(crate) const FILE_SYSTEM_TYPE: &str = "fuse.ccpfs";
/// The program that mounts for users.
const HELPER: &str = "fusermount3";

/// Mounts on a directory; what is returned is the device of the conversation.
pub(crate) fn mount(directory: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    if sys::is_root() { mount_as_root(directory, options) } else { mount_as_user(directory, options) }
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

fn mount_as_root(directory: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    // SAFETY: a string.
    let device = unsafe { libc::open(c"/dev/fuse".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
    if device < 0 {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("/dev/fuse: {error}")));
    }
    // SAFETY: just opened, owned by nobody else.
    let device = unsafe { OwnedFd::from_raw_fd(device) };
    let mut data =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,default_permissions", device.as_raw_fd());
    if options.allow_other.unwrap_or(true) {
        data.push_str(",allow_other");
    }
    let (target, data) = (c_string(directory.as_os_str().as_bytes())?, c_string(data.as_bytes())?);
    let (source, kind) = (c_string(options.source.as_bytes())?, c_string(FILE_SYSTEM_TYPE.as_bytes())?);
    // SAFETY: four strings.
    let mounted = unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), options.flags, data.as_ptr().cast())
    };
    if mounted == 0 { Ok(device) } else { Err(io::Error::last_os_error()) }
}

/// The helper is set-user-id root: it mounts, and sends the device over a socket.
fn mount_as_user(directory: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let mut sockets: [RawFd; 2] = [0; 2];
    // SAFETY: room for two descriptors.
    if unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, sockets.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    let [ours, theirs] = sockets.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    // SAFETY: an open descriptor. The other end is inherited.
    unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    let mut text = format!("default_permissions,subtype=ccpfs,fsname={}", options.source.replace(',', "\\,"));
    for (name, flag) in [
        ("ro", libc::MS_RDONLY),
        ("noexec", libc::MS_NOEXEC),
        ("noatime", libc::MS_NOATIME),
        ("sync", libc::MS_SYNCHRONOUS),
        ("dirsync", libc::MS_DIRSYNC),
    ] {
        if options.flags & flag != 0 {
            text.push(',');
            text.push_str(name);
        }
    }
    if options.allow_other == Some(true) {
        text.push_str(",allow_other");
    }
    let started = Command::new(HELPER)
        .args(["-o", &text, "--"])
        .arg(directory)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .status();
    drop(theirs);
    match started {
        Ok(status) if status.success() => receive_descriptor(&ours),
        Ok(status) => Err(io::Error::other(format!("{HELPER} failed ({status})"))),
        Err(error) => {
            let reason =
                format!("only root can mount without {HELPER} (package fuse3), which cannot be run: {error}");
            Err(io::Error::new(error.kind(), reason))
        }
    }
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0_u8; 1];
    let mut data = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // Aligned as the headers in it must be.
    let mut control = [0_u64; 8];
    // SAFETY: all zeros is a valid message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut data;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the header points to memory of ours.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the header was filled by the kernel.
    let first = unsafe { libc::CMSG_FIRSTHDR(&raw const message).as_ref() };
    let carries =
        first.filter(|header| header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS);
    let Some(header) = carries else {
        return Err(io::Error::other(format!("{HELPER} sent no device")));
    };
    // SAFETY: rights are descriptors; there is room for one behind the header.
    let fd = unsafe { libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned() };
    // SAFETY: the kernel has just made it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detach {
    /// Only if nobody uses it.
    IfUnused,
    /// From the tree at once, in full when nobody uses it any more.
    Lazily,
}

/// Unmounts what is mounted on a directory.
///
/// # Errors
/// EBUSY when it is used, EINVAL when nothing is mounted there.
pub fn unmount(directory: &Path, detach: Detach) -> io::Result<()> {
    let lazily = detach == Detach::Lazily;
    if !sys::is_root() {
        let mut command = Command::new(HELPER);
        command.arg(if lazily { "-uz" } else { "-u" }).arg("--").arg(directory);
        let status = command.status()?;
        return if status.success() {
            Ok(())
        } else {
            Err(io::Error::other(format!("{HELPER} failed ({status})")))
        };
    }
    let target = c_string(directory.as_os_str().as_bytes())?;
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    // SAFETY: a string.
    let unmounted = checked(unsafe { libc::umount2(target.as_ptr(), flags) });
    unmounted.map(drop).map_err(io::Error::from_raw_os_error)
}

/// Makes the kernel forget all names and inodes of a mount that nobody uses, by an empty change of the mount's options. Not of
/// another one, should the directory be another's by now: `device` is ours.
///
/// # Errors
/// EPERM if this process is not the machine's administrator, ENOTCONN if the mount is not there any more.
pub(crate) fn forget_unused(directory: &Path, device: u64) -> io::Result<()> {
    /// `FSPICK_CLOEXEC | FSPICK_EMPTY_PATH`.
    const FLAGS: libc::c_int = 0x1 | 0x8;
    /// `FSCONFIG_CMD_RECONFIGURE`.
    const RECONFIGURE: libc::c_int = 7;
    let root = File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)?;
    if sys::device(root.as_fd()) != Some(device) {
        return Err(io::Error::from_raw_os_error(libc::ENOTCONN));
    }
    // SAFETY: an open descriptor and an empty string.
    let picked = unsafe { libc::syscall(libc::SYS_fspick, root.as_raw_fd(), c"".as_ptr(), FLAGS) };
    let picked = RawFd::try_from(picked).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: just opened, owned by nobody else.
    let picked = unsafe { OwnedFd::from_raw_fd(picked) };
    let none = std::ptr::null::<libc::c_char>();
    // SAFETY: an open descriptor; this command takes nothing else.
    let done = unsafe { libc::syscall(libc::SYS_fsconfig, picked.as_raw_fd(), RECONFIGURE, none, none, 0) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether a directory is a mount whose program has died.
#[must_use]
pub fn is_dead_mount(directory: &Path) -> bool {
    let dead = |errno: Option<Errno>| errno == Some(libc::ENOTCONN);
    std::fs::symlink_metadata(directory).is_err_and(|error| dead(error.raw_os_error()))
}
