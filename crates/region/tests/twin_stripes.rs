//! The part of a region on a stripe, against its dumb twin: one byte after the other.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccpfs_region::{Region, RegionError, SECTIONS_MAX, Section, UNBOUNDED};
use ccpfs_types::{Extent, Layout};
use support::{Bits, Random, UNIT, striped_shape};

/// Bytes of the file that are compared: more than any bounded shape reaches.
const WORDS: usize = 1 << 13;

/// Where a whole number of rounds of one to four stripes ends, less than `WORDS` words before the end of all files.
const END_BASE: u64 = (Extent::EOF - 60 * WORDS as u64) / (12 * UNIT) * (12 * UNIT);

fn on_stripe_by_bytes(file: &Bits, layout: &Layout, stripe: u32) -> Bits {
    let mut bits = Bits::new(file.base / u64::from(layout.stripe_count()), WORDS);
    for offset in file.offsets() {
        if (offset / UNIT) % u64::from(layout.stripe_count()) == u64::from(stripe) {
            bits.set(layout.local_offset(offset));
        }
    }
    bits
}

/// The bits of pieces, as far as they lie before `end`; they must rise.
fn bits_of(pieces: impl Iterator<Item = Extent>, base: u64, end: u64) -> Bits {
    let mut bits = Bits::new(base, WORDS);
    let mut last = 0;
    for piece in pieces.take_while(|piece| piece.start() < end) {
        assert!(piece.start() >= last, "pieces rise");
        last = piece.end();
        bits.set_extent(Extent::new(piece.start(), piece.end().min(end)).unwrap());
    }
    bits
}

/// Compares the parts of a region on all stripes; says how many were too many sections.
fn compare(region: &Region, base: u64, layout: &Layout) -> usize {
    let file = Bits::of_region(region, base, WORDS);
    let mut too_many = 0;
    for stripe in 0..layout.stripe_count() {
        let expected = on_stripe_by_bytes(&file, layout, stripe);
        let end = layout.stripe_length(stripe, file.end());
        match region.on_stripe(layout, stripe, SECTIONS_MAX) {
            Ok(part) => {
                let pieces = part.iter().flat_map(Region::pieces);
                assert_eq!(
                    bits_of(pieces, expected.base, end),
                    expected,
                    "{region} on {stripe} of {layout:?}"
                );
            }
            Err(error) => {
                assert_eq!(error, RegionError::TooMany, "{region}");
                too_many += 1;
            }
        }
        let pieces = region.stripe_pieces(layout, stripe);
        assert_eq!(
            bits_of(pieces, expected.base, end),
            expected,
            "{region} on {stripe} of {layout:?}, walked"
        );
    }
    too_many
}

fn random_parts(seed: u64, base: u64, rounds: usize) {
    let mut random = Random(seed);
    let mut too_many = 0;
    for _ in 0..rounds {
        let shape = striped_shape(&mut random, base);
        let layout = Layout::new(1 + random.below(4) as u32, UNIT).unwrap();
        match shape.section() {
            Ok(section) => too_many += compare(&section.into(), base, &layout),
            Err(error) => assert!(base > 0 && error == RegionError::Overflow, "{shape:?}: {error}"),
        }
    }
    assert!(too_many < rounds / 2, "{too_many}");
}

#[test]
fn parts_on_stripes_are_what_their_bytes_are() {
    random_parts(5, 0, 400);
}

#[test]
fn parts_on_stripes_at_the_end_of_all_files_are_what_their_bytes_are() {
    random_parts(9, END_BASE, 400);
}

#[test]
fn an_extent_of_a_stripe_is_the_same_bytes_of_the_file() {
    let mut random = Random(7);
    for _ in 0..300 {
        let layout = Layout::new(1 + random.below(4) as u32, UNIT).unwrap();
        let stripe = random.below(u64::from(layout.stripe_count())) as u32;
        let local = Extent::with_length(random.below(20_000), 1 + random.below(20_000)).unwrap();
        let region = Region::from_stripe(&layout, stripe, local).unwrap();
        let expected: Vec<u64> =
            (local.start()..local.end()).map(|byte| layout.file_offset(stripe, byte)).collect();
        let found: Vec<u64> = region.pieces().flat_map(|piece| piece.start()..piece.end()).collect();
        assert_eq!(found, expected, "{region}");
        assert!(region.sections().count() <= 3);
        assert_eq!(region.on_stripe(&layout, stripe, 3), Ok(Some(local.into())));
    }
    let layout = Layout::new(2, UNIT).unwrap();
    let all = Region::from_stripe(&layout, 1, Extent::WHOLE).unwrap();
    assert_eq!(all, Section::new(UNIT, UNIT, &[(2 * UNIT, UNBOUNDED)]).unwrap().into());
    assert_eq!(Region::from_stripe(&layout, 1, Extent::to_eof(u64::MAX - 5)), None);
    // The last byte of all files lies at the end of a stripe 1, less one.
    let last = Extent::with_length(layout.local_offset(Extent::EOF - 1), 1).unwrap();
    let byte = Extent::with_length(Extent::EOF - 1, 1).unwrap();
    assert_eq!(Region::from_stripe(&layout, 1, last), Some(byte.into()));
    assert_eq!(Region::from_stripe(&layout, 1, Extent::to_eof(last.start())), Some(byte.into()));
}

#[test]
fn strided_pieces_stay_one_section_on_every_stripe() {
    let layout = Layout::new(4, 64 << 10).unwrap();
    let locks = Section::new(0, 1, &[(64, 128 << 10)]).unwrap();
    let expected = Section::new(0, 1, &[(64, 32 << 10)]).unwrap();
    for stripe in 0..4 {
        assert_eq!(Region::from(locks).on_stripe(&layout, stripe, 1), Ok(Some(expected.into())));
    }
    // Whole units, of which each second one lies on this stripe: to the end of the file.
    let units = Section::new(128 << 10, 64 << 10, &[(128 << 10, UNBOUNDED)]).unwrap();
    let part = Region::from(units).on_stripe(&layout, 2, 1);
    assert_eq!(part, Ok(Some(Extent::WHOLE.into())));
    assert_eq!(Region::from(units).on_stripe(&layout, 1, 1), Ok(None));
}

#[test]
fn the_cost_does_not_depend_on_the_number_of_pieces_or_stripes() {
    // On one unit of each round lie 1365 pieces and the head or the tail of one more: a period is three rounds.
    let pieces = Section::new(0, 16, &[(48, UNBOUNDED)]).unwrap();
    for stripes in [2, 64, 2048] {
        let layout = Layout::new(stripes, 64 << 10).unwrap();
        let part = Region::from(pieces).on_stripe(&layout, stripes - 1, 8).unwrap().unwrap();
        assert!(part.sections().count() <= 6, "{part}");
    }
    let odd = Section::new(0, 1, &[(65_537, UNBOUNDED)]).unwrap();
    let layout = Layout::new(2, 64 << 10).unwrap();
    assert_eq!(Region::from(odd).on_stripe(&layout, 0, 64), Err(RegionError::TooMany));
    let third = Region::from(odd);
    let third: Vec<Extent> = third.stripe_pieces(&layout, 0).take(3).collect();
    assert_eq!(third[2], Extent::with_length((64 << 10) * 2 + 4, 1).unwrap());
}

#[test]
fn extents_to_the_end_of_the_file_reach_to_the_end_of_every_stripe() {
    let layout = Layout::new(3, UNIT).unwrap();
    let region = Region::from(Extent::to_eof(5000));
    let starts = [4096, 904, 0];
    for (stripe, start) in (0..3).zip(starts) {
        assert_eq!(region.on_stripe(&layout, stripe, 1), Ok(Some(Extent::to_eof(start).into())));
        assert_eq!(
            region.stripe_pieces(&layout, stripe).next(),
            Extent::new(start, (start + 1).next_multiple_of(UNIT))
        );
    }
}
