//! House-keeping.
fn main() {}
