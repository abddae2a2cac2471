//! Taking the locks of a call: one after the other, or all at once first (paper 001, section 4), as the product's client does.

use crate::client::{Number, Turn, lock, operation};
use crate::config::{Op, Part, Protocol};
use crate::mark::Mark;
use crate::rule::Found;
use crate::state::{Standing, Step, Tag};
use crate::thread::extent;
use ccpfs_cached_stripe::Input;
use ccpfs_region::{Region, Section, UNBOUNDED};
use ccpfs_types::{Extent, GroupId, LockId, OperationId, Part as Place, RequestId, Sn, Terms};

/// EAGAIN of Linux: a lock is not to be had at once.
const EAGAIN: i32 = 11;

impl Turn<'_> {
    /// Takes the locks from number `next` on: all at once without waiting, or the next one.
    pub(crate) fn take_locks(
        &mut self,
        tag: Tag,
        mut locks: Vec<Standing>,
        next: u8,
        at_once: bool,
    ) -> Found {
        let count = u8::try_from(locks.len()).expect("a few");
        if next == count {
            return self.all_locked(tag);
        }
        let tries = at_once && next + 1 < count;
        let asked = (next, if tries { count } else { next + 1 });
        locks[usize::from(asked.0)..usize::from(asked.1)].fill(Standing::Asked);
        self.set(tag, Step::Locking { locks: locks.clone(), asked, tries });
        if !tries && self.world.config.options.protocol == Protocol::AltTry {
            // What lies behind is asked for as well, before the answer can end the round.
            for part in asked.1..count {
                self.ask_ahead(tag, part)?;
            }
        }
        for part in asked.0..asked.1 {
            let stripe = self.part(tag, part).expect("calls have parts").stripe;
            if tries && self.cached(stripe).ahead.is_some() {
                // The answer will be that of the request that waits.
                return self.missing_from(tag, part);
            }
            self.ask_for(tag, part, tries)?;
        }
        Ok(())
    }

    /// The locks from a number on are not tried.
    fn missing_from(&mut self, tag: Tag, part: u8) -> Found {
        let Step::Locking { mut locks, asked, tries } = self.step_of(tag).clone() else { return Ok(()) };
        locks[usize::from(part)..].fill(Standing::Refused);
        self.set(tag, Step::Locking { locks: locks.clone(), asked, tries });
        if locks.contains(&Standing::Asked) { Ok(()) } else { self.round_over(tag, locks, asked.1, tries) }
    }

    /// Asks for a lock that is the only one of its stripe, so that it is here when its turn comes.
    fn ask_ahead(&mut self, tag: Tag, number: u8) -> Found {
        let Some(Part { stripe, start, end }) = self.part(tag, number) else { return Ok(()) };
        if self.place_of(tag, number).of_several() {
            return Ok(());
        }
        let (mode, required) = (self.world.mode(tag), Region::from(extent(start, end)));
        let cached = self.cached(stripe);
        let covers = |locks: &ccpfs_dlm::client::Locks| locks.covers(mode, &required, GroupId::NONE);
        if cached.ahead.is_some() || cached.rules.locks().is_some_and(covers) {
            return Ok(());
        }
        let operation = operation(tag, Number::AHEAD, stripe);
        cached.ahead = Some(operation);
        self.world.mark(Mark::Ahead);
        let (desired, request) = (required.clone(), RequestId(operation.0));
        self.step(stripe, Input::Acquire { operation, mode, required, desired, request, terms: Terms::WAIT })
    }

    fn ask_for(&mut self, tag: Tag, number: u8, try_only: bool) -> Found {
        let Some(Part { stripe, start, end }) = self.part(tag, number) else { return Ok(()) };
        let required = match self.world.op(tag).op {
            Op::Write(_) | Op::Read(_) => extent(start, end),
            Op::Append { .. } | Op::Truncate { .. } => Extent::to_eof(start.into()),
            Op::Size { .. } | Op::Sync => return Ok(()),
        };
        let stride = match self.world.op(tag).op {
            Op::Write(_) => u64::from(self.world.config.options.stride),
            Op::Read(_) | Op::Append { .. } | Op::Truncate { .. } | Op::Size { .. } | Op::Sync => 0,
        };
        let place = self.place_of(tag, number);
        let desired = match place.of_several() {
            true => Region::from(required),
            false => Section::new(required.start(), required.length(), &[(stride, UNBOUNDED)])
                .map_or_else(|_| Region::from(Extent::to_eof(required.start())), Region::from),
        };
        let operation = lock(tag, stripe, number);
        let input = Input::Acquire {
            operation,
            mode: self.world.mode(tag),
            required: required.into(),
            desired,
            request: RequestId(operation.0),
            terms: Terms { try_only, part: place, ..Terms::WAIT },
        };
        self.step(stripe, input)
    }

    /// Which of the locks on its stripe one is.
    fn place_of(&self, tag: Tag, number: u8) -> Place {
        let parts = self.world.op(tag).op.parts();
        let same = |part: &Part| part.stripe == parts[usize::from(number)].stripe;
        match (parts.iter().filter(|part| same(part)).count(), parts.iter().position(same)) {
            (1, _) => Place::Only,
            (_, Some(first)) if first == usize::from(number) => Place::First,
            (_, _) => Place::Next,
        }
    }

    /// A lock is here, or will not come.
    pub(crate) fn answered(&mut self, operation: OperationId, answer: Result<(LockId, Sn), i32>) -> Found {
        let Some(Number { tag, kind, of, sub: part }) = Number::of(operation.0) else { return Ok(()) };
        if kind == Number::AHEAD {
            self.cached(of).ahead = None;
            return if answer.is_ok() { self.step(of, Input::Finish { operation }) } else { Ok(()) };
        }
        if !self.is_present(tag) {
            return Ok(());
        }
        let Step::Locking { mut locks, asked, tries } = self.step_of(tag).clone() else { return Ok(()) };
        locks[usize::from(part)] = match answer {
            Ok((_, sn)) => {
                let world = self.world;
                self.ghost().locked(world, tag, part, sn.0)?;
                Standing::Held
            }
            Err(EAGAIN) if tries => Standing::Refused,
            Err(errno) => return self.fail(tag, errno),
        };
        let over = !locks.contains(&Standing::Asked);
        self.set(tag, Step::Locking { locks: locks.clone(), asked, tries });
        if over { self.round_over(tag, locks, asked.1, tries) } else { Ok(()) }
    }

    /// All that was asked for is answered: what was got out of order is given up.
    fn round_over(&mut self, tag: Tag, mut locks: Vec<Standing>, until: u8, tries: bool) -> Found {
        let missing = locks.iter().position(|lock| *lock == Standing::Refused);
        let next = missing.map_or(until, |at| u8::try_from(at).expect("a few"));
        let held = |locks: &[Standing], part: u8| locks[usize::from(part)] == Standing::Held;
        let out_of_order: Vec<u8> = (next..until).filter(|part| held(&locks, *part)).collect();
        locks[usize::from(next)..].fill(Standing::Open);
        self.set(tag, Step::Locking { locks: locks.clone(), asked: (next, next), tries });
        for part in out_of_order {
            self.world.mark(Mark::GivenUp);
            self.ghost().given_up(tag, part);
            let stripe = self.part(tag, part).expect("it was asked for").stripe;
            self.step(stripe, Input::Finish { operation: lock(tag, stripe, part) })?;
        }
        let alternates = self.world.config.options.protocol == Protocol::AltTry;
        self.take_locks(tag, locks, next, alternates && !tries)
    }
}
