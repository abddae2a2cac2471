//! The descriptor table: which descriptors of the process are ccPFS's.
//!
//! *What*: one pointer per possible descriptor, in slabs that exist only where they are needed. A pointer leads to an
//! [`OpenFile`], the open file description; descriptors made by `dup` share one.
//! *Invariants*: looking up takes no lock (a signal handler or a forked child may do it at any time). An `OpenFile` is
//! never freed, only used again, so a reader may always look at its counter; it holds a reference before it looks at
//! anything else, and finds the descriptor still leading there afterwards.

use crate::inside;
use crate::open_file::OpenFile;
use libc::c_int;
use std::array;
use std::ops::Deref;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

/// Descriptors in one slab.
const SLAB_FDS: usize = 4096;
/// Slabs: together as many descriptors as Linux allows in its default configuration, sixteen times over.
const SLABS: usize = 4096;

type Slab = [AtomicPtr<OpenFile>; SLAB_FDS];

static TABLE: [AtomicPtr<Slab>; SLABS] = [const { AtomicPtr::new(ptr::null_mut()) }; SLABS];
/// The highest descriptor that was ever entered.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);
/// The highest one that was entered as the program's.
static HIGHEST_FILE: AtomicI32 = AtomicI32::new(-1);
/// What the entries of the client library's own descriptors point to.
static INTERNAL: OpenFile = OpenFile::new();

fn internal() -> *mut OpenFile {
    ptr::from_ref(&INTERNAL).cast_mut()
}

/// A reference to an open file: it is not closed while this lives.
pub(crate) struct OpenRef(&'static OpenFile);

impl Deref for OpenRef {
    type Target = OpenFile;
    fn deref(&self) -> &OpenFile {
        self.0
    }
}

impl OpenRef {
    /// Takes over a reference that was counted already.
    pub(crate) fn from_counted(file: &'static OpenFile) -> OpenRef {
        OpenRef(file)
    }
}

impl Clone for OpenRef {
    fn clone(&self) -> OpenRef {
        assert!(self.0.try_reference(), "a counted reference keeps the file open");
        OpenRef(self.0)
    }
}

impl Drop for OpenRef {
    fn drop(&mut self) {
        self.0.drop_reference();
    }
}

/// The entry of a descriptor, when its slab exists.
#[inline]
fn entry(fd: c_int) -> Option<&'static AtomicPtr<OpenFile>> {
    let fd = usize::try_from(fd).ok()?;
    let slab = TABLE.get(fd / SLAB_FDS)?.load(Ordering::Acquire);
    // SAFETY: a slab that has been published is never freed.
    let slab = unsafe { slab.as_ref() }?;
    Some(&slab[fd % SLAB_FDS])
}

/// The entry of a descriptor; makes its slab. `None` above the largest descriptor.
fn entry_to_fill(fd: c_int) -> Option<&'static AtomicPtr<OpenFile>> {
    let place = TABLE.get(usize::try_from(fd).ok()? / SLAB_FDS)?;
    if place.load(Ordering::Acquire).is_null() {
        let slab: Box<Slab> = Box::new(array::from_fn(|_| AtomicPtr::new(ptr::null_mut())));
        let slab = Box::into_raw(slab);
        let raced =
            place.compare_exchange(ptr::null_mut(), slab, Ordering::AcqRel, Ordering::Acquire).is_err();
        if raced {
            // SAFETY: it was not published.
            drop(unsafe { Box::from_raw(slab) });
        }
    }
    HIGHEST.fetch_max(fd, Ordering::AcqRel);
    entry(fd)
}

/// The open file behind a descriptor; `None` when the descriptor is not ccPFS's, or the caller works for the client
/// library (which means the stub when it names the descriptor).
#[inline]
pub(crate) fn find(fd: c_int) -> Option<OpenRef> {
    let entry = entry(fd)?;
    if entry.load(Ordering::Acquire).is_null() {
        return None;
    }
    find_filled(entry)
}

fn find_filled(entry: &'static AtomicPtr<OpenFile>) -> Option<OpenRef> {
    if inside::is_inside() {
        return None;
    }
    loop {
        let found = entry.load(Ordering::Acquire);
        if found.is_null() || found == internal() {
            return None;
        }
        // SAFETY: open files are never freed.
        let file = unsafe { &*found };
        if file.try_reference() {
            let file = OpenRef(file);
            if entry.load(Ordering::Acquire) == found {
                return Some(file);
            }
        }
    }
}

/// Whether a descriptor belongs to the client library.
#[inline]
pub(crate) fn is_internal(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| entry.load(Ordering::Acquire) == internal())
}

/// Whether a descriptor is in the table, as ccPFS's or as internal.
#[inline]
pub(crate) fn is_known(fd: c_int) -> bool {
    entry(fd).is_some_and(|entry| !entry.load(Ordering::Acquire).is_null())
}

/// What a descriptor led to before it was changed.
pub(crate) struct Former {
    /// The open file.
    pub(crate) file: OpenRef,
    /// Whether this was its last descriptor.
    pub(crate) was_last: bool,
}

fn replace(entry: &AtomicPtr<OpenFile>, by: *mut OpenFile) -> Option<Former> {
    let former = entry.swap(by, Ordering::AcqRel);
    if former.is_null() || former == internal() {
        return None;
    }
    // SAFETY: open files are never freed; the entry's reference passes on to the caller.
    let file = OpenRef::from_counted(unsafe { &*former });
    let was_last = file.drop_descriptor();
    Some(Former { file, was_last })
}

/// Makes a descriptor lead to `file`. Returns what it led to before.
///
/// # Errors
/// `EMFILE` when the number is larger than the table.
pub(crate) fn enter(fd: c_int, file: OpenRef) -> Result<Option<Former>, c_int> {
    let entry = entry_to_fill(fd).ok_or(libc::EMFILE)?;
    HIGHEST_FILE.fetch_max(fd, Ordering::AcqRel);
    file.add_descriptor();
    let target = ptr::from_ref(file.0).cast_mut();
    std::mem::forget(file); // The entry holds the reference now.
    Ok(replace(entry, target))
}

/// Forgets a descriptor, of whatever kind. Returns what it led to.
pub(crate) fn remove(fd: c_int) -> Option<Former> {
    replace(entry(fd)?, ptr::null_mut())
}

/// Marks a descriptor of the client library.
pub(crate) fn mark_internal(fd: c_int) {
    if let Some(entry) = entry_to_fill(fd) {
        replace(entry, internal());
    }
}

/// The descriptors in `[first, last]` that are in the table, in rising order.
pub(crate) fn known(first: c_int, last: c_int) -> impl Iterator<Item = c_int> {
    let last = last.min(HIGHEST.load(Ordering::Acquire));
    (first.max(0)..=last).filter(|fd| is_known(*fd))
}

/// An open file with this stub, and one of its descriptors.
pub(crate) fn find_stub(device: u64, inode: u64) -> Option<(c_int, OpenRef)> {
    known(0, HIGHEST_FILE.load(Ordering::Acquire))
        .filter(|fd| !is_internal(*fd))
        .filter_map(|fd| find_filled_at(fd).map(|file| (fd, file)))
        .find(|(_, file)| file.is_stub(device, inode))
}

/// As [`find`], also inside the client library.
fn find_filled_at(fd: c_int) -> Option<OpenRef> {
    let entry = entry(fd)?;
    let found = entry.load(Ordering::Acquire);
    if found.is_null() || found == internal() {
        return None;
    }
    // SAFETY: open files are never freed.
    let file = unsafe { &*found };
    if !file.try_reference() {
        return None;
    }
    let file = OpenRef(file);
    (entry.load(Ordering::Acquire) == found).then_some(file)
}

/// As [`find`], whoever asks.
pub(crate) fn find_always(fd: c_int) -> Option<OpenRef> {
    find_filled_at(fd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_file::OpenFile;

    #[test]
    fn an_entered_descriptor_is_found_until_it_is_removed() {
        let fd = 5_000_001;
        let file = OpenFile::allocate(libc::O_RDWR, 1, 2);
        assert!(find(fd).is_none());
        assert!(enter(fd, file).unwrap().is_none());
        assert!(find(fd).is_some_and(|file| file.is_stub(1, 2)));
        assert!(remove(fd).is_some_and(|former| former.was_last));
        assert!(find(fd).is_none() && !is_known(fd));
    }

    #[test]
    fn descriptors_of_one_open_file_share_it_and_the_last_one_is_known() {
        let file = OpenFile::allocate(libc::O_RDWR, 1, 3);
        enter(5_000_010, file.clone()).unwrap();
        enter(5_000_011, file).unwrap();
        assert!(remove(5_000_010).is_some_and(|former| !former.was_last));
        assert!(remove(5_000_011).is_some_and(|former| former.was_last));
    }

    #[test]
    fn entering_over_an_open_file_hands_out_the_former_one() {
        let fd = 5_000_020;
        enter(fd, OpenFile::allocate(libc::O_RDONLY, 1, 4)).unwrap();
        let former = enter(fd, OpenFile::allocate(libc::O_RDONLY, 1, 5)).unwrap().unwrap();
        assert!(former.was_last && former.file.is_stub(1, 4));
        assert!(remove(fd).is_some_and(|former| former.file.is_stub(1, 5)));
    }

    #[test]
    fn internal_descriptors_are_known_but_not_found() {
        let fd = 5_000_030;
        mark_internal(fd);
        assert!(is_internal(fd) && is_known(fd) && find(fd).is_none());
        assert!(remove(fd).is_none());
        assert!(!is_known(fd));
    }

    #[test]
    fn numbers_beyond_the_table_are_nobodys() {
        assert!(find(-1).is_none() && find(c_int::MAX).is_none());
        assert_eq!(enter(c_int::MAX, OpenFile::allocate(libc::O_RDWR, 1, 6)).err(), Some(libc::EMFILE));
    }

    #[test]
    fn readers_never_see_another_file_than_the_descriptor_had_while_it_changes_hands() {
        let fd = 5_000_040;
        std::thread::scope(|scope| {
            let reader = scope
                .spawn(|| (0..200_000).filter(|_| find(fd).is_some_and(|file| !file.is_stub(7, 7))).count());
            for _ in 0..20_000 {
                enter(fd, OpenFile::allocate(libc::O_RDWR, 7, 7)).unwrap();
                drop(remove(fd));
                // Another file may take the memory of the one just closed.
                drop(OpenFile::allocate(libc::O_RDWR, 8, 8));
            }
            assert_eq!(reader.join().unwrap(), 0);
        });
    }
}
