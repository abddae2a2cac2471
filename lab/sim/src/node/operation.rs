//! One call of an application thread, as explicit steps: what it waits for, and what it does next.

use super::client::{Client, EIO, Note};
use super::read::Fetch;
use super::stripe::to_u32;
use crate::engine::{ClientEvent, Engine, Returned};
use crate::history::{Call, Comb, OpId, Outcome};
use crate::net::{Tag, transfer_ns};
use crate::taking::{Protocol, Taking};
use crate::workload::{Thread, Work};
use ccpfs_region::Region;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId, Sn};
use ccpfs_writeback::BarrierId;

/// Where a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has been called.
    Begin,
    /// It waits until there is less dirty data; so many flushes had failed before.
    Room { failures: u64 },
    /// It waits for its turn among the threads of this process.
    Turn,
    /// It takes the lock of the next stripe: needs a session.
    Lock,
    /// It waits for that lock.
    Answer,
    /// All locks are held.
    Locked,
    /// Bytes are copied into the pages.
    Copy,
    /// The stripes are marked dirty, one after the other.
    Commit,
    /// It asks what of the next stripe must be fetched.
    Look,
    /// It waits for that.
    Looked,
    /// It waits for what it fetches.
    Fetch,
    /// It fills what lies beyond the end of a stripe.
    Zero,
    /// Bytes are copied out of the pages.
    CopyOut,
    /// It asks the size of the next stripe.
    Size,
    /// It waits for what this client has of the stripe.
    SizeMeasured,
    /// It needs a session to ask.
    SizeSend,
    /// It waits for the servers.
    SizeReplies,
    /// It knows the size.
    Sized,
    /// It cuts the next stripe.
    Cut,
    /// It waits for that.
    CutReply,
    /// It flushes.
    Flush,
    /// It waits until everything has been answered.
    Flushed,
    /// It gathers sessions to sync over.
    SyncSession,
    /// It waits for the servers.
    SyncReplies,
}

/// An answer on the control connection with the number of bytes that came, or why there is none.
pub(crate) type Reply = Result<(ccpfs_wire::Message, u64), i32>;

/// What a call does next.
pub(crate) enum Progress {
    Again,
    Wait,
    Return(Result<Outcome, i32>),
}

/// A lock in use on one stripe.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) stripe: usize,
    /// The bounds of what is locked, in offsets of the stripe.
    pub(crate) extent: Extent,
    pub(crate) region: Region,
    /// Which it is of the locks on this stripe.
    pub(crate) place: ccpfs_types::Part,
    pub(crate) state: Standing,
    pub(crate) operation: OperationId,
    pub(crate) sn: Sn,
    /// Number of the session in history.
    pub(crate) session: u32,
}

/// How a lock of a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is not asked for.
    Open,
    /// It is asked for.
    Asked,
    /// It is in use.
    Held,
}

impl Part {
    /// The bytes of the stripe for which history has this lock.
    pub(crate) fn share(&self) -> Extent {
        if self.place.of_several() { self.extent } else { Extent::WHOLE }
    }
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) work: Work,
    pub(crate) id: Option<OpId>,
    pub(crate) file: usize,
    pub(crate) phase: Phase,
    /// The bytes of the file that it writes or reads.
    pub(crate) extents: Vec<Extent>,
    pub(crate) turn: Option<u64>,
    pub(crate) parts: Vec<Part>,
    /// The bytes of a noncontiguous call.
    pub(crate) region: Option<Region>,
    /// Where taking the locks stands.
    pub(crate) taking: Taking,
    /// The parts that were asked for and have not all been answered, and the first of them that is not to be had.
    pub(crate) asked_parts: (usize, usize),
    pub(crate) missing: usize,
    /// How many are asked for at once.
    pub(crate) at_once: usize,
    /// The bytes of the call that each part holds, in offsets of the stripe.
    pub(crate) shares: Vec<Vec<Extent>>,
    /// What a read looks for, one after the other: which part, and which bytes of its stripe.
    pub(crate) looks: Vec<(usize, Extent)>,
    /// Which part, look, stripe or target is next.
    pub(crate) at: usize,
    pub(crate) errno: Option<i32>,
    /// The file's size, once it is known.
    pub(crate) size: Option<u64>,
    pub(crate) sizing: super::size::Sizing,
    pub(crate) measure: OperationId,
    /// Glimpses that were sent, and of which stripe.
    pub(crate) asked: Vec<(u64, usize)>,
    pub(crate) pending: Vec<u64>,
    pub(crate) fetches: Vec<Fetch>,
    /// Nothing was left out by a server because its stripe ended.
    pub(crate) complete: bool,
    /// What servers left out of the stripe that is read, in offsets of the stripe.
    pub(crate) short: Vec<Extent>,
    pub(crate) pins: Vec<(usize, Extent)>,
    pub(crate) errors_before: u64,
    pub(crate) barriers: Vec<BarrierId>,
    /// Targets that are synced, with the number of the request and of the sync.
    pub(crate) syncs: Vec<(u32, u64, OperationId)>,
    pub(crate) runs: Vec<(Extent, Tag)>,
    pub(crate) sequential: bool,
}

impl Op {
    fn new(work: Work, id: Option<OpId>) -> Op {
        let file = match &work {
            Work::Call(call) => call.file(),
            Work::WriteRegion { file, .. } | Work::Flush { file } => *file,
        };
        Op {
            work,
            id,
            file: file as usize,
            phase: Phase::Begin,
            extents: Vec::new(),
            turn: None,
            parts: Vec::new(),
            region: None,
            taking: Taking::new(Protocol::TwoPhase, 0),
            asked_parts: (0, 0),
            missing: 0,
            at_once: 1,
            shares: Vec::new(),
            looks: Vec::new(),
            at: 0,
            errno: None,
            size: None,
            sizing: super::size::Sizing::default(),
            measure: OperationId(0),
            asked: Vec::new(),
            pending: Vec::new(),
            fetches: Vec::new(),
            complete: true,
            short: Vec::new(),
            pins: Vec::new(),
            errors_before: 0,
            barriers: Vec::new(),
            syncs: Vec::new(),
            runs: Vec::new(),
            sequential: false,
        }
    }

    /// The tag of what it writes.
    pub(crate) fn tag(&self) -> Tag {
        self.id.map_or(1, |id| id.0 + 1)
    }

    /// The first and the last byte of what it reads or writes.
    pub(crate) fn hull(&self) -> Extent {
        let first = self.extents.first().expect("whoever asks has bytes");
        let last = self.extents.last().expect("whoever asks has bytes");
        first.hull(*last)
    }

    /// What a read looks for now: a part, with the bytes of it in place of all that is locked.
    pub(crate) fn looked(&self) -> Option<Part> {
        let (part, extent) = self.looks.get(self.at)?;
        Some(Part { extent: *extent, ..self.parts[*part].clone() })
    }

    pub(crate) fn enter(&mut self, phase: Phase) -> Progress {
        self.phase = phase;
        Progress::Again
    }
}

impl Client {
    /// A thread calls.
    pub(crate) fn begin_call(&mut self, engine: &mut Engine, thread: u32, work: Work) {
        let id = match &work {
            Work::Call(call) => engine.invoked(self.process, *call),
            Work::WriteRegion { .. } | Work::Flush { .. } => None,
        };
        engine.note(self.who(), || match id {
            Some(id) => format!("thread {thread} calls {id}: {}", describe(&work)),
            None => format!("thread {thread} calls {}", describe(&work)),
        });
        let state = &mut self.threads[thread as usize];
        state.call = id;
        state.inbox.clear();
        let mut op = Box::new(Op::new(work, id));
        op.sequential = engine.config.client.read_ahead_bytes > 0;
        state.op = Some(op);
    }

    /// Lets a thread go on as far as it can.
    pub(crate) fn advance(&mut self, engine: &mut Engine, thread: u32) {
        let Some(mut op) = self.threads[thread as usize].op.take() else { return };
        let result = loop {
            match self.go_on(engine, thread, &mut op) {
                Progress::Again => {}
                Progress::Wait => {
                    self.threads[thread as usize].op = Some(op);
                    return;
                }
                Progress::Return(result) => break result,
            }
        };
        self.give_back(engine, &mut op);
        self.finish_call(engine, thread, &op, result);
    }

    fn finish_call(&mut self, engine: &mut Engine, thread: u32, op: &Op, result: Result<Outcome, i32>) {
        self.threads[thread as usize].call = None;
        engine.note(self.who(), || {
            let name = op.id.map_or_else(|| describe(&op.work), |id| id.to_string());
            match &result {
                Ok(outcome) => format!("{name} returns {outcome:?}"),
                Err(errno) => format!("{name} fails: errno {errno}"),
            }
        });
        let bytes = match &result {
            Ok(Outcome::Read { length, .. } | Outcome::Size { length }) => Ok(*length),
            Ok(Outcome::Written | Outcome::Appended { .. }) => {
                Ok(op.extents.iter().map(|extent| extent.length()).sum())
            }
            Ok(Outcome::Truncated | Outcome::Synced) => Ok(0),
            Err(errno) => Err(*errno),
        };
        let returned = engine.moment();
        if let Some(operation) = engine.operation(op.id) {
            operation.returned = Some(returned);
            operation.outcome = Some(result);
        }
        let of = Thread { client: self.node, thread };
        engine.returned.push(Returned { of, life: self.life, work: op.work.clone(), result: bytes });
    }

    fn go_on(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        match op.phase {
            Phase::Begin => self.begin(engine, thread, op),
            Phase::Room { failures } => self.wait_for_room(engine, thread, op, failures),
            Phase::Turn => match self.take_note(thread, |note| matches!(note, Note::Turn).then_some(())) {
                Some(()) => op.enter(Phase::Lock),
                None => Progress::Wait,
            },
            Phase::Lock => self.lock_next(engine, thread, op),
            Phase::Answer => self.lock_answer(engine, thread, op),
            Phase::Locked => self.locked(engine, thread, op),
            Phase::Copy => self.copy(engine, thread, op),
            Phase::Commit => self.commit(engine, thread, op),
            Phase::Look => self.look(engine, op),
            Phase::Looked => self.looked(engine, thread, op),
            Phase::Fetch => self.fetch(engine, thread, op),
            Phase::Zero => self.zero(engine, thread, op),
            Phase::CopyOut => self.copy_out(engine, thread, op),
            Phase::Size => self.size_measure(engine, op, thread),
            Phase::SizeMeasured => self.size_measured(thread, op),
            Phase::SizeSend => self.size_send(engine, thread, op),
            Phase::SizeReplies => self.size_replies(thread, op),
            Phase::Sized => self.sized(engine, op),
            Phase::Cut => self.cut(engine, thread, op),
            Phase::CutReply => self.cut_reply(engine, thread, op),
            Phase::Flush => self.flush(engine, thread, op),
            Phase::Flushed => self.flushed(engine, thread, op),
            Phase::SyncSession => self.sync_session(engine, thread, op),
            Phase::SyncReplies => self.sync_replies(engine, thread, op),
        }
    }

    fn begin(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        match op.work.clone() {
            Work::Call(Call::Write { extent, comb, .. }) => {
                op.extents.extend(comb.pieces(extent));
                op.region = super::locks::comb_region(comb, &op.extents);
                self.begin_write(engine, thread, op)
            }
            Work::WriteRegion { region, .. } => {
                op.extents.extend(region.pieces());
                op.region = Some(Region::clone(&region));
                self.begin_write(engine, thread, op)
            }
            Work::Call(Call::Append { .. }) => self.begin_write(engine, thread, op),
            Work::Call(Call::Read { extent, comb, .. }) => {
                let extent = Extent::new(extent.start(), extent.end().min(FILE_BYTES_MAX));
                let Some(extent) = extent else {
                    return Progress::Return(Ok(Outcome::Read { length: 0, bytes: Vec::new() }));
                };
                op.sequential &= comb == Comb::NONE;
                op.extents.extend(comb.pieces(extent));
                op.region = super::locks::comb_region(comb, &op.extents);
                let reach = extent.hull(self.reach(engine, op, extent));
                self.take_turn(op, thread, reach, false)
            }
            Work::Call(Call::Truncate { length, .. }) => {
                self.take_turn(op, thread, Extent::to_eof(length), true)
            }
            Work::Call(Call::Size { .. }) => op.enter(Phase::Size),
            Work::Call(Call::Fsync { .. }) | Work::Flush { .. } => op.enter(Phase::Flush),
        }
    }

    fn begin_write(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        if let Err(errno) = self.report_errors(thread, op.file) {
            return Progress::Return(Err(errno));
        }
        if self.is_full() {
            let failures = self.room.failures.0;
            op.phase = Phase::Room { failures };
            self.retry_everything(engine);
        } else {
            return self.after_room(op, thread);
        }
        Progress::Again
    }

    fn after_room(&mut self, op: &mut Op, thread: u32) -> Progress {
        let extent = if op.extents.is_empty() { Extent::WHOLE } else { op.hull() };
        self.take_turn(op, thread, extent, true)
    }

    fn wait_for_room(&mut self, engine: &mut Engine, thread: u32, op: &mut Op, failures: u64) -> Progress {
        while self.take_note(thread, |note| matches!(note, Note::Room).then_some(())).is_some() {}
        if !self.is_full() {
            return self.after_room(op, thread);
        }
        if self.room.failures.0 != failures {
            return Progress::Return(Err(self.room.failures.1));
        }
        self.room.flushing = true;
        self.flush_everything(engine);
        self.room.waiting.push(thread);
        Progress::Wait
    }

    fn take_turn(&mut self, op: &mut Op, thread: u32, extent: Extent, exclusive: bool) -> Progress {
        let (ticket, granted) = self.files[op.file].ranges.lock(thread, extent, exclusive);
        op.turn = Some(ticket);
        if granted {
            return op.enter(Phase::Lock);
        }
        op.phase = Phase::Turn;
        Progress::Wait
    }

    /// The error of a flush that this thread's handle has not reported yet.
    pub(crate) fn report_errors(&mut self, thread: u32, file: usize) -> Result<(), i32> {
        let (count, errno) = self.files[file].errors;
        let seen = &mut self.threads[thread as usize].seen_errors[file];
        if std::mem::replace(seen, count) == count { Ok(()) } else { Err(errno) }
    }

    /// Ends the use of all locks, pins and turns of a call.
    fn give_back(&mut self, engine: &mut Engine, op: &mut Op) {
        for (stripe, extent) in std::mem::take(&mut op.pins) {
            self.stripe(op.file, stripe).unpin(extent);
        }
        let parts = std::mem::take(&mut op.parts);
        for part in parts.iter().filter(|part| part.state == Standing::Held) {
            self.finish_part(engine, op.file, part);
        }
        if let Some(ticket) = op.turn.take() {
            for thread in self.files[op.file].ranges.unlock(ticket) {
                self.tell(thread, Note::Turn);
            }
        }
    }

    /// Ends the use of one lock, if it still is one.
    pub(crate) fn finish_part(&mut self, engine: &mut Engine, file: usize, part: &Part) {
        let operation = part.operation;
        if self.holds(file, part.stripe, operation) {
            if let Some((target, id)) = self.bound(file, part.stripe) {
                let resource = self.resource(file, part.stripe);
                engine.tell(|observer, at| observer.use_ended(at, target, id, resource, operation));
            }
            self.step(engine, file, part.stripe, ccpfs_cached_stripe::Input::Finish { operation });
        }
    }

    /// Copying so many bytes takes time: tells the thread when it is done. False if it takes none.
    pub(crate) fn spend_copying(&mut self, engine: &mut Engine, thread: u32, bytes: u64) -> bool {
        let ns = transfer_ns(bytes, engine.config.client.copy_bytes_per_s)
            + engine.jitter(engine.config.client.wake_jitter_ns);
        if ns > 0 {
            let at_ns = engine.now_ns() + ns;
            engine.client_event(at_ns, self.node, self.life, ClientEvent::Timer { thread });
        }
        ns > 0
    }

    pub(crate) fn take_timer(&mut self, thread: u32) -> bool {
        self.take_note(thread, |note| matches!(note, Note::Timer).then_some(())).is_some()
    }

    /// The end of a wait for a session: the error if there is none to be had.
    pub(crate) fn take_session(&mut self, thread: u32, of: u32) -> Option<Option<i32>> {
        self.take_note(thread, |note| {
            if let Note::Session { target, errno } = note
                && *target == of
            {
                return Some(*errno);
            }
            None
        })
    }

    /// The answer to one of the requests that `op` waits for, with the number of bytes that came.
    pub(crate) fn take_reply(&mut self, thread: u32, pending: &mut Vec<u64>) -> Option<(u64, Reply)> {
        self.take_note(thread, |note| {
            let (number, answer) = match note {
                Note::Reply { request, message, bytes } => (request.0, Ok((message.clone(), *bytes))),
                Note::NoReply { request } => (request.0, Err(EIO)),
                Note::Answer { .. }
                | Note::Void { .. }
                | Note::Missing { .. }
                | Note::Measured { .. }
                | Note::BarrierDone { .. }
                | Note::Ask { .. }
                | Note::Session { .. }
                | Note::Turn
                | Note::Room
                | Note::Timer => return None,
            };
            let at = pending.iter().position(|open| *open == number)?;
            pending.swap_remove(at);
            Some((number, answer))
        })
    }

    /// Describes where the threads stand, for a complaint.
    pub(crate) fn standing(&self) -> String {
        let ops = self.threads.iter().zip(0_u32..).filter_map(|(state, thread)| {
            let op = state.op.as_ref()?;
            let name = op.id.map_or_else(|| describe(&op.work), |id| id.to_string());
            Some(format!("c{} thread {thread}: {name} in {:?} at {}", self.node, op.phase, to_u32(op.at)))
        });
        ops.collect::<Vec<_>>().join("; ")
    }
}

/// A call in a few words.
pub(crate) fn describe(work: &Work) -> String {
    match work {
        Work::Call(call) => call.to_string(),
        Work::WriteRegion { file, region } => format!("write f{file} {region}"),
        Work::Flush { file } => format!("flush f{file}"),
    }
}
