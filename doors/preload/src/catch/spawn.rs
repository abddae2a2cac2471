//! `posix_spawn` and the steps of the child.

use crate::actions::{self, Action, Prepared};
use crate::program::{self, Program};
use crate::real;
use crate::reply::Errno;
use crate::session;
use crate::spawn::Environment;
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t, pid_t};
use std::ffi::{CStr, CString};

/// What `posix_spawn` is given besides the program.
struct Start {
    child: *mut pid_t,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    variables: *const *const c_char,
}

impl Start {
    /// Starts the program at a path, or what the search along `PATH` finds. Returns the error number.
    ///
    /// # Safety
    /// As `posix_spawn`.
    unsafe fn go(&self, path: *const c_char, searches: bool) -> c_int {
        // SAFETY: as the caller promises.
        let started = unsafe { self.try_to_go(path, searches) };
        session::handed_on();
        match started {
            Ok(()) => 0,
            Err(errno) => errno,
        }
    }

    unsafe fn try_to_go(&self, path: *const c_char, searches: bool) -> Result<(), Errno> {
        let prepared = Prepared::new(self.actions)?;
        let actions = prepared.as_ref().map_or(self.actions, Prepared::as_ptr);
        session::hand_on();
        // SAFETY: as the caller promises.
        unsafe {
            let found = if searches { program::search(CStr::from_ptr(path)) } else { None };
            if let Some(found) = &found {
                return self.start_stub(found, actions);
            }
            let variables = Environment::complete(self.variables);
            let start = if searches { real::posix_spawnp } else { real::posix_spawn };
            let errno = start(self.child, path, actions, self.attributes, self.arguments, variables.as_ptr());
            match errno {
                0 => Ok(()),
                libc::ENOEXEC => self.start_stub(CStr::from_ptr(path), actions),
                errno => Err(errno),
            }
        }
    }

    /// The program lies on ccPFS.
    unsafe fn start_stub(&self, path: &CStr, actions: *const c_void) -> Result<(), Errno> {
        let program = program::prepare(AT_FDCWD, path)?.ok_or(libc::ENOEXEC)?;
        // SAFETY: as the caller of `go` promises.
        let errno = unsafe {
            let variables = Environment::complete(self.variables);
            let (child, attributes, variables) = (self.child, self.attributes, variables.as_ptr());
            match &program {
                Program::Copy(fd) => {
                    // By this process's descriptor: the child may have closed its own by then.
                    let name =
                        CString::new(format!("/proc/{}/fd/{fd}", libc::getpid())).expect("no zero byte");
                    real::posix_spawn(child, name.as_ptr(), actions, attributes, self.arguments, variables)
                }
                Program::Script { interpreter, argument } => {
                    let list =
                        program::script_arguments(interpreter, argument.as_deref(), path, self.arguments);
                    let name = interpreter.as_ptr();
                    real::posix_spawn(child, name, actions, attributes, list.as_ptr(), variables)
                }
            }
        };
        program.close();
        if errno == 0 { Ok(()) } else { Err(errno) }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { Start { child, actions, attributes, arguments, variables }.go(path, false) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { Start { child, actions, attributes, arguments, variables }.go(file, true) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
    actions::forget(actions);
    // SAFETY: as the caller promises.
    unsafe { real::posix_spawn_file_actions_init(actions) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
    actions::forget(actions);
    // SAFETY: as the caller promises.
    unsafe { real::posix_spawn_file_actions_destroy(actions) }
}

/// Functions that add a step: the C library's answer decides whether it is written down.
macro_rules! steps {
    ($($name:ident($($argument:ident: $kind:ty),*) => $step:expr;)*) => { $(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(actions: *mut c_void, $($argument: $kind),*) -> c_int {
            // SAFETY: as the caller promises.
            unsafe {
                let errno = real::$name(actions, $($argument),*);
                if errno == 0 {
                    actions::add(actions, $step);
                }
                errno
            }
        }
    )* };
}

steps! {
    posix_spawn_file_actions_addopen(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) =>
        Action::Open { fd, path: CStr::from_ptr(path).to_owned(), flags, mode };
    posix_spawn_file_actions_adddup2(from: c_int, to: c_int) => Action::Duplicate(from, to);
    posix_spawn_file_actions_addclose(fd: c_int) => Action::Close(fd);
    posix_spawn_file_actions_addclosefrom_np(fd: c_int) => Action::CloseFrom(fd);
    posix_spawn_file_actions_addchdir_np(path: *const c_char) => Action::Enter(CStr::from_ptr(path).to_owned());
    posix_spawn_file_actions_addfchdir_np(fd: c_int) => Action::EnterDescriptor(fd);
    posix_spawn_file_actions_addtcsetpgrp_np(fd: c_int) => Action::Foreground(fd);
}
