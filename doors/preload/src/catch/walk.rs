//! Walks over directories inside the C library, which hand the program a `stat` of each file: `ftw`, `nftw`, `fts`.

use super::same;
use super::stat::complete_entry;
use crate::real;
use libc::{AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int, c_long, c_ushort, c_void, dev_t, ino_t, nlink_t};
use std::cell::Cell;
use std::ffi::{CStr, CString};

type Stat = libc::stat;
/// What `ftw` calls for each file.
type Visit = extern "C" fn(*const c_char, *const Stat, c_int) -> c_int;
/// What `nftw` calls for each file.
type LongVisit = extern "C" fn(*const c_char, *const Stat, c_int, *mut Place) -> c_int;

/// Flags of `nftw`.
const PHYSICAL: c_int = 1;
const CHANGES_DIRECTORY: c_int = 4;
/// The flag that `ftw` and `nftw` hand over with a file that is no directory.
const IS_FILE: c_int = 0;

/// glibc's `struct FTW`.
#[repr(C)]
struct Place {
    base: c_int,
    level: c_int,
}

/// The walk that a thread is in.
#[derive(Clone, Copy, Default)]
struct Walk {
    visit: Option<Visit>,
    long_visit: Option<LongVisit>,
    flags: c_int,
}

thread_local! {
    static WALK: Cell<Walk> = const { Cell::new(Walk { visit: None, long_visit: None, flags: 0 }) };
}

/// Walks, with `walk` for the functions that the C library calls in between. The program may walk in a walk.
fn during(walk: Walk, go: impl FnOnce() -> c_int) -> c_int {
    let outer = WALK.replace(walk);
    let answer = go();
    WALK.set(outer);
    answer
}

/// What the program shall see of a file.
///
/// # Safety
/// `path` is a string, `found` leads to what the C library found there.
unsafe fn completed(path: *const c_char, found: *const Stat, flag: c_int, follow: c_int) -> Stat {
    // SAFETY: as the caller promises.
    let (name, mut known) = unsafe { (CStr::from_ptr(path), *found) };
    if flag == IS_FILE {
        complete_entry(AT_FDCWD, name, &mut known, follow);
    }
    known
}

extern "C" fn visit(path: *const c_char, found: *const Stat, flag: c_int) -> c_int {
    let walk = WALK.get();
    let Some(program) = walk.visit else { return 0 };
    // SAFETY: the C library gives both.
    let known = unsafe { completed(path, found, flag, 0) };
    program(path, &raw const known, flag)
}

extern "C" fn long_visit(path: *const c_char, found: *const Stat, flag: c_int, place: *mut Place) -> c_int {
    let walk = WALK.get();
    let Some(program) = walk.long_visit else { return 0 };
    let follow = if walk.flags & PHYSICAL != 0 { AT_SYMLINK_NOFOLLOW } else { 0 };
    let step = if walk.flags & CHANGES_DIRECTORY == 0 {
        0
    } else {
        // SAFETY: the C library gives the place.
        usize::try_from(unsafe { (*place).base }).unwrap_or(0)
    };
    // SAFETY: the C library gives all of it; the base lies in the path.
    let known = unsafe { completed(path.add(step), found, flag, follow) };
    program(path, &raw const known, flag, place)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftw64(path: *const c_char, program: Option<Visit>, descriptors: c_int) -> c_int {
    let ours = visit as *const c_void;
    let walk = Walk { visit: program, ..Walk::default() };
    // SAFETY: as the caller promises.
    during(walk, || unsafe { real::ftw64(path, ours, descriptors) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nftw64(
    path: *const c_char,
    program: Option<LongVisit>,
    descriptors: c_int,
    flags: c_int,
) -> c_int {
    let ours = long_visit as *const c_void;
    let walk = Walk { long_visit: program, flags, ..Walk::default() };
    // SAFETY: as the caller promises.
    during(walk, || unsafe { real::nftw64(path, ours, descriptors, flags) })
}

/// glibc's `FTSENT`.
#[repr(C)]
struct Entry {
    cycle: *mut Entry,
    parent: *mut Entry,
    link: *mut Entry,
    number: c_long,
    pointer: *mut c_void,
    access_path: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    start_fd: c_int,
    path_length: c_ushort,
    name_length: c_ushort,
    inode: ino_t,
    device: dev_t,
    links: nlink_t,
    level: i16,
    info: c_ushort,
    flags: c_ushort,
    instruction: c_ushort,
    found: *mut Stat,
    name: [c_char; 1],
}

/// `fts_info` of a regular file.
const FTS_FILE: c_ushort = 8;

/// Completes what a walk found of a regular file, going by a name that leads there now.
///
/// # Safety
/// `entry` is null or an entry of a walk; `name` makes a path of it.
unsafe fn complete_fts(entry: *mut Entry, name: impl FnOnce(&Entry) -> Option<CString>) {
    // SAFETY: as the caller promises.
    let Some(entry) = (unsafe { entry.as_ref() }) else { return };
    if entry.info != FTS_FILE {
        return;
    }
    // SAFETY: a regular file of a walk has what was found of it.
    if let Some(found) = unsafe { entry.found.as_mut() }
        && let Some(name) = name(entry)
    {
        complete_entry(AT_FDCWD, &name, found, 0);
    }
}

/// A string of the C library.
///
/// # Safety
/// `text` is null or a string.
unsafe fn owned(text: *const c_char) -> Option<CString> {
    // SAFETY: as the caller promises.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_owned())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fts64_read(walk: *mut c_void) -> *mut c_void {
    // SAFETY: as the caller promises.
    let entry = unsafe { real::fts64_read(walk) };
    // SAFETY: the C library's entry; its access path leads to the file from the working directory.
    unsafe { complete_fts(entry.cast(), |entry| owned(entry.access_path)) };
    entry
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fts64_children(walk: *mut c_void, options: c_int) -> *mut c_void {
    // SAFETY: as the caller promises.
    let first = unsafe { real::fts64_children(walk, options) };
    let mut at = first.cast::<Entry>();
    while !at.is_null() {
        // SAFETY: the list is the C library's.
        unsafe {
            complete_fts(at, child_name);
            at = (*at).link;
        }
    }
    first
}

/// A path to a child that the walk has not come to: by its parent's.
fn child_name(child: &Entry) -> Option<CString> {
    // SAFETY: entries and their strings are the C library's, and live as long as the list.
    unsafe {
        if child.level == 0 {
            return owned(child.access_path);
        }
        let mut path = owned(child.parent.as_ref()?.access_path)?.into_bytes();
        path.push(b'/');
        path.extend_from_slice(CStr::from_ptr(child.name.as_ptr()).to_bytes());
        CString::new(path).ok()
    }
}

same! {
    ftw = ftw64(path: *const c_char, program: Option<Visit>, descriptors: c_int) -> c_int;
    nftw = nftw64(
        path: *const c_char, program: Option<LongVisit>, descriptors: c_int, flags: c_int
    ) -> c_int;
    fts_read = fts64_read(walk: *mut c_void) -> *mut c_void;
    fts_children = fts64_children(walk: *mut c_void, options: c_int) -> *mut c_void;
}
