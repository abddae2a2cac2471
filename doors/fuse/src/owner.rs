//! One owner of record locks: a thread with a descriptor table of its own.
//!
//! The kernel counts POSIX record locks by descriptor table. With one table for each owner that the mount's kernel names,
//! locks of different programs are different locks on the stubs: they meet those of other mounts and of preloaded
//! programs, and the kernel finds deadlocks among all of them.
//!
//! Nothing that owns a descriptor of the process may get into these threads: closed here, the number means another file.

use crate::exchange::Errno;
use crate::sys::{self, checked};
use libc::c_int;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// What is asked of an owner.
enum Command {
    /// `F_SETLK` or `F_GETLK` on the stub of a node.
    Act { nodeid: u64, stub: c_int, operation: c_int, lock: libc::flock, answer: SyncSender<Answer> },
    /// `F_SETLKW`: by another thread with the same table.
    Wait { nodeid: u64, stub: c_int, lock: libc::flock, began: BeganFn, answer: SyncSender<Answer> },
    /// Ends all locks on a node.
    Close { nodeid: u64, answer: SyncSender<Answer> },
}

type Answer = Result<libc::flock, Errno>;
/// Told which thread waits, before it does, and after it has (0).
type BeganFn = Box<dyn Fn(libc::pid_t) + Send>;

/// The way to an owner's thread. The thread ends with it, and its locks with the thread.
pub(crate) struct OwnerThread {
    commands: Sender<Command>,
}

impl OwnerThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// `ENOLCK` when there can be no more threads.
    pub(crate) fn start() -> Result<OwnerThread, Errno> {
        let (commands, receiver) = channel();
        let (ready, started) = sync_channel(1);
        let run = move || {
            let has_table = own_table();
            let _ = ready.send(has_table);
            if has_table {
                Table::default().run(&receiver);
            }
        };
        let spawned =
            std::thread::Builder::new().name("ccpfs-locks".to_owned()).stack_size(256 << 10).spawn(run);
        spawned.map_err(|_| libc::ENOLCK)?;
        match started.recv() {
            Ok(true) => Ok(OwnerThread { commands }),
            Ok(false) | Err(_) => Err(libc::ENOLCK),
        }
    }

    fn ask(&self, command: impl FnOnce(SyncSender<Answer>) -> Command) -> Answer {
        let (answer, answered) = sync_channel(1);
        self.commands.send(command(answer)).map_err(|_| libc::EIO)?;
        answered.recv().map_err(|_| libc::EIO)?
    }

    /// `F_SETLK` or `F_GETLK`. `stub` is a descriptor of the process, which stays open during the call.
    pub(crate) fn act(&self, nodeid: u64, stub: c_int, operation: c_int, lock: libc::flock) -> Answer {
        self.ask(|answer| Command::Act { nodeid, stub, operation, lock, answer })
    }

    /// `F_SETLKW`. `began` is told which thread waits.
    pub(crate) fn wait(&self, nodeid: u64, stub: c_int, lock: libc::flock, began: BeganFn) -> Answer {
        self.ask(|answer| Command::Wait { nodeid, stub, lock, began, answer })
    }

    /// Ends all locks on a node.
    pub(crate) fn close(&self, nodeid: u64) {
        // An error would mean that the thread has ended, and its locks with it.
        let _ = self.ask(|answer| Command::Close { nodeid, answer });
    }
}

/// Gives the calling thread an empty descriptor table, but for the standard streams.
fn own_table() -> bool {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: the descriptors are closed in a new table of this thread, which has none of its own.
    unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_UNSHARE) == 0 }
}

/// The descriptors of an owner, in its own table.
#[derive(Default)]
struct Table {
    stubs: HashMap<u64, c_int>,
}

impl Table {
    fn run(&mut self, commands: &Receiver<Command>) {
        while let Ok(command) = commands.recv() {
            match command {
                Command::Act { nodeid, stub, operation, lock, answer } => {
                    let result = self.open(nodeid, stub).and_then(|fd| control(fd, operation, lock));
                    let _ = answer.send(result);
                }
                Command::Wait { nodeid, stub, lock, began, answer } => match self.open(nodeid, stub) {
                    Ok(fd) => wait_elsewhere(fd, lock, began, answer),
                    Err(errno) => {
                        let _ = answer.send(Err(errno));
                    }
                },
                Command::Close { nodeid, answer } => {
                    if let Some(fd) = self.stubs.remove(&nodeid) {
                        // SAFETY: opened by `open`, in this table, and known to nobody else.
                        unsafe { libc::close(fd) };
                    }
                    let _ = answer.send(Err(0));
                }
            }
        }
        // The table, and all locks, end with the thread.
    }

    fn open(&mut self, nodeid: u64, stub: c_int) -> Result<c_int, Errno> {
        if let Some(fd) = self.stubs.get(&nodeid) {
            return Ok(*fd);
        }
        // The first thread of the process has the table in which `stub` is open.
        let path = CString::new(format!("/proc/self/fd/{stub}")).expect("digits hold no zero byte");
        let open = |access: c_int| {
            let flags = access | libc::O_CLOEXEC | libc::O_NONBLOCK;
            // SAFETY: a string of ours.
            checked(unsafe { libc::open(path.as_ptr(), flags) })
        };
        let fd = open(libc::O_RDWR).or_else(|_| open(libc::O_RDONLY)).or_else(|_| open(libc::O_WRONLY))?;
        self.stubs.insert(nodeid, fd);
        Ok(fd)
    }
}

fn control(fd: c_int, operation: c_int, mut lock: libc::flock) -> Answer {
    // SAFETY: a descriptor of this thread's table and a structure of ours.
    checked(unsafe { libc::fcntl(fd, operation, &raw mut lock) })?;
    Ok(lock)
}

/// Waits for a lock in another thread of the same table, so that the owner can go on locking and unlocking.
fn wait_elsewhere(fd: c_int, lock: libc::flock, began: BeganFn, answer: SyncSender<Answer>) {
    let refused = answer.clone();
    let run = move || {
        // SAFETY: no memory is involved.
        began(unsafe { libc::gettid() });
        let result = control(fd, libc::F_SETLKW, lock);
        began(0);
        let _ = answer.send(result);
    };
    let spawned =
        std::thread::Builder::new().name("ccpfs-lock-wait".to_owned()).stack_size(256 << 10).spawn(run);
    if spawned.is_err() {
        let _ = refused.send(Err(libc::ENOLCK));
    }
}

/// `F_GETLK` in the process's own table, which holds no locks.
pub(crate) fn test_plainly(stub: std::os::fd::BorrowedFd<'_>, lock: libc::flock) -> Answer {
    let fd = sys::reopen(stub, libc::O_RDWR | libc::O_NONBLOCK)
        .or_else(|_| sys::reopen(stub, libc::O_RDONLY | libc::O_NONBLOCK))?;
    control(std::os::fd::AsRawFd::as_raw_fd(&fd), libc::F_GETLK, lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::sync::{Arc, Mutex};

    fn lock(kind: c_int, start: i64, length: i64) -> libc::flock {
        libc::flock { l_type: kind as libc::c_short, l_whence: 0, l_start: start, l_len: length, l_pid: 0 }
    }

    fn nobody() -> BeganFn {
        Box::new(|_| {})
    }

    #[test]
    fn two_owners_conflict_and_one_does_not_with_itself() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        let (one, two) = (OwnerThread::start().unwrap(), OwnerThread::start().unwrap());
        assert!(one.act(1, fd, libc::F_SETLK, lock(libc::F_WRLCK, 0, 10)).is_ok());
        assert!(one.act(1, fd, libc::F_SETLK, lock(libc::F_WRLCK, 5, 10)).is_ok());
        let refused = two.act(1, fd, libc::F_SETLK, lock(libc::F_RDLCK, 14, 1));
        assert!(matches!(refused, Err(libc::EAGAIN | libc::EACCES)));
        assert!(two.act(1, fd, libc::F_SETLK, lock(libc::F_RDLCK, 15, 1)).is_ok());
        one.close(1);
        assert!(two.act(1, fd, libc::F_SETLK, lock(libc::F_WRLCK, 0, 0)).is_ok());
    }

    #[test]
    fn the_locks_of_an_owner_end_with_it_and_whoever_waits_goes_on() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        let (one, two) = (OwnerThread::start().unwrap(), OwnerThread::start().unwrap());
        one.act(1, fd, libc::F_SETLK, lock(libc::F_WRLCK, 0, 0)).unwrap();
        let (began, waits) = channel();
        let waiter = std::thread::spawn(move || {
            two.wait(1, fd, lock(libc::F_WRLCK, 0, 0), Box::new(move |tid| began.send(tid).unwrap()))
        });
        assert!(waits.recv().unwrap() > 0);
        drop(one);
        assert!(waiter.join().unwrap().is_ok());
    }

    #[test]
    fn a_deadlock_is_found_by_the_kernel() {
        let file = tempfile::tempfile().unwrap();
        let fd = file.as_raw_fd();
        let owners = Arc::new([OwnerThread::start().unwrap(), OwnerThread::start().unwrap()]);
        for (owner, start) in owners.iter().zip([0, 1]) {
            owner.act(1, fd, libc::F_SETLK, lock(libc::F_WRLCK, start, 1)).unwrap();
        }
        let answers = Arc::new(Mutex::new(Vec::new()));
        let wait = |index: usize, start: i64| {
            let (owners, answers) = (Arc::clone(&owners), Arc::clone(&answers));
            std::thread::spawn(move || {
                let answer = owners[index].wait(1, fd, lock(libc::F_WRLCK, start, 1), nobody());
                answers.lock().unwrap().push(answer.err());
                owners[index].close(1);
            })
        };
        let (one, two) = (wait(0, 1), wait(1, 0));
        one.join().unwrap();
        two.join().unwrap();
        let mut answers = answers.lock().unwrap().clone();
        answers.sort_unstable();
        assert_eq!(answers, [None, Some(libc::EDEADLK)]);
    }
}
