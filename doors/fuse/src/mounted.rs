//! A mount as its owner sees it: put it there, wait for its end, end it.

use crate::exchange::Errno;
use crate::init;
use crate::kernel::{self, Detach};
use crate::locks;
use crate::mount::{Mount, Timeouts};
use crate::notify::Notifier;
use crate::options::{MountOptions, Rings};
use crate::session::Session;
use crate::sys;
use crate::uring::{self, Queues};
use crate::uring_support;
use ccpfs_client::{Client, ClientConfig, FsError};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why there is no mount.
#[derive(Debug)]
pub enum MountError {
    /// The client cannot be started.
    Client(FsError),
    /// The kernel, or the program that mounts for users, refuses.
    Mount(PathBuf, io::Error),
    /// The directory cannot be what it is asked to be.
    Directory(PathBuf, &'static str),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MountError::Client(error) => write!(f, "cannot start a client: {error}"),
            MountError::Mount(path, error) => write!(f, "cannot mount on {}: {error}", path.display()),
            MountError::Directory(path, what) => write!(f, "cannot mount on {}: {what}", path.display()),
        }
    }
}

impl std::error::Error for MountError {}

/// A mount that is there.
pub struct Mounted {
    session: Arc<Session>,
    queues: Option<Arc<Queues>>,
    directory: PathBuf,
}

/// Mounts the namespace of a configuration on a directory.
///
/// Call it from the first thread of a process that has no other threads' business with umasks: the mount's threads get
/// their own.
///
/// # Errors
/// When the client cannot be started, the directory does not fit, or the kernel refuses.
pub fn mount(config: ClientConfig, directory: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    sys::raise_descriptor_limit();
    let refused = |error: io::Error| MountError::Mount(directory.to_owned(), error);
    if kernel::is_dead_mount(directory) {
        // Its program was killed; it is of no use to anybody.
        kernel::unmount(directory, Detach::Lazily).map_err(refused)?;
    }
    let directory = std::fs::canonicalize(directory).map_err(refused)?;
    check_place(&config.namespace, &directory)?;
    let rings = uring_support::decide(options.rings).map_err(|why| refused(io::Error::other(why)))?;
    let client = Client::start(config).map_err(MountError::Client)?;
    let root = open_root(&client.config().namespace).map_err(refused)?;
    let acl = options.acl.unwrap_or_else(|| has_acl(&root));
    let device = kernel::mount(&directory, options).map_err(refused)?;
    let timeouts = Timeouts { entry: options.entry_timeout, attr: options.attr_timeout };
    let rings = if rings { options.rings } else { Rings::Off };
    match converse(
        client,
        root,
        device,
        (timeouts, acl, rings),
        (options.write_bytes_max, options.raise_size, options.notes_access()),
    ) {
        Ok((session, queues)) => {
            let root = File::options().read(true).custom_flags(libc::O_PATH).open(&directory);
            if let Some(device) = root.ok().and_then(|root| sys::device(root.as_fd())) {
                session.mount.note_place(&directory, device);
            }
            Ok(Mounted { session, queues, directory })
        }
        Err(error) => {
            // Nobody will ever answer there.
            let _ = kernel::unmount(&directory, Detach::Lazily);
            Err(refused(error))
        }
    }
}

fn converse(
    client: Client,
    root: OwnedFd,
    device: OwnedFd,
    (timeouts, acl, rings): (Timeouts, bool, Rings),
    (write_bytes_max, raise_size, notes_access): (u32, bool, bool),
) -> io::Result<(Arc<Session>, Option<Arc<Queues>>)> {
    locks::prepare_signal();
    let agreed = init::agree(&device, write_bytes_max, (acl, rings != Rings::Off))?;
    let notifier = Arc::new(Notifier::new(device.try_clone()?));
    let settings = (timeouts, agreed.write_bytes_max, raise_size, notes_access);
    let mount = Mount::new(client, root, notifier, settings).map_err(io::Error::from_raw_os_error)?;
    let rings_device = device.try_clone()?;
    let session = Session::new(Arc::new(mount), device);
    session.mount.drops.start(&session.mount)?;
    session.start()?;
    let queues = uring::start(&session.mount, rings_device, (agreed.rings, rings))?;
    Ok((session, queues))
}

/// The namespace must stay reachable by its path, and not through ourselves.
fn check_place(namespace: &Path, directory: &Path) -> Result<(), MountError> {
    let namespace = std::fs::canonicalize(namespace).unwrap_or_else(|_| namespace.to_owned());
    let refuse = |what| Err(MountError::Directory(directory.to_owned(), what));
    if namespace.starts_with(directory) {
        return refuse("it would hide the namespace directory");
    }
    if directory.starts_with(&namespace) {
        return refuse("it lies in the namespace directory");
    }
    Ok(())
}

fn open_root(namespace: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    std::fs::OpenOptions::new().read(true).custom_flags(flags).open(namespace).map(OwnedFd::from)
}

/// Whether the namespace's file system has access control lists.
fn has_acl(root: &OwnedFd) -> bool {
    let found = sys::get_xattr(root.as_fd(), c"system.posix_acl_access", &mut []);
    !matches!(found, Err(libc::EOPNOTSUPP))
}

impl Mounted {
    /// Where it is.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Waits until it is unmounted, by whomever, and nobody uses it any more.
    pub fn wait(&self) {
        self.session.wait();
        if let Some(queues) = &self.queues {
            queues.wait();
        }
    }

    /// Whether it is unmounted and nobody uses it any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.mount.has_ended()
    }

    /// Takes it out of the tree; whoever uses it may go on until [`Mounted::finish`].
    ///
    /// # Errors
    /// When the kernel refuses: it is gone already.
    pub fn detach(&self) -> io::Result<()> {
        kernel::unmount(&self.directory, Detach::Lazily)
    }

    /// Gives everything that was written to the servers and ends the client. Whoever still uses the mount gets ENOTCONN when the
    /// process ends.
    ///
    /// # Errors
    /// What could not be stored.
    pub fn finish(&self) -> Result<(), FsError> {
        let mount = &self.session.mount;
        mount.locks.interrupt_all();
        // The kernel's pages first: they are written through us.
        mount.handles.all().iter().for_each(|handle| mount.drop_all_pages(&handle.inode));
        mount.close();
        mount.drops.end();
        let flushed = mount.client.flush_all();
        if mount.has_ended() {
            mount.handles.clear();
        }
        flushed.and(mount.client.shutdown())
    }

    /// The number of an error for a caller that wants one.
    #[must_use]
    pub fn errno(error: &FsError) -> Errno {
        error.to_errno()
    }
}
