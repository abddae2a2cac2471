//! The client's end of an in-process connection.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Instant;

use crate::connection::{ConnectOptions, Connection, FrameSink, LinkError, Received, Wait};
use crate::frame::FrameHeader;
use crate::loopback::{BYTES_TO_SERVER_MAX, Hub, HubFrame, lock};
use crate::sys::{self, EventFd, Interest};

/// See the module.
pub(crate) struct LoopbackConnection {
    hub: Arc<Hub>,
    number: u64,
    readiness: Arc<EventFd>,
    options: ConnectOptions,
    /// Held by the thread that receives.
    receiving: Mutex<()>,
}

impl LoopbackConnection {
    pub(crate) fn new(
        hub: Arc<Hub>,
        number: u64,
        readiness: Arc<EventFd>,
        options: ConnectOptions,
    ) -> LoopbackConnection {
        LoopbackConnection { hub, number, readiness, options, receiving: Mutex::new(()) }
    }

    /// The next frame, if one is here.
    fn next(&self) -> Result<Option<HubFrame>, LinkError> {
        let mut links = lock(&self.hub.links);
        let Some(link) = links.get_mut(&self.number).filter(|link| !link.client_closed) else {
            return Err(LinkError::Closed);
        };
        match link.to_client.pop_front() {
            Some(frame) => {
                link.to_client_bytes -= frame.bytes();
                Ok(Some(frame))
            }
            None if link.server_closed => Err(LinkError::PeerClosed),
            None => {
                self.readiness.clear();
                Ok(None)
            }
        }
    }
}

/// Copies the bulk to its target and hands the frame over.
fn deliver(frame: &HubFrame, sink: &mut dyn FrameSink) {
    if !frame.bulk.is_empty() {
        let mut rest = &frame.bulk[..];
        let mut target: Vec<IoSliceMut<'_>> = sink.bulk_target(&frame.message, frame.bulk.len());
        for slice in &mut target {
            let (piece, behind) = rest.split_at(slice.len().min(rest.len()));
            slice[..piece.len()].copy_from_slice(piece);
            rest = behind;
        }
    }
    sink.frame(&frame.message, frame.bulk.len());
}

impl Connection for LoopbackConnection {
    fn send(&self, message: &[u8], bulk: &[IoSlice<'_>]) -> Result<(), LinkError> {
        let bulk = bulk.iter().map(|slice| &slice[..]).collect::<Vec<_>>().concat();
        FrameHeader::new(message.len(), bulk.len()).map_err(LinkError::TooLarge)?;
        let frame = HubFrame { message: message.to_vec(), bulk };
        let give_up = Instant::now() + self.options.stall_timeout;
        let mut links = lock(&self.hub.links);
        loop {
            let Some(link) = links.get_mut(&self.number).filter(|link| !link.client_closed) else {
                return Err(LinkError::Closed);
            };
            if link.server_closed {
                return Err(LinkError::PeerClosed);
            }
            if link.to_server_bytes == 0 || link.to_server_bytes + frame.bytes() <= BYTES_TO_SERVER_MAX {
                link.to_server_bytes += frame.bytes();
                link.to_server.push_back(frame);
                break;
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(links);
                self.close();
                return Err(LinkError::Stalled { waited: self.options.stall_timeout });
            }
            (links, _) = self.hub.room.wait_timeout(links, left).unwrap_or_else(PoisonError::into_inner);
        }
        drop(links);
        self.hub.target.nudge();
        Ok(())
    }

    fn receive(&self, wait: Wait, sink: &mut dyn FrameSink) -> Result<Received, LinkError> {
        let deadline = match wait {
            Wait::Forever => None,
            Wait::For(limit) => Instant::now().checked_add(limit),
        };
        let _turn = lock(&self.receiving);
        loop {
            if let Some(frame) = self.next()? {
                deliver(&frame, sink);
                return Ok(Received::Frame);
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(Received::TimedOut);
            }
            sys::wait(self.readiness.as_raw_fd(), Interest::Readable, left)
                .map_err(|error| LinkError::from_io(&error))?;
        }
    }

    fn receive_ready(&self, sink: &mut dyn FrameSink) -> Result<usize, LinkError> {
        let _turn = match self.receiving.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(0),
        };
        let mut frames = 0;
        loop {
            match self.next() {
                Ok(Some(frame)) => {
                    deliver(&frame, sink);
                    frames += 1;
                }
                Ok(None) => return Ok(frames),
                Err(_) if frames > 0 => return Ok(frames),
                Err(error) => return Err(error),
            }
        }
    }

    fn readiness(&self) -> RawFd {
        self.readiness.as_raw_fd()
    }

    fn close(&self) {
        let mut links = lock(&self.hub.links);
        if let Some(link) = links.get_mut(&self.number) {
            link.client_closed = true;
            link.to_client.clear();
            link.to_client_bytes = 0;
            if link.server_closed {
                links.remove(&self.number);
            }
        }
        drop(links);
        self.readiness.set();
        self.hub.room.notify_all();
        self.hub.target.nudge();
    }
}

impl Drop for LoopbackConnection {
    fn drop(&mut self) {
        self.close();
    }
}
