//! Why some of our numbers are not the paper's: each explanation with runs in which the suspected effect is added or removed.

use super::Size;
use super::result::Table;
use super::run::{Outcomes, Spec};

/// An explanation.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// The claims it is about.
    pub claims: Vec<&'static str>,
    /// What it says.
    pub text: String,
    /// The runs that show it.
    pub evidence: Option<Table>,
}

/// The runs that explanations need beside those of the figures.
#[must_use]
pub fn specs(_: Size) -> Vec<Spec> {
    Vec::new()
}

/// All explanations.
#[must_use]
pub fn explanations(_: Size, _: &Outcomes) -> Vec<Explanation> {
    Vec::new()
}
