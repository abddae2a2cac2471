//! The kernel's FUSE protocol: numbers, flags and structures, as `linux/fuse.h` publishes them.
//!
//! Both ends are on one machine, so all integers have its byte order. Names are those of the header without their prefix.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The minor version that this code was written for; the kernel and we use the lower one of both.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that will do: direct IO beside shared mappings.
pub(crate) const MINOR_MIN: u32 = 39;
/// The node of the mounted directory.
pub(crate) const ROOT_ID: u64 = 1;

/// What a request asks for.
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
}

/// Bits of the first and second word of flags in INIT.
pub(crate) mod init {
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Which fields of [`SetattrIn`] count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// The file is not cached by the kernel: reads and writes come to us.
pub(crate) const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// Opening does not drop the kernel's pages: holds keep them true.
pub(crate) const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// Writes of one file may come at the same time.
pub(crate) const FOPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
/// The handle in [`GetattrIn`] counts.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// The request is about `flock`.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// A write from the kernel's pages.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// The writer may not keep the file's set-user-id bit.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// A read by a call. Reads into the kernel's pages have no owner.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// As [`WRITE_KILL_SUIDGID`], for an open that truncates.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// The set-group-id bit does not survive this change of the access control list.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// Only data, not the attributes.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;

/// Code of a message that drops pages of a file.
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Code of a message that makes the kernel forget a name.
pub(crate) const NOTIFY_INVAL_ENTRY: i32 = 3;
/// Code of a message that gives the kernel bytes of a file.
pub(crate) const NOTIFY_STORE: i32 = 4;

/// `FUSE_DEV_IOC_CLONE`: lets a second open device serve the same mount.
pub(crate) const DEVICE_CLONE: libc::c_ulong = 0x8004_e500;

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $kind:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub(crate) struct $name { $(pub(crate) $field: $kind),* }
        )*
    };
}

structures! {
    /// Begins every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16,
        padding: u16,
    }
    /// Begins every answer; `error` is 0 or a negated errno, or the code of a notification.
    OutHeader { len: u32, error: i32, unique: u64 }
    /// Attributes of a file.
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// Answer to LOOKUP and to whatever makes a name.
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    /// Argument of FORGET.
    ForgetIn { nlookup: u64 }
    /// One of many in BATCH_FORGET.
    ForgetOne { nodeid: u64, nlookup: u64 }
    /// Argument of BATCH_FORGET.
    BatchForgetIn { count: u32, dummy: u32 }
    /// Argument of GETATTR.
    GetattrIn { getattr_flags: u32, dummy: u32, fh: u64 }
    /// Answer to GETATTR and SETATTR.
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    /// Argument of MKNOD.
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    /// Argument of MKDIR.
    MkdirIn { mode: u32, umask: u32 }
    /// Argument of RENAME.
    RenameIn { newdir: u64 }
    /// Argument of RENAME2.
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    /// Argument of LINK.
    LinkIn { oldnodeid: u64 }
    /// Argument of SETATTR.
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    /// Argument of OPEN and OPENDIR.
    OpenIn { flags: u32, open_flags: u32 }
    /// Argument of CREATE and TMPFILE.
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    /// Answer to OPEN and OPENDIR; ends that to CREATE.
    OpenOut { fh: u64, open_flags: u32, padding: u32 }
    /// Answer to CREATE and TMPFILE.
    CreateOut { entry: EntryOut, open: OpenOut }
    /// Argument of RELEASE and RELEASEDIR.
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    /// Argument of FLUSH.
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// Argument of READ and READDIR.
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// Argument of WRITE.
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    /// Answer to WRITE.
    WriteOut { size: u32, padding: u32 }
    /// Answer to STATFS.
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// Argument of FSYNC and FSYNCDIR.
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    /// Argument of SETXATTR.
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    /// Argument of GETXATTR and LISTXATTR.
    GetxattrIn { size: u32, padding: u32 }
    /// Answer to GETXATTR and LISTXATTR with a size of 0.
    GetxattrOut { size: u32, padding: u32 }
    /// A range of bytes that is locked; both ends belong to it.
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    /// Argument of GETLK, SETLK and SETLKW.
    LkIn { fh: u64, owner: u64, lock: FileLock, lk_flags: u32, padding: u32 }
    /// Answer to GETLK.
    LkOut { lock: FileLock }
    /// Argument of INIT.
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    /// Answer to INIT.
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, unused: [u32; 7],
    }
    /// Argument of INTERRUPT.
    InterruptIn { unique: u64 }
    /// Argument of FALLOCATE.
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    /// Argument of LSEEK.
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    /// Answer to LSEEK.
    LseekOut { offset: u64 }
    /// Argument of STATX.
    StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    /// A time in [`StatxOut`].
    StatxTime { seconds: i64, nanoseconds: u32, reserved: i32 }
    /// Answer to STATX.
    StatxOut {
        attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], mask: u32, blksize: u32,
        attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64, size: u64, blocks: u64,
        attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime, mtime: StatxTime,
        rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    /// Begins an entry of READDIR; the name follows.
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// Message that drops pages of a file.
    InvalInodeOut { ino: u64, off: i64, len: i64 }
    /// A name that the kernel is to forget; the name and a zero byte follow.
    InvalEntryOut { parent: u64, namelen: u32, flags: u32 }
    /// Message that gives the kernel bytes of a file; they follow.
    StoreOut { nodeid: u64, offset: u64, size: u32, padding: u32 }
}

/// Bytes of the structure that an operation's argument begins with; `None` for operations that are not known here.
pub(crate) fn argument_bytes(opcode: u32) -> Option<usize> {
    Some(match opcode {
        opcode::LOOKUP
        | opcode::READLINK
        | opcode::SYMLINK
        | opcode::UNLINK
        | opcode::RMDIR
        | opcode::STATFS
        | opcode::REMOVEXATTR
        | opcode::DESTROY => 0,
        opcode::FORGET => size_of::<ForgetIn>(),
        opcode::GETATTR => size_of::<GetattrIn>(),
        opcode::SETATTR => size_of::<SetattrIn>(),
        opcode::MKNOD => size_of::<MknodIn>(),
        opcode::MKDIR => size_of::<MkdirIn>(),
        opcode::RENAME => size_of::<RenameIn>(),
        opcode::LINK => size_of::<LinkIn>(),
        opcode::OPEN | opcode::OPENDIR => size_of::<OpenIn>(),
        opcode::READ | opcode::READDIR => size_of::<ReadIn>(),
        opcode::WRITE => size_of::<WriteIn>(),
        opcode::RELEASE | opcode::RELEASEDIR => size_of::<ReleaseIn>(),
        opcode::FSYNC | opcode::FSYNCDIR => size_of::<FsyncIn>(),
        opcode::SETXATTR => size_of::<SetxattrIn>(),
        opcode::GETXATTR | opcode::LISTXATTR => size_of::<GetxattrIn>(),
        opcode::FLUSH => size_of::<FlushIn>(),
        opcode::INIT => size_of::<InitIn>(),
        opcode::GETLK | opcode::SETLK | opcode::SETLKW => size_of::<LkIn>(),
        opcode::CREATE | opcode::TMPFILE => size_of::<CreateIn>(),
        opcode::INTERRUPT => size_of::<InterruptIn>(),
        opcode::BATCH_FORGET => size_of::<BatchForgetIn>(),
        opcode::FALLOCATE => size_of::<FallocateIn>(),
        opcode::RENAME2 => size_of::<Rename2In>(),
        opcode::LSEEK => size_of::<LseekIn>(),
        opcode::SYNCFS => size_of::<u64>(),
        opcode::STATX => size_of::<StatxIn>(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<InHeader>(), 40);
        assert_eq!(size_of::<OutHeader>(), 16);
        assert_eq!(size_of::<Attr>(), 88);
        assert_eq!(size_of::<EntryOut>(), 128);
        assert_eq!(size_of::<AttrOut>(), 104);
        assert_eq!(size_of::<SetattrIn>(), 88);
        assert_eq!(size_of::<ReadIn>(), 40);
        assert_eq!(size_of::<WriteIn>(), 40);
        assert_eq!(size_of::<StatfsOut>(), 80);
        assert_eq!(size_of::<LkIn>(), 48);
        assert_eq!(size_of::<InitIn>(), 64);
        assert_eq!(size_of::<InitOut>(), 64);
        assert_eq!(size_of::<FallocateIn>(), 32);
        assert_eq!(size_of::<Dirent>(), 24);
        assert_eq!(size_of::<StatxIn>(), 24);
        assert_eq!(size_of::<StatxOut>(), 288);
    }

    #[test]
    fn the_device_number_of_clone_is_built_as_the_header_says() {
        let (read, size, group, number) = (2_u64, 4_u64, 229_u64, 0_u64);
        assert_eq!(DEVICE_CLONE, (read << 30) | (size << 16) | (group << 8) | number);
    }
}
