//! Who waits for flushes of this stripe that are under way: readers, truncates, and those who ask how far the data reach.

use crate::{CachedStripe, Effect};
use alloc::vec::Vec;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId, RequestId};
use ccpfs_wire::{Channel, Message};
use ccpfs_writeback::{Input, JobId, Readable};

/// Who asks how far the data reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Asker {
    /// The server, for another client.
    Server { glimpse: u64 },
    /// This client.
    Own { operation: OperationId },
}

/// A question that cannot be answered before flushes up to a number are: their releases may have been performed already (R24).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Question {
    asker: Asker,
    last: Option<JobId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Look {
    operation: OperationId,
    extent: Extent,
    ahead_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cut {
    operation: OperationId,
    hole: Hole,
    request: RequestId,
}

/// What an operation wants to be zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Hole {
    /// All from here on: the stripe's new length.
    Above { length: u64 },
    /// These bytes; the length stays.
    Within { extent: Extent },
}

/// A truncate or punch that has been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Cutting {
    operation: OperationId,
    /// Where the client's data ended before a truncate; 0 when they are lost.
    end: u64,
    /// The life of the server that was asked.
    epoch: u64,
}

/// Everybody who waits, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Waits {
    questions: Vec<Question>,
    looks: Vec<Look>,
    cuts: Vec<Cut>,
    /// Truncates that have been sent and have not ended.
    cutting: Vec<Cutting>,
}

impl Waits {
    pub(crate) fn is_empty(&self) -> bool {
        self.questions.is_empty() && self.looks.is_empty() && self.cuts.is_empty()
    }

    pub(crate) fn glimpse(&mut self, glimpse: u64, last: Option<JobId>) {
        self.questions.push(Question { asker: Asker::Server { glimpse }, last });
    }

    pub(crate) fn measure(&mut self, operation: OperationId, last: Option<JobId>) {
        self.questions.push(Question { asker: Asker::Own { operation }, last });
    }

    pub(crate) fn look(&mut self, operation: OperationId, extent: Extent, ahead_bytes: u64) {
        self.looks.push(Look { operation, extent, ahead_bytes });
    }

    pub(crate) fn cut(&mut self, operation: OperationId, length: u64, request: RequestId) {
        self.cuts.push(Cut { operation, hole: Hole::Above { length }, request });
    }

    pub(crate) fn punch(&mut self, operation: OperationId, extent: Extent, request: RequestId) {
        self.cuts.push(Cut { operation, hole: Hole::Within { extent }, request });
    }

    /// The life of the server that was asked to cut for an operation that has not ended.
    pub(crate) fn cutting_epoch(&self, operation: OperationId) -> Option<u64> {
        self.cutting.iter().find(|cutting| cutting.operation == operation).map(|cutting| cutting.epoch)
    }

    /// The operation has ended: it waits for nothing.
    pub(crate) fn forget(&mut self, operation: OperationId) {
        self.cutting.retain(|cutting| cutting.operation != operation);
        self.looks.retain(|look| look.operation != operation);
        self.cuts.retain(|cut| cut.operation != operation);
    }

    /// The server that asked, and was asked, is lost.
    pub(crate) fn session_lost(&mut self) {
        // The answer may have come before: it counts for the life that gave it, whenever the operation looks at it.
        self.cutting.iter_mut().for_each(|cutting| cutting.end = 0);
        self.questions.retain(|question| matches!(question.asker, Asker::Own { .. }));
    }
}

impl CachedStripe {
    /// Answers those who need not wait any longer.
    pub(crate) fn answer_waiting(&mut self, out: &mut Vec<Effect>) {
        let mut cuts = core::mem::take(&mut self.waits.cuts);
        cuts.retain(|cut| !self.try_cut(*cut, out));
        self.waits.cuts = cuts;
        let mut looks = core::mem::take(&mut self.waits.looks);
        looks.retain(|look| !self.try_look(*look, out));
        self.waits.looks = looks;
        let mut questions = core::mem::take(&mut self.waits.questions);
        questions.retain(|question| !self.try_tell(*question, out));
        self.waits.questions = questions;
    }

    /// A flush of the same lock must not arrive after the cut: both have the same number.
    //= protocol.md#I4
    fn try_cut(&mut self, cut: Cut, out: &mut Vec<Effect>) -> bool {
        let Cut { operation, hole, request } = cut;
        let Some(sn) = self.sn_of(operation) else {
            out.push(Effect::Void { operation });
            return true;
        };
        let (resource, epoch) = (self.resource, self.session.as_ref().map_or(0, |session| session.epoch));
        let message = match hole {
            Hole::Above { length } if self.cache.in_flight_above(length) => return false,
            Hole::Above { length } => {
                self.waits.cutting.push(Cutting { operation, end: self.cache.unacknowledged_end(), epoch });
                self.cache_step(Input::Truncated { length });
                Message::Truncate { request, resource, length, sn }
            }
            Hole::Within { extent } if self.cache.is_in_flight(extent) => return false,
            Hole::Within { extent } if !self.cache.unacknowledged(extent).is_empty() => {
                out.push(Effect::Void { operation });
                return true;
            }
            Hole::Within { extent } => {
                self.waits.cutting.push(Cutting { operation, end: 0, epoch });
                self.cache_step(Input::Reclaim { extent });
                Message::Punch { request, resource, extent, sn }
            }
        };
        out.push(Effect::Ask { operation, message });
        true
    }

    fn try_look(&self, look: Look, out: &mut Vec<Effect>) -> bool {
        let Look { operation, extent, ahead_bytes } = look;
        if !self.holds(operation) {
            out.push(Effect::Void { operation });
            return true;
        }
        let extents = match self.cache.readable(extent) {
            Readable::Wait => return false,
            Readable::All => Vec::new(),
            Readable::Missing(missing) => self.with_read_ahead(operation, extent, missing, ahead_bytes),
        };
        out.push(Effect::Missing { operation, extents });
        true
    }

    /// The missing parts and, behind the last of them, as much as a sequential reader will want next and its lock covers: no
    /// other lock, because that one may come and go before the answer is here.
    fn with_read_ahead(
        &self,
        operation: OperationId,
        extent: Extent,
        mut missing: Vec<Extent>,
        ahead_bytes: u64,
    ) -> Vec<Extent> {
        let next = Extent::with_length(extent.end(), ahead_bytes);
        if let Some(next) =
            next.filter(|next| next.end() < FILE_BYTES_MAX && self.is_covered(operation, *next))
            && let Readable::Missing(more) = self.cache.readable(next)
        {
            missing.extend(more);
        }
        missing
    }

    fn try_tell(&self, question: Question, out: &mut Vec<Effect>) -> bool {
        if question.last.is_some_and(|last| self.cache.is_leaving(last)) {
            return false;
        }
        // Until a truncate has ended the size is what it was before: the server may have less than we had, and not be cut yet.
        let before_cut = self.waits.cutting.iter().map(|cutting| cutting.end).max().unwrap_or(0);
        let (end, modified_ns) = (self.cache.unacknowledged_end().max(before_cut), self.modified_ns);
        out.push(match question.asker {
            Asker::Own { operation } => Effect::Measured { operation, end, modified_ns },
            Asker::Server { glimpse } => {
                let message = Message::GlimpseTell { glimpse, resource: self.resource, end, modified_ns };
                Effect::Send { channel: Channel::Callback, message }
            }
        });
        true
    }
}
