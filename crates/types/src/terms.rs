//! On which terms a lock is asked for.

use crate::GroupId;

/// How the request stands to others of the same operation on the same resource.
///
/// Mostly one lock covers all that an operation needs of a stripe. Where that takes several, they are asked for one after the other
/// in the order of their offsets, the bounds of none of them overlapping those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Part {
    /// It is the only one.
    #[default]
    Only,
    /// Others will follow, with higher offsets.
    First,
    /// The operation holds locks with lower offsets: the request stands behind granted locks only, and behind no other request,
    /// because that might wait for what the operation holds.
    Next,
}

/// How a lock is asked for, beside mode and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Terms {
    /// Deny instead of waiting; nobody is asked to let go. With a desired range that is the required one this is a speculative
    /// request, as lockahead makes them.
    pub try_only: bool,
    /// Which of several it is.
    pub part: Part,
    /// The lock stands in the way of nobody with the same group, whatever the modes; [`GroupId::NONE`] for a lock as any other.
    pub group: GroupId,
}

impl Terms {
    /// Wait for as long as it takes, for one lock.
    pub const WAIT: Terms = Terms { try_only: false, part: Part::Only, group: GroupId::NONE };
    /// At once, or not at all.
    pub const TRY: Terms = Terms { try_only: true, ..Terms::WAIT };
}

impl Part {
    /// Whether the operation takes other locks of the resource beside this one.
    #[must_use]
    pub const fn of_several(self) -> bool {
        match self {
            Part::Only => false,
            Part::First | Part::Next => true,
        }
    }
}
