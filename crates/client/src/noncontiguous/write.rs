//! Writing a region: all locks, then the bytes, piece by piece.

use super::walk::Place;
use super::{Locked, Walk, Wanted};
use crate::client::ClientInner;
use crate::error::FsError;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::Outbox;
use ccpfs_cached_stripe::Input;
use std::sync::Arc;

/// Writes all of `buffer`, which is as long as the region.
pub(super) fn write(
    client: &ClientInner,
    file: &FileShared,
    wanted: &Wanted<'_>,
    buffer: &[u8],
) -> Result<usize, FsError> {
    client.wait_for_budget()?;
    let layout = file.stub.layout;
    let reservation = client.reserve_pages(Walk::pages_most(wanted.region, layout))?;
    let mut turn = file.ranges.lock(wanted.region.bounds(), true);
    let locked = Locked::take(client, file, wanted)?;
    turn.run();
    let mut walk = Walk::new(wanted.region, layout);
    let (mut places, mut rest, mut result) = (Vec::new(), buffer, Ok(()));
    while result.is_ok() {
        walk.next(&locked, reservation.pages(), &mut places);
        if places.is_empty() {
            break;
        }
        result =
            copy_in(client, &locked, &places, &mut rest).and_then(|()| mark(client, file, &locked, &places));
    }
    locked.finish(client);
    result?;
    add(&client.counters.bytes_written, buffer.len() as u64);
    Ok(buffer.len())
}

/// Copies the beginning of `source` into the pages of the places, which are pinned from here on.
fn copy_in(
    client: &ClientInner,
    locked: &Locked<'_>,
    places: &[Place],
    source: &mut &[u8],
) -> Result<(), FsError> {
    let mut runs = Vec::new();
    for (number, place) in places.iter().enumerate() {
        let stripe = locked.held()[place.held].stripe;
        runs.clear();
        if let Err(error) = crate::write::pin(client, stripe, place.extent, &mut runs) {
            release(client, locked, &places[..number]);
            return Err(error);
        }
        for (start, length) in runs.drain(..) {
            let (now, later) = source.split_at(length);
            // SAFETY: pinned memory of at least `length` bytes that no other operation writes (range lock) and that cannot
            // overlap a caller's buffer.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), start, length) };
            *source = later;
        }
    }
    Ok(())
}

/// Marks the bytes of the places dirty, and unpins their pages.
fn mark(
    client: &ClientInner,
    file: &FileShared,
    locked: &Locked<'_>,
    places: &[Place],
) -> Result<(), FsError> {
    let now_ns = file.stamp();
    let mut lost = false;
    let mut order: Vec<&Place> = places.iter().collect();
    order.sort_by_key(|place| locked.held()[place.held].stripe.resource.stripe);
    for of_stripe in
        order.chunk_by(|a, b| Arc::ptr_eq(locked.held()[a.held].stripe, locked.held()[b.held].stripe))
    {
        let stripe = locked.held()[of_stripe[0].held].stripe;
        let mut out = Outbox::default();
        let mut inner = stripe.lock();
        for place in of_stripe {
            let (operation, extent) = (locked.held()[place.held].operation, place.extent);
            let written = Input::Written { operation, extent, now_ns };
            if !inner.mark(stripe, client, (operation, written), &mut out) {
                lost = true;
                inner.doubt(extent);
            }
            inner.unpin(client.the_pool(), extent);
        }
        drop(inner);
        client.dispatch(stripe, out);
    }
    if lost { Err(FsError::DataLost { errno: libc::EIO }) } else { Ok(()) }
}

/// Unpins pages that nothing was made of.
pub(super) fn release(client: &ClientInner, locked: &Locked<'_>, places: &[Place]) {
    for place in places {
        let mut inner = locked.held()[place.held].stripe.lock();
        inner.doubt(place.extent);
        inner.unpin(client.the_pool(), place.extent);
    }
}
