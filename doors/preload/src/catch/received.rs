//! Descriptors that come from elsewhere: over sockets, from other processes, by file handles.

use crate::real::{self, checked};
use crate::reply::reply;
use crate::{inside, open};
use libc::{c_int, c_uint, c_void, ssize_t, timespec};

/// Looks at the descriptors that came with a message.
///
/// # Safety
/// `message` is null or a message that was just received.
unsafe fn sort_received(message: *const libc::msghdr) {
    // SAFETY: as the caller promises.
    unsafe {
        if message.is_null() || (*message).msg_controllen == 0 || inside::is_inside() {
            return;
        }
        let mut part = libc::CMSG_FIRSTHDR(message);
        while !part.is_null() {
            if (*part).cmsg_level == libc::SOL_SOCKET && (*part).cmsg_type == libc::SCM_RIGHTS {
                let start = libc::CMSG_DATA(part).cast::<c_int>();
                let bytes = (*part).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for at in 0..bytes / size_of::<c_int>() {
                    open::received(start.add(at).read_unaligned());
                }
            }
            part = libc::CMSG_NXTHDR(message, part);
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t {
    // SAFETY: as the caller promises.
    unsafe {
        let answer = real::recvmsg(socket, message, flags);
        if answer >= 0 {
            sort_received(message);
        }
        answer
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    socket: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    // SAFETY: as the caller promises; so many messages were received.
    unsafe {
        let answer = real::recvmmsg(socket, messages, count, flags, limit);
        for at in 0..usize::try_from(answer).unwrap_or(0) {
            sort_received(&raw const (*messages.add(at)).msg_hdr);
        }
        answer
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int {
    // SAFETY: plain integers.
    let got = unsafe { real::pidfd_getfd(process, fd, flags) };
    if got >= 0 {
        open::received(got);
    }
    got
}

/// A stub is opened for reading, whatever the program wants to do with the file.
#[unsafe(no_mangle)]
unsafe extern "C" fn open_by_handle_at(mount_fd: c_int, handle: *mut c_void, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    let plain = |flags: c_int| unsafe { real::open_by_handle_at(mount_fd, handle, flags) };
    if inside::is_inside() || flags & libc::O_PATH != 0 || crate::session::settings().is_none() {
        return plain(flags);
    }
    let wanted = libc::O_ACCMODE | libc::O_TRUNC | libc::O_CREAT | libc::O_EXCL;
    let fd = plain((flags & !wanted) | libc::O_RDONLY | libc::O_NONBLOCK);
    if fd >= 0 && real::stat_of(fd).is_ok_and(|found| open::may_be_stub(&found)) {
        return reply(|| open::take_over_for(open::entered_plain(fd), flags));
    }
    if fd >= 0 {
        real::close_plain(fd);
    }
    open::entered_plain(checked(plain(flags)).unwrap_or(-1))
}
