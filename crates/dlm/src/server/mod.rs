//! The lock server's half: one [`Resource`] per stripe.
//!
//! *What*: first come, first served among conflicting requests; sequence numbers; early grant and early revocation;
//! expansion; upgrading.
//! *Invariants*: I1 (no two locks of different use conflict), I2 (write locks have distinct, rising numbers), I6 (lowest
//! unreleased number), I8 (a waiting request is always waiting *for* somebody who has been asked to let go).
//! *Not here*: who the clients are, connections, time: an overdue holder is reported by [`Effect::Arm`] and removed by [`Input::Evict`].

mod expand;
mod grant;
mod index;
mod queue;
#[cfg(test)]
mod region_tests;
mod request;
mod resource;
#[cfg(test)]
mod tests;

pub use resource::{Effect, Input, Origin, Resource};
