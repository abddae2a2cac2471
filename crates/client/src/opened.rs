//! What a client keeps of a file as long as it has it open: the stub's descriptors, its place in the registry, and for how long.
//!
//! While a file has a handle no descriptor of its stub is closed here: in a process with an interposer that would drop the record
//! locks that the program has on the file. One that the door has lent ([`crate::Client::attach_lent`]) goes with its handle: just then the
//! program closes a descriptor of the file, which drops them anyway.

use crate::client::{Client, ClientInner};
use crate::directory::namespace_error;
use crate::error::FsError;
use crate::file::Access;
use crate::opens::Byte;
use crate::shared::FileShared;
use crate::sys;
use ccpfs_namespace::{Contents, Stub};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// Device and inode of a stub.
pub(crate) type Inode = (u64, u64);

/// Of an open file.
#[derive(Default)]
pub(crate) struct Opened {
    /// The stub, from the first handle to the end of the last.
    pub(crate) stub: Option<Arc<File>>,
    /// The stub as the record can be written by, if it was ever needed.
    pub(crate) writer: Option<Arc<File>>,
    /// Further descriptors of the stub that may not be closed yet, or are another handle's.
    pub(crate) spare: Vec<Arc<File>>,
    pub(crate) inode: Inode,
    /// Handles for writing.
    pub(crate) writers: u32,
    /// This client may be writing: its record says so, and WRITING is held if there is a registry.
    pub(crate) writing: bool,
    /// The registry shows that this client may be writing.
    pub(crate) watched: bool,
    /// What the contents were when this client, alone, began to be able to write.
    pub(crate) before: Option<Contents>,
}

impl Opened {
    /// Lets go of a descriptor that was lent, while there are other handles.
    fn give_back(&mut self, lent: &Arc<File>) {
        if let Some(at) = self.spare.iter().position(|spare| Arc::ptr_eq(spare, lent)) {
            self.spare.swap_remove(at);
        } else if self.stub.as_ref().is_some_and(|stub| Arc::ptr_eq(stub, lent))
            && let Some(other) = self.spare.pop()
        {
            self.stub = Some(other);
        }
    }

    /// The descriptor by which the record can be written; opens it if need be.
    pub(crate) fn writer(&mut self) -> io::Result<Arc<File>> {
        if let Some(writer) = &self.writer {
            return Ok(Arc::clone(writer));
        }
        let stub = self.stub.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let writer = Arc::new(sys::reopen(stub.as_fd(), libc::O_RDWR)?);
        self.writer = Some(Arc::clone(&writer));
        Ok(writer)
    }
}

/// A stub that was found, or made, to be opened.
pub(crate) struct Found {
    pub(crate) record: Stub,
    pub(crate) stub: Arc<File>,
    pub(crate) inode: Inode,
    /// If it was opened for writing.
    pub(crate) writer: Option<Arc<File>>,
    /// It has lost its last name since it was found: not what the name leads to.
    pub(crate) must_have_name: bool,
    /// The descriptor goes with the handle.
    pub(crate) lent: bool,
}

pub(crate) fn inode_of(found: &libc::stat) -> Inode {
    (found.st_dev, found.st_ino)
}

impl Client {
    /// Before the process forks, or starts another one that inherits descriptors: files that are open stay registered as open for
    /// the other process, even if this one closes them at once. Followed by [`Client::after_fork_in_parent`].
    pub fn before_fork(&self) {
        self.inner.share_all();
        self.inner.opens.before_fork();
    }

    /// After the process has forked, or has not, in the process that did.
    pub fn after_fork_in_parent(&self) {
        self.inner.opens.after_fork_in_parent();
    }
}

impl FileShared {
    /// What is kept while the file is open.
    pub(crate) fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().expect("no code panics under this lock")
    }

    /// The time of a write that happens at this moment: later than the stub was changed last as far as known, so that it counts.
    pub(crate) fn stamp(&self) -> i64 {
        self.written.store(true, Ordering::SeqCst);
        let now = crate::times::now_ns().max(self.floor_ns.load(Ordering::Relaxed).saturating_add(1));
        self.stamped_ns.fetch_max(now, Ordering::Relaxed);
        now
    }

    /// Later writes are later than this.
    pub(crate) fn raise_floor(&self, changed_ns: i64) {
        self.floor_ns.fetch_max(changed_ns, Ordering::Relaxed);
    }
}

impl ClientInner {
    /// The open file with this inode, and its stub.
    pub(crate) fn known(&self, inode: Inode) -> Option<(Arc<FileShared>, Arc<File>)> {
        let shared = Arc::clone(self.inodes.lock().expect("no code panics under this lock").get(&inode)?);
        let stub = shared.opened().stub.clone()?;
        Some((shared, stub))
    }

    /// One more handle of a file. `Ok(None)` if the name that it was found by is gone.
    ///
    /// # Errors
    /// Of the namespace; EACCES if the record has to say that somebody may write and cannot be written.
    pub(crate) fn begin_handle(
        &self,
        found: Found,
        access: Access,
        path: &Path,
    ) -> Result<Option<Arc<FileShared>>, FsError> {
        let shared = self.open_file(found.record);
        let mut opened = shared.opened();
        match &opened.stub {
            Some(stub) if Arc::ptr_eq(stub, &found.stub) => {}
            Some(_) => opened.spare.push(Arc::clone(&found.stub)),
            None => {
                self.opens.hold(shared.stub.file, Byte::Open);
                let names = sys::stat(found.stub.as_fd()).map(|now| now.st_nlink);
                if found.must_have_name && !names.as_ref().is_ok_and(|names| *names > 0) {
                    self.opens.let_go(shared.stub.file, Byte::Open);
                    drop(opened);
                    self.end_count(&shared);
                    // Whoever took the last name may have seen us, and have left the rest to us.
                    if names.is_ok_and(|names| names == 0)
                        && let Err(error) = self.remove_file(found.record, &found.stub)
                    {
                        let path = path.display();
                        tracing::warn!(%path, %error, "the data of a removed file stay on the servers");
                    }
                    return Ok(None);
                }
                opened.stub = Some(Arc::clone(&found.stub));
                opened.inode = found.inode;
                self.enter_inode(found.inode, &shared);
            }
        }
        if let Some(writer) = found.writer {
            match &opened.writer {
                None => opened.writer = Some(writer),
                Some(_) => opened.spare.push(writer),
            }
        }
        if !access.write {
            drop(opened);
            return Ok(Some(shared));
        }
        if let Err(error) = self.begin_writing(&shared, &mut opened) {
            drop(opened);
            self.end_handle(&shared, false, None, path);
            return Err(namespace_error("open", path, error));
        }
        opened.writers += 1;
        drop(opened);
        Ok(Some(shared))
    }

    pub(crate) fn enter_inode(&self, inode: Inode, shared: &Arc<FileShared>) {
        self.inodes.lock().expect("no code panics under this lock").insert(inode, Arc::clone(shared));
    }

    /// The end of a handle: after its flush, if it was to flush; with the stub's descriptor, if that was `lent`.
    pub(crate) fn end_handle(
        &self,
        shared: &Arc<FileShared>,
        was_writer: bool,
        lent: Option<&Arc<File>>,
        path: &Path,
    ) {
        let mut opened = shared.opened();
        if was_writer {
            opened.writers -= 1;
            if opened.writers == 0 {
                self.end_writing(shared, &mut opened);
            }
        }
        if shared.handles.fetch_sub(1, Ordering::SeqCst) != 1 {
            if let Some(lent) = lent {
                opened.give_back(lent);
            }
            return;
        }
        let Some(stub) = opened.stub.take() else {
            drop(opened);
            self.note_closed(shared.stub.file);
            return;
        };
        self.inodes.lock().expect("no code panics under this lock").remove(&opened.inode);
        self.opens.let_go(shared.stub.file, Byte::Open);
        let gone = self.is_gone(&stub, shared.stub.file);
        if gone && opened.writing {
            self.opens.let_go(shared.stub.file, Byte::Writing);
            opened.writing = false;
        }
        let kept = (opened.writer.take(), std::mem::take(&mut opened.spare));
        drop(opened);
        if !gone {
            drop(kept);
            self.note_closed(shared.stub.file);
            return;
        }
        if let Err(error) = self.remove_file(shared.stub, &stub) {
            tracing::warn!(path = %path.display(), %error, "the data of a removed file stay on the servers");
        }
    }

    /// The end of what was counted as a handle and never begun. Others may have begun and ended theirs meanwhile.
    pub(crate) fn end_count(&self, shared: &Arc<FileShared>) {
        self.end_handle(shared, false, None, Path::new(""));
    }
}
