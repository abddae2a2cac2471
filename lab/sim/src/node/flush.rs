//! Flushing: what the machines want sent, in which order it leaves, and who waits for room.

use super::client::{Client, Note};
use super::session::size;
use crate::engine::{ClientEvent, Engine};
use crate::net::Bulk;
use ccpfs_cached_stripe::Input;
use ccpfs_types::Extent;
use ccpfs_wire::{Channel, Message};
use ccpfs_writeback::{JobId, Verdict};

/// The number that belongs to no thread.
const NOBODY: u32 = 0xffff;

impl Client {
    /// Puts a stripe into its session's queue.
    pub(crate) fn schedule(&mut self, engine: &mut Engine, file: usize, stripe: usize, urgent: bool) {
        let place = self.stripe(file, stripe);
        let (Some((serial, _)), target) = (place.session, place.target) else { return };
        let queued = if urgent { &mut place.queued_urgent } else { &mut place.queued };
        if std::mem::replace(queued, true) {
            return;
        }
        let Some(session) = self.sessions[target as usize].live(serial) else { return };
        let queue = if urgent { &mut session.urgent } else { &mut session.normal };
        queue.push_back((file, stripe));
        self.pump_soon(engine, target, serial);
    }

    pub(crate) fn pump_soon(&mut self, engine: &mut Engine, target: u32, serial: u64) {
        let Some(session) = self.sessions[target as usize].live(serial) else { return };
        if session.pump_due || (session.urgent.is_empty() && session.normal.is_empty()) {
            return;
        }
        session.pump_due = true;
        let at_ns = engine.now_ns() + engine.jitter(engine.config.client.wake_jitter_ns);
        engine.client_event(at_ns, self.node, self.life, ClientEvent::Flush { target, serial });
    }

    /// Sends as many flushes as may be without an answer.
    pub(crate) fn pump(&mut self, engine: &mut Engine, target: u32, serial: u64) {
        if let Some(session) = self.sessions[target as usize].live(serial) {
            session.pump_due = false;
        }
        loop {
            let Some(session) = self.sessions[target as usize].live(serial) else { return };
            if session.jobs.len() >= size(engine.config.client.flush_jobs_max) {
                return;
            }
            let next = match session.urgent.pop_front() {
                Some(place) => Some((place, true)),
                None => session.normal.pop_front().map(|place| (place, false)),
            };
            let Some(((file, stripe), urgent)) = next else { return };
            self.flush_one(engine, file, stripe, serial, urgent);
        }
    }

    /// Sends one job of a stripe, and queues the stripe again if it has more.
    fn flush_one(&mut self, engine: &mut Engine, file: usize, stripe: usize, serial: u64, urgent: bool) {
        let number = self.number(NOBODY);
        let flushing = self.room.flushing;
        let place = self.stripe(file, stripe);
        if place.session.is_none_or(|(bound, _)| bound != serial) {
            return; // the locks are those of another session by now, and so are the data
        }
        let target = place.target;
        if urgent {
            place.queued_urgent = false;
        } else {
            place.queued = false;
        }
        let before = self.sessions[target as usize].session.as_ref().map_or(0, |session| session.jobs.len());
        let config = engine.config.client;
        let take = Input::Take {
            job: JobId(number),
            bytes_max: config.flush_bytes_max,
            pieces_max: size(config.flush_pieces_max),
            urgent_only: urgent,
        };
        self.step(engine, file, stripe, take);
        let after = self.sessions[target as usize].session.as_ref().map_or(0, |session| session.jobs.len());
        let place = self.stripe(file, stripe);
        let more = place.machine.wants_flush() || (flushing && place.machine.cache().dirty_bytes() > 0);
        if more && after > before {
            self.schedule(engine, file, stripe, urgent);
        }
    }

    /// Sends a flush that a machine has made.
    pub(crate) fn send_job(
        &mut self,
        engine: &mut Engine,
        (file, stripe): (usize, usize),
        job: JobId,
        message: Message,
        extents: &[Extent],
    ) {
        let place = self.stripe(file, stripe);
        let (Some((serial, _)), target) = (place.session, place.target) else { return };
        let bulk = if engine.is_tagged() {
            self.sample(file, stripe, extents.iter().copied())
        } else {
            Bulk { bytes: extents.iter().map(|extent| extent.length()).sum(), runs: Vec::new() }
        };
        let live = engine.random.chance(engine.config.client.live_pages_per_mille);
        let Some(session) = self.sessions[target as usize].live(serial) else { return };
        session.jobs.insert(job.0, (file, stripe));
        if let Message::Write { pieces, .. } = &message {
            let id = session.id;
            engine.tell(|observer, at| {
                let resource = pieces.first().map(|piece| piece.resource);
                let pieces: Vec<_> = pieces.iter().map(|piece| (piece.extent, piece.sn)).collect();
                let resource = resource.expect("a flush has pieces");
                observer.flush_sent(at, target, id, resource, job.0, &pieces);
            });
        }
        engine.send(session.connection(Channel::Bulk), true, message, Some(Box::new(bulk)), live);
    }

    // ------------------------------------------------------------------ room

    pub(crate) fn dirty_changed(
        &mut self,
        engine: &mut Engine,
        (file, stripe): (usize, usize),
        before: u64,
        after: u64,
    ) {
        self.room.dirty_bytes = self.room.dirty_bytes + after - before;
        let verdict = self.room.budget.verdict(self.room.dirty_bytes);
        if after < before {
            self.wake_writers();
            if verdict == Verdict::Calm {
                self.room.flushing = false;
            }
        } else if verdict != Verdict::Calm {
            if std::mem::replace(&mut self.room.flushing, true) {
                self.schedule(engine, file, stripe, false);
            } else {
                self.flush_everything(engine);
            }
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.room.budget.verdict(self.room.dirty_bytes) == Verdict::Wait
    }

    pub(crate) fn wake_writers(&mut self) {
        for thread in std::mem::take(&mut self.room.waiting) {
            self.tell(thread, Note::Room);
        }
    }

    /// Starts flushing all dirty stripes, waiting for none.
    pub(crate) fn flush_everything(&mut self, engine: &mut Engine) {
        self.each_dirty(|client, file, stripe| client.schedule(engine, file, stripe, false));
    }

    /// As [`Client::flush_everything`], and what could not be stored before is tried again.
    pub(crate) fn retry_everything(&mut self, engine: &mut Engine) {
        self.each_dirty(|client, file, stripe| client.step(engine, file, stripe, Input::Retry));
        self.flush_everything(engine);
    }

    fn each_dirty(&mut self, mut act: impl FnMut(&mut Client, usize, usize)) {
        for file in 0..self.files.len() {
            for stripe in 0..self.files[file].stripes.len() {
                let place = self.files[file].stripes[stripe].as_ref();
                if place.is_some_and(|place| place.machine.cache().dirty_bytes() > 0) {
                    act(self, file, stripe);
                }
            }
        }
    }

    /// Memory is needed: clean bytes are forgotten.
    pub(crate) fn reclaim(&mut self, engine: &mut Engine) {
        for file in 0..self.files.len() {
            for stripe in 0..self.files[file].stripes.len() {
                if self.files[file].stripes[stripe].is_some() {
                    self.step(engine, file, stripe, Input::Reclaim { extent: Extent::WHOLE });
                }
            }
        }
    }

    /// Unused locks are given back.
    pub(crate) fn shrink(&mut self, engine: &mut Engine) {
        for file in 0..self.files.len() {
            for stripe in 0..self.files[file].stripes.len() {
                if self.files[file].stripes[stripe].is_some() {
                    self.step(engine, file, stripe, Input::Shrink { count: usize::MAX });
                }
            }
        }
    }
}
