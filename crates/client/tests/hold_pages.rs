//! Holds: pages outside the cache are as coherent as bytes in it, and giving them up needs no lock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod small_cluster;

use ccpfs_client::{File, Hold, HoldId, HoldMode};
use ccpfs_types::Extent;
use small_cluster::{Cluster, extent, read};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

const EIO: i32 = 5;

/// A hold, and where it tells that it is wanted.
fn hold(file: &File, range: Extent, mode: HoldMode) -> (Hold, Receiver<HoldId>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let hold = file.hold(range, mode, Arc::new(move |id| tell.lock().unwrap().send(id).unwrap())).unwrap();
    (hold, told)
}

fn page(hold: &Hold, offset: u64, length: usize) -> Vec<u8> {
    let mut buffer = vec![0xee; length];
    let got = hold.read_at(&mut buffer, offset).unwrap();
    buffer.truncate(got);
    buffer
}

#[test]
fn a_writer_elsewhere_waits_until_the_pages_are_gone_and_finds_what_was_in_them() {
    for stripes in [1, 3] {
        let cluster = Cluster::start(2);
        let (one, two) = (cluster.client(), cluster.client());
        let (mine, theirs) = (cluster.open(&one, "f", stripes), cluster.open(&two, "f", stripes));
        theirs.write_at(&[1; 300_000], 0).unwrap();
        let (hold, told) = hold(&mine, extent(0, 1 << 20), HoldMode::Write);
        assert_eq!(page(&hold, 4096, 4096), [1; 4096]);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| read(&theirs, 0, 300_000));
            assert_eq!(told.recv().unwrap(), hold.id());
            assert!(hold.is_wanted() && !hold.is_lost() && !reader.is_finished());
            // The pages come back while the other one waits, and are read once more on the way.
            assert_eq!(hold.write_at(&[2; 100_000], 100_000).unwrap(), 100_000);
            assert_eq!(page(&hold, 199_999, 2), [2, 1]);
            assert!(!reader.is_finished());
            hold.release();
            let seen = reader.join().unwrap();
            assert_eq!((&seen[..100_000], &seen[100_000..200_000]), (&[1; 100_000][..], &[2; 100_000][..]));
            assert_eq!(seen[200_000..], [1; 100_000]);
        });
        assert!(told.try_recv().is_err(), "told once");
    }
}

#[test]
fn readers_hold_the_same_pages_and_a_writer_is_waited_for_by_all() {
    let cluster = Cluster::start(1);
    let clients: Vec<_> = (0..3).map(|_| cluster.client()).collect();
    let files: Vec<_> = clients.iter().map(|client| cluster.open(client, "f", 1)).collect();
    files[0].write_at(&[1; 10_000], 0).unwrap();
    let one = hold(&files[1], extent(0, 1 << 20), HoldMode::Read);
    let two = hold(&files[2], extent(0, 1 << 20), HoldMode::Read);
    assert_eq!((page(&one.0, 0, 10), page(&two.0, 9995, 10)), (vec![1; 10], vec![1; 5]));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| files[0].write_at(&[2; 10], 5).unwrap());
        for (hold, told) in [one, two] {
            told.recv().unwrap();
            assert!(!writer.is_finished());
            assert_eq!(page(&hold, 5, 10), [1; 10]);
            hold.release();
        }
        writer.join().unwrap();
    });
    let (again, _told) = hold(&files[1], extent(0, 4096), HoldMode::Read);
    assert_eq!(page(&again, 4, 3), [1, 2, 2]);
}

#[test]
fn operations_of_the_same_client_go_on_beside_a_hold() {
    let cluster = Cluster::start(2);
    let client = cluster.client();
    for stripes in [1, 3] {
        let file = cluster.open(&client, &format!("f{stripes}"), stripes);
        let (reads, reads_told) = hold(&file, extent(0, 1 << 20), HoldMode::Read);
        // Makes a write lock of the read lock under the hold.
        file.write_at(&[1; 200_000], 0).unwrap();
        assert_eq!(page(&reads, 100_000, 2), [1, 1]);
        let (writes, writes_told) = hold(&file, extent(1 << 20, 2 << 20), HoldMode::Write);
        file.append(&[std::io::IoSlice::new(b"end")]).unwrap();
        assert_eq!(file.size().unwrap(), 200_003);
        writes.write_at(b"mapped", 1 << 20).unwrap();
        file.write_at(b"called", (1 << 20) + 3).unwrap();
        writes.write_at(b"M", (1 << 20) + 4).unwrap();
        assert_eq!(read(&file, 1 << 20, 10), b"mapcMlled");
        file.truncate((1 << 20) + 2).unwrap();
        assert_eq!(page(&writes, 1 << 20, 10), b"ma");
        file.sync().unwrap();
        assert!(reads_told.try_recv().is_err() && writes_told.try_recv().is_err());
        assert!(!reads.is_wanted() && !writes.is_wanted());
        reads.release();
        writes.release();
        // A client that never had it reads the same.
        let other = cluster.client();
        assert_eq!(read(&cluster.open(&other, &format!("f{stripes}"), stripes), 1 << 20, 10), b"ma");
    }
}

//= protocol.md#I3 type=test
#[test]
fn regression_what_a_hold_writes_last_is_what_the_server_keeps_when_its_lock_was_replaced_meanwhile() {
    let cluster = Cluster::start(1);
    let (client, other) = (cluster.client(), cluster.client());
    let file = cluster.open(&client, "f", 1);
    let elsewhere = cluster.open(&other, "f", 1);
    elsewhere.write_at(&[9; 10], 8192).unwrap();
    let (writes, told) = hold(&file, extent(0, 4096), HoldMode::Write);
    writes.write_at(&[1; 100], 0).unwrap();
    // Needs more than the hold's lock: that one is replaced, by one with a higher number.
    file.write_at(&[2; 9000], 0).unwrap();
    writes.write_at(&[3; 100], 50).unwrap();
    assert!(told.try_recv().is_err() && client.statistics().upgrades == 1);
    file.flush().unwrap();
    writes.release();
    let seen = read(&elsewhere, 0, 200);
    assert_eq!((&seen[..50], &seen[50..150], &seen[150..]), (&[2; 50][..], &[3; 100][..], &[2; 50][..]));
}

#[test]
fn a_hold_refuses_what_it_does_not_cover_or_was_not_taken_for() {
    let cluster = Cluster::start(1);
    let client = cluster.client();
    let file = cluster.open(&client, "f", 1);
    let nobody: Arc<dyn Fn(HoldId) + Send + Sync> = Arc::new(|_| {});
    let (reads, _told) = hold(&file, extent(4096, 8192), HoldMode::Read);
    assert_eq!(reads.write_at(b"x", 4096).unwrap_err().to_errno(), 9);
    assert_eq!(reads.read_at(&mut [0; 2], 4095).unwrap_err().to_errno(), 22);
    assert_eq!(reads.read_at(&mut [0; 2], 8191).unwrap_err().to_errno(), 22);
    assert_eq!(reads.read_at(&mut [], 9000).unwrap(), 0);
    assert_eq!((reads.extent(), reads.mode()), (extent(4096, 8192), HoldMode::Read));
    let options = ccpfs_client::OpenOptions { read: true, ..Default::default() };
    let readable = client.open(&cluster.path("f"), &options).unwrap();
    let refused = readable.hold(extent(0, 1), HoldMode::Write, Arc::clone(&nobody));
    assert_eq!(refused.err().unwrap().to_errno(), 9);
    let refused = file.hold(Extent::WHOLE, HoldMode::Read, nobody);
    assert_eq!(refused.err().unwrap().to_errno(), 27);
}

#[test]
fn a_hold_hears_that_its_server_is_gone_and_reads_and_writes_nothing_more() {
    let mut cluster = Cluster::start(2);
    let client = cluster.client();
    let file = cluster.open(&client, "f", 2);
    let (writes, told) = hold(&file, extent(0, 1 << 20), HoldMode::Write);
    writes.write_at(b"x", 0).unwrap();
    cluster.stop_servers();
    assert_eq!(told.recv().unwrap(), writes.id());
    // Both stripes know by the time that an operation has met the end of both.
    let size = file.size();
    assert!(size.is_err());
    assert!(writes.is_lost());
    assert_eq!(writes.write_at(&[1; 200_000], 0).unwrap_err().to_errno(), EIO);
    assert_eq!(writes.read_at(&mut [0; 200_000], 0).unwrap_err().to_errno(), EIO);
    writes.release();
}

#[test]
fn a_shutdown_of_the_client_tells_its_holds() {
    let cluster = Cluster::start(1);
    let client = cluster.client();
    let file = cluster.open(&client, "f", 1);
    file.write_at(b"before", 0).unwrap();
    let (reads, told) = hold(&file, extent(0, 4096), HoldMode::Read);
    client.shutdown().unwrap();
    assert_eq!(told.recv().unwrap(), reads.id());
    assert!(reads.is_lost());
    assert_eq!(reads.read_at(&mut [0; 6], 0).unwrap_err().to_errno(), EIO);
    assert_eq!(read(&file, 0, 6), b"before");
}

#[test]
fn pages_come_back_although_every_page_of_the_pool_is_reserved_by_those_who_wait_for_them() {
    let cluster = Cluster::start(1);
    let (one, two) = (
        cluster.client_with(|config| {
            config.cache_bytes = 16 * 16_384;
            config.dirty_bytes_max = 8 * 16_384;
            config.dirty_bytes_min = 4 * 16_384;
            config.read_ahead_bytes = 0;
        }),
        cluster.client(),
    );
    let (mine, theirs) = (cluster.open(&one, "f", 1), cluster.open(&two, "f", 1));
    let window = extent(0, 1 << 20);
    let (writes, told) = hold(&mine, window, HoldMode::Write);
    writes.write_at(&[1; 1 << 20], 0).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&theirs, 0, 1 << 20));
        told.recv().unwrap();
        // These wait for the very lock, with reservations and turns, more of them than there are pages.
        let waiting: Vec<_> = (0..8)
            .map(|i| {
                let mine = &mine;
                scope.spawn(move || mine.write_at(&vec![2; 100_000], i * 100_000).unwrap())
            })
            .collect();
        for step in 0..16 {
            writes.write_at(&[3; 65_536], step * 65_536).unwrap();
            assert_eq!(page(&writes, step * 65_536, 65_536), [3; 65_536]);
        }
        writes.release();
        let seen = reader.join().unwrap();
        assert!(seen.iter().all(|byte| *byte == 3 || *byte == 2));
        waiting.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 100_000));
    });
    assert_eq!(read(&theirs, 0, 800_000), vec![2; 800_000]);
    assert_eq!(read(&theirs, 800_000, 248_576), vec![3; 248_576]);
}

/// What a mount does with holds, in small: windows of pages, a thread that throws them out.
struct Mapping {
    file: File,
    windows: Mutex<BTreeMap<u64, Window>>,
    queue: Mutex<Sender<u64>>,
}

struct Window {
    hold: Arc<Hold>,
    /// What a mapping shows and what was changed in it: the newest number.
    word: Option<u64>,
    dirty: bool,
}

const WINDOW_BYTES: u64 = 96 << 10;

impl Mapping {
    fn start(file: File) -> (Arc<Mapping>, Receiver<u64>) {
        let (queue, told) = channel();
        (Arc::new(Mapping { file, windows: Mutex::default(), queue: Mutex::new(queue) }), told)
    }

    /// Throws out what is wanted back, until the queue ends.
    fn invalidate(&self, told: &Receiver<u64>) {
        while let Ok(window) = told.recv() {
            if window == u64::MAX {
                return;
            }
            let mut windows = self.windows.lock().unwrap();
            let Some(Window { hold, word, dirty }) = windows.remove(&window) else { continue };
            if dirty {
                hold.write_at(&word.unwrap().to_le_bytes(), window * WINDOW_BYTES).unwrap();
            }
        }
    }

    /// A load or a store in the mapping.
    fn touch(self: &Arc<Mapping>, window: u64, store: Option<u64>) -> u64 {
        loop {
            {
                let mut windows = self.windows.lock().unwrap();
                if let Some(found) = windows.get_mut(&window) {
                    if found.word.is_none() {
                        let mut word = [0; 8];
                        found.hold.read_at(&mut word, window * WINDOW_BYTES).unwrap();
                        found.word = Some(u64::from_le_bytes(word));
                    }
                    if store.is_some() {
                        (found.word, found.dirty) = (store, true);
                    }
                    return found.word.unwrap();
                }
            }
            let me = Arc::clone(self);
            let range = extent(window * WINDOW_BYTES, (window + 1) * WINDOW_BYTES);
            let on_revoke = move |_| me.queue.lock().unwrap().send(window).unwrap_or_default();
            let hold = Arc::new(self.file.hold(range, HoldMode::Write, Arc::new(on_revoke)).unwrap());
            let wanted = Arc::clone(&hold);
            let before =
                self.windows.lock().unwrap().insert(window, Window { hold, word: None, dirty: false });
            assert!(before.is_none(), "one thread per mapping");
            if wanted.is_wanted() {
                drop(wanted);
                self.queue.lock().unwrap().send(window).unwrap();
            }
        }
    }
}

#[test]
fn mappings_on_three_nodes_and_calls_see_one_order_of_all_stores() {
    for stripes in [1, 3] {
        let cluster = Cluster::start(2);
        let clients: Vec<_> = (0..3).map(|_| cluster.client()).collect();
        let (words, rounds) = (4_u64, 40_u64);
        let next = AtomicU64::new(1);
        let newest: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let ended = AtomicU32::new(0);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (number, client) in clients.iter().enumerate() {
                let (mapping, told) = Mapping::start(cluster.open(client, "f", stripes));
                let invalidated = Arc::clone(&mapping);
                scope.spawn(move || invalidated.invalidate(&told));
                let (next, newest, ended, stop) = (&next, &newest, &ended, &stop);
                scope.spawn(move || {
                    // Each node stores into its own word, and looks at all.
                    let own = u64::try_from(number).unwrap();
                    let mut seen = vec![0; usize::try_from(words).unwrap()];
                    for _ in 0..rounds {
                        let store = next.fetch_add(1, Ordering::SeqCst);
                        mapping.touch(own, Some(store));
                        newest[number].store(store, Ordering::SeqCst);
                        for (word, seen) in (0..words).zip(&mut seen) {
                            let at_least = newest[usize::try_from(word).unwrap()].load(Ordering::SeqCst);
                            let found = mapping.touch(word, None);
                            assert!(found >= at_least.max(*seen), "{word}: {found} after {at_least}, {seen}");
                            *seen = found;
                        }
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                    // Others still want what is here.
                    while !stop.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    mapping.queue.lock().unwrap().send(u64::MAX).unwrap_or_default();
                });
            }
            // And somebody who reads and writes with calls, across windows.
            let client = cluster.client();
            let file = cluster.open(&client, "f", stripes);
            let last = usize::try_from(words - 1).unwrap();
            while ended.load(Ordering::SeqCst) < 3 {
                let store = next.fetch_add(1, Ordering::SeqCst);
                file.write_at(&store.to_le_bytes(), (words - 1) * WINDOW_BYTES).unwrap();
                newest[last].store(store, Ordering::SeqCst);
                let at_least: Vec<u64> = newest.iter().map(|word| word.load(Ordering::SeqCst)).collect();
                let bytes = read(&file, 0, usize::try_from(words * WINDOW_BYTES).unwrap());
                for (word, at_least) in at_least.into_iter().enumerate() {
                    let at = word * usize::try_from(WINDOW_BYTES).unwrap();
                    let found =
                        bytes.get(at..at + 8).map_or(0, |b| u64::from_le_bytes(b.try_into().unwrap()));
                    assert!(found >= at_least, "{word}: {found} after {at_least}");
                }
            }
            stop.store(true, Ordering::SeqCst);
        });
    }
}

#[test]
fn a_change_beside_holds_is_told_before_it_happens_and_pages_are_used_until_then() {
    let cluster = Cluster::start(2);
    let client = cluster.client();
    let file = cluster.open(&client, "f", 2);
    let nobody = |_: Extent| -> () { panic!("there are no holds") };
    assert_eq!(file.write_at_after(&[1; 300_000], 0, nobody).unwrap(), 300_000);
    let (hold, _told) = hold(&file, extent(0, 1 << 20), HoldMode::Write);
    let told = Mutex::new(Vec::new());
    // What is written back before the change lies below it, and beside it nothing is lost.
    let before = |changed: Extent| {
        assert_eq!(page(&hold, changed.start() - 1, 1), [1], "not changed yet");
        // A page that is written back does not make the file longer.
        let bytes = if changed.start() < 300_000 { 12 } else { 1 };
        hold.write_at(&vec![9; bytes], changed.start() - 1).unwrap();
        told.lock().unwrap().push((changed.start(), changed.end()));
    };
    file.write_at_after(&[2; 10], 1_000, before).unwrap();
    file.punch_after(extent(5_000, 5_010), before).unwrap();
    assert_eq!(file.append_after(&[std::io::IoSlice::new(&[3; 10])], before).unwrap(), 300_010);
    assert_eq!(read(&file, 999, 12), [&[9][..], &[2; 10], &[9]].concat());
    assert_eq!(read(&file, 4_999, 12), [&[9][..], &[0; 10], &[9]].concat());
    assert_eq!(read(&file, 299_998, 12), [&[1, 9][..], &[3; 10]].concat());
    assert_eq!(file.size().unwrap(), 300_010);
    let cut = |changed: Extent| told.lock().unwrap().push((changed.start(), 0));
    file.truncate_after(200_000, cut).unwrap();
    assert_eq!(page(&hold, 199_990, 20), [1; 10]);
    let expected = [(1_000, 1_010), (5_000, 5_010), (300_000, 300_010), (200_000, 0)];
    assert_eq!(*told.lock().unwrap(), expected);
}
