//! The rules of the client cache: which cached bytes are valid, which are dirty, what to flush next, when a lock may go.
//!
//! *What*: one [`Stripe`] per stripe of a file in one client.
//! *Invariants*: I4 (bytes in flight are not sent again before the answer), and the client's share of I5, I6 and I9: a lock
//! is reported flushed only when nothing written under it is dirty or in flight; a barrier only when all that was dirty
//! when it was set has been acknowledged.
//! *Not here*: page memory (rules speak of extents), locks' internals, connections.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod budget;
mod flush;
mod parts;
mod stripe;
#[cfg(test)]
mod tests;
mod unacknowledged;

pub use budget::{Budget, Verdict};
pub use stripe::{BarrierId, Effect, Input, JobId, Readable, Stripe};
