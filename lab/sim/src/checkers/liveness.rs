//! I8: every call of a client that lives returns.

use super::{Rule, Violation};
use crate::history::{FaultKind, History};

/// Checks that every call has returned, except those of clients that were killed.
///
/// # Errors
/// The first call that has not.
//= protocol.md#I8
pub fn check(history: &History) -> Result<(), Violation> {
    for operation in &history.operations {
        let killed = |kind: FaultKind| kind == FaultKind::ClientCrashed { node: operation.node };
        if operation.returned.is_none() && !history.faults.iter().any(|fault| killed(fault.kind)) {
            let what = format!("{operation} never returned, though its client lives");
            return Err(Violation::new(Rule::Turn, &[operation.id], what));
        }
    }
    Ok(())
}
