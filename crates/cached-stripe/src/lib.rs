//! The rules of one stripe in one client, put together: its cached locks and its cached data.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
