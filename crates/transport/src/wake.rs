//! How other threads wake the one thread that drives a port.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes the thread that is inside `ServerPort::poll`, from any thread. Clones wake the same port.
///
/// Wakes coalesce: any number of calls before the port notices produce one `Event::Woken`. A wake while the port
/// is busy costs no system call.
#[derive(Clone, Debug)]
pub struct Waker {
    target: Arc<WakeTarget>,
}

impl Waker {
    pub(crate) fn new(target: Arc<WakeTarget>) -> Waker {
        Waker { target }
    }

    /// Makes the current or next `poll` return an `Event::Woken`.
    pub fn wake(&self) {
        self.target.woken.store(true, Ordering::SeqCst);
        self.target.interrupt_sleep();
    }
}

/// The meeting point of one port and those who wake it.
///
/// The port announces its sleep *before* it looks at the reasons, the waker states its reason *before* it looks
/// for a sleeper; both with sequential consistency, so at least one of them sees the other.
pub(crate) struct WakeTarget {
    woken: AtomicBool,
    nudged: AtomicBool,
    sleeping: AtomicBool,
    interrupt: Box<dyn Fn() + Send + Sync>,
}

/// Why a port was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WakeReasons {
    /// Somebody called [`Waker::wake`].
    pub(crate) woken: bool,
    /// There is work to look at.
    pub(crate) nudged: bool,
}

impl WakeTarget {
    /// `interrupt` ends the port's blocking call.
    pub(crate) fn new(interrupt: impl Fn() + Send + Sync + 'static) -> Arc<WakeTarget> {
        Arc::new(WakeTarget {
            woken: AtomicBool::new(false),
            nudged: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            interrupt: Box::new(interrupt),
        })
    }

    /// Makes the port look at its work again: a buffer came back, or (loopback) a client did something.
    pub(crate) fn nudge(&self) {
        self.nudged.store(true, Ordering::SeqCst);
        self.interrupt_sleep();
    }

    /// True if there is a reason not to sleep.
    pub(crate) fn has_reason(&self) -> bool {
        self.woken.load(Ordering::SeqCst) || self.nudged.load(Ordering::SeqCst)
    }

    /// The port is about to block. False: there is a reason not to, and it must not.
    pub(crate) fn may_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let reason = self.has_reason();
        if reason {
            self.sleeping.store(false, Ordering::SeqCst);
        }
        !reason
    }

    /// The port is awake again.
    pub(crate) fn awake(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Takes the reasons stated since the last call.
    pub(crate) fn take_reasons(&self) -> WakeReasons {
        WakeReasons {
            woken: self.woken.swap(false, Ordering::SeqCst),
            nudged: self.nudged.swap(false, Ordering::SeqCst),
        }
    }

    fn interrupt_sleep(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            (self.interrupt)();
        }
    }
}

impl fmt::Debug for WakeTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("WakeTarget")
            .field("woken", &self.woken)
            .field("nudged", &self.nudged)
            .field("sleeping", &self.sleeping)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn wakes_coalesce_and_interrupt_a_sleeper_once() {
        let interrupts = Arc::new(AtomicU32::new(0));
        let counter = interrupts.clone();
        let target = WakeTarget::new(move || {
            counter.fetch_add(1, Ordering::SeqCst);
        });
        let waker = Waker::new(target.clone());
        assert!(target.may_sleep());
        waker.wake();
        waker.clone().wake();
        assert_eq!(interrupts.load(Ordering::SeqCst), 1);
        assert_eq!(target.take_reasons(), WakeReasons { woken: true, nudged: false });
        assert_eq!(target.take_reasons(), WakeReasons { woken: false, nudged: false });
    }

    #[test]
    fn a_wake_while_busy_costs_no_interrupt_but_forbids_the_next_sleep() {
        let target = WakeTarget::new(|| unreachable!("nobody sleeps"));
        target.nudge();
        assert!(!target.may_sleep());
        assert_eq!(target.take_reasons(), WakeReasons { woken: false, nudged: true });
        assert!(target.may_sleep());
        target.awake();
    }
}
