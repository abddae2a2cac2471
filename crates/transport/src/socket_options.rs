//! Options every socket of ours gets, on both sides.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use crate::sys::set_option;

/// Wanted kernel buffer per direction of a Unix socket, in bytes: a bulk slice fits whole.
const SOCKET_BUFFER_BYTES: i32 = 1 << 20;
/// Seconds of silence before the kernel probes a TCP peer, between probes, and how many may fail.
const KEEPALIVE_IDLE_S: i32 = 30;
const KEEPALIVE_INTERVAL_S: i32 = 10;
const KEEPALIVE_PROBES: i32 = 3;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// TCP over IPv4 or IPv6.
    Tcp,
    /// A local stream socket.
    Unix,
}

/// Sets the options of a connected socket.
pub(crate) fn prepare(fd: RawFd, family: Family, stall_timeout: Duration) -> io::Result<()> {
    match family {
        Family::Tcp => {
            // Buffer sizes are left to the kernel, which grows them to several MiB; a fixed size would end that.
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
            set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_S)?;
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S)?;
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES)?;
            let stall_ms = i32::try_from(stall_timeout.as_millis()).unwrap_or(i32::MAX);
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, stall_ms)
        }
        Family::Unix => {
            // The forced form passes the system's limit where we may; the plain one is clamped to it.
            set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)
                .or_else(|_| set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, SOCKET_BUFFER_BYTES))
        }
    }
}
