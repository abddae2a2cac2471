//! Numbers that look random and follow from a seed.

/// A generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    /// True in `part` of `whole` cases.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// So many bytes, none of them zero, so that they differ from holes.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length + 8);
        while bytes.len() < length {
            bytes.extend(self.number().to_le_bytes().map(|byte| byte.max(1)));
        }
        bytes.truncate(length);
        bytes
    }
}
