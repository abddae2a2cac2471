//! Leads clients through all rounds, or the rules alone, and shows what came out.

use super::args::{Case, LocksArguments, Plan};
use super::asker::Asker;
use super::result::{Document, Run, Setup, summaries};
use super::table;
use crate::bench::coordinator::progress;
use crate::bench::environment::{ServerPlan, ServerSet, temporary};
use crate::bench::report::create_parent;
use crate::bench::result::float;
use crate::failure::{Context, Failure, say};
use crate::sys;
use ccpfs_region::Region;
use ccpfs_sim::figures::lock_rules;
use ccpfs_sim::figures::taking::{Protocol, Request, cut};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// How long the rules alone are measured, at least: descriptions take microseconds.
const RULES_LEAST: Duration = Duration::from_millis(200);

/// Measures everything, then shows and writes the results.
pub(crate) fn run(arguments: &LocksArguments) -> Result<(), Failure> {
    let plan = arguments.plan()?;
    sys::catch_interrupts();
    let runs = if plan.rules { rules(&plan)? } else { with_servers(&plan)? };
    let lines = summaries(&plan, &runs);
    say(table::render(&plan, &lines));
    if let Some(path) = &plan.json {
        let document = Document { setup: Setup::of(&plan), runs: &runs, summary: &lines };
        let failed = || format!("cannot write {}", path.display());
        let text = serde_json::to_string_pretty(&document).context(failed)?;
        create_parent(path)?;
        std::fs::write(path, text + "\n").context(failed)?;
        say(format!("results: {}", path.display()));
    }
    if let Some(path) = &plan.plot {
        table::draw(path, &plan, &lines)?;
        say(format!("plot: {}", path.display()));
    }
    Ok(())
}

fn regions(plan: &Plan, case: &Case) -> Vec<Region> {
    (0..plan.clients).map(|rank| case.region(rank, plan.locks)).collect()
}

/// All cases in all rounds, by a function that measures one.
fn each(
    plan: &Plan,
    mut measure: impl FnMut(&Case, u32) -> Result<Run, Failure>,
) -> Result<Vec<Run>, Failure> {
    let count = plan.cases.len() * usize::try_from(plan.rounds).expect("32 bits fit");
    let bar = progress(u64::try_from(count).expect("below 2^64"));
    let mut runs = Vec::with_capacity(count);
    for round in 0..plan.rounds {
        for case in &plan.cases {
            bar.set_message(format!("{} round {}", case.name(), round + 1));
            runs.push(measure(case, round)?);
            if sys::interrupted() {
                return Err(Failure::interrupted());
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// The rules alone.
fn rules(plan: &Plan) -> Result<Vec<Run>, Failure> {
    let policy = plan.policy.parse().expect("checked with the options");
    each(plan, |case, round| {
        let rates = lock_rules::rates(&regions(plan, case), &plan.layout, case.kind, policy, RULES_LEAST);
        let rates = rates.map_err(Failure::new)?;
        Ok(Run {
            name: case.name(),
            gap_bytes: case.gap_bytes,
            overlap_percent: case.overlap_percent,
            round,
            requests: rates.requests,
            acquired_per_second: rates.acquire,
            released_per_second: Some(rates.release),
            both_per_second: None,
            acquired_with_cut_per_second: Some(rates.acquire_with_cut),
        })
    })
}

/// Real servers.
fn with_servers(plan: &Plan) -> Result<Vec<Run>, Failure> {
    let folder = temporary(None)?;
    let server_plan = ServerPlan {
        policy: &plan.policy,
        servers: plan.layout.stripe_count(),
        shards: 1,
        tcp: plan.tcp,
        device_bandwidth: None,
        settings: &plan.settings,
    };
    let mut servers = ServerSet::start(folder.path(), &folder.path().join("data"), &server_plan)?;
    let mut file = 0;
    let runs = each(plan, |case, round| {
        file += 1;
        servers.check()?;
        one(plan, case, round, &servers, file)
    });
    runs.map_err(|failure| match servers.check() {
        Err(ended) if !sys::interrupted() => Failure::new(format!("{ended}\n{failure}")),
        Ok(()) | Err(_) => failure,
    })
}

/// What the clients of a phase do, each in a thread of its own; the seconds from the moment all may begin to the end of the last.
fn together<T: Send>(
    askers: &mut [Asker],
    parts: Vec<T>,
    act: impl Fn(&mut Asker, T) -> Result<(), Failure> + Sync,
) -> Result<f64, Failure> {
    let gate = Barrier::new(askers.len() + 1);
    std::thread::scope(|scope| {
        let (act, gate) = (&act, &gate);
        let begin = |(asker, part)| {
            scope.spawn(move || {
                gate.wait();
                act(asker, part)
            })
        };
        let threads: Vec<_> = askers.iter_mut().zip(parts).map(begin).collect();
        gate.wait();
        let start = Instant::now();
        threads.into_iter().try_for_each(|thread| thread.join().expect("does not panic"))?;
        Ok(start.elapsed().as_secs_f64())
    })
}

/// One case in one round.
fn one(plan: &Plan, case: &Case, round: u32, servers: &ServerSet, file: u64) -> Result<Run, Failure> {
    let protocol = case.protocol.unwrap_or(Protocol::AltTry);
    let addresses = &servers.config().servers;
    let mut askers = (0..plan.clients)
        .map(|number| Asker::connect(addresses, number, file))
        .collect::<Result<Vec<Asker>, Failure>>()?;
    let acquire = |asker: &mut Asker, region: Region| {
        // What the client does with its region is part of asking for locks.
        let requests: Vec<Request> = cut(&region, &plan.layout, case.kind);
        asker.acquire(requests, protocol)
    };
    let phases = if case.overlap_percent == 0 {
        let acquire_s = together(&mut askers, regions(plan, case), acquire)?;
        let nothing = vec![(); askers.len()];
        Some((acquire_s, together(&mut askers, nothing, |asker, ()| asker.release())?))
    } else {
        None
    };
    let before: u64 = askers.iter().map(|asker| asker.asked).sum();
    let both_s = together(&mut askers, regions(plan, case), |asker, region| {
        acquire(asker, region)?;
        asker.release()
    })?;
    let asked: u64 = askers.iter().map(|asker| asker.asked).sum();
    let locks = float(plan.locks * u64::from(plan.clients));
    Ok(Run {
        name: case.name(),
        gap_bytes: case.gap_bytes,
        overlap_percent: case.overlap_percent,
        round,
        requests: asked - before,
        acquired_per_second: locks / phases.map_or(both_s, |(acquire_s, _)| acquire_s),
        released_per_second: phases.map(|(_, release_s)| locks / release_s),
        both_per_second: Some(locks / both_s),
        acquired_with_cut_per_second: None,
    })
}
