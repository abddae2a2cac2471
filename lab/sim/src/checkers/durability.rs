//! What may be lost, and when: the promises S8 to S12 of docs/semantics.md, as a question about one write and one reader.
//!
//! A write that returned may be lost with its session (eviction, a lost server, a killed client), with its server's power, or
//! when a device refuses it; never after an `fsync` of its client has vouched for it (I9).

use super::segments::{Access, Deed, Segment};
use crate::history::{Call, FaultKind, History, Operation};
use ccpfs_types::Extent;

/// Reasons for which a device does not take data: EIO, EFBIG, ENOSPC, EDQUOT of Linux. That no lock covers them (EPERM) is none: a
/// client that lives holds the locks of what it has not flushed.
const DEVICE_ERRORS: [i32; 4] = [5, 27, 28, 122];

/// The calls of one client that answered for its data.
#[derive(Clone, Debug, Default)]
struct Answers {
    /// Steps of invocation and return of each `fsync` that succeeded.
    synced: Vec<(u64, u64)>,
    /// Steps at which a call returned an error: whatever was lost before may have been reported by it.
    failed: Vec<u64>,
}

/// Knows of each write whether it may be missing.
#[derive(Clone, Debug)]
pub struct Losses<'a> {
    history: &'a History,
    /// By client process, then by file.
    answers: Vec<Vec<Answers>>,
    /// Steps at which each server lost power.
    power: Vec<(u32, u64)>,
    devices_failed_ever: bool,
}

/// Why a write may be missing, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It must be there: nothing happened to it.
    Kept,
    /// It must be there: `fsync` said so.
    Promised,
    /// It may be missing.
    Doubtful {
        /// Whether what is older may be missing with it: a device refused it, so its bytes are whatever they were, or were not.
        undermines: bool,
    },
}

impl<'a> Losses<'a> {
    /// Reads a history.
    #[must_use]
    pub fn of(history: &'a History) -> Losses<'a> {
        let nodes = history.operations.iter().map(|operation| operation.node as usize + 1).max();
        let mut answers = vec![vec![Answers::default(); history.files.len()]; nodes.unwrap_or(0)];
        for operation in &history.operations {
            let Some(returned) = operation.returned else { continue };
            let answers = &mut answers[operation.node as usize][operation.call.file() as usize];
            if !operation.succeeded() {
                answers.failed.push(returned.step);
            } else if matches!(operation.call, Call::Fsync { .. }) {
                answers.synced.push((operation.invoked.step, returned.step));
            }
        }
        let power = history
            .faults
            .iter()
            .filter_map(|fault| match fault.kind {
                FaultKind::ServerLostPower { server } => Some((server, fault.at.step)),
                FaultKind::ClientCrashed { .. }
                | FaultKind::ClientEvicted { .. }
                | FaultKind::ServerKilled { .. }
                | FaultKind::ServerRestarted { .. }
                | FaultKind::ServerDisturbed { .. }
                | FaultKind::DevicesFailed
                | FaultKind::Disturbed { .. } => None,
            })
            .collect();
        let devices_failed_ever = history.faults.iter().any(|fault| fault.kind == FaultKind::DevicesFailed);
        Losses { history, answers, power, devices_failed_ever }
    }

    /// Whether what a call changed in a segment may be missing for somebody who looks until step `by`. `stored` says that its
    /// server is known to have had it; `undermined` that something newer was there which a device refused: servers take what is
    /// older as overwritten and acknowledge it.
    #[must_use]
    pub fn fate(&self, segment: &Segment, write: &Access, stored: bool, undermined: bool, by: u64) -> Fate {
        let call = self.history.operation(write.call);
        let session = self.history.session(&write.used);
        let answered = write.deed == Deed::Cut && call.succeeded();
        let with_power = self
            .power
            .iter()
            .any(|(server, step)| *server == session.server && write.used.order < *step && *step < by);
        let with_session = !stored
            && !answered
            && session.ended.is_some_and(|end| end.step < by || end.step < write.used.order);
        let refused = !stored && !answered && self.is_refused(segment, write, call, by);
        let dropped = !stored && self.is_dropped(segment, write, call);
        let covered = undermined && !stored;
        if !(with_power || with_session || refused || dropped || covered || !call.succeeded()) {
            return Fate::Kept;
        }
        // What was lost with its session may have been refused before.
        let undermines = refused || covered || (with_session && self.devices_failed_ever);
        if self.is_promised(call) { Fate::Promised } else { Fate::Doubtful { undermines } }
    }

    /// Whether a truncate of the same client, which then failed, has dropped the bytes from its cache before they were flushed.
    fn is_dropped(&self, segment: &Segment, write: &Access, call: &Operation) -> bool {
        segment.accesses.iter().any(|cut| {
            let other = self.history.operation(cut.call);
            cut.deed == Deed::Cut && other.node == call.node && !other.succeeded() && write.key() < cut.key()
        })
    }

    /// Whether the client was told by a server that its device cannot store the data.
    fn is_refused(&self, segment: &Segment, write: &Access, call: &Operation, by: u64) -> bool {
        self.history.losses.iter().any(|loss| {
            loss.node == call.node
                && (loss.file, loss.stripe) == (segment.file, segment.stripe)
                && loss.extent.overlaps(segment.local)
                && DEVICE_ERRORS.contains(&loss.errno)
                && loss.extent != Extent::WHOLE // that is a lost session
                && write.used.order < loss.at.step
                && loss.at.step < by
        })
    }

    /// Whether an `fsync` that began after the call had returned succeeded, with no error before that could have told of a loss.
    //= protocol.md#I9
    fn is_promised(&self, call: &Operation) -> bool {
        let Some(returned) = call.returned.filter(|_| call.succeeded()) else { return false };
        let answers = &self.answers[call.node as usize][call.call.file() as usize];
        answers.synced.iter().filter(|(invoked, _)| *invoked > returned.step).any(|(_, synced)| {
            !answers.failed.iter().any(|failed| call.invoked.step < *failed && *failed < *synced)
        })
    }
}
