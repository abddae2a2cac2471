//! Reading: lock, fetch what is missing, copy out.

use crate::client::{ClientInner, unexpected};
use crate::error::FsError;
use crate::foresight::Foresight;
use crate::operation::{self, Operation, Wish};
use crate::reserve::Reservation;
use crate::session::Session;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::{Answer, Outbox, Stripe, local};
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::Intent;
use ccpfs_types::limits::{FILE_BYTES_MAX, READ_BYTES_MAX};
use ccpfs_types::{Extent, Layout, OperationId, RequestId};
use ccpfs_wire::{Message, Status};
use ccpfs_writeback::Readable;
use std::io::IoSliceMut;
use std::sync::Arc;

/// Reads into the buffers at `offset`, as one atomic read. As much as `ahead_bytes` more than asked for may be fetched behind it.
pub(crate) fn read(
    client: &ClientInner,
    file: &FileShared,
    buffers: &mut [IoSliceMut<'_>],
    offset: u64,
    (ahead_bytes, foresight): (u64, &Foresight),
) -> Result<usize, FsError> {
    let length = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
    let end = offset.saturating_add(length).min(FILE_BYTES_MAX);
    let Some(extent) = Extent::new(offset, end) else { return Ok(0) };
    foresight.saw(extent);
    // Fetched bytes land in the pages unasked by anybody else: writers of what is read ahead must wait as well.
    let layout = file.stub.layout;
    let slack = layout.stripe_bytes().saturating_mul(u64::from(layout.stripe_count()));
    let reach = if ahead_bytes > 0 { end.saturating_add(ahead_bytes).saturating_add(slack) } else { end };
    let reservation = client.reserve(layout, extent.length())?;
    let mut turn = file.ranges.lock(extent.hull(Extent::new(offset, reach).unwrap_or(extent)), false);
    // Who reads ahead wants what lies between as well.
    let along = ahead_bytes > 0 && foresight.is_sure() && !foresight.is_exact();
    let along_bytes = if along { ahead_bytes / u64::from(layout.stripe_count()) } else { 0 };
    let foresight = Some(foresight).filter(|foresight| ahead_bytes == 0 || foresight.is_exact());
    let wish = Wish { foresight, along_bytes, ..Wish::new(Intent::Read, extent) };
    let operation = operation::begin(client, file, &mut turn, &wish)?;
    copy_all_out(client, file, operation, &reservation, buffers, (extent, ahead_bytes))
}

/// Reads into the buffers from the beginning of `extent`, which is as long as they are, under locks that a hold has.
pub(crate) fn read_held(
    client: &ClientInner,
    file: &FileShared,
    hold: &Operation<'_>,
    buffers: &mut [IoSliceMut<'_>],
    extent: Extent,
) -> Result<usize, FsError> {
    let reservation = client.reserve_held(file.stub.layout, extent.length())?;
    let _turn = file.ranges.beneath(extent, false);
    let operation = hold.join(client, file.stub.layout, extent, false)?;
    copy_all_out(client, file, operation, &reservation, buffers, (extent, 0))
}

/// Reads what an operation has locked and ends the operation. Returns the number of bytes before the end of the file.
fn copy_all_out(
    client: &ClientInner,
    file: &FileShared,
    operation: Operation<'_>,
    reservation: &Reservation<'_>,
    buffers: &mut [IoSliceMut<'_>],
    (extent, ahead_bytes): (Extent, u64),
) -> Result<usize, FsError> {
    let mut sink = Sink { buffers, first: 0, filled: 0 };
    let mut size = None;
    let mut read = Ok(0);
    for chunk in reservation.chunks(extent) {
        let ahead = if chunk.end() == extent.end() { ahead_bytes } else { 0 };
        match read_chunk(client, file, &operation, &mut sink, chunk, ahead, &mut size) {
            Ok(bytes) => read = read.map(|before| before + bytes),
            Err(error) => read = Err(error),
        }
        if read.is_err() || size.is_some_and(|size| size <= chunk.end()) {
            break;
        }
    }
    operation.finish(client);
    if let Ok(read) = &read {
        add(&client.counters.bytes_read, *read as u64);
    }
    read
}

/// Reads a part of what is locked. `size` is the file's, once it has been needed: with the locks held, it stays true for the
/// bytes that they cover.
fn read_chunk(
    client: &ClientInner,
    file: &FileShared,
    operation: &Operation<'_>,
    sink: &mut Sink<'_, '_>,
    extent: Extent,
    ahead_bytes: u64,
    size: &mut Option<u64>,
) -> Result<usize, FsError> {
    let layout = file.stub.layout;
    let mut pinned: Vec<Place<'_>> = Vec::new();
    let result = (|| {
        for (stripe, operation) in operation.stripes() {
            let Some(part) = local(layout, stripe, extent) else { continue };
            let place = Place { stripe, operation, extent: part };
            pin(client, stripe, part)?;
            pinned.push(place);
            let ahead = ahead_bytes / u64::from(layout.stripe_count());
            let left_out = fill(client, &place, ahead)?;
            if left_out.is_empty() {
                continue;
            }
            // Bytes beyond the stripe's end: zeros up to the file's size, which other stripes and clients decide.
            let bytes = match *size {
                Some(bytes) => bytes,
                None => *size.insert(file.attributes(client)?.size),
            };
            zero(client, &place, &left_out, layout.stripe_length(stripe.resource.stripe, bytes))?;
        }
        let end = size.map_or(extent.end(), |size| size.min(extent.end()));
        match Extent::new(extent.start(), end) {
            Some(extent) => copy_out(client, layout, &pinned, sink, extent),
            None => Ok(0),
        }
    })();
    let mut still_ours = true;
    for Place { stripe, operation, extent } in &pinned {
        let mut inner = stripe.lock();
        still_ours &= inner.cached().holds(*operation);
        inner.doubt(*extent);
        inner.unpin(client.the_pool(), *extent);
    }
    match pinned.first() {
        // Another reader may have fetched something newer into the pages while we copied.
        Some(place) if !still_ours => result.and(Err(lost(client, place.stripe))),
        Some(_) | None => result,
    }
}

/// The bytes of a stripe that a part of a read is about, with their pages pinned.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) stripe: &'a Arc<Stripe>,
    pub(crate) operation: OperationId,
    pub(crate) extent: Extent,
}

pub(crate) fn pin(client: &ClientInner, stripe: &Arc<Stripe>, extent: Extent) -> Result<(), FsError> {
    loop {
        let mut runs = Vec::new();
        let pinned = stripe.lock().pin(client.the_pool(), extent, &mut runs);
        match pinned {
            Ok(()) => return Ok(()),
            Err(pages) => client.make_room(pages)?,
        }
    }
}

pub(crate) fn lost(client: &ClientInner, stripe: &Stripe) -> FsError {
    FsError::ServerLost { address: client.targets[stripe.target as usize].clone() }
}

/// Fetches what is missing. Returns the bytes that the server left out because the stripe ended before them.
fn fill(client: &ClientInner, place: &Place<'_>, ahead_bytes: u64) -> Result<Vec<Extent>, FsError> {
    let Place { stripe, operation, extent } = *place;
    let look = Input::Look { operation, extent, ahead_bytes };
    let Answer::Missing(wanted) = stripe.ask(client, operation, look) else {
        return Err(lost(client, stripe));
    };
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    // Only over the session that the lock is from: under another one nobody is kept from writing.
    let session = {
        let inner = stripe.lock();
        inner
            .live_session()
            .filter(|_| inner.cached().holds(operation))
            .ok_or_else(|| lost(client, stripe))?
    };
    let mut requests: Vec<Fetch> = Vec::new();
    let mut failed = None;
    for extent in wanted.iter().flat_map(|extent| split(*extent)) {
        match send_fetch(client, stripe, &session, extent, !place.extent.contains(extent)) {
            Ok(Some(fetch)) => requests.push(fetch),
            Ok(None) => {}
            Err(error) => {
                client.session_lost(&session);
                failed = Some(error);
                break;
            }
        }
    }
    let mut left_out = Vec::new();
    for fetch in requests {
        match finish_fetch(client, place, &session, &fetch) {
            Ok(rest) => left_out.extend(rest.filter(|_| place.extent.contains(fetch.extent))),
            Err(error) => failed = Some(error),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(left_out),
    }
}

/// Parts that one request can carry.
pub(crate) fn split(extent: Extent) -> impl Iterator<Item = Extent> {
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

/// Takes the answer to a fetch. Returns the bytes that it did not bring.
fn finish_fetch(
    client: &ClientInner,
    place: &Place<'_>,
    session: &Arc<Session>,
    fetch: &Fetch,
) -> Result<Option<Extent>, FsError> {
    let answer = client.wait_reply(session, fetch.request);
    let result = match answer {
        Ok((Message::ReadReply { status: Status::Ok, .. }, bytes)) => {
            add(&client.counters.bytes_fetched, bytes as u64);
            fetched(client, place, fetch.extent, bytes as u64)
        }
        Ok((Message::ReadReply { status: Status::Errno(errno), .. }, _)) => {
            Err(FsError::Server { operation: "read", errno })
        }
        Ok((other, _)) => Err(unexpected(&other)),
        Err(error) => Err(error),
    };
    if fetch.own_pins {
        unpin(client, place.stripe, fetch.extent);
    }
    result
}

/// Marks fetched bytes valid: our lock covers them since before they were asked for. Returns those that did not come.
fn fetched(
    client: &ClientInner,
    place: &Place<'_>,
    extent: Extent,
    bytes: u64,
) -> Result<Option<Extent>, FsError> {
    let Place { stripe, operation, .. } = *place;
    let mut out = Outbox::default();
    let mut inner = stripe.lock();
    let bytes = bytes.min(extent.length());
    let got = Extent::with_length(extent.start(), bytes);
    let ours = match got.map(|extent| Input::Fetched { operation, extent }) {
        Some(fetched) => inner.mark(stripe, client, (operation, fetched), &mut out),
        None => inner.cached().holds(operation),
    };
    drop(inner);
    client.dispatch(stripe, out);
    if ours { Ok(Extent::new(extent.start() + bytes, extent.end())) } else { Err(lost(client, stripe)) }
}

/// Fills with zeros what the server left out below `length`: a hole of the file. Never what is merely missing by now: that may
/// be data which were fetched, and forgotten with another lock of ours while the size was asked for; they are in the pages.
pub(crate) fn zero(
    client: &ClientInner,
    place: &Place<'_>,
    left_out: &[Extent],
    length: u64,
) -> Result<(), FsError> {
    let Place { stripe, operation, .. } = *place;
    let mut out = Outbox::default();
    let mut inner = stripe.lock();
    if !inner.cached().holds(operation) {
        return Err(lost(client, stripe));
    }
    for rest in left_out {
        let Some(hole) = Extent::new(rest.start(), rest.end().min(length)) else { continue };
        let Readable::Missing(missing) = inner.cached().cache().readable(hole) else { continue };
        for extent in missing {
            let mut runs = Vec::new();
            inner.runs(client.the_pool(), extent, &mut runs);
            for (start, length) in runs {
                // SAFETY: pinned pages; the bytes are not valid, so nobody reads them, and our range lock keeps writers out.
                unsafe { std::ptr::write_bytes(start, 0, length) };
            }
            inner.step(stripe, client, Input::Fetched { operation, extent }, &mut out);
        }
    }
    drop(inner);
    client.dispatch(stripe, out);
    Ok(())
}

fn copy_out(
    client: &ClientInner,
    layout: Layout,
    pinned: &[Place<'_>],
    sink: &mut Sink<'_, '_>,
    extent: Extent,
) -> Result<usize, FsError> {
    for piece in layout.pieces(extent) {
        let place =
            pinned.iter().find(|p| p.stripe.resource.stripe == piece.stripe).expect("every piece is pinned");
        let mut runs = Vec::new();
        let inner = place.stripe.lock();
        if !inner.cached().holds(place.operation) {
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
