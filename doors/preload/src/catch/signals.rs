//! Handlers of signals: they are the program's, and are only noted, so that they can wait until a call has ended.

use super::same;
use crate::{real, signals};
use libc::{c_int, sighandler_t};

#[unsafe(no_mangle)]
unsafe extern "C" fn sigaction(
    number: c_int,
    action: *const libc::sigaction,
    former: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program gives an action or nothing.
    let handler = unsafe { action.as_ref() }.map(|action| action.sa_sigaction);
    if let Some(handler) = handler {
        signals::will_handle(number, handler);
    }
    // SAFETY: as the caller promises.
    let answer = unsafe { real::sigaction(number, action, former) };
    if let (0, Some(handler)) = (answer, handler) {
        signals::handles(number, handler);
    }
    answer
}

/// Defines functions that take a signal and a handler and return the former one.
macro_rules! simple {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(number: c_int, handler: sighandler_t) -> sighandler_t {
            signals::will_handle(number, handler);
            // SAFETY: as the caller promises.
            let former = unsafe { real::$name(number, handler) };
            if former != libc::SIG_ERR {
                signals::handles(number, handler);
            }
            former
        }
    )* };
}

simple! { signal sysv_signal sigset }

same! {
    __sigaction = sigaction(number: c_int, action: *const libc::sigaction, former: *mut libc::sigaction) -> c_int;
    bsd_signal = signal(number: c_int, handler: sighandler_t) -> sighandler_t;
    ssignal = signal(number: c_int, handler: sighandler_t) -> sighandler_t;
    __sysv_signal = sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t;
}
