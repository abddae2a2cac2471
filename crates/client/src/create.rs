//! Making files: a stub is complete, with owner and permissions, before it has a name.

use crate::client::{Client, ClientInner};
use crate::directory::{namespace_error, random_file_id};
use crate::error::FsError;
use crate::file::{Access, File};
use crate::names::OpenOptions;
use crate::opened::inode_of;
use crate::opens::Byte;
use crate::shared::FileShared;
use crate::sys::{self, Place};
use ccpfs_namespace::{Contents, Stub, StubState};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// Permissions of a new file if none are said.
const MODE_DEFAULT: u32 = 0o666;
const MODE_BITS: u32 = 0o7777;

/// A stub without the name that it will have.
struct Fresh {
    record: Stub,
    stub: std::fs::File,
    /// A temporary name, on file systems that have no unnamed files.
    temporary: Option<CString>,
}

impl Client {
    /// Makes an empty file, as `mknod(2)`. `Ok(false)` if something of that name exists and `exclusive` is not set.
    ///
    /// # Errors
    /// EEXIST with `exclusive`, and as `mknod(2)`.
    pub fn create_at(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        options: &OpenOptions,
    ) -> Result<bool, FsError> {
        let place = Place { dir, name };
        let fail = |e| namespace_error("create", &place.path(), e);
        let state = StubState::Sealed(Contents::NOTHING);
        let linked = match self.inner.fresh_if_absent(place, options, state)? {
            Some(fresh) => fresh.link(place),
            None => Err(io::Error::from_raw_os_error(libc::EEXIST)),
        };
        match linked {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !options.exclusive => Ok(false),
            Err(error) => Err(fail(error)),
        }
    }

    /// A file without a name (`O_TMPFILE`) in a directory: its data go when it is closed, unless
    /// [`Client::link_temporary`] gives it a name before.
    ///
    /// # Errors
    /// As `open(2)`; EOPNOTSUPP where the namespace's file system has no such files.
    pub fn temporary_at(&self, dir: BorrowedFd<'_>, options: &OpenOptions) -> Result<File, FsError> {
        let place = Place { dir, name: c"./" };
        let exclusive = if options.exclusive { libc::O_EXCL } else { 0 };
        let fresh = self.inner.fresh(place, options, StubState::NEW, exclusive)?;
        if fresh.temporary.is_some() {
            fresh.abandon(place);
            return Err(namespace_error(
                "open",
                &place.path(),
                io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            ));
        }
        self.inner.note_orphan(fresh.record);
        let (file, shared) = self.begin_fresh(fresh, place, options);
        self.inner.enter_fresh(&shared, &file);
        Ok(file)
    }

    /// Gives a file of [`Client::temporary_at`] a name.
    ///
    /// # Errors
    /// As `linkat(2)`.
    pub fn link_temporary(&self, file: &File, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError> {
        let place = Place { dir, name };
        self.settle_times(file.stub())?;
        sys::link_open(file.stub(), place).map_err(|e| namespace_error("link", &place.path(), e))?;
        self.inner.forget_orphan(file.id());
        self.inner.note_change(file.stub());
        Ok(())
    }

    /// Makes a file and opens it. `Ok(None)` if something of that name exists.
    pub(crate) fn create_open(
        &self,
        place: Place<'_>,
        options: &OpenOptions,
    ) -> Result<Option<File>, FsError> {
        let state = if options.write { StubState::NEW } else { StubState::Sealed(Contents::NOTHING) };
        let Some(fresh) = self.inner.fresh_if_absent(place, options, state)? else { return Ok(None) };
        let temporary = fresh.temporary.clone();
        let (file, shared) = self.begin_fresh(fresh, place, options);
        let fail = |e| namespace_error("create", &place.path(), e);
        match link(file.stub(), temporary.as_deref(), place) {
            Ok(()) => {
                self.inner.enter_fresh(&shared, &file);
                Ok(Some(file))
            }
            // Dropped, it is a file without a name that nobody has written.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
            Err(error) => Err(fail(error)),
        }
    }

    /// The first handle of a file that nobody else can have found.
    fn begin_fresh(&self, fresh: Fresh, place: Place<'_>, options: &OpenOptions) -> (File, Arc<FileShared>) {
        let inner = &self.inner;
        let stub = Arc::new(fresh.stub);
        let shared = inner.open_file(fresh.record);
        {
            let mut opened = shared.opened();
            let file = shared.stub.file;
            opened.stub = Some(Arc::clone(&stub));
            opened.writer = Some(Arc::clone(&stub));
            if options.write {
                opened.watched = inner.opens.hold_both(file);
                opened.writing = true;
                opened.writers = 1;
                opened.before = Some(Contents::NOTHING);
            } else {
                inner.opens.hold(file, Byte::Open);
            }
        }
        let access = Access { read: options.read, write: options.write, append: options.append };
        (File::new(self, Arc::clone(&shared), (stub, false), &place.path(), access), shared)
    }
}

impl ClientInner {
    /// After a file that was made has its name, or will have none for now: what the system says of it is true from here on.
    fn enter_fresh(&self, shared: &Arc<FileShared>, file: &File) {
        // Who looks at it by another descriptor finds it by its record.
        let Ok(found) = sys::stat(file.stub()) else { return };
        let mut opened = shared.opened();
        opened.inode = inode_of(&found);
        self.enter_inode(opened.inode, shared);
        // The change time is that of the link.
        shared.raise_floor(sys::changed_ns(&found));
    }

    /// As [`ClientInner::fresh`]. `Ok(None)` if it cannot be made and something of the name is there: that is said first, whatever
    /// else is wrong.
    fn fresh_if_absent(
        &self,
        place: Place<'_>,
        options: &OpenOptions,
        state: StubState,
    ) -> Result<Option<Fresh>, FsError> {
        let is_there = || sys::stat_at(place, libc::AT_SYMLINK_NOFOLLOW).is_ok();
        match self.fresh(place, options, state, 0) {
            Err(error) if error.to_errno() != libc::EISDIR && is_there() => Ok(None),
            other => other.map(Some),
        }
    }

    /// A complete stub without the name that it will have.
    fn fresh(
        &self,
        place: Place<'_>,
        options: &OpenOptions,
        state: StubState,
        flags: libc::c_int,
    ) -> Result<Fresh, FsError> {
        let fail = |e| namespace_error("create", &place.path(), e);
        let (parent, name) = place.split();
        if name.is_empty() && place.name != c"./" {
            return Err(fail(io::Error::from_raw_os_error(libc::EISDIR)));
        }
        let parent = Place { dir: place.dir, name: &parent };
        let layout = match options.layout {
            Some(layout) => layout,
            None => self.directory.default_layout(parent)?,
        };
        let unwatched = state == StubState::NEW && !self.opens.is_there();
        let state = if unwatched { StubState::Unwatched } else { state };
        let file = random_file_id().map_err(fail)?;
        let record = Stub { file, layout, targets: self.directory.targets, state };
        let mode = if options.mode == 0 { MODE_DEFAULT } else { options.mode } & MODE_BITS;
        let made = unnamed(parent, mode, flags);
        let (stub, temporary) = made.map_err(|error| fail(of_removed(parent, error)))?;
        let fresh = Fresh { record, stub, temporary };
        let made = fresh.complete(parent, mode, options.owner);
        if let Err(error) = made {
            fresh.abandon(place);
            return Err(fail(error));
        }
        Ok(fresh)
    }
}

/// The error of making something in a directory: one that is removed itself has no names, whatever its file system says.
fn of_removed(parent: Place<'_>, error: io::Error) -> io::Error {
    let removed = sys::stat_at(parent, 0).is_ok_and(|found| found.st_nlink == 0);
    if removed { io::Error::from_raw_os_error(libc::ENOENT) } else { error }
}

impl Fresh {
    /// Owner and record.
    fn complete(&self, parent: Place<'_>, mode: u32, owner: Option<(u32, u32)>) -> io::Result<()> {
        let stub = self.stub.as_fd();
        if let Some((user, group)) = owner {
            let in_setgid = sys::stat_at(parent, 0)?.st_mode & libc::S_ISGID != 0;
            let now = sys::stat(stub)?;
            let group = if in_setgid { now.st_gid } else { group };
            if (now.st_uid, now.st_gid) != (user, group) {
                sys::change_owner(stub, user, group)?;
                // Which takes these away.
                if mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
                    sys::change_mode(stub, now.st_mode & MODE_BITS)?;
                }
            }
        }
        sys::write_start(stub, &self.record.encode())
    }

    fn link(&self, place: Place<'_>) -> io::Result<()> {
        link(self.stub.as_fd(), self.temporary.as_deref(), place)
    }

    /// Takes the temporary name away.
    fn abandon(&self, place: Place<'_>) {
        if let Some(name) = &self.temporary {
            let _ = sys::unlink(Place { dir: place.dir, name }, 0);
        }
    }
}

/// Gives a stub its name, and takes the temporary one away.
fn link(stub: BorrowedFd<'_>, temporary: Option<&CStr>, place: Place<'_>) -> io::Result<()> {
    let Some(name) = temporary else { return sys::link_open(stub, place) };
    let temporary = Place { dir: place.dir, name };
    let linked = sys::link(temporary, place, 0);
    let _ = sys::unlink(temporary, 0);
    linked
}

/// A new file without a name; under a temporary one where there are no such files (NFS).
fn unnamed(parent: Place<'_>, mode: u32, flags: libc::c_int) -> io::Result<(std::fs::File, Option<CString>)> {
    match sys::open(parent, libc::O_TMPFILE | libc::O_RDWR | flags, mode) {
        Ok(file) => Ok((file, None)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => {
            let mut random = [0; 8];
            sys::random_bytes(&mut random)?;
            let name = format!(".ccpfs-new-{:016x}", u64::from_le_bytes(random));
            let name = CString::new(name).expect("no zero byte");
            let name = crate::directory::join(parent.name, &name);
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let file = sys::open(Place { dir: parent.dir, name: &name }, flags, mode)?;
            Ok((file, Some(name)))
        }
        Err(error) => Err(error),
    }
}
