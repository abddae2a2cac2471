//! Reading: look what is missing, fetch it, fill holes with zeros, copy out.

use super::client::{Client, EIO, Note};
use super::operation::{Op, Phase, Progress};
use super::stripe::GARBAGE;
use crate::engine::Engine;
use crate::history::{OpId, Outcome};
use crate::net::{Bulk, Tag};
use ccpfs_cached_stripe::Input;
use ccpfs_types::limits::READ_BYTES_MAX;
use ccpfs_types::{Extent, RequestId};
use ccpfs_wire::{Channel, Message, Status};

/// A request for data under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetch {
    pub(crate) request: u64,
    pub(crate) stripe: usize,
    pub(crate) extent: Extent,
}

impl Client {
    /// What a reader may fetch ahead of `extent`, in file offsets: writers of that must wait as well.
    pub(super) fn reach(&self, engine: &Engine, op: &Op, extent: Extent) -> Extent {
        if !op.sequential {
            return extent;
        }
        let layout = self.files[op.file].layout;
        let slack = layout.stripe_bytes() * u64::from(layout.stripe_count());
        let end = extent.end().saturating_add(engine.config.client.read_ahead_bytes).saturating_add(slack);
        Extent::new(extent.start(), end).unwrap_or(extent)
    }

    /// Asks what of the next stripe must be fetched.
    pub(super) fn look(&mut self, engine: &mut Engine, op: &mut Op) -> Progress {
        let Some(part) = op.looked() else {
            return op.enter(Phase::CopyOut);
        };
        let ahead = if op.sequential { engine.config.client.read_ahead_bytes } else { 0 };
        let ahead_bytes = ahead / u64::from(self.files[op.file].layout.stripe_count());
        self.stripe(op.file, part.stripe).pins.push(part.extent);
        op.pins.push((part.stripe, part.extent));
        let input = Input::Look { operation: part.operation, extent: part.extent, ahead_bytes };
        self.step(engine, op.file, part.stripe, input);
        op.enter(Phase::Looked)
    }

    fn take_missing(&mut self, thread: u32, op: &Op) -> Option<Result<Vec<Extent>, i32>> {
        let of = op.looked().expect("it looks for something").operation;
        if let Some(errno) = self.take_void(thread, of) {
            return Some(Err(errno));
        }
        self.take_note(thread, |note| {
            if let Note::Missing { operation, extents } = note
                && *operation == of
            {
                return Some(Ok(std::mem::take(extents)));
            }
            None
        })
    }

    pub(super) fn looked(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let extents = match self.take_missing(thread, op) {
            None => return Progress::Wait,
            Some(Err(errno)) => return Progress::Return(Err(errno)),
            Some(Ok(extents)) => extents,
        };
        let part = op.looked().expect("it looks for something");
        let place = self.stripe(op.file, part.stripe);
        let (target, resource, bound) = (place.target, place.machine.resource(), place.session);
        op.complete = true;
        op.short.clear();
        op.fetches.clear();
        for extent in extents.into_iter().flat_map(split) {
            let request = self.number(thread);
            let slot = &mut self.sessions[target as usize];
            // Only over the session that the lock is from: under another one nobody is kept from writing.
            let Some(session) = bound.and_then(|(serial, _)| slot.live(serial)) else {
                return Progress::Return(Err(EIO));
            };
            session.requests.push(request);
            let message = Message::Read { request: RequestId(request), resource, extent };
            engine.send(session.connection(Channel::Control), true, message, None, false);
            op.pending.push(request);
            op.fetches.push(Fetch { request, stripe: part.stripe, extent });
            if !part.extent.contains(extent) {
                self.stripe(op.file, part.stripe).pins.push(extent);
                op.pins.push((part.stripe, extent));
            }
        }
        op.enter(Phase::Fetch)
    }

    /// Bytes have arrived: they go to the pages at once, whoever waits for them.
    pub(super) fn receive_bulk(&mut self, request: RequestId, bulk: &Bulk) {
        for thread in 0..self.threads.len() {
            let Some(op) = self.threads[thread].op.as_ref() else { continue };
            let Some(fetch) = op.fetches.iter().find(|fetch| fetch.request == request.0).copied() else {
                continue;
            };
            let file = op.file;
            let place = self.stripe(file, fetch.stripe);
            for (start, length, tag) in bulk.slice(0, bulk.bytes) {
                let part = Extent::with_length(fetch.extent.start() + start, length);
                place.memory.insert(part.expect("runs have bytes"), tag);
            }
            return;
        }
    }

    pub(super) fn fetch(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        while !op.pending.is_empty() {
            let Some((request, answer)) = self.take_reply(thread, &mut op.pending) else {
                return Progress::Wait;
            };
            let at = op.fetches.iter().position(|fetch| fetch.request == request);
            let fetch = op.fetches.swap_remove(at.expect("its number was pending"));
            match answer {
                Err(errno) => op.errno = Some(errno),
                Ok((Message::ReadReply { status: Status::Errno(errno), .. }, _)) => op.errno = Some(errno),
                Ok((_, bytes)) => self.fetched(engine, thread, op, &fetch, bytes),
            }
        }
        if let Some(errno) = op.errno {
            return Progress::Return(Err(errno));
        }
        if op.complete {
            op.at += 1;
            return op.enter(Phase::Look);
        }
        // Bytes beyond the stripe's end: zeros up to the file's size, which other stripes and clients decide.
        if op.size.is_some() {
            return op.enter(Phase::Zero);
        }
        op.pending.clear();
        op.enter(Phase::Size)
    }

    /// Marks fetched bytes valid.
    fn fetched(&mut self, engine: &mut Engine, thread: u32, op: &mut Op, fetch: &Fetch, bytes: u64) {
        let part = op.looked().expect("it looks for something");
        if let Some(extent) = Extent::with_length(fetch.extent.start(), bytes.min(fetch.extent.length())) {
            let input = Input::Fetched { operation: part.operation, extent };
            self.step(engine, op.file, part.stripe, input);
            if let Some(errno) = self.take_void(thread, part.operation) {
                op.errno = Some(errno);
            }
        }
        let left = Extent::new(fetch.extent.start() + bytes.min(fetch.extent.length()), fetch.extent.end());
        if let Some(left) = left.filter(|_| part.extent.contains(fetch.extent)) {
            op.complete = false;
            op.short.push(left);
        }
    }

    /// Fills with zeros what the servers left out below the end of the file: no more than that, for what was fetched may have
    /// been forgotten since, and its bytes are still in the pages.
    pub(super) fn zero(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let part = op.looked().expect("it looks for something");
        let size = op.size.expect("the size was asked for");
        let length = self.files[op.file].layout.stripe_length(super::stripe::to_u32(part.stripe), size);
        for short in std::mem::take(&mut op.short) {
            let Some(extent) = Extent::new(short.start(), short.end().min(length)) else { continue };
            if engine.is_tagged() {
                self.stripe(op.file, part.stripe).memory.insert(extent, 0);
            }
            let input = Input::Fetched { operation: part.operation, extent };
            self.step(engine, op.file, part.stripe, input);
        }
        if let Some(errno) = self.take_void(thread, part.operation) {
            return Progress::Return(Err(errno));
        }
        op.at += 1;
        op.enter(Phase::Look)
    }

    /// Copies out, lets time pass, and looks whether all locks are still there.
    pub(super) fn copy_out(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let extent = op.hull();
        let end = op.size.map_or(extent.end(), |size| size.min(extent.end()));
        let found = Extent::new(extent.start(), end);
        if op.pending.is_empty() {
            op.pending.push(0);
            if let Some(found) = found.filter(|_| engine.is_tagged()) {
                let pieces: Vec<Extent> = op.extents.iter().filter_map(|e| e.intersection(found)).collect();
                op.runs = pieces.into_iter().flat_map(|piece| self.copied(op, piece)).collect();
            }
            let bytes = op.extents.iter().filter_map(|e| e.intersection(found?)).map(Extent::length).sum();
            if self.spend_copying(engine, thread, bytes) {
                return Progress::Wait;
            }
        } else if !self.take_timer(thread) {
            return Progress::Wait;
        }
        op.pending.clear();
        if op.parts.iter().any(|part| !self.holds(op.file, part.stripe, part.operation)) {
            return Progress::Return(Err(EIO));
        }
        let garbage = op.runs.iter().find(|(_, tag)| *tag == GARBAGE);
        if let Some((extent, _)) = garbage {
            let name = op.id.map(|id| id.to_string()).unwrap_or_default();
            engine.complain(format!("{name} reads {extent} from a page that holds nothing"));
        }
        let bytes = op.runs.iter().map(|(extent, tag)| (*extent, of_tag(*tag))).collect();
        Progress::Return(Ok(Outcome::Read { length: found.map_or(0, Extent::length), bytes }))
    }

    /// What the pages hold of a part of the file, in file order.
    fn copied(&self, op: &Op, extent: Extent) -> Vec<(Extent, Tag)> {
        let mut runs: Vec<(Extent, Tag)> = Vec::new();
        for piece in self.files[op.file].layout.pieces(extent) {
            let bulk = self.sample(op.file, piece.stripe as usize, std::iter::once(piece.extent));
            for (start, length, tag) in bulk.slice(0, bulk.bytes) {
                let at = extent.start() + piece.offset + start;
                let run = Extent::with_length(at, length).expect("runs have bytes");
                match runs.last_mut() {
                    Some((last, same)) if *same == tag && last.end() == run.start() => *last = last.hull(run),
                    Some(_) | None => runs.push((run, tag)),
                }
            }
        }
        runs
    }
}

/// Whose bytes a tag means.
fn of_tag(tag: Tag) -> Option<OpId> {
    if tag == GARBAGE { None } else { tag.checked_sub(1).map(OpId) }
}

/// Parts that one request can carry.
fn split(extent: Extent) -> impl Iterator<Item = Extent> {
    let count = extent.length().div_ceil(READ_BYTES_MAX);
    (0..count).map(move |index| {
        let start = extent.start() + index * READ_BYTES_MAX;
        Extent::new(start, (start + READ_BYTES_MAX).min(extent.end())).expect("within the extent")
    })
}
