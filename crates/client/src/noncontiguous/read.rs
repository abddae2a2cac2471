//! Reading a region: all locks, then what is missing is fetched, then the bytes, piece by piece.
//!
//! Missing pieces that lie near each other are fetched together with what lies between, which is thrown away: it may be somebody
//! else's.

use super::walk::Place;
use super::write::release;
use super::{Locked, Walk, Wanted};
use crate::client::ClientInner;
use crate::error::FsError;
use crate::read::{self, lost};
use crate::session::Session;
use crate::shared::FileShared;
use crate::statistics::add;
use crate::stripe::{Answer, Outbox};
use ccpfs_cached_stripe::Input;
use ccpfs_types::limits::READ_BYTES_MAX;
use ccpfs_types::{Extent, RequestId};
use ccpfs_wire::{Message, Status};
use std::sync::Arc;

/// Bytes between two missing pieces up to which both are fetched together: quicker than one more question.
const GAP_BYTES_MAX: u64 = 32 << 10;
/// Fetches under way at a time.
const UNDER_WAY_MAX: usize = 32;

/// Reads into all of `buffer`, which is as long as the region, up to the end of the file.
pub(super) fn read(
    client: &ClientInner,
    file: &FileShared,
    wanted: &Wanted<'_>,
    buffer: &mut [u8],
) -> Result<usize, FsError> {
    let layout = file.stub.layout;
    let reservation = client.reserve_pages(Walk::pages_most(wanted.region, layout))?;
    let mut turn = file.ranges.lock(wanted.region.bounds(), false);
    let locked = Locked::take(client, file, wanted)?;
    turn.run();
    let mut reading = Reading { client, file, locked: &locked, size: None };
    let mut walk = Walk::new(wanted.region, layout);
    let (mut places, mut done) = (Vec::new(), 0);
    let result = loop {
        walk.next(&locked, reservation.pages(), &mut places);
        if places.is_empty() {
            break Ok(done);
        }
        let all: u64 = places.iter().map(|place| place.extent.length()).sum();
        match reading.part(&places, &mut buffer[done..]) {
            Ok(bytes) if (bytes as u64) < all => break Ok(done + bytes),
            Ok(bytes) => done += bytes,
            Err(error) => break Err(error),
        }
    };
    locked.finish(client);
    let done = result?;
    add(&client.counters.bytes_read, done as u64);
    Ok(done)
}

/// A read that has its locks.
struct Reading<'a> {
    client: &'a ClientInner,
    file: &'a FileShared,
    locked: &'a Locked<'a>,
    /// The file's size, once it has been needed: with the locks held, it stays true for the bytes that they cover.
    size: Option<u64>,
}

/// Missing bytes that are fetched by one request.
struct Cluster {
    /// All of them, and what lies between.
    span: Extent,
    /// For which place, and which bytes.
    parts: Vec<(usize, Extent)>,
}

/// A request under way.
struct Fetch {
    cluster: Cluster,
    session: Arc<Session>,
    request: RequestId,
    /// Where several parts arrive, with what lies between; one part goes straight to its pages.
    scratch: Option<Vec<u8>>,
}

impl Reading<'_> {
    /// Reads the places into the beginning of `buffer`; returns how many bytes lie before the end of the file.
    fn part(&mut self, places: &[Place], buffer: &mut [u8]) -> Result<usize, FsError> {
        for (number, place) in places.iter().enumerate() {
            let stripe = self.locked.held()[place.held].stripe;
            if let Err(error) = read::pin(self.client, stripe, place.extent) {
                release(self.client, self.locked, &places[..number]);
                return Err(error);
            }
        }
        let result = self.fill(places).and_then(|()| self.copy_out(places, buffer));
        // Another reader may have fetched something newer into the pages while we copied, if a lock was lost.
        let gone = places
            .iter()
            .map(|place| self.locked.held()[place.held])
            .find(|held| !held.stripe.lock().cached().holds(held.operation));
        release(self.client, self.locked, places);
        match gone {
            Some(held) => result.and(Err(lost(self.client, held.stripe))),
            None => result,
        }
    }

    /// Fetches what is missing, and fills with zeros what lies beyond the end of a stripe.
    fn fill(&mut self, places: &[Place]) -> Result<(), FsError> {
        let mut left_out = Vec::new();
        let mut clusters = self.missing(places)?.into_iter();
        loop {
            let mut fetches = Vec::new();
            let mut failed = None;
            for cluster in clusters.by_ref().take(UNDER_WAY_MAX) {
                match self.send(places, cluster) {
                    Ok(fetch) => fetches.push(fetch),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            if fetches.is_empty() && failed.is_none() {
                break;
            }
            // Each is waited for, whatever became of the others: its memory is in use until then.
            for fetch in fetches {
                if let Err(error) = self.finish(places, fetch, &mut left_out) {
                    failed = Some(error);
                }
            }
            if let Some(error) = failed {
                return Err(error);
            }
        }
        for (number, extent) in left_out {
            let bytes = match self.size {
                Some(bytes) => bytes,
                None => *self.size.insert(self.file.attributes(self.client)?.size),
            };
            let place = &places[number];
            let held = self.locked.held()[place.held];
            let length = self.file.stub.layout.stripe_length(held.stripe.resource.stripe, bytes);
            let place = read::Place { stripe: held.stripe, operation: held.operation, extent: place.extent };
            read::zero(self.client, &place, &[extent], length)?;
        }
        Ok(())
    }

    /// What must be fetched for the places, by request.
    fn missing(&self, places: &[Place]) -> Result<Vec<Cluster>, FsError> {
        let mut missing = Vec::new();
        for (number, place) in places.iter().enumerate() {
            let held = self.locked.held()[place.held];
            let look = Input::Look { operation: held.operation, extent: place.extent, ahead_bytes: 0 };
            let Answer::Missing(extents) = held.stripe.ask(self.client, held.operation, look) else {
                return Err(lost(self.client, held.stripe));
            };
            let stripe = held.stripe.resource.stripe;
            let parts = extents.into_iter().flat_map(read::split);
            missing.extend(parts.map(|extent| (stripe, extent.start(), number, extent)));
        }
        missing.sort_unstable_by_key(|(stripe, start, ..)| (*stripe, *start));
        let mut clusters: Vec<(u32, Cluster)> = Vec::new();
        for (stripe, start, number, extent) in missing {
            match clusters.last_mut() {
                Some((of, cluster))
                    if *of == stripe
                        && start - cluster.span.end() <= GAP_BYTES_MAX
                        && extent.end() - cluster.span.start() <= READ_BYTES_MAX =>
                {
                    cluster.span = cluster.span.hull(extent);
                    cluster.parts.push((number, extent));
                }
                Some(_) | None => {
                    clusters.push((stripe, Cluster { span: extent, parts: vec![(number, extent)] }));
                }
            }
        }
        Ok(clusters.into_iter().map(|(_, cluster)| cluster).collect())
    }

    fn send(&self, places: &[Place], cluster: Cluster) -> Result<Fetch, FsError> {
        let held = self.locked.held()[places[cluster.parts[0].0].held];
        let (mut runs, mut scratch) = (Vec::new(), None);
        // Only over the session that the lock is from: under another one nobody is kept from writing.
        let session = {
            let inner = held.stripe.lock();
            let ours = inner.live_session().filter(|_| inner.cached().holds(held.operation));
            if let [(_, extent)] = cluster.parts[..] {
                inner.runs(self.client.the_pool(), extent, &mut runs);
            }
            ours.ok_or_else(|| lost(self.client, held.stripe))?
        };
        if cluster.parts.len() > 1 {
            let length =
                usize::try_from(cluster.span.length()).expect("at most what one request can ask for");
            let buffer = scratch.insert(vec![0_u8; length]);
            runs.push((buffer.as_mut_ptr(), length));
        }
        let request = self.client.request();
        let resource = held.stripe.resource;
        let message = Message::Read { request, resource, extent: cluster.span };
        add(&self.client.counters.read_rpcs, 1);
        session.send_request(request, &message, runs).inspect_err(|_| self.client.session_lost(&session))?;
        Ok(Fetch { cluster, session, request, scratch })
    }

    /// Takes the answer to a fetch; adds the bytes that it did not bring to `left_out`.
    fn finish(
        &self,
        places: &[Place],
        fetch: Fetch,
        left_out: &mut Vec<(usize, Extent)>,
    ) -> Result<(), FsError> {
        let bytes = match self.client.wait_reply(&fetch.session, fetch.request)? {
            (Message::ReadReply { status: Status::Ok, .. }, bytes) => bytes as u64,
            (Message::ReadReply { status: Status::Errno(errno), .. }, _) => {
                return Err(FsError::Server { operation: "read", errno });
            }
            (other, _) => return Err(crate::client::unexpected(&other)),
        };
        add(&self.client.counters.bytes_fetched, bytes);
        let Cluster { span, parts } = fetch.cluster;
        let came = span.start() + bytes.min(span.length());
        let stripe = self.locked.held()[places[parts[0].0].held].stripe;
        let mut out = Outbox::default();
        let mut inner = stripe.lock();
        let mut ours = true;
        for (number, extent) in parts {
            let operation = self.locked.held()[places[number].held].operation;
            left_out.extend(Extent::new(extent.start().max(came), extent.end()).map(|rest| (number, rest)));
            let Some(got) = Extent::new(extent.start(), extent.end().min(came)) else { continue };
            if let Some(scratch) = &fetch.scratch {
                let mut at = usize::try_from(got.start() - span.start()).expect("within the buffer");
                let mut runs = Vec::new();
                inner.runs(self.client.the_pool(), got, &mut runs);
                for (start, length) in runs {
                    // SAFETY: pinned memory of at least `length` bytes; they are not valid, so nobody reads them, and our
                    // range lock keeps writers out.
                    unsafe {
                        std::ptr::copy_nonoverlapping(scratch[at..at + length].as_ptr(), start, length)
                    };
                    at += length;
                }
            }
            ours &= inner.mark(
                stripe,
                self.client,
                (operation, Input::Fetched { operation, extent: got }),
                &mut out,
            );
        }
        drop(inner);
        self.client.dispatch(stripe, out);
        if ours { Ok(()) } else { Err(lost(self.client, stripe)) }
    }

    fn copy_out(&self, places: &[Place], buffer: &mut [u8]) -> Result<usize, FsError> {
        let mut done = 0;
        for place in places {
            let before = self.size.map_or(u64::MAX, |size| size.saturating_sub(place.offset));
            let length = place.extent.length().min(before);
            let Some(extent) = Extent::with_length(place.extent.start(), length) else { break };
            let held = self.locked.held()[place.held];
            let mut runs = Vec::new();
            let inner = held.stripe.lock();
            if !inner.cached().holds(held.operation) {
                return Err(lost(self.client, held.stripe));
            }
            inner.runs(self.client.the_pool(), extent, &mut runs);
            drop(inner);
            for (start, length) in runs {
                let into = &mut buffer[done..done + length];
                // SAFETY: pinned memory of at least `length` bytes which no operation of this process writes (range lock), and
                // which cannot overlap a caller's buffer.
                unsafe { std::ptr::copy_nonoverlapping(start, into.as_mut_ptr(), length) };
                done += length;
            }
            if length < place.extent.length() {
                break;
            }
        }
        Ok(done)
    }
}
