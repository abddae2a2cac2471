//! File layout records and size rules.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
