//! The locks of a call: taken in stripe order, all held before anything is done under them.

use super::client::{Client, EIO, Note};
use super::operation::{Op, Part, Phase, Progress};
use super::stripe::to_u32;
use crate::checkers::LockUse;
use crate::engine::Engine;
use crate::history::{Call, Comb};
use crate::workload::Work;
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::{Intent, least_restrictive};
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{Extent, GroupId, LockMode, OperationId, RequestId, Sn, Terms};
use std::cmp::Reverse;

impl Client {
    /// Which stripes a call locks, and what of them.
    fn wanted(&self, op: &Op) -> Vec<(u32, Region)> {
        let layout = self.files[op.file].layout;
        if let Work::Call(Call::Write { comb, .. } | Call::Read { comb, .. }) = &op.work
            && *comb != Comb::NONE
        {
            let mut stripes: Vec<Vec<Extent>> = vec![Vec::new(); layout.stripe_count() as usize];
            for piece in op.extents.iter().flat_map(|extent| layout.pieces(*extent)) {
                stripes[piece.stripe as usize].push(piece.extent);
            }
            return (0_u32..)
                .zip(stripes)
                .filter_map(|(stripe, pieces)| Some((stripe, Region::from_extents(pieces)?)))
                .collect();
        }
        self.hulls(op).into_iter().map(|(stripe, extent)| (stripe, extent.into())).collect()
    }

    /// What a call desires beyond what it requires of a stripe: all that follows, or, where clients see a stride in everything, all
    /// that follows at that stride.
    fn desired(required: &Region, stride: u64, copies: u64) -> Region {
        let start = required.bounds().start();
        let piece = required.piece_from(start).expect("a region has a piece");
        let count = if copies > 0 { copies } else { UNBOUNDED };
        let comb = Section::new(start, piece.length(), &[(stride, count)]).ok().map(Region::from);
        let comb = comb.filter(|comb| stride > 0 && comb.contains_region(required));
        comb.unwrap_or_else(|| Extent::to_eof(start).into())
    }

    fn hulls(&self, op: &Op) -> Vec<(u32, Extent)> {
        let layout = self.files[op.file].layout;
        match &op.work {
            Work::Call(Call::Truncate { length, .. }) => {
                layout.stripe_hulls(Extent::to_eof(*length)).collect()
            }
            Work::Call(Call::Append { .. }) => layout.stripe_hulls(Extent::WHOLE).collect(),
            Work::WriteList { extents, .. } => {
                let mut hulls: Vec<Option<Extent>> = vec![None; layout.stripe_count() as usize];
                for piece in extents.iter().flat_map(|extent| layout.pieces(*extent)) {
                    let hull = &mut hulls[piece.stripe as usize];
                    *hull = Some(hull.map_or(piece.extent, |hull| hull.hull(piece.extent)));
                }
                (0_u32..).zip(hulls).filter_map(|(stripe, hull)| Some((stripe, hull?))).collect()
            }
            Work::Call(Call::Write { .. } | Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. })
            | Work::Flush { .. } => layout.stripe_hulls(op.hull()).collect(),
        }
    }

    fn intent(op: &Op) -> Intent {
        match &op.work {
            Work::Call(Call::Read { .. }) => Intent::Read,
            Work::Call(Call::Append { .. } | Call::Truncate { .. }) => Intent::ReadThenWrite,
            Work::Call(Call::Write { .. } | Call::Size { .. } | Call::Fsync { .. })
            | Work::WriteList { .. }
            | Work::Flush { .. } => Intent::Write,
        }
    }

    /// Asks for the lock of the next stripe.
    pub(super) fn lock_next(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        if op.parts.is_empty() {
            op.parts = self
                .wanted(op)
                .into_iter()
                .map(|(stripe, region)| Part {
                    stripe: stripe as usize,
                    extent: region.bounds(),
                    region,
                    operation: OperationId(0),
                    sn: Sn(0),
                    session: 0,
                })
                .collect();
        }
        let Some(part) = op.parts.get(op.locked) else { return op.enter(Phase::Locked) };
        let (stripe, region) = (part.stripe, part.region.clone());
        let target = self.target(op.file, stripe);
        if let Some(Some(errno)) = self.take_session(thread, target) {
            return Progress::Return(Err(errno));
        }
        let Some(serial) = self.session(engine, thread, target) else { return Progress::Wait };
        self.bind(engine, op.file, stripe, serial);
        let settings = engine.config.client;
        self.join_group(engine, thread, (op.file, stripe), GroupId(settings.group));
        let operation = OperationId(self.number(thread));
        let request = RequestId(self.number(thread));
        op.parts[op.locked].operation = operation;
        let required = if settings.lock_whole > 0 { Region::WHOLE } else { region };
        let acquire = Input::Acquire {
            operation,
            mode: mode(Self::intent(op), op.parts.len(), settings.write_mode),
            desired: Self::desired(&required, settings.desired_stride_bytes, settings.desired_copies),
            required,
            request,
            terms: Terms { group: GroupId(settings.group), ..Terms::WAIT },
        };
        self.step(engine, op.file, stripe, acquire);
        op.enter(Phase::Answer)
    }

    /// Begins the operation that keeps a group's lock as long as the client is a member: to the end. Nobody looks at its answer.
    fn join_group(
        &mut self,
        engine: &mut Engine,
        thread: u32,
        (file, stripe): (usize, usize),
        group: GroupId,
    ) {
        let before = &mut self.stripe(file, stripe).is_member;
        if group == GroupId::NONE || std::mem::replace(before, true) {
            return;
        }
        let join = Input::Acquire {
            operation: OperationId(self.number(thread)),
            mode: LockMode::Pw,
            desired: Region::WHOLE,
            required: Region::WHOLE,
            request: RequestId(self.number(thread)),
            terms: Terms { group, ..Terms::WAIT },
        };
        self.step(engine, file, stripe, join);
    }

    pub(super) fn lock_answer(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let part = &op.parts[op.locked];
        let (stripe, of) = (part.stripe, part.operation);
        let answer = self.take_note(thread, |note| {
            if let Note::Answer { operation, answer } = note
                && *operation == of
            {
                return Some(*answer);
            }
            None
        });
        // A lock that was lost before its thread looked is none.
        let answer = match answer {
            None => return Progress::Wait,
            Some(Ok(_)) if !self.holds(op.file, stripe, of) => Err(EIO),
            Some(answer) => answer,
        };
        match answer {
            Err(errno) => Progress::Return(Err(errno)),
            Ok((lock, sn)) => {
                let session = self.stripe(op.file, stripe).session.map_or(0, |(_, number)| number);
                let part = &mut op.parts[op.locked];
                (part.sn, part.session) = (sn, session);
                let region = part.region.clone();
                op.locked += 1;
                let asked = engine.config.client.write_mode;
                let mode = mode(Self::intent(op), op.parts.len(), asked);
                let resource = self.resource(op.file, stripe);
                let used = LockUse { resource, operation: of, lock, sn, mode, region };
                self.observe_use(engine, (op.file, stripe), used);
                engine.note(self.who(), || {
                    let name = op.id.map(|id| id.to_string()).unwrap_or_default();
                    format!("{name} uses {lock} of stripe {stripe} with {sn}")
                });
                if let Work::Call(Call::Read { .. } | Call::Append { .. }) = op.work {
                    let stripe = to_u32(stripe);
                    let used = crate::history::StripeUse { stripe, session, sn, order: 0 };
                    engine.took_effect(op.id, used);
                }
                op.enter(Phase::Lock)
            }
        }
    }

    /// All locks are held.
    pub(super) fn locked(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        if !engine.is_tagged() {
            engine.locked.push((self.node, thread));
        }
        match &op.work {
            Work::Call(Call::Read { .. }) => {
                let parts = op.parts.iter().enumerate();
                op.looks = parts.flat_map(|(at, part)| part.region.pieces().map(move |e| (at, e))).collect();
                op.enter(Phase::Look)
            }
            Work::Call(Call::Truncate { length, .. }) => {
                // The stripe that ends the file first: the size changes at once, and not bit by bit.
                let (layout, size) = (self.files[op.file].layout, *length);
                op.parts.sort_by_key(|part| {
                    let stripe = to_u32(part.stripe);
                    Reverse(layout.file_size(stripe, layout.stripe_length(stripe, size)))
                });
                op.enter(Phase::Cut)
            }
            // Nobody else can write now: the size stays what it is until we have written.
            Work::Call(Call::Append { .. }) => op.enter(Phase::Size),
            Work::Call(Call::Write { .. } | Call::Size { .. } | Call::Fsync { .. })
            | Work::WriteList { .. }
            | Work::Flush { .. } => op.enter(Phase::Copy),
        }
    }

    /// The observer hears of the use of a lock.
    fn observe_use(&mut self, engine: &mut Engine, (file, stripe): (usize, usize), used: LockUse) {
        if let Some((target, id)) = self.bound(file, stripe) {
            engine.tell(|observer, at| observer.use_began(at, target, id, &used));
        }
    }

    /// The shard of a stripe and the number under which this client is known there.
    pub(super) fn bound(&self, file: usize, stripe: usize) -> Option<(u32, ccpfs_types::ClientId)> {
        let place = self.files[file].stripes[stripe].as_ref()?;
        let session = self.sessions[place.target as usize].session.as_ref()?;
        let (serial, _) = place.session?;
        (session.serial == serial).then_some((place.target, session.id))
    }

    pub(super) fn resource(&self, file: usize, stripe: usize) -> ccpfs_types::ResourceId {
        let file = super::client::file_id(to_u32(file));
        ccpfs_types::ResourceId { file, stripe: to_u32(stripe) }
    }
}

/// The mode of a lock: as the product chooses, unless a figure asks for another one for writes.
fn mode(intent: Intent, stripes: usize, asked: u64) -> LockMode {
    match (intent, asked) {
        (Intent::Write, 1) => LockMode::Nbw,
        (Intent::Write, 2) => LockMode::Bw,
        (Intent::Write, 3) => LockMode::Pw,
        (Intent::Read | Intent::Write | Intent::ReadThenWrite, _) => least_restrictive(intent, stripes),
    }
}
