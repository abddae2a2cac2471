//! Regions stay atomic for everybody else when a client is killed or a server restarts in the middle, and under every policy, kind and
//! protocol.
//!
//! `CCPFS_ATOMIC_ROUNDS` makes it longer: rounds of each worker (default 4); those with faults run only if it is set.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod regions_world;

use ccpfs_client::{Client, File, LockKind, LockProtocol, LockStyle};
use regions_world::{Cluster, History, KILLED, Random, client_of, fill, open_in, try_open_in, whole_cells};
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};

/// Workers of which each is a client of its own; the last two read.
const WORKERS: u64 = 4;
const READERS: u64 = 2;
const POLICIES: [&str; 5] = ["seqdlm", "datatype", "basic", "lustre", "seqdlm-no-early-grant"];

fn rounds() -> u64 {
    std::env::var("CCPFS_ATOMIC_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// Whether faults are wanted as well.
fn is_long() -> bool {
    std::env::var_os("CCPFS_ATOMIC_ROUNDS").is_some()
}

/// Every kind with every protocol.
fn styles() -> impl Iterator<Item = LockStyle> {
    let of_kind = |kind: LockKind| {
        LockProtocol::PROTOCOLS.iter().map(move |(_, protocol)| LockStyle { kind, protocol: *protocol })
    };
    LockKind::KINDS.iter().flat_map(move |(_, kind)| of_kind(*kind))
}

/// A worker's client, in one life of the servers.
struct Worker<'a> {
    cluster: &'a Cluster,
    stripes: u32,
    client: Option<(Client, File)>,
    /// The life that the client has begun in.
    life: u64,
    written: Vec<u64>,
}

impl<'a> Worker<'a> {
    fn new(cluster: &'a Cluster, stripes: u32) -> Worker<'a> {
        Worker { cluster, stripes, client: None, life: 0, written: Vec::new() }
    }

    /// The file in this life of the servers, unless they die meanwhile. What was written in another one may be lost.
    fn file(&mut self, life: u64, history: &History) -> Option<&File> {
        if self.life != life {
            self.lose(history);
            self.leave(history);
            self.life = life;
        }
        if self.client.is_none() {
            let client = self.cluster.client(|_| {});
            match try_open_in(&self.cluster.namespace(), &client, "f", self.stripes) {
                Ok(file) => self.client = Some((client, file)),
                Err(_) => drop(client.shutdown()),
            }
        }
        self.client.as_ref().map(|(_, file)| file)
    }

    /// Ends the client. An error tells that something is lost which it wrote.
    fn leave(&mut self, history: &History) {
        if let Some((client, file)) = self.client.take() {
            let (closed, ended) = (file.close(), client.shutdown());
            if closed.is_err() || ended.is_err() {
                self.lose(history);
            }
        }
    }

    /// What was written by this client may be lost.
    fn lose(&mut self, history: &History) {
        self.written.drain(..).for_each(|number| history.tear(number));
    }
}

/// How far everybody is.
#[derive(Default)]
struct State {
    /// Even while the servers live; odd while one of them is being replaced.
    life: u64,
    /// Operations that have ended.
    ended: usize,
    /// Workers that have.
    gone: u64,
}

#[derive(Default)]
struct Progress {
    state: Mutex<State>,
    changed: Condvar,
}

impl Progress {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Waits for what `seen` is looking for.
    fn wait<T>(&self, mut seen: impl FnMut(&State) -> Option<T>) -> T {
        let mut state = self.state.lock().unwrap();
        loop {
            match seen(&state) {
                Some(value) => return value,
                None => state = self.changed.wait(state).unwrap(),
            }
        }
    }

    /// The life that the servers are in.
    fn life(&self) -> u64 {
        self.wait(|state| (state.life % 2 == 0).then_some(state.life))
    }

    /// Lets `act` happen each time that so many more operations have ended, as long as anybody works.
    fn at_each(&self, operations: usize, times: usize, mut act: impl FnMut(usize)) {
        for time in 0..times {
            self.wait(|state| {
                (state.ended >= operations * (time + 1) || state.gone == WORKERS).then_some(())
            });
            act(time);
        }
    }
}

/// Says that a worker has ended, even by a panic.
struct Working<'a>(&'a Progress);

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.change(|state| state.gone += 1);
    }
}

/// Lets workers loose on a file of `stripes` stripes that has been filled, `rounds` operations each, with these styles by turns.
fn work(cluster: &Cluster, history: &History, progress: &Progress, stripes: u32, rounds: u64, seed: u64) {
    let styles: Vec<LockStyle> = styles().collect();
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let styles = &styles;
            scope.spawn(move || {
                let _working = Working(progress);
                let mut ours = Worker::new(cluster, stripes);
                let mut random = Random(seed * 1000 + worker);
                for round in 0..rounds {
                    let style = styles[usize::try_from(random.below(styles.len() as u64)).unwrap()];
                    let (region, life) = (random.region(), progress.life());
                    let same = || progress.state.lock().unwrap().life == life;
                    if let Some(file) = ours.file(life, history) {
                        if worker < WORKERS - READERS {
                            let number = 1 + worker * rounds + round;
                            let written = history.try_write(file, number, &region, style);
                            ours.written.push(number);
                            // An error is that of an earlier write as well.
                            if !written || !same() {
                                ours.lose(history);
                            }
                        } else {
                            history.try_read(file, region, style, same);
                        }
                    }
                    progress.change(|state| state.ended += 1);
                }
                ours.leave(history);
            });
        }
    });
}

/// A file that has been filled.
fn filled(cluster: &Cluster, stripes: u32) {
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "f", stripes);
    fill(&file);
    file.close().unwrap();
    client.shutdown().unwrap();
}

/// Looks at all cells once more, and at everything that was seen.
fn conclude(cluster: &Cluster, history: &History, stripes: u32) {
    let client = cluster.client(|_| {});
    let file = cluster.open(&client, "f", stripes);
    let style = LockStyle { kind: LockKind::Datatype, protocol: LockProtocol::AltTry };
    history.read(&file, whole_cells(), style);
    history.check_after_faults();
    file.close().unwrap();
    client.shutdown().unwrap();
}

//= protocol.md#I5 type=test
#[test]
fn regions_are_atomic_under_every_policy_whatever_kinds_and_protocols_meet() {
    for (policy, stripes) in POLICIES.iter().flat_map(|policy| [(policy, 1), (policy, 4)]) {
        let (history, progress) = (History::default(), Progress::default());
        let cluster = Cluster::start(policy);
        filled(&cluster, stripes);
        work(&cluster, &history, &progress, stripes, 3 * rounds(), 1);
        assert_eq!(history.counts(), (0, usize::try_from(READERS * 3 * rounds()).unwrap()));
        conclude(&cluster, &history, stripes);
        cluster.stop();
    }
}

//= protocol.md#I5 type=test
//= protocol.md#I7 type=test
#[test]
fn regions_of_the_others_are_atomic_when_servers_restart_in_the_middle() {
    if !is_long() {
        return;
    }
    for (policy, stripes) in [("seqdlm", 4), ("datatype", 4), ("seqdlm", 1)] {
        let (history, progress) = (History::default(), Progress::default());
        let cluster = Cluster::start(policy);
        filled(&cluster, stripes);
        let (rounds, times) = (5 * rounds(), 3);
        let quarter = usize::try_from(WORKERS * rounds).unwrap() / (times + 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                progress.at_each(quarter, times, |time| {
                    progress.change(|state| state.life += 1);
                    cluster.restart(time % 2);
                    progress.change(|state| state.life += 1);
                });
            });
            work(&cluster, &history, &progress, stripes, rounds, 2);
        });
        conclude(&cluster, &history, stripes);
        cluster.stop();
    }
}

/// A writer in a process of its own, which goes on until it is killed.
fn writer(cluster: &Cluster, stripes: u32, seed: usize) -> Child {
    let addresses: Vec<String> = cluster.addresses.iter().map(ToString::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["the_process_of_a_writer_that_is_killed", "--exact", "--nocapture", "--test-threads=1"])
        .env("CCPFS_KILLED_WRITER", cluster.namespace())
        .env("CCPFS_KILLED_ADDRESSES", addresses.join(","))
        .env("CCPFS_KILLED_STRIPES", stripes.to_string())
        .env("CCPFS_KILLED_SEED", seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == "it writes"), "the writer has ended");
    child
}

#[test]
fn the_process_of_a_writer_that_is_killed() {
    let text = |name: &str| std::env::var(name).unwrap();
    let Some(namespace) = std::env::var_os("CCPFS_KILLED_WRITER").map(PathBuf::from) else { return };
    let addresses =
        text("CCPFS_KILLED_ADDRESSES").split(',').map(|address| address.parse().unwrap()).collect();
    let client = client_of(&namespace, addresses, |_| {});
    let file = open_in(&namespace, &client, "f", text("CCPFS_KILLED_STRIPES").parse().unwrap());
    let mut random = Random(text("CCPFS_KILLED_SEED").parse().unwrap());
    let styles: Vec<LockStyle> = styles().collect();
    for number in KILLED.. {
        let region = random.region();
        let style = styles[usize::try_from(random.below(styles.len() as u64)).unwrap()];
        file.write_region_with(&region, &History::buffer(number, &region), style).unwrap();
        if number == KILLED + 1 {
            std::io::stdout().write_all(b"\nit writes\n").unwrap();
        }
    }
}

//= protocol.md#I5 type=test
//= protocol.md#I7 type=test
#[test]
fn regions_of_the_others_are_atomic_when_a_client_is_killed_in_the_middle() {
    if !is_long() {
        return;
    }
    for (policy, stripes) in [("seqdlm", 4), ("datatype", 4), ("seqdlm", 1)] {
        let (history, progress) = (History::default(), Progress::default());
        let cluster = Cluster::start_for_processes(policy);
        filled(&cluster, stripes);
        let (rounds, times) = (5 * rounds(), 3);
        let quarter = usize::try_from(WORKERS * rounds).unwrap() / (times + 1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut killed = writer(&cluster, stripes, 0);
                progress.at_each(quarter, times, |time| {
                    killed.kill().unwrap();
                    killed.wait().unwrap();
                    if time + 1 < times {
                        killed = writer(&cluster, stripes, time + 1);
                    }
                });
            });
            work(&cluster, &history, &progress, stripes, rounds, 3);
        });
        assert_eq!(history.counts(), (0, usize::try_from(READERS * rounds).unwrap()), "nobody else is hurt");
        conclude(&cluster, &history, stripes);
        cluster.stop();
    }
}
