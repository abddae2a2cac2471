//! The state of one mount, which all its threads share.

use crate::abi::{Attr, AttrOut, EntryOut, ROOT_ID};
use crate::drops::Drops;
use crate::exchange::Errno;
use crate::handles::Handles;
use crate::inodes::{Inode, Inodes};
use crate::kernel;
use crate::locks::Locks;
use crate::notify::Notifier;
use ccpfs_client::{Client, FsError};
use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Hidden directory of the namespace's root.
const HIDDEN_ROOT: &[u8] = b".ccpfs";
/// Beginnings of names of the namespace's own files, which are hidden in every directory.
const HIDDEN: [&[u8]; 2] = [b".ccpfs-stripe", b".ccpfs-new-"];

/// Descriptors that are needed to make the kernel forget, and one more.
const SPARE: usize = 3;

/// How long the kernel may believe what it was told. Zero keeps the mount coherent with other doors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) entry: Duration,
    pub(crate) attr: Duration,
}

/// One mount.
pub(crate) struct Mount {
    pub(crate) client: Client,
    pub(crate) inodes: Inodes,
    pub(crate) handles: Handles,
    pub(crate) locks: Locks,
    pub(crate) notifier: Arc<Notifier>,
    /// Pages that must go.
    pub(crate) drops: Drops,
    pub(crate) timeouts: Timeouts,
    /// Largest write that the kernel sends, bytes.
    pub(crate) write_bytes_max: u32,
    /// Whether the kernel is told sizes ahead of the real ones ([`crate::options::MountOptions::raise_size`]).
    pub(crate) raise_size: bool,
    /// Whether reading a file moves its time of access ([`crate::options::MountOptions::notes_access`]).
    pub(crate) notes_access: bool,
    /// Where it is, and its device there.
    place: OnceLock<(PathBuf, u64)>,
    /// Descriptors to be closed when others are needed and there are none.
    spare: Mutex<Vec<OwnedFd>>,
    /// Whether `close` waits for the flush.
    flush_on_close: bool,
    /// Whether threads can take on other users.
    can_switch: AtomicBool,
    /// Whether nothing may be changed any more: what is written now would not be flushed.
    closing: AtomicBool,
    /// Whether the kernel has ended the conversation.
    ended: AtomicBool,
}

/// The errno of an error of the client, noted in the log when it says more than its number.
pub(crate) fn failed(error: &FsError) -> Errno {
    match error {
        FsError::Namespace { .. } | FsError::Argument { .. } => tracing::debug!(%error, "request failed"),
        FsError::CorruptStub { .. }
        | FsError::OtherCluster { .. }
        | FsError::Unreachable { .. }
        | FsError::ServerLost { .. }
        | FsError::Server { .. }
        | FsError::DataLost { .. }
        | FsError::Config(_) => tracing::warn!(%error, "request failed"),
    }
    error.to_errno()
}

/// Whether the client says that a stub can be read, and makes no sense.
fn is_damaged(error: &FsError) -> bool {
    match error {
        FsError::CorruptStub { .. } => true,
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
    /// A mount of the namespace directory that `root` is open on, as a path only.
    pub(crate) fn new(
        client: Client,
        root: OwnedFd,
        notifier: Arc<Notifier>,
        (timeouts, write_bytes_max, raise_size, notes_access): (Timeouts, u32, bool, bool),
    ) -> Result<Mount, Errno> {
        let flush_on_close = client.config().flush_on_close;
        Ok(Mount {
            client,
            inodes: Inodes::new(root)?,
            handles: Handles::default(),
            locks: Locks::default(),
            notifier,
            drops: Drops::default(),
            timeouts,
            write_bytes_max,
            raise_size,
            notes_access,
            place: OnceLock::new(),
            spare: Mutex::default(),
            flush_on_close,
            can_switch: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })
    }

    /// Notes where it is.
    pub(crate) fn note_place(&self, directory: &Path, device: u64) {
        // It has one place only.
        let _ = self.place.set((directory.to_owned(), device));
        self.keep_spare();
    }

    fn keep_spare(&self) {
        let mut spare = self.spare.lock().expect("no code panics under this lock");
        while spare.len() < SPARE {
            match self.inodes.get(ROOT_ID).map(|root| root.fd().try_clone_to_owned()) {
                Ok(Ok(fd)) => spare.push(fd),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Makes the kernel forget names and inodes: all that nobody uses, or, where that is not allowed, some names of files.
    pub(crate) fn thin_out(&self) {
        self.spare.lock().expect("no code panics under this lock").clear();
        let all = self.place.get().map(|(directory, device)| kernel::forget_unused(directory, *device));
        self.keep_spare();
        if !matches!(all, Some(Ok(()))) {
            self.inodes.forget_names(|parent, name| {
                // What the kernel has forgotten or uses is as it should be.
                let _ = self.notifier.forget_name(parent, name);
            });
        }
        self.inodes.note_thinned();
    }

    /// There are no descriptors left: waits until the kernel has forgotten something.
    pub(crate) fn wait_for_descriptors(&self) {
        let times = self.inodes.times_thinned();
        if self.inodes.begin_thinning() {
            self.drops.push(crate::pages::Drop::Crowd);
        }
        self.inodes.wait_until_thinned(times);
    }

    /// From now on nothing is changed any more.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Whether nothing may be changed any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Whether threads that serve the mount can take on other users.
    pub(crate) fn can_switch(&self) -> bool {
        self.can_switch.load(Ordering::Relaxed)
    }

    /// Notes what a thread has found out about that.
    pub(crate) fn note_can_switch(&self, can_switch: bool) {
        self.can_switch.store(can_switch, Ordering::Relaxed);
    }

    /// Whether `close` waits for the flush.
    pub(crate) fn flush_on_close(&self) -> bool {
        self.flush_on_close
    }

    /// Notes that there are no more requests.
    pub(crate) fn note_end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Whether there are no more requests.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Whether the name is one that programs do not see.
    pub(crate) fn is_hidden(parent: &Inode, name: &[u8]) -> bool {
        name.first() == Some(&b'.')
            && (HIDDEN.iter().any(|hidden| name.starts_with(hidden))
                || (parent.nodeid == ROOT_ID && name == HIDDEN_ROOT))
    }

    /// Refuses to make a name that programs would not see.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_new_name(parent: &Inode, name: &CStr) -> Result<(), Errno> {
        if Mount::is_hidden(parent, name.to_bytes()) { Err(libc::EPERM) } else { Ok(()) }
    }

    /// Puts size, space and times of a ccPFS file's data into what the namespace said of its stub.
    pub(crate) fn complete(&self, fd: BorrowedFd<'_>, found: &mut libc::stat) -> Result<(), Errno> {
        if found.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Ok(());
        }
        match self.client.stat_stub(fd, found) {
            Ok(_) => Ok(()),
            // A name must be there to be removed or renamed. What it shows are the stub's own size and times.
            Err(error) if is_damaged(&error) => Ok(()),
            Err(error) => Err(failed(&error)),
        }
    }

    /// The answer that gives the kernel a reference to an inode.
    pub(crate) fn entry(&self, inode: &Inode, mut found: libc::stat) -> Result<EntryOut, Errno> {
        inode.pages.cuts.wait();
        if self.inodes.are_crowded() {
            self.drops.push(crate::pages::Drop::Crowd);
        }
        if let Err(errno) = self.complete(inode.fd(), &mut found) {
            self.inodes.forget(inode.nodeid, 1);
            return Err(errno);
        }
        inode.pages.ahead.told(found.st_size.cast_unsigned());
        let (entry, attr) = (self.timeouts.entry, self.timeouts.attr);
        Ok(EntryOut {
            nodeid: inode.nodeid,
            generation: 0,
            entry_valid: entry.as_secs(),
            entry_valid_nsec: entry.subsec_nanos(),
            attr_valid: attr.as_secs(),
            attr_valid_nsec: attr.subsec_nanos(),
            attr: attr_of(&found),
        })
    }

    /// The answer with attributes.
    pub(crate) fn attributes(&self, inode: &Inode) -> Result<AttrOut, Errno> {
        inode.pages.cuts.wait();
        self.attributes_now(inode)
    }

    /// As [`Mount::attributes`], while a cut may be owed.
    pub(crate) fn attributes_now(&self, inode: &Inode) -> Result<AttrOut, Errno> {
        let mut found = inode.stat()?;
        self.complete(inode.fd(), &mut found)?;
        inode.pages.ahead.told(found.st_size.cast_unsigned());
        let attr = self.timeouts.attr;
        Ok(AttrOut {
            attr_valid: attr.as_secs(),
            attr_valid_nsec: attr.subsec_nanos(),
            dummy: 0,
            attr: attr_of(&found),
        })
    }
}

/// A stat in the kernel's words.
fn attr_of(found: &libc::stat) -> Attr {
    let nanoseconds = |value: i64| u32::try_from(value).unwrap_or(0);
    Attr {
        ino: found.st_ino,
        size: found.st_size.cast_unsigned(),
        blocks: found.st_blocks.cast_unsigned(),
        atime: found.st_atime.cast_unsigned(),
        mtime: found.st_mtime.cast_unsigned(),
        ctime: found.st_ctime.cast_unsigned(),
        atimensec: nanoseconds(found.st_atime_nsec),
        mtimensec: nanoseconds(found.st_mtime_nsec),
        ctimensec: nanoseconds(found.st_ctime_nsec),
        mode: found.st_mode,
        nlink: u32::try_from(found.st_nlink).unwrap_or(u32::MAX),
        uid: found.st_uid,
        gid: found.st_gid,
        rdev: kernel_device(found.st_rdev),
        blksize: u32::try_from(found.st_blksize).unwrap_or(4096),
        flags: 0,
    }
}

/// A device number as the kernel packs it into 32 bits.
fn kernel_device(device: u64) -> u32 {
    let (major, minor) = (libc::major(device), libc::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The inverse of [`kernel_device`].
pub(crate) fn device_of_kernel(device: u32) -> u64 {
    libc::makedev((device & 0xf_ff00) >> 8, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_the_kernels_packing() {
        for (major, minor) in [(0, 0), (1, 3), (8, 1), (259, 65_537), (4095, 0xf_ffff)] {
            let device = libc::makedev(major, minor);
            assert_eq!(device_of_kernel(kernel_device(device)), device);
        }
    }
}
