//! Taking the locks of a noncontiguous operation as paper 001 says (sections 3 and 4): three kinds of requests, three protocols.
//!
//! For tests of locks alone. The product's client does the same (`ccpfs-client`, module `noncontiguous`), with data behind it.

use ccpfs_region::{Region, SECTIONS_MAX};
use ccpfs_types::{Extent, Layout, Part};

/// What one request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// One extent.
    Posix,
    /// Up to 64 extents.
    List,
    /// A description.
    Datatype,
}

/// How the requests are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// One after the other, in their order.
    TwoPhase,
    /// All at once without waiting; then those that are missing one after the other.
    OneTry,
    /// Both by turns.
    AltTry,
}

impl Kind {
    /// All, the paper's order.
    pub const ALL: [Kind; 3] = [Kind::Posix, Kind::List, Kind::Datatype];

    /// The paper's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Posix => "posix",
            Kind::List => "list",
            Kind::Datatype => "datatype",
        }
    }
}

impl Protocol {
    /// All, the paper's order.
    pub const ALL: [Protocol; 3] = [Protocol::TwoPhase, Protocol::OneTry, Protocol::AltTry];

    /// The paper's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::TwoPhase => "two-phase",
            Protocol::OneTry => "one-try",
            Protocol::AltTry => "alt-try",
        }
    }
}

/// Extents of one list request.
const LIST_MAX: usize = 64;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Of which stripe.
    pub stripe: u32,
    /// In the stripe's offsets.
    pub region: Region,
    /// Which it is of those on this stripe.
    pub part: Part,
}

/// The requests for a region, by stripe and offset.
///
/// # Panics
///
/// If a description takes more than [`SECTIONS_MAX`] sections on a stripe: the patterns of the lock tests do not.
#[must_use]
pub fn cut(region: &Region, layout: &Layout, kind: Kind) -> Vec<Request> {
    let mut requests = Vec::new();
    for stripe in 0..layout.stripe_count() {
        let local: Vec<Region> = match kind {
            Kind::Posix => region.stripe_pieces(layout, stripe).map(Region::from).collect(),
            Kind::List => {
                let pieces: Vec<Extent> = region.stripe_pieces(layout, stripe).collect();
                pieces.chunks(LIST_MAX).filter_map(|list| Region::from_extents(list.to_vec())).collect()
            }
            Kind::Datatype => {
                let local = region.on_stripe(layout, stripe, SECTIONS_MAX);
                local.expect("patterns of the lock tests are regular").into_iter().collect()
            }
        };
        let several = local.len() > 1;
        requests.extend(local.into_iter().enumerate().map(|(at, region)| {
            let part = match (several, at) {
                (false, _) => Part::Only,
                (true, 0) => Part::First,
                (true, _) => Part::Next,
            };
            Request { stripe, region, part }
        }));
    }
    requests
}

/// What to ask for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// All requests from this number on, without waiting for anybody who holds locks.
    Try {
        /// The first.
        from: usize,
    },
    /// This request, however long it takes.
    Wait {
        /// Its number.
        number: usize,
    },
}

/// Where taking all locks stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taking {
    protocol: Protocol,
    count: usize,
    next: usize,
    at_once: bool,
}

impl Taking {
    /// Nothing is held yet of so many.
    #[must_use]
    pub fn new(protocol: Protocol, count: usize) -> Taking {
        let at_once = match protocol {
            Protocol::TwoPhase => false,
            Protocol::OneTry | Protocol::AltTry => true,
        };
        Taking { protocol, count, next: 0, at_once }
    }

    /// What is to be asked for now; nothing if all are held.
    #[must_use]
    pub fn round(&self) -> Option<Round> {
        match self.count - self.next {
            0 => None,
            left if self.at_once && left > 1 => Some(Round::Try { from: self.next }),
            _ => Some(Round::Wait { number: self.next }),
        }
    }

    /// A round is over: all before `missing` are held, and what was granted from there on has been given up.
    pub fn settle(&mut self, missing: usize) {
        let waited = matches!(self.round(), Some(Round::Wait { .. }));
        self.next = missing;
        self.at_once = waited && self.protocol == Protocol::AltTry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ccpfs_region::Section;

    #[test]
    fn a_region_is_cut_into_as_many_requests_as_the_kind_says() {
        let layout = Layout::new(4, 65_536).expect("a layout");
        let region = Region::from(Section::new(0, 1, &[(64, 131_072)]).expect("a section"));
        let counts = Kind::ALL.map(|kind| cut(&region, &layout, kind).len());
        assert_eq!(counts, [131_072, 2048, 4]);
        for kind in Kind::ALL {
            let bytes: u64 = cut(&region, &layout, kind).iter().map(|part| part.region.length_bytes()).sum();
            assert_eq!(bytes, 131_072);
        }
    }

    /// The rounds of a protocol for five requests, where the requests that are in others' way are told by round.
    fn rounds(protocol: Protocol, missing: &[usize]) -> Vec<Round> {
        let mut taking = Taking::new(protocol, 5);
        let mut missing = missing.iter();
        let mut seen = Vec::new();
        while let Some(round) = taking.round() {
            seen.push(round);
            taking.settle(match round {
                Round::Try { .. } => missing.next().copied().unwrap_or(5),
                Round::Wait { number } => number + 1,
            });
        }
        seen
    }

    #[test]
    fn the_protocols_are_those_of_the_paper() {
        use Round::{Try, Wait};
        let wait = |number| Wait { number };
        assert_eq!(rounds(Protocol::TwoPhase, &[]), [wait(0), wait(1), wait(2), wait(3), wait(4)]);
        assert_eq!(rounds(Protocol::OneTry, &[]), [Try { from: 0 }]);
        assert_eq!(rounds(Protocol::OneTry, &[2]), [Try { from: 0 }, wait(2), wait(3), wait(4)]);
        assert_eq!(
            rounds(Protocol::AltTry, &[1, 3]),
            [Try { from: 0 }, wait(1), Try { from: 2 }, wait(3), wait(4)]
        );
    }
}
