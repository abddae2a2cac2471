//! The mode table against the paper: Table II as printed, Fig. 9 as a graph.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_types::{LockMode, LockState};
use std::collections::{BTreeMap, BTreeSet};

/// Paper Table II. Row: mode of a new lock request; column: mode of a granted lock. N/Y: incompatible with it while it is GRANTED,
/// compatible while it is CANCELING.
const TABLE_II: &str = "
        PR   NBW   BW   PW
    PR  Y    N     N    N
    NBW N    N/Y   N    N
    BW  N    N/Y   N    N
    PW  N    N     N    N
";

/// Paper Fig. 9: from each mode to the next more restrictive one that it can be upgraded to.
const UPGRADES: &str = "NBW>BW BW>PW PR>PW";

/// Paper Fig. 9 and III-D2: what a lock can be lowered to while it is canceled.
const DOWNGRADES: &str = "BW>NBW PW>NBW PW>PR";

fn mode(name: &str) -> LockMode {
    LockMode::ALL.into_iter().find(|mode| mode.to_string() == name).unwrap()
}

fn edges(text: &str) -> Vec<(LockMode, LockMode)> {
    text.split(' ')
        .map(|edge| {
            let (from, to) = edge.split_once('>').unwrap();
            (mode(from), mode(to))
        })
        .collect()
}

/// Each mode with all that can be reached from it by upgrades, itself included.
fn upgrades() -> BTreeMap<LockMode, BTreeSet<LockMode>> {
    let mut reach: BTreeMap<LockMode, BTreeSet<LockMode>> =
        LockMode::ALL.into_iter().map(|mode| (mode, BTreeSet::from([mode]))).collect();
    for _ in LockMode::ALL {
        for (from, to) in edges(UPGRADES) {
            let further = reach[&to].clone();
            reach.get_mut(&from).unwrap().extend(further);
        }
    }
    reach
}

#[test]
fn compatibility_is_the_papers_table_ii() {
    let mut lines = TABLE_II.lines().filter(|line| !line.trim().is_empty());
    let columns: Vec<LockMode> = lines.next().unwrap().split_whitespace().map(mode).collect();
    let mut cells = 0;
    for line in lines {
        let mut words = line.split_whitespace();
        let requested = mode(words.next().unwrap());
        for (granted, cell) in columns.iter().zip(words) {
            let (while_granted, while_canceling) = match cell {
                "Y" => (true, true),
                "N" => (false, false),
                "N/Y" => (false, true),
                other => panic!("{other} is no cell of the table"),
            };
            let beside = |state| requested.compatible(*granted, state);
            assert_eq!(beside(LockState::Granted), while_granted, "{requested} beside {granted} GRANTED");
            assert_eq!(
                beside(LockState::Canceling),
                while_canceling,
                "{requested} beside {granted} CANCELING"
            );
            cells += 1;
        }
    }
    assert_eq!(cells, 16);
}

#[test]
fn joining_is_the_nearest_mode_that_fig_9_leads_to_from_both() {
    let reach = upgrades();
    for a in LockMode::ALL {
        for b in LockMode::ALL {
            let both: BTreeSet<LockMode> = reach[&a].intersection(&reach[&b]).copied().collect();
            // The least of them: the one from which all the others can be reached.
            let nearest: Vec<LockMode> =
                both.iter().copied().filter(|mode| reach[mode].is_superset(&both)).collect();
            assert_eq!(nearest, [a.join(b)], "{a} with {b}");
            assert_eq!(a.serves(b), reach[&b].contains(&a), "{a} instead of {b}");
        }
    }
}

#[test]
fn what_a_mode_allows_grows_with_each_upgrade() {
    for (from, to) in edges(UPGRADES) {
        assert!(!from.reads() || to.reads(), "{from} to {to}");
        assert!(!from.writes() || to.writes(), "{from} to {to}");
        for other in LockMode::ALL {
            for state in [LockState::Granted, LockState::Canceling] {
                // More restrictive: whoever may stand beside the stronger lock may stand beside the weaker one.
                assert!(
                    !other.compatible(to, state) || other.compatible(from, state),
                    "{other}: {from}, {to}"
                );
            }
        }
    }
}

#[test]
fn each_downgrade_lets_somebody_in_while_the_lock_is_canceled() {
    let reach = upgrades();
    for (from, to) in edges(DOWNGRADES) {
        assert!(reach[&to].contains(&from), "{from} to {to} is a way back");
        let let_in = |granted: LockMode| {
            LockMode::ALL.into_iter().filter(move |new| new.compatible(granted, LockState::Canceling)).count()
        };
        assert!(let_in(to) > let_in(from), "{from} to {to}");
    }
    // From every mode that lets nobody in there is a way to one that does.
    for stuck in LockMode::ALL
        .into_iter()
        .filter(|mode| !LockMode::ALL.into_iter().any(|new| new.compatible(*mode, LockState::Canceling)))
    {
        assert!(edges(DOWNGRADES).iter().any(|(from, _)| *from == stuck), "{stuck}");
    }
}
