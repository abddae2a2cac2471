//! The rules of one shard of a server, put together: lock table, extent caches, glimpses, trimming, evictions.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
