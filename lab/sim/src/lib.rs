//! A whole cluster in one thread: virtual time, faults, checkers, and the figures of the papers.
//!
//! *What*: a [`world::World`] runs the product's own machines (`ccpfs-cached-stripe`, `ccpfs-shard`) under a clock, a network,
//! devices and applications that are all values. Everything that happens follows from one 64-bit seed.
//! *Invariants*: the same seed gives the same run; shells here carry, and decide nothing that the product's rules decide.
//! *Not here*: rules. A copy of a rule in the laboratory would be a mistake of the laboratory.

pub use engine::Seen;

pub mod checkers;
pub mod clock;
pub mod config;
pub mod disk;
mod engine;
pub mod explore;
pub mod figures;
pub mod history;
pub mod net;
mod node;
pub mod page;
pub mod plot;
pub mod random;
pub mod replay;
pub mod run;
pub mod shrink;
pub mod swarm;
pub mod taking;
pub mod workload;
pub mod world;
