//! One connection of a socket port: incoming frames and the queue of outgoing ones.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Instant;

use crate::buffer::{Buffer, BufferPool};
use crate::frame::FrameError;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::port::{CloseReason, ConnectionId, Event};
use crate::sys;
use crate::wake::WakeTarget;

/// Bulk bytes received from one connection per turn.
pub(crate) const BULK_SLICE_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct SocketLink {
    pub(crate) id: ConnectionId,
    pub(crate) fd: OwnedFd,
    pub(crate) outbound: Outbound,
    inbound: Inbound,
    /// The bulk of the frame at the front of `inbound`, once there was memory for it.
    bulk: Option<IncomingBulk>,
    /// The kernel may hold bytes we have not read.
    pub(crate) readable: bool,
    /// The peer has ended its side; reading goes on until the end shows.
    pub(crate) ending: bool,
    /// The kernel's send buffer is full; its edge will be reported.
    pub(crate) write_blocked: bool,
    /// The kernel is asked to report room in the send buffer.
    pub(crate) write_watched: bool,
    /// In the port's list of connections with something to write.
    pub(crate) write_listed: bool,
    /// The port's reading list this connection stands in.
    pub(crate) listed: Listed,
}

/// Where a connection waits for its turn to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// Nowhere: nothing to read.
    No,
    /// Among those between frames, which go first.
    Messages,
    /// Among those inside a bulk.
    Bulk,
    /// Among those that wait for a buffer.
    Starved,
}

#[derive(Debug)]
struct IncomingBulk {
    buffer: Buffer,
    done: usize,
    /// When bytes last came.
    progress: Instant,
}

/// What a connection needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More bytes.
    Bytes,
    /// A buffer from the pool.
    Buffer,
}

impl SocketLink {
    pub(crate) fn new(id: ConnectionId, fd: OwnedFd) -> SocketLink {
        SocketLink {
            id,
            fd,
            outbound: Outbound::default(),
            inbound: Inbound::new(),
            bulk: None,
            readable: true,
            ending: false,
            write_blocked: false,
            write_watched: false,
            write_listed: false,
            listed: Listed::No,
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// True while a bulk is being received.
    pub(crate) fn in_bulk(&self) -> bool {
        self.bulk.is_some()
    }

    /// When the bulk under way last moved.
    pub(crate) fn bulk_progress(&self) -> Option<Instant> {
        self.bulk.as_ref().map(|bulk| bulk.progress)
    }

    /// Reads once, bounded; returns how many bytes came.
    pub(crate) fn read(&mut self) -> Result<usize, CloseReason> {
        let fd = self.fd.as_raw_fd();
        let (result, wanted) = match &mut self.bulk {
            None => {
                let room = self.inbound.room();
                let wanted = room.len();
                (sys::receive_vectored(fd, &mut [IoSliceMut::new(room)]), wanted)
            }
            Some(bulk) => {
                let rest = &mut bulk.buffer[bulk.done..];
                let bulk_wanted = rest.len().min(BULK_SLICE_BYTES);
                let last = bulk_wanted == rest.len();
                // The last slice brings what follows the bulk along.
                let room = if last { self.inbound.room() } else { &mut [] };
                let wanted = bulk_wanted + room.len();
                let slices = &mut [IoSliceMut::new(&mut rest[..bulk_wanted]), IoSliceMut::new(room)];
                let result = sys::receive_vectored(fd, slices);
                (result, wanted)
            }
        };
        match result {
            Ok(0) if self.inbound.is_empty() => Err(CloseReason::PeerClosed),
            Ok(0) => Err(CloseReason::Truncated),
            Ok(count) => {
                // A short read has emptied the kernel's buffer, except that the end of the stream must still show.
                self.readable = count == wanted || self.ending;
                self.note_read(count);
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(0)
            }
            Err(error) => Err(close_reason(&error)),
        }
    }

    fn note_read(&mut self, count: usize) {
        let mut direct = 0;
        if let Some(bulk) = &mut self.bulk {
            direct = count.min(bulk.buffer.len() - bulk.done);
            bulk.done += direct;
            bulk.progress = Instant::now();
        }
        self.inbound.filled(count - direct);
    }

    /// Turns buffered bytes into events, until bytes or memory are missing. Without a `source`, no memory is taken.
    pub(crate) fn take_frames(
        &mut self,
        source: Option<(&BufferPool, &Arc<WakeTarget>)>,
        events: &mut Vec<Event>,
    ) -> Result<Next, FrameError> {
        while let Some(head) = self.inbound.head()? {
            let mut behind_taken = 0;
            if head.bulk_bytes > 0 {
                if self.bulk.is_none() {
                    let taken = source.and_then(|(pool, target)| pool.take_or_wait(head.bulk_bytes, target));
                    let Some(buffer) = taken else {
                        return Ok(Next::Buffer);
                    };
                    let mut bulk = IncomingBulk { buffer, done: 0, progress: Instant::now() };
                    let behind = self.inbound.behind(head);
                    bulk.done = behind.len().min(head.bulk_bytes);
                    bulk.buffer[..bulk.done].copy_from_slice(&behind[..bulk.done]);
                    behind_taken = bulk.done;
                    self.bulk = Some(bulk);
                }
                if self.bulk.as_ref().is_some_and(|bulk| bulk.done < head.bulk_bytes) {
                    if behind_taken > 0 {
                        self.inbound.cut_behind(head);
                    }
                    return Ok(Next::Bytes);
                }
            }
            let message = self.inbound.message(head).to_vec();
            let bulk = self.bulk.take().map(|bulk| bulk.buffer);
            events.push(Event::Frame { connection: self.id, message, bulk });
            self.inbound.consume(head, behind_taken);
        }
        Ok(Next::Bytes)
    }
}

/// What an error of a socket call means for the connection.
pub(crate) fn close_reason(error: &io::Error) -> CloseReason {
    match error.raw_os_error() {
        Some(libc::EPIPE | libc::ECONNRESET) => CloseReason::PeerClosed,
        Some(errno) => CloseReason::Os { errno },
        None => CloseReason::Os { errno: libc::EIO },
    }
}
