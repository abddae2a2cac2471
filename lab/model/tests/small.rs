//! The small worlds, searched with every build.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_model::check::Limits;
use ccpfs_model::endless::{Circles, circles};
use ccpfs_model::mark::Mark;
use ccpfs_model::{CONFIGS, Config, Outcome, check};
use std::collections::BTreeSet;

#[test]
//= protocol.md#I1 type=test
//= protocol.md#I3 type=test
//= protocol.md#I4 type=test
//= protocol.md#I5 type=test
//= protocol.md#I6 type=test
//= protocol.md#I8 type=test
fn small_worlds_hold_in_every_order_of_events() {
    let limits = Limits { states_max: Some(0), time_max: None, threads: 2 };
    let mut met: BTreeSet<String> = BTreeSet::new();
    for config in CONFIGS.iter().filter(|config| config.small) {
        let report = check(config, &limits);
        if let Outcome::Violation { what, path } = &report.outcome {
            panic!("{}: {what}\n{}", config.name, path.join("\n"));
        }
        assert_eq!(report.outcome, Outcome::Exhausted, "{}", config.name);
        met.extend(report.marks.iter().map(|mark| format!("{mark:?}")));
    }
    let rare = [Mark::TwoTasks, Mark::Failed];
    let missing: Vec<Mark> = Mark::ALL
        .into_iter()
        .filter(|mark| !rare.contains(mark) && !met.contains(&format!("{mark:?}")))
        .collect();
    assert_eq!(missing, [], "the small worlds are not empty of what they are for");
}

#[test]
//= protocol.md#I8 type=test
fn who_tries_for_locks_by_turns_does_not_do_so_for_ever() {
    for name in ["alt-try", "parts-alt-try"] {
        match circles(Config::named(name).unwrap(), 0) {
            Circles::None { states } => assert!(states > 50, "{name}: {states}"),
            Circles::Unknown { states } => panic!("{name}: {states} states are not all"),
            Circles::Found { path } => panic!("{name}: for ever\n{}", path.join("\n")),
        }
    }
}

#[test]
fn configurations_have_names_of_their_own() {
    let names: BTreeSet<&str> = CONFIGS.iter().map(|config| config.name).collect();
    assert_eq!(names.len(), CONFIGS.len());
}
