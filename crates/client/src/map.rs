//! Where a file has data and where it has holes, and how it gets a hole.

use crate::client::{ClientInner, unexpected};
use crate::error::FsError;
use crate::file::File;
use crate::operation::{self, Wish};
use crate::session::Session;
use crate::shared::FileShared;
use crate::stripe::{Answer, Outbox, Stripe};
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::Intent;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId};
use ccpfs_wire::{Message, Status};
use std::sync::Arc;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Data,
    Hole,
}

impl File {
    /// The first byte at or behind `offset` that belongs to data, as `lseek(SEEK_DATA)`; `None` if there is none before the end of
    /// the file. Counts what clients have not flushed. Zeros that were written, or share a block of a server's file system with
    /// data, count as data.
    ///
    /// # Errors
    /// When a server cannot be asked, ESTALE if the file was removed elsewhere.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>, FsError> {
        find(&self.client().inner, self.shared(), offset, Wanted::Data)
    }

    /// The first byte at or behind `offset` that belongs to a hole, as `lseek(SEEK_HOLE)`; there is one at the end of the file.
    /// `None` at or beyond that.
    ///
    /// # Errors
    /// As [`File::next_data`].
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>, FsError> {
        find(&self.client().inner, self.shared(), offset, Wanted::Hole)
    }

    /// Makes a hole of these bytes, as `fallocate(FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE)`: they read as zeros, their space is
    /// given back where the servers' file systems can, the size stays. Atomic with respect to reads and writes.
    ///
    /// # Errors
    /// EBADF if not open for writing, the error of a flush, and what servers say.
    pub fn punch(&self, extent: Extent) -> Result<(), FsError> {
        self.punch_after(extent, |_| ())
    }

    /// As [`File::punch`]; `before` as for [`File::write_at_after`].
    ///
    /// # Errors
    /// As [`File::punch`].
    pub fn punch_after<G>(&self, extent: Extent, before: impl FnOnce(Extent) -> G) -> Result<(), FsError> {
        if !self.access().write {
            return Err(FsError::argument("the file is not open for writing", libc::EBADF));
        }
        self.wake()?;
        self.note_written();
        if let Some(extent) = Extent::new(extent.start(), extent.end().min(FILE_BYTES_MAX)) {
            punch(&self.client().inner, self.shared(), extent, before)?;
            self.note_cut();
        }
        Ok(())
    }
}

fn lost(client: &ClientInner, stripe: &Stripe) -> FsError {
    FsError::ServerLost { address: client.targets[stripe.target as usize].clone() }
}

/// The session of the lock that an operation uses: under another one nobody is kept from writing.
fn session_of(
    client: &ClientInner,
    stripe: &Stripe,
    operation: OperationId,
) -> Result<Arc<Session>, FsError> {
    let inner = stripe.lock();
    inner.live_session().filter(|_| inner.cached().holds(operation)).ok_or_else(|| lost(client, stripe))
}

fn find(
    client: &ClientInner,
    file: &FileShared,
    offset: u64,
    wanted: Wanted,
) -> Result<Option<u64>, FsError> {
    let Some(above) = Extent::new(offset, Extent::EOF).filter(|_| offset < FILE_BYTES_MAX) else {
        return Ok(None);
    };
    let mut turn = file.ranges.lock(above, false);
    // Others flush what they have there, or have told that they have nothing.
    let wish = Wish::new(Intent::Read, above);
    let operation = operation::begin(client, file, &mut turn, &wish)?;
    let found = file.attributes(client).and_then(|attributes| {
        let layout = file.stub.layout;
        let mut first = None;
        for (stripe, operation) in operation.stripes() {
            let index = stripe.resource.stripe;
            // What lies behind the first one found so far is of no interest.
            let end = layout.stripe_length(index, first.unwrap_or(attributes.size));
            let Some(extent) = Extent::new(layout.stripe_length(index, offset), end) else { continue };
            let local = find_in_stripe(client, stripe, operation, extent, wanted)?;
            first = local.map(|local| layout.file_offset(index, local)).or(first);
        }
        let at_end = Some(attributes.size).filter(|size| wanted == Wanted::Hole && offset < *size);
        Ok(first.or(at_end))
    });
    operation.finish(client);
    found
}

/// The first wanted byte of a stripe within `extent`.
fn find_in_stripe(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    operation: OperationId,
    extent: Extent,
    wanted: Wanted,
) -> Result<Option<u64>, FsError> {
    // Our own first: what is acknowledged afterwards the server knows when it is asked.
    let own = stripe.lock().cached().cache().unacknowledged(extent);
    let mut at = extent.start();
    while let Some(rest) = Extent::new(at, extent.end()) {
        let (data, known_to) = ask(client, stripe, operation, rest)?;
        let known =
            Extent::new(at, known_to).ok_or(FsError::Server { operation: "map", errno: libc::EPROTO })?;
        if let Some(found) = first_in(known, &own, &data, wanted) {
            return Ok(Some(found));
        }
        at = known_to;
    }
    Ok(None)
}

/// The first wanted byte of `known`, in which data are what one of the lists names.
fn first_in(known: Extent, own: &[Extent], data: &[Extent], wanted: Wanted) -> Option<u64> {
    let mut parts: Vec<Extent> = own.iter().chain(data).filter_map(|part| part.intersection(known)).collect();
    parts.sort_unstable();
    match wanted {
        Wanted::Data => parts.first().map(|part| part.start()),
        Wanted::Hole => {
            let covered = parts
                .into_iter()
                .fold(known.start(), |end, part| if part.start() <= end { end.max(part.end()) } else { end });
            Some(covered).filter(|covered| *covered < known.end())
        }
    }
}

/// Asks the server where the data of a stripe are, and how far it knows.
fn ask(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    operation: OperationId,
    extent: Extent,
) -> Result<(Vec<Extent>, u64), FsError> {
    let session = session_of(client, stripe, operation)?;
    let request = client.request();
    let message = Message::Map { request, resource: stripe.resource, extent };
    let sent = session.send_request(request, &message, Vec::new());
    sent.inspect_err(|_| client.session_lost(&session))?;
    let (answer, _) = client.wait_reply(&session, request)?;
    let Message::MapReply { status, data, known_to, .. } = answer else { return Err(unexpected(&answer)) };
    match status {
        Status::Ok if stripe.lock().cached().holds(operation) => Ok((data, known_to.min(extent.end()))),
        Status::Ok => Err(lost(client, stripe)),
        Status::Errno(errno) => Err(FsError::Server { operation: "map", errno }),
    }
}

fn punch<G>(
    client: &ClientInner,
    file: &FileShared,
    extent: Extent,
    before: impl FnOnce(Extent) -> G,
) -> Result<(), FsError> {
    let mut turn = file.ranges.lock(extent, true);
    let wish = Wish::new(Intent::ReadThenWrite, extent);
    let before = |beside: bool| beside.then(|| before(extent));
    let (operation, _kept) = operation::begin_after(client, file, &mut turn, &wish, before)?;
    // What is dirty may be what ends the file: the server must have it before it becomes a hole.
    let mut result = file.flush(client);
    file.stamp();
    for (stripe, operation) in operation.stripes() {
        let index = stripe.resource.stripe;
        let layout = file.stub.layout;
        let (start, end) = (extent.start(), extent.end());
        let part = Extent::new(layout.stripe_length(index, start), layout.stripe_length(index, end));
        if let (Ok(()), Some(part)) = (&result, part) {
            result = punch_stripe(client, stripe, operation, part);
        }
    }
    operation.finish(client);
    result
}

/// Makes a hole in one stripe, under a lock that is held.
fn punch_stripe(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    operation: OperationId,
    extent: Extent,
) -> Result<(), FsError> {
    let request = client.request();
    let Answer::Ask(message) = stripe.ask(client, operation, Input::Punch { operation, extent, request })
    else {
        return Err(lost(client, stripe));
    };
    let session = session_of(client, stripe, operation)?;
    let sent = session.send_request(request, &message, Vec::new());
    sent.inspect_err(|_| client.session_lost(&session))?;
    let (answer, _) = client.wait_reply(&session, request)?;
    let Message::Done { status, .. } = answer else { return Err(unexpected(&answer)) };
    match status {
        Status::Ok => {
            let mut out = Outbox::default();
            stripe.lock().step(stripe, client, Input::Cut { operation }, &mut out);
            client.dispatch(stripe, out);
            Ok(())
        }
        Status::Errno(errno) => Err(FsError::Server { operation: "punch", errno }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, end: u64) -> Extent {
        Extent::new(start, end).unwrap()
    }

    #[test]
    fn data_are_what_either_has_and_holes_what_neither_has() {
        let (own, data) = ([extent(20, 30), extent(45, 50)], [extent(0, 10), extent(30, 45)]);
        let first = |known, wanted| first_in(known, &own, &data, wanted);
        assert_eq!(first(extent(0, 100), Wanted::Data), Some(0));
        assert_eq!(first(extent(0, 100), Wanted::Hole), Some(10));
        assert_eq!(first(extent(10, 100), Wanted::Data), Some(20));
        assert_eq!(first(extent(25, 100), Wanted::Data), Some(25));
        assert_eq!(first(extent(25, 100), Wanted::Hole), Some(50));
        assert_eq!(first(extent(25, 50), Wanted::Hole), None);
        assert_eq!(first(extent(50, 100), Wanted::Data), None);
        assert_eq!(first(extent(50, 100), Wanted::Hole), Some(50));
    }
}
