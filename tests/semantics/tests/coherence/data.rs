//! Contents and sizes: what one writes, cuts or appends, and what the other sees.

use ccpfs_semantics::{Agent, Random, Stage, flags, scenarios};
use std::thread;

/// A unit of a stripe, as the stage has it.
const UNIT: u64 = 64 << 10;

scenarios! { every door:
    a_write_is_seen_by_everybody_at_once,
    appends_of_many_lose_nothing_and_mix_nothing,
    appends_go_to_the_end_as_it_is_after_somebody_else_cut,
    appends_and_truncations_leave_whole_records,
    overlapping_writes_leave_one_writers_bytes,
    a_reader_sees_each_write_as_a_whole_and_never_goes_back,
    what_was_cut_reads_as_zeros_when_the_file_grows_again,
    a_cut_takes_what_others_have_not_flushed,
    a_size_is_known_while_others_hold_locks,
    a_size_only_grows_while_a_file_is_only_extended,
    the_end_of_a_file_is_where_others_have_put_it,
    data_and_holes_are_found,
    reading_ahead_gives_way_to_a_writer,
    opening_with_truncation_empties_the_file_for_those_who_have_it_open,
    interleaved_small_writes_keep_their_bytes,
    a_vectored_write_is_one_write,
    descriptors_that_were_copied_share_their_offset,
    a_range_is_copied_as_others_have_just_written_it,
    allocation_grows_a_file_and_cuts_nobody_off,
    a_punched_hole_reads_as_zeros_for_all,
    calls_that_cannot_work_fail_as_posix_says,
    large_reads_and_writes_are_complete,
    direct_and_cached_access_see_the_same,
    times_of_writes_are_seen_at_once,
    times_set_by_hand_stay_until_the_next_write,
}

//= semantics.md#S2 type=test
fn a_write_is_seen_by_everybody_at_once(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    for round in 0..20_u64 {
        let text = format!("round {round:04}").into_bytes();
        a.pwrite(fa, &text, round * 40_000).unwrap();
        assert_eq!(b.pread(fb, 10, round * 40_000).unwrap(), text);
        assert_eq!(b.fstat(fb).unwrap().size, round * 40_000 + 10);
        b.pwrite(fb, b"ROUND", round * 40_000).unwrap();
        assert_eq!(a.pread(fa, 5, round * 40_000).unwrap(), b"ROUND");
    }
}

/// A record of an appender: its name and number, a length that differs, and an end.
fn record(who: u8, number: u64) -> Vec<u8> {
    let mut random = Random::new(u64::from(who) << 32 | number);
    let length = 20 + usize::try_from(random.below(9_000)).unwrap();
    let mut record = format!("<{}:{number}:", char::from(who)).into_bytes();
    record.resize(record.len() + length, who);
    record.push(b'>');
    record
}

/// The numbers of `who`'s records, in their order; every record must be whole.
fn numbers_of(who: u8, contents: &[u8]) -> Vec<u64> {
    let mut found = Vec::new();
    for part in contents.split_inclusive(|byte| *byte == b'>') {
        let head: Vec<&[u8]> = part.splitn(3, |byte| *byte == b':').collect();
        assert!(head.len() == 3 && part[0] == b'<', "a record begins: {:?}", &part[..part.len().min(40)]);
        let number: u64 = String::from_utf8_lossy(head[1]).parse().unwrap();
        assert_eq!(part, record(part[1], number), "a record is whole");
        if part[1] == who {
            found.push(number);
        }
    }
    found
}

//= semantics.md#S4 type=test
fn appends_of_many_lose_nothing_and_mix_nothing(stage: &Stage) {
    const RECORDS: u64 = 60;
    let (more_a, more_b) = (stage.another_a(), stage.another_b());
    let crew: [(u8, &Agent); 4] = [(b'a', &stage.a), (b'b', &stage.b), (b'c', &more_a), (b'd', &more_b)];
    stage.a.put("log", b"").unwrap();
    thread::scope(|scope| {
        for (who, agent) in crew {
            scope.spawn(move || {
                let fd = agent.open("log", flags::WRITE | libc::O_APPEND).unwrap();
                for number in 0..RECORDS {
                    let bytes = record(who, number);
                    assert_eq!(agent.write(fd, &bytes).unwrap(), i64::try_from(bytes.len()).unwrap());
                }
                agent.close(fd).unwrap();
            });
        }
    });
    let contents = stage.b.get("log").unwrap();
    assert_eq!(contents, stage.a.get("log").unwrap());
    for (who, _) in crew {
        assert_eq!(numbers_of(who, &contents), (0..RECORDS).collect::<Vec<_>>());
    }
}

//= semantics.md#S4 type=test
fn appends_go_to_the_end_as_it_is_after_somebody_else_cut(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::APPEND).unwrap();
    a.write(fa, &[b'x'; 100_000]).unwrap();
    b.truncate("f", 10).unwrap();
    a.write(fa, b"abc").unwrap();
    assert_eq!(b.get("f").unwrap(), b"xxxxxxxxxxabc");
    let fb = b.open("f", flags::WRITE | libc::O_TRUNC).unwrap();
    a.write(fa, b"new").unwrap();
    b.pwrite(fb, b"N", 0).unwrap();
    assert_eq!(a.get("f").unwrap(), b"New");
    b.ftruncate(fb, 200_000).unwrap();
    a.write(fa, b"end").unwrap();
    assert_eq!(b.fstat(fb).unwrap().size, 200_003);
    // A kernel that mounts ccPFS counts from the end that it knows.
    if !stage.first_mounts() {
        assert_eq!(a.lseek(fa, 0, libc::SEEK_CUR).unwrap(), 200_003);
    }
}

//= semantics.md#S5 type=test
fn appends_and_truncations_leave_whole_records(stage: &Stage) {
    const LENGTH: usize = 3_001;
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", b"").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let fd = a.open("f", flags::WRITE | libc::O_APPEND).unwrap();
            for number in 0..200_u8 {
                a.write(fd, &[number + 1; LENGTH]).unwrap();
            }
        });
        scope.spawn(|| {
            for _ in 0..40 {
                b.truncate("f", 0).unwrap();
            }
        });
    });
    let contents = b.get("f").unwrap();
    assert_eq!(contents, a.get("f").unwrap());
    assert_eq!(contents.len() % LENGTH, 0);
    let records: Vec<u8> = contents.chunks(LENGTH).map(|record| record[0]).collect();
    assert!(contents.chunks(LENGTH).all(|record| record.iter().all(|byte| *byte == record[0])));
    assert!(
        records.windows(2).all(|pair| pair[0] + 1 == pair[1]),
        "what is left is the last records: {records:?}"
    );
}

//= semantics.md#S1 type=test
fn overlapping_writes_leave_one_writers_bytes(stage: &Stage) {
    let length = usize::try_from(3 * UNIT).unwrap();
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::MAKE).unwrap();
    for round in 0..20_u64 {
        let base = round * 10_000;
        let first = a.queue(&format!("pwrite {fa} {base}"), &vec![b'a'; length]);
        let second = b.queue(&format!("pwrite {fb} {}", base + 5_000), &vec![b'b'; length]);
        first.wait().unwrap();
        second.wait().unwrap();
        let seen = a.pread(fa, length + 5_000, base).unwrap();
        let overlap = &seen[5_000..length];
        assert!(overlap.iter().all(|byte| *byte == overlap[0]), "round {round}: both are in the overlap");
        assert!(
            seen[..5_000].iter().all(|byte| *byte == b'a') && seen[length..].iter().all(|byte| *byte == b'b')
        );
    }
}

//= semantics.md#S1 type=test
fn a_reader_sees_each_write_as_a_whole_and_never_goes_back(stage: &Stage) {
    let length = usize::try_from(2 * UNIT).unwrap();
    let (a, b, c) = (&stage.a, &stage.b, &stage.another_b());
    let fa = a.open("f", flags::MAKE).unwrap();
    a.pwrite(fa, &vec![1; length], UNIT / 2).unwrap();
    // Reads of local file systems are not atomic.
    let looked_at = if stage.is_local() { 1 } else { length };
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2..=60 {
                a.pwrite(fa, &vec![number; length], UNIT / 2).unwrap();
            }
        });
        for reader in [b, c] {
            scope.spawn(move || {
                let fd = reader.open("f", flags::READ).unwrap();
                let mut last = 0;
                for _ in 0..60 {
                    let seen = reader.pread(fd, looked_at, UNIT / 2).unwrap();
                    assert!(seen.iter().all(|byte| *byte == seen[0]), "a read sees parts of two writes");
                    assert!(seen[0] >= last, "a read sees what an earlier one did not");
                    last = seen[0];
                }
            });
        }
    });
    assert_eq!(b.get("f").unwrap()[usize::try_from(UNIT).unwrap()], 60);
}

//= semantics.md#S5 type=test
//= semantics.md#S6 type=test
fn what_was_cut_reads_as_zeros_when_the_file_grows_again(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    a.pwrite(fa, &vec![7; 300_000], 0).unwrap();
    b.ftruncate(fb, 1_001).unwrap();
    assert_eq!(a.fstat(fa).unwrap().size, 1_001);
    a.ftruncate(fa, 200_000).unwrap();
    let seen = b.pread(fb, 300_000, 0).unwrap();
    assert_eq!(seen.len(), 200_000);
    assert!(seen[..1_001].iter().all(|byte| *byte == 7) && seen[1_001..].iter().all(|byte| *byte == 0));
    b.pwrite(fb, b"far", 500_000).unwrap();
    let seen = a.pread(fa, 400_000, 150_000).unwrap();
    assert_eq!(seen.len(), 350_003);
    assert!(seen[..350_000].iter().all(|byte| *byte == 0));
}

//= semantics.md#S5 type=test
fn a_cut_takes_what_others_have_not_flushed(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    for round in 0..10_u64 {
        a.pwrite(fa, &vec![1; 200_000], 0).unwrap();
        b.truncate("f", round).unwrap();
        assert_eq!(a.fstat(fa).unwrap().size, round);
        assert_eq!(a.pread(fa, 10, 0).unwrap().len(), usize::try_from(round).unwrap());
        a.fsync(fa).unwrap();
        assert_eq!(b.get("f").unwrap(), vec![1; usize::try_from(round).unwrap()]);
    }
}

//= semantics.md#S3 type=test
fn a_size_is_known_while_others_hold_locks(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.name_mode("mkdir", "d", 0o755).unwrap();
    let files: Vec<i64> = (0..10).map(|n| a.open(&format!("d/{n}"), flags::NEW).unwrap()).collect();
    for (n, fd) in (0_u64..).zip(&files) {
        a.pwrite(*fd, b"x", n * 70_001).unwrap();
    }
    for n in 0..10_u64 {
        assert_eq!(b.stat(&format!("d/{n}")).unwrap().size, n * 70_001 + 1);
    }
    for (n, fd) in (0_u64..).zip(&files) {
        a.pwrite(*fd, b"x", n * 70_001 + 1).unwrap();
        assert_eq!(b.stat(&format!("d/{n}")).unwrap().size, n * 70_001 + 2);
    }
}

//= semantics.md#S3 type=test
fn a_size_only_grows_while_a_file_is_only_extended(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..150_u64 {
                a.pwrite(fa, &[1; 5_000], number * 5_000).unwrap();
            }
        });
        scope.spawn(|| {
            let fb = b.open("f", flags::READ).unwrap();
            let mut last = 0;
            for _ in 0..150 {
                let size = b.fstat(fb).unwrap().size;
                assert!(size >= last, "{size} after {last}");
                // What is counted can be read.
                if size > 0 {
                    assert_eq!(b.pread(fb, 1, size - 1).unwrap(), [1]);
                }
                last = size;
            }
        });
    });
    assert_eq!(b.stat("f").unwrap().size, 750_000);
}

//= semantics.md#S3 type=test
fn the_end_of_a_file_is_where_others_have_put_it(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    for size in [1_u64, 65_535, 65_536, 65_537, 200_000, 150_000, 0, 1_000_000] {
        a.ftruncate(fa, size).unwrap();
        let size = i64::try_from(size).unwrap();
        assert_eq!(b.lseek(fb, 0, libc::SEEK_END).unwrap(), size);
        assert_eq!(b.lseek(fb, 5, libc::SEEK_END).unwrap(), size + 5);
        b.write(fb, b"tail").unwrap();
        assert_eq!(a.lseek(fa, -4, libc::SEEK_END).unwrap(), size + 5);
        assert_eq!(a.read(fa, 10).unwrap(), b"tail");
        assert_eq!(a.read(fa, 10).unwrap(), b"");
    }
    assert_eq!(b.lseek(fb, -2_000_000, libc::SEEK_END).unwrap_err().0, libc::EINVAL);
}

//= semantics.md#S6 type=test
fn data_and_holes_are_found(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    let mib = 1_i64 << 20;
    a.pwrite(fa, &[1; 4096], 0).unwrap();
    a.pwrite(fa, &[2; 4096], 1 << 20).unwrap();
    b.ftruncate(fb, 4 << 20).unwrap();
    for (agent, fd) in [(b, fb), (a, fa)] {
        let data = |offset| agent.lseek(fd, offset, libc::SEEK_DATA);
        let hole = |offset| agent.lseek(fd, offset, libc::SEEK_HOLE);
        assert_eq!(data(0).unwrap(), 0);
        assert_eq!(data(100).unwrap(), 100);
        // Holes may be smaller than they are, data are never called a hole.
        assert!((4096..=4 * mib).contains(&hole(0).unwrap()));
        assert!((4096..=mib).contains(&data(4096).unwrap()));
        assert_eq!(data(mib + 7).unwrap(), mib + 7);
        assert!((mib + 4096..=4 * mib).contains(&hole(mib).unwrap()));
        match data(mib + 4096) {
            Ok(found) => assert!((mib + 4096..4 * mib).contains(&found)),
            Err(error) => assert_eq!(error.0, libc::ENXIO),
        }
        for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
            assert_eq!(agent.lseek(fd, 4 * mib, whence).unwrap_err().0, libc::ENXIO);
            assert_eq!(agent.lseek(fd, 5 * mib, whence).unwrap_err().0, libc::ENXIO);
        }
    }
}

//= semantics.md#S2 type=test
fn reading_ahead_gives_way_to_a_writer(stage: &Stage) {
    const PIECE: usize = 16 << 10;
    const PIECES: u64 = 64;
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; PIECE * 64]).unwrap();
    let fa = a.open("f", flags::READ).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    for piece in 0..PIECES {
        // The reader is about to come here, or has fetched it already.
        let ahead = (piece + 1).min(PIECES - 1);
        b.pwrite(fb, &[u8::try_from(piece).unwrap() + 2; 100], ahead * 16_384 + 50).unwrap();
        let seen = a.read(fa, PIECE).unwrap();
        assert_eq!(seen.len(), PIECE);
        let expected = if piece == 0 { 1 } else { u8::try_from(piece).unwrap() + 1 };
        if piece < PIECES - 1 {
            assert_eq!(
                (seen[0], seen[50], seen[149], seen[150]),
                (1, expected, expected, 1),
                "piece {piece}"
            );
        }
    }
    assert_eq!(a.pread(fa, 1, 63 * 16_384 + 50).unwrap(), [65]);
}

//= semantics.md#S5 type=test
fn opening_with_truncation_empties_the_file_for_those_who_have_it_open(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    for _ in 0..5 {
        a.pwrite(fa, &vec![9; 150_000], 0).unwrap();
        let fb = b.open("f", flags::WRITE | libc::O_TRUNC).unwrap();
        assert_eq!(a.fstat(fa).unwrap().size, 0);
        assert_eq!(a.pread(fa, 100, 0).unwrap(), b"");
        b.pwrite(fb, b"tail", 100_000).unwrap();
        let seen = a.pread(fa, 200_000, 0).unwrap();
        assert_eq!(seen.len(), 100_004);
        assert!(seen[..100_000].iter().all(|byte| *byte == 0));
        b.close(fb).unwrap();
    }
}

//= semantics.md#S1 type=test
fn interleaved_small_writes_keep_their_bytes(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", b"").unwrap();
    thread::scope(|scope| {
        for (agent, first, fill) in [(a, 0_u64, b'a'), (b, 1, b'b')] {
            scope.spawn(move || {
                let fd = agent.open("f", flags::WRITE).unwrap();
                for number in 0..300_u64 {
                    agent.pwrite(fd, &[fill; 37], (2 * number + first) * 37).unwrap();
                }
                agent.close(fd).unwrap();
            });
        }
    });
    let expected: Vec<u8> = (0..300).flat_map(|_| [[b'a'; 37], [b'b'; 37]].concat()).collect();
    assert!(a.get("f").unwrap() == expected && b.get("f").unwrap() == expected);
}

//= semantics.md#S1 type=test
fn a_vectored_write_is_one_write(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::APPEND).unwrap();
    let fb = b.open("f", flags::APPEND).unwrap();
    let mut sent = Vec::new();
    for number in 0..40_u8 {
        for (agent, fd, who) in [(a, fa, b'A'), (b, fb, b'B')] {
            let mut bytes = vec![number + 1; 1_000];
            bytes.extend([who; 1_500]);
            sent.push(agent.queue(&format!("writev {fd} 1000"), &bytes));
        }
    }
    for write in sent {
        assert_eq!(write.wait().unwrap().value, 2_500);
    }
    let contents = a.get("f").unwrap();
    assert_eq!(contents.len(), 80 * 2_500);
    for part in contents.chunks(2_500) {
        assert!(part[..1_000].iter().all(|byte| *byte == part[0]) && part[0] <= 40);
        assert!(part[1_000..].iter().all(|byte| *byte == part[1_000]) && part[1_000] >= b'A');
    }
}

//= semantics.md#S7 type=test
fn descriptors_that_were_copied_share_their_offset(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fd = a.open("f", flags::MAKE).unwrap();
    let copy = a.dup(fd).unwrap();
    a.write(fd, b"one ").unwrap();
    a.write(copy, b"two ").unwrap();
    a.forked(&format!("write {fd}"), b"three ").unwrap();
    a.write(copy, b"four").unwrap();
    assert_eq!(b.get("f").unwrap(), b"one two three four");
    a.lseek(fd, 4, libc::SEEK_SET).unwrap();
    assert_eq!(a.forked(&format!("read {copy} 4"), &[]).unwrap().bytes, b"two ");
    assert_eq!(a.read(fd, 5).unwrap(), b"three");
    a.close(fd).unwrap();
    b.truncate("f", 2).unwrap();
    assert_eq!(a.pread(copy, 10, 0).unwrap(), b"on");
}

//= semantics.md#S2 type=test
fn a_range_is_copied_as_others_have_just_written_it(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let from = a.open("from", flags::MAKE).unwrap();
    let to = b.open("to", flags::MAKE).unwrap();
    let bytes = Random::new(1).bytes(200_000);
    a.pwrite(from, &bytes, 0).unwrap();
    let from = b.open("from", flags::READ).unwrap();
    let mut done = 0;
    while done < 150_000 {
        let copied = b.copy_file_range((from, 10_000 + done), (to, 5 + done), 150_000 - done).unwrap();
        assert!(copied > 0);
        done += u64::try_from(copied).unwrap();
    }
    let seen = a.get("to").unwrap();
    assert_eq!(seen.len(), 150_005);
    assert!(seen[5..] == bytes[10_000..160_000] && seen[..5] == [0; 5]);
    let sent = b.call(&format!("sendfile {to} {from} 0 1000"), &[]).unwrap().value;
    assert_eq!(sent, 1_000);
    assert!(a.get("to").unwrap()[..1_000] == bytes[..1_000]);
}

//= semantics.md#S4 type=test
fn allocation_grows_a_file_and_cuts_nobody_off(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::APPEND).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    b.fallocate(fb, libc::FALLOC_FL_KEEP_SIZE, 0, 300_000).unwrap();
    assert_eq!(a.fstat(fa).unwrap().size, 0);
    b.fallocate(fb, 0, 10, 90).unwrap();
    assert_eq!(a.fstat(fa).unwrap().size, 100);
    b.fallocate(fb, 0, 0, 50).unwrap();
    assert_eq!(a.fstat(fa).unwrap().size, 100, "allocation never cuts");
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..100 {
                a.write(fa, &[1; 700]).unwrap();
            }
        });
        scope.spawn(|| {
            for number in 0..100 {
                b.fallocate(fb, 0, 0, number * 350 + 1).unwrap();
            }
        });
    });
    let seen = b.get("f").unwrap();
    assert_eq!(seen.iter().filter(|byte| **byte == 1).count(), 70_000, "every append is there");
}

//= semantics.md#S6 type=test
fn a_punched_hole_reads_as_zeros_for_all(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    a.pwrite(fa, &vec![5; 300_000], 0).unwrap();
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    match b.fallocate(fb, mode, 50_001, 150_000) {
        // A deviation that semantics.md lists.
        Err(error) if error.0 == libc::EOPNOTSUPP => return,
        other => other.unwrap(),
    }
    let seen = a.pread(fa, 400_000, 0).unwrap();
    assert_eq!(seen.len(), 300_000);
    assert!(seen[50_001..200_001].iter().all(|byte| *byte == 0));
    assert!(seen[..50_001].iter().chain(&seen[200_001..]).all(|byte| *byte == 5));
    a.pwrite(fa, &[6; 100], 100_000).unwrap();
    assert_eq!(b.pread(fb, 102, 99_999).unwrap(), [&[0][..], &[6; 100], &[0]].concat());
}

fn calls_that_cannot_work_fail_as_posix_says(stage: &Stage) {
    let a = &stage.a;
    a.put("f", b"contents").unwrap();
    a.name_mode("mkdir", "d", 0o755).unwrap();
    let reader = a.open("f", flags::READ).unwrap();
    let writer = a.open("f", flags::WRITE).unwrap();
    let errno = |result: Result<i64, ccpfs_semantics::Errno>| result.unwrap_err().0;
    assert_eq!(errno(a.write(reader, b"x")), libc::EBADF);
    assert_eq!(errno(a.read(writer, 1).map(|_| 0)), libc::EBADF);
    assert_eq!(errno(a.ftruncate(reader, 1).map(|()| 0)), libc::EINVAL);
    assert_eq!(errno(a.lseek(reader, -1, libc::SEEK_SET)), libc::EINVAL);
    assert_eq!(errno(a.lseek(reader, 0, 99)), libc::EINVAL);
    assert_eq!(errno(a.call(&format!("pread {reader} 1 -1"), &[]).map(|_| 0)), libc::EINVAL);
    assert_eq!(errno(a.call(&format!("pwrite {writer} -1"), b"x").map(|_| 0)), libc::EINVAL);
    assert_eq!(errno(a.call(&format!("ftruncate {writer} -1"), &[]).map(|_| 0)), libc::EINVAL);
    assert_eq!(errno(a.call(&format!("fallocate {writer} 0 0 0"), &[]).map(|_| 0)), libc::EINVAL);
    assert_eq!(errno(a.fallocate(reader, 0, 0, 1).map(|()| 0)), libc::EBADF);
    assert_eq!(errno(a.open("d", flags::WRITE)), libc::EISDIR);
    assert_eq!(errno(a.open("f/x", flags::READ)), libc::ENOTDIR);
    assert_eq!(errno(a.open("f", flags::READ | libc::O_DIRECTORY)), libc::ENOTDIR);
    assert_eq!(errno(a.open("missing", flags::READ)), libc::ENOENT);
    assert_eq!(errno(a.open("f", flags::NEW)), libc::EEXIST);
    assert_eq!(errno(a.open("missing/f", flags::MAKE)), libc::ENOENT);
    assert_eq!(errno(a.open(&"x".repeat(256), flags::MAKE)), libc::ENAMETOOLONG);
    assert_eq!(errno(a.truncate("d", 0).map(|()| 0)), libc::EISDIR);
    assert_eq!(a.pread(reader, 10, 1 << 40).unwrap(), b"");
    assert_eq!(a.pwrite(writer, b"", 1 << 30).unwrap(), 0);
    assert_eq!(a.stat("f").unwrap().size, 8, "writing nothing changes nothing");
    a.close(reader).unwrap();
    assert_eq!(errno(a.read(reader, 1).map(|_| 0)), libc::EBADF);
}

//= semantics.md#S2 type=test
fn direct_and_cached_access_see_the_same(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let direct = a.open("f", flags::MAKE | libc::O_DIRECT).unwrap();
    let cached = b.open("f", flags::BOTH).unwrap();
    for round in 0..30_u64 {
        let fill = u8::try_from(round + 1).unwrap();
        let at = round % 5 * 8_192;
        a.pwrite(direct, &[fill; 8_192], at).unwrap();
        assert_eq!(b.pread(cached, 8_192, at).unwrap(), [fill; 8_192]);
        b.pwrite(cached, &[fill + 100; 100], at + 4_000).unwrap();
        let seen = a.pread(direct, 8_192, at).unwrap();
        assert!(seen[4_000..4_100] == [fill + 100; 100] && seen[3_999] == fill && seen[4_100] == fill);
    }
}

//= semantics.md#S2 type=test
fn large_reads_and_writes_are_complete(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let bytes = Random::new(7).bytes(9_000_001);
    let fa = a.open("f", flags::MAKE).unwrap();
    assert_eq!(a.pwrite(fa, &bytes, 3).unwrap(), 9_000_001);
    let fb = b.open("f", flags::READ).unwrap();
    let seen = b.pread(fb, 9_500_000, 3).unwrap();
    assert!(seen == bytes, "{} bytes are seen", seen.len());
}

//= semantics.md#S3 type=test
fn times_of_writes_are_seen_at_once(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    // So old that every write is later, whatever the clock's tick.
    let old = 1_000_000_000;
    let age = |agent: &Agent, fd: i64| {
        agent.call(&format!("futimens {fd} {old} 0 {old} 0"), &[]).unwrap();
    };
    let is_old = |agent: &Agent| agent.stat("f").unwrap().mtime_ns == i128::from(old) * 1_000_000_000;
    for round in 0..3 {
        age(b, fb);
        assert!(is_old(a) && is_old(b), "round {round}");
        a.pwrite(fa, b"x", 70_000 * round).unwrap();
        assert!(!is_old(b), "the write's time is seen by the other, round {round}");
        assert!(!is_old(a));
        age(a, fa);
        b.ftruncate(fb, 10).unwrap();
        assert!(!is_old(a), "a cut is a change");
        age(a, fa);
        assert_eq!(b.pread(fb, 1, 0).unwrap().len(), 1);
        b.fsync(fb).unwrap();
        assert!(is_old(b) && is_old(a), "reading and fsync change nothing");
    }
    let before = b.stat("f").unwrap();
    a.pwrite(fa, b"y", 0).unwrap();
    let after = b.stat("f").unwrap();
    assert!(after.mtime_ns > before.mtime_ns && after.ctime_ns >= before.ctime_ns);
}

fn times_set_by_hand_stay_until_the_next_write(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    a.write(fa, b"some").unwrap();
    // At once after the write: the hand is later, even within one tick of the clock.
    b.call("utimens f 5 6 1234567890 123456789", &[]).unwrap();
    let time = 1_234_567_890_123_456_789;
    assert_eq!(a.fstat(fa).unwrap().mtime_ns, time);
    assert_eq!(b.stat("f").unwrap().mtime_ns, time);
    a.fsync(fa).unwrap();
    a.close(fa).unwrap();
    assert_eq!(b.stat("f").unwrap().mtime_ns, time, "flushing and closing write no time");
    assert_eq!(a.stat("f").unwrap().mtime_ns, time);
    b.name_mode("chmod", "f", 0o600).unwrap();
    assert_eq!(a.stat("f").unwrap().mtime_ns, time);
    let fb = b.open("f", flags::WRITE).unwrap();
    b.write(fb, b"S").unwrap();
    assert!(a.stat("f").unwrap().mtime_ns > time);
}
