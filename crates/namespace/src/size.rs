//! How long a file is: one question to all its stripes, asked again while somebody cuts the file.
//!
//! Stripes are measured one by one, while others write and cut. Writes only lengthen: what was collected lies between the sizes that
//! the file had at the beginning and at the end. A truncate lengthens some stripes and shortens others, and who measures the
//! first ones before it and the last ones after it finds a size that the file never had, perhaps a smaller one. So shards count
//! the truncates they take, and a collection counts only if no shard has taken one since the collection before.

use alloc::vec::Vec;
use ccpfs_types::Layout;

/// Collections of one question. Truncates that go on for ever (of other files of the same shards, too) must not hold it up for ever.
pub const ROUNDS_MAX: u32 = 8;

/// A question for the size of a file.
///
/// For each round: tell what the client itself has ([`SizeQuestion::has`]), then what every stripe's shard answered
/// ([`SizeQuestion::told`]), then ask [`SizeQuestion::is_settled`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SizeQuestion {
    layout: Layout,
    size: u64,
    /// What the collection before this one found, by stripe.
    before: Vec<u64>,
    cuts: Vec<u64>,
    round: u32,
}

impl SizeQuestion {
    /// A question about a file with this layout. `known` is [`SizeQuestion::known`] of the client's last question about the
    /// file, or empty.
    #[must_use]
    pub fn new(layout: Layout, known: &[u64]) -> SizeQuestion {
        let cuts = alloc::vec![0; layout.stripe_count() as usize];
        SizeQuestion { layout, size: 0, before: known.to_vec(), cuts, round: 0 }
    }

    /// The client's own unacknowledged data of a stripe end at `end`.
    pub fn has(&mut self, stripe: u32, end: u64) {
        self.size = self.size.max(self.layout.file_size(stripe, end));
    }

    /// A stripe has `bytes` bytes, and its shard has taken `cuts` truncates.
    pub fn told(&mut self, stripe: u32, bytes: u64, cuts: u64) {
        self.has(stripe, bytes);
        if let Some(place) = self.cuts.get_mut(stripe as usize) {
            *place = cuts;
        }
    }

    /// Whether what was collected is the answer, now that every stripe has told. If not, another round begins.
    #[must_use]
    pub fn is_settled(&mut self) -> bool {
        self.round += 1;
        if self.cuts.len() == 1 || self.before == self.cuts || self.round >= ROUNDS_MAX {
            return true;
        }
        self.before.clone_from(&self.cuts);
        self.size = 0;
        false
    }

    /// The size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// What the next question about the same file may begin with: it saves a round.
    #[must_use]
    pub fn known(&self) -> &[u64] {
        &self.cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(known: &[u64]) -> SizeQuestion {
        SizeQuestion::new(Layout::new(2, 4096).unwrap(), known)
    }

    #[test]
    fn a_file_of_one_stripe_is_asked_once() {
        let mut question = SizeQuestion::new(Layout::new(1, 4096).unwrap(), &[]);
        question.told(0, 5, 77);
        assert!(question.is_settled());
        assert_eq!(question.size(), 5);
    }

    #[test]
    fn regression_a_truncate_between_two_stripes_is_noticed() {
        // 8 KiB with data in stripe 1 only; stripe 0 is measured, then the file is cut to 4 KiB, then stripe 1 is measured.
        let mut question = question(&[3, 8]);
        question.told(0, 0, 3);
        question.told(1, 0, 9);
        assert!(!question.is_settled());
        question.told(0, 4096, 4);
        question.told(1, 0, 9);
        assert!(!question.is_settled(), "stripe 0 has been cut since");
        question.told(0, 4096, 4);
        question.told(1, 0, 9);
        assert!(question.is_settled());
        assert_eq!(question.size(), 4096);
    }

    #[test]
    fn what_the_last_question_found_saves_a_round() {
        let mut first = question(&[]);
        first.told(0, 10, 1);
        first.told(1, 0, 2);
        assert!(!first.is_settled());
        first.told(0, 10, 1);
        first.told(1, 0, 2);
        assert!(first.is_settled());
        let mut second = question(first.known());
        second.has(0, 12);
        second.told(0, 10, 1);
        second.told(1, 0, 2);
        assert!(second.is_settled());
        assert_eq!(second.size(), 12);
    }

    #[test]
    fn a_question_ends_although_somebody_always_cuts() {
        let mut question = question(&[]);
        let mut rounds = 0;
        loop {
            rounds += 1;
            question.told(0, 1, u64::from(rounds));
            question.told(1, 0, 0);
            if question.is_settled() {
                break;
            }
        }
        assert_eq!(rounds, ROUNDS_MAX);
    }
}
