//! What the kernel knows by number: one descriptor of the namespace for each.
//!
//! A descriptor that is open as a path only pins its inode: the namespace's file system cannot give the number to another
//! file meanwhile, so (device, number) is an identity, and a node's number, which is never used twice, needs no generation.

use crate::abi::ROOT_ID;
use crate::exchange::Errno;
use crate::pages::Pages;
use crate::sys;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::Duration;

/// Device and number of an inode of the namespace.
type Key = (u64, u64);

/// A file, directory, link or whatever has a name.
pub(crate) struct Inode {
    /// The kernel's number for it.
    pub(crate) nodeid: u64,
    key: Key,
    fd: OwnedFd,
    /// How many references the kernel has.
    lookups: AtomicU64,
    is_directory: bool,
    /// The directory and the name by which the kernel found it last.
    place: Mutex<Option<(u64, CString)>>,
    /// The kernel's pages of the file.
    pub(crate) pages: Pages,
}

impl Inode {
    /// The descriptor, open as a path only.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Notes by which name of which directory the kernel has found it.
    pub(crate) fn note_place(&self, parent: &Inode, name: &CStr) {
        let mut place = self.place.lock().expect("no code panics under this lock");
        if !place.as_ref().is_some_and(|(id, known)| *id == parent.nodeid && known.as_c_str() == name) {
            *place = Some((parent.nodeid, name.to_owned()));
        }
    }

    /// Its attributes as the namespace's file system has them.
    pub(crate) fn stat(&self) -> Result<libc::stat, Errno> {
        sys::stat(self.fd())
    }
}

#[derive(Default)]
struct Tables {
    by_id: HashMap<u64, Arc<Inode>>,
    by_key: HashMap<Key, Arc<Inode>>,
    last_id: u64,
}

/// All inodes that the kernel knows.
pub(crate) struct Inodes {
    tables: RwLock<Tables>,
    /// How many there may be before the kernel is to forget some, if not [`many`]: more if it needs more.
    crowd: AtomicUsize,
    /// Whether some are being forgotten.
    thinning: AtomicBool,
    /// How many times some have been forgotten, and who waits for the next time.
    thinned: Mutex<u64>,
    changed: Condvar,
}

/// So few are never too many.
const FEW: usize = 16;
/// A look-up waits so long, at most, until the kernel has forgotten something.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many there may be before the kernel is to forget some: each takes a descriptor. The other half is for what is open.
fn many() -> usize {
    (sys::descriptor_limit() / 2).max(FEW)
}

fn key_of(found: &libc::stat) -> Key {
    (found.st_dev, found.st_ino)
}

impl Inodes {
    /// The table with the mounted directory in it.
    pub(crate) fn new(root: OwnedFd) -> Result<Inodes, Errno> {
        let found = sys::stat(root.as_fd())?;
        let tables = RwLock::new(Tables { last_id: ROOT_ID - 1, ..Tables::default() });
        let inodes = Inodes {
            tables,
            crowd: AtomicUsize::new(0),
            thinning: AtomicBool::new(false),
            thinned: Mutex::new(0),
            changed: Condvar::new(),
        };
        inodes.enter(&found, root);
        Ok(inodes)
    }

    /// What has this number.
    ///
    /// # Errors
    /// `ESTALE` when the kernel has forgotten it.
    pub(crate) fn get(&self, nodeid: u64) -> Result<Arc<Inode>, Errno> {
        let tables = self.tables.read().expect("no code panics under this lock");
        tables.by_id.get(&nodeid).cloned().ok_or(libc::ESTALE)
    }

    /// Looks a name up; the kernel gets one more reference.
    pub(crate) fn look_up(&self, parent: &Inode, name: &CStr) -> Result<(Arc<Inode>, libc::stat), Errno> {
        let found = sys::stat_at(parent.fd(), name, 0)?;
        if let Some(inode) = self.known(key_of(&found)) {
            inode.note_place(parent, name);
            return Ok((inode, found));
        }
        let fd = sys::open_at(parent.fd(), name, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
        let (inode, found) = self.adopt(fd)?;
        inode.note_place(parent, name);
        Ok((inode, found))
    }

    /// Enters what a descriptor, open as a path only, is open on; the kernel gets one more reference.
    pub(crate) fn adopt(&self, fd: OwnedFd) -> Result<(Arc<Inode>, libc::stat), Errno> {
        let found = sys::stat(fd.as_fd())?;
        Ok((self.enter(&found, fd), found))
    }

    fn known(&self, key: Key) -> Option<Arc<Inode>> {
        let tables = self.tables.read().expect("no code panics under this lock");
        let inode = tables.by_key.get(&key)?;
        // Under the lock, under which it would be taken out.
        inode.lookups.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(inode))
    }

    fn enter(&self, found: &libc::stat, fd: OwnedFd) -> Arc<Inode> {
        let key = key_of(found);
        let mut tables = self.tables.write().expect("no code panics under this lock");
        if let Some(inode) = tables.by_key.get(&key) {
            inode.lookups.fetch_add(1, Ordering::Relaxed);
            return Arc::clone(inode);
        }
        tables.last_id += 1;
        let nodeid = tables.last_id;
        let inode = Inode {
            nodeid,
            key,
            fd,
            lookups: AtomicU64::new(1),
            is_directory: found.st_mode & libc::S_IFMT == libc::S_IFDIR,
            place: Mutex::default(),
            pages: Pages::default(),
        };
        let inode = Arc::new(inode);
        tables.by_id.insert(nodeid, Arc::clone(&inode));
        tables.by_key.insert(key, Arc::clone(&inode));
        inode
    }

    /// The kernel has given back `count` references.
    pub(crate) fn forget(&self, nodeid: u64, count: u64) {
        if nodeid == ROOT_ID {
            return;
        }
        let gone = {
            let tables = self.tables.read().expect("no code panics under this lock");
            let Some(inode) = tables.by_id.get(&nodeid) else { return };
            let before = inode.lookups.fetch_sub(count, Ordering::Relaxed);
            assert!(before >= count, "the kernel gives back what it got");
            before == count
        };
        if !gone {
            return;
        }
        let mut tables = self.tables.write().expect("no code panics under this lock");
        let found = tables.by_id.get(&nodeid).filter(|inode| inode.lookups.load(Ordering::Relaxed) == 0);
        if let Some(key) = found.map(|inode| inode.key) {
            let gone = (tables.by_id.remove(&nodeid), tables.by_key.remove(&key));
            drop(tables);
            // Closes its descriptor.
            drop(gone);
            drop(self.thinned.lock().expect("no code panics under this lock"));
            self.changed.notify_all();
        }
    }

    /// Whether there are so many that some should be forgotten: told once, until they have been thinned out.
    pub(crate) fn are_crowded(&self) -> bool {
        let count = self.count();
        count > FEW
            && count > self.crowd.load(Ordering::Relaxed).max(many())
            && !self.thinning.swap(true, Ordering::Relaxed)
    }

    /// Whether the calling thread is to see to it that some are forgotten, at once: there are no descriptors left.
    pub(crate) fn begin_thinning(&self) -> bool {
        !self.thinning.swap(true, Ordering::Relaxed)
    }

    /// How many times some have been forgotten.
    pub(crate) fn times_thinned(&self) -> u64 {
        *self.thinned.lock().expect("no code panics under this lock")
    }

    /// Waits until some have been forgotten once more than so many times, and as long as there are still too many.
    pub(crate) fn wait_until_thinned(&self, times: u64) {
        let many = many();
        let thinned = self.thinned.lock().expect("no code panics under this lock");
        let waits = |thinned: &mut u64| *thinned == times || self.count() > many;
        let waited = self.changed.wait_timeout_while(thinned, PATIENCE, waits);
        drop(waited.expect("no code panics under this lock"));
    }

    /// The kernel has been asked to forget what it does not use.
    pub(crate) fn note_thinned(&self) {
        // What it does use is not asked for at once again.
        let many = many();
        self.crowd.store(many.max(self.count() + many / 8), Ordering::Relaxed);
        self.thinning.store(false, Ordering::Relaxed);
        *self.thinned.lock().expect("no code panics under this lock") += 1;
        self.changed.notify_all();
    }

    /// Has the kernel forget the names of a quarter of those that may be there, oldest first: not of directories, in which programs may
    /// be, and not of what is open.
    pub(crate) fn forget_names(&self, forget: impl Fn(u64, &CStr)) {
        let mut idle: Vec<Arc<Inode>> = {
            let tables = self.tables.read().expect("no code panics under this lock");
            let files = tables.by_id.values().filter(|inode| !inode.is_directory);
            files.filter(|inode| inode.pages.any_handle().is_none()).cloned().collect()
        };
        idle.sort_unstable_by_key(|inode| inode.nodeid);
        idle.truncate((many() / 4).max(1));
        for inode in &idle {
            let place = inode.place.lock().expect("no code panics under this lock").clone();
            if let Some((parent, name)) = place {
                forget(parent, &name);
            }
        }
    }

    /// How many there are.
    fn count(&self) -> usize {
        self.tables.read().expect("no code panics under this lock").by_id.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    fn table(folder: &std::path::Path) -> Inodes {
        let root = std::fs::File::open(folder).unwrap();
        Inodes::new(OwnedFd::from(root)).unwrap()
    }

    #[test]
    fn two_names_of_a_file_are_one_node_and_it_goes_when_all_references_are_back() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        std::fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
        let inodes = table(folder.path());
        let root = inodes.get(ROOT_ID).unwrap();
        let (a, _) = inodes.look_up(&root, c"a").unwrap();
        let (b, _) = inodes.look_up(&root, c"b").unwrap();
        assert!(Arc::ptr_eq(&a, &b) && inodes.count() == 2);
        inodes.forget(a.nodeid, 1);
        assert!(inodes.get(a.nodeid).is_ok());
        inodes.forget(a.nodeid, 1);
        assert_eq!(inodes.get(a.nodeid).err(), Some(libc::ESTALE));
        let (again, _) = inodes.look_up(&root, c"a").unwrap();
        assert_ne!(again.nodeid, a.nodeid, "a number is never used twice");
    }

    #[test]
    fn the_mounted_directory_is_never_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let inodes = table(folder.path());
        inodes.forget(ROOT_ID, 99);
        assert!(inodes.get(ROOT_ID).is_ok());
    }
}
