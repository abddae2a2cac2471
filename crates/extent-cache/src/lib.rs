//! The rules of the data server: which bytes of a write are newest, in what order they reach the device.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
