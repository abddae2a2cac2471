//! `ExtentIndex` against its dumb twin: a list that is looked through from one end to the other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_types::{Extent, ExtentIndex};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Change {
    Insert(Extent),
    /// Removes the entry at this place of the list, counted around.
    Remove(usize),
}

/// Extents of all magnitudes, crowded at the small offsets and at the very end.
fn extents() -> impl Strategy<Value = Extent> {
    let near = (0_u64..100, 1_u64..40).prop_map(|(start, length)| (start, start + length));
    let far = (any::<u64>(), 0_u32..64).prop_map(|(start, shift)| (start, start.saturating_add(1 << shift)));
    let magnitudes = (0_u64..100, 0_u32..63).prop_map(|(start, shift)| (start, start + (1 << shift)));
    let to_eof = (0_u64..100).prop_map(|start| (start, Extent::EOF));
    let last = (1_u64..40).prop_map(|length| (Extent::EOF - length, Extent::EOF));
    prop_oneof![4 => near, 1 => far, 2 => magnitudes, 1 => to_eof, 1 => last]
        .prop_filter_map("not empty", |(start, end)| Extent::new(start, end))
}

fn changes() -> impl Strategy<Value = Change> {
    prop_oneof![3 => extents().prop_map(Change::Insert), 2 => any::<usize>().prop_map(Change::Remove)]
}

fn compare(index: &ExtentIndex<u64>, list: &[(Extent, u64)], probe: Extent) {
    assert_eq!((index.len(), index.is_empty()), (list.len(), list.is_empty()));
    let mut found: Vec<(Extent, u64)> = index.overlapping(probe).collect();
    found.sort_unstable();
    let mut expected: Vec<(Extent, u64)> =
        list.iter().copied().filter(|(extent, _)| extent.overlaps(probe)).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    for remainder in 0..2 {
        let counts = |key: u64| key % 2 == remainder;
        let starts = list.iter().filter(|(_, key)| counts(*key)).map(|(extent, _)| extent.start());
        let least = starts.filter(|start| (probe.start()..probe.end()).contains(start)).min();
        assert_eq!(index.first_start(probe.start(), probe.end(), counts), least);
    }
    let at = probe.start();
    let holds = |extent: Extent| extent.start() <= at && at < extent.end();
    let mut nearest = index.nearest(at);
    assert!(nearest.all(|key| list.iter().any(|(extent, other)| *other == key && holds(*extent))));
    // Where no two extents share a byte, the one that holds the byte is found.
    let alone = list.iter().filter(|(extent, _)| extent.start() <= at).max();
    if let Some((extent, key)) = alone
        && holds(*extent)
        && list.iter().filter(|(other, _)| other.overlaps(*extent)).count() == 1
    {
        assert!(index.nearest(at).any(|found| found == *key));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_extent_index_agrees_with_a_list(
        history in prop::collection::vec((changes(), extents()), 1..80),
    ) {
        let mut index = ExtentIndex::new();
        let mut list: Vec<(Extent, u64)> = Vec::new();
        for (key, (change, probe)) in (0_u64..).zip(&history) {
            match change {
                Change::Insert(extent) => {
                    index.insert(*extent, key);
                    list.push((*extent, key));
                }
                Change::Remove(_) if list.is_empty() => {}
                Change::Remove(at) => {
                    let (extent, key) = list.swap_remove(at % list.len());
                    index.remove(extent, key);
                }
            }
            compare(&index, &list, *probe);
        }
    }
}
