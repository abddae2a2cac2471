//! What tests of real processes share: the build under test, server processes, and programs run to their end.
//!
//! A [`Servers`] is a configuration file and a process for each server of it. [`built`] and [`tool`] find programs; [`output_of`]
//! and [`finish`] run one to its end; [`signal`] stops one, dependably.

mod processes;
mod programs;
mod servers;

pub use processes::{described, finish, forget_variables, output_of, signal, spawn_for_good};
pub use programs::{binary_folder, built, have, skip, tool, workspace};
pub use servers::{Options, Servers};
