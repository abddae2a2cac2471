//! `ccpfs-canary explore SEEDS`: runs the simulator until it finds something. Exits with 1 if it does, with 0 if not.
//!
//! `cargo xtask canaries` builds this over rules that it has broken, and expects 1; over the rules as they are, 0.

fn main() {}
