//! Copies between two descriptors that the kernel would make by itself: `sendfile`, `copy_file_range`.

use crate::real;
use crate::reply::Errno;
use crate::table;
use crate::translate;
use libc::{c_int, off_t};
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
            // SAFETY: the buffer has this length.
            (None, None) => unsafe { real::read(self.fd, to.as_mut_ptr().cast(), count) },
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
            (None, None) => unsafe { real::write(self.fd, from.as_ptr().cast(), from.len()) },
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
