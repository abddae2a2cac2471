//! The size that the kernel believes, kept ahead of several writers of one file.
//!
//! The kernel lets writes of one file come at once only below the size that it knows; what ends beyond it is written alone, under the
//! inode's lock. When several threads grow a file, a write that moves the end is therefore used to tell the kernel a larger
//! size. Every question for the size comes to us, so no program sees it; but for this a question must not cross the message:
//! `lseek(SEEK_END)` asks under the inode's lock, so the message goes out while a write has that lock, and only then.
//!
//! What the kernel itself does with a size shows: a write with `RWF_APPEND` comes with that size as its offset, and nothing else says that
//! it is one. So the size lies where no program comes by itself, at a random place behind 2^60: whatever is written just there is an
//! append. Each size is told once, so what the kernel makes of one afterwards (the offset of a descriptor after such an
//! append, the start of a lock that is counted from the end) can be told from everything else, and is taken for what was meant.
//!
//! Not for files that are mapped, whose pages are cut at that size, nor while a handle appends, whose offset is set by it, or only reads:
//! `sendfile` and `splice` go by it.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Sizes that are told ahead begin here; the kernel's limit lies at 2^63.
const AHEAD_MIN: u64 = 1 << 60;
/// Where no size is told any more.
const AHEAD_MAX: u64 = 1 << 62;
/// Sizes told ahead are at least so far apart: what is less than half of it away from one belongs to that one.
const APART_BYTES: u64 = 1 << 32;
/// How many appends of a file are remembered by the offsets that the kernel gave them, when other clients' appends lie between.
const APPENDS_MAX: usize = 4096;
/// After this time the kernel has done with an answer whatever it will do with it.
const SETTLED: Duration = Duration::from_millis(100);

/// What is known of the size that the kernel believes.
#[derive(Default)]
pub(crate) struct Ahead {
    /// What it probably believes.
    believed: AtomicU64,
    /// Whether it was ever told more than the file has.
    raised: AtomicBool,
    /// Writes that were answered since then.
    answered: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// It believes no larger one.
    believed_max: u64,
    /// When it was last told the real one.
    told: Option<Instant>,
    /// The thread that moved the end last.
    mover: u32,
    several: bool,
    /// The last size that was told ahead, and what was appended to it as the kernel counts.
    top: u64,
    /// Appends by the offset that the kernel gave them: where they really begin. Those that go on where the one before ends are left out.
    appends: BTreeMap<u64, u64>,
}

/// Where a write belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this offset.
    At(u64),
    /// At the end, wherever it is.
    End,
}

/// The first size to tell for a file that now ends at `end`, or one behind `top`. Its lower half is the real one's, because `FIONREAD`
/// shows only that. Its last byte is never the first of a page, so that the kernel does not take the page that it gets with the
/// message for a whole one.
fn raised(top: u64, end: u64) -> Option<u64> {
    let before = if top == 0 {
        let random = RandomState::new().build_hasher().finish() % (AHEAD_MIN / APART_BYTES);
        AHEAD_MIN + random * APART_BYTES
    } else {
        (top / APART_BYTES + 2) * APART_BYTES
    };
    let size = before + end % APART_BYTES;
    let size = if size % 4096 == 1 { size + 1 } else { size };
    (end < AHEAD_MIN && size < AHEAD_MAX).then_some(size)
}

impl State {
    /// The real offset for one that the kernel counted from a size that was told ahead.
    fn real(&self, offset: u64) -> Option<u64> {
        let near = |(at, _): &(&u64, &u64)| offset.abs_diff(**at) < APART_BYTES / 2;
        let before = self.appends.range(..=offset).next_back().filter(near);
        // An offset a little before the first append was counted back from that.
        let (at, from) = before.or_else(|| self.appends.range(offset..).next().filter(near))?;
        from.checked_add_signed(offset.cast_signed() - at.cast_signed())
    }
}

impl Ahead {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics under this lock")
    }

    /// The kernel is about to learn this size from an answer of ours.
    pub(crate) fn told(&self, size: u64) {
        let mut state = self.lock();
        state.believed_max = state.believed_max.max(size);
        state.told = Some(Instant::now());
        self.believed.store(size, Ordering::Relaxed);
    }

    /// The file was cut while nobody else could write it.
    pub(crate) fn cut(&self, size: u64) {
        let mut state = self.lock();
        state.believed_max = size;
        state.told = None;
        self.believed.store(size, Ordering::Relaxed);
    }

    /// The kernel will take the end of what it has asked for to be the end of the file, if it knows no larger one.
    pub(crate) fn grows(&self, end: u64) {
        let mut state = self.lock();
        state.believed_max = state.believed_max.max(end);
        self.believed.fetch_max(end, Ordering::Relaxed);
    }

    /// Where a WRITE belongs that comes with this offset.
    pub(crate) fn place(&self, offset: u64) -> Place {
        if offset < AHEAD_MIN || !self.is_raised() {
            return Place::At(offset);
        }
        let state = self.lock();
        if offset >= state.top && offset - state.top < APART_BYTES / 2 {
            return Place::End;
        }
        Place::At(state.real(offset).unwrap_or(offset))
    }

    /// The real offset for one that a program may have from the kernel.
    pub(crate) fn real(&self, offset: u64) -> u64 {
        if offset < AHEAD_MIN || !self.is_raised() {
            return offset;
        }
        self.lock().real(offset).unwrap_or(offset)
    }

    /// The same for the start of a range that may be counted from the end, which is at `size`.
    pub(crate) fn real_from_end(&self, offset: u64, size: impl FnOnce() -> u64) -> u64 {
        if offset < AHEAD_MIN || !self.is_raised() {
            return offset;
        }
        let state = self.lock();
        match state.real(offset) {
            Some(real) if offset < state.top => real,
            Some(_) | None if offset.abs_diff(state.top) < APART_BYTES / 2 => {
                let moved = offset.cast_signed() - state.top.cast_signed();
                drop(state);
                size().saturating_add_signed(moved)
            }
            Some(real) => real,
            None => offset,
        }
    }

    /// So many bytes, which came with this offset, were put at the file's end, which is at `end` now.
    pub(crate) fn appended(&self, offset: u64, bytes: u64, end: u64) {
        let kernel_end = offset.saturating_add(bytes);
        self.grows(kernel_end);
        if offset < AHEAD_MIN || !self.is_raised() {
            return;
        }
        let mut state = self.lock();
        let at = end.saturating_sub(bytes);
        let goes_on = state.appends.range(..offset).next_back().is_some() && state.real(offset) == Some(at);
        if !goes_on {
            state.appends.insert(offset, at);
        }
        if state.appends.len() > APPENDS_MAX {
            state.appends.pop_first();
        }
        if kernel_end - state.top.min(kernel_end) < APART_BYTES / 2 {
            state.top = state.top.max(kernel_end);
        }
    }

    /// A WRITE of this thread, which ends at `end`, is being carried out. If it moves the end that the kernel knows, is not alone in
    /// that, and has the inode's lock: the size to tell the kernel.
    pub(crate) fn raise(&self, thread: u32, end: u64, may_be: impl FnOnce() -> bool) -> Option<u64> {
        // Mostly not, and then nothing is written to memory that other writers read.
        if end <= self.believed.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.lock();
        // What ends behind all that the kernel may believe has the inode to itself. So has, or shares with other writes, what is beyond
        // the size that the kernel has been told and taken; only what was begun before by asynchronous means has no lock.
        let settled = state.told.is_some_and(|told| told.elapsed() >= SETTLED);
        if end <= state.believed_max && !settled {
            return None;
        }
        // A thread of another world of process numbers has none here: it may be any.
        state.several |= thread == 0 || (state.mover != 0 && state.mover != thread);
        state.mover = thread;
        state.believed_max = state.believed_max.max(end);
        let size = if state.several && may_be() { raised(state.top, end) } else { None };
        let Some(size) = size else {
            self.believed.fetch_max(end, Ordering::Relaxed);
            return None;
        };
        state.top = size;
        state.believed_max = size;
        state.told = None;
        self.raised.store(true, Ordering::SeqCst);
        self.believed.store(size, Ordering::Relaxed);
        Some(size)
    }

    /// Whether the kernel may believe more than the file has.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    /// A WRITE is about to be answered.
    pub(crate) fn answers(&self) {
        if self.is_raised() {
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many were answered while the kernel might believe more than the file has.
    pub(crate) fn answers_so_far(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yes() -> bool {
        true
    }

    /// What two threads have raised, with the file's end at 200.
    fn ahead() -> (Ahead, u64) {
        let ahead = Ahead::default();
        assert_eq!(ahead.raise(1, 100, yes), None, "one writer needs nothing");
        let size = ahead.raise(2, 200, yes).unwrap();
        (ahead, size)
    }

    #[test]
    fn only_a_write_of_another_thread_beyond_all_that_the_kernel_was_told_raises_the_size() {
        let ahead = Ahead::default();
        ahead.told(100);
        assert_eq!(ahead.raise(1, 100, yes), None);
        assert_eq!(ahead.raise(1, 101, yes), None);
        assert_eq!(ahead.raise(2, 101, yes), None);
        assert_eq!(ahead.raise(2, 102, || false), None);
        let size = ahead.raise(1, 103, yes).unwrap();
        assert_eq!(ahead.raise(2, size, yes), None, "the kernel believes it");
        ahead.told(103);
        assert_eq!(ahead.raise(2, 104, yes), None, "the kernel may believe either");
        ahead.cut(0);
        assert!(ahead.raise(1, 1, yes).unwrap() > size, "no size is told twice");
    }

    #[test]
    fn a_size_is_raised_again_when_the_kernel_has_long_taken_the_real_one() {
        let (ahead, size) = ahead();
        ahead.told(200);
        ahead.lock().told = Instant::now().checked_sub(SETTLED);
        assert!(ahead.raise(1, 201, yes).unwrap() > size);
    }

    #[test]
    fn sizes_told_ahead_lie_where_nobody_is_and_show_only_the_real_lower_half() {
        for end in [1, 4095, 4096, 4097, 1 << 30, (7 << 32) + 5] {
            let size = raised(0, end).unwrap();
            assert!((AHEAD_MIN..2 * AHEAD_MIN).contains(&size) && !(size - 1).is_multiple_of(4096));
            assert!(size % APART_BYTES - end % APART_BYTES < 2);
            let next = raised(size + 100, end).unwrap();
            assert!(next >= size + 100 + APART_BYTES && next < size + 3 * APART_BYTES);
        }
        assert_eq!(raised(0, u64::MAX), None);
        assert_eq!(raised(0, AHEAD_MIN), None);
        assert_eq!(raised(AHEAD_MAX - 1, 1), None);
    }

    #[test]
    fn what_is_written_at_a_size_told_ahead_is_an_append() {
        let (ahead, size) = ahead();
        assert_eq!(ahead.place(200), Place::At(200));
        assert_eq!(ahead.place(size), Place::End);
        ahead.appended(size, 10, 210);
        assert_eq!(ahead.place(size + 10), Place::End, "the next one comes where that one ended");
    }

    #[test]
    fn what_a_program_counts_from_an_append_is_where_the_append_is() {
        let (ahead, size) = ahead();
        ahead.appended(size, 10, 210);
        ahead.appended(size + 10, 5, 215);
        ahead.appended(size + 15, 5, 1005);
        assert_eq!(ahead.lock().appends.len(), 2, "what goes on needs no entry");
        assert_eq!(
            [size - 50, size, size + 12, size + 15, size + 20].map(|at| ahead.real(at)),
            [150, 200, 212, 1000, 1005]
        );
        assert_eq!(ahead.place(size + 10), Place::At(210));
        assert_eq!(ahead.real(AHEAD_MIN - 1), AHEAD_MIN - 1);
        assert_eq!(ahead.real(size + 3 * APART_BYTES), size + 3 * APART_BYTES, "that is nobody's");
        ahead.cut(0);
        let next = ahead.raise(1, 1, yes).unwrap();
        ahead.appended(next, 4, 5);
        assert_eq!((ahead.real(size + 12), ahead.real(next + 4)), (212, 5));
    }

    #[test]
    fn ranges_counted_from_the_end_begin_at_the_end() {
        let (ahead, size) = ahead();
        assert_eq!(ahead.real_from_end(size, || 300), 300);
        assert_eq!(ahead.real_from_end(size - 100, || 300), 200);
        assert_eq!(ahead.real_from_end(7, || unreachable!("that is where it is")), 7);
        ahead.appended(size, 10, 310);
        assert_eq!(ahead.real_from_end(size + 10, || 320), 320);
        assert_eq!(ahead.real_from_end(size + 4, || 320), 304);
    }

    #[test]
    fn as_many_appends_are_remembered_as_there_is_room_for() {
        let (ahead, size) = ahead();
        for number in 0..2 * APPENDS_MAX as u64 {
            ahead.appended(size + number, 1, 1000 * (number + 1));
        }
        let state = ahead.lock();
        assert!(state.appends.len() <= APPENDS_MAX && state.top == size + 2 * APPENDS_MAX as u64);
    }
}
