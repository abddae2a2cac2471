//! `Datatype` against its dumb twin: the list of all bytes that a type selects.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use ccpfs_region::{
    DEPTH_MAX, Datatype, Field, Order, Region, RegionError, SECTIONS_MAX, Section, UNBOUNDED,
};
use ccpfs_types::{Extent, Layout};
use std::collections::BTreeSet;
use support::Random;

/// Bytes above which the twin counts no further.
const BYTES_MAX: u64 = 40_000;

/// A type as MPI's standard explains it: every byte, and two bounds.
#[derive(Clone, Debug)]
struct Twin {
    bytes: Vec<u64>,
    lower: u64,
    upper: u64,
}

impl Twin {
    fn extent(&self) -> u64 {
        self.upper - self.lower
    }

    fn moved(&self, by: u64) -> Twin {
        let bytes = self.bytes.iter().map(|byte| byte + by).collect();
        Twin { bytes, lower: self.lower + by, upper: self.upper + by }
    }

    fn all(twins: &[Twin]) -> Twin {
        Twin {
            bytes: twins.iter().flat_map(|twin| twin.bytes.iter().copied()).collect(),
            lower: twins.iter().map(|twin| twin.lower).min().unwrap(),
            upper: twins.iter().map(|twin| twin.upper).max().unwrap(),
        }
    }

    fn repeated(&self, stride: u64, count: u64) -> Twin {
        Twin::all(&(0..count).map(|index| self.moved(index * stride)).collect::<Vec<Twin>>())
    }

    fn contiguous(&self, count: u64) -> Twin {
        self.repeated(self.extent(), count)
    }

    /// The part of an array, by walking all its elements.
    fn subarray(&self, sizes: &[u64], subsizes: &[u64], starts: &[u64], order: Order) -> Twin {
        let elements: u64 = sizes.iter().product();
        let mut bytes = Vec::new();
        for element in 0..elements {
            let mut rest = element;
            let mut inside = |dimension: usize| {
                let at = rest % sizes[dimension];
                rest /= sizes[dimension];
                (starts[dimension]..starts[dimension] + subsizes[dimension]).contains(&at)
            };
            // The fastest dimension first; every one is to be looked at.
            let found: Vec<bool> = match order {
                Order::C => (0..sizes.len()).rev().map(&mut inside).collect(),
                Order::Fortran => (0..sizes.len()).map(&mut inside).collect(),
            };
            if found.iter().all(|inside| *inside) {
                bytes.extend(self.moved(element * self.extent()).bytes);
            }
        }
        Twin { bytes, lower: 0, upper: elements * self.extent() }
    }
}

/// The next constructor around a type, for both; `None` if it would select nothing.
fn around(
    random: &mut Random,
    datatype: &Datatype,
    twin: &Twin,
) -> Option<(Result<Datatype, RegionError>, Twin)> {
    let (count, block, gap) = (1 + random.below(4), 1 + random.below(3), random.below(3));
    let extent = twin.extent();
    Some(match random.below(6) {
        0 => (datatype.contiguous(count), twin.contiguous(count)),
        1 => {
            let blocks = twin.contiguous(block).repeated((block + gap) * extent, count);
            (datatype.vector(count, block, block + gap), blocks)
        }
        2 => {
            let stride = random.below(3 * extent * block);
            let blocks = twin.contiguous(block).repeated(stride, count);
            (datatype.hvector(count, block, stride), blocks)
        }
        3 => {
            let blocks: Vec<(u64, u64)> = (0..count).map(|at| (random.below(3), at * (3 + gap))).collect();
            let twins: Vec<Twin> = blocks
                .iter()
                .filter(|block| block.0 > 0)
                .map(|block| twin.contiguous(block.0).moved(block.1 * extent))
                .collect();
            if twins.is_empty() {
                return None;
            }
            (datatype.indexed(&blocks), Twin::all(&twins))
        }
        4 => {
            let dimensions = 1 + random.below(3);
            let sizes: Vec<u64> = (0..dimensions).map(|_| 1 + random.below(4)).collect();
            let subsizes: Vec<u64> = sizes.iter().map(|size| 1 + random.below(*size)).collect();
            let starts: Vec<u64> =
                sizes.iter().zip(&subsizes).map(|(size, part)| random.below(size - part + 1)).collect();
            let order = if random.one_in(2) { Order::C } else { Order::Fortran };
            (
                datatype.subarray(&sizes, &subsizes, &starts, order),
                twin.subarray(&sizes, &subsizes, &starts, order),
            )
        }
        _ => {
            let place = twin.extent() * 2 + gap;
            let fields = [
                Field { displacement_bytes: place, count: block, datatype },
                Field { displacement_bytes: gap, count: 1, datatype },
            ];
            let twins = [twin.contiguous(block).moved(place), twin.moved(gap)];
            (Datatype::structure(&fields), Twin::all(&twins))
        }
    })
}

fn bytes_of(region: &Region) -> Vec<u64> {
    region.pieces().flat_map(|piece| piece.start()..piece.end()).collect()
}

/// Compares a region, or the reason why there is none, with the bytes of the twin.
fn compare(region: Result<Region, RegionError>, twin: &Twin) -> bool {
    let set: BTreeSet<u64> = twin.bytes.iter().copied().collect();
    match region {
        Ok(region) => {
            assert_eq!(bytes_of(&region), set.into_iter().collect::<Vec<u64>>(), "{region}");
            true
        }
        Err(RegionError::Overlapping) => {
            assert!(set.len() < twin.bytes.len(), "{twin:?}");
            false
        }
        Err(error) => {
            assert!(matches!(error, RegionError::TooMany | RegionError::TooDeep), "{error}");
            false
        }
    }
}

#[test]
fn random_nests_of_constructors_select_the_bytes_of_their_type_maps() {
    let mut random = Random(6);
    let mut compared = 0;
    for _ in 0..4_000 {
        let length = 1 + random.below(4);
        let mut datatype = Datatype::bytes(length).unwrap();
        let mut twin = Twin { bytes: (0..length).collect(), lower: 0, upper: length };
        for _ in 0..1 + random.below(4) {
            if twin.upper > BYTES_MAX / 100 {
                break;
            }
            let Some((next, of_twin)) = around(&mut random, &datatype, &twin) else { continue };
            let Ok(next) = next else { break };
            (datatype, twin) = (next, of_twin);
            assert_eq!(datatype.extent_bytes(), twin.extent());
            assert_eq!(datatype.length_bytes(), twin.bytes.len() as u64);
        }
        let displacement = random.below(100);
        compared += u32::from(compare(datatype.region(displacement), &twin.moved(displacement)));
        let copies = 1 + random.below(3);
        compare(datatype.tiled(displacement, copies), &twin.moved(displacement).contiguous(copies));
    }
    assert!(compared > 3_000, "{compared}");
}

#[test]
fn a_column_of_an_array_and_a_transposed_walk_are_one_section() {
    let element = Datatype::bytes(8).unwrap();
    let column = element.vector(100, 1, 50).unwrap();
    assert_eq!(column.region(0), Ok(Section::new(0, 8, &[(400, 100)]).unwrap().into()));
    // Column after column of the whole array: every byte of it.
    let all = column.hvector(50, 1, 8).unwrap();
    assert_eq!(all.region(16), Ok(Extent::with_length(16, 40_000).unwrap().into()));
}

#[test]
fn a_file_view_goes_on_to_the_end_of_the_file() {
    let block = Datatype::bytes(47_008).unwrap();
    let view = block.resized(0, 4 * 47_008).unwrap().tiled(47_008, UNBOUNDED).unwrap();
    assert_eq!(view, Section::new(47_008, 47_008, &[(4 * 47_008, UNBOUNDED)]).unwrap().into());
    assert_eq!(block.tiled(10, UNBOUNDED), Ok(Extent::to_eof(10).into()));
}

#[test]
fn what_cannot_be_said_is_refused() {
    let byte = Datatype::bytes(1).unwrap();
    assert_eq!(Datatype::bytes(0), Err(RegionError::Empty));
    assert_eq!(byte.contiguous(0), Err(RegionError::Empty));
    assert_eq!(byte.indexed(&[(0, 5)]), Err(RegionError::Empty));
    assert_eq!(byte.subarray(&[4], &[3], &[2], Order::C), Err(RegionError::Overflow));
    assert_eq!(byte.subarray(&[4], &[3, 1], &[1], Order::C), Err(RegionError::Empty));
    assert_eq!(byte.resized(3, 3), Err(RegionError::Empty));
    assert_eq!(byte.hvector(2, 1, u64::MAX), Err(RegionError::Overflow));
    assert_eq!(byte.contiguous(u64::MAX).unwrap().region(1), Err(RegionError::Overflow));
    let twice = byte.hvector(8, 1, 16).unwrap().hvector(2, 1, 0).unwrap();
    assert_eq!(twice.region(0), Err(RegionError::Overlapping));
    // As many different holes as no region may have.
    let irregular: Vec<(u64, u64)> = (0..140).map(|at| (1, at * at + at)).collect();
    let irregular = byte.indexed(&irregular).unwrap();
    assert_eq!(irregular.region(0).map(|region| region.piece_count()), Ok(140));
    assert!(irregular.parts() > SECTIONS_MAX);
    assert_eq!(irregular.tiled(0, UNBOUNDED), Err(RegionError::TooMany));
    let deep = (0..=DEPTH_MAX).try_fold(byte, |part, _| part.vector(2, 1, 3));
    assert_eq!(deep, Err(RegionError::TooDeep));
}

/// The checkpoint of paper 001: blocks of a 4-dimensional array, of which each rank of a grid writes one.
fn checkpoint(ranks: [u64; 3], edge: u64, species: u64) -> Vec<Region> {
    let element = Datatype::bytes(8).unwrap();
    let sizes = [species, ranks[0] * edge, ranks[1] * edge, ranks[2] * edge];
    let mut regions = Vec::new();
    for x in 0..ranks[0] {
        for y in 0..ranks[1] {
            for z in 0..ranks[2] {
                let starts = [0, x * edge, y * edge, z * edge];
                let subsizes = [species, edge, edge, edge];
                let part = element.subarray(&sizes, &subsizes, &starts, Order::C).unwrap();
                regions.push(part.region(0).unwrap());
            }
        }
    }
    regions
}

#[test]
fn blocks_of_an_array_are_told_apart_in_few_steps_on_files_and_on_stripes() {
    let regions = checkpoint([4, 4, 4], 50, 11);
    let layout = Layout::new(4, 1 << 20).unwrap();
    let mut steps_max = 0;
    for (at, a) in regions.iter().enumerate() {
        for (other, b) in regions.iter().enumerate() {
            let steps = (1..).find(|steps| a.first_common_within(b, *steps).is_ok()).unwrap();
            steps_max = steps_max.max(steps);
            assert_eq!(a.overlaps(b), at == other);
        }
        let bytes: u64 = a.length_bytes();
        assert_eq!(bytes, 8 * 11 * 50 * 50 * 50);
        // Rows of 1,600 bytes and units of 1 MiB have few common divisors, so that the parts are about 70 sections.
        let on_stripe = |stripe| a.on_stripe(&layout, stripe, SECTIONS_MAX).unwrap();
        let parts: Vec<Region> = (0..4).filter_map(on_stripe).collect();
        assert_eq!(parts.iter().map(Region::length_bytes).sum::<u64>(), bytes);
    }
    assert!(steps_max <= 8, "{steps_max}");
}

#[test]
fn blocks_of_unrelated_arrays_are_compared_in_few_steps() {
    let mut random = Random(10);
    let mut block = |endless: bool| {
        let element = [1, 4, 8][random.below(3) as usize];
        let (columns, rows) = (16 + random.below(2000), 16 + random.below(2000));
        let (width, height) = (1 + columns / (2 + random.below(7)), 1 + rows / (2 + random.below(7)));
        let start = random.below(columns - width) + random.below(rows - height) * columns;
        let planes = if endless { UNBOUNDED } else { 4 + random.below(200) };
        let levels = [(columns * element, height), (columns * rows * element, planes)];
        Section::new(start * element, width * element, &levels).unwrap()
    };
    for at in 0..2_000 {
        let (a, b) = (block(at % 2 == 0), block(at % 2 == 0));
        let common = a.first_common_within(&b, 64).unwrap();
        assert!(common.is_none_or(|byte| a.contains(byte) && b.contains(byte)), "{a} and {b}");
    }
}
