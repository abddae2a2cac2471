//! The client's half: the [`Locks`] that one client caches of one resource.
//!
//! *What*: finds a cached lock that serves, asks for one otherwise, gives back what is revoked, unused or too much.
//! *Invariants*: no operation begins under a lock that is being canceled; a lock is released only when no operation uses
//! it and the write-back rule has said that nothing written under it is left (I5, I6); each revocation of a lock that is
//! held is acknowledged, but never before its grant is known (I1).
//! *Not here*: dirty data (`ccpfs-writeback`), which connection carries what, time.

mod acquire;
mod locks;
mod mode;
mod revoke;
#[cfg(test)]
mod tests;

pub use locks::{Effect, Input, Locks, Settings};
pub use mode::{Intent, least_restrictive};
