//! What a program that is started with `posix_spawn` shall do with its descriptors first.
//!
//! *What*: the C library keeps the list in a structure of its own and opens files by itself, in the child, where it would
//! meet the stub. So the list is written down here as well. When a file of ours is to be opened, it is opened before the
//! program is started, and the child gets the descriptor.

use crate::real;
use crate::reply::Errno;
use crate::session::Held;
use crate::{descriptors, open, paths, table};
use libc::{AT_FDCWD, c_int, c_void, mode_t};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// Where descriptors are put that the child shall have: above the numbers that programs ask for.
const FIRST_HIGH_FD: usize = 400;

/// One step.
#[derive(Clone)]
pub(crate) enum Action {
    /// `addopen`.
    Open {
        /// The number it shall have.
        fd: c_int,
        /// The name.
        path: CString,
        /// As for `open`.
        flags: c_int,
        /// As for `open`.
        mode: mode_t,
    },
    /// `adddup2`.
    Duplicate(c_int, c_int),
    /// `addclose`.
    Close(c_int),
    /// `addclosefrom_np`.
    CloseFrom(c_int),
    /// `addchdir_np`.
    Enter(CString),
    /// `addfchdir_np`.
    EnterDescriptor(c_int),
    /// `addtcsetpgrp_np`.
    Foreground(c_int),
}

/// Lists by the address of the structure that the program has.
struct Lists(UnsafeCell<Vec<(usize, Vec<Action>)>>);

// SAFETY: used only while `Held`.
unsafe impl Sync for Lists {}

static LISTS: Lists = Lists(UnsafeCell::new(Vec::new()));

fn with_lists<T>(work: impl FnOnce(&mut Vec<(usize, Vec<Action>)>) -> T) -> T {
    let _held = Held::take();
    // SAFETY: the mutex is held, and `work` does not come back here.
    work(unsafe { &mut *LISTS.0.get() })
}

/// A structure was made, or is given up: nothing is known of it.
pub(crate) fn forget(actions: *const c_void) {
    with_lists(|lists| lists.retain(|(known, _)| *known != actions as usize));
}

/// A step was added to a structure.
pub(crate) fn add(actions: *const c_void, action: Action) {
    with_lists(|lists| match lists.iter_mut().find(|(known, _)| *known == actions as usize) {
        Some((_, list)) => list.push(action),
        None => lists.push((actions as usize, vec![action])),
    });
}

/// A list for the C library in which files of ours are descriptors.
pub(crate) struct Prepared {
    actions: Box<MaybeUninit<libc::posix_spawn_file_actions_t>>,
    opened: Vec<c_int>,
}

impl Prepared {
    /// Opens what the steps want of ours; `None` when they want nothing.
    ///
    /// # Errors
    /// The errno of opening.
    pub(crate) fn new(actions: *const c_void) -> Result<Option<Prepared>, Errno> {
        let known = with_lists(|lists| lists.iter().find(|(at, _)| *at == actions as usize).cloned());
        let Some((_, list)) = known.filter(|_| !actions.is_null()) else { return Ok(None) };
        let mut folder = None;
        let mut any = false;
        for action in &list {
            if let Action::Open { path, .. } = action {
                any |= open::concerns(AT_FDCWD, &joined(folder.as_ref(), path));
            }
            enter(&mut folder, action);
        }
        if !any {
            return Ok(None);
        }
        let mut prepared = Prepared { actions: Box::new(MaybeUninit::uninit()), opened: Vec::new() };
        // SAFETY: the structure is ours, and does not move any more.
        unsafe { real::posix_spawn_file_actions_init(prepared.actions.as_mut_ptr().cast()) };
        prepared.fill(&list)?;
        Ok(Some(prepared))
    }

    fn fill(&mut self, list: &[Action]) -> Result<(), Errno> {
        let mut folder = None;
        for action in list {
            if let Action::Open { fd, path, flags, mode } = action {
                let path = joined(folder.as_ref(), path);
                if open::concerns(AT_FDCWD, &path) {
                    self.open(*fd, &path, *flags, *mode)?;
                    continue;
                }
            }
            enter(&mut folder, action);
            self.pass_on(action)?;
        }
        Ok(())
    }

    fn open(&mut self, fd: c_int, path: &CStr, flags: c_int, mode: mode_t) -> Result<(), Errno> {
        let low = real::checked(open::open_at(AT_FDCWD, path, flags | libc::O_CLOEXEC, mode))?;
        // SAFETY: plain integers.
        let high = unsafe { real::fcntl64(low, libc::F_DUPFD_CLOEXEC, FIRST_HIGH_FD) };
        let kept = if high >= 0 {
            if let Some(file) = table::find_always(low) {
                open::enter(high, file).inspect_err(|_| real::close_plain(high))?;
            }
            descriptors::close(low);
            high
        } else {
            low
        };
        self.opened.push(kept);
        self.pass_on(&Action::Duplicate(kept, fd))?;
        if flags & libc::O_CLOEXEC != 0 { self.pass_on(&Action::Close(fd)) } else { Ok(()) }
    }

    fn pass_on(&mut self, action: &Action) -> Result<(), Errno> {
        let to = self.actions.as_mut_ptr().cast();
        // SAFETY: the structure was made by `new`; paths are strings.
        let errno = unsafe {
            match action {
                Action::Open { fd, path, flags, mode } => {
                    real::posix_spawn_file_actions_addopen(to, *fd, path.as_ptr(), *flags, *mode)
                }
                Action::Duplicate(from, fd) => real::posix_spawn_file_actions_adddup2(to, *from, *fd),
                Action::Close(fd) => real::posix_spawn_file_actions_addclose(to, *fd),
                Action::CloseFrom(fd) => real::posix_spawn_file_actions_addclosefrom_np(to, *fd),
                Action::Enter(path) => real::posix_spawn_file_actions_addchdir_np(to, path.as_ptr()),
                Action::EnterDescriptor(fd) => real::posix_spawn_file_actions_addfchdir_np(to, *fd),
                Action::Foreground(fd) => real::posix_spawn_file_actions_addtcsetpgrp_np(to, *fd),
            }
        };
        if errno == 0 { Ok(()) } else { Err(errno) }
    }

    /// As the C library wants it; valid while this lives.
    pub(crate) fn as_ptr(&self) -> *const c_void {
        self.actions.as_ptr().cast()
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        let saved = real::errno();
        for fd in self.opened.drain(..) {
            descriptors::close(fd);
        }
        // SAFETY: the structure was made by `new`.
        unsafe { real::posix_spawn_file_actions_destroy(self.actions.as_mut_ptr().cast()) };
        real::set_errno(saved);
    }
}

/// Where the child is after a step.
fn enter(folder: &mut Option<CString>, action: &Action) {
    match action {
        Action::Enter(path) => *folder = Some(joined(folder.as_ref(), path)),
        Action::EnterDescriptor(fd) => {
            *folder = paths::absolute(*fd, c".").ok();
        }
        Action::Open { .. }
        | Action::Duplicate(..)
        | Action::Close(_)
        | Action::CloseFrom(_)
        | Action::Foreground(_) => {}
    }
}

/// A path as the child means it.
fn joined(folder: Option<&CString>, path: &CStr) -> CString {
    match folder {
        Some(folder) if path.to_bytes().first() != Some(&b'/') => {
            CString::new([folder.to_bytes(), b"/", path.to_bytes()].concat()).expect("two strings")
        }
        Some(_) | None => path.to_owned(),
    }
}
