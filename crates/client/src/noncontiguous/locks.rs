//! The locks of a noncontiguous operation: all of them, by one of the protocols of paper 001.
//!
//! Deadlock cannot be: whoever waits for a lock holds, of this operation, only locks before it in the order of stripes and offsets
//! (what was got out of order is given up before; what is asked for ahead is not held), and a lock of several covers nothing behind what waits
//! ([`ccpfs_types::Part`]). Livelock cannot be either: between two rounds without waiting there is one that waits, and gets its lock.

use super::Wanted;
use super::ahead::{AHEAD_MAX, ask_ahead};
use super::cut::{Request, cut};
use crate::client::ClientInner;
use crate::error::FsError;
use crate::operation::{Operation, Started, await_lock, granularity, start_lock};
use crate::shared::FileShared;
use crate::stripe::Stripe;
use ccpfs_config::LockProtocol;
use ccpfs_dlm::client::{Intent, least_restrictive};
use ccpfs_types::{Extent, GroupId, LockMode, OperationId, Part, Terms};
use std::sync::Arc;

/// Requests that are made at once: first, and at most, for their answers must find room in buffers. Twice as many after those that
/// were granted, half as many after one that was not: what lies behind that was asked for in vain, and is given up.
const AT_ONCE: usize = 64;
const AT_ONCE_MAX: usize = 256;

/// A lock in use.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) stripe: &'a Arc<Stripe>,
    pub(crate) operation: OperationId,
    /// Of what it was asked for, in the stripe's offsets.
    bounds: Extent,
}

/// All locks of a noncontiguous operation, by stripe and offset. To be ended by [`Locked::finish`].
pub(crate) struct Locked<'a> {
    held: Vec<Held<'a>>,
}

/// One request, and whether it is granted.
struct Wish<'a> {
    request: Request,
    stripe: &'a Arc<Stripe>,
    operation: Option<OperationId>,
}

impl<'a> Locked<'a> {
    /// Takes all locks, waiting where others have them.
    //= protocol.md#I5
    pub(crate) fn take(
        client: &ClientInner,
        file: &'a FileShared,
        wanted: &Wanted<'_>,
    ) -> Result<Locked<'a>, FsError> {
        let grain = granularity(client, &file.stripes[0])?;
        let requests = cut(wanted.region, file.stub.layout, wanted.style.kind, grain);
        let mode = match (client.config.force_write_mode, wanted.intent == Intent::Write) {
            (Some(mode), true) => mode,
            (Some(_) | None, _) => least_restrictive(wanted.intent, requests.len()),
        };
        let terms = Terms { group: file.group.present(client, file)?, ..Terms::WAIT };
        let wish = |request: Request| {
            let index = usize::try_from(request.stripe).expect("stripes are few");
            Wish { request, stripe: &file.stripes[index], operation: None }
        };
        let wishes = requests.into_iter().map(wish).collect();
        let mut taking = Taking { client, mode, terms, wishes, at_once: AT_ONCE };
        match taking.all(wanted.style.protocol) {
            Ok(()) => {
                let held = taking.wishes.into_iter().filter_map(|wish| {
                    let bounds = wish.request.region.bounds();
                    Some(Held { stripe: wish.stripe, operation: wish.operation?, bounds })
                });
                Ok(Locked { held: held.collect() })
            }
            Err(error) => {
                taking.give_up(0);
                Err(error)
            }
        }
    }

    /// The locks, by number.
    pub(crate) fn held(&self) -> &[Held<'a>] {
        &self.held
    }

    /// The number of the lock that holds a byte of a stripe, and where its bytes end.
    pub(crate) fn at(&self, stripe: u32, offset: u64) -> (usize, u64) {
        let before = |held: &Held<'_>| (held.stripe.resource.stripe, held.bounds.end()) <= (stripe, offset);
        let number = self.held.partition_point(before);
        (number, self.held[number].bounds.end())
    }

    /// Ends the use of all locks.
    pub(crate) fn finish(self, client: &ClientInner) {
        // What began last is found first.
        Operation::of(self.held.into_iter().rev().map(|held| (held.stripe, held.operation))).finish(client);
    }
}

/// Locks being taken.
struct Taking<'a, 'c> {
    client: &'c ClientInner,
    mode: LockMode,
    terms: Terms,
    wishes: Vec<Wish<'a>>,
    /// How many are tried at once.
    at_once: usize,
}

impl Taking<'_, '_> {
    fn all(&mut self, protocol: LockProtocol) -> Result<(), FsError> {
        let mut at_once = match protocol {
            LockProtocol::TwoPhase => false,
            LockProtocol::OneTry | LockProtocol::AltTry => true,
        };
        let mut next = 0;
        while next < self.wishes.len() {
            // For one lock there is nothing to gain by asking twice.
            if at_once && next + 1 < self.wishes.len() {
                next = self.try_from(next)?;
                self.give_up(next);
            }
            if next < self.wishes.len() {
                let started = self.start(next, false)?;
                if protocol == LockProtocol::AltTry {
                    self.ask_ahead(next + 1);
                }
                self.wait_for(next, started)?;
                next += 1;
            }
            at_once = protocol == LockProtocol::AltTry;
        }
        Ok(())
    }

    /// Asks for all locks from `first` on without waiting for other clients. Returns the first that is not to be had at once.
    fn try_from(&mut self, first: usize) -> Result<usize, FsError> {
        let mut missing = self.wishes.len();
        let mut at = first;
        while at < missing {
            let until = (at + self.at_once).min(self.wishes.len());
            let mut started = Vec::with_capacity(until - at);
            for number in at..until {
                if self.wishes[number].stripe.lock().waits_ahead() {
                    // The answer will be that of the request that waits: of our own, mostly.
                    missing = number;
                    break;
                }
                started.push((number, self.start(number, true)));
            }
            let mut failed = None;
            for (number, started) in started {
                let wish = &mut self.wishes[number];
                match started.and_then(|started| await_lock(self.client, wish.stripe, started)) {
                    Ok(operation) => wish.operation = Some(operation),
                    Err(FsError::Server { errno: libc::EAGAIN, .. }) => missing = missing.min(number),
                    Err(error) => failed = Some(error),
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
            self.at_once =
                if missing < until { (self.at_once / 2).max(1) } else { (self.at_once * 2).min(AT_ONCE_MAX) };
            at = until;
        }
        Ok(missing)
    }

    /// Asks for the locks from `first` on, as far as each is the only one of its stripe, so that they are here when their turn comes.
    fn ask_ahead(&self, first: usize) {
        let alone = |wish: &&Wish<'_>| wish.request.part == Part::Only && self.terms.group == GroupId::NONE;
        for Wish { request, stripe, .. } in self.wishes[first..].iter().filter(alone).take(AHEAD_MAX) {
            ask_ahead(self.client, stripe, self.mode, &request.region, self.terms);
        }
    }

    /// Waits for a lock that was asked for.
    fn wait_for(&mut self, number: usize, started: Started) -> Result<(), FsError> {
        let wish = &mut self.wishes[number];
        wish.operation = Some(await_lock(self.client, wish.stripe, started)?);
        Ok(())
    }

    fn start(&self, number: usize, try_only: bool) -> Result<Started, FsError> {
        let Wish { request, stripe, .. } = &self.wishes[number];
        let terms = Terms { try_only, part: request.part, ..self.terms };
        start_lock(self.client, stripe, self.mode, (request.region.clone(), |_| None), terms)
    }

    /// Ends the use of what was got from number `first` on.
    fn give_up(&mut self, first: usize) {
        let got = self.wishes[first..].iter_mut();
        let held = got.filter_map(|wish| Some((wish.stripe, wish.operation.take()?)));
        Operation::of(held).finish(self.client);
    }
}
