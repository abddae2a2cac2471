//! Locks of programs, `fcntl` and `flock`: taken on the stubs in the namespace, where they meet those of other doors.

use crate::abi::{FileLock, LK_FLOCK, LkIn, LkOut};
use crate::exchange::Errno;
use crate::handles::Handle;
use crate::inodes::Inode;
use crate::owner::{OwnerThread, test_plainly};
use crate::sys::{self, checked};
use std::collections::{HashMap, VecDeque};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Requests that may wait for locks at once: each takes a thread, and there must be some for everything else.
const WAITERS_MAX: usize = 512;
/// Interrupts remembered for requests that have not begun to wait.
const EARLY_MAX: usize = 256;
/// The signal that ends a thread's wait.
const WAKE: libc::c_int = libc::SIGUSR2;

/// All locks of a mount.
#[derive(Default)]
pub(crate) struct Locks {
    owners: Mutex<HashMap<u64, Arc<Owner>>>,
    waits: Arc<Waits>,
}

/// Whoever has record locks: a process, or an open file.
struct Owner {
    thread: OwnerThread,
    /// By node.
    files: Mutex<HashMap<u64, Held>>,
}

/// What an owner has locked in one file.
struct Held {
    /// The handle that was used last.
    handle: u64,
    pid: u32,
    /// Both ends belong to a range.
    ranges: Vec<(u64, u64)>,
}

impl Held {
    fn note(&mut self, lock: &FileLock) {
        let cut = (lock.start, lock.end);
        let without = |(start, end): (u64, u64)| {
            let before = (start < cut.0).then(|| (start, end.min(cut.0 - 1)));
            let after = (end > cut.1).then(|| (start.max(cut.1 + 1), end));
            [before, after].into_iter().flatten()
        };
        self.ranges = self.ranges.drain(..).flat_map(without).collect();
        if lock.kind.cast_signed() != libc::F_UNLCK {
            self.ranges.push(cut);
        }
    }
}

fn to_system(lock: &FileLock) -> Result<libc::flock, Errno> {
    let start = i64::try_from(lock.start).map_err(|_| libc::EINVAL)?;
    let end = i64::try_from(lock.end).map_err(|_| libc::EINVAL)?;
    // A length of 0 reaches to the end, whatever that will be.
    let length = if end == i64::MAX { 0 } else { end.checked_sub(start).ok_or(libc::EINVAL)? + 1 };
    let kind = libc::c_short::try_from(lock.kind).map_err(|_| libc::EINVAL)?;
    Ok(libc::flock { l_type: kind, l_whence: 0, l_start: start, l_len: length, l_pid: 0 })
}

fn from_system(lock: &libc::flock) -> FileLock {
    let start = lock.l_start.cast_unsigned();
    let end = if lock.l_len == 0 { i64::MAX.cast_unsigned() } else { start + lock.l_len.cast_unsigned() - 1 };
    let pid = u32::try_from(lock.l_pid).unwrap_or(0);
    FileLock { start, end, kind: u32::try_from(lock.l_type).unwrap_or(0), pid }
}

impl Locks {
    /// GETLK: a lock that stands in the way, if there is one.
    pub(crate) fn test(&self, handle: &Handle, asked: &LkIn) -> Result<LkOut, Errno> {
        let lock = to_system(&asked.lock)?;
        let inode = &handle.inode;
        let owner = self.find(asked.owner);
        let found = match &owner {
            Some(owner) => owner.thread.act(inode.nodeid, inode.fd().as_raw_fd(), libc::F_GETLK, lock)?,
            None => test_plainly(inode.fd(), lock)?,
        };
        let mut lock = from_system(&found);
        if lock.kind.cast_signed() == libc::F_UNLCK {
            return Ok(LkOut { lock: FileLock { kind: lock.kind, ..asked.lock } });
        }
        if lock.pid == std::process::id() {
            // Ours: taken for a program that we know.
            lock.pid = self.holder(inode.nodeid, asked.owner, &lock).unwrap_or(lock.pid);
        }
        Ok(LkOut { lock })
    }

    fn find(&self, owner: u64) -> Option<Arc<Owner>> {
        self.owners.lock().expect("no code panics under this lock").get(&owner).cloned()
    }

    fn holder(&self, nodeid: u64, asker: u64, lock: &FileLock) -> Option<u32> {
        let owners = self.owners.lock().expect("no code panics under this lock");
        owners.iter().filter(|(id, _)| **id != asker).find_map(|(_, owner)| {
            let files = owner.files.lock().expect("no code panics under this lock");
            let held = files.get(&nodeid)?;
            let meets = held.ranges.iter().any(|(start, end)| *start <= lock.end && lock.start <= *end);
            meets.then_some(held.pid)
        })
    }

    /// SETLK and, with the number of the request that waits, SETLKW.
    pub(crate) fn set(&self, handle: &Handle, asked: &LkIn, waits: Option<u64>) -> Result<(), Errno> {
        if asked.lk_flags & LK_FLOCK != 0 {
            return self.set_flock(handle, asked, waits);
        }
        let lock = to_system(&asked.lock)?;
        let inode = &handle.inode;
        let unlocks = asked.lock.kind.cast_signed() == libc::F_UNLCK;
        let owner = match self.find(asked.owner) {
            Some(owner) => owner,
            None if unlocks => return Ok(()),
            None => self.owner(asked.owner)?,
        };
        let (nodeid, stub) = (inode.nodeid, inode.fd().as_raw_fd());
        // Noted before: whoever ends the handle or the owner meanwhile must know of it.
        owner.note_use(nodeid, asked);
        let mut result = owner.thread.act(nodeid, stub, libc::F_SETLK, lock);
        if let (Err(libc::EAGAIN | libc::EACCES), Some(unique)) = (&result, waits) {
            let turn = self.waits.begin(unique)?;
            let (waits, began) = (Arc::clone(&self.waits), move |tid| (unique, tid));
            let began = Box::new(move |tid| waits.runs(began(tid)));
            result = owner.thread.wait(nodeid, stub, lock, began);
            drop(turn);
        }
        result?;
        let mut files = owner.files.lock().expect("no code panics under this lock");
        if let Some(held) = files.get_mut(&nodeid) {
            held.note(&asked.lock);
        }
        Ok(())
    }

    fn owner(&self, id: u64) -> Result<Arc<Owner>, Errno> {
        let mut owners = self.owners.lock().expect("no code panics under this lock");
        if let Some(owner) = owners.get(&id) {
            return Ok(Arc::clone(owner));
        }
        let owner = Arc::new(Owner { thread: OwnerThread::start()?, files: Mutex::default() });
        owners.insert(id, Arc::clone(&owner));
        Ok(owner)
    }

    /// A process has closed one of its descriptors of a file: its record locks on it end.
    pub(crate) fn end_owner(&self, inode: &Inode, id: u64) {
        if let Some(owner) = self.find(id) {
            self.end_locks(inode.nodeid, id, &owner);
        }
    }

    /// The last descriptor of a handle is closed: so end record locks that belonged to the open file.
    pub(crate) fn end_handle(&self, inode: &Inode, handle: u64) {
        let owners: Vec<(u64, Arc<Owner>)> = {
            let owners = self.owners.lock().expect("no code panics under this lock");
            owners.iter().map(|(id, owner)| (*id, Arc::clone(owner))).collect()
        };
        for (id, owner) in owners {
            let used = {
                let files = owner.files.lock().expect("no code panics under this lock");
                files.get(&inode.nodeid).is_some_and(|held| held.handle == handle)
            };
            if used {
                self.end_locks(inode.nodeid, id, &owner);
            }
        }
    }

    fn end_locks(&self, nodeid: u64, id: u64, owner: &Arc<Owner>) {
        let (known, last) = {
            let mut files = owner.files.lock().expect("no code panics under this lock");
            (files.remove(&nodeid).is_some(), files.is_empty())
        };
        if known {
            owner.thread.close(nodeid);
        }
        if last {
            let mut owners = self.owners.lock().expect("no code panics under this lock");
            let idle = owner.files.lock().expect("no code panics under this lock").is_empty();
            if idle && owners.get(&id).is_some_and(|known| Arc::ptr_eq(known, owner)) {
                owners.remove(&id);
            }
        }
    }

    fn set_flock(&self, handle: &Handle, asked: &LkIn, waits: Option<u64>) -> Result<(), Errno> {
        let operation = match asked.lock.kind.cast_signed() {
            libc::F_RDLCK => libc::LOCK_SH,
            libc::F_WRLCK => libc::LOCK_EX,
            libc::F_UNLCK => libc::LOCK_UN,
            _ => return Err(libc::EINVAL),
        };
        let fd = {
            let mut flock = handle.flock.lock().expect("no code panics under this lock");
            match &*flock {
                Some(fd) => fd.as_raw_fd(),
                None if operation == libc::LOCK_UN => return Ok(()),
                None => {
                    let flags = libc::O_RDONLY | libc::O_NONBLOCK;
                    flock.insert(sys::reopen(handle.inode.fd(), flags)?).as_raw_fd()
                }
            }
        };
        // SAFETY: the descriptor lives as long as the handle, which the caller has.
        let result = checked(unsafe { libc::flock(fd, operation | libc::LOCK_NB) });
        let (Err(libc::EWOULDBLOCK), Some(unique)) = (result, waits) else { return result.map(drop) };
        let turn = self.waits.begin(unique)?;
        // SAFETY: no memory is involved.
        self.waits.runs((unique, unsafe { libc::gettid() }));
        // SAFETY: as above.
        let result = checked(unsafe { libc::flock(fd, operation) });
        self.waits.runs((unique, 0));
        drop(turn);
        result.map(drop)
    }

    /// INTERRUPT: the program that waits has got a signal.
    pub(crate) fn interrupt(&self, unique: u64) {
        self.waits.interrupt(unique);
    }

    /// Ends all waits: the mount has ended.
    pub(crate) fn interrupt_all(&self) {
        for unique in self.waits.all() {
            self.waits.interrupt(unique);
        }
    }
}

impl Owner {
    fn note_use(&self, nodeid: u64, asked: &LkIn) {
        let mut files = self.files.lock().expect("no code panics under this lock");
        let new = || Held { handle: asked.fh, pid: asked.lock.pid, ranges: Vec::new() };
        let held = files.entry(nodeid).or_insert_with(new);
        held.handle = asked.fh;
        // The kernel does not say who unlocks.
        if asked.lock.pid != 0 {
            held.pid = asked.lock.pid;
        }
    }
}

/// Requests that wait for a lock.
#[derive(Default)]
struct Waits {
    state: Mutex<WaitState>,
    changed: Condvar,
}

#[derive(Default)]
struct WaitState {
    /// The thread of each; 0 before and after it is in the system call.
    threads: HashMap<u64, libc::pid_t>,
    /// Requests that were interrupted before they began to wait, oldest first.
    early: VecDeque<u64>,
}

/// A request that waits. It is forgotten when this goes.
struct Turn<'a> {
    waits: &'a Waits,
    unique: u64,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.waits.state.lock().expect("no code panics under this lock").threads.remove(&self.unique);
        self.waits.changed.notify_all();
    }
}

impl Waits {
    fn begin(&self, unique: u64) -> Result<Turn<'_>, Errno> {
        let mut state = self.state.lock().expect("no code panics under this lock");
        if let Some(at) = state.early.iter().position(|early| *early == unique) {
            state.early.remove(at);
            return Err(libc::EINTR);
        }
        if state.threads.len() >= WAITERS_MAX {
            return Err(libc::ENOLCK);
        }
        state.threads.insert(unique, 0);
        Ok(Turn { waits: self, unique })
    }

    fn runs(&self, (unique, thread): (u64, libc::pid_t)) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        if let Some(known) = state.threads.get_mut(&unique) {
            *known = thread;
        }
        self.changed.notify_all();
    }

    fn all(&self) -> Vec<u64> {
        self.state.lock().expect("no code panics under this lock").threads.keys().copied().collect()
    }

    fn interrupt(&self, unique: u64) {
        let mut state = self.state.lock().expect("no code panics under this lock");
        if !state.threads.contains_key(&unique) {
            if state.early.len() == EARLY_MAX {
                state.early.pop_front();
            }
            state.early.push_back(unique);
            return;
        }
        // Again and again: a signal that comes just before the system call does not end it.
        while let Some(thread) = state.threads.get(&unique) {
            if *thread > 0 {
                let (process, thread) = (std::process::id().cast_signed(), *thread);
                // SAFETY: no memory is involved; the thread cannot end before it has said so under this lock.
                unsafe { libc::syscall(libc::SYS_tgkill, process, thread, WAKE) };
            }
            let pause = Duration::from_millis(2);
            state = self.changed.wait_timeout(state, pause).expect("no code panics under this lock").0;
        }
    }
}

extern "C" fn wake(_signal: libc::c_int) {}

/// Makes the signal that ends waits harmless otherwise.
pub(crate) fn prepare_signal() {
    let handler: extern "C" fn(libc::c_int) = wake;
    // SAFETY: all zeros is a valid action without flags: system calls are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as libc::sighandler_t;
    // SAFETY: the handler does nothing.
    unsafe { libc::sigaction(WAKE, &raw const action, std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_by_what_is_unlocked() {
        let mut held = Held { handle: 1, pid: 2, ranges: Vec::new() };
        let lock = |start, end, kind: i32| FileLock { start, end, kind: kind.cast_unsigned(), pid: 0 };
        held.note(&lock(0, 99, libc::F_WRLCK));
        held.note(&lock(10, 19, libc::F_UNLCK));
        assert_eq!(held.ranges, [(0, 9), (20, 99)]);
        held.note(&lock(5, 25, libc::F_RDLCK));
        assert_eq!(held.ranges, [(0, 4), (26, 99), (5, 25)]);
        held.note(&lock(0, i64::MAX.cast_unsigned(), libc::F_UNLCK));
        assert!(held.ranges.is_empty());
    }

    #[test]
    fn ranges_are_those_of_the_system_call() {
        let whole = FileLock { start: 0, end: i64::MAX.cast_unsigned(), kind: 1, pid: 0 };
        assert_eq!(to_system(&whole).unwrap().l_len, 0);
        let some = FileLock { start: 5, end: 7, kind: 1, pid: 0 };
        let system = to_system(&some).unwrap();
        assert_eq!((system.l_start, system.l_len), (5, 3));
        assert_eq!(from_system(&system), some);
        assert_eq!(from_system(&to_system(&whole).unwrap()), whole);
    }

    #[test]
    fn a_request_that_was_interrupted_first_does_not_wait() {
        let waits = Waits::default();
        waits.interrupt(7);
        assert_eq!(waits.begin(7).err(), Some(libc::EINTR));
        assert!(waits.begin(7).is_ok());
        assert!(waits.all().is_empty());
    }
}
