//! The rules under a model checker.
