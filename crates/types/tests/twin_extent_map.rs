//! `ExtentMap` against its dumb twin: an array with one value per byte.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_types::{Extent, ExtentMap};
use proptest::prelude::*;

const SPACE: u64 = 40;

#[derive(Clone, Debug)]
enum Change {
    Insert(Extent, u8),
    Remove(Extent),
    /// Replaces values that are not greater.
    Merge(Extent, u8),
    /// Each value becomes that of the table; 9 stands for none.
    Update(Extent, [u8; 4]),
}

fn extents() -> impl Strategy<Value = Extent> {
    (0..SPACE, 1..=SPACE).prop_map(|(start, length)| Extent::new(start, (start + length).min(SPACE)).unwrap())
}

fn changes() -> impl Strategy<Value = Change> {
    let table = prop::array::uniform4(prop_oneof![3 => 0_u8..4, 1 => Just(9)]);
    prop_oneof![
        3 => (extents(), 0_u8..4).prop_map(|(extent, value)| Change::Insert(extent, value)),
        2 => extents().prop_map(Change::Remove),
        2 => (extents(), 0_u8..4).prop_map(|(extent, value)| Change::Merge(extent, value)),
        1 => (extents(), table).prop_map(|(extent, table)| Change::Update(extent, table)),
    ]
}

fn bytes(extent: Extent) -> std::ops::Range<usize> {
    usize::try_from(extent.start()).unwrap()..usize::try_from(extent.end()).unwrap()
}

/// Maximal runs of equal cells, those that `keep` has an answer for.
fn runs<V: Copy + PartialEq>(
    cells: &[Option<u8>],
    keep: impl Fn(Option<u8>) -> Option<V>,
) -> Vec<(Extent, V)> {
    let mut runs: Vec<(Extent, V)> = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        let Some(value) = keep(*cell) else { continue };
        let byte = Extent::with_length(at as u64, 1).unwrap();
        match runs.last_mut() {
            Some((last, old)) if last.end() == byte.start() && *old == value => *last = last.hull(byte),
            Some(_) | None => runs.push((byte, value)),
        }
    }
    runs
}

fn apply(change: &Change, map: &mut ExtentMap<u8>, cells: &mut [Option<u8>]) {
    match *change {
        Change::Insert(extent, value) => {
            map.insert(extent, value);
            cells[bytes(extent)].fill(Some(value));
        }
        Change::Remove(extent) => {
            map.remove(extent);
            cells[bytes(extent)].fill(None);
        }
        Change::Merge(extent, value) => {
            let set = map.merge(extent, value, |old| old <= value);
            let mut taken = vec![None; cells.len()];
            for at in bytes(extent) {
                if cells[at].is_none_or(|old| old <= value) {
                    (taken[at], cells[at]) = (Some(value), Some(value));
                }
            }
            let expected: Vec<Extent> = runs(&taken, |cell| cell).into_iter().map(|(run, _)| run).collect();
            assert_eq!(set, expected, "the update set");
        }
        Change::Update(extent, table) => {
            let change = |value: u8| Some(table[usize::from(value)]).filter(|new| *new < 4);
            map.update(extent, change);
            for cell in &mut cells[bytes(extent)] {
                *cell = cell.and_then(change);
            }
        }
    }
}

/// Everything that can be asked about `probe`.
fn compare(map: &ExtentMap<u8>, cells: &[Option<u8>], probe: Extent) {
    let all = runs(cells, |cell| cell);
    assert_eq!(map.iter().collect::<Vec<_>>(), all);
    assert_eq!((map.len(), map.is_empty()), (all.len(), all.is_empty()));
    assert_eq!(map.bytes(), cells.iter().flatten().count() as u64);
    assert_eq!(map.end(), all.last().map(|(extent, _)| extent.end()));
    let touching: Vec<(Extent, u8)> =
        all.iter().copied().filter(|(extent, _)| extent.overlaps(probe)).collect();
    assert_eq!(map.overlapping(probe).collect::<Vec<_>>(), touching);
    let mut inside = vec![None; cells.len()];
    inside[bytes(probe)].copy_from_slice(&cells[bytes(probe)]);
    assert_eq!(map.within(probe).collect::<Vec<_>>(), runs(&inside, |cell| cell));
    let mut outside = vec![Some(0); cells.len()];
    outside[bytes(probe)].copy_from_slice(&cells[bytes(probe)]);
    let holes = runs(&outside, |cell| cell.is_none().then_some(()));
    assert_eq!(map.gaps(probe), holes.iter().map(|(hole, ())| *hole).collect::<Vec<_>>());
    assert_eq!(map.covers(probe), holes.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_extent_map_agrees_with_an_array_of_bytes(
        history in prop::collection::vec((changes(), extents()), 1..60),
    ) {
        let mut map = ExtentMap::new();
        let mut cells = vec![None; usize::try_from(SPACE).unwrap()];
        for (change, probe) in &history {
            apply(change, &mut map, &mut cells);
            compare(&map, &cells, *probe);
        }
    }
}
