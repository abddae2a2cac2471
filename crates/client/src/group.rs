//! Group locks: whoever has one of the same group may read and write the whole file, and nobody else may.
//!
//! *What*: programs that have divided a file among themselves say so once, and no lock of one stands in the way of another any more.
//! *What they give up*: reads and writes are not atomic beside those of other members, what another member writes may not be seen before both
//! have left the group, and of bytes that two write it is not said which stay. Bytes that nobody else touches are safe.
//! *Not here*: which group goes before whom (`ccpfs-dlm`).

use crate::client::ClientInner;
use crate::error::FsError;
use crate::file::File;
use crate::operation::{Operation, await_lock, lost, start_lock};
use crate::shared::FileShared;
use crate::stripe::Stripe;
use ccpfs_region::Region;
use ccpfs_types::{GroupId, LockMode, OperationId, Terms};
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The group that a client is a member of on one file.
#[derive(Default)]
pub(crate) struct Membership {
    /// Zero: none.
    id: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many handles have joined.
    handles: u32,
    /// By stripe, the operations that keep the locks in use.
    held: Vec<OperationId>,
}

impl State {
    /// The first stripe where the lock of the group is gone.
    fn lost<'a>(&self, shared: &'a FileShared) -> Option<&'a Stripe> {
        let mut held = shared.stripes.iter().zip(&self.held);
        held.find(|(stripe, held)| !stripe.lock().cached().holds(**held)).map(|(stripe, _)| &**stripe)
    }
}

impl Membership {
    /// The group that locks are asked for under.
    pub(crate) fn id(&self) -> GroupId {
        GroupId(self.id.load(Ordering::SeqCst))
    }

    /// The group that an operation asks for its locks under, unless the server of a stripe has forgotten that we are in it: others may
    /// be at the file then, and who takes them for kept out must learn of it.
    pub(crate) fn present(&self, client: &ClientInner, shared: &FileShared) -> Result<GroupId, FsError> {
        let id = self.id();
        if id == GroupId::NONE {
            return Ok(id);
        }
        let state = self.state.lock().expect("no code panics under this lock");
        match state.lost(shared) {
            Some(stripe) => Err(lost(client, stripe)),
            None => Ok(self.id()),
        }
    }
}

impl File {
    /// Takes a group lock on the whole file: waits until all who are not of `group` have given back their locks, and keeps them out until
    /// [`File::group_unlock`]. All handles of this client on the file are members then.
    ///
    /// Members must not depend on each other's data before all have left (`semantics.md` S27), nor cut the file ([`File::truncate`]) where
    /// another one writes: the cut may win over what is written later. A
    /// client that keeps others waiting is given up by the server after 31 times its `revoke_timeout_ms`, counted anew with each flush; then it loses
    /// what it has not flushed, and all operations fail with EIO until it has left the group.
    ///
    /// # Errors
    /// EBADF if the handle can neither read nor write, EINVAL if it has a group lock, EBUSY if another handle of this client is in another
    /// group, and as [`File::write_at`].
    pub fn group_lock(&self, group: NonZeroU64) -> Result<(), FsError> {
        let access = self.access();
        if !(access.read || access.write) {
            return Err(FsError::argument("the file is not open for reading or writing", libc::EBADF));
        }
        let (client, shared) = (&self.client().inner, self.shared());
        let mut ours = self.group().lock().expect("no code panics under this lock");
        if ours.is_some() {
            return Err(FsError::argument("the handle has a group lock", libc::EINVAL));
        }
        let membership = &shared.group;
        let mut state = membership.state.lock().expect("no code panics under this lock");
        if state.handles > 0 && membership.id().0 != group.get() {
            return Err(FsError::argument("this client is in another group of the file", libc::EBUSY));
        }
        if state.handles == 0 {
            state.held = take(client, shared, GroupId(group.get()))?;
            membership.id.store(group.get(), Ordering::SeqCst);
        }
        state.handles += 1;
        *ours = Some(group);
        Ok(())
    }

    /// Gives back the group lock. With the last of this client on the file, everything is flushed and nothing stays cached: whoever
    /// reads afterwards sees what was written, once all members have left.
    ///
    /// # Errors
    /// EINVAL if the handle has no lock of this group; EIO if a server has given it to others meanwhile; the error of the flush (the lock
    /// is given back all the same).
    pub fn group_unlock(&self, group: NonZeroU64) -> Result<(), FsError> {
        let mut ours = self.group().lock().expect("no code panics under this lock");
        if *ours != Some(group) {
            return Err(FsError::argument("the handle has no lock of this group", libc::EINVAL));
        }
        *ours = None;
        leave(&self.client().inner, self.shared())
    }
}

/// Takes all locks of a group, in the order of the stripes.
fn take(client: &ClientInner, shared: &FileShared, group: GroupId) -> Result<Vec<OperationId>, FsError> {
    let terms = Terms { group, ..Terms::WAIT };
    let mut held = Vec::with_capacity(shared.stripes.len());
    for stripe in &shared.stripes {
        let started = start_lock(client, stripe, LockMode::Pw, (Region::WHOLE, |_| None), terms);
        match started.and_then(|started| await_lock(client, stripe, started)) {
            Ok(operation) => held.push(operation),
            Err(error) => {
                Operation::of(shared.stripes.iter().zip(held)).finish(client);
                return Err(error);
            }
        }
    }
    Ok(held)
}

/// One handle leaves the group that its client is in.
pub(crate) fn leave(client: &ClientInner, shared: &FileShared) -> Result<(), FsError> {
    let membership = &shared.group;
    let mut state = membership.state.lock().expect("no code panics under this lock");
    state.handles -= 1;
    if state.handles > 0 {
        return Ok(());
    }
    membership.id.store(0, Ordering::SeqCst);
    let lost = state.lost(shared).map(|stripe| lost(client, stripe));
    let flushed = shared.flush(client);
    let held = std::mem::take(&mut state.held);
    Operation::of(shared.stripes.iter().zip(held)).finish(client);
    shared.retire(client);
    match lost {
        None => flushed,
        Some(error) => {
            shared.record_error(error.to_errno());
            flushed.and(Err(error))
        }
    }
}
