//! A request for a lock, and whom it need not wait for.

use super::queue::Standing;
use ccpfs_region::Region;
use ccpfs_types::{ClientId, GroupId, LockMode, Part, RequestId};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) from: ClientId,
    pub(super) request: RequestId,
    pub(super) mode: LockMode,
    pub(super) required: Region,
    pub(super) desired: Region,
    pub(super) part: Part,
    pub(super) group: GroupId,
    /// What it waits for.
    pub(super) standing: Standing,
}

/// How a request would use its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) mode: LockMode,
    pub(super) group: GroupId,
}

impl Claim {
    /// Whether a member of `group` stands in nobody's way here.
    pub(super) fn agrees(self, group: GroupId) -> bool {
        self.group != GroupId::NONE && self.group == group
    }
}

impl Request {
    pub(super) fn claim(&self) -> Claim {
        Claim { mode: self.mode, group: self.group }
    }

    /// Whether it is served before `other`, which came first: who holds locks here must not wait for who may wait for them, and
    /// groups go before all others.
    pub(super) fn passes(&self, other: &Request) -> bool {
        self.part == Part::Next || (self.group != GroupId::NONE && other.group == GroupId::NONE)
    }

    /// Whether it may be served before somebody who came first.
    pub(super) fn may_pass(&self) -> bool {
        self.part == Part::Next || self.group != GroupId::NONE
    }
}
