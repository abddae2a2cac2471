//! `Region` against its dumb twin: a bit for each byte.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccpfs_region::{Region, RegionError, SECTIONS_MAX, Section, UNBOUNDED};
use ccpfs_types::Extent;
use proptest::prelude::*;
use support::{Bits, Shape};

/// Enough for all that two unbounded sections of this file share to have begun: strides are below 100.
const WORDS: usize = 192;

fn bits(region: &Region) -> Bits {
    Bits::of_region(region, 0, WORDS)
}

fn extents() -> impl Strategy<Value = Extent> {
    (0_u64..120, 1_u64..30).prop_map(|(start, length)| Extent::with_length(start, length).unwrap())
}

fn sections() -> impl Strategy<Value = Section> {
    let level = || (0_u64..10, 1_u64..4);
    let shape = (0_u64..40, 1_u64..4, level(), level(), proptest::option::weighted(0.2, 0_u64..30));
    shape.prop_map(|(offset, length, inner, outer, endless)| {
        let first = (length + inner.0, inner.1);
        let second = ((first.1 - 1) * first.0 + length + outer.0, outer.1);
        let span = second.0 * second.1;
        let levels: Vec<(u64, u64)> =
            [first, second].into_iter().chain(endless.map(|gap| (span + gap, UNBOUNDED))).collect();
        Section::new(offset, length, &levels).unwrap()
    })
}

fn regions() -> impl Strategy<Value = Region> {
    let one = extents().prop_map(Region::from);
    let list = prop::collection::vec(extents(), 1..6).prop_map(|list| Region::from_extents(list).unwrap());
    let some = prop::collection::vec(sections(), 1..4)
        .prop_filter_map("disjoint", |sections| Region::from_sections(sections).ok());
    prop_oneof![1 => one, 2 => list, 4 => some]
}

/// Whether a region is in a form for which `contains_region` is exact.
fn is_simple(region: &Region) -> bool {
    region.sections().count() == 1 || region.sections().all(|section| section.levels().is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn regions_answer_as_bits_do(a in regions(), b in regions(), at in 0_u64..200) {
        let (of_a, of_b) = (bits(&a), bits(&b));
        prop_assert_eq!(a.first_common(&b), of_a.first_common(&of_b), "{} and {}", a, b);
        prop_assert_eq!(a.overlaps(&b), b.overlaps(&a));
        prop_assert_eq!(a.contains(at), of_a.has(at));
        prop_assert_eq!(a.bytes_before(at), of_a.count_before(at));
        prop_assert_eq!(a.pieces_from(at).next().map(Extent::start), (at..of_a.end()).find(|at| of_a.has(*at)));
        let holds = a.contains_region(&b);
        prop_assert!(!holds || of_a.contains(&of_b), "{} holds {}", a, b);
        if is_simple(&a) || b.as_extent().is_some() {
            prop_assert_eq!(holds, a.bounds().contains(b.bounds()) && of_a.contains(&of_b), "{} holds {}", a, b);
        }
        if a.bounds().end() < Extent::EOF {
            prop_assert_eq!(a.length_bytes(), of_a.count_before(of_a.end()));
            prop_assert_eq!(a.piece_count(), a.pieces().count() as u64);
            prop_assert_eq!(a.bounds().end(), of_a.offsets().last().unwrap() + 1);
        }
    }

    #[test]
    fn what_is_taken_and_what_is_kept_is_the_region(a in regions(), start in 0_u64..150, length in 1_u64..80) {
        let taken = Extent::with_length(start, length).unwrap();
        let (inside, outside) = bits(&a).split(taken);
        let none = Bits::new(0, WORDS);
        prop_assert_eq!(&a.in_extent(taken).map_or(none.clone(), |part| bits(&part)), &inside);
        prop_assert_eq!(&a.without(taken).map_or(none, |part| bits(&part)), &outside);
        let rest = a.without(taken);
        prop_assert!(rest.is_none_or(|rest| !rest.overlaps(&taken.into()) && a.contains_region(&a)));
        prop_assert_eq!(a.in_extent(Extent::WHOLE), Some(a));
    }

    #[test]
    fn a_region_of_sections_holds_their_bytes_or_is_refused(sections in prop::collection::vec(sections(), 1..4)) {
        let mut all = Bits::new(0, WORDS);
        let mut twice = false;
        for section in &sections {
            let one = bits(&(*section).into());
            twice |= all.first_common(&one).is_some();
            all.add(&one);
        }
        match Region::from_sections(sections.clone()) {
            Ok(region) => prop_assert_eq!(bits(&region), all),
            Err(error) => prop_assert!(twice && error == RegionError::Overlapping),
        }
    }
}

#[test]
fn evenly_spaced_extents_become_a_section() {
    let extents = |starts: &[u64]| {
        Region::from_extents(starts.iter().map(|start| Extent::with_length(*start, 4).unwrap()).collect())
    };
    let section = Section::new(0, 4, &[(64, 3)]).unwrap();
    assert_eq!(extents(&[128, 0, 64]), Some(section.into()));
    assert_eq!(extents(&[0, 4, 8]), Some(Extent::new(0, 12).unwrap().into()));
    assert_eq!(extents(&[0, 64]), Some(Section::new(0, 4, &[(64, 2)]).unwrap().into()));
    assert_eq!(extents(&[0, 64, 100]).unwrap().to_string(), "0..4 | 64..68 | 100..104");
    assert_eq!(extents(&[]), None);
}

#[test]
fn all_pairs_of_small_lists_share_and_hold_what_their_bits_do() {
    let region = |mask: u32| {
        let bits = (0..9).filter(|bit| mask >> bit & 1 == 1);
        // The first bytes lie side by side, the others ever farther apart.
        Region::from_extents(bits.map(|bit| Extent::with_length(bit * bit / 3 + bit, 1).unwrap()).collect())
    };
    let regions: Vec<(u32, Region)> =
        (1..1 << 9).filter_map(|mask| region(mask).map(|region| (mask, region))).collect();
    for (mask, a) in &regions {
        for (other, b) in &regions {
            let both = (mask & other) & (mask & other).wrapping_neg();
            assert_eq!(a.first_common(b), region(both).map(|region| region.bounds().start()), "{a} and {b}");
            assert_eq!(a.contains_region(b), mask & other == *other, "{a} holds {b}");
        }
    }
}

#[test]
fn sections_that_go_on_with_each_other_are_joined() {
    let first = Section::new(0, 4, &[(64, 3)]).unwrap();
    let next = Section::new(192, 4, &[(64, 5)]).unwrap();
    let one = Region::from_sections(vec![next, first]).unwrap();
    assert_eq!(one, Section::new(0, 4, &[(64, 8)]).unwrap().into());
    let endless = Section::new(192, 4, &[(64, UNBOUNDED)]).unwrap();
    assert_eq!(first.joined(&endless), Some(Section::new(0, 4, &[(64, UNBOUNDED)]).unwrap()));
    assert_eq!(first.joined(&Extent::new(192, 196).unwrap().into()), Section::new(0, 4, &[(64, 4)]).ok());
    assert_eq!(endless.joined(&first), None);
    let beside = Section::new(4, 8, &[(64, 3)]).unwrap();
    let wide = Region::from_sections(vec![first, beside]).unwrap();
    assert_eq!(wide, Section::new(0, 12, &[(64, 3)]).unwrap().into());
    // The second and the third make one that lies beside the first.
    let parts =
        [(0, 3), (1, 2), (17, 1)].map(|(offset, count)| Section::new(offset, 1, &[(8, count)]).unwrap());
    assert_eq!(Region::from_sections(parts.to_vec()), Ok(Section::new(0, 2, &[(8, 3)]).unwrap().into()));
    let twice = Section::new(0, 1, &[(64, 4)]).unwrap();
    assert_eq!(Region::from_sections(vec![first, twice]), Err(RegionError::Overlapping));
}

#[test]
fn regression_sections_that_join_to_extents_are_a_list() {
    let even = Section::new(0, 1, &[(2, 3)]).unwrap();
    let odd = Section::new(1, 1, &[(2, 3)]).unwrap();
    let away = Extent::new(10, 12).unwrap();
    let region = Region::from_sections(vec![even, odd, away.into()]).unwrap();
    assert_eq!(Some(region), Region::from_extents(vec![Extent::new(0, 6).unwrap(), away]));
}

#[test]
fn regression_an_extent_of_very_many_pieces_that_touch_is_held() {
    let sections = |count: u64, missing: u64| {
        let even = Section::new(0, 10, &[(20, count)]).unwrap();
        let odd = Section::new(10, 10 - missing, &[(20, count - 1)]).unwrap();
        Region::from_sections(vec![even, odd]).unwrap()
    };
    let all = |count: u64| Region::from(Extent::new(0, 20 * count - 10).unwrap());
    assert!(sections(300, 0).contains_region(&all(300)));
    assert!(!sections(300, 0).contains_region(&all(301)));
    assert!(!sections(300, 1).contains_region(&all(300)));
    // Of so many it is not seen within the steps of a lock manager.
    assert_eq!(sections(100_000, 0).contains_region_within(&all(100_000), 1 << 20), Ok(true));
    assert!(!sections(100_000, 0).contains_region(&all(100_000)));
}

#[test]
fn as_many_sections_as_allowed_may_lie_between_each_other() {
    let place = |at: u64| Section::new(32 * at, 1 + at % 3, &[(4096, 16), (1 << 20, UNBOUNDED)]).unwrap();
    let all = |count| Region::from_sections((0..count).map(place).collect());
    assert_eq!(all(128).map(|region| region.sections().count()), Ok(SECTIONS_MAX));
    assert_eq!(all(129), Err(RegionError::TooMany));
}

#[test]
fn a_hard_question_is_given_up_after_so_many_steps() {
    // Coprime strides, and copies of so many pieces that pairs of them are no way out.
    let a = Section::new(0, 1, &[(1_000, 400), (1_000_003, UNBOUNDED)]).unwrap();
    let b = Section::new(1, 1, &[(2_000, 300), (999_983, UNBOUNDED)]).unwrap();
    let (a, b): (Region, Region) = (a.into(), b.into());
    assert!(a.first_common_within(&b, 4).is_err());
    let byte = a.first_common(&b).unwrap();
    assert!(a.contains(byte) && b.contains(byte));
    assert_eq!(a.in_extent(Extent::new(0, byte).unwrap()).unwrap().first_common(&b), None);
}

#[test]
fn one_byte_locks_cost_steps_that_do_not_depend_on_their_number() {
    for count in [1 << 7, 1 << 17, UNBOUNDED] {
        let shape = |offset| Shape { offset, length: 1, levels: vec![(64, count)] };
        let ours: Region = shape(0).section().unwrap().into();
        let theirs: Region = shape(1).section().unwrap().into();
        assert_eq!(ours.first_common_within(&theirs, 1), Ok(None));
        assert_eq!(ours.first_common_within(&Extent::new(1, 64).unwrap().into(), 2), Ok(None));
        assert_eq!(ours.first_common_within(&Extent::new(70, 129).unwrap().into(), 2), Ok(Some(128)));
    }
}
