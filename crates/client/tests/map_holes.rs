//! Where a file has data and where holes, and holes made by hand.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod small_cluster;

use ccpfs_client::File;
use small_cluster::{Cluster, extent, read};

const MIB: u64 = 1 << 20;

/// Data and holes from the beginning to the end, as a program finds them: (start, end) of each run of data.
fn runs(file: &File) -> Vec<(u64, u64)> {
    let mut runs = Vec::new();
    let mut at = 0;
    while let Some(start) = file.next_data(at).unwrap() {
        let end = file.next_hole(start).unwrap().unwrap();
        assert!(start < end && (runs.is_empty() || at < start));
        runs.push((start, end));
        at = end;
    }
    runs
}

#[test]
fn a_file_without_data_has_one_hole_and_an_empty_one_has_none() {
    let cluster = Cluster::start(2);
    let client = cluster.client();
    let file = cluster.open(&client, "f", 3);
    assert_eq!((file.next_data(0).unwrap(), file.next_hole(0).unwrap()), (None, None));
    file.truncate(MIB).unwrap();
    assert_eq!((file.next_data(0).unwrap(), file.next_hole(0).unwrap()), (None, Some(0)));
    assert_eq!(file.next_hole(MIB - 1).unwrap(), Some(MIB - 1));
    assert_eq!(file.next_hole(MIB).unwrap(), None);
    assert_eq!((file.next_data(u64::MAX).unwrap(), file.next_hole(u64::MAX).unwrap()), (None, None));
}

#[test]
fn what_nobody_has_flushed_is_data_for_its_writer_and_for_others() {
    for stripes in [1, 3] {
        let cluster = Cluster::start(2);
        let (one, two) = (cluster.client(), cluster.client());
        let (mine, theirs) = (cluster.open(&one, "f", stripes), cluster.open(&two, "f", stripes));
        mine.write_at(&[1; 100_000], MIB).unwrap();
        mine.write_at(&[2; 10], 3 * MIB).unwrap();
        for file in [&mine, &theirs] {
            let found = runs(file);
            let has = |at| found.iter().any(|(start, end)| (*start..*end).contains(&at));
            assert!(has(MIB) && has(MIB + 99_999) && has(3 * MIB) && has(3 * MIB + 9), "{found:?}");
            assert!(!has(0) && !has(MIB - 1) && !has(2 * MIB), "{found:?}");
            assert_eq!(found.last().unwrap().1, 3 * MIB + 10, "the end of the file ends its data");
        }
    }
}

#[test]
fn data_written_by_several_clients_are_found_while_they_write_on() {
    let cluster = Cluster::start(2);
    let clients: Vec<_> = (0..3).map(|_| cluster.client()).collect();
    std::thread::scope(|scope| {
        for (number, client) in (0_u64..).zip(&clients) {
            let file = cluster.open(client, "f", 3);
            scope.spawn(move || {
                for turn in 0..30 {
                    let at = (turn * 3 + number) * 2 * 65_536;
                    file.write_at(&[1; 65_536], at).unwrap();
                    assert_eq!(file.next_data(at).unwrap(), Some(at));
                    assert_eq!(file.next_data(at + 65_535).unwrap(), Some(at + 65_535));
                    assert!(file.next_hole(at).unwrap().unwrap() >= at + 65_536);
                }
            });
        }
    });
    let file = cluster.open(&clients[0], "f", 3);
    let expected: Vec<(u64, u64)> = (0..90).map(|i| (i * 131_072, i * 131_072 + 65_536)).collect();
    assert_eq!(runs(&file), expected);
}

#[test]
fn more_runs_of_data_than_one_answer_holds_are_all_found() {
    let cluster = Cluster::start(1);
    let client = cluster.client();
    let file = cluster.open(&client, "f", 1);
    let count = 2 * ccpfs_types::limits::MAP_EXTENTS_MAX as u64 + 3;
    for i in 0..count {
        file.write_at(&[1; 4096], i * 8192).unwrap();
    }
    file.sync().unwrap();
    // The last one, and the hole behind all of those that touch each other, lie beyond the first answer.
    assert_eq!(file.next_data((count - 1) * 8192 - 1).unwrap(), Some((count - 1) * 8192));
    assert_eq!(file.next_hole((count - 1) * 8192).unwrap(), Some((count - 1) * 8192 + 4096));
    assert_eq!(runs(&file).len() as u64, count);
}

#[test]
fn a_hole_reads_as_zeros_everywhere_and_leaves_the_size() {
    for stripes in [1, 3] {
        let cluster = Cluster::start(2);
        let (one, two) = (cluster.client(), cluster.client());
        let (mine, theirs) = (cluster.open(&one, "f", stripes), cluster.open(&two, "f", stripes));
        mine.write_at(&[1; 500_000], 0).unwrap();
        assert_eq!(read(&theirs, 499_990, 20), [1; 10]);
        theirs.write_at(&[2; 100_000], 400_000).unwrap();
        mine.punch(extent(100_000, 450_000)).unwrap();
        for file in [&mine, &theirs] {
            let bytes = read(file, 0, 600_000);
            assert_eq!(bytes.len(), 500_000);
            assert!(bytes[..100_000].iter().all(|b| *b == 1) && bytes[450_000..].iter().all(|b| *b == 2));
            assert!(bytes[100_000..450_000].iter().all(|b| *b == 0));
            assert_eq!(file.size().unwrap(), 500_000);
            assert_eq!(file.next_hole(100_000).unwrap().map(|at| at < 110_000), Some(true));
        }
        // Written over again, and cut out again, by either.
        mine.write_at(&[3; 10], 200_000).unwrap();
        theirs.punch(extent(200_004, 200_006)).unwrap();
        assert_eq!(read(&mine, 200_000, 10), [3, 3, 3, 3, 0, 0, 3, 3, 3, 3]);
        mine.sync().unwrap();
    }
}

#[test]
fn a_hole_at_the_unflushed_end_of_a_file_leaves_the_size() {
    let cluster = Cluster::start(2);
    let (one, two) = (cluster.client(), cluster.client());
    let file = cluster.open(&one, "f", 3);
    file.write_at(&[1; 200_000], 0).unwrap();
    file.punch(extent(150_000, 1_000_000)).unwrap();
    assert_eq!(file.size().unwrap(), 200_000);
    assert_eq!(cluster.open(&two, "f", 3).size().unwrap(), 200_000);
    assert_eq!(read(&file, 149_999, 100), [&[1][..], &[0; 99]].concat());
    file.punch(extent(0, u64::MAX)).unwrap();
    assert_eq!((file.size().unwrap(), file.next_data(0).unwrap()), (200_000, None));
    // Beyond the end: nothing.
    file.punch(extent(1 << 30, 1 << 31)).unwrap();
    assert_eq!(file.size().unwrap(), 200_000);
}

#[test]
fn holes_and_writes_of_many_threads_leave_no_byte_of_both() {
    let cluster = Cluster::start(2);
    let clients: Vec<_> = (0..2).map(|_| cluster.client()).collect();
    let files: Vec<_> = clients.iter().map(|client| cluster.open(client, "f", 3)).collect();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                for turn in 0..40_u8 {
                    file.write_at(&[turn + 1; 150_000], 10_000).unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..40 {
                    file.punch(extent(10_000, 160_000)).unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..40 {
                    let bytes = read(file, 10_000, 150_000);
                    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a call is seen as a whole");
                }
            });
        }
    });
}

#[test]
fn a_handle_for_reading_makes_no_hole() {
    let cluster = Cluster::start(1);
    let client = cluster.client();
    cluster.open(&client, "f", 1).write_at(b"data", 0).unwrap();
    let options = ccpfs_client::OpenOptions { read: true, ..Default::default() };
    let file = client.open(&cluster.path("f"), &options).unwrap();
    assert_eq!(file.punch(extent(0, 4)).unwrap_err().to_errno(), 9);
    assert_eq!(read(&file, 0, 4), b"data");
}
