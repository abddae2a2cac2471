//! SeqDLM: the lock rules of the server and of the client, without IO.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
