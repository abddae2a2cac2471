//! The version of the protocol.

/// Spoken by this build. The first message on each connection carries it; a server refuses another one by name.
pub const PROTOCOL_VERSION: u32 = 5;
