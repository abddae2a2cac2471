//! The shells of a world: they carry what the machines decide, and decide nothing.

pub(crate) mod client;
mod device;
mod flush;
mod locks;
pub(crate) mod meter;
mod observe;
mod operation;
mod range_lock;
mod read;
pub(crate) mod server;
mod session;
mod size;
mod stripe;
mod sync;
mod write;
