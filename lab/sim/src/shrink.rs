//! Shrinking: the smallest plan that still breaks the same promise.
//!
//! Calls and faults are left out in ever smaller groups, then settings go back to their defaults, then thinking times to
//! nothing. Luck depends on what happens, so each candidate is tried with a few seeds.

use crate::config::Config;
use crate::run::{Failure, run};
use crate::workload::plan::Plan;

/// Seeds that a candidate is tried with.
const SEEDS: u64 = 6;

/// What came of shrinking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shrunk {
    /// The smallest plan found.
    pub plan: Plan,
    /// How it fails.
    pub failure: Failure,
    /// Runs that were made.
    pub runs: u64,
}

/// Runs after which a plan is small enough.
const RUNS_MAX: u64 = 20_000;

struct Shrinker<'a> {
    best: Plan,
    failure: Failure,
    runs: u64,
    progress: &'a mut dyn FnMut(usize, usize),
}

/// Shrinks a plan. `None` if it does not fail. `progress` is told how many calls and faults are left.
#[must_use]
pub fn shrink(plan: &Plan, progress: &mut dyn FnMut(usize, usize)) -> Option<Shrunk> {
    let failure = run(plan, false).failure?;
    let mut shrinker = Shrinker { best: plan.clone(), failure, runs: 1, progress };
    loop {
        let before = shrinker.best.clone();
        shrinker.leave_out_faults();
        shrinker.leave_out_calls();
        shrinker.simplify_settings();
        shrinker.stop_thinking();
        if shrinker.best == before || shrinker.is_tired() {
            let Shrinker { best, failure, runs, .. } = shrinker;
            return Some(Shrunk { plan: best, failure, runs });
        }
    }
}

/// Whether two failures are of one kind.
fn is_same(a: &Failure, b: &Failure) -> bool {
    // Assertions are told apart by their text.
    let head = |failure: &Failure| failure.what.chars().take(40).collect::<String>();
    a.rule == b.rule && (!a.rule.contains("assertion") || head(a) == head(b))
}

impl Shrinker<'_> {
    fn is_tired(&self) -> bool {
        self.runs >= RUNS_MAX
    }

    /// Takes the candidate if it fails in the same way, with its own seed or another.
    fn try_plan(&mut self, candidate: &Plan) -> bool {
        for luck in 0..SEEDS {
            if self.is_tired() {
                return false;
            }
            self.runs += 1;
            let mut plan = candidate.clone();
            plan.seed = plan.seed.wrapping_add(luck);
            if let Some(failure) = run(&plan, false).failure.filter(|failure| is_same(failure, &self.failure))
            {
                (self.progress)(plan.calls.len(), plan.faults.len());
                self.best = plan;
                self.failure = failure;
                return true;
            }
        }
        false
    }

    fn leave_out_calls(&mut self) {
        self.leave_out(
            |plan| plan.calls.len(),
            |plan, from, to| {
                plan.calls.drain(from..to);
            },
        );
    }

    fn leave_out_faults(&mut self) {
        self.leave_out(
            |plan| plan.faults.len(),
            |plan, from, to| {
                plan.faults.drain(from..to);
            },
        );
    }

    /// Leaves out groups of items, half of them at first, in the end single ones.
    fn leave_out(&mut self, count: fn(&Plan) -> usize, drain: fn(&mut Plan, usize, usize)) {
        let mut size = count(&self.best).div_ceil(2);
        while size > 0 {
            let mut from = 0;
            while from < count(&self.best) && !self.is_tired() {
                let mut candidate = self.best.clone();
                let to = (from + size).min(count(&candidate));
                drain(&mut candidate, from, to);
                if !self.try_plan(&candidate) {
                    from += size;
                }
            }
            size /= 2;
        }
    }

    /// Settings that do not matter go back to their defaults.
    fn simplify_settings(&mut self) {
        let plain = Config::default();
        for (name, default) in plain.settings() {
            let mut candidate = self.best.clone();
            let line = format!("set {name} {default}");
            if candidate.config.read_line(&line).is_some() && candidate.config != self.best.config {
                self.try_plan(&candidate);
            }
        }
        while self.best.config.files.len() > 1 {
            let mut candidate = self.best.clone();
            candidate.config.files.pop();
            if !self.try_plan(&candidate) {
                return;
            }
        }
    }

    fn stop_thinking(&mut self) {
        for at in 0..self.best.calls.len() {
            if self.best.calls[at].after_ns > 0 {
                let mut candidate = self.best.clone();
                candidate.calls[at].after_ns = 0;
                self.try_plan(&candidate);
            }
        }
    }
}
