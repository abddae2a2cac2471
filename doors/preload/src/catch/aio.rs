//! POSIX asynchronous requests on ccPFS files are done at once, and found complete when they are asked after.

use super::same;
use crate::reply::guarded;
use crate::{real, table, translate};
use libc::{c_int, c_void, off_t, size_t, ssize_t};
use std::io::{IoSlice, IoSliceMut};
use std::slice;

/// glibc's `struct aiocb`, with the fields that only the C library itself uses.
#[repr(C)]
struct Request {
    fd: c_int,
    operation: c_int,
    priority_step: c_int,
    buffer: *mut c_void,
    count: size_t,
    event: libc::sigevent,
    next: *mut c_void,
    priority: c_int,
    policy: c_int,
    error: c_int,
    answer: ssize_t,
    offset: off_t,
    reserved: [u8; 32],
}

const _: () = assert!(size_of::<Request>() == size_of::<libc::aiocb>());

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
    if request.event.sigev_notify != libc::SIGEV_NONE {
        real::set_errno(libc::ENOSYS); // Nobody waits for a signal that has come before its cause returned.
        return Some(-1);
    }
    (request.error, request.answer) = match guarded(|| work(&open, request)) {
        Ok(answer) => (0, answer),
        Err(errno) => (errno, -1),
    };
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
    let sync = |open: &table::OpenRef, request: &Request| translate::sync(open, request.fd).map(|_| 0);
    // SAFETY: as the caller promises.
    unsafe { perform(request, sync).unwrap_or_else(|| real::aio_fsync64(operation, request)) }
}

/// A list with a ccPFS file in it is refused: programs then make their requests one by one.
#[unsafe(no_mangle)]
unsafe extern "C" fn lio_listio64(
    mode: c_int,
    requests: *const *mut c_void,
    count: c_int,
    event: *mut c_void,
) -> c_int {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the list has `count` entries, each null or a request.
        let request = unsafe { (*requests.add(at)).cast::<Request>().as_ref() };
        if request.is_some_and(|request| table::find(request.fd).is_some()) {
            real::set_errno(libc::ENOSYS);
            return -1;
        }
    }
    // SAFETY: as the caller promises.
    unsafe { real::lio_listio64(mode, requests, count, event) }
}

same! {
    aio_read = aio_read64(request: *mut c_void) -> c_int;
    aio_write = aio_write64(request: *mut c_void) -> c_int;
    aio_fsync = aio_fsync64(operation: c_int, request: *mut c_void) -> c_int;
    lio_listio = lio_listio64(
        mode: c_int, requests: *const *mut c_void, count: c_int, event: *mut c_void
    ) -> c_int;
}
