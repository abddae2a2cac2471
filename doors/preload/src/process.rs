//! The life of the process: its start, forks, and end.

use crate::{limits, real, session, stdio, table};
use libc::{c_char, c_int};

#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Runs before the program. glibc passes the program's arguments to constructors.
unsafe extern "C" fn start(_count: c_int, _arguments: *const *const c_char, variables: *const *const c_char) {
    // SAFETY: the handlers are functions of this library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) };
    limits::refresh();
    // SAFETY: glibc passes the environment.
    unsafe { crate::spawn::inherit(variables) };
}

/// Runs after the program's own exit handlers. The C library flushes its streams once more after this.
extern "C" fn end() {
    finish();
}

/// Before the process ends, in whatever way.
pub(crate) fn finish() {
    if session::started().is_some() {
        stdio::flush_streams();
    }
    session::finish();
}

/// Before the process forks: nothing is half done.
pub(crate) extern "C" fn before_fork() {
    session::before_fork();
}

/// After the process has forked, in the parent.
pub(crate) extern "C" fn after_fork_in_parent() {
    session::after_fork_in_parent();
}

/// The child has the descriptors and no client: the parent's connections are closed here, so that they end with the
/// parent, and files are attached anew when they are used.
pub(crate) extern "C" fn after_fork_in_child() {
    session::after_fork_in_child();
    // Locks of open file descriptions are shared with the parent, and so are the descriptors that carry them.
    let carry_locks = crate::open_file::lock_descriptors();
    for fd in table::known(0, c_int::MAX) {
        if table::is_internal(fd) && !carry_locks.contains(&fd) {
            table::remove(fd);
            real::close_plain(fd);
        }
    }
}

/// Forks in a way that calls no handlers.
pub(crate) fn around_fork(fork: impl FnOnce() -> libc::pid_t) -> libc::pid_t {
    before_fork();
    let child = fork();
    if child == 0 {
        after_fork_in_child();
    } else {
        after_fork_in_parent();
    }
    child
}
