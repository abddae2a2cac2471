//! The mount: ccPFS as a file system of the kernel, over FUSE.
//!
//! *What*: [`mount()`] puts the namespace on a directory: names are those of the namespace directory, contents are the client's
//! files. *Invariants*: the kernel caches only what a lock of the client protects, and drops it before the lock goes; a
//! request that waits keeps nobody else waiting. *Not here*: permission checks, which the kernel makes; decisions about locks
//! and data, which are the client's.

mod abi;
mod ahead;
mod attributes;
mod caller;
mod cut;
mod data;
mod directory;
mod dispatch;
mod drops;
mod exchange;
mod handles;
mod init;
mod inodes;
mod kernel;
mod locks;
mod mount;
mod mounted;
mod names;
mod notify;
mod open;
mod options;
mod owner;
mod pages;
mod session;
mod sys;
mod uring;
mod uring_entry;
mod uring_support;
mod window;

pub use kernel::{Detach, is_dead_mount, unmount};
pub use mounted::{MountError, Mounted, mount};
pub use options::{MountOptions, Rings};
