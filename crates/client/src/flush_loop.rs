//! Flushing: one thread per session takes what the write-back rule wants sent and sends it straight from the pages.

use crate::client::ClientInner;
use crate::session::Session;
use crate::statistics::add;
use crate::stripe::{Job, Outbox, Stripe};
use ccpfs_cached_stripe::Input;
use ccpfs_types::limits::{FLUSH_BYTES_MAX, FLUSH_EXTENTS_MAX};
use ccpfs_wire::{LockRef, Message, WritePiece, encode_into};
use ccpfs_writeback::JobId;
use std::io::IoSlice;
use std::sync::{Arc, Weak};

/// Flushes of one session without an answer. With [`FLUSH_BYTES_MAX`] this bounds what a client has in the pipe.
const JOBS_MAX: usize = 8;

/// Starts a thread of the library. It takes no signals: those belong to the program.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) {
    try_spawn(name, body).expect("a client needs its threads: raise the limit on processes (ulimit -u)");
}

/// As [`spawn`], for a thread that one can do without.
///
/// # Errors
/// When the system has no thread to give.
pub(crate) fn try_spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let masked = move || {
        // SAFETY: the set is initialised by sigfillset before use; masks only this thread.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
        }
        body();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(masked).map(drop)
}

/// Puts a stripe into its session's queue, and starts the session's flush thread if need be.
pub(crate) fn schedule(client: &ClientInner, stripe: &Arc<Stripe>, urgent: bool) {
    let session = {
        let mut inner = stripe.lock();
        // Without a session nothing is left to flush. If it ends from here on, the marks go with it.
        let Some(session) = inner.live_session() else { return };
        let queued = if urgent { &mut inner.queued_urgent } else { &mut inner.queued };
        if std::mem::replace(queued, true) {
            return;
        }
        session
    };
    let start = {
        let mut flushes = session.flushes.lock().expect("no code panics under this lock");
        let queue = if urgent { &mut flushes.urgent } else { &mut flushes.normal };
        queue.push_back(Arc::clone(stripe));
        !std::mem::replace(&mut flushes.running, true)
    };
    session.flush_changed.notify_all();
    if start {
        let client = client.weak();
        spawn("ccpfs-flush", move || run(&client, &session));
    }
}

fn run(client: &Weak<ClientInner>, session: &Arc<Session>) {
    while let Some((stripe, urgent)) = next(session) {
        let Some(client) = client.upgrade() else { return };
        if flush_one(&client, session, &stripe, urgent).is_err() {
            client.session_lost(session);
            return;
        }
    }
}

/// The next stripe to flush; None when the session has ended.
fn next(session: &Session) -> Option<(Arc<Stripe>, bool)> {
    let mut flushes = session.flushes.lock().expect("no code panics under this lock");
    loop {
        if session.is_dead() {
            return None;
        }
        if flushes.jobs.len() < JOBS_MAX {
            if let Some(stripe) = flushes.urgent.pop_front() {
                return Some((stripe, true));
            }
            if let Some(stripe) = flushes.normal.pop_front() {
                return Some((stripe, false));
            }
        }
        flushes = session.flush_changed.wait(flushes).expect("no code panics under this lock");
    }
}

/// Sends one job of a stripe, and queues the stripe again if it has more.
fn flush_one(
    client: &Arc<ClientInner>,
    session: &Arc<Session>,
    stripe: &Arc<Stripe>,
    urgent: bool,
) -> Result<(), ()> {
    let mut out = Outbox::default();
    let mut runs = Vec::new();
    let (number, job, again) = {
        let mut inner = stripe.lock();
        if !inner.is_of(session) {
            return Ok(()); // the locks are those of another session by now, and so are the data
        }
        if urgent {
            inner.queued_urgent = false
        } else {
            inner.queued = false
        }
        // The number is taken under the stripe's lock, so that it is above that of every barrier set before.
        let number = client.request();
        let take = Input::Take {
            job: JobId(number.0),
            bytes_max: FLUSH_BYTES_MAX,
            pieces_max: FLUSH_EXTENTS_MAX,
            urgent_only: urgent,
        };
        let job = inner.step_for_job(stripe, client, take, &mut out);
        for (extent, _) in job.iter().flat_map(|job| &job.pieces) {
            inner.runs(client.the_pool(), *extent, &mut runs);
        }
        // What is urgent is queued again when the job has been sent.
        (out.flush, out.flush_soon) = (false, false);
        let cached = inner.cached();
        let more = cached.wants_flush() || (client.wants_room() && cached.cache().dirty_bytes() > 0);
        (number, job, more && !runs.is_empty())
    };
    client.dispatch(stripe, out);
    let Some(Job { job, pieces, releases, urgent }) = job else { return Ok(()) };
    session.flushes.lock().expect("no code panics under this lock").jobs.insert(job.0, Arc::clone(stripe));
    let resource = stripe.resource;
    let bytes: u64 = pieces.iter().map(|(extent, _)| extent.length()).sum();
    let message = Message::Write {
        request: number,
        urgent,
        pieces: pieces.iter().map(|(extent, sn)| WritePiece { resource, extent: *extent, sn: *sn }).collect(),
        releases: releases.iter().map(|lock| LockRef { resource, lock: *lock }).collect(),
    };
    add(&client.counters.bytes_flushed, bytes);
    add(&client.counters.flush_rpcs, 1);
    add(&client.counters.flush_extents, pieces.len() as u64);
    send(client, session, &message, &runs)?;
    if again {
        schedule(client, stripe, urgent);
    }
    Ok(())
}

fn send(
    client: &ClientInner,
    session: &Arc<Session>,
    message: &Message,
    runs: &[(*mut u8, usize)],
) -> Result<(), ()> {
    let (connection, opened) = session.bulk().map_err(drop)?;
    if opened {
        client.serve(session);
    }
    let mut batch = Vec::with_capacity(256);
    encode_into(message, &mut batch);
    let slices: Vec<IoSlice<'_>> = runs
        .iter()
        // SAFETY: pages with bytes in flight are not given back to the pool until the acknowledgement. Bytes that a
        // writer changes meanwhile are sent mixed under the older number; they are dirty again afterwards.
        .map(|(start, length)| IoSlice::new(unsafe { std::slice::from_raw_parts(*start, *length) }))
        .collect();
    connection.send(&batch, &slices).map_err(drop)
}
