//! What clients write: data that say who wrote them, at no cost while the clock runs.
//!
//! Each rank has a base of random bytes. Transfer `k` is a slice of it that starts at a place depending on `k`, so writing
//! needs no generation, and a reader in another process can make the same bytes again.

/// Steps of eight bytes by which slices are shifted: a power of two.
const SHIFTS: u64 = 1 << 17;
/// Bytes of a base beyond one transfer.
const SLACK_BYTES: u64 = SHIFTS * 8;

/// What is found where a rank's data were expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// First wrong byte, counted from the start of the transfer.
    pub(crate) at: u64,
    /// How many bytes of the transfer are wrong.
    pub(crate) wrong_bytes: u64,
    /// What the bytes there are, for a person.
    pub(crate) found: String,
}

/// A small generator of random numbers (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }
}

/// The data of one rank in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankData {
    base: Vec<u8>,
    transfer_bytes: usize,
}

fn random_bytes(rank: u32, round: u32, count: usize) -> Vec<u8> {
    let mut random = Random((u64::from(round) << 32 | u64::from(rank)).wrapping_mul(0x2545_f491_4f6c_dd1d));
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

/// Where the slice of a transfer starts: all shifts come before one comes again, in a scattered order.
fn shift(transfer: u64) -> u64 {
    transfer.wrapping_mul(0x9e37_79b1) % SHIFTS * 8
}

fn base_bytes(transfer_bytes: u64) -> usize {
    usize::try_from(transfer_bytes + SLACK_BYTES).expect("a transfer fits into memory")
}

impl RankData {
    /// The data that `rank` writes in `round` by transfers of this size.
    pub(crate) fn new(rank: u32, round: u32, transfer_bytes: u64) -> RankData {
        let base = random_bytes(rank, round, base_bytes(transfer_bytes));
        RankData { base, transfer_bytes: usize::try_from(transfer_bytes).expect("fits into memory") }
    }

    /// The bytes of one transfer.
    pub(crate) fn transfer(&self, transfer: u64) -> &[u8] {
        let start = usize::try_from(shift(transfer)).expect("below the slack");
        &self.base[start..start + self.transfer_bytes]
    }

    /// Makes one byte of the first transfer wrong, to prove that a reader finds it.
    pub(crate) fn spoil(&mut self) {
        let start = usize::try_from(shift(0)).expect("below the slack");
        self.base[start + self.transfer_bytes / 2] ^= 1;
    }

    /// Compares what was read with what was written. `clients` ranks may have written in this round or before.
    pub(crate) fn check(
        &self,
        transfer: u64,
        found: &[u8],
        clients: u32,
        round: u32,
    ) -> Result<(), Mismatch> {
        let expected = self.transfer(transfer);
        if expected == found {
            return Ok(());
        }
        let pairs = || expected.iter().zip(found);
        let at = pairs().position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
        let missing = expected.len().abs_diff(found.len());
        let wrong = pairs().filter(|(a, b)| a != b).count() + missing;
        Err(Mismatch {
            at: u64::try_from(at).expect("below 2^64"),
            wrong_bytes: u64::try_from(wrong).expect("below 2^64"),
            found: self.recognise(&found[at..], clients, round),
        })
    }

    /// Who wrote these bytes.
    fn recognise(&self, found: &[u8], clients: u32, round: u32) -> String {
        let sample = &found[..found.len().min(16)];
        if sample.is_empty() {
            return "nothing: the file ends".to_owned();
        }
        if sample.iter().all(|byte| *byte == 0) {
            return "zeros: never written, or lost".to_owned();
        }
        if sample.len() < 8 {
            return "too few bytes to recognise".to_owned();
        }
        let count = self.base.len();
        for age in 0..=round.min(1) {
            for rank in 0..clients {
                if contains(&random_bytes(rank, round - age, count), sample) {
                    let age = if age == 0 { "" } else { " in the round before" };
                    return format!("data of rank {rank}{age}");
                }
            }
        }
        "bytes that nobody wrote".to_owned()
    }
}

/// Whether `bytes` hold `sample`. Its first byte decides quickly at most places.
fn contains(bytes: &[u8], sample: &[u8]) -> bool {
    let Some(first) = sample.first() else { return true };
    let last = bytes.len().saturating_sub(sample.len());
    (0..=last).any(|at| bytes[at] == *first && bytes[at..].starts_with(sample))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn transfers_differ_by_number_rank_and_round() {
        let data = RankData::new(1, 2, 4096);
        assert_eq!(data, RankData::new(1, 2, 4096));
        assert_eq!((0..SHIFTS).map(shift).collect::<BTreeSet<_>>().len(), usize::try_from(SHIFTS).unwrap());
        for other in [RankData::new(2, 2, 4096), RankData::new(1, 3, 4096)] {
            assert_ne!(data.transfer(0), other.transfer(0));
        }
        assert_eq!(data.transfer(SHIFTS - 1).len(), 4096);
        data.check(5, data.transfer(5), 4, 2).unwrap();
    }

    #[test]
    fn a_wrong_byte_is_found_and_its_writer_is_named() {
        let own = RankData::new(0, 1, 1000);
        let other = RankData::new(3, 1, 1000);
        let before = RankData::new(2, 0, 1000);
        for (writer, name) in [(&other, "data of rank 3"), (&before, "data of rank 2 in the round before")] {
            let mut found = own.transfer(7).to_vec();
            found[100..900].copy_from_slice(&writer.transfer(9)[100..900]);
            let mismatch = own.check(7, &found, 4, 1).unwrap_err();
            assert_eq!(mismatch.found, name);
            assert!((100..104).contains(&mismatch.at) && mismatch.wrong_bytes <= 800, "{mismatch:?}");
        }
    }

    #[test]
    fn one_spoiled_byte_is_found() {
        let own = RankData::new(0, 0, 1000);
        let mut spoiled = own.clone();
        spoiled.spoil();
        let mismatch = own.check(0, spoiled.transfer(0), 1, 0).unwrap_err();
        assert_eq!((mismatch.at, mismatch.wrong_bytes), (500, 1));
    }

    #[test]
    fn zeros_and_short_files_are_told_apart() {
        let own = RankData::new(0, 0, 1000);
        let mut found = own.transfer(0).to_vec();
        found[500..].fill(0);
        assert!(own.check(0, &found, 1, 0).unwrap_err().found.starts_with("zeros"));
        let short = own.check(0, &own.transfer(0)[..600], 1, 0).unwrap_err();
        assert_eq!((short.at, short.wrong_bytes, short.found.as_str()), (600, 400, "nothing: the file ends"));
        found[500..].fill(1);
        assert_eq!(own.check(0, &found, 1, 0).unwrap_err().found, "bytes that nobody wrote");
    }
}
