//! Errors of Linux that requests are answered with.

/// Not permitted: no lock from which these data can come.
pub(crate) const EPERM: i32 = 1;
/// Not a possible request.
pub(crate) const EINVAL: i32 = 22;
/// Beyond the largest file.
pub(crate) const EFBIG: i32 = 27;
/// The file is gone.
pub(crate) const ESTALE: i32 = 116;
