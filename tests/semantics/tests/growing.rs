//! Files that several grow at once: sizes, appends without `O_APPEND`, and what else the kernel does with the size that it believes,
//! which a mount keeps ahead of the real one meanwhile.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_semantics::{Agent, Random, Stage, flags, scenarios};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

scenarios! { both map:
    appends_without_an_appending_handle_lose_nothing,
    a_size_is_right_while_several_grow_a_file,
    a_program_goes_on_where_it_has_appended,
    locks_counted_from_the_end_are_at_the_end,
    a_range_is_copied_up_to_the_end,
    pages_of_a_file_that_several_grew_end_where_it_ends,
    whoever_appends_after_all_comes_to_the_end,
    times_are_set_and_sizes_stay_right_while_several_grow_a_file,
}

/// Where no file of these tests ends.
const FAR: i64 = 1 << 50;

/// A file `f` that two agents of the first door have made longer in turns: 200 bytes `x`.
struct Grown<'a> {
    first: &'a Agent,
    second: Agent,
    other: &'a Agent,
    /// Each one's descriptor.
    fds: (i64, i64, i64),
}

/// After this the kernel of a mount believes a size ahead of the real one, until somebody asks it for the size or opens the file.
fn grow(stage: &Stage) -> Grown<'_> {
    let (first, second, other) = (&stage.a, stage.another_a(), &stage.b);
    let fd = first.open("f", flags::NEW).unwrap();
    let fds = (fd, second.open("f", flags::BOTH).unwrap(), other.open("f", flags::BOTH).unwrap());
    first.pwrite(fds.0, &[b'x'; 100], 0).unwrap();
    second.pwrite(fds.1, &[b'x'; 100], 100).unwrap();
    Grown { first, second, other, fds }
}

/// `pwritev2` with `RWF_APPEND`; at -1 it moves the descriptor's offset.
fn append(agent: &Agent, fd: i64, offset: i64, bytes: &[u8]) {
    let written = agent.call(&format!("pwritev2 {fd} {offset} {}", libc::RWF_APPEND), bytes).unwrap();
    assert_eq!(written.value, i64::try_from(bytes.len()).unwrap());
}

/// A record that tells who wrote it, and is as long as it says.
fn record(who: u8, number: u64) -> Vec<u8> {
    let mut random = Random::new(u64::from(who) << 32 | number);
    let length = usize::try_from(random.below(6_000)).unwrap();
    let mut record = format!("<{}:{number}:", char::from(who)).into_bytes();
    record.resize(record.len() + length, who);
    record.push(b'>');
    record
}

/// The numbers of each one's records, in order; every record must be whole.
fn numbers(contents: &[u8], who: u8) -> Vec<u64> {
    let mut found = Vec::new();
    for part in contents.split_inclusive(|byte| *byte == b'>') {
        let words: Vec<&[u8]> = part.splitn(3, |byte| *byte == b':').collect();
        assert!(words.len() == 3 && part[0] == b'<', "a record begins: {:?}", &part[..part.len().min(40)]);
        let number: u64 = String::from_utf8_lossy(words[1]).parse().unwrap();
        assert_eq!(part, record(part[1], number), "a record is whole");
        if part[1] == who {
            found.push(number);
        }
    }
    found
}

//= semantics.md#S4 type=test
//= semantics.md#S25 type=test
fn appends_without_an_appending_handle_lose_nothing(stage: &Stage) {
    const RECORDS: u64 = 60;
    let (first, other, reader) = (&stage.a, &stage.b, stage.another_b());
    let [second, third, writer] = [(); 3].map(|()| stage.another_a());
    // All are open before the first write, so that from then on nobody looks.
    let fd = first.open("f", flags::NEW).unwrap();
    let [fd2, fd3, fdw] = [&second, &third, &writer].map(|agent| agent.open("f", flags::BOTH).unwrap());
    // On the same mount a handle that appends would keep the kernel from believing anything.
    let appends = if stage.is_on_one_mount() { 0 } else { libc::O_APPEND };
    let fdo = other.open("f", flags::WRITE | appends).unwrap();
    writer.pwrite(fdw, &[b'x'; 200], 0).unwrap();
    first.pwrite(fd, &[b'x'; 200], 200).unwrap();
    thread::scope(|scope| {
        for (who, agent, fd) in [(b'a', first, fd), (b'b', &second, fd2), (b'c', &third, fd3)] {
            scope.spawn(move || {
                for number in 0..RECORDS {
                    append(agent, fd, if number % 2 == 0 { -1 } else { 7 }, &record(who, number));
                }
            });
        }
        scope.spawn(|| {
            for number in 0..RECORDS {
                let bytes = record(b'o', number);
                if appends == 0 {
                    append(other, fdo, 0, &bytes);
                } else {
                    other.write(fdo, &bytes).unwrap();
                }
            }
        });
        scope.spawn(|| {
            for number in 0..RECORDS {
                writer.pwrite(fdw, b"y", number).unwrap();
            }
        });
    });
    let contents = reader.get("f").unwrap();
    assert!(contents == first.get("f").unwrap());
    let (start, records) = contents.split_at(400);
    assert!(start[..60].iter().all(|byte| *byte == b'y') && start[60..].iter().all(|byte| *byte == b'x'));
    for who in [b'a', b'b', b'c', b'o'] {
        assert_eq!(numbers(records, who), (0..RECORDS).collect::<Vec<_>>(), "{}", char::from(who));
    }
}

//= semantics.md#S3 type=test
fn a_size_is_right_while_several_grow_a_file(stage: &Stage) {
    const PIECE: u64 = 3_000;
    const ROUNDS: u64 = 150;
    let crew = [&stage.another_a(), &stage.another_a(), &stage.another_a(), &stage.another_b()];
    let (a, b) = (&stage.a, &stage.b);
    let fa = a.open("f", flags::NEW).unwrap();
    let fb = b.open("f", flags::BOTH).unwrap();
    let fds = crew.map(|agent| agent.open("f", flags::BOTH).unwrap());
    let done = AtomicBool::new(false);
    let longest = i64::try_from(4 * ROUNDS * PIECE).unwrap();
    thread::scope(|scope| {
        let writers: Vec<_> = (0_u64..)
            .zip(crew.into_iter().zip(fds))
            .map(|(number, (agent, fd))| {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let at = (round * 4 + number) * PIECE;
                        agent.pwrite(fd, &vec![b'w'; usize::try_from(PIECE).unwrap()], at).unwrap();
                    }
                })
            })
            .collect();
        for (looker, fd) in [(a, fa), (b, fb)] {
            let done = &done;
            scope.spawn(move || {
                let mut last = 0;
                let mut round = 0_u32;
                while !done.load(Ordering::Relaxed) {
                    round += 1;
                    let size = match round % 3 {
                        0 => i64::try_from(looker.fstat(fd).unwrap().size).unwrap(),
                        1 => looker.lseek(fd, 0, libc::SEEK_END).unwrap(),
                        _ => i64::try_from(looker.stat("f").unwrap().size).unwrap(),
                    };
                    assert!((last..=longest).contains(&size), "{size} after {last}, look {round}");
                    if size > 0 {
                        assert_eq!(looker.pread(fd, 1, u64::try_from(size).unwrap() - 1).unwrap().len(), 1);
                    }
                    last = size;
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    for agent in [a, b] {
        let contents = agent.get("f").unwrap();
        assert_eq!(i64::try_from(contents.len()).unwrap(), longest);
        assert!(contents.iter().all(|byte| *byte == b'w'));
    }
}

//= semantics.md#S25 type=test
fn a_program_goes_on_where_it_has_appended(stage: &Stage) {
    let Grown { first, second, other, fds } = grow(stage);
    second.pwrite(fds.1, b"xx", 200).unwrap();
    first.pwrite(fds.0, b"xx", 202).unwrap();
    append(first, fds.0, -1, b"one");
    let offset = first.lseek(fds.0, 0, libc::SEEK_CUR).unwrap();
    // On a mount it is counted from the size that the kernel believes: a sign that this test is about what it says.
    assert!(offset == 207 || (stage.first_mounts() && offset > FAR), "{offset}");
    first.write(fds.0, b"two").unwrap();
    append(&second, fds.1, -1, b"three");
    first.write(fds.0, b"3").unwrap();
    assert_eq!(first.lseek(fds.0, -8, libc::SEEK_CUR).unwrap(), offset - 4);
    assert_eq!(first.read(fds.0, 9).unwrap(), b"xonetwo3h");
    assert_eq!(second.lseek(fds.1, -1, libc::SEEK_CUR).unwrap(), offset + 7);
    assert_eq!(second.read(fds.1, 9).unwrap(), b"e");
    assert_eq!(other.pread(fds.2, 99, 204).unwrap(), b"onetwo3hree");
    // Cut it here, as programs do.
    let here = first.lseek(fds.0, -2, libc::SEEK_CUR).unwrap();
    first.ftruncate(fds.0, u64::try_from(here).unwrap()).unwrap();
    assert_eq!(other.pread(fds.2, 99, 204).unwrap(), b"onetwo");
    assert_eq!(second.fstat(fds.1).unwrap().size, 210);
}

//= semantics.md#S20 type=test
fn locks_counted_from_the_end_are_at_the_end(stage: &Stage) {
    let Grown { first, second, other, fds } = grow(stage);
    let fb = fds.2;
    second.pwrite(fds.1, b"xx", 200).unwrap();
    first.pwrite(fds.0, b"xx", 202).unwrap();
    first.call(&format!("end_setlk {} {} -10 5", fds.0, libc::F_WRLCK), &[]).unwrap();
    let found = other.call(&format!("getlk {fb} {} 0 0", libc::F_WRLCK), &[]).unwrap();
    assert_eq!(String::from_utf8_lossy(&found.bytes), format!("{} 194 5", libc::F_WRLCK));
    first.call(&format!("end_setlk {} {} -10 5", fds.0, libc::F_UNLCK), &[]).unwrap();
    first.call(&format!("end_setlk {} {} 0 0", fds.0, libc::F_WRLCK), &[]).unwrap();
    let found = other.call(&format!("getlk {fb} {} 0 0", libc::F_WRLCK), &[]).unwrap();
    assert_eq!(String::from_utf8_lossy(&found.bytes), format!("{} 204 0", libc::F_WRLCK));
}

//= semantics.md#S25 type=test
fn a_range_is_copied_up_to_the_end(stage: &Stage) {
    let Grown { first, second, other, fds } = grow(stage);
    let to = first.open("to", flags::NEW).unwrap();
    let to2 = first.open("to2", flags::NEW).unwrap();
    second.pwrite(fds.1, &[b'z'; 9_000], 200).unwrap();
    first.pwrite(fds.0, &[b'z'; 9_000], 9_200).unwrap();
    // `FIONREAD` goes by the size that the kernel believed when it was raised.
    let ready = first.call(&format!("fionread {}", fds.0), &[]).unwrap().value;
    assert!((200..=18_201).contains(&ready), "{ready}");
    let copied = first.copy_file_range((fds.0, 100), (to, 0), 1 << 30).unwrap();
    assert_eq!(copied, 18_100);
    second.pwrite(fds.1, b"last", 18_200).unwrap();
    let sent = first.call(&format!("sendfile {to2} {} 200 {}", fds.0, 1 << 20), &[]).unwrap().value;
    assert_eq!(sent, 18_004);
    let copy = other.get("to").unwrap();
    assert!(copy.len() == 18_100 && copy[..100].iter().all(|byte| *byte == b'x'));
    let copy = other.get("to2").unwrap();
    assert!(
        copy.len() == 18_004 && copy.ends_with(b"zlast") && copy[..18_000].iter().all(|byte| *byte == b'z')
    );
}

//= semantics.md#S25 type=test
fn pages_of_a_file_that_several_grew_end_where_it_ends(stage: &Stage) {
    const PAGE: u64 = 4096;
    let Grown { first, second, other, fds } = grow(stage);
    second.pwrite(fds.1, &[b'm'; 5_000], 200).unwrap();
    first.pwrite(fds.0, &[b'm'; 5_000], 5_200).unwrap();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    let map = first.mmap(fds.0, both, libc::MAP_SHARED, 0, 10 * 4096).unwrap();
    assert_eq!(first.load(map, 3 * PAGE, 1).unwrap_err().0, libc::EFAULT, "that page is beyond the end");
    assert_eq!(first.load(map, 10_199, 3).unwrap(), b"m\0\0");
    first.store(map, 10_198, b"end").unwrap();
    first.msync(map, 10 * 4096).unwrap();
    assert_eq!(
        second.fstat(fds.1).unwrap().size,
        10_200,
        "what lies behind the end in its page is not the file's"
    );
    assert_eq!(other.get("f").unwrap()[10_190..], *b"mmmmmmmmen");
    second.pwrite(fds.1, b"grown", 3 * PAGE).unwrap();
    first.pwrite(fds.0, b"more", 3 * PAGE + 5).unwrap();
    assert_eq!(first.load(map, 3 * PAGE, 9).unwrap(), b"grownmore");
    // Some local file systems keep what was stored behind the end.
    let kept = if stage.is_local() { 2 } else { 3 };
    assert_eq!(first.load(map, 10_198, kept).unwrap(), b"en\0"[..kept]);
    assert_eq!(other.stat("f").unwrap().size, 3 * PAGE + 9);
}

//= semantics.md#S4 type=test
fn whoever_appends_after_all_comes_to_the_end(stage: &Stage) {
    let Grown { first, second, other, fds } = grow(stage);
    second.pwrite(fds.1, b"xx", 200).unwrap();
    first.pwrite(fds.0, b"xx", 202).unwrap();
    first.call(&format!("setfl {} {}", fds.0, libc::O_APPEND), &[]).unwrap();
    first.write(fds.0, b"late").unwrap();
    other.pwrite(fds.2, b"other", 208).unwrap();
    first.write(fds.0, b"r").unwrap();
    let late = second.open("f", flags::WRITE | libc::O_APPEND).unwrap();
    second.write(late, b"!").unwrap();
    assert_eq!(other.get("f").unwrap()[200..], *b"xxxxlateotherr!");
    assert_eq!(first.fstat(fds.0).unwrap().size, 215);
}

//= semantics.md#S3 type=test
fn times_are_set_and_sizes_stay_right_while_several_grow_a_file(stage: &Stage) {
    let Grown { first, second, other, fds } = grow(stage);
    for round in 0..40_u64 {
        let at = 200 + round * 20;
        second.pwrite(fds.1, &[b'x'; 10], at).unwrap();
        first.pwrite(fds.0, &[b'x'; 10], at + 10).unwrap();
        match round % 4 {
            0 => first.name_mode("chmod", "f", 0o600 + u32::try_from(round).unwrap()).unwrap(),
            1 => first.fallocate(fds.0, libc::FALLOC_FL_KEEP_SIZE, 0, 4096).unwrap(),
            2 => second.ftruncate(fds.1, at + 20).unwrap(),
            _ => drop(other.get("f").unwrap()),
        }
        append(first, fds.0, 0, b"x");
        assert_eq!(other.stat("f").unwrap().size, at + 21);
        second.ftruncate(fds.1, at + 20).unwrap();
    }
    assert!(other.get("f").unwrap().iter().all(|byte| *byte == b'x'));
}
