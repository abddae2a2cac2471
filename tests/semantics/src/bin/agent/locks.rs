//! Verbs about locks: `setlk`, `setlkw`, `getlk` with POSIX owners, `ofd_…` with open files as owners, `flock`.

use crate::sys::{Outcome, Words, sys, text};

/// Carries out a verb of this file.
pub(crate) fn perform(verb: &str, words: &mut Words) -> Option<Outcome> {
    // With `end_` before it, the start is counted from the end of the file.
    let (verb, whence) = match verb.strip_prefix("end_") {
        Some(verb) => (verb, libc::SEEK_END),
        None => (verb, libc::SEEK_SET),
    };
    let command = match verb {
        "setlk" => libc::F_SETLK,
        "setlkw" => libc::F_SETLKW,
        "getlk" => libc::F_GETLK,
        "ofd_setlk" => libc::F_OFD_SETLK,
        "ofd_setlkw" => libc::F_OFD_SETLKW,
        "ofd_getlk" => libc::F_OFD_GETLK,
        "flock" => return Some(sys!(libc::flock(words.number(), words.number()))),
        "lockf" => return Some(sys!(libc::lockf(words.number(), words.number(), words.number()))),
        _ => return None,
    };
    let fd = words.number();
    let kind: i32 = words.number();
    let mut lock = libc::flock {
        l_type: libc::c_short::try_from(kind).expect("a kind of lock is small"),
        l_whence: libc::c_short::try_from(whence).expect("a small number"),
        l_start: words.number(),
        l_len: words.number(),
        l_pid: 0,
    };
    let outcome = sys!(libc::fcntl(fd, command, &raw mut lock));
    Some(outcome.and_then(|_| text(&format!("{} {} {}", lock.l_type, lock.l_start, lock.l_len))))
}
