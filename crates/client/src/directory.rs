//! The directory namespace: stubs in a directory of an existing file system (DESIGN section 6).

use crate::attributes::raw_fstat;
use crate::error::FsError;
use ccpfs_namespace::{STUB_BYTES, Stub, StubError};
use ccpfs_types::{FileId, Layout};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Hidden file with the default layout of new files in its directory and those below.
const DIRECTORY_LAYOUT: &str = ".ccpfs-stripe";

/// The namespace of one client.
pub(crate) struct Directory {
    pub(crate) root: PathBuf,
    pub(crate) targets: u32,
    pub(crate) layout: Layout,
}

pub(crate) fn namespace_error(operation: &'static str, path: &Path, source: io::Error) -> FsError {
    FsError::Namespace { operation, path: path.to_owned(), source }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The file of a descriptor that somebody else owns. Not a duplicate: closing one would drop the process's record locks.
pub(crate) fn borrowed(descriptor: BorrowedFd<'_>) -> ManuallyDrop<File> {
    // SAFETY: the descriptor is open as long as it is borrowed, and the file is never dropped, so never closed.
    ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor.as_raw_fd()) })
}

/// 128 random bits.
fn random_file_id() -> io::Result<FileId> {
    let mut id = [0; 16];
    random_bytes(&mut id)?;
    Ok(FileId(id))
}

/// Fills `bytes` (at most 256) from the system's random numbers.
pub(crate) fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the buffer is ours and as long as said.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(got) == Ok(bytes.len()) { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Directory {
    /// Reads the record of an open stub.
    pub(crate) fn read_stub(&self, stub: BorrowedFd<'_>, path: &Path) -> Result<Stub, FsError> {
        let mut bytes = [0_u8; STUB_BYTES + 1];
        let file = borrowed(stub);
        let length = read_up_to(&file, &mut bytes).map_err(|e| namespace_error("read", path, e))?;
        let corrupt = |source| FsError::CorruptStub { path: path.to_owned(), source };
        if length != STUB_BYTES {
            let bytes = raw_fstat(&file).map_or(length as u64, |found| found.st_size.cast_unsigned());
            return Err(corrupt(StubError::Length(bytes)));
        }
        let stub = Stub::decode(&bytes[..STUB_BYTES]).map_err(corrupt)?;
        if stub.targets != self.targets {
            return Err(FsError::OtherCluster {
                path: path.to_owned(),
                stub: stub.targets,
                cluster: self.targets,
            });
        }
        Ok(stub)
    }

    /// Opens a stub for reading its record. The descriptor cannot write: a stray write must not harm the record.
    pub(crate) fn open_stub(&self, path: &Path, follow: bool) -> Result<File, FsError> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | if follow { 0 } else { libc::O_NOFOLLOW };
        let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
        let opened = match opened {
            // A file that may be written but not read: its owner, or root, still gets at the record.
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                return Err(namespace_error("open", path, error));
            }
            other => other.map_err(|e| namespace_error("open", path, e))?,
        };
        let kind = opened.metadata().map_err(|e| namespace_error("stat", path, e))?;
        if kind.is_dir() {
            return Err(namespace_error("open", path, io::Error::from_raw_os_error(libc::EISDIR)));
        }
        Ok(opened)
    }

    /// Creates a stub under `path`, all or nothing. `Ok(false)` if something of that name is there already.
    pub(crate) fn create_stub(
        &self,
        path: &Path,
        mode: u32,
        layout: Option<Layout>,
    ) -> Result<bool, FsError> {
        let fail = |e| namespace_error("create", path, e);
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            Some(_) | None => Path::new("."),
        };
        let layout = match layout {
            Some(layout) => layout,
            None => self.default_layout(parent)?,
        };
        let stub = Stub { file: random_file_id().map_err(fail)?, layout, targets: self.targets };
        match create_unnamed(parent, path, mode, &stub.encode()) {
            Ok(created) => Ok(created),
            // No unnamed files here (NFS): a temporary name instead.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::ENOENT)) =>
            {
                create_by_rename(parent, path, mode, &stub.encode()).map_err(fail)
            }
            Err(error) => Err(fail(error)),
        }
    }

    /// The layout of a new file in `directory`: of the nearest directory above that has one, or the configured one.
    pub(crate) fn default_layout(&self, directory: &Path) -> Result<Layout, FsError> {
        let mut at = Some(directory);
        while let Some(directory) = at.filter(|d| d.starts_with(&self.root)) {
            if let Some(layout) = self.directory_layout(directory)? {
                return Ok(layout);
            }
            at = directory.parent();
        }
        Ok(self.layout)
    }

    /// The default layout set on a directory itself.
    pub(crate) fn directory_layout(&self, directory: &Path) -> Result<Option<Layout>, FsError> {
        let path = directory.join(DIRECTORY_LAYOUT);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(namespace_error("read", &path, error)),
        };
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let layout = match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(count)), Some(Ok(bytes)), None) => {
                u32::try_from(count).ok().and_then(|c| Layout::new(c, bytes))
            }
            _ => None,
        };
        let corrupt = FsError::CorruptStub { path, source: StubError::Layout };
        layout.map(Some).ok_or(corrupt)
    }

    /// Sets the default layout of new files in a directory.
    pub(crate) fn set_directory_layout(&self, directory: &Path, layout: Layout) -> Result<(), FsError> {
        let path = directory.join(DIRECTORY_LAYOUT);
        let fail = |e| namespace_error("write", &path, e);
        let temporary = directory.join(format!("{DIRECTORY_LAYOUT}.{}", std::process::id()));
        let text = format!("{} {}\n", layout.stripe_count(), layout.stripe_bytes());
        std::fs::write(&temporary, text).map_err(fail)?;
        std::fs::rename(&temporary, &path).map_err(fail)
    }
}

/// Reads from the start of a file, by the system call itself (see [`crate::attributes::raw_fstat`]).
fn read_up_to(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < bytes.len() {
        let left = &mut bytes[length..];
        let (fd, to, count) = (file.as_raw_fd(), left.as_mut_ptr(), left.len());
        // SAFETY: a valid descriptor and a buffer of ours of that length.
        let read = unsafe { libc::syscall(libc::SYS_pread64, fd, to, count, length) };
        match usize::try_from(read) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    Ok(length)
}

fn create_unnamed(parent: &Path, path: &Path, mode: u32, record: &[u8]) -> io::Result<bool> {
    let directory = c_path(parent)?;
    let flags = libc::O_TMPFILE | libc::O_WRONLY | libc::O_CLOEXEC;
    // SAFETY: a valid path and flags; the result is checked.
    let descriptor = unsafe { libc::open(directory.as_ptr(), flags, mode) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened, owned by nobody else.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(record)?;
    let from = c_path(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    let to = c_path(path)?;
    // SAFETY: two valid paths.
    let linked = unsafe {
        libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::AT_SYMLINK_FOLLOW)
    };
    exists_or_created(linked)
}

fn create_by_rename(parent: &Path, path: &Path, mode: u32, record: &[u8]) -> io::Result<bool> {
    let mut name = OsString::from(".ccpfs-new-");
    name.push(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
    let temporary = parent.join(name);
    let _ = std::fs::remove_file(&temporary);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written = file.write_all(record).and_then(|()| {
        let (from, to) = (c_path(&temporary)?, c_path(path)?);
        // SAFETY: two valid paths.
        let linked = unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), 0) };
        exists_or_created(linked)
    });
    let _ = std::fs::remove_file(&temporary);
    written
}

fn exists_or_created(result: libc::c_int) -> io::Result<bool> {
    if result == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        error => Err(error),
    }
}
