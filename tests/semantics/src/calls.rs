//! The calls of an agent, as methods.

use crate::agent::{Agent, Errno, Pending, escaped};
use std::fmt::Display;

/// Combinations of open flags.
pub mod flags {
    /// Reading.
    pub const READ: i32 = libc::O_RDONLY;
    /// Writing.
    pub const WRITE: i32 = libc::O_WRONLY;
    /// Both.
    pub const BOTH: i32 = libc::O_RDWR;
    /// Both, made if it is missing.
    pub const MAKE: i32 = libc::O_RDWR | libc::O_CREAT;
    /// Both, made: it must not be there.
    pub const NEW: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    /// Writing at the end, made if it is missing.
    pub const APPEND: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_APPEND;
}

/// What a stat call found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Kind and permissions.
    pub mode: u32,
    /// Names.
    pub nlink: u64,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes that are stored.
    pub blocks: u64,
    /// Last change of the contents, in nanoseconds.
    pub mtime_ns: i128,
    /// Last change, in nanoseconds.
    pub ctime_ns: i128,
}

impl Stat {
    fn parse(text: &[u8]) -> Stat {
        let text = String::from_utf8_lossy(text);
        let n: Vec<i128> = text.split(' ').map(|word| word.parse().expect("a number")).collect();
        let bits = |at: usize| u64::try_from(n[at]).expect("no negative number");
        let small = |at: usize| u32::try_from(n[at]).expect("a small number");
        let time = |at: usize| n[at] * 1_000_000_000 + n[at + 1];
        Stat {
            dev: bits(0),
            ino: bits(1),
            mode: small(2),
            nlink: bits(3),
            uid: small(4),
            gid: small(5),
            size: bits(6),
            blocks: bits(7),
            mtime_ns: time(8),
            ctime_ns: time(10),
        }
    }

    /// The permissions.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
}

/// What calls return that have nothing to say.
type Done = Result<(), Errno>;

/// Every method carries out the system call of its name. A descriptor, position or handle is the number that an earlier call
/// returned.
#[allow(clippy::missing_errors_doc, reason = "each returns the error of its system call")]
impl Agent {
    fn number(&self, call: &str, payload: &[u8]) -> Result<i64, Errno> {
        Ok(self.call(call, payload)?.value)
    }

    fn done(&self, call: &str, payload: &[u8]) -> Done {
        self.call(call, payload).map(|_| ())
    }

    fn bytes(&self, call: &str) -> Result<Vec<u8>, Errno> {
        Ok(self.call(call, &[])?.bytes)
    }

    /// `open`, with mode 0666.
    pub fn open(&self, path: &str, flags: i32) -> Result<i64, Errno> {
        self.open_mode(path, flags, 0o666)
    }

    /// `open`.
    pub fn open_mode(&self, path: &str, flags: i32, mode: u32) -> Result<i64, Errno> {
        self.number(&format!("open {} {flags} {mode}", escaped(path)), &[])
    }

    /// `close`.
    pub fn close(&self, fd: i64) -> Done {
        self.done(&format!("close {fd}"), &[])
    }

    /// `dup`.
    pub fn dup(&self, fd: i64) -> Result<i64, Errno> {
        self.number(&format!("dup {fd}"), &[])
    }

    /// `read`.
    pub fn read(&self, fd: i64, length: usize) -> Result<Vec<u8>, Errno> {
        self.bytes(&format!("read {fd} {length}"))
    }

    /// `pread`.
    pub fn pread(&self, fd: i64, length: usize, offset: u64) -> Result<Vec<u8>, Errno> {
        self.bytes(&format!("pread {fd} {length} {offset}"))
    }

    /// `write`.
    pub fn write(&self, fd: i64, bytes: &[u8]) -> Result<i64, Errno> {
        self.number(&format!("write {fd}"), bytes)
    }

    /// `pwrite`.
    pub fn pwrite(&self, fd: i64, bytes: &[u8], offset: u64) -> Result<i64, Errno> {
        self.number(&format!("pwrite {fd} {offset}"), bytes)
    }

    /// `lseek`.
    pub fn lseek(&self, fd: i64, offset: i64, whence: i32) -> Result<i64, Errno> {
        self.number(&format!("lseek {fd} {offset} {whence}"), &[])
    }

    /// `ftruncate`.
    pub fn ftruncate(&self, fd: i64, length: u64) -> Done {
        self.done(&format!("ftruncate {fd} {length}"), &[])
    }

    /// `truncate`.
    pub fn truncate(&self, path: &str, length: u64) -> Done {
        self.done(&format!("truncate {} {length}", escaped(path)), &[])
    }

    /// `fallocate`.
    pub fn fallocate(&self, fd: i64, mode: i32, offset: u64, length: u64) -> Done {
        self.done(&format!("fallocate {fd} {mode} {offset} {length}"), &[])
    }

    /// `copy_file_range`.
    pub fn copy_file_range(&self, from: (i64, u64), to: (i64, u64), length: u64) -> Result<i64, Errno> {
        self.number(&format!("copy_file_range {} {} {} {} {length}", from.0, from.1, to.0, to.1), &[])
    }

    /// `fsync`.
    pub fn fsync(&self, fd: i64) -> Done {
        self.done(&format!("fsync {fd}"), &[])
    }

    /// `fdatasync`.
    pub fn fdatasync(&self, fd: i64) -> Done {
        self.done(&format!("fdatasync {fd}"), &[])
    }

    /// `stat`.
    pub fn stat(&self, path: &str) -> Result<Stat, Errno> {
        Ok(Stat::parse(&self.bytes(&format!("stat {}", escaped(path)))?))
    }

    /// `lstat`.
    pub fn lstat(&self, path: &str) -> Result<Stat, Errno> {
        Ok(Stat::parse(&self.bytes(&format!("lstat {}", escaped(path)))?))
    }

    /// `fstat`.
    pub fn fstat(&self, fd: i64) -> Result<Stat, Errno> {
        Ok(Stat::parse(&self.bytes(&format!("fstat {fd}"))?))
    }

    /// A call with one path.
    pub fn name(&self, verb: &str, path: &str) -> Done {
        self.done(&format!("{verb} {}", escaped(path)), &[])
    }

    /// A call with one path and one number: `mkdir`, `chmod`, `mkfifo`, `mknod`, `access`.
    pub fn name_mode(&self, verb: &str, path: &str, mode: u32) -> Done {
        self.done(&format!("{verb} {} {mode}", escaped(path)), &[])
    }

    /// A call with two paths: `rename`, `link`, `symlink`.
    pub fn names(&self, verb: &str, first: &str, second: &str) -> Done {
        self.done(&format!("{verb} {} {}", escaped(first), escaped(second)), &[])
    }

    /// A call with two paths and flags: `renameat2`, `linkat`.
    pub fn names_flags(&self, verb: &str, first: &str, second: &str, flags: impl Display) -> Done {
        self.done(&format!("{verb} {} {} {flags}", escaped(first), escaped(second)), &[])
    }

    /// `unlink`.
    pub fn unlink(&self, path: &str) -> Done {
        self.name("unlink", path)
    }

    /// `rename`.
    pub fn rename(&self, from: &str, to: &str) -> Done {
        self.names("rename", from, to)
    }

    /// `readlink`.
    pub fn readlink(&self, path: &str) -> Result<String, Errno> {
        let bytes = self.bytes(&format!("readlink {}", escaped(path)))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// All names of a directory, sorted.
    pub fn readdir(&self, path: &str) -> Result<Vec<String>, Errno> {
        let reply = self.call(&format!("readdir {}", escaped(path)), &[])?;
        if reply.value == 0 {
            return Ok(Vec::new());
        }
        Ok(String::from_utf8_lossy(&reply.bytes).split('\n').map(str::to_owned).collect())
    }

    /// The next name of an open directory (`opendir`); `None` at the end.
    pub fn nextdir(&self, directory: i64) -> Result<Option<String>, Errno> {
        let reply = self.call(&format!("nextdir {directory}"), &[])?;
        Ok((reply.value == 1).then(|| String::from_utf8_lossy(&reply.bytes).into_owned()))
    }

    /// `opendir`.
    pub fn opendir(&self, path: &str) -> Result<i64, Errno> {
        self.number(&format!("opendir {}", escaped(path)), &[])
    }

    /// `setxattr`.
    pub fn setxattr(&self, path: &str, name: &str, value: &[u8], flags: i32) -> Done {
        self.done(&format!("setxattr {} {} {flags}", escaped(path), escaped(name)), value)
    }

    /// `getxattr`.
    pub fn getxattr(&self, path: &str, name: &str) -> Result<Vec<u8>, Errno> {
        self.bytes(&format!("getxattr {} {}", escaped(path), escaped(name)))
    }

    /// `mmap`; returns the number of the mapping.
    pub fn mmap(
        &self,
        fd: i64,
        protection: i32,
        flags: i32,
        offset: u64,
        length: usize,
    ) -> Result<i64, Errno> {
        self.number(&format!("mmap {fd} {protection} {flags} {offset} {length}"), &[])
    }

    /// Reads mapped memory; `EFAULT` where a program would get `SIGBUS`.
    pub fn load(&self, map: i64, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
        self.bytes(&format!("load {map} {offset} {length}"))
    }

    /// Writes mapped memory.
    pub fn store(&self, map: i64, offset: u64, bytes: &[u8]) -> Done {
        self.done(&format!("store {map} {offset}"), bytes)
    }

    /// `msync` of `length` bytes from the start, with `MS_SYNC`.
    pub fn msync(&self, map: i64, length: usize) -> Done {
        self.done(&format!("msync {map} 0 {length} {}", libc::MS_SYNC), &[])
    }

    /// `munmap`.
    pub fn munmap(&self, map: i64) -> Done {
        self.done(&format!("munmap {map}"), &[])
    }

    /// A lock call that does not block: `setlk`, `ofd_setlk`. `kind` is `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
    pub fn lock(&self, verb: &str, fd: i64, kind: i32, start: u64, length: u64) -> Done {
        self.done(&format!("{verb} {fd} {kind} {start} {length}"), &[])
    }

    /// A lock call that may block: `setlkw`, `ofd_setlkw`, in a thread of its own.
    pub fn begin_lock(&self, verb: &str, fd: i64, kind: i32, start: u64, length: u64) -> Pending {
        self.begin(&format!("{verb} {fd} {kind} {start} {length}"), &[])
    }

    /// `getlk` or `ofd_getlk`: the kind of a lock that is in the way, `F_UNLCK` if none.
    pub fn getlk(&self, verb: &str, fd: i64, kind: i32, start: u64, length: u64) -> Result<i32, Errno> {
        let bytes = self.bytes(&format!("{verb} {fd} {kind} {start} {length}"))?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(text.split(' ').next().and_then(|word| word.parse().ok()).expect("a kind"))
    }

    /// `flock`.
    pub fn flock(&self, fd: i64, operation: i32) -> Done {
        self.done(&format!("flock {fd} {operation}"), &[])
    }

    /// Makes a file with these contents, or replaces them.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Done {
        let fd = self.open(path, flags::MAKE | libc::O_TRUNC)?;
        let mut done = 0;
        while done < bytes.len() {
            done += usize::try_from(self.write(fd, &bytes[done..])?).expect("no negative length");
        }
        self.close(fd)
    }

    /// All bytes of a file.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let fd = self.open(path, flags::READ)?;
        let mut all = Vec::new();
        loop {
            let part = self.read(fd, 1 << 20)?;
            if part.is_empty() {
                break;
            }
            all.extend_from_slice(&part);
        }
        self.close(fd)?;
        Ok(all)
    }
}
