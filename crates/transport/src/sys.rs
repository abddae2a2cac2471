//! The few system calls this crate makes itself: vectored socket IO, poll, eventfd, socket options.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The most slices one vectored call takes (Linux `UIO_MAXIOV`).
pub(crate) const SLICES_MAX: usize = 1024;

/// Retries a call that a signal interrupted, and turns -1 into the error it stands for.
fn checked(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let result = call();
        if let Ok(count) = usize::try_from(result) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Sends from `slices` without blocking and without `SIGPIPE`; returns how many bytes went out.
pub(crate) fn send_vectored(fd: RawFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    checked(|| {
        // SAFETY: an all-zero msghdr is a valid value of the C struct.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = slices.as_ptr().cast_mut().cast();
        header.msg_iovlen = slices.len().min(SLICES_MAX);
        // SAFETY: IoSlice has the layout of iovec; the slices live across the call and are only read.
        unsafe { libc::sendmsg(fd, &raw const header, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) }
    })
}

/// Receives into `slices` without blocking; returns how many bytes came, 0 at the end of the stream.
pub(crate) fn receive_vectored(fd: RawFd, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    checked(|| {
        // SAFETY: an all-zero msghdr is a valid value of the C struct.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = slices.as_mut_ptr().cast();
        header.msg_iovlen = slices.len().min(SLICES_MAX);
        // SAFETY: IoSliceMut has the layout of iovec; the slices are exclusively borrowed for the call.
        unsafe { libc::recvmsg(fd, &raw mut header, libc::MSG_DONTWAIT) }
    })
}

/// What [`wait`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Bytes or the end of the stream can be read.
    Readable,
    /// There is room to write, or writing would fail.
    Writable,
}

/// Blocks until the descriptor is ready or the timeout passes. May also return early without cause (a
/// signal); the caller tries its call again and looks at its own deadline.
pub(crate) fn wait(fd: RawFd, interest: Interest, timeout: Option<Duration>) -> io::Result<()> {
    let events = match interest {
        Interest::Readable => libc::POLLIN,
        Interest::Writable => libc::POLLOUT,
    };
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    let limit = timeout.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit_pointer = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: one pollfd and an optional timespec, both alive across the call.
    let result = unsafe { libc::ppoll(&raw mut entry, 1, limit_pointer, std::ptr::null()) };
    if result >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// Ends both directions of a socket; blocked readers and writers of every thread wake up.
pub(crate) fn shut_down(fd: RawFd) {
    // SAFETY: a plain system call on a descriptor number; failure (already shut down) is of no interest.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

/// Sets one integer socket option.
pub(crate) fn set_option(fd: RawFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = mem::size_of::<i32>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    checked(|| unsafe { libc::setsockopt(fd, level, name, (&raw const value).cast(), length) as isize })
        .map(drop)
}

/// The same open file under a descriptor of at least `minimum`; unchanged where the process's limit forbids that.
pub(crate) fn moved_up(fd: OwnedFd, minimum: RawFd) -> OwnedFd {
    if fd.as_raw_fd() >= minimum {
        return fd;
    }
    // SAFETY: a plain system call; the result is checked before it is used.
    let number = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, minimum) };
    if number < 0 {
        return fd;
    }
    // SAFETY: the descriptor is fresh and owned by nobody else.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// The process at the other end of a Unix socket, if the system tells.
pub(crate) fn peer_process(fd: RawFd) -> Option<i32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `credentials`, exclusively borrowed for the call.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    (result == 0 && credentials.pid > 0).then_some(credentials.pid)
}

/// Connects a Unix stream socket, waiting at most `timeout` for room in the listener's backlog.
pub(crate) fn connect_unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero sockaddr_un is a valid value of the C struct.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "a socket path has at most 107 bytes and no zero byte",
        ));
    }
    for (target, byte) in address.sun_path.iter_mut().zip(bytes) {
        *target = *byte as libc::c_char;
    }
    // SAFETY: a plain system call; the result is checked before it is used.
    let number = checked(|| unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) as isize
    })?;
    let number = RawFd::try_from(number).map_err(io::Error::other)?;
    // SAFETY: the descriptor is fresh and owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    set_send_timeout(&fd, timeout)?;
    let length = mem::size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `address`, which lives across the call.
    checked(|| unsafe { libc::connect(number, (&raw const address).cast(), length) as isize })?;
    set_send_timeout(&fd, Duration::ZERO)?;
    Ok(fd)
}

/// Bounds blocking sends and connects; zero means no bound.
fn set_send_timeout(fd: &OwnedFd, timeout: Duration) -> io::Result<()> {
    let value = libc::timeval {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_usec: timeout.subsec_micros().into(),
    };
    let length = mem::size_of::<libc::timeval>() as libc::socklen_t;
    // SAFETY: the pointer and length describe `value`, which lives across the call.
    checked(|| unsafe {
        let pointer = (&raw const value).cast();
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, libc::SO_SNDTIMEO, pointer, length) as isize
    })
    .map(drop)
}

/// A counter in the kernel whose descriptor is readable while it is not zero.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    /// A counter of zero, non-blocking, closed on exec.
    pub(crate) fn new() -> io::Result<EventFd> {
        // SAFETY: a plain system call; the result is checked before it is used.
        let number =
            checked(|| unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) as isize })?;
        let number = RawFd::try_from(number).map_err(io::Error::other)?;
        // SAFETY: the descriptor is fresh and owned by nobody else.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(number) }))
    }

    /// The same counter under a descriptor of at least `minimum`, where possible.
    pub(crate) fn moved_up(self, minimum: RawFd) -> EventFd {
        EventFd(moved_up(self.0, minimum))
    }

    /// Makes the descriptor readable.
    pub(crate) fn set(&self) {
        let one = 1u64;
        // SAFETY: eight readable bytes. The only failure is a full counter, which is readable anyway.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Makes the descriptor unreadable.
    pub(crate) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: eight writable bytes. The only failure is a counter of zero, which is what we want.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
