//! Generated nests of loops against a dumb list of their pieces: what is desired is exactly what follows.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_access::Detector;
use ccpfs_region::Section;
use ccpfs_types::Extent;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A nest of loops: bytes of a piece, operations of a piece, and the stride and count of each loop, innermost first.
#[derive(Clone, Debug)]
struct Loops {
    length: u64,
    parts: u64,
    levels: Vec<(i64, u64)>,
}

/// Copies of the outermost loop.
const ROUNDS: u64 = 6;

/// Nests whose loops go the same way, forwards or backwards. (Where they do not, a group may begin with a piece that looks like a single
/// one elsewhere, because the next is where one was expected.)
fn loops() -> impl Strategy<Value = Loops> {
    let level = (1_u64..200, 2_u64..6);
    let levels = prop::collection::vec(level, 1..4);
    (1_u64..40, 1_u64..4, levels, any::<bool>()).prop_map(|(unit, parts, levels, back)| {
        let length = unit * parts;
        let mut span = length;
        let outermost = levels.len() - 1;
        let level = |(at, (gap, count)): (usize, (u64, u64))| {
            let stride = span + gap;
            let count = if at == outermost { ROUNDS } else { count };
            span = stride * count;
            (if back { -stride.cast_signed() } else { stride.cast_signed() }, count)
        };
        Loops { length, parts, levels: levels.into_iter().enumerate().map(level).collect() }
    })
}

impl Loops {
    /// The starts of all pieces, in the order of the loops, the lowest not below `room`.
    fn starts(&self, room: u64) -> Vec<u64> {
        let mut starts = vec![0_i64];
        for (stride, count) in &self.levels {
            let inner = starts.clone();
            starts = (0..*count)
                .flat_map(|copy| inner.iter().map(move |start| start + stride * copy.cast_signed()))
                .collect();
        }
        let lowest = *starts.iter().min().unwrap();
        starts.iter().map(|start| room + (start - lowest).cast_unsigned()).collect()
    }

    fn each_round(&self) -> usize {
        usize::try_from(self.levels.iter().rev().skip(1).map(|(_, count)| count).product::<u64>()).unwrap()
    }
}

/// The starts of the pieces of `section` below `end`.
fn starts_below(section: &Section, end: u64) -> BTreeSet<u64> {
    let mut starts = BTreeSet::new();
    let mut at = 0;
    while let Some(piece) = section.piece_from(at).filter(|piece| piece.start() < end) {
        starts.insert(piece.start());
        at = piece.end();
    }
    starts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn from_its_third_round_on_a_nest_is_desired_exactly(loops in loops(), room in 0_u64..5000) {
        let starts = loops.starts(room);
        let each = loops.each_round();
        let stride = loops.levels.last().unwrap().0;
        let end = starts.iter().max().unwrap() + loops.length + 3 * stride.unsigned_abs();
        let part = loops.length / loops.parts;
        let mut detector = Detector::new();
        for (number, start) in starts.iter().enumerate() {
            for piece in 0..loops.parts {
                detector.step(Extent::with_length(start + piece * part, part).unwrap());
                let round = number / each;
                if round < 2 || number < 3 {
                    continue;
                }
                // All copies of this round, as far as they lie between the ends.
                let mut expected = BTreeSet::new();
                for start in &starts[round * each..(round + 1) * each] {
                    let copies = (0..).map(|copy| start.cast_signed() + stride * copy);
                    expected.extend(copies.take_while(|at| (0..end.cast_signed()).contains(at)).map(i64::cast_unsigned));
                }
                let desired = detector.desired();
                prop_assert!(desired.is_some(), "piece {number} at {start} of {loops:?}: {detector:?}");
                let desired = desired.unwrap();
                if desired.length() == loops.length {
                    // Whole copies: going down, one that does not fit is left out.
                    let found = starts_below(&desired, end);
                    let missing = expected.difference(&found).count();
                    prop_assert!(found.is_subset(&expected), "piece {number} of {loops:?}: {desired}");
                    prop_assert!(missing == 0 || stride < 0 && missing < each, "piece {number} of {loops:?}: {desired}");
                }
            }
        }
    }

    #[test]
    fn whatever_comes_nothing_panics_and_the_last_operation_is_desired(
        operations in prop::collection::vec((0_u64..40, 1_u64..4, 0_u64..8), 1..200)
    ) {
        let mut detector = Detector::new();
        for (place, length, scale) in operations {
            let operation = Extent::with_length(place << scale, length << scale).unwrap();
            detector.step(operation);
            if let Some(desired) = detector.desired() {
                prop_assert!(desired.contains_section(&Section::from_extent(operation)));
            }
        }
    }
}

#[test]
fn of_nests_whose_loops_go_both_ways_nearly_all_are_known_in_the_third_round() {
    let mut state = 1_u64;
    let mut draw = |among: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % among
    };
    let mut known = 0;
    for _ in 0..1000 {
        let length = 1 + draw(60);
        let (mut span, mut levels) = (length, Vec::new());
        for outermost in [false, false, true] {
            let stride = span + 1 + draw(200);
            let count = if outermost { 3 } else { 2 + draw(4) };
            span = stride * count;
            levels.push((if draw(2) == 0 { stride.cast_signed() } else { -stride.cast_signed() }, count));
        }
        let mut detector = Detector::new();
        for start in (Loops { length, parts: 1, levels }).starts(10_000) {
            detector.step(Extent::with_length(start, length).unwrap());
        }
        known += u32::from(detector.is_sure());
    }
    assert!(known >= 900, "{known} of 1000");
}
