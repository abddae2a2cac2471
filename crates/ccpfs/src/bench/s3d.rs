//! `ccpfs bench s3d`: a checkpoint of four arrays, cut into blocks along all three axes (paper 001, 6.2).

use super::regions::args::RegionArguments;
use super::regions::pattern::{Operation, Pattern};
use super::regions::way::Way;
use crate::failure::Failure;
use ccpfs_region::{Datatype, Order, Region, RegionError};
use serde::{Deserialize, Serialize};

/// Components of the four arrays: mass, velocity, pressure, temperature.
const COMPONENTS: [u64; 4] = [11, 3, 1, 1];
/// Bytes of a number.
const NUMBER_BYTES: u64 = 8;

/// Options of `ccpfs bench s3d`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
S3D, a combustion code, keeps four arrays over a mesh of SIDE x SIDE x SIDE points: mass (11 numbers for each point), velocity (3),
pressure and temperature, each number 8 bytes, the x axis contiguous. Processes have blocks of the mesh (as MPI_Dims_create cuts it)
and write their part of each array into one file with one call: four calls each, of as many pieces as the block has
rows, of nobody else's bytes. An atomic mode has nothing to order here; what it costs beside 'group' (no locks) is pure overhead.

Paper 001 (1.19 GB): --side 210 --processes 8 (to 64) --stripes 16 --stripe-size 64KiB")]
pub(crate) struct S3dArguments {
    /// Points of the mesh along each axis.
    #[arg(long, value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u64).range(1..=1 << 16))]
    side: u64,
    /// Processes that write.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    processes: u32,
    #[command(flatten)]
    common: RegionArguments,
}

/// A checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkpoint {
    /// Points along each axis: x, y, z.
    pub(crate) points: [u64; 3],
    /// Processes along each axis.
    pub(crate) processes: [u32; 3],
}

/// Processes along three axes, as equal as can be, the most along the last: the cut of `MPI_Dims_create`, in Fortran's order.
pub(crate) fn cut(processes: u32) -> [u32; 3] {
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

impl Checkpoint {
    pub(crate) fn describe(&self) -> String {
        let ([x, y, z], [px, py, pz]) = (self.points, self.processes);
        format!(
            "S3D: {x} x {y} x {z} points, 16 numbers of 8 bytes each, blocks of {px} x {py} x {pz} processes"
        )
    }

    /// How many processes write.
    pub(crate) fn ranks(&self) -> u32 {
        self.processes.iter().product()
    }

    /// Where the block of `rank` starts, and how large it is, by axis. The last blocks are smaller if they must be, or empty.
    fn block(&self, rank: u32) -> ([u64; 3], [u64; 3]) {
        let [px, py, _] = self.processes;
        let place = [rank % px, rank / px % py, rank / px / py];
        let mut starts = [0; 3];
        let mut sizes = [0; 3];
        for axis in 0..3 {
            let size = self.points[axis].div_ceil(u64::from(self.processes[axis]));
            starts[axis] = (u64::from(place[axis]) * size).min(self.points[axis]);
            sizes[axis] = size.min(self.points[axis] - starts[axis]);
        }
        (starts, sizes)
    }

    /// The part of `rank` of an array of so many components that starts at `offset`.
    fn part(&self, rank: u32, components: u64, offset: u64) -> Result<Region, RegionError> {
        let (starts, sizes) = self.block(rank);
        let [x, y, z] = self.points;
        Datatype::bytes(NUMBER_BYTES)?
            .subarray(
                &[x, y, z, components],
                &[sizes[0], sizes[1], sizes[2], components],
                &[starts[0], starts[1], starts[2], 0],
                Order::Fortran,
            )?
            .region(offset)
    }

    /// One operation for each array; none of a process without points.
    pub(crate) fn operations(&self, rank: u32) -> Result<Vec<Operation>, RegionError> {
        let points: u64 = self.points.iter().product();
        if self.block(rank).1.contains(&0) {
            return Ok(Vec::new());
        }
        let mut offset = 0;
        let mut operations = Vec::new();
        for components in COMPONENTS {
            operations.push(Operation { region: self.part(rank, components, offset)?, sync: false });
            offset += points * components * NUMBER_BYTES;
        }
        Ok(operations)
    }
}

/// Measures and prints.
pub(crate) fn run(arguments: &S3dArguments) -> Result<(), Failure> {
    let processes = cut(arguments.processes);
    let (side, most) = (arguments.side, processes[2]);
    if side < u64::from(most) {
        return Err(Failure::usage(format!(
            "--side {side} is smaller than the {most} processes along one axis"
        )));
    }
    let pattern = Pattern::S3d(Checkpoint { points: [side; 3], processes });
    super::regions::run(&arguments.common.plan(pattern, &Way::atomic())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::pattern::tests::fills_the_file_once;
    use std::collections::BTreeSet;

    #[test]
    fn processes_are_cut_as_equally_as_can_be() {
        let cuts = [1, 2, 4, 6, 8, 12, 16, 64, 7].map(cut);
        let expected = [
            [1, 1, 1],
            [1, 1, 2],
            [1, 2, 2],
            [1, 2, 3],
            [2, 2, 2],
            [2, 2, 3],
            [2, 2, 4],
            [4, 4, 4],
            [1, 1, 7],
        ];
        assert_eq!(cuts, expected);
    }

    #[test]
    fn a_checkpoint_fills_the_file_once_even_if_blocks_are_not_equal() {
        for (points, processes) in [([4, 4, 4], [2, 2, 2]), ([5, 3, 4], [2, 2, 1]), ([3, 5, 7], [1, 2, 3])] {
            let bytes: u64 = points.iter().product::<u64>() * 16 * 8;
            assert_eq!(fills_the_file_once(&Pattern::S3d(Checkpoint { points, processes })), bytes);
        }
    }

    #[test]
    fn blocks_are_those_of_plain_enumeration() {
        let checkpoint = Checkpoint { points: [4, 3, 2], processes: [2, 1, 2] };
        let (x, y, z) = (4, 3, 2);
        for rank in 0..4 {
            let operations = checkpoint.operations(rank).unwrap();
            let mut start = 0;
            for (components, operation) in COMPONENTS.into_iter().zip(&operations) {
                let mut expected = BTreeSet::new();
                for c in 0..components {
                    for k in 0..y {
                        for i in 0..2 {
                            let (rank_x, rank_z) = (u64::from(rank % 2), u64::from(rank / 2));
                            let number = ((c * z + rank_z) * y + k) * x + rank_x * 2 + i;
                            expected.extend((0..8).map(|byte| start + number * 8 + byte));
                        }
                    }
                }
                let pieces = operation.region.pieces();
                let found: BTreeSet<u64> = pieces.flat_map(|piece| piece.start()..piece.end()).collect();
                assert_eq!(found, expected, "rank {rank}, {components} components");
                start += x * y * z * components * 8;
            }
        }
    }

    #[test]
    fn the_checkpoint_of_the_paper_has_its_size() {
        let checkpoint = Checkpoint { points: [210; 3], processes: cut(64) };
        let bytes = |rank| {
            checkpoint.operations(rank).unwrap().iter().map(|each| each.region.length_bytes()).sum::<u64>()
        };
        let total: u64 = (0..64).map(bytes).sum();
        assert_eq!(total, 1_185_408_000, "1.19 GB");
    }
}
