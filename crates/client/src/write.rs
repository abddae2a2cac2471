//! Writing: lock, copy into the pages, mark dirty.

use crate::client::ClientInner;
use crate::error::FsError;
use crate::foresight::Foresight;
use crate::operation::{self, Operation, Wish, end_use};
use crate::reserve::Reservation;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::{Outbox, Stripe, local};
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::Intent;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, Layout};
use std::io::IoSlice;
use std::sync::Arc;

/// Writes all buffers at `offset`, as one atomic write; `before`: see [`File::write_at_after`](crate::File::write_at_after).
pub(crate) fn write<G>(
    client: &ClientInner,
    file: &FileShared,
    (buffers, offset): (&[IoSlice<'_>], u64),
    foresight: &Foresight,
    before: impl FnOnce(Extent) -> G,
) -> Result<usize, FsError> {
    let length = total(buffers)?;
    let Some(extent) = range(offset, length as u64)? else { return Ok(0) };
    foresight.saw(extent);
    client.wait_for_budget()?;
    let reservation = client.reserve(file.stub.layout, extent.length())?;
    let mut turn = file.ranges.lock(extent, true);
    let wish = Wish { foresight: Some(foresight), ..Wish::new(Intent::Write, extent) };
    let before = |beside: bool| beside.then(|| before(extent));
    let (operation, _kept) = operation::begin_after(client, file, &mut turn, &wish, before)?;
    copy_in(client, file, operation, &reservation, buffers, extent)
}

/// Writes all buffers at the end of the file; returns the new end.
pub(crate) fn append<G>(
    client: &ClientInner,
    file: &FileShared,
    buffers: &[IoSlice<'_>],
    before: impl FnOnce(Extent) -> G,
) -> Result<u64, FsError> {
    let length = total(buffers)?;
    if length == 0 {
        return Ok(file.attributes(client)?.size);
    }
    client.wait_for_budget()?;
    let reservation = client.reserve(file.stub.layout, length as u64)?;
    let mut turn = file.ranges.lock(Extent::WHOLE, true);
    let wish = Wish::new(Intent::ReadThenWrite, Extent::WHOLE);
    let operation = operation::lock(client, file, &wish)?;
    // Nobody else can write now: the size stays what it is until we have written.
    let size = match file.attributes(client) {
        Ok(attributes) => attributes.size,
        Err(error) => {
            operation.finish(client);
            return Err(error);
        }
    };
    match range(size, length as u64) {
        Ok(Some(extent)) => {
            let _kept = turn.is_beside_holds().then(|| before(extent));
            turn.run();
            let written = copy_in(client, file, operation, &reservation, buffers, extent)?;
            Ok(extent.start() + written as u64)
        }
        Ok(None) => {
            operation.finish(client);
            Ok(size)
        }
        Err(error) => {
            operation.finish(client);
            Err(error)
        }
    }
}

/// Writes all buffers at the beginning of `extent`, which is as long as they are, under locks that a hold has.
pub(crate) fn write_held(
    client: &ClientInner,
    file: &FileShared,
    hold: &Operation<'_>,
    buffers: &[IoSlice<'_>],
    extent: Extent,
) -> Result<usize, FsError> {
    let reservation = client.reserve_held(file.stub.layout, extent.length())?;
    let _turn = file.ranges.beneath(extent, true);
    let operation = hold.join(client, file.stub.layout, extent, true)?;
    copy_in(client, file, operation, &reservation, buffers, extent)
}

pub(crate) fn total(buffers: &[IoSlice<'_>]) -> Result<usize, FsError> {
    let length = buffers.iter().try_fold(0_usize, |sum, buffer| sum.checked_add(buffer.len()));
    length
        .filter(|length| isize::try_from(*length).is_ok())
        .ok_or(FsError::argument("the buffers are longer than one call can write", libc::EINVAL))
}

fn range(offset: u64, length: u64) -> Result<Option<Extent>, FsError> {
    match offset.checked_add(length) {
        Some(end) if end <= FILE_BYTES_MAX => Ok(Extent::new(offset, end)),
        Some(_) | None => Err(FsError::argument("the write ends beyond the largest file", libc::EFBIG)),
    }
}

/// Copies the buffers into the pages of all stripes, marks them dirty and ends the operation. Returns the number of bytes written:
/// fewer than all only if an operation larger than half of the cache meets an error on its way.
fn copy_in(
    client: &ClientInner,
    file: &FileShared,
    operation: Operation<'_>,
    reservation: &Reservation<'_>,
    buffers: &[IoSlice<'_>],
    extent: Extent,
) -> Result<usize, FsError> {
    let layout = file.stub.layout;
    let mut source = Source::new(buffers);
    let mut written = 0;
    for chunk in reservation.chunks(extent) {
        let committed = pin_all(client, layout, &operation, chunk).and_then(|pinned| {
            copy(layout, &pinned, &mut source, chunk);
            commit(client, &operation, (&pinned, file.stamp()), chunk.end() == extent.end())
        });
        match committed {
            Ok(()) => written += usize::try_from(chunk.length()).expect("no longer than the buffers"),
            Err(error) => {
                operation.finish(client);
                if written == 0 {
                    return Err(error);
                }
                break;
            }
        }
    }
    add(&client.counters.bytes_written, written as u64);
    Ok(written)
}

/// Pages for all bytes of the operation, pinned.
fn pin_all<'a>(
    client: &ClientInner,
    layout: Layout,
    operation: &'a Operation<'a>,
    extent: Extent,
) -> Result<Vec<Pinned<'a>>, FsError> {
    let mut pinned: Vec<Pinned<'_>> = Vec::new();
    for (stripe, _) in operation.stripes() {
        let Some(part) = local(layout, stripe, extent) else { continue };
        let mut runs = Vec::new();
        if let Err(error) = pin(client, stripe, part, &mut runs) {
            unpin_all(client, &pinned);
            return Err(error);
        }
        pinned.push(Pinned { stripe, part, runs });
    }
    Ok(pinned)
}

fn copy(layout: Layout, pinned: &[Pinned<'_>], source: &mut Source<'_>, extent: Extent) {
    if let [only] = pinned
        && layout.stripe_count() == 1
    {
        // One stripe: file order is stripe order.
        only.runs.iter().for_each(|run| source.copy_to(*run));
    } else {
        for piece in layout.pieces(extent) {
            let place = pinned
                .iter()
                .find(|p| p.stripe.resource.stripe == piece.stripe)
                .expect("every piece is pinned");
            place.each_run(piece.extent, |run| source.copy_to(run));
        }
    }
}

/// Marks the bytes dirty, written at `now` (nanoseconds since 1970); with the last ones ends the use of each lock, in one turn per stripe.
fn commit(
    client: &ClientInner,
    operation: &Operation<'_>,
    (pinned, now): (&[Pinned<'_>], i64),
    last: bool,
) -> Result<(), FsError> {
    let mut lost = false;
    let mut pinned = pinned.iter().peekable();
    for (stripe, operation) in operation.stripes() {
        let part = pinned.next_if(|pinned| Arc::ptr_eq(pinned.stripe, stripe)).map(|pinned| pinned.part);
        if part.is_none() && !last {
            continue;
        }
        let mut out = Outbox::default();
        let mut inner = stripe.lock();
        if let Some(part) = part {
            let written = Input::Written { operation, extent: part, now_ns: now };
            if !inner.mark(stripe, client, (operation, written), &mut out) {
                lost = true;
                inner.doubt(part);
            }
            inner.unpin(client.the_pool(), part);
        }
        if last {
            end_use(client, stripe, &mut inner, operation, &mut out);
        }
        drop(inner);
        client.dispatch(stripe, out);
    }
    if lost {
        return Err(FsError::DataLost { errno: libc::EIO });
    }
    Ok(())
}

/// Bytes of a stripe whose pages are pinned.
struct Pinned<'a> {
    stripe: &'a Arc<Stripe>,
    part: Extent,
    runs: Vec<(*mut u8, usize)>,
}

impl Pinned<'_> {
    /// Calls `act` with the memory of each contiguous run of `extent`, in order.
    fn each_run(&self, extent: Extent, mut act: impl FnMut((*mut u8, usize))) {
        let mut at = self.part.start();
        for (start, length) in &self.runs {
            let run = Extent::with_length(at, *length as u64).expect("runs have bytes");
            at = run.end();
            if let Some(part) = run.intersection(extent) {
                let skip = usize::try_from(part.start() - run.start()).expect("within the run");
                act((start.wrapping_add(skip), usize::try_from(part.length()).expect("within the run")));
            }
        }
    }
}

pub(crate) fn pin(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    part: Extent,
    runs: &mut Vec<(*mut u8, usize)>,
) -> Result<(), FsError> {
    loop {
        let pinned = stripe.lock().pin(client.the_pool(), part, runs);
        match pinned {
            Ok(()) => return Ok(()),
            Err(pages) => client.make_room(pages)?,
        }
    }
}

fn unpin_all(client: &ClientInner, pinned: &[Pinned<'_>]) {
    for Pinned { stripe, part, .. } in pinned {
        let mut inner = stripe.lock();
        inner.doubt(*part);
        inner.unpin(client.the_pool(), *part);
    }
}

/// The caller's buffers, read from front to back.
struct Source<'a> {
    buffers: &'a [IoSlice<'a>],
    /// Bytes of the first buffer that have been taken.
    taken: usize,
}

impl<'a> Source<'a> {
    fn new(buffers: &'a [IoSlice<'a>]) -> Source<'a> {
        Source { buffers, taken: 0 }
    }

    /// Fills `length` bytes at `to`.
    fn copy_to(&mut self, (to, length): (*mut u8, usize)) {
        let mut done = 0;
        while done < length {
            let (first, rest) =
                self.buffers.split_first().expect("the buffers hold all bytes of the operation");
            let left = &first[self.taken..];
            let count = left.len().min(length - done);
            // SAFETY: `to` is pinned memory of at least `length` bytes that no other operation writes (range lock) and
            // that cannot overlap a caller's buffer.
            unsafe { std::ptr::copy_nonoverlapping(left.as_ptr(), to.add(done), count) };
            done += count;
            self.taken += count;
            if self.taken == first.len() {
                self.buffers = rest;
                self.taken = 0;
            }
        }
    }
}
