//! Operations on names: open, create, stat, unlink, rename, truncate by path, layouts.

use crate::attributes::{may_be_stub, of_descriptor, raw_fstat};
use crate::client::Client;
use crate::directory::{borrowed, namespace_error};
use crate::error::FsError;
use crate::file::{Access, File};
use ccpfs_namespace::Stub;
use ccpfs_types::Layout;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
    /// Permissions of a new file, before the umask; 0 means 0o666.
    pub mode: u32,
    /// Layout of a new file; otherwise that of its directory, or the configured one.
    pub layout: Option<Layout>,
}

impl Client {
    /// Opens a file under the namespace directory.
    ///
    /// # Errors
    /// ENOENT, EEXIST, EACCES and so on as `open(2)`; EIO with a clear message for a corrupt stub.
    pub fn open(&self, path: &Path, options: &OpenOptions) -> Result<File, FsError> {
        if options.create {
            let mode = if options.mode == 0 { 0o666 } else { options.mode };
            self.create_stub(path, mode, options.exclusive, options.layout)?;
        }
        let stub = self.inner.directory.open_stub(path, true)?;
        check_permission(path, options)?;
        let record = self.inner.directory.read_stub(stub.as_fd(), path)?;
        let access = Access { read: options.read, write: options.write, append: options.append };
        let file = File::new(self, record, stub, path, access);
        if options.truncate && options.write {
            file.truncate(0)?;
        }
        Ok(file)
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
        if !exclusive && fs::metadata(path).is_ok() {
            return Ok(false);
        }
        // A dangling link: the file is created where it points to, as open(2) does.
        if !exclusive && let Ok(target) = fs::read_link(path) {
            let target = path.parent().unwrap_or(Path::new(".")).join(target);
            return self.inner.directory.create_stub(&target, mode, layout);
        }
        let created = self.inner.directory.create_stub(path, mode, layout)?;
        if !created && exclusive {
            return Err(namespace_error("create", path, io::Error::from_raw_os_error(libc::EEXIST)));
        }
        Ok(created)
    }

    /// A handle for a stub that is open already (interposer).
    ///
    /// # Errors
    /// When the descriptor is no valid stub of this cluster.
    pub fn attach(&self, stub: BorrowedFd<'_>, access: Access) -> Result<File, FsError> {
        let path = path_of(stub);
        let descriptor =
            stub.try_clone_to_owned().map(fs::File::from).map_err(|e| namespace_error("attach", &path, e))?;
        let record = self.inner.directory.read_stub(stub, &path)?;
        Ok(File::new(self, record, descriptor, &path, access))
    }

    /// `stat` or `lstat`: true size and time for files, the namespace's own answer for everything else.
    ///
    /// # Errors
    /// As `stat(2)`; EIO if a server cannot be asked.
    pub fn stat(&self, path: &Path, follow: bool) -> Result<libc::stat, FsError> {
        let found = raw_stat(path, follow).map_err(|e| namespace_error("stat", path, e))?;
        if !may_be_stub(&found) {
            return Ok(found);
        }
        match self.inner.directory.open_stub(path, follow) {
            Ok(stub) => of_descriptor(self, &stub, path),
            // No permission to read: whoever may not read the file still may see that it is there.
            Err(error) if error.to_errno() == libc::EACCES => Ok(found),
            Err(error) => Err(error),
        }
    }

    /// `fstat` of a descriptor of the namespace directory.
    ///
    /// # Errors
    /// As [`Client::stat`].
    pub fn stat_fd(&self, descriptor: BorrowedFd<'_>) -> Result<libc::stat, FsError> {
        let path = path_of(descriptor);
        let file = borrowed(descriptor);
        let found = raw_fstat(&file).map_err(|e| namespace_error("stat", &path, e))?;
        if may_be_stub(&found) { of_descriptor(self, &file, &path) } else { Ok(found) }
    }

    /// Removes a name. With the last one the data go, as soon as no handle of this client is open.
    ///
    /// # Errors
    /// As `unlink(2)`; an error of a server leaves data behind, never a name.
    pub fn unlink(&self, path: &Path) -> Result<(), FsError> {
        let victim = self.victim(path);
        fs::remove_file(path).map_err(|e| namespace_error("unlink", path, e))?;
        self.remove_data(victim)
    }

    /// Renames; what was at `to` is replaced.
    ///
    /// # Errors
    /// As `rename(2)`.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let same = matches!((fs::symlink_metadata(from), fs::symlink_metadata(to)),
            (Ok(a), Ok(b)) if a.dev() == b.dev() && a.ino() == b.ino());
        let victim = if same { None } else { self.victim(to) };
        fs::rename(from, to).map_err(|e| namespace_error("rename", from, e))?;
        self.remove_data(victim)
    }

    /// The record of a file whose name is about to go, if it is its last name. Taken before, used by
    /// [`Client::remove_data`] after the name is gone.
    #[must_use]
    pub fn victim(&self, path: &Path) -> Option<Stub> {
        let found = raw_stat(path, false).ok()?;
        if !may_be_stub(&found) || found.st_nlink != 1 {
            return None;
        }
        let stub = self.inner.directory.open_stub(path, false).ok()?;
        self.inner.directory.read_stub(stub.as_fd(), path).ok()
    }

    /// Removes the data of a file whose last name is gone; at the last close if it is still open here.
    ///
    /// # Errors
    /// When a server cannot be told.
    pub fn remove_data(&self, victim: Option<Stub>) -> Result<(), FsError> {
        let Some(stub) = victim else { return Ok(()) };
        let file = self.inner.peek_file(stub);
        // Marked first: either the last handle sees the mark when it goes, or it is seen here that it has gone.
        file.mark_unlinked();
        if file.handles() > 0 {
            return Ok(());
        }
        file.destroy(&self.inner)
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
        let found = fs::metadata(path).map_err(|e| namespace_error("stat", path, e))?;
        if found.is_dir() {
            return self.inner.directory.default_layout(path);
        }
        let stub = self.inner.directory.open_stub(path, true)?;
        Ok(self.inner.directory.read_stub(stub.as_fd(), path)?.layout)
    }

    /// The record of a file: identity, layout, number of targets.
    ///
    /// # Errors
    /// When there is no such file, or it is no stub.
    pub fn stub(&self, path: &Path) -> Result<Stub, FsError> {
        let stub = self.inner.directory.open_stub(path, true)?;
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

/// The stub is only ever opened for reading, so the kernel has not checked whether its owner lets us write.
fn check_permission(path: &Path, options: &OpenOptions) -> Result<(), FsError> {
    if !options.write {
        return Ok(());
    }
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| FsError::argument("the path holds a zero byte", libc::EINVAL))?;
    // SAFETY: a valid path.
    if unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::W_OK, libc::AT_EACCESS) } == 0 {
        return Ok(());
    }
    Err(namespace_error("open", path, io::Error::last_os_error()))
}

fn raw_stat(path: &Path, follow: bool) -> io::Result<libc::stat> {
    let name = std::ffi::CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // SAFETY: all zeros is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    // SAFETY: a valid path and our own structure.
    if unsafe { libc::fstatat(libc::AT_FDCWD, name.as_ptr(), &raw mut found, flags) } == 0 {
        Ok(found)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The name a descriptor was opened by, for messages.
fn path_of(descriptor: BorrowedFd<'_>) -> std::path::PathBuf {
    use std::os::fd::AsRawFd;
    let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    fs::read_link(&link).unwrap_or_else(|_| link.into())
}
