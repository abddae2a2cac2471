//! What the papers' noncontiguous benchmarks write, as regions of a file: pure functions of rank and parameters.

use crate::random::Random;
use ccpfs_region::{Datatype, Order, Region, RegionError, Section};
use ccpfs_types::Extent;

/// Bytes of a pixel of Tile-IO.
const PIXEL: u64 = 4;
/// Components of S3D's four arrays: mass, velocity, pressure, temperature.
const COMPONENTS: [u64; 4] = [11, 3, 1, 1];
/// Bytes of one of their numbers.
const NUMBER_BYTES: u64 = 8;
/// Bytes of the shortest sequence of S3aSim's database.
const RESULT_BYTES_MIN: u64 = 6;
/// Parts of its database; who has searched one writes its results.
const FRAGMENTS: u64 = 128;

/// The bytes of a tile of a picture with tiles of `side` × `side` pixels in so many columns, neighbours having `overlap` in common:
/// a line of its pixels in each of its rows of the picture.
///
/// # Panics
///
/// If the picture is larger than a file.
#[must_use]
pub fn tile(number: u64, columns: u64, side: u64, overlap: u64) -> Region {
    let step = side - overlap;
    let width = (columns * step + overlap) * PIXEL;
    let (column, row) = (number % columns, number / columns);
    let first = row * step * width + column * step * PIXEL;
    Section::new(first, side * PIXEL, &[(width, side)]).expect("pictures are smaller than files").into()
}

/// Processes along three axes, as equal as can be, the most along the last.
#[must_use]
pub fn blocks(processes: u64) -> [u64; 3] {
    let mut best = [1, 1, processes];
    for x in (1..=processes).filter(|x| processes.is_multiple_of(*x)) {
        let rest = processes / x;
        for y in (x..=rest).filter(|y| rest.is_multiple_of(*y)) {
            let z = rest / y;
            if z >= y && (z, best[0]) < (best[2], x) {
                best = [x, y, z];
            }
        }
    }
    best
}

/// S3D's checkpoint of a mesh of `side` points along each axis: what `rank` of so many processes writes of each of the four arrays.
///
/// # Panics
///
/// If the mesh is larger than a file, or has fewer points along an axis than there are processes.
#[must_use]
pub fn checkpoint(side: u64, processes: u64, rank: u64) -> Vec<Region> {
    let cut = blocks(processes);
    let place = [rank % cut[0], rank / cut[0] % cut[1], rank / cut[0] / cut[1]];
    // The first blocks have the points that are left over.
    let start = |axis: usize, at: u64| at * (side / cut[axis]) + at.min(side % cut[axis]);
    let starts: [u64; 3] = std::array::from_fn(|axis| start(axis, place[axis]));
    let sizes: [u64; 3] = std::array::from_fn(|axis| start(axis, place[axis] + 1) - starts[axis]);
    let array = |components: u64, offset: u64| -> Result<Region, RegionError> {
        let whole = [side, side, side, components];
        let part = [sizes[0], sizes[1], sizes[2], components];
        let first = [starts[0], starts[1], starts[2], 0];
        Datatype::bytes(NUMBER_BYTES)?.subarray(&whole, &part, &first, Order::Fortran)?.region(offset)
    };
    let mut offset = 0;
    let mut regions = Vec::new();
    for components in COMPONENTS {
        regions.push(array(components, offset).expect("every process has points"));
        offset += side * side * side * components * NUMBER_BYTES;
    }
    regions
}

/// A search of S3aSim. The results do not depend on the number of workers, but for who writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Search {
    /// Processes that search and write.
    pub workers: u64,
    /// Queries, one after the other.
    pub queries: u64,
    /// Fewest results of a query; up to twice as many.
    pub results: u64,
    /// Mean bytes of a result.
    pub mean_bytes: u64,
}

impl Search {
    /// What `rank` writes for each query of which it has results.
    #[must_use]
    pub fn operations(&self, rank: u64) -> Vec<Region> {
        let random = Random::new(1);
        let (mut sizes, mut owners) = (random.split("sizes"), random.split("owners"));
        let mut offset = 0;
        let mut operations = Vec::new();
        for _ in 0..self.queries {
            // Fragments go to whoever is free: to anyone.
            let owner: Vec<u64> = (0..FRAGMENTS).map(|_| owners.below(self.workers)).collect();
            let mut mine = Vec::new();
            for _ in 0..sizes.range(self.results, 2 * self.results) {
                let length = sizes.range(RESULT_BYTES_MIN, 2 * self.mean_bytes - RESULT_BYTES_MIN);
                let fragment = usize::try_from(sizes.below(FRAGMENTS)).expect("fragments are few");
                if owner[fragment] == rank {
                    mine.push(Extent::with_length(offset, length).expect("results have bytes"));
                }
                offset += length;
            }
            operations.extend(Region::from_extents(mine));
        }
        operations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many bytes these regions have, which fill a file once.
    fn fill(regions: impl Iterator<Item = Region>) -> u64 {
        let mut pieces: Vec<Extent> =
            regions.flat_map(|region| region.pieces().collect::<Vec<Extent>>()).collect();
        pieces.sort_unstable_by_key(|piece| piece.start());
        let mut at = 0;
        for piece in pieces {
            assert_eq!(piece.start(), at);
            at = piece.end();
        }
        at
    }

    #[test]
    fn tiles_overlap_their_neighbours_by_the_pixels_asked_for() {
        let lines = |number| tile(number, 8, 20, 2).pieces().collect::<Vec<Extent>>();
        let (left, right, below) = (lines(0), lines(1), lines(8));
        assert_eq!(left.len(), 20);
        assert!(
            left.iter().zip(right.iter()).all(|(a, b)| a.intersection(*b).map(Extent::length) == Some(8))
        );
        assert_eq!(below[0], left[18]);
        assert!(!below[0].overlaps(left[17]));
    }

    #[test]
    fn a_checkpoint_fills_the_file_once_also_with_blocks_that_are_not_equal() {
        for (side, processes) in [(4, 8), (5, 4), (7, 6), (9, 1)] {
            let bytes = fill((0..processes).flat_map(|rank| checkpoint(side, processes, rank)));
            assert_eq!(bytes, side * side * side * 16 * 8);
        }
        assert_eq!([1, 2, 8, 16, 64].map(blocks), [[1, 1, 1], [1, 1, 2], [2, 2, 2], [2, 2, 4], [4, 4, 4]]);
    }

    #[test]
    fn results_are_the_same_whoever_writes_them_and_fill_the_file_once() {
        let bytes = [1, 3, 63].map(|workers| {
            let search = Search { workers, queries: 20, results: 1000, mean_bytes: 6933 };
            fill((0..workers).flat_map(|rank| search.operations(rank)))
        });
        assert!((180_000_000..236_000_000).contains(&bytes[0]), "the paper's 208 MB: {bytes:?}");
        assert!(bytes.iter().all(|count| *count == bytes[0]), "{bytes:?}");
    }
}
