//! `stat`: names, owners and permissions from the stub, size and time of the data from the servers.

use crate::client::Client;
use crate::directory::namespace_error;
use crate::error::FsError;
use crate::shared::{DataAttributes, FileShared};
use ccpfs_namespace::STUB_BYTES;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

const NS_PER_S: i64 = 1_000_000_000;

/// Attributes of an open stub.
pub(crate) fn of_descriptor(client: &Client, stub: &File, path: &Path) -> Result<libc::stat, FsError> {
    let mut found = raw_fstat(stub).map_err(|e| namespace_error("stat", path, e))?;
    let record = client.inner.directory.read_stub(stub.as_fd(), path)?;
    let data = client.inner.peek_file(record).attributes(&client.inner)?;
    apply(&mut found, &data, record.layout.stripe_bytes());
    Ok(found)
}

/// `fstat` by the system call itself: the descriptor may be one that an interposer in this process looks after, and
/// the C library's function would lead back to us.
pub(crate) fn raw_fstat(file: &File) -> io::Result<libc::stat> {
    // SAFETY: all zeros is a valid stat.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    let (fd, path) = (file.as_raw_fd(), c"".as_ptr());
    // SAFETY: a valid descriptor, an empty path, and our own structure, which is the kernel's on 64-bit systems.
    let done = unsafe { libc::syscall(libc::SYS_newfstatat, fd, path, &raw mut found, libc::AT_EMPTY_PATH) };
    if done == 0 { Ok(found) } else { Err(io::Error::last_os_error()) }
}

/// Whether attributes of the namespace's own file system can be those of a stub: only then the record is read.
pub(crate) fn may_be_stub(found: &libc::stat) -> bool {
    found.st_mode & libc::S_IFMT == libc::S_IFREG && found.st_size == STUB_BYTES as i64
}

fn apply(found: &mut libc::stat, data: &DataAttributes, stripe_bytes: u64) {
    found.st_size = i64::try_from(data.size).unwrap_or(i64::MAX);
    found.st_blocks = i64::try_from(data.stored_bytes.div_ceil(512)).unwrap_or(i64::MAX);
    found.st_blksize = i64::try_from(stripe_bytes.clamp(4096, 4 << 20)).unwrap_or(4096);
    // Times set by hand (utimensat) are those of the stub; a later write of data is newer than the stub's change time.
    let changed = found.st_ctime * NS_PER_S + found.st_ctime_nsec;
    if data.modified_ns > changed {
        found.st_mtime = data.modified_ns / NS_PER_S;
        found.st_mtime_nsec = data.modified_ns % NS_PER_S;
        found.st_ctime = found.st_mtime;
        found.st_ctime_nsec = found.st_mtime_nsec;
    }
}

/// Leaves the time of the last write in the stub, so that a later change of its mode does not hide it.
pub(crate) fn note_written(stub: &File, file: &FileShared) {
    let last = file.stripes.iter().map(|stripe| stripe.lock().cached().modified_ns()).max().unwrap_or(0);
    let Ok(found) = raw_fstat(stub) else { return };
    if last <= found.st_ctime * NS_PER_S + found.st_ctime_nsec {
        return; // set by hand since
    }
    let times = [
        libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        libc::timespec { tv_sec: last / NS_PER_S, tv_nsec: last % NS_PER_S },
    ];
    // SAFETY: a valid descriptor and two timespecs. A file that belongs to somebody else keeps its time; the servers know it.
    unsafe { libc::futimens(stub.as_raw_fd(), times.as_ptr()) };
}
