//! The calls of a client's threads: the same steps as those of the product's shell, in the same order.

use crate::client::{Number, Turn, lock, next_job, operation};
use crate::config::{BYTES, Op, Part, Protocol};
use crate::ghost::Phase;
use crate::mark::Mark;
use crate::rule::{Found, Rule, broken};
use crate::state::{Data, Standing, Step, Tag, range};
use ccpfs_cached_stripe::Input;
use ccpfs_types::{Extent, OperationId, RequestId};
use ccpfs_wire::{Channel, Message};
use ccpfs_writeback::BarrierId;

pub(crate) fn extent(start: u8, end: u8) -> Extent {
    Extent::new(start.into(), end.into()).expect("scripts touch bytes")
}

impl Turn<'_> {
    /// The thread calls its next operation.
    pub(crate) fn start(&mut self, thread: usize) -> Found {
        let index = self.node().threads[thread].next;
        let tag = self.world.tag(self.node, thread, index);
        self.ghost().invoked(tag);
        match self.world.op(tag).op {
            Op::Sync => self.begin_sync(tag),
            Op::Size { stripe } => self.measure(tag, stripe, Vec::new()),
            op @ (Op::Write(_) | Op::Read(_) | Op::Append { .. } | Op::Truncate { .. }) => {
                let at_once = self.world.config.options.protocol != Protocol::TwoPhase;
                self.take_locks(tag, vec![Standing::Open; op.parts().len()], 0, at_once)
            }
        }
    }

    fn thread_of(&self, tag: Tag) -> usize {
        self.world.op(tag).thread
    }

    pub(crate) fn set(&mut self, tag: Tag, step: Step) {
        let thread = self.thread_of(tag);
        self.node().threads[thread].step = step;
    }

    /// Whether the operation is the one that its thread is at.
    pub(crate) fn is_present(&self, tag: Tag) -> bool {
        let info = self.world.op(tag);
        let thread = &self.state.nodes[self.node].threads[info.thread];
        info.node == self.node
            && thread.step != Step::Idle
            && self.world.tag(self.node, info.thread, thread.next) == tag
    }

    pub(crate) fn step_of(&self, tag: Tag) -> &Step {
        &self.state.nodes[self.node].threads[self.thread_of(tag)].step
    }

    pub(crate) fn part(&self, tag: Tag, part: u8) -> Option<Part> {
        self.world.op(tag).op.parts().get(usize::from(part)).copied()
    }

    pub(crate) fn all_locked(&mut self, tag: Tag) -> Found {
        match self.world.op(tag).op {
            Op::Write(parts) => {
                for part in parts {
                    self.fill(part.stripe, extent(part.start, part.end), tag);
                }
                self.set(tag, Step::Copied { part: 0, offset: 0 });
                Ok(())
            }
            Op::Read(_) => self.look(tag, 0),
            Op::Append { stripe, .. } => self.measure(tag, stripe, Vec::new()),
            Op::Truncate { stripe, length } => {
                self.set(tag, Step::Cutting);
                let request = RequestId(Number { tag, kind: Number::CUT, of: stripe, sub: 0 }.get());
                let operation = lock(tag, stripe, 0);
                self.step(stripe, Input::Truncate { operation, length: length.into(), request })
            }
            Op::Size { .. } | Op::Sync => Ok(()),
        }
    }

    fn fill(&mut self, stripe: u8, extent: Extent, tag: Tag) {
        self.cached(stripe).pages[range(extent)].fill(tag);
    }

    // Reading.

    fn look(&mut self, tag: Tag, part: u8) -> Found {
        let Some(Part { stripe, start, end }) = self.part(tag, part) else {
            self.set(tag, Step::Filled { size: None });
            return Ok(());
        };
        self.set(tag, Step::Looking { part });
        let operation = lock(tag, stripe, part);
        self.step(stripe, Input::Look { operation, extent: extent(start, end), ahead_bytes: 0 })?;
        if self.is_present(tag) && *self.step_of(tag) == (Step::Looking { part }) {
            self.world.mark(Mark::LookWaits);
        }
        Ok(())
    }

    /// These bytes must be fetched.
    pub(crate) fn missing(&mut self, operation: OperationId, extents: Vec<Extent>) -> Found {
        let Some(Number { tag, of: stripe, .. }) = Number::of(operation.0).filter(|n| self.is_present(n.tag))
        else {
            return Ok(());
        };
        let Step::Looking { part } = *self.step_of(tag) else { return Ok(()) };
        if extents.is_empty() {
            return self.look(tag, part + 1);
        }
        let left = u8::try_from(extents.len()).expect("a few");
        self.set(tag, Step::Fetching { part, extents: extents.clone(), left, short: Vec::new() });
        for (sub, extent) in (0..).zip(extents) {
            let request = RequestId(Number { tag, kind: Number::READ, of: stripe, sub }.get());
            let message = Message::Read { request, resource: self.world.resource(stripe), extent };
            self.send(stripe, Channel::Control, message, Data::Nothing);
        }
        Ok(())
    }

    /// Data have come.
    pub(crate) fn fetched(&mut self, number: Option<Number>, data: Data) -> Found {
        let Some(Number { tag, of: stripe, sub, .. }) = number.filter(|number| self.is_present(number.tag))
        else {
            return Ok(());
        };
        let Step::Fetching { part, extents, left, short } = self.step_of(tag).clone() else { return Ok(()) };
        let extent = extents[usize::from(sub)];
        let bytes = match data {
            Data::Bytes(bytes) => bytes,
            Data::Nothing | Data::Late => Vec::new(),
        };
        let got = Extent::with_length(extent.start(), bytes.len() as u64);
        let mut short = short;
        short.extend(Extent::new(extent.start() + bytes.len() as u64, extent.end()));
        self.set(tag, Step::Fetching { part, extents, left: left - 1, short: short.clone() });
        if let Some(got) = got {
            self.cached(stripe).pages[range(got)].copy_from_slice(&bytes);
            self.step(stripe, Input::Fetched { operation: lock(tag, stripe, part), extent: got })?;
        }
        if !self.is_present(tag) || left > 1 {
            return Ok(());
        }
        if short.is_empty() {
            return self.look(tag, part + 1);
        }
        assert_eq!(self.world.op(tag).op.parts().len(), 1, "stripes of calls over several are long enough");
        self.measure(tag, stripe, short)
    }

    /// Makes zeros of what servers left out below the size, and of nothing else.
    fn zero(&mut self, tag: Tag, stripe: u8, short: &[Extent], size: u64) -> Found {
        for left_out in short {
            if let Some(extent) = Extent::new(left_out.start(), left_out.end().min(size)) {
                self.fill(stripe, extent, 0);
                self.step(stripe, Input::Fetched { operation: lock(tag, stripe, 0), extent })?;
            }
        }
        Ok(())
    }

    // Sizes.

    fn measure(&mut self, tag: Tag, stripe: u8, short: Vec<Extent>) -> Found {
        self.set(tag, Step::Measuring { short });
        self.step(stripe, Input::Measure { operation: operation(tag, Number::GLIMPSE, stripe) })
    }

    /// How far our own data reach.
    pub(crate) fn measured(&mut self, measured: OperationId, end: u64) -> Found {
        let Some(Number { tag, of: stripe, .. }) = Number::of(measured.0).filter(|n| self.is_present(n.tag))
        else {
            return Ok(());
        };
        if let Step::Measuring { short } = self.step_of(tag).clone() {
            self.set(tag, Step::Glimpsing { end, short });
            let request = RequestId(Number { tag, kind: Number::GLIMPSE, of: stripe, sub: 0 }.get());
            let message = Message::Glimpse { request, resource: self.world.resource(stripe) };
            self.send(stripe, Channel::Control, message, Data::Nothing);
        }
        Ok(())
    }

    /// How long the stripe is.
    pub(crate) fn glimpsed(&mut self, number: Option<Number>, stripe_bytes: u64) -> Found {
        let Some(Number { tag, of: stripe, .. }) = number.filter(|number| self.is_present(number.tag)) else {
            return Ok(());
        };
        let Step::Glimpsing { end, short } = self.step_of(tag).clone() else { return Ok(()) };
        let size = end.max(stripe_bytes);
        let world = self.world;
        match world.op(tag).op {
            Op::Append { length, .. } => {
                let places = u64::try_from(BYTES).expect("a few");
                if size + u64::from(length) > places {
                    return broken(Rule::I5, format!("{} goes to {size}", world.title(tag)));
                }
                self.ghost().placed(world, tag, stripe, size, length)?;
                let offset = u8::try_from(size).expect("a few");
                self.fill(stripe, extent(offset, offset + length), tag);
                self.set(tag, Step::Copied { part: 0, offset });
                Ok(())
            }
            Op::Read(_) => {
                self.zero(tag, stripe, &short, size)?;
                if self.is_present(tag) {
                    self.set(tag, Step::Filled { size: Some(size) });
                }
                Ok(())
            }
            Op::Size { .. } => {
                self.ghost().sized(world, tag, stripe, size)?;
                self.give_back(tag)
            }
            Op::Write(_) | Op::Truncate { .. } | Op::Sync => Ok(()),
        }
    }

    // Going on.

    /// The thread goes on: copies out, or marks what it has copied in.
    pub(crate) fn run(&mut self, thread: usize) -> Found {
        let (index, step) = (self.node().threads[thread].next, self.node().threads[thread].step.clone());
        let tag = self.world.tag(self.node, thread, index);
        match step {
            Step::Filled { size } => self.copy_out(tag, size),
            Step::Copied { part, offset } => self.commit(tag, part, offset),
            Step::Idle
            | Step::Locking { .. }
            | Step::Looking { .. }
            | Step::Fetching { .. }
            | Step::Measuring { .. }
            | Step::Glimpsing { .. }
            | Step::Cutting
            | Step::Flushing { .. }
            | Step::Syncing { .. } => Ok(()),
        }
    }

    fn copy_out(&mut self, tag: Tag, size: Option<u64>) -> Found {
        let world = self.world;
        let parts = world.op(tag).op.parts();
        for (number, part) in (0..).zip(&parts) {
            if !self.cached(part.stripe).rules.holds(lock(tag, part.stripe, number)) {
                return self.fail(tag, ccpfs_cached_stripe::EIO);
            }
            let pages = self.cached(part.stripe).pages;
            self.ghost().read(world, tag, number, pages, size)?;
        }
        for (number, part) in (0..).zip(&parts) {
            self.ghost().finished(tag, number);
            self.step(part.stripe, Input::Finish { operation: lock(tag, part.stripe, number) })?;
        }
        self.give_back(tag)
    }

    fn commit(&mut self, tag: Tag, part: u8, offset: u8) -> Found {
        let world = self.world;
        let Some(Part { stripe, start, end }) = self.part(tag, part) else { return Ok(()) };
        let written = match world.op(tag).op {
            Op::Append { length, .. } => extent(offset, offset + length),
            Op::Write(_) | Op::Read(_) | Op::Truncate { .. } | Op::Size { .. } | Op::Sync => {
                extent(start, end)
            }
        };
        let operation = lock(tag, stripe, part);
        self.step(stripe, Input::Written { operation, extent: written, now_ns: 0 })?;
        if !self.is_present(tag) {
            return Ok(());
        }
        self.ghost().committed(world, tag, part);
        self.ghost().finished(tag, part);
        self.step(stripe, Input::Finish { operation })?;
        if self.part(tag, part + 1).is_some() {
            self.set(tag, Step::Copied { part: part + 1, offset });
            return Ok(());
        }
        self.give_back(tag)
    }

    /// The call returns.
    fn give_back(&mut self, tag: Tag) -> Found {
        let thread = self.thread_of(tag);
        let t = &mut self.node().threads[thread];
        t.next += 1;
        t.step = Step::Idle;
        let world = self.world;
        self.ghost().returned(world, tag)
    }

    /// The call returns an error.
    pub(crate) fn fail(&mut self, tag: Tag, errno: i32) -> Found {
        self.excuse("a call", errno)?;
        self.ghost().failed(tag);
        let thread = self.thread_of(tag);
        let t = &mut self.node().threads[thread];
        t.next += 1;
        t.step = Step::Idle;
        for (number, part) in (0..).zip(self.world.op(tag).op.parts()) {
            self.step(part.stripe, Input::Finish { operation: lock(tag, part.stripe, number) })?;
        }
        Ok(())
    }

    /// The lock of an operation was lost.
    pub(crate) fn void(&mut self, operation: OperationId) -> Found {
        match Number::of(operation.0).filter(|number| self.is_present(number.tag)) {
            Some(Number { tag, .. }) => self.fail(tag, ccpfs_cached_stripe::EIO),
            None => Ok(()),
        }
    }

    /// Whoever waits for a reply waits in vain.
    pub(crate) fn give_up_replies(&mut self) -> Found {
        for thread in 0..self.node().threads.len() {
            let t = &self.node().threads[thread];
            let (index, waits) = (
                t.next,
                match &t.step {
                    Step::Fetching { .. } | Step::Glimpsing { .. } | Step::Cutting | Step::Syncing { .. } => {
                        true
                    }
                    Step::Idle
                    | Step::Locking { .. }
                    | Step::Looking { .. }
                    | Step::Measuring { .. }
                    | Step::Filled { .. }
                    | Step::Copied { .. }
                    | Step::Flushing { .. } => false,
                },
            );
            if waits {
                let tag = self.world.tag(self.node, thread, index);
                self.fail(tag, ccpfs_cached_stripe::EIO)?;
            }
        }
        Ok(())
    }

    /// A truncate or a sync is done.
    pub(crate) fn done(&mut self, number: Option<Number>) -> Found {
        let Some(Number { tag, kind, of, .. }) = number.filter(|number| self.is_present(number.tag)) else {
            return Ok(());
        };
        if kind == Number::SYNC {
            return self.sync_done(tag, of);
        }
        if *self.step_of(tag) != Step::Cutting {
            return Ok(());
        }
        let world = self.world;
        self.ghost().committed(world, tag, 0);
        self.ghost().finished(tag, 0);
        self.step(of, Input::Cut { operation: lock(tag, of, 0) })?;
        self.step(of, Input::Finish { operation: lock(tag, of, 0) })?;
        self.give_back(tag)
    }

    // Syncing.

    fn begin_sync(&mut self, tag: Tag) -> Found {
        let stripes = 0..self.world.config.stripes;
        let dirty: Vec<u8> =
            stripes.filter(|stripe| self.cached(*stripe).rules.cache().unacknowledged_end() > 0).collect();
        self.set(tag, Step::Flushing { left: u8::try_from(dirty.len()).expect("a few") });
        if dirty.is_empty() {
            return self.send_sync(tag);
        }
        for stripe in dirty {
            let next_job = next_job(self.cached(stripe), stripe);
            let barrier = BarrierId(Number { tag, kind: Number::SYNC, of: stripe, sub: 0 }.get());
            self.step(stripe, Input::Barrier { barrier, next_job })?;
        }
        Ok(())
    }

    /// What an `fsync` waited for on a stripe is answered.
    pub(crate) fn barrier_done(&mut self, barrier: BarrierId, errno: Option<i32>) -> Found {
        let Some(Number { tag, .. }) = Number::of(barrier.0).filter(|number| self.is_present(number.tag))
        else {
            return Ok(());
        };
        let Step::Flushing { left } = *self.step_of(tag) else { return Ok(()) };
        if let Some(errno) = errno {
            return self.fail(tag, errno);
        }
        self.set(tag, Step::Flushing { left: left - 1 });
        if left == 1 { self.send_sync(tag) } else { Ok(()) }
    }

    fn send_sync(&mut self, tag: Tag) -> Found {
        let world = self.world;
        self.set(tag, Step::Syncing { left: world.config.shards });
        for shard in 0..world.config.shards {
            let stripes: Vec<u8> =
                (0..world.config.stripes).filter(|stripe| world.shard_of(*stripe) == shard).collect();
            for stripe in &stripes {
                self.step(
                    *stripe,
                    Input::Sync { operation: operation(tag, Number::SYNC, *stripe), epoch: 1 },
                )?;
            }
            let request = RequestId(Number { tag, kind: Number::SYNC, of: shard, sub: 0 }.get());
            let resources = stripes.iter().map(|stripe| world.resource(*stripe)).collect();
            self.send_to(shard, Channel::Control, Message::Sync { request, resources }, Data::Nothing);
        }
        Ok(())
    }

    fn sync_done(&mut self, tag: Tag, shard: u8) -> Found {
        let Step::Syncing { left } = *self.step_of(tag) else { return Ok(()) };
        let world = self.world;
        for stripe in (0..world.config.stripes).filter(|stripe| world.shard_of(*stripe) == shard) {
            let operation = operation(tag, Number::SYNC, stripe);
            self.step(stripe, Input::Synced { operation, stored: true })?;
        }
        self.set(tag, Step::Syncing { left: left - 1 });
        if left > 1 {
            return Ok(());
        }
        let servers = &self.state.servers;
        let stored = (0..world.config.stripes)
            .map(|stripe| &servers[usize::from(world.shard_of(stripe))].stripes[usize::from(stripe)]);
        let stored: Vec<_> = stored.collect();
        self.state.ghost.synced(world, tag, &stored)?;
        debug_assert_eq!(self.state.ghost.ops[usize::from(tag) - 1].phase, Phase::Running);
        self.give_back(tag)
    }
}
