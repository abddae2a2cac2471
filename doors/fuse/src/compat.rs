//! What the client lacks so far, in its words.

use crate::sys;
use ccpfs_client::{Access, Client, File, FsError, OpenOptions};
use libc::timespec;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

fn path(dir: BorrowedFd<'_>, name: &CStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(sys::path_in(dir, name).as_bytes()))
}

fn error(errno: i32) -> FsError {
    FsError::Namespace {
        operation: "call",
        path: PathBuf::new(),
        source: std::io::Error::from_raw_os_error(errno),
    }
}

pub(crate) trait AtClient {
    fn open_at(&self, dir: BorrowedFd<'_>, name: &CStr, options: &OpenOptions) -> Result<File, FsError>;
    fn create_at(&self, dir: BorrowedFd<'_>, name: &CStr, options: &OpenOptions) -> Result<bool, FsError>;
    fn temporary_at(&self, dir: BorrowedFd<'_>, options: &OpenOptions) -> Result<File, FsError>;
    fn stat_stub(&self, fd: BorrowedFd<'_>, found: &mut libc::stat) -> Result<bool, FsError>;
    fn unlink_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError>;
    fn rename_at(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        dir2: BorrowedFd<'_>,
        name2: &CStr,
        flags: u32,
    ) -> Result<(), FsError>;
    fn rmdir_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError>;
    fn settle_times(&self, fd: BorrowedFd<'_>) -> Result<(), FsError>;
    fn set_times(&self, fd: BorrowedFd<'_>, times: &[timespec; 2]) -> Result<(), FsError>;
    fn attach_path(&self, fd: BorrowedFd<'_>, access: Access) -> Result<File, FsError>;
}

impl AtClient for Client {
    fn open_at(&self, dir: BorrowedFd<'_>, name: &CStr, options: &OpenOptions) -> Result<File, FsError> {
        self.open(&path(dir, name), options)
    }
    fn create_at(&self, dir: BorrowedFd<'_>, name: &CStr, options: &OpenOptions) -> Result<bool, FsError> {
        self.create_stub(&path(dir, name), options.mode & 0o7777, options.exclusive, None)
    }
    fn temporary_at(&self, _dir: BorrowedFd<'_>, _options: &OpenOptions) -> Result<File, FsError> {
        Err(error(libc::EOPNOTSUPP))
    }
    fn stat_stub(&self, fd: BorrowedFd<'_>, found: &mut libc::stat) -> Result<bool, FsError> {
        if found.st_size != 64 {
            return Ok(false);
        }
        let stub = sys::reopen(fd, libc::O_RDONLY | libc::O_NONBLOCK).map_err(error)?;
        match self.stat_fd(stub.as_fd()) {
            Ok(complete) => *found = complete,
            Err(e) if crate::names::is_ordinary(&e) => return Ok(false),
            Err(e) => return Err(e),
        }
        Ok(true)
    }
    fn unlink_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError> {
        self.unlink(&path(dir, name))
    }
    fn rename_at(
        &self,
        dir: BorrowedFd<'_>,
        name: &CStr,
        dir2: BorrowedFd<'_>,
        name2: &CStr,
        flags: u32,
    ) -> Result<(), FsError> {
        if flags != 0 {
            // SAFETY: two open directories and two strings.
            return sys::checked(unsafe {
                libc::renameat2(dir.as_raw_fd(), name.as_ptr(), dir2.as_raw_fd(), name2.as_ptr(), flags)
            })
            .map(drop)
            .map_err(error);
        }
        self.rename(&path(dir, name), &path(dir2, name2))
    }
    fn rmdir_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError> {
        sys::unlink_at(dir, name, libc::AT_REMOVEDIR).map_err(error)
    }
    fn settle_times(&self, _fd: BorrowedFd<'_>) -> Result<(), FsError> {
        Ok(())
    }
    fn set_times(&self, fd: BorrowedFd<'_>, times: &[timespec; 2]) -> Result<(), FsError> {
        sys::change_times(fd, times).map_err(error)
    }
    fn attach_path(&self, fd: BorrowedFd<'_>, access: Access) -> Result<File, FsError> {
        let stub = sys::reopen(fd, libc::O_RDONLY | libc::O_NONBLOCK).map_err(error)?;
        self.attach(stub.as_fd(), access)
    }
}

pub(crate) trait StubFile {
    fn stub(&self) -> std::fs::File;
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<(), FsError>;
}

impl StubFile for File {
    fn stub(&self) -> std::fs::File {
        std::fs::File::open(self.path()).expect("just made")
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> Result<(), FsError> {
        if !keep_size && self.size()? < offset + length {
            self.truncate(offset + length)?;
        }
        Ok(())
    }
}
