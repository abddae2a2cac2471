//! Cutting a file of which the kernel has pages.
//!
//! As long as the kernel waits for the answer to a change of size, it writes no page of the file back. If somebody else wants such a
//! page meanwhile, he waits for the answer, and the cut may have to wait for him. Then the answer is given before the cut is done, and
//! whatever programs ask of the file through this mount waits for the cut instead; only pages, which must go first, do not.
//!
//! With the answer the kernel cuts its pages, unless it had believed the new size before: then the page of the new end may still have
//! what another client had put behind it. So that page goes, also after the answer, and what programs ask next waits for that as well.

use crate::exchange::Errno;
use crate::inodes::Inode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How long pages may take to go before a cut is taken for the reason why they do not.
const PATIENCE: Duration = Duration::from_millis(20);

/// The cuts of one file. The kernel asks for one after the other.
#[derive(Default)]
pub(crate) struct Cuts {
    state: Mutex<State>,
    changed: Condvar,
    /// Whether any may have been answered and not done.
    owed: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Cuts begun, carried out, done with the page of the new end as well, and the last one that was answered before it was done.
    begun: u64,
    carried_out: u64,
    done: u64,
    answered: u64,
    /// What came of the last one that was done.
    result: Option<Result<(), Errno>>,
}

/// How a cut has been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It is done.
    Done,
    /// It will be done before anything else.
    Owed,
}

impl Cuts {
    fn begin(&self) -> u64 {
        let mut state = self.state.lock().expect("no code panics under this lock");
        state.begun += 1;
        state.begun
    }

    /// Waits until all cuts before this one are done.
    fn wait_before(&self, number: u64) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        while state.done + 1 < number {
            state = self.changed.wait(state).expect("no code panics under this lock");
        }
    }

    /// The cut that was begun last will not be.
    fn give_up(&self, number: u64) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        debug_assert_eq!(state.begun, number, "the kernel asks for one change of a file's size at a time");
        state.begun -= 1;
    }

    /// A cut is carried out; the page of its end is still to go.
    fn carried_out(&self, number: u64) {
        self.state.lock().expect("no code panics under this lock").carried_out = number;
        self.changed.notify_all();
    }

    fn finish(&self, number: u64, result: Result<(), Errno>) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        state.done = number;
        if let (true, Err(errno)) = (state.answered >= number, result) {
            tracing::error!("a file could not be cut, after the kernel was told so: error {errno}");
        }
        state.result = Some(result);
        self.changed.notify_all();
    }

    /// Waits until a cut is done, or is but for a page, or until it is owed because pages are stuck.
    fn answer(&self, number: u64, is_stuck: impl Fn() -> bool) -> Result<Cut, Errno> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        while state.done < number {
            if state.carried_out >= number {
                return Ok(self.owe(&mut state, number));
            }
            let (next, waited) =
                self.changed.wait_timeout(state, PATIENCE).expect("no code panics under this lock");
            state = next;
            if waited.timed_out() && state.done < number && is_stuck() {
                return Ok(self.owe(&mut state, number));
            }
        }
        state.result.take().unwrap_or(Ok(())).map(|()| Cut::Done)
    }

    fn owe(&self, state: &mut State, number: u64) -> Cut {
        state.answered = number;
        self.owed.store(true, Ordering::SeqCst);
        Cut::Owed
    }

    /// Waits until no cut is owed. Not for what pages need in order to go.
    pub(crate) fn wait(&self) {
        if !self.owed.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.state.lock().expect("no code panics under this lock");
        while state.done < state.answered {
            state = self.changed.wait(state).expect("no code panics under this lock");
        }
        self.owed.store(false, Ordering::SeqCst);
    }
}

/// Carries out `work`, which cuts a file, in the order in which cuts were asked for; then `clear`, which makes the page of the new end go,
/// if there are pages.
pub(crate) fn cut(
    inode: &Arc<Inode>,
    work: impl FnOnce() -> Result<(), Errno> + Send + 'static,
    clear: impl FnOnce() + Send + 'static,
) -> Result<Cut, Errno> {
    if !inode.pages.any() {
        return work().map(|()| Cut::Done);
    }
    let number = inode.pages.cuts.begin();
    let beside = Arc::clone(inode);
    let named = std::thread::Builder::new().name("ccpfs-cut".to_owned()).stack_size(512 << 10);
    let started = named.spawn(move || {
        beside.pages.cuts.wait_before(number);
        let result = work();
        if result.is_ok() {
            beside.pages.cuts.carried_out(number);
            clear();
        }
        beside.pages.cuts.finish(number, result);
    });
    if let Err(error) = started {
        // Not waiting for those before it: they may wait for pages, and pages for the answer to this one.
        inode.pages.cuts.give_up(number);
        return Err(error.raw_os_error().unwrap_or(libc::EAGAIN));
    }
    inode.pages.cuts.answer(number, || inode.pages.is_dropping())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_owed_only_while_pages_are_stuck_and_what_comes_next_waits_for_it() {
        let cuts = Arc::new(Cuts::default());
        let first = cuts.begin();
        assert_eq!(cuts.answer(first, || true), Ok(Cut::Owed));
        let second = cuts.begin();
        let other = Arc::clone(&cuts);
        let next = std::thread::spawn(move || {
            other.wait_before(second);
            other.finish(second, Err(libc::EFBIG));
        });
        cuts.finish(first, Ok(()));
        cuts.wait();
        assert_eq!(cuts.answer(second, || false), Err(libc::EFBIG));
        next.join().unwrap();
    }

    #[test]
    fn a_cut_is_answered_when_only_its_page_is_left_and_what_comes_next_waits_for_that() {
        let cuts = Cuts::default();
        let only = cuts.begin();
        cuts.carried_out(only);
        assert_eq!(cuts.answer(only, || false), Ok(Cut::Owed));
        std::thread::scope(|scope| {
            let next = scope.spawn(|| cuts.wait());
            assert!(!next.is_finished());
            cuts.finish(only, Ok(()));
            next.join().unwrap();
        });
        assert_eq!(cuts.begin(), only + 1);
    }

    #[test]
    fn a_cut_that_could_not_be_begun_leaves_nothing_to_wait_for() {
        let cuts = Cuts::default();
        let first = cuts.begin();
        assert_eq!(cuts.answer(first, || true), Ok(Cut::Owed));
        let second = cuts.begin();
        cuts.give_up(second);
        cuts.finish(first, Ok(()));
        cuts.wait();
        let third = cuts.begin();
        cuts.wait_before(third);
        cuts.finish(third, Ok(()));
        assert_eq!(cuts.answer(third, || false), Ok(Cut::Done));
    }
}
