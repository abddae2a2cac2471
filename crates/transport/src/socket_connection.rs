//! A client's connection over a TCP or Unix socket: non-blocking descriptor, blocking by `poll`.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use crate::connection::{
    ConnectOptions, Connection, FrameSink, LinkError, Received, Wait, descriptor_minimum,
};
use crate::frame::FrameHeader;
use crate::inbound::{Head, Inbound};
use crate::socket_options::{self, Family};
use crate::sys::{self, Interest};

/// Reads that one `receive_ready` makes at most, so that a busy connection cannot keep a thread from others.
const READS_PER_TURN: u32 = 16;

/// See the module.
pub(crate) struct SocketConnection {
    fd: OwnedFd,
    options: ConnectOptions,
    writer: Mutex<()>,
    reader: Mutex<Reader>,
    /// The first reason why this connection is dead.
    failure: OnceLock<LinkError>,
}

impl SocketConnection {
    /// Tries every address of `host` in turn; the last one's error is reported.
    pub(crate) fn connect_tcp(
        host: &str,
        port: u16,
        timeout: Duration,
        options: ConnectOptions,
    ) -> io::Result<SocketConnection> {
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
        for endpoint in (host, port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&endpoint, timeout) {
                Ok(stream) => return SocketConnection::new(OwnedFd::from(stream), Family::Tcp, options),
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Connects to the socket file at `path`.
    pub(crate) fn connect_unix(
        path: &Path,
        timeout: Duration,
        options: ConnectOptions,
    ) -> io::Result<SocketConnection> {
        SocketConnection::new(sys::connect_unix(path, timeout)?, Family::Unix, options)
    }

    fn new(fd: OwnedFd, family: Family, options: ConnectOptions) -> io::Result<SocketConnection> {
        let fd = sys::moved_up(fd, descriptor_minimum());
        // The descriptor itself stays blocking: every call on it says that it must not block.
        socket_options::prepare(fd.as_raw_fd(), family, options.stall_timeout)?;
        Ok(SocketConnection {
            fd,
            options,
            writer: Mutex::new(()),
            reader: Mutex::new(Reader { inbound: Inbound::new(), bulk_done: 0 }),
            failure: OnceLock::new(),
        })
    }

    /// Marks the connection dead, wakes everybody, and returns the first cause.
    fn fail(&self, error: LinkError) -> LinkError {
        let cause = self.failure.get_or_init(|| error).clone();
        sys::shut_down(self.fd.as_raw_fd());
        cause
    }

    fn send_all(&self, mut slices: &mut [IoSlice<'_>]) -> Result<(), LinkError> {
        let fd = self.fd.as_raw_fd();
        let mut stalled_since = None;
        while !slices.is_empty() {
            match sys::send_vectored(fd, slices) {
                Ok(count) => {
                    stalled_since = None;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let since = *stalled_since.get_or_insert_with(Instant::now);
                    let limit = self.options.stall_timeout;
                    let Some(left) = limit.checked_sub(since.elapsed()).filter(|left| !left.is_zero()) else {
                        return Err(LinkError::Stalled { waited: limit });
                    };
                    sys::wait(fd, Interest::Writable, Some(left))
                        .map_err(|error| LinkError::from_io(&error))?;
                }
                Err(error) => return Err(LinkError::from_io(&error)),
            }
        }
        Ok(())
    }

    /// Reads once. `Ok(false)`: nothing is there.
    fn read_once(&self, reader: &mut Reader, sink: &mut dyn FrameSink) -> Result<bool, LinkError> {
        match reader.read(self.fd.as_raw_fd(), sink) {
            Ok(0) => Err(self.fail(LinkError::PeerClosed)),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(self.fail(LinkError::from_io(&error))),
        }
    }

    fn next_buffered(&self, reader: &mut Reader, sink: &mut dyn FrameSink) -> Result<bool, LinkError> {
        reader.next_buffered(sink).map_err(|error| self.fail(error))
    }

    /// Waits until a read is worth another try. False: the deadline has passed.
    fn wait_readable(&self, pace: &mut Pace) -> Result<bool, LinkError> {
        let now = Instant::now();
        if pace.deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(false);
        }
        if now < *pace.spin_until.get_or_insert_with(|| now + self.options.busy_poll) {
            thread::yield_now();
            return Ok(true);
        }
        let limit = pace.deadline.map(|deadline| deadline - now);
        sys::wait(self.fd.as_raw_fd(), Interest::Readable, limit)
            .map_err(|error| self.fail(LinkError::from_io(&error)))?;
        Ok(true)
    }

    fn lock_reader(&self) -> MutexGuard<'_, Reader> {
        // A sink that panicked left its frame in place; the next receiver gets it again.
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// After a deliberate close nothing more is delivered; after other failures what has arrived still is.
    fn check_open(&self) -> Result<(), LinkError> {
        match self.failure.get() {
            Some(LinkError::Closed) => Err(LinkError::Closed),
            Some(_) | None => Ok(()),
        }
    }
}

/// The time limits of one blocking receive.
struct Pace {
    deadline: Option<Instant>,
    spin_until: Option<Instant>,
}

impl Connection for SocketConnection {
    fn send(&self, message: &[u8], bulk: &[IoSlice<'_>]) -> Result<(), LinkError> {
        let bulk_bytes = bulk.iter().map(|slice| slice.len()).sum();
        let header = FrameHeader::new(message.len(), bulk_bytes).map_err(LinkError::TooLarge)?.encode();
        let _turn = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        let head = [IoSlice::new(&header), IoSlice::new(message)];
        let sent = if bulk.is_empty() {
            self.send_all(&mut { head })
        } else {
            self.send_all(&mut [&head, bulk].concat())
        };
        sent.map_err(|error| self.fail(error))
    }

    fn receive(&self, wait: Wait, sink: &mut dyn FrameSink) -> Result<Received, LinkError> {
        let mut pace = Pace {
            deadline: match wait {
                Wait::Forever => None,
                Wait::For(limit) => Instant::now().checked_add(limit),
            },
            spin_until: None,
        };
        let mut reader = self.lock_reader();
        loop {
            self.check_open()?;
            if self.next_buffered(&mut reader, sink)? {
                return Ok(Received::Frame);
            }
            if self.read_once(&mut reader, sink)? {
                pace.spin_until = None;
            } else if !self.wait_readable(&mut pace)? {
                return Ok(Received::TimedOut);
            }
        }
    }

    fn receive_ready(&self, sink: &mut dyn FrameSink) -> Result<usize, LinkError> {
        let mut reader = match self.reader.try_lock() {
            Ok(reader) => reader,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        let mut frames = 0;
        for read in 0.. {
            self.check_open()?;
            while self.next_buffered(&mut reader, sink)? {
                frames += 1;
            }
            if read == READS_PER_TURN {
                break;
            }
            match self.read_once(&mut reader, sink) {
                Ok(true) => {}
                Ok(false) => break,
                // The frames are with the sink; the next call meets the end of the stream again.
                Err(_) if frames > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(frames)
    }

    fn readiness(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    fn close(&self) {
        self.fail(LinkError::Closed);
    }
}

/// The receiving half: buffered bytes and how far the current frame's bulk has come.
struct Reader {
    inbound: Inbound,
    bulk_done: usize,
}

impl Reader {
    /// Hands the next frame to the sink if all of it is here.
    fn next_buffered(&mut self, sink: &mut dyn FrameSink) -> Result<bool, LinkError> {
        let Some(head) = self.inbound.head().map_err(LinkError::Malformed)? else { return Ok(false) };
        let message = self.inbound.message(head);
        let behind = self.inbound.behind(head);
        let taken = behind.len().min(head.bulk_bytes - self.bulk_done);
        if taken > 0 {
            let target = sink.bulk_target(message, head.bulk_bytes);
            scatter(target, self.bulk_done, &behind[..taken]);
            self.bulk_done += taken;
        }
        if self.bulk_done < head.bulk_bytes {
            self.inbound.cut_behind(head);
            return Ok(false);
        }
        sink.frame(message, head.bulk_bytes);
        self.inbound.consume(head, taken);
        self.bulk_done = 0;
        Ok(true)
    }

    /// Reads once: bulk straight into the sink's target, whatever follows into the buffer.
    fn read(&mut self, fd: RawFd, sink: &mut dyn FrameSink) -> io::Result<usize> {
        // A malformed header has been reported by `next_buffered`, which always goes first.
        match self.inbound.head() {
            Ok(Some(head)) if head.bulk_bytes > 0 => self.read_bulk(fd, head, sink),
            Ok(Some(_) | None) | Err(_) => {
                let count = sys::receive_vectored(fd, &mut [IoSliceMut::new(self.inbound.room())])?;
                self.inbound.filled(count);
                Ok(count)
            }
        }
    }

    fn read_bulk(&mut self, fd: RawFd, head: Head, sink: &mut dyn FrameSink) -> io::Result<usize> {
        let target = sink.bulk_target(self.inbound.message(head), head.bulk_bytes);
        let mut slices = clip(target, self.bulk_done, head.bulk_bytes);
        slices.truncate(sys::SLICES_MAX - 1);
        let target_bytes: usize = slices.iter().map(|slice| slice.len()).sum();
        // Frames behind the bulk come with the same read; excess bulk goes through the buffer and is dropped there.
        if target_bytes == 0 || self.bulk_done + target_bytes == head.bulk_bytes {
            slices.push(IoSliceMut::new(self.inbound.room()));
        }
        let count = sys::receive_vectored(fd, &mut slices)?;
        drop(slices);
        let direct = count.min(target_bytes);
        self.bulk_done += direct;
        self.inbound.filled(count - direct);
        Ok(count)
    }
}

/// The part `[start, end)` of the memory that `target` describes, without empty slices.
fn clip(target: Vec<IoSliceMut<'_>>, start: usize, end: usize) -> Vec<IoSliceMut<'_>> {
    let mut clipped = Vec::with_capacity(target.len() + 1);
    let mut position = 0;
    for mut slice in target {
        let (skip, length) = (start.saturating_sub(position), slice.len());
        let keep = length.min(end.saturating_sub(position));
        position += length;
        if skip >= keep {
            continue;
        }
        slice.advance(skip);
        clipped.push(shortened(slice, keep - skip));
    }
    clipped
}

/// The first `bytes` of a slice.
fn shortened(slice: IoSliceMut<'_>, bytes: usize) -> IoSliceMut<'_> {
    if slice.len() == bytes {
        return slice;
    }
    let mut slice = std::mem::ManuallyDrop::new(slice);
    // SAFETY: the memory is borrowed for the lifetime of the returned slice, which takes the place of the old one.
    IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(slice.as_mut_ptr(), bytes) })
}

/// Copies `bytes` to position `start` of the memory that `target` describes; what is past its end is dropped.
fn scatter(target: Vec<IoSliceMut<'_>>, start: usize, mut bytes: &[u8]) {
    for mut slice in clip(target, start, start + bytes.len()) {
        let (piece, rest) = bytes.split_at(slice.len());
        slice.copy_from_slice(piece);
        bytes = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipping_keeps_exactly_the_named_part() {
        let mut memory: Vec<u8> = (0..12).collect();
        for start in 0..=12 {
            for end in start..=14 {
                let (a, rest) = memory.split_at_mut(5);
                let (b, c) = rest.split_at_mut(0);
                let target = vec![IoSliceMut::new(a), IoSliceMut::new(b), IoSliceMut::new(c)];
                let kept: Vec<u8> =
                    clip(target, start, end).iter().flat_map(|slice| slice.iter().copied()).collect();
                let expected: Vec<u8> = (start..end.min(12)).map(|value| value as u8).collect();
                assert_eq!(kept, expected, "{start}..{end}");
            }
        }
    }

    #[test]
    fn scattering_past_the_target_drops_the_excess() {
        let mut memory = [0u8; 6];
        let (a, b) = memory.split_at_mut(2);
        scatter(vec![IoSliceMut::new(a), IoSliceMut::new(b)], 1, b"wxyzuvst");
        assert_eq!(&memory, b"\0wxyzu");
    }
}
