//! The border to C: results become return values and `errno`, panics become `EIO`.

use crate::inside::Inside;
use crate::real;
use libc::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An error number of the C library, positive.
pub(crate) type Errno = c_int;

/// What a C function returns when it failed.
pub(crate) trait Answer {
    /// The value that means "look at `errno`".
    const FAILED: Self;
}

impl Answer for i32 {
    const FAILED: i32 = -1;
}

impl Answer for i64 {
    const FAILED: i64 = -1;
}

impl Answer for isize {
    const FAILED: isize = -1;
}

impl Answer for *mut libc::c_void {
    const FAILED: *mut libc::c_void = libc::MAP_FAILED;
}

/// Does `work` inside the client library and answers as C expects.
pub(crate) fn reply<T: Answer>(work: impl FnOnce() -> Result<T, Errno>) -> T {
    match guarded(work) {
        Ok(value) => value,
        Err(errno) => {
            real::set_errno(errno);
            T::FAILED
        }
    }
}

/// Does `work` inside the client library.
///
/// # Errors
/// The errno of `work`; `EIO` when it panicked.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let _inside = Inside::enter();
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(Err(libc::EIO))
}
