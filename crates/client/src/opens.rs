//! The registry of open files: who has a file open, and who may write it, over all processes and nodes of a namespace.
//!
//! *What*: byte locks on small files in a hidden directory of the namespace. For each file of ccPFS three bytes: OPEN is held shared
//! by every client that has a handle, WRITING by every client that may write, RECORD for a moment by whoever changes or looks at
//! the stub's record and times together. Locks belong to open file descriptions: they go when their process dies.
//! *Invariants*: whoever has OPEN alone knows that nobody else has the file open, and whoever has WRITING alone that nobody else
//! writes it. WRITING is taken before RECORD.
//! *Not here*: what follows from being alone (`remove.rs`, `seal.rs`).

use crate::directory::LAYOUTS;
use crate::sys::{self, Place};
use ccpfs_types::FileId;
use std::collections::BTreeSet;
use std::ffi::{CString, c_int};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

/// The hidden directory of a namespace.
pub(crate) const HIDDEN: &str = ".ccpfs";
const OPENS: &str = "opens";
const ORPHANS: &str = "orphans";
/// Files of the registry; the first byte of a file's number says which. A client may come to have two descriptors of each open, so they are
/// few; the kernel goes through all locks of one of them, so they are not too few.
const SHELVES: usize = 64;

/// One of the bytes that stand for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Byte {
    /// Held by who has a handle.
    Open,
    /// Held by who has a handle for writing, or data that are not with the servers.
    Writing,
    /// Held by who changes the record and the times of the stub, or looks at both.
    Record,
}

/// The registry as one client sees it; nothing without it.
pub(crate) struct Opens {
    registry: Option<Registry>,
}

struct Registry {
    /// The directory of the shelves.
    opens: File,
    /// The directory of what was left behind; not everybody may have made one.
    orphans: Option<File>,
    shelves: Vec<Shelf>,
    /// Descriptions that a forked process goes on with.
    aside: Mutex<Vec<Arc<File>>>,
}

#[derive(Default)]
struct Shelf {
    state: Mutex<ShelfState>,
    /// Where RECORD of a file is taken by a thread of this client: they share one description.
    records: Mutex<BTreeSet<i64>>,
    record_freed: Condvar,
}

#[derive(Default)]
struct ShelfState {
    /// The description that this client's shared locks are on.
    mine: Option<Arc<File>>,
    /// The one by which it tries to be alone.
    trial: Option<Arc<File>>,
    /// Bytes locked on `mine`.
    held: BTreeSet<i64>,
}

/// Makes the registry of open files of a namespace, if it is missing and may be made: for whoever makes the namespace, because clients
/// of other users may not. Without it files go with their names, and sizes are always asked for.
pub fn prepare_namespace(root: &Path) {
    drop(Opens::start(root));
}

impl Opens {
    /// The registry of a namespace; makes it if it is missing and may be made.
    pub(crate) fn start(root: &Path) -> Opens {
        let registry = open_registry(root).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound { make_registry(root) } else { Err(error) }
        });
        if let Err(error) = &registry {
            tracing::debug!(%error, "no registry of open files");
        }
        Opens { registry: registry.ok() }
    }

    /// Whether there is one.
    pub(crate) fn is_there(&self) -> bool {
        self.registry.is_some()
    }

    /// Where what was left behind is noted.
    pub(crate) fn orphans(&self) -> Option<BorrowedFd<'_>> {
        self.registry.as_ref()?.orphans.as_ref().map(AsFd::as_fd)
    }

    /// Holds a byte together with others; waits for whoever has it alone. False if it cannot be locked here.
    pub(crate) fn hold(&self, file: FileId, byte: Byte) -> bool {
        self.hold_some(file, byte, 1)
    }

    /// Holds OPEN and WRITING of a file, as [`Opens::hold`] does with one.
    pub(crate) fn hold_both(&self, file: FileId) -> bool {
        self.hold_some(file, Byte::Open, 2)
    }

    /// Holds `count` bytes from `first` on.
    fn hold_some(&self, file: FileId, first: Byte, count: i64) -> bool {
        let Some((registry, shelf, position)) = self.place(file, first) else { return false };
        loop {
            let Ok(mine) = shelf.mine(registry, file) else { return false };
            if let Err(error) = lock_some(&mine, libc::F_OFD_SETLKW, libc::F_RDLCK, (position, count)) {
                tracing::debug!(%error, "a file cannot be registered as open");
                return false;
            }
            let mut state = shelf.state.lock().expect("no code panics under this lock");
            // A fork may have put another description in its place meanwhile.
            if state.mine.as_ref().is_some_and(|current| Arc::ptr_eq(current, &mine)) {
                state.held.extend(position..position + count);
                return true;
            }
            // What the other process shall go on with was held before; the rest would show it as a user of what it does not know.
            for stray in (position..position + count).filter(|stray| !state.held.contains(stray)) {
                let _ = lock(&mine, libc::F_OFD_SETLK, libc::F_UNLCK, stray);
            }
        }
    }

    /// Lets go of a byte that this client holds.
    pub(crate) fn let_go(&self, file: FileId, byte: Byte) {
        let Some((_, shelf, position)) = self.place(file, byte) else { return };
        let mut state = shelf.state.lock().expect("no code panics under this lock");
        if state.held.remove(&position)
            && let Some(mine) = &state.mine
        {
            let unlocked = lock(mine, libc::F_OFD_SETLK, libc::F_UNLCK, position);
            unlocked.unwrap_or_else(|error| tracing::warn!(%error, "a file stays registered as open"));
        }
    }

    /// Lets go of a byte that this client holds, and takes it alone if nobody else has it.
    pub(crate) fn let_go_or_alone(&self, file: FileId, byte: Byte) -> Option<Alone> {
        let (_, shelf, position) = self.place(file, byte)?;
        let mine = {
            let mut state = shelf.state.lock().expect("no code panics under this lock");
            if state.held.remove(&position) { state.mine.clone() } else { None }
        };
        if let Some(mine) = mine {
            if lock(&mine, libc::F_OFD_SETLK, libc::F_WRLCK, position).is_ok() {
                return Some(Alone { trial: mine, position });
            }
            // Others have it. Two who let go at once must not both fail: so first let go, then try again.
            drop(Alone { trial: mine, position });
        }
        self.alone(file, byte)
    }

    /// Takes a byte alone if nobody has it, this client included. Whoever wants to hold it waits until the answer is dropped.
    pub(crate) fn alone(&self, file: FileId, byte: Byte) -> Option<Alone> {
        let (registry, shelf, position) = self.place(file, byte)?;
        let trial = shelf.trial(registry, file).ok()?;
        lock(&trial, libc::F_OFD_SETLK, libc::F_WRLCK, position).ok()?;
        Some(Alone { trial, position })
    }

    /// Whether anybody holds a byte. `None` if that cannot be known.
    pub(crate) fn is_held(&self, file: FileId, byte: Byte) -> Option<bool> {
        let (registry, shelf, position) = self.place(file, byte)?;
        let trial = shelf.trial(registry, file).ok()?;
        // Only asks: being alone for a moment would keep those who close their last handle from it.
        let mut wanted = wanted(libc::F_WRLCK, (position, 1));
        // SAFETY: an open descriptor and our own structure, which is the kernel's on 64-bit systems.
        let done =
            unsafe { libc::syscall(libc::SYS_fcntl, trial.as_raw_fd(), libc::F_OFD_GETLK, &raw mut wanted) };
        (done == 0).then(|| c_int::from(wanted.l_type) != libc::F_UNLCK)
    }

    /// Takes RECORD, to look (`shared`) or to change; waits for others, who are quick, unless they ask servers when a file was written: then
    /// whoever looks would have to ask them, too. `None` if there is nothing to take.
    pub(crate) fn record(&self, file: FileId, shared: bool) -> Option<RecordTurn<'_>> {
        let (registry, shelf, position) = self.place(file, Byte::Record)?;
        let turn = shelf.record_turn(position);
        let trial = shelf.trial(registry, file).ok()?;
        let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
        lock(&trial, libc::F_OFD_SETLKW, kind, position).ok()?;
        Some(RecordTurn { _alone: Alone { trial, position }, _turn: turn })
    }

    /// Before a process is made that inherits descriptors: it goes on with the descriptions that hold the locks, so that what
    /// this process lets go later the other one still has. This process takes new ones.
    pub(crate) fn before_fork(&self) {
        let Some(registry) = &self.registry else { return };
        for (index, shelf) in registry.shelves.iter().enumerate() {
            let mut state = shelf.state.lock().expect("no code panics under this lock");
            if state.held.is_empty() {
                continue;
            }
            let Ok(fresh) = open_shelf(&registry.opens, index) else { continue };
            let locked = |position: &i64| lock(&fresh, libc::F_OFD_SETLK, libc::F_RDLCK, *position).is_ok();
            if !state.held.iter().all(locked) {
                continue;
            }
            if let Some(old) = state.mine.replace(Arc::new(fresh)) {
                registry.aside.lock().expect("no code panics under this lock").push(old);
            }
        }
    }

    /// After the process was made, in this one.
    pub(crate) fn after_fork_in_parent(&self) {
        if let Some(registry) = &self.registry {
            registry.aside.lock().expect("no code panics under this lock").clear();
        }
    }

    fn place(&self, file: FileId, byte: Byte) -> Option<(&Registry, &Shelf, i64)> {
        let registry = self.registry.as_ref()?;
        let shelf = &registry.shelves[shelf_index(file)];
        Some((registry, shelf, position(file, byte)))
    }
}

/// A byte taken alone; dropped, it is free.
pub(crate) struct Alone {
    trial: Arc<File>,
    position: i64,
}

impl Drop for Alone {
    fn drop(&mut self) {
        let unlocked = lock(&self.trial, libc::F_OFD_SETLK, libc::F_UNLCK, self.position);
        unlocked.unwrap_or_else(|error| tracing::warn!(%error, "a lock of the registry cannot be given up"));
    }
}

/// RECORD of one file; dropped, it is free.
pub(crate) struct RecordTurn<'a> {
    // Before the turn: another thread of this client must not find the byte locked by us.
    _alone: Alone,
    _turn: Turn<'a>,
}

/// The turn of one thread of this client with RECORD of one file.
struct Turn<'a> {
    shelf: &'a Shelf,
    position: i64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shelf.records.lock().expect("no code panics under this lock").remove(&self.position);
        self.shelf.record_freed.notify_all();
    }
}

impl Shelf {
    /// Waits while another thread has RECORD of this file; whoever has it may wait for servers.
    fn record_turn(&self, position: i64) -> Turn<'_> {
        let mut taken = self.records.lock().expect("no code panics under this lock");
        while !taken.insert(position) {
            taken = self.record_freed.wait(taken).expect("no code panics under this lock");
        }
        Turn { shelf: self, position }
    }

    fn mine(&self, registry: &Registry, file: FileId) -> io::Result<Arc<File>> {
        self.description(registry, file, |state| &mut state.mine)
    }

    fn trial(&self, registry: &Registry, file: FileId) -> io::Result<Arc<File>> {
        self.description(registry, file, |state| &mut state.trial)
    }

    fn description(
        &self,
        registry: &Registry,
        file: FileId,
        which: impl FnOnce(&mut ShelfState) -> &mut Option<Arc<File>>,
    ) -> io::Result<Arc<File>> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        let which = which(&mut state);
        if let Some(known) = which {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(open_shelf(&registry.opens, shelf_index(file))?);
        *which = Some(Arc::clone(&opened));
        Ok(opened)
    }
}

fn shelf_index(file: FileId) -> usize {
    usize::from(file.0[0]) % SHELVES
}

/// Where the byte of a file is: four bytes for each file, at a place given by 60 other bits of its random number.
fn position(file: FileId, byte: Byte) -> i64 {
    let mut bits = [0; 8];
    bits.copy_from_slice(&file.0[1..9]);
    let which = match byte {
        Byte::Open => 0,
        Byte::Writing => 1,
        Byte::Record => 2,
    };
    let place = (u64::from_le_bytes(bits) >> 4) << 2 | which;
    i64::try_from(place).expect("62 bits")
}

/// So many bytes from a position on, to be locked so.
fn wanted(kind: c_int, (position, count): (i64, i64)) -> libc::flock {
    // SAFETY: all zeros is a valid structure.
    let mut wanted: libc::flock = unsafe { std::mem::zeroed() };
    wanted.l_type = libc::c_short::try_from(kind).expect("a small number");
    wanted.l_whence = libc::c_short::try_from(libc::SEEK_SET).expect("a small number");
    wanted.l_start = position;
    wanted.l_len = count;
    wanted
}

/// Locks or unlocks one byte; waits through signals.
fn lock(file: &File, command: c_int, kind: c_int, position: i64) -> io::Result<()> {
    lock_some(file, command, kind, (position, 1))
}

/// Locks or unlocks so many bytes from a position on; waits through signals.
fn lock_some(file: &File, command: c_int, kind: c_int, bytes: (i64, i64)) -> io::Result<()> {
    let mut wanted = wanted(kind, bytes);
    loop {
        // SAFETY: an open descriptor and our own structure, which is the kernel's on 64-bit systems.
        let done = unsafe { libc::syscall(libc::SYS_fcntl, file.as_raw_fd(), command, &raw mut wanted) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn shelf_name(index: usize) -> CString {
    CString::new(format!("{index:02x}")).expect("no zero byte")
}

fn open_shelf(opens: &File, index: usize) -> io::Result<File> {
    sys::open(Place { dir: opens.as_fd(), name: &shelf_name(index) }, libc::O_RDWR, 0)
}

fn open_directory(dir: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let name = CString::new(name)?;
    sys::open(Place { dir, name: &name }, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

fn open_registry(root: &Path) -> io::Result<Registry> {
    let hidden = sys::c_path(&root.join(HIDDEN))?;
    let hidden = Place { dir: sys::WORKING_DIRECTORY, name: &hidden };
    let hidden = sys::open(hidden, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
    let opens = open_directory(hidden.as_fd(), OPENS)?;
    // Whoever may not lock here, or whose file system has no locks, must do without.
    let first = open_shelf(&opens, 0)?;
    lock(&first, libc::F_OFD_SETLK, libc::F_RDLCK, i64::MAX - 1)?;
    let orphans = open_directory(hidden.as_fd(), ORPHANS).ok();
    let shelves = (0..SHELVES).map(|_| Shelf::default()).collect();
    Ok(Registry { opens, orphans, shelves, aside: Mutex::default() })
}

/// Makes the registry: complete under another name first, because nobody must ever find half of one.
fn make_registry(root: &Path) -> io::Result<Registry> {
    let hidden = root.join(HIDDEN);
    make_shared(&hidden, 0o755)?;
    make_shared(&hidden.join(ORPHANS), 0o777)?;
    make_layouts(root, &hidden)?;
    let mut random = [0; 8];
    sys::random_bytes(&mut random)?;
    let fresh = hidden.join(format!("{OPENS}.{:016x}", u64::from_le_bytes(random)));
    make_shared(&fresh, 0o755)?;
    let made = File::open(&fresh).and_then(|opens| {
        for index in 0..SHELVES {
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let shelf = sys::open(Place { dir: opens.as_fd(), name: &shelf_name(index) }, flags, 0o666)?;
            sys::change_mode(shelf.as_fd(), 0o666)?;
        }
        std::fs::rename(&fresh, hidden.join(OPENS))
    });
    if made.is_err() {
        // Somebody else was faster, or it cannot be done.
        let _ = std::fs::remove_dir_all(&fresh);
    }
    open_registry(root)
}

/// Makes the file that says that no directory has a layout, where that is certain: in a namespace without any.
fn make_layouts(root: &Path, hidden: &Path) -> io::Result<()> {
    let is_ours = |entry: io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() == HIDDEN);
    if !std::fs::read_dir(root)?.all(is_ours) {
        return Ok(());
    }
    let name = sys::c_path(&hidden.join(LAYOUTS))?;
    let place = Place { dir: sys::WORKING_DIRECTORY, name: &name };
    match sys::open(place, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o666) {
        Ok(layouts) => sys::change_mode(layouts.as_fd(), 0o666),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes a directory, whatever the umask is.
fn make_shared(path: &Path, mode: u32) -> io::Result<()> {
    let name = sys::c_path(path)?;
    let place = Place { dir: sys::WORKING_DIRECTORY, name: &name };
    match sys::make_directory(place, mode) {
        Ok(()) => {
            let made = sys::open(place, libc::O_RDONLY | libc::O_DIRECTORY, 0)?;
            sys::change_mode(made.as_fd(), mode)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}
