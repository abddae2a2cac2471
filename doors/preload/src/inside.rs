//! Inside the client library: its own files, sockets and threads are none of ccPFS's business.
//!
//! *What*: a depth counter per thread; descriptors that the client library opens are moved to high numbers, where
//! programs do not count on finding free ones, and are protected from a program that closes whatever it finds.
//! *Invariants*: a thread that the client library starts stays inside for its whole life and takes no signals; one of the program's
//! runs no handlers while it is inside.

use crate::reply::Errno;
use crate::{real, signals, table};
use libc::{c_int, c_void, pthread_attr_t, pthread_t, sigset_t};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether the calling thread works for the client library.
#[inline]
pub(crate) fn is_inside() -> bool {
    DEPTH.with(|depth| depth.get() > 0)
}

/// The calling thread works for the client library while this lives.
pub(crate) struct Inside(());

impl Inside {
    /// Enters.
    pub(crate) fn enter() -> Inside {
        DEPTH.with(|depth| {
            if depth.get() == 0 {
                signals::hold();
            }
            depth.set(depth.get() + 1);
        });
        Inside(())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            signals::release();
        }
    }
}

/// Does `work` as the program would, outside the client library; none of the client's locks may be held, because a handler of the
/// program may run and not come back.
pub(crate) fn outside<T>(work: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(0);
    if depth > 0 {
        signals::release();
    }
    let done = work();
    if depth > 0 {
        signals::hold();
    }
    DEPTH.set(depth);
    done
}

/// What [`first_high_fd`] found; 0 when it must ask.
static FIRST_HIGH_FD: AtomicI32 = AtomicI32::new(0);

/// The process may have another limit of descriptors from here on.
pub(crate) fn forget_limit() {
    FIRST_HIGH_FD.store(0, Ordering::Relaxed);
}

/// Where descriptors of the client library are put: below the usual limit of 1024, above what programs use by number.
fn first_high_fd() -> c_int {
    let known = FIRST_HIGH_FD.load(Ordering::Relaxed);
    if known > 0 {
        return known;
    }
    let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
    // SAFETY: the structure is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let usable = c_int::try_from(limit.rlim_cur.min(1024)).expect("at most 1024");
    let first = (usable - 256).max(usable / 2);
    FIRST_HIGH_FD.store(first, Ordering::Relaxed);
    first
}

/// Takes a descriptor that the client library has just opened: moves it up and marks it as internal. Returns its number.
pub(crate) fn adopt(fd: c_int) -> c_int {
    if fd < 0 {
        return fd;
    }
    let saved = real::errno();
    // SAFETY: plain integers.
    let flags = unsafe { real::fcntl64(fd, libc::F_GETFD, 0) };
    real::set_errno(saved);
    adopt_opened(fd, flags & libc::FD_CLOEXEC != 0)
}

/// As [`adopt`], when it is known whether the descriptor ends with the program.
pub(crate) fn adopt_opened(fd: c_int, close_on_exec: bool) -> c_int {
    if fd < 0 {
        return fd;
    }
    let saved = real::errno();
    let command = if close_on_exec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    // SAFETY: plain integers.
    let moved = unsafe { real::fcntl64(fd, command, usize::try_from(first_high_fd()).expect("positive")) };
    if moved < 0 {
        forget_limit(); // Another process may have set it.
    }
    let kept = if moved >= 0 {
        real::close_plain(fd);
        moved
    } else {
        fd
    };
    table::mark_internal(kept);
    real::set_errno(saved);
    kept
}

/// A second descriptor for the client library, of the same open file description.
///
/// # Errors
/// `EMFILE` and others, as `fcntl`.
pub(crate) fn duplicate(fd: c_int) -> Result<OwnedFd, Errno> {
    let first = usize::try_from(first_high_fd()).expect("positive");
    // SAFETY: plain integers.
    let copy = real::checked(unsafe { real::fcntl64(fd, libc::F_DUPFD_CLOEXEC, first) });
    let copy = copy.inspect_err(|_| forget_limit())?;
    table::mark_internal(copy);
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// What a new thread of the client library shall do.
struct Start {
    function: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
}

extern "C" fn run_inside(start: *mut c_void) -> *mut c_void {
    // SAFETY: `start_thread` made this from a box and gave it to this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    let _inside = Inside::enter();
    (start.function)(start.argument)
}

/// Starts a thread of the client library: inside from its first instruction, and with all signals blocked, so that
/// handlers of the program run on the program's threads.
///
/// # Safety
/// As `pthread_create`.
pub(crate) unsafe fn start_thread(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    function: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    let start = Box::into_raw(Box::new(Start { function, argument }));
    let mut all = MaybeUninit::<sigset_t>::uninit();
    let mut before = MaybeUninit::<sigset_t>::uninit();
    // SAFETY: the sets are ours; `before` is written by the first call.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    // SAFETY: as the caller promises; `start` lives until the thread takes it.
    let answer = unsafe { real::pthread_create(thread, attributes, run_inside, start.cast()) };
    // SAFETY: `before` was filled above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    if answer != 0 {
        // SAFETY: no thread was started, so the box is still ours.
        drop(unsafe { Box::from_raw(start) });
    }
    answer
}
