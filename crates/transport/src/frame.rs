//! The frame that sockets carry: a 16-byte header, a small message, bulk bytes.
//!
//! Header, all little-endian: magic `u32`, format version `u16`, reserved `u16` (zero), message length
//! in bytes `u32`, bulk length in bytes `u32`. Both lengths are bounded, so that no header can make a
//! receiver allocate more than the limits below.

use thiserror::Error;

/// The longest message of one frame, in bytes.
pub const FRAME_MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// The longest bulk of one frame, in bytes.
pub const FRAME_BULK_BYTES_MAX: u32 = 16 << 20;
/// The version of the frame format this build speaks. Message formats have a version of their own.
pub const FRAME_FORMAT_VERSION: u16 = 1;
/// Length of a frame header, in bytes.
pub const FRAME_HEADER_BYTES: usize = 16;

/// The first four bytes of every frame: `cPFS` read as text.
const MAGIC: u32 = u32::from_le_bytes(*b"cPFS");

/// What a frame header says: how many bytes of message and of bulk follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of message that follow, at most [`FRAME_MESSAGE_BYTES_MAX`].
    pub message_bytes: u32,
    /// Bytes of bulk behind the message, at most [`FRAME_BULK_BYTES_MAX`].
    pub bulk_bytes: u32,
}

/// Why sixteen bytes are not a frame header, or a frame may not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// The peer does not speak this protocol.
    #[error("not a ccPFS frame (magic {found:#010x})")]
    BadMagic {
        /// What stood where the magic belongs.
        found: u32,
    },
    /// The peer frames differently.
    #[error("frame format version {found} is not supported (this side speaks {FRAME_FORMAT_VERSION})")]
    UnsupportedVersion {
        /// The peer's version.
        found: u16,
    },
    /// The reserved field is in use, which this version does not understand.
    #[error("reserved field of the frame header is {found:#06x}, not zero")]
    ReservedNotZero {
        /// What stood there.
        found: u16,
    },
    /// The message is longer than [`FRAME_MESSAGE_BYTES_MAX`].
    #[error("message of {bytes} bytes is over the limit of {FRAME_MESSAGE_BYTES_MAX}")]
    MessageTooLarge {
        /// The announced length.
        bytes: u64,
    },
    /// The bulk is longer than [`FRAME_BULK_BYTES_MAX`].
    #[error("bulk of {bytes} bytes is over the limit of {FRAME_BULK_BYTES_MAX}")]
    BulkTooLarge {
        /// The announced length.
        bytes: u64,
    },
}

impl FrameHeader {
    /// A header for these lengths in bytes, or which of them is over its limit.
    pub fn new(message_bytes: usize, bulk_bytes: usize) -> Result<FrameHeader, FrameError> {
        let message = u32::try_from(message_bytes).ok().filter(|bytes| *bytes <= FRAME_MESSAGE_BYTES_MAX);
        let bulk = u32::try_from(bulk_bytes).ok().filter(|bytes| *bytes <= FRAME_BULK_BYTES_MAX);
        Ok(FrameHeader {
            message_bytes: message.ok_or(FrameError::MessageTooLarge { bytes: message_bytes as u64 })?,
            bulk_bytes: bulk.ok_or(FrameError::BulkTooLarge { bytes: bulk_bytes as u64 })?,
        })
    }

    /// The sixteen bytes that go in front of the message.
    pub fn encode(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&FRAME_FORMAT_VERSION.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.message_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.bulk_bytes.to_le_bytes());
        bytes
    }

    /// Reads a header; every field is checked.
    pub fn decode(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<FrameHeader, FrameError> {
        let [m0, m1, m2, m3, v0, v1, r0, r1, a0, a1, a2, a3, b0, b1, b2, b3] = *bytes;
        let magic = u32::from_le_bytes([m0, m1, m2, m3]);
        if magic != MAGIC {
            return Err(FrameError::BadMagic { found: magic });
        }
        let version = u16::from_le_bytes([v0, v1]);
        if version != FRAME_FORMAT_VERSION {
            return Err(FrameError::UnsupportedVersion { found: version });
        }
        let reserved = u16::from_le_bytes([r0, r1]);
        if reserved != 0 {
            return Err(FrameError::ReservedNotZero { found: reserved });
        }
        let message_bytes = u32::from_le_bytes([a0, a1, a2, a3]);
        if message_bytes > FRAME_MESSAGE_BYTES_MAX {
            return Err(FrameError::MessageTooLarge { bytes: message_bytes.into() });
        }
        let bulk_bytes = u32::from_le_bytes([b0, b1, b2, b3]);
        if bulk_bytes > FRAME_BULK_BYTES_MAX {
            return Err(FrameError::BulkTooLarge { bytes: bulk_bytes.into() });
        }
        Ok(FrameHeader { message_bytes, bulk_bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_header_survives_encode_and_decode(
            message_bytes in 0..=FRAME_MESSAGE_BYTES_MAX,
            bulk_bytes in 0..=FRAME_BULK_BYTES_MAX,
        ) {
            let header = FrameHeader { message_bytes, bulk_bytes };
            prop_assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn whatever_decodes_is_within_the_limits_and_encodes_back(bytes in any::<[u8; FRAME_HEADER_BYTES]>()) {
            if let Ok(header) = FrameHeader::decode(&bytes) {
                prop_assert!(header.message_bytes <= FRAME_MESSAGE_BYTES_MAX);
                prop_assert!(header.bulk_bytes <= FRAME_BULK_BYTES_MAX);
                prop_assert_eq!(header.encode(), bytes);
            }
        }

        #[test]
        fn one_changed_byte_never_passes_as_another_magic_version_or_reserved_field(
            position in 0usize..8,
            change in 1u8..,
        ) {
            let mut bytes = FrameHeader { message_bytes: 7, bulk_bytes: 9 }.encode();
            bytes[position] ^= change;
            prop_assert!(FrameHeader::decode(&bytes).is_err());
        }
    }

    #[test]
    fn lengths_over_the_limits_are_named() {
        let message = FRAME_MESSAGE_BYTES_MAX as usize + 1;
        let bulk = FRAME_BULK_BYTES_MAX as usize + 1;
        assert_eq!(FrameHeader::new(message, 0), Err(FrameError::MessageTooLarge { bytes: message as u64 }));
        assert_eq!(FrameHeader::new(0, bulk), Err(FrameError::BulkTooLarge { bytes: bulk as u64 }));
        let encoded = FrameHeader { message_bytes: 0, bulk_bytes: u32::MAX }.encode();
        let expected = Err(FrameError::BulkTooLarge { bytes: u32::MAX.into() });
        assert_eq!(FrameHeader::decode(&encoded), expected);
    }
}
