//! `stat`: names, owners and permissions from the stub; size, space and time from the stub as well if it is sealed, else from the
//! servers.

use crate::client::{Client, ClientInner};
use crate::directory::{may_be_stub, namespace_error, record};
use crate::error::FsError;
use crate::opened::inode_of;
use crate::shared::DataAttributes;
use crate::sys::{self, Place};
use ccpfs_namespace::{Contents, Stub, StubError, StubState};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A stub that was changed this long ago is not being sealed or unsealed just now. Nanoseconds.
const SETTLED_NS: i64 = 2_000_000_000;

/// A stub that was looked at.
pub(crate) struct Looked {
    /// Read since the caller asked.
    pub(crate) record: Stub,
    /// Open for reading at least.
    pub(crate) stub: Arc<File>,
}

impl Client {
    /// `fstatat`: true size and time for files, the namespace's own answer for everything else. `flags` as there.
    ///
    /// # Errors
    /// As `stat(2)`; EIO if a server cannot be asked.
    pub fn stat_at(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        flags: libc::c_int,
    ) -> Result<libc::stat, FsError> {
        let place = Place { dir, name };
        let mut found = sys::stat_at(place, flags).map_err(|e| namespace_error("stat", &place.path(), e))?;
        self.complete_at(dir, name, flags, &mut found)?;
        Ok(found)
    }

    /// Completes what `fstatat` has said about a name: `found` is then what [`Client::stat_at`] says. `Ok(false)` if it is not a ccPFS
    /// file, or may not be read.
    ///
    /// # Errors
    /// As [`Client::stat_at`].
    pub fn complete_at(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        flags: libc::c_int,
        found: &mut libc::stat,
    ) -> Result<bool, FsError> {
        let place = Place { dir, name };
        let fail = |e| namespace_error("stat", &place.path(), e);
        if !may_be_stub(found) {
            return Ok(false);
        }
        if let Some((_, stub)) = self.inner.known(inode_of(found)) {
            let Some(record) = self.inner.read_if_stub(stub.as_fd(), &place.path())? else {
                return Ok(false);
            };
            self.inner.complete(&Looked { record, stub }, found)?;
            return Ok(true);
        }
        let follow = if flags & libc::AT_SYMLINK_NOFOLLOW != 0 { libc::O_NOFOLLOW } else { 0 };
        let opened = if name.is_empty() {
            sys::reopen(dir, libc::O_RDONLY | libc::O_NONBLOCK)
        } else {
            sys::open(place, libc::O_RDONLY | libc::O_NONBLOCK | follow, 0)
        };
        let stub = match opened {
            Ok(stub) => Arc::new(stub),
            // No permission to read: whoever may not read the file still may see that it is there.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => return Ok(false),
            Err(error) => return Err(fail(error)),
        };
        let Some(record) = self.inner.read_if_stub(stub.as_fd(), &place.path())? else {
            // Another file may have this name by now.
            *found = sys::stat(stub.as_fd()).map_err(fail)?;
            return Ok(false);
        };
        self.inner.complete(&Looked { record, stub }, found)?;
        Ok(true)
    }

    /// `fstat` of a descriptor of the namespace directory, also of one for the name only (`O_PATH`).
    ///
    /// # Errors
    /// As [`Client::stat_at`].
    pub fn stat_fd(&self, fd: BorrowedFd<'_>) -> Result<libc::stat, FsError> {
        let mut found = sys::stat(fd).map_err(|e| namespace_error("stat", &path_of(fd), e))?;
        self.stat_stub(fd, &mut found)?;
        Ok(found)
    }

    /// Completes what `fstat` or `fstatat` has said about the file that `fd` has open (it may be `O_PATH`). `Ok(false)` if that is not
    /// a ccPFS file; `found` is as it was then.
    ///
    /// # Errors
    /// When the record cannot be read, or a server cannot be asked.
    pub fn stat_stub(&self, fd: BorrowedFd<'_>, found: &mut libc::stat) -> Result<bool, FsError> {
        let looked = match self.inner.look(fd, found) {
            Err(error) if error.to_errno() == libc::EACCES => return Ok(true),
            other => other?,
        };
        let Some(looked) = looked else { return Ok(false) };
        self.inner.complete(&looked, found)?;
        Ok(true)
    }

    /// A program has read the contents of the file whose stub `fd` has open: the namespace's file system notes it as the stub's time of
    /// access, by its own rules (`relatime`, `noatime`), which is no change of the stub. What may not be read anew is left as it is.
    pub fn note_access(&self, fd: BorrowedFd<'_>) {
        if let Ok(stub) = sys::open_loudly(fd) {
            let _ = sys::read_start(stub.as_fd(), &mut [0]);
        }
    }
}

impl ClientInner {
    /// The record behind a descriptor, if it is one; `found` is what the system says of it.
    pub(crate) fn look(&self, fd: BorrowedFd<'_>, found: &libc::stat) -> Result<Option<Looked>, FsError> {
        if !may_be_stub(found) {
            return Ok(None);
        }
        let path = || path_of(fd);
        let fail = |e| namespace_error("read", &path(), e);
        let stub = match self.known(inode_of(found)) {
            Some((_, stub)) => stub,
            None => Arc::new(sys::reopen(fd, libc::O_RDONLY | libc::O_NONBLOCK).map_err(fail)?),
        };
        let record = self.read_if_stub(stub.as_fd(), &path())?;
        Ok(record.map(|record| Looked { record, stub }))
    }

    /// The record of an open file, if it has one.
    pub(crate) fn read_if_stub(
        &self,
        stub: BorrowedFd<'_>,
        path: &std::path::Path,
    ) -> Result<Option<Stub>, FsError> {
        match self.directory.read_stub(stub, path) {
            Ok(record) => Ok(Some(record)),
            Err(FsError::CorruptStub { source: StubError::Magic | StubError::Length(_), .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts size, space and time of the data into what the system says of a stub.
    pub(crate) fn complete(&self, looked: &Looked, found: &mut libc::stat) -> Result<(), FsError> {
        let fail = |e| namespace_error("stat", &path_of(looked.stub.as_fd()), e);
        let stripe_bytes = looked.record.layout.stripe_bytes();
        let (state, now) = self.read_settled(looked).map_err(fail)?;
        *found = now;
        found.st_blksize = i64::try_from(stripe_bytes.clamp(4096, 4 << 20)).unwrap_or(4096);
        if let StubState::Sealed(Contents { size, blocks, .. }) = state {
            put_size(found, size, blocks.saturating_mul(4096));
            return Ok(());
        }
        let shared = self.peek_file(looked.record);
        let data = self.data_of(&shared, state)?;
        apply(found, &data);
        Ok(())
    }

    /// What the record says, and the attributes of the stub at the same moment.
    fn read_settled(&self, looked: &Looked) -> io::Result<(StubState, libc::stat)> {
        let stub = looked.stub.as_fd();
        // The record was read before.
        let (state, found) = (looked.record.state, sys::stat(stub)?);
        let age_ns = crate::times::now_ns().saturating_sub(sys::changed_ns(&found));
        if age_ns.abs() > SETTLED_NS {
            return Ok((state, found));
        }
        // Somebody who seals or unseals may be between writing the record and putting the stub's time back. The record alone
        // does not tell: it may have been read before the other wrote it.
        let _turn = self.opens.record(looked.record.file, true);
        let state = record(stub)?.map_or(StubState::Unwatched, |record| record.state);
        Ok((state, sys::stat(stub)?))
    }
}

fn put_size(found: &mut libc::stat, size: u64, stored_bytes: u64) {
    found.st_size = i64::try_from(size).unwrap_or(i64::MAX);
    found.st_blocks = i64::try_from(stored_bytes.div_ceil(512)).unwrap_or(i64::MAX);
}

fn apply(found: &mut libc::stat, data: &DataAttributes) {
    put_size(found, data.size, data.stored_bytes);
    if data.modified_ns > sys::changed_ns(found) {
        let modified = crate::times::timespec(data.modified_ns);
        (found.st_mtime, found.st_mtime_nsec) = (modified.tv_sec, modified.tv_nsec);
        (found.st_ctime, found.st_ctime_nsec) = (modified.tv_sec, modified.tv_nsec);
    }
}

/// The name a descriptor was opened by, for messages.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> PathBuf {
    let link = sys::path_of_descriptor(fd);
    let place = Place { dir: sys::WORKING_DIRECTORY, name: &link };
    match sys::read_link(place) {
        Ok(name) => PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())),
        Err(_) => place.path(),
    }
}
