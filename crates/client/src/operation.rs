//! One read, write, append or truncate: its locks, taken in stripe order and held together (I5).

use crate::client::ClientInner;
use crate::error::FsError;
use crate::foresight::Foresight;
use crate::range_lock::RangeGuard;
use crate::session::Session;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::{Answer, Inner, Outbox, Stripe, local, to_eof};
use ccpfs_cached_stripe::{Input, PUT_OFF_MAX, Settings};
use ccpfs_dlm::client::{self as dlm, Intent, least_restrictive};
use ccpfs_region::Region;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, GroupId, Layout, LockMode, OperationId, Terms};
use std::sync::{Arc, MutexGuard};
use std::time::Instant;

/// What an operation needs locked.
pub(crate) struct Wish<'w> {
    pub(crate) intent: Intent,
    /// Bytes of the file.
    pub(crate) extent: Extent,
    /// Who may know what will be wanted next; if nobody does, all that follows.
    pub(crate) foresight: Option<&'w Foresight>,
    /// Bytes behind it that will be fetched along with it, with what lies between: if a lock must be asked for, those are needed too. A
    /// reader at small distances would otherwise ask for each piece where others have locks on what lies between.
    pub(crate) along_bytes: u64,
}

impl Wish<'_> {
    /// A wish of somebody who does not look ahead.
    pub(crate) fn new(intent: Intent, extent: Extent) -> Wish<'static> {
        Wish { intent, extent, foresight: None, along_bytes: 0 }
    }
}

/// An operation that holds its locks. Must be ended by [`Operation::finish`], or by finishing each stripe.
pub(crate) struct Operation<'a> {
    held: Vec<(&'a Arc<Stripe>, OperationId)>,
}

impl<'a> Operation<'a> {
    /// The stripes, in order, with the number under which the operation uses a lock of each.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = (&'a Arc<Stripe>, OperationId)> {
        self.held.iter().copied()
    }

    /// An operation whose locks have these numbers.
    pub(crate) fn of(held: impl Iterator<Item = (&'a Arc<Stripe>, OperationId)>) -> Operation<'a> {
        Operation { held: held.collect() }
    }

    /// Begins an operation on a part of what this one has locked, under the same locks: it is a part of this one, and waits for no
    /// lock.
    pub(crate) fn join(
        &self,
        client: &ClientInner,
        layout: Layout,
        extent: Extent,
        writes: bool,
    ) -> Result<Operation<'a>, FsError> {
        let mut joined = Operation { held: Vec::with_capacity(self.held.len()) };
        for (stripe, under) in self.stripes() {
            if local(layout, stripe, extent).is_none() {
                continue;
            }
            let operation = client.operation();
            match stripe.ask(client, operation, Input::Join { operation, under, writes }) {
                Answer::Lock(Ok(_)) => joined.held.push((stripe, operation)),
                Answer::Lock(Err(_))
                | Answer::Missing(_)
                | Answer::Ask(_)
                | Answer::Measured(..)
                | Answer::Void => {
                    joined.finish(client);
                    return Err(lost(client, stripe));
                }
            }
        }
        Ok(joined)
    }

    /// Ends the use of all locks.
    pub(crate) fn finish(self, client: &ClientInner) {
        for (stripe, held) in self.held {
            let mut out = Outbox::default();
            end_use(client, stripe, &mut stripe.lock(), held, &mut out);
            client.dispatch(stripe, out);
        }
    }
}

/// Ends the use of one lock, under the stripe's mutex.
pub(crate) fn end_use(
    client: &ClientInner,
    stripe: &Stripe,
    inner: &mut Inner,
    operation: OperationId,
    out: &mut Outbox,
) {
    inner.step(stripe, client, Input::Finish { operation }, out);
}

/// Takes the locks of an operation whose turn it is, and then waits for what holds do just now to the same bytes.
pub(crate) fn begin<'a>(
    client: &ClientInner,
    file: &'a FileShared,
    turn: &mut RangeGuard<'_>,
    wish: &Wish<'_>,
) -> Result<Operation<'a>, FsError> {
    let (operation, ()) = begin_after(client, file, turn, wish, |_| ())?;
    Ok(operation)
}

/// As [`begin`], for an operation that changes bytes: `before` is called in between, with the locks and whether there are holds of the file,
/// whose pages it may make go; it waits for nothing but what is done beneath holds.
pub(crate) fn begin_after<'a, G>(
    client: &ClientInner,
    file: &'a FileShared,
    turn: &mut RangeGuard<'_>,
    wish: &Wish<'_>,
    before: impl FnOnce(bool) -> G,
) -> Result<(Operation<'a>, G), FsError> {
    let operation = lock(client, file, wish)?;
    let kept = before(turn.is_beside_holds());
    turn.run();
    Ok((operation, kept))
}

/// Takes the locks of an operation in stripe order, waiting where others hold them.
//= protocol.md#I5
pub(crate) fn lock<'a>(
    client: &ClientInner,
    file: &'a FileShared,
    wish: &Wish<'_>,
) -> Result<Operation<'a>, FsError> {
    let layout = file.stub.layout;
    let parts: Vec<(u32, Extent)> = layout.stripe_hulls(wish.extent).collect();
    let mode = match (client.config.force_write_mode, wish.intent) {
        (Some(mode), Intent::Write) => mode,
        (Some(_) | None, intent) => {
            // Operations that go on like this one would each have their own mode, and ask for the same bytes twice.
            let several = parts.len() == 1 && wish.foresight.is_some_and(|seen| seen.crosses_stripes(layout));
            least_restrictive(intent, parts.len() + usize::from(several))
        }
    };
    let group = file.group.present(client, file)?;
    let mut operation = Operation { held: Vec::with_capacity(parts.len()) };
    for (index, extent) in parts {
        let stripe = &file.stripes[index as usize];
        let (required, foresight) = match client.config.lock_whole {
            true => (Extent::WHOLE, None),
            false => (extent, wish.foresight),
        };
        let required = along(stripe, (mode, group), required, wish.along_bytes);
        match acquire(client, (stripe, layout), (mode, group), required, foresight) {
            Ok(id) => operation.held.push((stripe, id)),
            Err(error) => {
                operation.finish(client);
                return Err(error);
            }
        }
    }
    Ok(operation)
}

/// What an operation asks for that wants some bytes behind `extent` along with it: just that if there is a lock for it.
fn along(stripe: &Stripe, (mode, group): (LockMode, GroupId), extent: Extent, along_bytes: u64) -> Extent {
    let end = extent.end().saturating_add(along_bytes);
    let covered = || stripe.lock().cached().covers(mode, &extent.into(), group);
    if along_bytes == 0 || end > FILE_BYTES_MAX || covered() {
        return extent;
    }
    Extent::new(extent.start(), end).unwrap_or(extent)
}

/// Begins the use of one lock of as much as follows, or as is desired.
fn acquire(
    client: &ClientInner,
    (stripe, layout): (&Arc<Stripe>, Layout),
    (mode, group): (LockMode, GroupId),
    extent: Extent,
    foresight: Option<&Foresight>,
) -> Result<OperationId, FsError> {
    let desired = |inner: &Inner| {
        if foresight.is_some_and(Foresight::is_exact) {
            return None;
        }
        let seen = foresight
            .filter(|foresight| foresight.is_sure() && !inner.cached().covers(mode, &extent.into(), group))
            .and_then(|foresight| foresight.desired(layout, stripe.resource.stripe, extent));
        Some(seen.unwrap_or_else(|| to_eof(extent)))
    };
    let terms = Terms { group, ..Terms::WAIT };
    let started = start_lock(client, stripe, mode, (extent.into(), desired), terms)?;
    await_lock(client, stripe, started)
}

/// An operation that has its lock, or waits for the answer to a request for it.
pub(crate) struct Started {
    operation: OperationId,
    /// None: it has it.
    request: Option<Asked>,
}

struct Asked {
    /// None: the session ended while we asked.
    session: Option<Arc<Session>>,
    began: Instant,
}

/// Begins the use of one lock, or asks for it; then [`await_lock`]. Beyond what is required, what `desired` says is asked for.
pub(crate) fn start_lock(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    mode: LockMode,
    (required, desired): (Region, impl FnOnce(&Inner) -> Option<Region>),
    terms: Terms,
) -> Result<Started, FsError> {
    let operation = client.operation();
    let mut out = Outbox::default();
    let mut inner = with_locks(client, stripe)?;
    if inner.speculates() && !inner.cached().covers(mode, &required, terms.group) {
        drop(inner);
        await_speculations(client, stripe);
        inner = with_locks(client, stripe)?;
    }
    let desired = desired(&inner).unwrap_or_else(|| required.clone());
    let input = Input::Acquire { operation, mode, required, desired, request: client.request(), terms };
    inner.step(stripe, client, input, &mut out);
    if let Some(Answer::Lock(answer)) = inner.take_answer(operation) {
        drop(inner);
        add(&client.counters.lock_hits, 1);
        answer.map_err(|errno| FsError::Server { operation: "lock", errno })?;
        return Ok(Started { operation, request: None });
    }
    let session = inner.live_session();
    drop(inner);
    let began = Instant::now();
    client.dispatch(stripe, out);
    Ok(Started { operation, request: Some(Asked { session, began }) })
}

/// Bytes whose multiples locks of a stripe begin and end at, as the policy of its server says. Connects if there is no session.
pub(crate) fn granularity(client: &ClientInner, stripe: &Arc<Stripe>) -> Result<u64, FsError> {
    let inner = with_locks(client, stripe)?;
    Ok(inner.live_session().map_or(1, |session| session.policy.granularity_bytes.into()))
}

/// Waits until the server has said of all locks that were asked for ahead whether they are granted: at once, it waits for nobody.
pub(crate) fn await_speculations(client: &ClientInner, stripe: &Arc<Stripe>) {
    let Some(session) = stripe.lock().live_session() else { return };
    let answered = || (!stripe.lock().speculates()).then_some(());
    if session.wait_until(client, answered).is_err() {
        client.session_lost(&session);
    }
}

/// Waits for the lock of an operation; the stripe's mutex is free meanwhile. EAGAIN if it was only to be tried.
pub(crate) fn await_lock(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    started: Started,
) -> Result<OperationId, FsError> {
    let Started { operation, request } = started;
    let Some(Asked { session, began }) = request else { return Ok(operation) };
    let answer = wait(client, stripe, session.as_ref(), operation);
    add(&client.counters.lock_wait_ns, u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
    answer.map(|()| operation)
}

/// Waits for the answer to a request: the waiting thread receives it itself.
fn wait(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    session: Option<&Arc<Session>>,
    operation: OperationId,
) -> Result<(), FsError> {
    let answered = || match stripe.lock().take_answer(operation)? {
        Answer::Lock(answer) => Some(answer.map(drop)),
        Answer::Missing(_) | Answer::Ask(_) | Answer::Measured(..) | Answer::Void => None,
    };
    let lost = || lost(client, stripe);
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

pub(crate) fn lost(client: &ClientInner, stripe: &Stripe) -> FsError {
    FsError::ServerLost { address: client.targets[stripe.target as usize].clone() }
}

/// The stripe with a lock cache for the policy of its server: connects if there is no session, or only one that has ended.
pub(crate) fn with_locks<'a>(
    client: &ClientInner,
    stripe: &'a Arc<Stripe>,
) -> Result<MutexGuard<'a, Inner>, FsError> {
    let inner = stripe.lock();
    if inner.is_ready() {
        return Ok(inner);
    }
    drop(inner);
    client.pool()?;
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
        let locks = dlm::Settings {
            policy: session.policy,
            locks_max: client.config.lock_count_max,
            age_ticks_max: client.config.lock_age_max_s.div_ceil(crate::client::TICK.as_secs()),
        };
        let settings = Settings { locks, put_off_max: PUT_OFF_MAX, epoch: session.epoch };
        let mut out = Outbox::default();
        inner.begin_session(stripe, client, &session, settings, &mut out);
        drop(inner);
        client.dispatch(stripe, out);
        let inner = stripe.lock();
        if inner.is_ready() {
            return Ok(inner);
        }
    }
}
