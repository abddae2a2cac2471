//! Operations on names: look up, make, link, rename, remove.

use crate::abi::{CreateIn, CreateOut, EntryOut, InHeader, MkdirIn, MknodIn, OpenOut};
use crate::caller::Caller;
use crate::exchange::Errno;
use crate::handles::{Content, Handle};
use crate::inodes::Inode;
use crate::mount::{Mount, device_of_kernel, failed};
use crate::open;
use crate::sys;
use ccpfs_client::{FsError, OpenOptions, StubError};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Whether the client says that a file is none of its own: an ordinary file in the namespace.
pub(crate) fn is_ordinary(error: &FsError) -> bool {
    match error {
        FsError::CorruptStub { source, .. } => match source {
            StubError::Length(_) | StubError::Magic => true,
            StubError::Version(_) | StubError::Checksum | StubError::Layout => false,
        },
        FsError::Namespace { .. }
        | FsError::OtherCluster { .. }
        | FsError::Unreachable { .. }
        | FsError::ServerLost { .. }
        | FsError::Server { .. }
        | FsError::DataLost { .. }
        | FsError::Argument { .. }
        | FsError::Config(_) => false,
    }
}

impl Mount {
    /// LOOKUP.
    pub(crate) fn look_up(&self, header: &InHeader, name: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        if Mount::is_hidden(&parent, name.to_bytes()) {
            return Err(libc::ENOENT);
        }
        self.entry_of(&parent, name)
    }

    fn entry_of(&self, parent: &Inode, name: &CStr) -> Result<EntryOut, Errno> {
        let (inode, found) = self.inodes.look_up(parent, name)?;
        self.entry(&inode, found)
    }

    fn caller(&self, header: &InHeader, umask: u32) -> Caller {
        Caller::take(self.can_switch(), header, umask)
    }

    /// MKNOD.
    pub(crate) fn make_node(
        &self,
        header: &InHeader,
        asked: &MknodIn,
        name: &CStr,
    ) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        Mount::check_new_name(&parent, name)?;
        let caller = self.caller(header, asked.umask);
        if matches!(asked.mode & libc::S_IFMT, 0 | libc::S_IFREG) {
            let mode = libc::S_IFREG | (asked.mode & 0o7777);
            let options = OpenOptions { create: true, exclusive: true, mode, ..OpenOptions::default() };
            self.client.create_at(parent.fd(), name, &options).map_err(|e| failed(&e))?;
        } else {
            sys::make_node(parent.fd(), name, asked.mode, device_of_kernel(asked.rdev))?;
        }
        drop(caller);
        self.entry_of(&parent, name)
    }

    /// MKDIR.
    pub(crate) fn make_directory(
        &self,
        header: &InHeader,
        asked: &MkdirIn,
        name: &CStr,
    ) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        Mount::check_new_name(&parent, name)?;
        let caller = self.caller(header, asked.umask);
        sys::make_directory(parent.fd(), name, asked.mode & 0o7777)?;
        drop(caller);
        self.entry_of(&parent, name)
    }

    /// SYMLINK.
    pub(crate) fn make_link(&self, header: &InHeader, name: &CStr, target: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        Mount::check_new_name(&parent, name)?;
        let caller = self.caller(header, 0);
        sys::make_link(parent.fd(), name, target)?;
        drop(caller);
        self.entry_of(&parent, name)
    }

    /// LINK.
    pub(crate) fn link(&self, header: &InHeader, from: u64, name: &CStr) -> Result<EntryOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        Mount::check_new_name(&parent, name)?;
        let inode = self.inodes.get(from)?;
        let unnamed = inode.stat()?.st_nlink == 0;
        match inode.pages.any_handle().filter(|_| unnamed) {
            // It was made without a name, and may be gone for good when it is closed.
            Some(handle) => {
                let linked = self.client.link_temporary(handle.file()?, parent.fd(), name);
                linked.map_err(|e| failed(&e))?;
            }
            None => {
                self.settle_times(&inode)?;
                sys::link(inode.fd(), parent.fd(), name)?;
                self.client.note_change(inode.fd());
            }
        }
        self.entry_of(&parent, name)
    }

    /// Before a change that moves the stub's change time: the data's time of the last write goes into the stub.
    pub(crate) fn settle_times(&self, inode: &Inode) -> Result<(), Errno> {
        self.client.settle_times(inode.fd()).map_err(|e| failed(&e))
    }

    /// UNLINK.
    pub(crate) fn unlink(&self, header: &InHeader, name: &CStr) -> Result<(), Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        if Mount::is_hidden(&parent, name.to_bytes()) {
            return Err(libc::ENOENT);
        }
        self.client.unlink_at(parent.fd(), name).map_err(|e| failed(&e))
    }

    /// RMDIR.
    pub(crate) fn remove_directory(&self, header: &InHeader, name: &CStr) -> Result<(), Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        if Mount::is_hidden(&parent, name.to_bytes()) {
            return Err(libc::ENOENT);
        }
        self.client.rmdir_at(parent.fd(), name).map_err(|e| failed(&e))
    }

    /// RENAME and RENAME2.
    pub(crate) fn rename(
        &self,
        header: &InHeader,
        to: u64,
        flags: u32,
        [old, new]: &[std::ffi::CString; 2],
    ) -> Result<(), Errno> {
        let from = self.inodes.get(header.nodeid)?;
        let to = self.inodes.get(to)?;
        if Mount::is_hidden(&from, old.to_bytes()) {
            return Err(libc::ENOENT);
        }
        Mount::check_new_name(&to, new)?;
        self.client.rename_at(from.fd(), old, to.fd(), new, flags).map_err(|e| failed(&e))
    }

    /// READLINK: into `to`, without an ending zero.
    pub(crate) fn read_link(&self, header: &InHeader, to: &mut [u8]) -> Result<usize, Errno> {
        sys::read_link(self.inodes.get(header.nodeid)?.fd(), to)
    }

    /// CREATE: makes a file and opens it.
    pub(crate) fn create(
        &self,
        header: &InHeader,
        asked: &CreateIn,
        name: &CStr,
    ) -> Result<CreateOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        Mount::check_new_name(&parent, name)?;
        let mut options = open::options(asked.flags);
        options.create = true;
        options.exclusive = true;
        options.mode = libc::S_IFREG | (asked.mode & 0o7777);
        let caller = self.caller(header, asked.umask);
        let made = self.client.open_at(parent.fd(), name, &options);
        drop(caller);
        match made {
            Ok(file) => {
                let fd = sys::reopen(file.stub(), libc::O_PATH)?;
                let (inode, found) = self.inodes.adopt(fd)?;
                inode.note_place(&parent, name);
                self.created(&inode, found, file, asked.flags)
            }
            // Somebody made it since the kernel looked: unless that is an error, it looks again and opens it, with all checks.
            Err(error) if error.to_errno() == libc::EEXIST && asked.flags & EXCLUSIVE == 0 => {
                self.open_made_by_others(header, asked, &parent, name)
            }
            Err(error) => Err(failed(&error)),
        }
    }

    fn created(
        &self,
        inode: &Arc<Inode>,
        found: libc::stat,
        file: ccpfs_client::File,
        flags: u32,
    ) -> Result<CreateOut, Errno> {
        let entry = self.entry(inode, found)?;
        let content = Content::Data { file, written: AtomicBool::new(false) };
        let open = self.opened(Handle::new(Arc::clone(inode), content, flags));
        Ok(CreateOut { entry, open })
    }

    /// A file that came into being between the kernel's look and its CREATE. The kernel has not checked whether the
    /// caller may open it.
    fn open_made_by_others(
        &self,
        header: &InHeader,
        asked: &CreateIn,
        parent: &Inode,
        name: &CStr,
    ) -> Result<CreateOut, Errno> {
        let (inode, found) = self.inodes.look_up(parent, name)?;
        let is_file = found.st_mode & libc::S_IFMT == libc::S_IFREG;
        if !is_file || !may_open(header, &found, asked.flags) {
            self.inodes.forget(inode.nodeid, 1);
            // The kernel begins again, from the name.
            return Err(libc::ESTALE);
        }
        let open = match self.open_inode(&inode, asked.flags) {
            Ok(open) => open,
            Err(errno) => {
                self.inodes.forget(inode.nodeid, 1);
                return Err(errno);
            }
        };
        match inode.stat().and_then(|found| self.entry(&inode, found)) {
            Ok(entry) => Ok(CreateOut { entry, open }),
            Err(errno) => {
                // The handle is of no use to anybody.
                let _ = self.handles.remove(open.fh);
                Err(errno)
            }
        }
    }

    /// TMPFILE: a file without a name.
    pub(crate) fn temporary(&self, header: &InHeader, asked: &CreateIn) -> Result<CreateOut, Errno> {
        let parent = self.inodes.get(header.nodeid)?;
        let mut options = open::options(asked.flags);
        options.exclusive = asked.flags & EXCLUSIVE != 0;
        options.mode = libc::S_IFREG | (asked.mode & 0o7777);
        let caller = self.caller(header, asked.umask);
        let made = self.client.temporary_at(parent.fd(), &options);
        drop(caller);
        let file = made.map_err(|e| failed(&e))?;
        let fd = sys::reopen(file.stub(), libc::O_PATH)?;
        let (inode, found) = self.inodes.adopt(fd)?;
        self.created(&inode, found, file, asked.flags)
    }

    /// Enters a handle and tells the kernel how to treat it.
    pub(crate) fn opened(&self, handle: Handle) -> OpenOut {
        let open_flags = open::kernel_flags(&handle.content);
        let handle = Arc::new(handle);
        if let Content::Data { .. } = handle.content {
            handle.inode.pages.note_open(&handle);
            if handle.writable {
                self.before_writes(&handle.inode);
            }
        }
        OpenOut { fh: self.handles.enter(handle), open_flags, padding: 0 }
    }
}

/// `O_EXCL` as the kernel sends it.
const EXCLUSIVE: u32 = libc::O_EXCL.cast_unsigned();

/// Whether a caller may open a file, judged without knowing all groups: what only they could allow or deny is denied.
fn may_open(header: &InHeader, found: &libc::stat, flags: u32) -> bool {
    if header.uid == 0 {
        return true;
    }
    let read = if open::is_readable(flags) { 4 } else { 0 };
    let wanted = read | if open::is_writable(flags) { 2 } else { 0 };
    let class = |shift: u32| (found.st_mode >> shift) & wanted == wanted;
    if header.uid == found.st_uid { class(6) } else { class(3) && class(0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_knowing_groups_only_what_everybody_may_is_allowed() {
        // SAFETY: all zeros is a valid stat.
        let mut found: libc::stat = unsafe { std::mem::zeroed() };
        found.st_uid = 7;
        let asks = |uid: u32| InHeader { uid, ..InHeader::default() };
        let (read, both) = (libc::O_RDONLY.cast_unsigned(), libc::O_RDWR.cast_unsigned());
        found.st_mode = 0o640;
        assert!(may_open(&asks(7), &found, both) && may_open(&asks(0), &found, both));
        assert!(!may_open(&asks(8), &found, read));
        found.st_mode = 0o604;
        assert!(!may_open(&asks(8), &found, read), "the group may be denied what others may");
        found.st_mode = 0o644;
        assert!(may_open(&asks(8), &found, read) && !may_open(&asks(8), &found, both));
    }
}
