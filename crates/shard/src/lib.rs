//! The rules of one shard of a server, put together: lock table, extent caches, glimpses, trimming, evictions.
//!
//! *What*: [`Shard`] takes what clients send, what the device has done and what the clock says, and tells what to send, what the
//! device is to do and which clients must go. A resource lives on exactly one shard, which does both its locks and its data.
//! *Invariants*: I6 (what trimming may forget), I7 (a client is fenced before what it held is free), I8 (who keeps others waiting
//! is evicted), I9 (a sync waits for all that was admitted); a lock that comes with a flush is free when the flush is on the device.
//! *Not here*: connections, frames, names of clients, memory, threads. Bulk data are named ([`BulkRef`]), never held.
//!
//! How a shell drives it:
//! - A Hello: ask [`Shard::refusal`]; if there is none, [`Input::Joined`] for this channel (each of the three is told).
//! - A frame: each message is one [`Input::Message`]. A message's part of the frame's bulk is as long as [`bulk_bytes`] says; it gets
//!   a name of the shell's choice, and [`Effect::Free`] comes exactly once for each that was given.
//! - A connection is lost, or what came cannot be decoded: close all connections of the client, then [`Input::Parted`]. The same
//!   answers [`Effect::Part`]. What comes from a client that has parted is not heard.
//! - [`Effect::Start`]: when the device has done it, [`Input::Ended`]. A read's bytes go with the [`Effect::SendData`] that names its
//!   task, which that very step makes, or nowhere.
//! - [`Input::Clock`] at the latest when [`Shard::next_look_ns`] says so; earlier is harmless.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

extern crate alloc;

mod clients;
mod counters;
mod data;
mod errno;
mod glimpse;
mod interface;
mod locks;
mod lost;
mod messages;
mod operations;
mod overdue;
mod recent;
mod services;
mod shard;
mod trimming;

pub use ccpfs_extent_cache::Part;
pub use clients::Refusal;
pub use counters::{Counters, DataCounters, LockCounters};
pub use interface::{
    BulkRef, Effect, Input, Measure, Note, OPERATIONS_MAX, PROBE, Parting, Settings, TaskId, TaskResult,
    Work, bulk_bytes,
};
pub use overdue::Debt;
pub use shard::Shard;
