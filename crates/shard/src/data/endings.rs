//! The second half of an operation: what the ends of device tasks lead to.

use super::{DataService, StripeJob};
use crate::interface::{Effect, Measure, Note, TaskId, TaskResult};
use crate::operations::{Operation, ReplyTo, done, unlisted, unmapped, unread};
use crate::services::{Todo, Turn};
use ccpfs_extent_cache::Input;
use ccpfs_wire::{Message, Status};

impl DataService {
    /// The device has ended a task.
    pub(crate) fn ended(&mut self, task: TaskId, result: TaskResult, turn: &mut Turn<'_>) {
        if let Some(job) = self.jobs.remove(&task) {
            self.job_ended(job, finished(result), turn);
            return;
        }
        match self.operations.remove(&task.0) {
            Some(Operation::Read { reply, .. }) => self.read_ended(task, reply, result, turn),
            Some(Operation::Map { reply, .. }) => map_ended(reply, result, turn),
            Some(Operation::List { reply }) => list_ended(reply, result, turn),
            Some(Operation::Measure { glimpse, resource, pending_end }) => {
                // What came while the device measured, and is still on its way, counts as well: part of it may have been seen.
                let came_since = self.stripes.get(&resource).map_or(0, |stripe| stripe.pending_end().0);
                let result = measured(result, pending_end.max(came_since));
                turn.todo.push_back(Todo::Measured { glimpse, result });
            }
            Some(Operation::Sync { reply, errno, resources, .. }) => {
                let lost = self.lost.synced(reply.client, &resources, finished(result));
                turn.send(reply.client, reply.channel, done(reply, errno.or(lost)));
            }
            Some(Operation::Destroy { reply, .. }) => {
                turn.send(reply.client, reply.channel, done(reply, finished(result)));
            }
            Some(Operation::Write { .. } | Operation::Truncate { .. }) | None => {
                unreachable!("a task ends once")
            }
        }
    }

    fn job_ended(&mut self, job: StripeJob, errno: Option<i32>, turn: &mut Turn<'_>) {
        let StripeJob { resource, job, writer } = job;
        let input = match errno {
            None => Input::Persisted { job },
            Some(errno) => {
                turn.out.push(Effect::Note(Note::Failed { resource, errno }));
                self.lost.unwritten(resource, errno, turn.clients.others(writer));
                Input::Failed { job, errno }
            }
        };
        self.step_known(resource, input, turn);
        if self.stripes.get(&resource).is_some_and(|stripe| stripe.jobs() == 0) {
            turn.todo.push_back(Todo::Quiet(resource));
        }
    }

    /// A stripe has done its part of a write or truncate.
    pub(super) fn acknowledged(&mut self, id: u64, errno: Option<i32>, turn: &mut Turn<'_>) {
        match self.operations.get_mut(&id) {
            Some(Operation::Write { stripes, errno: first, .. }) => {
                *first = first.or(errno);
                *stripes -= 1;
                if *stripes == 0 {
                    self.finish(id, turn);
                }
            }
            Some(Operation::Truncate { reply }) => {
                let reply = *reply;
                self.operations.remove(&id);
                turn.send(reply.client, reply.channel, done(reply, errno));
            }
            Some(
                Operation::Read { .. }
                | Operation::Map { .. }
                | Operation::List { .. }
                | Operation::Sync { .. }
                | Operation::Destroy { .. }
                | Operation::Measure { .. },
            )
            | None => unreachable!("stripes acknowledge writes and truncates, once"),
        }
    }

    fn read_ended(&mut self, task: TaskId, reply: ReplyTo, result: TaskResult, turn: &mut Turn<'_>) {
        let ReplyTo { client: to, channel, request } = reply;
        match result {
            TaskResult::Read { bytes, stripe_bytes } => {
                self.counters.bytes_read += bytes;
                let message = Message::ReadReply { request, status: Status::Ok, stripe_bytes };
                if bytes == 0 {
                    turn.send(to, channel, message);
                } else {
                    turn.out.push(Effect::SendData { to, channel, message, task });
                }
            }
            TaskResult::Failed { errno } => turn.send(to, channel, unread(reply, errno)),
            TaskResult::Done
            | TaskResult::Measured(_)
            | TaskResult::Mapped { .. }
            | TaskResult::Listed { .. } => unreachable!("a read ends as a read"),
        }
    }
}

fn map_ended(reply: ReplyTo, result: TaskResult, turn: &mut Turn<'_>) {
    let ReplyTo { client, channel, request } = reply;
    let message = match result {
        TaskResult::Mapped { data, known_to } => {
            Message::MapReply { request, status: Status::Ok, data, known_to }
        }
        TaskResult::Failed { errno } => unmapped(reply, errno),
        TaskResult::Done | TaskResult::Measured(_) | TaskResult::Read { .. } | TaskResult::Listed { .. } => {
            unreachable!("a map ends as a map")
        }
    };
    turn.send(client, channel, message);
}

fn list_ended(reply: ReplyTo, result: TaskResult, turn: &mut Turn<'_>) {
    let ReplyTo { client, channel, request } = reply;
    let message = match result {
        TaskResult::Listed { stripes, more } => {
            Message::ListReply { request, status: Status::Ok, stripes, more }
        }
        TaskResult::Failed { errno } => unlisted(reply, errno),
        TaskResult::Done | TaskResult::Measured(_) | TaskResult::Read { .. } | TaskResult::Mapped { .. } => {
            unreachable!("a list ends as a list")
        }
    };
    turn.send(client, channel, message);
}

/// The error of a task that has no other result.
fn finished(result: TaskResult) -> Option<i32> {
    match result {
        TaskResult::Done => None,
        TaskResult::Failed { errno } => Some(errno),
        TaskResult::Read { .. }
        | TaskResult::Measured(_)
        | TaskResult::Mapped { .. }
        | TaskResult::Listed { .. } => unreachable!("writes, cuts, syncs and removals have no result"),
    }
}

/// What a measurement has found, counting writes that end at `pending_end`.
fn measured(result: TaskResult, pending_end: u64) -> Result<Measure, i32> {
    match result {
        TaskResult::Measured(measure) => {
            Ok(Measure { length_bytes: measure.length_bytes.max(pending_end), ..measure })
        }
        TaskResult::Failed { errno } => Err(errno),
        TaskResult::Done
        | TaskResult::Read { .. }
        | TaskResult::Mapped { .. }
        | TaskResult::Listed { .. } => {
            unreachable!("a measurement ends as a measurement")
        }
    }
}
