//! I8: every call of a client that lives returns, and nobody is evicted who behaves.

use super::{Rule, Violation};
use crate::history::{Fault, FaultKind, History};

/// Checks that every call has returned, except those of clients that were killed, and that every eviction had a cause.
///
/// # Errors
/// The first call that has not returned, or the first eviction without a cause.
//= protocol.md#I8
pub fn check(history: &History) -> Result<(), Violation> {
    for operation in &history.operations {
        let killed = |fault: &Fault| fault.kind == FaultKind::ClientCrashed { node: operation.node };
        if operation.returned.is_none() && !history.faults.iter().any(killed) {
            let what = format!("{operation} never returned, though its client lives");
            return Err(Violation::new(Rule::Turn, &[operation.id], what));
        }
    }
    for (at, fault) in history.faults.iter().enumerate() {
        let FaultKind::ClientEvicted { node, server } = fault.kind else { continue };
        if !history.faults[..at].iter().any(|cause| may_evict(cause.kind, node, server)) {
            let what = format!(
                "server {server} evicted node {node} at {} ns, though nothing had kept it from answering",
                fault.at.at_ns
            );
            return Err(Violation::new(Rule::Turn, &[], what));
        }
    }
    Ok(())
}

/// Whether a fault may be the cause of the eviction of `node` by `server`.
const fn may_evict(cause: FaultKind, node: u32, server: u32) -> bool {
    match cause {
        FaultKind::ClientCrashed { node: other } | FaultKind::Disturbed { node: other } => other == node,
        // Lost connections may be noticed late.
        FaultKind::ServerKilled { server: other }
        | FaultKind::ServerLostPower { server: other }
        | FaultKind::ServerDisturbed { server: other }
        | FaultKind::ServerRestarted { server: other } => other == server,
        FaultKind::ClientEvicted { .. } | FaultKind::DevicesFailed => false,
    }
}
