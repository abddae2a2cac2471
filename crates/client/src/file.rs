//! Open files: what callers hold.

use crate::client::Client;
use crate::error::FsError;
use crate::foresight::Foresight;
use crate::shared::{DataAttributes, FileShared};
use ccpfs_types::limits::FILE_BYTES_MAX;
use ccpfs_types::{Extent, FileId, Layout};
use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What a handle may be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Reading.
    pub read: bool,
    /// Writing.
    pub write: bool,
    /// Every write goes to the end of the file.
    pub append: bool,
}

struct Handle {
    client: Client,
    shared: Arc<FileShared>,
    stub: Arc<std::fs::File>,
    /// `stub` is the door's as well.
    lent: bool,
    path: PathBuf,
    access: Access,
    /// [`File::close`] ends this handle.
    closing: AtomicBool,
    /// Errors of flushes that this handle has reported.
    seen_errors: AtomicU64,
    /// Whether something was written through this handle.
    written: AtomicBool,
    pace: Pace,
    reads: Foresight,
    writes: Foresight,
    /// Of which group this handle has a lock.
    group: Mutex<Option<NonZeroU64>>,
}

/// Bytes between reads at regular distances that are fetched along with what is read: quicker than one more question to a server.
const GAP_BYTES_MAX: u64 = 32 << 10;

/// Bytes that are fetched ahead of reads at such distances: little, because only what one lock covers is fetched ahead, and other
/// processes read, or have written, what lies between.
const GAP_AHEAD_BYTES_MAX: u64 = 256 << 10;

/// How a handle is read. Threads that read through one handle at once may disturb it, at the price of a question more or less.
#[derive(Default)]
struct Pace {
    /// Where the last read ended; 0 before the first.
    end: AtomicU64,
    /// How far behind the end of the one before it the last one began.
    gap: AtomicU64,
}

impl Pace {
    /// How many bytes behind a read at `offset` will be wanted soon, `bytes_max` at most: if it goes on as those before it did, without
    /// a gap, or after the same small gap as the last one.
    fn ahead_bytes(&self, offset: u64, bytes_max: u64) -> u64 {
        let end = self.end.load(Ordering::Relaxed);
        let Some(gap) = offset.checked_sub(end).filter(|_| end > 0) else {
            self.gap.store(u64::MAX, Ordering::Relaxed);
            return 0;
        };
        let before = self.gap.swap(gap, Ordering::Relaxed);
        match gap {
            0 => bytes_max,
            1..=GAP_BYTES_MAX if gap == before => bytes_max.min(GAP_AHEAD_BYTES_MAX),
            _ => 0,
        }
    }

    /// A read has ended here.
    fn ended(&self, end: u64) {
        self.end.store(end, Ordering::Relaxed);
    }
}

/// An open file. Clones share the handle, as duplicated descriptors do. Many threads may use it at once.
#[derive(Clone)]
pub struct File {
    handle: Arc<Handle>,
}

impl File {
    /// The handle that was begun or made for an open file.
    pub(crate) fn new(
        client: &Client,
        shared: Arc<FileShared>,
        (stub, lent): (Arc<std::fs::File>, bool),
        path: &Path,
        access: Access,
    ) -> File {
        let seen_errors = AtomicU64::new(shared.errors().0);
        let handle = Handle {
            client: client.clone(),
            shared,
            stub,
            lent,
            path: path.to_owned(),
            access,
            closing: AtomicBool::new(false),
            seen_errors,
            written: AtomicBool::new(false),
            pace: Pace::default(),
            reads: Foresight::new(client.inner.config.desired_sections),
            writes: Foresight::new(client.inner.config.desired_sections),
            group: Mutex::default(),
        };
        File { handle: Arc::new(handle) }
    }

    /// The path the file was opened by.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.handle.path
    }

    /// The file's identity.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.handle.shared.stub.file
    }

    /// How the file is striped.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.handle.shared.stub.layout
    }

    /// What the handle may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.handle.access
    }

    pub(crate) fn client(&self) -> &Client {
        &self.handle.client
    }

    pub(crate) fn shared(&self) -> &Arc<FileShared> {
        &self.handle.shared
    }

    /// What this handle's reads, and what its writes, ask for beyond what they need.
    pub(crate) fn foresights(&self) -> [&Foresight; 2] {
        [&self.handle.reads, &self.handle.writes]
    }

    /// Of which group this handle has a lock.
    pub(crate) fn group(&self) -> &Mutex<Option<NonZeroU64>> {
        &self.handle.group
    }

    /// Remembers that something was written, or will be, through this handle: its end flushes.
    pub(crate) fn note_written(&self) {
        self.handle.written.store(true, Ordering::Relaxed);
    }

    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file. Atomic with respect to writes.
    ///
    /// # Errors
    /// EBADF if not open for reading, EIO if a server is lost, ESTALE if the file was removed elsewhere.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, FsError> {
        self.read_vectored_at(&mut [IoSliceMut::new(buffer)], offset)
    }

    /// As [`File::read_at`], into several buffers: one atomic read.
    ///
    /// # Errors
    /// As [`File::read_at`].
    pub fn read_vectored_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize, FsError> {
        if !self.handle.access.read {
            return Err(FsError::argument("the file is not open for reading", libc::EBADF));
        }
        let client = &self.handle.client.inner;
        let ahead_bytes = self.handle.pace.ahead_bytes(offset, client.config.read_ahead_bytes);
        let ahead = (ahead_bytes, &self.handle.reads);
        let read = crate::read::read(client, &self.handle.shared, buffers, offset, ahead)?;
        self.handle.pace.ended(offset + read as u64);
        Ok(read)
    }

    /// Writes all of `buffer` at `offset` into the cache. Atomic with respect to other reads and writes.
    ///
    /// # Errors
    /// EBADF if not open for writing, EFBIG beyond 2^63 - 1, EIO if a server is lost, the error of an earlier flush once.
    pub fn write_at(&self, buffer: &[u8], offset: u64) -> Result<usize, FsError> {
        self.write_vectored_at(&[IoSlice::new(buffer)], offset)
    }

    /// As [`File::write_at`], from several buffers: one atomic write.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_vectored_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<usize, FsError> {
        self.write_after(buffers, offset, |_| ())
    }

    /// As [`File::write_at`], for somebody who has pages of the file under a [`Hold`](crate::Hold): if there are holds of the file,
    /// `before` is called with the bytes that will change, when this call has its turn and its locks and before any of them does. It can
    /// make the pages go: [`Hold::read_at`](crate::Hold::read_at) and [`Hold::write_at`](crate::Hold::write_at) go on meanwhile, and
    /// it must wait for nothing else of this client. What it gives is dropped when the bytes have changed, or will not.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn write_at_after<G>(
        &self,
        buffer: &[u8],
        offset: u64,
        before: impl FnOnce(Extent) -> G,
    ) -> Result<usize, FsError> {
        self.write_after(&[IoSlice::new(buffer)], offset, before)
    }

    fn write_after<G>(
        &self,
        buffers: &[IoSlice<'_>],
        offset: u64,
        before: impl FnOnce(Extent) -> G,
    ) -> Result<usize, FsError> {
        self.begin_change()?;
        let Handle { client, shared, writes, .. } = &*self.handle;
        let written = crate::write::write(&client.inner, shared, (buffers, offset), writes, before)?;
        self.end_change()?;
        Ok(written)
    }

    /// Writes at the end of the file, wherever other clients have moved it; returns the new end.
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append(&self, buffers: &[IoSlice<'_>]) -> Result<u64, FsError> {
        self.append_after(buffers, |_| ())
    }

    /// As [`File::append`]; `before` as for [`File::write_at_after`].
    ///
    /// # Errors
    /// As [`File::write_at`].
    pub fn append_after<G>(
        &self,
        buffers: &[IoSlice<'_>],
        before: impl FnOnce(Extent) -> G,
    ) -> Result<u64, FsError> {
        self.begin_change()?;
        let end = crate::write::append(&self.handle.client.inner, &self.handle.shared, buffers, before)?;
        self.end_change()?;
        Ok(end)
    }

    /// Before a change: whether it is allowed, and what went wrong earlier.
    pub(crate) fn begin_change(&self) -> Result<(), FsError> {
        if !self.handle.access.write {
            return Err(FsError::argument("the file is not open for writing", libc::EBADF));
        }
        self.wake()?;
        if !self.handle.written.load(Ordering::Relaxed) {
            self.handle.written.store(true, Ordering::Relaxed);
        }
        self.report_errors()
    }

    /// After a change: another thread may have sealed the file ([`Client::shutdown`]) since it began, as if there were none.
    pub(crate) fn end_change(&self) -> Result<(), FsError> {
        self.wake()?;
        let written = &self.handle.shared.written;
        if !written.load(Ordering::SeqCst) {
            written.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Says anew that this client may write, if the file was sealed meanwhile.
    pub(crate) fn wake(&self) -> Result<(), FsError> {
        let woken = self.handle.client.inner.wake_writing(&self.handle.shared);
        woken.map_err(|e| crate::directory::namespace_error("open", &self.handle.path, e))
    }

    /// The error of a flush that this handle has not reported yet.
    fn report_errors(&self) -> Result<(), FsError> {
        let (count, errno) = self.handle.shared.errors();
        if self.handle.seen_errors.swap(count, Ordering::Relaxed) == count {
            return Ok(());
        }
        Err(FsError::DataLost { errno })
    }

    /// The size, counting what other clients have not flushed yet.
    ///
    /// # Errors
    /// When a server cannot be asked.
    pub fn size(&self) -> Result<u64, FsError> {
        Ok(self.attributes()?.size)
    }

    /// Size, time and space of the data.
    ///
    /// # Errors
    /// When a server cannot be asked.
    pub fn attributes(&self) -> Result<DataAttributes, FsError> {
        self.handle.shared.attributes(&self.handle.client.inner)
    }

    /// Cuts the file, or lengthens it with a hole.
    ///
    /// # Errors
    /// EBADF/EINVAL if not open for writing, EFBIG beyond the largest file, and what servers say.
    pub fn truncate(&self, size: u64) -> Result<(), FsError> {
        self.truncate_after(size, |_| ())
    }

    /// As [`File::truncate`]; `before` as for [`File::write_at_after`], with all bytes behind the new end.
    ///
    /// # Errors
    /// As [`File::truncate`].
    pub fn truncate_after<G>(&self, size: u64, before: impl FnOnce(Extent) -> G) -> Result<(), FsError> {
        if !self.handle.access.write {
            return Err(FsError::argument("the file is not open for writing", libc::EINVAL));
        }
        self.wake()?;
        self.handle.written.store(true, Ordering::Relaxed);
        self.handle.shared.truncate(&self.handle.client.inner, size, before)?;
        self.end_change()?;
        self.note_cut();
        Ok(())
    }

    /// The stub says when the file was cut or a hole made: servers do not say it exactly enough. Who may not say so waits for the
    /// servers' word.
    pub(crate) fn note_cut(&self) {
        let stub = self.stub();
        // Not while somebody is between writing the record and putting back the time that the stub had.
        let _turn = self.handle.client.inner.opens.record(self.id(), false);
        if crate::sys::set_times(stub, &[crate::times::omit(), crate::times::at_once()]).is_ok()
            && let Ok(found) = crate::sys::stat(stub)
        {
            self.handle.shared.raise_floor(crate::sys::changed_ns(&found));
        }
    }

    /// `fallocate` and `posix_fallocate`: makes the file at least `offset + length` bytes long, unless the size is to be kept. The file
    /// never gets shorter, also not while others append to it. No space is set aside: servers have none to promise.
    ///
    /// # Errors
    /// EBADF if not open for writing, EINVAL for no length, EFBIG beyond the largest file, and what servers say.
    pub fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<(), FsError> {
        self.begin_change()?;
        if length == 0 {
            return Err(FsError::argument("no bytes to allocate", libc::EINVAL));
        }
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FsError::argument("the range ends beyond the largest file", libc::EFBIG))?;
        if !keep_size {
            self.handle.shared.lengthen(&self.handle.client.inner, end)?;
        }
        self.note_cut();
        Ok(())
    }

    /// The stub, owned by the client: for attributes and locks that are the namespace's. Not to be closed, read or written.
    #[must_use]
    pub fn stub(&self) -> BorrowedFd<'_> {
        self.handle.stub.as_fd()
    }

    /// Device and inode of the stub.
    #[must_use]
    pub fn stub_inode(&self) -> (u64, u64) {
        self.handle.shared.opened().inode
    }

    /// Sends what is dirty to the servers: any client reads it afterwards even if this process dies.
    ///
    /// # Errors
    /// The error of this or an earlier flush.
    pub fn flush(&self) -> Result<(), FsError> {
        let flushed = self.handle.shared.flush(&self.handle.client.inner);
        let earlier = self.report_errors();
        flushed.and(earlier)
    }

    /// `fsync`: what was written survives a crash of this client and of the servers.
    ///
    /// # Errors
    /// The error of this or an earlier flush, or of a server's device.
    pub fn sync(&self) -> Result<(), FsError> {
        self.flush()?;
        self.handle.shared.sync(&self.handle.client.inner)?;
        // What a server had acknowledged and may have lost by a crash since.
        self.report_errors()?;
        self.handle
            .stub
            .sync_all()
            .map_err(|e| crate::directory::namespace_error("fsync", &self.handle.path, e))
    }

    /// Attributes as `fstat` gives them.
    ///
    /// # Errors
    /// When the namespace or a server cannot be asked.
    pub fn stat(&self) -> Result<libc::stat, FsError> {
        self.handle.client.stat_fd(self.stub())
    }

    /// Closes this handle and says what went wrong with data written earlier. The last clone flushes, if the configuration
    /// says so (`client.flush_on_close`); dropping it does too, but can only log an error.
    ///
    /// # Errors
    /// The error of this or an earlier flush; the handle is closed all the same.
    pub fn close(self) -> Result<(), FsError> {
        let last = Arc::strong_count(&self.handle) == 1;
        self.handle.closing.store(last, Ordering::Relaxed);
        let written = self.handle.written.load(Ordering::Relaxed);
        if last && written && self.handle.client.inner.config.flush_on_close {
            return self.flush();
        }
        self.report_errors()
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let client = &self.client.inner;
        if self.group.get_mut().is_ok_and(|group| group.is_some())
            && let Err(error) = crate::group::leave(client, &self.shared)
        {
            tracing::warn!(path = %self.path.display(), %error, "left a group with unflushed data");
        }
        if *self.written.get_mut()
            && self.access.write
            && client.config.flush_on_close
            && let Err(error) = self.shared.flush(client)
        {
            // Whoever wants to know calls `close`, which has reported it.
            tracing::warn!(path = %self.path.display(), %error, "closed with unflushed data");
        }
        // Later than that, the program may have record locks again that closing it would drop.
        let lent = (self.lent && *self.closing.get_mut()).then_some(&self.stub);
        client.end_handle(&self.shared, self.access.write, lent, &self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_will_be_wanted_lies_behind_reads_without_a_gap_or_with_the_same_small_gap_again() {
        let pace = Pace::default();
        let ahead = |offset: u64| {
            let bytes = pace.ahead_bytes(offset, 1 << 20);
            pace.ended(offset + 4096);
            bytes
        };
        assert_eq!([ahead(0), ahead(4096)], [0, 1 << 20], "one after the other");
        let distant = [ahead(16_384), ahead(28_672), ahead(40_960)];
        assert_eq!(distant, [0, GAP_AHEAD_BYTES_MAX, GAP_AHEAD_BYTES_MAX], "the same distance once more");
        assert_eq!([ahead(45_057), ahead(0), ahead(8192)], [0, 0, 0], "another distance, and back");
        let far = GAP_BYTES_MAX + 1;
        assert_eq!(
            [ahead(12_288 + far), ahead(16_384 + 2 * far)],
            [0, 0],
            "too far to fetch what lies between"
        );
        assert_eq!(pace.ahead_bytes(0, 0), 0);
    }
}
