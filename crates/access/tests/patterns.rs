//! Patterns of programs, one by one: what is desired, from which operation on, and where nothing is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_access::{Detector, NEED_MAX};
use ccpfs_region::{Section, UNBOUNDED};
use ccpfs_types::Extent;

fn at(offset: u64, length: u64) -> Extent {
    Extent::with_length(offset, length).unwrap()
}

fn section(offset: u64, length: u64, levels: &[(u64, u64)]) -> Option<Section> {
    Some(Section::new(offset, length, levels).unwrap())
}

/// What is desired after each operation.
fn all_desired(operations: impl IntoIterator<Item = Extent>) -> Vec<Option<Section>> {
    let mut detector = Detector::new();
    let mut desired = Vec::new();
    for operation in operations {
        detector.step(operation);
        desired.push(detector.desired());
        assert!(detector.is_sure() || detector.desired().is_none());
    }
    desired
}

/// Numbers that look random, always the same ones.
fn scattered(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).scan(1_u64, |state, _| {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Some(*state >> 33)
    })
}

/// In how many operations something was desired.
fn count(desired: &[Option<Section>]) -> usize {
    desired.iter().flatten().count()
}

#[test]
fn a_strided_writer_is_known_at_its_third_write() {
    let desired = all_desired((0..5).map(|k| at(47_008 * (1 + 4 * k), 47_008)));
    assert_eq!(desired[..2], [None, None]);
    for (k, desired) in (2..).zip(&desired[2..]) {
        assert_eq!(*desired, section(47_008 * (1 + 4 * k), 47_008, &[(4 * 47_008, UNBOUNDED)]));
    }
}

#[test]
fn pieces_written_in_several_operations_are_one() {
    let blocks = (0..4).flat_map(|k| (0..4).map(move |part| at(k * 65_536 + part * 4096, 4096)));
    let desired = all_desired(blocks);
    assert_eq!(count(&desired[..8]), 0);
    for (number, desired) in desired.iter().enumerate().skip(8) {
        assert_eq!(*desired, section(number as u64 / 4 * 65_536, 16_384, &[(65_536, UNBOUNDED)]), "{number}");
    }
}

#[test]
fn one_after_the_other_nothing_is_desired_forwards_and_all_below_backwards() {
    assert_eq!(count(&all_desired((0..100).map(|k| at(k * 4096, 4096)))), 0);
    let desired = all_desired((0..100).map(|k| at((99 - k) * 4096, 4096)));
    assert_eq!(desired[1], None);
    assert_eq!(desired[2], section(0, 98 * 4096, &[]));
    assert_eq!(desired[98], section(0, 8192, &[]));
}

#[test]
fn a_strided_reader_that_goes_backwards_desires_what_lies_below() {
    let desired = all_desired((0..9).map(|k| at(1000 + (8 - k) * 700, 100)));
    assert_eq!(desired[1], None);
    assert_eq!(desired[2], section(300, 100, &[(700, 8)]));
    assert_eq!(desired[7], section(300, 100, &[(700, 3)]));
}

#[test]
fn rows_of_tiles_are_known_in_the_second_tile() {
    let tile = |t: u64| (0..8).map(move |row| at(500 + t * 1_000_000 + row * 3000, 128));
    let desired = all_desired((0..4).flat_map(tile));
    assert_eq!(desired[2], section(6500, 128, &[(3000, UNBOUNDED)]));
    assert_eq!(desired[8], section(1_000_500, 128, &[(3000, 8)]), "perhaps a group like the first");
    for (number, desired) in desired.iter().enumerate().skip(9) {
        let start = number as u64 / 8 * 1_000_000 + 500;
        assert_eq!(*desired, section(start, 128, &[(3000, 8), (1_000_000, UNBOUNDED)]), "{number}");
    }
}

#[test]
fn three_loops_are_known_in_the_second_round_of_the_outermost() {
    let piece = |k: u64| at(k % 3 * 64 + k / 3 % 4 * 1000 + k / 12 * 50_000, 10);
    let desired = all_desired((0..48).map(piece));
    for (k, desired) in desired.iter().enumerate().skip(16) {
        let start = k as u64 / 12 * 50_000;
        assert_eq!(*desired, section(start, 10, &[(64, 3), (1000, 4), (50_000, UNBOUNDED)]), "{k}");
    }
}

#[test]
fn two_pieces_in_each_record_are_known_at_the_third_record() {
    let desired = all_desired((0..6).flat_map(|k| [at(k * 5000, 64), at(k * 5000 + 256, 64)]));
    assert_eq!(count(&desired[..4]), 0);
    assert_eq!(desired[4], section(10_000, 64, &[(256, 2), (5000, UNBOUNDED)]));
    assert_eq!(desired[11], section(25_000, 64, &[(256, 2), (5000, UNBOUNDED)]));
}

#[test]
fn a_gap_at_the_end_of_each_stripe_unit_is_a_loop() {
    // Ten records of 100,000 bytes in each MiB, of which every other one is ours.
    let record = |k: u64| at(k / 5 * (1 << 20) + k % 5 * 200_000, 100_000);
    let desired = all_desired((0..20).map(record));
    assert_eq!(desired[6], section(1 << 20, 100_000, &[(200_000, 5), (1 << 20, UNBOUNDED)]));
    assert_eq!(desired[19], section(3 << 20, 100_000, &[(200_000, 5), (1 << 20, UNBOUNDED)]));
}

#[test]
fn a_last_block_of_each_row_may_be_shorter() {
    // Rows of 1000 bytes in blocks of 300 bytes, each third row.
    let block = |k: u64| at(k / 4 * 3000 + k % 4 * 300, if k % 4 == 3 { 100 } else { 300 });
    let desired = all_desired((0..24).map(block));
    assert_eq!(desired[8], section(6000, 1000, &[(3000, UNBOUNDED)]));
    // Pieces with gaps between them, the last one cut.
    let piece = |k: u64| at(k / 4 * 9000 + k % 4 * 500, if k % 4 == 3 { 70 } else { 300 });
    let desired = all_desired((0..16).map(piece));
    assert_eq!(desired[11], section(18_000, 300, &[(500, 4), (9000, UNBOUNDED)]));
}

#[test]
fn columns_of_a_matrix_are_desired_one_at_a_time() {
    // Down a column of ten rows, then the next column: all of a band lies between the pieces.
    let element = |k: u64| at(1 << 16 | (k % 10 * 4096 + k / 10 * 8), 8);
    let desired = all_desired((0..40).map(element));
    assert_eq!(desired[2], section((1 << 16) + 8192, 8, &[(4096, UNBOUNDED)]));
    assert_eq!(desired[25], section((1 << 16) + 16 + 5 * 4096, 8, &[(4096, 5)]), "what is left of it");
}

#[test]
fn a_header_that_is_written_in_between_does_not_end_a_pattern() {
    let mut detector = Detector::new();
    for k in 0..100 {
        detector.step(at(1_000_000 + k * 40_000, 10_000));
        assert_eq!(detector.desired().is_some(), k >= 2, "{k}");
        if k % 7 == 6 {
            detector.step(at(0, 512));
            assert_eq!(detector.desired(), None);
        }
    }
}

#[test]
fn a_new_pattern_is_known_at_its_third_operation() {
    let first = (0..50).map(|k| at(k * 4000, 1000));
    let second = (0..5).map(|k| at(7_000_000 + k * 10_000, 600));
    let desired = all_desired(first.chain(second));
    assert_eq!(desired[51], None);
    // As far as the pattern before went: nobody knows whether this one goes on longer.
    let Some(found) = desired[52] else { panic!("nothing is desired") };
    assert_eq!((found.offset(), found.length(), found.levels()[0].stride()), (7_020_000, 600, 10_000));
    assert!((48..=52).contains(&found.levels()[0].count()), "{found}");
}

#[test]
fn a_pattern_that_outlives_the_one_before_is_desired_further_and_further() {
    let first = (0..6).map(|k| at(k * 4000, 1000));
    let second = (0..1000).map(|k| at((1 << 30) + k * 10_000, 600));
    let desired = all_desired(first.chain(second));
    // How often a lock that was granted as desired does not cover the next piece.
    let (mut end, mut requests) = (0, 0);
    for (k, desired) in (0_u64..).zip(&desired[6..]) {
        if (1 << 30) + k * 10_000 + 600 > end {
            requests += 1;
            end = desired.map_or(0, |section| section.bounds().end());
        }
    }
    assert!((3..=13).contains(&requests), "{requests}");
}

#[test]
fn strides_that_shrink_or_grow_are_not_desired() {
    let sums =
        |step: fn(u64) -> u64| (0..400).scan(0, move |sum, k| Some(core::mem::replace(sum, *sum + step(k))));
    assert_eq!(count(&all_desired(sums(|k| 1_000_000 - 1000 * k).map(|offset| at(offset, 512)))), 0);
    assert_eq!(count(&all_desired(sums(|k| 1000 + 100 * k).map(|offset| at(offset, 512)))), 0);
    // Each distance twice: seen, and less and less believed.
    let twice = count(&all_desired(sums(|k| 2_000_000 - 1000 * (k / 2)).map(|offset| at(offset, 512))));
    assert!(twice <= 2, "{twice}");
}

#[test]
fn random_operations_are_not_desired() {
    let blocks = |among: u64| scattered(100_000).map(move |number| at(number % among * 4096, 4096));
    assert_eq!(count(&all_desired(blocks(1 << 30))), 0);
    assert!(count(&all_desired(blocks(1 << 12))) <= 20);
    let few = count(&all_desired(blocks(8)));
    assert!(few <= 200, "{few} of 100,000 in eight places");
}

#[test]
fn segments_are_desired_only_where_several_are_written() {
    // One segment of each process: one after the other.
    assert_eq!(count(&all_desired((0..64).map(|k| at((5 << 30) + k * 65_536, 65_536)))), 0);
    let many = all_desired((0..64).map(|k| at(k / 16 * (64 << 20) + k % 16 * 65_536, 65_536)));
    assert_eq!(count(&many[..32]), 0);
    assert_eq!(many[32], section(128 << 20, 1 << 20, &[(64 << 20, UNBOUNDED)]));
}

#[test]
fn patterns_that_alternate_are_given_up() {
    // Three pieces, then elsewhere, at no regular distance: each desire is wrong.
    let pieces = scattered(4000).flat_map(|number| {
        let base = number % (1 << 30) * 4096;
        (0..3).map(move |k| at(base + k * 50_000, 4096))
    });
    let wrong = count(&all_desired(pieces));
    assert!(wrong <= NEED_MAX as usize, "{wrong} of 12,000");
}

#[test]
fn repeating_an_operation_says_nothing() {
    assert_eq!(count(&all_desired((0..50).map(|_| at(4096, 4096)))), 0);
    let twice = (0..20).map(|k| at(k / 2 * 9000, 1000));
    assert!(all_desired(twice)[5].is_some());
}

#[test]
fn the_end_of_all_files_is_not_passed() {
    let end = i64::MAX.cast_unsigned();
    let desired = all_desired((0..3).map(|k| at(end - 3_000 + k * 1000, 500)));
    assert!(desired[2].is_some());
    let desired = all_desired([at(0, 10), at(end - 5, 5), at(0, 1), at(end - 5, 5), at(1, u64::MAX - 1)]);
    assert_eq!(count(&desired), 0);
}
