//! Leads servers and processes through all rounds, and shows what came out.

use super::args::{Contender, Plan};
use super::check::circle;
use super::pattern::Pattern;
use super::protocol::{RegionJob, RegionStep};
use super::result::{self, Amount, Document, Run, Setup};
use super::{figure, table};
use crate::bench::coordinator::progress;
use crate::bench::crew::Crew;
use crate::bench::environment::{ServerPlan, ServerSet, temporary};
use crate::bench::protocol::Report;
use crate::bench::report::create_parent;
use crate::bench::result::describe_wrong;
use crate::bench::table::counted;
use crate::cluster::servers::{readable_bytes, without_own_settings};
use crate::failure::{Context, Failure, Kind, say};
use crate::sys;
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Measures everything, then shows and writes the results.
pub(crate) fn run(plan: &Plan) -> Result<(), Failure> {
    sys::catch_interrupts();
    let amount = amount(&plan.pattern)?;
    let mut stage = Stage::start(plan)?;
    let measured = measure(plan, amount, &mut stage);
    let measured = measured.map_err(|failure| match stage.check() {
        Err(ended) if !sys::interrupted() => Failure::new(format!("{ended}\n{failure}")),
        Ok(()) | Err(_) => failure,
    });
    drop(stage);
    let (runs, wrong) = measured?;
    let lines = result::summaries(plan, &runs);
    say(table::render(plan, amount, &lines));
    if let Some(path) = &plan.json {
        let document = Document { setup: Setup::of(plan), runs: &runs, summary: &lines };
        let failed = || format!("cannot write {}", path.display());
        let text = serde_json::to_string_pretty(&document).context(failed)?;
        create_parent(path)?;
        std::fs::write(path, text + "\n").context(failed)?;
        say(format!("results: {}", path.display()));
    }
    if let Some(path) = &plan.plot {
        figure::draw(path, plan, &lines)?;
        say(format!("plot: {}", path.display()));
    }
    if wrong > 0 {
        return Err(Failure::of(Kind::WrongData, format!("{} wrong", counted(wrong, "byte"))));
    }
    if plan.verify {
        let bytes = readable_bytes(runs.iter().map(|run| run.bytes).sum());
        let atomic = plan.contenders.iter().any(|contender| contender.way.is_atomic());
        let order =
            if atomic && plan.pattern.overlaps() { "; atomic calls took place in some order" } else { "" };
        say(format!("verified: {bytes} in {} runs, every byte right{order}", runs.len()));
    }
    Ok(())
}

/// How much all processes write.
fn amount(pattern: &Pattern) -> Result<Amount, Failure> {
    let mut amount = Amount::default();
    for rank in 0..pattern.ranks() {
        let operations = pattern.operations(rank);
        let operations = operations.map_err(|error| Failure::usage(format!("rank {rank}: {error:?}")))?;
        for operation in operations {
            amount.operations += 1;
            amount.bytes += operation.region.length_bytes();
            amount.pieces += operation.region.piece_count();
        }
    }
    Ok(amount)
}

/// Directories, and a cluster for each lock manager. Servers end before their directories go.
struct Stage {
    sets: Vec<(String, ServerSet)>,
    folder: TempDir,
    device: TempDir,
}

impl Stage {
    fn start(plan: &Plan) -> Result<Stage, Failure> {
        let device = temporary(plan.device_dir.as_deref())?;
        let mut stage = Stage { sets: Vec::new(), folder: temporary(None)?, device };
        for contender in plan.contenders.iter().filter(|contender| !contender.is_local()) {
            if stage.sets.iter().any(|(policy, _)| *policy == contender.policy) {
                continue;
            }
            let server_plan = ServerPlan {
                policy: &contender.policy,
                servers: plan.servers,
                shards: plan.shards,
                tcp: plan.tcp,
                device_bandwidth: plan.device_bandwidth,
                settings: &plan.settings,
            };
            let number = stage.sets.len().to_string();
            let (folder, data) = (stage.folder.path().join(&number), stage.device.path().join(&number));
            stage.sets.push((contender.policy.clone(), ServerSet::start(&folder, &data, &server_plan)?));
        }
        Ok(stage)
    }

    fn servers(&self, policy: &str) -> Option<&ServerSet> {
        self.sets.iter().find(|(name, _)| name == policy).map(|(_, set)| set)
    }

    /// An error if one of the servers has ended.
    fn check(&mut self) -> Result<(), Failure> {
        self.sets.iter_mut().try_for_each(|(_, set)| set.check())
    }

    /// Lets the device finish what runs before left to write.
    fn settle(&self) -> Result<(), Failure> {
        let path: &Path = self.device.path();
        let synced = File::open(path).and_then(|folder| sys::sync_file_system(&folder));
        synced.context(|| format!("cannot sync {}", path.display()))
    }
}

/// All runs, in an order in which the contenders take turns, and how many bytes were wrong.
fn measure(plan: &Plan, amount: Amount, stage: &mut Stage) -> Result<(Vec<Run>, u64), Failure> {
    let count =
        plan.stripes.len() * plan.contenders.len() * usize::try_from(plan.rounds).expect("32 bits fit");
    let bar = progress(u64::try_from(count).expect("below 2^64"));
    let (mut runs, mut wrong) = (Vec::with_capacity(count), 0);
    for round in 0..plan.rounds {
        for stripes in &plan.stripes {
            let first = usize::try_from(round).expect("32 bits fit") % plan.contenders.len();
            let in_turn = plan.contenders.iter().cycle().skip(first).take(plan.contenders.len());
            for contender in in_turn {
                let name = contender.name();
                bar.set_message(format!(
                    "{name}, {} round {}",
                    counted(u64::from(*stripes), "stripe"),
                    round + 1
                ));
                stage.check()?;
                let mut session = Session { plan, contender, stripes: *stripes, round, number: runs.len() };
                let (run, verdict) = session.run(stage, amount)?;
                for text in &verdict.texts {
                    bar.suspend(|| eprintln!("WRONG ({name} round {}): {text}", round + 1));
                }
                wrong += verdict.bytes;
                runs.push(run);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok((runs, wrong))
}

/// What readers found wrong.
#[derive(Debug, Default)]
struct Verdict {
    bytes: u64,
    texts: Vec<String>,
}

impl Verdict {
    fn of(reports: &[Report], atomic: bool) -> Verdict {
        let mut verdict = Verdict::default();
        let mut beats = BTreeSet::new();
        for report in reports {
            verdict.bytes += report.wrong_bytes;
            verdict.texts.extend(report.wrong_parts.iter().map(describe_wrong));
            beats.extend(report.beats.iter().copied());
        }
        if let Some(ranks) = circle(&beats).filter(|_| atomic) {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            verdict.bytes += 1;
            verdict.texts.push(format!(
                "the calls of ranks {} took place in no order: each is seen where the next wrote too, the last where the first did",
                ranks.join(", ")
            ));
        }
        verdict
    }
}

/// One run: a contender in a round.
struct Session<'a> {
    plan: &'a Plan,
    contender: &'a Contender,
    stripes: u32,
    round: u32,
    number: usize,
}

impl Session<'_> {
    /// The pattern as this contender writes it.
    fn pattern(&self) -> Pattern {
        match self.plan.pattern {
            Pattern::Collective(mut aggregators) => {
                aggregators.own_files = self.contender.way.has_own_files();
                Pattern::Collective(aggregators)
            }
            other @ (Pattern::TileIo(_) | Pattern::S3d(_) | Pattern::S3asim(_)) => other,
        }
    }

    fn jobs(&self, stage: &Stage) -> Vec<RegionJob> {
        let name = format!("file-{}", self.number);
        let servers = stage.servers(&self.contender.policy);
        let path = match servers {
            Some(servers) => servers.config().namespace.join(name),
            None => stage.device.path().join(name),
        };
        let ranks = self.plan.pattern.ranks();
        // A process alone is checked by one more.
        let extra = u32::from(self.plan.verify && ranks == 1);
        let job = |rank| RegionJob {
            rank,
            pattern: self.pattern(),
            way: self.contender.way,
            round: self.round,
            stripes: self.stripes,
            stripe_bytes: self.plan.stripe_bytes,
            config: servers.map(|servers| servers.config_path().to_owned()),
            path: path.clone(),
            spoil: self.plan.spoil && rank == 0,
            prefault_bytes_max: sys::memory_available_bytes().unwrap_or(0) / 2 / u64::from(ranks),
        };
        (0..ranks + extra).map(job).collect()
    }

    fn crew(&self, stage: &Stage) -> Result<Crew, Failure> {
        let binary = std::env::current_exe().context(|| "cannot find this program's file".to_owned())?;
        let call = |job| {
            let mut command = Command::new(&binary);
            without_own_settings(&mut command);
            command.args(["bench", "regions-client", "--parent"]).arg(std::process::id().to_string());
            command.envs(self.plan.settings.iter().cloned());
            (command, job)
        };
        let patience = Duration::from_secs(self.plan.step_timeout_s);
        Crew::launch(self.jobs(stage).into_iter().map(call), patience)
    }

    /// Runs it. Answers what was measured, and what was wrong.
    fn run(&mut self, stage: &Stage, amount: Amount) -> Result<(Run, Verdict), Failure> {
        let ranks = self.plan.pattern.ranks();
        let member = |rank: u32| usize::try_from(rank).expect("32 bits fit");
        let all = |step: RegionStep| (0..member(ranks)).map(|at| (at, step)).collect::<Vec<_>>();
        let mut crew = self.crew(stage)?;
        let mut lead = |steps: Vec<(usize, RegionStep)>| crew.step(&steps);
        let own_files = self.contender.way.has_own_files();
        if own_files {
            lead(all(RegionStep::Create))?;
        } else {
            lead(vec![(0, RegionStep::Create)])?;
            lead(all(RegionStep::Open).split_off(1))?;
        }
        stage.settle()?;
        let written = lead(all(RegionStep::Write))?;
        let flushed = lead(all(RegionStep::Flush))?;
        let mut verdict = Verdict::default();
        if self.plan.verify {
            let reader = |of: u32| if ranks == 1 { 1 } else { member((of + 1) % ranks) };
            let steps = (0..ranks).map(|of| (reader(of), RegionStep::Verify { of })).collect();
            verdict = Verdict::of(&lead(steps)?, self.contender.way.is_atomic());
        }
        lead(if own_files { all(RegionStep::Remove) } else { vec![(0, RegionStep::Remove)] })?;
        crew.finish()?;
        let mut run = result::measured(self.contender, self.stripes, self.round, amount, &written, &flushed);
        run.verified = self.plan.verify && verdict.bytes == 0;
        Ok((run, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::regions::args::tests::picture;

    #[test]
    fn what_is_written_is_counted_with_its_calls_and_pieces() {
        let amount = amount(&picture()).unwrap();
        assert_eq!((amount.bytes, amount.operations, amount.pieces), (2 * 4 * 3 * 4, 2, 6));
    }

    #[test]
    fn calls_in_no_order_are_wrong_only_if_they_are_atomic() {
        let report = |beats| Report { beats, ..Report::default() };
        let reports = [report(vec![(0, 1)]), report(vec![(1, 2), (2, 0)])];
        let verdict = Verdict::of(&reports, true);
        assert!(verdict.bytes == 1 && verdict.texts[0].contains("0, 1, 2"), "{verdict:?}");
        assert_eq!(Verdict::of(&reports, false).bytes, 0);
        assert_eq!(Verdict::of(&reports[..1], true).bytes, 0);
    }
}
