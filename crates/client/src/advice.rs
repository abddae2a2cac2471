//! Advice: what a program knows about its accesses, said before they come. After Lustre's `llapi_ladvise` (paper 004).
//!
//! *Lockahead* asks for locks on extents that will be wanted, exactly as long as they are said to be, and waits for nobody: neither for the server's answer
//! nor for other clients, and nobody is asked to give anything back. So processes that write pieces of one file by
//! turns have all their locks before they begin.

use crate::client::ClientInner;
use crate::error::FsError;
use crate::file::File;
use crate::operation::{await_speculations, with_locks};
use crate::shared::FileShared;
use crate::stripe::{Outbox, Stripe};
use ccpfs_cached_stripe::Input;
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, LockMode, Terms};
use std::sync::Arc;

/// Most advices of one call.
pub const ADVICES_MAX: usize = 1024;

/// Bytes that are brought into the cache at a time.
const WILL_READ_BYTES: u64 = 1 << 20;

/// What the bytes of a lockahead will be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AheadMode {
    /// Reading.
    Read,
    /// Writing.
    Write,
}

/// What became of one advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Advised {
    /// Locks were asked for. Whether they are granted is not known: they are not where somebody else has a lock in the way.
    Sent,
    /// This client has locks of exactly these bytes.
    Same,
    /// This client has locks that serve and cover more.
    Different,
}

impl File {
    /// Asks for locks on `extents`, in the background. One result for each.
    ///
    /// Extents are half-open: `[0, 4096)` and `[4096, 8192)` are neighbours and do not conflict. (Lustre's manual says the same of `lla_end`,
    /// but its kernel takes the end for the last page: callers of Lustre pass `end - 1`, and who ports them must add one.) Locks are
    /// exact to the byte, never rounded or expanded.
    ///
    /// # Errors
    /// EINVAL if there is no extent or more than [`ADVICES_MAX`]. For one extent: EBADF if the file is not open for this mode, EFBIG beyond the largest
    /// file, and what connecting to servers says.
    pub fn lockahead(
        &self,
        extents: &[Extent],
        mode: AheadMode,
    ) -> Result<Vec<Result<Advised, FsError>>, FsError> {
        if extents.is_empty() || extents.len() > ADVICES_MAX {
            return Err(FsError::argument("1 to 1024 advices at a time", libc::EINVAL));
        }
        let (client, shared) = (&self.client().inner, self.shared());
        let results = extents.iter().map(|extent| self.advise(*extent, mode)).collect();
        answers_come(client, shared);
        Ok(results)
    }

    fn advise(&self, extent: Extent, mode: AheadMode) -> Result<Advised, FsError> {
        let (access, layout) = (self.access(), self.layout());
        let mode = match mode {
            AheadMode::Read if access.read => LockMode::Pr,
            // Serves operations on one stripe as well as those on several.
            AheadMode::Write if access.write && layout.stripe_count() > 1 => LockMode::Bw,
            AheadMode::Write if access.write => LockMode::Nbw,
            AheadMode::Read | AheadMode::Write => {
                return Err(FsError::argument("the file is not open for this", libc::EBADF));
            }
        };
        if extent.end() > FILE_BYTES_MAX && extent.end() != Extent::EOF {
            return Err(FsError::argument("the advice ends beyond the largest file", libc::EFBIG));
        }
        let mut advised = Advised::Same;
        for (index, part) in layout.stripe_hulls(extent) {
            let index = usize::try_from(index).expect("stripes are few");
            let stripe = &self.shared().stripes[index];
            match ask_ahead(&self.client().inner, self.shared(), stripe, mode, part)? {
                Advised::Same => {}
                Advised::Sent => advised = Advised::Sent,
                Advised::Different if advised == Advised::Same => advised = Advised::Different,
                Advised::Different => {}
            }
        }
        Ok(advised)
    }

    /// Waits until the servers have answered all [`File::lockahead`] of this client on the file: at once, they wait for nobody. What was granted
    /// is [`Advised::Same`] from then on.
    pub fn await_lockahead(&self) {
        let client = &self.client().inner;
        self.shared().stripes.iter().for_each(|stripe| await_speculations(client, stripe));
    }

    /// Says whether locks of this handle's reads and writes are to cover more than what each needs, if nobody else has it: `false` keeps
    /// processes that take pieces of one file by turns out of each other's way. The default is `true`.
    pub fn set_lock_expansion(&self, expand: bool) {
        for foresight in self.foresights() {
            foresight.set_exact(!expand);
        }
    }

    /// Brings bytes into the cache that will be read soon, as many of them as a quarter of the cache holds.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn will_read(&self, extent: Extent) -> Result<(), FsError> {
        let most = self.client().inner.config.cache_bytes / 4;
        let end = extent.end().min(extent.start().saturating_add(most));
        let length = usize::try_from(WILL_READ_BYTES.min(end - extent.start())).expect("at most a MiB");
        let mut buffer = vec![0; length];
        let mut at = extent.start();
        while at < end {
            let length = usize::try_from(WILL_READ_BYTES.min(end - at)).expect("at most a MiB");
            let read = self.read_at(&mut buffer[..length], at)?;
            if read < length {
                break;
            }
            at += read as u64;
        }
        Ok(())
    }

    /// Gives back the memory of bytes that will not be read soon: what is dirty is flushed, and what is clean forgotten.
    ///
    /// # Errors
    /// As [`File::flush`].
    pub fn dont_need(&self, extent: Extent) -> Result<(), FsError> {
        self.flush()?;
        let (client, layout) = (&self.client().inner, self.layout());
        for (index, part) in layout.stripe_hulls(extent) {
            let stripe = &self.shared().stripes[usize::try_from(index).expect("stripes are few")];
            let mut out = Outbox::default();
            let mut inner = stripe.lock();
            if inner.page_count() > 0 {
                inner.step(stripe, client, Input::Reclaim { extent: part }, &mut out);
            }
            drop(inner);
            client.dispatch(stripe, out);
        }
        Ok(())
    }
}

/// Asks for one lock of a stripe unless there is one; nobody waits for the answer.
fn ask_ahead(
    client: &ClientInner,
    shared: &FileShared,
    stripe: &Arc<Stripe>,
    mode: LockMode,
    part: Extent,
) -> Result<Advised, FsError> {
    let group = shared.group.present(client, shared)?;
    let mut inner = with_locks(client, stripe)?;
    if let Some(held) = inner.cached().covering(mode, &part.into(), group) {
        return Ok(if held.as_extent() == Some(part) { Advised::Same } else { Advised::Different });
    }
    let (operation, request) = (client.operation(), client.request());
    let terms = Terms { group, ..Terms::TRY };
    let (required, desired) = (part.into(), part.into());
    let mut out = Outbox::default();
    inner.speculate(operation);
    let input = Input::Acquire { operation, mode, required, desired, request, terms };
    inner.step(stripe, client, input, &mut out);
    drop(inner);
    client.dispatch(stripe, out);
    Ok(Advised::Sent)
}

/// Lets a thread receive the answers to what was asked for ahead: a lock that nobody knows of could not be given back.
fn answers_come(client: &ClientInner, shared: &FileShared) {
    let asked: Vec<Arc<Stripe>> =
        shared.stripes.iter().filter(|stripe| stripe.lock().speculates()).cloned().collect();
    let Some(client) = client.weak().upgrade().filter(|_| !asked.is_empty()) else { return };
    crate::flush_loop::spawn("ccpfs-ahead", move || {
        asked.iter().for_each(|stripe| await_speculations(&client, stripe));
    });
}
