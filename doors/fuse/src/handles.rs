//! What the kernel has open, by number.

use crate::exchange::Errno;
use crate::inodes::Inode;
use crate::open;
use ccpfs_client::File;
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

/// What is behind a handle.
pub(crate) enum Content {
    /// A file of ccPFS.
    Data {
        /// The client's handle.
        file: File,
        /// Whether anything was written since the last flush: else `close` has nothing to report.
        written: AtomicBool,
    },
    /// An ordinary file of the namespace's file system.
    Plain(OwnedFd),
    /// A directory, and the position up to which it was read.
    Directory(Mutex<Listing>),
}

/// A directory that is being read.
pub(crate) struct Listing {
    pub(crate) fd: OwnedFd,
    /// Where the descriptor stands, as the namespace's file system counts.
    pub(crate) position: i64,
}

/// Something that is open.
pub(crate) struct Handle {
    pub(crate) inode: Arc<Inode>,
    pub(crate) content: Content,
    /// Whether it may be written.
    pub(crate) writable: bool,
    /// Whether all that it does to its file is to write it where it is told to, and to read it.
    pub(crate) writes_in_place: bool,
    /// Whether its reads are no matter for the file's time of access, or no longer: it has been read.
    pub(crate) access_noted: AtomicBool,
    /// The descriptor that carries its `flock` lock, once it has had one.
    pub(crate) flock: Mutex<Option<OwnedFd>>,
}

impl Handle {
    /// A handle of `inode` that was opened with these flags.
    pub(crate) fn new(inode: Arc<Inode>, content: Content, flags: u32) -> Handle {
        let writable = open::is_writable(flags);
        let writes_in_place = writable && flags.cast_signed() & libc::O_APPEND == 0;
        let access_noted = AtomicBool::new(flags.cast_signed() & libc::O_NOATIME != 0);
        Handle { inode, content, writable, writes_in_place, access_noted, flock: Mutex::new(None) }
    }

    /// The client's file.
    ///
    /// # Errors
    /// `EBADF` when it is something else.
    pub(crate) fn file(&self) -> Result<&File, Errno> {
        match &self.content {
            Content::Data { file, .. } => Ok(file),
            Content::Plain(_) | Content::Directory(_) => Err(libc::EBADF),
        }
    }
}

/// All handles.
#[derive(Default)]
pub(crate) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    /// Enters a handle and gives its number.
    pub(crate) fn enter(&self, handle: Arc<Handle>) -> u64 {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().expect("no code panics under this lock").insert(number, handle);
        number
    }

    /// The handle of this number.
    ///
    /// # Errors
    /// `EBADF` when there is none.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.open.read().expect("no code panics under this lock").get(&number).cloned().ok_or(libc::EBADF)
    }

    /// Takes a handle out.
    ///
    /// # Errors
    /// `EBADF` when there is none.
    pub(crate) fn remove(&self, number: u64) -> Result<Arc<Handle>, Errno> {
        self.open.write().expect("no code panics under this lock").remove(&number).ok_or(libc::EBADF)
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<Arc<Handle>> {
        self.open.read().expect("no code panics under this lock").values().cloned().collect()
    }

    /// Takes all out: the mount has ended.
    pub(crate) fn clear(&self) {
        let open = std::mem::take(&mut *self.open.write().expect("no code panics under this lock"));
        // Outside of the lock: closing a file takes time.
        drop(open);
    }
}
