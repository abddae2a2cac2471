//! Attributes: GETATTR, SETATTR, STATFS, extended attributes.

use crate::abi::{
    AttrOut, GETATTR_FH, GetattrIn, InHeader, SETXATTR_ACL_KILL_SGID, SetattrIn, SetxattrIn, StatfsOut,
    StatxIn, StatxOut, StatxTime, fattr,
};
use crate::cut::Cut;
use crate::exchange::Errno;
use crate::inodes::Inode;
use crate::mount::{Mount, device_of_kernel, failed};
use crate::sys;
use libc::timespec;
use std::ffi::CStr;

/// Access control list of a file.
const ACL_ACCESS: &CStr = c"system.posix_acl_access";

impl Mount {
    /// GETATTR.
    pub(crate) fn get_attributes(&self, header: &InHeader, asked: &GetattrIn) -> Result<AttrOut, Errno> {
        if asked.getattr_flags & GETATTR_FH != 0
            && let Ok(handle) = self.handles.get(asked.fh)
        {
            return self.attributes(&handle.inode);
        }
        self.attributes(&*self.inodes.get(header.nodeid)?)
    }

    /// STATX: GETATTR with the time of birth.
    pub(crate) fn get_more_attributes(&self, header: &InHeader, asked: &StatxIn) -> Result<StatxOut, Errno> {
        let by_handle = GetattrIn { getattr_flags: asked.getattr_flags, dummy: 0, fh: asked.fh };
        let AttrOut { attr_valid, attr_valid_nsec, attr, .. } = self.get_attributes(header, &by_handle)?;
        let born = sys::born(self.inodes.get(header.nodeid)?.fd());
        let time = |seconds: i64, nanoseconds: u32| StatxTime { seconds, nanoseconds, reserved: 0 };
        let device = device_of_kernel(attr.rdev);
        Ok(StatxOut {
            attr_valid,
            attr_valid_nsec,
            mask: libc::STATX_BASIC_STATS | if born.is_some() { libc::STATX_BTIME } else { 0 },
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: u16::try_from(attr.mode).map_err(|_| libc::EIO)?,
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime.cast_signed(), attr.atimensec),
            btime: born.map(|(seconds, nanoseconds)| time(seconds, nanoseconds)).unwrap_or_default(),
            ctime: time(attr.ctime.cast_signed(), attr.ctimensec),
            mtime: time(attr.mtime.cast_signed(), attr.mtimensec),
            rdev_major: libc::major(device),
            rdev_minor: libc::minor(device),
            ..StatxOut::default()
        })
    }

    /// SETATTR. The size goes first: it moves times and takes privileges away, which the rest may set.
    pub(crate) fn set_attributes(&self, header: &InHeader, asked: &SetattrIn) -> Result<AttrOut, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let has = |field: u32| asked.valid & field != 0;
        if !has(fattr::SIZE) {
            // A cut that is owed would put its time over one that is set here, and the answer must not have the size from before it.
            inode.pages.cuts.wait();
        }
        let mut owed = false;
        let size = inode.pages.ahead.real(asked.size);
        if has(fattr::SIZE) {
            if has(fattr::KILL_SUIDGID) {
                self.drop_privileges(&inode)?;
            }
            let handle = if has(fattr::FH) { Some(self.handles.get(asked.fh)?) } else { None };
            owed = self.truncate(&inode, handle, size)? == Cut::Owed;
            // The kernel lets nobody else write meanwhile.
            inode.pages.ahead.cut(size);
        }
        self.set_owner_and_mode(header, &inode, asked)?;
        if has(fattr::ATIME | fattr::MTIME) {
            self.client.set_times(inode.fd(), &times(asked)).map_err(|e| failed(&e))?;
        }
        let mut found = self.attributes_now(&inode)?;
        if owed {
            found.attr.size = size;
        }
        Ok(found)
    }

    /// Owner, group and permissions. A request for nothing at all is what the kernel makes of `chown` to nobody else, and of calls
    /// that take a file's privileges away and have no other way to say so, such as `fallocate`.
    fn set_owner_and_mode(&self, header: &InHeader, inode: &Inode, asked: &SetattrIn) -> Result<(), Errno> {
        let has = |field: u32| asked.valid & field != 0;
        let touches = !has(fattr::UID | fattr::GID | fattr::MODE | fattr::SIZE | fattr::ATIME | fattr::MTIME);
        if touches && !self.may_touch(header, inode)? {
            return Err(libc::EPERM);
        }
        if touches || has(fattr::UID | fattr::GID | fattr::MODE) {
            self.settle_times(inode)?;
        }
        if touches || has(fattr::UID | fattr::GID) {
            let user = if has(fattr::UID) { asked.uid } else { u32::MAX };
            let group = if has(fattr::GID) { asked.gid } else { u32::MAX };
            sys::change_owner(inode.fd(), user, group)?;
        }
        if has(fattr::MODE) {
            sys::change_mode(inode.fd(), asked.mode & 0o7777)?;
        }
        if touches || has(fattr::UID | fattr::GID | fattr::MODE) {
            self.client.note_change(inode.fd());
        }
        Ok(())
    }

    /// Whether a caller may do what takes a file's privileges away without naming a new owner or new permissions: everybody where
    /// there are none, else its owner, root, and who may write it.
    fn may_touch(&self, header: &InHeader, inode: &Inode) -> Result<bool, Errno> {
        let found = inode.stat()?;
        // Those of a directory stay whatever is done to it.
        let is_directory = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
        let has_privileges = !is_directory && found.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0;
        let owns = header.uid == 0 || header.uid == found.st_uid;
        let is_written =
            || self.handles.all().iter().any(|handle| handle.writable && handle.inode.nodeid == inode.nodeid);
        Ok(!has_privileges || owns || is_written())
    }

    /// STATFS: names are the namespace's, and so is space, as far as is known.
    pub(crate) fn stat_fs(&self, header: &InHeader) -> Result<StatfsOut, Errno> {
        let found = sys::stat_fs(self.inodes.get(header.nodeid)?.fd())?;
        let word = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(StatfsOut {
            blocks: found.f_blocks,
            bfree: found.f_bfree,
            bavail: found.f_bavail,
            files: found.f_files,
            ffree: found.f_ffree,
            bsize: word(found.f_bsize),
            namelen: word(found.f_namemax),
            frsize: word(found.f_frsize),
            ..StatfsOut::default()
        })
    }

    /// SETXATTR.
    pub(crate) fn set_xattr(
        &self,
        header: &InHeader,
        asked: &SetxattrIn,
        name: &CStr,
        value: &[u8],
    ) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        self.settle_times(&inode)?;
        sys::set_xattr(inode.fd(), name, value, asked.flags.cast_signed())?;
        if asked.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 && name == ACL_ACCESS {
            let mode = inode.stat()?.st_mode;
            if mode & libc::S_ISGID != 0 {
                sys::change_mode(inode.fd(), mode & !libc::S_ISGID & 0o7777)?;
            }
        }
        self.client.note_change(inode.fd());
        Ok(())
    }

    /// REMOVEXATTR.
    pub(crate) fn remove_xattr(&self, header: &InHeader, name: &CStr) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        self.settle_times(&inode)?;
        sys::remove_xattr(inode.fd(), name)?;
        self.client.note_change(inode.fd());
        Ok(())
    }

    /// GETXATTR and, without a name, LISTXATTR; an empty buffer asks for the size.
    pub(crate) fn get_xattr(&self, nodeid: u64, name: Option<&CStr>, to: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.inodes.get(nodeid)?;
        match name {
            Some(name) => sys::get_xattr(inode.fd(), name, to),
            None => sys::list_xattr(inode.fd(), to),
        }
    }
}

/// Access and modification time of a SETATTR, as `utimensat` wants them.
fn times(asked: &SetattrIn) -> [timespec; 2] {
    let time = |field: u32, now: u32, seconds: u64, nanoseconds: u32| {
        if asked.valid & field == 0 {
            timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT }
        } else if asked.valid & now != 0 {
            timespec { tv_sec: 0, tv_nsec: libc::UTIME_NOW }
        } else {
            timespec { tv_sec: seconds.cast_signed(), tv_nsec: i64::from(nanoseconds) }
        }
    };
    [
        time(fattr::ATIME, fattr::ATIME_NOW, asked.atime, asked.atimensec),
        time(fattr::MTIME, fattr::MTIME_NOW, asked.mtime, asked.mtimensec),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_set_now_or_left_as_asked() {
        let asked = SetattrIn { valid: fattr::MTIME, mtime: 9, mtimensec: 8, ..SetattrIn::default() };
        let [access, modification] = times(&asked);
        assert_eq!(access.tv_nsec, libc::UTIME_OMIT);
        assert_eq!((modification.tv_sec, modification.tv_nsec), (9, 8));
        let asked = SetattrIn { valid: fattr::ATIME | fattr::ATIME_NOW, ..SetattrIn::default() };
        let [access, modification] = times(&asked);
        assert_eq!((access.tv_nsec, modification.tv_nsec), (libc::UTIME_NOW, libc::UTIME_OMIT));
    }

    #[test]
    fn times_before_1970_stay_negative() {
        let asked = SetattrIn { valid: fattr::MTIME, mtime: u64::MAX, ..SetattrIn::default() };
        assert_eq!(times(&asked)[1].tv_sec, -1);
    }
}
