//! Reads and writes of regions: atomic as a whole, whatever the kind and protocol of their locks, beside others that overlap.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod regions_world;

use ccpfs_client::{ClientConfig, LockKind, LockProtocol, LockStyle, OpenOptions};
use ccpfs_region::{Region, Section};
use ccpfs_types::Extent;
use regions_world::{Cluster, History, Random, fill, whole_cells};
use std::sync::Arc;

/// Lets writers and readers, each a client of its own, loose on one file.
fn run(policy: &str, stripes: u32, kind: LockKind, protocol: LockProtocol, rounds: u64) {
    let cluster = Cluster::start(policy);
    let style = LockStyle { kind, protocol };
    let history = Arc::new(History::default());
    let first = cluster.client(|_| {});
    let file = cluster.open(&first, "f", stripes);
    fill(&file);
    std::thread::scope(|scope| {
        for worker in 0..5_u64 {
            let (cluster, history) = (&cluster, Arc::clone(&history));
            scope.spawn(move || {
                let client = cluster.client(|_| {});
                let file = cluster.open(&client, "f", stripes);
                let mut random = Random(worker * 1000 + u64::from(stripes));
                for round in 0..rounds {
                    let region = random.region();
                    if worker < 3 {
                        history.write(&file, 1 + worker * rounds + round, &region, style);
                    } else {
                        history.read(&file, region, style);
                    }
                }
                file.close().unwrap();
                client.shutdown().unwrap();
            });
        }
    });
    history.read(&file, whole_cells(), style);
    history.check();
    file.close().unwrap();
    first.shutdown().unwrap();
    cluster.stop();
}

//= protocol.md#I5 type=test
//= semantics.md#S1 type=test
#[test]
fn overlapping_regions_are_written_and_read_whole_or_not_at_all_by_every_protocol() {
    for (_, protocol) in LockProtocol::PROTOCOLS {
        for stripes in [1, 3] {
            run("seqdlm", stripes, LockKind::Datatype, *protocol, 60);
        }
    }
}

//= protocol.md#I5 type=test
#[test]
fn overlapping_lists_of_64_pieces_are_written_and_read_whole_or_not_at_all() {
    for (_, protocol) in LockProtocol::PROTOCOLS {
        for stripes in [1, 3] {
            run("seqdlm", stripes, LockKind::List, *protocol, 40);
        }
    }
}

//= protocol.md#I5 type=test
#[test]
fn regions_with_a_lock_for_each_piece_are_written_and_read_whole_or_not_at_all() {
    for (_, protocol) in LockProtocol::PROTOCOLS {
        for stripes in [1, 3] {
            run("seqdlm", stripes, LockKind::Posix, *protocol, 25);
        }
    }
}

//= protocol.md#I5 type=test
#[test]
fn regions_are_atomic_under_the_baselines_too() {
    for policy in ["basic", "lustre", "seqdlm-no-early-grant", "seqdlm-no-upgrading-no-downgrading"] {
        for (_, kind) in LockKind::KINDS {
            run(policy, 2, *kind, LockProtocol::AltTry, 15);
        }
    }
}

#[test]
fn a_region_is_read_back_by_others_byte_by_byte_and_what_lies_between_stays() {
    let cluster = Cluster::start("seqdlm");
    let (writer, reader) = (cluster.client(|_| {}), cluster.client(|_| {}));
    for stripes in [1, 2, 3] {
        let name = format!("bytes-{stripes}");
        let (ours, theirs) = (cluster.open(&writer, &name, stripes), cluster.open(&reader, &name, stripes));
        let mut expected = vec![b'.'; 200_000];
        theirs.write_at(&expected, 0).unwrap();
        let mut random = Random(7);
        for round in 0..40_u8 {
            let region = random.region().in_extent(Extent::new(0, 200_000).unwrap()).unwrap();
            let buffer: Vec<u8> = (0..region.length_bytes())
                .map(|at| round.wrapping_add(u8::try_from(at % 251).unwrap()))
                .collect();
            assert_eq!(ours.write_region(&region, &buffer).unwrap(), buffer.len());
            let mut at = 0;
            for piece in region.pieces() {
                let (start, end) =
                    (usize::try_from(piece.start()).unwrap(), usize::try_from(piece.end()).unwrap());
                expected[start..end].copy_from_slice(&buffer[at..at + end - start]);
                at += end - start;
            }
            let mut again = vec![0; buffer.len()];
            assert_eq!(theirs.read_region(&region, &mut again).unwrap(), again.len());
            assert!(again == buffer, "round {round} of {stripes} stripes: {region}");
        }
        let mut all = vec![0; expected.len()];
        assert_eq!(theirs.read_at(&mut all, 0).unwrap(), all.len());
        assert!(all == expected, "{stripes} stripes");
    }
    cluster.stop();
}

#[test]
fn a_region_ends_where_the_file_does_and_holes_read_as_zeros() {
    let cluster = Cluster::start("seqdlm");
    let (writer, reader) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let (ours, theirs) = (cluster.open(&writer, "short", 3), cluster.open(&reader, "short", 3));
    let every_fourth = |count: u64| Region::from(Section::new(0, 1000, &[(4000, count)]).unwrap());
    assert_eq!(ours.write_region(&every_fourth(10), &[1; 10_000]).unwrap(), 10_000);
    assert_eq!(theirs.size().unwrap(), 37_000);
    let mut buffer = vec![9; 20_000];
    assert_eq!(theirs.read_region(&every_fourth(20), &mut buffer).unwrap(), 10_000);
    assert!(buffer[..10_000].iter().all(|byte| *byte == 1) && buffer[10_000..].iter().all(|byte| *byte == 9));
    // What lies between was never written; the last piece is cut by the end of the file.
    let between = Region::from(Section::new(500, 1000, &[(4000, 10)]).unwrap());
    let mut buffer = vec![9; 10_000];
    assert_eq!(theirs.read_region(&between, &mut buffer).unwrap(), 9500);
    for (at, byte) in buffer.iter().enumerate() {
        let expected = if at >= 9500 { 9 } else { u8::from(at % 1000 < 500) };
        assert_eq!(*byte, expected, "byte {at}");
    }
    cluster.stop();
}

#[test]
fn a_large_region_goes_through_a_small_cache() {
    let cluster = Cluster::start("seqdlm");
    let small = |config: &mut ClientConfig| {
        (config.cache_bytes, config.dirty_bytes_max, config.dirty_bytes_min) = (1 << 20, 512 << 10, 64 << 10);
        config.read_ahead_bytes = 0;
    };
    let client = cluster.client(small);
    let file = cluster.open(&client, "large", 2);
    let region = Region::from(Section::new(77, 9000, &[(20_000, 400)]).unwrap());
    let buffer: Vec<u8> = (0..region.length_bytes()).map(|at| u8::try_from(at % 249).unwrap()).collect();
    assert_eq!(file.write_region(&region, &buffer).unwrap(), buffer.len());
    let mut again = vec![0; buffer.len()];
    assert_eq!(cluster.open(&client, "large", 2).read_region(&region, &mut again).unwrap(), again.len());
    assert!(again == buffer);
    drop(file);
    client.shutdown().unwrap();
    cluster.stop();
}

#[test]
fn requests_that_do_not_fit_are_refused() {
    let cluster = Cluster::start("seqdlm");
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "wrong", 1);
    let region = Region::from(Section::new(0, 10, &[(20, 5)]).unwrap());
    assert_eq!(file.write_region(&region, &[0; 49]).unwrap_err().to_errno(), libc::EINVAL);
    assert_eq!(file.read_region(&region, &mut [0; 51]).unwrap_err().to_errno(), libc::EINVAL);
    let far = Region::from(Section::new(1 << 62, 10, &[(1 << 62, 2)]).unwrap());
    assert_eq!(file.write_region(&far, &[0; 20]).unwrap_err().to_errno(), libc::EFBIG);
    let whole = Region::from(Section::new(0, 10, &[(20, ccpfs_region::UNBOUNDED)]).unwrap());
    assert_eq!(file.read_region(&whole, &mut [0; 20]).unwrap_err().to_errno(), libc::EFBIG);
    drop(file);
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let file = client.open(&cluster.namespace().join("wrong"), &options).unwrap();
    assert_eq!(file.write_region(&region, &[0; 50]).unwrap_err().to_errno(), libc::EBADF);
    cluster.stop();
}

#[test]
fn a_strided_region_takes_one_request_for_each_stripe() {
    let cluster = Cluster::start("seqdlm");
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "pieces", 2);
    let region = Region::from(Section::new(5, 1, &[(64, 131_072)]).unwrap());
    let before = client.statistics();
    file.write_region(&region, &vec![1; 131_072]).unwrap();
    file.write_region(&region, &vec![2; 131_072]).unwrap();
    assert_eq!(client.statistics().since(&before).lock_requests, 2);
    drop(file);
    client.shutdown().unwrap();
    cluster.stop();
}

#[test]
fn locks_that_another_client_keeps_on_all_stripes_are_wanted_back_at_once() {
    let cluster = Cluster::start("seqdlm");
    let (first, second) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let stripes = 8;
    let (ours, theirs) = (cluster.open(&first, "kept", stripes), cluster.open(&second, "kept", stripes));
    let region = Region::from(Section::new(5, 1, &[(64, 4096)]).unwrap());
    let style = LockStyle { kind: LockKind::Datatype, protocol: LockProtocol::AltTry };
    for round in 0..20 {
        ours.write_region_with(&region, &[1; 4096], style).unwrap();
        let before = second.statistics();
        theirs.write_region_with(&region, &[2; 4096], style).unwrap();
        let asked = second.statistics().since(&before).lock_requests;
        // Eight that are tried, and eight that wait: one for the first stripe, the others ahead of their turn.
        assert!(asked <= 16, "round {round}: {asked} requests");
        let mut found = [0; 4096];
        ours.read_region_with(&region, &mut found, style).unwrap();
        assert!(found.iter().all(|byte| *byte == 2), "round {round}");
    }
    cluster.stop();
}
