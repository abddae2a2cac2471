//! The dumb twin of a section: one bit for each byte of a small universe, and random shapes to compare.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_region::{Region, RegionError, Section, UNBOUNDED};
use ccpfs_types::Extent;

/// A set of bytes `[base, base + 64 * words)`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Bits {
    pub(crate) base: u64,
    words: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(base: u64, words: usize) -> Bits {
        Bits { base, words: vec![0; words] }
    }

    /// One past the last byte; bytes at and beyond the end of all files do not exist.
    pub(crate) fn end(&self) -> u64 {
        self.base.saturating_add(64 * self.words.len() as u64)
    }

    pub(crate) fn has(&self, offset: u64) -> bool {
        let at = (offset - self.base) as usize;
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    /// Sets a byte; says whether it was clear.
    pub(crate) fn set(&mut self, offset: u64) -> bool {
        let at = (offset - self.base) as usize;
        let clear = !self.has(offset);
        self.words[at / 64] |= 1 << (at % 64);
        clear
    }

    pub(crate) fn set_extent(&mut self, extent: Extent) {
        for offset in extent.start().max(self.base)..extent.end().min(self.end()) {
            self.set(offset);
        }
    }

    pub(crate) fn add(&mut self, other: &Bits) {
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    pub(crate) fn first_common(&self, other: &Bits) -> Option<u64> {
        let both = |(at, (a, b)): (usize, (&u64, &u64))| {
            (a & b != 0).then(|| self.base + 64 * at as u64 + u64::from((a & b).trailing_zeros()))
        };
        self.words.iter().zip(&other.words).enumerate().find_map(both)
    }

    pub(crate) fn contains(&self, other: &Bits) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| b & !a == 0)
    }

    pub(crate) fn count_before(&self, offset: u64) -> u64 {
        (self.base..offset.min(self.end())).filter(|offset| self.has(*offset)).count() as u64
    }

    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        (self.base..self.end()).filter(|offset| self.has(*offset))
    }

    /// What of the bytes is (not) in the extent.
    pub(crate) fn split(&self, extent: Extent) -> (Bits, Bits) {
        let (mut inside, mut outside) = (Bits::new(self.base, self.words.len()), self.clone());
        for offset in extent.start().max(self.base)..extent.end().min(self.end()) {
            if self.has(offset) {
                inside.set(offset);
            }
            let at = (offset - self.base) as usize;
            outside.words[at / 64] &= !(1 << (at % 64));
        }
        (inside, outside)
    }

    /// The pieces of a region as bits; asserts that they rise and are disjoint.
    pub(crate) fn of_region(region: &Region, base: u64, words: usize) -> Bits {
        let mut bits = Bits::new(base, words);
        let mut end = 0;
        let all = bits.end();
        for piece in region.pieces().take_while(|piece| piece.start() < all) {
            assert!(piece.start() >= end, "{region}: pieces rise");
            end = piece.end();
            bits.set_extent(piece);
        }
        bits
    }
}

/// A section as numbers, not in normal form and perhaps nonsense.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Shape {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) levels: Vec<(u64, u64)>,
}

impl Shape {
    pub(crate) fn section(&self) -> Result<Section, RegionError> {
        Section::new(self.offset, self.length, &self.levels)
    }

    /// The bytes, one by one; `None` if a byte would be there twice, or the first copy of an unbounded level would
    /// reach beyond the end of all files.
    pub(crate) fn bits(&self, base: u64, words: usize) -> Option<Bits> {
        let mut bits = Bits::new(base, words);
        let bounded = self.levels.iter().filter(|(_, count)| *count != UNBOUNDED);
        let steps = bounded.map(|(stride, count)| u128::from(*stride) * u128::from(*count - 1));
        let end = u128::from(self.offset) + steps.sum::<u128>() + u128::from(self.length);
        if end > u128::from(Extent::EOF) {
            return None;
        }
        let end = u128::from(bits.end());
        let mut starts = vec![u128::from(self.offset)];
        for (stride, count) in &self.levels {
            let copies = |start: u128| (0..u128::from(*count)).map(move |i| start + i * u128::from(*stride));
            starts = starts.iter().flat_map(|start| copies(*start).take_while(|copy| *copy < end)).collect();
        }
        for start in starts {
            for byte in start..(start + u128::from(self.length)).min(end) {
                if !bits.set(byte as u64) {
                    return None;
                }
            }
        }
        Some(bits)
    }
}

/// A small generator of numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// A shape of up to three levels that mostly nest. Its first copy ends before `base + 160`; unbounded once in a while.
    pub(crate) fn shape(&mut self, base: u64) -> Shape {
        let length = 1 + self.below(5);
        let mut levels = Vec::new();
        let mut span = length;
        for _ in 0..self.below(4) {
            if span > 60 {
                break;
            }
            let stride = if self.one_in(8) { 1 + self.below(24) } else { span + self.below(12) };
            let count = 1 + self.below(4);
            levels.push((stride, count));
            span += stride * (count - 1);
        }
        if self.one_in(4) {
            levels.push((span + self.below(24), UNBOUNDED));
        }
        if self.one_in(4) {
            levels.reverse();
        }
        Shape { offset: base + self.below(48), length, levels }
    }
}

/// Bytes of a unit of the layouts that are compared.
pub(crate) const UNIT: u64 = 4096;

/// A shape about as large as some rounds of a layout, from `base` on; its strides share divisors with the unit, or none.
pub(crate) fn striped_shape(random: &mut Random, base: u64) -> Shape {
    let grain = [1, 16, 64, 512, 1024, 4096][random.below(6) as usize];
    let mut levels = Vec::new();
    let length_max = [grain, 300, 6000][random.below(3) as usize];
    let length = 1 + random.below(1 + length_max);
    let mut span = length;
    while levels.len() < 3 && span < 20_000 && !random.one_in(4) {
        let least = span.div_ceil(grain);
        let stride = if random.one_in(3) {
            (least * grain).next_multiple_of(UNIT * (1 + random.below(4)))
        } else {
            (least + random.below(6)) * grain
        };
        let count = (1 + random.below(1 + (60_000 / stride).min(200))).min(1 + 60_000 / stride);
        span += stride * (count - 1);
        levels.push((stride, count));
    }
    if random.one_in(4) {
        levels.push(((span + random.below(9000)).next_multiple_of(grain), UNBOUNDED));
    }
    Shape { offset: base + random.below(30_000) / grain * grain, length, levels }
}
