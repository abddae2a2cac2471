//! The words of ccPFS: extents, lock modes, sequence numbers, layouts, limits.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
