//! Glimpses: how long is a stripe, counting what clients hold and have not flushed?
//!
//! *What*: first the stripe's own length; then, in parallel, every client with a write lock that reaches beyond it (GRANTED or CANCELING: early
//! grant leaves dirty data under both); then the own length again, because what a client has flushed in the
//! meantime it no longer answers for. Nobody is made to flush.
//! *Invariants*: a size that was true at some moment between question and answer (I5); an unanswered question is overdue (I8).
//! *Not here*: how a stripe is measured, and who holds what.

use crate::interface::{Measure, PROBE};
use crate::operations::ReplyTo;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use ccpfs_types::{ClientId, ResourceId};
use ccpfs_wire::{Message, Status};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// The stripe is measured, to know whom to ask.
    First,
    /// These clients have not answered.
    Asked { unanswered: BTreeSet<ClientId> },
    /// The stripe is measured again.
    Last,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Glimpse {
    reply: ReplyTo,
    resource: ResourceId,
    /// Whether others held write locks when it began.
    contended: bool,
    stage: Stage,
    end: u64,
    modified_ns: i64,
}

/// What a glimpse needs next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Next {
    /// Nothing yet.
    Wait,
    /// Ask these clients.
    Ask { resource: ResourceId, clients: BTreeSet<ClientId> },
    /// Measure the stripe.
    Measure { resource: ResourceId },
    /// Answer.
    Reply { to: ReplyTo, message: Message },
}

/// The glimpses under way on a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Glimpses {
    under_way: BTreeMap<u64, Glimpse>,
    /// How many were begun: each has the number of its turn, from 1.
    pub(crate) begun: u64,
}

impl Glimpses {
    /// Glimpses under way.
    pub(crate) fn count(&self) -> usize {
        self.under_way.len()
    }

    /// Begins a glimpse of a stripe on which `holders` hold write locks. It is to be measured next.
    pub(crate) fn begin(&mut self, reply: ReplyTo, resource: ResourceId, holders: &[ClientId]) -> u64 {
        self.begun += 1;
        assert!(self.begun != PROBE, "a question that only wants a sign of life belongs to no glimpse");
        let contended = holders.iter().any(|holder| *holder != reply.client && *holder != ClientId::SERVER);
        let glimpse = Glimpse { reply, resource, contended, stage: Stage::First, end: 0, modified_ns: 0 };
        self.under_way.insert(self.begun, glimpse);
        self.begun
    }

    /// The stripe has been measured, after so many cuts; `holders` finds who holds write locks beyond an offset.
    pub(crate) fn measured(
        &mut self,
        id: u64,
        result: Result<Measure, i32>,
        cuts: u64,
        holders: impl FnOnce(ResourceId, u64) -> Vec<ClientId>,
    ) -> Next {
        let Some(glimpse) = self.under_way.get_mut(&id) else { return Next::Wait };
        if let Ok(measure) = &result
            && glimpse.stage == Stage::First
        {
            let mut clients: BTreeSet<ClientId> =
                holders(glimpse.resource, measure.length_bytes).into_iter().collect();
            clients.remove(&glimpse.reply.client);
            clients.remove(&ClientId::SERVER);
            if !clients.is_empty() {
                glimpse.stage = Stage::Asked { unanswered: clients.clone() };
                return Next::Ask { resource: glimpse.resource, clients };
            }
            if glimpse.contended {
                // A holder may have flushed and let go while the stripe was measured: its bytes count.
                glimpse.stage = Stage::Last;
                return Next::Measure { resource: glimpse.resource };
            }
        }
        let glimpse = self.under_way.remove(&id).expect("it was there a moment ago");
        Next::Reply { to: glimpse.reply, message: answer(&glimpse, result, cuts) }
    }

    /// A client has answered.
    pub(crate) fn told(&mut self, id: u64, client: ClientId, end: u64, modified_ns: i64) -> Next {
        let Some(glimpse) = self.under_way.get_mut(&id) else { return Next::Wait };
        let Stage::Asked { unanswered } = &mut glimpse.stage else { return Next::Wait };
        if !unanswered.remove(&client) {
            return Next::Wait;
        }
        let all = unanswered.is_empty();
        glimpse.end = glimpse.end.max(end);
        glimpse.modified_ns = glimpse.modified_ns.max(modified_ns);
        if !all {
            return Next::Wait;
        }
        glimpse.stage = Stage::Last;
        Next::Measure { resource: glimpse.resource }
    }

    /// A client is gone: what it had is lost, so it counts as having nothing. Returns the glimpses that waited for it.
    pub(crate) fn waiting_for(&self, client: ClientId) -> Vec<u64> {
        self.under_way
            .iter()
            .filter(|(_, glimpse)| match &glimpse.stage {
                Stage::Asked { unanswered } => unanswered.contains(&client),
                Stage::First | Stage::Last => false,
            })
            .map(|(id, _)| *id)
            .collect()
    }
}

fn answer(glimpse: &Glimpse, result: Result<Measure, i32>, cuts: u64) -> Message {
    let (status, measure) = match result {
        Ok(measure) => (Status::Ok, measure),
        Err(errno) => (Status::Errno(errno), Measure::default()),
    };
    Message::GlimpseReply {
        request: glimpse.reply.request,
        status,
        stripe_bytes: measure.length_bytes.max(glimpse.end),
        modified_ns: measure.modified_ns.max(glimpse.modified_ns),
        // What the stripe's own length says; holes are counted as if they took room.
        stored_bytes: measure.length_bytes,
        cuts,
    }
}
