//! Checkers: what must hold of a run, whatever happened in it.
//!
//! After a run, [`check`] reads its [`History`]: calls are atomic and in order ([`order`]), sizes and append offsets fit
//! ([`size`]), everybody got an answer ([`liveness`]). During a run an
//! [`Observer`] is told what happens inside; [`Invariants`] checks I1 to I4, I6, I7 and I9 of docs/protocol.md at each step.

pub mod durability;
pub mod graph;
pub mod invariants;
pub mod liveness;
pub mod order;
pub mod segments;
pub mod shadow;
pub mod size;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twin;

use crate::history::{History, Moment, OpId};
use ccpfs_region::Region;
use ccpfs_types::{ClientId, Extent, ExtentMap, LockId, LockMode, OperationId, ResourceId, Sn};
use ccpfs_wire::GrantedLock;
use std::fmt;

pub use invariants::Invariants;

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// I1: locks in use are compatible.
    LocksInUse,
    /// I2: sequence numbers rise.
    NumbersRise,
    /// I3, I6, I7: the highest sequence number wins, also after trimming, and the evicted change nothing.
    HighestWins,
    /// I4: one flush of a byte at a time.
    OneFlush,
    /// I5, S1, S2: calls are atomic and in order.
    Order,
    /// I8: everybody gets a turn.
    Turn,
    /// I9, S8 to S12: what is promised survives, and nothing is lost silently.
    Durable,
    /// S3, S4, S5: sizes, appends, truncates.
    Size,
    /// The history contradicts itself: a mistake of the laboratory, not of the product.
    Laboratory,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::LocksInUse => "I1 (locks in use are compatible)",
            Rule::NumbersRise => "I2 (sequence numbers rise)",
            Rule::HighestWins => {
                "I3, I6, I7 (the highest sequence number wins, also after trimming and eviction)"
            }
            Rule::OneFlush => "I4 (one flush of a byte at a time)",
            Rule::Order => "I5 (reads are linearizable)",
            Rule::Turn => "I8 (everybody gets a turn)",
            Rule::Durable => "I9 (what fsync promised survives)",
            Rule::Size => "S3-S5 (sizes, appends, truncates)",
            Rule::Laboratory => "the laboratory itself",
        })
    }
}

/// A broken promise: what was expected, what was seen, and which calls show it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// The calls that show it, if calls do.
    pub operations: Vec<OpId>,
    /// In words.
    pub what: String,
}

impl Violation {
    /// A violation shown by these calls.
    #[must_use]
    pub fn new(rule: Rule, operations: &[OpId], what: String) -> Violation {
        Violation { rule, operations: operations.to_vec(), what }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// What the checkers found that is no violation but a gap that the documents admit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Gaps {
    /// Parts of reads that a client answered from its cache after a server had evicted it and before it knew (docs/semantics.md
    /// promises nothing about a client that was cut off or stopped).
    pub reads_while_evicted: u64,
    /// Parts of writes that were lost with a session, a device or a server's power.
    pub writes_lost: u64,
}

/// Checks a whole run.
///
/// # Errors
/// The first violation found.
pub fn check(history: &History) -> Result<Gaps, Violation> {
    let mut analysis = order::analyse(history)?;
    size::check(history, &mut analysis)?;
    liveness::check(history)?;
    Ok(analysis.gaps)
}

/// A lock in use by a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockUse {
    /// The resource.
    pub resource: ResourceId,
    /// The call inside its client.
    pub operation: OperationId,
    /// The lock, as the client was told when the call was let in.
    pub lock: LockId,
    /// Its sequence number, as told then.
    pub sn: Sn,
    /// What the call asked for, after the policy's say (PW for every write where there are no write modes).
    pub mode: LockMode,
    /// The bytes it required, in offsets of the stripe.
    pub region: Region,
}

/// One piece of a flush that a server was given.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TakenPiece {
    /// The stripe.
    pub resource: ResourceId,
    /// Which bytes, in offsets of the stripe.
    pub extent: Extent,
    /// The number they were written under.
    pub sn: Sn,
    /// Who wrote them: covers the extent.
    pub tags: Vec<(Extent, OpId)>,
}

/// Somebody who is told what happens inside a simulated cluster, at the step at which it happens. `server` is a shard.
#[expect(unused_variables, reason = "an observer looks at what it likes")]
pub trait Observer {
    /// A shard granted a lock (its effect, before it travels).
    fn granted(&mut self, at: Moment, server: u32, to: ClientId, resource: ResourceId, lock: &GrantedLock) {}
    /// A client let a call in under a lock.
    fn use_began(&mut self, at: Moment, server: u32, client: ClientId, used: &LockUse) {}
    /// A call does not use its lock any longer (`Input::Finish`).
    fn use_ended(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        operation: OperationId,
    ) {
    }
    /// A client sends a flush (`Effect::Job`).
    fn flush_sent(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        job: u64,
        pieces: &[(Extent, Sn)],
    ) {
    }
    /// A client has the answer to a flush (`Input::Answered`).
    fn flush_answered(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        job: u64,
        errno: Option<i32>,
    ) {
    }
    /// A shard was given a flush (before its step); pieces that it will refuse (EPERM, ESTALE) are told of afterwards by
    /// [`Observer::write_refused`].
    fn write_taken(&mut self, at: Moment, server: u32, client: ClientId, pieces: &[TakenPiece]) {}
    /// A shard was given a truncate of a stripe (before its step).
    fn truncate_taken(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        from: u64,
        sn: Sn,
    ) {
    }
    /// A shard answered a flush or truncate with an error: what it brought may be there or not, in whole or in part.
    fn write_refused(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        resource: ResourceId,
        extents: &[Extent],
    ) {
    }
    /// No device task of the stripe is under way or waiting: this is what the device holds (the live, not the durable state).
    fn settled(&mut self, at: Moment, server: u32, resource: ResourceId, contents: &ExtentMap<OpId>) {}
    /// A shard was given a Sync.
    fn sync_asked(
        &mut self,
        at: Moment,
        server: u32,
        client: ClientId,
        request: u64,
        resources: &[ResourceId],
    ) {
    }
    /// A shard answered a Sync without an error.
    fn sync_done(&mut self, at: Moment, server: u32, client: ClientId, request: u64) {}
    /// A shard fenced a client.
    fn evicted(&mut self, at: Moment, server: u32, client: ClientId) {}
    /// A server died: nobody holds anything there.
    fn died(&mut self, at: Moment, server: u32) {}
    /// A server is back with this on its devices.
    fn restarted(&mut self, at: Moment, server: u32, contents: &[(ResourceId, ExtentMap<OpId>)]) {}
    /// The data of a stripe were removed (Destroy).
    fn destroyed(&mut self, at: Moment, server: u32, resource: ResourceId) {}
}

/// Looks at nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blind;

impl Observer for Blind {}
