//! The words room: turns the facts of libraries into what a user reads.
//!
//! A library's error has a sentence and [next steps](cheetah_error::Next), which name no verb and no option. Here each step
//! becomes a clause that does. The command line and the Python module show errors through this crate.

#![forbid(unsafe_code)]

mod clause;
#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;

use std::fmt::Display;

use cheetah_error::{Error, Next};

pub use clause::clause;

/// The error as a user reads it: its sentence, and the next steps.
pub fn sentence(error: &Error) -> String {
    with(error, error.steps())
}

/// A fact, followed by the next steps: `FACT; STEP; STEP`.
pub fn with(fact: impl Display, steps: &[Next]) -> String {
    match clauses(steps) {
        clauses if clauses.is_empty() => fact.to_string(),
        clauses => format!("{fact}; {clauses}"),
    }
}

/// The next steps as one clause; empty if there are none.
pub fn clauses(steps: &[Next]) -> String {
    steps.iter().map(clause).collect::<Vec<_>>().join("; ")
}
