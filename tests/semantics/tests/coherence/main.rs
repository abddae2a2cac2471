//! What two clients see of each other's work, through every door.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod data;
mod locks;
mod maps;
mod names;
