//! How far a file reaches: what this client has, and what the servers and through them all others say.

use super::client::{Client, Note};
use super::operation::{Op, Phase, Progress};
use super::stripe::to_u32;
use crate::engine::Engine;
use crate::history::{Call, Outcome};
use crate::workload::Work;
use ccpfs_cached_stripe::Input;
use ccpfs_namespace::SizeQuestion;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId, RequestId};
use ccpfs_wire::{Channel, Message, Status};

/// EPROTO of Linux.
const EPROTO: i32 = 71;
/// EFBIG of Linux.
const EFBIG: i32 = 27;

/// How a question for the size stands: the stripe that is asked next in this round, and what was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sizing {
    stripe: usize,
    question: Option<SizeQuestion>,
    errno: Option<i32>,
}

impl Client {
    /// Our own unflushed data first: what is acknowledged afterwards the server knows when it is asked.
    pub(super) fn size_measure(&mut self, engine: &mut Engine, op: &mut Op, thread: u32) -> Progress {
        let stripe = op.sizing.stripe;
        let file = &self.files[op.file];
        op.sizing.question.get_or_insert_with(|| SizeQuestion::new(file.layout, &file.cuts));
        if stripe == file.stripes.len() {
            return op.enter(Phase::SizeReplies);
        }
        op.measure = OperationId(self.number(thread));
        self.step(engine, op.file, stripe, Input::Measure { operation: op.measure });
        op.enter(Phase::SizeMeasured)
    }

    pub(super) fn size_measured(&mut self, thread: u32, op: &mut Op) -> Progress {
        let of = op.measure;
        let end = self.take_note(thread, |note| {
            if let Note::Measured { operation, end } = note
                && *operation == of
            {
                return Some(*end);
            }
            None
        });
        let Some(end) = end else { return Progress::Wait };
        let question = op.sizing.question.as_mut().expect("a question is under way");
        question.has(to_u32(op.sizing.stripe), end);
        op.enter(Phase::SizeSend)
    }

    pub(super) fn size_send(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let stripe = op.sizing.stripe;
        let target = self.target(op.file, stripe);
        if let Some(Some(errno)) = self.take_session(thread, target) {
            op.sizing.errno = Some(errno);
            op.sizing.stripe += 1;
            return op.enter(Phase::Size);
        }
        if self.session(engine, thread, target).is_none() {
            return Progress::Wait;
        }
        let request = self.number(thread);
        let resource = self.stripe(op.file, stripe).machine.resource();
        let session = self.sessions[target as usize].ready().expect("there is a session");
        session.requests.push(request);
        op.pending.push(request);
        let message = Message::Glimpse { request: RequestId(request), resource };
        engine.send(session.connection(Channel::Control), true, message, None, false);
        op.asked.push((request, stripe));
        op.sizing.stripe += 1;
        op.enter(Phase::Size)
    }

    pub(super) fn size_replies(&mut self, thread: u32, op: &mut Op) -> Progress {
        while !op.pending.is_empty() {
            let Some((number, answer)) = self.take_reply(thread, &mut op.pending) else {
                return Progress::Wait;
            };
            let (_, stripe) =
                op.asked.iter().find(|(asked, _)| *asked == number).copied().expect("its number was pending");
            match answer {
                Ok((Message::GlimpseReply { status: Status::Ok, stripe_bytes, cuts, .. }, _)) => {
                    let question = op.sizing.question.as_mut().expect("a question is under way");
                    question.told(to_u32(stripe), stripe_bytes, cuts);
                }
                Ok((Message::GlimpseReply { status: Status::Errno(errno), .. }, _)) | Err(errno) => {
                    op.sizing.errno = Some(errno);
                }
                Ok(_) => op.sizing.errno = Some(EPROTO),
            }
        }
        op.enter(Phase::Sized)
    }

    /// The size is known: what it was asked for goes on.
    pub(super) fn sized(&mut self, engine: &mut Engine, op: &mut Op) -> Progress {
        if let Some(errno) = op.sizing.errno {
            return Progress::Return(Err(errno));
        }
        let question = op.sizing.question.as_mut().expect("a question is under way");
        if !question.is_settled() {
            op.sizing.stripe = 0;
            op.asked.clear();
            return op.enter(Phase::Size);
        }
        self.files[op.file].cuts = question.known().to_vec();
        let size = question.size();
        op.size = Some(size);
        match op.work {
            Work::Call(Call::Size { .. }) => Progress::Return(Ok(Outcome::Size { length: size })),
            Work::Call(Call::Append { length, .. }) => {
                match Extent::with_length(size, length).filter(|extent| extent.end() <= FILE_BYTES_MAX) {
                    Some(extent) => {
                        op.extents.push(extent);
                        if let Some(operation) = engine.operation(op.id) {
                            operation.offset = Some(size);
                        }
                        op.complete = true;
                        op.enter(Phase::Copy)
                    }
                    None => Progress::Return(Err(EFBIG)),
                }
            }
            Work::Call(
                Call::Read { .. } | Call::Write { .. } | Call::Truncate { .. } | Call::Fsync { .. },
            )
            | Work::WriteRegion { .. }
            | Work::Flush { .. } => op.enter(Phase::Zero),
        }
    }
}
