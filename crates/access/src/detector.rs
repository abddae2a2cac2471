//! The detector: pieces out of operations, and how sure it is of them.

use crate::NEED_MAX;
use crate::nest::{Fit, Nest};
use ccpfs_region::{Section, UNBOUNDED};
use ccpfs_types::Extent;

/// Hits from which a pattern is not given up for one piece elsewhere.
const FIRM: u32 = 2;

/// What the operations of one kind on one open file look like.
///
/// Operations that follow each other without a gap are one *piece*. A piece that starts where the pattern has it is a *hit*. After
/// one hit (three pieces, equally far apart) the rest of the pattern is desired. What comes elsewhere soon afterwards makes the detector ask
/// for twice as many hits from then on, up to [`NEED_MAX`]; what comes elsewhere after many hits, for half as many. What is desired after a break reaches no
/// further than the last pattern did, and twice as far each time that this is reached. One piece elsewhere does not break a pattern that goes
/// on behind it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Detector {
    /// The last operation.
    last: Option<Extent>,
    /// The piece that it belongs to.
    piece: Option<Extent>,
    /// The last piece of the pattern, if the one at hand lies elsewhere.
    before: Option<Extent>,
    /// The distance of the last two pieces that were judged, in bytes; 0 if there were none.
    stride: i64,
    nest: Option<Nest>,
    /// Bytes of a piece of the pattern.
    length: u64,
    /// Pieces of the pattern that came where they were expected.
    hits: u32,
    /// Those of them since one came elsewhere too early.
    in_a_row: u32,
    /// Hits from which a section is desired.
    need: u32,
    /// Hits needed beyond that, by a pattern of which a loop inside was guessed from one distance.
    extra: u32,
    /// How many pieces a pattern is expected to have.
    reach: u64,
}

impl Default for Detector {
    fn default() -> Detector {
        Detector::new()
    }
}

impl Detector {
    /// A detector that has seen nothing.
    #[must_use]
    pub const fn new() -> Detector {
        Detector {
            last: None,
            piece: None,
            before: None,
            stride: 0,
            nest: None,
            length: 0,
            hits: 0,
            in_a_row: 0,
            need: 1,
            extra: 0,
            reach: UNBOUNDED,
        }
    }

    /// Takes in the next operation: the bytes that it asks for, below 2^63.
    pub fn step(&mut self, operation: Extent) {
        if i64::try_from(operation.end()).is_err() {
            *self = Detector::new();
            return;
        }
        let again = self.last.replace(operation) == Some(operation);
        match self.piece {
            None => self.piece = Some(operation),
            // The same bytes once more say nothing.
            Some(_) if again => {}
            Some(piece) if operation.start() == piece.end() => self.grow(piece.hull(operation)),
            Some(piece) => self.next_piece(piece, operation),
        }
    }

    /// Whether [`Detector::desired`] has an answer: quicker.
    #[must_use]
    pub const fn is_sure(&self) -> bool {
        self.nest.is_some() && self.hits >= self.need.saturating_add(self.extra)
    }

    /// The bytes that will probably be asked for from now on, those of the last operation among them: all of the copy of the outermost loop
    /// that it is in, and those that follow. `None` if nothing is to be seen, or if that is all in one with no gap.
    #[must_use]
    pub fn desired(&self) -> Option<Section> {
        let (last, piece, nest) = (self.last?, self.piece?, self.nest.as_ref()?);
        if !self.is_sure() {
            return None;
        }
        let start = starts_at(piece);
        let section = if self.before.is_some() {
            // Perhaps a group like the one before. What only happens between two pieces is rarely as long.
            let alike = piece == last && last.length() == self.length;
            nest.as_before(start, self.length).filter(|_| alike)
        } else {
            let left = self.reach.saturating_sub(u64::from(self.hits)).max(1);
            nest.ahead(start, self.length, if self.reach == UNBOUNDED { UNBOUNDED } else { left })
        };
        section.filter(|section| section.contains_section(&Section::from_extent(last)))
    }

    /// The last piece goes on.
    fn grow(&mut self, piece: Extent) {
        self.piece = Some(piece);
        if self.before.is_none() && piece.length() > self.length {
            self.lose();
        }
    }

    /// A piece begins elsewhere than where the last one, `previous`, has ended.
    fn next_piece(&mut self, previous: Extent, operation: Extent) {
        self.piece = Some(operation);
        let expected = self.fit(operation) == Fit::Expected;
        match self.before.take() {
            Some(before) if expected => self.judge(before, operation),
            Some(before) => {
                self.judge(before, previous);
                self.judge(previous, operation);
            }
            None if expected || self.hits < FIRM => self.judge(previous, operation),
            None => self.before = Some(previous),
        }
    }

    fn fit(&self, piece: Extent) -> Fit {
        match &self.nest {
            Some(nest) if piece.length() <= self.length => nest.fit(starts_at(piece)),
            Some(_) | None => Fit::Breaks,
        }
    }

    /// Says what `piece`, which came after `previous`, is to the pattern.
    fn judge(&mut self, previous: Extent, piece: Extent) {
        let start = starts_at(piece);
        let stride = start - starts_at(previous);
        let earlier = core::mem::replace(&mut self.stride, stride);
        match (self.fit(piece), &mut self.nest) {
            (Fit::Expected, Some(nest)) => {
                nest.go_on(start);
                if self.hits == 0 {
                    // The first piece may have been longer, with something in front.
                    self.length = previous.length().max(piece.length());
                }
                self.hits = self.hits.saturating_add(1);
                self.in_a_row = self.in_a_row.saturating_add(1);
                if u64::from(self.hits) >= self.reach {
                    self.reach = self.reach.saturating_mul(2);
                }
            }
            (Fit::Closes { sure }, Some(_)) if stride != earlier => {
                self.disappointed();
                if let Some(nest) = &mut self.nest {
                    nest.close(start);
                }
                if !sure {
                    (self.hits, self.extra) = (0, 1);
                }
            }
            (Fit::Expected | Fit::Closes { .. } | Fit::Breaks, _) => {
                self.lose();
                self.begin(previous, piece, earlier);
            }
        }
    }

    /// Begins a pattern with two pieces; with three, if they lie as far apart as the first of them from the one before.
    fn begin(&mut self, previous: Extent, piece: Extent, earlier: i64) {
        self.length = previous.length();
        let copies = if self.stride == earlier { 3 } else { 2 };
        if self.stride != 0 && piece.length() <= self.length {
            self.nest = Some(Nest::new(self.stride, starts_at(piece), copies));
            self.hits = copies - 2;
            self.in_a_row = self.hits;
        }
    }

    /// The pattern has ended.
    fn lose(&mut self) {
        if self.is_sure() {
            self.reach = u64::from(self.hits) + 2;
        }
        self.disappointed();
        (self.nest, self.hits, self.in_a_row, self.extra) = (None, 0, 0, 0);
    }

    /// Something else came than what was desired, if something was.
    fn disappointed(&mut self) {
        if !self.is_sure() {
            self.in_a_row = 0;
        } else if self.in_a_row >= self.need.saturating_mul(4) {
            self.need = (self.need / 2).max(1);
        } else {
            self.need = self.need.saturating_mul(2).min(NEED_MAX);
            self.in_a_row = 0;
        }
    }
}

/// Offsets are below 2^63: [`Detector::step`] has looked.
fn starts_at(piece: Extent) -> i64 {
    piece.start().cast_signed()
}
