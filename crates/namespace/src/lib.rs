//! File records of the directory namespace: what a stub says about its file; and how a file's size follows from its stripes.
//!
//! *What*: the versioned record in a stub ([`Stub`]), its encoding and its checks; the question for a size ([`SizeQuestion`]).
//! *Invariants*: a record that decodes has a valid layout and an intact checksum; no truncate falls into the collection that a
//! size was made from, as long as a few rounds suffice.
//! *Not here*: the directory itself (`ccpfs-client`), locks, devices.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod size;
mod stub;

pub use size::{ROUNDS_MAX, SizeQuestion};
pub use stub::{Contents, STUB_BYTES, STUB_VERSION, Stub, StubError, StubState};
