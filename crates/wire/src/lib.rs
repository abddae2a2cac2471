//! The messages of ccPFS and their encoding.
//!
//! *What*: one [`Message`] type per step of the protocol, packed into batches: one frame of the transport carries many.
//! *Invariants*: decoding any bytes either gives messages or a [`DecodeError`]; it never panics and never allocates more
//! than the bytes it was given can describe. All integers are little-endian.
//! *Not here*: sockets, bulk data (which travels beside the messages of a frame).
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod codec;
pub mod msg;
mod range;
pub mod version;

pub use codec::{DecodeError, decode_batch, encode_into};
pub use msg::*;
