//! Closing and duplicating descriptors.

use crate::inside;
use crate::real::{self, checked};
use crate::reply::{Errno, guarded};
use crate::table::{self, Former, OpenRef};
use crate::{locks, marks, open, open_file, stdio, translate};
use libc::{c_int, c_uint};

/// `close`. Data of the last descriptor are with the servers when it returns; the descriptor is closed in any case.
pub(crate) fn close(fd: c_int) -> c_int {
    if !table::is_known(fd) {
        // SAFETY: plain integers.
        return unsafe { real::close(fd) };
    }
    if table::is_internal(fd) {
        if !inside::is_inside() {
            real::set_errno(libc::EBADF); // The program closes whatever it finds; this one is not its own.
            return -1;
        }
        table::remove(fd);
        // SAFETY: plain integers.
        return unsafe { real::close(fd) };
    }
    let flushed = match table::remove(fd) {
        Some(former) => close_former(&former),
        None => Ok(()), // Another thread was first.
    };
    stdio::descriptor_changed(fd);
    // SAFETY: plain integers.
    let closed = unsafe { real::close(fd) };
    if let Err(errno) = flushed {
        real::set_errno(errno);
        return -1;
    }
    closed
}

/// The end of what a number led to that leads to something else by now. Nobody is left to tell an error.
pub(crate) fn end(former: Option<Former>) {
    if let Some(former) = former {
        let _ = close_former(&former);
    }
}

fn close_former(former: &Former) -> Result<(), Errno> {
    if former.was_last { guarded(|| former.file.close_file()) } else { Ok(()) }
}

/// `close_range`: descriptors of the client library stay open.
pub(crate) fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let (Ok(low), high) = (c_int::try_from(first), c_int::try_from(last).unwrap_or(c_int::MAX)) else {
        // SAFETY: plain integers.
        return unsafe { real::close_range(first, last, flags) };
    };
    let only_mark = libc::CLOSE_RANGE_CLOEXEC.cast_signed();
    if low > high || flags & only_mark != 0 {
        // SAFETY: plain integers.
        return unsafe { real::close_range(first, last, flags) };
    }
    let mut from = low;
    let known: Vec<c_int> = table::known(low, high).collect();
    for fd in known {
        if table::is_internal(fd) {
            if from < fd {
                close_gap(from, fd - 1, flags);
            }
            from = fd + 1;
        } else {
            close(fd);
        }
    }
    if from > high {
        return 0;
    }
    // SAFETY: plain integers.
    unsafe { real::close_range(from.cast_unsigned(), last, flags) }
}

fn close_gap(first: c_int, last: c_int, flags: c_int) {
    // SAFETY: plain integers.
    unsafe { real::close_range(first.cast_unsigned(), last.cast_unsigned(), flags) };
}

/// `dup2` and `dup3`; `flags` as for the latter, `None` for the former.
pub(crate) fn duplicate_to(from: c_int, to: c_int, flags: Option<c_int>) -> c_int {
    if table::is_internal(to) && !inside::is_inside() {
        real::set_errno(libc::EBUSY); // The client library knows its descriptors by number, so none can be moved.
        return -1;
    }
    let source = table::find_always(from);
    let copy = match flags {
        // SAFETY: plain integers.
        Some(flags) => unsafe { real::dup3(from, to, flags) },
        // SAFETY: plain integers.
        None => unsafe { real::dup2(from, to) },
    };
    if copy < 0 || from == to {
        return copy;
    }
    match source {
        Some(source) => crate::reply::reply(|| translate::duplicated(source, copy)),
        None => {
            open::entered_plain(copy);
            copy
        }
    }
}

/// `dup`.
pub(crate) fn duplicate(fd: c_int) -> c_int {
    let source = table::find(fd);
    // SAFETY: plain integers.
    let copy = unsafe { real::dup(fd) };
    match source {
        Some(source) => crate::reply::reply(|| translate::duplicated(source, copy)),
        None => open::entered_plain(copy),
    }
}

/// `fcntl` of a ccPFS descriptor.
///
/// # Errors
/// As the system call.
pub(crate) fn control(open: &OpenRef, fd: c_int, command: c_int, argument: usize) -> Result<c_int, Errno> {
    // SAFETY: as the program promised for this command and argument.
    let plain = || checked(unsafe { real::fcntl64(fd, command, argument) });
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => translate::duplicated(open.clone(), plain()?),
        libc::F_GETFL => {
            let shown = libc::O_ACCMODE | open_file::KEPT_FLAGS;
            Ok((plain()? & !shown) | (open.flags() & shown))
        }
        libc::F_SETFL => {
            let flags = c_int::try_from(argument & 0x7fff_ffff).map_err(|_| libc::EINVAL)?;
            // SAFETY: plain integers. The stub takes every flag but those that ask something of its storage.
            checked(unsafe { real::fcntl64(fd, command, argument & !(libc::O_DIRECT as usize)) })?;
            open.set_flags(libc::O_APPEND | libc::O_DIRECT, flags);
            marks::set(fd, open.flags());
            Ok(0)
        }
        libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW
        | libc::F_OFD_GETLK => locks::control(open, fd, command, argument),
        // A lease would be kept although others write: they open the stub for reading only.
        libc::F_SETLEASE => Err(libc::EINVAL),
        command if marks::is_their_place(command) => Ok(0),
        _ => plain(),
    }
}
