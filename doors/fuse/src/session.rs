//! The conversation with the kernel over its device: threads that read requests, carry them out, and answer.
//!
//! Each thread reads one request at a time and carries it out itself. Before it begins one that would leave nobody reading, it
//! starts another thread: a request may wait long, for a lock that another client gives back only when the kernel has
//! written pages through us, so there must always be somebody to read the next.

use crate::abi::{DEVICE_CLONE, InHeader, OutHeader, argument_bytes};
use crate::caller;
use crate::dispatch;
use crate::exchange::{Exchange, Outcome};
use crate::mount::Mount;
use crate::sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use zerocopy::{FromBytes, IntoBytes};

/// Most threads of a mount.
const THREADS_MAX: usize = 4096;
/// Threads that wait for requests; more than that end.
const IDLE_MAX: usize = 8;
/// Bytes of a request besides the data of a write.
const OVERHEAD_BYTES: usize = 4096;
/// Where the payload begins, so that the answer's header fits before it and data lie on a page.
const PAYLOAD_AT: usize = 4096;

/// A conversation.
pub(crate) struct Session {
    pub(crate) mount: Arc<Mount>,
    device: OwnedFd,
    /// Threads that wait for a request.
    idle: AtomicUsize,
    threads: Mutex<usize>,
    ended: Condvar,
}

impl Session {
    /// The conversation over an open device, after INIT.
    pub(crate) fn new(mount: Arc<Mount>, device: OwnedFd) -> Arc<Session> {
        let threads = Mutex::new(0);
        Arc::new(Session { mount, device, idle: AtomicUsize::new(0), threads, ended: Condvar::new() })
    }

    /// Starts the first threads.
    ///
    /// # Errors
    /// When the system refuses even one.
    pub(crate) fn start(self: &Arc<Session>) -> std::io::Result<()> {
        self.start_thread()
    }

    /// Waits until the kernel has ended the conversation and all threads have gone.
    pub(crate) fn wait(&self) {
        let mut threads = self.threads.lock().expect("no code panics under this lock");
        while *threads > 0 {
            threads = self.ended.wait(threads).expect("no code panics under this lock");
        }
    }

    fn start_thread(self: &Arc<Session>) -> std::io::Result<()> {
        let mut threads = self.threads.lock().expect("no code panics under this lock");
        if *threads >= THREADS_MAX {
            return Err(std::io::Error::from_raw_os_error(libc::EAGAIN));
        }
        let session = Arc::clone(self);
        let named = std::thread::Builder::new().name("ccpfs-mount".to_owned()).stack_size(1 << 20);
        named.spawn(move || {
            Worker::new(&session).run(&session);
            let mut threads = session.threads.lock().expect("no code panics under this lock");
            *threads -= 1;
            session.ended.notify_all();
        })?;
        *threads += 1;
        Ok(())
    }
}

/// A thread's own open device and memory.
struct Worker {
    device: Option<OwnedFd>,
    memory: Memory,
    can_switch: bool,
}

impl Worker {
    fn new(session: &Session) -> Worker {
        let payload_bytes = session.mount.write_bytes_max as usize;
        let device = clone_device(session.device.as_fd()).ok();
        let memory = Memory::new(PAYLOAD_AT + payload_bytes + OVERHEAD_BYTES);
        Worker { device, memory, can_switch: caller::prepare_thread() }
    }

    fn run(&mut self, session: &Arc<Session>) {
        session.mount.note_can_switch(self.can_switch);
        loop {
            if session.idle.fetch_add(1, Ordering::SeqCst) >= IDLE_MAX {
                session.idle.fetch_sub(1, Ordering::SeqCst);
                return;
            }
            let device = self.device.as_ref().unwrap_or(&session.device).as_fd();
            let read = receive(device, &mut self.memory.0);
            let others = session.idle.fetch_sub(1, Ordering::SeqCst) - 1;
            match read {
                Ok(bytes) => {
                    if others == 0 {
                        // Failing leaves the request to wait until a thread is free.
                        let _ = session.start_thread();
                    }
                    serve(&session.mount, device, &mut self.memory.0, bytes);
                }
                // A request that was taken back, a signal.
                Err(libc::ENOENT | libc::EINTR | libc::EAGAIN) => {}
                Err(errno) => {
                    if errno != libc::ENODEV {
                        tracing::error!("the kernel's device fails with error {errno}");
                    }
                    session.mount.note_end();
                    return;
                }
            }
        }
    }
}

/// Page-aligned memory that takes no room before it is touched.
struct Memory(Vec<u8>);

impl Memory {
    fn new(bytes: usize) -> Memory {
        Memory(vec![0; bytes])
    }
}

/// Opens the device once more for the same mount: threads do not wait for one another's turns then.
fn clone_device(device: BorrowedFd<'_>) -> Result<OwnedFd, i32> {
    // SAFETY: a string.
    let fd = sys::checked(unsafe { libc::open(c"/dev/fuse".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })?;
    // SAFETY: just opened, owned by nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let original = device.as_raw_fd();
    // SAFETY: the request reads one integer of ours.
    sys::checked(unsafe { libc::ioctl(fd.as_raw_fd(), DEVICE_CLONE, &raw const original) })?;
    Ok(fd)
}

/// Reads a request into `memory`.
pub(crate) fn receive(device: BorrowedFd<'_>, memory: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: an open device and a buffer of the length that is given.
    let read = unsafe { libc::read(device.as_raw_fd(), memory.as_mut_ptr().cast(), memory.len()) };
    usize::try_from(read).map_err(|_| sys::errno())
}

/// Carries out the request in `memory`, and answers.
fn serve(mount: &Mount, device: BorrowedFd<'_>, memory: &mut [u8], bytes: usize) {
    let Ok((header, _)) = InHeader::read_from_prefix(&memory[..bytes]) else {
        tracing::error!("a request of {bytes} bytes has no header");
        return;
    };
    let argument_at = size_of::<InHeader>();
    let argument_bytes = argument_bytes(header.opcode).unwrap_or(0);
    let payload_at = argument_at + argument_bytes;
    if payload_at > bytes {
        answer(device, memory, 0, header.unique, Outcome::Error(libc::EINVAL));
        return;
    }
    let (before, payload) = memory.split_at_mut(payload_at);
    let argument = &before[argument_at..];
    let mut exchange = Exchange::new(header, argument, payload, bytes - payload_at);
    let outcome = dispatch::serve(mount, &mut exchange);
    answer(device, memory, payload_at, header.unique, outcome);
}

/// Sends an answer whose bytes begin at `start` of `memory`; its header is put before them.
fn answer(device: BorrowedFd<'_>, memory: &mut [u8], start: usize, unique: u64, outcome: Outcome) {
    let header_bytes = size_of::<OutHeader>();
    let start = start.max(header_bytes);
    let (error, bytes) = match outcome {
        Outcome::Answer(bytes) => (0, bytes),
        Outcome::Error(errno) => (-errno, 0),
        Outcome::Silence => return,
    };
    let length = header_bytes + bytes;
    let header = OutHeader { len: u32::try_from(length).expect("answers are short"), error, unique };
    memory[start - header_bytes..start].copy_from_slice(header.as_bytes());
    let message = &memory[start - header_bytes..start + bytes];
    // SAFETY: an open device and a buffer of the length that is given.
    let sent = unsafe { libc::write(device.as_raw_fd(), message.as_ptr().cast(), message.len()) };
    if sent < 0 {
        match sys::errno() {
            // Whoever asked is gone.
            libc::ENOENT | libc::ENODEV => {}
            errno => tracing::error!("an answer is refused with error {errno}"),
        }
    }
}
