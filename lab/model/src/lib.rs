//! The rules under a model checker: every order of events in small worlds.
//!
//! *What*: the product's own machines ([`ccpfs_cached_stripe::CachedStripe`] in each client, [`ccpfs_shard::Shard`] in each server)
//! with a network, a device and pages of a few bytes around them, handed to stateright as one `Model`. What a shell would do is done
//! by [`client`] and [`server`]; they carry and decide nothing. Each byte holds the number of the operation that wrote it.
//!
//! *What is free*: the messages of one connection arrive in order; everything else happens in every order: connections among each
//! other, device tasks that were started, threads, the flush thread, trimming, the moment of a crash. A message is never duplicated
//! by the network: a connection of TCP delivers each byte once or is lost. What the *rules* say twice (a second Revoke) is there of
//! itself. Nothing depends on time: clocks of the server never run out here.
//!
//! *What is checked* ([`ghost`]): I1 to I9 as far as one life of a server shows them, that no rule panics, and that no state is
//! terminal in which an operation has not returned.
//!
//! Whether a run can go on for ever is asked apart ([`endless`]): worlds in which calls try for locks must have no circle of states.
//!
//! *How*: [`CONFIGS`] is the table of worlds, [`check::check`] searches one of them breadth first.

pub mod check;
pub mod client;
pub mod config;
pub mod endless;
pub mod ghost;
pub mod mark;
pub mod model;
pub mod rule;
pub mod server;
pub mod state;
pub mod story;
pub mod table;
pub mod taking;
pub mod thread;
pub mod world;

pub use check::{Outcome, Report, check};
pub use config::Config;
pub use model::Action;
pub use table::CONFIGS;
pub use world::World;
