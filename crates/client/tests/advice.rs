//! What programs say beforehand: locks ahead, no expansion, bytes that will be read or not, groups.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_client::{Advised, AheadMode, Client, ClientConfig, File, OpenOptions};
use ccpfs_region::{Region, Section};
use ccpfs_server::{RunningServer, ServerConfig};
use ccpfs_transport::Address;
use ccpfs_types::{Extent, Layout};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, Ordering};

const BLOCK: u64 = 5000;

static CLUSTERS: AtomicU32 = AtomicU32::new(0);

struct Cluster {
    directory: tempfile::TempDir,
    addresses: Vec<Address>,
    servers: Vec<RunningServer>,
}

impl Cluster {
    fn start() -> Cluster {
        let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("ns")).unwrap();
        let addresses: Vec<Address> =
            (0..2).map(|i| format!("loopback:advice-{number}-{i}").parse().unwrap()).collect();
        let server = |index: usize| {
            let data = directory.path().join(format!("data-{index}"));
            let mut config = ServerConfig::with_defaults(addresses[index].clone(), &data);
            config.server_count = 2;
            config.index = u32::try_from(index).unwrap();
            ccpfs_server::start(config).unwrap()
        };
        let servers = vec![server(0), server(1)];
        Cluster { directory, addresses, servers }
    }

    fn client(&self, change: impl FnOnce(&mut ClientConfig)) -> Client {
        let namespace = self.directory.path().join("ns");
        let mut config = ClientConfig::with_defaults(&namespace, self.addresses.clone());
        config.cache_bytes = 32 << 20;
        config.dirty_bytes_max = 16 << 20;
        config.dirty_bytes_min = 4 << 20;
        change(&mut config);
        Client::start(config).unwrap()
    }

    fn open(&self, client: &Client, name: &str, stripes: u32) -> File {
        let options = OpenOptions {
            read: true,
            write: true,
            create: true,
            layout: Layout::new(stripes, 16 << 10),
            ..OpenOptions::default()
        };
        client.open(&self.directory.path().join("ns").join(name), &options).unwrap()
    }

    fn stop(self) {
        for server in self.servers {
            server.shutdown();
            server.wait().unwrap();
        }
    }
}

/// Block `number` of the file.
fn block(number: u64) -> Extent {
    Extent::with_length(number * BLOCK, BLOCK).unwrap()
}

fn fill(file: &File, number: u64) {
    let byte = u8::try_from(number % 251).unwrap();
    file.write_at(&[byte; BLOCK as usize], number * BLOCK).unwrap();
}

fn check(file: &File, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let mut buffer = [0; BLOCK as usize];
        assert_eq!(file.read_at(&mut buffer, number * BLOCK).unwrap(), buffer.len());
        let byte = u8::try_from(number % 251).unwrap();
        assert!(buffer.iter().all(|found| *found == byte), "block {number}");
    }
}

fn advised(file: &File, extents: &[Extent]) -> Vec<Advised> {
    let results = file.lockahead(extents, AheadMode::Write).unwrap();
    results.into_iter().map(Result::unwrap).collect()
}

//= semantics.md#S26 type=test
#[test]
fn writers_by_turns_that_lock_ahead_never_meet() {
    let cluster = Cluster::start();
    for stripes in [1, 3] {
        let name = format!("turns-{stripes}");
        let clients: Vec<Client> = (0..2).map(|_| cluster.client(|_| {})).collect();
        let files: Vec<File> = clients.iter().map(|client| cluster.open(client, &name, stripes)).collect();
        let blocks = |of: u64| (0..100).map(move |k| 2 * k + of);
        for (file, of) in files.iter().zip(0..) {
            let extents: Vec<Extent> = blocks(of).map(block).collect();
            assert_eq!(advised(file, &extents), vec![Advised::Sent; 100]);
        }
        let asked: Vec<_> = clients.iter().map(Client::statistics).collect();
        for (file, of) in files.iter().zip(0..) {
            blocks(of).for_each(|number| fill(file, number));
        }
        for (client, before) in clients.iter().zip(&asked) {
            let did = client.statistics().since(before);
            assert_eq!((did.lock_requests, did.revocations), (0, 0), "{stripes} stripes");
        }
        for (file, of) in files.iter().zip(0..) {
            let extents: Vec<Extent> = blocks(of).map(block).collect();
            assert_eq!(advised(file, &extents), vec![Advised::Same; 100]);
            let half = Extent::with_length(of * BLOCK, BLOCK / 2).unwrap();
            assert_eq!(advised(file, &[half]), [Advised::Different]);
        }
        check(&files[0], 0..200);
        files.into_iter().for_each(|file| file.close().unwrap());
        clients.iter().for_each(|client| client.shutdown().unwrap());
    }
    cluster.stop();
}

#[test]
fn a_lock_that_somebody_has_is_not_got_ahead_but_when_it_is_needed() {
    let cluster = Cluster::start();
    let (one, other) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let (ours, theirs) = (cluster.open(&one, "taken", 2), cluster.open(&other, "taken", 2));
    fill(&theirs, 0);
    let before = other.statistics();
    assert_eq!(advised(&ours, &[block(0)]), [Advised::Sent]);
    // Whoever asks for it in earnest learns that it was refused, and asks anew.
    fill(&ours, 0);
    assert!(other.statistics().since(&before).revocations > 0);
    fill(&theirs, 1);
    check(&ours, 0..2);
    drop((ours, theirs));
    cluster.stop();
}

#[test]
fn locks_got_ahead_are_given_back_by_who_does_nothing() {
    let cluster = Cluster::start();
    let (one, other) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let (ours, theirs) = (cluster.open(&one, "idle", 1), cluster.open(&other, "idle", 1));
    fill(&ours, 300);
    for round in 0..20 {
        let extents: Vec<Extent> = (0..50).map(block).collect();
        for result in ours.lockahead(&extents, AheadMode::Write).unwrap() {
            result.unwrap();
        }
        for number in 0..50 {
            fill(&theirs, number + round);
        }
    }
    // Nobody was evicted: what was dirty before is still there.
    ours.flush().unwrap();
    check(&theirs, 300..301);
    drop((ours, theirs));
    cluster.stop();
}

#[test]
fn advices_that_cannot_be_taken_are_refused_one_by_one() {
    let cluster = Cluster::start();
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "limits", 2);
    let refused = |extents: &[Extent]| file.lockahead(extents, AheadMode::Read).unwrap_err().to_errno();
    assert_eq!((refused(&[]), refused(&vec![block(1); 1025])), (libc::EINVAL, libc::EINVAL));
    let beyond = Extent::new(5, u64::MAX - 1).unwrap();
    let results = file.lockahead(&[beyond, block(0), Extent::to_eof(BLOCK)], AheadMode::Read).unwrap();
    assert_eq!(results[0].as_ref().unwrap_err().to_errno(), libc::EFBIG);
    assert!(matches!(results[1..], [Ok(Advised::Sent), Ok(Advised::Sent)]));
    drop(file);
    let options = OpenOptions { read: true, ..OpenOptions::default() };
    let file = client.open(&cluster.directory.path().join("ns/limits"), &options).unwrap();
    let results = file.lockahead(&[block(0)], AheadMode::Write).unwrap();
    assert_eq!(results[0].as_ref().unwrap_err().to_errno(), libc::EBADF);
    drop(file);
    cluster.stop();
}

//= semantics.md#S26 type=test
#[test]
fn without_expansion_writers_by_turns_ask_for_each_block_and_never_meet() {
    let cluster = Cluster::start();
    let (one, other) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let (ours, theirs) = (cluster.open(&one, "exact", 1), cluster.open(&other, "exact", 1));
    ours.set_lock_expansion(false);
    theirs.set_lock_expansion(false);
    for number in 0..40 {
        fill(if number % 2 == 0 { &ours } else { &theirs }, number);
    }
    for client in [&one, &other] {
        let did = client.statistics();
        assert_eq!((did.lock_requests, did.revocations), (20, 0));
    }
    check(&ours, 0..40);
    drop((ours, theirs));
    cluster.stop();
}

#[test]
fn a_strided_writer_asks_for_its_section_once_and_not_at_all_if_that_is_switched_off() {
    let cluster = Cluster::start();
    for (sections, most) in [(true, 4), (false, 1000)] {
        let change = |config: &mut ClientConfig| config.desired_sections = sections;
        let clients: Vec<Client> = (0..2).map(|_| cluster.client(change)).collect();
        let name = format!("sections-{sections}");
        let files: Vec<File> = clients.iter().map(|client| cluster.open(client, &name, 1)).collect();
        for number in 0..400 {
            fill(&files[usize::try_from(number % 2).unwrap()], number);
        }
        for client in &clients {
            let requests = client.statistics().lock_requests;
            assert!(requests <= most && (sections || requests >= 100), "{requests} with {sections}");
        }
        check(&files[0], 0..400);
    }
    cluster.stop();
}

//= semantics.md#S26 type=test
#[test]
fn strided_readers_and_regions_beside_a_section_see_what_was_written() {
    let cluster = Cluster::start();
    let (one, other) = (cluster.client(|_| {}), cluster.client(|_| {}));
    let (ours, theirs) = (cluster.open(&one, "mixed", 3), cluster.open(&other, "mixed", 3));
    for number in (0..300).step_by(3) {
        fill(&ours, number);
    }
    let every_third =
        |first: u64| Region::from(Section::new(first * BLOCK, BLOCK, &[(3 * BLOCK, 100)]).unwrap());
    for first in [1, 2] {
        let blocks = (0..100).map(|k| 3 * k + first);
        let buffer: Vec<u8> =
            blocks.flat_map(|number| [u8::try_from(number % 251).unwrap(); BLOCK as usize]).collect();
        assert_eq!(theirs.write_region(&every_third(first), &buffer).unwrap(), buffer.len());
    }
    check(&theirs, (0..300).step_by(3));
    check(&ours, (0..300).rev().step_by(7));
    check(&ours, 0..300);
    drop((ours, theirs));
    cluster.stop();
}

#[test]
fn readers_at_small_distances_of_what_others_have_as_sections_ask_seldom() {
    let cluster = Cluster::start();
    let clients: Vec<Client> = (0..3).map(|_| cluster.client(|_| {})).collect();
    for stripes in [1, 3] {
        let name = format!("readers-{stripes}");
        let files: Vec<File> = clients.iter().map(|client| cluster.open(client, &name, stripes)).collect();
        for number in 0..600 {
            fill(&files[usize::try_from(number % 2).unwrap()], number);
        }
        let before = clients[2].statistics();
        check(&files[2], (1..600).step_by(2));
        let did = clients[2].statistics().since(&before);
        assert!(did.lock_requests <= 30 && did.read_rpcs <= 100, "{did:?}");
        check(&files[0], (1..600).step_by(2));
    }
    cluster.stop();
}

//= semantics.md#S27 type=test
#[test]
fn members_of_a_group_write_beside_each_other_and_others_wait_until_all_have_left() {
    let cluster = Cluster::start();
    let group = NonZeroU64::new(77).unwrap();
    for stripes in [1, 3] {
        let name = format!("group-{stripes}");
        let clients: Vec<Client> = (0..3).map(|_| cluster.client(|_| {})).collect();
        let files: Vec<File> = clients.iter().map(|client| cluster.open(client, &name, stripes)).collect();
        files[0].group_lock(group).unwrap();
        files[1].group_lock(group).unwrap();
        let before: Vec<_> = clients.iter().map(Client::statistics).collect();
        for number in 0..60 {
            fill(&files[usize::try_from(number % 2).unwrap()], number);
        }
        for (client, before) in clients[..2].iter().zip(&before) {
            let did = client.statistics().since(before);
            assert_eq!((did.lock_requests, did.revocations), (0, 0));
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| check(&files[2], 0..120));
            // Perhaps while the other one waits already.
            for number in 60..120 {
                fill(&files[usize::try_from(number % 2).unwrap()], number);
            }
            files[0].group_unlock(group).unwrap();
            files[1].group_unlock(group).unwrap();
            reader.join().unwrap();
        });
        check(&files[0], 0..120);
        files.into_iter().for_each(|file| file.close().unwrap());
        clients.iter().for_each(|client| client.shutdown().unwrap());
    }
    cluster.stop();
}

#[test]
fn a_handle_has_one_group_and_a_client_one_on_each_file() {
    let cluster = Cluster::start();
    let client = cluster.client(|_| {});
    let (first, second) = (cluster.open(&client, "one", 1), cluster.open(&client, "one", 1));
    let (group, other) = (NonZeroU64::new(1).unwrap(), NonZeroU64::new(2).unwrap());
    first.group_lock(group).unwrap();
    assert_eq!(first.group_lock(group).unwrap_err().to_errno(), libc::EINVAL);
    assert_eq!(second.group_lock(other).unwrap_err().to_errno(), libc::EBUSY);
    assert_eq!(first.group_unlock(other).unwrap_err().to_errno(), libc::EINVAL);
    second.group_lock(group).unwrap();
    first.group_unlock(group).unwrap();
    fill(&first, 3);
    // The last handle of the group leaves by being closed.
    drop(second);
    let reader = cluster.client(|_| {});
    check(&cluster.open(&reader, "one", 1), 3..4);
    second_group(&first, other);
    drop(first);
    cluster.stop();
}

fn second_group(file: &File, group: NonZeroU64) {
    file.group_lock(group).unwrap();
    file.append(&[std::io::IoSlice::new(b"in the group")]).unwrap();
    file.truncate(7 * BLOCK).unwrap();
    assert_eq!(file.size().unwrap(), 7 * BLOCK);
    file.group_unlock(group).unwrap();
}

#[test]
fn what_will_be_read_is_there_and_what_is_not_needed_is_not() {
    let cluster = Cluster::start();
    let writer = cluster.client(|_| {});
    let file = cluster.open(&writer, "reads", 2);
    (0..100).for_each(|number| fill(&file, number));
    file.close().unwrap();
    let reader = cluster.client(|config| config.read_ahead_bytes = 0);
    let file = cluster.open(&reader, "reads", 2);
    file.will_read(Extent::new(0, 60 * BLOCK).unwrap()).unwrap();
    let before = reader.statistics();
    check(&file, 0..60);
    assert_eq!(reader.statistics().since(&before).read_rpcs, 0);
    file.dont_need(Extent::new(0, 30 * BLOCK).unwrap()).unwrap();
    check(&file, 0..30);
    assert!(reader.statistics().since(&before).read_rpcs > 0);
    file.will_read(Extent::to_eof(90 * BLOCK)).unwrap();
    check(&file, 90..100);
    drop(file);
    cluster.stop();
}
