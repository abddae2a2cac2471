//! A whole cluster in one thread: virtual time, faults, checkers, and the figures of the papers.

pub mod checkers;
pub mod history;
