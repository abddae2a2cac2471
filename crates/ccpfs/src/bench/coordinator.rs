//! `ccpfs bench ior`: leads servers and clients through all rounds, and shows what came out.

use super::args::IorArguments;
use super::crew::Crew;
use super::environment::Environment;
use super::overlap;
use super::plan::{Case, Contender, Mode, Plan, Workload};
use super::protocol::{Backend, Job, Report, Step};
use super::result::{self, Phase, Run};
use super::{plot, report, table};
use crate::failure::{Failure, Kind, say};
use crate::sys;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::PathBuf;
use std::time::Duration;

/// Pages of the client's cache.
pub(crate) const PAGE_BYTES: u64 = 4 << 10;
/// Room in a client's cache beyond what it writes, touched as well.
pub(crate) const PREFAULT_SLACK_BYTES: u64 = 16 << 20;

/// Measures everything, then shows and writes the results.
pub(crate) fn run(arguments: &IorArguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    sys::catch_interrupts();
    let mut environment = Environment::start(&plan)?;
    let runs = measure(&plan, &mut environment)?;
    drop(environment);
    let lines = result::summaries(&runs, &plan.cases(), &plan.contenders);
    say(table::render(&plan, &lines));
    if let Some(path) = &plan.json {
        report::write(path, &plan, &runs, &lines)?;
        say(format!("results: {}", path.display()));
    }
    if let Some(path) = &plan.plot {
        plot::draw(path, &plan, &lines)?;
        say(format!("plot: {}", path.display()));
    }
    let wrong: u64 = runs.iter().filter_map(|run| run.wrong_bytes).sum();
    if wrong > 0 {
        return Err(Failure::of(Kind::WrongData, format!("{} wrong", table::counted(wrong, "byte"))));
    }
    if plan.verify {
        let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
        let bytes = crate::cluster::servers::readable_bytes(bytes);
        say(format!("verified: {bytes} in {} runs, every byte right", runs.len()));
    }
    Ok(())
}

/// A bar of so many steps.
pub(crate) fn progress(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}");
    ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// All runs, in an order in which the contenders take turns.
fn measure(plan: &Plan, environment: &mut Environment) -> Result<Vec<Run>, Failure> {
    let cases = plan.cases();
    let count = cases.len() * plan.contenders.len() * usize::try_from(plan.rounds).expect("32 bits fit");
    let bar = progress(u64::try_from(count).expect("below 2^64"));
    let mut runs = Vec::with_capacity(count);
    for round in 0..plan.rounds {
        for case in &cases {
            for contender in in_turn(&plan.contenders, round) {
                let (workload, name) = (case.workload.name(), contender.name());
                bar.set_message(format!("{workload} {name} round {}", round + 1));
                let mut session = Session { plan, case, contender, round, number: runs.len() };
                let (run, wrong) =
                    session.run(environment).map_err(|failure| session.blame(environment, failure))?;
                for text in wrong {
                    bar.suspend(|| eprintln!("WRONG ({workload} {name} round {}): {text}", round + 1));
                }
                runs.push(run);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// The contenders, each round beginning with another: what comes first also pays for what is cold.
fn in_turn(contenders: &[Contender], round: u32) -> impl Iterator<Item = &Contender> {
    let first = usize::try_from(round).expect("32 bits fit") % contenders.len().max(1);
    contenders.iter().cycle().skip(first).take(contenders.len())
}

/// One run: a contender in a case in a round.
struct Session<'a> {
    plan: &'a Plan,
    case: &'a Case,
    contender: &'a Contender,
    round: u32,
    number: usize,
}

impl Session<'_> {
    fn backend(&self, environment: &mut Environment) -> Result<(Backend, PathBuf), Failure> {
        let name = format!("file-{}", self.number);
        match self.contender {
            Contender::Memcpy => Ok((Backend::Memory, PathBuf::from(name))),
            Contender::Local => Ok((Backend::Local, environment.device_path().join(name))),
            Contender::Servers(policy) => {
                let servers = environment.servers(policy);
                servers.check()?;
                let prefault_bytes = self.prefault_bytes(servers.config().cache_bytes);
                let path = servers.config().namespace.join(name);
                let config = servers.config_path().to_owned();
                Ok((Backend::Ccpfs { config, prefault_bytes }, path))
            }
        }
    }

    /// Bytes of each client's cache that are touched in advance: all that it writes, as far as half of the free memory allows.
    fn prefault_bytes(&self, cache_bytes: u64) -> u64 {
        let wanted = self.plan.prefault_bytes.unwrap_or_else(|| {
            let shape = self.plan.shape(self.case, self.round);
            // A transfer that does not fill its pages takes parts of two more.
            let pages = shape.transfer_bytes.div_ceil(PAGE_BYTES)
                + u64::from(!shape.transfer_bytes.is_multiple_of(PAGE_BYTES));
            let needed = pages * PAGE_BYTES * shape.transfer_count + PREFAULT_SLACK_BYTES;
            let available = sys::memory_available_bytes().unwrap_or(0);
            needed.min(available / 2 / u64::from(self.plan.clients))
        });
        wanted.min(cache_bytes)
    }

    fn jobs(&self, environment: &mut Environment) -> Result<Vec<Job>, Failure> {
        let (backend, path) = self.backend(environment)?;
        let turns = environment.turns(self.number)?;
        let job = |rank| Job {
            rank,
            workload: self.case.workload,
            shape: self.plan.shape(self.case, self.round),
            stripes: self.case.stripes,
            mode: self.case.mode,
            backend: backend.clone(),
            path: path.clone(),
            spoil: self.plan.spoil && rank == 0,
            turns: turns.clone(),
        };
        // A client alone is checked by one more process.
        let extra = u32::from(self.plan.verify && self.plan.clients == 1 && !self.checks_itself());
        Ok((0..self.plan.clients + extra).map(job).collect())
    }

    /// Memory cannot be read by another process.
    fn checks_itself(&self) -> bool {
        *self.contender == Contender::Memcpy
    }

    /// Runs it. Answers what was measured, and what was wrong.
    fn run(&mut self, environment: &mut Environment) -> Result<(Run, Vec<String>), Failure> {
        let jobs = self.jobs(environment)?;
        let patience = Duration::from_secs(self.plan.step_timeout_s);
        let mut crew = Crew::start(&jobs, &self.plan.settings, patience)?;
        let clients = usize::try_from(self.plan.clients).expect("32 bits fit");
        let all = |step: Step| (0..clients).map(|member| (member, step)).collect::<Vec<_>>();
        let own_files = self.case.workload.has_own_files() || self.checks_itself();
        if own_files {
            crew.step(&all(Step::Create))?;
        } else {
            crew.step(&[(0, Step::Create)])?;
            if clients > 1 {
                crew.step(&all(Step::Open)[1..])?;
            }
        }
        environment.settle()?;
        let written = crew.step(&all(Step::Write))?;
        let mut wrong = Wrong::default();
        if self.case.workload == Workload::Overlap && !self.checks_itself() {
            // Before the flush: what the readers need is still dirty in the writers' caches.
            wrong.add(&crew.step(&all(Step::Identify))?);
        }
        let flushed = crew.step(&all(Step::Flush))?;
        if self.plan.verify && self.case.workload != Workload::Overlap {
            wrong.add(&crew.step(&self.verify_steps())?);
        }
        crew.step(&if own_files { all(Step::Remove) } else { vec![(0, Step::Remove)] })?;
        crew.finish()?;
        Ok((self.measured(&written, &flushed, &wrong), wrong.texts))
    }

    /// A run failed: if one of its servers has ended, that is why.
    fn blame(&self, environment: &mut Environment, failure: Failure) -> Failure {
        match self.contender {
            Contender::Servers(policy) if !sys::interrupted() => match environment.servers(policy).check() {
                Ok(()) => failure,
                Err(ended) => Failure::new(format!("{ended}\n{failure}")),
            },
            Contender::Servers(_) | Contender::Local | Contender::Memcpy => failure,
        }
    }

    /// Each process reads what the next one wrote.
    fn verify_steps(&self) -> Vec<(usize, Step)> {
        let clients = self.plan.clients;
        let member = |rank: u32| usize::try_from(rank).expect("32 bits fit");
        if self.checks_itself() {
            return (0..clients).map(|rank| (member(rank), Step::Verify { of: rank })).collect();
        }
        if clients == 1 {
            return vec![(1, Step::Verify { of: 0 })];
        }
        (0..clients).map(|rank| (member(rank), Step::Verify { of: (rank + 1) % clients })).collect()
    }

    fn measured(&self, written: &[Report], flushed: &[Report], wrong: &Wrong) -> Run {
        let shape = self.plan.shape(self.case, self.round);
        let writes = shape.transfer_count * u64::from(shape.clients);
        let bytes = writes * shape.transfer_bytes;
        let (pio, flush) = (Phase::of(written), Phase::of(flushed));
        let counters = result::sum(written);
        let speed = |seconds: f64| if seconds > 0.0 { result::float(bytes) / seconds } else { 0.0 };
        Run {
            policy: self.contender.name(),
            pattern: self.case.workload.name().to_owned(),
            mode: self.case.mode.map(Mode::name),
            transfer_bytes: shape.transfer_bytes,
            clients: shape.clients,
            servers: self.plan.servers,
            stripes: self.case.stripes,
            round: self.round,
            bytes,
            writes,
            pio_seconds: pio.seconds,
            flush_seconds: flush.seconds,
            pio_bytes_per_second: speed(pio.seconds),
            total_bytes_per_second: speed(pio.seconds + flush.seconds),
            lock_requests: counters.lock_requests,
            revocations: counters.revocations,
            early_grants: counters.early_grants,
            early_revocations: counters.early_revocations,
            lock_wait_seconds: result::seconds(counters.lock_wait_ns),
            client_pio_seconds: pio.client_seconds,
            verified: self.plan.verify && wrong.bytes == 0,
            verify_seconds: wrong.seconds,
            wrong_bytes: self.plan.verify.then_some(wrong.bytes),
            counters,
        }
    }
}

/// Wrong bytes of a run.
#[derive(Default)]
struct Wrong {
    bytes: u64,
    /// How long it took to find out; absent when nobody looked.
    seconds: Option<f64>,
    texts: Vec<String>,
}

impl Wrong {
    /// Takes in what all readers reported about one step.
    fn add(&mut self, reports: &[Report]) {
        self.seconds = Some(Phase::of(reports).seconds);
        for report in reports {
            self.bytes += report.wrong_bytes;
            self.texts.extend(report.wrong_parts.iter().map(result::describe_wrong));
        }
        let winners: Vec<Option<(u32, u64)>> = reports.iter().map(|report| report.winner).collect();
        if let Some(text) = overlap::judge(&winners) {
            self.bytes += 1;
            self.texts.push(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_contender_and_leaves_none_out() {
        let contenders = ["seqdlm", "basic", "local"].map(|name| Contender::named(name).unwrap());
        let order = |round| in_turn(&contenders, round).map(Contender::name).collect::<Vec<_>>().join(" ");
        assert_eq!(order(0), "seqdlm basic local");
        assert_eq!(order(2), "local seqdlm basic");
        assert_eq!(order(3), order(0));
    }

    #[test]
    fn what_readers_report_adds_up() {
        let mut wrong = Wrong::default();
        wrong.add(&[Report::default(), Report { wrong_bytes: 3, ..Report::default() }]);
        wrong.add(&[
            Report { winner: Some((0, 1)), ..Report::default() },
            Report { winner: Some((1, 1)), ..Report::default() },
        ]);
        assert_eq!((wrong.bytes, wrong.texts.len()), (4, 1));
    }
}
