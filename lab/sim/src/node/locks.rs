//! The locks of a call: taken in stripe order, all held before anything is done under them.

use super::client::{Client, EIO, Note};
use super::operation::{Op, Part, Phase, Progress, Standing};
use super::stripe::to_u32;
use crate::checkers::LockUse;
use crate::config::ClientConfig;
use crate::engine::Engine;
use crate::history::{Call, Comb, StripeUse};
use crate::taking::{Kind, Limits, Protocol, Request, Round, Taking, cut_within};
use crate::workload::Work;
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::{Intent, least_restrictive};
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{
    Extent, GroupId, Layout, LockId, LockMode, OperationId, Part as Place, RequestId, Sn, Terms,
};
use std::cmp::Reverse;

/// EAGAIN of Linux: a lock is not to be had at once.
const EAGAIN: i32 = 11;
/// Most locks that an operation asks for ahead.
const AHEAD_MAX: usize = 16;

impl Client {
    /// The locks of a call, by stripe and offset.
    fn wanted(&self, op: &Op, settings: &ClientConfig, grain_bytes: u64) -> Vec<Request> {
        let kind = match settings.lock_kind {
            1 => Some(Kind::Datatype),
            2 => Some(Kind::List),
            3 => Some(Kind::Posix),
            _ => None,
        };
        if let (Some(region), Some(kind)) = (&op.region, kind) {
            let limits = Limits {
                list_max: size(settings.lock_list_max),
                sections_max: size(settings.lock_sections_max),
                grain_bytes,
            };
            return cut_within(region, &self.files[op.file].layout, kind, limits);
        }
        let hulls = self.hulls(op).into_iter();
        hulls.map(|(stripe, extent)| Request { stripe, region: extent.into(), part: Place::Only }).collect()
    }

    /// What a call desires beyond what it requires of a stripe: all that follows, or, where clients see a stride in everything, all
    /// that follows at that stride.
    fn desired(required: &Region, (layout, stripe): (&Layout, usize), stride: u64, copies: u64) -> Region {
        let start = required.bounds().start();
        let piece = required.piece_from(start).expect("a region has a piece");
        let count = if copies > 0 { copies } else { UNBOUNDED };
        let section = |start| Section::new(start, piece.length(), &[(stride, count)]).ok();
        // Without a number of copies the stride is one of the file.
        let comb = if layout.stripe_count() == 1 || copies > 0 {
            section(start).map(Region::from)
        } else {
            let stripe = to_u32(stripe);
            let of_file = section(layout.file_offset(stripe, start));
            of_file.and_then(|section| Region::of_stripe(vec![section], layout, stripe).ok().flatten())
        };
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
            Work::Call(Call::Write { .. } | Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. })
            | Work::WriteRegion { .. }
            | Work::Flush { .. }
                if op.extents.len() > 1 =>
            {
                let mut hulls: Vec<Option<Extent>> = vec![None; layout.stripe_count() as usize];
                for piece in op.extents.iter().flat_map(|extent| layout.pieces(*extent)) {
                    let hull = &mut hulls[piece.stripe as usize];
                    *hull = Some(hull.map_or(piece.extent, |hull| hull.hull(piece.extent)));
                }
                (0_u32..).zip(hulls).filter_map(|(stripe, hull)| Some((stripe, hull?))).collect()
            }
            Work::Call(Call::Write { .. } | Call::Read { .. } | Call::Size { .. } | Call::Fsync { .. })
            | Work::WriteRegion { .. }
            | Work::Flush { .. } => layout.stripe_hulls(op.hull()).collect(),
        }
    }

    fn intent(op: &Op) -> Intent {
        match &op.work {
            Work::Call(Call::Read { .. }) => Intent::Read,
            Work::Call(Call::Append { .. } | Call::Truncate { .. }) => Intent::ReadThenWrite,
            Work::Call(Call::Write { .. } | Call::Size { .. } | Call::Fsync { .. })
            | Work::WriteRegion { .. }
            | Work::Flush { .. } => Intent::Write,
        }
    }

    /// The locks that a call will take, before the first is asked for.
    fn plan_locks(&self, engine: &Engine, op: &mut Op) {
        let settings = engine.config.client;
        let requests = self.wanted(op, &settings, u64::from(engine.config.policy.granularity_bytes));
        let protocol = match settings.lock_protocol {
            1 => Protocol::OneTry,
            2 => Protocol::AltTry,
            _ => Protocol::TwoPhase,
        };
        // An extent is locked stripe by stripe.
        let protocol = if op.region.is_some() { protocol } else { Protocol::TwoPhase };
        op.taking = Taking::new(protocol, requests.len());
        op.at_once = size(settings.lock_at_once).max(1);
        op.parts = requests
            .into_iter()
            .map(|request| Part {
                stripe: request.stripe as usize,
                extent: request.region.bounds(),
                region: request.region,
                place: request.part,
                state: Standing::Open,
                operation: OperationId(0),
                sn: Sn(0),
                session: 0,
            })
            .collect();
    }

    /// Asks for the next lock, or for the next ones.
    pub(super) fn lock_next(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        if op.parts.is_empty() {
            self.plan_locks(engine, op);
        }
        let (from, until, try_only) = match op.taking.round() {
            None => return op.enter(Phase::Locked),
            Some(Round::Wait { number }) => (number, number + 1, false),
            Some(Round::Try { from }) => (from, op.parts.len().min(from + op.at_once), true),
        };
        for number in from..until {
            let target = self.target(op.file, op.parts[number].stripe);
            if let Some(Some(errno)) = self.take_session(thread, target) {
                return Progress::Return(Err(errno));
            }
            if self.session(engine, thread, target).is_none() {
                return Progress::Wait;
            }
        }
        (op.asked_parts, op.missing) = ((from, until), until);
        for number in from..until {
            if try_only && !self.stripe(op.file, op.parts[number].stripe).ahead.is_empty() {
                // The answer will be that of the request that waits: of our own, mostly.
                op.missing = number;
                break;
            }
            self.ask_for(engine, thread, op, number, try_only);
        }
        if !try_only && op.region.is_some() && engine.config.client.lock_protocol == 2 {
            self.ask_ahead(engine, thread, op, until);
        }
        op.enter(Phase::Answer)
    }

    /// Asks for the locks from `first` on, as far as each is the only one of its stripe, so that they are here when their turn comes:
    /// by operations that end with the answer.
    fn ask_ahead(&mut self, engine: &mut Engine, thread: u32, op: &Op, first: usize) {
        let settings = engine.config.client;
        let mode = mode(Self::intent(op), op.parts.len(), settings.write_mode);
        let alone = op.parts[first..].iter().filter(|part| part.place == Place::Only);
        for part in alone.take(if settings.group == 0 { AHEAD_MAX } else { 0 }) {
            let target = self.target(op.file, part.stripe);
            let Some(serial) = self.sessions[target as usize].ready().map(|session| session.serial) else {
                continue;
            };
            self.bind(engine, op.file, part.stripe, serial);
            let place = self.stripe(op.file, part.stripe);
            let covers = |locks: &ccpfs_dlm::client::Locks| locks.covers(mode, &part.region, GroupId::NONE);
            if !place.ahead.is_empty() || place.machine.locks().is_some_and(covers) {
                continue;
            }
            let operation = OperationId(self.number(thread));
            self.stripe(op.file, part.stripe).ahead.push(operation);
            engine.seen.ahead += 1;
            let acquire = Input::Acquire {
                operation,
                mode,
                required: part.region.clone(),
                desired: part.region.clone(),
                request: RequestId(self.number(thread)),
                terms: Terms::WAIT,
            };
            self.step(engine, op.file, part.stripe, acquire);
        }
    }

    /// Asks for one lock.
    fn ask_for(&mut self, engine: &mut Engine, thread: u32, op: &mut Op, number: usize, try_only: bool) {
        let settings = engine.config.client;
        let (operation, request) = (OperationId(self.number(thread)), RequestId(self.number(thread)));
        let count = op.parts.len();
        let part = &mut op.parts[number];
        (part.operation, part.state) = (operation, Standing::Asked);
        let (stripe, place, region) = (part.stripe, part.place, part.region.clone());
        let target = self.target(op.file, stripe);
        let serial = self.session(engine, thread, target).expect("looked at before the first was asked");
        self.bind(engine, op.file, stripe, serial);
        let group = GroupId(settings.group);
        self.join_group(engine, thread, (op.file, stripe), group);
        let required = if settings.lock_whole > 0 { Region::WHOLE } else { region };
        // As the product's: a noncontiguous call asks for what it needs. Those of plans ask for more, to try it out.
        let is_exact = settings.lock_kind > 0 && matches!(op.work, Work::WriteRegion { .. });
        let desired = match place.of_several() || is_exact {
            true => required.clone(),
            false => Self::desired(
                &required,
                (&self.files[op.file].layout, stripe),
                settings.desired_stride_bytes,
                settings.desired_copies,
            ),
        };
        let mode = mode(Self::intent(op), count, settings.write_mode);
        let terms = Terms { try_only, part: place, group };
        engine.seen.tried += u64::from(try_only);
        engine.seen.parts += u64::from(place.of_several());
        let acquire = Input::Acquire { operation, mode, desired, required, request, terms };
        self.step(engine, op.file, stripe, acquire);
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

    /// Hears of the locks that were asked for, until all have been answered.
    pub(super) fn lock_answer(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        let (from, until) = op.asked_parts;
        for number in from..until {
            if op.parts[number].state == Standing::Asked {
                self.take_answer(engine, thread, op, number);
            }
        }
        if op.parts[from..until].iter().any(|part| part.state == Standing::Asked) {
            return Progress::Wait;
        }
        if let Some(errno) = op.errno {
            return Progress::Return(Err(errno));
        }
        // What was got out of order goes back before anything is waited for.
        for number in op.missing..until {
            if op.parts[number].state == Standing::Held {
                self.finish_part(engine, op.file, &op.parts[number].clone());
                op.parts[number].state = Standing::Open;
                engine.seen.given_up += 1;
            }
        }
        if op.missing < until {
            op.at_once = (op.at_once / 2).max(1);
            op.taking.settle(op.missing);
        } else if until < op.parts.len() && matches!(op.taking.round(), Some(Round::Try { .. })) {
            op.at_once *= 2;
            op.taking.proceed(until);
        } else {
            op.taking.settle(until);
        }
        op.enter(Phase::Lock)
    }

    /// Takes the answer for one lock, if it is here.
    fn take_answer(&mut self, engine: &mut Engine, thread: u32, op: &mut Op, number: usize) {
        let part = &op.parts[number];
        let (stripe, of) = (part.stripe, part.operation);
        let answer = self.take_note(thread, |note| {
            if let Note::Answer { operation, answer } = note
                && *operation == of
            {
                return Some(*answer);
            }
            None
        });
        let Some(answer) = answer else { return };
        op.parts[number].state = Standing::Open;
        match answer {
            Err(EAGAIN) if matches!(op.taking.round(), Some(Round::Try { .. })) => {
                op.missing = op.missing.min(number);
                engine.seen.refused += 1;
            }
            Err(errno) => op.errno = Some(errno),
            // A lock that was lost before its thread looked is none.
            Ok(_) if !self.holds(op.file, stripe, of) => op.errno = Some(EIO),
            Ok((lock, sn)) => self.lock_held(engine, op, number, lock, sn),
        }
    }

    /// A lock is in use from now on.
    fn lock_held(&mut self, engine: &mut Engine, op: &mut Op, number: usize, lock: LockId, sn: Sn) {
        let (stripe, operation) = (op.parts[number].stripe, op.parts[number].operation);
        let session = self.stripe(op.file, stripe).session.map_or(0, |(_, number)| number);
        let mode = mode(Self::intent(op), op.parts.len(), engine.config.client.write_mode);
        let part = &mut op.parts[number];
        (part.sn, part.session, part.state) = (sn, session, Standing::Held);
        let (region, extent) = (part.region.clone(), part.share());
        let resource = self.resource(op.file, stripe);
        self.observe_use(engine, (op.file, stripe), LockUse { resource, operation, lock, sn, mode, region });
        engine.note(self.who(), || {
            let name = op.id.map(|id| id.to_string()).unwrap_or_default();
            format!("{name} uses {lock} of stripe {stripe} with {sn}")
        });
        if let Work::Call(Call::Read { .. } | Call::Append { .. }) = op.work {
            let used = StripeUse { stripe: to_u32(stripe), extent, session, sn, order: 0 };
            engine.took_effect(op.id, used);
        }
    }

    /// All locks are held.
    pub(super) fn locked(&mut self, engine: &mut Engine, thread: u32, op: &mut Op) -> Progress {
        if !engine.is_tagged() {
            engine.locked.push((self.node, thread));
        }
        match &op.work {
            Work::Call(Call::Read { .. }) => {
                op.looks = match op.region {
                    Some(_) => {
                        let shares = self.shares(op).into_iter().enumerate();
                        shares.flat_map(|(at, bytes)| bytes.into_iter().map(move |e| (at, e))).collect()
                    }
                    None => op.parts.iter().enumerate().map(|(at, part)| (at, part.extent)).collect(),
                };
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
            | Work::WriteRegion { .. }
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

/// A number of a configuration as a number of things.
fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// The bytes of a call for pieces at a stride, ascending; nothing for a call for all of them.
pub(super) fn comb_region(comb: Comb, pieces: &[Extent]) -> Option<Region> {
    if comb == Comb::NONE {
        return None;
    }
    let bytes: u64 = pieces.iter().map(|piece| piece.length()).sum();
    let first = pieces.first()?;
    let section = Section::new(first.start(), first.length(), &[(comb.stride, pieces.len() as u64)]);
    let whole = section.ok().filter(|section| section.length_bytes() == bytes).map(Region::from);
    whole.or_else(|| Region::from_extents(pieces.to_vec()))
}
