//! Threads, forks, new programs, and the end of the process.

use crate::inside;
use crate::spawn::{Environment, publish_descriptors};
use crate::{paths, process, real, session, table};
use libc::{FILE, c_char, c_int, c_void, mode_t, pid_t, pthread_attr_t, pthread_t};
use std::ffi::CStr;

unsafe extern "C" {
    static environ: *const *const c_char;
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    if inside::is_inside() {
        // SAFETY: as the caller promises.
        return unsafe { inside::start_thread(thread, attributes, start, argument) };
    }
    // SAFETY: as the caller promises.
    unsafe { real::pthread_create(thread, attributes, start, argument) }
}

/// A child that shares the parent's memory would change the parent's descriptor table; so it gets its own.
#[unsafe(no_mangle)]
unsafe extern "C" fn vfork() -> pid_t {
    // SAFETY: no arguments.
    unsafe { real::fork() }
}

/// The parent of a daemon ends inside the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn daemon(keep_directory: c_int, keep_output: c_int) -> c_int {
    leave();
    paths::forget_working_directory();
    // SAFETY: plain integers.
    unsafe { real::daemon(keep_directory, keep_output) }
}

/// An error has no way to the new program; it is said on standard error.
fn leave() {
    let saved = real::errno();
    let _ = session::leave();
    real::set_errno(saved);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _exit(status: c_int) -> ! {
    session::finish();
    // SAFETY: plain integers.
    unsafe { real::_exit(status) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: plain integers.
    unsafe { _exit(status) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn quick_exit(status: c_int) -> ! {
    process::finish();
    // SAFETY: plain integers.
    unsafe { real::quick_exit(status) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    leave();
    // SAFETY: as the caller promises.
    unsafe { real::execve(path, arguments, Environment::complete(variables).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    leave();
    // SAFETY: as the caller promises.
    unsafe { real::execvpe(file, arguments, Environment::complete(variables).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { execve(path, arguments, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: *const *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { execvpe(file, arguments, environ) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(
    fd: c_int,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    leave();
    // SAFETY: as the caller promises.
    unsafe { real::fexecve(fd, arguments, Environment::complete(variables).as_ptr()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    flags: c_int,
) -> c_int {
    leave();
    // SAFETY: as the caller promises.
    unsafe { real::execveat(at, path, arguments, Environment::complete(variables).as_ptr(), flags) }
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
    unsafe {
        let variables = Environment::complete(variables);
        real::posix_spawn(child, path, actions, attributes, arguments, variables.as_ptr())
    }
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
    unsafe {
        let variables = Environment::complete(variables);
        real::posix_spawnp(child, file, actions, attributes, arguments, variables.as_ptr())
    }
}

/// The C library opens the file by itself in the child, where it would meet the stub.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: as the caller promises.
    if crate::open::concerns(libc::AT_FDCWD, unsafe { CStr::from_ptr(path) }) {
        return libc::ENOTSUP;
    }
    // SAFETY: as the caller promises.
    unsafe { real::posix_spawn_file_actions_addopen(actions, fd, path, flags, mode) }
}

/// Before the C library starts a program by itself, with this process's own environment.
fn before_plain_start() {
    if table::known(0, c_int::MAX).any(|fd| !table::is_internal(fd)) {
        publish_descriptors();
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    before_plain_start();
    // SAFETY: as the caller promises.
    unsafe { real::system(command) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    before_plain_start();
    // SAFETY: as the caller promises.
    unsafe { real::popen(command, mode) }
}

/// `execl` and its relatives take their list as variadic arguments. These stubs lay the list out in memory, in front
/// of the arguments that are on the stack already, and pass its address on.
#[cfg(target_arch = "x86_64")]
mod lists {
    use super::{c_char, c_int, environ, execve, execvpe};
    use std::arch::naked_asm;

    macro_rules! list_taker {
        ($name:ident, $target:ident) => {
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name(path: *const c_char, first: *const c_char) -> c_int {
                naked_asm!(
                    "pop r11", // The return address lies where the registers' arguments must go.
                    "push r9",
                    "push r8",
                    "push rcx",
                    "push rdx",
                    "push rsi",
                    "mov rsi, rsp",
                    "sub rsp, 24",
                    "mov [rsp], r11",
                    "call {target}",
                    "mov r11, [rsp]",
                    "add rsp, 64",
                    "jmp r11",
                    target = sym $target,
                )
            }
        };
    }

    list_taker!(execl, execl_list);
    list_taker!(execlp, execlp_list);
    list_taker!(execle, execle_list);

    unsafe extern "C" fn execl_list(path: *const c_char, list: *const *const c_char) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { execve(path, list, environ) }
    }

    unsafe extern "C" fn execlp_list(file: *const c_char, list: *const *const c_char) -> c_int {
        // SAFETY: as the caller promises.
        unsafe { execvpe(file, list, environ) }
    }

    /// The environment follows the null that ends the list.
    unsafe extern "C" fn execle_list(path: *const c_char, list: *const *const c_char) -> c_int {
        let mut end = list;
        // SAFETY: the list ends with a null, and the environment comes behind it.
        unsafe {
            while !(*end).is_null() {
                end = end.add(1);
            }
            execve(path, list, end.add(1).cast::<*const *const c_char>().read())
        }
    }
}
