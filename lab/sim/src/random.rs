//! One seeded generator: a 64-bit seed becomes a stream of numbers, and streams split by name.

/// A stream of numbers that depends on its seed alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    /// A stream of its own for one purpose: what is drawn from it changes nothing elsewhere.
    #[must_use]
    pub fn split(&self, name: &str) -> Random {
        let mut state = self.state ^ 0x9e37_79b9_7f4a_7c15;
        for byte in name.bytes() {
            state = mix(state ^ u64::from(byte));
        }
        Random { state }
    }

    /// 64 random bits.
    #[allow(clippy::should_implement_trait, reason = "a stream without an end is no iterator")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number in `0..bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let high = (u128::from(self.next()) * u128::from(bound)) >> 64;
        u64::try_from(high).expect("less than the bound")
    }

    /// A number in `from..=to`.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below((to - from).saturating_add(1))
    }

    /// True `count` times in a thousand.
    pub fn chance(&mut self, count: u64) -> bool {
        count > 0 && self.below(1000) < count
    }

    /// One of the items, which must not be empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let at = self.below(items.len() as u64);
        &items[usize::try_from(at).expect("an index")]
    }
}

const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream_and_names_give_others() {
        let (mut one, mut same) = (Random::new(7), Random::new(7));
        let mut other = one.split("net");
        let first: Vec<u64> = (0..4).map(|_| one.next()).collect();
        assert_eq!(first, (0..4).map(|_| same.next()).collect::<Vec<_>>());
        assert_ne!(first, (0..4).map(|_| other.next()).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_all_of_it() {
        let mut random = Random::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.below(5) as usize] = true;
        }
        assert_eq!((seen, random.below(0)), ([true; 5], 0));
        assert!(!random.chance(0) && random.chance(1000));
    }
}
