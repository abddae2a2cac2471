//! What all handles of one file share in a client: its stripes, and what concerns all of them.

use crate::client::{ClientInner, unexpected};
use crate::error::FsError;
use crate::group::Membership;
use crate::hold::Holds;
use crate::opened::Opened;
use crate::operation::{self, Wish};
use crate::range_lock::RangeLock;
use crate::session::Session;
use crate::statistics::add;
use crate::stripe::{Answer, Outbox, Stripe};
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::Intent;
use ccpfs_namespace::{SizeQuestion, Stub};
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId, RequestId, ResourceId};
use ccpfs_wire::{Message, Status};
use ccpfs_writeback::{BarrierId, JobId};
use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// What all handles of one file share in this client.
pub(crate) struct FileShared {
    pub(crate) stub: Stub,
    pub(crate) stripes: Vec<Arc<Stripe>>,
    pub(crate) ranges: RangeLock,
    pub(crate) holds: Holds,
    pub(crate) group: Membership,
    pub(crate) handles: AtomicU32,
    pub(crate) opened: Mutex<Opened>,
    /// Written or cut by this client since it began to be able to.
    pub(crate) written: AtomicBool,
    /// Sealed although there are handles for writing.
    pub(crate) rested: AtomicBool,
    /// When the stub was changed last, as far as known; nanoseconds since 1970.
    pub(crate) floor_ns: AtomicI64,
    /// The latest time that a write of this client was given.
    pub(crate) stamped_ns: AtomicI64,
    /// How many errors of flushes there were, and the last one.
    errors: Mutex<(u64, i32)>,
    /// What the last question for the size found of truncates: see [`SizeQuestion::known`].
    cuts: Mutex<Vec<u64>>,
}

/// Size, time and space of a file's data, as the servers and all clients know it together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataAttributes {
    /// Size in bytes.
    pub size: u64,
    /// Last write, nanoseconds since 1970; 0 if never written.
    pub modified_ns: i64,
    /// Bytes on the servers' devices.
    pub stored_bytes: u64,
}

impl FileShared {
    pub(crate) fn new(stub: Stub) -> Arc<FileShared> {
        Arc::new_cyclic(|me| {
            let first = stub.file.hash64() % u64::from(stub.targets);
            let stripe = |index: u32| {
                let target = (first + u64::from(index)) % u64::from(stub.targets);
                let target = u32::try_from(target).expect("below the number of targets");
                let resource = ResourceId { file: stub.file, stripe: index };
                Arc::new(Stripe::new(resource, target, me.clone()))
            };
            FileShared {
                stub,
                stripes: (0..stub.layout.stripe_count()).map(stripe).collect(),
                ranges: RangeLock::default(),
                holds: Holds::default(),
                group: Membership::default(),
                handles: AtomicU32::new(0),
                opened: Mutex::default(),
                written: AtomicBool::new(false),
                rested: AtomicBool::new(false),
                floor_ns: AtomicI64::new(0),
                stamped_ns: AtomicI64::new(0),
                errors: Mutex::default(),
                cuts: Mutex::default(),
            }
        })
    }

    pub(crate) fn handles(&self) -> u32 {
        self.handles.load(Ordering::SeqCst)
    }

    pub(crate) fn record_error(&self, errno: i32) {
        let mut errors = self.errors.lock().expect("no code panics under this lock");
        *errors = (errors.0 + 1, errno);
    }

    pub(crate) fn errors(&self) -> (u64, i32) {
        *self.errors.lock().expect("no code panics under this lock")
    }

    /// Whether this client has data that are not with the servers.
    pub(crate) fn is_dirty(&self) -> bool {
        self.stripes.iter().any(|stripe| stripe.lock().cached().cache().unacknowledged_end() > 0)
    }

    /// Sends what is dirty to the servers and waits for their acknowledgement.
    pub(crate) fn flush(&self, client: &ClientInner) -> Result<(), FsError> {
        let before = self.errors();
        let mut waiting: Vec<(&Arc<Stripe>, BarrierId)> = Vec::new();
        for stripe in &self.stripes {
            let mut out = Outbox::default();
            let mut inner = stripe.lock();
            if inner.cached().cache().unacknowledged_end() == 0 {
                continue;
            }
            let barrier = BarrierId(client.request().0);
            let next_job = JobId(client.peek_number());
            let input = Input::Barrier { barrier, next_job };
            inner.step(stripe, client, input, &mut out);
            drop(inner);
            waiting.push((stripe, barrier));
            client.dispatch(stripe, out);
        }
        for (stripe, barrier) in waiting {
            let mut inner = stripe.lock();
            while inner.cached().cache().waits_for(barrier) {
                inner = stripe.wait(inner);
            }
        }
        match self.errors() {
            after if after.0 == before.0 => Ok(()),
            (_, errno) => Err(FsError::DataLost { errno }),
        }
    }

    /// Makes acknowledged data survive a crash of the servers. Notes an error for the file if a server has begun another life since
    /// it acknowledged some: nobody knows whether they survived the end of the earlier one.
    //= protocol.md#I9
    pub(crate) fn sync(&self, client: &ClientInner) -> Result<(), FsError> {
        let mut requests = Vec::new();
        let mut result = Ok(());
        let sessions: Vec<_> =
            self.targets().into_iter().map(|target| client.session(target)).collect::<Result<_, _>>()?;
        for session in sessions {
            let stripes: Vec<_> =
                self.stripes.iter().filter(|stripe| stripe.target == session.target).collect();
            let operation = client.operation();
            for stripe in &stripes {
                let mut out = Outbox::default();
                stripe.lock().step(stripe, client, Input::Sync { operation, epoch: session.epoch }, &mut out);
            }
            let request = client.request();
            let resources = stripes.iter().map(|stripe| stripe.resource).collect();
            let message = Message::Sync { request, resources };
            let sent = session.send_request(request, &message, Vec::new());
            requests.push((session, request, sent, operation, stripes));
        }
        for (session, request, sent, operation, stripes) in requests {
            let answer = match sent {
                Ok(()) => {
                    client.wait_reply(&session, request).and_then(|(message, _)| done(&message, "fsync"))
                }
                Err(error) => {
                    client.session_lost(&session);
                    Err(error)
                }
            };
            let synced = Input::Synced { operation, stored: answer.is_ok() };
            for stripe in stripes {
                stripe.lock().step(stripe, client, synced.clone(), &mut Outbox::default());
            }
            result = result.and(answer);
        }
        result
    }

    /// The shards that hold the stripes.
    fn targets(&self) -> Vec<u32> {
        let mut targets: Vec<u32> = self.stripes.iter().map(|stripe| stripe.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Asks the servers, and through them all clients, how far the file reaches.
    pub(crate) fn attributes(&self, client: &ClientInner) -> Result<DataAttributes, FsError> {
        let known = || self.cuts.lock().expect("no code panics under this lock");
        let mut question = SizeQuestion::new(self.stub.layout, &known());
        loop {
            let mut attributes = self.collect(client, &mut question)?;
            if question.is_settled() {
                question.known().clone_into(&mut known());
                attributes.size = question.size();
                return Ok(attributes);
            }
        }
    }

    /// One round of a question for the size.
    fn collect(&self, client: &ClientInner, question: &mut SizeQuestion) -> Result<DataAttributes, FsError> {
        let mut attributes = DataAttributes::default();
        let mut requests = Vec::new();
        let mut result = Ok(());
        for stripe in &self.stripes {
            // Our own unflushed data first: what is acknowledged afterwards the server knows when it is asked. Data
            // whose lock went with them do not count: their flush must be answered before.
            let operation = client.operation();
            let answer = stripe.ask(client, operation, Input::Measure { operation });
            let Answer::Measured(end, modified_ns) = answer else { unreachable!("a measure is measured") };
            attributes.modified_ns = attributes.modified_ns.max(modified_ns);
            question.has(stripe.resource.stripe, end);
            let request = client.request();
            let message = Message::Glimpse { request, resource: stripe.resource };
            match send(client, stripe.target, request, &message) {
                Ok(session) => requests.push((stripe, session, request)),
                Err(error) => result = Err(error),
            }
        }
        add(&client.counters.glimpses, requests.len() as u64);
        for (stripe, session, request) in requests {
            match client.wait_reply(&session, request) {
                Ok((
                    Message::GlimpseReply {
                        status: Status::Ok,
                        stripe_bytes,
                        modified_ns,
                        stored_bytes,
                        cuts,
                        ..
                    },
                    _,
                )) => {
                    question.told(stripe.resource.stripe, stripe_bytes, cuts);
                    attributes.modified_ns = attributes.modified_ns.max(modified_ns);
                    attributes.stored_bytes += stored_bytes;
                }
                Ok((Message::GlimpseReply { status: Status::Errno(errno), .. }, _)) => {
                    result = Err(FsError::Server { operation: "size", errno });
                }
                Ok((other, _)) => result = Err(unexpected(&other)),
                Err(error) => result = Err(error),
            }
        }
        result.map(|()| attributes)
    }

    /// Sets the size.
    pub(crate) fn truncate<G>(
        &self,
        client: &ClientInner,
        size: u64,
        before: impl FnOnce(Extent) -> G,
    ) -> Result<(), FsError> {
        self.resize(client, size, false, before).map(drop)
    }

    /// Makes the file at least `size` bytes long. What others write meanwhile stays: between the look at the size and the change
    /// nobody can lengthen the file beyond.
    /// False if it is that long already.
    pub(crate) fn lengthen(&self, client: &ClientInner, size: u64) -> Result<bool, FsError> {
        self.resize(client, size, true, |_| ())
    }

    fn resize<G>(
        &self,
        client: &ClientInner,
        size: u64,
        only_longer: bool,
        before: impl FnOnce(Extent) -> G,
    ) -> Result<bool, FsError> {
        if size > FILE_BYTES_MAX {
            return Err(FsError::argument("the size is beyond the largest file", libc::EFBIG));
        }
        let above = Extent::new(size, Extent::EOF).expect("files end before EOF");
        let mut turn = self.ranges.lock(above, true);
        let wish = Wish::new(Intent::ReadThenWrite, above);
        let before = |beside: bool| beside.then(|| before(above));
        let (operation, _kept) = operation::begin_after(client, self, &mut turn, &wish, before)?;
        if only_longer {
            match self.attributes(client) {
                Ok(attributes) if attributes.size < size => {}
                other => {
                    operation.finish(client);
                    return other.map(|_| false);
                }
            }
        }
        self.stamp();
        let mut result = Ok(());
        let layout = self.stub.layout;
        let mut cuts: Vec<_> = operation
            .stripes()
            .map(|(stripe, operation)| {
                (stripe, operation, layout.stripe_length(stripe.resource.stripe, size))
            })
            .collect();
        // The stripe that ends the file first: with it the size is the new one, and no size in between is seen by others who ask or
        // read while the rest follows.
        cuts.sort_by_key(|(stripe, _, length)| Reverse(layout.file_size(stripe.resource.stripe, *length)));
        for (stripe, operation, length) in cuts {
            let answer = truncate_stripe(client, stripe, length, operation);
            result = result.and(answer);
        }
        operation.finish(client);
        result.map(|()| true)
    }

    /// Gives back all locks of a file without handles.
    pub(crate) fn retire(&self, client: &ClientInner) {
        for stripe in &self.stripes {
            let mut out = Outbox::default();
            let mut inner = stripe.lock();
            inner.step(stripe, client, Input::Shrink { count: usize::MAX }, &mut out);
            drop(inner);
            client.dispatch(stripe, out);
        }
    }

    /// Whether nothing of the file is cached, locked, or under way here.
    pub(crate) fn is_idle(&self) -> bool {
        self.stripes.iter().all(|stripe| stripe.lock().cached().is_idle())
    }

    /// Tells the servers that the file is gone, and forgets it.
    pub(crate) fn destroy(&self, client: &ClientInner) -> Result<(), FsError> {
        for stripe in &self.stripes {
            let mut out = Outbox::default();
            let mut inner = stripe.lock();
            if inner.cached().cache().unacknowledged_end() > 0 || inner.page_count() > 0 {
                inner.step(stripe, client, Input::Remove, &mut out);
            }
            drop(inner);
            client.dispatch(stripe, out);
        }
        let mut result = Ok(());
        for target in self.targets() {
            let resources = self
                .stripes
                .iter()
                .filter(|stripe| stripe.target == target)
                .map(|stripe| stripe.resource)
                .collect();
            let request = client.request();
            let message = Message::Destroy { request, resources };
            let answer = send(client, target, request, &message).and_then(|session| {
                let (message, _) = client.wait_reply(&session, request)?;
                done(&message, "remove")
            });
            result = result.and(answer);
        }
        // Whoever opened it in the meantime hears from the servers that it is gone.
        client.forget_file(self.stub.file, |_| true);
        result
    }
}

/// Cuts one stripe, under a lock that is held.
fn truncate_stripe(
    client: &ClientInner,
    stripe: &Arc<Stripe>,
    length: u64,
    operation: OperationId,
) -> Result<(), FsError> {
    let lost = || FsError::ServerLost { address: client.targets[stripe.target as usize].clone() };
    let request = client.request();
    let cut = Input::Truncate { operation, length, request };
    let Answer::Ask(message) = stripe.ask(client, operation, cut) else { return Err(lost()) };
    // Only over the session that the lock is from: under another one it is not ours to cut.
    let session = {
        let inner = stripe.lock();
        inner.live_session().filter(|_| inner.cached().holds(operation)).ok_or_else(lost)?
    };
    let sent = session.send_request(request, &message, Vec::new());
    sent.inspect_err(|_| client.session_lost(&session))?;
    let (message, _) = client.wait_reply(&session, request)?;
    done(&message, "truncate")?;
    stripe.lock().step(stripe, client, Input::Cut { operation }, &mut Outbox::default());
    Ok(())
}

/// Sends a request to a shard under whatever session there is.
fn send(
    client: &ClientInner,
    target: u32,
    request: RequestId,
    message: &Message,
) -> Result<Arc<Session>, FsError> {
    let session = client.session(target)?;
    let sent = session.send_request(request, message, Vec::new());
    sent.inspect_err(|_| client.session_lost(&session))?;
    Ok(session)
}

fn done(message: &Message, operation: &'static str) -> Result<(), FsError> {
    let Message::Done { status, .. } = message else { return Err(unexpected(message)) };
    match status {
        Status::Ok => Ok(()),
        Status::Errno(errno) => Err(FsError::Server { operation, errno: *errno }),
    }
}
