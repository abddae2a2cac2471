//! `ccpfs bench s3asim`: results of a sequence search, in no order and of all sizes (paper 001, 6.3).

use super::regions::args::RegionArguments;
use super::regions::pattern::{Operation, Pattern, Random};
use super::regions::way::Way;
use crate::failure::Failure;
use ccpfs_config::Bytes;
use ccpfs_region::Region;
use ccpfs_types::Extent;
use serde::{Deserialize, Serialize};

/// Options of `ccpfs bench s3asim`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
A database is cut into fragments that workers search for a query; the results of a query go into one file in the order of their
score. So each worker writes pieces of all sizes at places without any pattern, none of them anybody else's: one call for each
query, then a sync, as the benchmark does. 'datatype' locks are lists here: there is nothing to describe.

Only the writing is done, not the search. The paper gives 20 queries, 1,000 to 2,000 results each, 128 fragments, 208 MB in all;
how sizes are distributed it does not say: here evenly from 6 bytes (its shortest sequence) to twice the mean. Same seed, same results.

Paper 001: --queries 20 --results-min 1000 --results-max 2000 --mean 6933 --workers 1 (to 63) --stripes 16 --stripe-size 64KiB")]
pub(crate) struct S3asimArguments {
    /// Processes that search and write; the master of the original writes nothing.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=512))]
    workers: u32,
    /// Queries, one after the other.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    queries: u32,
    /// Fewest results of a query.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    results_min: u32,
    /// Most results of a query.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    results_max: u32,
    /// Mean size of a result.
    #[arg(long, value_name = "SIZE", default_value = "6933")]
    mean: Bytes,
    /// Parts of the database; who has searched one writes its results.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    fragments: u32,
    /// Begin of the random numbers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    common: RegionArguments,
}

/// Bytes of the shortest sequence in the paper's database.
const RESULT_BYTES_MIN: u64 = 6;

/// A search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Search {
    pub(crate) workers: u32,
    pub(crate) queries: u32,
    /// Fewest and most results of a query.
    pub(crate) results: (u32, u32),
    pub(crate) mean_bytes: u64,
    pub(crate) fragments: u32,
    pub(crate) seed: u64,
}

impl Search {
    pub(crate) fn describe(&self) -> String {
        let Search { workers, queries, results: (least, most), mean_bytes, fragments, seed } = self;
        format!(
            "S3aSim: {queries} queries with {least} to {most} results of {mean_bytes} bytes on average, {fragments} fragments, \
             {workers} workers, seed {seed}; each call is made persistent"
        )
    }

    /// All results in the order of the file: which query, which worker, which bytes. They do not depend on the number of
    /// workers, but for who writes them.
    fn results(&self) -> impl Iterator<Item = (u32, u32, Extent)> {
        let search = *self;
        let mut random = Random(search.seed);
        let mut offset = 0;
        (0..search.queries).flat_map(move |query| {
            let (least, most) = search.results;
            let count = random.between(u64::from(least), u64::from(most));
            // Fragments go to whoever is free: to anyone.
            let mut owners = Random(search.seed ^ u64::from(query) << 32 ^ 0x5851_f42d_4c95_7f2d);
            let owners: Vec<u64> =
                (0..search.fragments).map(|_| owners.between(0, u64::from(search.workers) - 1)).collect();
            let mut found = Vec::new();
            for _ in 0..count {
                let most = (2 * search.mean_bytes).saturating_sub(RESULT_BYTES_MIN).max(RESULT_BYTES_MIN);
                let length = random.between(RESULT_BYTES_MIN, most);
                let fragment = random.between(0, u64::from(search.fragments) - 1);
                let owner = owners[usize::try_from(fragment).expect("fragments are few")];
                let extent = Extent::with_length(offset, length).expect("results are small and not empty");
                offset += length;
                found.push((query, u32::try_from(owner).expect("workers are few"), extent));
            }
            found
        })
    }

    /// One operation for each query of which `rank` has results.
    pub(crate) fn operations(&self, rank: u32) -> Vec<Operation> {
        let mut by_query: Vec<Vec<Extent>> =
            vec![Vec::new(); usize::try_from(self.queries).expect("32 bits fit")];
        for (query, owner, extent) in self.results() {
            if owner == rank {
                by_query[usize::try_from(query).expect("32 bits fit")].push(extent);
            }
        }
        let regions = by_query.into_iter().filter_map(Region::from_extents);
        regions.map(|region| Operation { region, sync: true }).collect()
    }
}

/// Measures and prints.
pub(crate) fn run(arguments: &S3asimArguments) -> Result<(), Failure> {
    let results = (arguments.results_min, arguments.results_max);
    if results.0 > results.1 {
        return Err(Failure::usage(format!(
            "--results-min {} is more than --results-max {}",
            results.0, results.1
        )));
    }
    if !(RESULT_BYTES_MIN..=1 << 30).contains(&arguments.mean.0) {
        return Err(Failure::usage(format!("--mean {} is not allowed: 6 to 1GiB", arguments.mean)));
    }
    let pattern = Pattern::S3asim(Search {
        workers: arguments.workers,
        queries: arguments.queries,
        results,
        mean_bytes: arguments.mean.0,
        fragments: arguments.fragments,
        seed: arguments.seed,
    });
    super::regions::run(&arguments.common.plan(pattern, &Way::atomic())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::pattern::tests::fills_the_file_once;

    fn search(workers: u32) -> Search {
        Search { workers, queries: 5, results: (10, 30), mean_bytes: 20, fragments: 16, seed: 7 }
    }

    #[test]
    fn results_are_the_same_whoever_writes_them_and_fill_the_file_once() {
        let bytes = [1, 2, 5].map(|workers| fills_the_file_once(&Pattern::S3asim(search(workers))));
        assert!(bytes[0] > 5 * 10 * 6 && bytes.iter().all(|count| *count == bytes[0]), "{bytes:?}");
    }

    #[test]
    fn one_worker_writes_what_follows_each_other_and_many_write_pieces() {
        let pieces = |workers| -> u64 {
            search(workers).operations(0).iter().map(|operation| operation.region.piece_count()).sum()
        };
        assert_eq!(pieces(1), 5);
        assert!(pieces(3) > 10);
        assert!(search(3).operations(1).iter().all(|operation| operation.sync));
    }

    #[test]
    fn the_search_of_the_paper_has_about_its_size() {
        let search = Search {
            workers: 63,
            queries: 20,
            results: (1000, 2000),
            mean_bytes: 6933,
            fragments: 128,
            seed: 1,
        };
        let bytes: u64 = search.results().map(|(_, _, extent)| extent.length()).sum();
        assert!((180_000_000..236_000_000).contains(&bytes), "{bytes}");
    }
}
