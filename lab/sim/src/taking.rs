//! Taking the locks of a noncontiguous operation as paper 001 says (sections 3 and 4): three kinds of requests, three protocols.
//!
//! The clients of worlds do so, and tests of locks alone. The product's client does the same (`ccpfs-client`, module `noncontiguous`).

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

/// What one request may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Extents of a list.
    pub list_max: usize,
    /// Sections of a description.
    pub sections_max: usize,
    /// Where locks of several requests on a stripe begin and end, in bytes: 1, or the pages of a policy.
    pub grain_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { list_max: 64, sections_max: SECTIONS_MAX, grain_bytes: 1 }
    }
}

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

/// The requests for a region that ends before the end of all files, by stripe and offset.
#[must_use]
pub fn cut(region: &Region, layout: &Layout, kind: Kind) -> Vec<Request> {
    cut_within(region, layout, kind, Limits::default())
}

/// The same with limits of one's own.
#[must_use]
pub fn cut_within(region: &Region, layout: &Layout, kind: Kind, limits: Limits) -> Vec<Request> {
    let mut requests = Vec::new();
    for (stripe, _) in layout.stripe_hulls(region.bounds()) {
        let grains = || grains(region, layout, stripe, limits.grain_bytes);
        let lists = || {
            let pieces: Vec<Extent> = grains().collect();
            let lists = pieces.chunks(limits.list_max.max(1));
            lists.filter_map(|list| Region::from_extents(list.to_vec())).collect::<Vec<Region>>()
        };
        let mut local = Vec::new();
        match kind {
            Kind::Posix => local.extend(grains().map(Region::from)),
            Kind::List => local = lists(),
            Kind::Datatype => descriptions(region, layout, stripe, limits.sections_max.max(1), &mut local),
        }
        if kind == Kind::Datatype && local.len() > 1 && limits.grain_bytes > 1 {
            local = lists();
        }
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

/// The pieces of a stripe, grown to multiples of `grain` bytes; those that touch then are one.
fn grains(region: &Region, layout: &Layout, stripe: u32, grain: u64) -> impl Iterator<Item = Extent> {
    let mut pieces = region.stripe_pieces(layout, stripe).map(move |piece| piece.aligned(grain)).peekable();
    std::iter::from_fn(move || {
        let mut piece = pieces.next()?;
        while grain > 1
            && let Some(next) = pieces.next_if(|next| next.start() <= piece.end())
        {
            piece = piece.hull(next);
        }
        Some(piece)
    })
}

/// What a stripe has of a region, as one description or, where that is too long, as those of its halves.
fn descriptions(region: &Region, layout: &Layout, stripe: u32, sections_max: usize, found: &mut Vec<Region>) {
    if let Ok(local) = region.on_stripe(layout, stripe, sections_max) {
        found.extend(local);
        return;
    }
    let bounds = region.bounds();
    let middle = bounds.start() + bounds.length() / 2;
    for half in [Extent::new(bounds.start(), middle), Extent::new(middle, bounds.end())].into_iter().flatten()
    {
        if let Some(part) = region.in_extent(half) {
            descriptions(&part, layout, stripe, sections_max, found);
        }
    }
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

    /// Requests before `until` are held, and the round goes on behind them.
    pub fn proceed(&mut self, until: usize) {
        self.next = until;
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

    #[test]
    fn what_is_too_long_for_one_request_becomes_several_in_order() {
        let layout = Layout::new(3, 4096).expect("a layout");
        // Nothing repeats: strides of a prime number of bytes.
        let region = Region::from(Section::new(5, 97, &[(1009, 400)]).expect("a section"));
        for kind in Kind::ALL {
            let limits = Limits { list_max: 3, sections_max: 4, ..Limits::default() };
            let requests = cut_within(&region, &layout, kind, limits);
            assert!(requests.iter().filter(|request| request.stripe == 1).count() > 5, "{kind:?}");
            for pair in requests.windows(2) {
                let [one, next] = [&pair[0], &pair[1]];
                let apart = one.region.bounds().end() <= next.region.bounds().start();
                assert!(one.stripe < next.stripe || apart, "{kind:?}");
                assert_eq!(next.part == Part::First, one.stripe < next.stripe);
            }
            let bytes: u64 = requests.iter().map(|request| request.region.length_bytes()).sum();
            assert_eq!(bytes, 97 * 400);
        }
        let pages = Limits { grain_bytes: 4096, sections_max: 4, ..Limits::default() };
        for request in cut_within(&region, &layout, Kind::Datatype, pages) {
            assert!(request.region.pieces().all(|piece| piece.aligned(4096) == piece));
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
