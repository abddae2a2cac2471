//! The rules of the client cache: what is dirty, what to flush, when a lock may go.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
