//! The applications of one run: they follow a pattern, flush at the end, and are timed as the paper times them.

use super::program::{Pattern, Place, arrivals};
use crate::workload::{Next, Thread, Work, Workload};

/// Where the whole run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Threads write (and read).
    Work,
    /// All have come to the end of that; each client's first thread flushes.
    Flush,
    /// All is with the servers.
    Over,
}

/// One thread.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Calls that have begun.
    begun: u64,
    /// How many there are.
    calls: u64,
    /// The file it flushes next.
    flushed: u64,
    /// When the call in progress began.
    since_ns: u64,
}

/// What was timed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// When the first call began.
    pub begin_ns: u64,
    /// When the last call of the working phase returned.
    pub worked_ns: u64,
    /// When the last flush returned.
    pub flushed_ns: u64,
    /// Calls that returned in the working phase.
    pub calls: u64,
    /// Bytes they wrote.
    pub bytes: u64,
    /// Sum of the time from each call's begin until it had all its locks, nanoseconds.
    pub locking_ns: u64,
    /// Sum of the time of all calls, nanoseconds.
    pub calling_ns: u64,
    /// The first error.
    pub error: Option<String>,
}

/// All applications of a run.
#[derive(Debug)]
pub struct Applications {
    pattern: Pattern,
    clients: u64,
    threads: u64,
    files: u64,
    progress: Vec<Progress>,
    /// By client, when its first call begins, nanoseconds; empty if all begin at once.
    delays_ns: Vec<u64>,
    phase: Phase,
    /// In which round the threads are, of how many, and the time that passes before each.
    round: u64,
    rounds: u64,
    pause_ns: u64,
    /// What was timed so far.
    pub times: Times,
}

impl Applications {
    /// Applications that have done nothing yet.
    #[must_use]
    pub fn new(pattern: Pattern, clients: u64, threads: u64) -> Applications {
        let places = (0..clients)
            .flat_map(|client| (0..threads).map(move |thread| Place { client, clients, thread, threads }));
        let progress: Vec<Progress> =
            places.map(|place| Progress { calls: pattern.calls(place), ..Progress::default() }).collect();
        let (rounds, pause_ns) = pattern.rounds(clients);
        let files = pattern.files(clients);
        let mut delays_ns = Vec::new();
        if matches!(pattern, Pattern::Tiles { .. }) {
            // One after the other in an order of luck, not in that of the tiles.
            let mut turns: Vec<(u64, u64)> = arrivals(clients).into_iter().zip(0..).collect();
            turns.sort_unstable();
            delays_ns = turns.into_iter().map(|(_, at)| at).collect();
        }
        let times = Times { begin_ns: u64::MAX, ..Times::default() };
        Applications {
            pattern,
            clients,
            threads,
            files,
            progress,
            delays_ns,
            phase: Phase::Work,
            round: 0,
            rounds,
            pause_ns,
            times,
        }
    }

    /// Whether every thread has come to the end of its calls.
    #[must_use]
    pub fn has_worked(&self) -> bool {
        self.phase != Phase::Work
    }

    fn place(&self, thread: Thread) -> Place {
        let (client, thread) = (u64::from(thread.client), u64::from(thread.thread));
        Place { client, clients: self.clients, thread, threads: self.threads }
    }

    fn delay_ns(&self, place: Place) -> u64 {
        usize::try_from(place.client).ok().and_then(|client| self.delays_ns.get(client)).copied().unwrap_or(0)
    }

    fn mine(&mut self, thread: Thread) -> &mut Progress {
        let place = self.place(thread);
        let at = usize::try_from(place.client * self.threads + place.thread).expect("threads are few");
        &mut self.progress[at]
    }

    /// The next call of the working phase, if this thread has one now.
    fn work(&mut self, thread: Thread) -> Option<(u64, Work)> {
        let place = self.place(thread);
        let allowed = if self.rounds > 0 { self.pattern.calls_until(place, self.round) } else { u64::MAX };
        let (pattern, round, pause_ns) = (self.pattern, self.round, self.pause_ns);
        let delay_ns = self.delay_ns(place);
        let progress = self.mine(thread);
        if progress.begun == progress.calls.min(allowed) {
            return None;
        }
        let at = progress.begun;
        progress.begun += 1;
        // Who goes on after a round has waited.
        let before = round.checked_sub(1).map_or(0, |before| pattern.calls_until(place, before));
        let is_first = at == before;
        let after_ns = if is_first { pause_ns } else { 0 };
        let delay_ns = if at == 0 { delay_ns } else { 0 };
        Some((after_ns + delay_ns, self.pattern.call(place, at)))
    }

    /// The next flush of this thread, if it has one.
    fn flush(&mut self, thread: Thread) -> Option<Work> {
        let place = self.place(thread);
        let own = if self.files > 1 { place.client..place.client + 1 } else { 0..1 };
        let progress = self.mine(thread);
        let file = own.start + progress.flushed;
        if place.thread > 0 || !own.contains(&file) {
            return None;
        }
        progress.flushed += 1;
        Some(Work::Flush { file: u32::try_from(file).expect("files are few") })
    }
}

impl Workload for Applications {
    fn next(&mut self, thread: Thread, now_ns: u64) -> Next {
        let next = match self.phase {
            Phase::Work => self.work(thread),
            Phase::Flush => self.flush(thread).map(|work| (0, work)),
            Phase::Over => return Next::Done,
        };
        let Some((after_ns, work)) = next else { return Next::Barrier };
        if self.phase == Phase::Work {
            self.times.begin_ns = self.times.begin_ns.min(now_ns);
        }
        self.mine(thread).since_ns = now_ns + after_ns;
        Next::Call { after_ns, work }
    }

    fn locked(&mut self, thread: Thread, now_ns: u64) {
        if self.phase == Phase::Work {
            let since_ns = self.mine(thread).since_ns;
            self.times.locking_ns += now_ns - since_ns;
        }
    }

    fn returned(&mut self, thread: Thread, work: &Work, result: Result<u64, i32>, now_ns: u64) {
        if let Err(errno) = result {
            let text = || format!("client {} at {now_ns} ns: {work:?}: errno {errno}", thread.client);
            self.times.error.get_or_insert_with(text);
        }
        if self.phase != Phase::Work {
            return;
        }
        let since_ns = self.mine(thread).since_ns;
        self.times.calling_ns += now_ns - since_ns;
        self.times.calls += 1;
        self.times.bytes += bytes_written(work);
        self.times.worked_ns = now_ns;
    }

    fn barrier(&mut self, now_ns: u64) {
        self.round += 1;
        if self.round < self.rounds {
            return;
        }
        self.phase = match self.phase {
            Phase::Work => Phase::Flush,
            Phase::Flush | Phase::Over => Phase::Over,
        };
        self.times.flushed_ns = now_ns;
    }
}

fn bytes_written(work: &Work) -> u64 {
    use crate::history::Call;
    match work {
        Work::Call(Call::Write { extent, .. }) => extent.length(),
        Work::Call(Call::Append { length, .. }) => *length,
        Work::WriteRegion { region, .. } => region.length_bytes(),
        Work::Call(Call::Read { .. } | Call::Truncate { .. } | Call::Size { .. } | Call::Fsync { .. })
        | Work::Flush { .. } => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: [Thread; 2] = [Thread { client: 0, thread: 0 }, Thread { client: 1, thread: 0 }];

    #[test]
    fn a_run_works_then_flushes_then_is_over_and_is_timed() {
        let mut run = Applications::new(Pattern::Strided { block: 10, writes: 1 }, 2, 1);
        for thread in THREAD {
            let Next::Call { work, .. } = run.next(thread, 100) else { panic!("a call") };
            run.locked(thread, 130);
            run.returned(thread, &work, Ok(10), 150);
            assert_eq!(run.next(thread, 150), Next::Barrier);
        }
        run.barrier(150);
        for thread in THREAD {
            assert_eq!(run.next(thread, 150), Next::Call { after_ns: 0, work: Work::Flush { file: 0 } });
            assert_eq!(run.next(thread, 200), Next::Barrier);
        }
        run.barrier(200);
        assert_eq!(run.next(THREAD[0], 200), Next::Done);
        let expected = Times {
            begin_ns: 100,
            worked_ns: 150,
            flushed_ns: 200,
            calls: 2,
            bytes: 20,
            locking_ns: 60,
            calling_ns: 100,
            error: None,
        };
        assert_eq!(run.times, expected);
    }

    #[test]
    fn in_the_round_robin_test_one_client_writes_at_a_time() {
        let mut run = Applications::new(Pattern::RoundRobin { block: 10, writes: 2 }, 2, 1);
        let mut writers = Vec::new();
        for _ in 0..4 {
            for thread in THREAD {
                if let Next::Call { after_ns, work: _ } = run.next(thread, 0) {
                    assert_eq!(after_ns, super::super::program::TURN_NS);
                    assert_eq!(run.next(thread, 5), Next::Barrier);
                    writers.push(thread.client);
                }
            }
            run.barrier(5);
        }
        assert_eq!(writers, [0, 1, 0, 1]);
        assert!(matches!(run.next(THREAD[1], 9), Next::Call { work: Work::Flush { .. }, .. }));
    }
}
