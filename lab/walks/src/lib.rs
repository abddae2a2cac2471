//! Golden conversations: scripts, and every message that follows.
