//! The steps of reads, and of whoever needs the size.

use super::{Operation, Progress, Step, number};
use crate::bytes::{Byte, Bytes, copied, describe, overlay, shifted};
use crate::call::Call;
use crate::client::ClientNode;
use crate::cluster::Context;
use crate::text;
use ccpfs_cached_stripe::{EIO, Input};
use ccpfs_namespace::SizeQuestion;
use ccpfs_types::{Extent, OperationId};
use ccpfs_wire::Message;

impl Operation {
    pub(super) fn looked(&mut self, stripe: usize, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let operation = self.held(stripe).operation;
        if node.inbox.void.remove(&operation) {
            return Progress::Fails(EIO);
        }
        let Some(missing) = node.inbox.missing.remove(&operation) else { return Progress::Wait };
        let resource = node.stripes[stripe].machine.resource();
        for extent in &missing {
            let request = node.request();
            let message = Message::Read { request, resource, extent: *extent };
            self.ask(request, stripe, Some(*extent), message, node, cx);
        }
        if missing.is_empty() { Progress::Done } else { self.then([Step::Fetched { stripe }]) }
    }

    pub(super) fn fetched(&mut self, stripe: usize, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let answers = match self.answers(node) {
            None => return Progress::Wait,
            Some(Err(errno)) => return Progress::Fails(errno),
            Some(Ok(answers)) => answers,
        };
        let operation = self.held(stripe).operation;
        for (request, _, bulk) in answers {
            let Some(extent) = request.extent else { continue };
            let bytes = bulk.unwrap_or_default();
            let end = extent.start() + bytes.end().unwrap_or(0);
            if let Some(got) = Extent::new(extent.start(), end) {
                overlay(&mut node.stripes[stripe].memory, &copied(&bytes, Extent::WHOLE, extent.start()));
                node.step(stripe, Input::Fetched { operation, extent: got }, cx);
            }
            self.short.extend(Extent::new(end, extent.end()).map(|rest| (stripe, rest)));
        }
        match (self.short.is_empty(), self.size) {
            (true, _) => Progress::Done,
            (false, Some(_)) => self.then([Step::Zero]),
            (false, None) => self.then([Step::AskSize, Step::Zero]),
        }
    }

    /// Zeros for what servers left out, below the file's size; nothing else, whatever is missing from the cache by now.
    pub(super) fn zero(&mut self, node: &mut ClientNode, cx: &mut Context) -> Progress {
        for (stripe, rest) in std::mem::take(&mut self.short) {
            let length = cx.layout.stripe_length(number(stripe), self.size.unwrap_or(0));
            let operation = self.held(stripe).operation;
            let Some(hole) = Extent::new(rest.start(), rest.end().min(length)) else { continue };
            node.stripes[stripe].memory.insert(hole, Byte::Zero);
            node.step(stripe, Input::Fetched { operation, extent: hole }, cx);
        }
        Progress::Done
    }

    pub(super) fn copy_out(&mut self, node: &mut ClientNode, cx: &mut Context) -> Progress {
        let Some((_, extent)) = self.call.wish() else { return Progress::Done };
        let end = self.size.map_or(extent.end(), |size| size.min(extent.end()));
        let mut seen = Bytes::new();
        for piece in Extent::new(extent.start(), end).iter().flat_map(|wanted| cx.layout.pieces(*wanted)) {
            let at = extent.start() + piece.offset;
            for (part, byte) in node.stripes[piece.stripe as usize].memory.within(piece.extent) {
                seen.insert(shifted(part, piece.extent.start(), at), byte);
            }
        }
        if self.held.iter().any(|held| !node.stripes[held.stripe].machine.holds(held.operation)) {
            return Progress::Fails(EIO);
        }
        self.result = format!("reads {}", describe(&seen, Extent::WHOLE, true));
        Progress::Done
    }

    /// Begins a round of the question for the size: all stripes are asked.
    pub(super) fn ask_size(&mut self, node: &ClientNode, cx: &Context) -> Progress {
        self.question.get_or_insert_with(|| SizeQuestion::new(cx.layout, &node.known_cuts));
        let _ = self.then([Step::Sized]);
        for stripe in (0..node.stripes.len()).rev() {
            let _ = self.then([Step::Measure { stripe }]);
        }
        Progress::Done
    }

    pub(super) fn measured(
        &mut self,
        stripe: usize,
        operation: OperationId,
        node: &mut ClientNode,
        cx: &mut Context,
    ) -> Progress {
        let Some(end) = node.inbox.measured.remove(&operation) else { return Progress::Wait };
        if let Some(question) = &mut self.question {
            question.has(number(stripe), end);
        }
        let request = node.request();
        let message = Message::Glimpse { request, resource: node.stripes[stripe].machine.resource() };
        self.ask(request, stripe, None, message, node, cx);
        Progress::Done
    }

    /// All stripes have told: that is the size, unless somebody has cut the file meanwhile.
    pub(super) fn sized(&mut self, node: &mut ClientNode) -> Progress {
        let answers = match self.answers(node) {
            None => return Progress::Wait,
            Some(Err(errno)) => return Progress::Fails(errno),
            Some(Ok(answers)) => answers,
        };
        let Some(mut question) = self.question.take() else { return Progress::Done };
        for (request, message, _) in answers {
            if let Message::GlimpseReply { stripe_bytes, cuts, .. } = message {
                question.told(number(request.stripe), stripe_bytes, cuts);
            }
        }
        if !question.is_settled() {
            self.question = Some(question);
            return self.then([Step::AskSize]);
        }
        node.known_cuts = question.known().to_vec();
        self.size = Some(question.size());
        if self.call == Call::Size {
            self.result = format!("finds {}", text::size(question.size()));
        }
        Progress::Done
    }
}
