//! The directory namespace: stubs in a directory of an existing file system (DESIGN section 6), and default layouts.

use crate::error::FsError;
use crate::opened::{Inode, inode_of};
use crate::opens::HIDDEN;
use crate::sys::{self, Place};
use ccpfs_namespace::{STUB_BYTES, Stub, StubError};
use ccpfs_types::{FileId, Layout};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

/// Hidden file with the default layout of new files in its directory and those below.
pub(crate) const DIRECTORY_LAYOUT: &CStr = c".ccpfs-stripe";
/// In the hidden directory of the namespace: whether there are such files.
pub(crate) const LAYOUTS: &str = "layouts";
/// Directories above one another that are searched for a layout.
const DEPTH_MAX: usize = 128;
/// Longest text of a layout, bytes.
const LAYOUT_TEXT_MAX: usize = 64;
/// A record that is being written may be read half old and half new; it is read again so often.
const READS_MAX: u32 = 100;

/// The namespace of one client.
pub(crate) struct Directory {
    /// The directory itself.
    root: Inode,
    pub(crate) targets: u32,
    layout: Layout,
    /// The file that is empty as long as no directory was given a layout; a namespace that was not empty at first has none.
    layouts: Option<File>,
}

pub(crate) fn namespace_error(operation: &'static str, path: &Path, source: io::Error) -> FsError {
    FsError::Namespace { operation, path: path.to_owned(), source }
}

fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// 128 random bits.
pub(crate) fn random_file_id() -> io::Result<FileId> {
    let mut id = [0; 16];
    sys::random_bytes(&mut id)?;
    Ok(FileId(id))
}

/// Whether attributes of the namespace's own file system can be those of a stub: only then the record is read.
pub(crate) fn may_be_stub(found: &libc::stat) -> bool {
    found.st_mode & libc::S_IFMT == libc::S_IFREG && usize::try_from(found.st_size) == Ok(STUB_BYTES)
}

/// The record of an open file; `Ok(None)` if it is not one.
pub(crate) fn record(stub: BorrowedFd<'_>) -> io::Result<Option<Stub>> {
    match decode(stub)? {
        Ok(record) => Ok(Some(record)),
        Err(StubError::Length(_) | StubError::Magic) => Ok(None),
        Err(StubError::Version(_) | StubError::Checksum | StubError::Layout) => Err(errno(libc::EIO)),
    }
}

/// Reads a record, again if somebody is just writing it.
fn decode(stub: BorrowedFd<'_>) -> io::Result<Result<Stub, StubError>> {
    let mut bytes = [0_u8; STUB_BYTES + 1];
    let mut reads = 0;
    loop {
        let length = sys::read_start(stub, &mut bytes)?;
        if length != STUB_BYTES {
            let bytes = sys::stat(stub).map_or(length as u64, |found| found.st_size.cast_unsigned());
            return Ok(Err(StubError::Length(bytes)));
        }
        let decoded = Stub::decode(&bytes[..STUB_BYTES]);
        reads += 1;
        if decoded != Err(StubError::Checksum) || reads == READS_MAX {
            return Ok(decoded);
        }
        std::thread::yield_now();
    }
}

impl Directory {
    /// The namespace below `root`.
    ///
    /// # Errors
    /// When it does not exist, or is not a directory.
    pub(crate) fn start(root: &Path, targets: u32, layout: Layout) -> Result<Directory, FsError> {
        let fail = |e| namespace_error("namespace", root, e);
        let name = sys::c_path(root).map_err(fail)?;
        let found = sys::stat_at(Place { dir: sys::WORKING_DIRECTORY, name: &name }, 0).map_err(fail)?;
        if found.st_mode & libc::S_IFMT != libc::S_IFDIR {
            return Err(fail(errno(libc::ENOTDIR)));
        }
        let name = sys::c_path(&root.join(HIDDEN).join(LAYOUTS)).map_err(fail)?;
        let layouts = sys::open(Place { dir: sys::WORKING_DIRECTORY, name: &name }, libc::O_RDONLY, 0).ok();
        Ok(Directory { root: inode_of(&found), targets, layout, layouts })
    }

    /// Reads the record of an open stub.
    pub(crate) fn read_stub(&self, stub: BorrowedFd<'_>, path: &Path) -> Result<Stub, FsError> {
        let corrupt = |source| FsError::CorruptStub { path: path.to_owned(), source };
        let stub = decode(stub).map_err(|e| namespace_error("read", path, e))?.map_err(corrupt)?;
        if stub.targets != self.targets {
            return Err(FsError::OtherCluster {
                path: path.to_owned(),
                stub: stub.targets,
                cluster: self.targets,
            });
        }
        Ok(stub)
    }

    /// The layout of a new file in a directory: of the nearest directory above that has one, or the configured one.
    pub(crate) fn default_layout(&self, directory: Place<'_>) -> Result<Layout, FsError> {
        // Nearly always; then nobody need look from directory to directory.
        let of_none = |layouts: &File| {
            sys::stat(layouts.as_fd()).is_ok_and(|found| found.st_size == 0 && found.st_nlink > 0)
        };
        if self.layouts.as_ref().is_some_and(of_none) {
            return Ok(self.layout);
        }
        let mut name = directory.name.to_bytes().to_owned();
        let mut before = None;
        for _ in 0..DEPTH_MAX {
            let at = CString::new(name.clone()).expect("made of names");
            let at = Place { dir: directory.dir, name: &at };
            if let Some(layout) = self.directory_layout(at)? {
                return Ok(layout);
            }
            let found = sys::stat_at(at, 0).map_err(|e| namespace_error("stat", &at.path(), e))?;
            let inode = inode_of(&found);
            // At the top of everything ".." leads nowhere else.
            if inode == self.root || before == Some(inode) {
                break;
            }
            before = Some(inode);
            name.extend_from_slice(b"/..");
        }
        Ok(self.layout)
    }

    /// The default layout set on a directory itself.
    fn directory_layout(&self, directory: Place<'_>) -> Result<Option<Layout>, FsError> {
        let name = join(directory.name, DIRECTORY_LAYOUT);
        let place = Place { dir: directory.dir, name: &name };
        let fail = |e| namespace_error("read", &place.path(), e);
        // Hardly any directory has one, and looking is quicker than opening.
        if sys::stat_at(place, 0).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        let file = match sys::open(place, libc::O_RDONLY | libc::O_NONBLOCK, 0) {
            Ok(file) => file,
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR)) => {
                return Ok(None);
            }
            Err(error) => return Err(fail(error)),
        };
        let mut text = [0; LAYOUT_TEXT_MAX];
        let length = sys::read_start(file.as_fd(), &mut text).map_err(fail)?;
        let text = String::from_utf8_lossy(&text[..length]);
        let mut numbers = text.split_whitespace().map(str::parse::<u64>);
        let layout = match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(count)), Some(Ok(bytes)), None) => {
                u32::try_from(count).ok().and_then(|c| Layout::new(c, bytes))
            }
            _ => None,
        };
        let corrupt = FsError::CorruptStub { path: place.path(), source: StubError::Layout };
        layout.map(Some).ok_or(corrupt)
    }

    /// Says to all clients that there are directories with layouts.
    fn note_layouts(&self) -> io::Result<()> {
        let Some(layouts) = &self.layouts else { return Ok(()) };
        let noted = sys::reopen(layouts.as_fd(), libc::O_WRONLY)?;
        sys::write_start(noted.as_fd(), b"1\n")
    }

    /// Sets the default layout of new files in a directory.
    pub(crate) fn set_directory_layout(&self, directory: &Path, layout: Layout) -> Result<(), FsError> {
        let path: PathBuf = directory.join(DIRECTORY_LAYOUT.to_str().expect("plain letters"));
        let fail = |e| namespace_error("write", &path, e);
        let mut random = [0; 8];
        sys::random_bytes(&mut random).map_err(fail)?;
        let temporary = path.with_extension(format!("{:016x}", u64::from_le_bytes(random)));
        self.note_layouts().map_err(fail)?;
        let text = format!("{} {}\n", layout.stripe_count(), layout.stripe_bytes());
        std::fs::write(&temporary, text).map_err(fail)?;
        std::fs::rename(&temporary, &path).map_err(fail).inspect_err(|_| {
            let _ = std::fs::remove_file(&temporary);
        })
    }
}

/// A name in a directory.
pub(crate) fn join(directory: &CStr, name: &CStr) -> CString {
    let mut joined = directory.to_bytes().to_owned();
    joined.push(b'/');
    joined.extend_from_slice(name.to_bytes());
    CString::new(joined).expect("made of names")
}
