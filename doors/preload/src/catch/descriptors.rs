//! `close`, `dup`, `fcntl`, `ioctl` and their relatives.

use super::same;
use crate::descriptors;
use crate::reply::reply;
use crate::{inside, locks, open, real, table, translate};
use libc::{c_int, c_uint, c_ulong, off_t};

#[unsafe(no_mangle)]
unsafe extern "C" fn close(fd: c_int) -> c_int {
    descriptors::close(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    descriptors::close_range(first, last, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn closefrom(first: c_int) {
    descriptors::close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup(fd: c_int) -> c_int {
    descriptors::duplicate(fd)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    descriptors::duplicate_to(from, to, None)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    descriptors::duplicate_to(from, to, Some(flags))
}

/// The argument is variadic in C: an integer, a pointer or nothing, which all arrive like a plain argument.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    if let Some(open) = table::find(fd) {
        return reply(|| descriptors::control(&open, fd, command, argument));
    }
    // SAFETY: as the caller promises.
    let answer = unsafe { real::fcntl64(fd, command, argument) };
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return if inside::is_inside() { inside::adopt(answer) } else { open::entered_plain(answer) };
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn lockf64(fd: c_int, command: c_int, count: off_t) -> c_int {
    match table::find(fd) {
        // SAFETY: plain integers.
        None => unsafe { real::lockf64(fd, command, count) },
        Some(open) => reply(|| locks::section(&open, fd, command, count)),
    }
}

/// Requests about the blocks of a local file, which a ccPFS file has none of.
const CLONE: c_ulong = 0x4004_9409;
const CLONE_RANGE: c_ulong = 0x4020_940d;
const DEDUPLICATE_RANGE: c_ulong = 0xc018_9436;
const MAP_EXTENTS: c_ulong = 0xc020_660b;
const MAP_BLOCK: c_ulong = 1;
/// Requests about attributes that the kernel would keep for the stub only.
const SET_ATTRIBUTES: [c_ulong; 2] = [0x4008_6602, 0x401c_5820];

#[unsafe(no_mangle)]
unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int {
    // The source of a clone is an argument: the descriptor itself, or the first word of a structure.
    let source_is_ours = match request {
        CLONE => c_int::try_from(argument).is_ok_and(table::is_known),
        // SAFETY: as the caller promises for this request.
        CLONE_RANGE => unsafe { (argument as *const i64).as_ref() }
            .is_some_and(|fd| c_int::try_from(*fd).is_ok_and(table::is_known)),
        _ => false,
    };
    let refused = matches!(request, CLONE | CLONE_RANGE | DEDUPLICATE_RANGE | MAP_EXTENTS | MAP_BLOCK)
        || SET_ATTRIBUTES.contains(&request);
    let open = table::find(fd);
    if source_is_ours || (refused && open.is_some()) {
        real::set_errno(libc::EOPNOTSUPP);
        return -1;
    }
    if request == libc::FIONREAD
        && let Some(open) = open
    {
        return reply(|| {
            let rest = translate::size(&open, fd)? - translate::seek(&open, fd, 0, libc::SEEK_CUR)?;
            // SAFETY: as the caller promises for this request. As the kernel, it gives the lower bits.
            unsafe { (argument as *mut c_int).write(rest as c_int) };
            Ok(0)
        });
    }
    // SAFETY: as the caller promises.
    unsafe { real::ioctl(fd, request, argument) }
}

same! {
    __close = close(fd: c_int) -> c_int;
    __dup2 = dup2(from: c_int, to: c_int) -> c_int;
    __fcntl = fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    fcntl = fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    lockf = lockf64(fd: c_int, command: c_int, count: off_t) -> c_int;
}
