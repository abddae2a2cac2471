//! The steps that ask servers: requests and their answers, truncate, fsync, unlink.

use super::{Operation, Progress, Request, Step, number};
use crate::bytes::Bytes;
use crate::call::Call;
use crate::client::ClientNode;
use crate::cluster::Context;
use ccpfs_cached_stripe::{EIO, Input};
use ccpfs_types::{Extent, OperationId, RequestId};
use ccpfs_wire::{Channel, Message, Status};
use ccpfs_writeback::{BarrierId, JobId};

/// An answer with what it answers.
pub(super) type Answer = (Request, Message, Option<Bytes>);

impl Operation {
    /// Sends a request to the shard of a stripe; its answer is waited for by a later step.
    pub(super) fn ask(
        &mut self,
        id: RequestId,
        stripe: usize,
        extent: Option<Extent>,
        message: Message,
        node: &mut ClientNode,
        cx: &mut Context,
    ) {
        let shard = cx.shard_of(stripe);
        self.requests.push(Request { id, shard, stripe, extent });
        node.send(shard, Channel::Control, message, None, cx);
    }

    /// The answers to all requests, once they are in.
    pub(super) fn answers(&mut self, node: &mut ClientNode) -> Option<Result<Vec<Answer>, i32>> {
        for request in &self.requests {
            if let Some(answer) = node.inbox.replies.remove(&request.id) {
                self.answers.insert(request.id, answer);
            }
        }
        if self.answers.len() < self.requests.len() {
            return None;
        }
        let mut found = Vec::new();
        let mut error = None;
        for request in std::mem::take(&mut self.requests) {
            let (message, bulk) = self.answers.remove(&request.id).expect("all are in");
            error = error.or(error_of(&message));
            found.push((request, message, bulk));
        }
        Some(error.map_or(Ok(found), Err))
    }

    pub(super) fn cut(&mut self, stripe: usize, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let Call::Truncate { size } = self.call else { return Progress::Done };
        let length = cx.layout.stripe_length(number(stripe), size);
        let request = node.request();
        self.requests.push(Request { id: request, shard: cx.shard_of(stripe), stripe, extent: None });
        let operation = self.held(stripe).operation;
        node.step(stripe, Input::Truncate { operation, length, request }, cx);
        self.then([Step::Answered { stripe }])
    }

    /// Waits for the answer to a truncate or a removal.
    pub(super) fn answered(&mut self, stripe: usize, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let operation = self.held.iter().find(|held| held.stripe == stripe).map(|held| held.operation);
        if operation.is_some_and(|operation| node.inbox.void.remove(&operation)) {
            return Progress::Fails(EIO);
        }
        match (self.answers(node), operation) {
            (None, _) => Progress::Wait,
            (Some(Err(errno)), _) => Progress::Fails(errno),
            (Some(Ok(_)), Some(operation)) => {
                node.step(stripe, Input::Cut { operation }, cx);
                Progress::Done
            }
            (Some(Ok(_)), None) => Progress::Done,
        }
    }

    pub(super) fn flush(&mut self, node: &mut ClientNode, cx: &mut Context) -> Progress {
        for stripe in 0..node.stripes.len() {
            if node.stripes[stripe].machine.cache().unacknowledged_end() == 0 {
                continue;
            }
            let barrier = BarrierId(node.request().0);
            self.then([Step::Flushed { barrier }]);
            let next_job = JobId(node.next_number());
            node.step(stripe, Input::Barrier { barrier, next_job }, cx);
        }
        Progress::Done
    }

    pub(super) fn sync(&mut self, shard: usize, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let Some(epoch) = node.sessions[shard] else { return Progress::Fails(EIO) };
        let operation = node.operation();
        let stripes = cx.stripes_of(shard);
        for stripe in &stripes {
            node.step(*stripe, Input::Sync { operation, epoch }, cx);
        }
        let resources = stripes.iter().map(|stripe| node.stripes[*stripe].machine.resource()).collect();
        let request = node.request();
        let Some(first) = stripes.first() else { return Progress::Done };
        self.ask(request, *first, None, Message::Sync { request, resources }, node, cx);
        self.then([Step::Synced { shard, operation }])
    }

    pub(super) fn synced(
        &mut self,
        shard: usize,
        operation: OperationId,
        node: &mut ClientNode,
        cx: &mut Context,
    ) -> Progress {
        let Some(answers) = self.answers(node) else { return Progress::Wait };
        let stored = answers.is_ok();
        for stripe in cx.stripes_of(shard) {
            node.step(stripe, Input::Synced { operation, stored }, cx);
        }
        match (answers, node.inbox.error.take()) {
            (Err(errno), _) | (Ok(_), Some(errno)) => Progress::Fails(errno),
            (Ok(_), None) => Progress::Done,
        }
    }

    pub(super) fn destroy(&mut self, shard: usize, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let stripes = cx.stripes_of(shard);
        for stripe in &stripes {
            node.step(*stripe, Input::Remove, cx);
        }
        let Some(first) = stripes.first() else { return Progress::Done };
        let resources = stripes.iter().map(|stripe| node.stripes[*stripe].machine.resource()).collect();
        let request = node.request();
        self.ask(request, *first, None, Message::Destroy { request, resources }, node, cx);
        self.then([Step::Answered { stripe: *first }])
    }
}

/// What went wrong, if an answer says so.
#[allow(clippy::wildcard_enum_match_arm, reason = "answers to requests are named")]
const fn error_of(message: &Message) -> Option<i32> {
    match message {
        Message::ReadReply { status: Status::Errno(errno), .. }
        | Message::Done { status: Status::Errno(errno), .. }
        | Message::GlimpseReply { status: Status::Errno(errno), .. } => Some(*errno),
        _ => None,
    }
}
