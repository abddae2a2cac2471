//! One run of a plan, from the first call to the last look at the devices, and what the checkers say.

use crate::Seen;
use crate::checkers::{self, Gaps};
use crate::history::{Call, Comb, Outcome};
use crate::workload::plan::{FaultPlan, Plan, Planned};
use crate::workload::{Work, Workload};
use crate::world::World;
use ccpfs_types::Extent;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Events after which a small world is taken for one that never ends.
const EVENTS_MAX: u64 = 300_000;

/// How a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which promise was broken, in a few words: the same for failures of the same kind.
    pub rule: String,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was broken, if anything.
    pub failure: Option<Failure>,
    /// Gaps that the documents admit.
    pub gaps: Gaps,
    /// Nothing was lost, ended or broken: the strictest checks applied.
    pub undisturbed: bool,
    /// What was met of what is rare.
    pub seen: Seen,
    /// A number that is the same for the same run.
    pub digest: u64,
    /// Events that happened.
    pub events: u64,
    /// Virtual time that passed, nanoseconds.
    pub virtual_ns: u64,
    /// A line for everything that happened, if it was asked for.
    pub trace: String,
}

/// Runs a plan. A panic of a rule is a failure like others.
#[must_use]
pub fn run(plan: &Plan, trace: bool) -> Report {
    let workload = Planned::new(plan);
    let mut world = World::new(&plan.config, plan.seed, workload, &plan.faults, trace);
    world.events_max = EVENTS_MAX;
    let outcome = catch_unwind(AssertUnwindSafe(|| live(&mut world, plan)));
    let (failure, gaps) = match outcome {
        Ok(Ok(gaps)) => (None, gaps),
        Ok(Err(failure)) => (Some(failure), Gaps::default()),
        Err(panic) => {
            let what = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
                .unwrap_or_default();
            (Some(Failure { rule: String::from("a rule's own assertion"), what }), Gaps::default())
        }
    };
    Report {
        failure,
        gaps,
        undisturbed: world.history().is_some_and(crate::history::History::is_undisturbed),
        seen: world.seen(),
        digest: world.digest(),
        events: world.events(),
        virtual_ns: world.now_ns(),
        trace: world.take_trace(),
    }
}

/// Lets a world live: the storm, the calm, the flush of everything, a last reader, the end.
fn live(world: &mut World<Planned>, plan: &Plan) -> Result<Gaps, Failure> {
    let patience = patience_ns(plan);
    let calm_ns = plan.faults.iter().map(|fault| fault.at_ns + duration_ns(fault.kind)).max().unwrap_or(0);
    world.run(calm_ns);
    world.calm();
    let until = world.now_ns().max(calm_ns) + patience;
    if !world.run(until) {
        return Err(stuck(world, "calls have not returned"));
    }
    world.take_over();
    let until = world.now_ns().max(calm_ns) + patience;
    if !world.run_until(until, World::is_whole) {
        return Err(stuck(world, "processes are not back"));
    }
    flush_everything(world, plan, patience)?;
    read_everything(world, plan, patience)?;
    world.look_at_devices();
    end(world, patience)?;
    if let Some(complaint) = world.complaint() {
        return Err(Failure { rule: String::from("complaint"), what: complaint.to_owned() });
    }
    if let Some(violation) = world.violation() {
        return Err(failure(violation.clone()));
    }
    let history = world.history().expect("plans keep contents");
    checkers::check(history).map_err(failure)
}

fn failure(violation: checkers::Violation) -> Failure {
    Failure { rule: violation.rule.to_string(), what: violation.what }
}

/// Longer than anything that behaves can take once faults have stopped.
fn patience_ns(plan: &Plan) -> u64 {
    let (client, server) = (plan.config.client, plan.config.server);
    let slowest = client.server_timeout_ns.max(client.connect_timeout_ns).max(server.revoke_timeout_ns);
    // A slow device moves everything by and by, in small flushes.
    let disk = plan.config.disk;
    40 * slowest + 800 * (disk.latency_ns + disk.jitter_ns)
}

fn duration_ns(kind: FaultPlan) -> u64 {
    match kind {
        FaultPlan::Partition { for_ns, .. }
        | FaultPlan::FreezeClient { for_ns, .. }
        | FaultPlan::FreezeServer { for_ns, .. }
        | FaultPlan::CrashClient { for_ns, .. }
        | FaultPlan::KillServer { for_ns, .. }
        | FaultPlan::LosePower { for_ns, .. }
        | FaultPlan::DeviceErrors { for_ns, .. } => for_ns,
        FaultPlan::Cut { .. }
        | FaultPlan::Leave { .. }
        | FaultPlan::Shrink { .. }
        | FaultPlan::Reclaim { .. } => 0,
    }
}

fn stuck<W: Workload>(world: &World<W>, what: &str) -> Failure {
    match world.complaint() {
        Some(complaint) => Failure { rule: String::from("complaint"), what: complaint.to_owned() },
        None => Failure {
            rule: checkers::Rule::Turn.to_string(),
            what: format!("{what} after {} ms of calm: {}", world.now_ns() / 1_000_000, world.standing()),
        },
    }
}

/// Every client flushes every file, until nothing is dirty: the first time may report old errors.
fn flush_everything(world: &mut World<Planned>, plan: &Plan, patience: u64) -> Result<(), Failure> {
    for _ in 0..4 {
        for file in 0..plan.config.files.len() {
            let file = u32::try_from(file).expect("files are few");
            for client in 0..u32::try_from(plan.config.sizes.clients).expect("clients are few") {
                world.call(client, 0, Work::Flush { file });
            }
            let until = world.now_ns() + patience;
            if !world.run_until(until, World::is_quiet) {
                return Err(stuck(world, "a flush has not returned"));
            }
        }
        if world.is_clean() {
            return Ok(());
        }
    }
    Err(stuck(world, "data stay dirty"))
}

/// A new client asks the size of every file and reads all of it.
fn read_everything(world: &mut World<Planned>, plan: &Plan, patience: u64) -> Result<(), Failure> {
    let reader = world.add_client();
    for file in 0..plan.config.files.len() {
        let file = u32::try_from(file).expect("files are few");
        world.call(reader, 0, Work::Call(Call::Size { file }));
        finish(world, patience)?;
        let last = world.history().and_then(|history| history.operations.last());
        let size = match last.and_then(|operation| operation.outcome.clone()) {
            Some(Ok(Outcome::Size { length })) => length,
            other => {
                let what = format!("the size of f{file} cannot be had in calm: {other:?}");
                return Err(Failure { rule: checkers::Rule::Turn.to_string(), what });
            }
        };
        if let Some(extent) = Extent::new(0, size) {
            world.call(reader, 0, Work::Call(Call::Read { file, extent, comb: Comb::NONE }));
            finish(world, patience)?;
        }
    }
    Ok(())
}

fn finish(world: &mut World<Planned>, patience: u64) -> Result<(), Failure> {
    let until = world.now_ns() + patience;
    if world.run_until(until, World::is_quiet) {
        return Ok(());
    }
    Err(stuck(world, "the last reader's call has not returned"))
}

/// All clients leave; then the servers must have nothing left.
fn end(world: &mut World<Planned>, patience: u64) -> Result<(), Failure> {
    world.leave();
    let until = world.now_ns() + patience;
    if world.run_until(until, World::is_empty) {
        return Ok(());
    }
    let what = format!("servers keep what belongs to nobody: {}", world.leftovers());
    Err(Failure { rule: String::from("nothing is left at the end"), what })
}
