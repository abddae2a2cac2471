//! Mapped files: what is stored in memory and what is written meet, in both directions.

use ccpfs_semantics::{Agent, Random, Stage, flags, scenarios};

const PAGE: usize = 4096;
const READ: i32 = libc::PROT_READ;
const BOTH: i32 = libc::PROT_READ | libc::PROT_WRITE;

scenarios! { the first maps:
    a_mapped_reader_sees_each_write,
    what_is_stored_is_read_by_the_other,
    stores_and_writes_into_one_page_are_both_kept,
    a_private_mapping_keeps_its_stores_to_itself,
    pages_beyond_the_end_cannot_be_had,
    a_cut_takes_mapped_pages_and_growing_brings_zeros,
    a_mapping_outlives_its_descriptor_and_its_name,
    what_was_synced_from_a_mapping_stays_when_its_process_is_killed,
    a_mapping_of_a_reader_cannot_be_written,
    stores_are_seen_by_ones_own_reads_and_writes_by_ones_own_loads,
    a_size_is_right_while_pages_are_mapped,
    appends_of_another_are_seen_in_a_mapping,
    a_file_is_cut_while_its_mapped_pages_are_wanted,
    nothing_of_a_mapping_comes_back_after_the_file_was_emptied,
    what_is_written_into_a_page_stays_beside_what_is_stored_into_it,
    what_is_stored_over_a_write_just_seen_stays,
    a_hole_made_in_a_page_stays_while_the_page_is_stored_into,
    records_are_appended_to_a_page_that_is_stored_into,
    private_pages_show_what_is_written,
    what_was_cut_does_not_come_back_through_a_mapping,
}

scenarios! { both map:
    two_mappings_of_one_page_take_turns,
    stores_into_neighbouring_bytes_are_all_kept,
    a_mapping_for_reading_gives_way_to_one_for_writing,
}

/// A kernel that mounts ccPFS learns at each look how long a file is; a page fault is no look.
fn look(agent: &Agent, fd: i64) {
    agent.fstat(fd).unwrap();
}

fn shared(agent: &Agent, fd: i64, protection: i32, length: usize) -> i64 {
    agent.mmap(fd, protection, libc::MAP_SHARED, 0, length).unwrap()
}

//= semantics.md#S2 type=test
fn a_mapped_reader_sees_each_write(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 40 * PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::READ).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, READ, 40 * PAGE);
    for round in 0..40_u8 {
        let at = u64::from(round) * 3_999;
        assert_eq!(a.load(map, at, 10).unwrap()[9], 1);
        b.pwrite(fb, &[round + 2; 5], at).unwrap();
        assert_eq!(a.load(map, at, 6).unwrap(), [&[round + 2; 5][..], &[1]].concat());
    }
}

//= semantics.md#S2 type=test
fn what_is_stored_is_read_by_the_other(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 40 * PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, BOTH, 40 * PAGE);
    for round in 0..40_u8 {
        let at = u64::from(round) * 3_999;
        a.store(map, at, &[round + 2; 100]).unwrap();
        assert_eq!(b.pread(fb, 101, at).unwrap(), [&[round + 2; 100][..], &[1]].concat());
    }
}

//= semantics.md#S2 type=test
fn stores_and_writes_into_one_page_are_both_kept(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; 2 * PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, BOTH, 2 * PAGE);
    let mut expected = vec![0; 2 * PAGE];
    let mut random = Random::new(3);
    for _ in 0..100 {
        let at = random.below(8_000);
        let bytes = random.bytes(100);
        if random.chance(1, 2) {
            a.store(map, at, &bytes).unwrap();
        } else {
            b.pwrite(fb, &bytes, at).unwrap();
        }
        expected[usize::try_from(at).unwrap()..][..100].copy_from_slice(&bytes);
    }
    assert!(b.pread(fb, 2 * PAGE, 0).unwrap() == expected);
    assert!(a.load(map, 0, 2 * PAGE).unwrap() == expected);
    a.munmap(map).unwrap();
    assert!(a.get("f").unwrap() == expected);
}

fn a_private_mapping_keeps_its_stores_to_itself(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 4 * PAGE]).unwrap();
    let fa = a.open("f", flags::READ).unwrap();
    let map = a.mmap(fa, BOTH, libc::MAP_PRIVATE, 0, 4 * PAGE).unwrap();
    a.store(map, 100, b"private").unwrap();
    assert_eq!(a.load(map, 99, 8).unwrap(), b"\x01private");
    assert_eq!(b.get("f").unwrap(), vec![1; 4 * PAGE]);
    let fb = b.open("f", flags::WRITE).unwrap();
    b.pwrite(fb, &vec![2; 4 * PAGE], 0).unwrap();
    assert_eq!(a.load(map, 100, 7).unwrap(), b"private");
    assert_eq!(a.pread(fa, 3, 100).unwrap(), [2; 3]);
}

fn pages_beyond_the_end_cannot_be_had(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; PAGE + 10]).unwrap();
    let fa = a.open("f", flags::BOTH).unwrap();
    let map = shared(a, fa, BOTH, 4 * PAGE);
    let page = u64::try_from(PAGE).unwrap();
    assert_eq!(a.load(map, page, 20).unwrap(), [&[1; 10][..], &[0; 10]].concat());
    assert_eq!(a.load(map, 2 * page, 1).unwrap_err().0, libc::EFAULT);
    assert_eq!(a.store(map, 3 * page, b"x").unwrap_err().0, libc::EFAULT);
    a.store(map, page + 10, b"beyond the end").unwrap();
    assert_eq!(b.stat("f").unwrap().size, page + 10, "a store does not grow the file");
    b.truncate("f", 4 * page).unwrap();
    look(a, fa);
    assert_eq!(a.load(map, 2 * page, 1).unwrap(), [0]);
    a.store(map, 3 * page, b"x").unwrap();
    assert_eq!(b.get("f").unwrap()[3 * PAGE], b'x');
}

//= semantics.md#S5 type=test
fn a_cut_takes_mapped_pages_and_growing_brings_zeros(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 4 * PAGE]).unwrap();
    let fa = a.open("f", flags::BOTH).unwrap();
    let map = shared(a, fa, BOTH, 4 * PAGE);
    let page = u64::try_from(PAGE).unwrap();
    a.store(map, 0, &vec![2; 4 * PAGE]).unwrap();
    b.truncate("f", 100).unwrap();
    assert_eq!(a.fstat(fa).unwrap().size, 100);
    assert_eq!(a.load(map, page, 1).unwrap_err().0, libc::EFAULT);
    b.truncate("f", 4 * page).unwrap();
    look(a, fa);
    assert_eq!(a.load(map, 0, 4 * PAGE).unwrap(), [vec![2; 100], vec![0; 4 * PAGE - 100]].concat());
    assert_eq!(b.get("f").unwrap(), [vec![2; 100], vec![0; 4 * PAGE - 100]].concat());
}

fn a_mapping_outlives_its_descriptor_and_its_name(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 8 * PAGE]).unwrap();
    let fa = a.open("f", flags::BOTH).unwrap();
    let map = shared(a, fa, BOTH, 8 * PAGE);
    a.close(fa).unwrap();
    a.store(map, 5_000, b"without a descriptor").unwrap();
    assert_eq!(&b.get("f").unwrap()[5_000..5_020], b"without a descriptor");
    let fb = b.open("f", flags::READ).unwrap();
    b.unlink("f").unwrap();
    a.store(map, 9_000, b"without a name").unwrap();
    assert_eq!(a.load(map, 9_000, 14).unwrap(), b"without a name");
    assert_eq!(b.pread(fb, 14, 9_000).unwrap(), b"without a name");
    a.munmap(map).unwrap();
    assert_eq!(b.pread(fb, 20, 5_000).unwrap(), b"without a descriptor");
}

//= semantics.md#S8 type=test
fn what_was_synced_from_a_mapping_stays_when_its_process_is_killed(stage: &Stage) {
    let (a, b) = (stage.another_a(), &stage.b);
    a.put("f", &vec![0; 4 * PAGE]).unwrap();
    let fa = a.open("f", flags::BOTH).unwrap();
    let map = shared(&a, fa, BOTH, 4 * PAGE);
    a.store(map, 4_000, &[7; 200]).unwrap();
    a.msync(map, 4 * PAGE).unwrap();
    a.kill();
    assert_eq!(b.get("f").unwrap()[4_000..4_200], [7; 200]);
}

fn a_mapping_of_a_reader_cannot_be_written(stage: &Stage) {
    let a = &stage.a;
    a.put("f", &vec![1; PAGE]).unwrap();
    let reader = a.open("f", flags::READ).unwrap();
    assert_eq!(a.mmap(reader, BOTH, libc::MAP_SHARED, 0, PAGE).unwrap_err().0, libc::EACCES);
    let writer = a.open("f", flags::WRITE).unwrap();
    assert_eq!(a.mmap(writer, READ, libc::MAP_PRIVATE, 0, PAGE).unwrap_err().0, libc::EACCES);
    let map = shared(a, reader, READ, PAGE);
    assert_eq!(a.store(map, 0, b"x").unwrap_err().0, libc::EFAULT);
    assert_eq!(a.mmap(reader, READ, libc::MAP_SHARED, 1, PAGE).unwrap_err().0, libc::EINVAL);
}

fn stores_are_seen_by_ones_own_reads_and_writes_by_ones_own_loads(stage: &Stage) {
    let a = &stage.a;
    a.put("f", &vec![1; 4 * PAGE]).unwrap();
    let fa = a.open("f", flags::BOTH).unwrap();
    let map = shared(a, fa, BOTH, 4 * PAGE);
    for round in 0..30_u8 {
        let at = u64::from(round) * 400;
        a.store(map, at, &[round; 50]).unwrap();
        assert_eq!(a.pread(fa, 50, at).unwrap(), [round; 50]);
        a.pwrite(fa, &[round + 100; 50], at + 25).unwrap();
        assert_eq!(a.load(map, at, 75).unwrap(), [vec![round; 25], vec![round + 100; 50]].concat());
    }
}

//= semantics.md#S3 type=test
fn a_size_is_right_while_pages_are_mapped(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 2 * PAGE]).unwrap();
    let fa = a.open("f", flags::BOTH).unwrap();
    let map = shared(a, fa, BOTH, 2 * PAGE);
    for round in 0..20_u64 {
        a.store(map, round, &[9]).unwrap();
        let fb = b.open("f", flags::APPEND).unwrap();
        b.write(fb, b"+").unwrap();
        b.close(fb).unwrap();
        assert_eq!(a.fstat(fa).unwrap().size, 8_193 + round);
        assert_eq!(b.stat("f").unwrap().size, 8_193 + round);
    }
}

//= semantics.md#S4 type=test
fn appends_of_another_are_seen_in_a_mapping(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::MAKE).unwrap();
    let fb = b.open("f", flags::APPEND).unwrap();
    b.write(fb, b"first").unwrap();
    let map = shared(a, fa, READ, 4 * PAGE);
    let mut expected = b"first".to_vec();
    for round in 0..60_u8 {
        let bytes = vec![round + 1; 150];
        b.write(fb, &bytes).unwrap();
        expected.extend(bytes);
        let last = u64::try_from(expected.len()).unwrap() - 150;
        look(a, fa);
        assert_eq!(a.load(map, last, 150).unwrap(), [round + 1; 150], "append {round}");
    }
    assert!(a.load(map, 0, expected.len()).unwrap() == expected);
}

//= semantics.md#S2 type=test
fn two_mappings_of_one_page_take_turns(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let (ma, mb) = (shared(a, fa, BOTH, PAGE), shared(b, fb, BOTH, PAGE));
    for round in 1..60_u64 {
        a.store(ma, 64, &round.to_le_bytes()).unwrap();
        assert_eq!(b.load(mb, 64, 8).unwrap(), round.to_le_bytes());
        b.store(mb, 128, &round.to_le_bytes()).unwrap();
        assert_eq!(a.load(ma, 128, 8).unwrap(), round.to_le_bytes());
    }
}

//= semantics.md#S2 type=test
fn stores_into_neighbouring_bytes_are_all_kept(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    let bytes = 16 * PAGE;
    a.put("f", &vec![0; bytes]).unwrap();
    std::thread::scope(|scope| {
        for (agent, first) in [(a, 0_u64), (b, 1)] {
            scope.spawn(move || {
                let fd = agent.open("f", flags::BOTH).unwrap();
                let map = shared(agent, fd, BOTH, bytes);
                for number in 0..400_u64 {
                    let at = (2 * number + first) * 80;
                    agent.store(map, at, &[u8::try_from(first + 1).unwrap(); 80]).unwrap();
                }
                agent.munmap(map).unwrap();
                agent.close(fd).unwrap();
            });
        }
    });
    let expected: Vec<u8> = (0..400).flat_map(|_| [[1; 80], [2; 80]].concat()).collect();
    assert!(a.get("f").unwrap()[..64_000] == expected && b.get("f").unwrap()[..64_000] == expected);
}

//= semantics.md#S2 type=test
fn a_mapping_for_reading_gives_way_to_one_for_writing(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![1; 64 * PAGE]).unwrap();
    let fa = a.open("f", flags::READ).unwrap();
    let ma = shared(a, fa, READ, 64 * PAGE);
    assert!(a.load(ma, 0, 64 * PAGE).unwrap().iter().all(|byte| *byte == 1));
    let fb = b.open("f", flags::BOTH).unwrap();
    let mb = shared(b, fb, BOTH, 64 * PAGE);
    for page in (0..64_u64).rev() {
        b.store(mb, page * 4096 + page, &[2]).unwrap();
        assert_eq!(a.load(ma, page * 4096 + page, 2).unwrap(), [2, 1]);
    }
    // The reader becomes a writer through another descriptor.
    let fa = a.open("f", flags::BOTH).unwrap();
    let second = shared(a, fa, BOTH, 64 * PAGE);
    a.store(second, 10_000, b"both").unwrap();
    assert_eq!(
        (a.load(ma, 10_000, 4).unwrap(), b.load(mb, 10_000, 4).unwrap()),
        (b"both".to_vec(), b"both".to_vec())
    );
}

//= semantics.md#S5 type=test
fn a_file_is_cut_while_its_mapped_pages_are_wanted(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; 2 * PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, BOTH, PAGE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..200_u64 {
                b.pwrite(fb, &round.to_le_bytes(), 100).unwrap();
                assert_eq!(b.pread(fb, 8, 100).unwrap(), round.to_le_bytes());
            }
        });
        for round in 0..200_u64 {
            a.store(map, 10, &round.to_le_bytes()).unwrap();
            a.ftruncate(fa, if round % 2 == 0 { 3 * 4096 } else { 2 * 4096 }).unwrap();
            let size = u64::try_from(a.get("f").unwrap().len()).unwrap();
            assert_eq!(size, if round % 2 == 0 { 3 * 4096 } else { 2 * 4096 });
        }
    });
    let bytes = b.get("f").unwrap();
    assert_eq!(
        (bytes.len(), &bytes[10..18], &bytes[100..108]),
        (2 * PAGE, &199_u64.to_le_bytes()[..], &199_u64.to_le_bytes()[..])
    );
}

//= semantics.md#S5 type=test
fn nothing_of_a_mapping_comes_back_after_the_file_was_emptied(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; PAGE]).unwrap();
    let fd = a.open("f", flags::BOTH).unwrap();
    let map = shared(a, fd, BOTH, PAGE);
    for _ in 0..100 {
        a.store(map, 5, b"old").unwrap();
        a.put("f", b"").unwrap();
        assert_eq!((a.get("f").unwrap(), b.get("f").unwrap()), (Vec::new(), Vec::new()));
        a.ftruncate(fd, 4096).unwrap();
        look(a, fd);
        assert_eq!(a.pread(fd, 8, 0).unwrap(), [0; 8]);
    }
}

//= semantics.md#S2 type=test
fn what_is_written_into_a_page_stays_beside_what_is_stored_into_it(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; 2 * PAGE]).unwrap();
    let others = [stage.another_a(), stage.another_a(), stage.another_b(), stage.another_b()];
    let (storing, writing) = ([a, &others[0], &others[1]], [b, &others[2], &others[3]]);
    // Each number has one writer, neighbours of it have others.
    std::thread::scope(|scope| {
        for (place, agent) in (0_u64..).step_by(16).zip(storing) {
            scope.spawn(move || {
                let fd = agent.open("f", flags::BOTH).unwrap();
                let map = shared(agent, fd, BOTH, 2 * PAGE);
                for round in 1..=150_u64 {
                    agent.store(map, place, &round.to_le_bytes()).unwrap();
                    assert_eq!(agent.load(map, place, 8).unwrap(), round.to_le_bytes());
                }
            });
        }
        for (place, agent) in (8_u64..).step_by(16).zip(writing) {
            scope.spawn(move || {
                let fd = agent.open("f", flags::BOTH).unwrap();
                for round in 1..=150_u64 {
                    agent.pwrite(fd, &round.to_le_bytes(), place).unwrap();
                    assert_eq!(agent.pread(fd, 8, place).unwrap(), round.to_le_bytes());
                }
            });
        }
    });
    assert_eq!(b.get("f").unwrap()[..48], 150_u64.to_le_bytes().repeat(6));
}

//= semantics.md#S2 type=test
fn what_is_stored_over_a_write_just_seen_stays(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, BOTH, PAGE);
    for round in 0..100_u64 {
        let written = 2 * round + 1;
        std::thread::scope(|scope| {
            let writer = scope.spawn(move || b.pwrite(fb, &written.to_le_bytes(), 64).unwrap());
            loop {
                let is_over = writer.is_finished();
                if a.load(map, 64, 8).unwrap() == written.to_le_bytes() {
                    break;
                }
                assert!(!is_over, "what was written is not seen");
            }
            a.store(map, 64, &(written + 1).to_le_bytes()).unwrap();
        });
        assert_eq!(b.pread(fb, 8, 64).unwrap(), (written + 1).to_le_bytes());
        assert_eq!(a.load(map, 64, 8).unwrap(), (written + 1).to_le_bytes());
    }
}

//= semantics.md#S2 type=test
fn a_hole_made_in_a_page_stays_while_the_page_is_stored_into(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &vec![0; 2 * PAGE]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, BOTH, 2 * PAGE);
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=100_u64 {
                b.pwrite(fb, &round.to_le_bytes(), 100).unwrap();
                b.fallocate(fb, hole, 96, 16).unwrap();
                assert_eq!(b.pread(fb, 16, 96).unwrap(), [0; 16]);
            }
        });
        for round in 1..=100_u64 {
            a.store(map, 10, &round.to_le_bytes()).unwrap();
            a.store(map, 112, &round.to_le_bytes()).unwrap();
        }
    });
    let bytes = b.get("f").unwrap();
    assert_eq!((&bytes[10..18], &bytes[112..120]), (&100_u64.to_le_bytes()[..], &100_u64.to_le_bytes()[..]));
    assert_eq!(bytes[96..112], [0; 16]);
}

//= semantics.md#S4 type=test
fn records_are_appended_to_a_page_that_is_stored_into(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &[0; 8]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::APPEND).unwrap());
    let map = shared(a, fa, BOTH, PAGE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=200_u64 {
                b.write(fb, &round.to_le_bytes()).unwrap();
            }
        });
        for round in 1..=200_u64 {
            a.store(map, 0, &round.to_le_bytes()).unwrap();
        }
    });
    let expected: Vec<u8> = std::iter::once(200).chain(1..=200_u64).flat_map(u64::to_le_bytes).collect();
    assert!(b.get("f").unwrap() == expected);
}

//= semantics.md#S2 type=test
fn private_pages_show_what_is_written(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &[0; PAGE]).unwrap();
    let fa = a.open("f", flags::READ).unwrap();
    let map = a.mmap(fa, READ, libc::MAP_PRIVATE, 0, PAGE).unwrap();
    let second = stage.another_a();
    let fb = b.open("f", flags::WRITE).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Somebody else reads the page in again all the time.
        scope.spawn(|| {
            let fd = second.open("f", flags::READ).unwrap();
            let map = second.mmap(fd, READ, libc::MAP_PRIVATE, 0, PAGE).unwrap();
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                second.load(map, 0, 8).unwrap();
            }
        });
        let rounds = scope.spawn(|| {
            for round in 1..=150_u64 {
                b.pwrite(fb, &round.to_le_bytes(), 0).unwrap();
                assert_eq!(a.load(map, 0, 8).unwrap(), round.to_le_bytes());
            }
        });
        let result = rounds.join();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        result.unwrap();
    });
}

//= semantics.md#S5 type=test
fn what_was_cut_does_not_come_back_through_a_mapping(stage: &Stage) {
    let (a, b) = (&stage.a, &stage.b);
    a.put("f", &[1; 100]).unwrap();
    let (fa, fb) = (a.open("f", flags::BOTH).unwrap(), b.open("f", flags::BOTH).unwrap());
    let map = shared(a, fa, BOTH, PAGE);
    assert_eq!(a.load(map, 50, 1).unwrap(), [1]);
    b.pwrite(fb, &[2; 100], 100).unwrap();
    // No look: a kernel that mounts ccPFS still believes that the file has 100 bytes, also after the cut.
    assert_eq!(a.load(map, 50, 1).unwrap(), [1]);
    a.ftruncate(fa, 100).unwrap();
    a.pwrite(fa, b"beyond", 5_000).unwrap();
    a.store(map, 10, &[3]).unwrap();
    let expected = [vec![1; 10], vec![3], vec![1; 89], vec![0; 4_900], b"beyond".to_vec()].concat();
    assert!(a.get("f").unwrap() == expected && b.get("f").unwrap() == expected);
    assert_eq!(a.load(map, 150, 1).unwrap(), [0]);
}
