//! Streams of the C library on ccPFS descriptors.
//!
//! *What*: the C library's streams make their system calls inside the C library, where they cannot be caught. So a stream
//! on a ccPFS descriptor is a custom stream (`fopencookie`) whose functions come back here. When descriptor 0, 1 or 2
//! becomes ccPFS's, the variable `stdin`, `stdout` or `stderr` is set to such a stream; when it is redirected elsewhere,
//! to the original one again.

use crate::reply::Errno;
use crate::session::Held;
use crate::{catch, descriptors, marks, open, paths, real, strings, table};
use libc::{FILE, c_char, c_int, c_void, off_t, size_t, ssize_t};
use std::cell::UnsafeCell;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The functions of a custom stream, as glibc wants them.
#[repr(C)]
#[derive(Clone, Copy)]
struct StreamFunctions {
    read: extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: extern "C" fn(*mut c_void, *mut off_t, c_int) -> c_int,
    close: extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: StreamFunctions) -> *mut FILE;
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fpurge(stream: *mut FILE);
    static mut stdin: *mut FILE;
    static mut stdout: *mut FILE;
    static mut stderr: *mut FILE;
}

const FUNCTIONS: StreamFunctions =
    StreamFunctions { read: stream_read, write: stream_write, seek: stream_seek, close: stream_close };

/// Where in glibc's `FILE` the start of the bytes waits that were written and not yet passed on.
const WRITE_BASE_OFFSET: usize = 32;

/// Streams with their descriptors.
struct Streams(UnsafeCell<Vec<(usize, c_int)>>);

// SAFETY: used only while `Held`.
unsafe impl Sync for Streams {}

static STREAMS: Streams = Streams(UnsafeCell::new(Vec::new()));
/// How many streams there are; spares a look at the list.
static STREAM_COUNT: AtomicUsize = AtomicUsize::new(0);

/// The streams that stand for the standard ones, and those they stand for.
static STANDING_IN: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];
static ORIGINAL: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

fn with_streams<T>(work: impl FnOnce(&mut Vec<(usize, c_int)>) -> T) -> T {
    let _held = Held::take();
    // SAFETY: the mutex is held, and `work` does not come back here.
    let streams = unsafe { &mut *STREAMS.0.get() };
    let answer = work(streams);
    STREAM_COUNT.store(streams.len(), Ordering::Release);
    answer
}

fn cookie_fd(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie as usize).expect("the cookie of a stream is its descriptor")
}

extern "C" fn stream_read(cookie: *mut c_void, to: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: the C library gives its buffer with its length.
    unsafe { catch::io::read(cookie_fd(cookie), to.cast(), count) }
}

extern "C" fn stream_write(cookie: *mut c_void, from: *const c_char, count: size_t) -> ssize_t {
    let mut written = 0;
    while written < count {
        // SAFETY: the C library gives its buffer with its length.
        let more = unsafe { catch::io::write(cookie_fd(cookie), from.add(written).cast(), count - written) };
        match usize::try_from(more) {
            Ok(more) if more > 0 => written += more,
            _ => return 0, // What a custom stream answers when it failed.
        }
    }
    written.cast_signed()
}

extern "C" fn stream_seek(cookie: *mut c_void, offset: *mut off_t, whence: c_int) -> c_int {
    // SAFETY: the C library gives an offset to read and to set.
    let offset = unsafe { &mut *offset };
    // SAFETY: plain integers.
    let position = unsafe { catch::position::lseek64(cookie_fd(cookie), *offset, whence) };
    if position < 0 {
        return -1;
    }
    *offset = position;
    0
}

extern "C" fn stream_close(cookie: *mut c_void) -> c_int {
    let fd = cookie_fd(cookie);
    if let Some((variable, index)) = standard_variable(fd) {
        // The stream is on its way out; the variable must not lead to it any more.
        let standing_in = STANDING_IN[index].swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: the variable is the C library's, changed by whoever owns the stream, as the program does.
        unsafe {
            if !standing_in.is_null() && *variable == standing_in {
                *variable = ORIGINAL[index].load(Ordering::Acquire);
            }
        }
    }
    with_streams(|streams| {
        if let Some(at) = streams.iter().position(|(_, known)| *known == fd) {
            streams.swap_remove(at);
        }
    });
    descriptors::close(fd)
}

fn standard_variable(fd: c_int) -> Option<(*mut *mut FILE, usize)> {
    match fd {
        libc::STDIN_FILENO => Some((&raw mut stdin, 0)),
        libc::STDOUT_FILENO => Some((&raw mut stdout, 1)),
        libc::STDERR_FILENO => Some((&raw mut stderr, 2)),
        _ => None,
    }
}

/// Called whenever a descriptor has become ccPFS's or has ceased to be.
pub(crate) fn descriptor_changed(fd: c_int) {
    let Some((variable, index)) = standard_variable(fd) else { return };
    let saved = real::errno();
    let is_ours = table::find_always(fd).is_some();
    // SAFETY: the variable is the C library's; a program that changes its standard descriptors in one thread while
    // it uses them in another is in trouble without ccPFS, too.
    let current = unsafe { *variable };
    let standing_in = STANDING_IN[index].load(Ordering::Acquire);
    let stands_in = !standing_in.is_null() && current == standing_in;
    if is_ours && !stands_in {
        stand_in(fd, variable, index);
    } else if !is_ours && stands_in {
        // SAFETY: the stream lives; what it still holds goes where the descriptor leads now, as it does without ccPFS.
        unsafe {
            libc::fflush(standing_in);
            *variable = ORIGINAL[index].load(Ordering::Acquire);
        }
    }
    real::set_errno(saved);
}

fn stand_in(fd: c_int, variable: *mut *mut FILE, index: usize) {
    let mut stream = STANDING_IN[index].load(Ordering::Acquire);
    if stream.is_null() {
        let mode = if index == 0 { c"r" } else { c"w" };
        // SAFETY: the mode is a string, the functions are ours.
        stream = unsafe { fopencookie(fd as usize as *mut c_void, mode.as_ptr(), FUNCTIONS) };
        if stream.is_null() {
            return;
        }
        if fd == libc::STDERR_FILENO {
            // SAFETY: the stream is new.
            unsafe { libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0) };
        }
        STANDING_IN[index].store(stream, Ordering::Release);
    }
    // SAFETY: both are streams of the C library; see `descriptor_changed` about threads.
    unsafe {
        let original = *variable;
        if index > 0 && !original.is_null() {
            move_pending(original, stream);
        }
        ORIGINAL[index].store(original, Ordering::Release);
        *variable = stream;
    }
}

/// Moves bytes that were written to one stream and not yet passed on to another.
///
/// # Safety
/// Both are streams of the C library that no other thread uses now.
unsafe fn move_pending(from: *mut FILE, to: *mut FILE) {
    // SAFETY: as the caller promises. The bytes lie where glibc's ABI has had them since version 2.1.
    unsafe {
        let count = __fpending(from);
        if count > 0 {
            let start = from.byte_add(WRITE_BASE_OFFSET).cast::<*const c_void>().read();
            libc::fwrite(start, 1, count, to);
            __fpurge(from);
        }
    }
}

/// The descriptor of a stream of ours.
fn stream_fd(stream: *mut FILE) -> Option<c_int> {
    if !stream.is_null()
        && let Some(fd) = STANDING_IN.iter().position(|known| known.load(Ordering::Acquire) == stream)
    {
        return c_int::try_from(fd).ok();
    }
    if STREAM_COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    with_streams(|streams| streams.iter().find(|(known, _)| *known == stream as usize).map(|(_, fd)| *fd))
}

/// `fileno`.
///
/// # Safety
/// As `fileno`.
pub(crate) unsafe fn descriptor_of(stream: *mut FILE) -> c_int {
    match stream_fd(stream) {
        Some(fd) => fd,
        // SAFETY: as the caller promises.
        None => unsafe { real::fileno(stream) },
    }
}

/// The flags of `open` for a mode of `fopen`; `None` for a mode that is none.
fn open_flags(mode: &CStr) -> Option<c_int> {
    let mode = mode.to_bytes();
    let mut flags = match mode.first()? {
        b'r' => libc::O_RDONLY,
        b'w' => libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    for letter in &mode[1..] {
        match letter {
            b'+' => flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR,
            b'x' => flags |= libc::O_EXCL,
            b'e' => flags |= libc::O_CLOEXEC,
            b',' => break,
            _ => {}
        }
    }
    Some(flags)
}

/// `fopen`.
///
/// # Safety
/// As `fopen`.
pub(crate) unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    let plain = || unsafe { real::fopen64(path, mode) };
    if crate::inside::is_inside() {
        return plain();
    }
    // SAFETY: as the caller promises.
    let (name, letters) = unsafe { (strings::path(path), CStr::from_ptr(mode)) };
    let Some(name) = name else { return plain() };
    let Some(flags) = open_flags(letters).filter(|_| open::concerns(libc::AT_FDCWD, name)) else {
        return plain();
    };
    let fd = open::open_at(libc::AT_FDCWD, name, flags, 0o666);
    if fd < 0 {
        return ptr::null_mut();
    }
    // SAFETY: the mode is a string.
    let stream = unsafe { stream_on(fd, mode) };
    if stream.is_null() {
        descriptors::close(fd);
    }
    stream
}

/// `setmntent`: a stream, with the letters that the C library adds.
///
/// # Safety
/// As `setmntent`.
pub(crate) unsafe fn open_table(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: as the caller promises.
    let (name, letters) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode)) };
    if crate::inside::is_inside() || !open::concerns(libc::AT_FDCWD, name) {
        // SAFETY: as the caller promises.
        return unsafe { real::setmntent(path, mode) };
    }
    let letters = CString::new([letters.to_bytes(), b"ce"].concat()).expect("no zero byte inside");
    // SAFETY: both are strings.
    unsafe { open_stream(path, letters.as_ptr()) }
}

/// `fdopen`.
///
/// # Safety
/// As `fdopen`.
pub(crate) unsafe fn stream_on(fd: c_int, mode: *const c_char) -> *mut FILE {
    let Some(open) = table::find(fd) else {
        // SAFETY: as the caller promises.
        return unsafe { real::fdopen(fd, mode) };
    };
    // SAFETY: as the caller promises.
    let letters = unsafe { CStr::from_ptr(mode) };
    let Some(flags) = open_flags(letters) else {
        real::set_errno(libc::EINVAL);
        return ptr::null_mut();
    };
    let access = flags & libc::O_ACCMODE;
    let allowed = match access {
        libc::O_RDONLY => open.is_readable(),
        libc::O_WRONLY => open.is_writable(),
        _ => open.is_readable() && open.is_writable(),
    };
    if !allowed {
        real::set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    if flags & libc::O_APPEND != 0 {
        open.set_flags(libc::O_APPEND, libc::O_APPEND);
        marks::set(fd, open.flags());
    }
    // SAFETY: the mode is a string, the functions are ours.
    let stream = unsafe { fopencookie(fd as usize as *mut c_void, mode, FUNCTIONS) };
    if !stream.is_null() {
        with_streams(|streams| streams.push((stream as usize, fd)));
    }
    stream
}

/// `freopen`. A standard stream keeps its descriptor; the answer is what its variable leads to. Any other stream is
/// closed and replaced by a new one.
///
/// # Safety
/// As `freopen`.
pub(crate) unsafe fn reopen_stream(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
    let known = stream_fd(stream);
    // SAFETY: as the caller promises.
    let plain = || unsafe { real::freopen64(path, mode, stream) };
    if path.is_null() {
        return if known.is_some() { stream } else { plain() };
    }
    // SAFETY: as the caller promises.
    let (name, letters) = unsafe { (CStr::from_ptr(path), CStr::from_ptr(mode)) };
    let Some(flags) = open_flags(letters) else { return plain() };
    if known.is_none() && !open::concerns(libc::AT_FDCWD, name) {
        return plain();
    }
    // SAFETY: the stream is open, as the caller promises.
    let (former, fd) = unsafe {
        libc::fflush(stream);
        (descriptor_of(stream), open::open_at(libc::AT_FDCWD, name, flags, 0o666))
    };
    let is_standard = standard_variable(former)
        // SAFETY: reading the C library's variable.
        .filter(|(variable, index)| unsafe { **variable } == stream || ORIGINAL[*index].load(Ordering::Acquire) == stream);
    if let (Some(own), None) = (known, &is_standard)
        && fd >= 0
    {
        // SAFETY: the stream is one of ours.
        return unsafe { reuse_stream(stream, own, fd, flags) };
    }
    if fd < 0 || is_standard.is_none() {
        // SAFETY: the stream is open, and not used after this.
        unsafe { libc::fclose(stream) };
        // SAFETY: the mode is a string.
        return if fd < 0 { ptr::null_mut() } else { unsafe { stream_on(fd, mode) } };
    }
    if descriptors::duplicate_to(fd, former, None) < 0 {
        descriptors::close(fd);
        return ptr::null_mut();
    }
    descriptors::close(fd);
    let variable = is_standard.map_or(ptr::null_mut(), |(variable, _)| variable);
    // SAFETY: the variable is the C library's.
    unsafe {
        libc::clearerr(*variable);
        *variable
    }
}

/// Gives a stream of ours another file; it stays where it is, because programs go on using it.
///
/// # Safety
/// `stream` is a custom stream of ours on the descriptor `own`, with nothing left to write.
unsafe fn reuse_stream(stream: *mut FILE, own: c_int, fd: c_int, flags: c_int) -> *mut FILE {
    /// Bits of the first word of glibc's `FILE`, which has had them since version 2.1.
    const NO_READS: u32 = 4;
    const NO_WRITES: u32 = 8;
    const APPENDS: u32 = 0x1000;
    let moved = descriptors::duplicate_to(fd, own, (flags & libc::O_CLOEXEC != 0).then_some(libc::O_CLOEXEC));
    descriptors::close(fd);
    if moved < 0 {
        return ptr::null_mut();
    }
    // SAFETY: as the caller promises.
    unsafe {
        __fpurge(stream);
        libc::clearerr(stream);
        libc::rewind(stream);
        let mode = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => NO_WRITES,
            libc::O_WRONLY => NO_READS,
            _ => 0,
        };
        let appends = if flags & libc::O_APPEND != 0 { APPENDS } else { 0 };
        let word = stream.cast::<u32>();
        word.write((word.read() & !(NO_READS | NO_WRITES | APPENDS)) | mode | appends);
    }
    stream
}

/// Before the process ends: what streams hold is written while the client still works.
pub(crate) fn flush_streams() {
    let any = STANDING_IN.iter().any(|stream| !stream.load(Ordering::Acquire).is_null());
    if any || STREAM_COUNT.load(Ordering::Acquire) > 0 {
        // SAFETY: null means all streams.
        unsafe { libc::fflush(ptr::null_mut()) };
    }
}

/// Letters that take the place of the six letters X of a template.
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// `mkostemps`: a new file of a name that nobody has.
///
/// # Safety
/// As `mkostemps`.
pub(crate) unsafe fn open_temporary(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int {
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(template) };
    if crate::inside::is_inside() || !paths::is_ours(libc::AT_FDCWD, name) {
        // SAFETY: as the caller promises.
        return unsafe { real::mkostemps64(template, suffix, flags) };
    }
    let length = name.to_bytes().len();
    let start = usize::try_from(suffix).ok().and_then(|suffix| length.checked_sub(suffix + 6));
    let Some(start) = start.filter(|at| name.to_bytes()[*at..at + 6] == [b'X'; 6]) else {
        real::set_errno(libc::EINVAL);
        return -1;
    };
    let flags = (flags & !libc::O_ACCMODE) | libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    for _ in 0..1000 {
        let Ok(random) = random_bytes() else { return -1 };
        for (at, byte) in random.iter().enumerate() {
            let letter = LETTERS[usize::from(*byte) % LETTERS.len()];
            // SAFETY: the template has these six bytes, and may be written.
            unsafe { template.add(start + at).write(letter.cast_signed()) };
        }
        // SAFETY: the template is a string still.
        let fd = open::open_at(libc::AT_FDCWD, unsafe { CStr::from_ptr(template) }, flags, 0o600);
        if fd >= 0 || real::errno() != libc::EEXIST {
            return fd;
        }
    }
    real::set_errno(libc::EEXIST);
    -1
}

fn random_bytes() -> Result<[u8; 6], Errno> {
    let mut random = [0_u8; 6];
    // SAFETY: the buffer has this length.
    let count = unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) };
    if count == 6 { Ok(random) } else { Err(real::errno()) }
}
