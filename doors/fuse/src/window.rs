//! One window of a file's pages: under which hold the kernel may have pages of it, and what makes them go.
//!
//! Pages go in a *sweep* of a range: of the whole window, because its hold is wanted ([`Window::begin_drop`]), or of the bytes that a
//! call is about to change ([`Window::begin_change`]). The kernel is told to drop the range, and waits for reads and writes of its
//! pages that are under way; so as long as that lasts, reads of the range are answered under the hold as it is, and what they brought
//! (*late* ranges) is dropped by itself. Once the range was dropped as a whole, reads of it wait, but for those that meet a late range.
//! When no late range is left, no page of the range is left either: the hold can go, or the bytes can change.
//!
//! *Invariants*: a read that a sweep may have to wait for waits for no sweep. What it may wait for are a hold of an empty window, of
//! which nothing is being dropped, and a change that has done with the window: such a one waits for sweeps of higher windows at most.
//! A sweep waits for reads and writes of pages of its own window only. So nobody waits in a circle. The hold of a window stays
//! as long as anything of it is being dropped.

use ccpfs_types::Extent;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// Number of a call that changes bytes, used once in the life of a file's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChangeId(pub(crate) u64);

/// Why pages are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The window's hold is to go.
    Hold,
    /// A call changes bytes.
    Change(ChangeId),
}

/// The pages of one aligned piece of a file, under holds of type `H`.
pub(crate) struct Window<H> {
    /// The piece, in bytes of the file.
    pub(crate) extent: Extent,
    state: Mutex<State<H>>,
    changed: Condvar,
}

struct State<H> {
    pages: Pages<H>,
    /// Calls that change bytes of the window.
    changes: Vec<Change>,
}

enum Pages<H> {
    /// There are none.
    None,
    /// There are none, and a thread waits for the hold.
    Taking,
    /// There may be some.
    Held(Arc<H>),
    /// They are being dropped, all of them.
    Dropping(Arc<H>, Sweep),
}

struct Change {
    id: ChangeId,
    /// What it changes, within the window.
    extent: Extent,
    /// None: there are no pages of it any more.
    sweep: Option<Sweep>,
}

/// Pages of a range that are being dropped.
struct Sweep {
    extent: Extent,
    /// The range has been dropped as a whole.
    dropped: bool,
    /// Ranges that reads brought since the drop began, to be dropped by themselves; the first may be under way.
    late: Vec<Extent>,
}

/// What a request may do to a window.
pub(crate) enum Pass<H> {
    /// Go on under this hold.
    Under(Arc<H>),
    /// There is none: the caller must take it.
    Take,
    /// Not now.
    Wait,
}

impl Sweep {
    fn new(extent: Extent) -> Sweep {
        Sweep { extent, dropped: false, late: Vec::new() }
    }

    /// Whether a read of `part` must be answered for the range to become empty.
    fn needs(&self, part: Extent) -> bool {
        !self.dropped || self.late.iter().any(|late| late.overlaps(part))
    }

    /// What has to be dropped after `done`.
    fn next(&mut self, done: Extent) -> Option<Extent> {
        match self.late.iter().position(|late| *late == done) {
            Some(at) if self.dropped => drop(self.late.remove(at)),
            Some(_) | None => self.dropped = true,
        }
        self.late.first().copied()
    }
}

impl<H> State<H> {
    /// Whether a read of `part` may go on.
    fn pass(&mut self, part: Extent) -> Pass<H> {
        let (hold, whole) = match &mut self.pages {
            Pages::None => return Pass::Take,
            Pages::Taking => return Pass::Wait,
            Pages::Held(hold) => (hold, None),
            Pages::Dropping(hold, sweep) => (hold, Some(sweep)),
        };
        let mut sweeps: Vec<&mut Sweep> = whole.into_iter().collect();
        for change in self.changes.iter_mut().filter(|change| change.extent.overlaps(part)) {
            match &mut change.sweep {
                Some(sweep) => sweeps.push(sweep),
                None => return Pass::Wait,
            }
        }
        if !sweeps.is_empty() && !sweeps.iter().any(|sweep| sweep.needs(part)) {
            return Pass::Wait;
        }
        for sweep in sweeps {
            sweep.late.extend(sweep.extent.intersection(part));
        }
        Pass::Under(Arc::clone(hold))
    }

    fn kept(&self) -> Option<Arc<H>> {
        match &self.pages {
            Pages::Held(hold) => Some(Arc::clone(hold)),
            Pages::None | Pages::Taking | Pages::Dropping(..) => None,
        }
    }

    /// Whether any bytes are being swept for a change.
    fn is_swept(&self) -> bool {
        self.changes.iter().any(|change| change.sweep.is_some())
    }

    fn sweep(&mut self, why: Why) -> &mut Sweep {
        let sweep = match why {
            Why::Hold => match &mut self.pages {
                Pages::Dropping(_, sweep) => Some(sweep),
                Pages::None | Pages::Taking | Pages::Held(_) => None,
            },
            Why::Change(id) => self
                .changes
                .iter_mut()
                .find(|change| change.id == id)
                .and_then(|change| change.sweep.as_mut()),
        };
        sweep.expect("only the thread that drops pages ends that")
    }
}

impl<H> Window<H> {
    /// A window without pages.
    pub(crate) fn new(extent: Extent) -> Window<H> {
        let state = State { pages: Pages::None, changes: Vec::new() };
        Window { extent, state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<H>> {
        self.state.lock().expect("no code panics under this lock")
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<H>>) -> MutexGuard<'a, State<H>> {
        self.changed.wait(state).expect("no code panics under this lock")
    }

    /// The hold for a read of `part`, waiting until it may go on. Never [`Pass::Wait`]. After [`Pass::Take`] the caller must call
    /// [`Window::taken`].
    pub(crate) fn pass(&self, part: Extent) -> Pass<H> {
        let mut state = self.lock();
        loop {
            match state.pass(part) {
                Pass::Under(hold) => return Pass::Under(hold),
                Pass::Take => {
                    state.pages = Pages::Taking;
                    return Pass::Take;
                }
                Pass::Wait => state = self.wait(state),
            }
        }
    }

    /// The same without waiting.
    pub(crate) fn pass_now(&self, part: Extent) -> Option<Arc<H>> {
        match self.lock().pass(part) {
            Pass::Under(hold) => Some(hold),
            Pass::Take | Pass::Wait => None,
        }
    }

    /// The hold that the caller went to take, for a read of `part`; none if that failed. Whether that read may go on under it at once: pages
    /// that it brings then go with the first sweep, which waits for it.
    pub(crate) fn taken(&self, hold: Option<Arc<H>>, part: Extent) -> bool {
        let mut state = self.lock();
        state.pages = hold.map_or(Pages::None, Pages::Held);
        self.changed.notify_all();
        matches!(state.pass(part), Pass::Under(_))
    }

    /// The hold that there is in whatever state, for a write of pages: it waits for nothing.
    pub(crate) fn hold(&self) -> Option<Arc<H>> {
        match &self.lock().pages {
            Pages::Held(hold) | Pages::Dropping(hold, _) => Some(Arc::clone(hold)),
            Pages::None | Pages::Taking => None,
        }
    }

    /// The hold, if nobody is about to drop it.
    pub(crate) fn kept(&self) -> Option<Arc<H>> {
        self.lock().kept()
    }

    /// The same once no thread waits for the hold.
    pub(crate) fn settled(&self) -> Option<Arc<H>> {
        let mut state = self.lock();
        while matches!(state.pages, Pages::Taking) {
            state = self.wait(state);
        }
        state.kept()
    }

    /// Puts `hold` in the place of the one that there is, if `replaces` says so. The one that there is then; none without pages.
    pub(crate) fn replace(&self, hold: Arc<H>, replaces: impl FnOnce(&H) -> bool) -> Option<Arc<H>> {
        let mut before = None;
        let mut state = self.lock();
        let now = match &mut state.pages {
            Pages::Held(now) | Pages::Dropping(now, _) => {
                if replaces(now) {
                    before = Some(std::mem::replace(now, hold));
                }
                Some(Arc::clone(now))
            }
            Pages::None | Pages::Taking => None,
        };
        drop(state);
        // Outside of the lock: the hold may go with it.
        drop(before);
        now
    }

    /// Whether nobody has pages, waits for them or changes bytes.
    pub(crate) fn is_unused(&self) -> bool {
        let state = self.lock();
        matches!(state.pages, Pages::None) && state.changes.is_empty()
    }

    /// Whether any pages are on their way out.
    pub(crate) fn is_dropping(&self) -> bool {
        let state = self.lock();
        matches!(state.pages, Pages::Dropping(..)) || state.is_swept()
    }

    /// Begins to drop the window for its hold's sake, if that is one that is `wanted`. Then the caller goes on with [`Window::next`].
    pub(crate) fn begin_drop(&self, wanted: impl FnOnce(&H) -> bool) -> bool {
        let mut state = self.lock();
        let hold = match &state.pages {
            Pages::Held(hold) if wanted(hold) => Arc::clone(hold),
            Pages::Held(_) | Pages::None | Pages::Taking | Pages::Dropping(..) => return false,
        };
        state.pages = Pages::Dropping(hold, Sweep::new(self.extent));
        self.changed.notify_all();
        true
    }

    /// A call is about to change bytes within the window: once there are no pages of them, there will be none until [`Window::end_change`].
    /// Whether there may be some: then the caller goes on with [`Window::next`], from the lowest window to the highest.
    pub(crate) fn begin_change(&self, id: ChangeId, extent: Extent) -> Option<Extent> {
        let extent = self.extent.intersection(extent)?;
        let mut state = self.lock();
        let sweep = match &state.pages {
            Pages::None | Pages::Taking => None,
            Pages::Held(_) | Pages::Dropping(..) => Some(Sweep::new(extent)),
        };
        let swept = sweep.is_some();
        state.changes.push(Change { id, extent, sweep });
        self.changed.notify_all();
        swept.then_some(extent)
    }

    /// A call has changed its bytes, or will not.
    pub(crate) fn end_change(&self, id: ChangeId) {
        self.lock().changes.retain(|change| change.id != id);
        self.changed.notify_all();
    }

    /// The kernel has dropped `done`: the range that it has to drop next. None when there are no more pages of the sweep; the
    /// window's hold has gone then, if it was for that.
    pub(crate) fn next(&self, why: Why, done: Extent) -> Option<Extent> {
        let mut state = self.lock();
        let mut next = state.sweep(why).next(done);
        self.changed.notify_all();
        while next.is_none() && why == Why::Hold && state.is_swept() {
            state = self.wait(state);
            next = state.sweep(why).late.first().copied();
        }
        if next.is_some() {
            return next;
        }
        let before = match why {
            Why::Hold => Some(std::mem::replace(&mut state.pages, Pages::None)),
            Why::Change(id) => {
                let ended = state.changes.iter_mut().find(|change| change.id == id);
                ended.expect("only the thread that drops pages ends that").sweep = None;
                None
            }
        };
        self.changed.notify_all();
        drop(state);
        // Outside of the lock: the hold may go with it.
        drop(before);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    const PAGE: u64 = 4096;

    fn pages(first: u64, last: u64) -> Extent {
        Extent::new(first * PAGE, (last + 1) * PAGE).unwrap()
    }

    fn window(held: bool) -> Window<u32> {
        let window = Window::new(pages(0, 15));
        assert!(matches!(window.pass(pages(0, 0)), Pass::Take));
        assert_eq!(window.taken(held.then(|| Arc::new(1)), pages(0, 0)), held);
        window
    }

    #[test]
    fn an_empty_window_is_taken_by_one_and_others_wait() {
        let window = window(false);
        let part = pages(3, 3);
        assert!(matches!(window.pass(part), Pass::Take));
        assert!(window.pass_now(part).is_none() && window.hold().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| matches!(window.pass(part), Pass::Take));
            window.taken(None, part);
            assert!(waiter.join().unwrap(), "whoever waited takes it after a failure");
        });
    }

    #[test]
    fn what_is_read_while_a_window_is_dropped_is_dropped_once_more() {
        let window = window(true);
        assert!(!window.begin_drop(|hold| *hold == 2), "another hold is wanted");
        assert!(window.begin_drop(|hold| *hold == 1) && !window.begin_drop(|_| true));
        assert!(window.pass_now(pages(2, 3)).is_some() && window.kept().is_none());
        assert_eq!(window.next(Why::Hold, window.extent), Some(pages(2, 3)));
        assert!(window.pass_now(pages(4, 4)).is_none(), "its pages are gone");
        assert!(window.pass_now(pages(3, 4)).is_some(), "its page may be what the drop waits for");
        assert_eq!(window.next(Why::Hold, pages(2, 3)), Some(pages(3, 4)));
        assert_eq!(window.next(Why::Hold, pages(3, 4)), None);
        assert!(window.is_unused());
    }

    #[test]
    fn bytes_that_change_are_read_before_their_pages_are_gone_or_after_the_change() {
        let window = window(true);
        let id = ChangeId(7);
        assert_eq!(window.begin_change(id, pages(5, 99)), Some(pages(5, 15)));
        assert!(window.pass_now(pages(0, 4)).is_some(), "other bytes");
        assert!(window.pass_now(pages(4, 5)).is_some() && window.is_dropping());
        assert_eq!(window.next(Why::Change(id), pages(5, 15)), Some(pages(5, 5)));
        assert!(window.pass_now(pages(6, 6)).is_none());
        assert_eq!(window.next(Why::Change(id), pages(5, 5)), None);
        assert!(!window.is_dropping() && window.pass_now(pages(5, 5)).is_none());
        assert!(window.hold().is_some() && window.pass_now(pages(0, 4)).is_some());
        window.end_change(id);
        assert!(window.pass_now(pages(5, 6)).is_some());
    }

    #[test]
    fn a_window_without_pages_has_none_of_what_changes_until_the_change_has_ended() {
        let window = window(false);
        assert_eq!(window.begin_change(ChangeId(1), pages(5, 6)), None);
        assert!(matches!(window.pass(pages(5, 5)), Pass::Take));
        assert!(!window.taken(Some(Arc::new(2)), pages(5, 5)));
        assert!(window.pass_now(pages(6, 7)).is_none() && window.pass_now(pages(7, 8)).is_some());
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| matches!(window.pass(pages(5, 5)), Pass::Under(_)));
            window.end_change(ChangeId(1));
            assert!(reader.join().unwrap());
        });
    }

    #[test]
    fn the_hold_stays_while_pages_go_for_a_change() {
        let window = window(true);
        let (id, change) = (ChangeId(1), pages(1, 1));
        assert!(window.begin_drop(|_| true));
        assert_eq!(window.begin_change(id, change), Some(change));
        std::thread::scope(|scope| {
            let dropping = scope.spawn(|| window.next(Why::Hold, window.extent));
            assert!(window.pass_now(change).is_some(), "the change may wait for it");
            assert_eq!(window.next(Why::Change(id), change), Some(change));
            assert_eq!(window.next(Why::Change(id), change), None);
            assert_eq!(dropping.join().unwrap(), Some(change), "what the read brought");
        });
        assert!(window.hold().is_some());
        assert_eq!(window.next(Why::Hold, change), None);
        assert!(window.hold().is_none() && !window.is_unused());
        window.end_change(id);
        assert!(window.is_unused());
    }

    #[test]
    fn a_hold_is_replaced_by_one_that_is_named_only() {
        let window = window(true);
        assert_eq!(window.replace(Arc::new(5), |hold| *hold == 4).as_deref(), Some(&1));
        assert_eq!(window.replace(Arc::new(5), |hold| *hold == 1).as_deref(), Some(&5));
        assert_eq!(window.settled().as_deref(), Some(&5));
        assert!(window.begin_drop(|_| true) && window.next(Why::Hold, window.extent).is_none());
        assert!(window.replace(Arc::new(6), |_| true).is_none());
    }

    /// A page as the kernel has it, or not; locked while it is read or dropped.
    type Page = Mutex<Option<[u64; 2]>>;

    /// A file of two windows of two pages each, of two numbers each, and a kernel that maps it.
    struct World {
        windows: [Window<u32>; 2],
        file: Mutex<[[u64; 2]; 4]>,
        pages: [Page; 4],
        changes: AtomicU64,
    }

    impl World {
        fn window(page: u64) -> usize {
            usize::try_from(page / 2).unwrap()
        }

        /// Does something to a page in memory, after reading it if need be.
        fn touch<T>(&self, page: u64, act: impl FnOnce(&mut [u64; 2]) -> T) -> T {
            let window = &self.windows[Self::window(page)];
            let at = usize::try_from(page).unwrap();
            let mut memory = self.pages[at].lock().unwrap();
            if memory.is_none() {
                while let Pass::Take = window.pass(pages(page, page)) {
                    if window.taken(Some(Arc::new(0)), pages(page, page)) {
                        break;
                    }
                }
                *memory = Some(self.file.lock().unwrap()[at]);
            }
            act(memory.as_mut().unwrap())
        }

        /// Writes back and drops pages.
        fn drop_pages(&self, extent: Extent) {
            for page in extent.start() / PAGE..extent.end() / PAGE {
                let at = usize::try_from(page).unwrap();
                let mut memory = self.pages[at].lock().unwrap();
                if let Some(bytes) = memory.take() {
                    assert!(self.windows[Self::window(page)].hold().is_some(), "written back beneath a hold");
                    self.file.lock().unwrap()[at] = bytes;
                }
            }
        }

        fn sweep(&self, window: &Window<u32>, why: Why, extent: Extent) {
            let mut next = Some(extent);
            while let Some(extent) = next {
                self.drop_pages(extent);
                next = window.next(why, extent);
            }
        }

        /// A call that writes the first number of each of these pages.
        fn write(&self, (first, last): (u64, u64), value: u64) {
            let id = ChangeId(self.changes.fetch_add(1, Ordering::SeqCst));
            for (window, part) in self.windows.each_ref().map(|w| (w, w.begin_change(id, pages(first, last))))
            {
                if let Some(part) = part {
                    self.sweep(window, Why::Change(id), part);
                }
            }
            for page in first..=last {
                self.file.lock().unwrap()[usize::try_from(page).unwrap()][0] = value;
            }
            self.windows.iter().for_each(|window| window.end_change(id));
        }
    }

    #[test]
    fn whatever_is_stored_and_written_at_once_nothing_is_lost_and_nobody_waits_for_ever() {
        const ROUNDS: u64 = 400;
        let pair = |first: u64| Window::new(pages(first, first + 1));
        let world = World {
            windows: [pair(0), pair(2)],
            file: Mutex::default(),
            pages: Default::default(),
            changes: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            let world = &world;
            // Each number has one owner. Calls overlap in windows, and in pages that are only read.
            for (first, last) in [(0, 0), (1, 2), (3, 3)] {
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        world.write((first, last), round);
                        for page in first..=last {
                            assert_eq!(world.touch(page, |numbers| numbers[0]), round, "page {page}");
                        }
                    }
                });
            }
            for page in 0..4 {
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        world.touch(page, |numbers| {
                            assert_eq!(numbers[1], round - 1, "page {page}");
                            numbers[1] = round;
                        });
                    }
                });
            }
            for window in &world.windows {
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        if window.begin_drop(|_| true) {
                            world.sweep(window, Why::Hold, window.extent);
                        }
                    }
                });
            }
        });
        world.drop_pages(pages(0, 3));
        assert_eq!(*world.file.lock().unwrap(), [[ROUNDS; 2]; 4]);
    }
}
