//! Operations on names: open, create, stat, unlink, rename, truncate, layouts.

use crate::client::Client;
use crate::directory::{may_be_stub, namespace_error};
use crate::error::FsError;
use crate::file::{Access, File};
use crate::opened::{Found, inode_of};
use crate::sys::{self, Place};
use ccpfs_namespace::{Stub, StubError};
use ccpfs_types::Layout;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// How often a file that others create and remove at the same time is tried.
const ATTEMPTS: u32 = 64;
/// Symbolic links that are followed to a file that does not exist yet.
const LINKS_MAX: u32 = 40;

/// How to open a file. The default opens nothing: set `read`, `write` or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Every write goes to the end of the file.
    pub append: bool,
    /// Create it if it does not exist.
    pub create: bool,
    /// With `create`: fail if it exists.
    pub exclusive: bool,
    /// Cut it to nothing.
    pub truncate: bool,
    /// Permissions of a new file, before the umask; 0 means 0o666, `S_IFREG` alone means none.
    pub mode: u32,
    /// Layout of a new file; otherwise that of its directory, or the configured one.
    pub layout: Option<Layout>,
    /// User and group of a new file, otherwise those of the process. In a directory that hands its group on, that is the group.
    pub owner: Option<(u32, u32)>,
    /// Fail with ELOOP if the name is a symbolic link.
    pub no_follow: bool,
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// What an attempt to open a name has come to.
enum Attempt {
    Open(File),
    /// There is nothing of that name.
    Nothing(FsError),
    /// The name is a symbolic link that leads to nothing.
    Dangling(FsError),
    /// It has lost its name meanwhile.
    Gone,
}

impl Client {
    /// Opens a file by a name relative to a directory.
    ///
    /// # Errors
    /// ENOENT, EEXIST, EACCES and so on as `open(2)`; [`FsError::CorruptStub`] for an ordinary file.
    pub fn open_at(&self, dir: BorrowedFd<'_>, name: &CStr, options: &OpenOptions) -> Result<File, FsError> {
        self.open_following(Place { dir, name }, options, 0)
    }

    fn open_following(&self, place: Place<'_>, options: &OpenOptions, links: u32) -> Result<File, FsError> {
        let fail = |number| namespace_error("open", &place.path(), errno(number));
        for _ in 0..ATTEMPTS {
            if options.create && options.exclusive {
                return self.create_open(place, options)?.ok_or_else(|| fail(libc::EEXIST));
            }
            match self.open_existing(place, options)? {
                Attempt::Open(file) => return Ok(file),
                Attempt::Gone => continue,
                Attempt::Nothing(error) | Attempt::Dangling(error) if !options.create => return Err(error),
                Attempt::Dangling(_) if links >= LINKS_MAX => return Err(fail(libc::ELOOP)),
                // The file is created where the link points to, as open(2) does.
                Attempt::Dangling(_) => {
                    let Ok(target) = sys::read_link(place) else { continue };
                    let target = beside(place, &target);
                    return self.open_following(Place { dir: place.dir, name: &target }, options, links + 1);
                }
                Attempt::Nothing(_) => {}
            }
            if let Some(file) = self.create_open(place, options)? {
                return Ok(file);
            }
        }
        Err(fail(libc::ESTALE))
    }

    fn open_existing(&self, place: Place<'_>, options: &OpenOptions) -> Result<Attempt, FsError> {
        let path = place.path();
        let fail = |e| namespace_error("open", &path, e);
        let named = match look_up(place, options.no_follow) {
            Ok(named) => named,
            Err((error, true)) => return Ok(Attempt::Dangling(fail(error))),
            Err((error, false)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Attempt::Nothing(fail(error)));
            }
            Err((error, false)) => return Err(fail(error)),
        };
        refuse_others(&named, &path)?;
        let found = match self.inner.known(inode_of(&named)) {
            Some((shared, stub)) => {
                let read = if options.read { libc::R_OK } else { 0 };
                let write = if options.write { libc::W_OK } else { 0 };
                sys::may_access(place, read | write).map_err(fail)?;
                let inode = inode_of(&named);
                Found { record: shared.stub, stub, inode, writer: None, must_have_name: true, lent: false }
            }
            None => {
                let write = if options.write { libc::O_RDWR } else { libc::O_RDONLY };
                let flags = write | libc::O_NONBLOCK | if options.no_follow { libc::O_NOFOLLOW } else { 0 };
                let stub = match sys::open(place, flags, 0) {
                    Ok(stub) => Arc::new(stub),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Attempt::Gone),
                    Err(error) => return Err(fail(error)),
                };
                let found = sys::stat(stub.as_fd()).map_err(fail)?;
                refuse_others(&found, &path)?;
                let record = self.inner.directory.read_stub(stub.as_fd(), &path)?;
                let writer = options.write.then(|| Arc::clone(&stub));
                let inode = inode_of(&found);
                Found { record, stub, inode, writer, must_have_name: true, lent: false }
            }
        };
        let access = Access { read: options.read, write: options.write, append: options.append };
        let stub = Arc::clone(&found.stub);
        let Some(shared) = self.inner.begin_handle(found, access, &path)? else { return Ok(Attempt::Gone) };
        let file = File::new(self, shared, (stub, false), &path, access);
        if options.truncate && options.write {
            file.truncate(0)?;
        }
        Ok(Attempt::Open(file))
    }

    /// A handle for a stub that is open already; a descriptor for the name only (`O_PATH`) will do. For writing, the stub must be
    /// writable for this process, unless somebody has the file open for writing.
    ///
    /// # Errors
    /// When the descriptor is no valid stub of this cluster; EACCES.
    pub fn attach(&self, stub: BorrowedFd<'_>, access: Access) -> Result<File, FsError> {
        let path = crate::attributes::path_of(stub);
        let found = sys::stat(stub).map_err(|e| namespace_error("attach", &path, e))?;
        self.attach_found(stub, (&found, false), &path, access)
    }

    /// As [`Client::attach`], for whoever has asked already what `stub` is (`found`), and knows a path for messages. `must_have_name`:
    /// a name has led to it, so that it is to be left alone if it has none any longer.
    ///
    /// # Errors
    /// As [`Client::attach`]; ESTALE without the name that it must have.
    pub fn attach_found(
        &self,
        stub: BorrowedFd<'_>,
        (found, must_have_name): (&libc::stat, bool),
        path: &Path,
        access: Access,
    ) -> Result<File, FsError> {
        refuse_others(found, path)?;
        let inode = inode_of(found);
        let found = match self.inner.known(inode) {
            Some((shared, stub)) => {
                Found { record: shared.stub, stub, inode, writer: None, must_have_name, lent: false }
            }
            None => {
                let reopened = reopen(stub, access);
                let (stub, writable) = reopened.map_err(|e| namespace_error("attach", path, e))?;
                let stub = Arc::new(stub);
                let record = self.inner.directory.read_stub(stub.as_fd(), path)?;
                let writer = writable.then(|| Arc::clone(&stub));
                Found { record, stub, inode, writer, must_have_name, lent: false }
            }
        };
        self.attach_to(found, path, access)
    }

    /// As [`Client::attach_found`], for reading, with a descriptor of the client's own: a duplicate of the door's, with which it has its
    /// open file description in common. [`File::close`] closes it, so that this description ends with the door's descriptors.
    ///
    /// # Errors
    /// As [`Client::attach_found`].
    pub fn attach_lent(
        &self,
        stub: OwnedFd,
        (found, must_have_name): (&libc::stat, bool),
        path: &Path,
    ) -> Result<File, FsError> {
        refuse_others(found, path)?;
        let (stub, inode) = (Arc::new(std::fs::File::from(stub)), inode_of(found));
        let record = match self.inner.known(inode) {
            Some((shared, _)) => shared.stub,
            None => self.inner.directory.read_stub(stub.as_fd(), path)?,
        };
        let found = Found { record, stub, inode, writer: None, must_have_name, lent: true };
        self.attach_to(found, path, Access { read: true, ..Access::default() })
    }

    fn attach_to(&self, found: Found, path: &Path, access: Access) -> Result<File, FsError> {
        let (stub, lent) = (Arc::clone(&found.stub), found.lent);
        let shared = self.inner.begin_handle(found, access, path)?;
        let shared = shared.ok_or_else(|| namespace_error("attach", path, errno(libc::ESTALE)))?;
        Ok(File::new(self, shared, (stub, lent), path, access))
    }

    /// Opens a file under the namespace directory.
    ///
    /// # Errors
    /// As [`Client::open_at`].
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<File, FsError> {
        let name = c_path(path)?;
        self.open_at(sys::WORKING_DIRECTORY, &name, options)
    }

    /// Creates an empty file. `Ok(false)` if something of that name exists and `exclusive` is not set.
    ///
    /// # Errors
    /// EEXIST with `exclusive`, and as `open(2)`.
    pub fn create_stub(
        &self,
        path: &Path,
        mode: u32,
        exclusive: bool,
        layout: Option<Layout>,
    ) -> Result<bool, FsError> {
        let mut name = c_path(path)?;
        let options = OpenOptions { mode, exclusive, layout, ..OpenOptions::default() };
        for _ in 0..LINKS_MAX {
            let place = Place { dir: sys::WORKING_DIRECTORY, name: &name };
            if !exclusive && sys::stat_at(place, 0).is_ok() {
                return Ok(false);
            }
            match sys::read_link(place) {
                Ok(target) if !exclusive => name = beside(place, &target),
                Ok(_) | Err(_) => return self.create_at(sys::WORKING_DIRECTORY, &name, &options),
            }
        }
        Err(namespace_error("create", path, errno(libc::ELOOP)))
    }

    /// `stat` or `lstat`: true size and time for files, the namespace's own answer for everything else.
    ///
    /// # Errors
    /// As `stat(2)`; EIO if a server cannot be asked.
    pub fn stat(&self, path: &Path, follow: bool) -> Result<libc::stat, FsError> {
        let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        self.stat_at(sys::WORKING_DIRECTORY, &c_path(path)?, flags)
    }

    /// Removes a name; as [`Client::unlink_at`].
    ///
    /// # Errors
    /// As `unlink(2)`; an error of a server leaves data behind, never a name.
    pub fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.unlink_at(sys::WORKING_DIRECTORY, &c_path(path)?)
    }

    /// Renames; what was at `to` is replaced.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let here = sys::WORKING_DIRECTORY;
        self.rename_at(here, &c_path(from)?, here, &c_path(to)?, 0)
    }

    /// Cuts a file, or lengthens it with a hole.
    ///
    /// # Errors
    /// As `truncate(2)`.
    pub fn truncate(&self, path: &Path, size: u64) -> Result<(), FsError> {
        self.open(path, &OpenOptions { write: true, ..OpenOptions::default() })?.truncate(size)
    }

    /// The layout of a file, or the default of a directory.
    ///
    /// # Errors
    /// When there is no such file or directory.
    pub fn layout(&self, path: &Path) -> Result<Layout, FsError> {
        let name = c_path(path)?;
        let place = Place { dir: sys::WORKING_DIRECTORY, name: &name };
        let found = sys::stat_at(place, 0).map_err(|e| namespace_error("stat", path, e))?;
        if found.st_mode & libc::S_IFMT == libc::S_IFDIR {
            return self.inner.directory.default_layout(place);
        }
        Ok(self.stub(path)?.layout)
    }

    /// The record of a file: identity, layout, number of targets, and what is known about its contents.
    ///
    /// # Errors
    /// When there is no such file, or it is no stub.
    pub fn stub(&self, path: &Path) -> Result<Stub, FsError> {
        let fail = |e| namespace_error("open", path, e);
        let name = c_path(path)?;
        let place = Place { dir: sys::WORKING_DIRECTORY, name: &name };
        let found = sys::stat_at(place, 0).map_err(fail)?;
        refuse_others(&found, path)?;
        if let Some((_, stub)) = self.inner.known(inode_of(&found)) {
            return self.inner.directory.read_stub(stub.as_fd(), path);
        }
        let stub = sys::open(place, libc::O_RDONLY | libc::O_NONBLOCK, 0).map_err(fail)?;
        self.inner.directory.read_stub(stub.as_fd(), path)
    }

    /// Sets the layout of files created in a directory from now on, and in those below without one of their own.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn set_directory_layout(&self, path: &Path, layout: Layout) -> Result<(), FsError> {
        self.inner.directory.set_directory_layout(path, layout)
    }
}

/// A descriptor of our own of an open stub, and whether the record can be written by it. If the stub may not be opened anew the
/// descriptor that is there serves as well.
fn reopen(stub: BorrowedFd<'_>, access: Access) -> io::Result<(std::fs::File, bool)> {
    let denied = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EACCES | libc::EROFS));
    if access.write {
        match sys::reopen(stub, libc::O_RDWR | libc::O_NONBLOCK) {
            Err(error) if denied(&error) => {}
            other => return other.map(|file| (file, true)),
        }
    }
    match sys::reopen(stub, libc::O_RDONLY | libc::O_NONBLOCK) {
        Err(error) if denied(&error) => stub.try_clone_to_owned().map(|fd| (fd.into(), false)),
        other => other.map(|file| (file, false)),
    }
}

/// What a name leads to. With an error: whether the name is a link that leads to nothing.
fn look_up(place: Place<'_>, no_follow: bool) -> Result<libc::stat, (io::Error, bool)> {
    let named = sys::stat_at(place, libc::AT_SYMLINK_NOFOLLOW).map_err(|error| (error, false))?;
    if named.st_mode & libc::S_IFMT != libc::S_IFLNK || no_follow {
        return Ok(named);
    }
    sys::stat_at(place, 0).map_err(|error| {
        let leads_nowhere = error.kind() == io::ErrorKind::NotFound;
        (error, leads_nowhere)
    })
}

/// Refuses what cannot be a stub: directories by their own error, everything else as an ordinary file.
fn refuse_others(found: &libc::stat, path: &Path) -> Result<(), FsError> {
    if may_be_stub(found) {
        return Ok(());
    }
    match found.st_mode & libc::S_IFMT {
        libc::S_IFDIR => Err(namespace_error("open", path, errno(libc::EISDIR))),
        libc::S_IFLNK => Err(namespace_error("open", path, errno(libc::ELOOP))),
        _ => {
            let source = StubError::Length(found.st_size.cast_unsigned());
            Err(FsError::CorruptStub { path: path.to_owned(), source })
        }
    }
}

/// Where a symbolic link leads.
fn beside(link: Place<'_>, target: &CStr) -> CString {
    if target.to_bytes().first() == Some(&b'/') {
        return target.to_owned();
    }
    crate::directory::join(&link.split().0, target)
}

fn c_path(path: &Path) -> Result<CString, FsError> {
    sys::c_path(path).map_err(|e| namespace_error("use", path, e))
}
