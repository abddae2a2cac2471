//! What waits to be written to one peer: small frames joined into runs, bulk by reference.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::RawFd;

use crate::frame::FrameHeader;
use crate::port::Bulk;
use crate::sys;

/// Small frames are copied together into runs of about this many bytes.
const RUN_BYTES: usize = 64 << 10;
/// Segments that one vectored write takes.
const SEGMENTS_PER_WRITE: usize = 64;
/// Bytes written to one peer per turn; others wait meanwhile.
const TURN_BYTES: usize = 2 << 20;

/// The queue of one connection.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are out already.
    first_done: usize,
    queued_bytes: usize,
    /// An emptied run, kept for its memory.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum Segment {
    Run(Vec<u8>),
    Bulk(Bulk),
}

impl Segment {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Segment::Run(run) => run,
            Segment::Bulk(bulk) => bulk.as_bytes(),
        }
    }
}

/// How far one turn of writing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Everything is out.
    All,
    /// The turn's share is out and the peer takes more.
    Share,
    /// The peer takes nothing more now.
    Blocked,
}

impl Outbound {
    /// Bytes that wait.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Appends one frame.
    pub(crate) fn push(&mut self, header: FrameHeader, message: &[u8], bulk: Option<Bulk>) {
        let run = match self.segments.back_mut() {
            Some(Segment::Run(run)) if run.len() < RUN_BYTES => run,
            Some(Segment::Run(_) | Segment::Bulk(_)) | None => {
                let mut run = std::mem::take(&mut self.spare);
                run.clear();
                self.segments.push_back(Segment::Run(run));
                let Some(Segment::Run(run)) = self.segments.back_mut() else {
                    unreachable!("a run was just pushed")
                };
                run
            }
        };
        let before = run.len();
        run.extend_from_slice(&header.encode());
        run.extend_from_slice(message);
        self.queued_bytes += run.len() - before;
        if let Some(bulk) = bulk.filter(|bulk| !bulk.as_bytes().is_empty()) {
            self.queued_bytes += bulk.as_bytes().len();
            self.segments.push_back(Segment::Bulk(bulk));
        }
    }

    /// Writes until the queue is empty, the peer's buffer is full, or the turn's share is out.
    pub(crate) fn write(&mut self, fd: RawFd) -> io::Result<Written> {
        let mut turn_bytes = 0;
        while self.queued_bytes > 0 {
            if turn_bytes >= TURN_BYTES {
                return Ok(Written::Share);
            }
            let mut slices = [IoSlice::new(&[]); SEGMENTS_PER_WRITE];
            let mut used = 0;
            for (slice, segment) in slices.iter_mut().zip(&self.segments) {
                let skip = if used == 0 { self.first_done } else { 0 };
                *slice = IoSlice::new(&segment.as_bytes()[skip..]);
                used += 1;
            }
            match sys::send_vectored(fd, &slices[..used]) {
                Ok(count) => {
                    turn_bytes += count;
                    self.advance(count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Written::Blocked),
                Err(error) => return Err(error),
            }
        }
        Ok(Written::All)
    }

    fn advance(&mut self, mut count: usize) {
        self.queued_bytes -= count;
        while let Some(first) = self.segments.front() {
            let left = first.as_bytes().len() - self.first_done;
            if count < left {
                self.first_done += count;
                return;
            }
            count -= left;
            self.first_done = 0;
            if let Some(Segment::Run(run)) = self.segments.pop_front()
                && run.capacity() <= 2 * RUN_BYTES
            {
                self.spare = run;
            }
        }
    }
}
