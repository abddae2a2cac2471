//! Taking stock: what servers have, what stubs say about it, and putting the two in line again. For `ccpfs fsck`.
//!
//! *Invariants*: nothing is changed of a file that somebody has open (OPEN in the registry of open files), or, where only the record
//! is concerned, may write (WRITING). Without a registry nobody knows that, and nothing is changed at all.

use crate::client::{Client, unexpected};
use crate::directory::{may_be_stub, namespace_error};
use crate::error::FsError;
use crate::opens::Byte;
use crate::seal::write_record;
use crate::shared::DataAttributes;
use crate::sys::{self, Place};
use crate::times::{omit, timespec};
use ccpfs_namespace::{Contents, STUB_BYTES, Stub, StubError, StubState};
use ccpfs_types::{FileId, ResourceId};
use ccpfs_wire::{Message, Status, StoredStripe};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

/// Blocks that a record counts in, bytes.
const BLOCK_BYTES: u64 = 4096;

/// A part of what a shard has on its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPage {
    /// In order of file and stripe.
    pub stripes: Vec<StoredStripe>,
    /// Whether there may be something behind them.
    pub more: bool,
}

/// What a regular file of the namespace is.
#[derive(Debug)]
pub enum Looked {
    /// Not one of ours.
    Ordinary,
    /// A stub.
    Stub {
        /// What it says.
        record: Stub,
        /// Device and inode.
        inode: (u64, u64),
    },
    /// It begins like a stub and is none, or one of another cluster.
    Damaged {
        /// What is wrong.
        error: FsError,
        /// The file that it may have stood for.
        perhaps: Option<FileId>,
    },
}

/// What has come of sealing a file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resealed {
    /// The record says what the servers have.
    Sealed(Contents),
    /// Somebody may be writing, or nobody knows: the record is as it was.
    InUse,
    /// It has lost its name.
    Gone,
}

impl Client {
    /// The next stripes that shard `target` has on its device, behind `after`: at most `count_max`, and at most
    /// [`ccpfs_types::limits::LIST_STRIPES_MAX`].
    ///
    /// # Errors
    /// When there is no such target, it cannot be reached, or its device fails.
    pub fn list_objects(
        &self,
        target: u32,
        after: Option<ResourceId>,
        count_max: u32,
    ) -> Result<ObjectPage, FsError> {
        let session = self.inner.session(target)?;
        let request = self.inner.request();
        let message = Message::List { request, after, count_max };
        let sent = session.send_request(request, &message, Vec::new());
        sent.inspect_err(|_| self.inner.session_lost(&session))?;
        let (answer, _) = self.inner.wait_reply(&session, request)?;
        let Message::ListReply { status, stripes, more, .. } = answer else {
            return Err(unexpected(&answer));
        };
        match status {
            Status::Ok => Ok(ObjectPage { stripes, more }),
            Status::Errno(errno) => Err(FsError::Server { operation: "list", errno }),
        }
    }

    /// Looks at a regular file of the namespace. `file` is open for reading, `path` for messages.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn look_at(&self, file: &File, path: &Path) -> Result<Looked, FsError> {
        let fail = |error| namespace_error("read", path, error);
        let found = sys::stat(file.as_fd()).map_err(fail)?;
        if !may_be_stub(&found) {
            let source = StubError::Length(found.st_size.cast_unsigned());
            return match begins_like_a_stub(file).map_err(fail)? {
                None => Ok(Looked::Ordinary),
                Some(perhaps) => Ok(Looked::Damaged {
                    error: FsError::CorruptStub { path: path.to_owned(), source },
                    perhaps,
                }),
            };
        }
        match self.inner.read_if_stub(file.as_fd(), path) {
            Ok(None) => Ok(Looked::Ordinary),
            Ok(Some(record)) => Ok(Looked::Stub { record, inode: crate::opened::inode_of(&found) }),
            Err(error @ (FsError::CorruptStub { .. } | FsError::OtherCluster { .. })) => {
                let perhaps = begins_like_a_stub(file).map_err(fail)?.flatten();
                Ok(Looked::Damaged { error, perhaps })
            }
            Err(error) => Err(error),
        }
    }

    /// Whether anybody has a file open; `None` without a registry of open files.
    #[must_use]
    pub fn is_in_use(&self, file: FileId) -> Option<bool> {
        self.inner.opens.is_held(file, Byte::Open)
    }

    /// Whether anybody may write a file; `None` without a registry of open files.
    #[must_use]
    pub fn is_being_written(&self, file: FileId) -> Option<bool> {
        self.inner.opens.is_held(file, Byte::Writing)
    }

    /// Size, time and space of a file as servers and clients know them, whatever its record says.
    ///
    /// # Errors
    /// When a server cannot be asked; ESTALE if it has been told to remove the file.
    pub fn measure(&self, record: Stub) -> Result<DataAttributes, FsError> {
        self.inner.peek_file(record).attributes(&self.inner)
    }

    /// The shard that a stripe belongs to.
    #[must_use]
    pub fn target_of(&self, resource: ResourceId) -> u32 {
        let targets = u64::from(self.inner.directory.targets);
        let target = (resource.file.hash64() % targets + u64::from(resource.stripe)) % targets;
        u32::try_from(target).expect("below the number of targets")
    }

    /// Seals the file of an open stub anew, with what its servers have, whatever it said before. Not while somebody may write it.
    ///
    /// # Errors
    /// When a server cannot be asked, or the stub cannot be written.
    pub fn seal_again(&self, stub: &File, path: &Path) -> Result<Resealed, FsError> {
        let fail = |error| namespace_error("seal", path, error);
        let record = self.inner.directory.read_stub(stub.as_fd(), path)?;
        let Some(_alone) = self.inner.opens.alone(record.file, Byte::Writing) else {
            return Ok(Resealed::InUse);
        };
        if sys::stat(stub.as_fd()).map_err(fail)?.st_nlink == 0 {
            return Ok(Resealed::Gone);
        }
        // Nobody begins to write from here on.
        let record = self.inner.directory.read_stub(stub.as_fd(), path)?;
        let modified_wanted = match record.state {
            StubState::Unwatched => return Ok(Resealed::InUse),
            StubState::Sealed(_) => false,
            StubState::Unsealed { .. } => true,
        };
        let data = self.measure(record)?;
        let contents = contents_of(&data);
        let writer = Arc::new(sys::reopen(stub.as_fd(), libc::O_RDWR).map_err(fail)?);
        let _turn = self.inner.opens.record(record.file, false);
        let modified_ns = modified_wanted.then_some(data.modified_ns);
        write_record(&writer, record.with(StubState::Sealed(contents)), modified_ns).map_err(fail)?;
        Ok(Resealed::Sealed(contents))
    }

    /// Gives a file without a name one: a new stub at `path`, which does not exist yet, for its owner only. `Ok(None)` while somebody
    /// has the file open. The caller knows that it has no name.
    ///
    /// # Errors
    /// When a server cannot be asked (ESTALE: it has been told to remove the file), or the stub cannot be made.
    pub fn adopt(&self, record: Stub, path: &Path) -> Result<Option<Contents>, FsError> {
        let Some(_alone) = self.inner.opens.alone(record.file, Byte::Open) else { return Ok(None) };
        let data = self.measure(record)?;
        let contents = contents_of(&data);
        let record = record.with(StubState::Sealed(contents));
        self.make_stub(record, data.modified_ns, path).map_err(|e| namespace_error("link", path, e))?;
        self.inner.forget_orphan(record.file);
        Ok(Some(contents))
    }

    fn make_stub(&self, record: Stub, modified_ns: i64, path: &Path) -> io::Result<()> {
        // Complete under another name first: nobody must find a part of it.
        let aside = path.with_extension("being-linked");
        let (from, to) = (sys::c_path(&aside)?, sys::c_path(path)?);
        let at = |name| Place { dir: sys::WORKING_DIRECTORY, name };
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let stub = sys::open(at(&from), flags, 0o600)?;
        sys::write_start(stub.as_fd(), &record.encode())?;
        sys::set_times(stub.as_fd(), &[omit(), timespec(modified_ns)])?;
        stub.sync_all()?;
        sys::link(at(&from), at(&to), 0)?;
        sys::unlink(at(&from), 0)
    }

    /// Removes stripes from the shard that has them, for good. `Ok(false)` while somebody has the file open. The caller knows that no
    /// name leads to them.
    ///
    /// # Errors
    /// When the shard cannot be told.
    pub fn remove_objects(&self, target: u32, file: FileId, stripes: &[u32]) -> Result<bool, FsError> {
        let Some(_alone) = self.inner.opens.alone(file, Byte::Open) else { return Ok(false) };
        let session = self.inner.session(target)?;
        let request = self.inner.request();
        let resources = stripes.iter().map(|stripe| ResourceId { file, stripe: *stripe }).collect();
        let sent = session.send_request(request, &Message::Destroy { request, resources }, Vec::new());
        sent.inspect_err(|_| self.inner.session_lost(&session))?;
        let (answer, _) = self.inner.wait_reply(&session, request)?;
        let Message::Done { status, .. } = answer else { return Err(unexpected(&answer)) };
        match status {
            Status::Ok => Ok(true),
            Status::Errno(errno) => Err(FsError::Server { operation: "remove", errno }),
        }
    }

    /// Removes the note that a file lost its last name while somebody had it open ([`Client::orphans`]). `Ok(false)` if
    /// somebody has it open.
    ///
    /// # Errors
    /// When the note cannot be removed.
    pub fn forget_orphan(&self, file: FileId) -> Result<bool, FsError> {
        if self.is_in_use(file) != Some(false) {
            return Ok(false);
        }
        let Some(dir) = self.inner.opens.orphans() else { return Ok(true) };
        let name = CString::new(file.to_string()).expect("digits");
        match sys::unlink(Place { dir, name: &name }, 0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(namespace_error("remove", Path::new("the note of a removed file"), error))
            }
            Ok(()) | Err(_) => Ok(true),
        }
    }
}

fn contents_of(data: &DataAttributes) -> Contents {
    Contents { size: data.size, blocks: data.stored_bytes.div_ceil(BLOCK_BYTES), virgin: false }
}

/// Whether a file that is not a stub begins like one; with it, the file id at the place where stubs have it.
fn begins_like_a_stub(file: &File) -> io::Result<Option<Option<FileId>>> {
    let mut bytes = [0; STUB_BYTES];
    let length = sys::read_start(file.as_fd(), &mut bytes)?;
    if let Err(StubError::Magic | StubError::Length(_)) = Stub::decode(&bytes) {
        return Ok(None);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[12..28]);
    Ok(Some((length >= 28).then_some(FileId(id))))
}
