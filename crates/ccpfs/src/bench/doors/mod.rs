//! `ccpfs bench doors`: the same programs through every door, in one run.

mod access;
mod args;
mod figure;
mod library;
mod plan;
mod protocol;
mod report;
mod result;
mod run;
mod stage;
mod table;
mod worker;

pub(crate) use args::DoorsArguments;
pub(crate) use run::run;
pub(crate) use worker::Worker;
