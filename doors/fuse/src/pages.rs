//! The kernel's pages of a file: a hold of the client keeps each window of them true, and when the hold is wanted the pages go first; so
//! do those of bytes that a call changes.
//!
//! *Invariants*: the kernel has pages of a window only while there is a hold on it, for writing if any handle may write. A request
//! that has the kernel's locks on pages waits for no hold but that of its own window, and then only if the window has none. So pages can
//! always be dropped (`window.rs`). A call that changes bytes has its locks, so while it waits for pages to go, whatever writes them
//! back must need no lock: it goes beneath the hold, as all writes of pages do.

use crate::abi::{FileLock, LkIn};
use crate::ahead::Ahead;
use crate::cut::Cuts;
use crate::exchange::Errno;
use crate::handles::Handle;
use crate::inodes::Inode;
use crate::mount::{Mount, failed};
use crate::notify::Notifier;
use crate::window::{ChangeId, Pass, Why};
use ccpfs_client::{Hold, HoldId, HoldMode};
use ccpfs_types::Extent;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// Bytes of a window. A single page, however large, lies in one.
const WINDOW_BYTES: u64 = 1 << 20;

/// Windows of a file that may have pages; when there are more, some are dropped.
const WINDOWS_MAX: usize = 4096;

/// What is known of the kernel's pages of one file.
#[derive(Default)]
pub(crate) struct Pages {
    windows: Mutex<Windows>,
    handles: Mutex<Vec<Weak<Handle>>>,
    /// The size that the kernel believes.
    pub(crate) ahead: Ahead,
    /// Changes of size that the kernel asked for.
    pub(crate) cuts: Cuts,
}

type Window = crate::window::Window<Hold>;

#[derive(Default)]
struct Windows {
    known: BTreeMap<u64, Arc<Window>>,
    /// Calls that change bytes just now, also in windows that are not known yet.
    changes: Vec<(ChangeId, Extent)>,
    last_change: u64,
}

/// Bytes of a file of which there are no pages, because a call changes them, until this is dropped.
pub(crate) struct Cleared<'a> {
    pages: &'a Pages,
    id: ChangeId,
    extent: Extent,
}

/// What makes a window's pages go away.
pub(crate) enum Drop {
    /// The client's hold is wanted.
    Revoked { inode: Weak<Inode>, window: u64, hold: HoldId },
    /// The last handle of a file is closed: all of its pages, then the handle.
    Closed(Arc<Handle>),
    /// The kernel remembers too many files.
    Crowd,
}

impl Windows {
    fn within(&self, extent: Extent) -> impl Iterator<Item = (u64, &Arc<Window>)> {
        let (first, last) = (extent.start() / WINDOW_BYTES, (extent.end() - 1) / WINDOW_BYTES);
        self.known.range(first..=last).map(|(index, window)| (*index, window))
    }

    fn forget(&mut self, index: u64) {
        // Whoever has a window got it under our lock.
        let unused = |window: &Arc<Window>| Arc::strong_count(window) == 1 && window.is_unused();
        if self.known.get(&index).is_some_and(unused) {
            self.known.remove(&index);
        }
    }
}

impl Pages {
    fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().expect("no code panics under this lock")
    }

    fn window(&self, index: u64) -> Arc<Window> {
        let Windows { known, changes, .. } = &mut *self.windows();
        let new = || {
            let extent = Extent::with_length(index * WINDOW_BYTES, WINDOW_BYTES).expect("not empty");
            let window = Window::new(extent);
            for (id, extent) in &*changes {
                window.begin_change(*id, *extent);
            }
            Arc::new(window)
        };
        Arc::clone(known.entry(index).or_insert_with(new))
    }

    /// The window of this number, if there is one.
    fn known(&self, index: u64) -> Option<Arc<Window>> {
        self.windows().known.get(&index).cloned()
    }

    /// Forgets a window that has no pages and that nobody is about to use.
    fn forget(&self, index: u64) {
        self.windows().forget(index);
    }

    /// A window that has to make room when there are too many besides the one of this number: the next one behind it that has pages,
    /// in a circle, which is the one that was used longest ago when a file is gone through.
    fn surplus(&self, index: u64) -> Option<(u64, HoldId)> {
        let Windows { known, .. } = &*self.windows();
        if known.len() <= WINDOWS_MAX {
            return None;
        }
        let held = |(index, window): (&u64, &Arc<Window>)| window.kept().map(|hold| (*index, hold.id()));
        known.range(index + 1..).chain(known.range(..index)).find_map(held)
    }

    fn all(&self) -> Vec<(u64, Arc<Window>)> {
        self.windows().known.iter().map(|(index, window)| (*index, Arc::clone(window))).collect()
    }

    /// Whether there may be pages.
    pub(crate) fn any(&self) -> bool {
        !self.windows().known.is_empty()
    }

    /// Whether any pages are on their way out.
    pub(crate) fn is_dropping(&self) -> bool {
        self.all().iter().any(|(_, window)| window.is_dropping())
    }

    /// Windows that may have pages with data which only the kernel knows, in rising order.
    pub(crate) fn written_windows(&self) -> Vec<Extent> {
        let may_be_written =
            |window: &Window| window.hold().is_some_and(|hold| hold.mode() == HoldMode::Write);
        self.all().iter().filter(|(_, window)| may_be_written(window)).map(|(_, w)| w.extent).collect()
    }

    /// A call is about to change bytes: its number, and the windows that may have pages of them, with which bytes, in rising order.
    fn begin_change(&self, extent: Extent) -> (Cleared<'_>, Vec<(Arc<Window>, Extent)>) {
        let mut windows = self.windows();
        windows.last_change += 1;
        let id = ChangeId(windows.last_change);
        windows.changes.push((id, extent));
        let swept = |(_, window): (u64, &Arc<Window>)| {
            window.begin_change(id, extent).map(|part| (Arc::clone(window), part))
        };
        let swept = windows.within(extent).filter_map(swept).collect();
        (Cleared { pages: self, id, extent }, swept)
    }

    /// A handle that may write, if there is one.
    fn writer(&self) -> Option<Arc<Handle>> {
        let handles = self.handles.lock().expect("no code panics under this lock");
        handles.iter().filter_map(Weak::upgrade).find(|handle| handle.writable)
    }

    /// Any handle.
    pub(crate) fn any_handle(&self) -> Option<Arc<Handle>> {
        self.handles.lock().expect("no code panics under this lock").iter().find_map(Weak::upgrade)
    }

    /// Enters a handle.
    pub(crate) fn note_open(&self, handle: &Arc<Handle>) {
        self.handles.lock().expect("no code panics under this lock").push(Arc::downgrade(handle));
    }

    /// Takes a handle out; tells whether it was the last.
    pub(crate) fn note_closed(&self, handle: &Arc<Handle>) -> bool {
        let mut handles = self.handles.lock().expect("no code panics under this lock");
        handles
            .retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(handle)));
        handles.is_empty()
    }

    /// Whether all handles write, and none appends.
    fn are_written_in_place(&self) -> bool {
        let handles = self.handles.lock().expect("no code panics under this lock");
        handles.iter().filter_map(Weak::upgrade).all(|handle| handle.writes_in_place)
    }
}

impl std::ops::Drop for Cleared<'_> {
    fn drop(&mut self) {
        let mut windows = self.pages.windows();
        windows.changes.retain(|(id, _)| *id != self.id);
        let changed: Vec<u64> = windows.within(self.extent).map(|(index, _)| index).collect();
        for index in changed {
            windows.known[&index].end_change(self.id);
            // The hold may have gone meanwhile.
            windows.forget(index);
        }
    }
}

/// As [`Mount::clear`], for somebody who has no mount.
pub(crate) fn clear<'a>(notifier: &Notifier, inode: &'a Inode, extent: Extent) -> Cleared<'a> {
    let (cleared, windows) = inode.pages.begin_change(extent);
    for (window, part) in windows {
        sweep(notifier, inode, &window, (Why::Change(cleared.id), part));
    }
    cleared
}

fn sweep(notifier: &Notifier, inode: &Inode, window: &Window, (why, extent): (Why, Extent)) {
    let mut next = Some(extent);
    while let Some(extent) = next {
        match notifier.drop_pages(inode.nodeid, extent.start(), extent.length()) {
            // The kernel may have forgotten the file, and all of its pages; or the mount is at its end.
            Ok(()) | Err(libc::ENOENT | libc::ENODEV | libc::ENOTCONN | libc::ECONNABORTED) => {}
            Err(errno) => tracing::error!("the kernel does not drop pages of a file: error {errno}"),
        }
        next = window.next(why, extent);
    }
}

/// The windows that a range touches, with the part of the range in each.
fn parts(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, Extent)> {
    let whole = Extent::with_length(offset, bytes as u64);
    whole.into_iter().flat_map(|whole| {
        let (first, last) = (whole.start() / WINDOW_BYTES, (whole.end() - 1) / WINDOW_BYTES);
        (first..=last).filter_map(move |index| {
            let window = Extent::with_length(index * WINDOW_BYTES, WINDOW_BYTES)?;
            Some((index, window.intersection(whole)?))
        })
    })
}

impl Mount {
    /// After the first handle that may write is there: pages under holds for reading go, so that none of them is written.
    pub(crate) fn before_writes(&self, inode: &Inode) {
        for (index, window) in inode.pages.all() {
            if let Some(hold) = window.settled().filter(|hold| hold.mode() == HoldMode::Read) {
                self.drop_window(inode, &window, Some(hold.id()));
                drop((hold, window));
                inode.pages.forget(index);
            }
        }
    }

    /// A READ that fills pages.
    pub(crate) fn read_page(&self, handle: &Handle, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let mut filled = 0;
        let ahead = &handle.inode.pages.ahead;
        let answers = ahead.answers_so_far();
        let crosses = parts(offset, to.len()).nth(1).is_some();
        for (index, part) in parts(offset, to.len()) {
            let window = handle.inode.pages.window(index);
            let held = if crosses {
                // Waiting with pages of another window would keep that one from being dropped. It is a read ahead of somebody's
                // needs: the kernel asks again for the very page that is needed.
                window.pass_now(part).ok_or(libc::EIO)
            } else {
                self.hold_for(handle, &window, part)
            };
            let Ok(hold) = &held else {
                drop(window);
                handle.inode.pages.forget(index);
                return held.map(|_| 0);
            };
            let length = usize::try_from(part.length()).expect("within the buffer");
            let room = &mut to[filled..filled + length];
            let read = match hold.read_at(room, part.start()) {
                Err(_) if hold.is_lost() && !crosses => {
                    self.renew(handle, &window, hold)?.read_at(room, part.start())
                }
                read => read,
            };
            filled += read.map_err(|e| failed(&e))?;
            if filled < length {
                break;
            }
        }
        if filled < to.len() && ahead.is_raised() {
            if filled == 0 && ahead.answers_so_far() != answers {
                // The kernel takes this for the end of the file only if nothing was written meanwhile; else for zeros.
                return Err(libc::EINTR);
            }
            ahead.told(offset + filled as u64);
        }
        Ok(filled)
    }

    /// A WRITE of pages. There are none without a hold for writing, and they go before it does. If the kernel has kept some all the
    /// same, their bytes may be older than what others have written since, and to wait for a lock might be to wait for ever: EIO,
    /// which `msync` and `fsync` tell.
    pub(crate) fn write_page(&self, handle: &Handle, from: &[u8], offset: u64) -> Result<usize, Errno> {
        let mut written = 0;
        let all = from.len();
        let from = &from[..self.cut_at_end(handle, offset, all)?];
        for (index, part) in parts(offset, from.len()) {
            let hold = handle.inode.pages.known(index).and_then(|window| window.hold());
            let length = usize::try_from(part.length()).expect("within the buffer");
            let data = &from[written..written + length];
            let Some(hold) = hold.filter(|hold| hold.mode() == HoldMode::Write) else {
                tracing::error!("the kernel writes pages of {part} that it was to have dropped");
                return if written > 0 { Ok(written) } else { Err(libc::EIO) };
            };
            written += hold.write_at(data, part.start()).map_err(|e| failed(&e))?;
        }
        Ok(if written == from.len() { all } else { written })
    }

    fn hold_for(&self, handle: &Handle, window: &Arc<Window>, part: Extent) -> Result<Arc<Hold>, Errno> {
        loop {
            match window.pass(part) {
                Pass::Under(hold) => return Ok(hold),
                Pass::Take => {
                    let hold = self.take_hold(handle, window).map(Arc::new);
                    let goes_on = window.taken(hold.as_ref().ok().cloned(), part);
                    let hold = hold?;
                    self.after_taking(handle, window, &hold);
                    if goes_on {
                        return Ok(hold);
                    }
                }
                Pass::Wait => unreachable!("a pass has waited"),
            }
        }
    }

    fn after_taking(&self, handle: &Handle, window: &Window, hold: &Hold) {
        let index = window.extent.start() / WINDOW_BYTES;
        if hold.is_wanted() {
            // It was before anybody could find it.
            self.queue_drop(&handle.inode, index, hold.id());
        }
        if let Some((other, hold)) = handle.inode.pages.surplus(index) {
            self.queue_drop(&handle.inode, other, hold);
        }
    }

    /// A hold in the place of one whose locks were lost, while its pages are on their way out: they go under the new one. For a request
    /// that has the kernel's lock on one of the pages, so that the window cannot be without pages meanwhile.
    fn renew(&self, handle: &Handle, window: &Arc<Window>, lost: &Hold) -> Result<Arc<Hold>, Errno> {
        let taken = Arc::new(self.take_hold(handle, window)?);
        let hold = window.replace(taken, |hold| hold.id() == lost.id()).ok_or(libc::EIO)?;
        // What was read under the lost one goes now; nobody looks for that one any more.
        self.queue_drop(&handle.inode, window.extent.start() / WINDOW_BYTES, hold.id());
        Ok(hold)
    }

    fn take_hold(&self, handle: &Handle, window: &Arc<Window>) -> Result<Hold, Errno> {
        let writer = handle.inode.pages.writer();
        let mode = if writer.is_some() { HoldMode::Write } else { HoldMode::Read };
        let file = writer.as_deref().unwrap_or(handle).file()?;
        let (inode, index) = (Arc::downgrade(&handle.inode), window.extent.start() / WINDOW_BYTES);
        let queue = self.drops.clone();
        let on_revoke = move |hold: HoldId| {
            queue.push(Drop::Revoked { inode: Weak::clone(&inode), window: index, hold });
        };
        file.hold(window.extent, mode, Arc::new(on_revoke)).map_err(|e| failed(&e))
    }

    fn queue_drop(&self, inode: &Arc<Inode>, window: u64, hold: HoldId) {
        self.drops.push(Drop::Revoked { inode: Arc::downgrade(inode), window, hold });
    }

    /// A handle has gone. With the last one the kernel's pages go: there are no mappings any more.
    pub(crate) fn after_release(&self, handle: Arc<Handle>) {
        let last = handle.inode.pages.note_closed(&handle);
        if last && handle.inode.pages.any() {
            self.drops.push(Drop::Closed(handle));
        }
    }

    /// Carries out what was queued.
    pub(crate) fn drop_pages(&self, what: Drop) {
        match what {
            Drop::Revoked { inode, window, hold } => {
                let Some(inode) = inode.upgrade() else { return };
                let Some(found) = inode.pages.known(window) else { return };
                self.drop_window(&inode, &found, Some(hold));
                drop(found);
                inode.pages.forget(window);
            }
            Drop::Closed(handle) => self.drop_all_pages(&handle.inode),
            Drop::Crowd => self.thin_out(),
        }
    }

    /// Drops all pages of a file.
    pub(crate) fn drop_all_pages(&self, inode: &Inode) {
        for (index, window) in inode.pages.all() {
            self.drop_window(inode, &window, None);
            drop(window);
            inode.pages.forget(index);
        }
    }

    /// Drops the pages of a window and releases its hold, if it is this one; any, if none is named.
    fn drop_window(&self, inode: &Inode, window: &Window, only: Option<HoldId>) {
        if window.begin_drop(|hold| only.is_none_or(|only| only == hold.id())) {
            sweep(&self.notifier, inode, window, (Why::Hold, window.extent));
        }
    }

    /// For a call that has its locks and is about to change `extent`: drops the kernel's pages of it, writing back what was stored in
    /// them before, and keeps new ones away until what this gives is dropped. Else a page could be read with the old bytes, stored into,
    /// and written back over the new ones.
    pub(crate) fn clear<'a>(&self, inode: &'a Inode, extent: Extent) -> Cleared<'a> {
        clear(&self.notifier, inode, extent)
    }

    /// A WRITE that ends at `end` is being carried out. When it moves the end that the kernel knows, and others may write as well, the
    /// kernel is told a larger size, so that the next ones can come at once.
    pub(crate) fn note_write(&self, inode: &Inode, thread: u32, end: u64) {
        let pages = &inode.pages;
        let may_be = || self.raise_size && pages.are_written_in_place() && !pages.any();
        if let Some(size) = pages.ahead.raise(thread, end, may_be)
            && let Err(errno) = self.notifier.raise_size(inode.nodeid, size)
        {
            tracing::debug!("the kernel takes no size: error {errno}");
        }
    }

    /// A lock of a range as it was meant, if the kernel counted it from the size that it believes.
    pub(crate) fn real_lock(&self, handle: &Handle, asked: &LkIn) -> LkIn {
        let ahead = &handle.inode.pages.ahead;
        let size =
            || handle.file().and_then(|file| file.size().map_err(|e| failed(&e))).unwrap_or(asked.lock.start);
        let start = ahead.real_from_end(asked.lock.start, size);
        let moved = asked.lock.start.wrapping_sub(start);
        let open_ended = asked.lock.end == i64::MAX.cast_unsigned();
        let end = if open_ended { asked.lock.end } else { asked.lock.end.wrapping_sub(moved) };
        LkIn { lock: FileLock { start, end, ..asked.lock }, ..*asked }
    }

    /// How much of a WRITE of pages belongs to the file: the kernel cuts its pages at the size that it believes.
    fn cut_at_end(&self, handle: &Handle, offset: u64, bytes: usize) -> Result<usize, Errno> {
        if !handle.inode.pages.ahead.is_raised() {
            return Ok(bytes);
        }
        let size = handle.file()?.size().map_err(|e| failed(&e))?;
        let inside = size.saturating_sub(offset);
        Ok(usize::try_from(inside).map_or(bytes, |inside| inside.min(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_windows() {
        let found: Vec<_> = parts(WINDOW_BYTES - 10, 30).map(|(w, e)| (w, e.start(), e.end())).collect();
        let (start, border) = (WINDOW_BYTES - 10, WINDOW_BYTES);
        assert_eq!(found, [(0, start, border), (1, border, border + 20)]);
        assert_eq!(parts(0, 0).count(), 0);
        assert_eq!(parts(0, 1 << 20).count(), 1);
        assert_eq!(parts(4096, 1 << 20).count(), 2);
    }

    #[test]
    fn a_window_without_pages_is_forgotten_when_nobody_uses_it() {
        let pages = Pages::default();
        let window = pages.window(7);
        pages.forget(7);
        assert!(pages.known(7).is_some(), "somebody uses it");
        let window_extent = window.extent;
        assert!(matches!(window.pass(window_extent), Pass::Take));
        drop(window);
        pages.forget(7);
        assert!(pages.any(), "somebody takes it");
        assert!(!pages.window(7).taken(None, window_extent));
        pages.forget(7);
        assert!(!pages.any());
    }

    #[test]
    fn a_change_counts_in_windows_that_appear_while_it_lasts() {
        let pages = Pages::default();
        let extent = Extent::new(WINDOW_BYTES - 10, 3 * WINDOW_BYTES).unwrap();
        let (cleared, swept) = pages.begin_change(extent);
        assert!(swept.is_empty(), "no window, no pages");
        drop((pages.window(0), pages.window(3)));
        assert!(!pages.window(0).is_unused() && pages.window(3).is_unused());
        drop(cleared);
        assert!(pages.known(0).is_none(), "forgotten, because it has no pages");
        assert!(pages.known(3).is_some(), "it is somebody else's");
    }
}
