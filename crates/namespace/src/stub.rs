//! The record in a stub file, docs/format.md.

use ccpfs_types::{FileId, Layout};
use core::fmt;

/// Bytes of a stub.
pub const STUB_BYTES: usize = 64;
/// Version of the record that this build writes and reads.
pub const STUB_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"ccPFS\x00\xf5\n";

/// What the namespace knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stub {
    /// The file.
    pub file: FileId,
    /// How it is striped.
    pub layout: Layout,
    /// Number of targets of the cluster when it was created: placement depends on it.
    pub targets: u32,
}

/// Why bytes are not a stub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StubError {
    /// The file has another size.
    Length(u64),
    /// It does not begin like a stub.
    Magic,
    /// It was written by another version.
    Version(u32),
    /// The checksum is wrong.
    Checksum,
    /// The layout is out of range.
    Layout,
}

impl fmt::Display for StubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StubError::Length(bytes) => write!(f, "it has {bytes} bytes, a stub has {STUB_BYTES}"),
            StubError::Magic => f.write_str("it does not begin like a stub (was it written without ccPFS?)"),
            StubError::Version(version) => {
                write!(f, "it has version {version}, this build reads {STUB_VERSION}")
            }
            StubError::Checksum => f.write_str("its checksum is wrong"),
            StubError::Layout => f.write_str("its layout is out of range"),
        }
    }
}

impl core::error::Error for StubError {}

impl Stub {
    /// The bytes of the record.
    #[must_use]
    pub fn encode(&self) -> [u8; STUB_BYTES] {
        let mut bytes = [0_u8; STUB_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&STUB_VERSION.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.file.0);
        bytes[28..32].copy_from_slice(&self.layout.stripe_count().to_le_bytes());
        bytes[32..40].copy_from_slice(&self.layout.stripe_bytes().to_le_bytes());
        bytes[40..44].copy_from_slice(&self.targets.to_le_bytes());
        let checksum = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a record.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Stub, StubError> {
        let bytes: &[u8; STUB_BYTES] = bytes.try_into().map_err(|_| StubError::Length(bytes.len() as u64))?;
        if bytes[0..8] != MAGIC {
            return Err(StubError::Magic);
        }
        let version = u32_at(bytes, 8);
        if version != STUB_VERSION {
            return Err(StubError::Version(version));
        }
        if crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(StubError::Checksum);
        }
        let mut file = [0; 16];
        file.copy_from_slice(&bytes[12..28]);
        let mut stripe_bytes = [0; 8];
        stripe_bytes.copy_from_slice(&bytes[32..40]);
        let layout =
            Layout::new(u32_at(bytes, 28), u64::from_le_bytes(stripe_bytes)).ok_or(StubError::Layout)?;
        Ok(Stub { file: FileId(file), layout, targets: u32_at(bytes, 40) })
    }
}

fn u32_at(bytes: &[u8; STUB_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// CRC-32C (Castagnoli), bit by bit: 60 bytes once per open.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stub() -> Stub {
        Stub { file: FileId([9; 16]), layout: Layout::new(4, 1 << 20).unwrap(), targets: 2 }
    }

    #[test]
    fn the_checksum_is_the_standard_one() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_is_encoded_is_decoded_and_any_flipped_bit_is_noticed() {
        let bytes = stub().encode();
        assert_eq!(Stub::decode(&bytes), Ok(stub()));
        for bit in 0..STUB_BYTES * 8 {
            let mut broken = bytes;
            broken[bit / 8] ^= 1 << (bit % 8);
            assert!(Stub::decode(&broken).is_err(), "bit {bit}");
        }
        assert_eq!(Stub::decode(&bytes[..10]), Err(StubError::Length(10)));
        assert_eq!(Stub::decode(&[0; STUB_BYTES]), Err(StubError::Magic));
    }
}
