//! The messages of ccPFS and their encoding.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
