//! One entry of the kernel's request queues: memory for a request and its answer, and a ring of its own to wait on.
//!
//! The kernel's words: an entry is registered once; from then on each answer ("commit") asks for the next request ("fetch").
//! The kernel fills and empties an entry's memory while the thread that owns the entry is in the system call that waits, and
//! at no other time: the ring leaves its work to that call (`DEFER_TASKRUN`).

use crate::abi::{InHeader, OutHeader, argument_bytes};
use crate::exchange::{Errno, Exchange, Outcome};
use crate::sys;
use io_uring::types::{Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `FUSE_IO_URING_CMD_REGISTER`.
const REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
const COMMIT_AND_FETCH: u32 = 2;
/// Bytes of each of the two headers.
const HEADER_BYTES: usize = 128;
/// Where the payload begins in an entry's memory: on a page.
const PAYLOAD_AT: usize = 4096;
/// Where `len` is in a submission, a field of the kernel's structure that the library has no setter for.
const SUBMISSION_LEN_AT: usize = 24;
/// How long an entry waits before it gives back memory that it has used.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// Memory up to this many bytes is never given back.
const KEPT_BYTES: usize = 64 << 10;

/// What comes with a request and its answer, besides their payload.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Headers {
    /// Header of the request, then of the answer.
    in_out: [u8; HEADER_BYTES],
    /// Argument of the request.
    op_in: [u8; HEADER_BYTES],
    flags: u64,
    commit_id: u64,
    payload_sz: u32,
    padding: u32,
    reserved: u64,
}

/// Argument of both commands.
#[derive(Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    flags: u64,
    commit_id: u64,
    qid: u16,
    padding: [u8; 6],
}

/// An entry, owned by one thread for life.
pub(crate) struct Entry {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    memory: Memory,
    queue: u16,
    /// Memory that may have been used since it was last given back, bytes.
    used_bytes: usize,
}

impl Entry {
    /// An entry for `queue` that takes payloads of up to `payload_bytes`. Only the calling thread may use it.
    ///
    /// # Errors
    /// When the system refuses rings or memory.
    pub(crate) fn new(device: BorrowedFd<'_>, queue: u16, payload_bytes: usize) -> io::Result<Entry> {
        let mut builder = IoUring::<squeue::Entry128, cqueue::Entry>::builder();
        builder.setup_single_issuer().setup_defer_taskrun();
        let ring = builder.build(1)?;
        ring.submitter().register_files(&[device.as_raw_fd()])?;
        Ok(Entry { ring, memory: Memory::new(payload_bytes)?, queue, used_bytes: 0 })
    }

    /// Offers the entry to the kernel.
    ///
    /// # Errors
    /// What the kernel has against it; it gives up its rings then, unless all queues have an entry already.
    pub(crate) fn register(&mut self) -> Result<(), Errno> {
        let vectors = self.memory.vectors();
        self.push(REGISTER, 0, Some(&vectors))?;
        self.ring.submit().map_err(errno_of)?;
        match self.completed() {
            Some(Err(errno)) => Err(errno),
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// Sends the answer that was given last, if any, and waits for the next request.
    ///
    /// # Errors
    /// `ENOTCONN` and the like when the mount has ended.
    pub(crate) fn wait(&mut self) -> Result<(), Errno> {
        let limit = Timespec::from(IDLE_TIME);
        loop {
            if let Some(completed) = self.completed() {
                return completed;
            }
            let waited = if self.used_bytes > KEPT_BYTES {
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))
            } else {
                self.ring.submit_and_wait(1)
            };
            match waited.map_err(errno_of) {
                Ok(_) | Err(libc::EINTR | libc::EAGAIN | libc::EBUSY) => {}
                Err(libc::ETIME) => {
                    self.memory.give_back();
                    self.used_bytes = 0;
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// The request that [`Entry::wait`] has brought.
    pub(crate) fn request(&mut self) -> Exchange<'_> {
        let (headers, payload) = self.memory.parts();
        let payload_bytes = usize::try_from(headers.payload_sz).unwrap_or(usize::MAX).min(payload.len());
        self.used_bytes = self.used_bytes.max(payload_bytes);
        let (header, _) = InHeader::read_from_prefix(&headers.in_out).expect("there is room for a header");
        let argument = &headers.op_in[..argument_bytes(header.opcode).unwrap_or(0)];
        Exchange::new(header, argument, payload, payload_bytes)
    }

    /// Gives the answer to the last request, whose number is `unique`; it is sent by the next [`Entry::wait`]. A request
    /// that needs none is answered as well, or the entry would be lost.
    ///
    /// # Errors
    /// Never as long as each request is answered once.
    pub(crate) fn answer(&mut self, unique: u64, outcome: Outcome) -> Result<(), Errno> {
        let (error, bytes) = match outcome {
            Outcome::Answer(bytes) => (0, bytes),
            Outcome::Error(errno) => (-errno, 0),
            Outcome::Silence => (0, 0),
        };
        self.used_bytes = self.used_bytes.max(bytes);
        let (headers, _) = self.memory.parts();
        let payload_sz = u32::try_from(bytes).expect("answers are short");
        let len = payload_sz + u32::try_from(size_of::<OutHeader>()).expect("short");
        let header = OutHeader { len, error, unique };
        headers.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        headers.payload_sz = payload_sz;
        let commit_id = headers.commit_id;
        self.push(COMMIT_AND_FETCH, commit_id, None)
    }

    fn push(
        &mut self,
        operation: u32,
        commit_id: u64,
        vectors: Option<&[libc::iovec; 2]>,
    ) -> Result<(), Errno> {
        let command = Command { flags: 0, commit_id, qid: self.queue, padding: [0; 6] };
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let mut made = opcode::UringCmd80::new(Fixed(0), operation).cmd(bytes);
        if let Some(vectors) = vectors {
            made = made.addr(Some(vectors.as_ptr() as u64));
        }
        let mut submission = made.build();
        if vectors.is_some() {
            let at = (&raw mut submission).cast::<u8>().wrapping_add(SUBMISSION_LEN_AT).cast::<u32>();
            // SAFETY: a submission is the kernel's structure of 128 bytes, where `len` is an integer at this place.
            unsafe { at.write_unaligned(2) };
        }
        // SAFETY: the vectors are read before the call that submits returns; the memory they point to lives as long as the ring,
        // which is dropped first.
        unsafe { self.ring.submission().push(&submission) }.map_err(|_| libc::EBUSY)
    }

    fn completed(&mut self) -> Option<Result<(), Errno>> {
        let result = self.ring.completion().next()?.result();
        Some(if result < 0 { Err(-result) } else { Ok(()) })
    }
}

/// The errno of a failed call.
pub(crate) fn errno_of(error: io::Error) -> Errno {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Memory that takes no room before it is touched: a page with the headers, then the payload.
struct Memory {
    start: *mut u8,
    payload_bytes: usize,
}

impl Memory {
    fn new(payload_bytes: usize) -> io::Result<Memory> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAYLOAD_AT + payload_bytes,
                access,
                kind | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::from_raw_os_error(sys::errno()));
        }
        Ok(Memory { start: start.cast(), payload_bytes })
    }

    fn vectors(&self) -> [libc::iovec; 2] {
        let payload = self.start.wrapping_add(PAYLOAD_AT);
        [(self.start, size_of::<Headers>()), (payload, self.payload_bytes)]
            .map(|(start, bytes)| libc::iovec { iov_base: start.cast(), iov_len: bytes })
    }

    fn parts(&mut self) -> (&mut Headers, &mut [u8]) {
        // SAFETY: both lie in memory that is ours alone, do not overlap, are aligned, and any bytes are values of them. The
        // kernel touches them only inside of `Entry::wait`, which nobody can call while these live.
        unsafe {
            let headers = &mut *self.start.cast::<Headers>();
            let payload = std::slice::from_raw_parts_mut(self.start.add(PAYLOAD_AT), self.payload_bytes);
            (headers, payload)
        }
    }

    /// Gives the payload's room back to the system until it is touched again.
    fn give_back(&mut self) {
        // SAFETY: memory that is ours alone; nobody needs its bytes between two requests.
        unsafe {
            libc::madvise(self.start.add(PAYLOAD_AT).cast(), self.payload_bytes, libc::MADV_DONTNEED);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and the ring, through which the kernel knows it, is gone.
        unsafe { libc::munmap(self.start.cast(), PAYLOAD_AT + self.payload_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{WriteIn, WriteOut, opcode};

    #[test]
    fn structures_have_the_sizes_of_the_header() {
        assert_eq!(size_of::<Headers>(), 288);
        assert_eq!(size_of::<Command>(), 24);
        assert_eq!(std::mem::offset_of!(Headers, commit_id), 264);
        assert_eq!(std::mem::offset_of!(Headers, payload_sz), 272);
        assert_eq!(size_of::<squeue::Entry128>(), 128);
    }

    #[test]
    fn a_request_is_taken_apart_and_its_answer_takes_its_place() {
        let device = std::fs::File::open("/dev/null").unwrap();
        let Ok(mut entry) = Entry::new(std::os::fd::AsFd::as_fd(&device), 1, 8192) else {
            return; // A machine that allows no rings.
        };
        let header = InHeader { opcode: opcode::WRITE, unique: 42, ..InHeader::default() };
        let asked = WriteIn { size: 5, ..WriteIn::default() };
        let (headers, payload) = entry.memory.parts();
        headers.in_out[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        headers.op_in[..size_of::<WriteIn>()].copy_from_slice(asked.as_bytes());
        (headers.commit_id, headers.payload_sz) = (42, 5);
        payload[..5].copy_from_slice(b"hello");

        let mut exchange = entry.request();
        assert_eq!((exchange.header, exchange.argument()), (header, Ok(asked)));
        assert_eq!(exchange.data(5), Ok(&b"hello"[..]));
        let outcome = exchange.answer(&WriteOut { size: 5, padding: 0 }).unwrap();
        entry.answer(42, outcome).unwrap();

        let (headers, payload) = entry.memory.parts();
        let sent = OutHeader { len: 24, error: 0, unique: 42 };
        assert_eq!(headers.in_out[..16], *sent.as_bytes());
        assert_eq!((headers.payload_sz, headers.commit_id), (8, 42));
        assert_eq!(payload[..8], [5, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn memory_that_is_given_back_can_be_used_again() {
        let mut memory = Memory::new(1 << 20).unwrap();
        memory.parts().1.fill(7);
        memory.give_back();
        let (_, payload) = memory.parts();
        assert!(payload.iter().all(|&byte| byte == 0));
        payload[5] = 1;
        assert_eq!(payload[5], 1);
    }
}
