//! How a holder lowers what it gives back, against the table of protocol.md 2.7 (paper III-D2, Fig. 9).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ccpfs_dlm::client::{Effect, Input, Locks, Settings};
use ccpfs_region::Region;
use ccpfs_types::{Extent, LockId, LockMode, LockState, OperationId, Policy, RequestId, Sn, Terms};
use ccpfs_wire::GrantedLock;

/// held, what uses it at the revocation (- nothing, r a reader, w a writer), who waits: what the server hears, in order. `ack X`
/// is the acknowledgement, `to X` a later downgrade. `done` marks the end of the use, `flushed` that of the flush.
const TABLE: &str = "
    PR  -  PR  : release
    PR  -  NBW : release
    PR  r  PW  : ack PR, done, release
    NBW -  NBW : ack NBW, flushed, release
    NBW -  PR  : ack NBW, flushed, release
    NBW w  NBW : ack NBW, done, flushed, release
    BW  -  NBW : ack NBW, flushed, release
    BW  -  BW  : ack NBW, flushed, release
    BW  -  PR  : ack BW, flushed, release
    BW  w  BW  : ack BW, done, to NBW, flushed, release
    BW  w  PR  : ack BW, done, flushed, release
    PW  -  NBW : ack NBW, flushed, release
    PW  -  PR  : ack PW, flushed, release
    PW  -  PW  : ack PW, flushed, release
    PW  w  BW  : ack PW, done, to NBW, flushed, release
    PW  w  PR  : ack PW, done, flushed, release
    PW  r  PR  : ack PW, flushed, to PR, done, release
    PW  r  NBW : ack PW, done, to NBW, flushed, release
    PW  r  PW  : ack PW, done, flushed, release
";

fn mode(name: &str) -> LockMode {
    LockMode::ALL.into_iter().find(|mode| mode.to_string() == name).unwrap()
}

/// Plays one line; what the server hears, and what is done between.
fn hear(policy: Policy, held: LockMode, used: &str, wanted: LockMode) -> Vec<String> {
    let mut locks = Locks::new(Settings { policy, locks_max: 8, age_ticks_max: 8 });
    let mut out = Vec::new();
    let (operation, request, lock) = (OperationId(1), RequestId(1), LockId(1));
    let region: Region = Extent::with_length(0, 10).unwrap().into();
    // A reader of a PW lock has found it: it asked for PR.
    let needs = if used == "r" { LockMode::Pr } else { held };
    let acquire = |operation, mode| {
        let (required, desired) = (region.clone(), region.clone());
        Input::Acquire { operation, mode, required, desired, request, terms: Terms::WAIT }
    };
    locks.step(acquire(operation, held), &mut out);
    let granted = GrantedLock {
        lock,
        mode: held,
        region: region.clone(),
        sn: Sn(1),
        state: LockState::Granted,
        replaces: Vec::new(),
        early: false,
    };
    locks.step(Input::Granted { request, granted }, &mut out);
    locks.step(Input::Finish { operation }, &mut out);
    let user = OperationId(2);
    if used != "-" {
        locks.step(acquire(user, needs), &mut out);
        assert_eq!(out.pop(), Some(Effect::Use { operation: user, lock, sn: Sn(1) }));
    }
    out.clear();
    let mut heard = Vec::new();
    let mut in_use = used != "-";
    locks.step(Input::Revoked { lock, wanted }, &mut out);
    loop {
        let mut flushing = false;
        for effect in out.drain(..) {
            match effect {
                Effect::RevokeAck { mode, .. } => heard.push(format!("ack {mode}")),
                Effect::Convert { mode, .. } => heard.push(format!("to {mode}")),
                Effect::Release { .. } => heard.push("release".to_owned()),
                Effect::Flush { .. } => flushing = true,
                Effect::Use { .. }
                | Effect::Refused { .. }
                | Effect::Wanted { .. }
                | Effect::Enqueue { .. }
                | Effect::Hurry { .. } => {
                    panic!("{effect:?}");
                }
            }
        }
        // A flush that was begun ends before the operation does.
        if flushing {
            heard.push("flushed".to_owned());
            locks.step(Input::Flushed { lock, released: false }, &mut out);
        } else if in_use {
            in_use = false;
            heard.push("done".to_owned());
            locks.step(Input::Finish { operation: user }, &mut out);
        } else {
            assert!(locks.is_idle());
            return heard;
        }
    }
}

#[test]
fn holders_lower_what_they_give_back_as_the_table_says() {
    let mut lines = 0;
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (case, expected) = line.split_once(':').unwrap();
        let [held, used, wanted] = case.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{line}") };
        let heard = hear(Policy::SEQDLM, mode(held), used, mode(wanted));
        assert_eq!(heard.join(", "), expected.trim(), "{case}");
        lines += 1;
    }
    assert_eq!(lines, 19);
}

#[test]
fn without_downgrading_nothing_is_lowered() {
    let policy = Policy { downgrading: false, ..Policy::SEQDLM };
    for held in LockMode::ALL {
        for wanted in LockMode::ALL {
            for used in ["-", if held.writes() { "w" } else { "r" }] {
                let heard = hear(policy, held, used, wanted);
                let lowered = |told: &String| {
                    told.starts_with("to ") || (told.starts_with("ack ") && *told != format!("ack {held}"))
                };
                assert!(!heard.iter().any(lowered), "{held} {used} {wanted}: {heard:?}");
            }
        }
    }
}
