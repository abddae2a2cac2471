//! How a file is cut into stripes: pure arithmetic, no layer.

use crate::limits::{FILE_BYTES_MAX, STRIPE_BYTES_MAX, STRIPE_BYTES_MIN, STRIPES_MAX};
use crate::{Extent, FileId, ResourceId};

/// How the bytes of a file are laid over its stripes: round robin in units of `stripe_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Layout {
    stripe_count: u32,
    stripe_bytes: u64,
}

/// The part of an operation that falls into one unit of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// Which stripe.
    pub stripe: u32,
    /// Where in the stripe (the stripe's own offsets).
    pub extent: Extent,
    /// Where the piece starts, counted from the start of the operation, in bytes.
    pub offset: u64,
}

impl Layout {
    /// A layout; `None` if a value is out of range (1..=2048 stripes; 4 KiB..=1 TiB, a multiple of 4 KiB).
    #[must_use]
    pub fn new(stripe_count: u32, stripe_bytes: u64) -> Option<Layout> {
        let count_ok = (1..=STRIPES_MAX).contains(&stripe_count);
        let bytes_ok = (STRIPE_BYTES_MIN..=STRIPE_BYTES_MAX).contains(&stripe_bytes)
            && stripe_bytes.is_multiple_of(4096);
        (count_ok && bytes_ok).then_some(Layout { stripe_count, stripe_bytes })
    }

    /// Number of stripes.
    #[must_use]
    pub const fn stripe_count(&self) -> u32 {
        self.stripe_count
    }

    /// Bytes in one unit.
    #[must_use]
    pub const fn stripe_bytes(&self) -> u64 {
        self.stripe_bytes
    }

    /// The lock resource of a stripe.
    #[must_use]
    pub const fn resource(&self, file: FileId, stripe: u32) -> ResourceId {
        ResourceId { file, stripe }
    }

    /// Cuts `[start, end)` of the file into pieces, in file order. Pieces that follow each other in the file and in
    /// the stripe (a single-striped file) are one piece.
    pub fn pieces(&self, file: Extent) -> impl Iterator<Item = Piece> + use<> {
        let layout = *self;
        let mut at = file.start();
        core::iter::from_fn(move || {
            if at >= file.end() {
                return None;
            }
            let unit = at / layout.stripe_bytes;
            let stripe = u32::try_from(unit % u64::from(layout.stripe_count)).expect("below stripe_count");
            let end = if layout.stripe_count == 1 {
                file.end()
            } else {
                file.end().min((unit + 1).saturating_mul(layout.stripe_bytes))
            };
            let local = layout.local_offset(at);
            let piece = Piece {
                stripe,
                extent: Extent::with_length(local, end - at).expect("not empty: at < end"),
                offset: at - file.start(),
            };
            at = end;
            Some(piece)
        })
    }

    /// The extent of each touched stripe that takes in all of `file` that lies there, in stripe order: what an operation locks.
    ///
    /// An extent to end of file touches every stripe to its end.
    pub fn stripe_hulls(&self, file: Extent) -> impl Iterator<Item = (u32, Extent)> + use<> {
        let layout = *self;
        (0..layout.stripe_count).filter_map(move |stripe| {
            let start = layout.stripe_length(stripe, file.start());
            let end = if file.end() == Extent::EOF {
                Extent::EOF
            } else {
                layout.stripe_length(stripe, file.end())
            };
            Extent::new(start, end).map(|extent| (stripe, extent))
        })
    }

    /// The offset in its stripe of byte `offset` of the file.
    #[must_use]
    pub fn local_offset(&self, offset: u64) -> u64 {
        let unit = offset / self.stripe_bytes;
        unit / u64::from(self.stripe_count) * self.stripe_bytes + offset % self.stripe_bytes
    }

    /// How many bytes of the first `file_bytes` of the file lie in `stripe`.
    #[must_use]
    pub fn stripe_length(&self, stripe: u32, file_bytes: u64) -> u64 {
        let units = file_bytes / self.stripe_bytes;
        let rest = file_bytes % self.stripe_bytes;
        let (rounds, last) = (units / u64::from(self.stripe_count), units % u64::from(self.stripe_count));
        let stripe = u64::from(stripe);
        rounds * self.stripe_bytes
            + match stripe.cmp(&last) {
                core::cmp::Ordering::Less => self.stripe_bytes,
                core::cmp::Ordering::Equal => rest,
                core::cmp::Ordering::Greater => 0,
            }
    }

    /// The offset in the file of byte `local` of `stripe`.
    #[must_use]
    pub fn file_offset(&self, stripe: u32, local: u64) -> u64 {
        let unit = local / self.stripe_bytes;
        (unit * u64::from(self.stripe_count) + u64::from(stripe)) * self.stripe_bytes
            + local % self.stripe_bytes
    }

    /// The size a file must have at least when `stripe` is `length` bytes long (0 for an empty stripe).
    #[must_use]
    pub fn file_size(&self, stripe: u32, length: u64) -> u64 {
        match length.checked_sub(1) {
            Some(last) => self.file_offset(stripe, last).saturating_add(1).min(FILE_BYTES_MAX),
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn pieces_and_lengths_agree_with_counting_bytes() {
        let layout = Layout::new(3, 4096).unwrap();
        for (start, end) in [(0, 1), (4095, 4097), (5000, 40_000), (12_288, 24_576), (1, 100_000)] {
            let file = Extent::new(start, end).unwrap();
            let mut next = start;
            for piece in layout.pieces(file) {
                assert_eq!(piece.offset, next - start);
                assert_eq!(layout.file_offset(piece.stripe, piece.extent.start()), next);
                assert_eq!(layout.local_offset(next), piece.extent.start());
                next += piece.extent.length();
            }
            assert_eq!(next, end);
            let total: u64 =
                (0..3).map(|s| layout.stripe_length(s, end) - layout.stripe_length(s, start)).sum();
            assert_eq!(total, end - start);
        }
    }

    #[test]
    fn hulls_take_in_every_piece_and_nothing_of_other_stripes() {
        let layout = Layout::new(4, 4096).unwrap();
        let file = Extent::new(5000, 30_000).unwrap();
        let hulls: Vec<_> = layout.stripe_hulls(file).collect();
        for piece in layout.pieces(file) {
            assert!(hulls.iter().any(|(s, e)| *s == piece.stripe && e.contains(piece.extent)));
        }
        let bytes: u64 = hulls.iter().map(|(_, e)| e.length()).sum();
        assert_eq!(bytes, file.length());
        assert_eq!(layout.stripe_hulls(Extent::to_eof(5000)).count(), 4);
    }

    #[test]
    fn size_follows_from_the_longest_stripe() {
        let layout = Layout::new(2, 4096).unwrap();
        for size in [0_u64, 1, 4096, 4097, 8192, 8193, 20_000] {
            let found = (0..2).map(|s| layout.file_size(s, layout.stripe_length(s, size))).max();
            assert_eq!(found, Some(size));
        }
    }

    #[test]
    fn a_single_stripe_is_never_cut() {
        let layout = Layout::new(1, 1 << 20).unwrap();
        assert_eq!(layout.pieces(Extent::new(5, 1 << 30).unwrap()).count(), 1);
    }
}
