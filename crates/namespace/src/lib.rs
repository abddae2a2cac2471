//! File records of the directory namespace: what a stub says about its file.
//!
//! *What*: the versioned record in a stub ([`Stub`]), its encoding and its checks.
//! *Invariants*: a record that decodes has a valid layout and an intact checksum.
//! *Not here*: the directory itself (`ccpfs-client`), locks, devices.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod stub;

pub use stub::{STUB_BYTES, STUB_VERSION, Stub, StubError};
