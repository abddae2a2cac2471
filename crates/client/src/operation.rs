//! One read, write, append or truncate: its locks, taken in stripe order and held together (I5).

use crate::client::ClientInner;
use crate::error::FsError;
use crate::session::Session;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::{Inner, Outbox, Stripe, to_eof};
use ccpfs_dlm::client::{self as dlm, Intent, least_restrictive};
use ccpfs_types::{Extent, LockMode, OperationId, Region, Sn};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// What an operation needs locked.
pub(crate) struct Wish {
    pub(crate) intent: Intent,
    /// Bytes of the file.
    pub(crate) extent: Extent,
}

/// A lock in use on one stripe.
pub(crate) struct Held {
    pub(crate) operation: OperationId,
    pub(crate) sn: Sn,
    pub(crate) generation: u64,
}

/// An operation that holds its locks. Must be ended by [`Operation::finish`], or by finishing each stripe.
pub(crate) struct Operation<'a> {
    held: Vec<(&'a Arc<Stripe>, Held)>,
}

impl<'a> Operation<'a> {
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (&'a Arc<Stripe>, &Held)> {
        self.held.iter().map(|(stripe, held)| (*stripe, held))
    }

    /// Ends the use of all locks.
    pub(crate) fn finish(self, client: &ClientInner) {
        for (stripe, held) in self.held {
            let mut out = Outbox::default();
            end_use(client, stripe, &mut stripe.lock(), &held, &mut out);
            client.dispatch(stripe, out);
        }
    }
}

/// Ends the use of one lock, under the stripe's mutex.
pub(crate) fn end_use(
    client: &ClientInner,
    stripe: &Stripe,
    inner: &mut Inner,
    held: &Held,
    out: &mut Outbox,
) {
    if inner.generation == held.generation {
        inner.step_locks(stripe, client.the_pool(), dlm::Input::Finish { operation: held.operation }, out);
    }
}

/// Takes the locks of an operation in stripe order, waiting where others hold them.
//= protocol.md#I5
pub(crate) fn begin<'a>(
    client: &ClientInner,
    file: &'a FileShared,
    wish: &Wish,
) -> Result<Operation<'a>, FsError> {
    let layout = file.stub.layout;
    let parts: Vec<(u32, Extent)> = layout.stripe_hulls(wish.extent).collect();
    let mode = match (client.config.force_write_mode, wish.intent) {
        (Some(mode), Intent::Write) => mode,
        (Some(_) | None, intent) => least_restrictive(intent, parts.len()),
    };
    let mut operation = Operation { held: Vec::with_capacity(parts.len()) };
    for (index, extent) in parts {
        let stripe = &file.stripes[index as usize];
        let required = if client.config.lock_whole { Extent::WHOLE } else { extent };
        match acquire(client, stripe, mode, required) {
            Ok((id, sn, generation)) => {
                operation.held.push((stripe, Held { operation: id, sn, generation }));
            }
            Err(error) => {
                operation.finish(client);
                return Err(error);
            }
        }
    }
    Ok(operation)
}

/// Begins the use of one lock; the stripe's mutex is free while waiting.
fn acquire(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    mode: LockMode,
    extent: Extent,
) -> Result<(OperationId, Sn, u64), FsError> {
    let operation = client.operation();
    let mut out = Outbox::default();
    let mut inner = with_locks(client, stripe)?;
    let generation = inner.generation;
    let required = Region::from(extent);
    let input = dlm::Input::Acquire {
        operation,
        mode,
        required,
        desired: to_eof(extent),
        request: client.request(),
        try_only: false,
    };
    inner.step_locks(stripe, client.the_pool(), input, &mut out);
    if let Some(answer) = inner.take_answer(operation) {
        drop(inner);
        add(&client.counters.lock_hits, 1);
        let (_, sn) = answer.map_err(|errno| FsError::Server { operation: "lock", errno })?;
        return Ok((operation, sn, generation));
    }
    let session = inner.live_session();
    drop(inner);
    let began = Instant::now();
    client.dispatch(stripe, out);
    let answer = wait(client, stripe, session.as_ref(), operation);
    add(&client.counters.lock_wait_ns, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let (sn, generation) = answer?;
    Ok((operation, sn, generation))
}

/// Waits for the answer to a request: the waiting thread receives it itself.
fn wait(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    session: Option<&Arc<Session>>,
    operation: OperationId,
) -> Result<(Sn, u64), FsError> {
    let answered = || {
        let mut inner = stripe.lock();
        let generation = inner.generation;
        inner.take_answer(operation).map(|answer| answer.map(|(_, sn)| (sn, generation)))
    };
    let lost = || FsError::ServerLost { address: client.targets[stripe.target as usize].clone() };
    // Without a session it ended while we asked.
    let answer = session.ok_or_else(lost).and_then(|session| {
        session.wait_until(client, answered).or_else(|error| {
            client.session_lost(session);
            answered().ok_or(error)
        })
    });
    answer?.map_err(|errno| match errno {
        libc::EIO => lost(),
        errno => FsError::Server { operation: "lock", errno },
    })
}

/// The stripe with a lock cache for the policy of its server: connects if there is no session, or only one that has ended.
fn with_locks<'a>(client: &ClientInner, stripe: &'a Arc<Stripe>) -> Result<MutexGuard<'a, Inner>, FsError> {
    let inner = stripe.lock();
    if inner.is_ready() {
        return Ok(inner);
    }
    drop(inner);
    let pool = client.pool()?;
    loop {
        let session = client.session(stripe.target)?;
        let mut inner = stripe.lock();
        if inner.is_ready() {
            return Ok(inner);
        }
        if session.is_dead() {
            continue; // ended since: another one
        }
        // From here on whoever ends the session finds the stripe among those that have to forget it.
        let settings = dlm::Settings {
            policy: session.policy,
            locks_max: client.config.lock_count_max,
            age_ticks_max: client.config.lock_age_max_s.div_ceil(crate::client::TICK.as_secs()),
        };
        let mut out = Outbox::default();
        inner.begin_session(stripe, pool, &session, settings, &mut out);
        drop(inner);
        client.dispatch(stripe, out);
        let inner = stripe.lock();
        if inner.is_ready() {
            return Ok(inner);
        }
    }
}
