//! The life of the process: its start, forks, and end.

use crate::{limits, real, session, stdio, table};
use libc::{c_char, c_int};
use std::sync::{Mutex, PoisonError};

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
            if says_what_is_open(fd) {
                let mut inherited = INHERITED.lock().unwrap_or_else(PoisonError::into_inner);
                if !inherited.contains(&fd) {
                    inherited.push(fd);
                }
                continue;
            }
            table::remove(fd);
            real::close_plain(fd);
        }
    }
}

/// Descriptors of the parent's that say which files it had open when it forked. They keep files without a name alive
/// until this process says so itself.
static INHERITED: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

/// Whether a descriptor is of the registry of open files.
fn says_what_is_open(fd: c_int) -> bool {
    let is_file = real::stat_of(fd).is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFREG);
    is_file && crate::paths::name_of_descriptor(fd).is_ok_and(|name| contains(&name, b"/.ccpfs/opens/"))
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

/// The first client of a forked child takes its files over from the parent.
pub(crate) fn take_over_inherited() {
    let inherited = std::mem::take(&mut *INHERITED.lock().unwrap_or_else(PoisonError::into_inner));
    if inherited.is_empty() {
        return;
    }
    for fd in table::known(0, c_int::MAX) {
        if let Some(file) = table::find_always(fd) {
            // Whoever uses it is told what is wrong with it.
            let _ = file.file(fd);
        }
    }
    for fd in inherited {
        table::remove(fd);
        real::close_plain(fd);
    }
}

/// Descriptors of the registry of open files that a program which is started now inherits, so that files without a name
/// live until it says itself that it has them open. Dropped, they are again for this program alone.
pub(crate) struct HandedOver(Vec<c_int>);

impl HandedOver {
    /// The numbers, separated by commas.
    pub(crate) fn list(&self) -> String {
        self.0.iter().map(c_int::to_string).collect::<Vec<_>>().join(",")
    }
}

impl Drop for HandedOver {
    fn drop(&mut self) {
        for fd in &self.0 {
            set_close_on_exec(*fd, libc::FD_CLOEXEC);
        }
    }
}

fn set_close_on_exec(fd: c_int, flag: c_int) {
    // SAFETY: plain integers.
    unsafe { real::fcntl64(fd, libc::F_SETFD, usize::from(flag != 0)) };
}

/// Hands the registry's descriptors over, if there is a file that needs it: one without a name.
pub(crate) fn hand_over() -> Option<HandedOver> {
    let saved = real::errno();
    let has_no_name = |fd: &c_int| {
        table::find_always(*fd).is_some() && real::stat_of(*fd).is_ok_and(|found| found.st_nlink == 0)
    };
    let handed = table::known(0, c_int::MAX).find(has_no_name).map(|_| {
        let are_said = |fd: &c_int| table::is_internal(*fd) && says_what_is_open(*fd);
        let fds: Vec<c_int> = table::known(0, c_int::MAX).filter(are_said).collect();
        fds.iter().for_each(|fd| set_close_on_exec(*fd, 0));
        HandedOver(fds)
    });
    real::set_errno(saved);
    handed
}

/// Takes what the program that was here before, or that started this one, has handed over.
pub(crate) fn inherit_open(fds: impl Iterator<Item = c_int>) {
    for fd in fds.filter(|fd| says_what_is_open(*fd)) {
        set_close_on_exec(fd, libc::FD_CLOEXEC);
        table::mark_internal(fd);
        INHERITED.lock().unwrap_or_else(PoisonError::into_inner).push(fd);
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
