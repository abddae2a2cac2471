//! The C interface of ccPFS.
//!
//! *What*: the functions of `include/ccpfs.h`, which is their documentation. Each translates its arguments, calls the
//! client, and answers with -1 and `errno` when that fails.
//! *Invariants*: no panic crosses into C (it becomes `EIO`).
//! *Not here*: decisions; descriptors of the kernel (that is the interposer).

mod advice;
mod calls;
mod handles;
mod parts;
mod places;
mod regions;
mod reply;
mod session;

#[cfg(test)]
mod tests;
