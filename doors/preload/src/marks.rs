//! What an open file description carries from process to process: the access that the program asked for.
//!
//! *What*: a stub's descriptor is open for reading only, whatever the program asked for. Its open file description also
//! has a place for the number of a signal, which regular files never send (`F_SETSIG`). The access stands there, so a
//! process that is handed the descriptor, by inheritance or over a socket, knows what it may do.

use crate::real;
use libc::c_int;

const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
/// Signal numbers above this one, up to 64, are marks. No program asks for a real-time signal that high.
const BASE: c_int = 47;
const READ: c_int = 1;
const WRITE: c_int = 2;
const APPEND: c_int = 4;
const SYNC: c_int = 8;
const ALL: c_int = READ | WRITE | APPEND | SYNC;

/// The mark for flags of `open`.
fn mark_of(flags: c_int) -> c_int {
    let access = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => READ,
        libc::O_WRONLY => WRITE,
        _ => READ | WRITE,
    };
    let append = if flags & libc::O_APPEND != 0 { APPEND } else { 0 };
    let sync = if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 { SYNC } else { 0 };
    BASE + (access | append | sync)
}

/// The flags of `open` that a mark stands for; `None` when it is none.
fn flags_of(mark: c_int) -> Option<c_int> {
    let bits = mark - BASE;
    if bits & !ALL != 0 || bits & (READ | WRITE) == 0 {
        return None;
    }
    let access = match bits & (READ | WRITE) {
        READ => libc::O_RDONLY,
        WRITE => libc::O_WRONLY,
        _ => libc::O_RDWR,
    };
    let append = if bits & APPEND != 0 { libc::O_APPEND } else { 0 };
    let sync = if bits & SYNC != 0 { libc::O_SYNC } else { 0 };
    Some(access | append | sync)
}

/// Marks the open file description behind a descriptor of a stub.
pub(crate) fn set(fd: c_int, flags: c_int) {
    let mark = usize::try_from(mark_of(flags)).expect("marks are positive");
    // SAFETY: plain integers. A kernel that refuses leaves the list of inherited descriptors to say it.
    unsafe { real::fcntl64(fd, F_SETSIG, mark) };
}

/// What the open file description behind a descriptor is marked with: flags of `open`.
pub(crate) fn get(fd: c_int) -> Option<c_int> {
    let saved = real::errno();
    // SAFETY: plain integers.
    let mark = unsafe { real::fcntl64(fd, F_GETSIG, 0) };
    real::set_errno(saved);
    flags_of(mark)
}

/// Whether a command of `fcntl` is about the place where marks stand.
pub(crate) fn is_their_place(command: c_int) -> bool {
    matches!(command, F_SETSIG | F_GETSIG)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_says_what_the_flags_said_and_is_a_signal_number() {
        for access in [libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR] {
            for more in [0, libc::O_APPEND, libc::O_SYNC, libc::O_APPEND | libc::O_SYNC] {
                let mark = mark_of(access | more | libc::O_CREAT);
                assert!((1..=64).contains(&mark));
                assert_eq!(flags_of(mark), Some(access | more));
            }
        }
    }

    #[test]
    fn signals_that_programs_ask_for_are_no_marks() {
        for signal in (-1..=47).chain([51, 55, 63 + 1]) {
            assert_eq!(flags_of(signal), None, "{signal}");
        }
    }
}
