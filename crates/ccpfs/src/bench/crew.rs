//! The client processes of one run, led step by step.

use super::member::Task;
use super::protocol::{Event, Job, Order, Report, Step};
use crate::cluster::servers::without_own_settings;
use crate::failure::{Context, Failure};
use crate::sys;
use serde::Serialize;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Time between telling the processes what to do and when they begin, so that all are told before the first begins.
const START_DELAY_NS: u64 = 5_000_000;

/// How often a waiting coordinator looks whether it was interrupted.
const LOOK_AROUND: Duration = Duration::from_millis(100);

/// What came from a client process.
type Answer = (usize, Result<Event, String>);

/// Client processes. They are killed when this is dropped before [`Crew::finish`].
pub(crate) struct Crew {
    members: Vec<Member>,
    answers: Receiver<Answer>,
    patience: Duration,
}

struct Member {
    child: Child,
    input: ChildStdin,
}

/// Passes the lines of a client process on, and its end.
fn listen(member: usize, output: ChildStdout, answers: &Sender<Answer>) {
    for line in BufReader::new(output).lines() {
        let event = line
            .map_err(|error| error.to_string())
            .and_then(|line| serde_json::from_str(&line).map_err(|error| format!("{error} in '{line}'")));
        let is_last = event.is_err();
        if answers.send((member, event)).is_err() || is_last {
            return;
        }
    }
    let _ = answers.send((member, Err("it ended".to_owned())));
}

impl Crew {
    /// Starts one process for each job and waits until all are ready.
    pub(crate) fn start(
        jobs: &[Job],
        settings: &[(String, String)],
        patience: Duration,
    ) -> Result<Crew, Failure> {
        let binary = std::env::current_exe().context(|| "cannot find this program's file".to_owned())?;
        let call = |job| {
            let mut command = Command::new(&binary);
            without_own_settings(&mut command);
            command.args(["bench", "ior-client", "--parent"]).arg(std::process::id().to_string());
            command.envs(settings.iter().cloned());
            (command, job)
        };
        Crew::launch(jobs.iter().map(call), patience)
    }

    /// Starts processes, tells each its job, and waits until all are ready.
    pub(crate) fn launch<J: Serialize>(
        calls: impl Iterator<Item = (Command, J)>,
        patience: Duration,
    ) -> Result<Crew, Failure> {
        let (sender, answers) = channel();
        let mut crew = Crew { members: Vec::new(), answers, patience };
        for (number, (mut command, job)) in calls.enumerate() {
            command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().context(|| format!("cannot start client {number}"))?;
            let input = child.stdin.take().expect("it was asked for");
            let output = child.stdout.take().expect("it was asked for");
            crew.members.push(Member { child, input });
            let sender = sender.clone();
            std::thread::spawn(move || listen(number, output, &sender));
            let line = serde_json::to_string(&job).context(|| "cannot describe the job".to_owned())?;
            crew.tell(number, &line)?;
        }
        let everyone: Vec<usize> = (0..crew.members.len()).collect();
        crew.collect(&everyone, "prepare")?;
        Ok(crew)
    }

    fn tell(&mut self, member: usize, line: &str) -> Result<(), Failure> {
        let sent = self.members[member].input.write_all(format!("{line}\n").as_bytes());
        sent.context(|| format!("client {member} has gone"))
    }

    /// Lets some of the processes do a step at the same time, and waits for all of them.
    pub(crate) fn step<S: Task + Serialize>(&mut self, steps: &[(usize, S)]) -> Result<Vec<Report>, Failure> {
        let doing = steps.first().map_or("", |(_, step)| step.name());
        let at_ns = sys::monotonic_ns() + START_DELAY_NS;
        for (member, step) in steps {
            let line = serde_json::to_string(&Order { step, at_ns }).expect("a plain value");
            self.tell(*member, &line)?;
        }
        let members: Vec<usize> = steps.iter().map(|(member, _)| *member).collect();
        self.collect(&members, doing)
    }

    /// Waits for one answer from each of `members`.
    fn collect(&mut self, members: &[usize], doing: &str) -> Result<Vec<Report>, Failure> {
        let deadline = Instant::now() + self.patience;
        let mut missing = members.to_vec();
        let mut reports = vec![Report::default(); members.len()];
        while !missing.is_empty() {
            let answer = self.answers.recv_timeout(LOOK_AROUND);
            if sys::interrupted() {
                return Err(Failure::interrupted());
            }
            match answer {
                Ok((member, event)) => {
                    let report = settle(member, event)?;
                    missing.retain(|number| *number != member);
                    if let Some(at) = members.iter().position(|number| *number == member) {
                        reports[at] = report;
                    }
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let seconds = self.patience.as_secs();
                    return Err(Failure::new(format!(
                        "clients {missing:?} did not finish to {doing} in {seconds} s"
                    )));
                }
            }
        }
        Ok(reports)
    }

    /// Sends all processes home.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let line = serde_json::to_string(&Order { step: Step::Quit, at_ns: 0 }).expect("a plain value");
        for member in 0..self.members.len() {
            self.tell(member, &line)?;
        }
        for (number, member) in self.members.iter_mut().enumerate() {
            let status = member.child.wait().context(|| format!("waiting for client {number}"))?;
            if !status.success() {
                return Err(Failure::new(format!("client {number} ended badly: {status}")));
            }
        }
        self.members.clear();
        Ok(())
    }
}

fn settle(member: usize, event: Result<Event, String>) -> Result<Report, Failure> {
    match event {
        Ok(Event::Ready) => Ok(Report::default()),
        Ok(Event::Done(report)) => Ok(*report),
        Ok(Event::Failed { message }) => Err(Failure::new(message)),
        Err(reason) => Err(Failure::new(format!("client {member}: {reason}"))),
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.child.kill();
        }
        for member in &mut self.members {
            let _ = member.child.wait();
        }
    }
}
