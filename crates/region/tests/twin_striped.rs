//! Regions of a stripe that are kept as sections of the file, against their dumb twin: one bit for each byte of the stripe.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccpfs_region::{Region, RegionError, STEPS_MAX, Section, UNBOUNDED};
use ccpfs_types::{Extent, Layout};
use support::{Bits, Random, Shape, UNIT, striped_shape};

/// Bytes of the file that are compared, by 64.
const WORDS: usize = 1 << 12;
/// Bytes of it.
const END: u64 = 64 * WORDS as u64;

/// The bytes of a region of a stripe; those of an unbounded one as far as the file is compared.
fn bits(region: &Region, end: u64) -> Bits {
    let mut bits = Bits::new(0, WORDS);
    let mut last = 0;
    for piece in region.pieces().take_while(|piece| piece.start() < end) {
        assert!(piece.start() >= last, "{region}: pieces rise");
        last = piece.end();
        bits.set_extent(Extent::new(piece.start(), piece.end().min(end)).unwrap());
    }
    bits
}

/// The bytes of a section of the file on a stripe, one by one.
fn by_bytes(section: Section, layout: &Layout, stripe: u32) -> Bits {
    let file = Bits::of_region(&section.into(), 0, WORDS);
    let mut bits = Bits::new(0, WORDS);
    for offset in file.offsets() {
        if (offset / UNIT) % u64::from(layout.stripe_count()) == u64::from(stripe) {
            bits.set(layout.local_offset(offset));
        }
    }
    bits
}

/// Somewhere on a stripe, and how far its bytes are compared.
struct World {
    random: Random,
    layout: Layout,
    stripe: u32,
    end: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let layout = Layout::new(2 + random.below(3) as u32, UNIT).unwrap();
        let stripe = random.below(u64::from(layout.stripe_count())) as u32;
        World { random, layout, stripe, end: layout.stripe_length(stripe, END) }
    }

    fn section(&mut self) -> Section {
        striped_shape(&mut self.random, 0).section().unwrap()
    }

    fn of_stripe(&self, section: Section) -> Option<Region> {
        match Region::of_stripe(vec![section], &self.layout, self.stripe) {
            Ok(region) => region,
            Err(error) => {
                assert_eq!(error, RegionError::TooHard, "{section}");
                None
            }
        }
    }

    /// A region of any form; often one that has much to do with `section`.
    fn region(&mut self, section: Section) -> Option<Region> {
        let moved = |section: Section, offset: u64, length: u64| {
            let levels: Vec<(u64, u64)> =
                section.levels().iter().map(|level| (level.stride(), level.count())).collect();
            Section::new(offset, length, &levels)
        };
        match self.random.below(8) {
            0 => Some(
                Extent::with_length(self.random.below(self.end), 1 + self.random.below(9000)).unwrap().into(),
            ),
            1 => {
                let count = 1 + self.random.below(9);
                let end = self.end;
                let list = (0..count).map(|_| {
                    Extent::with_length(self.random.below(end), 1 + self.random.below(2000)).unwrap()
                });
                Region::from_extents(list.collect())
            }
            // In the stripe's own offsets.
            2 | 3 => Some(self.section().into()),
            // The neighbour that begins where the pieces of the section end, or a part of it.
            4 => moved(section, section.offset() + section.length(), section.length().min(500))
                .ok()
                .and_then(|section| self.of_stripe(section)),
            5 => moved(
                section,
                section.offset() + self.random.below(3000),
                1 + self.random.below(section.length()),
            )
            .ok()
            .and_then(|section| self.of_stripe(section)),
            6 => self.of_stripe(section).and_then(|region| {
                let start = self.random.below(self.end);
                region.in_extent(Extent::with_length(start, 1 + self.random.below(30_000)).unwrap())
            }),
            _ => {
                let other = self.section();
                self.of_stripe(other)
            }
        }
    }
}

#[test]
fn a_region_of_a_stripe_is_the_bytes_of_the_file_that_lie_there() {
    let mut kept = 0;
    for seed in 0..400 {
        let mut world = World::new(seed);
        let section = world.section();
        let expected = by_bytes(section, &world.layout, world.stripe);
        let Some(region) = world.of_stripe(section) else {
            let hard = section.piece_count() > 1 << 14;
            assert!(hard || expected.offsets().next().is_none(), "{section}");
            continue;
        };
        kept += usize::from(region.stripe().is_some());
        let end = world.end;
        assert_eq!(bits(&region, end), expected, "{region}");
        let first = expected.offsets().next();
        assert!(first.is_none_or(|first| region.bounds().start() == first), "{region}");
        if region.bounds().end() < end {
            assert_eq!(region.bounds().end(), expected.offsets().last().unwrap() + 1, "{region}");
            assert_eq!(region.length_bytes(), expected.count_before(end));
        }
        for _ in 0..20 {
            let at = world.random.below(end);
            let next = (at..end).find(|at| expected.has(*at));
            let found = region.piece_from(at).map(|piece| piece.start()).filter(|start| *start < end);
            assert_eq!(found, next, "{region} from {at}");
            assert_eq!(region.contains(at), expected.has(at));
            assert_eq!(region.bytes_before(at), expected.count_before(at));
            let extent = Extent::with_length(at, 1 + world.random.below(600)).unwrap();
            if extent.end() <= end {
                let holds = (extent.start()..extent.end()).all(|at| expected.has(at));
                assert_eq!(region.contains_region(&extent.into()), holds, "{region} holds {extent}");
                let some = (extent.start()..extent.end()).any(|at| expected.has(at));
                assert_eq!(region.overlaps_extent(extent), some, "{region} and {extent}");
            }
        }
        if let Some((layout, stripe)) = region.stripe() {
            let sections = region.sections().collect();
            assert_eq!(Region::of_stripe_in_normal_form(sections, &layout, stripe), Ok(region));
        }
    }
    assert!(kept > 100, "{kept} of 400 are kept as sections of the file");
}

#[test]
fn what_is_taken_and_what_is_kept_is_the_region() {
    for seed in 0..400 {
        let mut world = World::new(1000 + seed);
        let section = world.section();
        let Some(region) = world.of_stripe(section) else { continue };
        let all = bits(&region, world.end);
        for _ in 0..5 {
            let start = world.random.below(world.end);
            let taken = Extent::with_length(start, 1 + world.random.below(60_000)).unwrap();
            let (inside, outside) = all.split(taken);
            let part = |part: Option<Region>| part.map_or(Bits::new(0, WORDS), |part| bits(&part, world.end));
            assert_eq!(part(region.in_extent(taken)), inside, "{region} in {taken}");
            assert_eq!(part(region.without(taken)), outside, "{region} without {taken}");
            assert!(region.without(taken).is_none_or(|rest| !rest.overlaps(&taken.into())));
            // Of several sections some together may hold one that is left; nobody looks for that.
            let held = region.without(taken).is_none_or(|rest| region.contains_region(&rest));
            assert!(held || region.sections().count() > 1, "{region} {taken}");
        }
        assert_eq!(region.in_extent(Extent::WHOLE), Some(region.clone()));
        assert!(region.contains_region(&region));
    }
}

#[test]
fn any_two_regions_of_a_stripe_share_and_hold_what_their_bits_do() {
    let (mut striped, mut shared, mut held) = (0, 0, 0);
    for seed in 0..3000 {
        let mut world = World::new(5000 + seed);
        let section = world.section();
        let Some(a) = world.of_stripe(section) else { continue };
        let Some(b) = world.region(section) else { continue };
        striped += usize::from(a.stripe().is_some() && b.stripe().is_some());
        let (of_a, of_b) = (bits(&a, world.end), bits(&b, world.end));
        let expected = of_a.first_common(&of_b);
        for (one, other) in [(&a, &b), (&b, &a)] {
            let found = one.first_common_within(other, STEPS_MAX).unwrap().filter(|byte| *byte < world.end);
            assert_eq!(found, expected, "{seed}: {one} and {other}");
        }
        shared += usize::from(expected.is_some());
        for (one, of_one, other, of_other) in [(&a, &of_a, &b, &of_b), (&b, &of_b, &a, &of_a)] {
            let holds = one.contains_region(other);
            let within = one.bounds().contains(other.bounds()) && of_one.contains(of_other);
            assert!(!holds || within, "{seed}: {one} holds {other}");
            let simple = one.sections().count() == 1 && other.sections().count() == 1;
            if simple && other.bounds().end() <= world.end {
                assert_eq!(holds, within, "{seed}: {one} holds {other}");
                held += usize::from(holds);
            }
        }
    }
    assert!(striped > 300 && shared > 500 && held > 100, "{striped} {shared} {held}");
}

#[test]
fn writers_in_turn_are_in_nobodys_way_whatever_their_records_are() {
    let layout = Layout::new(4, 1 << 20).unwrap();
    for record in [47_008, 4096, 65_537, 1, 999_983, 3 << 20, 47_008 * 96] {
        for writers in [2_u64, 4, 96] {
            let of = |rank: u64, stripe| {
                let section = Section::new(rank * record, record, &[(writers * record, UNBOUNDED)]).unwrap();
                Region::of_stripe(vec![section], &layout, stripe).unwrap()
            };
            for stripe in 0..4 {
                let (Some(one), Some(next)) = (of(0, stripe), of(1, stripe)) else { continue };
                assert_eq!(one.first_common_within(&next, 64), Ok(None), "{one} and {next}");
                assert_eq!(one.sections().count(), 1, "{one}");
                // A byte more, and they are.
                let more = Section::new(0, record + 1, &[(writers * record, UNBOUNDED)]).unwrap();
                let more = Region::of_stripe(vec![more], &layout, stripe).unwrap().unwrap();
                // Where the byte is always on another stripe, they are not.
                let common = more.first_common_within(&next, 64).unwrap();
                match common {
                    Some(common) => assert!(more.contains(common) && next.contains(common)),
                    None => assert_eq!(record, 3 << 20, "{more} and {next}"),
                }
                assert_eq!(more.contains_region_within(&one, 64), Ok(true));
                assert_eq!(one.contains_region_within(&more, 64), Ok(common.is_none()));
            }
        }
    }
}

#[test]
fn strides_that_have_nothing_in_common_are_compared_without_a_walk() {
    let layout = Layout::new(4, 1 << 20).unwrap();
    let of = |offset, length, stride, stripe| {
        let section = Section::new(offset, length, &[(stride, UNBOUNDED)]).unwrap();
        Region::of_stripe(vec![section], &layout, stripe).unwrap().unwrap()
    };
    let (a, b) = (of(0, 47_008, 188_032, 2), of(47_008, 65_537, 262_147, 2));
    let common = a.first_common_within(&b, 256).unwrap().unwrap();
    assert!(a.contains(common) && b.contains(common));
    let before = Extent::new(0, common).unwrap();
    let (mut near, early) = (a.in_extent(before).unwrap(), b.in_extent(before).unwrap());
    assert!(near.pieces().all(|piece| !early.overlaps_extent(piece)));
    // What is in nobody's way anywhere in the file.
    near = of(0, 1000, 2000, 2);
    assert_eq!(near.first_common_within(&of(1000, 1000, 6000, 2), 64), Ok(None));
    assert_eq!(near.first_common_within(&of(1000, 13, 2000 * 1009, 2), 64), Ok(None));
}

#[test]
fn patterns_that_divide_the_stripes_are_said_in_the_stripes_offsets() {
    let layout = Layout::new(4, 1 << 20).unwrap();
    let of = |offset, length, stride, count| {
        let section = Section::new(offset, length, &[(stride, count)]).unwrap();
        Region::of_stripe(vec![section], &layout, 2).unwrap().map(|region| region.to_string())
    };
    assert_eq!(of(0, 65_536, 262_144, UNBOUNDED).as_deref(), Some("0+65536 each 262144 x .."));
    assert_eq!(of(1 << 20, 1 << 20, 4 << 20, UNBOUNDED), None);
    assert_eq!(of(2 << 20, 1 << 20, 4 << 20, UNBOUNDED), Some(Extent::WHOLE.to_string()));
    assert_eq!(
        of(0, 47_008, 188_032, UNBOUNDED).as_deref(),
        Some("0+47008 each 188032 x .. on 2 of 4 x 1048576")
    );
    // One piece of it is an extent again, and three are a list.
    let odd = Section::new(0, 47_008, &[(188_032, UNBOUNDED)]).unwrap();
    let odd = Region::of_stripe(vec![odd], &layout, 2).unwrap().unwrap();
    let first = odd.pieces().next().unwrap();
    assert_eq!(odd.in_extent(first), Some(first.into()));
    let list = odd.in_extent(Extent::new(0, 500_000).unwrap()).unwrap();
    assert_eq!((list.stripe(), list.pieces().count()), (None, 3), "{list}");
    assert!(odd.in_extent(Extent::new(0, 50_000_000).unwrap()).unwrap().stripe().is_some());
}

#[test]
fn whoever_lies_about_the_layout_is_compared_byte_by_byte() {
    let section = Section::new(300, 700, &[(1100, UNBOUNDED)]).unwrap();
    let of = |stripes, stripe| {
        Region::of_stripe(vec![section], &Layout::new(stripes, UNIT).unwrap(), stripe).unwrap().unwrap()
    };
    let (a, b) = (of(3, 1), of(4, 2));
    let expected = bits(&a, 60_000).first_common(&bits(&b, 60_000));
    assert_eq!(a.first_common(&b), expected);
    assert!(!a.contains_region(&b) && a.contains_region(&a));
    let normal = |sections, stripes| {
        Region::of_stripe_in_normal_form(sections, &Layout::new(stripes, UNIT).unwrap(), 0)
    };
    assert_eq!(normal(vec![], 3), Err(RegionError::Empty));
    assert_eq!(normal(vec![section], 1), Err(RegionError::NotNormal));
    assert_eq!(normal(vec![section, section], 3), Err(RegionError::Overlapping));
    let many = Section::new(0, 1, &[(3, 1 << 15), (100_003, UNBOUNDED)]).unwrap();
    assert_eq!(normal(vec![many], 4), Err(RegionError::NotNormal));
    assert_eq!(Region::of_stripe(vec![many], &Layout::new(4, UNIT).unwrap(), 0), Err(RegionError::TooHard));
    let simple = Section::new(0, 16, &[(64, UNBOUNDED)]).unwrap();
    assert_eq!(normal(vec![simple], 4), Err(RegionError::NotNormal));
}

#[test]
fn the_end_of_all_files_cuts_what_goes_on() {
    let layout = Layout::new(2, UNIT).unwrap();
    let near = Extent::EOF - 10 * UNIT;
    for stripe in 0..2 {
        let shape = Shape { offset: near, length: 700, levels: vec![(1100, UNBOUNDED)] };
        let file = Bits::of_region(&shape.section().unwrap().into(), near, 640);
        let region = Region::of_stripe(vec![shape.section().unwrap()], &layout, stripe).unwrap().unwrap();
        let unit = |offset: u64| (offset / UNIT) % 2 == u64::from(stripe);
        let expected: Vec<u64> =
            file.offsets().filter(|offset| unit(*offset)).map(|at| layout.local_offset(at)).collect();
        let last = layout.stripe_length(stripe, Extent::EOF);
        let pieces = region.pieces().flat_map(|piece| piece.start()..piece.end().min(last));
        assert_eq!(pieces.collect::<Vec<u64>>(), expected, "{region}");
        assert!(
            region.contains_region(&region)
                && region.overlaps(&Extent::to_eof(last - 1).into()) == expected.contains(&(last - 1))
        );
        assert_eq!(region.piece_from(last), None);
        assert_eq!(region.without(Extent::to_eof(last)), Some(region.clone()));
    }
}

#[test]
fn regression_the_hull_of_a_section_that_is_few_extents_here_holds_nothing_between_them() {
    let layout = Layout::new(2, 4096).unwrap();
    let few = Section::new(4000, 200, &[(8100, 2)]).unwrap();
    let many = Section::new(100_000, 47, &[(4099, UNBOUNDED)]).unwrap();
    let region = Region::of_stripe(vec![few, many], &layout, 0).unwrap().unwrap();
    assert!(region.stripe().is_some(), "it is sections of the file");
    let extent = |start, end| Extent::new(start, end).unwrap();
    let between = Region::from_extents(vec![extent(5000, 5010), extent(6000, 6020)]).unwrap();
    assert!(!region.contains_region(&between) && !region.overlaps(&between));
    let there = Region::from_extents(vec![extent(4000, 4010), extent(8005, 8020)]).unwrap();
    assert!(region.contains_region(&there));
}

#[test]
fn regions_of_several_sections_hold_what_their_bits_do() {
    let (mut several, mut held, mut refused) = (0, 0, 0);
    for seed in 0..1500 {
        let mut world = World::new(20_000 + seed);
        let sections = vec![world.section(), world.section()];
        let whole = Region::of_stripe(sections, &world.layout, world.stripe);
        let Some(mut region) = whole.ok().flatten() else { continue };
        if world.random.below(2) == 0 {
            let start = world.random.below(world.end);
            let taken = Extent::with_length(start, 1 + world.random.below(60_000)).unwrap();
            let cut =
                if world.random.below(2) == 0 { region.in_extent(taken) } else { region.without(taken) };
            let Some(cut) = cut else { continue };
            region = cut;
        }
        several += usize::from(region.stripe().is_some() && region.sections().count() > 1);
        let all = bits(&region, world.end);
        for _ in 0..20 {
            // Extents and sections somewhere, and pieces of its own.
            let mut extents = Vec::new();
            for _ in 0..1 + world.random.below(3) {
                let at = world.random.below(world.end);
                let at = if world.random.below(2) == 0 {
                    region.piece_from(at).map_or(at, |p| p.start())
                } else {
                    at
                };
                extents.push(Extent::with_length(at, 1 + world.random.below(30)).unwrap());
            }
            let mut others: Vec<Region> = Region::from_extents(extents).into_iter().collect();
            let section = world.section();
            others.extend(world.region(section));
            for other in others.iter().filter(|other| other.bounds().end() <= world.end) {
                let within = all.contains(&bits(other, world.end));
                let holds = region.contains_region(other);
                assert!(!holds || within, "{seed}: {region} holds {other}");
                held += usize::from(holds);
                refused += usize::from(!holds && other.sections().count() > 1);
            }
        }
    }
    assert!(several > 100 && held > 300 && refused > 300, "{several} {held} {refused}");
}
