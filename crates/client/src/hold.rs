//! Holds: locks that stay in use for pages outside our cache, until those are gone.
//!
//! *What*: a kernel that maps a file for programs keeps pages of it and does not say when it uses them. A [`Hold`] is an operation
//! that lasts as long as such pages exist: its locks cannot go, [`Hold::read_at`] and [`Hold::write_at`] are parts of it (under its
//! locks, even when those are wanted back), and it hears when somebody wants them.
//! *Invariants*: what is done beneath a hold waits for no lock, for no operation that waits for one, and for no page that such an
//! operation has reserved; else giving back a lock could need that very lock.
//! *Not here*: whose pages these are, and how they go away.

use crate::client::{Client, ClientInner};
use crate::error::FsError;
use crate::file::File;
use crate::operation::{self, Operation, Wish};
use crate::shared::FileShared;
use crate::stripe::Outbox;
use ccpfs_cached_stripe::Input;
use ccpfs_dlm::client::Intent;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, OperationId};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Number of a hold, used once in the life of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldId(pub u64);

/// What the pages of a hold may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HoldMode {
    /// Reading: others may read, and hold for reading, beside it.
    Read,
    /// Reading and writing: nobody else has these bytes.
    Write,
}

/// What a hold calls when its locks are wanted back.
type OnRevoke = Arc<dyn Fn(HoldId) + Send + Sync>;

/// A hold, for those who tell it.
struct Told {
    id: HoldId,
    wanted: AtomicBool,
    on_revoke: OnRevoke,
}

impl Told {
    fn tell(&self) {
        if !self.wanted.swap(true, Ordering::SeqCst) {
            (self.on_revoke)(self.id);
        }
    }
}

/// The holds of one file, by the operations that their locks are used for.
#[derive(Default)]
pub(crate) struct Holds {
    by_operation: Mutex<HashMap<OperationId, Arc<Told>>>,
}

impl Holds {
    /// Tells holds that a lock of theirs is wanted, or gone. Those that have ended are not told.
    pub(crate) fn tell(&self, wanted: &[OperationId]) {
        let told: Vec<Arc<Told>> = {
            let holds = self.by_operation.lock().expect("no code panics under this lock");
            wanted.iter().filter_map(|operation| holds.get(operation).cloned()).collect()
        };
        told.iter().for_each(|told| told.tell());
    }

    fn add(&self, operation: &Operation<'_>, told: &Arc<Told>) {
        let mut holds = self.by_operation.lock().expect("no code panics under this lock");
        holds.extend(operation.stripes().map(|(_, operation)| (operation, Arc::clone(told))));
    }

    fn remove(&self, operation: &Operation<'_>) {
        let mut holds = self.by_operation.lock().expect("no code panics under this lock");
        for (_, operation) in operation.stripes() {
            holds.remove(&operation);
        }
    }
}

/// Locks on a range of a file that stay in use until the hold is released or dropped.
///
/// While it lasts, whoever wants the bytes for something that the mode excludes waits; a server gives up a client that lets others
/// wait for too long (`protocol.md` 2.14). Release holds before the last handle of the file is closed.
pub struct Hold {
    client: Client,
    shared: Arc<FileShared>,
    /// Index of the stripe, and the operation that uses its lock.
    held: Vec<(usize, OperationId)>,
    extent: Extent,
    mode: HoldMode,
    told: Arc<Told>,
}

impl File {
    /// Takes locks on `extent` of the file, waiting where others have them, and keeps them in use until the hold is released.
    ///
    /// `on_revoke` is called once when somebody wants one of the locks back, or when they were lost: at the latest then the hold
    /// should make its pages go away and end. It may be called before this returns, just after the hold has ended, and from a
    /// thread that others wait for: it must not block, and only take note. Every other operation of this client goes on as if the
    /// hold were an operation of another thread that does nothing to the file.
    ///
    /// # Errors
    /// EBADF if the handle does not allow the mode, EFBIG beyond the largest file, and as [`File::read_at`].
    pub fn hold(
        &self,
        extent: Extent,
        mode: HoldMode,
        on_revoke: Arc<dyn Fn(HoldId) + Send + Sync>,
    ) -> Result<Hold, FsError> {
        let access = self.access();
        let intent = match mode {
            HoldMode::Read if access.read => Intent::Read,
            HoldMode::Write if access.write => Intent::ReadThenWrite,
            HoldMode::Read | HoldMode::Write => {
                return Err(FsError::argument(
                    "the file is not open for what the hold would do",
                    libc::EBADF,
                ));
            }
        };
        if extent.end() > FILE_BYTES_MAX {
            return Err(FsError::argument("the hold ends beyond the largest file", libc::EFBIG));
        }
        if mode == HoldMode::Write {
            self.note_written();
        }
        let (client, shared) = (self.client(), self.shared());
        client.inner.set_aside_for_holds()?;
        shared.ranges.begin_hold(extent);
        let operation = match operation::lock(&client.inner, shared, &Wish::new(intent, extent)) {
            Ok(operation) => operation,
            Err(error) => {
                shared.ranges.end_hold();
                return Err(error);
            }
        };
        let id = HoldId(client.inner.operation().0);
        let told = Arc::new(Told { id, wanted: AtomicBool::new(false), on_revoke });
        shared.holds.add(&operation, &told);
        watch(&client.inner, &operation);
        let index = |stripe: u32| usize::try_from(stripe).expect("stripes are few");
        let held = operation.stripes().map(|(stripe, id)| (index(stripe.resource.stripe), id)).collect();
        Ok(Hold { client: client.clone(), shared: Arc::clone(shared), held, extent, mode, told })
    }
}

/// Asks to be told when the locks are wanted. What came before is told now.
fn watch(client: &ClientInner, operation: &Operation<'_>) {
    for (stripe, operation) in operation.stripes() {
        let mut out = Outbox::default();
        let mut inner = stripe.lock();
        inner.step(stripe, client, Input::Watch { operation }, &mut out);
        drop(inner);
        client.dispatch(stripe, out);
    }
}

impl Hold {
    /// Its number, which `on_revoke` is given.
    #[must_use]
    pub fn id(&self) -> HoldId {
        self.told.id
    }

    /// The bytes of the file that it holds.
    #[must_use]
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// What it was taken for.
    #[must_use]
    pub fn mode(&self) -> HoldMode {
        self.mode
    }

    /// Whether `on_revoke` was called, or is being called.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.told.wanted.load(Ordering::SeqCst)
    }

    /// Whether a lock was lost (the server has given this client up, or is gone): the pages may be older than what others have
    /// written since, and what was changed in them cannot be stored any more.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.operation().stripes().any(|(stripe, operation)| !stripe.lock().cached().holds(operation))
    }

    /// Reads up to `buffer.len()` bytes at `offset` under the locks of the hold; fewer only at the end of the file. Waits for no
    /// lock.
    ///
    /// # Errors
    /// EINVAL beyond the hold's range, EIO if its locks are lost or a server is.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        self.read_vectored_at(&mut [IoSliceMut::new(buffer)], offset)
    }

    /// As [`Hold::read_at`], into several buffers: one atomic read.
    ///
    /// # Errors
    /// As [`Hold::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, FsError> {
        let length = buffers.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        let Some(extent) = self.part(offset, length)? else { return Ok(0) };
        crate::read::read_held(&self.client.inner, &self.shared, &self.operation(), buffers, extent)
    }

    /// Writes all of `buffer` at `offset` into the cache under the locks of the hold, which must be for writing. Waits for no lock.
    /// A failed flush is reported by the file's handles, not here.
    ///
    /// # Errors
    /// EINVAL beyond the hold's range, EBADF if it is for reading, EIO if its locks are lost.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<usize, FsError> {
        self.write_vectored_at(&[IoSlice::new(buffer)], offset)
    }

    /// As [`Hold::write_at`], from several buffers: one atomic write.
    ///
    /// # Errors
    /// As [`Hold::write_at`].
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize, FsError> {
        if self.mode != HoldMode::Write {
            return Err(FsError::argument("the hold is for reading", libc::EBADF));
        }
        let length = crate::write::total(buffers)?;
        let Some(extent) = self.part(offset, length as u64)? else { return Ok(0) };
        crate::write::write_held(&self.client.inner, &self.shared, &self.operation(), buffers, extent)
    }

    /// Ends the hold: its locks go as soon as nothing else uses them, if somebody wants them, after what was written under them
    /// is flushed. As dropping it.
    pub fn release(self) {
        drop(self);
    }

    fn operation(&self) -> Operation<'_> {
        Operation::of(self.held.iter().map(|(index, operation)| (&self.shared.stripes[*index], *operation)))
    }

    fn part(&self, offset: u64, length: u64) -> Result<Option<Extent>, FsError> {
        let Some(part) = Extent::with_length(offset, length) else {
            return Ok(None);
        };
        if !self.extent.contains(part) {
            return Err(FsError::argument("beyond what is held", libc::EINVAL));
        }
        Ok(Some(part))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let operation = self.operation();
        self.shared.holds.remove(&operation);
        operation.finish(&self.client.inner);
        self.shared.ranges.end_hold();
    }
}
