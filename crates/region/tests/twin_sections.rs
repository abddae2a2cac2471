//! `Section` against its dumb twin: a bit for each byte.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccpfs_region::{RegionError, Section, UNBOUNDED};
use ccpfs_types::Extent;
use std::collections::{BTreeMap, BTreeSet};
use support::{Bits, Random, Shape};

/// Words of a universe in which all that ever happens at small offsets has happened once: two unbounded sections
/// with strides below 90 repeat what they share within 8,000 bytes.
const WORDS: usize = 128;
/// Words of the universe before the end of all files.
const WORDS_AT_END: usize = 4;
/// Where it begins.
const END_BASE: u64 = Extent::EOF - 64 * WORDS_AT_END as u64;

/// Asks the section everything that it answers alone.
fn compare_alone(section: &Section, bits: &Bits, random: &mut Random) {
    let first = bits.offsets().next().unwrap();
    assert_eq!((section.offset(), section.bounds().start()), (first, first), "{section}");
    for _ in 0..8 {
        let at = bits.base + random.below(200);
        assert_eq!(section.contains(at), bits.has(at), "{section} {at}");
        assert_eq!(section.bytes_before(at), bits.count_before(at), "{section} {at}");
        let next = (at..bits.end()).find(|offset| bits.has(*offset));
        assert_eq!(section.piece_from(at).map(Extent::start), next, "{section} {at}");
    }
    if section.bounds().end() < bits.end() {
        let last = bits.offsets().last().unwrap();
        assert_eq!(section.bounds().end(), last + 1, "{section}");
        assert_eq!(section.length_bytes(), bits.count_before(bits.end()));
        assert_eq!(section.piece_count() * section.length(), section.length_bytes());
    }
    if bits.end() == Extent::EOF {
        assert_eq!(section.length_bytes(), bits.count_before(Extent::EOF), "{section}");
        let pieces = std::iter::successors(section.piece_from(0), |piece| section.piece_from(piece.end()));
        assert_eq!(section.piece_count(), pieces.count() as u64, "{section}");
    }
}

fn bits_of(sections: &[Section], like: &Bits, words: usize) -> Bits {
    let mut bits = Bits::new(like.base, words);
    for section in sections {
        let mut at = 0;
        while let Some(piece) = section.piece_from(at).filter(|piece| piece.start() < bits.end()) {
            for offset in piece.start()..piece.end().min(bits.end()) {
                assert!(bits.set(offset), "{sections:?}: no byte twice");
            }
            at = piece.end();
        }
    }
    bits
}

fn compare_parts(section: &Section, bits: &Bits, words: usize, random: &mut Random) {
    let start = bits.base + random.below(120);
    let end = if random.one_in(4) { Extent::EOF } else { start.saturating_add(1 + random.below(80)) };
    let window = Extent::new(start, end).unwrap();
    let (inside, outside) = bits.split(window);
    let kept = section.in_extent(window);
    assert!(kept.len() <= 2 * section.levels().len() + 1, "{section} in {window}: {kept:?}");
    assert!(kept.iter().all(|part| end == Extent::EOF || window.contains(part.bounds())));
    assert_eq!(bits_of(&kept, bits, words), inside, "{section} in {window}");
    assert_eq!(bits_of(&section.without(window), bits, words), outside, "{section} without {window}");
    let gaps: Vec<Section> = section.gaps().collect();
    let mut all = bits_of(&gaps, bits, words);
    assert_eq!(all.first_common(bits), None, "{section}: gaps are not in it");
    all.add(bits);
    let end = section.bounds().end().min(bits.end());
    assert!((section.offset()..end).all(|offset| all.has(offset)), "{section}: gaps fill it up");
}

fn compare_two(a: &Section, of_a: &Bits, b: &Section, of_b: &Bits) {
    let common = of_a.first_common(of_b);
    assert_eq!(a.first_common(b), common, "{a} and {b}");
    assert_eq!(b.first_common(a), common, "{b} and {a}");
    assert_eq!(
        a.contains_section(b),
        a.bounds().contains(b.bounds()) && of_a.contains(of_b),
        "{a} holds {b}"
    );
}

/// A shape with its section and its bits, if it is one; nonsense must be refused.
fn made(shape: &Shape, base: u64, words: usize) -> Option<(Section, Bits)> {
    let bits = shape.bits(base, words);
    match shape.section() {
        Ok(section) => Some((section, bits.unwrap_or_else(|| panic!("{shape:?} is nonsense: {section}")))),
        Err(error) => {
            assert!(bits.is_none() || error == RegionError::Overlapping, "{shape:?}: {error}");
            None
        }
    }
}

fn random_sections(seed: u64, base: u64, words: usize, rounds: u32) {
    let mut random = Random(seed);
    let mut last: Option<(Section, Bits)> = None;
    for _ in 0..rounds {
        let shape = random.shape(base);
        let Some((section, bits)) = made(&shape, base, words) else { continue };
        compare_alone(&section, &bits, &mut random);
        compare_parts(&section, &bits, words, &mut random);
        if let Some((other, of_other)) = &last {
            compare_two(&section, &bits, other, of_other);
        }
        last = Some((section, bits));
    }
}

#[test]
fn random_sections_answer_as_bits_do() {
    random_sections(1, 0, WORDS, 4_000);
}

#[test]
fn random_sections_at_the_end_of_all_files_answer_as_bits_do() {
    random_sections(2, END_BASE, WORDS_AT_END, 40_000);
}

/// Pairs from a pool, so that a million of them are compared in a few seconds.
fn random_pairs(seed: u64, base: u64, words: usize, pool: usize) {
    let mut random = Random(seed);
    let mut sections = Vec::new();
    while sections.len() < pool {
        let shape = random.shape(base);
        sections.extend(made(&shape, base, words));
    }
    for (at, (a, of_a)) in sections.iter().enumerate() {
        for (b, of_b) in &sections[..=at] {
            assert_eq!(a.first_common(b), of_a.first_common(of_b), "{a} and {b}");
        }
    }
}

#[test]
fn half_a_million_random_pairs_share_what_their_bits_share() {
    random_pairs(3, 0, WORDS, 1_000);
}

#[test]
fn half_a_million_random_pairs_at_the_end_of_all_files_share_what_their_bits_share() {
    random_pairs(4, END_BASE, WORDS_AT_END, 1_000);
}

/// All shapes of up to two levels with small numbers.
fn small_shapes() -> Vec<Shape> {
    let mut levels: Vec<Vec<(u64, u64)>> = vec![Vec::new()];
    for stride in 1..=7 {
        for count in 2..=4 {
            levels.push(vec![(stride, count)]);
            for outer in stride..=16 {
                levels.extend((2..=3).map(|count_outer| vec![(stride, count), (outer, count_outer)]));
            }
        }
    }
    let mut shapes = Vec::new();
    for offset in [0, 1, 3] {
        for length in 1..=3 {
            shapes.extend(levels.iter().map(|levels| Shape { offset, length, levels: levels.clone() }));
        }
    }
    shapes
}

#[test]
fn all_pairs_of_small_sections_share_what_their_bits_share() {
    let known: BTreeMap<Section, Bits> =
        small_shapes().iter().filter_map(|shape| made(shape, 0, 2)).collect();
    assert!(known.len() > 1_000);
    for (a, of_a) in &known {
        for (b, of_b) in &known {
            assert_eq!(a.first_common(b), of_a.first_common(of_b), "{a} and {b}");
        }
    }
}

#[test]
fn sections_of_the_same_bytes_are_equal() {
    let mut by_bits: BTreeMap<Bits, BTreeSet<Section>> = BTreeMap::new();
    for (section, bits) in small_shapes().iter().filter_map(|shape| made(shape, 0, 2)) {
        by_bits.entry(bits).or_default().insert(section);
    }
    assert!(by_bits.len() > 1_000);
    for sections in by_bits.values() {
        assert_eq!(sections.len(), 1, "{sections:?}");
    }
}

#[test]
fn levels_may_come_in_any_order_and_nonsense_is_refused() {
    let rows = Section::new(0, 8, &[(64, 4), (1024, 3)]).unwrap();
    assert_eq!(Section::new(0, 8, &[(1024, 3), (64, 4)]), Ok(rows));
    assert_eq!(Section::new(0, 8, &[(8, 8), (64, 4)]), Ok(Extent::new(0, 256).unwrap().into()));
    assert_eq!(Section::new(0, 8, &[(64, 16), (1024, 3)]), Section::new(0, 8, &[(64, 48)]));
    assert_eq!(Section::new(0, 0, &[(64, 2)]), Err(RegionError::Empty));
    assert_eq!(Section::new(0, 1, &[(64, 0)]), Err(RegionError::Empty));
    assert_eq!(Section::new(0, 8, &[(4, 2)]), Err(RegionError::Overlapping));
    assert_eq!(Section::new(0, 8, &[(0, 2)]), Err(RegionError::Overlapping));
    assert_eq!(Section::new(0, 1, &[(64, 2), (64, 2)]), Err(RegionError::Overlapping));
    assert_eq!(Section::new(0, 1, &[(64, UNBOUNDED), (128, 2)]), Err(RegionError::Overlapping));
    assert_eq!(Section::new(1, u64::MAX, &[]), Err(RegionError::Overflow));
    assert_eq!(Section::new(0, 1, &[(1 << 63, 3)]), Err(RegionError::Overflow));
    assert_eq!(Section::new(0, 1, &[(u64::MAX, 2)]), Err(RegionError::Overflow));
    let deep: Vec<(u64, u64)> = (0..9).map(|level| (3 << (2 * level), 2)).collect();
    assert_eq!(Section::new(0, 1, &deep), Err(RegionError::TooDeep));
    assert_eq!(Section::new(0, 1, &[(1, UNBOUNDED)]), Ok(Extent::WHOLE.into()));
}

#[test]
fn sections_say_what_they_are() {
    let section = Section::new(4096, 1, &[(64, 1024), (1 << 20, UNBOUNDED)]).unwrap();
    assert_eq!(section.to_string(), "4096+1 each 64 x 1024 each 1048576 x ..");
    assert_eq!(Section::from(Extent::to_eof(5)).to_string(), "5..EOF");
}

#[test]
fn a_level_that_cannot_go_on_is_unbounded() {
    let unbounded = Section::new(7, 3, &[(1 << 60, UNBOUNDED)]).unwrap();
    assert_eq!(Section::new(7, 3, &[(1 << 60, 16)]), Ok(unbounded));
    assert_ne!(Section::new(7, 3, &[(1 << 60, 15)]), Ok(unbounded));
    assert_eq!(unbounded.bounds(), Extent::to_eof(7));
    assert_eq!(unbounded.piece_count(), 16);
    let head = Section::new(7, 3, &[(1 << 60, 15)]).unwrap();
    assert_eq!(head.joined(&Extent::with_length(7 + (15 << 60), 3).unwrap().into()), Some(unbounded));
}

/// Shapes of many copies, whose strides divide each other, or nearly do.
fn lattice(random: &mut Random) -> Shape {
    let length = 1 + random.below(2);
    let inner = (4 + 2 * random.below(3), 1 + random.below(4));
    let span = inner.0 * inner.1;
    let outer =
        (span.next_multiple_of(12) + random.below(3) * 12 + random.below(8) / 7, 1 + random.below(30));
    Shape { offset: random.below(200), length, levels: vec![inner, outer] }
}

#[test]
fn pairs_of_many_copies_share_what_their_bits_share() {
    let mut random = Random(8);
    let sections: Vec<(Section, Bits)> =
        (0..700).filter_map(|_| made(&lattice(&mut random), 0, WORDS)).collect();
    for (at, (a, of_a)) in sections.iter().enumerate() {
        for (b, of_b) in &sections[..at] {
            assert_eq!(a.first_common(b), of_a.first_common(of_b), "{a} and {b}");
        }
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let largest = 1_u64 << 62;
    let a = Section::new(0, 1, &[(largest + 1, 3)]).unwrap();
    let b = Section::new(1, 1, &[(largest, 3)]).unwrap();
    assert_eq!(a.first_common(&b), Some(largest + 1));
    let coprime = Section::new(2, 1, &[((1 << 32) - 1, UNBOUNDED)]).unwrap();
    let other = Section::new(0, 1, &[((1 << 31) - 1, UNBOUNDED)]).unwrap();
    let byte = coprime.first_common(&other).unwrap();
    assert!(coprime.contains(byte) && other.contains(byte));
    assert_eq!((byte - 2) % ((1 << 32) - 1), 0);
    // The least common byte of such strides lies within one least common multiple: strides of 63 bits have none below EOF.
    let far = Section::new(0, 1, &[((1 << 63) - 25, UNBOUNDED)]).unwrap();
    let away = Section::new(1, 1, &[((1 << 62) - 57, UNBOUNDED)]).unwrap();
    assert_eq!(far.first_common(&away), None);
    assert_eq!(far.piece_count(), 3);
    let whole = Section::from(Extent::WHOLE);
    assert!(whole.contains_section(&far) && !far.contains_section(&whole));
    assert_eq!(whole.length_bytes(), u64::MAX);
    let last = Section::new(u64::MAX - 1, 1, &[(1, UNBOUNDED)]).unwrap();
    assert_eq!(last, Extent::new(u64::MAX - 1, u64::MAX).unwrap().into());
    assert!(last.overlaps(&whole) && last.gaps().next().is_none());
}
