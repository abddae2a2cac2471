//! `ccpfs bench tile-io`: tiles of a picture, each written by one process with one atomic call (paper 000, V-D).

use super::regions::args::RegionArguments;
use super::regions::pattern::{Pattern, RANKS_MAX};
use super::regions::way::Way;
use crate::failure::Failure;
use ccpfs_region::{Datatype, Order, Region, RegionError};
use serde::{Deserialize, Serialize};

/// Options of `ccpfs bench tile-io`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
A picture of COLUMNS x ROWS tiles lies in one file, row by row. Each process writes one tile: as many pieces as the tile is
high, far from each other, with one call. Neighbours share OVERLAP elements on each side, so that their calls must be ordered:
as a whole, or readers find pieces of both. --lock says how that is made sure (list and costs: --help of --lock); 'pieces'
does not, and is what programs do that have no atomic mode.

Paper 000 (96 processes, 1.6 GB each): --columns 8 --rows 12 --width 20480 --height 20480 --overlap 100 --stripes 1,2,4,8,16")]
pub(crate) struct TileIoArguments {
    /// Tiles side by side.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    columns: u32,
    /// Rows of tiles. COLUMNS times ROWS processes write.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=512))]
    rows: u32,
    /// Elements of a tile from left to right.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    width: u64,
    /// Elements of a tile from top to bottom.
    #[arg(long, value_name = "N", default_value_t = 2048, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    height: u64,
    /// Bytes of an element.
    #[arg(long, value_name = "BYTES", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    element: u64,
    /// Elements that neighbours have in common, in each direction.
    #[arg(long, value_name = "N", default_value_t = 100)]
    overlap: u64,
    #[command(flatten)]
    common: RegionArguments,
}

/// The tiles of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tiles {
    /// Tiles side by side.
    pub(crate) columns: u32,
    /// Rows of tiles.
    pub(crate) rows: u32,
    /// Elements of a tile from left to right.
    pub(crate) width: u64,
    /// Elements of a tile from top to bottom.
    pub(crate) height: u64,
    /// Bytes of an element.
    pub(crate) element_bytes: u64,
    /// Elements that neighbours have in common.
    pub(crate) overlap: u64,
}

impl Tiles {
    pub(crate) fn describe(&self) -> String {
        let Tiles { columns, rows, width, height, element_bytes, overlap } = self;
        format!(
            "{columns} x {rows} tiles of {width} x {height} elements of {element_bytes} bytes, overlapping by {overlap}"
        )
    }

    /// The bytes of a tile: a subarray of the picture, as MPI says it.
    pub(crate) fn tile(&self, rank: u32) -> Result<Region, RegionError> {
        let (column, row) = (u64::from(rank % self.columns), u64::from(rank / self.columns));
        let across = |count: u32, size: u64| {
            let steps = u64::from(count - 1).checked_mul(size - self.overlap);
            steps.and_then(|bytes| bytes.checked_add(size)).ok_or(RegionError::Overflow)
        };
        let sizes = [across(self.rows, self.height)?, across(self.columns, self.width)?];
        let starts = [row * (self.height - self.overlap), column * (self.width - self.overlap)];
        Datatype::bytes(self.element_bytes)?
            .subarray(&sizes, &[self.height, self.width], &starts, Order::C)?
            .region(0)
    }
}

impl TileIoArguments {
    fn pattern(&self) -> Result<Pattern, Failure> {
        let (columns, rows) = (self.columns, self.rows);
        if columns * rows > RANKS_MAX {
            return Err(Failure::usage(format!(
                "{columns} x {rows} tiles are more than {RANKS_MAX} processes"
            )));
        }
        if self.overlap >= self.width.min(self.height) {
            let (overlap, width, height) = (self.overlap, self.width, self.height);
            return Err(Failure::usage(format!(
                "--overlap {overlap} leaves nothing of tiles of {width} x {height}: it must be smaller than both"
            )));
        }
        Ok(Pattern::TileIo(Tiles {
            columns,
            rows,
            width: self.width,
            height: self.height,
            element_bytes: self.element,
            overlap: self.overlap,
        }))
    }
}

/// Measures and prints.
pub(crate) fn run(arguments: &TileIoArguments) -> Result<(), Failure> {
    super::regions::run(&arguments.common.plan(arguments.pattern()?, &Way::atomic())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::pattern::tests::{counts, fills_the_file_once};
    use ccpfs_types::Extent;

    fn tiles(overlap: u64) -> Tiles {
        Tiles { columns: 3, rows: 2, width: 8, height: 5, element_bytes: 4, overlap }
    }

    /// The pieces of a tile, line by line.
    fn lines(tiles: &Tiles, rank: u32) -> Vec<Extent> {
        let (step_x, step_y) = (tiles.width - tiles.overlap, tiles.height - tiles.overlap);
        let row_bytes = (u64::from(tiles.columns - 1) * step_x + tiles.width) * tiles.element_bytes;
        let (column, row) = (u64::from(rank % tiles.columns), u64::from(rank / tiles.columns));
        let line = |line: u64| (row * step_y + line) * row_bytes + column * step_x * tiles.element_bytes;
        let extent = |number| Extent::with_length(line(number), tiles.width * tiles.element_bytes).unwrap();
        (0..tiles.height).map(extent).collect()
    }

    #[test]
    fn a_tile_is_what_its_lines_are() {
        for overlap in [0, 1, 2, 4] {
            let tiles = tiles(overlap);
            for rank in 0..6 {
                let region = tiles.tile(rank).unwrap();
                assert_eq!(region.pieces().collect::<Vec<_>>(), lines(&tiles, rank), "{overlap} {rank}");
            }
        }
    }

    #[test]
    fn tiles_without_overlap_fill_the_picture_once_and_others_share_their_borders() {
        assert_eq!(fills_the_file_once(&Pattern::TileIo(tiles(0))), 3 * 2 * 8 * 5 * 4);
        let shared = counts(&Pattern::TileIo(tiles(2)));
        // In the corners four tiles meet.
        assert_eq!(shared.values().max(), Some(&4));
        assert_eq!(shared.len(), (3 * 8 - 2 * 2) * (2 * 5 - 2) * 4);
    }

    #[test]
    fn the_tiles_of_the_paper_have_the_bytes_and_pieces_it_says() {
        let tiles =
            Tiles { columns: 8, rows: 12, width: 20_480, height: 20_480, element_bytes: 4, overlap: 100 };
        let region = tiles.tile(95).unwrap();
        assert_eq!((region.piece_count(), region.length_bytes()), (20_480, 20_480 * 20_480 * 4));
        assert!(!region.overlaps(&tiles.tile(93).unwrap()) && region.overlaps(&tiles.tile(94).unwrap()));
    }
}
