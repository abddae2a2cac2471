//! Removing names; and with the last name the data, as soon as nobody has the file open any more, in whatever process.
//!
//! Whoever takes the last name away, and whoever closes the last handle, tries to be alone (OPEN in the registry) after having let go
//! itself: the one who succeeds removes the data. What a process that is killed leaves behind is noted in `orphans`.

use crate::client::{Client, ClientInner};
use crate::directory::{may_be_stub, namespace_error};
use crate::error::FsError;
use crate::opened::{Inode, inode_of};
use crate::opens::Byte;
use crate::shared::FileShared;
use crate::sys::{self, Place};
use ccpfs_namespace::{Contents, Stub, StubState};
use ccpfs_types::FileId;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// A file that is about to lose a name.
struct Victim<'a> {
    client: &'a ClientInner,
    record: Stub,
    stub: Arc<File>,
    /// Somebody has it open.
    is_open: bool,
    /// It was noted among the orphans.
    noted: bool,
}

impl Client {
    /// Removes a name that is not a directory's. With the last name the data go, as soon as nobody has the file open.
    ///
    /// # Errors
    /// As `unlinkat(2)`; an error of a server leaves data behind, never a name.
    pub fn unlink_at(&self, dir: BorrowedFd<'_>, name: &CStr) -> Result<(), FsError> {
        let place = Place { dir, name };
        let victim = self.inner.victim(place);
        let unlinked = sys::unlink(place, 0);
        let removed = victim.map_or(Ok(()), Victim::finish);
        unlinked.map_err(|e| namespace_error("unlink", &place.path(), e)).and(removed)
    }

    /// Renames. What was there before is replaced as by [`Client::unlink_at`]. `flags` as `renameat2(2)`.
    ///
    /// # Errors
    /// As `renameat2(2)`.
    pub fn rename_at(
        &self,
        from_dir: BorrowedFd<'_>,
        from_name: &CStr,
        to_dir: BorrowedFd<'_>,
        to_name: &CStr,
        flags: u32,
    ) -> Result<(), FsError> {
        let (from, to) = (Place { dir: from_dir, name: from_name }, Place { dir: to_dir, name: to_name });
        let replaces = flags & (libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE) == 0;
        let (source, moved) = self.inner.settle_name(from);
        let exchanges = flags & libc::RENAME_EXCHANGE != 0;
        let (_, other) = if exchanges { self.inner.settle_name(to) } else { (None, None) };
        let same =
            || sys::stat_at(to, libc::AT_SYMLINK_NOFOLLOW).ok().map(|found| inode_of(&found)) == source;
        let victim = if replaces && !same() { self.inner.victim(to) } else { None };
        let renamed = sys::rename(from, to, flags);
        for changed in [moved, other].into_iter().flatten() {
            self.inner.note_change(changed.as_fd());
        }
        let removed = victim.map_or(Ok(()), Victim::finish);
        renamed.map_err(|e| namespace_error("rename", &from.path(), e)).and(removed)
    }

    /// The files in the registry of what was left behind: those whose names went while somebody had them open, and that nobody has
    /// removed yet. Somebody may still have them open.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn orphans(&self) -> Result<Vec<Stub>, FsError> {
        let Some(orphans) = self.inner.opens.orphans() else { return Ok(Vec::new()) };
        let path = sys::path_of_descriptor(orphans);
        let path = Place { dir: sys::WORKING_DIRECTORY, name: &path }.path();
        let fail = |e| namespace_error("read", &path, e);
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(fail)? {
            let entry = entry.map_err(fail)?.path();
            let Ok(stub) = File::open(&entry) else { continue };
            if let Ok(record) = self.inner.directory.read_stub(stub.as_fd(), &entry) {
                found.push(record);
            }
        }
        Ok(found)
    }

    /// Removes the data of an orphan, unless somebody has it open: `Ok(false)`. The caller knows that it has no name.
    ///
    /// # Errors
    /// When a server cannot be told.
    pub fn remove_orphan(&self, record: Stub) -> Result<bool, FsError> {
        self.inner.remove_if_alone(record, None, true)
    }
}

impl Victim<'_> {
    /// The name is gone, or it could not be taken away. Others may have taken further ones meanwhile.
    fn finish(self) -> Result<(), FsError> {
        if self.client.is_gone(&self.stub, self.record.file) {
            // Whoever notes a file that somebody has open looks after the note.
            let may_be_noted = self.is_open || self.client.nfs;
            let stub = Some(self.stub.as_ref());
            return self.client.remove_if_alone(self.record, stub, may_be_noted).map(drop);
        }
        self.client.note_change(self.stub.as_fd());
        if self.noted {
            self.client.forget_orphan(self.record.file);
        }
        Ok(())
    }
}

impl ClientInner {
    /// The file that is about to lose a name, if it is one of ours, and may be its last.
    fn victim(&self, place: Place<'_>) -> Option<Victim<'_>> {
        let found = sys::stat_at(place, libc::AT_SYMLINK_NOFOLLOW).ok()?;
        if !may_be_stub(&found) {
            return None;
        }
        let stub = match self.known(inode_of(&found)) {
            Some((_, stub)) => stub,
            None => {
                let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOFOLLOW;
                Arc::new(sys::open(place, flags, 0).ok()?)
            }
        };
        let record = self.read_if_stub(stub.as_fd(), &place.path()).ok()??;
        // Only asked: to be alone for a moment would keep the last handle from removing the data.
        let is_open = self.opens.is_held(record.file, Byte::Open) == Some(true);
        let noted = is_open && found.st_nlink == 1 && self.note_orphan(record);
        Some(Victim { client: self, record, stub, is_open, noted })
    }

    /// Settles the times of what a name leads to; says which inode it is, and gives the file if it may be one of ours.
    fn settle_name(&self, place: Place<'_>) -> (Option<Inode>, Option<File>) {
        let Ok(found) = sys::stat_at(place, libc::AT_SYMLINK_NOFOLLOW) else { return (None, None) };
        let open = || sys::open(place, libc::O_PATH | libc::O_NOFOLLOW, 0).ok();
        let named = if may_be_stub(&found) { open() } else { None };
        if let Some(named) = &named {
            // What cannot be settled is only less exact.
            let _ = self.settle_times(named.as_fd());
        }
        (Some(inode_of(&found)), named)
    }

    /// Whether a file that was found by a name has none any more.
    pub(crate) fn is_gone(&self, stub: &File, file: FileId) -> bool {
        match sys::stat(stub.as_fd()) {
            Ok(found) if found.st_nlink == 0 => true,
            // NFS keeps a file that is open under another name.
            Ok(_) => self.nfs && is_silly(stub),
            Err(error) if error.raw_os_error() == Some(libc::ESTALE) => self.is_orphan(file),
            Err(_) => false,
        }
    }

    /// Removes the data of a file that has no name, unless somebody else has it open and will do so.
    pub(crate) fn remove_file(&self, record: Stub, stub: &File) -> Result<(), FsError> {
        self.remove_if_alone(record, Some(stub), true).map(drop)
    }

    fn remove_if_alone(
        &self,
        record: Stub,
        stub: Option<&File>,
        may_be_noted: bool,
    ) -> Result<bool, FsError> {
        let alone = self.opens.alone(record.file, Byte::Open);
        let shared = self.peek_file(record);
        if shared.handles() > 0 || (alone.is_none() && self.opens.is_there()) {
            return Ok(false);
        }
        let state = match stub {
            Some(stub) => crate::directory::record(stub.as_fd()).ok().flatten().map(|now| now.state),
            None => None,
        };
        if is_unheard_of(&shared, state.unwrap_or(record.state)) {
            self.forget_file(record.file, |_| true);
        } else {
            shared.destroy(self)?;
        }
        if may_be_noted {
            self.forget_orphan(record.file);
        }
        Ok(true)
    }

    /// Notes a file whose last name goes while somebody has it open. False if that cannot be done.
    pub(crate) fn note_orphan(&self, record: Stub) -> bool {
        let Some(dir) = self.opens.orphans() else { return false };
        let name = orphan_name(record.file);
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let noted = sys::open(Place { dir, name: &name }, flags, 0o644)
            .and_then(|orphan| sys::write_start(orphan.as_fd(), &record.encode()));
        noted.is_ok()
    }

    /// The data are gone, or there is a name.
    pub(crate) fn forget_orphan(&self, file: FileId) {
        if let Some(dir) = self.opens.orphans() {
            let _ = sys::unlink(Place { dir, name: &orphan_name(file) }, 0);
        }
    }

    fn is_orphan(&self, file: FileId) -> bool {
        self.opens.orphans().is_some_and(|dir| {
            sys::stat_at(Place { dir, name: &orphan_name(file) }, libc::AT_SYMLINK_NOFOLLOW).is_ok()
        })
    }
}

/// Whether no server can know the file.
fn is_unheard_of(shared: &FileShared, state: StubState) -> bool {
    match state {
        StubState::Sealed(Contents { virgin, .. }) => virgin,
        StubState::Unsealed { virgin, sole } => {
            // Ours alone, from its making on.
            let ours = shared.opened().before.is_some_and(|before| before.virgin);
            virgin && sole && ours && !shared.written.load(std::sync::atomic::Ordering::SeqCst)
        }
        StubState::Unwatched => false,
    }
}

/// Whether NFS has given an open file another name in place of its last one.
fn is_silly(stub: &File) -> bool {
    let name = crate::attributes::path_of(stub.as_fd());
    name.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b".nfs"))
}

fn orphan_name(file: FileId) -> CString {
    let digits: String = file.0.iter().map(|byte| format!("{byte:02x}")).collect();
    CString::new(digits).expect("digits")
}
