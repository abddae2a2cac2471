//! The record in a stub file, docs/format.md.

use ccpfs_types::{FileId, Layout};
use core::fmt;

/// Bytes of a stub.
pub const STUB_BYTES: usize = 64;
/// Version of the record that this build writes. It also reads version 1, which says nothing about the contents.
pub const STUB_VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"ccPFS\x00\xf5\n";
const VERSION_1: u32 = 1;

const SEALED: u64 = 1;
const VIRGIN: u64 = 1 << 1;
const SOLE: u64 = 1 << 2;
const UNWATCHED: u64 = 1 << 3;
const FLAGS: u64 = SEALED | VIRGIN | SOLE | UNWATCHED;
/// Stored blocks stand above eight bits of flags.
const BLOCKS_SHIFT: u32 = 8;

/// What the namespace knows of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stub {
    /// The file.
    pub file: FileId,
    /// How it is striped.
    pub layout: Layout,
    /// Number of targets of the cluster when it was created: placement depends on it.
    pub targets: u32,
    /// What is known about its contents.
    pub state: StubState,
}

/// What a stub says about the contents of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StubState {
    /// Nobody has it open for writing: size and space are those of the record, times those of the stub.
    Sealed(Contents),
    /// Somebody may have it open for writing: the servers know.
    Unsealed {
        /// No server has ever heard of the file, as long as the `sole` client has written nothing.
        virgin: bool,
        /// Only one client has opened it for writing since it was made or sealed last.
        sole: bool,
    },
    /// As unsealed, and it must not be sealed: somebody has opened it for writing who cannot be seen in the registry of open files.
    Unwatched,
}

/// Contents that do not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Contents {
    /// Bytes; below 2^63.
    pub size: u64,
    /// Blocks of 4,096 bytes on the servers' devices; below 2^56.
    pub blocks: u64,
    /// No server has ever heard of the file.
    pub virgin: bool,
}

impl Contents {
    /// Those of a new file.
    pub const NOTHING: Contents = Contents { size: 0, blocks: 0, virgin: true };
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
    /// The layout is out of range, or what is said about the contents contradicts itself.
    Layout,
}

impl fmt::Display for StubError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StubError::Length(bytes) => write!(f, "it has {bytes} bytes, a stub has {STUB_BYTES}"),
            StubError::Magic => f.write_str("it does not begin like a stub (was it written without ccPFS?)"),
            StubError::Version(version) => {
                write!(f, "it has version {version}, this build reads up to {STUB_VERSION}")
            }
            StubError::Checksum => f.write_str("its checksum is wrong"),
            StubError::Layout => f.write_str("its layout or its contents are out of range"),
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
        let (flags, size) = self.state.encode();
        bytes[44..52].copy_from_slice(&flags.to_le_bytes());
        bytes[52..60].copy_from_slice(&size.to_le_bytes());
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
        if !(VERSION_1..=STUB_VERSION).contains(&version) {
            return Err(StubError::Version(version));
        }
        if crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Err(StubError::Checksum);
        }
        let mut file = [0; 16];
        file.copy_from_slice(&bytes[12..28]);
        let layout = Layout::new(u32_at(bytes, 28), u64_at(bytes, 32)).ok_or(StubError::Layout)?;
        let state = match version {
            VERSION_1 => StubState::Unsealed { virgin: false, sole: false },
            _ => StubState::decode(u64_at(bytes, 44), u64_at(bytes, 52)).ok_or(StubError::Layout)?,
        };
        Ok(Stub { file: FileId(file), layout, targets: u32_at(bytes, 40), state })
    }

    /// The same record with another state.
    #[must_use]
    pub const fn with(self, state: StubState) -> Stub {
        Stub { state, ..self }
    }
}

impl StubState {
    /// Of a file that was just made, by whoever opens it for writing.
    pub const NEW: StubState = StubState::Unsealed { virgin: true, sole: true };

    fn encode(self) -> (u64, u64) {
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        match self {
            StubState::Sealed(Contents { size, blocks, virgin }) => {
                assert!(blocks < 1 << (64 - BLOCKS_SHIFT), "a device cannot have so many blocks");
                (SEALED | flag(virgin, VIRGIN) | (blocks << BLOCKS_SHIFT), size)
            }
            StubState::Unsealed { virgin, sole } => (flag(virgin, VIRGIN) | flag(sole, SOLE), 0),
            StubState::Unwatched => (UNWATCHED, 0),
        }
    }

    fn decode(flags: u64, size: u64) -> Option<StubState> {
        let blocks = flags >> BLOCKS_SHIFT;
        let has = |flag: u64| flags & flag != 0;
        let known = flags & u64::from(u8::MAX) & !FLAGS == 0;
        if !known || i64::try_from(size).is_err() {
            return None;
        }
        if has(SEALED) {
            let sealed = StubState::Sealed(Contents { size, blocks, virgin: has(VIRGIN) });
            return (!has(SOLE) && !has(UNWATCHED)).then_some(sealed);
        }
        if size != 0 || blocks != 0 || (has(UNWATCHED) && (has(VIRGIN) || has(SOLE))) {
            return None;
        }
        Some(if has(UNWATCHED) {
            StubState::Unwatched
        } else {
            StubState::Unsealed { virgin: has(VIRGIN), sole: has(SOLE) }
        })
    }

    /// What the record has to say when a client opens the file for writing that did not have it open so. `watched` is whether the
    /// registry of open files shows that it does. `None` if it need not be written again.
    #[must_use]
    pub const fn opened_for_writing(self, watched: bool) -> Option<StubState> {
        match (self, watched) {
            (StubState::Unwatched, true | false) => None,
            (StubState::Sealed(_) | StubState::Unsealed { .. }, false) => Some(StubState::Unwatched),
            (StubState::Sealed(Contents { virgin, .. }), true) => {
                Some(StubState::Unsealed { virgin, sole: true })
            }
            (StubState::Unsealed { virgin: false, sole: false }, true) => None,
            (StubState::Unsealed { .. }, true) => Some(StubState::Unsealed { virgin: false, sole: false }),
        }
    }
}

fn u32_at(bytes: &[u8; STUB_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8; STUB_BYTES], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
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
        let state = StubState::Sealed(Contents { size: 77, blocks: 1 << 40, virgin: false });
        Stub { file: FileId([9; 16]), layout: Layout::new(4, 1 << 20).unwrap(), targets: 2, state }
    }

    fn states() -> [StubState; 7] {
        [
            StubState::NEW,
            StubState::Unsealed { virgin: false, sole: true },
            StubState::Unsealed { virgin: true, sole: false },
            StubState::Unsealed { virgin: false, sole: false },
            StubState::Unwatched,
            StubState::Sealed(Contents::NOTHING),
            StubState::Sealed(Contents { size: i64::MAX as u64, blocks: (1 << 56) - 1, virgin: false }),
        ]
    }

    #[test]
    fn every_state_is_read_as_it_was_written() {
        for state in states() {
            assert_eq!(Stub::decode(&stub().with(state).encode()), Ok(stub().with(state)));
        }
    }

    #[test]
    fn states_that_contradict_themselves_are_refused() {
        for flags in [SEALED | SOLE, SEALED | UNWATCHED, UNWATCHED | VIRGIN, 1 << 4, 1 << BLOCKS_SHIFT] {
            assert_eq!(StubState::decode(flags, 0), None, "{flags:#x}");
        }
        assert_eq!(StubState::decode(0, 1), None, "a size that nobody vouches for");
        assert_eq!(StubState::decode(SEALED, 1 << 63), None);
    }

    #[test]
    fn a_record_of_version_1_says_nothing_about_the_contents() {
        let mut bytes = stub().with(StubState::Unwatched).encode();
        bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
        bytes[44..60].fill(0);
        let checksum = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&checksum.to_le_bytes());
        let state = StubState::Unsealed { virgin: false, sole: false };
        assert_eq!(Stub::decode(&bytes), Ok(stub().with(state)));
    }

    #[test]
    fn whoever_opens_for_writing_leaves_a_record_that_nobody_can_misread() {
        for state in states() {
            let after = state.opened_for_writing(true).unwrap_or(state);
            assert!(!matches!(after, StubState::Sealed(_)), "{state:?}");
            // The second client's opening says that the first one is not alone.
            let second = after.opened_for_writing(true).unwrap_or(after);
            assert!(!matches!(second, StubState::Unsealed { sole: true, .. } | StubState::Sealed(_)));
            assert_eq!(state.opened_for_writing(false).unwrap_or(state), StubState::Unwatched);
        }
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
