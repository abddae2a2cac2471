//! The interposer: unmodified programs on ccPFS paths.
//!
//! `LD_PRELOAD=libccpfs_preload.so` puts this library before the C library. Every call goes three steps:
//!
//! - *catch* (`catch/`): an exported function with the name and signature of the C library's. It asks the descriptor
//!   table or the path rules whether the call concerns ccPFS. If not, the original is called: a load and a compare.
//! - *translate* (`translate.rs`, `open.rs`, `copy.rs`, `stdio.rs`, `spawn.rs`): POSIX semantics (offsets, access
//!   modes, `O_APPEND`, inheritance) in terms of [`ccpfs_client::File`].
//! - *do*: the client library.
//!
//! A ccPFS descriptor is a real descriptor of the file's stub, opened for reading only. So numbers, `dup`, `fork`,
//! `poll`, `flock`, permissions and extended attributes are the kernel's own, the kernel's offset of the descriptor
//! is the file offset, and a write that is not caught cannot damage the stub.
//!
//! Variables: `CCPFS_CONFIG` names the configuration. `CCPFS_PRELOAD=off` in the environment of a program that is started
//! keeps this library out of it. `CCPFS_PRELOAD_FDS`, `CCPFS_PRELOAD_OPENS` and `CCPFS_PRELOAD_QUIET` are for this library
//! itself (`spawn.rs`).
//!
//! *Invariants*: the client library's own calls never come back into it (`inside.rs`); a process that touches no ccPFS
//! path starts no thread and opens no connection; no panic crosses into the program (it becomes `EIO`).
//!
//! *Not here*: locks, caches, layouts.
//!
//! Static programs, and system calls made without the C library, are not caught. The internals of this crate assume the
//! ABI of 64-bit Linux with glibc, where `off_t` and `off64_t` are the same.

#[cfg(not(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64")))]
compile_error!("the interposer is written for 64-bit Linux with glibc");

mod actions;
mod catch;
mod copy;
mod descriptors;
mod inside;
mod limits;
mod locks;
mod marks;
mod open;
mod open_file;
mod paths;
mod process;
mod program;
mod real;
mod reply;
mod session;
mod signals;
mod spawn;
mod stdio;
mod strings;
mod table;
mod translate;
