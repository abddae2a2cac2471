//! The size that the kernel believes, kept ahead of several writers of one file.
//!
//! The kernel lets writes of one file come at once only below the size that it knows; what ends beyond it is written alone, under the
//! inode's lock. When several handles may write a file, a write that moves the end is therefore used to tell the kernel a larger
//! size. Every question for the size comes to us, so no program sees it; but for this a question must not cross the message:
//! `lseek(SEEK_END)` asks under the inode's lock, so the message goes out while a write has that lock, and only then.
//!
//! Not for files that are mapped, whose pages are cut at that size, and not for those that are appended to, whose offset is set by it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far ahead, bytes. One byte more or less than a page matters (see [`raised`]).
const AHEAD_BYTES: u64 = 64 << 20;
/// Where no size is raised to: the kernel's limit of files lies above.
const RAISED_MAX: u64 = 1 << 60;

/// What is known of the size that the kernel believes.
#[derive(Default)]
pub(crate) struct Ahead {
    /// It believes no larger one.
    believed_max: AtomicU64,
    /// Whether anybody has appended.
    appended: AtomicBool,
    /// Whether it was ever told more than the file has.
    raised: AtomicBool,
}

/// The size to tell for a file that now ends at `end`: its last byte is never the first of a page, so that the kernel does not take
/// the page that it gets with the message for a whole one.
fn raised(end: u64) -> Option<u64> {
    let size = end.checked_add(AHEAD_BYTES)? | 0x800;
    (size < RAISED_MAX).then_some(size)
}

impl Ahead {
    /// The kernel is about to learn this size from an answer of ours.
    pub(crate) fn told(&self, size: u64) {
        self.believed_max.fetch_max(size, Ordering::SeqCst);
    }

    /// The file was cut, or opened and emptied, while nobody else could write it.
    pub(crate) fn cut(&self, size: u64) {
        self.believed_max.store(size, Ordering::SeqCst);
    }

    /// So many bytes are appended, wherever the kernel thinks that is.
    pub(crate) fn appends(&self, bytes: u64) {
        self.appended.store(true, Ordering::SeqCst);
        let grow = |known: u64| Some(known.saturating_add(bytes));
        let grown = self.believed_max.fetch_update(Ordering::SeqCst, Ordering::SeqCst, grow);
        assert!(grown.is_ok(), "every size can grow");
    }

    /// A write that ends at `end` has come. Whether it has the inode to itself: it moves the end that the kernel knows.
    pub(crate) fn moves_end(&self, end: u64) -> bool {
        // Mostly not, and then nothing is written to memory that other writers read.
        end > self.believed_max.load(Ordering::SeqCst)
            && end > self.believed_max.fetch_max(end, Ordering::SeqCst)
    }

    /// The size to tell the kernel during such a write, if it may be told.
    pub(crate) fn raise(&self, end: u64) -> Option<u64> {
        let size = raised(end).filter(|_| !self.appended.load(Ordering::SeqCst))?;
        self.raised.store(true, Ordering::SeqCst);
        self.told(size);
        Some(size)
    }

    /// Whether the kernel may believe more than the file has.
    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_write_beyond_all_that_the_kernel_was_told_has_the_inode_to_itself() {
        let ahead = Ahead::default();
        ahead.told(100);
        assert!(!ahead.moves_end(100) && ahead.moves_end(101) && !ahead.moves_end(101));
        let size = ahead.raise(101).unwrap();
        assert!(!ahead.moves_end(size) && ahead.moves_end(size + 1));
        ahead.cut(0);
        assert!(ahead.moves_end(1));
    }

    #[test]
    fn the_byte_that_raises_the_size_is_never_the_first_of_a_page() {
        for end in [1, 4095, 4096, 4097, 1 << 30] {
            let size = raised(end).unwrap();
            assert!(size > end && !(size - 1).is_multiple_of(4096));
        }
        assert_eq!(raised(u64::MAX), None);
        assert_eq!(raised(1 << 60), None);
    }

    #[test]
    fn what_is_appended_to_is_not_raised() {
        let ahead = Ahead::default();
        assert!(ahead.raise(1).is_some());
        ahead.appends(10);
        assert!(ahead.raise(1).is_none() && ahead.is_raised());
    }
}
