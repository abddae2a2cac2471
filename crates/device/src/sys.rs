//! The system calls that the standard library does not wrap: gather writes, holes, locks.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;

/// The most slices one gather write takes (Linux `UIO_MAXIOV`).
const SLICES_MAX: usize = 1024;

fn checked(mut call: impl FnMut() -> isize) -> io::Result<usize> {
    loop {
        let result = call();
        if let Ok(count) = usize::try_from(result) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Checks that a file position is one the system knows.
pub(crate) fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// Writes all slices, one behind the other, from byte `offset` on.
pub(crate) fn write_all_at(file: &File, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> io::Result<()> {
    // Empty slices in front would make a write of nothing look like a full device.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let start = position(offset)?;
        let count = slices.len().min(SLICES_MAX) as libc::c_int;
        // SAFETY: IoSlice has the layout of iovec; the slices live across the call and are only read.
        let written =
            checked(|| unsafe { libc::pwritev(file.as_raw_fd(), slices.as_ptr().cast(), count, start) })?;
        if written == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        offset += written as u64;
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}

/// Makes a hole of `length` bytes without changing the file's length.
pub(crate) fn punch(file: &File, offset: u64, length: u64) -> io::Result<()> {
    let (start, length) = (position(offset)?, position(length)?);
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain system call on an open descriptor.
    checked(|| unsafe { libc::fallocate(file.as_raw_fd(), mode, start, length) as isize }).map(drop)
}

/// The first byte at or after `offset` that belongs to data, or to a hole; `None` if there is none before the end of the file.
pub(crate) fn seek(file: &File, offset: u64, data: bool) -> io::Result<Option<u64>> {
    let start = position(offset)?;
    let whence = if data { libc::SEEK_DATA } else { libc::SEEK_HOLE };
    // SAFETY: a plain system call on an open descriptor. It moves a position that nothing here uses.
    match checked(|| unsafe { libc::lseek(file.as_raw_fd(), start, whence) as isize }) {
        Ok(found) => Ok(u64::try_from(found).ok()),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Writes everything of the file system that holds `file` to its device.
pub(crate) fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: a plain system call on an open descriptor.
    checked(|| unsafe { libc::syncfs(file.as_raw_fd()) as isize }).map(drop)
}

/// Takes the exclusive lock of an open file; false if another process has it.
pub(crate) fn try_lock(file: &File) -> io::Result<bool> {
    // SAFETY: a plain system call on an open descriptor.
    let locked = checked(|| unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) as isize });
    match locked {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}
