//! I1 to I4, I6, I7 and I9, checked at each step.

use super::{Observer, Violation};

/// Remembers what it is told and finds what must not be.
#[derive(Clone, Debug, Default)]
pub struct Invariants {
    violation: Option<Violation>,
}

impl Invariants {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new() -> Invariants {
        Invariants::default()
    }

    /// The first violation, if there was one.
    #[must_use]
    pub const fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }
}

impl Observer for Invariants {}
