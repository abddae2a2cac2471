//! Copies between two descriptors that the kernel would make by itself: `sendfile`, `copy_file_range`.

use crate::inside::outside;
use crate::real::{self, checked};
use crate::reply::Errno;
use crate::table;
use crate::translate;
use libc::{c_int, c_uint, off_t};
use std::io::{IoSlice, IoSliceMut};

/// Bytes that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// One end of a copy.
pub(crate) struct End {
    /// The descriptor.
    pub(crate) fd: c_int,
    /// Where to start; `None` for the descriptor's own offset, which then moves.
    pub(crate) at: Option<off_t>,
}

impl End {
    /// An end as system calls name it.
    ///
    /// # Safety
    /// `at` is null or leads to an offset.
    pub(crate) unsafe fn new(fd: c_int, at: *mut off_t) -> End {
        // SAFETY: as the caller promises.
        End { fd, at: unsafe { at.as_ref() }.copied() }
    }

    fn read(&mut self, to: &mut [u8]) -> Result<usize, Errno> {
        let count = to.len();
        let read = match (table::find_always(self.fd), self.at) {
            (Some(open), None) => translate::read(&open, self.fd, &mut [IoSliceMut::new(to)])?,
            (Some(open), Some(at)) => translate::read_at(&open, self.fd, &mut [IoSliceMut::new(to)], at)?,
            // A pipe may keep it waiting, which a signal ends.
            // SAFETY: the buffer has this length.
            (None, None) => outside(|| unsafe { real::read(self.fd, to.as_mut_ptr().cast(), count) }),
            // SAFETY: the buffer has this length.
            (None, Some(at)) => unsafe { real::pread64(self.fd, to.as_mut_ptr().cast(), count, at) },
        };
        self.advance(read)
    }

    fn write(&mut self, from: &[u8]) -> Result<usize, Errno> {
        let written = match (table::find_always(self.fd), self.at) {
            (Some(open), None) => translate::write(&open, self.fd, &[IoSlice::new(from)])?,
            (Some(open), Some(at)) => translate::write_at(&open, self.fd, &[IoSlice::new(from)], at)?,
            // SAFETY: the buffer has this length.
            (None, None) => outside(|| unsafe { real::write(self.fd, from.as_ptr().cast(), from.len()) }),
            // SAFETY: the buffer has this length.
            (None, Some(at)) => unsafe { real::pwrite64(self.fd, from.as_ptr().cast(), from.len(), at) },
        };
        self.advance(written)
    }

    fn advance(&mut self, moved: isize) -> Result<usize, Errno> {
        let moved = usize::try_from(moved).map_err(|_| real::errno())?;
        if let Some(at) = &mut self.at {
            *at += off_t::try_from(moved).expect("a piece is small");
        }
        Ok(moved)
    }

    /// Puts back what was read and could not be written.
    fn retreat(&mut self, bytes: usize) {
        let step = off_t::try_from(bytes).expect("a piece is small");
        match &mut self.at {
            Some(at) => *at -= step,
            None => {
                // SAFETY: plain integers. On a pipe it fails, and what was read is lost with the error.
                unsafe { real::lseek64(self.fd, -step, libc::SEEK_CUR) };
            }
        }
    }
}

/// Copies up to `count` bytes. Less is copied at the end of the source, or when the target takes no more.
///
/// # Errors
/// The errno of the first read or write, when nothing was copied.
pub(crate) fn copy(from: &mut End, to: &mut End, count: usize) -> Result<isize, Errno> {
    let mut room = vec![0_u8; count.min(PIECE_BYTES)];
    let mut copied = 0;
    while copied < count {
        let wanted = (count - copied).min(PIECE_BYTES);
        let read = match from.read(&mut room[..wanted]) {
            Ok(0) => break,
            Ok(read) => read,
            Err(errno) if copied == 0 => return Err(errno),
            Err(_) => break,
        };
        let mut written = 0;
        while written < read {
            match to.write(&room[written..read]) {
                Ok(more) => written += more,
                Err(errno) => {
                    from.retreat(read - written);
                    return if copied + written == 0 {
                        Err(errno)
                    } else {
                        Ok((copied + written).cast_signed())
                    };
                }
            }
        }
        copied += read;
    }
    Ok(copied.cast_signed())
}

/// Whether a descriptor leads to a pipe.
pub(crate) fn is_pipe(fd: c_int) -> bool {
    table::find_always(fd).is_none()
        && real::stat_of(fd).is_ok_and(|found| found.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Bytes that a pipe has; 0 when nobody can write to it any more.
///
/// # Errors
/// `EAGAIN` when there are none and the caller does not wait; the errno of waiting.
pub(crate) fn wait_for_bytes(pipe: c_int, wait: bool) -> Result<usize, Errno> {
    poll(pipe, libc::POLLIN, wait)?;
    bytes_in(pipe)
}

fn bytes_in(pipe: c_int) -> Result<usize, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes an integer.
    checked(unsafe { real::ioctl(pipe, libc::FIONREAD, &raw mut bytes as usize) })?;
    usize::try_from(bytes).map_err(|_| libc::EIO)
}

/// Bytes that a pipe takes without waiting.
///
/// # Errors
/// `EAGAIN` when it takes none and the caller does not wait; the errno of waiting.
pub(crate) fn wait_for_room(pipe: c_int, wait: bool) -> Result<usize, Errno> {
    poll(pipe, libc::POLLOUT, wait)?;
    // SAFETY: plain integers.
    let size = checked(unsafe { real::fcntl64(pipe, libc::F_GETPIPE_SZ, 0) })?;
    let size = usize::try_from(size).map_err(|_| libc::EIO)?;
    // A pipe that can be written has room for a page, however badly its pages are filled.
    Ok(size.saturating_sub(bytes_in(pipe)?).clamp(1, 4096))
}

fn poll(fd: c_int, events: i16, wait: bool) -> Result<(), Errno> {
    let mut asked = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one structure of ours.
    match checked(unsafe { libc::poll(&raw mut asked, 1, if wait { -1 } else { 0 }) })? {
        0 => Err(libc::EAGAIN),
        _ => Ok(()),
    }
}

/// Why `copy_file_range` would not copy, as the kernel says it.
///
/// # Safety
/// Each offset is null or leads to one.
pub(crate) unsafe fn refusal(
    from: c_int,
    from_at: *const off_t,
    to: c_int,
    to_at: *const off_t,
    count: usize,
    flags: c_uint,
) -> Option<Errno> {
    if flags != 0 {
        return Some(libc::EINVAL);
    }
    let kinds = (real::stat_of(from), real::stat_of(to));
    let (Ok(source), Ok(target)) = kinds else { return Some(libc::EBADF) };
    for found in [&source, &target] {
        match found.st_mode & libc::S_IFMT {
            libc::S_IFREG => {}
            libc::S_IFDIR => return Some(libc::EISDIR),
            _ => return Some(libc::EINVAL),
        }
    }
    if table::find_always(to).is_some_and(|open| open.flags() & libc::O_APPEND != 0) {
        return Some(libc::EBADF);
    }
    if (source.st_dev, source.st_ino) == (target.st_dev, target.st_ino) {
        // SAFETY: as the caller promises.
        let starts = unsafe { [start_of(from, from_at), start_of(to, to_at)] };
        let distance = starts[0].abs_diff(starts[1]);
        if usize::try_from(distance).is_ok_and(|distance| distance < count) {
            return Some(libc::EINVAL); // The ranges overlap.
        }
    }
    None
}

/// # Safety
/// `at` is null or leads to an offset.
unsafe fn start_of(fd: c_int, at: *const off_t) -> off_t {
    // SAFETY: as the caller promises; plain integers.
    unsafe { at.as_ref().copied().unwrap_or_else(|| real::lseek64(fd, 0, libc::SEEK_CUR)) }
}
