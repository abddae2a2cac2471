//! `ccpfs bench locks`: taking and releasing many small strided locks, without data (paper 001, 6.1).

mod args;
mod asker;
mod result;
mod run;
mod table;

pub(crate) use args::LocksArguments;
pub(crate) use run::run;
