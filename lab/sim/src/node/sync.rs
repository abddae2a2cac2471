//! Truncate, flush and fsync.

use super::client::{Client, EIO, Note};
use super::operation::{Op, Part, Phase, Progress};
use super::stripe::to_u32;
use crate::engine::Engine;
use crate::history::{Call, Outcome};
use crate::workload::Work;
use ccpfs_cached_stripe::Input;
use ccpfs_types::{OperationId, RequestId};
use ccpfs_wire::{Channel, Message, Status};
use ccpfs_writeback::{BarrierId, JobId};

/// EPROTO of Linux.
const EPROTO: i32 = 71;

impl Client {
    /// Cuts the next stripe, as soon as none of our own flushes above is under way.
    pub(super) fn cut(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let Some(part) = op.parts.get(op.at).cloned() else {
            return Progress::Return(match op.errno {
                Some(errno) => Err(errno),
                None => Ok(Outcome::Truncated),
            });
        };
        let Work::Call(Call::Truncate { length, .. }) = op.work else {
            unreachable!("only a truncate cuts");
        };
        let length = self.files[op.file].layout.stripe_length(to_u32(part.stripe), length);
        let request = self.number(thread);
        op.pending.push(request);
        let input = Input::Truncate { operation: part.operation, length, request: RequestId(request) };
        self.step(engine, op.file, part.stripe, input);
        op.enter(Phase::CutReply)
    }

    pub(super) fn cut_reply(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let part = op.parts[op.at].clone();
        let asked = self.take_note(thread, |note| {
            if let Note::Ask { operation, message } = note
                && *operation == part.operation
            {
                return Some(message.clone());
            }
            None
        });
        let lost = asked.is_some_and(|message| !self.send_cut(engine, op, &part, message));
        let answer = match self.take_void(thread, part.operation) {
            Some(errno) => Some(errno),
            None if lost => Some(EIO),
            None => match self.take_reply(thread, &mut op.pending) {
                Some((_, answer)) => done(answer),
                None => return Progress::Wait,
            },
        };
        if answer.is_none() {
            self.step(engine, op.file, part.stripe, Input::Cut { operation: part.operation });
        }
        op.errno = op.errno.or(answer);
        op.pending.clear();
        op.at += 1;
        op.enter(Phase::Cut)
    }

    /// Sends a truncate over the session that its lock is from. False if the lock was lost meanwhile.
    fn send_cut(&mut self, engine: &mut Engine, op: &Op, part: &Part, message: Message) -> bool {
        let held = self.holds(op.file, part.stripe, part.operation);
        let place = self.stripe(op.file, part.stripe);
        let (bound, target) = (place.session, place.target);
        let session =
            bound.filter(|_| held).and_then(|(serial, _)| self.sessions[target as usize].live(serial));
        let Some(session) = session else { return false };
        session.requests.extend(&op.pending);
        engine.send(session.connection(Channel::Control), true, message, None, false);
        true
    }

    /// Sets a barrier on every stripe with something unacknowledged.
    pub(super) fn flush(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        op.errors_before = self.files[op.file].errors.0;
        for stripe in 0..self.files[op.file].stripes.len() {
            let place = self.files[op.file].stripes[stripe].as_ref();
            if place.is_none_or(|place| place.machine.cache().unacknowledged_end() == 0) {
                continue;
            }
            let barrier = BarrierId(self.number(thread));
            let next_job = JobId(self.peek_number());
            op.barriers.push(barrier);
            self.step(engine, op.file, stripe, Input::Barrier { barrier, next_job });
        }
        op.enter(Phase::Flushed)
    }

    pub(super) fn flushed(&mut self, _: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        while !op.barriers.is_empty() {
            let barriers = &mut op.barriers;
            let done = self.take_note(thread, |note| {
                let Note::BarrierDone { barrier } = note else { return None };
                let at = barriers.iter().position(|open| open == barrier)?;
                Some(barriers.swap_remove(at))
            });
            if done.is_none() {
                return Progress::Wait;
            }
        }
        let (count, errno) = self.files[op.file].errors;
        let flushed = if count == op.errors_before { Ok(()) } else { Err(errno) };
        let earlier = self.report_errors(thread, op.file);
        match (flushed.and(earlier), &op.work) {
            (Err(errno), _) => Progress::Return(Err(errno)),
            (Ok(()), Work::Flush { .. }) => Progress::Return(Ok(Outcome::Synced)),
            (Ok(()), Work::Call(_) | Work::WriteRegion { .. }) => op.enter(Phase::SyncSession),
        }
    }

    /// Sessions with all shards of the file first, then a Sync to each.
    pub(super) fn sync_session(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let stripes = self.files[op.file].stripes.len();
        let mut targets: Vec<u32> = (0..stripes).map(|stripe| self.target(op.file, stripe)).collect();
        targets.sort_unstable();
        targets.dedup();
        for target in &targets {
            if let Some(Some(errno)) = self.take_session(thread, *target) {
                return Progress::Return(Err(errno));
            }
            if self.session(engine, thread, *target).is_none() {
                return Progress::Wait;
            }
        }
        for target in targets {
            let (request, sync) = (self.number(thread), OperationId(self.number(thread)));
            let epoch = self.sessions[target as usize].ready().expect("gathered above").epoch;
            let mut resources = Vec::new();
            for stripe in
                (0..stripes).filter(|stripe| self.target(op.file, *stripe) == target).collect::<Vec<_>>()
            {
                resources.push(self.stripe(op.file, stripe).machine.resource());
                self.step(engine, op.file, stripe, Input::Sync { operation: sync, epoch });
            }
            let session = self.sessions[target as usize].ready().expect("gathered above");
            session.requests.push(request);
            op.pending.push(request);
            op.syncs.push((target, request, sync));
            let message = Message::Sync { request: RequestId(request), resources };
            engine.send(session.connection(Channel::Control), true, message, None, false);
        }
        op.enter(Phase::SyncReplies)
    }

    pub(super) fn sync_replies(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        while !op.pending.is_empty() {
            let Some((number, answer)) = self.take_reply(thread, &mut op.pending) else {
                return Progress::Wait;
            };
            let errno = done(answer);
            op.errno = op.errno.or(errno);
            let at = op.syncs.iter().position(|(_, request, _)| *request == number);
            let (target, _, sync) = op.syncs.swap_remove(at.expect("its number was pending"));
            for stripe in 0..self.files[op.file].stripes.len() {
                if self.target(op.file, stripe) == target {
                    let input = Input::Synced { operation: sync, stored: errno.is_none() };
                    self.step(engine, op.file, stripe, input);
                }
            }
        }
        let result = match op.errno {
            Some(errno) => Err(errno),
            // What a server had acknowledged and may have lost by a crash since.
            None => self.report_errors(thread, op.file),
        };
        Progress::Return(result.map(|()| Outcome::Synced))
    }
}

/// The error of an answer to a truncate or sync.
fn done(answer: Result<(Message, u64), i32>) -> Option<i32> {
    match answer {
        Ok((Message::Done { status: Status::Ok, .. }, _)) => None,
        Ok((Message::Done { status: Status::Errno(errno), .. }, _)) | Err(errno) => Some(errno),
        Ok(_) => Some(EPROTO),
    }
}
