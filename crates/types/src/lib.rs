//! The words of ccPFS: extents, lock modes, sequence numbers, identifiers, layouts, policies, limits.
//!
//! *What*: plain values that every other room of the building speaks about.
//! *Invariants*: an [`Extent`] is never empty; an [`ExtentMap`] holds disjoint extents.
//! *Not here*: messages (`ccpfs-wire`), decisions (the rule crates), bytes.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod extent;
pub mod extent_index;
pub mod extent_map;
pub mod id;
pub mod limits;
pub mod mode;
pub mod policy;
pub mod stripe;
pub mod terms;

pub use extent::Extent;
pub use extent_index::ExtentIndex;
pub use extent_map::ExtentMap;
pub use id::{ClientId, FileId, GroupId, LockId, OperationId, RequestId, ResourceId, Sn};
pub use mode::{LockMode, LockState};
pub use policy::{Expansion, Policy};
pub use stripe::{Layout, Piece};
pub use terms::{Part, Terms};
