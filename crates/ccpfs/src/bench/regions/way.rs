//! How operations of many pieces are written: with which locks, asked for in which way.

use ccpfs_client::{LockKind, LockProtocol};
use ccpfs_config::ClientConfig;
use serde::{Deserialize, Serialize};

/// What one request for a lock says (paper 001, section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// One extent.
    Posix,
    /// Up to 64 extents.
    List,
    /// A description.
    Datatype,
}

/// How locks of several servers are asked for (paper 001, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Protocol {
    /// One after the other, in the order of the stripes.
    TwoPhase,
    /// All at once; what is not granted at once in order.
    OneTry,
    /// Both by turns.
    AltTry,
}

/// How operations are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// Each piece is a write of its own: other processes may see some of them without the others.
    Pieces,
    /// The same, with desired sections switched off.
    Default,
    /// The same, with desired sections switched on.
    Sections,
    /// Each piece is a write of its own, under locks that were asked for ahead, of exactly these pieces.
    Lockahead,
    /// Each piece is a write of its own, under a group lock that all processes share: nothing keeps them apart.
    Group,
    /// A file for each process.
    OwnFiles,
    /// All locks first, then the data: others see all of it or nothing.
    Atomic(Kind, Protocol),
}

impl Kind {
    /// All.
    pub(crate) const ALL: [Kind; 3] = [Kind::Posix, Kind::List, Kind::Datatype];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Posix => "posix",
            Kind::List => "list",
            Kind::Datatype => "datatype",
        }
    }
}

impl Protocol {
    /// All.
    pub(crate) const ALL: [Protocol; 3] = [Protocol::TwoPhase, Protocol::OneTry, Protocol::AltTry];

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Protocol::TwoPhase => "two-phase",
            Protocol::OneTry => "one-try",
            Protocol::AltTry => "alt-try",
        }
    }
}

impl Way {
    /// Those of the benchmarks with atomic calls, the default ones first.
    pub(crate) fn atomic() -> Vec<Way> {
        let kinds = Kind::ALL.into_iter().rev();
        let pairs = kinds
            .flat_map(|kind| Protocol::ALL.map(|protocol| Way::Atomic(kind, protocol)).into_iter().rev());
        pairs.chain([Way::Pieces, Way::Group]).collect()
    }

    /// Those of collective writes.
    pub(crate) fn collective() -> Vec<Way> {
        vec![Way::OwnFiles, Way::Default, Way::Lockahead, Way::Sections, Way::Group]
    }

    /// The name on the command line and in tables.
    pub(crate) fn name(self) -> String {
        match self {
            Way::Pieces => "pieces".to_owned(),
            Way::Default => "default".to_owned(),
            Way::Sections => "sections".to_owned(),
            Way::Lockahead => "lockahead".to_owned(),
            Way::Group => "group".to_owned(),
            Way::OwnFiles => "own-files".to_owned(),
            Way::Atomic(kind, protocol) => format!("{}-{}", kind.name(), protocol.name()),
        }
    }

    /// The way of this name among some.
    pub(crate) fn named(name: &str, among: &[Way]) -> Option<Way> {
        among.iter().copied().find(|way| way.name() == name)
    }

    /// Whether others see an operation whole or not at all.
    pub(crate) fn is_atomic(self) -> bool {
        match self {
            Way::Pieces | Way::Default | Way::Sections | Way::Lockahead | Way::Group | Way::OwnFiles => false,
            Way::Atomic(..) => true,
        }
    }

    /// Whether each process has a file of its own.
    pub(crate) fn has_own_files(self) -> bool {
        self == Way::OwnFiles
    }

    /// Whether it is measured when nothing is said.
    pub(crate) fn is_usual(self) -> bool {
        match self {
            Way::Pieces | Way::Default | Way::Sections | Way::Lockahead | Way::Group | Way::OwnFiles => true,
            // A request for each piece, or one server after the other: shown when asked for.
            Way::Atomic(kind, protocol) => kind == Kind::Datatype && protocol == Protocol::AltTry,
        }
    }

    /// Whether it means something only with servers.
    pub(crate) fn needs_servers(self) -> bool {
        match self {
            Way::Pieces | Way::Default | Way::OwnFiles => false,
            Way::Sections | Way::Lockahead | Way::Group | Way::Atomic(..) => true,
        }
    }

    /// Tells the client.
    pub(crate) fn configure(self, config: &mut ClientConfig) {
        match self {
            Way::Pieces | Way::Group | Way::OwnFiles => {}
            Way::Default | Way::Lockahead => config.desired_sections = false,
            Way::Sections => config.desired_sections = true,
            Way::Atomic(kind, protocol) => {
                config.lock_kind = match kind {
                    Kind::Posix => LockKind::Posix,
                    Kind::List => LockKind::List,
                    Kind::Datatype => LockKind::Datatype,
                };
                config.lock_protocol = match protocol {
                    Protocol::TwoPhase => LockProtocol::TwoPhase,
                    Protocol::OneTry => LockProtocol::OneTry,
                    Protocol::AltTry => LockProtocol::AltTry,
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_and_protocols_have_names_that_lead_back() {
        let ways = Way::atomic();
        let names: Vec<String> = ways.iter().map(|way| way.name()).collect();
        assert_eq!((names.len(), names[0].as_str(), names[9].as_str()), (11, "datatype-alt-try", "pieces"));
        for way in ways.iter().chain(&Way::collective()) {
            assert_eq!(Way::named(&way.name(), &ways).is_some(), ways.contains(way));
        }
        assert_eq!(ways.iter().filter(|way| way.is_usual()).count(), 3);
    }
}
