//! What processes write: operations of many pieces each, as regions of the file; a pure function of rank and parameters.

use crate::bench::collective::Aggregators;
use crate::bench::s3asim::Search;
use crate::bench::s3d::Checkpoint;
use crate::bench::tile_io::Tiles;
use ccpfs_region::{Region, RegionError};
use serde::{Deserialize, Serialize};

/// Most processes of a measurement.
pub(crate) const RANKS_MAX: u32 = 512;

/// One call of a program: everything in it is written together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    /// Which bytes of the file; those of memory follow each other.
    pub(crate) region: Region,
    /// Whether the program makes it persistent before it goes on.
    pub(crate) sync: bool,
}

/// An access pattern with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Pattern {
    /// Tiles of a picture (paper 000, V-D).
    TileIo(Tiles),
    /// A checkpoint of S3D (paper 001, 6.2).
    S3d(Checkpoint),
    /// Results of a search (paper 001, 6.3).
    S3asim(Search),
    /// What aggregators of collective writes send (paper 004).
    Collective(Aggregators),
}

impl Pattern {
    /// What it is, in a line.
    pub(crate) fn describe(&self) -> String {
        match self {
            Pattern::TileIo(tiles) => tiles.describe(),
            Pattern::S3d(checkpoint) => checkpoint.describe(),
            Pattern::S3asim(search) => search.describe(),
            Pattern::Collective(aggregators) => aggregators.describe(),
        }
    }

    /// How many processes write.
    pub(crate) fn ranks(&self) -> u32 {
        match self {
            Pattern::TileIo(tiles) => tiles.columns * tiles.rows,
            Pattern::S3d(checkpoint) => checkpoint.ranks(),
            Pattern::S3asim(search) => search.workers,
            Pattern::Collective(aggregators) => aggregators.processes,
        }
    }

    /// Whether different processes may write the same bytes.
    pub(crate) fn overlaps(&self) -> bool {
        match self {
            Pattern::TileIo(tiles) => tiles.overlap > 0,
            Pattern::S3d(_) | Pattern::S3asim(_) | Pattern::Collective(_) => false,
        }
    }

    /// The operations of a process, in their order.
    ///
    /// # Errors
    /// If one of them cannot be said as a region: the numbers are too large.
    pub(crate) fn operations(&self, rank: u32) -> Result<Vec<Operation>, RegionError> {
        match self {
            Pattern::TileIo(tiles) => Ok(vec![Operation { region: tiles.tile(rank)?, sync: false }]),
            Pattern::S3d(checkpoint) => checkpoint.operations(rank),
            Pattern::S3asim(search) => Ok(search.operations(rank)),
            Pattern::Collective(aggregators) => Ok(aggregators.operations(rank)),
        }
    }
}

/// A small generator of random numbers (`SplitMix64`): the same ones in every process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// How often each byte of the file is written, by plain enumeration of all pieces of all ranks.
    pub(crate) fn counts(pattern: &Pattern) -> BTreeMap<u64, u32> {
        let mut counts = BTreeMap::new();
        for rank in 0..pattern.ranks() {
            for operation in pattern.operations(rank).unwrap() {
                for piece in operation.region.pieces() {
                    (piece.start()..piece.end()).for_each(|byte| *counts.entry(byte).or_insert(0) += 1);
                }
            }
        }
        counts
    }

    /// Every byte from 0 on is written exactly once; answers how many there are.
    pub(crate) fn fills_the_file_once(pattern: &Pattern) -> u64 {
        let counts = counts(pattern);
        assert!(counts.values().all(|count| *count == 1), "{pattern:?}");
        assert!(counts.keys().copied().eq(0..u64::try_from(counts.len()).unwrap()), "{pattern:?}");
        u64::try_from(counts.len()).unwrap()
    }
}
