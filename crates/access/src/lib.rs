//! Access patterns: what an open file will be asked for next, seen from what it was asked for.
//!
//! *What*: a [`Detector`] sees the operations of one kind (reads, or writes) on one open file, in their order, and says which bytes it
//! would be good to have a lock on beyond those that the operation at hand needs: the *desired section*. It knows strided
//! and nested strided access, forwards and backwards, with pieces that are written in several operations.
//! *Invariants*: it says nothing unless an operation came where it was expected; what it says holds the last operation; its
//! memory is bounded, and an operation costs the same however many came before.
//! *Not here*: locks, stripes, and whether anybody else wants the bytes (a server grants of a desired section only what conflicts
//! with nobody). Why these rules: decision 0020.
//!
//! ```
//! use ccpfs_access::Detector;
//! use ccpfs_types::Extent;
//!
//! let mut writes = Detector::new();
//! for k in 0..3 {
//!     writes.step(Extent::with_length(4096 + k * 188_032, 47_008).expect("not empty"));
//! }
//! let desired = writes.desired().expect("three times the same distance, twice");
//! assert_eq!(desired.to_string(), "380160+47008 each 188032 x ..");
//! ```
#![no_std]
#![forbid(unsafe_code)]

mod detector;
mod nest;

pub use detector::Detector;
pub use nest::DEPTH_MAX;

/// Most operations in a row that must have come where they were expected before a section is desired: after patterns that did not
/// last.
pub const NEED_MAX: u32 = 64;
