//! Walking the namespace: every stub in it, and what could not be looked at.

use super::stock::Stock;
use ccpfs_client::{Client, FsError, Looked, Stub};
use ccpfs_types::FileId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The hidden directory of a namespace; no names of users are in it.
const HIDDEN: &str = ".ccpfs";
/// Rounds in which directories that have changed are looked at again.
const ROUNDS_MAX: u32 = 20;
/// A directory that was changed less than this ago may be changed once more without showing it: clocks of file systems tick.
const TICK: Duration = Duration::from_millis(50);

/// A stub that was found.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) path: PathBuf,
    pub(crate) inode: (u64, u64),
    pub(crate) record: Stub,
    /// What servers have of it.
    pub(crate) stock: Stock,
}

/// A stub that cannot be used.
#[derive(Debug)]
pub(crate) struct Damaged {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
    /// The file that it may have stood for.
    pub(crate) perhaps: Option<FileId>,
    /// It is intact and was made on a cluster with another number of targets.
    pub(crate) is_foreign: bool,
}

/// Everything that a walk has found.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) files: BTreeMap<FileId, Named>,
    /// Other inodes that name a file of `files`.
    pub(crate) copies: BTreeMap<FileId, Vec<PathBuf>>,
    pub(crate) damaged: Vec<Damaged>,
    /// What could not be looked at, and why.
    pub(crate) unseen: Vec<(PathBuf, String)>,
    pub(crate) directories: u64,
}

/// What a directory holds.
#[derive(Debug, Default)]
struct Entries {
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

/// Walks below `roots` (directories or files). `tell` hears how far it is.
pub(crate) fn walk(client: &Client, namespace: &Path, roots: &[PathBuf], tell: impl Fn(&Names)) -> Names {
    let mut names = Names::default();
    let mut waiting = Vec::new();
    for root in roots {
        if root.is_dir() { waiting.push(root.clone()) } else { names.look(client, root.clone()) }
    }
    while let Some(directory) = waiting.pop() {
        match entries(&directory, namespace) {
            Ok(found) => {
                names.directories += 1;
                found.files.into_iter().for_each(|path| names.look(client, path));
                waiting.extend(found.directories);
            }
            // It went while we walked.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => names.unseen.push((directory, error.to_string())),
        }
        tell(&names);
    }
    names
}

impl Names {
    fn look(&mut self, client: &Client, path: PathBuf) {
        match look(client, &path) {
            Ok(Some((_, Looked::Stub { record, inode }))) => match self.files.get(&record.file) {
                // Another link of the same inode is as good as the first.
                Some(known) if known.inode == inode => {}
                Some(_) => self.copies.entry(record.file).or_default().push(path),
                None => {
                    let named = Named { path, inode, record, stock: Stock::default() };
                    self.files.insert(record.file, named);
                }
            },
            Ok(Some((_, Looked::Damaged { error, perhaps }))) => {
                let is_foreign = matches!(error, FsError::OtherCluster { .. });
                self.damaged.push(Damaged { path, why: error.to_string(), perhaps, is_foreign });
            }
            Ok(Some((_, Looked::Ordinary)) | None) => {}
            Err(why) => self.unseen.push((path, why)),
        }
    }
}

/// The directory of a namespace that belongs to ccPFS itself.
pub(crate) fn hidden(namespace: &Path) -> PathBuf {
    namespace.join(HIDDEN)
}

/// Opens and looks at what was a regular file. `Ok(None)` if it is there no longer.
pub(crate) fn look(client: &Client, path: &Path) -> Result<Option<(File, Looked)>, String> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let file = match options.open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ELOOP) => {
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        return Ok(None);
    }
    let looked = client.look_at(&file, path).map_err(|error| error.to_string())?;
    Ok(Some((file, looked)))
}

fn entries(directory: &Path, namespace: &Path) -> std::io::Result<Entries> {
    let mut found = Entries::default();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let hidden = directory == namespace && entry.file_name() == OsStr::new(HIDDEN);
            if !hidden {
                found.directories.push(entry.path());
            }
        } else if kind.is_file() {
            found.files.push(entry.path());
        }
    }
    Ok(found)
}

/// What tells whether the names in a directory have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    inode: (u64, u64),
    changed_ns: (i64, i64),
}

impl Stamp {
    fn of(directory: &Path) -> std::io::Result<Stamp> {
        let found = std::fs::symlink_metadata(directory)?;
        Ok(Stamp { inode: (found.dev(), found.ino()), changed_ns: (found.mtime(), found.mtime_nsec()) })
    }

    /// Whether a further change would show.
    fn is_settled(&self, now: SystemTime) -> bool {
        let Ok(seconds) = u64::try_from(self.changed_ns.0) else { return true };
        let nanoseconds = u32::try_from(self.changed_ns.1).unwrap_or(0);
        let changed = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        now.duration_since(changed).is_ok_and(|age| age > TICK)
    }
}

/// Which of the `wanted` files have a name.
#[derive(Debug)]
pub(crate) struct Second {
    pub(crate) named: BTreeSet<FileId>,
    /// Whether that is certain: at its end no directory had changed since it was looked at, so that no name can have moved past us.
    pub(crate) certain: bool,
}

/// Walks the whole namespace once more, and again where names have changed since, until none has.
pub(crate) fn look_again(client: &Client, namespace: &Path, wanted: &BTreeSet<FileId>) -> Second {
    let mut second = Second { named: BTreeSet::new(), certain: true };
    let mut stamps: HashMap<PathBuf, Stamp> = HashMap::new();
    let mut waiting = vec![namespace.to_owned()];
    for _ in 0..ROUNDS_MAX {
        while let Some(directory) = waiting.pop() {
            let now = SystemTime::now();
            let read = Stamp::of(&directory).and_then(|stamp| Ok((stamp, entries(&directory, namespace)?)));
            match read {
                Ok((stamp, found)) => {
                    found.files.iter().for_each(|path| second.note(client, path, wanted));
                    let unknown = |path: &PathBuf| !stamps.contains_key(path);
                    waiting.extend(found.directories.into_iter().filter(unknown));
                    // An impossible time: it will be looked at once more.
                    let fresh = Stamp { changed_ns: (i64::MIN, 0), ..stamp };
                    stamps.insert(directory, if stamp.is_settled(now) { stamp } else { fresh });
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    stamps.remove(&directory);
                }
                Err(_) => second.certain = false,
            }
        }
        let changed =
            |(path, stamp): (&PathBuf, &Stamp)| (Stamp::of(path).ok() != Some(*stamp)).then(|| path.clone());
        waiting = stamps.iter().filter_map(changed).collect();
        if waiting.is_empty() {
            return second;
        }
        std::thread::sleep(TICK * 2);
    }
    second.certain = false;
    second
}

impl Second {
    fn note(&mut self, client: &Client, path: &Path, wanted: &BTreeSet<FileId>) {
        match look(client, path) {
            Ok(Some((_, Looked::Stub { record, .. }))) if wanted.contains(&record.file) => {
                self.named.insert(record.file);
            }
            Ok(Some((_, Looked::Stub { .. } | Looked::Ordinary | Looked::Damaged { .. })) | None) => {}
            Err(_) => self.certain = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_was_just_changed_is_not_settled() {
        let stamp = |seconds| Stamp { inode: (1, 1), changed_ns: (seconds, 0) };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100);
        assert!(stamp(99).is_settled(now));
        assert!(!stamp(100).is_settled(now));
        assert!(!stamp(101).is_settled(now), "a clock that runs ahead of ours");
    }
}
