//! The C library's own functions, found behind ours with `dlsym(RTLD_NEXT)`, each once and on first use.

use libc::{
    FILE, c_char, c_int, c_long, c_uint, c_ulong, c_void, dev_t, gid_t, iovec, mode_t, off_t, pid_t,
    pthread_attr_t, pthread_t, size_t, ssize_t, stat, statfs64 as statfs64_answer, timespec, uid_t,
};
use std::ffi::CStr;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function of the C library, looked up on first use.
pub(crate) struct Original {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Original {
    /// Not looked up yet. `name` is the symbol.
    pub(crate) const fn new(name: &'static CStr) -> Original {
        Original { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The address of the function; of one that fails with `ENOSYS` when the C library has none of that name.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    /// Whether the C library has the function.
    pub(crate) fn exists(&self) -> bool {
        self.address() != missing as *mut c_void
    }

    #[cold]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero byte; dlsym may be called at any time once the C library is loaded.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        let address = if found.is_null() { missing as *mut c_void } else { found };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Stands for a function that this C library does not have.
extern "C" fn missing() -> ssize_t {
    set_errno(libc::ENOSYS);
    -1
}

/// Sets `errno` of the calling thread.
#[inline]
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: the C library returns the address of the calling thread's errno.
    unsafe { *libc::__errno_location() = errno }
}

/// `errno` of the calling thread.
#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library returns the address of the calling thread's errno.
    unsafe { *libc::__errno_location() }
}

macro_rules! originals {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $answer:ty;)*) => { $(
        /// The C library's function of this name.
        ///
        /// # Safety
        /// As the C library documents.
        #[allow(non_snake_case, reason = "the C library's names")]
        #[inline]
        pub(crate) unsafe fn $name($($argument: $kind),*) -> $answer {
            static ORIGINAL: Original = {
                match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => Original::new(name),
                    Err(_) => panic!("a symbol holds no zero byte"),
                }
            };
            // SAFETY: the symbol has this signature in the C library; `missing` ignores its arguments. A variadic
            // function takes integers and pointers as a plain function does.
            let function: unsafe extern "C" fn($($kind),*) -> $answer = unsafe { mem::transmute(ORIGINAL.address()) };
            // SAFETY: as the caller promises.
            unsafe { function($($argument),*) }
        }
    )* };
}

originals! {
    open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    close(fd: c_int) -> c_int;
    close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    read(fd: c_int, to: *mut c_void, count: size_t) -> ssize_t;
    write(fd: c_int, from: *const c_void, count: size_t) -> ssize_t;
    pread64(fd: c_int, to: *mut c_void, count: size_t, at: off_t) -> ssize_t;
    pwrite64(fd: c_int, from: *const c_void, count: size_t, at: off_t) -> ssize_t;
    readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t;
    writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t;
    preadv64(fd: c_int, to: *const iovec, count: c_int, at: off_t) -> ssize_t;
    pwritev64(fd: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t;
    preadv64v2(fd: c_int, to: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    pwritev64v2(fd: c_int, from: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t;
    __read_chk(fd: c_int, to: *mut c_void, count: size_t, room: size_t) -> ssize_t;
    __pread64_chk(fd: c_int, to: *mut c_void, count: size_t, at: off_t, room: size_t) -> ssize_t;
    vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int;
    lseek64(fd: c_int, offset: off_t, whence: c_int) -> off_t;
    fsync(fd: c_int) -> c_int;
    sigaction(number: c_int, action: *const libc::sigaction, former: *mut libc::sigaction) -> c_int;
    signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    sysv_signal(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    sigset(number: c_int, handler: libc::sighandler_t) -> libc::sighandler_t;
    fdatasync(fd: c_int) -> c_int;
    sync_file_range(fd: c_int, offset: off_t, count: off_t, flags: c_uint) -> c_int;
    syncfs(fd: c_int) -> c_int;
    sync() -> ();
    ftruncate64(fd: c_int, size: off_t) -> c_int;
    truncate64(path: *const c_char, size: off_t) -> c_int;
    fallocate64(fd: c_int, mode: c_int, offset: off_t, count: off_t) -> c_int;
    posix_fallocate64(fd: c_int, offset: off_t, count: off_t) -> c_int;
    posix_fadvise64(fd: c_int, offset: off_t, count: off_t, advice: c_int) -> c_int;
    readahead(fd: c_int, offset: off_t, count: size_t) -> ssize_t;
    fstatat64(at: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int;
    __fxstatat64(version: c_int, at: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int;
    statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int;
    unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    remove(path: *const c_char) -> c_int;
    renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) -> c_int;
    renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_uint) -> c_int;
    linkat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags: c_int) -> c_int;
    utimensat(at: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int;
    chmod(path: *const c_char, mode: mode_t) -> c_int;
    lchmod(path: *const c_char, mode: mode_t) -> c_int;
    fchmod(fd: c_int, mode: mode_t) -> c_int;
    fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int;
    chown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int;
    lchown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int;
    fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int;
    fchownat(at: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags: c_int) -> c_int;
    setxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int
    ) -> c_int;
    lsetxattr(
        path: *const c_char, name: *const c_char, value: *const c_void, size: size_t, flags: c_int
    ) -> c_int;
    fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, size: size_t, flags: c_int) -> c_int;
    removexattr(path: *const c_char, name: *const c_char) -> c_int;
    lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
    fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    mknodat(at: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int;
    ftw64(path: *const c_char, visit: *const c_void, descriptors: c_int) -> c_int;
    nftw64(path: *const c_char, visit: *const c_void, descriptors: c_int, flags: c_int) -> c_int;
    fts64_read(walk: *mut c_void) -> *mut c_void;
    fts64_children(walk: *mut c_void, options: c_int) -> *mut c_void;
    statfs64(path: *const c_char, to: *mut statfs64_answer) -> c_int;
    fstatfs64(fd: c_int, to: *mut statfs64_answer) -> c_int;
    inotify_add_watch(watcher: c_int, path: *const c_char, mask: u32) -> c_int;
    fanotify_mark(watcher: c_int, flags: c_uint, mask: u64, at: c_int, path: *const c_char) -> c_int;
    open_by_handle_at(mount_fd: c_int, handle: *mut c_void, flags: c_int) -> c_int;
    pidfd_getfd(process: c_int, fd: c_int, flags: c_uint) -> c_int;
    recvmsg(socket: c_int, message: *mut libc::msghdr, flags: c_int) -> ssize_t;
    recvmmsg(
        socket: c_int, messages: *mut libc::mmsghdr, count: c_uint, flags: c_int, limit: *mut timespec
    ) -> c_int;
    chroot(path: *const c_char) -> c_int;
    ulimit(command: c_int, value: usize) -> c_long;
    setrlimit64(resource: c_uint, limit: *const c_void) -> c_int;
    prlimit64(process: pid_t, resource: c_uint, limit: *const c_void, former: *mut c_void) -> c_int;
    setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE;
    login_tty(fd: c_int) -> c_int;
    forkpty(terminal: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) -> pid_t;
    futimens(fd: c_int, times: *const timespec) -> c_int;
    dup(fd: c_int) -> c_int;
    dup2(from: c_int, to: c_int) -> c_int;
    dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
    fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    lockf64(fd: c_int, command: c_int, count: off_t) -> c_int;
    ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
    copy_file_range(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint
    ) -> ssize_t;
    sendfile64(to: c_int, from: c_int, from_at: *mut off_t, count: size_t) -> ssize_t;
    splice(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, count: size_t, flags: c_uint
    ) -> ssize_t;
    mmap64(address: *mut c_void, count: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void;
    chdir(path: *const c_char) -> c_int;
    fchdir(fd: c_int) -> c_int;
    socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    epoll_create1(flags: c_int) -> c_int;
    eventfd(value: c_uint, flags: c_int) -> c_int;
    pipe2(ends: *mut c_int, flags: c_int) -> c_int;
    socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    pthread_create(
        thread: *mut pthread_t,
        attributes: *const pthread_attr_t,
        start: extern "C" fn(*mut c_void) -> *mut c_void,
        argument: *mut c_void
    ) -> c_int;
    fork() -> pid_t;
    _Fork() -> pid_t;
    clone(
        work: *const c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, a: usize, b: usize, c: usize
    ) -> c_int;
    daemon(keep_directory: c_int, keep_output: c_int) -> c_int;
    _exit(status: c_int) -> !;
    quick_exit(status: c_int) -> !;
    execve(path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char) -> c_int;
    execvpe(path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char) -> c_int;
    execveat(
        at: c_int, path: *const c_char, arguments: *const *const c_char, variables: *const *const c_char, flags: c_int
    ) -> c_int;
    posix_spawn(
        child: *mut pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: *const *const c_char,
        variables: *const *const c_char
    ) -> c_int;
    posix_spawnp(
        child: *mut pid_t,
        path: *const c_char,
        actions: *const c_void,
        attributes: *const c_void,
        arguments: *const *const c_char,
        variables: *const *const c_char
    ) -> c_int;
    posix_spawn_file_actions_init(actions: *mut c_void) -> c_int;
    posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int;
    posix_spawn_file_actions_addopen(
        actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int, mode: mode_t
    ) -> c_int;
    posix_spawn_file_actions_adddup2(actions: *mut c_void, from: c_int, to: c_int) -> c_int;
    posix_spawn_file_actions_addclose(actions: *mut c_void, fd: c_int) -> c_int;
    posix_spawn_file_actions_addclosefrom_np(actions: *mut c_void, fd: c_int) -> c_int;
    posix_spawn_file_actions_addchdir_np(actions: *mut c_void, path: *const c_char) -> c_int;
    posix_spawn_file_actions_addfchdir_np(actions: *mut c_void, fd: c_int) -> c_int;
    posix_spawn_file_actions_addtcsetpgrp_np(actions: *mut c_void, fd: c_int) -> c_int;
    system(command: *const c_char) -> c_int;
    popen(command: *const c_char, mode: *const c_char) -> *mut FILE;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE;
    freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE;
    fileno(stream: *mut FILE) -> c_int;
    mkostemps64(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int;
    aio_read64(request: *mut c_void) -> c_int;
    aio_write64(request: *mut c_void) -> c_int;
    aio_fsync64(operation: c_int, request: *mut c_void) -> c_int;
    lio_listio64(mode: c_int, requests: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int;
    syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
}

/// `fstatat`, also in a C library older than 2.33, which only has it under another name.
///
/// # Safety
/// As the C library documents.
pub(crate) unsafe fn fstatat(at: c_int, path: *const c_char, to: *mut stat, flags: c_int) -> c_int {
    static MODERN: Original = Original::new(c"fstatat64");
    /// The version of `struct stat` that the old function takes on this kind of machine.
    const VERSION: c_int = if cfg!(target_arch = "x86_64") { 1 } else { 0 };
    if MODERN.exists() {
        // SAFETY: as the caller promises.
        unsafe { fstatat64(at, path, to, flags) }
    } else {
        // SAFETY: as the caller promises.
        unsafe { __fxstatat64(VERSION, at, path, to, flags) }
    }
}

/// `fstat` of a descriptor, past ccPFS.
///
/// # Errors
/// The errno.
pub(crate) fn stat_of(fd: c_int) -> Result<stat, c_int> {
    // SAFETY: all-zero bytes are a value of the plain structure.
    let mut found: stat = unsafe { mem::zeroed() };
    // SAFETY: the path is an empty string, the structure is ours.
    let answer = unsafe { fstatat(fd, c"".as_ptr(), &raw mut found, libc::AT_EMPTY_PATH) };
    if answer == 0 { Ok(found) } else { Err(errno()) }
}

/// Closes a descriptor that this library opened and did not enter into the table.
pub(crate) fn close_plain(fd: c_int) {
    // SAFETY: the caller owns the descriptor.
    unsafe { close(fd) };
}

/// Makes `-1` with `errno` a Rust error.
///
/// # Errors
/// The errno, when `answer` is negative.
#[inline]
pub(crate) fn checked(answer: c_int) -> Result<c_int, c_int> {
    if answer < 0 { Err(errno()) } else { Ok(answer) }
}
