//! The border to C: results become return values and `errno`, with words for whoever asks; panics become `EIO`.

use ccpfs_client::{ConfigError, FsError};
use libc::c_int;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: c_int,
    words: String,
}

impl Failure {
    /// A failure that this library found.
    pub(crate) fn new(errno: c_int, words: impl Into<String>) -> Failure {
        Failure { errno, words: words.into() }
    }

    /// The number for `errno`.
    #[cfg(test)]
    pub(crate) fn errno(&self) -> c_int {
        self.errno
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Failure {
        Failure { errno: error.to_errno(), words: error.to_string() }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure { errno: libc::EINVAL, words: error.to_string() }
    }
}

/// What a C function returns when it failed.
pub(crate) trait Answer {
    /// The value that means "look at `errno`".
    const FAILED: Self;
}

impl Answer for c_int {
    const FAILED: c_int = -1;
}

impl Answer for isize {
    const FAILED: isize = -1;
}

thread_local! {
    static LAST_WORDS: RefCell<CString> = RefCell::new(CString::default());
}

/// Does `work` and answers as C expects.
pub(crate) fn reply<T: Answer>(work: impl FnOnce() -> Result<T, Failure>) -> T {
    let done = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Failure::new(libc::EIO, "an assertion inside the ccPFS client failed")));
    match done {
        Ok(answer) => answer,
        Err(failure) => {
            remember(failure.words);
            // SAFETY: the C library returns the address of the calling thread's errno.
            unsafe { *libc::__errno_location() = failure.errno };
            T::FAILED
        }
    }
}

fn remember(words: String) {
    let mut bytes = words.into_bytes();
    bytes.retain(|byte| *byte != 0);
    let words = CString::new(bytes).unwrap_or_default();
    // A thread that is ending may have lost the place already; then nobody can ask any more.
    let _ = LAST_WORDS.try_with(|last| *last.borrow_mut() = words);
}

/// The words of the calling thread's last failure. Valid until its next failure.
pub(crate) fn last_words() -> *const c_char {
    LAST_WORDS.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// A path or other string of the caller.
///
/// # Safety
/// `text` is null or a string that lives as long as the answer is used.
pub(crate) unsafe fn string<'a>(text: *const c_char, what: &str) -> Result<&'a CStr, Failure> {
    if text.is_null() {
        return Err(Failure::new(libc::EFAULT, format!("{what} is NULL")));
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { CStr::from_ptr(text) })
}
