//! Regions: what a lock covers. Extents, lists of extents, and nested strided sections that stay symbolic.
//!
//! *What*: [`Section`], the strided pieces of an array in a few numbers; [`Region`], one extent, a list, or sections;
//! [`Datatype`], what MPI's type constructors say, as regions. Two regions are compared by arithmetic (the
//! module `common` says how, and what it costs), so that 128 K one-byte locks cost what one does.
//! *Invariants*: a region holds at least one byte; its pieces are disjoint; every answer is exact unless its
//! documentation says on which side it errs.
//! *Not here*: lock modes, conflicts, who gets a lock (`ccpfs-dlm`); layouts (`ccpfs-types`); encodings.
//!
//! Offsets are those of [`Extent`](ccpfs_types::Extent): bytes below `Extent::EOF`, and an end of `EOF` means to the end of any file.
//!
//! ```
//! use ccpfs_region::{Region, Section, UNBOUNDED};
//! use ccpfs_types::Extent;
//!
//! # fn main() -> Result<(), ccpfs_region::RegionError> {
//! // Of four writers in turn, each of 47,008 bytes, the second and the third.
//! let second = Region::from(Section::new(47_008, 47_008, &[(4 * 47_008, UNBOUNDED)])?);
//! let third = Region::from(Section::new(2 * 47_008, 47_008, &[(4 * 47_008, UNBOUNDED)])?);
//! assert!(!second.overlaps(&third));
//! // Somebody else wants a mebibyte: where it begins to be in the way, and what the second writer keeps of it all.
//! let wanted = Extent::new(1 << 20, 2 << 20).expect("not empty");
//! assert_eq!(second.first_common(&wanted.into()), Some(1_175_200));
//! let kept = second.without(wanted).expect("much is left");
//! assert_eq!(kept.to_string(), "47008+47008 each 188032 x 6 | 2115360+47008 each 188032 x ..");
//! # Ok(())
//! # }
//! ```
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod asked;
mod clip;
mod common;
mod compare;
mod datatype;
mod lists;
mod meet;
mod pieces;
mod region;
mod residue;
mod section;
mod striped;
mod stripes;
mod view;

pub use common::TooHard;
pub use datatype::{Datatype, Field, Order};
pub use pieces::{Pieces, StripePieces};
pub use region::Region;
pub use section::{Level, RegionError, Section};

/// A count of copies that goes on to the end of all files.
pub const UNBOUNDED: u64 = u64::MAX;
/// Most levels of a section in normal form. An array of n dimensions needs n - 1, its parts on a stripe at most n more.
pub const DEPTH_MAX: usize = 8;
/// Most sections of a region.
pub const SECTIONS_MAX: usize = 128;
/// Most parts of a datatype before its region is in normal form.
pub const PARTS_MAX: usize = 1 << 16;
/// Most steps that are spent to see whether any two sections of a new region overlap: some for each pair of [`SECTIONS_MAX`].
pub const EFFORT_MAX: u64 = 1 << 16;

/// Most steps that a lock manager spends to see whether two regions share a byte: some for each pair of [`SECTIONS_MAX`].
pub const STEPS_MAX: u64 = 1 << 15;

const _: () = assert!(STEPS_MAX >= 2 * (SECTIONS_MAX * SECTIONS_MAX) as u64);
const _: () = assert!(EFFORT_MAX >= 4 * (SECTIONS_MAX * SECTIONS_MAX) as u64);
