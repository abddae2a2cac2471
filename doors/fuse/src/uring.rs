//! The conversation with the kernel over rings (FUSE over io_uring): a second transport beside its device.
//!
//! The kernel has a queue for each processor and puts a request into an entry of the queue where the caller runs. Each entry
//! here belongs to one thread with a ring of its own, which carries the request out itself: so an entry that is free always
//! has a thread that waits for it, and a request that waits long, for a lock of another client, takes away its own entry
//! and nobody else's. Whoever takes a queue's last free entry starts a thread with another.
//!
//! Requests that find no free entry wait in the queue until some entry's answer is sent: the kernel does not give them to
//! an entry that is new. All others may wait for just these requests (pages that must be written before a lock can be
//! given back), so a new entry is followed by a *push*: a message that makes the kernel send the queue a request that is
//! answered at once, which moves the queue on by one.

use crate::caller;
use crate::dispatch;
use crate::exchange::{Errno, Outcome};
use crate::mount::Mount;
use crate::options::Rings;
use crate::sys;
use crate::uring_entry::{Entry, errno_of};
use crate::uring_support::{queue_count, stay_on};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use zerocopy::{Immutable, IntoBytes};

/// Most threads, and so entries, of all queues.
const THREADS_MAX: usize = 2048;
/// Least bytes of payload that the kernel wants room for.
const PAYLOAD_BYTES_MIN: usize = 8192;
/// Code of a message that asks the kernel for pages.
const NOTIFY_RETRIEVE: i32 = 5;
/// The request with these pages, as which a push arrives.
const NOTIFY_REPLY: u32 = 41;
/// Numbers of pushes begin here, far from those of requests, which begin at 0; the lowest bit means interruptions.
const PUSHES_FROM: u64 = 1 << 62;

/// A push: asks for no bytes of a file.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Push {
    len: u32,
    code: i32,
    no_request: u64,
    unique: u64,
    nodeid: u64,
    offset: u64,
    size: u32,
    padding: u32,
}

/// The queues of one mount.
pub(crate) struct Queues {
    mount: Arc<Mount>,
    device: OwnedFd,
    payload_bytes: usize,
    /// For each queue, entries that wait for a request.
    free: Vec<AtomicUsize>,
    pushes: AtomicU64,
    threads: Mutex<usize>,
    ended: Condvar,
}

/// Why a thread is started.
enum Start {
    /// As the first of its queue; somebody wants to hear how it goes.
    First(Sender<Result<(), Errno>>),
    /// Because all others of its queue are taken, the last one by a request about this node.
    More(u64),
}

/// Starts the queues if the kernel has agreed to them. With [`Rings::Auto`] the mount does without them if that fails.
///
/// # Errors
/// When they are asked for and cannot be had, or the kernel waits for them and nothing can be done about it.
pub(crate) fn start(
    mount: &Arc<Mount>,
    device: OwnedFd,
    (agreed, choice): (bool, Rings),
) -> io::Result<Option<Arc<Queues>>> {
    if !agreed {
        return match choice {
            Rings::Auto | Rings::Off => Ok(None),
            Rings::On => Err(io::Error::other("io_uring=on: the kernel does not offer it")),
        };
    }
    match (Queues::start(mount, device), choice) {
        (Ok(queues), _) => Ok(Some(queues)),
        (Err((error, Ok(()))), Rings::Auto | Rings::Off) => {
            tracing::warn!("no io_uring: {error}");
            Ok(None)
        }
        (Err((error, _)), _) => Err(io::Error::new(error.kind(), format!("io_uring: {error}"))),
    }
}

impl Queues {
    /// Offers the kernel an entry for each of its queues; from then on requests come this way.
    ///
    /// # Errors
    /// When that fails. Requests go on over the device, unless not even that can be told to the kernel: then the inner
    /// result is an error too, and the mount is of no use.
    pub(crate) fn start(
        mount: &Arc<Mount>,
        device: OwnedFd,
    ) -> Result<Arc<Queues>, (io::Error, Result<(), Errno>)> {
        let payload_bytes = (mount.write_bytes_max as usize).next_multiple_of(4096).max(PAYLOAD_BYTES_MIN);
        let free = (0..queue_count()).map(|_| AtomicUsize::new(0)).collect();
        let queues = Arc::new(Queues {
            mount: Arc::clone(mount),
            device,
            payload_bytes,
            free,
            pushes: AtomicU64::new(0),
            threads: Mutex::new(0),
            ended: Condvar::new(),
        });
        let (sender, results) = channel();
        queues.start_first(&sender, &results).map_err(|error| (error, queues.give_up()))?;
        Ok(queues)
    }

    fn start_first(
        self: &Arc<Queues>,
        sender: &Sender<Result<(), Errno>>,
        results: &Receiver<Result<(), Errno>>,
    ) -> io::Result<()> {
        for queue in 0..self.free.len() {
            let number = u16::try_from(queue).map_err(|_| io::Error::from_raw_os_error(libc::E2BIG))?;
            self.start_thread(number, Start::First(sender.clone()))?;
        }
        for _ in 0..self.free.len() {
            let result = results.recv().map_err(|_| io::Error::other("a thread has failed"))?;
            result.map_err(io::Error::from_raw_os_error)?;
        }
        Ok(())
    }

    /// The kernel holds all requests back until its queues are ready or one entry was refused: offers one that is too small.
    fn give_up(&self) -> Result<(), Errno> {
        let mut entry = Entry::new(self.device.as_fd(), 0, 1).map_err(errno_of)?;
        match entry.register() {
            Err(libc::EINVAL) => Ok(()),
            Err(errno) => Err(errno),
            Ok(()) => Err(libc::EPROTO),
        }
    }

    /// Waits until the kernel has ended the conversation and all threads have gone.
    pub(crate) fn wait(&self) {
        let mut threads = self.threads.lock().expect("no code panics under this lock");
        while *threads > 0 {
            threads = self.ended.wait(threads).expect("no code panics under this lock");
        }
    }

    fn start_thread(self: &Arc<Queues>, queue: u16, start: Start) -> io::Result<()> {
        let mut threads = self.threads.lock().expect("no code panics under this lock");
        if *threads >= THREADS_MAX {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let queues = Arc::clone(self);
        let named = std::thread::Builder::new().name(format!("ccpfs-ring-{queue}")).stack_size(1 << 20);
        named.spawn(move || {
            queues.run(queue, start);
            let mut threads = queues.threads.lock().expect("no code panics under this lock");
            *threads -= 1;
            queues.ended.notify_all();
        })?;
        *threads += 1;
        Ok(())
    }

    /// The life of a thread and its entry.
    fn run(self: &Arc<Queues>, queue: u16, start: Start) {
        // A processor that does not run has no callers; its queue must have an entry all the same.
        let on_its_processor = stay_on(queue).is_ok();
        self.mount.note_can_switch(caller::prepare_thread());
        let mut entry = match self.enter(queue) {
            Ok(entry) => entry,
            Err(errno) => {
                match start {
                    // Nobody listens any more after another one's error.
                    Start::First(sender) => drop(sender.send(Err(errno))),
                    Start::More(_) if self.mount.has_ended() => {}
                    Start::More(_) => tracing::error!("no more entries for queue {queue}: error {errno}"),
                }
                return;
            }
        };
        match start {
            Start::First(sender) => drop(sender.send(Ok(()))),
            Start::More(nodeid) if on_its_processor => self.push(nodeid),
            Start::More(_) => {}
        }
        if let Err(errno) = self.serve(queue, &mut entry)
            && !matches!(errno, libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV)
        {
            tracing::error!("a queue of the kernel's fails with error {errno}");
        }
    }

    fn enter(&self, queue: u16) -> Result<Entry, Errno> {
        let mut entry = Entry::new(self.device.as_fd(), queue, self.payload_bytes).map_err(errno_of)?;
        let free = &self.free[usize::from(queue)];
        free.fetch_add(1, Ordering::SeqCst);
        entry.register().inspect_err(|_| {
            free.fetch_sub(1, Ordering::SeqCst);
        })?;
        Ok(entry)
    }

    /// Carries out requests until the mount ends.
    fn serve(self: &Arc<Queues>, queue: u16, entry: &mut Entry) -> Result<(), Errno> {
        let free = &self.free[usize::from(queue)];
        loop {
            entry.wait()?;
            let mut exchange = entry.request();
            let header = exchange.header;
            if header.opcode == NOTIFY_REPLY {
                entry.answer(header.unique, Outcome::Silence)?;
                continue;
            }
            if free.fetch_sub(1, Ordering::SeqCst) == 1
                && let Err(error) = self.start_thread(queue, Start::More(header.nodeid))
            {
                tracing::warn!("requests of queue {queue} wait for one another: {error}");
            }
            let outcome = dispatch::serve(&self.mount, &mut exchange);
            free.fetch_add(1, Ordering::SeqCst);
            entry.answer(header.unique, outcome)?;
        }
    }

    /// Makes the kernel send a request to the queue of the processor that the calling thread runs on. It must be about a
    /// regular file that the kernel knows: `nodeid`, or any that is open. If there is none, there are no pages either that
    /// anybody could wait for.
    fn push(&self, nodeid: u64) {
        let open = self.mount.handles.all().into_iter().filter(|handle| handle.file().is_ok());
        let nodes = std::iter::once(nodeid).chain(open.map(|handle| handle.inode.nodeid));
        // Nodes that are no files, or are just being forgotten.
        let mut refused =
            nodes.map(|nodeid| self.push_with(nodeid)).take_while(Result::is_err).flat_map(Result::err);
        if let Some(errno) =
            refused.find(|errno| !matches!(*errno, libc::EINVAL | libc::ENOENT | libc::ENODEV))
        {
            tracing::warn!("a queue cannot be moved on: error {errno}");
        }
    }

    fn push_with(&self, nodeid: u64) -> Result<(), Errno> {
        let unique = PUSHES_FROM + 2 * self.pushes.fetch_add(1, Ordering::Relaxed);
        let message = Push {
            len: u32::try_from(size_of::<Push>()).expect("short"),
            code: NOTIFY_RETRIEVE,
            no_request: 0,
            unique,
            nodeid,
            offset: 0,
            size: 0,
            padding: 0,
        };
        let bytes = message.as_bytes();
        // SAFETY: an open device and a buffer of the length that is given.
        let sent = unsafe { libc::write(self.device.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        let result = if sent < 0 { Err(sys::errno()) } else { Ok(()) };
        tracing::debug!("a push about node {nodeid}: {result:?}");
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_push_has_the_size_of_the_header() {
        assert_eq!(size_of::<Push>(), 16 + 32);
    }
}
