//! How noncontiguous operations ask for their locks: the kinds and protocols of paper 001.

use crate::error::ConfigError;
use crate::file::ConfigFile;
use std::fmt;
use std::str::FromStr;

/// How the region of a noncontiguous operation is cut into lock requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// A request for each contiguous piece.
    Posix,
    /// A request for each 64 pieces of a stripe.
    List,
    /// One request for each stripe, as nested strided sections; more where those would be too many for one lock.
    #[default]
    Datatype,
}

/// In which order the locks of an operation are asked for, if it takes several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LockProtocol {
    /// One after the other, by stripe and offset, waiting for each.
    TwoPhase,
    /// All at once without waiting for anybody; those behind the first that is not to be had are given up, and then one after the
    /// other.
    OneTry,
    /// As one-try, but after each lock that was waited for all others are tried again.
    #[default]
    AltTry,
}

/// A name that no kind or protocol has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{name}' is not allowed: {allowed}")]
pub struct UnknownName {
    /// The name.
    name: String,
    /// Those that are.
    allowed: String,
}

impl LockKind {
    /// All kinds, with their names.
    pub const KINDS: &[(&'static str, LockKind)] =
        &[("datatype", LockKind::Datatype), ("list", LockKind::List), ("posix", LockKind::Posix)];
}

impl LockProtocol {
    /// All protocols, with their names.
    pub const PROTOCOLS: &[(&'static str, LockProtocol)] = &[
        ("alt-try", LockProtocol::AltTry),
        ("one-try", LockProtocol::OneTry),
        ("two-phase", LockProtocol::TwoPhase),
    ];
}

fn find<T: Copy>(name: &str, all: &[(&'static str, T)]) -> Result<T, UnknownName> {
    let allowed = || all.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let found = all.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    found.ok_or_else(|| UnknownName { name: name.to_owned(), allowed: allowed() })
}

/// The value of a setting that is a name, or the default.
pub(crate) fn named<T: Copy + Default>(
    file: &ConfigFile,
    key: &str,
    name: Option<&str>,
    all: &[(&'static str, T)],
) -> Result<T, ConfigError> {
    let Some(name) = name else { return Ok(T::default()) };
    find(name, all).map_err(|error| file.wrong(key, format!("'{name}'"), error.allowed))
}

impl FromStr for LockKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<LockKind, UnknownName> {
        find(name, LockKind::KINDS)
    }
}

impl FromStr for LockProtocol {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<LockProtocol, UnknownName> {
        find(name, LockProtocol::PROTOCOLS)
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockKind::Posix => "posix",
            LockKind::List => "list",
            LockKind::Datatype => "datatype",
        })
    }
}

impl fmt::Display for LockProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LockProtocol::TwoPhase => "two-phase",
            LockProtocol::OneTry => "one-try",
            LockProtocol::AltTry => "alt-try",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_protocols_are_read_as_they_are_written() {
        for (name, kind) in LockKind::KINDS {
            assert_eq!((name.parse(), kind.to_string().as_str()), (Ok(*kind), *name));
        }
        for (name, protocol) in LockProtocol::PROTOCOLS {
            assert_eq!((name.parse(), protocol.to_string().as_str()), (Ok(*protocol), *name));
        }
        let error = "tree".parse::<LockKind>().unwrap_err().to_string();
        assert_eq!(error, "'tree' is not allowed: datatype, list, posix");
    }
}
