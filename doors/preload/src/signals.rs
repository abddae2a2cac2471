//! Signals of the program: its handlers do not run on a thread that is inside the client library.
//!
//! *What*: which signals have handlers. They wait while a thread is inside, and are delivered when it leaves. A handler may make
//! calls of its own, or leave the call for good (`siglongjmp`, which POSIX allows during most calls); either would find the
//! client's locks taken by its own thread. So a call that waits for storage is not interrupted, as none is on a local file
//! system.
//! *Invariants*: a program without handlers pays a load per call. A signal without a handler acts at once.
//! *Not here*: signals of instructions that fault, which cannot wait; handlers that are installed by number of system call.

use libc::{c_int, sighandler_t, sigset_t};
use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// The signals that have a handler, and may wait: a bit each, as the kernel counts them.
static HANDLED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// What the thread had blocked before it went inside, if it made signals wait then.
    static BEFORE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The bit of a signal; none for what is no signal, or cannot wait.
fn bit(number: c_int) -> u64 {
    match number {
        libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGSYS => 0,
        1..=64 => 1 << (number - 1),
        _ => 0,
    }
}

/// Whether this is a function, not one of the numbers that stand for something else.
fn is_function(handler: sighandler_t) -> bool {
    const HOLD: sighandler_t = 2;
    ![libc::SIG_DFL, libc::SIG_IGN, libc::SIG_ERR, HOLD].contains(&handler)
}

/// The program is about to install a handler.
pub(crate) fn will_handle(number: c_int, handler: sighandler_t) {
    if is_function(handler) {
        HANDLED.fetch_or(bit(number), Ordering::Relaxed);
    }
}

/// The program has installed a handler, or taken one away.
pub(crate) fn handles(number: c_int, handler: sighandler_t) {
    if !is_function(handler) {
        HANDLED.fetch_and(!bit(number), Ordering::Relaxed);
    }
}

/// The calling thread goes inside: signals with handlers wait.
#[inline]
pub(crate) fn hold() {
    let handled = HANDLED.load(Ordering::Relaxed);
    if handled != 0 {
        BEFORE.set(Some(change(libc::SIG_BLOCK, handled)));
    }
}

/// The calling thread leaves: handlers of what has waited run in here, and need not come back.
#[inline]
pub(crate) fn release() {
    if let Some(before) = BEFORE.take() {
        change(libc::SIG_SETMASK, before);
    }
}

/// Changes which signals the calling thread blocks; returns which it did before.
fn change(how: c_int, signals: u64) -> u64 {
    let mut set = MaybeUninit::<sigset_t>::zeroed();
    let mut before = MaybeUninit::<sigset_t>::zeroed();
    // SAFETY: a set is an array of bits, of which the kernel knows the first 64; all zeros is an empty one.
    unsafe {
        set.as_mut_ptr().cast::<u64>().write(signals);
        libc::pthread_sigmask(how, set.as_ptr(), before.as_mut_ptr());
        before.as_ptr().cast::<u64>().read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_and_nonsense_do_not_wait() {
        assert_eq!([bit(libc::SIGHUP), bit(libc::SIGALRM), bit(64)], [1, 1 << 13, 1 << 63]);
        assert_eq!([bit(0), bit(-1), bit(65), bit(libc::SIGSEGV), bit(libc::SIGBUS)], [0; 5]);
        assert!(is_function(0x1000) && !is_function(libc::SIG_IGN) && !is_function(libc::SIG_ERR));
    }

    #[test]
    fn what_is_held_is_given_back() {
        HANDLED.store(bit(libc::SIGUSR1), Ordering::Relaxed);
        let blocked = || change(libc::SIG_BLOCK, 0);
        let before = blocked();
        hold();
        assert_eq!(blocked(), before | bit(libc::SIGUSR1));
        HANDLED.store(0, Ordering::Relaxed);
        release();
        assert_eq!(blocked(), before);
        hold();
        assert_eq!(blocked(), before);
        release();
    }
}
