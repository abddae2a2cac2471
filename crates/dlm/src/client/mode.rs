//! Which mode an operation needs (paper Fig. 10).

use ccpfs_types::LockMode;

/// What an operation does with the bytes it locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intent {
    /// Reads only.
    Read,
    /// Writes without reading.
    Write,
    /// Reads before it writes: append and truncate need the size, read-modify-write the data.
    ReadThenWrite,
}

/// The least restrictive mode that serves an operation which holds locks of `resources` resources at once.
#[must_use]
pub const fn least_restrictive(intent: Intent, resources: usize) -> LockMode {
    match intent {
        Intent::Read => LockMode::Pr,
        Intent::ReadThenWrite => LockMode::Pw,
        Intent::Write if resources > 1 => LockMode::Bw,
        Intent::Write => LockMode::Nbw,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_follow_figure_10() {
        assert_eq!(least_restrictive(Intent::Read, 4), LockMode::Pr);
        assert_eq!(least_restrictive(Intent::Write, 1), LockMode::Nbw);
        assert_eq!(least_restrictive(Intent::Write, 2), LockMode::Bw);
        assert_eq!(least_restrictive(Intent::ReadThenWrite, 1), LockMode::Pw);
    }
}
