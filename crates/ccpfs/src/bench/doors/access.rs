//! Files as a program has them: by the calls of the system, or by those of the C interface.

use super::library::Library;
use super::protocol::{DoorJob, How};
use crate::failure::Failure;
use libc::c_int;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

const MODE: u32 = 0o600;

/// Opens files.
pub(super) enum Access {
    /// By the calls of the system, whoever answers them.
    System,
    /// By the C interface.
    Library(Library),
}

/// An open file.
pub(super) enum Opened {
    /// A descriptor.
    System(File),
    /// A handle of the C interface.
    Library(c_int),
}

impl Access {
    /// What the job asks for.
    pub(super) fn prepare(job: &DoorJob) -> Result<Access, Failure> {
        match &job.library {
            None => Ok(Access::System),
            Some((library, config)) => Library::load(library, config).map(Access::Library),
        }
    }

    /// Opens a file.
    pub(super) fn open(&self, path: &Path, how: How) -> io::Result<Opened> {
        match self {
            Access::System => {
                let mut options = File::options();
                options.read(true).write(how != How::Read).create_new(how == How::Create).mode(MODE);
                options.open(path).map(Opened::System)
            }
            Access::Library(library) => {
                let flags = match how {
                    How::Create => libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
                    How::Write => libc::O_RDWR,
                    How::Read => libc::O_RDONLY,
                };
                library.open(path, flags, MODE).map(Opened::Library)
            }
        }
    }

    /// Writes all of `data`.
    pub(super) fn write(&self, opened: &Opened, data: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < data.len() {
            let (rest, at) = (&data[done..], offset + done as u64);
            let count = match (self, opened) {
                (_, Opened::System(file)) => file.write_at(rest, at)?,
                (Access::Library(library), Opened::Library(handle)) => library.write_at(*handle, rest, at)?,
                (Access::System, Opened::Library(_)) => 0,
            };
            if count == 0 {
                return Err(io::Error::from(io::ErrorKind::WriteZero));
            }
            done += count;
        }
        Ok(())
    }

    /// Reads until `data` are full or the file ends; answers how many bytes there were.
    pub(super) fn read(&self, opened: &Opened, data: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let rest = &mut data[done..];
            let count = match (self, opened) {
                (_, Opened::System(file)) => file.read_at(rest, at)?,
                (Access::Library(library), Opened::Library(handle)) => library.read_at(*handle, rest, at)?,
                (Access::System, Opened::Library(_)) => 0,
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    /// Waits until what was written is persistent.
    pub(super) fn sync(&self, opened: &Opened) -> io::Result<()> {
        match (self, opened) {
            (_, Opened::System(file)) => file.sync_all(),
            (Access::Library(library), Opened::Library(handle)) => library.sync(*handle),
            (Access::System, Opened::Library(_)) => Ok(()),
        }
    }

    /// Closes a file.
    pub(super) fn close(&self, opened: Opened) -> io::Result<()> {
        match (self, opened) {
            (Access::Library(library), Opened::Library(handle)) => library.close(handle),
            (Access::System | Access::Library(_), Opened::System(file)) => {
                drop(file);
                Ok(())
            }
            (Access::System, Opened::Library(_)) => Ok(()),
        }
    }

    /// Asks for the size of a file, bytes.
    pub(super) fn size(&self, path: &Path) -> io::Result<u64> {
        match self {
            Access::System => std::fs::symlink_metadata(path).map(|found| found.len()),
            Access::Library(library) => library.stat(path).map(|found| found.st_size.cast_unsigned()),
        }
    }

    /// Removes a file.
    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        match self {
            Access::System => std::fs::remove_file(path),
            Access::Library(library) => library.unlink(path),
        }
    }
}
