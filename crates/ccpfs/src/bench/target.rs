//! What a client process writes to: a file of ccPFS, a local file, or memory.

use super::protocol::{Backend, Job};
use crate::failure::{Context, Failure};
use crate::sys;
use ccpfs_client::{AheadMode, Client, OpenOptions, Statistics};
use ccpfs_config::ClientConfig;
use ccpfs_region::Region;
use ccpfs_types::{Extent, Layout};
use std::fs::File;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The group of all processes of a measurement.
const GROUP: NonZeroU64 = NonZeroU64::new(1).expect("not zero");

/// Opens targets.
pub(crate) enum Access {
    /// Files of ccPFS.
    Ccpfs {
        /// The client.
        client: Client,
        /// Layout of files that it creates.
        layout: Layout,
    },
    /// Local files.
    Local,
    /// Memory of this many bytes.
    Memory(usize),
}

/// Something open.
pub(crate) enum Target {
    /// A file of ccPFS.
    Ccpfs(ccpfs_client::File),
    /// A local file.
    Local(File),
    /// Memory.
    Memory(Vec<u8>),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It must not exist.
    Create,
    /// It exists; for reading and writing.
    ReadWrite,
    /// It exists; for reading.
    Read,
}

impl Access {
    /// Prepares what `job` needs: after this, opening and writing cost no more than they must.
    pub(crate) fn prepare(job: &Job) -> Result<Access, Failure> {
        match &job.backend {
            Backend::Local => Ok(Access::Local),
            Backend::Memory => {
                let bytes = job.shape.transfer_bytes * job.shape.transfer_count;
                Ok(Access::Memory(usize::try_from(bytes).context(|| "too much memory".to_owned())?))
            }
            Backend::Ccpfs { config, prefault_bytes } => {
                let mut config = ClientConfig::load(Some(config))?;
                config.prefault_bytes = (*prefault_bytes).min(config.cache_bytes);
                config.force_write_mode = job.mode.map(super::plan::Mode::lock_mode);
                config.lock_whole = job.workload.locks_whole();
                let layout = Layout::new(job.stripes, job.shape.stripe_bytes);
                let layout = layout.ok_or_else(|| Failure::new("the layout is out of range"))?;
                let client = Client::start(config).context(|| "cannot start a client".to_owned())?;
                client.prepare().context(|| "cannot prepare the cache".to_owned())?;
                Ok(Access::Ccpfs { client, layout })
            }
        }
    }

    /// Opens a file. Memory is touched page by page.
    pub(crate) fn open(&self, path: &Path, how: How) -> Result<Target, Failure> {
        let failed = || format!("cannot open {}", path.display());
        match self {
            Access::Memory(bytes) => Ok(Target::Memory(sys::touched_memory(*bytes))),
            Access::Local => {
                let mut options = File::options();
                options.read(true).write(how != How::Read).create_new(how == How::Create);
                options.open(path).map(Target::Local).context(failed)
            }
            Access::Ccpfs { client, layout } => {
                let create = how == How::Create;
                let options = OpenOptions {
                    read: true,
                    write: how != How::Read,
                    create,
                    exclusive: create,
                    mode: 0o600,
                    layout: create.then_some(*layout),
                    ..OpenOptions::default()
                };
                let file = client.open(path, &options).context(failed)?;
                // Connects to the file's servers, as a mounted file system is before a program starts.
                file.size().context(failed)?;
                Ok(Target::Ccpfs(file))
            }
        }
    }

    /// Removes a file.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), Failure> {
        let failed = || format!("cannot remove {}", path.display());
        match self {
            Access::Memory(_) => Ok(()),
            Access::Local => std::fs::remove_file(path).context(failed),
            Access::Ccpfs { client, .. } => client.unlink(path).context(failed),
        }
    }

    /// What the client has counted so far.
    pub(crate) fn statistics(&self) -> Statistics {
        match self {
            Access::Ccpfs { client, .. } => client.statistics(),
            Access::Local | Access::Memory(_) => Statistics::default(),
        }
    }
}

impl Target {
    /// Writes all of `data`.
    pub(crate) fn write(&mut self, data: &[u8], offset: u64) -> Result<(), Failure> {
        let failed = || format!("writing {} bytes at {offset}", data.len());
        match self {
            Target::Local(file) => file.write_all_at(data, offset).context(failed),
            Target::Memory(memory) => {
                let start = usize::try_from(offset).context(failed)?;
                memory[start..start + data.len()].copy_from_slice(data);
                Ok(())
            }
            Target::Ccpfs(file) => {
                let mut done = 0;
                while done < data.len() {
                    let at = offset + u64::try_from(done).expect("below 2^64");
                    match file.write_at(&data[done..], at).context(failed)? {
                        0 => return Err(Failure::new(format!("{}: nothing was written", failed()))),
                        count => done += count,
                    }
                }
                Ok(())
            }
        }
    }

    /// Writes all of `data` into the pieces of `region` at once: others see all of it or nothing.
    pub(crate) fn write_region(&self, region: &Region, data: &[u8]) -> Result<(), Failure> {
        let failed = || format!("writing {} bytes into {} pieces", data.len(), region.piece_count());
        match self.ccpfs()?.write_region(region, data).context(failed)? {
            count if count == data.len() => Ok(()),
            count => Err(Failure::new(format!("{}: only {count} were written", failed()))),
        }
    }

    fn ccpfs(&self) -> Result<&ccpfs_client::File, Failure> {
        match self {
            Target::Ccpfs(file) => Ok(file),
            Target::Local(_) | Target::Memory(_) => Err(Failure::new("only files of ccPFS have locks")),
        }
    }

    /// Asks for locks of exactly these pieces, for writing, and waits for nobody.
    pub(crate) fn lock_ahead(&self, pieces: &[Extent]) -> Result<(), Failure> {
        let failed = || format!("asking for {} locks ahead", pieces.len());
        let file = self.ccpfs()?;
        file.set_lock_expansion(false);
        let advised = file.lockahead(pieces, AheadMode::Write).context(failed)?;
        advised.into_iter().try_for_each(|advised| advised.map(drop).context(failed))
    }

    /// Takes the group lock that all processes share: waits until whoever is not of the group has let go.
    pub(crate) fn enter_group(&self) -> Result<(), Failure> {
        self.ccpfs()?.group_lock(GROUP).context(|| "taking the group lock".to_owned())
    }

    /// Gives it back, with everything that was written.
    pub(crate) fn leave_group(&self) -> Result<(), Failure> {
        self.ccpfs()?.group_unlock(GROUP).context(|| "giving back the group lock".to_owned())
    }

    /// Reads until `data` are full or the file ends; answers how many bytes there were.
    pub(crate) fn read(&self, data: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let length = data.len();
        let failed = || format!("reading {length} bytes at {offset}");
        if let Target::Memory(memory) = self {
            let start = usize::try_from(offset).context(failed)?;
            data.copy_from_slice(&memory[start..start + length]);
            return Ok(length);
        }
        let mut done = 0;
        while done < length {
            let at = offset + u64::try_from(done).expect("below 2^64");
            let rest = &mut data[done..];
            let count = match self {
                Target::Local(file) => file.read_at(rest, at).context(failed)?,
                Target::Ccpfs(file) => file.read_at(rest, at).context(failed)?,
                Target::Memory(_) => 0,
            };
            if count == 0 {
                break;
            }
            done += count;
        }
        Ok(done)
    }

    /// Makes everything written persistent.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        let failed = || "making data persistent".to_owned();
        match self {
            Target::Ccpfs(file) => file.sync().context(failed),
            Target::Local(file) => file.sync_all().context(failed),
            Target::Memory(_) => Ok(()),
        }
    }

    /// Closes it; errors that come late come here.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Target::Ccpfs(file) => file.close().context(|| "closing".to_owned()),
            Target::Local(_) | Target::Memory(_) => Ok(()),
        }
    }
}
