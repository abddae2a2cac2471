//! How far a file reaches: what this client has, and what the servers and through them all others say.

use super::client::{Client, Note};
use super::operation::{Op, Phase, Progress};
use super::stripe::to_u32;
use crate::engine::Engine;
use crate::history::{Call, Outcome};
use crate::workload::Work;
use ccpfs_cached_stripe::Input;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId, RequestId};
use ccpfs_wire::{Channel, Message, Status};

/// EPROTO of Linux.
const EPROTO: i32 = 71;
/// EFBIG of Linux.
const EFBIG: i32 = 27;

/// How a question for the size stands: the stripe that is asked next, and the largest answer so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sizing {
    stripe: usize,
    size: u64,
    errno: Option<i32>,
}

impl Client {
    /// Our own unflushed data first: what is acknowledged afterwards the server knows when it is asked.
    pub(super) fn size_measure(&mut self, engine: &mut Engine, op: &mut Op, thread: u32) -> Progress {
        let stripe = op.sizing.stripe;
        if stripe == self.files[op.file].stripes.len() {
            return op.to(Phase::SizeReplies);
        }
        op.measure = OperationId(self.number(thread));
        self.step(engine, op.file, stripe, Input::Measure { operation: op.measure });
        op.to(Phase::SizeMeasured)
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
        let size = self.files[op.file].layout.file_size(to_u32(op.sizing.stripe), end);
        op.sizing.size = op.sizing.size.max(size);
        op.to(Phase::SizeSend)
    }

    pub(super) fn size_send(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let stripe = op.sizing.stripe;
        let target = self.target(op.file, stripe);
        if let Some(Some(errno)) = self.take_session(thread, target) {
            op.sizing.errno = Some(errno);
            op.sizing.stripe += 1;
            return op.to(Phase::Size);
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
        op.to(Phase::Size)
    }

    pub(super) fn size_replies(&mut self, thread: u32, op: &mut Op) -> Progress {
        while !op.pending.is_empty() {
            let Some((number, answer)) = self.take_reply(thread, &mut op.pending) else {
                return Progress::Wait;
            };
            let (_, stripe) =
                op.asked.iter().find(|(asked, _)| *asked == number).copied().expect("its number was pending");
            match answer {
                Ok((Message::GlimpseReply { status: Status::Ok, stripe_bytes, .. }, _)) => {
                    let size = self.files[op.file].layout.file_size(to_u32(stripe), stripe_bytes);
                    op.sizing.size = op.sizing.size.max(size);
                }
                Ok((Message::GlimpseReply { status: Status::Errno(errno), .. }, _)) | Err(errno) => {
                    op.sizing.errno = Some(errno);
                }
                Ok(_) => op.sizing.errno = Some(EPROTO),
            }
        }
        op.to(Phase::Sized)
    }

    /// The size is known: what it was asked for goes on.
    pub(super) fn sized(&mut self, engine: &mut Engine, op: &mut Op) -> Progress {
        if let Some(errno) = op.sizing.errno {
            return Progress::Return(Err(errno));
        }
        let size = op.sizing.size;
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
                        op.to(Phase::Copy)
                    }
                    None => Progress::Return(Err(EFBIG)),
                }
            }
            Work::Call(
                Call::Read { .. } | Call::Write { .. } | Call::Truncate { .. } | Call::Fsync { .. },
            )
            | Work::WriteList { .. }
            | Work::Flush { .. } => op.to(Phase::Zero),
        }
    }
}
