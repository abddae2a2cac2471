//! The largest file that the process may write (`RLIMIT_FSIZE`), which the kernel cannot enforce for us.

use crate::inside;
use crate::reply::Errno;
use libc::rlimit;
use std::io::IoSlice;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes; the largest number for no limit.
static FILE_BYTES_MAX: AtomicU64 = AtomicU64::new(u64::MAX);

/// Asks the kernel for the limit: at the start, and whenever it may have changed.
pub(crate) fn refresh() {
    let mut limit = rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure is ours.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    FILE_BYTES_MAX.store(limit.rlim_cur, Ordering::Relaxed);
    inside::forget_limit();
}

/// Whether there is a limit at all.
pub(crate) fn exists() -> bool {
    FILE_BYTES_MAX.load(Ordering::Relaxed) != libc::RLIM_INFINITY
}

/// How many of `count` bytes may be written at `at`.
///
/// # Errors
/// `EFBIG`, after the signal `SIGXFSZ`, when not one may.
pub(crate) fn allowed(at: u64, count: usize) -> Result<usize, Errno> {
    let room = FILE_BYTES_MAX.load(Ordering::Relaxed).saturating_sub(at);
    if room == 0 && count > 0 {
        return Err(exceeded());
    }
    Ok(count.min(usize::try_from(room).unwrap_or(usize::MAX)))
}

/// Whether a file may grow to `size` bytes.
///
/// # Errors
/// `EFBIG`, after the signal `SIGXFSZ`, when it may not.
pub(crate) fn check_size(size: u64) -> Result<(), Errno> {
    if size > FILE_BYTES_MAX.load(Ordering::Relaxed) { Err(exceeded()) } else { Ok(()) }
}

fn exceeded() -> Errno {
    // The handler is the program's.
    inside::outside(|| {
        // SAFETY: a plain integer.
        unsafe { libc::raise(libc::SIGXFSZ) };
    });
    libc::EFBIG
}

/// The first `count` bytes of a list of buffers.
pub(crate) fn cut<'a>(from: &'a [IoSlice<'_>], count: usize) -> Vec<IoSlice<'a>> {
    let mut left = count;
    let mut kept = Vec::with_capacity(from.len());
    for buffer in from {
        let part = buffer.len().min(left);
        kept.push(IoSlice::new(&buffer[..part]));
        left -= part;
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_where_the_limit_is() {
        let list = [IoSlice::new(b"abc"), IoSlice::new(b"de"), IoSlice::new(b"f")];
        let kept: Vec<Vec<u8>> = cut(&list, 4).iter().map(|part| part.to_vec()).collect();
        assert_eq!(kept, [b"abc".to_vec(), b"d".to_vec(), Vec::new()]);
    }

    #[test]
    fn without_a_limit_everything_is_allowed() {
        assert_eq!(allowed(u64::MAX - 1, 0), Ok(0));
        assert_eq!(allowed(1 << 40, 5), Ok(5));
        assert_eq!(check_size(1 << 50), Ok(()));
    }
}
