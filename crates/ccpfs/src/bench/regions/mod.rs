//! What `tile-io`, `s3d`, `s3asim` and `collective` share: processes that write operations of many pieces, under several kinds
//! of locks, and others that look at what came out.

pub(crate) mod args;
mod check;
mod figure;
pub(crate) mod pattern;
mod protocol;
mod result;
mod run;
mod table;
pub(crate) mod way;
mod worker;

pub(crate) use run::run;
pub(crate) use worker::Worker;
