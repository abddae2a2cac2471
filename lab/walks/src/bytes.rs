//! Contents without bytes: each byte is the number of the write that made it.

use crate::text;
use ccpfs_types::{Extent, ExtentMap};

/// Who wrote a byte: a write's number, or nobody (a zero).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Byte {
    /// Zero: a hole, or what a truncate left.
    Zero,
    /// Written by the write of this number.
    Write(u32),
}

impl Byte {
    pub(crate) fn name(self) -> String {
        match self {
            Byte::Zero => String::from("zero"),
            Byte::Write(number) => format!("w{number}"),
        }
    }
}

/// Bytes of a page, a message or a device; what has no entry was never written.
pub(crate) type Bytes = ExtentMap<Byte>;

/// The bytes of `from` inside `extent`, moved so that `extent` begins at `to`.
pub(crate) fn copied(from: &Bytes, extent: Extent, to: u64) -> Bytes {
    let mut bytes = Bytes::new();
    for (part, byte) in from.within(extent) {
        bytes.insert(shifted(part, extent.start(), to), byte);
    }
    bytes
}

/// `part`, which is counted from `base`, counted from `to`.
pub(crate) fn shifted(part: Extent, base: u64, to: u64) -> Extent {
    Extent::with_length(part.start() - base + to, part.length()).expect("offsets in a walk are small")
}

/// Puts `bytes` over what was there.
pub(crate) fn overlay(onto: &mut Bytes, bytes: &Bytes) {
    for (extent, byte) in bytes.iter() {
        onto.insert(extent, byte);
    }
}

/// `0..4K w1, 4K..8K w2`; without offsets `w1 w2`.
pub(crate) fn describe(bytes: &Bytes, extent: Extent, offsets: bool) -> String {
    let part = |(part, byte): (Extent, Byte)| match offsets {
        true => format!("{} {}", text::extent(part), byte.name()),
        false => byte.name(),
    };
    let parts: Vec<String> = bytes.within(extent).map(part).collect();
    match (parts.is_empty(), offsets) {
        (true, _) => String::from("nothing"),
        (false, true) => parts.join(", "),
        (false, false) => parts.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_move_with_their_extent() {
        let mut bytes = Bytes::new();
        bytes.insert(Extent::new(0, 10).unwrap(), Byte::Write(1));
        bytes.insert(Extent::new(10, 20).unwrap(), Byte::Zero);
        let moved = copied(&bytes, Extent::new(5, 15).unwrap(), 100);
        assert_eq!(describe(&moved, Extent::WHOLE, true), "100..105 w1, 105..110 zero");
        assert_eq!(describe(&moved, Extent::to_eof(110), false), "nothing");
    }
}
