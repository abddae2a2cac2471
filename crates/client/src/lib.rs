//! The ccPFS client: caches, locks and flushes for one process.
//!
//! *What*: [`Client`] and [`File`]: what every door (Rust, C, interposer) translates to.
//! *Invariants*: a read or write call is atomic across stripes (I5); bytes given to a write call are read back by any
//! client that starts reading afterwards; what [`File::sync`] returned for survives (I9).
//! *Not here*: decisions about modes, conflicts or flush order: those are `ccpfs-dlm` and `ccpfs-writeback`.

mod advice;
mod answers;
mod attributes;
mod background;
mod client;
mod closed;
pub mod config;
mod create;
mod directory;
mod error;
mod file;
mod flush_loop;
mod foresight;
mod group;
mod hold;
mod inventory;
mod map;
mod memory;
mod names;
mod noncontiguous;
mod opened;
mod opens;
mod operation;
mod pages;
mod range_lock;
mod read;
mod remove;
mod reserve;
mod rmdir;
mod room;
mod seal;
mod session;
mod shared;
mod slots;
mod statistics;
mod stripe;
mod sys;
mod times;
mod write;

pub use advice::{ADVICES_MAX, Advised, AheadMode};
pub use ccpfs_config::{LockKind, LockProtocol};
pub use ccpfs_namespace::{Contents, STUB_BYTES, Stub, StubError, StubState};
pub use ccpfs_region::{Region, Section};
pub use ccpfs_transport::set_descriptor_minimum;
pub use ccpfs_wire::StoredStripe;
pub use client::Client;
pub use config::{ClientConfig, ConfigError, ConfigFile};
pub use error::FsError;
pub use file::{Access, File};
pub use hold::{Hold, HoldId, HoldMode};
pub use inventory::{Looked, ObjectPage, Resealed};
pub use names::OpenOptions;
pub use noncontiguous::LockStyle;
pub use opens::prepare_namespace;
pub use shared::DataAttributes;
pub use statistics::Statistics;
