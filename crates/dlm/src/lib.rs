//! SeqDLM: the lock rules of the server and of the client.
//!
//! *What*: two pure state machines, one resource each. [`server::Resource`] queues, grants and revokes; [`client::Locks`]
//! caches what was granted and gives it back. Both are driven by `step(input, &mut Vec<Effect>)`.
//! *Invariants*: I1, I2, I6 and I8 of docs/protocol.md.
//! *Not here*: bytes, dirty data (`ccpfs-writeback`), sockets, clocks. The two halves share messages and identifiers only.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod client;
pub mod server;
