//! Sealing: a stub says how long its file is as long as nobody has it open for writing, so that no server need be asked.

use crate::client::ClientInner;
use crate::error::FsError;
use crate::opened::Opened;
use crate::opens::Byte;
use crate::shared::FileShared;
use crate::sys::{self, Place};
use crate::times::omit;
use ccpfs_namespace::{Contents, Stub, StubState};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a time is put into a stub that others write to at the same time.
const ATTEMPTS: u32 = 8;
/// Blocks that a stub counts in, bytes.
const BLOCK_BYTES: u64 = 4096;

impl ClientInner {
    /// This client may write from here on: the registry and the record say so.
    pub(crate) fn begin_writing(&self, shared: &FileShared, opened: &mut Opened) -> io::Result<()> {
        if opened.writing {
            return Ok(());
        }
        let file = shared.stub.file;
        opened.watched = self.opens.hold(file, Byte::Writing);
        opened.before = None;
        if let Err(error) = self.unseal(shared, opened) {
            self.opens.let_go(file, Byte::Writing);
            return Err(error);
        }
        shared.written.store(false, Ordering::SeqCst);
        opened.writing = true;
        Ok(())
    }

    /// Makes the record say that somebody may write.
    fn unseal(&self, shared: &FileShared, opened: &mut Opened) -> io::Result<()> {
        let stub = opened.stub.clone().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?;
        let watched = opened.watched;
        if let Some(record) = crate::directory::record(stub.as_fd())?
            && record.state.opened_for_writing(watched).is_some()
        {
            let writer = opened.writer()?;
            let _turn = self.opens.record(shared.stub.file, false);
            // Another client may have been faster.
            if let Some(record) = crate::directory::record(writer.as_fd())?
                && let Some(state) = record.state.opened_for_writing(watched)
            {
                let changed_ns = sys::changed_ns(&sys::stat(writer.as_fd())?);
                write_record(&writer, record.with(state), None)?;
                match record.state {
                    StubState::Sealed(contents) => opened.before = Some(contents).filter(|_| watched),
                    StubState::Unsealed { .. } | StubState::Unwatched => {
                        // In this turn: whoever looked at the file before it is done would see its time go back.
                        self.keep_time_of_writes(shared, &writer, changed_ns);
                    }
                }
            }
        }
        shared.raise_floor(sys::changed_ns(&sys::stat(stub.as_fd())?));
        Ok(())
    }

    /// After the record of a file was written that others may be writing: the stub is younger than their writes by that alone. Puts the
    /// time of the last one into it, if that came after what had changed the stub before (`before_ns`).
    fn keep_time_of_writes(&self, shared: &FileShared, stub: &File, mut before_ns: i64) {
        for _ in 0..ATTEMPTS {
            let Ok(found) = sys::stat(stub.as_fd()) else { return };
            let changed_ns = sys::changed_ns(&found);
            // Later writes are younger than the stub of themselves.
            crate::times::let_pass(changed_ns);
            let written_ns = match shared.attributes(self) {
                Ok(data) => data.modified_ns,
                Err(error) => {
                    tracing::debug!(%error, "who writes a file cannot be asked when");
                    return;
                }
            };
            if written_ns <= before_ns || written_ns > changed_ns {
                return;
            }
            // In somebody else's file, the time of this change stays.
            if sys::set_times(stub.as_fd(), &[omit(), crate::times::timespec(written_ns)]).is_err() {
                return;
            }
            before_ns = written_ns;
        }
    }

    /// This client does not write any longer, except that what it has not flushed yet keeps the file open for writing.
    pub(crate) fn end_writing(&self, shared: &FileShared, opened: &mut Opened) {
        if !opened.writing {
            return;
        }
        if shared.is_dirty() {
            return;
        }
        opened.writing = false;
        let before = opened.before.take();
        let sealed = self.seal(shared, opened, before);
        if let Err(error) = sealed {
            tracing::debug!(%error, "a file stays unsealed: sizes will be asked for");
        }
    }

    /// Lets go of WRITING; who was the last to have it says in the stub what there is.
    fn seal(
        &self,
        shared: &FileShared,
        opened: &mut Opened,
        before: Option<Contents>,
    ) -> Result<(), FsError> {
        let failed = |error| crate::directory::namespace_error("seal", std::path::Path::new(""), error);
        let Some(stub) = opened.stub.clone().filter(|_| opened.watched) else {
            self.opens.let_go(shared.stub.file, Byte::Writing);
            if let Some(stub) = &opened.stub {
                self.note_written(shared, stub);
            }
            return Ok(());
        };
        // Otherwise another writer will do it.
        let Some(_alone) = self.opens.let_go_or_alone(shared.stub.file, Byte::Writing) else { return Ok(()) };
        let Some(record) = crate::directory::record(stub.as_fd()).map_err(failed)? else { return Ok(()) };
        let StubState::Unsealed { sole, .. } = record.state else { return Ok(()) };
        let before = before.filter(|_| sole);
        let stamped = shared.stamped_ns.load(Ordering::Relaxed);
        let (contents, modified_ns) = match before {
            Some(before) if !shared.written.load(Ordering::SeqCst) => (before, None),
            Some(_) | None => {
                if sys::stat(stub.as_fd()).map_err(failed)?.st_nlink == 0 {
                    return Ok(());
                }
                let data = shared.attributes(self)?;
                let blocks = data.stored_bytes.div_ceil(BLOCK_BYTES);
                // Who has been alone knows when; the servers know when they stored it.
                let modified_ns = if before.is_some() { stamped } else { data.modified_ns.max(stamped) };
                (Contents { size: data.size, blocks, virgin: false }, Some(modified_ns))
            }
        };
        let writer = opened.writer().map_err(failed)?;
        let _turn = self.opens.record(shared.stub.file, false);
        write_record(&writer, record.with(StubState::Sealed(contents)), modified_ns).map_err(failed)
    }

    /// Leaves the time of the last write in the stub of a file that cannot be sealed.
    fn note_written(&self, shared: &FileShared, stub: &File) {
        let last = shared.stamped_ns.load(Ordering::Relaxed);
        let Ok(found) = sys::stat(stub.as_fd()) else { return };
        if shared.written.load(Ordering::SeqCst) && last > sys::changed_ns(&found) {
            // A file that belongs to somebody else keeps its time; the servers know it.
            let _ = sys::set_times(stub.as_fd(), &[omit(), crate::times::timespec(last)]);
        }
    }

    /// Seals what this client has been writing, before it ends or rests; handles that go on writing say so anew.
    pub(crate) fn seal_all(&self) {
        for shared in self.all_files() {
            let mut opened = shared.opened();
            if opened.writing && opened.stub.is_some() {
                // Before it is: whoever is just writing finds it afterwards.
                shared.rested.store(opened.writers > 0, Ordering::SeqCst);
                self.end_writing(&shared, &mut opened);
                shared.rested.store(!opened.writing && opened.writers > 0, Ordering::SeqCst);
            }
        }
    }

    /// Gives up being the only one who may write, where a process that inherits our descriptors could not say so itself.
    pub(crate) fn share_all(&self) {
        for shared in self.all_files() {
            let mut opened = shared.opened();
            let Some(stub) = opened.stub.clone().filter(|_| opened.before.is_some()) else { continue };
            let name = sys::path_of_descriptor(stub.as_fd());
            let may_write = sys::may_access(Place { dir: sys::WORKING_DIRECTORY, name: &name }, libc::W_OK);
            if may_write.is_err()
                && let Err(error) = self.share(&shared, &mut opened)
            {
                tracing::warn!(%error, "a file that is open for writing cannot be handed on");
            }
        }
    }

    fn share(&self, shared: &FileShared, opened: &mut Opened) -> io::Result<()> {
        let writer = opened.writer()?;
        let _turn = self.opens.record(shared.stub.file, false);
        if let Some(record) = crate::directory::record(writer.as_fd())?
            && let Some(state) = record.state.opened_for_writing(opened.watched)
        {
            let written = shared.written.load(Ordering::SeqCst);
            let modified_ns = written.then(|| shared.stamped_ns.load(Ordering::Relaxed));
            write_record(&writer, record.with(state), modified_ns)?;
            shared.raise_floor(sys::changed_ns(&sys::stat(writer.as_fd())?));
        }
        opened.before = None;
        Ok(())
    }

    /// Before and after a write through a handle: the file may have been sealed at [`crate::Client::shutdown`].
    pub(crate) fn wake_writing(&self, shared: &FileShared) -> io::Result<()> {
        if !shared.rested.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut opened = shared.opened();
        self.begin_writing(shared, &mut opened)?;
        shared.rested.store(false, Ordering::SeqCst);
        Ok(())
    }
}

/// Writes a record. The stub's modification time stays as it was, or becomes `modified_ns` if that is later than what was set by hand.
pub(crate) fn write_record(stub: &Arc<File>, record: Stub, modified_ns: Option<i64>) -> io::Result<()> {
    let found = sys::stat(stub.as_fd())?;
    let kept = sys::nanoseconds(found.st_mtime, found.st_mtime_nsec);
    let modified_ns = modified_ns.filter(|modified| *modified > sys::changed_ns(&found)).unwrap_or(kept);
    sys::write_start(stub.as_fd(), &record.encode())?;
    match sys::set_times(stub.as_fd(), &[omit(), crate::times::timespec(modified_ns)]) {
        // Somebody else's file keeps the time of this change.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Ok(()),
        other => other,
    }
}
