//! Lock modes, lock states and the compatibility table (paper Table II, Fig. 9).

use core::fmt;

/// How a lock may be used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockMode {
    /// Protective read: many readers at once.
    Pr,
    /// Non-blocking write: writes only; does not wait for the flushes of earlier NBW locks.
    Nbw,
    /// Blocking write: writes only; blocks later locks until it is downgraded or released.
    Bw,
    /// Protective write: reads and writes, alone.
    Pw,
}

/// What a server knows of a granted lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockState {
    /// The holder may keep and reuse it.
    Granted,
    /// Its revocation has been acknowledged, or it was granted with early revocation: no new use begins under it.
    Canceling,
}

impl LockMode {
    /// All modes, least restrictive first within reads and writes.
    pub const ALL: [LockMode; 4] = [LockMode::Pr, LockMode::Nbw, LockMode::Bw, LockMode::Pw];

    /// Whether a request for `self` may be granted beside an overlapping lock `granted` in `state` (paper Table II).
    #[must_use]
    pub const fn compatible(self, granted: LockMode, state: LockState) -> bool {
        match (self, granted) {
            (LockMode::Pr, LockMode::Pr) => true,
            (LockMode::Nbw | LockMode::Bw, LockMode::Nbw) => matches!(state, LockState::Canceling),
            (LockMode::Pr, LockMode::Nbw | LockMode::Bw | LockMode::Pw)
            | (LockMode::Nbw | LockMode::Bw, LockMode::Pr | LockMode::Bw | LockMode::Pw)
            | (LockMode::Pw, LockMode::Pr | LockMode::Nbw | LockMode::Bw | LockMode::Pw) => false,
        }
    }

    /// The least restrictive mode that serves for both (upgrading, paper Fig. 9).
    #[must_use]
    pub const fn join(self, other: LockMode) -> LockMode {
        match (self, other) {
            (LockMode::Pr, LockMode::Pr) => LockMode::Pr,
            (LockMode::Nbw, LockMode::Nbw) => LockMode::Nbw,
            (LockMode::Nbw | LockMode::Bw, LockMode::Bw) | (LockMode::Bw, LockMode::Nbw) => LockMode::Bw,
            (LockMode::Pr, LockMode::Nbw | LockMode::Bw | LockMode::Pw)
            | (LockMode::Nbw | LockMode::Bw | LockMode::Pw, LockMode::Pr)
            | (LockMode::Pw, LockMode::Nbw | LockMode::Bw | LockMode::Pw)
            | (LockMode::Nbw | LockMode::Bw, LockMode::Pw) => LockMode::Pw,
        }
    }

    /// Whether a holder of `self` may do everything a holder of `other` may.
    #[must_use]
    pub fn serves(self, other: LockMode) -> bool {
        self.join(other) == self
    }

    /// Whether data may be written under it.
    #[must_use]
    pub const fn writes(self) -> bool {
        match self {
            LockMode::Pr => false,
            LockMode::Nbw | LockMode::Bw | LockMode::Pw => true,
        }
    }

    /// Whether it writes without reading: such a request need not wait for the flushes of NBW locks (early grant).
    #[must_use]
    pub const fn is_blind_write(self) -> bool {
        match self {
            LockMode::Nbw | LockMode::Bw => true,
            LockMode::Pr | LockMode::Pw => false,
        }
    }

    /// Whether data may be read under it.
    #[must_use]
    pub const fn reads(self) -> bool {
        match self {
            LockMode::Pr | LockMode::Pw => true,
            LockMode::Nbw | LockMode::Bw => false,
        }
    }
}

impl fmt::Display for LockMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockMode::Pr => "PR",
            LockMode::Nbw => "NBW",
            LockMode::Bw => "BW",
            LockMode::Pw => "PW",
        })
    }
}

impl fmt::Display for LockState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockState::Granted => "GRANTED",
            LockState::Canceling => "CANCELING",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paper Table II as printed, row = requested, column = granted; `C` = only if CANCELING.
    const TABLE_II: [&str; 4] = ["Y N N N", "N C N N", "N C N N", "N N N N"];

    #[test]
    fn the_compatibility_table_is_the_papers() {
        for (row, requested) in TABLE_II.iter().zip(LockMode::ALL) {
            for (cell, granted) in row.split(' ').zip(LockMode::ALL) {
                let expected = match cell {
                    "Y" => [true, true],
                    "C" => [false, true],
                    _ => [false, false],
                };
                let found = [LockState::Granted, LockState::Canceling]
                    .map(|state| requested.compatible(granted, state));
                assert_eq!(found, expected, "{requested} beside {granted}");
            }
        }
    }

    #[test]
    fn joining_is_commutative_and_never_loses_a_right() {
        for a in LockMode::ALL {
            for b in LockMode::ALL {
                let joined = a.join(b);
                assert_eq!(joined, b.join(a));
                assert!(joined.serves(a) && joined.serves(b));
                assert!(joined.reads() || !(a.reads() || b.reads()));
            }
        }
        assert_eq!(LockMode::Pr.join(LockMode::Nbw), LockMode::Pw);
        assert_eq!(LockMode::Nbw.join(LockMode::Bw), LockMode::Bw);
    }
}
