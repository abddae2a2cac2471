//! POSIX asynchronous requests on ccPFS files are done at once, and found complete when they are asked after.

use super::same;
use crate::reply::guarded;
use crate::{real, table, translate};
use libc::{c_int, c_void, off_t, pthread_attr_t, sigevent, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::slice;

/// glibc's `struct aiocb`, with the fields that only the C library itself uses.
#[repr(C)]
struct Request {
    fd: c_int,
    operation: c_int,
    priority_step: c_int,
    buffer: *mut c_void,
    count: size_t,
    event: sigevent,
    next: *mut c_void,
    priority: c_int,
    policy: c_int,
    error: c_int,
    answer: ssize_t,
    offset: off_t,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::aiocb>());

/// glibc's `struct sigevent` where a function is called in a new thread.
#[repr(C)]
struct ThreadEvent {
    value: *mut c_void,
    signal: c_int,
    notify: c_int,
    function: Option<extern "C" fn(*mut c_void)>,
    attributes: *const pthread_attr_t,
}

/// What a thread that tells of a completed request calls.
struct Notice {
    function: extern "C" fn(*mut c_void),
    value: *mut c_void,
}

extern "C" fn run_notice(notice: *mut c_void) -> *mut c_void {
    // SAFETY: `notify` made this from a box and gave it to this thread alone.
    let notice = unsafe { Box::from_raw(notice.cast::<Notice>()) };
    (notice.function)(notice.value);
    ptr::null_mut()
}

/// Tells the program what it asked to be told when a request is complete.
fn notify(event: &sigevent) {
    match event.sigev_notify {
        libc::SIGEV_SIGNAL => {
            // SAFETY: all-zero bytes are a value of the plain structure; its value and sender are where the ABI has them.
            unsafe {
                let mut information: libc::siginfo_t = mem::zeroed();
                information.si_signo = event.sigev_signo;
                information.si_code = libc::SI_ASYNCIO;
                let place = (&raw mut information).cast::<u8>();
                place.add(16).cast::<c_int>().write(libc::getpid());
                place.add(20).cast::<libc::uid_t>().write(libc::getuid());
                place.add(24).cast::<libc::sigval>().write(event.sigev_value);
                let process = libc::getpid() as usize;
                let signal = usize::try_from(event.sigev_signo).unwrap_or(0);
                real::syscall(libc::SYS_rt_sigqueueinfo, process, signal, place as usize, 0, 0, 0);
            }
        }
        libc::SIGEV_THREAD => {
            // SAFETY: the structure is read as the kind of event says.
            let event = unsafe { &*ptr::from_ref(event).cast::<ThreadEvent>() };
            let Some(function) = event.function else { return };
            let notice = Box::into_raw(Box::new(Notice { function, value: event.value }));
            let mut thread = MaybeUninit::uninit();
            // SAFETY: attributes are null or the program's; the notice lives until the thread takes it.
            unsafe {
                let attributes = event.attributes;
                let answer = real::pthread_create(thread.as_mut_ptr(), attributes, run_notice, notice.cast());
                if answer == 0 {
                    libc::pthread_detach(thread.assume_init());
                } else {
                    drop(Box::from_raw(notice));
                }
            }
        }
        _ => {}
    }
}

/// Does a request on a ccPFS file. `None` when the file is not ccPFS's.
///
/// # Safety
/// `request` leads to a request.
unsafe fn perform(
    request: *mut c_void,
    work: impl FnOnce(&table::OpenRef, &Request) -> Result<isize, c_int>,
) -> Option<c_int> {
    // SAFETY: as the caller promises.
    let request = unsafe { request.cast::<Request>().as_mut() }?;
    let open = table::find(request.fd)?;
    (request.error, request.answer) = match guarded(|| work(&open, request)) {
        Ok(answer) => (0, answer),
        Err(errno) => (errno, -1),
    };
    notify(&request.event);
    Some(0)
}

fn read_now(open: &table::OpenRef, request: &Request) -> Result<isize, c_int> {
    // SAFETY: the request's buffer has this length, as the program promises.
    let to = unsafe { slice::from_raw_parts_mut(request.buffer.cast::<u8>(), request.count) };
    translate::read_at(open, request.fd, &mut [IoSliceMut::new(to)], request.offset)
}

fn write_now(open: &table::OpenRef, request: &Request) -> Result<isize, c_int> {
    // SAFETY: the request's buffer has this length, as the program promises.
    let from = unsafe { slice::from_raw_parts(request.buffer.cast::<u8>(), request.count) };
    translate::write_at(open, request.fd, &[IoSlice::new(from)], request.offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_read64(request: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { perform(request, read_now).unwrap_or_else(|| real::aio_read64(request)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_write64(request: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { perform(request, write_now).unwrap_or_else(|| real::aio_write64(request)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn aio_fsync64(operation: c_int, request: *mut c_void) -> c_int {
    if !matches!(operation, libc::O_SYNC | libc::O_DSYNC) {
        real::set_errno(libc::EINVAL);
        return -1;
    }
    let sync = |open: &table::OpenRef, request: &Request| translate::sync(open, request.fd).map(|_| 0);
    // SAFETY: as the caller promises.
    unsafe { perform(request, sync).unwrap_or_else(|| real::aio_fsync64(operation, request)) }
}

/// The requests of a list on ccPFS files are done at once; the others are the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio64(
    mode: c_int,
    requests: *const *mut c_void,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    let entries = usize::try_from(count).unwrap_or(0);
    // SAFETY: the list has `count` entries, each null or a request.
    let request = |at: usize| unsafe { *requests.add(at) };
    let is_ours = |at: &usize| {
        // SAFETY: as above.
        let entry = unsafe { request(*at).cast::<Request>().as_ref() };
        entry.is_some_and(|request| table::find(request.fd).is_some())
    };
    let ours: Vec<usize> = (0..entries).filter(is_ours).collect();
    if ours.is_empty() || !matches!(mode, libc::LIO_WAIT | libc::LIO_NOWAIT) {
        // SAFETY: as the caller promises.
        return unsafe { real::lio_listio64(mode, requests, count, event) };
    }
    let mut failed = false;
    for at in &ours {
        let request = request(*at);
        // SAFETY: the entry is a request.
        unsafe {
            match (*request.cast::<Request>()).operation {
                libc::LIO_READ => aio_read64(request),
                libc::LIO_WRITE => aio_write64(request),
                _ => 0,
            };
            failed |= (*request.cast::<Request>()).error != 0;
        }
    }
    let others: Vec<*mut c_void> = (0..entries).filter(|at| !ours.contains(at)).map(request).collect();
    // SAFETY: as the caller promises; the C library copies what it needs of the list.
    let answer = unsafe { lio_rest(mode, &others, event) };
    if answer == 0 && failed && mode == libc::LIO_WAIT {
        real::set_errno(libc::EIO);
        return -1;
    }
    answer
}

/// What is left of a list. Without anything left, the list is complete, and is said to be.
///
/// # Safety
/// As `lio_listio`.
unsafe fn lio_rest(mode: c_int, others: &[*mut c_void], event: *mut c_void) -> c_int {
    if others.iter().any(|request| !request.is_null()) {
        let count = c_int::try_from(others.len()).unwrap_or(c_int::MAX);
        // SAFETY: as the caller promises.
        return unsafe { real::lio_listio64(mode, others.as_ptr(), count, event) };
    }
    // SAFETY: null or an event, as the caller promises.
    if let Some(event) = unsafe { event.cast::<sigevent>().as_ref() }
        && mode == libc::LIO_NOWAIT
    {
        notify(event);
    }
    0
}

same! {
    aio_read = aio_read64(request: *mut c_void) -> c_int;
    aio_write = aio_write64(request: *mut c_void) -> c_int;
    aio_fsync = aio_fsync64(operation: c_int, request: *mut c_void) -> c_int;
    lio_listio = lio_listio64(
        mode: c_int, requests: *const *mut c_void, count: c_int, event: *mut c_void
    ) -> c_int;
}
