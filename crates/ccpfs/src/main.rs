//! The ccpfs command.
fn main() {}
