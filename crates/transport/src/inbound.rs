//! The buffer between a socket's byte stream and whole frames; both sides of a connection use it.

use crate::frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader};

/// Room for small frames, in bytes; what one read takes in at most.
const ROOM_BYTES: usize = 64 << 10;
/// Least room offered to a read, in bytes.
const ROOM_BYTES_MIN: usize = 4 << 10;

/// Bytes that were read and belong to frames that are not yet consumed.
///
/// Memory follows the bytes that really arrived: an announced length alone allocates nothing.
#[derive(Debug)]
pub(crate) struct Inbound {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// The front of the buffer: a header and its complete message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    message_bytes: usize,
    /// Bulk bytes that belong to the frame, wherever they are.
    pub(crate) bulk_bytes: usize,
}

impl Head {
    fn bytes(self) -> usize {
        FRAME_HEADER_BYTES + self.message_bytes
    }
}

impl Inbound {
    pub(crate) fn new() -> Inbound {
        Inbound { bytes: vec![0; ROOM_BYTES], start: 0, end: 0 }
    }

    /// True if nothing is buffered: the stream stands between two frames.
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The next frame's head if its message has arrived completely; an error if the header is malformed.
    pub(crate) fn head(&self) -> Result<Option<Head>, FrameError> {
        let Some(header) = self.bytes[self.start..self.end].first_chunk::<FRAME_HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = FrameHeader::decode(header)?;
        let head =
            Head { message_bytes: header.message_bytes as usize, bulk_bytes: header.bulk_bytes as usize };
        Ok((self.end - self.start >= head.bytes()).then_some(head))
    }

    /// The message of `head`.
    pub(crate) fn message(&self, head: Head) -> &[u8] {
        &self.bytes[self.start + FRAME_HEADER_BYTES..self.start + head.bytes()]
    }

    /// What was read behind the message of `head`: bulk first, then further frames.
    pub(crate) fn behind(&self, head: Head) -> &[u8] {
        &self.bytes[self.start + head.bytes()..self.end]
    }

    /// Forgets everything behind the message; the caller has taken it as bulk.
    pub(crate) fn cut_behind(&mut self, head: Head) {
        self.end = self.start + head.bytes();
    }

    /// Forgets the frame: its head and `bulk_bytes` buffered behind it.
    pub(crate) fn consume(&mut self, head: Head, bulk_bytes: usize) {
        self.start += head.bytes() + bulk_bytes;
        assert!(self.start <= self.end, "only buffered bytes are consumed");
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > 4 * ROOM_BYTES {
                self.bytes.truncate(ROOM_BYTES);
                self.bytes.shrink_to_fit();
            }
        }
    }

    /// Where the next read may put bytes; never empty.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.bytes.len() - self.end < ROOM_BYTES_MIN {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.bytes.len() - self.end < ROOM_BYTES_MIN {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Notes that a read put `count` bytes into the room.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        assert!(self.end <= self.bytes.len(), "a read stays in its room");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(inbound: &mut Inbound, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = inbound.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            inbound.filled(count);
            bytes = &bytes[count..];
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_even_byte_by_byte() {
        let mut inbound = Inbound::new();
        let mut stream = FrameHeader::new(3, 2).unwrap().encode().to_vec();
        stream.extend(b"abcXY");
        for (index, byte) in stream.iter().enumerate() {
            assert_eq!(inbound.head().unwrap().is_some(), index >= 19);
            feed(&mut inbound, &[*byte]);
        }
        let head = inbound.head().unwrap().unwrap();
        assert_eq!((inbound.message(head), inbound.behind(head)), (&b"abc"[..], &b"XY"[..]));
        inbound.consume(head, 2);
        assert!(inbound.is_empty());
    }

    #[test]
    fn a_long_message_grows_the_buffer_and_its_end_shrinks_it() {
        let mut inbound = Inbound::new();
        let message = vec![5; 1 << 20];
        feed(&mut inbound, &FrameHeader::new(message.len(), 0).unwrap().encode());
        assert_eq!(inbound.bytes.len(), ROOM_BYTES);
        feed(&mut inbound, &message);
        let head = inbound.head().unwrap().unwrap();
        assert_eq!(inbound.message(head), message);
        inbound.consume(head, 0);
        assert_eq!(inbound.bytes.len(), ROOM_BYTES);
    }

    #[test]
    fn malformed_headers_are_reported() {
        let mut inbound = Inbound::new();
        feed(&mut inbound, b"GET / HTTP/1.1\r\n");
        assert!(matches!(inbound.head(), Err(FrameError::BadMagic { .. })));
    }
}
