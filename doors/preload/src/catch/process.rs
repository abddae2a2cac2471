//! Threads, forks, new programs, and the end of the process.

use crate::program::{self, Program};
use crate::spawn::{Environment, publish_descriptors};
use crate::{inside, limits, open, paths, process, real, session, table};
use libc::{AT_FDCWD, FILE, c_char, c_int, c_long, c_uint, c_void, pid_t, pthread_attr_t, pthread_t};
use std::ffi::{CStr, CString};

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

#[unsafe(no_mangle)]
unsafe extern "C" fn __vfork() -> pid_t {
    // SAFETY: no arguments.
    unsafe { real::fork() }
}

/// The C library's own `_Fork` calls no handlers.
#[unsafe(no_mangle)]
unsafe extern "C" fn _Fork() -> pid_t {
    process::around_fork(|| {
        // SAFETY: no arguments.
        unsafe { real::_Fork() }
    })
}

/// What a child made by `clone` does.
struct Child {
    work: extern "C" fn(*mut c_void) -> c_int,
    argument: *mut c_void,
}

extern "C" fn begin_child(child: *mut c_void) -> c_int {
    process::after_fork_in_child();
    // SAFETY: the parent made it, and this is the child's copy.
    let child = unsafe { child.cast::<Child>().read() };
    let status = (child.work)(child.argument);
    // The C library would end this thread only, and leave the client's running.
    // SAFETY: plain integers.
    unsafe { _exit(status) }
}

/// A child with its own memory begins a new life, as after `fork`. One that shares the memory is like a thread.
///
/// The last arguments are variadic in C; on this kind of machine they arrive like plain ones.
#[unsafe(no_mangle)]
unsafe extern "C" fn clone(
    work: Option<extern "C" fn(*mut c_void) -> c_int>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    a: usize,
    b: usize,
    c: usize,
) -> c_int {
    let function = work.map_or(std::ptr::null(), |work| work as *const c_void);
    match work {
        Some(work) if flags & libc::CLONE_VM == 0 && !inside::is_inside() => {
            let child = Child { work, argument };
            let begin = begin_child as *const c_void;
            process::before_fork();
            // SAFETY: as the caller promises; the child reads its own copy of this thread's stack.
            let answer =
                unsafe { real::clone(begin, stack, flags, (&raw const child).cast_mut().cast(), a, b, c) };
            process::after_fork_in_parent();
            answer
        }
        // SAFETY: as the caller promises.
        _ => unsafe { real::clone(function, stack, flags, argument, a, b, c) },
    }
}

/// The largest file that may be written is enforced here, for the files that are ours.
#[unsafe(no_mangle)]
unsafe extern "C" fn setrlimit64(resource: c_uint, limit: *const c_void) -> c_int {
    // SAFETY: as the caller promises.
    let answer = unsafe { real::setrlimit64(resource, limit) };
    limits::refresh();
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn prlimit64(
    process: pid_t,
    resource: c_uint,
    limit: *const c_void,
    former: *mut c_void,
) -> c_int {
    // SAFETY: as the caller promises.
    let answer = unsafe { real::prlimit64(process, resource, limit, former) };
    limits::refresh();
    answer
}

/// The C library sets the same limit.
#[unsafe(no_mangle)]
unsafe extern "C" fn ulimit(command: c_int, value: usize) -> c_long {
    // SAFETY: plain integers, of which the second is variadic in C.
    let answer = unsafe { real::ulimit(command, value) };
    limits::refresh();
    answer
}

super::same! {
    __clone = clone(
        work: Option<extern "C" fn(*mut c_void) -> c_int>,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        a: usize,
        b: usize,
        c: usize
    ) -> c_int;
    setrlimit = setrlimit64(resource: c_uint, limit: *const c_void) -> c_int;
    prlimit = prlimit64(
        process: pid_t, resource: c_uint, limit: *const c_void, former: *mut c_void
    ) -> c_int;
}

/// The C library moves the terminal to the standard descriptors by itself.
#[unsafe(no_mangle)]
unsafe extern "C" fn login_tty(fd: c_int) -> c_int {
    // SAFETY: plain integers.
    let answer = unsafe { real::login_tty(fd) };
    if answer == 0 {
        forget_standard_descriptors();
    }
    answer
}

#[unsafe(no_mangle)]
unsafe extern "C" fn forkpty(
    terminal: *mut c_int,
    name: *mut c_char,
    settings: *const c_void,
    size: *const c_void,
) -> pid_t {
    // SAFETY: as the caller promises.
    let child = unsafe { real::forkpty(terminal, name, settings, size) };
    if child == 0 {
        forget_standard_descriptors();
    }
    child
}

/// The C library has moved something else to them.
fn forget_standard_descriptors() {
    for fd in 0..3 {
        open::entered_plain(fd);
    }
}

/// The parent of a daemon ends inside the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn daemon(keep_directory: c_int, keep_output: c_int) -> c_int {
    leave();
    paths::forget_working_directory();
    // SAFETY: plain integers.
    let answer = unsafe { real::daemon(keep_directory, keep_output) };
    if answer == 0 && keep_output == 0 {
        forget_standard_descriptors();
    }
    answer
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

/// Replaces this program by the one at a path.
///
/// # Safety
/// As `execveat`, with a path that is not empty.
unsafe fn start_at(
    at: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    flags: c_int,
) -> c_int {
    leave();
    // SAFETY: as the caller promises.
    unsafe {
        let complete = Environment::complete(variables);
        let answer = if at == AT_FDCWD && flags == 0 {
            real::execve(path, arguments, complete.as_ptr())
        } else {
            real::execveat(at, path, arguments, complete.as_ptr(), flags)
        };
        if real::errno() == libc::ENOEXEC && !path.is_null() {
            return start_stub(at, CStr::from_ptr(path), arguments, complete.as_ptr());
        }
        answer
    }
}

/// The kernel found no program: it may be one of ours. Sets `errno`.
///
/// # Safety
/// As `execveat`.
unsafe fn start_stub(
    at: c_int,
    path: &CStr,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    match program::prepare(at, path) {
        // SAFETY: as the caller promises.
        Ok(Some(program)) => unsafe { start_program(program, at, path, arguments, variables) },
        Ok(None) => {
            real::set_errno(libc::ENOEXEC);
            -1
        }
        Err(errno) => {
            real::set_errno(errno);
            -1
        }
    }
}

/// # Safety
/// As `execveat`.
unsafe fn start_program(
    program: Program,
    at: c_int,
    path: &CStr,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    leave();
    // SAFETY: as the caller promises.
    unsafe {
        match &program {
            Program::Copy(fd) => {
                real::execveat(*fd, c"".as_ptr(), arguments, variables, libc::AT_EMPTY_PATH);
            }
            Program::Script { interpreter, argument } => {
                let name = paths::absolute(at, path).unwrap_or_else(|_| path.to_owned());
                let name = if at == AT_FDCWD { path } else { &name };
                let list = program::script_arguments(interpreter, argument.as_deref(), name, arguments);
                execve(interpreter.as_ptr(), list.as_ptr(), variables);
            }
        }
    }
    let errno = real::errno();
    program.close();
    real::set_errno(errno);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { start_at(AT_FDCWD, path, arguments, variables, 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let name = CStr::from_ptr(file);
        let path =
            if name.to_bytes().contains(&b'/') { Some(name.to_owned()) } else { program::search(name) };
        if let Some(path) = path.filter(|path| open::leads_to_stub(AT_FDCWD, path)) {
            let answer = start_at(AT_FDCWD, path.as_ptr(), arguments, variables, 0);
            if real::errno() != libc::ENOEXEC {
                return answer;
            }
        }
        leave();
        real::execvpe(file, arguments, Environment::complete(variables).as_ptr())
    }
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
    // SAFETY: as the caller promises.
    unsafe { execveat(fd, c"".as_ptr(), arguments, variables, libc::AT_EMPTY_PATH) }
}

/// Catches `execveat`.
///
/// # Safety
/// As `execveat`.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn execveat(
    at: c_int,
    path: *const c_char,
    arguments: *const *const c_char,
    variables: *const *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let names_descriptor =
            flags & libc::AT_EMPTY_PATH != 0 && (path.is_null() || CStr::from_ptr(path).is_empty());
        if names_descriptor && table::find(at).is_some() {
            // By a name, so that an interpreter can open the script.
            let name = CString::new(format!("/dev/fd/{at}")).expect("no zero byte");
            return start_stub(AT_FDCWD, &name, arguments, Environment::complete(variables).as_ptr());
        }
        start_at(at, path, arguments, variables, flags)
    }
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
