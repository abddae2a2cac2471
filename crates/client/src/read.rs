//! Reading: lock, fetch what is missing, copy out.

use crate::client::{ClientInner, unexpected};
use crate::error::FsError;
use crate::operation::{self, Held, Operation, Wish};
use crate::session::Session;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::{Inner, Outbox, Stripe};
use ccpfs_dlm::client::Intent;
use ccpfs_types::limits::{FILE_BYTES_MAX, READ_BYTES_MAX};
use ccpfs_types::{Extent, LockMode, RequestId};
use ccpfs_wire::{Message, Status};
use ccpfs_writeback::{Input, Readable};
use std::io::IoSliceMut;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

/// A wait that is bounded only to notice a lost session.
const RECHECK: Duration = Duration::from_millis(500);

/// Reads into the buffers at `offset`, as one atomic read. `sequential` allows fetching more than asked for.
pub(crate) fn read(
    client: &ClientInner,
    file: &FileShared,
    buffers: &mut [IoSliceMut<'_>],
    offset: u64,
    sequential: bool,
) -> Result<usize, FsError> {
    let length = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
    let end = offset.saturating_add(length).min(FILE_BYTES_MAX);
    let Some(extent) = Extent::new(offset, end) else { return Ok(0) };
    // Fetched bytes land in the pages unasked by anybody else: writers of what is read ahead must wait as well.
    let layout = file.stub.layout;
    let slack = layout.stripe_bytes().saturating_mul(u64::from(layout.stripe_count()));
    let reach = if sequential {
        end.saturating_add(client.config.read_ahead_bytes).saturating_add(slack)
    } else {
        end
    };
    let _turn = file.ranges.lock(extent.hull(Extent::new(offset, reach).unwrap_or(extent)), false);
    let wish = Wish { intent: Intent::Read, extent };
    let operation = operation::begin(client, file, &wish)?;
    let read = read_locked(client, file, &operation, buffers, extent, sequential);
    operation.finish(client);
    if let Ok(read) = &read {
        add(&client.counters.bytes_read, *read as u64);
    }
    read
}

fn read_locked(
    client: &ClientInner,
    file: &FileShared,
    operation: &Operation<'_>,
    buffers: &mut [IoSliceMut<'_>],
    extent: Extent,
    sequential: bool,
) -> Result<usize, FsError> {
    let mut pinned: Vec<Pinned<'_>> = Vec::new();
    let mut size: Option<u64> = None;
    let result = (|| {
        for (stripe, held) in operation.stripes() {
            pin(client, stripe, held.extent)?;
            pinned.push(Pinned { stripe, held });
            let ahead = if sequential { client.config.read_ahead_bytes } else { 0 };
            let ahead = ahead / u64::from(file.stub.layout.stripe_count());
            if fill(client, stripe, held, ahead)? {
                continue;
            }
            // Bytes beyond the stripe's end: zeros up to the file's size, which other stripes and clients decide.
            let bytes = match size {
                Some(bytes) => bytes,
                None => *size.insert(file.attributes(client)?.size),
            };
            zero(client, stripe, held, file.stub.layout.stripe_length(stripe.resource.stripe, bytes));
        }
        let end = size.map_or(extent.end(), |size| size.min(extent.end()));
        match Extent::new(extent.start(), end) {
            Some(extent) => copy_out(client, file, &pinned, buffers, extent),
            None => Ok(0),
        }
    })();
    for Pinned { stripe, held } in &pinned {
        let mut inner = stripe.lock();
        inner.doubt(held.extent);
        inner.unpin(client.the_pool(), held.extent);
    }
    result
}

/// A stripe's part of the read, with its pages pinned.
struct Pinned<'a> {
    stripe: &'a Arc<Stripe>,
    held: &'a Held,
}

fn pin(client: &ClientInner, stripe: &Arc<Stripe>, extent: Extent) -> Result<(), FsError> {
    loop {
        let mut runs = Vec::new();
        let pinned = stripe.lock().pin(client.the_pool(), extent, &mut runs);
        match pinned {
            Ok(()) => return Ok(()),
            Err(pages) => client.make_room(pages)?,
        }
    }
}

fn lost(client: &ClientInner, stripe: &Stripe) -> FsError {
    FsError::ServerLost { address: client.targets[stripe.target as usize].clone() }
}

/// Fetches what is missing. True if all bytes are there now, false if the stripe ended before.
fn fill(client: &ClientInner, stripe: &Arc<Stripe>, held: &Held, ahead: u64) -> Result<bool, FsError> {
    let inner = stripe.lock();
    let (inner, missing) = wait_readable(client, stripe, held, inner)?;
    if missing.is_empty() {
        return Ok(true);
    }
    let wanted = with_read_ahead(&inner, held.extent, missing, ahead);
    drop(inner);
    let session = client.session(stripe.target)?;
    let mut requests: Vec<Fetch> = Vec::new();
    let mut failed = None;
    for extent in wanted.iter().flat_map(|extent| split(*extent)) {
        match send_fetch(client, stripe, &session, extent, !held.extent.contains(extent)) {
            Ok(Some(fetch)) => requests.push(fetch),
            Ok(None) => {}
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    let mut complete = true;
    for fetch in requests {
        match finish_fetch(client, stripe, &session, held, &fetch) {
            Ok(whole) => complete &= whole || !held.extent.contains(fetch.extent),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(complete),
    }
}

/// What is missing of the extent, once nothing of it is on its way out under an older lock.
fn wait_readable<'a>(
    client: &ClientInner,
    stripe: &'a Arc<Stripe>,
    held: &Held,
    mut inner: MutexGuard<'a, Inner>,
) -> Result<(MutexGuard<'a, Inner>, Vec<Extent>), FsError> {
    loop {
        if inner.generation != held.generation {
            return Err(lost(client, stripe));
        }
        match inner.cache.readable(held.extent) {
            Readable::All => return Ok((inner, Vec::new())),
            Readable::Missing(missing) => return Ok((inner, missing)),
            Readable::Wait => {
                inner = stripe.changed.wait_timeout(inner, RECHECK).expect("a rule's invariant was broken").0;
            }
        }
    }
}

/// The missing parts and, behind the last of them, as much as a sequential reader will want next and our lock covers.
fn with_read_ahead(inner: &Inner, extent: Extent, mut missing: Vec<Extent>, ahead: u64) -> Vec<Extent> {
    let next = Extent::with_length(extent.end(), ahead);
    if let Some(next) = next.filter(|next| next.end() < FILE_BYTES_MAX)
        && inner.locks.as_ref().is_some_and(|locks| locks.covers(LockMode::Pr, &next.into()))
        && let Readable::Missing(more) = inner.cache.readable(next)
    {
        missing.extend(more);
    }
    missing
}

/// Parts that one request can carry.
fn split(extent: Extent) -> impl Iterator<Item = Extent> {
    let count = extent.length().div_ceil(READ_BYTES_MAX);
    (0..count).map(move |index| {
        let start = extent.start() + index * READ_BYTES_MAX;
        Extent::new(start, (start + READ_BYTES_MAX).min(extent.end())).expect("within the extent")
    })
}

/// A request for data under way.
struct Fetch {
    extent: Extent,
    request: RequestId,
    /// Whether the pages were pinned for this fetch alone.
    own_pins: bool,
}

/// Asks for data; the pages they go to are pinned. None if there is no room for reading ahead.
fn send_fetch(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    session: &Arc<Session>,
    extent: Extent,
    ahead: bool,
) -> Result<Option<Fetch>, FsError> {
    let mut runs = Vec::new();
    {
        let mut inner = stripe.lock();
        if ahead {
            if inner.pin(client.the_pool(), extent, &mut runs).is_err() {
                return Ok(None);
            }
        } else {
            inner.runs(client.the_pool(), extent, &mut runs);
        }
    }
    let request = client.request();
    let message = Message::Read { request, resource: stripe.resource, extent };
    add(&client.counters.read_rpcs, 1);
    match session.send_request(request, &message, runs) {
        Ok(()) => Ok(Some(Fetch { extent, request, own_pins: ahead })),
        Err(error) => {
            if ahead {
                unpin(client, stripe, extent);
            }
            Err(error)
        }
    }
}

fn unpin(client: &ClientInner, stripe: &Arc<Stripe>, extent: Extent) {
    let mut inner = stripe.lock();
    inner.doubt(extent);
    inner.unpin(client.the_pool(), extent);
}

/// Takes the answer to a fetch. True if it brought all bytes.
fn finish_fetch(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    session: &Arc<Session>,
    held: &Held,
    fetch: &Fetch,
) -> Result<bool, FsError> {
    let answer = client.wait_reply(session, fetch.request);
    let result = match answer {
        Ok((Message::ReadReply { status: Status::Ok, .. }, bytes)) => {
            add(&client.counters.bytes_fetched, bytes as u64);
            fetched(client, stripe, held, fetch.extent, bytes as u64)
        }
        Ok((Message::ReadReply { status: Status::Errno(errno), .. }, _)) => {
            Err(FsError::Server { operation: "read", errno })
        }
        Ok((other, _)) => Err(unexpected(&other)),
        Err(error) => Err(error),
    };
    if fetch.own_pins {
        unpin(client, stripe, fetch.extent);
    }
    result
}

/// Marks fetched bytes valid. True if they are all of the extent.
fn fetched(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    held: &Held,
    extent: Extent,
    bytes: u64,
) -> Result<bool, FsError> {
    let mut out = Outbox::default();
    let mut inner = stripe.lock();
    if inner.generation != held.generation {
        return Err(lost(client, stripe));
    }
    // What was read ahead is valid only if a lock still covers it; our own part is under the lock in use.
    let ours = held.extent.contains(extent)
        || inner.locks.as_ref().is_some_and(|locks| locks.covers(LockMode::Pr, &extent.into()));
    if let Some(extent) = Extent::with_length(extent.start(), bytes.min(extent.length())).filter(|_| ours) {
        inner.step_cache(stripe, client.the_pool(), Input::Fetched { extent, sn: held.sn }, &mut out);
    }
    drop(inner);
    client.dispatch(stripe, out);
    Ok(bytes >= extent.length())
}

/// Fills the missing bytes below `length` with zeros: a hole of the file.
fn zero(client: &ClientInner, stripe: &Arc<Stripe>, held: &Held, length: u64) {
    let Some(hole) = Extent::new(held.extent.start(), held.extent.end().min(length)) else { return };
    let mut out = Outbox::default();
    let mut inner = stripe.lock();
    if let Readable::Missing(missing) = inner.cache.readable(hole) {
        for extent in missing {
            let mut runs = Vec::new();
            inner.runs(client.the_pool(), extent, &mut runs);
            for (start, length) in runs {
                // SAFETY: pinned pages; the bytes are not valid, so nobody reads them, and our range lock keeps writers out.
                unsafe { std::ptr::write_bytes(start, 0, length) };
            }
            inner.step_cache(stripe, client.the_pool(), Input::Fetched { extent, sn: held.sn }, &mut out);
        }
    }
    drop(inner);
    client.dispatch(stripe, out);
}

fn copy_out(
    client: &ClientInner,
    file: &FileShared,
    pinned: &[Pinned<'_>],
    buffers: &mut [IoSliceMut<'_>],
    extent: Extent,
) -> Result<usize, FsError> {
    let mut sink = Sink { buffers, first: 0, filled: 0 };
    for piece in file.stub.layout.pieces(extent) {
        let place =
            pinned.iter().find(|p| p.stripe.resource.stripe == piece.stripe).expect("every piece is pinned");
        let mut runs = Vec::new();
        let inner = place.stripe.lock();
        if inner.generation != place.held.generation {
            return Err(lost(client, place.stripe));
        }
        inner.runs(client.the_pool(), piece.extent, &mut runs);
        drop(inner);
        runs.into_iter().for_each(|run| sink.copy_from(run));
    }
    Ok(usize::try_from(extent.length()).expect("a read is no longer than its buffers"))
}

/// The caller's buffers, filled from front to back.
struct Sink<'a, 'b> {
    buffers: &'a mut [IoSliceMut<'b>],
    first: usize,
    filled: usize,
}

impl Sink<'_, '_> {
    fn copy_from(&mut self, (from, length): (*mut u8, usize)) {
        let mut done = 0;
        while done < length {
            let buffer = &mut self.buffers[self.first][self.filled..];
            let count = buffer.len().min(length - done);
            // SAFETY: `from` is pinned memory of at least `length` bytes which no operation of this process writes
            // (range lock), and which cannot overlap a caller's buffer.
            unsafe { std::ptr::copy_nonoverlapping(from.add(done), buffer.as_mut_ptr(), count) };
            done += count;
            self.filled += count;
            if self.filled == self.buffers[self.first].len() {
                self.first += 1;
                self.filled = 0;
            }
        }
    }
}
