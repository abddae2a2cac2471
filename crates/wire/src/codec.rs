//! Packing messages into frames and taking them out again, each step checked.

use crate::Message;
use alloc::string::String;
use alloc::vec::Vec;
use ccpfs_types::{
    ClientId, Expansion, Extent, FileId, GroupId, LockId, LockMode, LockState, Policy, RequestId, ResourceId,
    Sn,
};
use core::fmt;

/// Why bytes are not messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end in the middle of a message.
    Truncated,
    /// No message has this kind.
    UnknownKind(u16),
    /// A field has a value that it cannot have.
    BadValue(&'static str),
    /// A message is longer than its contents.
    TrailingBytes,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("the message ends too early"),
            DecodeError::UnknownKind(kind) => write!(f, "unknown message kind {kind}"),
            DecodeError::BadValue(field) => write!(f, "bad value for {field}"),
            DecodeError::TrailingBytes => f.write_str("the message is longer than its contents"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads fields from the front of a slice.
pub struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] if fewer are left.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (head, tail) = self.bytes.split_at_checked(count).ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(head)
    }

    /// Whether everything was read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes are left.
    #[must_use]
    pub const fn left(&self) -> usize {
        self.bytes.len()
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N)?;
        bytes.try_into().map_err(|_| DecodeError::Truncated)
    }
}

/// A value with a fixed encoding.
pub trait Field: Sized {
    /// Fewest bytes that a value takes: bounds how many elements a list in so many bytes can have.
    const BYTES_MIN: usize;
    /// Appends the value.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes a value.
    ///
    /// # Errors
    /// When the bytes are no such value.
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

macro_rules! integer {
    ($($type:ty),*) => {$(
        impl Field for $type {
            const BYTES_MIN: usize = size_of::<$type>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(<$type>::from_le_bytes(reader.array()?))
            }
        }
    )*};
}
integer!(u8, u16, u32, u64, i32, i64);

macro_rules! number {
    ($($type:ident),*) => {$(
        impl Field for $type {
            const BYTES_MIN: usize = 8;
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($type(u64::take(reader)?))
            }
        }
    )*};
}
number!(ClientId, GroupId, LockId, RequestId, Sn);

impl Field for bool {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::BadValue("flag")),
        }
    }
}

impl Field for FileId {
    const BYTES_MIN: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(FileId(reader.array()?))
    }
}

impl Field for ResourceId {
    const BYTES_MIN: usize = 20;
    fn put(&self, out: &mut Vec<u8>) {
        self.file.put(out);
        self.stripe.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(ResourceId { file: FileId::take(reader)?, stripe: u32::take(reader)? })
    }
}

impl Field for Extent {
    const BYTES_MIN: usize = 16;
    fn put(&self, out: &mut Vec<u8>) {
        self.start().put(out);
        self.end().put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (start, end) = (u64::take(reader)?, u64::take(reader)?);
        Extent::new(start, end).ok_or(DecodeError::BadValue("extent"))
    }
}

impl Field for LockMode {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            LockMode::Pr => 0,
            LockMode::Nbw => 1,
            LockMode::Bw => 2,
            LockMode::Pw => 3,
        });
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(LockMode::Pr),
            1 => Ok(LockMode::Nbw),
            2 => Ok(LockMode::Bw),
            3 => Ok(LockMode::Pw),
            _ => Err(DecodeError::BadValue("lock mode")),
        }
    }
}

impl Field for LockState {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            LockState::Granted => 0,
            LockState::Canceling => 1,
        });
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::take(reader)? {
            0 => Ok(LockState::Granted),
            1 => Ok(LockState::Canceling),
            _ => Err(DecodeError::BadValue("lock state")),
        }
    }
}

impl Field for Policy {
    const BYTES_MIN: usize = 11;
    fn put(&self, out: &mut Vec<u8>) {
        self.write_modes.put(out);
        self.early_grant.put(out);
        self.early_revocation.put(out);
        self.upgrading.put(out);
        self.downgrading.put(out);
        self.adaptive_range.put(out);
        out.push(match self.expansion {
            Expansion::Exact => 0,
            Expansion::Greedy => 1,
            Expansion::Lustre => 2,
            Expansion::PastWaiting => 3,
        });
        self.granularity_bytes.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut flag = || bool::take(reader);
        let (write_modes, early_grant, early_revocation) = (flag()?, flag()?, flag()?);
        let (upgrading, downgrading, adaptive_range) = (flag()?, flag()?, flag()?);
        let expansion = match u8::take(reader)? {
            0 => Expansion::Exact,
            1 => Expansion::Greedy,
            2 => Expansion::Lustre,
            3 => Expansion::PastWaiting,
            _ => return Err(DecodeError::BadValue("expansion")),
        };
        let granularity_bytes = u32::take(reader)?;
        if granularity_bytes == 0 {
            return Err(DecodeError::BadValue("granularity"));
        }
        Ok(Policy {
            write_modes,
            early_grant,
            early_revocation,
            upgrading,
            downgrading,
            adaptive_range,
            expansion,
            granularity_bytes,
        })
    }
}

impl Field for String {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = u32::take(reader)? as usize;
        let bytes = reader.take(length)?;
        core::str::from_utf8(bytes).map(String::from).map_err(|_| DecodeError::BadValue("text"))
    }
}

impl<T: Field> Field for Vec<T> {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        length(self.len()).put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let count = u32::take(reader)? as usize;
        if count > reader.left() / T::BYTES_MIN.max(1) {
            return Err(DecodeError::Truncated);
        }
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(T::take(reader)?);
        }
        Ok(items)
    }
}

impl<T: Field> Field for Option<T> {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.put(out);
            }
        }
    }
    fn take(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::take(reader)? { Some(T::take(reader)?) } else { None })
    }
}

fn length(count: usize) -> u32 {
    u32::try_from(count).expect("lists and texts in messages are bounded far below 4 Gi elements")
}

/// Appends one message to a batch: kind (u16), length of the body (u32), body.
pub fn encode_into(message: &Message, batch: &mut Vec<u8>) {
    message.kind().put(batch);
    let at = batch.len();
    0_u32.put(batch);
    message.put_body(batch);
    let body = length(batch.len() - at - 4);
    batch[at..at + 4].copy_from_slice(&body.to_le_bytes());
}

/// Takes the messages of a batch one after the other.
///
/// After an error the rest of the batch is not looked at: the peer speaks something else.
///
/// # Errors
/// Each item is a message or what was wrong with it.
pub fn decode_batch(batch: &[u8]) -> impl Iterator<Item = Result<Message, DecodeError>> + '_ {
    let mut reader = Reader::new(batch);
    let mut failed = false;
    core::iter::from_fn(move || {
        if failed || reader.is_empty() {
            return None;
        }
        let message = decode_one(&mut reader);
        failed = message.is_err();
        Some(message)
    })
}

fn decode_one(reader: &mut Reader<'_>) -> Result<Message, DecodeError> {
    let kind = u16::take(reader)?;
    let length = u32::take(reader)? as usize;
    let mut body = Reader::new(reader.take(length)?);
    let message = Message::take_body(kind, &mut body)?;
    if body.is_empty() { Ok(message) } else { Err(DecodeError::TrailingBytes) }
}
