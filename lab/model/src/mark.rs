//! What a search has met.

/// What a search has met: shows that a world is not empty of what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mark {
    /// A lock was granted beside CANCELING ones.
    EarlyGrant,
    /// A lock was granted CANCELING.
    EarlyRevocation,
    /// A lock replaced others.
    Upgrade,
    /// A lock was lowered by a Convert.
    Convert,
    /// A Revoke came before its grant (R1).
    RevokeFirst,
    /// A Revoke came after the lock was given back (R2).
    RevokeLate,
    /// A Revoke met a lock in use.
    RevokeInUse,
    /// A second Revoke made a put-off flush go.
    Hurry,
    /// Bytes arrived that were older than what the server had (R3).
    OlderBytes,
    /// A release travelled with a flush.
    ReleaseWithFlush,
    /// A reader waited for bytes that leave.
    LookWaits,
    /// Entries of an extent cache were forgotten while locks were held.
    Trimmed,
    /// The server made clients flush.
    Forced,
    /// Two device tasks of one stripe at a time.
    TwoTasks,
    /// Something of a client arrived after it had crashed or left.
    LateMessage,
    /// Messages were dropped by the fence.
    Fenced,
    /// An operation failed because its session was lost.
    Failed,
    /// A holder was asked how far its data reach.
    Glimpse,
    /// A lock that was asked for without waiting was refused.
    Refused,
    /// Locks were given up because one before them was refused.
    GivenUp,
    /// A lock was asked for while one before it was waited for.
    Ahead,
}

impl Mark {
    /// All of them.
    pub const ALL: [Mark; 21] = [
        Mark::EarlyGrant,
        Mark::EarlyRevocation,
        Mark::Upgrade,
        Mark::Convert,
        Mark::RevokeFirst,
        Mark::RevokeLate,
        Mark::RevokeInUse,
        Mark::Hurry,
        Mark::OlderBytes,
        Mark::ReleaseWithFlush,
        Mark::LookWaits,
        Mark::Trimmed,
        Mark::Forced,
        Mark::TwoTasks,
        Mark::LateMessage,
        Mark::Fenced,
        Mark::Failed,
        Mark::Glimpse,
        Mark::Refused,
        Mark::GivenUp,
        Mark::Ahead,
    ];
}
