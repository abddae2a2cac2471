//! Time stamps: when the data of an unsealed file were written is known to the servers, everything else to the stub.
//!
//! A file that somebody may write has the later of two times: when its data were written, if that was after the stub was changed
//! last (`ctime`), else what the stub says. So times that are set by hand win over earlier writes, and later writes over them.

use crate::attributes::Looked;
use crate::client::{Client, ClientInner};
use crate::directory::namespace_error;
use crate::error::FsError;
use crate::file::Access;
use crate::opened::{Found, inode_of};
use crate::operation::{self, Wish};
use crate::shared::{DataAttributes, FileShared};
use crate::sys;
use ccpfs_dlm::client::Intent;
use ccpfs_namespace::StubState;
use ccpfs_types::Extent;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

const NS_PER_S: i64 = 1_000_000_000;
/// Attempts to give a stub a change time later than the last write: file systems stamp by a clock that ticks.
const TICKS_MAX: u32 = 50;

/// The time, by the clock that file systems stamp their files with: a finer one would run ahead of them.
pub(crate) fn now_ns() -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes our own structure; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    sys::nanoseconds(now.tv_sec, now.tv_nsec)
}

/// Leaves a time as it is.
pub(crate) const fn omit() -> libc::timespec {
    libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT }
}

/// Makes a time that of this moment.
pub(crate) const fn at_once() -> libc::timespec {
    libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW }
}

/// A time as the kernel takes it.
pub(crate) const fn timespec(ns: i64) -> libc::timespec {
    libc::timespec { tv_sec: ns.div_euclid(NS_PER_S), tv_nsec: ns.rem_euclid(NS_PER_S) }
}

impl Client {
    /// Before a door changes mode, owner, extended attributes or links of a file, or renames it: the time of the last write goes
    /// into the stub, because such a change makes the stub younger than the data. Does nothing for what is not a ccPFS file.
    ///
    /// # Errors
    /// When a server cannot be asked.
    pub fn settle_times(&self, fd: BorrowedFd<'_>) -> Result<(), FsError> {
        self.inner.settle_times(fd)
    }

    /// After such a change, or another one of the stub, was made: later writes of this client are later than it, though the clock of
    /// writes ticks more slowly than the one that file systems may stamp changes with.
    pub fn note_change(&self, fd: BorrowedFd<'_>) {
        self.inner.note_change(fd);
    }

    /// `futimens`, for everything in the namespace: access and modification time, `UTIME_NOW` and `UTIME_OMIT` allowed. Earlier
    /// writes do not come after it, later ones do; for that, whoever writes the file just now flushes.
    ///
    /// # Errors
    /// As `futimens(2)`; the error of a flush.
    pub fn set_times(&self, fd: BorrowedFd<'_>, times: &[libc::timespec; 2]) -> Result<(), FsError> {
        let fail = |e| namespace_error("utimens", &crate::attributes::path_of(fd), e);
        let found = sys::stat(fd).map_err(fail)?;
        let looked = self.inner.look(fd, &found)?;
        let Some(looked) = looked else { return sys::set_times(fd, times).map_err(fail) };
        if matches!(looked.record.state, StubState::Sealed(_))
            && self.inner.set_sealed_times(&looked, fd, times).map_err(fail)?
        {
            return Ok(());
        }
        if times[1].tv_nsec == libc::UTIME_OMIT {
            self.settle_times(fd)?;
        }
        let (record, stub, inode) = (looked.record, looked.stub, inode_of(&found));
        // A handle: if the file loses its name meanwhile, its end removes the data.
        let handle = Found { record, stub, inode, writer: None, must_have_name: false, lent: false };
        let access = Access { read: true, ..Access::default() };
        let path = crate::attributes::path_of(fd);
        let Some(shared) = self.inner.begin_handle(handle, access, &path)? else {
            return sys::set_times(fd, times).map_err(fail);
        };
        let done = self.inner.set_times_unsealed(&shared, record.state, fd, times);
        self.inner.end_handle(&shared, false, None, &path);
        done
    }
}

/// Makes the stub younger than the last write of this client, and later writes of this client younger than the stub. Returns when
/// the stub was changed.
fn outrun(fd: BorrowedFd<'_>, shared: &FileShared, times: &[libc::timespec; 2]) -> io::Result<i64> {
    let mut changed = 0;
    for _ in 0..TICKS_MAX {
        changed = sys::changed_ns(&sys::stat(fd)?);
        shared.raise_floor(changed);
        if changed >= shared.stamped_ns.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        sys::set_times(fd, times)?;
    }
    Ok(changed)
}

/// Waits until writes that begin from here on are given later times than this by all clients of this node. File systems may stamp
/// changes more finely than this clock ticks.
pub(crate) fn let_pass(changed_ns: i64) {
    for _ in 0..TICKS_MAX {
        if now_ns() > changed_ns {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl ClientInner {
    /// See [`Client::settle_times`].
    pub(crate) fn settle_times(&self, fd: BorrowedFd<'_>) -> Result<(), FsError> {
        let fail = |e| namespace_error("stat", &crate::attributes::path_of(fd), e);
        let found = sys::stat(fd).map_err(fail)?;
        let looked = match self.look(fd, &found) {
            // Its owner may change what it may not read; there is nothing that this process could settle.
            Err(error) if error.to_errno() == libc::EACCES => return Ok(()),
            other => other?,
        };
        let Some(looked) = looked else { return Ok(()) };
        if let StubState::Sealed(_) = looked.record.state {
            return Ok(());
        }
        let shared = self.peek_file(looked.record);
        let data = self.data_of(&shared, looked.record.state)?;
        if data.modified_ns > sys::changed_ns(&found) {
            let _turn = self.opens.record(shared.stub.file, false);
            // Whatever has changed the stub meanwhile has settled this itself, or set a time that is to stay.
            if sys::changed_ns(&sys::stat(looked.stub.as_fd()).map_err(fail)?) == sys::changed_ns(&found) {
                // Who may not set times may not change the rest either, and is told by that call.
                let _ = sys::set_times(looked.stub.as_fd(), &[omit(), timespec(data.modified_ns)]);
            }
        }
        Ok(())
    }

    /// See [`Client::note_change`].
    pub(crate) fn note_change(&self, fd: BorrowedFd<'_>) {
        let Ok(found) = sys::stat(fd) else { return };
        if let Some((shared, _)) = self.known(inode_of(&found)) {
            shared.raise_floor(sys::changed_ns(&found));
        }
    }

    /// See [`Client::set_times`], for a file that was sealed. `Ok(false)`, and nothing is changed, if it is not any longer.
    fn set_sealed_times(
        &self,
        looked: &Looked,
        fd: BorrowedFd<'_>,
        times: &[libc::timespec; 2],
    ) -> io::Result<bool> {
        let _turn = self.opens.record(looked.record.file, false);
        let is_sealed = crate::directory::record(looked.stub.as_fd())?
            .is_none_or(|record| matches!(record.state, StubState::Sealed(_)));
        if is_sealed {
            sys::set_times(fd, times)?;
        }
        Ok(is_sealed)
    }

    /// Sets the times of a stub while nobody is between writing its record and putting back the time that it had; the stub is
    /// younger than the last write of this client then. Returns when it was changed.
    fn set_stub_times(
        &self,
        shared: &FileShared,
        fd: BorrowedFd<'_>,
        times: &[libc::timespec; 2],
    ) -> io::Result<i64> {
        let _turn = self.opens.record(shared.stub.file, false);
        sys::set_times(fd, times)?;
        outrun(fd, shared, times)
    }

    /// See [`Client::set_times`], for a file that is open and not sealed.
    fn set_times_unsealed(
        &self,
        shared: &FileShared,
        state: StubState,
        fd: BorrowedFd<'_>,
        times: &[libc::timespec; 2],
    ) -> Result<(), FsError> {
        let fail = |e| namespace_error("utimens", &crate::attributes::path_of(fd), e);
        let is_alone = match state {
            StubState::Unsealed { sole, .. } => sole && shared.opened().before.is_some(),
            StubState::Unwatched | StubState::Sealed(_) => false,
        };
        if is_alone {
            // Servers take for written later what they store later; they may be asked once others write, too.
            shared.flush(self)?;
            return self.set_stub_times(shared, fd, times).map(drop).map_err(fail);
        }
        let mut turn = shared.ranges.lock(Extent::WHOLE, false);
        // What others have written is with the servers as soon as all may be read. Where servers cannot be asked nobody can write.
        let wish = Wish::new(Intent::Read, Extent::WHOLE);
        let operation = operation::begin(self, shared, &mut turn, &wish)
            .inspect_err(|error| tracing::debug!(%error, "times are set without asking who writes"))
            .ok();
        let flushed = shared.flush(self);
        let changed = flushed.and_then(|()| {
            let_pass(sys::changed_ns(&sys::stat(fd).map_err(fail)?));
            self.set_stub_times(shared, fd, times).map_err(fail)
        });
        if let Ok(changed) = &changed {
            let_pass(*changed);
        }
        if let Some(operation) = operation {
            operation.finish(self);
        }
        changed.map(drop)
    }

    /// Size, time and space of the data of an unsealed file. Asks nobody while this client, alone, could have written and has not.
    pub(crate) fn data_of(&self, shared: &FileShared, state: StubState) -> Result<DataAttributes, FsError> {
        let before = match state {
            StubState::Unsealed { sole: true, .. } => shared.opened().before,
            StubState::Unsealed { sole: false, .. } | StubState::Unwatched | StubState::Sealed(_) => None,
        };
        match before {
            Some(before) if !shared.written.load(Ordering::SeqCst) => Ok(DataAttributes {
                size: before.size,
                modified_ns: 0,
                stored_bytes: before.blocks.saturating_mul(4096),
            }),
            Some(_) => {
                let mut data = shared.attributes(self)?;
                data.modified_ns = shared.stamped_ns.load(Ordering::Relaxed);
                Ok(data)
            }
            None => shared.attributes(self),
        }
    }
}
