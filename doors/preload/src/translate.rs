//! Reads, writes, offsets and sizes of POSIX in terms of the client's files.

use crate::limits;
use crate::real::{self, checked};
use crate::reply::Errno;
use crate::session::{self, failed};
use crate::table::OpenRef;
use ccpfs_client::File;
use ccpfs_types::Extent;
use libc::{c_int, off_t};
use std::io::{IoSlice, IoSliceMut};

/// Most bytes that one call moves, as in Linux.
const CALL_BYTES_MAX: usize = 0x7fff_f000;

/// Bytes in a list of buffers.
fn total<'a>(lengths: impl Iterator<Item = &'a [u8]>) -> Result<usize, Errno> {
    let sum = lengths.map(<[u8]>::len).try_fold(0_usize, usize::checked_add).ok_or(libc::EINVAL)?;
    if sum > CALL_BYTES_MAX { Err(libc::EINVAL) } else { Ok(sum) }
}

/// An offset that the program gave.
fn position(at: off_t) -> Result<u64, Errno> {
    u64::try_from(at).map_err(|_| libc::EINVAL)
}

/// Moves the offset that all descriptors of an open file share, in one step, and returns where it was.
///
/// The kernel adds under its own lock, so two processes that share the offset never get the same bytes.
fn reserve(fd: c_int, bytes: usize) -> Result<u64, Errno> {
    let step = off_t::try_from(bytes).map_err(|_| libc::EINVAL)?;
    // SAFETY: plain integers.
    let end = unsafe { real::lseek64(fd, step, libc::SEEK_CUR) };
    if end < 0 { Err(real::errno()) } else { position(end - step) }
}

/// Moves the offset back by what was reserved and not used.
fn give_back(fd: c_int, bytes: usize) {
    if bytes > 0 {
        let step = off_t::try_from(bytes).expect("was reserved");
        // SAFETY: plain integers.
        unsafe { real::lseek64(fd, -step, libc::SEEK_CUR) };
    }
}

/// `read`: at the offset, which moves.
///
/// # Errors
/// `EBADF` when not open for reading; the errno of the read.
pub(crate) fn read(open: &OpenRef, fd: c_int, to: &mut [IoSliceMut<'_>]) -> Result<isize, Errno> {
    if !open.is_readable() {
        return Err(libc::EBADF);
    }
    let wanted = total(to.iter().map(|buffer| &**buffer))?;
    if wanted == 0 {
        return Ok(0);
    }
    let file = open.file(fd)?;
    let at = reserve(fd, wanted)?;
    let read = file.read_vectored_at(to, at).map_err(|e| failed(&e));
    give_back(fd, wanted - read.as_ref().copied().unwrap_or(0));
    read.map(usize::cast_signed)
}

/// `pread`.
///
/// # Errors
/// `EBADF` when not open for reading, `EINVAL` for a negative offset; the errno of the read.
pub(crate) fn read_at(
    open: &OpenRef,
    fd: c_int,
    to: &mut [IoSliceMut<'_>],
    at: off_t,
) -> Result<isize, Errno> {
    if !open.is_readable() {
        return Err(libc::EBADF);
    }
    let at = position(at)?;
    total(to.iter().map(|buffer| &**buffer))?;
    open.file(fd)?.read_vectored_at(to, at).map(usize::cast_signed).map_err(|e| failed(&e))
}

/// `write`: at the offset, which moves, or at the end for `O_APPEND`.
///
/// # Errors
/// `EBADF` when not open for writing; the errno of the write.
pub(crate) fn write(open: &OpenRef, fd: c_int, from: &[IoSlice<'_>]) -> Result<isize, Errno> {
    if !open.is_writable() {
        return Err(libc::EBADF);
    }
    let wanted = total(from.iter().map(|buffer| &**buffer))?;
    if wanted == 0 {
        return Ok(0);
    }
    if open.flags() & libc::O_APPEND != 0 {
        return append(open, fd, from, true);
    }
    if limits::exists() {
        let at = position(seek_plain(fd, 0, libc::SEEK_CUR)?)?;
        let allowed = limits::allowed(at, wanted)?;
        return write_all(open, fd, &limits::cut(from, allowed), allowed);
    }
    write_all(open, fd, from, wanted)
}

/// Writes at the offset, which moves.
fn write_all(open: &OpenRef, fd: c_int, from: &[IoSlice<'_>], wanted: usize) -> Result<isize, Errno> {
    let file = open.file(fd)?;
    let at = reserve(fd, wanted)?;
    let written = file.write_vectored_at(from, at).map_err(|e| failed(&e));
    give_back(fd, wanted - written.as_ref().copied().unwrap_or(0));
    let written = written?;
    settle(open, file)?;
    Ok(written.cast_signed())
}

/// Writes at the end of the file; `moves` says whether the offset goes there.
///
/// # Errors
/// As [`write()`].
pub(crate) fn append(open: &OpenRef, fd: c_int, from: &[IoSlice<'_>], moves: bool) -> Result<isize, Errno> {
    if !open.is_writable() {
        return Err(libc::EBADF);
    }
    let wanted = total(from.iter().map(|buffer| &**buffer))?;
    if wanted == 0 {
        return Ok(0);
    }
    if limits::exists() {
        let end = position(size(open, fd)?)?;
        let allowed = limits::allowed(end, wanted)?;
        return append_all(open, fd, &limits::cut(from, allowed), allowed, moves);
    }
    append_all(open, fd, from, wanted, moves)
}

fn append_all(
    open: &OpenRef,
    fd: c_int,
    from: &[IoSlice<'_>],
    wanted: usize,
    moves: bool,
) -> Result<isize, Errno> {
    let file = open.file(fd)?;
    let end = file.append(from).map_err(|e| failed(&e))?;
    if moves {
        seek_plain(fd, off_t::try_from(end).map_err(|_| libc::EFBIG)?, libc::SEEK_SET)?;
    }
    settle(open, file)?;
    Ok(wanted.cast_signed())
}

/// `pwrite`. As in Linux, a file open with `O_APPEND` is appended to.
///
/// # Errors
/// `EBADF` when not open for writing, `EINVAL` for a negative offset; the errno of the write.
pub(crate) fn write_at(open: &OpenRef, fd: c_int, from: &[IoSlice<'_>], at: off_t) -> Result<isize, Errno> {
    if !open.is_writable() {
        return Err(libc::EBADF);
    }
    let at = position(at)?;
    let wanted = total(from.iter().map(|buffer| &**buffer))?;
    if wanted == 0 {
        return Ok(0);
    }
    if open.flags() & libc::O_APPEND != 0 {
        return append(open, fd, from, false);
    }
    let file = open.file(fd)?;
    let written = if limits::exists() {
        let allowed = limits::allowed(at, wanted)?;
        file.write_vectored_at(&limits::cut(from, allowed), at)
    } else {
        file.write_vectored_at(from, at)
    };
    let written = written.map_err(|e| failed(&e))?;
    settle(open, file)?;
    Ok(written.cast_signed())
}

/// After a write: `O_SYNC` and `O_DSYNC` wait for the device; at the end of the process nothing may stay behind.
fn settle(open: &OpenRef, file: &File) -> Result<(), Errno> {
    if open.flags() & (libc::O_SYNC | libc::O_DSYNC) != 0 {
        file.sync().map_err(|e| failed(&e))
    } else if session::is_exiting() {
        file.flush().map_err(|e| failed(&e))
    } else {
        Ok(())
    }
}

/// `lseek`.
///
/// # Errors
/// `EINVAL` and `ENXIO` as the system call; the errno of asking for the size.
pub(crate) fn seek(open: &OpenRef, fd: c_int, offset: off_t, whence: c_int) -> Result<off_t, Errno> {
    let target = match whence {
        libc::SEEK_END => size(open, fd)?.checked_add(offset).ok_or(libc::EOVERFLOW)?,
        libc::SEEK_DATA | libc::SEEK_HOLE => {
            let from = u64::try_from(offset).map_err(|_| libc::ENXIO)?;
            let file = open.file(fd)?;
            let found = if whence == libc::SEEK_DATA { file.next_data(from) } else { file.next_hole(from) };
            let found = found.map_err(|e| failed(&e))?.ok_or(libc::ENXIO)?;
            off_t::try_from(found).map_err(|_| libc::EOVERFLOW)?
        }
        _ => return seek_plain(fd, offset, whence),
    };
    seek_plain(fd, target, libc::SEEK_SET)
}

fn seek_plain(fd: c_int, offset: off_t, whence: c_int) -> Result<off_t, Errno> {
    // SAFETY: plain integers.
    let position = unsafe { real::lseek64(fd, offset, whence) };
    if position < 0 { Err(real::errno()) } else { Ok(position) }
}

/// The size of the file.
///
/// # Errors
/// The errno of asking for it.
pub(crate) fn size(open: &OpenRef, fd: c_int) -> Result<off_t, Errno> {
    let size = open.file(fd)?.size().map_err(|e| failed(&e))?;
    off_t::try_from(size).map_err(|_| libc::EOVERFLOW)
}

/// `ftruncate`.
///
/// # Errors
/// `EINVAL` when not open for writing or negative; the errno of the truncation.
pub(crate) fn truncate(open: &OpenRef, fd: c_int, size: off_t) -> Result<c_int, Errno> {
    if !open.is_writable() {
        return Err(libc::EINVAL);
    }
    let wanted = position(size)?;
    if limits::exists() && wanted > position(self::size(open, fd)?)? {
        limits::check_size(wanted)?;
    }
    let file = open.file(fd)?;
    file.truncate(wanted).map_err(|e| failed(&e))?;
    settle(open, file)?;
    Ok(0)
}

/// `fallocate`: makes the file at least as large as asked, or a hole in it. Space itself is not reserved.
///
/// # Errors
/// `EBADF` when not open for writing, `EINVAL` for a negative offset or nothing, `EOPNOTSUPP` for modes that move bytes.
pub(crate) fn allocate(
    open: &OpenRef,
    fd: c_int,
    mode: c_int,
    offset: off_t,
    count: off_t,
) -> Result<c_int, Errno> {
    const KEEP: c_int = libc::FALLOC_FL_KEEP_SIZE;
    const HOLE: c_int = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZEROS: c_int = libc::FALLOC_FL_ZERO_RANGE;
    if !open.is_writable() {
        return Err(libc::EBADF);
    }
    if offset < 0 || count <= 0 {
        return Err(libc::EINVAL);
    }
    let end = position(offset.checked_add(count).ok_or(libc::EFBIG)?)?;
    let (start, length) = (position(offset)?, position(count)?);
    let keep = mode & KEEP != 0;
    if !keep && limits::exists() && end > position(size(open, fd)?)? {
        limits::check_size(end)?;
    }
    let file = open.file(fd)?;
    let punch = || match Extent::new(start, end) {
        Some(extent) => file.punch(extent),
        None => Ok(()),
    };
    match mode & !KEEP {
        0 => file.allocate(start, length, keep),
        ZEROS => punch().and_then(|()| file.allocate(start, length, keep)),
        _ if mode == HOLE => punch(),
        _ => return Err(libc::EOPNOTSUPP),
    }
    .map_err(|e| failed(&e))?;
    settle(open, file)?;
    Ok(0)
}

/// `fsync` and `fdatasync`.
///
/// # Errors
/// The errno of the flush or of the device; also of earlier writes in the background.
pub(crate) fn sync(open: &OpenRef, fd: c_int) -> Result<c_int, Errno> {
    open.file(fd)?.sync().map_err(|e| failed(&e))?;
    Ok(0)
}

/// Waits until what was written is with the servers.
///
/// # Errors
/// The errno of the flush.
pub(crate) fn flush(open: &OpenRef) -> Result<c_int, Errno> {
    if let Some(file) = open.attached_file() {
        file.flush().map_err(|e| failed(&e))?;
    }
    Ok(0)
}

/// `fstat`: the stub's attributes with size, space and times of the data.
///
/// # Errors
/// The errno of asking the servers.
pub(crate) fn stat(open: &OpenRef, fd: c_int) -> Result<libc::stat, Errno> {
    open.file(fd)?.stat().map_err(|e| failed(&e))
}

/// `dup`, `dup2`, `dup3`, `F_DUPFD`: `copy` is the new descriptor that the kernel has made of `open`'s.
///
/// # Errors
/// `EMFILE` when the number is larger than the table; the descriptor is closed then.
pub(crate) fn duplicated(open: OpenRef, copy: c_int) -> Result<c_int, Errno> {
    checked(copy)?;
    crate::open::enter(copy, open).inspect_err(|_| real::close_plain(copy))?;
    Ok(copy)
}
