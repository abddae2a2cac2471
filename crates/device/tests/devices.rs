//! What every device promises, checked on each of them, and against an array of bytes.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::num::NonZeroU64;
use std::sync::Arc;

use ccpfs_device::{
    CrashDevice, Device, FaultyDevice, FileDevice, FileDeviceOptions, LimitedDevice, MemoryDevice, ObjectName,
};
use ccpfs_types::Extent;
use proptest::prelude::*;

const OBJECT: ObjectName = ObjectName([0xfe; 20]);

fn on_every_device(test: impl Fn(&dyn Device)) {
    let directory = tempfile::tempdir().unwrap();
    test(&FileDevice::open(directory.path(), 0).unwrap());
    test(&MemoryDevice::new());
    test(&CrashDevice::new());
    test(&FaultyDevice::new(MemoryDevice::new()));
    let shared: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    test(&LimitedDevice::new(shared, NonZeroU64::MAX));
}

fn contents(device: &dyn Device, object: ObjectName) -> Vec<u8> {
    let mut bytes = vec![0xee; device.length(object).unwrap().unwrap_or(0) as usize + 10];
    let count = device.read(object, 0, &mut bytes).unwrap();
    bytes.truncate(count);
    bytes
}

#[test]
fn a_missing_object_reads_as_empty() {
    on_every_device(|device| {
        assert_eq!(device.read(OBJECT, 0, &mut [1; 4]), Ok(0));
        assert_eq!(device.length(OBJECT), Ok(None));
        assert_eq!(device.modified_ns(OBJECT), Ok(None));
        device.punch(OBJECT, Extent::WHOLE).unwrap();
        device.truncate(OBJECT, 0).unwrap();
        device.write(OBJECT, &[]).unwrap();
        device.write(OBJECT, &[(100, b"")]).unwrap();
        device.remove(OBJECT).unwrap();
        device.sync(OBJECT).unwrap();
        assert_eq!(device.length(OBJECT), Ok(None));
    });
}

#[test]
fn a_list_has_every_object_once_in_order_however_short_its_pages_are() {
    on_every_device(|device| {
        assert_eq!(device.list(None, 5), Ok(vec![]));
        let name = |first: u8, last: u8| {
            let mut name = [first; ObjectName::BYTES];
            name[19] = last;
            ObjectName(name)
        };
        let mut names: Vec<ObjectName> = [0, 1, 0x7f, 0xff].map(|a| [0, 9, 255].map(|b| name(a, b))).concat();
        for (number, object) in names.iter().rev().enumerate() {
            device.write(*object, &[(0, &vec![1; number + 1])]).unwrap();
        }
        for count_max in [1, 2, 5, 12, 100] {
            let (mut listed, mut after) = (Vec::new(), None);
            loop {
                let page = device.list(after, count_max).unwrap();
                assert!(page.len() <= count_max);
                listed.extend(page.iter().map(|found| (found.object, found.length_bytes)));
                if page.len() < count_max {
                    break;
                }
                after = page.last().map(|found| found.object);
            }
            let expected: Vec<_> = names.iter().copied().zip((1..=12).rev()).collect();
            assert_eq!(listed, expected, "in pages of {count_max}");
        }
        let gone = names.remove(4);
        device.remove(gone).unwrap();
        let listed = device.list(Some(names[3]), 1).unwrap();
        assert_eq!(listed[0].object, names[4]);
        assert!(listed[0].modified_ns > 0);
    });
}

#[test]
fn maps_never_call_data_a_hole_and_find_large_holes() {
    let extent = |start, end| Extent::new(start, end).unwrap();
    on_every_device(|device| {
        let whole = device.map(OBJECT, extent(5, 10), 1).unwrap();
        assert_eq!((whole.data, whole.known_to), (vec![], 10));
        let mib = 1 << 20;
        for i in 0..3 {
            device.write(OBJECT, &[(i * mib + 4096, &[1; 5000])]).unwrap();
        }
        let map = device.map(OBJECT, extent(0, 1 << 30), 10).unwrap();
        assert_eq!(map.known_to, 1 << 30);
        for i in 0..3 {
            let covers = |at| map.data.iter().any(|data| data.start() <= at && at < data.end());
            assert!(covers(i * mib + 4096) && covers(i * mib + 9095), "{map:?}");
            assert!(!covers(i * mib + mib / 2), "{map:?}");
        }
        assert!(map.data.windows(2).all(|pair| pair[0].end() < pair[1].start()));
        // Cut short, the rest is asked for again.
        let first = device.map(OBJECT, extent(0, 1 << 30), 2).unwrap();
        assert_eq!((&first.data[..], first.known_to), (&map.data[..2], map.data[2].start()));
        let part = device.map(OBJECT, extent(5000, 6000), 2).unwrap();
        assert_eq!((part.data, part.known_to), (vec![extent(5000, 6000)], 6000));
        device.punch(OBJECT, extent(0, 2 * mib)).unwrap();
        assert!(device.map(OBJECT, extent(0, 2 * mib), 2).unwrap().data.is_empty());
        assert_eq!(device.map(OBJECT, extent(3 * mib, 4 * mib), 2).unwrap().data, []);
    });
}

#[test]
fn pieces_land_where_they_belong_and_gaps_read_as_zeros() {
    on_every_device(|device| {
        device.write(OBJECT, &[(2, b"ab"), (4, b"cd"), (10, b"xyz"), (0, b"!")]).unwrap();
        assert_eq!(contents(device, OBJECT), b"!\0abcd\0\0\0\0xyz");
        let mut bytes = [0; 4];
        assert_eq!(device.read(OBJECT, 11, &mut bytes), Ok(2));
        assert_eq!(device.read(OBJECT, 13, &mut bytes), Ok(0));
        assert_eq!(device.read(OBJECT, u64::MAX, &mut bytes), Ok(0));
        assert!(device.modified_ns(OBJECT).unwrap().unwrap() > 0);
        device.sync(OBJECT).unwrap();
        device.sync_all().unwrap();
    });
}

#[test]
fn thousands_of_small_pieces_are_one_call() {
    on_every_device(|device| {
        let bytes: Vec<u8> = (0..30_000u32).map(|value| value as u8).collect();
        let pieces: Vec<(u64, &[u8])> =
            bytes.chunks(10).enumerate().map(|(index, piece)| (index as u64 * 10, piece)).collect();
        device.write(OBJECT, &pieces).unwrap();
        assert!(contents(device, OBJECT) == bytes);
    });
}

#[test]
fn truncating_and_growing_never_brings_old_bytes_back() {
    on_every_device(|device| {
        device.write(OBJECT, &[(0, &[5; 10_000])]).unwrap();
        device.truncate(OBJECT, 100).unwrap();
        device.truncate(OBJECT, 10_000).unwrap();
        let bytes = contents(device, OBJECT);
        assert!(
            bytes.len() == 10_000 && bytes[..100] == [5; 100] && bytes[100..].iter().all(|byte| *byte == 0)
        );
        device.truncate(OBJECT, 0).unwrap();
        assert_eq!(device.length(OBJECT), Ok(Some(0)));
    });
}

#[test]
fn punching_keeps_the_length_even_to_the_end_of_file() {
    on_every_device(|device| {
        device.write(OBJECT, &[(0, &[7; 20_000])]).unwrap();
        device.punch(OBJECT, Extent::new(10, 9_000).unwrap()).unwrap();
        device.punch(OBJECT, Extent::to_eof(15_000)).unwrap();
        device.punch(OBJECT, Extent::to_eof(30_000)).unwrap();
        let bytes = contents(device, OBJECT);
        assert_eq!(bytes.len(), 20_000);
        for (at, byte) in bytes.iter().enumerate() {
            let hole = (10..9_000).contains(&at) || at >= 15_000;
            assert_eq!(*byte, if hole { 0 } else { 7 }, "byte {at}");
        }
    });
}

#[test]
fn a_removed_object_starts_empty_again() {
    on_every_device(|device| {
        device.write(OBJECT, &[(0, b"old contents")]).unwrap();
        device.remove(OBJECT).unwrap();
        assert_eq!(device.length(OBJECT), Ok(None));
        device.write(OBJECT, &[(4, b"x")]).unwrap();
        assert_eq!(contents(device, OBJECT), b"\0\0\0\0x");
    });
}

#[test]
fn positions_beyond_all_files_are_errors() {
    on_every_device(|device| {
        for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
            assert_eq!(device.write(OBJECT, &[(offset, b"abc")]).unwrap_err().errno, libc::EFBIG);
            assert_eq!(device.truncate(OBJECT, offset).unwrap_err().errno, libc::EFBIG);
        }
    });
}

#[test]
fn more_objects_than_open_files_work_from_many_threads() {
    let directory = tempfile::tempdir().unwrap();
    let options = FileDeviceOptions { open_files_max: 3 };
    let device = FileDevice::open_with(directory.path(), 0, options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..200u64 {
                    let object = ObjectName([(round % 10) as u8; 20]);
                    device.write(object, &[(u64::from(thread) * 200 + round, &[thread + 1])]).unwrap();
                    device.sync(object).unwrap();
                }
            });
        }
    });
    let mut found = 0;
    for object in 0..10 {
        found += contents(&device, ObjectName([object; 20])).iter().filter(|byte| **byte > 0).count();
    }
    assert_eq!(found, 800);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Punch(u64, u64),
    Truncate(u64),
    Remove,
    Sync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..9000u64, proptest::collection::vec(any::<u8>(), 1..3000)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        2 => (0..9000u64, 1..6000u64).prop_map(|(start, length)| Step::Punch(start, start + length)),
        2 => (0..12_000u64).prop_map(Step::Truncate),
        1 => Just(Step::Remove),
        1 => Just(Step::Sync),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn files_and_memory_do_what_an_array_of_bytes_does(steps in proptest::collection::vec(step(), 1..20)) {
        let directory = tempfile::tempdir().unwrap();
        let file = FileDevice::open(directory.path(), 0).unwrap();
        let memory = MemoryDevice::new();
        let mut twin: Vec<u8> = Vec::new();
        for step in steps {
            for device in [&file as &dyn Device, &memory] {
                match &step {
                    Step::Write(offset, bytes) => device.write(OBJECT, &[(*offset, bytes)]).unwrap(),
                    Step::Punch(start, end) => device.punch(OBJECT, Extent::new(*start, *end).unwrap()).unwrap(),
                    Step::Truncate(length) => device.truncate(OBJECT, *length).unwrap(),
                    Step::Remove => device.remove(OBJECT).unwrap(),
                    Step::Sync => device.sync(OBJECT).unwrap(),
                }
            }
            match step {
                Step::Write(offset, bytes) => {
                    let (start, end) = (offset as usize, offset as usize + bytes.len());
                    twin.resize(twin.len().max(end), 0);
                    twin[start..end].copy_from_slice(&bytes);
                }
                Step::Punch(start, end) => {
                    let length = twin.len();
                    twin[(start as usize).min(length)..(end as usize).min(length)].fill(0);
                }
                Step::Truncate(length) => twin.resize(length as usize, 0),
                Step::Remove => twin.clear(),
                Step::Sync => {}
            }
            prop_assert!(contents(&file, OBJECT) == twin);
            prop_assert!(contents(&memory, OBJECT) == twin);
        }
    }
}

/// Bytes of a long object that lie in one of its files before those of the next begin.
const CHUNK: u64 = 4 << 20;

/// Places near the borders of chunks, in three rounds through all files.
fn place() -> impl Strategy<Value = u64> {
    (1..10_u64, 0..6000_u64).prop_map(|(chunk, near)| chunk * CHUNK - 3000 + near)
}

fn long_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (place(), proptest::collection::vec(any::<u8>(), 1..3000)).prop_map(|(at, bytes)| Step::Write(at, bytes)),
        2 => (place(), place()).prop_map(|(one, other)| Step::Punch(one.min(other), one.max(other) + 1)),
        2 => place().prop_map(Step::Truncate),
        1 => (1..5000_u64).prop_map(Step::Truncate),
        1 => Just(Step::Remove),
        1 => Just(Step::Sync),
    ]
}

/// Checks that a file device has of an object what memory has, near all borders.
fn compare(file: &FileDevice, memory: &MemoryDevice) {
    let length = memory.length(OBJECT).unwrap();
    assert_eq!(file.length(OBJECT).unwrap(), length);
    let listed = file.list(None, 9).unwrap();
    assert_eq!(
        listed.first().map(|found| (listed.len(), found.length_bytes)),
        length.map(|length| (1, length))
    );
    let whole = Extent::new(0, 64 * CHUNK).unwrap();
    let map = file.map(OBJECT, whole, 1000).unwrap();
    assert!(map.known_to == whole.end() && map.data.windows(2).all(|pair| pair[0].end() < pair[1].start()));
    for chunk in 0..10 {
        let start = (chunk * CHUNK).saturating_sub(7000);
        let [mut found, mut expected] = [vec![0xee; 14_000], vec![0xee; 14_000]];
        let count = memory.read(OBJECT, start, &mut expected).unwrap();
        assert_eq!(file.read(OBJECT, start, &mut found).unwrap(), count);
        assert!(found[..count] == expected[..count], "chunk {chunk}");
        for at in (0..count).filter(|at| expected[*at] > 0) {
            let at = start + at as u64;
            assert!(map.data.iter().any(|data| (data.start()..data.end()).contains(&at)), "a hole at {at}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_long_object_in_several_files_is_one_object(steps in proptest::collection::vec(long_step(), 1..12), reopen in 1..6_usize) {
        let directory = tempfile::tempdir().unwrap();
        let open = || FileDevice::open(directory.path(), 0).unwrap();
        let mut file = Some(open());
        let memory = MemoryDevice::new();
        for (number, step) in steps.iter().enumerate() {
            if number % reopen == 0 {
                drop(file.take());
            }
            let file = &*file.get_or_insert_with(open);
            for device in [file as &dyn Device, &memory] {
                match step {
                    Step::Write(offset, bytes) => {
                        let (one, other) = bytes.split_at(bytes.len() / 2);
                        device.write(OBJECT, &[(offset + one.len() as u64, other), (*offset, one)]).unwrap();
                    }
                    Step::Punch(start, end) => device.punch(OBJECT, Extent::new(*start, *end).unwrap()).unwrap(),
                    Step::Truncate(length) => device.truncate(OBJECT, *length).unwrap(),
                    Step::Remove => device.remove(OBJECT).unwrap(),
                    Step::Sync => device.sync(OBJECT).unwrap(),
                }
            }
            compare(file, &memory);
        }
        let file = file.unwrap_or_else(open);
        prop_assert_eq!(file.read(OBJECT, u64::MAX, &mut [0; 9]).unwrap(), 0);
        file.remove(OBJECT).unwrap();
        let left = std::fs::read_dir(directory.path().join("objects/fe")).unwrap().count();
        prop_assert_eq!(left, 0, "nothing stays behind");
    }
}

#[test]
fn threads_that_write_to_one_long_object_do_not_disturb_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::open(directory.path(), 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let device = &device;
            scope.spawn(move || {
                let bytes = vec![thread as u8 + 1; 60_000];
                // Each over several borders, interleaved with the others.
                for round in 0..100 {
                    let at = (round * 4 + thread) * 60_000;
                    device.write(OBJECT, &[(at, &bytes)]).unwrap();
                }
            });
        }
    });
    let all = contents(&device, OBJECT);
    assert_eq!(all.len(), 400 * 60_000);
    assert!(
        all.chunks(60_000)
            .enumerate()
            .all(|(at, part)| part.iter().all(|byte| usize::from(*byte) == at % 4 + 1))
    );
}

/// Calls that began while the object was one file must not meet what its first file holds when it has others.
#[test]
fn regression_an_object_gets_more_files_while_it_is_read_and_punched() {
    const FAR: u64 = 4 * CHUNK;
    let directory = tempfile::tempdir().unwrap();
    let device = FileDevice::open(directory.path(), 0).unwrap();
    let far = vec![0xaa; 256 << 10];
    for round in 0..40 {
        let object = ObjectName([round; 20]);
        device.write(object, &[(0, &vec![0x11; CHUNK as usize])]).unwrap();
        let gate = std::sync::Barrier::new(3);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.wait();
                device.write(object, &[(FAR, &far)]).unwrap();
            });
            scope.spawn(|| {
                gate.wait();
                device.punch(object, Extent::new(CHUNK, 2 * CHUNK).unwrap()).unwrap();
            });
            gate.wait();
            let mut found = vec![0; 4 << 20];
            for _ in 0..4 {
                let count = device.read(object, CHUNK - (2 << 20), &mut found).unwrap();
                assert!(!found[..count].contains(&0xaa), "round {round}: bytes of another place");
            }
        });
        let mut found = vec![0; far.len()];
        assert_eq!(device.read(object, FAR, &mut found).unwrap(), far.len());
        assert!(found == far, "round {round}: what was written is gone");
        device.remove(object).unwrap();
    }
    let left = directory.path().join("objects");
    let files = std::fs::read_dir(left)
        .unwrap()
        .map(|bucket| std::fs::read_dir(bucket.unwrap().path()).unwrap().count());
    assert_eq!(files.sum::<usize>(), 0, "a removal leaves no file");
}
