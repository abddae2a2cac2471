//! How long it takes to see whether two regions overlap, for a few pairs and for growing numbers of pieces.
//!
//! `cargo run --release -p ccpfs-region --example overlap`
#![allow(clippy::unwrap_used, reason = "an example fails by panicking")]

use ccpfs_region::{Datatype, Order, Region, Section, UNBOUNDED};
use ccpfs_types::{Extent, Layout};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// How often, and for how long each time, one line is measured.
const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(10);

/// Nanoseconds of one call: the median of some rounds.
fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut call)).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[ROUNDS / 2]
}

fn round(call: &mut impl FnMut()) -> f64 {
    let mut calls = 0_u64;
    let begin = Instant::now();
    loop {
        for _ in 0..64 {
            call();
        }
        calls += 64;
        let elapsed = begin.elapsed();
        if elapsed >= ROUND {
            return elapsed.as_secs_f64() * 1e9 / calls as f64;
        }
    }
}

fn measure(what: &str, a: &Region, b: &Region) {
    let steps = (0..).map(|power| 1_u64 << power).find(|steps| a.first_common_within(b, *steps).is_ok());
    let time = nanoseconds(|| {
        black_box(black_box(a).overlaps(black_box(b)));
    });
    let pieces = match a.piece_count().max(b.piece_count()) {
        many if many > 1 << 40 => "endless".to_string(),
        pieces => pieces.to_string(),
    };
    let overlap = if a.overlaps(b) { "yes" } else { "no" };
    println!("{time:>9.1} ns  {:>6} steps  {pieces:>9} pieces  {overlap:<3}  {what}", steps.unwrap());
}

fn section(offset: u64, length: u64, levels: &[(u64, u64)]) -> Region {
    Section::new(offset, length, levels).unwrap().into()
}

fn list(offset: u64, count: u64) -> Region {
    let irregular = |at: u64| Extent::with_length(offset + 97 * at + at % 3, 1).unwrap();
    Region::from_extents((0..count).map(irregular).collect()).unwrap()
}

/// The part of one of two ranks of an array of `edge` to the third, which is cut along its last dimension.
fn half(edge: u64, rank: u64) -> Region {
    let sizes = [edge, edge, edge];
    let part = [edge, edge / 2 - 7, edge / 2];
    let starts = [0, 3, rank * (edge / 2)];
    Datatype::bytes(8).unwrap().subarray(&sizes, &part, &starts, Order::C).unwrap().region(0).unwrap()
}

fn main() {
    for count in [1 << 7, 128 << 10, UNBOUNDED] {
        let locks = section(0, 1, &[(64, count)]);
        measure("1 byte each 64, against the same shifted by 1", &locks, &section(1, 1, &[(64, count)]));
        measure(
            "1 byte each 64, against an extent in a gap",
            &locks,
            &Extent::new(4097, 4160).unwrap().into(),
        );
        measure(
            "1 byte each 64, against an extent that meets one",
            &locks,
            &Extent::new(4097, 4161).unwrap().into(),
        );
        measure(
            "1 byte each 64, against 1 byte each 4096",
            &locks,
            &section(65, 1, &[(4096, count.min(1 << 50))]),
        );
        measure(
            "coprime: 1 byte each 65,537, 1 byte each 65,521",
            &section(0, 1, &[(65_537, count)]),
            &section(9, 1, &[(65_521, count)]),
        );
        measure(
            "coprime: 1 byte each 47,009, 8 bytes each 65,536",
            &section(0, 1, &[(47_009, count)]),
            &section(100, 8, &[(65_536, count)]),
        );
    }
    for rows in [4, 32, 1 << 10] {
        let tile = |offset| section(offset, 16, &[(512, 64), (1 << 20, rows)]);
        measure("two levels, equal strides, shifted by 16", &tile(0), &tile(16));
        let other = |offset| section(offset, 16, &[(256, 32), (1 << 17, rows * 8)]);
        measure("two levels, strides that divide", &tile(0), &other(16));
        let coprime = section(24, 8, &[(512, 64), ((1 << 20) - 48, rows)]);
        measure("two levels, outer strides of few common divisors", &tile(0), &coprime);
        let line = section(16, 16, &[(7 << 12, rows * 8)]);
        measure("two levels, one level of another stride", &tile(0), &line);
    }
    let of_797_columns = section(212_876, 114, &[(797, 327), (1_561_323, UNBOUNDED)]);
    let of_771_columns = section(664_116, 193, &[(771, 186), (1_141_851, UNBOUNDED)]);
    measure("blocks of two arrays of unrelated dimensions", &of_797_columns, &of_771_columns);
    for edge in [32, 64, 128] {
        measure("halves of a cube", &half(edge, 0), &half(edge, 1));
    }
    for count in [64, 1 << 12] {
        let pieces = section(2, 1, &[(97, count)]);
        measure("a list, against pieces at the same distance", &list(0, count), &list(3, count));
        measure("a list, against 1 byte each 97", &list(0, count), &pieces);
    }
    for count in [128 << 10, UNBOUNDED] {
        let locks = section(0, 1, &[(64, count)]);
        let layout = Layout::new(32, 64 << 10).unwrap();
        let time = nanoseconds(|| {
            black_box(black_box(&locks).on_stripe(&layout, 7, 64)).unwrap();
        });
        println!("{time:>9.1} ns  the part of {locks} on one of 32 stripes");
    }
}
