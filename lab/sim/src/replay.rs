//! Replay: one run again, with a line of text for everything that happens.

use crate::run::{Report, run};
use crate::swarm;
use crate::workload::plan::Plan;
use std::fmt::Write as _;

/// The run of a seed, as text: the plan, what happened, and the verdict. The report tells the verdict alone.
#[must_use]
pub fn replay(seed: u64) -> (String, Report) {
    replay_plan(&swarm::plan(seed))
}

/// As [`replay`], of a plan.
#[must_use]
pub fn replay_plan(plan: &Plan) -> (String, Report) {
    let report = run(plan, true);
    let mut text = format!("# the plan\n{}\n# the run\n{}", plan.to_text(), report.trace);
    let verdict = match &report.failure {
        Some(failure) => failure.to_string(),
        None => String::from("nothing was broken"),
    };
    let _ = writeln!(text, "\n# {verdict}\n# {} events, digest {:016x}", report.events, report.digest);
    (text, report)
}
